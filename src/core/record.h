/*
 * record: what is remembered of one operation.
 *
 * Invariants (record_check asserts them; R numbers are cited elsewhere):
 *   R1  after its first grant a record has fence > 0 and attempt > 0 (P4). Before it both are 0,
 *       and the status is pending, waiting, dead or rejected. A command that was rejected after a
 *       grant and is submitted again keeps the fence and has no attempt yet.
 *   R2  in_progress has a lease and no window; it never expires (P8).
 *   R3  unknown has neither lease nor window; it never expires (P5, P8).
 *   R4  released, executed, failed, rejected and compensated have a window that ends after the
 *       record was last granted, and no lease. Pending, waiting, dead and compensating have neither
 *       and never expire, because somebody still has to act (P8).
 *   R5  executed, failed, rejected, compensating and compensated have a seal time; unknown has one
 *       if it is the compensation whose outcome is unknown; no other status has one. A record
 *       without a seal time has no outcome (P3).
 *   R6  tenant and key are not empty; every name and the detail are within their limits (P14).
 *   R7  a source's record is executed, without an outcome; its key is the source's type (in place
 *       of the principal) and id, and it has a version. operation_id and fence are those of the
 *       seal that it came from. R1 to R6 hold for it too; it has neither holder nor due (R9).
 *   R8  the kind has the status (core/kind.h).
 *   R9  only in_progress has a holder. Pending has a due time; waiting, unknown and compensating
 *       may have one. For every other status it is the end of the lease or window, or never. An
 *       unknown operation of the gateway without a due time is due from the moment it became
 *       unknown (record_due_ms).
 *   R10 a settled record of work that Once performs itself has no request body: the body was kept
 *       to be sent, and is erased with the change that settles the record (docs/effects.md). That
 *       of an operation stays, because it explains conflicts. Records of earlier releases may have
 *       one, so that record_flaw does not check it.
 *
 * core/kind.h has the state diagram. Only decide() changes the status; a record past its window
 * counts as absent (decide.h). A source's record is only replaced by a newer version
 * (core/source.h).
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

/* Values are on disk: never renumber. core/kind.h has a table of them. */
enum record_kind {
    RECORD_OPERATION = 1, /* fences, gateway, `once run` */
    RECORD_SOURCE = 2,    /* the newest version of a source that was sealed (core/source.h) */
    RECORD_COMMAND = 3,   /* an intent with a registry entry */
    RECORD_EFFECT = 4,    /* one call to the outside */
    RECORD_DELIVERY = 5,  /* one inbound event on its way to a handler */
};

/* Values are on disk: never renumber. */
enum record_status {
    RECORD_IN_PROGRESS = 1,   /* somebody holds the grant */
    RECORD_UNKNOWN = 2,       /* nobody knows whether the effect, or its compensation, happened */
    RECORD_RELEASED = 3,      /* the effect certainly did not start; may be granted again */
    RECORD_EXECUTED = 4,      /* it happened */
    RECORD_FAILED = 5,        /* it has failed, finally */
    RECORD_REJECTED = 6,      /* it was refused before it began */
    RECORD_COMPENSATED = 7,   /* it happened and was undone */
    RECORD_PENDING = 8,       /* to be claimed when it is due */
    RECORD_WAITING = 9,       /* for a confirmation, for effects, or for an earlier record */
    RECORD_DEAD = 10,         /* given up without an effect; a person may take it up again */
    RECORD_COMPENSATING = 11, /* it happened and is being undone */
};

enum { RECORD_STATUS_END = RECORD_COMPENSATING + 1 };

/* The door that made a record. Values are on disk: never renumber. */
enum record_door {
    RECORD_DOOR_NONE = 0, /* unknown: format 1 does not store it */
    RECORD_DOOR_FENCES = 1,
    RECORD_DOOR_GATEWAY = 2,
    RECORD_DOOR_RUN = 3,
    RECORD_DOOR_COMMANDS = 4,
    RECORD_DOOR_EFFECTS = 5,
    RECORD_DOOR_INBOX = 6,
};

enum { RECORD_DOOR_END = RECORD_DOOR_INBOX + 1 };

/* Why a record needs somebody to act. It follows from the status. */
enum record_due {
    RECORD_DUE_NEVER,
    RECORD_DUE_LEASE_OVER,        /* in_progress */
    RECORD_DUE_NEXT_ATTEMPT,      /* pending */
    RECORD_DUE_CONFIRMATION_OVER, /* waiting; compensating, where its door drives it */
    RECORD_DUE_RECONCILE_AGAIN,   /* unknown */
    RECORD_DUE_WINDOW_OVER,       /* released, and everything settled */
};

/* Identifies one operation forever. A UUIDv7 whose random part is derived: see op_id_make. */
struct op_id {
    unsigned char bytes[16];
};

enum { OP_ID_TEXT_BYTES = 40 }; /* "op_", 36 characters of UUID, terminator */

/* What names an operation. The hash covers the parts with their lengths, so that two different
 * tuples never concatenate to the same bytes (P9). */
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
    uint64_t bytes;       /* their count; 0 with retained false: there is no body */
    bool retained;        /* the bytes are kept; false when too large, or erased */
    uint64_t place;       /* where the store keeps them, in the store's own terms; 0: elsewhere */
};

/* What the first execution answered. */
struct outcome {
    int32_t code;         /* HTTP status, exit code, …; only the door interprets it */
    struct slice meta;    /* allow-listed headers and the like; only the door interprets it */
    struct body_ref body; /* the bytes */
};

struct source {
    struct slice type;
    struct slice id;
    struct slice version;
};

