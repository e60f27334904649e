/*
 * What only the journal can get wrong: damage, torn tails, full disks, locks, old images.
 * It is past 800 lines because all of them work on the one small journal that is built here.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "store/faulty.h"
#include "store/journal/journal.h"
#include "store/kit.h"
#include "store/power.h"

#define SMALL "?segment=64KiB&snapshot=1MiB&background=off&write="

/* The ways of writing: what a write can get wrong is tested on each, the rest on the first. */
static const char *const ways[] = {"buffered", "direct", "uring"};
enum { WAYS = sizeof ways / sizeof *ways };
static unsigned way_now; /* being tested */

static bool tier_long(void)
{
    return getenv("ONCE_TEST_LONG") != NULL;
}

struct place {
    struct kit_dir dir;
    char data[300]; /* the data directory */
    char url[400];  /* of it, small and without a thread */
    struct arena arena;
};

static int setup(void **state)
{
    struct place *place = calloc(1, sizeof *place);
    assert_non_null(place);
    kit_set_time(KIT_NOW);
    place->dir = kit_dir_make();
    (void)snprintf(place->data, sizeof place->data, "%s/data", place->dir.path);
    (void)snprintf(
        place->url, sizeof place->url, "journal:%s" SMALL "%s", place->data, ways[way_now]);
    arena_init(&place->arena, &mem_libc, 64 << 20);
    *state = place;
    return 0;
}

static int teardown(void **state)
{
    struct place *place = *state;
    kit_dir_remove(&place->dir);
    arena_release(&place->arena);
    free(place);
    return 0;
}

static struct store *open_url(const char *url, const struct io *io)
{
    struct store_options options = {.io = io == NULL ? &power_io_fast : io, .clock = &kit_clock};
    struct err err = {0};
    struct store *store = NULL;
    enum status status = store_open(url, &options, &store, &err);
    if (status != OK) {
        print_error("open: %s\n", err.text);
    }
    assert_int_equal(status, OK);
    return store;
}

static enum status open_status(const char *url, struct err *err)
{
    struct store_options options = {.io = &power_io_fast, .clock = &kit_clock};
    struct store *store;
    *err = (struct err){0};
    enum status status = store_open(url, &options, &store, err);
    if (status == OK) {
        assert_int_equal(kit_close(store), OK);
    }
    return status;
}

static void file_of(const struct place *place, const char *name, char path[512])
{
    (void)snprintf(path, 512, "%s/%s", place->data, name);
}

static void file_write(const char *path, off_t offset, const void *bytes, size_t size)
{
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, size, offset), (ssize_t)size);
    (void)close(fd);
}

static void file_read(const char *path, off_t offset, void *bytes, size_t size)
{
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, bytes, size, offset), (ssize_t)size);
    (void)close(fd);
}

/* Some records with bodies, each in a batch of its own. */
static void fill(struct store *store, unsigned from, unsigned count, struct arena *arena)
{
    static char body[700];
    memset(body, 'x', sizeof body);
    struct err err = {0};
    for (unsigned i = from; i < from + count; i++) {
        struct record record = kit_record(i, i + 1);
        const struct record *found = kit_load(store, i, arena);
        assert_null(found);
        record.request = kit_body(slice_of(body, sizeof body));
        struct change change = {.kind = CHANGE_PUT,
            .record = &record,
            .request_body = slice_of(body, sizeof body),
            .entry = kit_entry(store, &record.operation_id, "{\"type\":\"started\"}")};
        struct commit commit = {.changes = &change, .count = 1};
        assert_int_equal(kit_commit(store, &commit, KIT_NOW, &err), OK);
        assert_int_equal(kit_flush(store, &err), OK);
    }
}

/* The end of the last batch of the only segment, found by a walk. */
static bool end_visit(void *context, const struct journal_walk *walk)
{
    uint64_t *end = context;
    if (walk->event == JOURNAL_WALK_BATCH) {
        *end = walk->offset + walk->batch->length;
    }
    return true;
}

static uint64_t end_of(const struct place *place)
{
    uint64_t end = 0;
    struct err err;
    assert_int_equal(journal_walk(place->data, NULL, NULL, end_visit, &end, &err), OK);
    return end;
}

static void every_flipped_bit_is_noticed(void **state)
{
    struct place *place = *state;
    struct store *store = open_url(place->url, NULL);
    fill(store, 0, 4, &place->arena);
    assert_int_equal(kit_close(store), OK);
    assert_int_equal(kit_damages(place->data, NULL), 0);
    char path[512];
    file_of(place, "segment-0000000000000001", path);
    uint64_t end = end_of(place);
    uint64_t step = tier_long() ? 1 : 11; /* bits */
    for (uint64_t bit = 0; bit < end * 8; bit += step) {
        unsigned char byte;
        file_read(path, (off_t)(bit / 8), &byte, 1);
        byte ^= (unsigned char)(1u << bit % 8);
        file_write(path, (off_t)(bit / 8), &byte, 1);
        unsigned damages = kit_damages(place->data, NULL);
        struct err err = {0};
        enum status status = bit % (step * 16) == 0 ? open_status(place->url, &err) : E_CORRUPT;
        if (damages == 0 || status != E_CORRUPT) {
            print_error("bit %llu of byte %llu: %u damages, open %s\n",
                (unsigned long long)(bit % 8), (unsigned long long)(bit / 8), damages,
                status_name(status));
        }
        assert_true(damages > 0);
        assert_int_equal(status, E_CORRUPT);
        byte ^= (unsigned char)(1u << bit % 8);
        file_write(path, (off_t)(bit / 8), &byte, 1);
    }
    assert_int_equal(kit_damages(place->data, NULL), 0);
}

static void a_flipped_bit_of_the_identity_is_noticed(void **state)
{
    struct place *place = *state;
    assert_int_equal(kit_close(open_url(place->url, NULL)), OK);
    char path[512];
    file_of(place, "identity", path);
    for (unsigned bit = 0; bit < 256 * 8; bit++) {
        unsigned char byte;
        struct err err;
        file_read(path, bit / 8, &byte, 1);
        byte ^= (unsigned char)(1u << bit % 8);
        file_write(path, bit / 8, &byte, 1);
        assert_int_equal(open_status(place->url, &err), E_CORRUPT);
        byte ^= (unsigned char)(1u << bit % 8);
        file_write(path, bit / 8, &byte, 1);
    }
}

/* A segment cut anywhere below its last batch is damage: zeros are written ahead of batches. */
static void a_cut_file_is_noticed(void **state)
{
    struct place *place = *state;
    struct store *store = open_url(place->url, NULL);
    fill(store, 0, 4, &place->arena);
    assert_int_equal(kit_close(store), OK);
    uint64_t end = end_of(place);
    char copy[400];
    char url[500];
    (void)snprintf(copy, sizeof copy, "%s/copy", place->dir.path);
    (void)snprintf(url, sizeof url, "journal:%s" SMALL "buffered", copy);
    for (uint64_t size = 0; size < end; size += 512) {
        kit_dir_copy(place->data, copy);
        char path[600];
        (void)snprintf(path, sizeof path, "%s/segment-0000000000000001", copy);
        assert_int_equal(truncate(path, (off_t)size), 0);
        struct err err;
        assert_int_equal(open_status(url, &err), E_CORRUPT);
        assert_true(strlen(err.text) > 0);
    }
}

