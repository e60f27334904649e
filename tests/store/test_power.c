/*
 * Power loss at any call: whatever was acknowledged is there, the chain holds, work goes on.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sanitized.h"
#include "store/journal/journal.h"
#include "store/kit.h"
#include "store/power.h"

enum {
    STEPS = 260,                                /* commits of the recorded work */
    KEYS = 40,                                  /* fewer keys than steps: records are replaced */
    IMAGES = IS_SANITIZED ? 400 : 5200,         /* in the short tier */
    IMAGES_LONG = IS_SANITIZED ? 15000 : 60000, /* with ONCE_TEST_LONG */
};

#define STEP_MS INT64_C(20000) /* time between commits: windows end while the work goes on */

/* What the outside was told at each acknowledgement. */
struct told {
    uint64_t seq;
    uint64_t fence;
    int64_t time_ms;
    uint64_t versions[KEYS]; /* 0: absent or allowed to be */
    int64_t expires[KEYS];   /* 0: never */
    uint64_t fences[KEYS];
};

struct power_work {
    struct power *power;
    struct told now;
    struct told *told;   /* by mark */
    struct told *newest; /* by mark: what was committed when the next one was acknowledged */
    size_t count;
};

static const char form[] = "journal:%s/data?segment=64KiB&snapshot=64KiB&background=off&write=%s";

/* The ways of writing share the images out among them; in the long tier each has all of them. */
static const char *const ways[] = {"buffered", "direct", "uring"};
enum { WAYS = sizeof ways / sizeof *ways };
static unsigned way_now; /* being tested */

static void chain_next(struct store *store, struct entry *entry, const char *text)
{
    struct op_id none = {{0}};
    *entry = kit_entry(store, &none, text);
}

/* One commit: a begin of a new operation, or the seal of the one in progress. */
static void work_step(
    struct power_work *work, struct store *store, unsigned step, struct arena *arena)
{
    static char large[6000];
    memset(large, 'b', sizeof large);
    memset(large + 1500, 0, 1500); /* a sector of zeros that was written */
    struct err err = {0};
    unsigned number = (step * 7 + step / 11) % KEYS;
    const struct record *found = kit_load(store, number, arena);
    struct record next;
    struct change change = {.kind = CHANGE_PUT, .record = &next};
    work->now.time_ms = KIT_NOW + step * STEP_MS;
    bool begin = found == NULL || found->status != RECORD_IN_PROGRESS;
    if (begin) {
        uint64_t fence = kit_fences(store, 1);
        next = kit_record(number, fence);
        next.version = found == NULL ? 1 : found->version + 1;
        change.request_body = slice_of(large, step % 3 == 0 ? sizeof large : 40);
        next.request = kit_body(change.request_body);
        work->now.fence = fence;
    } else {
        next = kit_sealed(found, work->now.time_ms + 20 * STEP_MS);
    }
    change.version_expected = found == NULL ? 0 : found->version;
    chain_next(store, &change.entry, "{\"step\":1,\"text\":\"0123456789\"}");
    struct commit commit = {.changes = &change, .count = 1};
    enum status status = kit_commit(store, &commit, work->now.time_ms, &err);
    if (status != OK) {
        print_error("commit: %s\n", err.text);
    }
    assert_int_equal(status, OK);
    work->now.versions[number] = next.version;
    work->now.fences[number] = next.fence;
    work->now.expires[number] = begin ? 0 : next.window_expires_ms;
    work->now.seq++;
}

/* Every other flush is one that no thread waits for, and housekeeping goes on meanwhile. */
static void work_flush(const struct power_work *work, struct store *store, unsigned step)
{
    struct err err = {0};
    bool landed = false;
    if (step % 2 == 0) {
        assert_int_equal(store->ops->flush(store, &err), OK);
        return;
    }
    assert_int_equal(store->ops->flight->start(store, &landed, &err), OK);
    assert_int_equal(kit_maintain(store, work->now.time_ms, &err), OK);
    assert_int_equal(store->ops->flight->land(store, &landed, &err), OK);
    assert_true(landed);
}

