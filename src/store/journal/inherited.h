/*
 * inherited: the evidence that a journal took over from a different store, in a separate file.
 *
 * The file `inherited` of a data directory has a table of the chains as they ended, and then their
 * entries in the order of the other store, each framed and with its checksum like those of a
 * segment. docs/formats/journal.md describes every byte. Only `once copy` writes it, before the
 * journal is complete: until then the identity file is called `identity.copying`, so that nobody
 * opens the journal. Afterwards it changes only once: all entries are removed together when all are
 * past their retention; the table stays.
 *
 * Crash points. While entries are written: a torn end is cut when the copy continues. While they
 * are removed: either the old file or the new one is there.
 *
 * Threads:   those of the journal's table; flush does not use it once the journal is complete.
 */
#ifndef ONCE_STORE_JOURNAL_INHERITED_H
#define ONCE_STORE_JOURNAL_INHERITED_H

#include "store/store.h"

struct journal;

enum {
    INHERITED_FROM_BYTES = 256,     /* the name of the other store, with its terminator */
    INHERITED_HINTS = 8,            /* readers whose position is kept: as many run at a time */
    INHERITED_CHAINS_MAX = 1 << 18, /* one for each process that ever wrote: 40 MB of table */
};

/* The name of the identity file while the journal is an unfinished copy. */
#define IDENTITY_UNFINISHED "identity.copying"

/* Where a reader stopped. */
struct inherited_hint {
    struct entry_cursor at;
    uint64_t offset; /* of the frame after it; 0: no hint */
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
    struct buf pending; /* frames not yet written, at end - pending.len */
    struct inherited_hint hints[INHERITED_HINTS];
    bool retain_failed; /* its entries are past their retention but could not be removed */
    unsigned hint_next; /* the one to be replaced, modulo their count */
};

/* Makes the file, without entries, in a directory. -errno. */
int inherited_make(const struct io *io, const struct mem *mem, const char *directory,
    const struct store_inheritance *inherit);
/* Reads the table; with continues, also cuts off a torn end and counts the entries. OK also if
 * there is no such file. E_CORRUPT, E_UNAVAILABLE, E_NOMEM. */
enum status inherited_open(struct journal *journal, bool continues, struct err *err) MUST_CHECK;
void inherited_close(struct journal *journal);
/* Adds an entry, which is written at the latest by the next flush. */
enum status inherited_add(
    struct journal *journal, const struct change *change, struct err *err) MUST_CHECK;
enum status inherited_flush(struct journal *journal, struct err *err) MUST_CHECK;
/* Removes all entries if they are past the retention. A failure is retried after a restart. */
void inherited_retain(struct journal *journal, int64_t now_ms);

/* Whether one of the chains has this id. */
bool inherited_has(const struct inherited *inherited, const unsigned char chain_id[16]);
/* Visits the chains, in their order. false: the visitor stopped. */
bool inherited_chains(const struct inherited *inherited, store_chain_visit visit, void *context);

/* One reading of these entries, part of a reading of the journal. */
struct inherited_reading {
    const struct entry_range *range; /* after: in one of these chains, or zeroed */
    entry_visit visit;
    void *context;
    struct entry_pace *at; /* how far it got */
    size_t bytes;          /* read so far */
    bool stopped;          /* the visitor stopped */
    bool over;             /* set: there are no more inherited entries */
};

/* Whether a reading with this pace and cursor starts or continues in the inherited entries. */
bool inherited_wanted(const struct inherited *inherited, const struct entry_range *range,
    const struct entry_pace *at);
enum status inherited_read(
    struct journal *journal, struct inherited_reading *reading, struct err *err) MUST_CHECK;

#endif