static void a_torn_tail_is_cut_and_the_rest_stays(void **state)
{
    struct place *place = *state;
    struct store *store = open_url(place->url, NULL);
    fill(store, 0, 3, &place->arena);
    uint64_t before = end_of(place);
    char path[512];
    file_of(place, "segment-0000000000000001", path);
    fill(store, 3, 1, &place->arena);
    uint64_t after = end_of(place);
    /* As a crash leaves it: no word about how far it was. */
    assert_int_equal(kit_close(store), OK);
    char reached[512];
    file_of(place, "reached", reached);
    assert_int_equal(unlink(reached), 0);
    char zeros[512] = {0};
    for (uint64_t sector = before; sector < before + 1024; sector += 512) {
        char copy[400];
        char url[500];
        (void)snprintf(copy, sizeof copy, "%s/copy", place->dir.path);
        (void)snprintf(url, sizeof url, "journal:%s" SMALL "buffered", copy);
        kit_dir_copy(place->data, copy);
        char segment[600];
        (void)snprintf(segment, sizeof segment, "%s/segment-0000000000000001", copy);
        file_write(segment, (off_t)sector, zeros, sizeof zeros);
        unsigned tails = 0;
        assert_int_equal(kit_damages(copy, &tails), 0);
        assert_int_equal(tails, 1);
        store = open_url(url, NULL);
        assert_null(kit_load(store, 3, &place->arena));
        assert_non_null(kit_load(store, 2, &place->arena));
        fill(store, 3, 2, &place->arena);
        assert_int_equal(kit_close(store), OK);
        assert_int_equal(kit_damages(copy, &tails), 0);
        assert_int_equal(tails, 0);
    }
    assert_true(after > before);
}

/* Zeros in the middle are a lost write, not a torn tail: others follow (JF5). */
static void a_lost_sector_with_batches_behind_it_stops(void **state)
{
    struct place *place = *state;
    struct store *store = open_url(place->url, NULL);
    fill(store, 0, 1, &place->arena);
    uint64_t middle = end_of(place);
    fill(store, 1, 2, &place->arena);
    assert_int_equal(kit_close(store), OK);
    char path[512];
    file_of(place, "segment-0000000000000001", path);
    char kept[512];
    char zeros[512] = {0};
    for (uint64_t at = middle; at < middle + 1024; at += 512) {
        file_read(path, (off_t)at, kept, sizeof kept);
        file_write(path, (off_t)at, zeros, sizeof zeros);
        struct err err;
        assert_int_equal(open_status(place->url, &err), E_CORRUPT);
        assert_non_null(strstr(err.hint, "batch 1"));
        file_write(path, (off_t)at, kept, sizeof kept);
    }
    struct err err;
    assert_int_equal(open_status(place->url, &err), OK);
}

/* The last batch zeroed as a whole looks like a clean end; the mark of the close knows better. */
static void a_vanished_last_batch_is_noticed(void **state)
{
    struct place *place = *state;
    struct store *store = open_url(place->url, NULL);
    fill(store, 0, 2, &place->arena);
    uint64_t middle = end_of(place);
    fill(store, 2, 1, &place->arena);
    assert_int_equal(kit_close(store), OK);
    char path[512];
    file_of(place, "segment-0000000000000001", path);
    char zeros[4096] = {0};
    file_write(path, (off_t)middle, zeros, sizeof zeros);
    struct err err;
    assert_int_equal(open_status(place->url, &err), E_CORRUPT);
}

static void a_missing_segment_stops(void **state)
{
    struct place *place = *state;
    struct store *store = open_url(place->url, NULL);
    fill(store, 0, 40, &place->arena);
    assert_int_equal(kit_close(store), OK);
    char path[512];
    struct err err;
    file_of(place, "segment-0000000000000002", path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(open_status(place->url, &err), E_CORRUPT);
    assert_non_null(strstr(err.text, "segment 2 is missing"));
    assert_true(kit_damages(place->data, NULL) > 0);
}

static void a_corrupt_record_is_an_error_and_never_absent(void **state)
{
    struct place *place = *state;
    struct store *store = open_url(place->url, NULL);
    fill(store, 0, 3, &place->arena);
    assert_int_equal(kit_close(store), OK); /* what it just wrote it would read from memory */
    store = open_url(place->url, NULL);
    char path[512];
    file_of(place, "segment-0000000000000001", path);
    unsigned char byte = 0x55;
    file_write(path, 4096 + 64 + 12 + 32 + 700 + 40, &byte, 1); /* inside of the first record */
    struct record record = kit_record(0, 1);
    const struct record *found = NULL;
    struct err err = {0};
    assert_int_equal(kit_read(store, &record.key.hash, &place->arena, &found, &err), E_CORRUPT);
    assert_non_null(strstr(err.text, "segment 1 offset"));
    assert_int_equal(
        kit_find(store, &record.operation_id, STORE_OPERATIONS, &place->arena, &found, &err),
        E_CORRUPT);
    assert_non_null(kit_load(store, 1, &place->arena));
    (void)kit_close(store);
}

static ssize_t counted_pread(void *context, int fd, void *bytes, size_t size, uint64_t offset)
{
    unsigned *reads = context;
    (*reads)++;
    return io_system.pread(NULL, fd, bytes, size, offset);
}

static void a_seal_soon_after_its_begin_reads_no_file(void **state)
{
    struct place *place = *state;
    unsigned reads = 0;
    struct io io = power_io_fast;
    io.pread = counted_pread; /* the others do not look at their context */
    io.context = &reads;
    struct store *store = open_url(place->url, &io);
    fill(store, 0, 200, &place->arena);
    reads = 0;
    const struct record *late = kit_load(store, 199, &place->arena);
    assert_non_null(late);
    assert_non_null(kit_load(store, 150, &place->arena));
    struct err err = {0};
    struct slice body = SLICE_EMPTY;
    assert_int_equal(
        kit_bytes(store, &late->key.hash, WANT_REQUEST, &place->arena, &body, &err), OK);
    assert_int_equal(body.len, 700);
    assert_int_equal(reads, 0);
    /* Memory is bounded: what is older comes from the file, and is the same. */
    for (unsigned i = 0; i < 200; i++) {
        assert_non_null(kit_load(store, i, &place->arena));
    }
    assert_in_range(reads, 130, 150);
    assert_int_equal(kit_close(store), OK);
}

static void a_second_process_is_told_who_has_it(void **state)
{
    struct place *place = *state;
    struct store *store = open_url(place->url, NULL);
    struct err err = {0};
    struct store *second;
    struct store_options options = {.lock_wait_ms = 30};
    assert_int_equal(store_open(place->url, &options, &second, &err), E_UNAVAILABLE);
    char expected[64];
    (void)snprintf(expected, sizeof expected, "in use by pid %ld", (long)getpid());
    assert_non_null(strstr(err.text, expected));
    fill(store, 0, 2, &place->arena);
    options = (struct store_options){.read_only = true};
    assert_int_equal(store_open(place->url, &options, &second, &err), OK);
    assert_non_null(kit_load(second, 1, &place->arena));
    struct record more = kit_record(9, 9);
    assert_int_equal(kit_put(second, &more, 0), E_MISUSE);
    assert_int_equal(kit_close(second), OK);
    assert_int_equal(kit_close(store), OK);
}

static enum status look_status(const char *url, struct err *err)
{
    struct store *store;
    struct store_options options = {.read_only = true};
    enum status status = store_open(url, &options, &store, err);
    return status == OK ? kit_close(store) : status;
}

/* P11 holds for those who look too: an older state must not be shown as the present one. */
static void a_reader_is_not_shown_what_was_before_the_damage(void **state)
{
    struct place *place = *state;
    struct store *store = open_url(place->url, NULL);
    fill(store, 0, 6, &place->arena); /* six batches of one block each */
    assert_int_equal(kit_close(store), OK);
    char path[512];
    file_of(place, "segment-0000000000000001", path);
    for (unsigned batch = 1; batch <= 6; batch++) {
        struct err err = {0};
        off_t at = (off_t)(batch * 4096 + 200);
        unsigned char good;
        file_read(path, at, &good, 1);
        unsigned char bad = (unsigned char)(good ^ 1);
        file_write(path, at, &bad, 1);
        assert_int_equal(look_status(place->url, &err), E_CORRUPT);
        assert_true(err.hint[0] != '\0');
        file_write(path, at, &good, 1);
        assert_int_equal(look_status(place->url, &err), OK);
    }
    unsigned char block[4096];
    static const unsigned char zeros[4096];
    file_read(path, 3 * 4096, block, sizeof block);
    file_write(path, 3 * 4096, zeros, sizeof zeros); /* a batch in the middle is gone */
    struct err err = {0};
    assert_int_equal(look_status(place->url, &err), E_CORRUPT);
    file_write(path, 3 * 4096, block, sizeof block);
    assert_int_equal(look_status(place->url, &err), OK);
}

static void must_exist_does_not_create(void **state)
{
    struct place *place = *state;
    struct err err = {0};
    struct store *store;
    struct store_options options = {.must_exist = true};
    assert_int_equal(store_open(place->url, &options, &store, &err), E_UNAVAILABLE);
    assert_int_equal(access(place->data, F_OK), -1);
    options = (struct store_options){.read_only = true};
    assert_int_equal(store_open(place->url, &options, &store, &err), E_UNAVAILABLE);
    assert_int_equal(store_open("journal:/nonexistent/x/y", NULL, &store, &err), E_UNAVAILABLE);
}

static bool count_one(void *context, const struct entry *entry)
{
    (void)entry;
    ++*(unsigned *)context;
    return true;
}

/* Segments are passed over by the time of the one after them: that is no time to skip. */
static void entries_of_one_moment_are_found_in_every_segment(void **state)
{
    struct place *place = *state;
    enum { COUNT = 100 };
    char url[512];
    struct err err = {0};
    struct journal_info info;
    (void)snprintf(
        url, sizeof url, "journal:%s?segment=64KiB&snapshot=64KiB&background=off", place->data);
    struct store *store = open_url(url, NULL);
    for (unsigned i = 0; i < COUNT; i += 10) {
        fill(store, i, 10, &place->arena);
        assert_int_equal(kit_maintain(store, KIT_NOW, &err), OK);
    }
    assert_int_equal(journal_info(store, &info, &err), OK);
    assert_true(info.segments > 3);
    struct entry_range range = {.from_ms = KIT_NOW};
    unsigned count = 0;
    assert_int_equal(store->ops->entries(store, &range, count_one, &count, &err), OK);
    assert_int_equal(count, COUNT);
    assert_int_equal(kit_close(store), OK);
}

static void a_saved_index_is_never_needed(void **state)
{
    struct place *place = *state;
    char url[512];
    (void)snprintf(
        url, sizeof url, "journal:%s?segment=256KiB&snapshot=64KiB&background=off", place->data);
    struct err err = {0};
    struct store *store = open_url(url, NULL);
    for (unsigned i = 0; i < 12; i++) {
        fill(store, i * 10, 10, &place->arena);
        for (int j = 0; j < 6; j++) {
            assert_int_equal(kit_maintain(store, KIT_NOW, &err), OK);
        }
    }
    struct journal_info info;
    assert_int_equal(journal_info(store, &info, &err), OK);
    assert_true(info.snapshot_bytes < 120 * 4096);
    assert_int_equal(kit_close(store), OK);
    char command[700];
    /* With it, with the newest one damaged, and with none: the same records. */
    static const char *const damage[] = {":",
        "f=$(ls index-* | tail -1); printf X | dd of=$f bs=1 seek=5000 conv=notrunc 2>/dev/null",
        "rm -f index-*"};
    for (size_t i = 0; i < sizeof damage / sizeof *damage; i++) {
        (void)snprintf(command, sizeof command, "cd '%s' && ls index-* >/dev/null && %s",
            place->data, damage[i]);
        assert_int_equal(system(command), 0);
        struct store_options look = {.read_only = true};
        assert_int_equal(store_open(url, &look, &store, &err), OK);
        struct store_head head;
        store->ops->head(store, &head);
        assert_int_equal(kit_counts(store, STORE_OPERATIONS).records, 120);
        assert_int_equal(head.seq, 120);
        for (unsigned j = 0; j < 120; j++) {
            assert_non_null(kit_load(store, j, &place->arena));
        }
        assert_int_equal(kit_close(store), OK);
    }
}

/* A touch in a batch that is open while the index is copied is in the copy, not counted again. */
static void a_saved_index_does_not_count_twice(void **state)
{
    struct place *place = *state;
    char url[512];
    (void)snprintf(
        url, sizeof url, "journal:%s?segment=1MiB&snapshot=64KiB&background=off", place->data);
    struct err err = {0};
    struct store *store = open_url(url, NULL);
    fill(store, 0, 20, &place->arena);
    struct record record = kit_record(3, 4);
    struct change touch = {.kind = CHANGE_TOUCH, .record = &record, .version_expected = 1};
    struct commit commit = {.changes = &touch, .count = 1};
    assert_int_equal(kit_commit(store, &commit, KIT_NOW, &err), OK);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(kit_maintain(store, KIT_NOW, &err), OK);
        if (i == 2) { /* not saved before the journal is flushed that far */
            char command[500];
            (void)snprintf(command, sizeof command, "ls '%s'/index-* 2>/dev/null", place->data);
            assert_int_not_equal(system(command), 0);
            assert_int_equal(kit_flush(store, &err), OK);
        }
    }
    assert_int_equal(kit_close(store), OK);
    char command[500];
    (void)snprintf(command, sizeof command, "ls '%s'/index-* >/dev/null", place->data);
    assert_int_equal(system(command), 0);
    store = open_url(url, NULL);
    assert_int_equal(kit_load(store, 3, &place->arena)->duplicates, 1);
    assert_int_equal(kit_close(store), OK);
}

