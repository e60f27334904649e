/*
 * once: exactly-once effects over at-least-once delivery, in your process (libonce).
 *
 *     struct once *once;
 *     struct once_error error;
 *     struct once_answer *answer;
 *     once_open(NULL, &once, &error);
 *     once_begin(once, &(struct once_begin){.scope = "charge", .key = "order-7"}, &answer, &error);
 *     if (answer->decision == ONCE_FIRST_SEEN) {
 *         ... charge the card ...
 *         once_seal(once, &(struct once_seal){.operation_id = answer->operation_id,
 *             .fence = answer->fence, .status = ONCE_EXECUTED, .effect_id = "ch_1"}, NULL, &error);
 *     }
 *     once_answer_free(once, answer);
 *     once_close(once, &error);
 *
 * Every options struct may be zeroed: zero means the default named beside the member. Strings are
 * null-terminated and copied during the call; NULL means absent. Times are milliseconds since 1970.
 *
 * Threads: any number of threads may use a handle at once, except for once_close.
 * The library keeps no global state, writes no logs and installs no signal handlers. A process that
 * forks must not use the parent's handle in the child.
 */
#ifndef ONCE_ONCE_H
#define ONCE_ONCE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#ifdef __GNUC__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow" /* a struct and a function may share a name, as stat */
#endif
#endif

#if defined(__GNUC__)
#define ONCE_API __attribute__((visibility("default")))
#else
#define ONCE_API
#endif

/* What a call returns, grouped by what to do next. Numbers never change. */
enum once_result {
    ONCE_OK = 0,
    ONCE_E_UNKNOWN = -1,     /* may have happened: check (once_get) before retrying */
    ONCE_E_UNAVAILABLE = -2, /* certainly did not happen: retrying is safe */
    ONCE_E_STALE = -3,       /* not the expected decision, and ret_answer was NULL */
    ONCE_E_INVALID = -4,     /* an argument is invalid; the text names it */
    ONCE_E_LIMIT = -5,       /* a named limit was reached; nothing happened */
    ONCE_E_CORRUPT = -6,     /* stored bytes are damaged: stop and run once verify */
    ONCE_E_NOMEM = -7,       /* out of memory; nothing happened */
    ONCE_E_MISUSE = -8       /* the call violates the interface's contract */
};

/* The decision. A duplicate, a conflict or a stale fence is an answer, not an error. */
enum once_decision {
    /* From once_begin. */
    ONCE_FIRST_SEEN = 0, /* you hold the grant: do the work, then seal, release or unknown */
    ONCE_DUPLICATE_REPLAYED = 1, /* it was done before: operation has the first outcome */
    ONCE_IN_PROGRESS = 2,        /* somebody else holds the grant now */
    ONCE_CONFLICT_REJECTED = 3,  /* the key was used with a different payload */
    ONCE_HELD_UNKNOWN = 4,       /* nobody knows whether it happened; needs once_resolve */
    /* From the other calls. */
    ONCE_SEALED = 5,
    ONCE_RELEASED_NOW = 6,
    ONCE_MARKED_UNKNOWN = 7,
    ONCE_RENEWED = 8,
    ONCE_RESOLVED = 9,
    ONCE_NOT_FOUND = 10,      /* no such operation, or its window has ended */
    ONCE_STALE_FENCE = 11,    /* somebody else holds a newer grant; nothing changed */
    ONCE_ALREADY_SEALED = 12, /* already sealed with a different outcome; nothing changed */
    ONCE_STILL_RUNNING = 13,  /* once_resolve: the holder's lease has not ended; nothing changed */
    ONCE_STALE_VERSION = 14   /* once_begin: a newer version of its source is already sealed */
};

/* The status of an operation. */
enum once_status {
    ONCE_STATUS_IN_PROGRESS = 1,
    ONCE_STATUS_UNKNOWN = 2,
    ONCE_STATUS_RELEASED = 3, /* in once_resolve: not executed */
    ONCE_EXECUTED = 4,
    ONCE_FAILED = 5,
    ONCE_REJECTED = 6,
    ONCE_COMPENSATED = 7
};

/* What a begin does if the operation is unknown. */
enum once_on_unknown {
    ONCE_HOLD = 0,    /* refuse it until it is resolved */
    ONCE_TAKEOVER = 1 /* grant it again: only for effects that are themselves idempotent */
};

struct once; /* an open store and its engine */

struct once_error {
    int result;     /* enum once_result */
    char text[512]; /* what happened; lower case */
    char hint[512]; /* what to do about it; may be empty */
};

