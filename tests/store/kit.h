/*
 * kit: what the store tests share: scratch directories, records and changes made in one line.
 */
#ifndef ONCE_TESTS_STORE_KIT_H
#define ONCE_TESTS_STORE_KIT_H

#include "check_c.h"
#include "store/store.h"

enum { KIT_TIME_MS = 1700000000 }; /* in seconds, times 1000 below: a usual time */

#define KIT_NOW (INT64_C(1000) * KIT_TIME_MS)

/* A fresh directory under the system's temporary one, and its removal with everything in it. */
struct kit_dir {
    char path[256];
};
struct kit_dir kit_dir_make(void);
void kit_dir_remove(const struct kit_dir *dir);
/* Copy a directory of plain files, one level deep. */
void kit_dir_copy(const char *from, const char *to);

/* A record in progress under a key made of the number. */
struct record kit_record(unsigned number, uint64_t fence);
/* The same, sealed as executed, with its window ending then. */
struct record kit_sealed(const struct record *record, int64_t window_expires_ms);
/* A reference to a body, as a record carries it. */
struct body_ref kit_body(struct slice bytes);

/* An evidence entry that follows the store's head; its text says what. The text must live on. */
struct entry kit_entry(struct store *store, const struct op_id *id, const char *text);

/* One put with its entry, committed. */
enum status kit_put(struct store *store, const struct record *record, uint64_t version_expected);
/* The same and asserted, with a flush behind it. */
void kit_put_flush(struct store *store, const struct record *record, uint64_t version_expected);
/* Load one; NULL when absent. Asserts that it went well. */
const struct record *kit_load(struct store *store, unsigned number, struct arena *arena);
enum status kit_close(struct store *store);

/* Walk the data directory and return how many damages (and torn tails) there are. */
unsigned kit_damages(const char *path, unsigned *ret_tails);

#endif
