/*
 * A copy of a journal while it is written to, squeezed and archived: between any two reads of the
 * copier the writer does a seeded number of things, in the same thread, so that a seed that fails
 * fails again.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "prng.h"
#include "store/journal/journal.h"
#include "store/kit.h"
#include "store/power.h"

enum {
    KEYS = 6000,        /* far more than a round begins */
    ROUNDS = 10,        /* copies, each under a different seed */
    STEPS_BEFORE = 150, /* begins and seals before the copy begins: about twenty segments */
    STEPS_BETWEEN = 40, /* at most, between two reads of the copier … */
    BUSY_ONE_OF = 5,    /* … once in this many: on average less than is copied meanwhile */
    STEP_MS = 100,      /* passes with each of them */
    WINDOW_MS = 2000,   /* of what is sealed */
    RETAIN_MS = 10000,  /* of evidence: segments are archived during the copy */
    SEAL_ONE_OF = 8,    /* this many begins stay in progress for one that is not sealed */
    UPKEEP = 4,         /* calls of maintain after each step: squeezing keeps up */
    BODY_BYTES = 700,
};

/* What the writer did with a key. */
struct done {
    uint64_t begun;    /* the store's last entry after it; 0: not begun */
    uint64_t sealed;   /* likewise; 0: not sealed */
    int64_t sealed_ms; /* when */
};

struct copy_writer {
    struct store *store;
    struct arena arena;
    struct prng random;
    int64_t now_ms;
    unsigned begun;         /* keys, which are numbered from 0 */
    struct done done[KEYS]; /* by number */
    unsigned upkeep;        /* calls of maintain after each step */
    unsigned archived;      /* segments so far */
    unsigned stop_after;    /* calls of progress; 0: never */
    unsigned calls;         /* of progress */
    struct kit_dir dir;     /* has data and copy */
    char data[300];
    char copy[300];
};

static uint64_t last_seq(struct store *store)
{
    struct store_head head;
    store->ops->head(store, &head);
    return head.seq;
}

static void put(struct copy_writer *writer, const struct record *record, struct slice request_body,
    uint64_t version_expected)
{
    struct err err = {0};
    struct change change = {.kind = CHANGE_PUT,
        .record = record,
        .request_body = request_body,
        .version_expected = version_expected,
        .entry = kit_entry(writer->store, &record->operation_id, "{\"type\":\"x\"}")};
    struct commit commit = {.changes = &change, .count = 1};
    assert_int_equal(kit_commit(writer->store, &commit, writer->now_ms, &err), OK);
    assert_int_equal(writer->store->ops->flush(writer->store, &err), OK);
}

static void begin(struct copy_writer *writer)
{
    char bytes[BODY_BYTES];
    unsigned number = writer->begun++;
    assert_true(number < KEYS);
    memset(bytes, 'x', sizeof bytes);
    struct slice body = slice_of(bytes, sizeof bytes);
    struct record record = kit_record(number, number + 1);
    record.request = kit_body(body);
    put(writer, &record, body, 0);
    writer->done[number].begun = last_seq(writer->store);
}

static void seal(struct copy_writer *writer, unsigned number)
{
    const struct record *open = kit_load(writer->store, number, &writer->arena);
    assert_non_null(open);
    struct record sealed = kit_sealed(open, writer->now_ms + WINDOW_MS);
    put(writer, &sealed, SLICE_EMPTY, 1);
    writer->done[number].sealed = last_seq(writer->store);
    writer->done[number].sealed_ms = writer->now_ms;
}

/* After an entry that says so, as the engine does. */
static void archive(struct copy_writer *writer)
{
    struct err err = {0};
    struct store_removable old;
    const struct store_housekeeping *housekeeping = writer->store->ops->housekeeping;
    assert_int_equal(housekeeping->removable(writer->store, &old, &err), OK);
    if (old.place != 0) {
        assert_int_equal(housekeeping->remove(writer->store, old.place, &err), OK);
        writer->archived++;
    }
}

