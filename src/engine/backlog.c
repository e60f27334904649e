#include "engine/backlog.h"

#include <pthread.h>

#include "base/check.h"
#include "engine/ages.h"

enum {
    PLACES = 2 * BACKLOG_LINES_MAX, /* of the table by hash: half of them stay empty */
    PAGE_BYTES_MAX = 16 << 20,      /* records of a page */
};

#define KINDS (STORE_KIND(RECORD_COMMAND) | STORE_KIND(RECORD_EFFECT) | STORE_KIND(RECORD_DELIVERY))

struct backlog_item {
    struct backlog_line shown; /* counts, and since_ms of a shared store */
    struct ages ages[BACKLOG_STATUSES];
};

struct backlog {
    const struct mem *mem;
    pthread_mutex_t lock;
    struct backlog_item *places[PLACES]; /* by hash of kind, tenant and scope */
    size_t count;
    struct backlog_item others[STORE_KINDS]; /* BL2 */
    /* Of backlog_read: the status that is looked for, and how far. */
    enum backlog_status looking; /* BACKLOG_STATUSES: everything was found */
    struct digest after;
    bool is_begun; /* after counts */
};

enum record_status backlog_status(enum backlog_status status)
{
    static const enum record_status statuses[BACKLOG_STATUSES] = {
        RECORD_PENDING, RECORD_UNKNOWN, RECORD_DEAD};
    ASSERT(status < BACKLOG_STATUSES);
    return statuses[status];
}

/* BACKLOG_STATUSES: it is not counted. */
static enum backlog_status status_of(enum record_status status)
{
    return status == RECORD_PENDING   ? BACKLOG_PENDING
           : status == RECORD_UNKNOWN ? BACKLOG_UNKNOWN
           : status == RECORD_DEAD    ? BACKLOG_DEAD
                                      : BACKLOG_STATUSES;
}

struct backlog *backlog_new(const struct mem *mem)
{
    struct backlog *backlog = mem_zalloc(mem, 1, sizeof *backlog);
    if (backlog == NULL || pthread_mutex_init(&backlog->lock, NULL) != 0) {
        mem_free(mem, backlog);
        return NULL;
    }
    backlog->mem = mem;
    for (int kind = 0; kind < STORE_KINDS; kind++) {
        backlog->others[kind].shown.kind = (enum record_kind)kind;
    }
    return backlog;
}

void backlog_free(struct backlog *backlog)
{
    if (backlog == NULL) {
        return;
    }
    for (size_t i = 0; i < PLACES; i++) {
        mem_free(backlog->mem, backlog->places[i]);
    }
    (void)pthread_mutex_destroy(&backlog->lock);
    mem_free(backlog->mem, backlog);
}

/* ---- lines --------------------------------------------------------------------------------- */

static size_t hash_of(enum record_kind kind, struct slice tenant, struct slice scope)
{
    uint64_t hash = 0xcbf29ce484222325 ^ ((uint64_t)kind << 32 | tenant.len);
    for (size_t i = 0; i < tenant.len + scope.len; i++) {
        char byte = i < tenant.len ? tenant.data[i] : scope.data[i - tenant.len];
        hash = (hash ^ (unsigned char)byte) * 0x100000001b3;
    }
    return (size_t)(hash ^ hash >> 29) % PLACES;
}

/* An empty slice may have no address, which memcpy does not accept. */
static void put_name(char *at, struct slice name)
{
    if (name.len > 0) {
        memcpy(at, name.data, name.len);
    }
}

static struct backlog_item *line_new(
    struct backlog *backlog, enum record_kind kind, struct slice tenant, struct slice scope)
{
    struct backlog_item *line =
        backlog->count == BACKLOG_LINES_MAX
            ? NULL
            : mem_zalloc(backlog->mem, 1, sizeof *line + tenant.len + scope.len);
    if (line != NULL) {
        char *names = (char *)(line + 1);
        put_name(names, tenant);
        put_name(names + tenant.len, scope);
        line->shown = (struct backlog_line){.kind = kind,
            .tenant = slice_of(names, tenant.len),
            .scope = slice_of(names + tenant.len, scope.len)};
        backlog->count++;
    }
    return line;
}

