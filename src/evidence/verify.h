/*
 * verify: check everything a store says, from its first entry to its last.
 *
 * It reads a stream (store/replay.h) and knows no files: framing and checksums are checked by the
 * store, and what it finds is reported here with the rest.
 *
 * Promises:  read-only and without the lock, so that a journal in use can be checked: what was
 *            committed before the check began is checked. One pass, bounded memory (--redecide also
 *            holds the live records). Every byte a stranger could have touched is looked at: a
 *            flipped, dropped, swapped, inserted or cut one is found (P10). Never crashes on
 *            hostile bytes. With redecide, every decision is made again and must come out the same.
 * Does not:  repair anything, or find out who did it. Whoever holds the signing key can make a
 *            history that checks out; a checkpoint kept elsewhere is what shows that.
 *
 * A shared store (verify_shared.c) has a chain for each process that wrote to it. All are checked,
 * and across them that every version of a record was decided exactly once: the decisions are always
 * made again there, in the order of the versions, and must lead to the records that are stored.
 *
 * A journal that was copied from a different store has its chains besides its own. Its own files
 * are checked first, and then all chains together in the same way.
 *
 * Ownership: the result is a plain value in the caller's memory; about 20 KiB.
 */
#ifndef ONCE_EVIDENCE_VERIFY_H
#define ONCE_EVIDENCE_VERIFY_H

#include "evidence/entry.h"

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
    struct slice checkpoint; /* a note kept elsewhere, as text; empty: none */
    struct slice public_key; /* whose notes to believe, as text; empty: the journal's own key */
    /* Called now and then, at least once at the end; NULL: not wanted. False stops the check. */
    bool (*progress)(void *context, const struct verify_progress *progress);
    void *context;         /* handed back to progress */
    bool unfinished;       /* also a copy that is not finished */
    const struct mem *mem; /* NULL: the C library's */
    const struct io *io;   /* NULL: the machine's own */
};

/* One thing that does not check out. */
struct verify_damage {
    char chain_id[37];                /* of a shared store: in which chain; empty: not known */
    uint64_t segment;                 /* which segment file; 0 when it is about the whole journal */
    uint64_t offset;                  /* of the frame in it, in bytes */
    uint64_t seq;                     /* of the entry concerned; 0 when not known */
    struct op_id operation_id;        /* of the operation concerned; zero when not known */
    char what[VERIFY_WHAT_BYTES_MAX]; /* lower case, no full stop: "the chain is broken: …" */
};

struct verify_result {
    char chain_id[37];                     /* whose evidence it is, a UUID as text; empty: of all
                                              processes of a shared store */
    char public_key[VERIFY_KEY_BYTES_MAX]; /* that the notes were checked with, as text */
    uint64_t segments;                     /* segment files read */
    uint64_t squeezed;                     /* of these: bodies and records dropped on purpose */
    uint64_t bytes;                        /* read and checked */
    uint64_t batches;                      /* commits */
    uint64_t entries;                      /* evidence entries */
    uint64_t records;                      /* record frames */
    uint64_t bodies;                       /* body frames */
    uint64_t checkpoints;                  /* signed notes */
    uint64_t first_seq;           /* of the first entry kept; more than 1: older archived */
    uint64_t last_seq;            /* of the last entry */
    struct digest last_hash;      /* its chained hash */
    uint64_t last_checkpoint_seq; /* the newest note that checks out covers up to here */
    uint64_t redecided;           /* decisions made again */
    uint64_t not_redecidable;     /* their operation began in an archived segment */
    uint64_t good_seq;            /* everything up to this entry checks out … */
    uint64_t good_batch;          /* … and everything up to this batch */
    bool inherits;                /* a journal with chains of the store that it was copied from */
    bool shared;                  /* a store of several chains: what follows is set */
    uint64_t chains;              /* of evidence */
    uint64_t unchained;           /* decisions of applications, waiting to be chained: no damage */
    bool unsettled;               /* others wrote all the time: the newest was not compared */
    bool has_ends;                /* the store says where its chains end */
    bool torn_tail;               /* bytes after the last commit, never acknowledged: no damage */
    bool outside_compared; /* the outside checkpoint's entry is there, and its hash was compared */
    uint64_t damage_count; /* 0: all is well */
    struct verify_damage damages[VERIFY_DAMAGES_MAX]; /* the first ones, in order of place */
};

/*
 * OK: it was checked; ret_result says whether there is damage (damage_count). Anything else: it
 * could not be checked, and ret_result is untouched. E_INVALID: the URL, the outside checkpoint or
 * the public key is not one. E_UNAVAILABLE: no such journal, no permission, a read error, or
 * progress said stop. E_NOMEM.
 */
enum status verify_run(const struct verify_options *options, struct verify_result *ret_result,
    struct err *err) MUST_CHECK;

#endif