static void an_older_image_is_noticed_by_its_witness(void **state)
{
    struct place *place = *state;
    char url[900];
    char copy[400];
    (void)snprintf(copy, sizeof copy, "%s/backup", place->dir.path);
    (void)snprintf(url, sizeof url, "%s&witness=%s/witness", place->url, place->dir.path);
    struct store *store = open_url(url, NULL);
    fill(store, 0, 3, &place->arena);
    assert_int_equal(kit_close(store), OK);
    kit_dir_copy(place->data, copy);
    store = open_url(url, NULL);
    fill(store, 3, 3, &place->arena);
    assert_int_equal(kit_close(store), OK);
    assert_int_equal(kit_close(open_url(url, NULL)), OK);
    kit_dir_copy(copy, place->data);
    struct err err = {0};
    assert_int_equal(open_status(url, &err), E_CORRUPT);
    assert_non_null(strstr(err.text, "older than its witness"));
    assert_true(err.hint[0] != '\0');
    /* It went another way since: as long, but not the same chain. */
    store = open_url(place->url, NULL);
    fill(store, 10, 9, &place->arena);
    struct op_id none = {{0}};
    struct change change = {.entry = kit_entry(store, &none, "{\"other\":1}")};
    struct commit commit = {.changes = &change, .count = 1};
    assert_int_equal(kit_commit(store, &commit, KIT_NOW, &err), OK);
    assert_int_equal(kit_close(store), OK);
}

static void count_squeezed(struct store *store, struct journal_info *info)
{
    struct err err = {0};
    assert_int_equal(journal_info(store, info, &err), OK);
}

struct seqs {
    uint64_t next;
};

static bool seq_visit(void *context, const struct entry *entry)
{
    struct seqs *seqs = context;
    assert_int_equal(entry->seq, seqs->next++);
    return true;
}

static enum status removable_at(
    struct store *store, int64_t now_ms, struct store_removable *ret_removable)
{
    struct err err = {0};
    kit_set_time(now_ms);
    return store->ops->housekeeping->removable(store, ret_removable, &err);
}

/* The oldest squeezed segment goes when the retention is over, and nothing before. */
static void remove_oldest(const char *url, struct store *store, int64_t later, const char *data)
{
    struct err err = {0};
    struct store_removable removable;
    assert_int_equal(removable_at(store, later, &removable), OK);
    assert_int_equal(removable.place, 0);
    int64_t after = later + INT64_C(401) * 86400000;
    assert_int_equal(removable_at(store, after, &removable), OK);
    assert_int_equal(removable.place, 1);
    assert_int_equal(store->ops->housekeeping->remove(store, 2, &err), E_MISUSE);
    assert_int_equal(store->ops->housekeeping->remove(store, 1, &err), OK);
    assert_int_equal(kit_close(store), OK);
    store = open_url(url, NULL);
    struct seqs seqs = {.next = removable.seq + 1};
    struct entry_range range = {0};
    assert_int_equal(store->ops->entries(store, &range, seq_visit, &seqs, &err), OK);
    assert_int_equal(seqs.next, 200);
    assert_int_equal(kit_damages(data, NULL), 0);
    assert_int_equal(kit_close(store), OK);
}

