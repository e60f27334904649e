#include "store/subjects.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/fault.h"
#include "store/trace.h"
#ifdef ONCE_POSTGRES
#include "store/postgres/postgres.h"
#endif
#ifdef ONCE_REDIS
#include "store/redis/impl.h"
#endif

const struct subject subjects[] = {
    {.name = "mem", .form = "mem:"},
    {.name = "journal", .durable = true, .form = "journal:%s/data"},
    {.name = "journal with small segments",
        .durable = true,
        .form = "journal:%s/data?segment=64KiB&snapshot=64KiB"},
    {.name = "journal without a thread",
        .durable = true,
        .form = "%s/data?background=off&write=buffered"},
    {.name = "journal with direct writes", .durable = true, .form = "%s/data?write=direct"},
    {.name = "journal with writes by a ring",
        .durable = true,
        .ring = true,
        .form = "%s/data?write=uring"},
    {.name = "journal on a disk that loses its power",
        .durable = true,
        .shaky = true,
        .form = "%s/data?background=off&write=buffered"},
    {.name = "fault(mem)", .fault = true, .form = "mem:"},
    {.name = "fault(journal)", .durable = true, .fault = true, .form = "journal:%s/data"},
    {.name = "trace(journal)", .durable = true, .trace = true, .form = "journal:%s/data"},
    {.name = "mem hub", .durable = true, .hub = true, .shared = true, .form = ""},
    {.name = "fault(trace(mem hub))",
        .durable = true,
        .hub = true,
        .fault = true,
        .trace = true,
        .shared = true,
        .form = ""},
    {.name = "postgres",
        .durable = true,
        .shared = true,
        .form = "?fsync=off&schema=%s",
        .server = "ONCE_TEST_POSTGRES"},
    {.name = "redis",
        .durable = true,
        .shared = true,
        .form = "?name=%s",
        .server = "ONCE_TEST_REDIS"},
    {.name = "redis that presumes",
        .durable = true,
        .presumes = true,
        .shared = true,
        .form = "?name=%s",
        .server = "ONCE_TEST_REDIS"},
};
const size_t subjects_count = sizeof subjects / sizeof *subjects;

/* The way to the server makes no difference to what is presumed: a plain one in the short tier. */
static bool presumes_here(const char *url)
{
    return getenv("ONCE_TEST_LONG") != NULL ||
           (strncmp(url, "redis://", 8) == 0 && strchr(url, ',') == NULL);
}

bool subject_runs(const struct subject *subject)
{
    if (subject->server != NULL) {
        const char *url = getenv(subject->server);
        return url != NULL && (!subject->presumes || presumes_here(url));
    }
    if (subject->ring && strcmp(kit_way(KIT_WAYS - 1, "."), "uring") != 0) {
        print_message("skipped: io_uring is not possible here\n");
        return false;
    }
    for (size_t i = 0; i < subjects_count; i++) {
        if (subjects[i].server != NULL && getenv(subjects[i].server) != NULL) {
            return false;
        }
    }
    return true;
}

/* The URL of a test's own store. */
static void url_put(struct fixture *fixture)
{
    const struct subject *subject = fixture->subject;
    const char *path = fixture->dir.path;
    const char *base = subject->server == NULL ? "" : getenv(subject->server);
    char form[256];
    (void)snprintf(
        form, sizeof form, subject->form, subject->server == NULL ? path : strrchr(path, '/') + 1);
    if (strchr(base, '?') != NULL && form[0] == '?') {
        form[0] = '&'; /* the server's URL has options of its own */
    }
    (void)snprintf(fixture->url, sizeof fixture->url, "%s%s", base, form);
}

/* A store that has a schema does not make it by itself. */
static void migrate(const struct fixture *fixture)
{
#ifdef ONCE_POSTGRES
    struct postgres_migration migration = {.grant_count = 0};
    struct err err = {0};
    if (strncmp(fixture->url, "postgres:", 9) == 0) {
        assert_int_equal(postgres_migrate(fixture->url, &migration, &err), OK);
        assert_int_equal(migration.version_before, 0);
    }
#else
    (void)fixture;
#endif
}