struct once_bytes {
    const void *data;
    size_t size;
};

struct once_options {
    const char *store; /* "journal:./once-data" (default), "postgres://…", "redis://…", "mem:" */
    const char *tenant;   /* "default" */
    int64_t lock_wait_ms; /* how long to wait for a different process to close the store; 0 */
    int read_only;        /* reads only, beside a running writer; other calls are E_MISUSE */
    int must_exist;       /* do not create the store */
    /* Like realloc, thread-safe; size 0 frees. NULL: the C library's. */
    void *(*resize)(void *context, void *pointer, size_t size);
    void *resize_context;
};

struct once_source {
    const char *type;
    const char *id;
    const char *version;
};

/* Names (scope, key, principal, actor, those of a source, effect_id, tenant) are UTF-8 without
 * control characters, at most 255 bytes each; an invalid one is refused by name. */
struct once_begin {
    const char *scope;         /* the namespace of the key; "" */
    const char *key;           /* required: names the operation, at most 255 bytes */
    const char *principal;     /* who it belongs to inside the tenant; "" */
    struct once_bytes payload; /* what is asked; its fingerprint distinguishes a duplicate from a
                                  conflict. JSON is compared by value, anything else by bytes */
    const unsigned char *fingerprint; /* your own 32 bytes, instead of a payload */
    int64_t ttl_ms;                   /* how long duplicates are recognised after the seal; 24 h */
    int64_t lease_ms;                 /* how long the grant is presumed alive; 30 s */
    int64_t wait_ms;                  /* if in progress, how long to wait for the replay; 0, at
                                      most 60 s */
    enum once_on_unknown on_unknown;
    int retry_failed;          /* a failed operation may run again */
    int retry_rejected;        /* a rejected operation may run again */
    struct once_source source; /* where the request came from */
    const char *request_id;    /* for evidence */
    const char *actor;         /* for evidence */
    const char *trace;         /* JSON object with more trace ids, for evidence; at most 2 KiB */
};

struct once_outcome {
    int32_t code;           /* your own: an HTTP status, an exit code */
    struct once_bytes meta; /* your own small data: headers, …; at most 16 KiB */
    struct once_bytes body; /* at most 16 MiB */
};

struct once_seal {
    const char *operation_id;
    uint64_t fence;
    enum once_status status; /* ONCE_EXECUTED, ONCE_FAILED or ONCE_REJECTED */
    const char *effect_id;   /* the effect's id, such as the provider's charge id */
    struct once_outcome outcome;
    int64_t ttl_ms; /* 0: as given to begin */
    const char *request_id;
};

/* For once_release, once_unknown and once_renew. */
struct once_hold {
    const char *operation_id;
    uint64_t fence;
    const char *reason; /* release, unknown */
    int64_t lease_ms;   /* renew; 30 s */
    const char *request_id;
    const char *actor; /* for evidence: who reports it, if not the holder */
};

struct once_resolve {
    const char *operation_id;
    enum once_status status; /* ONCE_EXECUTED, ONCE_FAILED, or ONCE_STATUS_RELEASED: not executed */
    const char *effect_id;
    struct once_outcome outcome;
    const char *reason; /* required: how you found out */
    const char *actor;
    const char *request_id;
    uint64_t fence; /* of the attempt you checked: if there is a newer one, nothing changes
                    (ONCE_STALE_FENCE); 0: any attempt */
};

/* The record of an operation. */
struct once_operation {
    char operation_id[40];
    const char *tenant;
    const char *scope;
    const char *principal;
    const char *key;
    enum once_status status;
    uint64_t fence;
    uint32_t attempt;
    uint32_t duplicates;
    int64_t created_ms;
    int64_t updated_ms;
    int64_t sealed_ms;         /* 0: not sealed */
    int64_t lease_expires_ms;  /* 0: no lease */
    int64_t window_expires_ms; /* 0: cannot expire */
    int64_t window_ms;
    const char *effect_id;         /* "" if absent */
    const char *reason;            /* "" if absent */
    const char *trace;             /* JSON object, or "" */
    struct once_source source;     /* members are "" if absent */
    unsigned char fingerprint[32]; /* keyed with the store's own key */
    struct once_outcome outcome;
    int outcome_retained;      /* the body is kept; 0 with outcome.body.size > 0: it was too large
                                   or has been erased. outcome.body.data is NULL if the body is
                                   not kept or not loaded: only a replay, once_get, once_lookup
                                   and once_wait load it */
    struct once_bytes request; /* from once_get, once_lookup and once_wait: the first payload,
                                   canonical if it was JSON; empty if larger than 64 KiB */
    int request_is_json;       /* the request was JSON */
};