/* Old segments lose records and bodies, live ones move on, entries stay; then they are removed. */
static void old_segments_are_squeezed_and_removed(void **state)
{
    struct place *place = *state;
    char url[512];
    (void)snprintf(
        url, sizeof url, "journal:%s?segment=64KiB&snapshot=64KiB&background=off", place->data);
    struct err err = {0};
    struct store *store = open_url(url, NULL);
    fill(store, 0, 100, &place->arena);
    int64_t later = KIT_NOW + 86400000;
    for (unsigned i = 0; i < 100; i++) {
        if (i != 3) { /* one stays in progress, in the oldest segment */
            struct record sealed = kit_sealed(kit_load(store, i, &place->arena), KIT_NOW + 3600000);
            kit_put_flush(store, &sealed, 1);
        }
    }
    struct change touch = {.kind = CHANGE_TOUCH, .version_expected = 1};
    struct record open_one = kit_record(3, 4);
    touch.record = &open_one;
    struct commit commit = {.changes = &touch, .count = 1};
    assert_int_equal(kit_commit(store, &commit, later, &err), OK);
    assert_int_equal(kit_flush(store, &err), OK);
    for (int i = 0; i < 400; i++) {
        assert_int_equal(kit_maintain(store, later, &err), OK);
        assert_int_equal(kit_flush(store, &err), OK);
    }
    struct journal_info info;
    count_squeezed(store, &info);
    assert_true(info.segments > 5);
    assert_true(info.segments_squeezed > 2);
    for (int round = 0; round < 3; round++) {
        const struct record *found = kit_load(store, 3, &place->arena);
        assert_non_null(found);
        assert_int_equal(found->duplicates, 1);
        struct slice body;
        assert_int_equal(
            kit_bytes(store, &found->key.hash, WANT_REQUEST, &place->arena, &body, &err), OK);
        assert_int_equal(body.len, 700);
        assert_int_equal(kit_maintain(store, later, &err), OK);
        assert_int_equal(kit_counts(store, STORE_OPERATIONS).records, 1); /* nothing came back */
        struct seqs seqs = {.next = 1};
        struct entry_range range = {0};
        assert_int_equal(store->ops->entries(store, &range, seq_visit, &seqs, &err), OK);
        assert_int_equal(seqs.next, 200);
        assert_int_equal(kit_damages(place->data, NULL), 0);
        assert_int_equal(kit_close(store), OK);
        if (round == 1) {
            char command[500];
            (void)snprintf(command, sizeof command, "rm -f '%s'/index-*", place->data);
            assert_int_equal(system(command), 0);
        }
        store = open_url(url, NULL);
        assert_int_equal(kit_maintain(store, later, &err), OK);
    }
    remove_oldest(url, store, later, place->data);
}

struct paced {
    struct entry_pace pace;
    uint64_t next;
    struct digest hash; /* of the one before */
    unsigned left;      /* to be seen in this call */
};

static bool paced_visit(void *context, const struct entry *entry)
{
    struct paced *paced = context;
    assert_int_equal(entry->seq, paced->next++);
    assert_memory_equal(&paced->pace.hash, &paced->hash, sizeof paced->hash);
    paced->hash = entry->hash;
    return --paced->left > 0;
}

/* So many more entries, a few bytes a call. */
static void pace_on(struct store *store, struct paced *paced, unsigned count)
{
    struct err err = {0};
    struct entry_range range = {.pace = &paced->pace};
    paced->left = count;
    for (int i = 0; i < 10000 && paced->left > 0 && !paced->pace.done; i++) {
        assert_int_equal(store->ops->entries(store, &range, paced_visit, paced, &err), OK);
    }
    assert_int_equal(paced->left, 0);
}

/* What is being read is rewritten and removed between two calls. */
static void paced_entries_survive_squeezing_and_removal(void **state)
{
    struct place *place = *state;
    char url[512];
    (void)snprintf(
        url, sizeof url, "journal:%s?segment=64KiB&snapshot=64KiB&background=off", place->data);
    struct err err = {0};
    struct store *store = open_url(url, NULL);
    fill(store, 0, 100, &place->arena);
    for (unsigned i = 0; i < 100; i++) {
        struct record sealed = kit_sealed(kit_load(store, i, &place->arena), KIT_NOW + 3600000);
        kit_put_flush(store, &sealed, 1);
    }
    struct paced early = {.pace = {.bytes_max = 1}, .next = 1};
    struct paced late = {.pace = {.bytes_max = 1}, .next = 1};
    pace_on(store, &early, 3);
    pace_on(store, &late, 29);
    int64_t later = KIT_NOW + 86400000;
    struct commit commit = {.count = 0};
    assert_int_equal(kit_commit(store, &commit, later, &err), OK);
    for (int i = 0; i < 400; i++) {
        assert_int_equal(kit_maintain(store, later, &err), OK);
        assert_int_equal(kit_flush(store, &err), OK);
    }
    struct journal_info info;
    count_squeezed(store, &info);
    assert_true(info.segments_squeezed > 2);
    pace_on(store, &late, 9); /* rewritten in between */
    struct store_removable removable;
    assert_int_equal(removable_at(store, later + INT64_C(401) * 86400000, &removable), OK);
    assert_true(removable.seq > 4);
    assert_true(removable.seq < 60);
    assert_int_equal(store->ops->housekeeping->remove(store, removable.place, &err), OK);
    early.next = removable.seq + 1; /* what it stood in is gone */
    early.hash = removable.hash;
    pace_on(store, &early, (unsigned)(200 - removable.seq));
    if (late.next <= removable.seq) {
        late.next = removable.seq + 1;
        late.hash = removable.hash;
    }
    pace_on(store, &late, (unsigned)(200 - late.next + 1));
    assert_int_equal(kit_close(store), OK);
}

/*
 * A segment whose last records were replaced by a commit keeps them until that commit is on the
 * disk: a crash before takes the replacement with it, and the key would be free again (P1).
 */
static void a_segment_is_not_squeezed_before_what_replaced_it_is_stable(void **state)
{
    enum { HELD = 6 }; /* more live ones than are worth moving */
    struct place *place = *state;
    char url[512];
    char copy[400];
    (void)snprintf(copy, sizeof copy, "%s/crashed", place->dir.path);
    (void)snprintf(
        url, sizeof url, "journal:%s?segment=64KiB&snapshot=64KiB&background=off", place->data);
    struct err err = {0};
    struct store *store = open_url(url, NULL);
    fill(store, 0, 100, &place->arena);
    for (unsigned i = HELD; i < 100; i++) {
        struct record sealed = kit_sealed(kit_load(store, i, &place->arena), KIT_NOW + 3600000);
        kit_put_flush(store, &sealed, 1);
    }
    for (int i = 0; i < 20; i++) { /* the index is saved */
        assert_int_equal(kit_maintain(store, KIT_NOW, &err), OK);
        assert_int_equal(kit_flush(store, &err), OK);
    }
    for (unsigned i = 0; i < HELD; i++) {
        struct record sealed = kit_sealed(kit_load(store, i, &place->arena), KIT_NOW + 3600000);
        assert_int_equal(kit_put(store, &sealed, 1), OK);
    }
    for (int i = 0; i < 20; i++) {
        assert_int_equal(kit_maintain(store, KIT_NOW, &err), OK);
    }
    kit_dir_copy(place->data, copy); /* killed here: the last commits were not all written */
    (void)snprintf(url, sizeof url, "journal:%s?segment=64KiB&background=off", copy);
    struct store *after = open_url(url, NULL);
    unsigned replacements_lost = 0;
    for (unsigned i = 0; i < HELD; i++) {
        const struct record *found = kit_load(after, i, &place->arena);
        assert_non_null(found);
        replacements_lost += found->status == RECORD_IN_PROGRESS;
    }
    assert_true(replacements_lost > 0);
    assert_int_equal(kit_close(after), OK);
    /* It is squeezed as soon as they are. */
    assert_int_equal(kit_flush(store, &err), OK);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(kit_maintain(store, KIT_NOW, &err), OK);
    }
    struct journal_info info;
    count_squeezed(store, &info);
    assert_true(info.segments_squeezed > 0);
    assert_int_equal(kit_close(store), OK);
}

