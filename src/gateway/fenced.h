/*
 * fenced: a request that may take effect once. fenced.c is its life; fenced_key.c its key,
 * fenced_ask.c what it asks of the engine, fenced_answer.c what its client is answered,
 * fenced_give.c how it gets the upstream's own answer.
 *
 *           ask            granted             the upstream's last word          settled
 *   READING ───▶ ASKED ──────────────▶ FORWARDED ─────────────────────▶ SETTLING ───────▶ GIVING
 *                │ ▲ │ unknown            │ longer than is kept         ▲                    │
 *                │ │ ▼                    └─────▶ SEALING ──▶ STREAMING │                    │
 *                │ RECONCILING                               settled │  │                    │
 *                └─ nothing can be sent ─────────────────────────────│──┘                    │
 *   any of them ── refused, or all was given ──▶ ANSWERED ◀──────────┴───────────────────────┘
 *
 * Transitions, all through fenced_move, which refuses any other:
 *   READING → ASKED          ask             body and fingerprint are here; the begin is submitted
 *   ASKED → RECONCILING      held_unknown    the upstream is asked what became of it, once
 *   RECONCILING → ASKED      ask             it said so, or did not
 *   ASKED → FORWARDED        forward         the grant is durable
 *   ASKED → SETTLING         release_unsent  granted, and nothing could be sent
 *   FORWARDED → SETTLING     on_done         its last word came, or it failed
 *   FORWARDED → SEALING      on_long         its head came, and the body is longer than is kept
 *   SETTLING → GIVING        give_rest       settled; a longer answer goes piece by piece
 *   SEALING → STREAMING      fenced_stream   settled; what follows goes through
 *   … → ANSWERED             fenced_release  the answer is the server's
 *
 * What holds (fenced_check):
 *   G1  in ASKED, SETTLING and SEALING, and in no other state, a call of ours is in the engine;
 *       then nobody but the engine allocates in the exchange's arena.
 *   G2  FORWARDED has an outcall that captures, SEALING and STREAMING one that is held or streams;
 *       no other state has one that is not over, and none is begun without a grant (fence > 0, P6).
 *   G3  GIVING and STREAMING: the operation is settled, durably (P2). An answer that is_live is
 *       given in FORWARDED already, the exception of P2, and its end only in these two.
 */
#ifndef ONCE_GATEWAY_FENCED_H
#define ONCE_GATEWAY_FENCED_H

#include "gateway/impl.h"
#include "gateway/request_form.h"

enum fenced_state {
    FENCED_READING,
    FENCED_ASKED,
    FENCED_RECONCILING,
    FENCED_FORWARDED,
    FENCED_SETTLING,
    FENCED_SEALING,
    FENCED_STREAMING,
    FENCED_GIVING,
    FENCED_ANSWERED,
};

/* In its exchange's arena. */
struct fenced {
    struct gateway_request request;
    struct door_call call; /* with the engine */
    struct outcall out;    /* with the upstream */
    enum fenced_state state;
    bool in_engine; /* G1 */
    struct err fault;

    /* The request. */
    struct slice query; /* canonical */
    struct slice key;
    struct slice principal;
    struct spool body; /* if it is too long for the server to hold */
    bool is_spooled;
    struct request_form form;
    bool has_refusal; /* refused before its body was read; answered when it was */
    struct refusal refusal;
    int64_t flooded_ms;

    /* The grant. */
    struct op_id operation_id;
    char operation_text[OP_ID_TEXT_BYTES];
    uint64_t fence;
    uint32_t attempt;
    bool was_reconciled;

    /* The answer. */
    struct buf head;           /* of the request, for the upstream */
    enum refusal_kind failure; /* where the upstream gave none */
    size_t given;              /* bytes of what was captured, to the client */
    bool is_live;              /* the client gets it as it is captured; its head was sent */
    bool is_full;              /* … and takes no more until it is drained */
    const char *effect; /* Once-Effect, where an answer that is no outcome is passed on; or NULL */
    size_t diff_bytes;  /* of a conflict */
};

/* fenced.c */
void fenced_move(struct fenced *fenced, enum fenced_state state);
/* Let go of everything that only a fenced request has; before its answer is ended. */
void fenced_release(struct fenced *fenced);
/* … and of the rest, and count it (gateway_request_end). */
void fenced_end(struct fenced *fenced, unsigned status);

/* fenced_key.c: the key, as the route says: key, and key_field as it is echoed and sent on. The key
 * stays empty where the request has none. E_INVALID, E_NOMEM, E_UNAVAILABLE: with fault, which also
 * says what is missing where the kind's own sentence would not. */
enum status fenced_key_from_head(struct fenced *fenced) MUST_CHECK;
enum status fenced_key_from_body(struct fenced *fenced, struct slice body) MUST_CHECK;

/* fenced_ask.c: make the begin, in fenced->call, of the request with this body. E_INVALID, E_NOMEM:
 * with fault. */
enum status fenced_make_begin(struct fenced *fenced, struct slice body) MUST_CHECK;
/* Whether the call can still end before the lease of its grant does. It may not after the loop or
 * the engine stood still since the grant: then nothing must be sent. */
bool fenced_lease_covers_call(const struct fenced *fenced);

/* fenced_answer.c: each is the last that is done with it, but for report and the fields. */
void fenced_refuse(struct fenced *fenced, const struct refusal *refusal, const char *decision);
/* Of a record that is sealed. */
void fenced_replay(struct fenced *fenced);
/* Count and log what was decided. */
void fenced_report(struct fenced *fenced, unsigned status);
/* The head of the upstream's own answer: status, its fields and ours. */
void fenced_answer_head(struct fenced *fenced);
/* An answer that was begun and cannot be ended as it should: the client sees that it broke off. */
void fenced_break(struct fenced *fenced, unsigned status);

/* fenced_give.c: the upstream's own answer, once it is settled: all of it was captured. */
void fenced_give(struct fenced *fenced);
/* … or it is held: what was captured, then what follows. */
void fenced_stream(struct fenced *fenced);
/* One that is_live was settled, or not: the rest of it, or a cut. */
void fenced_live_end(struct fenced *fenced, bool is_whole);
/* Events of the outcall (struct outcall_stream): head, more, piece and ended. */
void fenced_live_begin(struct outcall *out);
void fenced_live_more(struct outcall *out);
bool fenced_stream_piece(struct outcall *out, struct slice piece);
void fenced_stream_ended(struct outcall *out, bool is_whole);

#endif
