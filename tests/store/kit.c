#include "store/kit.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/journal/journal.h"

struct kit_dir kit_dir_make(void)
{
    struct kit_dir dir;
    const char *base = getenv("TMPDIR");
    (void)snprintf(dir.path, sizeof dir.path, "%s/once-test-XXXXXX", base == NULL ? "/tmp" : base);
    assert_non_null(mkdtemp(dir.path));
    return dir;
}

static bool direct_works(const char *directory)
{
    char path[340];
    (void)snprintf(path, sizeof path, "%s/direct", directory);
    int fd = open(path, O_WRONLY | O_CREAT | O_DIRECT, 0600);
    if (fd >= 0) {
        (void)close(fd);
    }
    (void)unlink(path);
    return fd >= 0;
}

static bool ring_works(void)
{
    struct io_ring *ring;
    bool works = io_system.ring_open != NULL && io_system.ring_open(NULL, &ring) == 0;
    if (works) {
        io_system.ring_close(NULL, ring);
    }
    return works;
}

const char *kit_way(unsigned number, const char *directory)
{
    if (number % KIT_WAYS == 0 || !direct_works(directory)) {
        return "buffered";
    }
    return number % KIT_WAYS == 1 || !ring_works() ? "direct" : "uring";
}

static void tree_remove(const char *path)
{
    DIR *dir = opendir(path);
    if (dir == NULL) {
        (void)unlink(path);
        return;
    }
    for (struct dirent *item = readdir(dir); item != NULL; item = readdir(dir)) {
        if (strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0) {
            char inner[1024];
            (void)snprintf(inner, sizeof inner, "%s/%s", path, item->d_name);
            tree_remove(inner);
        }
    }
    (void)closedir(dir);
    (void)rmdir(path);
}

void kit_dir_remove(const struct kit_dir *dir)
{
    tree_remove(dir->path);
}

static void file_copy(const char *from, const char *to)
{
    int in = open(from, O_RDONLY);
    int out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(in >= 0 && out >= 0);
    static char bytes[1 << 16];
    for (ssize_t got = read(in, bytes, sizeof bytes); got > 0;
         got = read(in, bytes, sizeof bytes)) {
        assert_int_equal(write(out, bytes, (size_t)got), got);
    }
    (void)close(in);
    (void)close(out);
}

void kit_dir_copy(const char *from, const char *to)
{
    tree_remove(to);
    assert_int_equal(mkdir(to, 0700), 0);
    DIR *dir = opendir(from);
    assert_non_null(dir);
    for (struct dirent *item = readdir(dir); item != NULL; item = readdir(dir)) {
        if (item->d_name[0] != '.') {
            char source[1024];
            char target[1024];
            (void)snprintf(source, sizeof source, "%s/%s", from, item->d_name);
            (void)snprintf(target, sizeof target, "%s/%s", to, item->d_name);
            struct stat info;
            assert_int_equal(stat(source, &info), 0);
            if (S_ISREG(info.st_mode)) {
                file_copy(source, target);
            }
        }
    }
    (void)closedir(dir);
}

struct record kit_record(unsigned number, uint64_t fence)
{
    static char keys[64][24]; /* enough for the records alive in one expression */
    static unsigned next;
    char *key = keys[next++ % 64];
    (void)snprintf(key, sizeof keys[0], "key-%u", number);
    struct record record = {
        .key = {.tenant = SLICE_LIT("acme"), .scope = SLICE_LIT("orders"), .key = slice_str(key)},
        .version = 1,
        .kind = RECORD_OPERATION,
        .status = RECORD_IN_PROGRESS,
        .fingerprint_version = 1,
        .fence = fence,
        .attempt = 1,
        .created_ms = KIT_NOW,
        .updated_ms = KIT_NOW,
        .lease_expires_ms = KIT_NOW + 30000,
        .window_ms = 86400000,
    };
    struct err err;
    assert_int_equal(record_key_seal(&record.key, &err), OK);
    record.operation_id = op_id_make(KIT_NOW, &record.key.hash, fence);
    return record;
}