static void work_record(struct power_work *work, const char *root)
{
    char url[512];
    (void)snprintf(url, sizeof url, form, root, ways[way_now]);
    struct store_options options = {.io = power_io(work->power), .clock = &kit_clock};
    struct store *store;
    struct err err = {0};
    struct arena arena;
    arena_init(&arena, &mem_libc, 4 << 20);
    work->told = calloc(STEPS + 1, sizeof *work->told);
    work->newest = calloc(STEPS + 1, sizeof *work->newest);
    assert_true(work->told != NULL && work->newest != NULL);
    assert_int_equal(store_open(url, &options, &store, &err), OK);
    for (unsigned step = 0; step < STEPS; step++) {
        work_step(work, store, step, &arena);
        arena_clear(&arena);
        bool early = step / 40 % 2 == 1; /* housekeeping while a commit is not flushed yet */
        if (early) {
            work->newest[work->count] = work->now; /* a move may fill a segment: that flushes */
            assert_int_equal(kit_maintain(store, work->now.time_ms, &err), OK);
        }
        if (step % 3 != 1) {
            work->newest[work->count] = work->now;
            work_flush(work, store, step);
            work->told[++work->count] = work->now;
            power_mark(work->power, work->count);
        }
        if (!early) {
            assert_int_equal(kit_maintain(store, work->now.time_ms, &err), OK);
        }
        if (step % 90 == 89) {
            work->newest[work->count] = work->now;
            assert_int_equal(kit_close(store), OK);
            work->told[++work->count] = work->now;
            power_mark(work->power, work->count);
            assert_int_equal(store_open(url, &options, &store, &err), OK);
        }
    }
    /* Images of work that never squeezed or saved its index would prove little. */
    struct journal_info info;
    assert_int_equal(journal_info(store, &info, &err), OK);
    assert_true(info.segments_squeezed > 2 && info.segments > info.segments_squeezed + 1);
    assert_true(info.snapshot_bytes < info.bytes / 2 && !info.snapshot_failed);
    work->newest[work->count] = work->now;
    assert_int_equal(kit_close(store), OK);
    work->told[++work->count] = work->now;
    work->newest[work->count] = work->now;
    power_mark(work->power, work->count);
    arena_release(&arena);
}

struct power_chain {
    uint64_t seq;
    struct digest hash;
    bool broken;
};

static bool chain_visit(void *context, const struct entry *entry)
{
    struct power_chain *chain = context;
    struct digest hash;
    digest_sha256_2(&chain->hash, sizeof chain->hash, entry->bytes.data, entry->bytes.len, &hash);
    chain->broken = chain->broken || entry->seq != chain->seq + 1 ||
                    memcmp(&hash, &entry->hash, sizeof hash) != 0;
    chain->seq = entry->seq;
    chain->hash = hash;
    return true;
}

static const char *chain_fault(
    struct store *store, const struct told *least, const struct told *most)
{
    struct err err = {0};
    struct store_head head;
    store->ops->head(store, &head);
    struct power_chain chain = {0};
    struct entry_range range = {0};
    if (store->ops->entries(store, &range, chain_visit, &chain, &err) != OK) {
        return "the entries cannot be read";
    }
    if (chain.broken || chain.seq != head.seq || memcmp(&chain.hash, &head.hash, 32) != 0) {
        return "the chain is broken";
    }
    if (head.seq < least->seq || head.seq > most->seq) {
        return "an acknowledged entry is missing, or one is there that never was";
    }
    if (kit_fence(store) < least->fence || head.moment.time_ms < least->time_ms) {
        return "the fence or the time went back";
    }
    return NULL;
}

static const char *record_fault(
    struct store *store, unsigned number, const struct told *least, struct arena *arena)
{
    struct err err = {0};
    const struct record *found = kit_load(store, number, arena);
    if (found == NULL) {
        bool gone = least->versions[number] == 0 ||
                    (least->expires[number] != 0 && least->expires[number] <= least->time_ms);
        return gone ? NULL : "an acknowledged record is missing";
    }
    if (found->fence < least->fences[number] ||
        (found->fence == least->fences[number] && found->version < least->versions[number])) {
        return "a record is older than acknowledged";
    }
    struct slice body;
    enum status status = kit_bytes(store, &found->key.hash, WANT_REQUEST, arena, &body, &err);
    return status == OK ? NULL : "a body is missing";
}

