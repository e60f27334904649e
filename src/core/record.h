/*
 * record: what is remembered of one operation.
 *
 * Invariants (record_check asserts them; R numbers are cited elsewhere):
 *   R1  fence > 0 and attempt > 0: a record exists only because something was granted (P4).
 *   R2  in_progress has a lease and no window; it never expires (P8).
 *   R3  unknown has neither lease nor window; it never expires (P5, P8).
 *   R4  every other status has a window that ends after the record was last granted, and no lease.
 *   R5  only executed, failed, rejected and compensated carry an outcome or a seal time (P3).
 *   R6  tenant and key are not empty; every name is within its limit (P14).
 *   R7  a source's record is executed, without an outcome; its key is the source's type (in place
 *       of the principal) and id, and it has a version. operation_id and fence are those of the
 *       seal that it came from. R1 to R6 hold for it too.
 *
 *                  +------------- renew ------------+
 *                  v                                |
 *   (absent) -> in_progress -- lease over --> unknown <---- unknown (the holder does not know)
 *      ^           |   |                        |  |
 *      |           |   +---- seal --------------|--+--> executed | failed | rejected
 *      |           +------- release / resolve --+--> released      |
 *      +---- window over ----------------------------------+-------+
 *
 * That is an operation. Every arrow is performed by decide() and by nothing else; window over is
 * absence (decide.h). A source's record only ever becomes newer (core/source.h).
 *
 * Ownership: slices are borrowed; an arena or a store owns the bytes.
 */
#ifndef ONCE_CORE_RECORD_H
#define ONCE_CORE_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"
#include "canon/digest.h"

/* Values are on disk: never renumber. */
enum record_kind {
    RECORD_OPERATION = 1, /* effects and deliveries are to come */
    RECORD_SOURCE = 2,    /* the newest version of a source that was sealed (core/source.h) */
};

/* Values are on disk: never renumber. */
enum record_status {
    RECORD_IN_PROGRESS = 1, /* somebody holds the grant */
    RECORD_UNKNOWN = 2,     /* nobody knows whether the effect happened */
    RECORD_RELEASED = 3,    /* the effect certainly did not start; may be granted again */
    RECORD_EXECUTED = 4,    /* it happened */
    RECORD_FAILED = 5,      /* it is known to have failed, for good */
    RECORD_REJECTED = 6,    /* it was refused before it began */
    RECORD_COMPENSATED = 7, /* it happened and was undone */
};

/* Identifies one operation for ever. A UUIDv7 whose random part is derived: see op_id_make. */
struct op_id {
    unsigned char bytes[16];
};

enum { OP_ID_TEXT_BYTES = 40 }; /* "op_", 36 characters of UUID, terminator */

/* What names an operation. The hash is over the length-framed parts, so no two different tuples
 * collide by gluing (P9). */
struct record_key {
    struct slice tenant;
    struct slice scope;
    struct slice principal;
    struct slice key;
    struct digest hash; /* record_key_seal computes it */
};

/* A body kept apart from the record, named by its digest. */
struct body_ref {
    struct digest digest; /* SHA-256 of the bytes */
    uint64_t bytes;       /* their count; 0 with retained false: there is none */
    bool retained;        /* the bytes are kept; false when too large, or erased */
    uint64_t place;       /* where the store keeps them: the store's business, 0 for elsewhere */
};

/* What the first execution answered. */
struct outcome {
    int32_t code;         /* HTTP status, exit code, …; the door's business */
    struct slice meta;    /* allow-listed headers and the like; the door's business */
    struct body_ref body; /* the bytes */
};

struct source {
    struct slice type;
    struct slice id;
    struct slice version;
};

struct record {
    struct record_key key;
    uint64_t version; /* grows by one with every change; the stores' compare-and-set */
    enum record_kind kind;
    enum record_status status;
    struct op_id operation_id;
    struct digest fingerprint;   /* keyed: HMAC of what was asked (see engine/engine.h) */
    uint8_t fingerprint_version; /* how the fingerprint was computed */
    uint64_t fence;              /* of the latest grant */
    uint32_t attempt;            /* grants of this operation so far */
    uint32_t duplicates;         /* arrivals that found this record and were not granted */
    int64_t created_ms;          /* first grant of this operation */
    int64_t updated_ms;          /* latest change */
    int64_t sealed_ms;           /* 0 until sealed */
    int64_t lease_expires_ms;    /* 0 unless in progress */
    int64_t window_expires_ms;   /* 0 while it cannot expire */
    int64_t window_ms;           /* how long after the seal duplicates are recognised */
    struct slice effect_id;      /* the effect's own name, given with the seal */
    struct outcome outcome;      /* after a seal */
    struct body_ref request;     /* the first request's canonical body, to explain conflicts */
    struct source source;        /* where the request came from, when it said */
    struct slice trace;          /* canonical JSON of the first request's trace ids */
    struct slice reason;         /* why it was released, is unknown, or was settled */
};

/* Compute key->hash from the parts. E_INVALID names the part that is empty, too long or not
 * UTF-8. */
enum status record_key_seal(struct record_key *key, struct err *err) MUST_CHECK;
/* The same for a record of another kind: its hash is never one of an operation. */
enum status record_key_seal_as(
    struct record_key *key, enum record_kind kind, struct err *err) MUST_CHECK;

/* The id of the operation that this fence was first granted for. Pure and unique: a store never
 * issues a fence twice. 48 bits of the key's hash are in it, so that a store finds the record from
 * the id alone (op_id_prefix). */
struct op_id op_id_make(int64_t now_ms, const struct digest *key_hash, uint64_t fence);
/* The first 48 bits of the key hash that the id carries. */
uint64_t op_id_prefix(const struct op_id *id);
/* When it was made, in milliseconds since 1970. */
int64_t op_id_time_ms(const struct op_id *id);
/* The low 26 bits of the fence that it was first granted with. */
uint32_t op_id_fence(const struct op_id *id);
bool op_id_equal(const struct op_id *a, const struct op_id *b);
/* "op_" and the UUID. Returns its argument. */
char *op_id_put(char ret_text[OP_ID_TEXT_BYTES], const struct op_id *id);
bool op_id_read(struct slice text, struct op_id *ret_id);

/* "in_progress", "executed", … */
const char *record_status_name(enum record_status status);
bool record_status_read(struct slice text, enum record_status *ret_status);
/* It has an outcome that duplicates are answered with. */
bool record_status_sealed(enum record_status status);

/* The record is past its window: the same as absent (P8: never true in progress or unknown). */
bool record_window_over(const struct record *record, int64_t now_ms);
/* When the janitor has something to do with it; INT64_MAX for never. */
int64_t record_due_ms(const struct record *record);

/* Assert R1 to R7. For records that our own code made. */
void record_check(const struct record *record);

/* The stored form, described in docs/formats/journal.md. */
void record_encode(const struct record *record, struct buf *out);
/* Everything is validated; slices point into bytes. E_CORRUPT says what is wrong. */
enum status record_decode(
    struct slice bytes, struct record *ret_record, struct err *err) MUST_CHECK;
/* Copy what the slices point at into the arena. */
enum status record_copy(
    const struct record *from, struct arena *arena, struct record *ret_record) MUST_CHECK;

#endif
