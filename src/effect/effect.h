/*
 * effect: what Once remembers of an effect besides its record, and how it is written (CCO-1).
 *
 * The record of an effect: kind RECORD_EFFECT, key {tenant, scope = effect_type, principal = "",
 * key = idempotency_key}, parent = its command or operation when that is one of ours, trace = the
 * envelope's trace. Its request body is the payload as it came, sealed by the vault. Its detail is
 * struct effect_detail as one JSON object. It holds no part of the payload in clear: the redacted
 * form and the values that a compensation needs are sealed too.
 *
 * Promises:  what was encoded is decoded the same. Members that this version does not know are
 *            passed over, so that a newer version can add one. Everything read is checked: a detail
 *            that is not ours is E_CORRUPT, never "absent".
 * Ownership: slices are borrowed; decoded ones are in the arena.
 * Threads:   pure functions.
 */
#ifndef ONCE_EFFECT_EFFECT_H
#define ONCE_EFFECT_EFFECT_H

#include "config/effects.h"
#include "core/kind.h"

enum {
    EFFECT_PAYLOAD_BYTES_MAX =
        1 << 20,                 /* effect_payload_bytes_max: a call, not a transfer of data */
    EFFECT_ACK_TOKEN_BYTES = 32, /* random, of an envelope's later acknowledgement */
};

/* Why it is unknown what became of an effect that was acknowledged. */
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
    struct slice effect_id;  /* the caller's name for it; empty: the record's id is its name */
    struct slice command_id; /* as given; may be empty */
    struct slice target;     /* JSON; empty: absent */
    int64_t ordinal;
    struct slice policy_refs; /* JSON array; empty: absent */
    struct slice extensions;  /* JSON object with the members x_* and extensions; empty: none */
    struct slice lane;        /* what `order` came to; empty: it has no order */
    struct slice redacted;    /* sealed: the payload without what is redacted; empty: too long */
    struct slice undo;        /* sealed: values for its compensation (template_put_values) */
    struct op_id compensates; /* the effect that this one undoes; zero: none */

    /* Set by whoever sends it, or settles it by hand. */
    int64_t first_sent_ms; /* the first attempt that may have reached the provider; 0: none did. A
                              key is worth its `keeps` from here on */
    bool is_uncertain;     /* an attempt may have taken effect, and no later one said so or not */
    enum effect_ack ack;
    struct slice provider_ref;      /* may be empty */
    int64_t ack_ms;                 /* when it was acknowledged */
    bool retryable;                 /* the acknowledgement says so */
    struct digest ack_token;        /* SHA-256 of the token that the envelope carries; zero: none */
    uint32_t ack_attempt;           /* the attempt that it belongs to, and ack too */
    struct digest ack_token_before; /* that of an attempt before it; zero: none */

    /* Set when its compensation begins; its key is effect_undo_key of this record. */
    struct slice compensation; /* the type of the effect that undoes this one; empty: none */
};

/* E_LIMIT: longer than LIMIT_DETAIL_BYTES_MAX. E_NOMEM. */
enum status effect_detail_encode(
    const struct effect_detail *detail, struct buf *out, struct err *err) MUST_CHECK;
/* An empty one is all zero. E_CORRUPT, E_NOMEM. */
enum status effect_detail_decode(struct slice bytes, struct arena *arena,
    struct effect_detail *ret_detail, struct err *err) MUST_CHECK;

/* What the outside calls an effect: the caller's name, else "eff_…" in the buffer. */
struct slice effect_name(const struct record *record, const struct effect_detail *detail,
    char buffer[KIND_ID_TEXT_BYTES]);

/* The key of the effect that compensates this one: one for each effect, so that it is undone once.
 * Sealed; its texts are in the arena. E_NOMEM. */
enum status effect_undo_key(const struct record *record, struct slice effect_type,
    struct arena *arena, struct record_key *ret_key, struct err *err) MUST_CHECK;

#endif
