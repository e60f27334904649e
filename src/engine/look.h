/*
 * look: pages of operations and evidence from a running engine, without holding it up.
 *
 * A look is an engine call whose read does a bounded piece of work and then lets waiting requests
 * go first (read_again), however large the store is. A page may therefore take many turns; it shows
 * each thing as it was when its piece was read.
 *
 * Promises:  only what is of the tenant given (P9). A page holds at most LIMIT_PAGE_* things and
 *            says how to go on. What the filter does not match costs time, never memory.
 * Ownership: a look is the caller's memory; its results live in call.arena. Set what is asked, call
 *            look_submit, and read the results in done or after engine_do-like waiting (look_do).
 */
#ifndef ONCE_ENGINE_LOOK_H
#define ONCE_ENGINE_LOOK_H

#include "engine/engine.h"

enum {
    LIMIT_PAGE_RECORDS_MAX = 1000,
    LIMIT_PAGE_ENTRIES_MAX = 1000,
    LIMIT_PAGE_BYTES_MAX = 4 << 20, /* of entries in one page; one always fits */
};

enum look_kind {
    LOOK_OPERATION, /* one, by operation_id or by key: record, bodies */
    LOOK_RECORDS,   /* a page of operations */
    LOOK_ENTRIES,   /* a page of evidence */
};

/* An evidence entry with what ties it to the one before. */
struct look_entry {
    struct entry entry;
    struct digest prev_hash; /* hash of the entry before it; zero for the first */
};

struct look {
    struct engine_call call; /* first; the caller sets arena, done, context */
    enum look_kind kind;

    /* Asked. */
    struct slice tenant;       /* required */
    struct op_id operation_id; /* operation; entries: only of it, zero for all */
    struct record_key key;     /* operation: by key when sealed (hash set) and operation_id zero */
    struct scan scan;          /* records: filters, after, limit */
    uint64_t after_seq;        /* entries */
    size_t limit;              /* entries */

    /* Found. */
    const struct record *record;   /* NULL: there is none */
    struct slice outcome_body;     /* of it, when retained */
    struct slice request_body;     /* likewise */
    const struct record **records; /* of a page */
    struct look_entry *entries;    /* of a page */
    size_t count;
    bool has_more;       /* the page was full: there may be more behind … */
    struct digest after; /* … this key hash */
    uint64_t next_seq;   /* … this seq: the last one looked at, whether it matched or not */
    struct store_head head;

    void *progress; /* look's own, between two turns */
};

/* As engine_submit; E_INVALID: the limit of a page is 0 or too high. A look that is not done when
 * the engine shuts down ends with E_UNAVAILABLE. */
enum status look_submit(struct engine *engine, struct look *look, struct err *err) MUST_CHECK;
/* Submit and wait. Returns call.err.status. */
enum status look_do(struct engine *engine, struct look *look) MUST_CHECK;
/* The same at a store that no engine runs on, in one go. */
enum status look_at(struct store *store, struct look *look) MUST_CHECK;

#endif