static void step(struct copy_writer *writer)
{
    struct err err = {0};
    writer->now_ms += STEP_MS;
    begin(writer);
    unsigned number = writer->begun - 1;
    if (prng_below(&writer->random, SEAL_ONE_OF) != 0) {
        seal(writer, number);
    } else if (number > 100 && writer->done[number - 100].sealed == 0) {
        seal(writer, number - 100); /* in a later segment than its begin */
    }
    for (unsigned i = 0; i < writer->upkeep; i++) {
        assert_int_equal(kit_maintain(writer->store, writer->now_ms, &err), OK);
        assert_int_equal(writer->store->ops->flush(writer->store, &err), OK);
    }
    archive(writer);
    arena_clear(&writer->arena);
}

static bool meanwhile(void *context, uint64_t bytes_done, uint64_t bytes_total)
{
    struct copy_writer *writer = context;
    assert_true(bytes_done <= bytes_total);
    uint64_t steps = prng_below(&writer->random, STEPS_BETWEEN);
    bool is_busy = prng_once_in(&writer->random, BUSY_ONE_OF);
    writer->upkeep = prng_once_in(&writer->random, 2) ? UPKEEP : UPKEEP * 10;
    for (uint64_t i = 0; is_busy && i < steps; i++) {
        step(writer);
    }
    writer->calls++;
    return writer->stop_after == 0 || writer->calls < writer->stop_after;
}

static void writer_init(struct copy_writer *writer, uint64_t seed)
{
    char url[400];
    struct err err = {0};
    *writer =
        (struct copy_writer){.now_ms = KIT_NOW, .random = {.state = seed}, .dir = kit_dir_make()};
    kit_set_time(KIT_NOW);
    arena_init(&writer->arena, &mem_libc, 64 << 20);
    (void)snprintf(writer->data, sizeof writer->data, "%s/data", writer->dir.path);
    (void)snprintf(writer->copy, sizeof writer->copy, "%s/copy", writer->dir.path);
    (void)snprintf(
        url, sizeof url, "journal:%s?segment=64KiB&snapshot=64KiB&background=off", writer->data);
    struct store_options options = {
        .io = &power_io_fast, .clock = &kit_clock, .retain_ms = RETAIN_MS};
    assert_int_equal(store_open(url, &options, &writer->store, &err), OK);
    assert_int_equal(mkdir(writer->copy, 0700), 0);
}

static void writer_release(struct copy_writer *writer)
{
    assert_int_equal(kit_close(writer->store), OK);
    kit_dir_remove(&writer->dir);
    arena_release(&writer->arena);
}

static struct store *copy_opened(const struct copy_writer *writer)
{
    struct err err = {0};
    struct store *store = NULL;
    struct store_options options = {.clock = &kit_clock, .must_exist = true};
    enum status status = store_open(writer->copy, &options, &store, &err);
    if (status != OK) {
        print_error("%s\n", err.text);
    }
    assert_int_equal(status, OK);
    return store;
}

/* The copy is the store as it was after some entry: each key has the state that it had then. */
static void check_key(struct copy_writer *writer, struct store *copy, unsigned number)
{
    struct err err = {0};
    struct slice body;
    uint64_t end = last_seq(copy);
    const struct done *done = &writer->done[number];
    const struct record *found = kit_load(copy, number, &writer->arena);
    if (done->begun > end) {
        assert_null(found);
    } else if (done->sealed == 0 || done->sealed > end) {
        assert_non_null(found);
        assert_int_equal(found->status, RECORD_IN_PROGRESS);
        assert_int_equal(
            kit_bytes(copy, &found->key.hash, WANT_REQUEST, &writer->arena, &body, &err), OK);
        assert_int_equal(body.len, BODY_BYTES);
    } else {
        bool is_over = done->sealed_ms + WINDOW_MS <= writer->now_ms;
        assert_true(found != NULL || is_over);
        assert_true(found == NULL || found->status == RECORD_EXECUTED);
    }
    arena_clear(&writer->arena);
}

static void check_copy(struct copy_writer *writer, uint64_t seq_before)
{
    unsigned tails = 0;
    assert_int_equal(kit_damages(writer->copy, &tails), 0);
    assert_int_equal(tails, 0);
    struct store *copy = copy_opened(writer);
    assert_true(last_seq(copy) >= seq_before);
    for (unsigned number = 0; number < writer->begun; number++) {
        check_key(writer, copy, number);
    }
    assert_int_equal(kit_close(copy), OK);
}