/* BL1, BL2: makes it only for a record that is added. */
static struct backlog_item *line_of(struct backlog *backlog, enum record_kind kind,
    struct slice tenant, struct slice scope, bool is_added)
{
    ASSERT(store_kind_in(KINDS, kind));
    ASSERT(backlog->count <= BACKLOG_LINES_MAX); /* BL2: a search ends at an empty place */
    size_t at = hash_of(kind, tenant, scope);
    for (; backlog->places[at] != NULL; at = (at + 1) % PLACES) {
        struct backlog_item *line = backlog->places[at];
        if (line->shown.kind == kind && slice_equal(line->shown.tenant, tenant) &&
            slice_equal(line->shown.scope, scope)) {
            return line;
        }
    }
    struct backlog_item *line = is_added ? line_new(backlog, kind, tenant, scope) : NULL;
    if (line == NULL) {
        return &backlog->others[kind];
    }
    backlog->places[at] = line;
    return line;
}

/* ---- an embedded store --------------------------------------------------------------------- */

/* BL3 */
static bool is_counted(
    const struct backlog *backlog, enum backlog_status status, const struct digest *key)
{
    if (status != backlog->looking) {
        return status < backlog->looking && status < BACKLOG_STATUSES;
    }
    return status < BACKLOG_STATUSES && backlog->is_begun &&
           memcmp(key->bytes, backlog->after.bytes, sizeof key->bytes) <= 0;
}

static void count(struct backlog *backlog, const struct record *record, bool is_added)
{
    enum backlog_status status = status_of(record->status);
    ASSERT(status < BACKLOG_STATUSES);
    struct backlog_item *line =
        line_of(backlog, record->kind, record->key.tenant, record->key.scope, is_added);
    int64_t since_ms = status == BACKLOG_PENDING ? record->created_ms : record->updated_ms;
    if (is_added) {
        line->shown.counts[status]++;
        ages_add(&line->ages[status], since_ms);
    } else {
        ASSERT(line->shown.counts[status] > 0); /* BL1 */
        line->shown.counts[status]--;
        ages_remove(&line->ages[status], since_ms);
    }
}

void backlog_change(
    struct backlog *backlog, const struct record *before, const struct record *after)
{
    ASSERT(before == NULL || before->kind == after->kind);
    bool had = before != NULL && status_of(before->status) != BACKLOG_STATUSES;
    bool has = status_of(after->status) != BACKLOG_STATUSES;
    if (!store_kind_in(KINDS, after->kind) || (!had && !has)) {
        return;
    }
    (void)pthread_mutex_lock(&backlog->lock);
    if (had && is_counted(backlog, status_of(before->status), &before->key.hash)) {
        count(backlog, before, false);
    }
    if (has && is_counted(backlog, status_of(after->status), &after->key.hash)) {
        count(backlog, after, true);
    }
    (void)pthread_mutex_unlock(&backlog->lock);
}

static void next_status(struct backlog *backlog)
{
    ASSERT(backlog->looking < BACKLOG_STATUSES);
    backlog->looking++;
    backlog->is_begun = false;
    backlog->after = (struct digest){{0}};
}

/* If there is none, as is usual, no key is passed. */
static enum status skip_absent(struct backlog *backlog, struct store *store, struct err *err)
{
    struct store_counts counts;
    enum status status = store->ops->counts(store, KINDS, &counts, err);
    while (status == OK && backlog->looking < BACKLOG_STATUSES && !backlog->is_begun &&
           counts.by_status[backlog_status(backlog->looking)] == 0) {
        next_status(backlog);
    }
    return status;
}

