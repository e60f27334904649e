/*
 * effect: the data that Once keeps of an effect in its record's detail, and its encoding (CCO-1).
 *
 * The record of an effect: kind RECORD_EFFECT, key {tenant, scope = effect_type, principal = "",
 * key = idempotency_key}, parent = its command or operation if that is ours, trace = the envelope's
 * trace. Its request body is the payload as received, sealed by the vault. Its detail is struct
 * effect_detail as one JSON object. It holds no part of the payload in clear: the redacted form and
 * the values that a compensation needs are sealed too.
 *
 * Promises:  decoding returns exactly what was encoded. Unknown members are ignored, so that a
 *            newer version can add some. Everything read is checked: an invalid detail is
 *            E_CORRUPT, never "absent".
 * Ownership: slices are borrowed; decoded ones are in the arena.
 * Threads:   pure functions.
 */
#ifndef ONCE_ENVELOPE_EFFECT_H
#define ONCE_ENVELOPE_EFFECT_H

#include "config/effects.h"
#include "core/kind.h"

enum {
    EFFECT_PAYLOAD_BYTES_MAX =
        1 << 20,                 /* effect_payload_bytes_max: a call, not a transfer of data */
    EFFECT_ACK_TOKEN_BYTES = 32, /* random; for an envelope's later acknowledgement */
};

/* Why an acknowledged effect is unknown. */
#define EFFECT_COMPENSATION_FAILED "its compensation failed"

/* CCO-7. */
enum effect_ack {
    EFFECT_ACK_NONE, /* none yet */
    EFFECT_ACK_ACKNOWLEDGED,
    EFFECT_ACK_REJECTED, /* by the provider, or cancelled */
    EFFECT_ACK_FAILED,
    EFFECT_ACK_PENDING, /* it comes later */
};
enum { EFFECT_ACKS = 5 };
/* "acknowledged", …; NULL for none. */
const char *effect_ack_name(enum effect_ack ack);
bool effect_ack_read(struct slice text, enum effect_ack *ret_ack);

struct effect_detail {
    /* Set when it is made. */
    struct slice effect_id;  /* the caller's name for it; empty: the record's id names it */
    struct slice command_id; /* as given; may be empty */
    struct slice target;     /* JSON; empty: absent */
    int64_t ordinal;
    struct slice policy_refs; /* JSON array; empty: absent */
    struct slice extensions;  /* JSON object with the members x_* and extensions; empty: none */
    struct slice lane;        /* the value of `order`; empty: no order */
    struct slice redacted;    /* sealed: the redacted payload; empty: too long */
    struct slice undo;        /* sealed: values for its compensation (template_put_values) */
    struct op_id compensates; /* the effect that this one undoes; zero: none */

    /* Set by the sender, or when it is settled by hand. */
    int64_t first_sent_ms; /* the first attempt that may have reached the provider; 0: none did. The
                              provider's `keeps` counts from here */
    bool is_uncertain;     /* an attempt may have taken effect, and no later one has settled that */
    enum effect_ack ack;
    struct slice provider_ref;      /* may be empty */
    int64_t ack_ms;                 /* when it was acknowledged */
    bool retryable;                 /* as the acknowledgement says */
    struct digest ack_token;        /* SHA-256 of the envelope's token; zero: none */
    uint32_t ack_attempt;           /* the attempt that ack and ack_token belong to */
    struct digest ack_token_before; /* of an earlier attempt; zero: none */

    /* Set when its compensation begins; its key is effect_undo_key of this record. */
    struct slice compensation; /* the type of the effect that undoes this one; empty: none */
};

/* E_LIMIT: longer than LIMIT_DETAIL_BYTES_MAX. E_NOMEM. */
enum status effect_detail_encode(
    const struct effect_detail *detail, struct buf *out, struct err *err) MUST_CHECK;
/* The same, into an empty buffer; if it is too long, the redacted payload is left out, because the
 * rest is more important. */
enum status effect_detail_fit(
    struct effect_detail *detail, struct buf *out, struct err *err) MUST_CHECK;
/* False: encoded bytes certainly do not have the member, and need not be decoded for it. */
bool effect_detail_may_have(struct slice bytes, const char *name);
/* Empty bytes decode to a zeroed detail. E_CORRUPT, E_NOMEM. */
enum status effect_detail_decode(struct slice bytes, struct arena *arena,
    struct effect_detail *ret_detail, struct err *err) MUST_CHECK;

/* The public name of an effect: the caller's name, else "eff_…" in the buffer. */
struct slice effect_name(const struct record *record, const struct effect_detail *detail,
    char buffer[KIND_ID_TEXT_BYTES]);

/* Whether its parent is a command of ours, which may wait for it. */
bool effect_has_command(const struct record *record, const struct effect_detail *detail);

/* Whether the last record of the commit that settled an effect is a command that nobody has to move
 * on now: one that is being compensated has to be. */
bool effect_has_moved_command(const struct record *last);

/* The key of the effect that compensates this one. Each effect has one such key, so that it is
 * undone once. The key is sealed; its texts are in the arena. E_NOMEM. */
enum status effect_undo_key(const struct record *record, struct slice effect_type,
    struct arena *arena, struct record_key *ret_key, struct err *err) MUST_CHECK;

#endif
