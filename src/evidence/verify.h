/*
 * verify: checks everything in a store, from its first entry to its last.
 *
 * It reads a stream (store/replay.h) and knows no files: the store checks framing and checksums,
 * and its findings are reported here with the rest.
 *
 * Promises:  read-only and without the lock, so that a journal in use can be checked: everything
 *            committed before the check began is checked. One pass, bounded memory (--redecide also
 *            holds the live records). Every byte that an attacker could have touched is checked: a
 *            flipped, dropped, swapped, inserted or cut byte is found (P10). Never crashes on
 *            hostile bytes. With redecide, every decision is made again and must be the same.
 * Does not:  repair anything, or find out who caused it. The holder of the signing key can forge a
 *            valid history; only a checkpoint kept elsewhere reveals that.
 *
 * A shared store (verify_shared.c) has a chain for each process that wrote to it. Each chain is
 * checked, and across all chains every version of a record must have been decided exactly once:
 * there the decisions are always made again, in the order of the versions, and must lead to the
 * stored records.
 *
 * A journal that was copied from a different store has that store's chains besides its own. Its own
 * files are checked first, then all chains together in the same way.
 *
 * Ownership: the result is a plain value in the caller's memory; about 20 KiB.
 */
#ifndef ONCE_EVIDENCE_VERIFY_H
#define ONCE_EVIDENCE_VERIFY_H

#include "evidence/checkpoint.h"
#include "evidence/entry.h"
#include "evidence/entry_form.h"

enum {
    VERIFY_DAMAGES_MAX = 64,     /* kept in full; more are only counted */
    VERIFY_WHAT_BYTES_MAX = 192, /* one line on a terminal, or two */
    VERIFY_KEY_BYTES_MAX = 128,  /* a public key as text */
};

struct verify_progress {
    uint64_t bytes_done;  /* read and checked so far */
    uint64_t bytes_total; /* in all segments; an estimate while the journal is in use */
    uint64_t entries;     /* checked so far */
};

struct verify_options {
    const char *url;         /* "journal:./once-data", or the directory's path */
    bool redecide;           /* make every decision again and compare */
    struct slice checkpoint; /* a checkpoint kept elsewhere, as text; empty: none */
    struct slice public_key; /* the key of signed notes, as text; empty: the journal's own */
    /* Called now and then, at least once at the end. False stops the check. May be NULL. */
    bool (*progress)(void *context, const struct verify_progress *progress);
    void *context;         /* handed back to progress */
    bool unfinished;       /* check an unfinished copy too */
    const struct mem *mem; /* NULL: the C library's */
    const struct io *io;   /* NULL: the machine's own */
};

/* One finding. */
struct verify_damage {
    char chain_id[37];                /* of a shared store: the chain; empty: not known */
    uint64_t segment;                 /* the segment file; 0: it concerns the whole journal */
    uint64_t offset;                  /* of the frame in it, in bytes */
    uint64_t seq;                     /* of the entry concerned; 0: not known */
    struct op_id operation_id;        /* of the operation concerned; zero: not known */
    char what[VERIFY_WHAT_BYTES_MAX]; /* lower case, no full stop: "the chain is broken: …" */
};

struct verify_result {
    char chain_id[37];                     /* of the evidence, a UUID as text; empty: all processes
                                              of a shared store */
    char public_key[VERIFY_KEY_BYTES_MAX]; /* the key that the notes were checked with, as text */
    uint64_t segments;                     /* segment files read */
    uint64_t squeezed;                     /* of these: bodies and records dropped on purpose */
    uint64_t bytes;                        /* read and checked */
    uint64_t batches;                      /* commits */
    uint64_t entries;                      /* evidence entries */
    uint64_t records;                      /* record frames */
    uint64_t bodies;                       /* body frames */
    uint64_t checkpoints;                  /* signed notes */
    uint64_t first_seq;                    /* of the first entry kept; more than 1: others
                                              archived */
    uint64_t last_seq;                     /* of the last entry */
    struct digest last_hash;               /* its chained hash */
    uint64_t last_checkpoint_seq;          /* the newest valid note covers up to here */
    uint64_t redecided;                    /* decisions made again */
    uint64_t not_redecidable;              /* their operation began in an archived segment */
    uint64_t good_seq;                     /* everything up to this entry is valid … */
    uint64_t good_batch;                   /* … and everything up to this batch */
    bool inherits;         /* the journal has chains of the store that it was copied from */
    bool shared;           /* a store of several chains: the next members are set */
    uint64_t chains;       /* of evidence */
    uint64_t removed;      /* entries that the store says it removed after their retention */
    uint64_t unchained;    /* applications' decisions not chained yet: not damage */
    bool unsettled;        /* others wrote all the time: the newest records were not compared */
    bool has_ends;         /* the store says where its chains end */
    bool torn_tail;        /* bytes after the last commit, never acknowledged: not damage */
    bool outside_compared; /* the outside checkpoint's entry is there, and its hash was compared */
    uint64_t damage_count; /* 0: all is well */
    struct verify_damage damages[VERIFY_DAMAGES_MAX]; /* the first ones, in order of place */
};

/*
 * OK: the check ran; ret_result says whether there is damage (damage_count). Any other status: it
 * could not run, and ret_result is untouched. E_INVALID: the URL, the outside checkpoint or the
 * public key is invalid. E_UNAVAILABLE: no such journal, no permission, a read error, or progress
 * returned false. E_NOMEM.
 */
enum status verify_run(const struct verify_options *options, struct verify_result *ret_result,
    struct err *err) MUST_CHECK;

#endif