struct record {
    struct record_key key;
    uint64_t version; /* grows by one with every change; stores compare and set it */
    enum record_kind kind;
    enum record_status status;
    struct op_id operation_id;
    struct digest fingerprint;   /* keyed: HMAC of what was asked (see engine/engine.h) */
    uint8_t fingerprint_version; /* how the fingerprint was computed */
    uint64_t fence;              /* of the latest grant; 0 before the first */
    uint32_t attempt;            /* grants of this operation so far; of a command: since it was last
                                    submitted again */
    uint32_t duplicates;         /* arrivals that found this record and were not granted */
    int64_t created_ms;          /* when this operation was first granted or enqueued */
    int64_t updated_ms;          /* latest change, except of the due time of an unknown record */
    int64_t sealed_ms;           /* 0 until sealed */
    int64_t lease_expires_ms;    /* 0 unless in progress */
    int64_t window_expires_ms;   /* 0 while it cannot expire */
    int64_t window_ms;           /* how long after the seal duplicates are recognised */
    struct slice effect_id;      /* the effect's own name, given with the seal */
    struct outcome outcome;      /* after a seal */
    struct body_ref request;     /* the first request's canonical body, to explain conflicts */
    struct source source;        /* where the request came from; may be absent */
    struct slice trace;          /* canonical JSON of the first request's trace ids */
    struct slice reason;         /* why it was released, is unknown, or was settled */
    enum record_door door;       /* the door that made it, or granted it last */
    bool reconciles;             /* when it becomes unknown, its door must act, not a caller */
    uint64_t holder;             /* the incarnation that holds the grant; 0: not one of ours */
    struct op_id parent;         /* an effect's command; the delivery before it in its lane
                                    (core/lane.h); zero: absent */
    int64_t due_ms;              /* when somebody must act, if that is not the end of its lease or
                                    window; 0: never, except as R9 says */
    struct slice detail;         /* data for its kind alone, which the kind's module reads and
                                    writes */
};

/* Compute key->hash from the parts. E_INVALID names the part that is empty, too long or not
 * UTF-8. */
enum status record_key_seal(struct record_key *key, struct err *err) MUST_CHECK;
/* The same for a record of any kind. Records of different kinds never have the same hash. */
enum status record_key_seal_as(
    struct record_key *key, enum record_kind kind, struct err *err) MUST_CHECK;

/* The id of the operation whose first grant or enqueue took this fence. An enqueue grants nothing,
 * but takes a fence to name its operation. Pure; unique because a store never issues a fence twice.
 * It contains 48 bits of the key's hash, so that a store finds the record from the id alone
 * (op_id_prefix). */
struct op_id op_id_make(int64_t now_ms, const struct digest *key_hash, uint64_t fence);
/* The first 48 bits of the key hash that the id carries. */
uint64_t op_id_prefix(const struct op_id *id);
/* When it was made, in milliseconds since 1970. */
int64_t op_id_time_ms(const struct op_id *id);
/* The low 26 bits of the fence that it was made with. */
uint32_t op_id_fence(const struct op_id *id);
bool op_id_equal(const struct op_id *a, const struct op_id *b);
/* The id is all zeros: there is no operation. */
bool op_id_absent(const struct op_id *id);
/* An operation's: "op_" and the UUID. Returns its argument. core/kind.h has all kinds. */
char *op_id_put(char ret_text[OP_ID_TEXT_BYTES], const struct op_id *id);
bool op_id_read(struct slice text, struct op_id *ret_id);

/* "in_progress", "executed", … */
const char *record_status_name(enum record_status status);
bool record_status_read(struct slice text, enum record_status *ret_status);
/* It is settled: it has an outcome, and a window that runs. */
bool record_status_sealed(enum record_status status);
/* A record with this status has a window and can expire. */
bool record_status_expires(enum record_status status);
/* "fences", "gateway", …; "unnamed" for RECORD_DOOR_NONE. */
const char *record_door_name(enum record_door door);
bool record_door_read(struct slice text, enum record_door *ret_door);
/* "lease_over", "next_attempt", … */
const char *record_due_name(enum record_due due);

/* The record is present: a zeroed one has no kind. */
static inline bool record_there(const struct record *record)
{
    return (int)record->kind != 0;
}

/* It has an outcome, which duplicates are answered with (P3). A settled record has one and keeps it
 * while it is being compensated. */
static inline bool record_sealed(const struct record *record)
{
    return record->sealed_ms != 0; /* R5 */
}

/* The record is past its window: the same as absent. Only a status that expires can be (P8). */
bool record_window_over(const struct record *record, int64_t now_ms);
/* When somebody must act on it, and why; INT64_MAX for never. */
int64_t record_due_ms(const struct record *record);
enum record_due record_due(const struct record *record);

/* The first of R1 to R9 that does not hold, in words; NULL if all hold. Called before a record is
 * written and after it is read. */
const char *record_flaw(const struct record *record);
/* Assert R1 to R9. For records that our own code made. */
void record_check(const struct record *record);

/* An upper bound of the bytes that record_encode appends. */
size_t record_bytes_max(const struct record *record);
/* The stored form, format 2, described in docs/formats/journal.md. */
void record_encode(const struct record *record, struct buf *out);
/* Reads formats 1 and 2. Everything is validated; slices point into bytes. E_CORRUPT says what is
 * wrong. */
enum status record_decode(
    struct slice bytes, struct record *ret_record, struct err *err) MUST_CHECK;
/* Copies the bytes of all slices into the arena. */
enum status record_copy(
    const struct record *from, struct arena *arena, struct record *ret_record) MUST_CHECK;

#endif