/* Forgotten only once the disk carries a time past the window: a restart begins no earlier (P8). */
static void nothing_expires_before_its_time_is_stable(void **state)
{
    struct place *place = *state;
    struct err err = {0};
    int64_t hour = 3600000;
    struct store *store = open_url(place->url, NULL);
    struct record record = kit_record(1, 1);
    kit_put_flush(store, &record, 0);
    record = kit_sealed(&record, KIT_NOW + hour);
    kit_put_flush(store, &record, 1);
    assert_int_equal(kit_maintain(store, KIT_NOW + hour / 2, &err), OK);
    assert_int_equal(kit_flush(store, &err), OK);
    assert_int_equal(kit_maintain(store, KIT_NOW + 2 * hour, &err), OK); /* commits the time */
    assert_non_null(kit_load(store, 1, &place->arena));
    assert_int_equal(kit_maintain(store, KIT_NOW + 2 * hour, &err), OK);
    assert_non_null(kit_load(store, 1, &place->arena));
    assert_int_equal(kit_flush(store, &err), OK);
    assert_non_null(kit_load(store, 1, &place->arena));
    assert_int_equal(kit_maintain(store, KIT_NOW + 2 * hour, &err), OK);
    assert_null(kit_load(store, 1, &place->arena));
    assert_int_equal(kit_close(store), OK);
}

/* Versions before R10 kept the body of a settled effect, and its record says so. The body is erased
 * like any other, and nobody looks for it: not the record's next change, not a conflict. */
static void a_settled_body_of_an_earlier_version_is_not_missed(void **state)
{
    struct place *place = *state;
    char url[512];
    struct err err = {0};
    struct slice body = SLICE_LIT("a payload that nobody needs any more");
    struct slice found = SLICE_EMPTY;
    (void)snprintf(
        url, sizeof url, "journal:%s?segment=64KiB&background=off&erase=1s", place->data);
    struct store *store = open_url(url, NULL);
    struct record record = kit_record(1, 1);
    record.kind = RECORD_EFFECT;
    assert_int_equal(record_key_seal_as(&record.key, RECORD_EFFECT, &err), OK);
    record.operation_id = op_id_make(KIT_NOW, &record.key.hash, 1);
    record = kit_sealed(&record, KIT_NOW + 86400000);
    record.version = 1;
    record.request = kit_body(body);
    struct change change = {.kind = CHANGE_PUT,
        .record = &record,
        .request_body = body,
        .entry = kit_entry(store, &record.operation_id, "{\"a\":1}")};
    struct commit commit = {.changes = &change, .count = 1};
    assert_int_equal(kit_commit(store, &commit, KIT_NOW, &err), OK);
    assert_int_equal(kit_flush(store, &err), OK);
    assert_int_equal(kit_close(store), OK);
    store = open_url(url, NULL);
    for (int i = 0; i < 16; i++) {
        assert_int_equal(kit_maintain(store, KIT_NOW + 2000 + i, &err), OK);
        assert_int_equal(kit_flush(store, &err), OK);
    }
    assert_int_equal(
        kit_bytes(store, &record.key.hash, WANT_REQUEST, &place->arena, &found, &err), OK);
    assert_int_equal(found.len, 0);
    const struct record *loaded = NULL;
    assert_int_equal(kit_read(store, &record.key.hash, &place->arena, &loaded, &err), OK);
    struct record next = *loaded;
    next.version++;
    /* In a later segment: a body would move (JF6). */
    assert_int_equal(kit_put(store, &next, 1), OK);
    assert_int_equal(kit_close(store), OK);
    assert_int_equal(kit_damages(place->data, NULL), 0);
}

static void put_outcome(struct store *store, struct record *record, struct slice outcome)
{
    struct err err = {0};
    record->outcome.body = kit_body(outcome);
    struct change change = {.kind = CHANGE_PUT,
        .record = record,
        .version_expected = record->version - 1,
        .outcome_body = outcome,
        .entry = kit_entry(store, &record->operation_id, "{\"a\":1}")};
    struct commit commit = {.changes = &change, .count = 1};
    assert_int_equal(kit_commit(store, &commit, KIT_NOW, &err), OK);
}

static void assert_outcome(
    struct store *store, const struct record *record, const char *outcome, struct place *place)
{
    struct err err = {0};
    struct slice found = SLICE_EMPTY;
    assert_int_equal(
        kit_bytes(store, &record->key.hash, WANT_OUTCOME, &place->arena, &found, &err), OK);
    assert_true(slice_is(found, outcome));
}

static uint64_t kept_bytes(struct store *store)
{
    struct journal_info info;
    struct err err = {0};
    assert_int_equal(journal_info(store, &info, &err), OK);
    return info.cache_bytes;
}

static void what_duplicates_ask_for_is_kept_until_its_segment_goes(void **state)
{
    struct place *place = *state;
    char url[512];
    struct err err = {0};
    (void)snprintf(
        url, sizeof url, "journal:%s?segment=64KiB&snapshot=64KiB&background=off", place->data);
    struct store *store = open_url(url, NULL);
    struct record record = kit_record(1000, 1);
    record = kit_sealed(&record, KIT_NOW + 3600000);
    record.version = 1;
    put_outcome(store, &record, SLICE_LIT("charged"));
    assert_outcome(store, &record, "charged", place);
    assert_int_equal(kept_bytes(store), 0); /* it may be taken back until it is stable */
    assert_int_equal(kit_flush(store, &err), OK);
    assert_outcome(store, &record, "charged", place);
    uint64_t kept = kept_bytes(store);
    assert_true(kept > sizeof "charged");
    assert_outcome(store, &record, "charged", place);
    assert_int_equal(kept_bytes(store), kept);

    record.version++; /* what changed is elsewhere, and the old place says nothing about it */
    put_outcome(store, &record, SLICE_LIT("refunded"));
    assert_outcome(store, &record, "refunded", place);
    assert_int_equal(kit_flush(store, &err), OK);
    assert_outcome(store, &record, "refunded", place);
    assert_outcome(store, &record, "refunded", place);
    assert_true(kept_bytes(store) > kept);

    /* Its window ends, and its segment is squeezed. */
    int64_t later = KIT_NOW + 86400000;
    fill(store, 0, 100, &place->arena);
    for (unsigned i = 0; i < 100; i++) {
        struct record begun = kit_record(i, i + 1);
        struct record sealed = kit_sealed(&begun, KIT_NOW + 3600000);
        kit_put_flush(store, &sealed, 1);
    }
    struct record last = kit_record(2000, 200); /* time passes with a commit */
    struct change change = {.kind = CHANGE_PUT,
        .record = &last,
        .entry = kit_entry(store, &last.operation_id, "{\"a\":1}")};
    struct commit commit = {.changes = &change, .count = 1};
    assert_int_equal(kit_commit(store, &commit, later, &err), OK);
    for (int i = 0; i < 400; i++) {
        assert_int_equal(kit_maintain(store, later, &err), OK);
        assert_int_equal(kit_flush(store, &err), OK);
    }
    struct journal_info info;
    count_squeezed(store, &info);
    assert_true(info.segments_squeezed > 0);
    assert_int_equal(info.cache_bytes, 0);
    assert_int_equal(kit_close(store), OK);
    assert_int_equal(kit_damages(place->data, NULL), 0);
}