static void copy_while_busy(struct copy_writer *writer, uint64_t seed)
{
    struct err err = {0};
    writer_init(writer, seed);
    /* Half of the rounds begin with segments that are all still to be squeezed. */
    writer->upkeep = seed % 2 == 0 ? UPKEEP : 0;
    for (int i = 0; i < STEPS_BEFORE; i++) {
        step(writer);
    }
    uint64_t before = last_seq(writer->store);
    struct journal_copy how = {.from = writer->data,
        .to = writer->copy,
        .io = &power_io_fast,
        .progress = meanwhile,
        .context = writer};
    enum status status = journal_copy(&how, &err);
    if (status != OK) {
        print_error("seed %llu: %s\n", (unsigned long long)seed, err.text);
    }
    assert_int_equal(status, OK);
    check_copy(writer, before);
}

static void a_copy_of_a_busy_journal_is_a_store(void **state)
{
    static struct copy_writer writer;
    unsigned archived = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
        copy_while_busy(&writer, seed);
        archived += writer.archived;
        writer_release(&writer);
    }
    assert_true(archived > ROUNDS); /* it was as busy as it should be */
}

static void a_copy_that_is_stopped_says_so(void **state)
{
    static struct copy_writer writer;
    struct err err = {0};
    (void)state;
    writer_init(&writer, 7);
    for (int i = 0; i < STEPS_BEFORE; i++) {
        step(&writer);
    }
    writer.stop_after = 4;
    struct journal_copy how = {
        .from = writer.data, .to = writer.copy, .progress = meanwhile, .context = &writer};
    assert_int_equal(journal_copy(&how, &err), E_UNAVAILABLE);
    assert_string_equal(err.text, "the copy was stopped");
    writer_release(&writer);
}

/* ---- the end ------------------------------------------------------------------------------ */

/* Remembers which file of the source was flushed last, and that it was not read after that. */
struct watched {
    struct io io;
    const char *data;
    int tail; /* descriptor of the last segment of the source that was opened; or -1 */
    bool is_flushed;
    unsigned read_after; /* reads of it behind the flush */
};

static int watched_open(void *context, const char *path, int flags, mode_t mode)
{
    struct watched *watched = context;
    int fd = io_system.open(io_system.context, path, flags, mode);
    if (fd >= 0 && strncmp(path, watched->data, strlen(watched->data)) == 0 &&
        strstr(path, "segment-") != NULL) {
        watched->tail = fd;
        watched->is_flushed = false;
    }
    return fd;
}

static int watched_fdatasync(void *context, int fd)
{
    struct watched *watched = context;
    watched->is_flushed = watched->is_flushed || fd == watched->tail;
    return io_system.fdatasync(io_system.context, fd);
}

static ssize_t watched_pread(void *context, int fd, void *bytes, size_t size, uint64_t offset)
{
    struct watched *watched = context;
    watched->read_after += fd == watched->tail && watched->is_flushed;
    return io_system.pread(io_system.context, fd, bytes, size, offset);
}

/* A batch can be read before its flush. If the copy had it and the source lost it with the power,
 * the two would continue with different histories under the same numbers. */
static void what_is_copied_is_on_the_disk_of_the_source(void **state)
{
    static struct copy_writer writer;
    struct err err = {0};
    (void)state;
    writer_init(&writer, 3);
    step(&writer);
    struct watched watched = {.io = io_system, .data = writer.data, .tail = -1};
    watched.io.context = &watched;
    watched.io.open = watched_open;
    watched.io.fdatasync = watched_fdatasync;
    watched.io.pread = watched_pread;
    struct journal_copy how = {.from = writer.data, .to = writer.copy, .io = &watched.io};
    assert_int_equal(journal_copy(&how, &err), OK);
    assert_true(watched.is_flushed);
    assert_int_equal(watched.read_after, 0);
    writer_release(&writer);
}

static uint64_t last_batch(const char *data)
{
    uint64_t end = 0;
    char path[400];
    (void)snprintf(path, sizeof path, "%s/segment-0000000000000001", data);
    int fd = open(path, O_RDONLY);
    char block[JOURNAL_BLOCK_BYTES];
    for (uint64_t at = JOURNAL_BLOCK_BYTES; pread(fd, block, sizeof block, (off_t)at) > 0;
         at += JOURNAL_BLOCK_BYTES) {
        end = bytes_zero(block, sizeof block) ? end : at;
    }
    (void)close(fd);
    return end;
}

