/*
 * backup: a copy of a journal, which may be in use, as a store of its own. Part of the program, not
 * of libonce.
 *
 *   nothing --mkdir--> DIR.new-… --copied, flushed--> --verified, opened--> --rename--> DIR
 *
 * Promises:  DIR exists only once the copy is whole, durable, verified to the last byte and known
 *            to open as a store. Until then everything is in a directory beside it, which is
 *            removed on any failure. A kill or a power loss leaves it; the next backup to DIR
 *            removes it, if it has exactly such a name and belongs to this user, if its process is
 *            gone, and if no process of whatever container or machine has it locked. Nothing else
 *            that exists is touched. The directory has mode 0700 and its files 0600: the identity
 *            has secrets. The source is only read, without its lock.
 * Does not:  copy archive/, which nothing reads, or know what happens after the copy.
 */
#ifndef ONCE_LIB_BACKUP_H
#define ONCE_LIB_BACKUP_H

#include "evidence/verify.h"

enum backup_step { BACKUP_COPYING, BACKUP_VERIFYING };

struct backup_options {
    const char *from; /* the data directory of a journal */
    const char *to;   /* the directory to make */
    /* Called now and then; total is an estimate while the journal is in use. False stops it. */
    bool (*progress)(
        void *context, enum backup_step step, uint64_t bytes_done, uint64_t bytes_total);
    /* What a killed backup left was removed. */
    void (*removed)(void *context, const char *directory);
    void *context; /* handed back to both */
};

/*
 * ret_result is what was verified: no damage. E_INVALID: the target exists, is in the journal
 * itself, or cannot be a store's name. E_UNAVAILABLE: not enough room, a file that cannot be read
 * or written, or progress said stop. E_CORRUPT: the journal, or its copy, is damaged. E_NOMEM.
 */
enum status backup_make(const struct backup_options *options, struct verify_result *ret_result,
    struct err *err) MUST_CHECK;

#endif
