/*
 * mem_impl: shared by the two files of the store in memory: the store (mem.c) and its readers
 * (mem_reader.c). Nobody else includes this.
 */
#ifndef ONCE_STORE_MEM_IMPL_H
#define ONCE_STORE_MEM_IMPL_H

#include <pthread.h>

#include "store/clock.h"
#include "store/mem.h"

/* One record. It never changes: a change makes a new one. */
struct item {
    struct record record; /* points into bytes */
    size_t size;
    char bytes[]; /* written by record_encode */
};

struct kept_entry {
    struct entry entry;   /* with its chain_id */
    struct digest before; /* hash of the entry before it in its chain; zero for the first */
    char *bytes;          /* owned */
};

/* What a change replaced, so that it can be undone. */
struct mem_undo {
    struct item *before; /* NULL: it was absent */
    struct item *after;  /* NULL: it was forgotten */
};

/* The store's state before a commit that is not flushed: a crash may return it to this state. */
struct mem_unit {
    size_t chain;           /* whose commit it is … */
    struct store_head head; /* … and where it ended */
    struct store_tally tally;
    uint64_t fence;
    size_t undo; /* bytes of undo, entries and bodies at that time */
    size_t entries;
    size_t bodies;
};

struct mem_chain {
    struct store_chain known;
    struct store_head head; /* without the moment, which all chains share */
};

/* The memory of one handle, freed with it, or of many handles. */
struct store_mem_hub {
    const struct mem *mem;
    bool many;             /* a shared store */
    pthread_mutex_t mutex; /* guards everything below, and the members of handles that say so */
    struct clock system;   /* the machine's clock, if no other was given */
    struct store_clock clock;
    struct store_shared shared;
    struct store_moment moment; /* of the last commit */
    struct store_tally tally;
    uint64_t fence;             /* the highest given out */
    struct buf items;           /* struct item *, sorted by key hash */
    struct buf entries;         /* struct kept_entry, in the order of the commits */
    struct buf bodies;          /* struct slice, owned; a body's place is its index + 1 */
    struct buf undo;            /* struct mem_undo of all commits not flushed; empty if shared */
    struct buf units;           /* struct mem_unit, likewise */
    struct buf chains;          /* struct mem_chain, the oldest first */
    struct mem_handle *handles; /* that are open */
    store_mem_fate fate;        /* of commits under way; NULL: all happen at once */
    void *fate_context;
    struct mem_handle
        *under_way; /* whose commits the units are, if it is a shared store; or NULL */
};

/* One process's handle. */
struct mem_handle {
    struct store store;
    struct store_mem_hub *hub;
    struct mem_handle *next; /* with the mutex */
    struct store_identity identity;
    size_t chain;            /* number of its own */
    struct store_moment now; /* of the batch that is prepared */
    bool prepared;           /* a commit or abort is to come */
    unsigned readers;        /* that are open; with the mutex */
    uint64_t numbers;        /* of its commits, given so far; with the mutex, like the next three */
    uint64_t settled;        /* commits up to this number are no longer under way … */
    uint64_t failed;         /* … and the fate of the last 64: a bit is set for a failed one */
    bool doomed;             /* a commit before the prepared batch did not happen (S15) */
    store_notice notice;     /* NULL: it does not listen; with the mutex */
    void *context;           /* of notice */
};

/* Returns its argument. */
struct store_mem_hub *mem_lock(struct store_mem_hub *hub);
void mem_unlock(struct store_mem_hub *hub);

/* With the mutex, each of them. */
struct store_counts mem_counts_of(const struct store_mem_hub *self, unsigned kinds);
/* Adds, replaces or (item NULL) removes. Only adding can fail. */
enum status mem_item_set(
    struct store_mem_hub *self, const struct digest *hash, struct item *item) MUST_CHECK;
/* Sets the batch's time. */
struct store_moment mem_time_set(struct store_mem_hub *self, struct store_batch *batch);
enum status mem_batch_read(
    struct store_mem_hub *self, struct store_batch *batch, struct err *err) MUST_CHECK;
enum status mem_scan_read(const struct store_mem_hub *self, const struct scan *scan,
    struct arena *arena, const struct record **ret_records, size_t *ret_count,
    struct err *err) MUST_CHECK;
enum status mem_entries_read(const struct store_mem_hub *self, const struct entry_range *range,
    entry_visit visit, void *context, struct err *err) MUST_CHECK;
/* The flushed end of the handle's chain. */
struct store_head mem_durable_head(const struct mem_handle *handle);
void mem_identity_read(const struct mem_handle *handle, struct store_identity *ret_identity,
    struct store_shared *ret_shared);

/* mem_reader.c */
enum status mem_open_reader(struct store *store, struct store **ret_reader, struct err *err);

#endif