static void what_is_kept_goes_when_its_segment_is_erased_from(void **state)
{
    struct place *place = *state;
    char url[512];
    struct err err = {0};
    struct slice body = SLICE_LIT("a payload that nobody needs any more");
    (void)snprintf(
        url, sizeof url, "journal:%s?segment=64KiB&background=off&erase=1s", place->data);
    struct store *store = open_url(url, NULL);
    struct record record = kit_record(1, 1);
    record.kind = RECORD_EFFECT;
    assert_int_equal(record_key_seal_as(&record.key, RECORD_EFFECT, &err), OK);
    record.operation_id = op_id_make(KIT_NOW, &record.key.hash, 1);
    record = kit_sealed(&record, KIT_NOW + 86400000);
    record.version = 1;
    record.request = kit_body(body);
    record.outcome.body = kit_body(SLICE_LIT("charged"));
    struct change change = {.kind = CHANGE_PUT,
        .record = &record,
        .request_body = body,
        .outcome_body = SLICE_LIT("charged"),
        .entry = kit_entry(store, &record.operation_id, "{\"a\":1}")};
    struct commit commit = {.changes = &change, .count = 1};
    assert_int_equal(kit_commit(store, &commit, KIT_NOW, &err), OK);
    assert_int_equal(kit_flush(store, &err), OK);
    assert_int_equal(kit_close(store), OK);
    store = open_url(url, NULL);
    assert_outcome(store, &record, "charged", place);
    assert_true(kept_bytes(store) > 0);
    for (int i = 0; i < 16; i++) {
        assert_int_equal(kit_maintain(store, KIT_NOW + 2000 + i, &err), OK);
        assert_int_equal(kit_flush(store, &err), OK);
    }
    assert_int_equal(kept_bytes(store), 0);
    assert_outcome(store, &record, "charged", place);
    assert_int_equal(kit_close(store), OK);
    assert_int_equal(kit_damages(place->data, NULL), 0);
}
/* Each way in which a flush can fail. A ring tells of a cancelled write as of any other failure. */
static const struct {
    enum faulty_what what;
    int error;
    bool buffered; /* only where a flush is a call of its own */
} flush_faults[] = {
    {FAULTY_SYNC, -EIO, true},
    {FAULTY_PWRITE, -EIO, false},
    {FAULTY_PWRITE, -ENOSPC, false},
    {FAULTY_PWRITE, -EAGAIN, false},
    {FAULTY_PWRITE, -ECANCELED, false},
};

static void a_failed_flush_stops_everything(void **state)
{
    struct place *place = *state;
    struct faulty faulty;
    for (unsigned i = 0; i < sizeof flush_faults / sizeof *flush_faults; i++) {
        if (flush_faults[i].buffered && way_now != 0) {
            continue;
        }
        faulty_init(&faulty);
        struct store *store = open_url(place->url, &faulty.io);
        struct record first = kit_record(20 + i, 100);
        kit_put_flush(store, &first, 0);
        faulty.what = flush_faults[i].what;
        faulty.calls = 0;
        faulty.fail_at = 1;
        faulty.error = flush_faults[i].error;
        struct record record = kit_record(40 + i, 101);
        struct err err = {0};
        assert_int_equal(kit_put(store, &record, 0), OK);
        assert_int_equal(kit_flush(store, &err), E_UNKNOWN);
        assert_int_equal(faulty.failed, 1);
        assert_non_null(strstr(err.text, strerror(-faulty.error)));
        /* Never tried again: the kernel may have dropped the pages (P11). */
        assert_int_equal(kit_flush(store, &err), E_UNKNOWN);
        assert_int_equal(kit_put(store, &record, 0), E_UNKNOWN);
        const struct record *found;
        assert_int_equal(kit_read(store, &first.key.hash, &place->arena, &found, &err), E_UNKNOWN);
        assert_int_equal(kit_close(store), E_UNKNOWN);
        store = open_url(place->url, NULL);
        assert_non_null(kit_load(store, 20 + i, &place->arena));
        assert_int_equal(kit_close(store), OK);
    }
}

/* Half of a write is written, and the rest is asked for again: the flush succeeds. */
static void a_short_write_is_continued(void **state)
{
    struct place *place = *state;
    struct faulty faulty;
    faulty_init(&faulty);
    struct store *store = open_url(place->url, &faulty.io);
    fill(store, 0, 1, &place->arena);
    faulty.what = FAULTY_PWRITE;
    faulty.calls = 0;
    faulty.fail_at = 1;
    faulty.fail_count = 3;
    fill(store, 1, 2, &place->arena);
    assert_int_equal(faulty.failed, 3);
    assert_int_equal(kit_close(store), OK);
    assert_int_equal(kit_damages(place->data, NULL), 0);
    store = open_url(place->url, NULL);
    assert_non_null(kit_load(store, 2, &place->arena));
    assert_int_equal(kit_close(store), OK);
}

/* A ring that takes no more writes is not used again. They are made directly from then on. */
static void a_ring_that_refuses_is_given_up(void **state)
{
    struct place *place = *state;
    static const int errors[] = {-EAGAIN, -EBUSY, -EPERM};
    for (unsigned i = 0; i < sizeof errors / sizeof *errors; i++) {
        struct faulty faulty;
        struct journal_info info;
        struct err err = {0};
        faulty_init(&faulty);
        struct store *store = open_url(place->url, &faulty.io);
        fill(store, 10 * i, 1, &place->arena);
        assert_int_equal(journal_info(store, &info, &err), OK);
        assert_int_equal(info.way, JOURNAL_WAY_URING);
        faulty.what = FAULTY_RING;
        faulty.calls = 0;
        faulty.fail_at = 1;
        faulty.error = errors[i];
        fill(store, 10 * i + 1, 4, &place->arena);
        assert_int_equal(faulty.failed, 1);
        assert_int_equal(faulty.calls, 1); /* it is never asked again */
        assert_int_equal(journal_info(store, &info, &err), OK);
        assert_int_equal(info.way, JOURNAL_WAY_DIRECT);
        assert_int_equal(kit_close(store), OK);
        assert_int_equal(kit_damages(place->data, NULL), 0);
    }
}

static void a_full_disk_refuses_and_goes_on_later(void **state)
{
    struct place *place = *state;
    struct faulty faulty;
    faulty_init(&faulty);
    struct store *store = open_url(place->url, &faulty.io);
    struct err err = {0};
    unsigned done = 0;
    faulty.what = FAULTY_PWRITE;
    for (; done < 100; done++) {
        struct record record = kit_record(done, done + 1);
        enum status status = kit_put(store, &record, 0);
        if (status != OK) {
            assert_int_equal(status, E_UNAVAILABLE);
            break;
        }
        assert_int_equal(kit_flush(store, &err), OK);
        if (done == 5) { /* from now on only what is already zeros can be written */
            faulty.error = -ENOSPC;
            faulty.fail_count = 1;
        }
        faulty.fail_at = done >= 5 && (done + 2) * 4096 + 4096 > 65536 ? faulty.calls + 1 : 0;
    }
    assert_true(done < 20);
    for (unsigned i = 0; i < done; i++) {
        assert_non_null(kit_load(store, i, &place->arena)); /* loads go on */
    }
    faulty.fail_at = 0;
    struct record record = kit_record(done, done + 1);
    kit_put_flush(store, &record, 0);
    assert_int_equal(kit_close(store), OK);
    assert_int_equal(kit_damages(place->data, NULL), 0);
}

/* A whole life of a store on a faulty io. Returns how many records were acknowledged. */
static unsigned life(const char *url, const struct io *io, const struct mem *mem)
{
    struct store_options options = {.io = io, .mem = mem, .clock = &kit_clock};
    struct err err = {0};
    struct store *store;
    unsigned told = 0;
    if (store_open(url, &options, &store, &err) != OK) {
        assert_true(err.text[0] != '\0');
        return 0;
    }
    for (unsigned i = 0; i < 24; i++) {
        struct record record = kit_record(i, i + 1);
        enum status status = kit_put(store, &record, 0);
        if (status == OK) {
            status = kit_flush(store, &err);
        }
        if (status != OK) {
            break;
        }
        told = i + 1;
        if (kit_maintain(store, KIT_NOW, &err) != OK) {
            break;
        }
    }
    (void)kit_close(store);
    return told;
}