struct record kit_sealed(const struct record *record, int64_t window_expires_ms)
{
    struct record sealed = *record;
    sealed.version++;
    sealed.status = RECORD_EXECUTED;
    sealed.sealed_ms = KIT_NOW + 1;
    sealed.updated_ms = KIT_NOW + 1;
    sealed.lease_expires_ms = 0;
    sealed.window_expires_ms = window_expires_ms;
    sealed.outcome.code = 200;
    return sealed;
}

struct body_ref kit_body(struct slice bytes)
{
    struct body_ref body = {.bytes = bytes.len, .retained = true};
    digest_sha256(bytes.data, bytes.len, &body.digest);
    return body;
}

static int64_t kit_now_ms = KIT_NOW;
static int64_t kit_ahead_ms;

static struct clock_reading kit_clock_read(void *context)
{
    (void)context;
    return (struct clock_reading){
        .wall_ms = kit_now_ms + kit_ahead_ms, .boot_ms = kit_now_ms - KIT_NOW + 5};
}

const struct clock kit_clock = {.read = kit_clock_read, .boot_id = KIT_BOOT_ID};

void kit_set_time(int64_t now_ms)
{
    kit_now_ms = now_ms;
    kit_ahead_ms = 0;
}

void kit_jump(int64_t ahead_ms)
{
    kit_ahead_ms = ahead_ms;
}

struct entry kit_entry(struct store *store, const struct op_id *id, const char *text)
{
    struct store_head head;
    store->ops->head(store, &head);
    struct entry entry = {.kind = ENTRY_EVIDENCE,
        .seq = head.seq + 1,
        .operation_id = *id,
        .time_ms = KIT_NOW + (int64_t)head.seq,
        .bytes = slice_str(text)};
    digest_sha256_2(&head.hash, sizeof head.hash, text, strlen(text), &entry.hash);
    return entry;
}

static bool kit_wants_made;

void kit_want_made(bool is_on)
{
    kit_wants_made = is_on;
}

static enum status commit_wanted(
    struct store *store, const struct commit *commit, struct arena *arena, struct err *err)
{
    struct store_batch batch = {.count = 0, .fences = 1, .arena = arena};
    batch.wants = arena_alloc(arena, (commit->count + 1) * sizeof *batch.wants);
    assert_non_null(batch.wants);
    for (size_t i = 0; i < commit->count; i++) {
        const struct change *change = &commit->changes[i];
        if (change->kind == CHANGE_PUT && change->version_expected == 0) {
            batch.wants[batch.count++] = (struct store_want){.key = &change->record->key.hash,
                .bodies = WANT_BY_FINGERPRINT,
                .fingerprint = &change->record->fingerprint,
                .arena = arena};
        }
    }
    batch.fences = batch.count > 0;
    enum status status = store->ops->prepare(store, &batch, err);
    return status == OK ? store->ops->commit(store, commit, err) : status;
}

enum status kit_commit(
    struct store *store, const struct commit *commit, int64_t now_ms, struct err *err)
{
    struct store_batch batch = {.count = 0};
    kit_now_ms = now_ms > kit_now_ms ? now_ms : kit_now_ms;
    if (kit_wants_made && !commit->inherits) {
        struct arena arena;
        arena_init(&arena, &mem_libc, 64 << 20);
        enum status wanted = commit_wanted(store, commit, &arena, err);
        wanted = wanted == E_STALE ? commit_wanted(store, commit, &arena, err) : wanted;
        arena_release(&arena);
        return wanted;
    }
    enum status status = store->ops->prepare(store, &batch, err);
    return status == OK ? store->ops->commit(store, commit, err) : status;
}

enum status kit_maintain(struct store *store, int64_t now_ms, struct err *err)
{
    kit_set_time(now_ms > kit_now_ms ? now_ms : kit_now_ms);
    const struct store_housekeeping *duties = store->ops->housekeeping;
    return duties == NULL ? OK : duties->maintain(store, err);
}

static enum status kit_want(
    struct store *store, struct store_want *want, struct arena *arena, struct err *err)
{
    struct store_batch batch = {.wants = want, .count = 1, .arena = arena};
    return store->ops->read(store, &batch, err);
}

