/*
 * fenced: a request that may take effect once. fenced.c has its life, fenced_key.c its key,
 * fenced_compose.c its begin, fenced_answer.c the answers to its client, fenced_return.c how the
 * upstream's own answer reaches the client.
 *
 *           ask            granted             the upstream's last word          settled
 *   READING ───▶ ASKED ──────────────▶ FORWARDED ─────────────────────▶ SETTLING ───────▶ RETURNING
 *                │ ▲ │ unknown            │ longer than is kept         ▲                    │
 *                │ │ ▼                    └─────▶ SEALING ──▶ STREAMING │                    │
 *                │ RECONCILING                               settled │  │                    │
 *                └─ nothing can be sent ─────────────────────────────│──┘                    │
 *   READING, ASKED, SETTLING ── refused ───────▶ ANSWERED ◀──────────┴───────────────────────┘
 *
 * Transitions, all through fenced_move, which refuses any other:
 *   READING → ASKED          ask             body and fingerprint are here; the begin is submitted
 *   ASKED → RECONCILING      held_unknown    the upstream is asked whether it happened
 *   RECONCILING → ASKED      ask             it said so, or did not
 *   ASKED → ASKED            ask             it is no replay, though its key is in sealed_keys.h
 *   ASKED → FORWARDED        forward         the grant is durable
 *   ASKED → SETTLING         release_unsent  granted, and nothing could be sent
 *   FORWARDED → SETTLING     on_done         its last word came, or it failed
 *   FORWARDED → SEALING      on_long         its head came, and the body is longer than is kept
 *   SETTLING → RETURNING     return_rest     settled; a longer answer goes piece by piece
 *   SEALING → STREAMING      fenced_stream   settled; what follows goes through
 *   READING, ASKED, SETTLING, SEALING, STREAMING, RETURNING → ANSWERED
 *                            fenced_release  refused, or all was given: the answer is the server's
 *
 * What holds (fenced_check):
 *   G1  in ASKED, SETTLING and SEALING, and in no other state, a call of ours is in the engine;
 *       then nobody but the engine allocates in the exchange's arena.
 *   G2  FORWARDED has an outcall that captures, SEALING and STREAMING one that is held or streams;
 *       no other state has one that is not over, and none is begun without a grant (fence > 0, P6).
 *   G3  RETURNING and STREAMING: the operation is settled, durably (P2). An answer that is_live is
 *       given in FORWARDED already, the exception of P2, and its end only in these two.
 */
#ifndef ONCE_GATEWAY_FENCED_H
#define ONCE_GATEWAY_FENCED_H

#include "gateway/impl.h"
#include "gateway/reconcile.h"
#include "gateway/request_form.h"

enum fenced_state {
    FENCED_READING,
    FENCED_ASKED,
    FENCED_RECONCILING,
    FENCED_FORWARDED,
    FENCED_SETTLING,
    FENCED_SEALING,
    FENCED_STREAMING,
    FENCED_RETURNING,
    FENCED_ANSWERED,
};

/* In its exchange's arena. */
struct fenced {
    struct gateway_request request;
    enum fenced_state state;
    bool in_engine; /* G1 */

    /* The request. */
    struct slice query; /* canonical */
    struct slice key;
    struct slice principal;
    struct spool body; /* holds the body if it is too long for the server's memory */
    bool is_spooled;
    struct request_form form;
    bool has_refusal; /* refused before its body was read; answered after that */
    struct refusal refusal;
    int64_t flooded_ms;

    /* The grant. */
    struct op_id operation_id;
    char operation_text[OP_ID_TEXT_BYTES];
    uint64_t fence;
    uint32_t attempt;
    struct reconcile_wait reconcile;
    unsigned questions; /* about an unknown outcome that it has waited for */

    /* The answer. */
    struct buf head;           /* of the request to the upstream */
    enum refusal_kind failure; /* used where the upstream gave no answer */
    size_t given;              /* bytes of the captured answer given to the client */
    bool is_live;       /* the client gets the answer while it is captured; its head was sent */
    bool is_full;       /* … and the client takes no more until it is drained */
    const char *effect; /* Once-Effect, if an answer that is no outcome is passed on; or NULL */
    size_t diff_bytes;  /* of a conflict */

    /* Last: fenced_new clears these apart, and not their texts of errors. */
    struct err fault;
    struct outcall out;    /* to the upstream */
    struct door_call call; /* to the engine */
};

/* fenced.c */
void fenced_move(struct fenced *fenced, enum fenced_state state);
/* Release everything that only a fenced request has, before its answer is ended. */
void fenced_release(struct fenced *fenced);
/* … and the rest, and count it (gateway_request_end). */
void fenced_end(struct fenced *fenced, unsigned status);

/* fenced_key.c: find the key as the route says. Sets key, and key_field as it is echoed and sent
 * on. The key stays empty where the request has none. E_INVALID, E_NOMEM, E_UNAVAILABLE: with
 * fault, which also says what is missing where the kind's own sentence would not. */
enum status fenced_key_from_head(struct fenced *fenced) MUST_CHECK;
enum status fenced_key_from_body(struct fenced *fenced, struct slice body) MUST_CHECK;

/* fenced_compose.c: make the begin, in fenced->call, for the request with this body. What is known
 * of its key may shorten that: then the engine is asked for a replay alone (replays_only), and
 * where that fails the begin is made whole. E_INVALID, E_NOMEM: with fault. */
enum fenced_how { FENCED_SHORT, FENCED_WHOLE };
enum status fenced_make_begin(
    struct fenced *fenced, struct slice body, enum fenced_how how) MUST_CHECK;
/* The operation of the request's key is sealed; it was not replayed. */
void fenced_learn(const struct fenced *fenced);
void fenced_forget(const struct fenced *fenced);
/* Whether the call can still end before the lease of its grant does. It may not if the loop or the
 * engine stood still since the grant; then nothing must be sent. */
bool fenced_lease_covers_call(const struct fenced *fenced);

/* fenced_answer.c: each ends the request, except fenced_report and fenced_answer_head. */
void fenced_refuse(struct fenced *fenced, const struct refusal *refusal, const char *decision);
/* Answer with the outcome of a sealed record. */
void fenced_replay(struct fenced *fenced);
/* Count and log the decision. */
void fenced_report(struct fenced *fenced, unsigned status);
/* The head of the upstream's own answer: status, its fields and ours. */
void fenced_answer_head(struct fenced *fenced);
/* Break off an answer that was begun and cannot be completed, so that the client sees it is
 * incomplete. */
void fenced_break(struct fenced *fenced, unsigned status);

/* fenced_return.c: give the upstream's own answer, settled and captured whole. */
void fenced_return(struct fenced *fenced);
/* … or held: give what was captured, then what follows. */
void fenced_stream(struct fenced *fenced);
/* An answer that is_live was settled, or was not: give the rest of it, or cut it. */
void fenced_live_end(struct fenced *fenced, bool is_whole);
/* Events of the outcall (struct outcall_stream): head, more, piece and ended. */
void fenced_live_begin(struct outcall *out);
void fenced_live_more(struct outcall *out);
bool fenced_stream_piece(struct outcall *out, struct slice piece);
void fenced_stream_ended(struct outcall *out, bool is_whole);

#endif