static void every_call_may_fail(void **state)
{
    struct place *place = *state;
    char url[512];
    (void)snprintf(url, sizeof url,
        "journal:%s?segment=64KiB&snapshot=32KiB&background=off&write=%s", place->data,
        ways[way_now]);
    struct faulty faulty;
    faulty_init(&faulty);
    assert_int_equal(life(url, &faulty.io, NULL), 24);
    uint64_t calls = faulty.calls;
    static const int errors[] = {-EIO, -ENOSPC, 0};
    for (size_t e = 0; e < sizeof errors / sizeof *errors; e++) {
        /* In the short tier each way has its share of them. */
        uint64_t every = tier_long() ? 1 : WAYS;
        for (uint64_t at = 1 + way_now % every; at <= calls; at += every) {
            struct kit_dir data;
            (void)snprintf(data.path, sizeof data.path, "%.250s", place->data);
            kit_dir_remove(&data);
            faulty_init(&faulty);
            faulty.fail_at = at;
            faulty.error = errors[e];
            unsigned told = life(url, &faulty.io, NULL);
            struct store *store = open_url(url, NULL); /* the restart */
            for (unsigned i = 0; i < told; i++) {
                assert_non_null(kit_load(store, i, &place->arena));
            }
            assert_int_equal(kit_close(store), OK);
            assert_int_equal(kit_damages(place->data, NULL), 0);
            arena_clear(&place->arena);
        }
    }
    print_message("%llu calls\n", (unsigned long long)calls);
}

static void every_allocation_may_fail(void **state)
{
    struct place *place = *state;
    struct faulty_mem faulty;
    faulty_mem_init(&faulty);
    assert_int_equal(life(place->url, &power_io_fast, &faulty.mem), 24);
    uint64_t calls = faulty.calls;
    for (uint64_t at = 1; at <= calls; at++) {
        struct kit_dir data;
        (void)snprintf(data.path, sizeof data.path, "%.250s", place->data);
        kit_dir_remove(&data);
        faulty_mem_init(&faulty);
        faulty.fail_at = at;
        unsigned told = life(place->url, &power_io_fast, &faulty.mem);
        struct store *store = open_url(place->url, NULL);
        for (unsigned i = 0; i < told; i++) {
            assert_non_null(kit_load(store, i, &place->arena));
        }
        assert_int_equal(kit_close(store), OK);
        arena_clear(&place->arena);
    }
    print_message("%llu allocations\n", (unsigned long long)calls);
}

struct flusher {
    struct store *store;
    _Atomic bool stop;
    unsigned flushes;
};

static void *flusher_main(void *argument)
{
    struct flusher *flusher = argument;
    struct err err = {0};
    while (!flusher->stop) {
        if (kit_flush(flusher->store, &err) != OK) {
            abort();
        }
        flusher->flushes++;
    }
    return NULL;
}

/* Commits, loads and maintain on one thread, flushes on another, writing ahead on a third. */
static void a_flush_overlaps_everything_else(void **state)
{
    struct place *place = *state;
    char url[512];
    (void)snprintf(url, sizeof url, "journal:%s?segment=256KiB&snapshot=128KiB&write=%s",
        place->data, ways[way_now]);
    struct flusher flusher = {.store = open_url(url, NULL)};
    struct err err = {0};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, flusher_main, &flusher), 0);
    enum { COUNT = 4000 };
    for (unsigned i = 0; i < COUNT; i++) {
        struct record record = kit_record(i, i + 1);
        assert_int_equal(kit_put(flusher.store, &record, 0), OK);
        assert_non_null(kit_load(flusher.store, i / 2, &place->arena));
        assert_int_equal(kit_maintain(flusher.store, KIT_NOW, &err), OK);
        arena_clear(&place->arena);
        if (i % 500 == 0) {
            struct seqs seqs = {.next = 1};
            struct entry_range range = {0};
            assert_int_equal(
                flusher.store->ops->entries(flusher.store, &range, seq_visit, &seqs, &err), OK);
            assert_int_equal(seqs.next, i + 2);
        }
    }
    flusher.stop = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(kit_close(flusher.store), OK);
    assert_int_equal(kit_damages(place->data, NULL), 0);
    struct store *store = open_url(url, NULL);
    for (unsigned i = 0; i < COUNT; i++) {
        assert_non_null(kit_load(store, i, &place->arena));
    }
    assert_int_equal(kit_close(store), OK);
}

/* What is done to the file of an index that is being saved. */
static struct {
    _Atomic int fd;
    _Atomic unsigned unflushed; /* writes since the last flush of it … */
    _Atomic unsigned left;      /* … when it was complete, of all indexes together */
    _Atomic unsigned complete;
    _Atomic unsigned failures; /* so many flushes of it still fail */
    _Atomic unsigned named;    /* indexes that got their name */
} saving;

static int saving_open(void *context, const char *path, int flags, mode_t mode)
{
    int fd = power_io_fast.open(context, path, flags, mode);
    if (strstr(path, "index.tmp") != NULL) {
        saving.fd = fd;
    }
    return fd;
}

static ssize_t saving_pwrite(void *context, int fd, const void *bytes, size_t size, uint64_t offset)
{
    saving.unflushed += fd == saving.fd;
    return power_io_fast.pwrite(context, fd, bytes, size, offset);
}

static int saving_flush(void *context, int fd)
{
    if (fd == saving.fd && saving.failures > 0) {
        saving.failures--;
        saving.unflushed = 0;
        saving.fd = -1; /* it is closed next, and its number may be another file's */
        return -EIO;
    }
    saving.unflushed = fd == saving.fd ? 0 : saving.unflushed;
    return power_io_fast.fdatasync(context, fd);
}

static int saving_end(void *context, int fd)
{
    if (fd == saving.fd) {
        saving.left += saving.unflushed;
        saving.unflushed = 0;
        saving.complete++;
        saving.fd = -1;
    }
    return power_io_fast.fsync(context, fd);
}

static int saving_name(void *context, const char *from, const char *to)
{
    saving.named += strstr(from, "index.tmp") != NULL;
    return power_io_fast.rename(context, from, to);
}

/* Flushed whole at its end, a large index would delay the batches of that moment. Where a flush
 * fails, that index is given up, and the store goes on. */
static void an_index_is_flushed_while_it_is_written(void **state)
{
    struct place *place = *state;
    struct io io = power_io_fast;
    io.open = saving_open;
    io.pwrite = saving_pwrite;
    io.fdatasync = saving_flush;
    io.fsync = saving_end;
    io.rename = saving_name;
    saving.fd = -1;
    saving.unflushed = saving.left = saving.complete = saving.named = 0;
    saving.failures = 2;
    char url[512];
    (void)snprintf(url, sizeof url, "journal:%s?segment=64KiB&snapshot=64KiB", place->data);
    struct store_options options = {.io = &io, .clock = &kit_clock};
    struct store *store;
    struct err err = {0};
    assert_int_equal(store_open(url, &options, &store, &err), OK);
    for (unsigned i = 0; saving.complete < 3; i++) {
        assert_true(i < 20000); /* far more than three indexes need */
        struct record record = kit_record(i, i + 1);
        kit_put_flush(store, &record, 0);
        assert_int_equal(kit_maintain(store, KIT_NOW, &err), OK);
    }
    assert_int_equal(saving.failures, 0);
    assert_int_equal(saving.left, 0);
    assert_int_equal(kit_close(store), OK);
    assert_int_equal(saving.named, saving.complete);
    assert_int_equal(kit_damages(place->data, NULL), 0);
}

/* A body as large as they come, larger than a segment and the buffer. */
static void the_largest_body_fits(void **state)
{
    struct place *place = *state;
    size_t size = 16 << 20;
    char *bytes = malloc(size);
    assert_non_null(bytes);
    memset(bytes, 'z', size);
    struct store *store = open_url(place->url, NULL);
    fill(store, 0, 3, &place->arena);
    struct record record = kit_record(50, 51);
    kit_put_flush(store, &record, 0);
    struct record sealed = kit_sealed(&record, KIT_NOW + 86400000);
    sealed.outcome.body = kit_body(slice_of(bytes, size));
    struct change change = {.kind = CHANGE_PUT,
        .record = &sealed,
        .version_expected = 1,
        .outcome_body = slice_of(bytes, size)};
    struct commit commit = {.changes = &change, .count = 1};
    struct err err = {0};
    assert_int_equal(kit_commit(store, &commit, KIT_NOW, &err), OK);
    assert_int_equal(kit_flush(store, &err), OK);
    fill(store, 3, 3, &place->arena);
    assert_int_equal(kit_close(store), OK);
    store = open_url(place->url, NULL);
    const struct record *found = kit_load(store, 50, &place->arena);
    struct slice body;
    assert_int_equal(
        kit_bytes(store, &found->key.hash, WANT_OUTCOME, &place->arena, &body, &err), OK);
    assert_true(slice_equal(body, slice_of(bytes, size)));
    assert_int_equal(kit_close(store), OK);
    assert_int_equal(kit_damages(place->data, NULL), 0);
    free(bytes);
}

