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
/* The ways of writing of a journal, for write= in its URL: three, counted modulo. One that the
 * machine does not have in that directory is replaced by the next simpler one. */
enum { KIT_WAYS = 3 };
const char *kit_way(unsigned number, const char *directory);
void kit_dir_remove(const struct kit_dir *dir);
/* Copy a directory of plain files, one level deep. */
void kit_dir_copy(const char *from, const char *to);

/* A record in progress under a key made of the number. */
struct record kit_record(unsigned number, uint64_t fence);
/* The same, sealed as executed, with its window ending then. */
struct record kit_sealed(const struct record *record, int64_t window_expires_ms);
/* A reference to a body, as a record carries it. */
struct body_ref kit_body(struct slice bytes);

/* The clock of the stores under test: it stands still at KIT_NOW until it is set. Time that passes
 * passes on the boot clock too, of a machine whose boot_id is KIT_BOOT_ID. */
enum { KIT_BOOT_ID = 7 };
extern const struct clock kit_clock;
void kit_set_time(int64_t now_ms);
/* The wall clock is this far ahead of the time that passed; until the time is set. */
void kit_jump(int64_t ahead_ms);

/* An evidence entry that follows the store's head; its text says what. The text must live on. */
struct entry kit_entry(struct store *store, const struct op_id *id, const char *text);

/* Prepare nothing and commit, at that time when it is not earlier than the last. After
 * kit_want_made(true), it wants the keys of the records that the commit makes, and a fence, as the
 * engine does, and prepares once more when it is stale. */
void kit_want_made(bool is_on);
enum status kit_commit(
    struct store *store, const struct commit *commit, int64_t now_ms, struct err *err);
/* Housekeeping at that time; OK where there is none to do. */
enum status kit_maintain(struct store *store, int64_t now_ms, struct err *err);
/* The record of a key or of an operation id; *ret_record is NULL when absent. */
enum status kit_read(struct store *store, const struct digest *hash, struct arena *arena,
    const struct record **ret_record, struct err *err);
enum status kit_find(struct store *store, const struct op_id *id, unsigned kinds,
    struct arena *arena, const struct record **ret_record, struct err *err);
/* One body (WANT_REQUEST or WANT_OUTCOME) of the record under a key. */
enum status kit_bytes(struct store *store, const struct digest *hash, enum want_bodies which,
    struct arena *arena, struct slice *ret_bytes, struct err *err);
/* Draw that many fences and abort. Returns the first. */
uint64_t kit_fences(struct store *store, uint64_t count);
/* The highest fence ever given out. */
uint64_t kit_fence(struct store *store);
struct store_counts kit_counts(struct store *store, unsigned kinds);
/* What is due of these kinds for these reasons. */
enum status kit_due(struct store *store, unsigned kinds, unsigned reasons,
    struct store_due *ret_dues, size_t limit, size_t *ret_count);

/* One put with its entry, committed. */
enum status kit_put(struct store *store, const struct record *record, uint64_t version_expected);
/* Begins a flush that nobody waits for, where the store has such, and then waits for it. */
enum status kit_flush(struct store *store, struct err *err);
/* The same and asserted, with a flush behind it. */
void kit_put_flush(struct store *store, const struct record *record, uint64_t version_expected);
/* Load one; NULL when absent. Asserts that it went well. */
const struct record *kit_load(struct store *store, unsigned number, struct arena *arena);
enum status kit_close(struct store *store);

/* Walk the data directory and return how many damages (and torn tails) there are. */
unsigned kit_damages(const char *path, unsigned *ret_tails);

#endif