/* NULL when the image is as it should be. */
static const char *image_fault(const struct power_work *work, const char *path, uint64_t mark)
{
    char url[512];
    (void)snprintf(url, sizeof url, form, path, ways[way_now]);
    struct store_options options = {.io = &power_io_fast, .clock = &kit_clock};
    struct store *store;
    static struct err err;
    err = (struct err){0};
    if (store_open(url, &options, &store, &err) != OK) {
        return err.text;
    }
    struct arena arena;
    arena_init(&arena, &mem_libc, 4 << 20);
    const struct told *least = &work->told[mark];
    const char *fault = chain_fault(store, least, &work->newest[mark]);
    for (unsigned i = 0; i < KEYS && fault == NULL; i++) {
        fault = record_fault(store, i, least, &arena);
        arena_clear(&arena);
    }
    struct record more = kit_record(1000, 100000);
    if (fault == NULL && (kit_put(store, &more, 0) != OK || store->ops->flush(store, &err) != OK)) {
        fault = "the work cannot go on";
    }
    enum status status = kit_close(store);
    char data[512];
    (void)snprintf(data, sizeof data, "%s/data", path);
    if (fault == NULL && (status != OK || kit_damages(data, NULL) != 0)) {
        fault = "it is damaged after going on";
    }
    arena_release(&arena);
    return fault;
}

static int setup(void **state)
{
    struct power_work *work = calloc(1, sizeof *work);
    assert_non_null(work);
    kit_set_time(KIT_NOW);
    struct kit_dir dir = kit_dir_make();
    work->power = power_new(dir.path);
    work_record(work, dir.path);
    kit_dir_remove(&dir);
    *state = work;
    return 0;
}

static int teardown(void **state)
{
    struct power_work *work = *state;
    power_free(work->power);
    free(work->told);
    free(work->newest);
    free(work);
    return 0;
}

/* Every nth image, n being the number of ways: each way has others of them. */
static unsigned images(
    struct power_work *work, unsigned count, unsigned every, bool honest, bool tell)
{
    struct kit_dir dir = kit_dir_make();
    char path[300];
    (void)snprintf(path, sizeof path, "%s/image", dir.path);
    unsigned faults = 0;
    uint64_t calls = power_calls(work->power);
    for (unsigned i = way_now % every; i < count; i += every) {
        /* Every call once first, then again with other dice; with sanitizers every eighth. */
        uint64_t at = IS_SANITIZED ? 8 * i + i / (calls / 8 + 1) : i;
        struct power_image image = {.calls = at % (calls + 1), .seed = i + 1, .honest = honest};
        uint64_t mark = power_make(work->power, &image, path);
        const char *fault = image_fault(work, path, mark);
        if (fault != NULL && tell) {
            print_error("write=%s image calls=%llu seed=%llu: %s\n", ways[way_now],
                (unsigned long long)image.calls, (unsigned long long)image.seed, fault);
        }
        faults += fault != NULL;
        if (faults > 5 && tell) {
            break;
        }
    }
    kit_dir_remove(&dir);
    return faults;
}

static void nothing_acknowledged_is_lost_by_a_power_loss(void **state)
{
    struct power_work *work = *state;
    bool longer = getenv("ONCE_TEST_LONG") != NULL;
    print_message("write=%s: %llu recorded calls\n", ways[way_now],
        (unsigned long long)power_calls(work->power));
    assert_int_equal(images(work, longer ? IMAGES_LONG : IMAGES, longer ? 1 : WAYS, true, true), 0);
}

static void a_disk_that_lies_about_flushes_is_noticed(void **state)
{
    struct power_work *work = *state;
    unsigned faults = images(work, 600, WAYS, false, false);
    print_message("%u of %u images of a lying disk fail\n", faults, 600 / WAYS);
    assert_true(faults > 100 / WAYS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing_acknowledged_is_lost_by_a_power_loss),
        TEST(a_disk_that_lies_about_flushes_is_noticed),
    };
    int failed = 0;
    for (way_now = 0; way_now < WAYS; way_now++) {
        failed += cmocka_run_group_tests_name("power", tests, setup, teardown);
    }
    return failed;
}