struct once_answer {
    enum once_decision decision;
    const char *rule; /* the row of the decision table, such as "B1" */
    int repeated;     /* a repeated seal, release, …: the same answer, nothing changed */
    char operation_id[40];
    uint64_t
        fence; /* with ONCE_FIRST_SEEN: pass it with every further call; 0 if you hold no grant */
    uint32_t attempt;
    int64_t lease_expires_ms;
    int64_t retry_after_ms;                 /* with ONCE_IN_PROGRESS: when to ask again */
    const struct once_operation *operation; /* the record now; NULL if conflict or not found */
    const char *diff;   /* with a conflict of JSON payloads: RFC 6902, from the first to this one */
    int diff_truncated; /* diff would exceed 16 KiB: some operations are left out */
    /* Of once_seal_effects, absent in version 0.1. */
    const char
        *effects; /* sealed: JSON array, one object for each effect, in their order: effect_id,
                            idempotency_key, status, status_url; else NULL */
    int effect_refused; /* ONCE_CONFLICT_REJECTED: which effect is in conflict, counted from 1 */
};

/* ---- open and close ------------------------------------------------------------------------ */

/* Opens or creates a store. options may be NULL. */
ONCE_API int once_open(
    const struct once_options *options, struct once **ret_once, struct once_error *error);
/* Finishes submitted calls, flushes and closes. once may be NULL. The handle is invalid afterwards,
 * whatever the result, so free every answer first. */
ONCE_API int once_close(struct once *once, struct once_error *error);

/* ---- one operation ------------------------------------------------------------------------- */
/* Each call blocks until the decision is on stable storage. Except for once_begin, ret_answer may
 * be NULL if the result is all you need: a decision other than the expected one is then
 * ONCE_E_STALE, with its name in the error. Free the answer with once_answer_free; on failure it is
 * NULL. error may be NULL. After ONCE_E_UNKNOWN the handle refuses every call: close it and open
 * the store again to read its true state. */

ONCE_API int once_begin(struct once *once, const struct once_begin *begin,
    struct once_answer **ret_answer, struct once_error *error);
ONCE_API int once_seal(struct once *once, const struct once_seal *seal,
    struct once_answer **ret_answer, struct once_error *error);
/* The effect certainly did not start: frees the key for the next attempt. */
ONCE_API int once_release(struct once *once, const struct once_hold *hold,
    struct once_answer **ret_answer, struct once_error *error);
/* You do not know whether the effect happened. */
ONCE_API int once_unknown(struct once *once, const struct once_hold *hold,
    struct once_answer **ret_answer, struct once_error *error);
/* The work is still running: extends the lease. */
ONCE_API int once_renew(struct once *once, const struct once_hold *hold,
    struct once_answer **ret_answer, struct once_error *error);
/* Settles an unknown operation after you have found out what happened. */
ONCE_API int once_resolve(struct once *once, const struct once_resolve *resolve,
    struct once_answer **ret_answer, struct once_error *error);
ONCE_API void once_answer_free(struct once *once, struct once_answer *answer);

/* ---- effects ------------------------------------------------------------------------------- */
/* The transactional outbox: effects are recorded in the commit of a seal, and a server (once serve)
 * sends them afterwards. This library sends nothing. */

/* Reads the effect types, their connectors and `secrets.key_file` from the configuration file of
 * the servers that send. An effect is checked against them, as the server checks it. If it is
 * called again with a valid file, the new file applies to later seals; the keys of the first file
 * stay. ONCE_E_INVALID: the file is not valid, or its key cannot be used; the text has the line. */
ONCE_API int once_effect_types(
    struct once *once, const char *config_file, struct once_error *error);
/* once_seal with effects: all of it happens, or nothing. effects is a JSON array of at most 64
 * effect envelopes, like `effects` in POST /v1/fences/{operation_id}/seal: effect_type, payload, …;
 * command_id is the operation's id if it is absent. An effect that exists already is not written
 * again. ONCE_E_INVALID: once_effect_types was not called, or an effect is invalid or of an unknown
 * type; the text says which. A different payload under the key of an effect is the decision
 * ONCE_CONFLICT_REJECTED: nothing happened, and the grant is still yours. */