/* Does what a busy and large store does: presumes every batch that it may, and spreads its keys. */
static void presume_always(struct store *store)
{
#ifdef ONCE_REDIS
    struct redis *self = redis_of(store);
    struct redis_presuming *presuming = &self->presuming;
    char key[REDIS_NAME_BYTES_MAX + 16];
    redisReply *reply = NULL;
    struct err err = {0};
    presuming->after = presuming->pause_min = presuming->pause_max = 0;
    (void)snprintf(key, sizeof key, "{%s}:store", self->url.name);
    const char *const words[] = {"HSET", key, "spread", "1"};
    assert_int_equal(call_words(self, words, 4, &reply, &err), OK);
    freeReplyObject(reply);
#else
    (void)store;
#endif
}

static void count_line(void *context, const char *line)
{
    struct fixture *fixture = context;
    assert_non_null(strstr(line, " -> "));
    fixture->lines++;
}

struct store *subject_open(struct fixture *fixture)
{
    struct err err = {0};
    struct store_options options = {
        .clock = &kit_clock, .io = fixture->subject->shaky ? &fixture->shaky.io : NULL};
    struct store *store = NULL;
    enum status status = fixture->subject->hub
                             ? store_mem_hub_open(fixture->hub, NULL, &store, &err)
                             : store_open(fixture->url, &options, &store, &err);
    if (status != OK) {
        print_error("open: %s\n", err.text);
    }
    assert_int_equal(status, OK);
    if (fixture->subject->presumes) {
        presume_always(store);
    }
    if (fixture->subject->trace) {
        assert_int_equal(trace_new(store, NULL, count_line, fixture, &store, &err), OK);
    }
    if (fixture->subject->fault) {
        assert_int_equal(fault_new(store, NULL, &store, &err), OK);
    }
    assert_int_equal(store->ops->shared, fixture->subject->shared);
    return store;
}

int subject_setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    fixture->subject = *state;
    fixture->dir = kit_dir_make();
    url_put(fixture);
    migrate(fixture);
    arena_init(&fixture->arena, &mem_libc, 64 << 20);
    kit_set_time(KIT_NOW);
    kit_want_made(fixture->subject->presumes);
    if (fixture->subject->hub) {
        struct store_options options = {.clock = &kit_clock};
        assert_int_equal(store_mem_hub_new(&options, NULL, &fixture->hub, NULL), OK);
    }
    if (fixture->subject->shaky) {
        shaky_init(&fixture->shaky);
    }
    fixture->store = subject_open(fixture);
    struct store_identity identity;
    fixture->store->ops->identity(fixture->store, &identity, NULL);
    memcpy(fixture->chain_id, identity.chain_id, sizeof fixture->chain_id);
    *state = fixture;
    return 0;
}

int subject_teardown(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(kit_close(fixture->store), OK);
    kit_want_made(false);
    assert_true(!fixture->subject->trace || fixture->lines > 0);
    store_mem_hub_free(fixture->hub);
    shaky_release(&fixture->shaky);
    kit_dir_remove(&fixture->dir);
    arena_release(&fixture->arena);
    *state = (void *)(uintptr_t)fixture->subject;
    free(fixture);
    return 0;
}

void subject_reopen(struct fixture *fixture)
{
    if (fixture->subject->durable) {
        struct prng prng = {.state = fixture->reopened++};
        assert_int_equal(kit_close(fixture->store), OK);
        if (fixture->subject->shaky) {
            (void)shaky_revive(&fixture->shaky, &prng, true);
        }
        fixture->store = subject_open(fixture);
    }
}

struct entry_cursor subject_cursor(const struct fixture *fixture, uint64_t seq)
{
    struct entry_cursor cursor = {.seq = seq};
    memcpy(cursor.chain_id, fixture->chain_id, sizeof cursor.chain_id);
    return cursor;
}
