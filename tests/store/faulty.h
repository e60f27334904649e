/*
 * faulty: an io that fails one call, counted, as told; and an allocator that does the same.
 */
#ifndef ONCE_TESTS_STORE_FAULTY_H
#define ONCE_TESTS_STORE_FAULTY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/io.h"
#include "base/mem.h"

enum faulty_what {
    FAULTY_ANY,    /* whichever call it is */
    FAULTY_PWRITE, /* counting writes only … */
    FAULTY_SYNC,   /* … or flushes of files and directories … */
    FAULTY_PREAD,  /* … or reads … */
    FAULTY_RING,   /* … or writes that are to begin in a ring */
};

struct faulty {
    struct io io;          /* hand this out */
    enum faulty_what what; /* which calls are counted */
    uint64_t calls;        /* so far */
    uint64_t fail_at;      /* the first to fail; 0: none */
    uint64_t fail_count;   /* how many in a row; 0: one */
    int error;             /* -errno to fail with; 0: a write that writes half, once */
    uint64_t failed;       /* how many did */
};

void faulty_init(struct faulty *faulty);

struct faulty_mem {
    struct mem mem;   /* hand this out */
    uint64_t calls;   /* allocations so far */
    uint64_t fail_at; /* 0: none */
    bool failed;
};

void faulty_mem_init(struct faulty_mem *faulty);

#endif