/* bytes at an offset of the only segment, written over. */
static void overwrite(const char *data, uint64_t offset, const void *bytes, size_t size)
{
    char path[400];
    (void)snprintf(path, sizeof path, "%s/segment-0000000000000001", data);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, bytes, size, (off_t)offset), (ssize_t)size);
    assert_int_equal(close(fd), 0);
}

static unsigned damages_and_tails(const char *data)
{
    unsigned tails = 0;
    unsigned damages = kit_damages(data, &tails);
    return damages + tails;
}

static enum status copy_after(
    unsigned steps, void (*hurt)(const char *data), struct err *err, unsigned *ret_damages)
{
    static struct copy_writer writer;
    writer_init(&writer, 5);
    for (unsigned i = 0; i < steps; i++) {
        step(&writer);
    }
    begin(&writer); /* the last batch has a body, and so several sectors */
    hurt(writer.data);
    assert_int_not_equal(damages_and_tails(writer.data), 0);
    struct journal_copy how = {.from = writer.data, .to = writer.copy};
    enum status status = journal_copy(&how, err);
    *ret_damages = status == OK ? damages_and_tails(writer.copy) : 0;
    writer_release(&writer);
    return status;
}

/* Its first sector alone reached the disk. */
static void tear_last(const char *data)
{
    static const char zeros[JOURNAL_BLOCK_BYTES - JOURNAL_SECTOR_BYTES];
    overwrite(data, last_batch(data) + JOURNAL_SECTOR_BYTES, zeros, sizeof zeros);
}

static void damage_last(const char *data)
{
    overwrite(data, last_batch(data) + 100, "damaged", 7);
}

static void damage_one_in_the_middle(const char *data)
{
    overwrite(data, last_batch(data) - 2 * JOURNAL_BLOCK_BYTES + 100, "damaged", 7);
}

static void lose_one_in_the_middle(const char *data)
{
    static const char zeros[JOURNAL_BLOCK_BYTES];
    overwrite(data, last_batch(data) - 2 * JOURNAL_BLOCK_BYTES, zeros, sizeof zeros);
}

static void a_torn_end_is_left_out(void **state)
{
    struct err err = {0};
    unsigned damages = 0;
    (void)state;
    assert_int_equal(copy_after(3, tear_last, &err, &damages), OK);
    assert_int_equal(damages, 0);
}

static void damage_at_the_end_is_not_taken_for_the_end(void **state)
{
    struct err err = {0};
    unsigned damages = 0;
    (void)state;
    assert_int_equal(copy_after(3, damage_last, &err, &damages), E_CORRUPT);
    assert_int_equal(copy_after(3, damage_one_in_the_middle, &err, &damages), E_CORRUPT);
    assert_int_equal(copy_after(3, lose_one_in_the_middle, &err, &damages), E_CORRUPT);
}

/* Not to be taken for one that was archived: then everything before it would be left out. */
static void a_segment_that_is_missing_is_not_taken_for_an_archived_one(void **state)
{
    static struct copy_writer writer;
    struct err err = {0};
    char path[400];
    (void)state;
    writer_init(&writer, 9);
    for (int i = 0; i < STEPS_BEFORE; i++) {
        step(&writer);
    }
    (void)snprintf(path, sizeof path, "%s/segment-0000000000000002", writer.data);
    assert_int_equal(unlink(path), 0);
    struct journal_copy how = {.from = writer.data, .to = writer.copy};
    assert_int_equal(journal_copy(&how, &err), E_CORRUPT);
    writer_release(&writer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_of_a_busy_journal_is_a_store),
        cmocka_unit_test(a_copy_that_is_stopped_says_so),
        cmocka_unit_test(what_is_copied_is_on_the_disk_of_the_source),
        cmocka_unit_test(a_torn_end_is_left_out),
        cmocka_unit_test(damage_at_the_end_is_not_taken_for_the_end),
        cmocka_unit_test(a_segment_that_is_missing_is_not_taken_for_an_archived_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