enum status backlog_read(
    struct backlog *backlog, struct store *store, bool *ret_done, struct err *err)
{
    const struct record *records[BACKLOG_READS_MAX];
    struct scan_pace pace = {.looks_max = BACKLOG_LOOKS_MAX, .reads_max = BACKLOG_READS_MAX};
    struct arena arena;
    size_t found = 0;
    (void)pthread_mutex_lock(&backlog->lock);
    enum status status = skip_absent(backlog, store, err);
    if (status == OK && backlog->looking < BACKLOG_STATUSES) {
        struct scan scan = {.kinds = KINDS,
            .status = backlog_status(backlog->looking),
            .after = backlog->after,
            .limit = BACKLOG_READS_MAX,
            .pace = &pace};
        arena_init(&arena, backlog->mem, PAGE_BYTES_MAX);
        status = store->ops->scan(store, &scan, &arena, records, &found, err);
        ASSERT(found <= BACKLOG_READS_MAX);
        for (size_t i = 0; status == OK && i < found; i++) {
            count(backlog, records[i], true);
        }
        arena_release(&arena);
        if (status == OK) {
            backlog->after = pace.after;
            backlog->is_begun = true;
            if (pace.done) {
                next_status(backlog);
            }
        }
    }
    *ret_done = backlog->looking == BACKLOG_STATUSES;
    (void)pthread_mutex_unlock(&backlog->lock);
    return status;
}

/* ---- a shared store ------------------------------------------------------------------------ */

static void line_clear(struct backlog_item *line)
{
    memset(line->shown.counts, 0, sizeof line->shown.counts);
    memset(line->shown.since_ms, 0, sizeof line->shown.since_ms);
}

void backlog_begin(struct backlog *backlog, enum record_kind kind)
{
    ASSERT(store_kind_in(KINDS, kind));
    (void)pthread_mutex_lock(&backlog->lock);
    for (size_t i = 0; i < PLACES; i++) {
        if (backlog->places[i] != NULL && backlog->places[i]->shown.kind == kind) {
            line_clear(backlog->places[i]);
        }
    }
    line_clear(&backlog->others[kind]);
    (void)pthread_mutex_unlock(&backlog->lock);
}

void backlog_put(struct backlog *backlog, const struct store_backlog *one)
{
    enum backlog_status status = status_of(one->status);
    if (status == BACKLOG_STATUSES) {
        return;
    }
    (void)pthread_mutex_lock(&backlog->lock);
    struct backlog_item *line = line_of(backlog, one->kind, one->tenant, one->scope, true);
    int64_t *since_ms = &line->shown.since_ms[status];
    line->shown.counts[status] += one->count;
    *since_ms = *since_ms == 0 || one->since_ms < *since_ms ? one->since_ms : *since_ms;
    (void)pthread_mutex_unlock(&backlog->lock);
}

void backlog_end(struct backlog *backlog, enum record_kind kind, const struct store_counts *counts)
{
    (void)pthread_mutex_lock(&backlog->lock);
    for (int status = 0; status < BACKLOG_STATUSES; status++) {
        uint64_t named = 0;
        for (size_t i = 0; i < PLACES; i++) {
            const struct backlog_item *line = backlog->places[i];
            named += line != NULL && line->shown.kind == kind ? line->shown.counts[status] : 0;
        }
        ASSERT(store_kind_in(KINDS, kind));
        uint64_t all = counts->by_status[backlog_status((enum backlog_status)status)];
        backlog->others[kind].shown.counts[status] = all > named ? all - named : 0;
    }
    (void)pthread_mutex_unlock(&backlog->lock);
}

/* ---- reading ------------------------------------------------------------------------------- */

static void show(const struct backlog_item *line, backlog_visit visit, void *context)
{
    struct backlog_line shown = line->shown;
    for (int status = 0; status < BACKLOG_STATUSES; status++) {
        int64_t oldest_ms = ages_oldest_ms(&line->ages[status]);
        shown.since_ms[status] = oldest_ms != 0 ? oldest_ms : shown.since_ms[status];
    }
    visit(context, &shown);
}

void backlog_lines(struct backlog *backlog, backlog_visit visit, void *context)
{
    (void)pthread_mutex_lock(&backlog->lock);
    for (size_t i = 0; i < PLACES; i++) {
        if (backlog->places[i] != NULL) {
            show(backlog->places[i], visit, context);
        }
    }
    for (int kind = 0; kind < STORE_KINDS; kind++) {
        const uint64_t *counts = backlog->others[kind].shown.counts;
        if (counts[BACKLOG_PENDING] + counts[BACKLOG_UNKNOWN] + counts[BACKLOG_DEAD] > 0) {
            show(&backlog->others[kind], visit, context);
        }
    }
    (void)pthread_mutex_unlock(&backlog->lock);
}
