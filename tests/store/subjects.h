/*
 * subjects: the stores that the conformance suites run on, and what a test has of the one it runs
 * on. Every test opens a store of its own.
 */
#ifndef ONCE_TESTS_STORE_SUBJECTS_H
#define ONCE_TESTS_STORE_SUBJECTS_H

#include <stdatomic.h>

#include "store/kit.h"
#include "store/mem.h"
#include "store/shaky.h"

struct subject {
    const char *name;
    bool durable;       /* can be closed and opened again */
    bool hub;           /* handles of one memory */
    bool fault;         /* wrapped in a fault store, no fault armed */
    bool trace;         /* wrapped in a trace store */
    bool ring;          /* needs io_uring */
    bool shaky;         /* on a disk that loses power between two openings */
    bool presumes;      /* every batch that a Redis store may presume is (store/redis/presume.c) */
    bool shared;        /* several handles at once: test_shared.c runs on it too */
    const char *form;   /* the URL; %s is a directory */
    const char *server; /* of one that needs a server: the environment variable with its URL, to
                           which form is appended; %s is a name of its own */
};

/* With a server, a program runs on the stores that need it; without one, on all others. */
bool subject_runs(const struct subject *subject);

extern const struct subject subjects[];
extern const size_t subjects_count;

struct fixture {
    const struct subject *subject;
    struct kit_dir dir;
    char url[512];
    struct store_mem_hub *hub; /* of a subject that is one */
    struct store *store;
    unsigned char chain_id[16]; /* that the first opening had */
    struct arena arena;
    atomic_uint lines; /* of the trace */
    struct shaky shaky;
    uint64_t reopened;
};

/* Setup and teardown of a test whose initial state is a subject. */
int subject_setup(void **state);
int subject_teardown(void **state);
/* One more handle of the store, wrapped as the subject says. */
struct store *subject_open(struct fixture *fixture);
/* Close and open again, for stores that remember. */
void subject_reopen(struct fixture *fixture);
/* After an entry of the first opening. */
struct entry_cursor subject_cursor(const struct fixture *fixture, uint64_t seq);

#define ON_SUBJECT(name)                                                                           \
    {                                                                                              \
#name, name, subject_setup, subject_teardown, NULL                                         \
    }

#endif
