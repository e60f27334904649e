/*
 * backup: copies a journal, which may be in use, to a new store. Part of the program, not of
 * libonce.
 *
 *   nothing --mkdir--> DIR.new-… --copied, flushed--> --verified, opened--> --rename--> DIR
 *
 * Promises:  DIR exists only once the copy is complete, durable, verified to the last byte and
 *            known to open as a store. Until then everything is in a directory beside it, which is
 *            removed on any failure. A kill or a power loss leaves that directory. The next backup
 *            to DIR removes it if it has exactly such a name, belongs to this user, its process is
 *            gone, and no process of any container or machine has it locked. Nothing else that
 *            exists is touched. The directory has mode 0700 and its files 0600: the identity has
 *            secrets. The source is only read, without its lock.
 * Does not:  copy archive/, which nothing reads, or include changes after the copy.
 */
#ifndef ONCE_LIB_BACKUP_H
#define ONCE_LIB_BACKUP_H

#include "evidence/verify.h"

enum backup_step { BACKUP_COPYING, BACKUP_VERIFYING };

struct backup_options {
    const char *from; /* the data directory of a journal */
    const char *to;   /* the directory to make */
    /* Called now and then; total is an estimate while the journal is in use. False: stop. */
    bool (*progress)(
        void *context, enum backup_step step, uint64_t bytes_done, uint64_t bytes_total);
    /* Called after the remains of a killed backup were removed. */
    void (*removed)(void *context, const char *directory);
    void *context; /* passed to both */
};

/*
 * ret_result is the result of the verification: no damage. E_INVALID: the target exists, is inside
 * the journal, or cannot be a store's name. E_UNAVAILABLE: not enough room, a file cannot be read
 * or written, or progress returned false. E_CORRUPT: the journal, or its copy, is damaged. E_NOMEM.
 */
enum status backup_make(const struct backup_options *options, struct verify_result *ret_result,
    struct err *err) MUST_CHECK;

#endif