static void the_disk_can_be_measured(void **state)
{
    struct place *place = *state;
    struct journal_speed speed = {0};
    struct err err = {0};
    struct journal_measuring how = {.directory = place->dir.path};
    assert_int_equal(journal_measure(&how, &speed, &err), OK);
    const struct journal_way_speed *buffered = &speed.ways[JOURNAL_WAY_BUFFERED];
    assert_true(buffered->best_ns > 0 && buffered->p50_ns >= buffered->best_ns);
    assert_true(buffered->p99_ns >= buffered->p50_ns && buffered->error == 0);
    for (unsigned way = JOURNAL_WAY_BUFFERED; way < JOURNAL_WAYS; way++) {
        assert_true((speed.ways[way].error == 0) == (speed.ways[way].p50_ns > 0));
    }
    assert_int_equal(speed.ways[speed.fastest].error, 0);
    how.directory = "/nonexistent";
    assert_int_equal(journal_measure(&how, &speed, &err), E_UNAVAILABLE);
}

/* Opens a store whose way is left to the start, and tells which it was. */
static enum journal_way way_at_start(struct place *place, const struct io *io)
{
    char url[400];
    struct journal_info info;
    (void)snprintf(url, sizeof url, "journal:%s?background=off", place->data);
    struct store *store = open_url(url, io);
    assert_int_equal(journal_info(store, &info, NULL), OK);
    struct record record = kit_record(1, 1);
    if (kit_load(store, 1, &place->arena) == NULL) {
        kit_put_flush(store, &record, 0);
    }
    assert_int_equal(kit_close(store), OK);
    char probe[512];
    file_of(place, "probe.tmp", probe);
    assert_int_equal(access(probe, F_OK), -1);
    return info.way;
}

static int open_not_direct(void *context, const char *path, int flags, mode_t mode)
{
    (void)context;
    return (flags & O_DIRECT) != 0 ? -EINVAL : power_io_fast.open(NULL, path, flags, mode);
}

static int open_no_probe(void *context, const char *path, int flags, mode_t mode)
{
    (void)context;
    return strstr(path, "probe") != NULL ? -ENOSPC : power_io_fast.open(NULL, path, flags, mode);
}

static int ring_forbidden(void *context, struct io_ring **ret_ring)
{
    (void)context;
    (void)ret_ring;
    return -EPERM;
}

static int sync_slow(void *context, int fd)
{
    (void)context;
    (void)fd;
    struct timespec some = {.tv_nsec = 400000};
    (void)nanosleep(&some, NULL);
    return 0;
}

/* Whatever the machine lacks, a start finds a way, and only a named one can be refused. */
static void a_start_takes_a_way_that_is_possible(void **state)
{
    struct place *place = *state;
    struct io io = power_io_fast;
    assert_in_range(way_at_start(place, &io), JOURNAL_WAY_BUFFERED, JOURNAL_WAY_URING);
    io.fdatasync = sync_slow;
    assert_in_range(way_at_start(place, &io), JOURNAL_WAY_DIRECT, JOURNAL_WAY_URING);
    io.ring_open = ring_forbidden;
    assert_int_equal(way_at_start(place, &io), JOURNAL_WAY_DIRECT);
    io.ring_open = NULL; /* as where it was built without */
    assert_int_equal(way_at_start(place, &io), JOURNAL_WAY_DIRECT);
    io.open = open_not_direct;
    assert_int_equal(way_at_start(place, &io), JOURNAL_WAY_BUFFERED);
    io = power_io_fast;
    io.open = open_no_probe;
    assert_int_equal(way_at_start(place, &io), JOURNAL_WAY_BUFFERED);

    io = power_io_fast;
    io.ring_open = ring_forbidden;
    struct store_options options = {.io = &io, .clock = &kit_clock};
    struct store *store;
    struct err err = {0};
    char url[400];
    (void)snprintf(url, sizeof url, "journal:%s?write=uring", place->data);
    assert_int_equal(store_open(url, &options, &store, &err), E_UNAVAILABLE);
    assert_non_null(strstr(err.text, "write=uring: Operation not permitted"));
    assert_non_null(strstr(err.hint, "without write="));
}

static int open_without_probe(void *context, const char *path, int flags, mode_t mode)
{
    (void)context;
    assert_null(strstr(path, "probe"));
    return power_io_fast.open(NULL, path, flags & ~O_DIRECT, mode); /* not all disks have it */
}

/* For a few changes nothing is timed; a way that the URL names is used all the same. */
static void a_brief_start_times_nothing(void **state)
{
    static const struct {
        const char *options;
        enum journal_way way;
    } cases[] = {{"", JOURNAL_WAY_BUFFERED}, {"&write=direct", JOURNAL_WAY_DIRECT}};
    struct place *place = *state;
    struct io io = power_io_fast;
    io.open = open_without_probe;
    struct store_options options = {.io = &io, .clock = &kit_clock, .briefly = true};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char url[400];
        struct store *store;
        struct journal_info info;
        (void)snprintf(
            url, sizeof url, "journal:%s?background=off%s", place->data, cases[i].options);
        assert_int_equal(store_open(url, &options, &store, NULL), OK);
        assert_int_equal(journal_info(store, &info, NULL), OK);
        assert_int_equal(info.way, cases[i].way);
        assert_int_equal(kit_close(store), OK);
    }
}

#define ON(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON(every_flipped_bit_is_noticed),
        ON(a_flipped_bit_of_the_identity_is_noticed),
        ON(a_cut_file_is_noticed),
        ON(a_torn_tail_is_cut_and_the_rest_stays),
        ON(a_lost_sector_with_batches_behind_it_stops),
        ON(a_vanished_last_batch_is_noticed),
        ON(a_missing_segment_stops),
        ON(a_corrupt_record_is_an_error_and_never_absent),
        ON(a_seal_soon_after_its_begin_reads_no_file),
        ON(a_second_process_is_told_who_has_it),
        ON(a_reader_is_not_shown_what_was_before_the_damage),
        ON(must_exist_does_not_create),
        ON(entries_of_one_moment_are_found_in_every_segment),
        ON(a_saved_index_is_never_needed),
        ON(a_saved_index_does_not_count_twice),
        ON(an_older_image_is_noticed_by_its_witness),
        ON(old_segments_are_squeezed_and_removed),
        ON(what_duplicates_ask_for_is_kept_until_its_segment_goes),
        ON(what_is_kept_goes_when_its_segment_is_erased_from),
        ON(a_segment_is_not_squeezed_before_what_replaced_it_is_stable),
        ON(paced_entries_survive_squeezing_and_removal),
        ON(nothing_expires_before_its_time_is_stable),
        ON(a_settled_body_of_an_earlier_version_is_not_missed),
        ON(every_allocation_may_fail),
        ON(the_disk_can_be_measured),
        ON(a_start_takes_a_way_that_is_possible),
        ON(a_brief_start_times_nothing),
    };
    const struct CMUnitTest of_each_way[] = {
        ON(a_failed_flush_stops_everything), ON(a_short_write_is_continued),
        ON(a_full_disk_refuses_and_goes_on_later), ON(every_call_may_fail),
        ON(an_index_is_flushed_while_it_is_written), ON(a_flush_overlaps_everything_else),
        ON(the_largest_body_fits),
        ON(a_ring_that_refuses_is_given_up), /* only where there is one: the last */
    };
    int failed = cmocka_run_group_tests_name("journal", tests, NULL, NULL);
    for (; way_now < WAYS; way_now++) {
        size_t count = sizeof of_each_way / sizeof *of_each_way - (way_now == WAYS - 1 ? 0 : 1);
        failed += _cmocka_run_group_tests(ways[way_now], of_each_way, count, NULL, NULL);
    }
    return failed;
}