enum status kit_read(struct store *store, const struct digest *hash, struct arena *arena,
    const struct record **ret_record, struct err *err)
{
    struct store_want want = {.key = hash};
    enum status status = kit_want(store, &want, arena, err);
    *ret_record = status == OK ? want.record : NULL;
    return status;
}

enum status kit_find(struct store *store, const struct op_id *id, unsigned kinds,
    struct arena *arena, const struct record **ret_record, struct err *err)
{
    struct store_want want = {.id = id, .kinds = kinds};
    enum status status = kit_want(store, &want, arena, err);
    *ret_record = status == OK ? want.record : NULL;
    return status;
}

enum status kit_bytes(struct store *store, const struct digest *hash, enum want_bodies which,
    struct arena *arena, struct slice *ret_bytes, struct err *err)
{
    struct store_want want = {.key = hash, .bodies = which, .arena = arena};
    enum status status = kit_want(store, &want, arena, err);
    *ret_bytes = which == WANT_REQUEST ? want.request : want.outcome;
    return status == OK ? want.body_status : status;
}

uint64_t kit_fences(struct store *store, uint64_t count)
{
    struct store_batch batch = {.fences = count};
    struct err err = {0};
    assert_int_equal(store->ops->prepare(store, &batch, &err), OK);
    store->ops->abort(store);
    return batch.fence_first;
}

uint64_t kit_fence(struct store *store)
{
    struct store_batch batch = {.count = 0};
    struct err err = {0};
    assert_int_equal(store->ops->read(store, &batch, &err), OK);
    return batch.fence_first - 1;
}

struct store_counts kit_counts(struct store *store, unsigned kinds)
{
    struct store_counts counts = {.records = 0};
    struct err err = {0};
    assert_int_equal(store->ops->counts(store, kinds, &counts, &err), OK);
    return counts;
}

enum status kit_due(struct store *store, unsigned kinds, unsigned reasons,
    struct store_due *ret_dues, size_t limit, size_t *ret_count)
{
    struct store_due_filter filter = {.kinds = kinds, .reasons = reasons};
    struct err err = {0};
    return store->ops->due(store, &filter, ret_dues, limit, ret_count, &err);
}

enum status kit_put(struct store *store, const struct record *record, uint64_t version_expected)
{
    struct change change = {.kind = CHANGE_PUT,
        .record = record,
        .version_expected = version_expected,
        .entry = kit_entry(store, &record->operation_id, "{\"type\":\"execution.started\"}")};
    struct commit commit = {.changes = &change, .count = 1};
    struct err err = {0};
    return kit_commit(store, &commit, KIT_NOW, &err);
}

enum status kit_flush(struct store *store, struct err *err)
{
    bool landed = false;
    enum status status =
        store->ops->flight == NULL ? OK : store->ops->flight->start(store, &landed, err);
    return status == OK && !landed ? store->ops->flush(store, err) : status;
}

void kit_put_flush(struct store *store, const struct record *record, uint64_t version_expected)
{
    struct err err = {0};
    assert_int_equal(kit_put(store, record, version_expected), OK);
    assert_int_equal(kit_flush(store, &err), OK);
}

const struct record *kit_load(struct store *store, unsigned number, struct arena *arena)
{
    struct record wanted = kit_record(number, 1);
    const struct record *found = NULL;
    struct err err = {0};
    enum status status = kit_read(store, &wanted.key.hash, arena, &found, &err);
    if (status != OK) {
        print_error("read: %s\n", err.text);
    }
    assert_int_equal(status, OK);
    return found;
}

enum status kit_close(struct store *store)
{
    struct err err = {0};
    return store->ops->close(store, &err);
}

struct damages {
    unsigned damages;
    unsigned tails;
};

static bool damage_count(void *context, const struct journal_walk *walk)
{
    struct damages *found = context;
    found->damages += walk->event == JOURNAL_WALK_DAMAGE;
    found->tails += walk->event == JOURNAL_WALK_TAIL;
    return true;
}

unsigned kit_damages(const char *path, unsigned *ret_tails)
{
    struct damages found = {0};
    struct err err = {0};
    if (journal_walk(path, NULL, NULL, damage_count, &found, &err) != OK) {
        found.damages++;
    }
    if (ret_tails != NULL) {
        *ret_tails = found.tails;
    }
    return found.damages;
}
