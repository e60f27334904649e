/*
 * query: reads from a running engine without delaying it: one operation, pages of records and
 * evidence, the end of the chain.
 *
 * A query is an engine call that does a bounded piece of work at a time and then lets waiting
 * requests go first, however large the store is. A page may therefore take many turns; it shows
 * each item as it was when its piece was read. Queries touch the store between two batches, never
 * inside one. They use only the functions of a reader (read, scan, entries, counts, head): if the
 * store has readers (store_ops.open_reader), query_do runs beside the engine, on the caller's
 * thread. The embedded journal is read by one thread only, so its queries run on the engine thread.
 *
 * Promises:  returns only data of the given tenant (P9), unless any_tenant is set. A page holds at
 *            most LIMIT_PAGE_* items and says how to continue. Items that the filter does not match
 *            cost time, never memory.
 * Ownership: a query is the caller's memory; its results live in call.arena. Set the question, call
 *            query_submit, and read the results in done; or call query_do, which waits.
 */
#ifndef ONCE_ENGINE_QUERY_H
#define ONCE_ENGINE_QUERY_H

#include "engine/engine.h"

enum {
    LIMIT_PAGE_RECORDS_MAX = 1000,
    LIMIT_PAGE_ENTRIES_MAX = 1000,
    LIMIT_PAGE_BYTES_MAX = 4 << 20, /* of entries in one page; at least one entry is returned */
};

enum query_kind {
    QUERY_OPERATION, /* one record, by operation_id or by key, with its bodies */
    QUERY_RECORDS,   /* a page of records */
    QUERY_ENTRIES,   /* a page of evidence */
    QUERY_HEAD,      /* the end of the chain */
    QUERY_NOTHING,   /* answered when everything before it is durable, and not if that failed */
    QUERY_READY,     /* the same, and the store can be read: a server may be out of reach */
};

/* An evidence entry with the hash of the entry before it. */
struct query_entry {
    struct entry entry;
    struct digest prev_hash; /* hash of the entry before it; zero for the first */
};

struct query {
    struct engine_call call; /* first; the caller sets arena, done, context */
    enum query_kind kind;

    /* The question. */
    struct slice tenant; /* required, except for nothing, ready and head, and for … */
    bool any_tenant; /* … an operation, records or entries of any tenant: for internal duties and
                      * for users who may open the store itself; never for a caller with a token */
    unsigned kinds;  /* operation: the kinds it may have; 0: an operation */
    struct op_id operation_id; /* operation; entries: only its entries, zero for all */
    struct record_key key;     /* operation: by key if sealed (hash set) and operation_id is zero */
    struct scan scan;          /* records: filters, after, limit; kinds 0: operations */
    struct entry_cursor after_entry; /* entries: where to start; zeroed: at the first */
    size_t limit;                    /* entries */
    size_t read_max; /* entries: the page ends after this many bytes of evidence, matching or not,
                        and has_more says that there may be more; 0: no limit */

    /* The results. */
    const struct record *record;   /* NULL: absent */
    struct slice outcome_body;     /* the record's, if retained */
    struct slice request_body;     /* likewise */
    const struct record **records; /* of a page */
    struct query_entry *entries;   /* of a page */
    size_t count;
    bool has_more;                  /* the page was full: there may be more after … */
    struct digest after;            /* … this key hash */
    struct entry_cursor next_entry; /* … this entry: the last one read, matching or not */
    struct store_head head;

    void *progress; /* the query's own, between two turns */
};

/* Like engine_submit; E_INVALID: the limit of a page is 0 or too high. A query that is unfinished
 * when the engine shuts down ends with E_UNAVAILABLE. */
enum status query_submit(struct engine *engine, struct query *query, struct err *err) MUST_CHECK;
/* Submits and waits; or reads beside the engine, all turns in one go, if the store has a reader.
 * Returns call.err.status. */
enum status query_do(struct engine *engine, struct query *query) MUST_CHECK;
/* The same on a store without an engine, in one go. */
enum status query_run(struct store *reader, struct query *query) MUST_CHECK;

/* For the engine: one turn of a call that has a query. Sets call->again if it must continue later.
 * E_CORRUPT concerns the engine; every other failure only that call (call->err). */
enum status query_turn(struct store *reader, struct engine_call *call) MUST_CHECK;

#endif
