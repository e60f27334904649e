/*
 * copy_impl: shared by the files of a copy.
 */
#ifndef ONCE_LIB_COPY_IMPL_H
#define ONCE_LIB_COPY_IMPL_H

#include "base/vault.h"
#include "lib/copy.h"
#include "store/store.h"

enum {
    COPY_PAGE = 128,              /* records read and committed at once … */
    COPY_PIECE_BYTES = 4 << 20,   /* … with bodies of about this many bytes, or one record's */
    COPY_ARENA_BYTES = 256 << 20, /* a page of records, or the bodies of one at their limits */
};

/* The state of a store that a copy needs. */
struct copy_state {
    struct store_chain *chains;
    size_t chain_count;
    size_t chain_cap;
    bool chains_left_out; /* there was no room for one */
    uint64_t unchained;
    uint64_t fence; /* the highest given out */
    int64_t time_ms;
    int64_t clock_ms;     /* for heartbeats: now, also if time_ms is the time of the last commit */
    uint64_t records;     /* of all kinds */
    struct digest origin; /* of all members above */
};

struct copy {
    const struct copy_options *options;
    struct copy_result result;
    struct store *from;
    struct store *to;
    struct copy_state state;   /* of the source */
    struct buf shown;          /* its URL without passwords, terminated */
    const struct vault *vault; /* of the source's own key; NULL: it has none */
    struct arena records;      /* of one page */
    struct arena bodies;       /* of one piece */
};

/* Calls progress. E_UNAVAILABLE: it returned false. */
enum status copy_report(struct copy *self, enum copy_step step, uint64_t done, uint64_t total,
    struct err *err) MUST_CHECK;

/* A page of records of a store after a key hash, and the bodies of some of them. */
struct copy_page {
    const struct record *records[COPY_PAGE];
    size_t count;
    struct store_want wants[COPY_PAGE]; /* for copy_bodies */
};
enum status copy_page_read(struct copy *self, struct store *store, const struct digest *after,
    struct copy_page *ret_page, struct err *err) MUST_CHECK;
/* Loads the bodies of records from `at` on, up to one piece: *ret_count records. */
enum status copy_bodies(struct copy *self, struct store *store, struct copy_page *page, size_t at,
    size_t *ret_count, struct err *err) MUST_CHECK;

/* copy_compare.c: compares the target with the source, entry by entry and record by record.
 * E_CORRUPT: they differ. */
enum status copy_compare(struct copy *self, struct err *err) MUST_CHECK;

#endif
