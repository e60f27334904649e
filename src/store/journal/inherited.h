/*
 * inherited: the evidence that a journal took over from a different store, in a file of its own.
 *
 * The file `inherited` of a data directory has a table of the chains as they ended, and then their
 * entries in the order of the other store, each framed and with its checksum like those of a
 * segment. docs/formats/journal.md describes every byte. It is written by `once copy` alone, before
 * the journal is one: until then its identity is called `identity.copying`, so that nobody opens
 * it. Afterwards it never changes but that all entries go at once, when all are past their
 * retention; the table stays.
 *
 * Crash points. While entries are written: a torn end is cut when the copy goes on. When they go:
 * the old file is there or the new one.
 *
 * Threads:   those of the journal's table; nothing here is used by flush of a journal that is one.
 */
#ifndef ONCE_STORE_JOURNAL_INHERITED_H
#define ONCE_STORE_JOURNAL_INHERITED_H

#include "store/store.h"

struct journal;

enum {
    INHERITED_FROM_BYTES = 256,     /* the name of the other store, with its terminator */
    INHERITED_HINTS = 8,            /* readings whose end is kept: as many go on at a time */
    INHERITED_CHAINS_MAX = 1 << 18, /* one for each process that ever wrote: 40 MB of table */
};

/* The name of the identity while the journal is an unfinished copy. */
#define IDENTITY_UNFINISHED "identity.copying"

/* Where a reading ended. */
struct inherited_hint {
    struct entry_cursor at;
    uint64_t offset; /* of the frame after it; 0: there is none */
};

struct inherited {
    int fd; /* -1: nothing was inherited */
    char from[INHERITED_FROM_BYTES];
    struct digest origin;
    int64_t time_ms;            /* of the other store, when it was copied */
    struct store_chain *chains; /* as the other store had them */
    size_t chain_count;
    uint32_t seed;      /* of the checksums */
    uint64_t start;     /* offset of the first frame … */
    uint64_t end;       /* … and after the last one */
    uint64_t entries;   /* while it is unfinished: how many there are */
    struct buf pending; /* frames that are still to be written, at end - pending.len */
    struct inherited_hint hints[INHERITED_HINTS];
    bool retain_failed; /* its entries are past their retention and could not be removed */
    unsigned hint_next; /* the one to be replaced, modulo their count */
};

/* Make the file, without entries, in a directory. -errno. */
int inherited_make(const struct io *io, const struct mem *mem, const char *directory,
    const struct store_inheritance *inherit);
/* Read the table; with continues, cut a torn end off and count. OK also when there is no such file.
 * E_CORRUPT, E_UNAVAILABLE, E_NOMEM. */
enum status inherited_open(struct journal *journal, bool continues, struct err *err) MUST_CHECK;
void inherited_close(struct journal *journal);
/* Add an entry; written when it is flushed at the latest. */
enum status inherited_add(
    struct journal *journal, const struct change *change, struct err *err) MUST_CHECK;
enum status inherited_flush(struct journal *journal, struct err *err) MUST_CHECK;
/* All entries go when they are past the retention. What fails is tried again after a restart:
 * nothing waits for it. */
void inherited_retain(struct journal *journal, int64_t now_ms);

/* Whether one of the chains is called so. */
bool inherited_has(const struct inherited *inherited, const unsigned char chain_id[16]);
/* Visit the chains, in their order. false: the visitor has enough. */
bool inherited_chains(const struct inherited *inherited, store_chain_visit visit, void *context);

/* One reading of the entries, a part of one of the journal's. */
struct inherited_reading {
    const struct entry_range *range; /* after: of one of these chains, or zeroed */
    entry_visit visit;
    void *context;
    struct entry_pace *at; /* how far it came */
    size_t bytes;          /* read so far */
    bool stopped;          /* the visitor has enough */
    bool over;             /* set: there are no more of these */
};

/* Whether a reading with this pace and cursor is to begin, or go on, here. */
bool inherited_wanted(const struct inherited *inherited, const struct entry_range *range,
    const struct entry_pace *at);
enum status inherited_read(
    struct journal *journal, struct inherited_reading *reading, struct err *err) MUST_CHECK;

#endif