ONCE_API int once_seal_effects(struct once *once, const struct once_seal *seal,
    struct once_bytes effects, struct once_answer **ret_answer, struct once_error *error);

/* ---- reading ------------------------------------------------------------------------------- */

/* *ret_operation is NULL if there is no such operation. An operation whose window has ended may
 * still be returned until it is swept; check window_expires_ms. Free with once_operation_free. */
ONCE_API int once_get(struct once *once, const char *operation_id,
    struct once_operation **ret_operation, struct once_error *error);
ONCE_API int once_lookup(struct once *once, const char *scope, const char *principal,
    const char *key, struct once_operation **ret_operation, struct once_error *error);
/* Waits until the operation is no longer in progress, or for timeout_ms (at most 60 s); then as
 * once_get. Not for a read-only handle. */
ONCE_API int once_wait(struct once *once, const char *operation_id, int64_t timeout_ms,
    struct once_operation **ret_operation, struct once_error *error);
ONCE_API void once_operation_free(struct once *once, struct once_operation *operation);

/* The operation document: the JSON that GET /v1/operations/{operation_id} returns, byte for byte.
 * has_bodies: include outcome and request, for an operation from one of the three functions above;
 * 0: leave them out, as in a list. Free with once_document_free. */
ONCE_API int once_document(struct once *once, const struct once_operation *operation,
    int has_bodies, struct once_bytes *ret_json, struct once_error *error);
ONCE_API void once_document_free(struct once *once, struct once_bytes json);

struct once_filter {
    const char *scope;       /* NULL: any */
    const char *key;         /* NULL: any */
    enum once_status status; /* 0: any */
    int64_t updated_from_ms;
    int64_t updated_until_ms;
    size_t limit; /* 0: all */
};

/* Called for each operation, without outcome and request bodies. Return 0 to continue. The
 * operation is valid during the call, which may use the handle. */
typedef int (*once_operation_visit)(void *context, const struct once_operation *operation);
ONCE_API int once_iterate(struct once *once, const struct once_filter *filter,
    once_operation_visit visit, void *context, struct once_error *error);

struct once_entry {
    uint64_t seq;
    int64_t time_ms;
    struct once_bytes json; /* canonical JSON; docs/formats/evidence.md says what is hashed */
    unsigned char hash[32];
    const char *cursor; /* opaque: to continue after this entry; valid during the call */
};

/* Called for each evidence entry of the handle's tenant, in order. Return 0 to continue. The entry
 * is valid during the call, which may use the handle. */
typedef int (*once_entry_visit)(void *context, const struct once_entry *entry);
/* operation_id: of an operation, or of a server's command, effect or delivery ("cmd_", "eff_",
 * "dlv_"); NULL: all. after: the cursor of an entry of this store; NULL: start at the first entry.
 * ONCE_E_INVALID: it is not a cursor, or it belongs to a different store. */
ONCE_API int once_evidence(struct once *once, const char *operation_id, const char *after,
    once_entry_visit visit, void *context, struct once_error *error);

/* ---- without blocking ---------------------------------------------------------------------- */

/* Called exactly once for each accepted call, on one of the library's threads. It must not block:
 * it may submit, but not use the blocking calls. It owns the answer, which is NULL if result is not
 * ONCE_OK. */
typedef void (*once_done)(
    void *context, int result, struct once_answer *answer, const struct once_error *error);

/* Exactly one member is set. */
struct once_call {
    const struct once_begin *begin;
    const struct once_seal *seal;
    const struct once_hold *release;
    const struct once_hold *unknown;
    const struct once_hold *renew;
    const struct once_resolve *resolve;
};

/* ONCE_OK: done will be called. Any other result: it will not be called, and nothing happened. */
ONCE_API int once_submit(struct once *once, const struct once_call *call, once_done done,
    void *context, struct once_error *error);

/* The same for once_seal_effects. */
ONCE_API int once_submit_seal_effects(struct once *once, const struct once_seal *seal,
    struct once_bytes effects, once_done done, void *context, struct once_error *error);

/* ---- names --------------------------------------------------------------------------------- */

ONCE_API const char *once_decision_name(enum once_decision decision); /* "first_seen", … */
ONCE_API const char *once_status_name(enum once_status status);       /* "in_progress", … */
ONCE_API const char *once_result_name(int result);                    /* "unavailable", … */
ONCE_API const char *once_version(void);

#ifdef __cplusplus
#ifdef __GNUC__
#pragma GCC diagnostic pop
#endif
}
#endif

#endif
