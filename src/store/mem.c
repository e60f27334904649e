#include "store/mem.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rand.h"

enum {
    MEM_BUCKETS_FIRST = 1024,
    MEM_RECORD_BYTES_MAX = 64 << 10, /* every member at its limit is about 20 KiB */
};

/* One record, encoded as on disk so that the codec is exercised here too. */
struct node {
    struct node *next; /* in its bucket */
    struct digest hash;
    uint64_t version;
    enum record_status status;
    int64_t due_ms;
    struct op_id operation_id;
    uint32_t touches; /* duplicates since it was encoded */
    size_t len;
    char bytes[]; /* the record */
};

struct body {
    size_t len;
    char bytes[];
};

struct line {
    struct entry entry; /* bytes point behind this struct */
};

struct mem_store {
    struct store store;
    const struct mem *mem;
    struct store_identity identity;
    struct store_head head;
    struct node **buckets;
    size_t bucket_count;
    struct line **lines; /* entries in order */
    size_t line_count;
    size_t line_cap;
    struct body **bodies; /* place - 1 */
    size_t body_count;
    size_t body_cap;
    struct buf scratch; /* one record while it is encoded */
};

static struct mem_store *of(struct store *store)
{
    return (struct mem_store *)store;
}

static struct node **place_of(struct mem_store *self, const struct digest *hash)
{
    uint64_t at;
    memcpy(&at, hash->bytes, sizeof at);
    struct node **link = &self->buckets[at % self->bucket_count];
    while (*link != NULL && !digest_equal(&(*link)->hash, hash)) {
        link = &(*link)->next;
    }
    return link;
}

static enum status node_load(
    const struct node *node, struct arena *arena, const struct record **ret_record, struct err *err)
{
    struct record decoded;
    enum status status = record_decode(slice_of(node->bytes, node->len), &decoded, err);
    if (status != OK) {
        return status;
    }
    struct record *record = arena_alloc(arena, sizeof *record);
    if (record == NULL || record_copy(&decoded, arena, record) != OK) {
        return err_set(err, E_NOMEM, "out of memory for a record");
    }
    record->duplicates += node->touches;
    *ret_record = record;
    return OK;
}

static enum status mem_load(struct store *store, const struct digest *hashes, size_t count,
    struct arena *arena, const struct record **ret_records, struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        const struct node *node = *place_of(of(store), &hashes[i]);
        ret_records[i] = NULL;
        enum status status = node == NULL ? OK : node_load(node, arena, &ret_records[i], err);
        if (status != OK) {
            return status;
        }
    }
    return OK;
}

static enum status mem_find(struct store *store, const struct op_id *id, struct arena *arena,
    const struct record **ret_record, struct err *err)
{
    struct mem_store *self = of(store);
    *ret_record = NULL;
    for (size_t i = 0; i < self->bucket_count; i++) {
        for (const struct node *node = self->buckets[i]; node != NULL; node = node->next) {
            if (op_id_equal(&node->operation_id, id)) {
                return node_load(node, arena, ret_record, err);
            }
        }
    }
    return OK;
}

static enum status mem_body(struct store *store, const struct body_ref *body, struct arena *arena,
    struct slice *ret_bytes, struct err *err)
{
    struct mem_store *self = of(store);
    struct digest digest;
    if (body->place == 0 || body->place > self->body_count ||
        self->bodies[body->place - 1] == NULL) {
        return err_set(err, E_CORRUPT, "a retained body is not there");
    }
    const struct body *stored = self->bodies[body->place - 1];
    digest_sha256(stored->bytes, stored->len, &digest);
    if (!digest_equal(&digest, &body->digest)) {
        return err_set(err, E_CORRUPT, "a body does not have its digest");
    }
    if (arena_copy(arena, slice_of(stored->bytes, stored->len), ret_bytes) != OK) {
        return err_set(err, E_NOMEM, "out of memory for a body");
    }
    return OK;
}

/* ---- commit -------------------------------------------------------------------------------- */

/* Grow a vector of pointers so that one more fits. */
static enum status vector_room(struct mem_store *self, void ***items, size_t count, size_t *cap)
{
    if (count < *cap) {
        return OK;
    }
    size_t more = *cap == 0 ? 64 : *cap * 2;
    void **grown = mem_resize(self->mem, *items, more * sizeof *grown);
    if (grown == NULL) {
        return E_NOMEM;
    }
    *items = grown;
    *cap = more;
    return OK;
}

static enum status body_put(struct mem_store *self, struct slice bytes, struct body_ref *ref)
{
    if (bytes.len == 0 || !ref->retained) {
        return OK;
    }
    if (vector_room(self, (void ***)&self->bodies, self->body_count, &self->body_cap) != OK) {
        return E_NOMEM;
    }
    struct body *body = mem_alloc(self->mem, sizeof *body + bytes.len);
    if (body == NULL) {
        return E_NOMEM;
    }
    body->len = bytes.len;
    memcpy(body->bytes, bytes.data, bytes.len);
    self->bodies[self->body_count++] = body;
    ref->place = self->body_count;
    return OK;
}

/* What one change replaced, so that a later failure in the commit can put it back (S1). */
struct undo {
    struct node *before; /* NULL: there was none */
    struct node *after;  /* NULL: the change put nothing */
    bool touched;
};

static enum status make_node(
    struct mem_store *self, const struct change *change, struct node **ret_node)
{
    struct record record = *change->record;
    enum status status = body_put(self, change->request_body, &record.request);
    if (status == OK) {
        status = body_put(self, change->outcome_body, &record.outcome.body);
    }
    if (status != OK) {
        return status;
    }
    buf_clear(&self->scratch);
    record_encode(&record, &self->scratch);
    if (buf_status(&self->scratch) != OK) {
        return buf_status(&self->scratch);
    }
    struct node *node = mem_zalloc(self->mem, 1, sizeof *node + self->scratch.len);
    if (node == NULL) {
        return E_NOMEM;
    }
    node->hash = record.key.hash;
    node->version = record.version;
    node->status = record.status;
    node->due_ms = record_due_ms(&record);
    node->operation_id = record.operation_id;
    node->len = self->scratch.len;
    memcpy(node->bytes, self->scratch.data, node->len);
    *ret_node = node;
    return OK;
}

static void head_count(struct mem_store *self, const struct node *node, uint64_t by)
{
    if (node != NULL) {
        self->head.records += by;
        self->head.in_progress += node->status == RECORD_IN_PROGRESS ? by : 0;
        self->head.unknown += node->status == RECORD_UNKNOWN ? by : 0;
    }
}

/* Put `next` where `link` points instead of what is there; returns that. */
static struct node *replace(struct mem_store *self, struct node **link, struct node *next)
{
    struct node *before = *link;
    struct node *rest = before == NULL ? NULL : before->next;
    if (next != NULL) {
        next->next = rest;
    }
    *link = next == NULL ? rest : next;
    head_count(self, before, UINT64_MAX); /* minus one */
    head_count(self, next, 1);
    return before;
}

static enum status append_line(struct mem_store *self, const struct entry *entry)
{
    if (entry->bytes.len == 0) {
        return OK;
    }
    if (vector_room(self, (void ***)&self->lines, self->line_count, &self->line_cap) != OK) {
        return E_NOMEM;
    }
    struct line *line = mem_alloc(self->mem, sizeof *line + entry->bytes.len);
    if (line == NULL) {
        return E_NOMEM;
    }
    char *bytes = (char *)(line + 1);
    memcpy(bytes, entry->bytes.data, entry->bytes.len);
    line->entry = *entry;
    line->entry.bytes.data = bytes;
    self->lines[self->line_count++] = line;
    return OK;
}

static enum status apply(
    struct mem_store *self, const struct change *change, struct undo *undo, struct err *err)
{
    enum status status = OK;
    if (change->kind != CHANGE_NONE) {
        struct node **link = place_of(self, &change->record->key.hash);
        uint64_t version = *link == NULL ? 0 : (*link)->version;
        if (version != change->version_expected) {
            return err_set(err, E_STALE, "the record changed meanwhile");
        }
        if (change->kind == CHANGE_TOUCH) {
            (*link)->touches++;
            undo->touched = true;
        } else {
            struct node *node = NULL;
            status = make_node(self, change, &node);
            if (status == OK) {
                undo->before = replace(self, link, node);
                undo->after = node;
            }
        }
    }
    if (status == OK) {
        status = append_line(self, &change->entry);
    }
    return status == OK ? OK : err_set(err, status, "out of memory for a change");
}

static void roll_back(struct mem_store *self, const struct commit *commit, struct undo *undo,
    size_t applied, size_t lines)
{
    for (size_t i = applied; i-- > 0;) {
        const struct change *change = &commit->changes[i];
        if (undo[i].touched) {
            (*place_of(self, &change->record->key.hash))->touches--;
        } else if (undo[i].after != NULL) {
            struct node **link = place_of(self, &change->record->key.hash);
            (void)replace(self, link, undo[i].before);
            mem_free(self->mem, undo[i].after);
        }
    }
    while (self->line_count > lines) {
        mem_free(self->mem, self->lines[--self->line_count]);
    }
}

/* Bodies that the replaced record had and the new one has not are gone with it. */
static void drop_bodies(struct mem_store *self, const struct node *before, const struct node *after)
{
    struct record old = {0};
    struct record new = {0};
    enum status status = record_decode(slice_of(before->bytes, before->len), &old, NULL);
    if (status == OK && after != NULL) {
        status = record_decode(slice_of(after->bytes, after->len), &new, NULL);
    }
    ASSERT(status == OK); /* we encoded them */
    const uint64_t places[] = {old.request.place, old.outcome.body.place};
    for (size_t i = 0; i < 2; i++) {
        if (places[i] != 0 && places[i] != new.request.place &&
            places[i] != new.outcome.body.place) {
            mem_free(self->mem, self->bodies[places[i] - 1]);
            self->bodies[places[i] - 1] = NULL;
        }
    }
}

static void keep(struct mem_store *self, const struct commit *commit, struct undo *undo)
{
    for (size_t i = 0; i < commit->count; i++) {
        const struct change *change = &commit->changes[i];
        if (undo[i].before != NULL) {
            drop_bodies(self, undo[i].before, undo[i].after);
            mem_free(self->mem, undo[i].before);
        }
        if (change->entry.bytes.len > 0 && change->entry.kind == ENTRY_EVIDENCE) {
            ASSERT(change->entry.seq == self->head.seq + 1); /* P10 */
            self->head.seq = change->entry.seq;
            self->head.hash = change->entry.hash;
        }
    }
    self->head.moment = commit->moment;
}

static enum status grow_buckets(struct mem_store *self)
{
    if (self->head.records < self->bucket_count) {
        return OK;
    }
    size_t count = self->bucket_count * 4;
    struct node **buckets = mem_zalloc(self->mem, count, sizeof *buckets);
    if (buckets == NULL) {
        return E_NOMEM;
    }
    for (size_t i = 0; i < self->bucket_count; i++) {
        struct node *node = self->buckets[i];
        while (node != NULL) {
            struct node *next = node->next;
            uint64_t at;
            memcpy(&at, node->hash.bytes, sizeof at);
            node->next = buckets[at % count];
            buckets[at % count] = node;
            node = next;
        }
    }
    mem_free(self->mem, self->buckets);
    self->buckets = buckets;
    self->bucket_count = count;
    return OK;
}

static enum status mem_commit(struct store *store, const struct commit *commit, struct err *err)
{
    struct mem_store *self = of(store);
    if (commit->count == 0) {
        return OK;
    }
    struct undo *undo = mem_zalloc(self->mem, commit->count, sizeof *undo);
    if (undo == NULL || grow_buckets(self) != OK) {
        mem_free(self->mem, undo);
        return err_set(err, E_NOMEM, "out of memory for a commit");
    }
    enum status status = OK;
    size_t lines = self->line_count;
    size_t done = 0;
    while (status == OK && done < commit->count) {
        status = apply(self, &commit->changes[done], &undo[done], err);
        done++;
    }
    if (status == OK) {
        keep(self, commit, undo);
    } else {
        roll_back(self, commit, undo, done, lines);
    }
    mem_free(self->mem, undo);
    return status;
}

static enum status mem_flush(struct store *store, struct err *err)
{
    (void)store;
    (void)err;
    return OK;
}

static enum status mem_fences(
    struct store *store, uint64_t count, uint64_t *ret_first, struct err *err)
{
    struct mem_store *self = of(store);
    if (count > UINT64_MAX - 1 - self->head.fence) {
        return err_set(err, E_LIMIT, "out of fences");
    }
    *ret_first = self->head.fence + 1;
    self->head.fence += count;
    return OK;
}

/* ---- looking ------------------------------------------------------------------------------- */

static int by_hash(const void *a, const void *b)
{
    const struct node *const *left = a;
    const struct node *const *right = b;
    return memcmp((*left)->hash.bytes, (*right)->hash.bytes, DIGEST_BYTES);
}

/* All nodes in the order of their hashes; NULL when out of memory. The caller frees it. */
static struct node **sorted_nodes(struct mem_store *self, size_t *ret_count)
{
    size_t count = 0;
    struct node **nodes = mem_zalloc(self->mem, self->head.records + 1, sizeof *nodes);
    for (size_t i = 0; nodes != NULL && i < self->bucket_count; i++) {
        for (struct node *node = self->buckets[i]; node != NULL; node = node->next) {
            nodes[count++] = node;
        }
    }
    if (nodes != NULL) {
        qsort(nodes, count, sizeof *nodes, by_hash);
    }
    *ret_count = count;
    return nodes;
}

static enum status mem_scan(struct store *store, const struct scan *scan, struct arena *arena,
    const struct record **ret_records, size_t *ret_count, struct err *err)
{
    struct mem_store *self = of(store);
    size_t total;
    struct node **nodes = sorted_nodes(self, &total);
    if (nodes == NULL) {
        return err_set(err, E_NOMEM, "out of memory for a scan");
    }
    enum status status = OK;
    size_t found = 0;
    for (size_t i = 0; status == OK && i < total && found < scan->limit; i++) {
        const struct record *record = NULL;
        if (memcmp(nodes[i]->hash.bytes, scan->after.bytes, DIGEST_BYTES) <= 0) {
            continue;
        }
        status = node_load(nodes[i], arena, &record, err);
        if (status == OK && scan_match(scan, record)) {
            ret_records[found++] = record;
        }
    }
    mem_free(self->mem, nodes);
    if (status == OK) {
        *ret_count = found;
    }
    return status;
}

static enum status mem_due(struct store *store, int64_t now_ms, struct op_id *ret_ids, size_t limit,
    size_t *ret_count, struct err *err)
{
    (void)err;
    struct mem_store *self = of(store);
    size_t found = 0;
    for (size_t i = 0; i < self->bucket_count; i++) {
        for (const struct node *node = self->buckets[i]; node != NULL; node = node->next) {
            if (found < limit && node->status == RECORD_IN_PROGRESS && now_ms >= node->due_ms) {
                ret_ids[found++] = node->operation_id;
            }
        }
    }
    *ret_count = found;
    return OK;
}

static enum status mem_entries(struct store *store, const struct entry_range *range,
    entry_visit visit, void *context, struct err *err)
{
    (void)err;
    struct mem_store *self = of(store);
    for (size_t i = 0; i < self->line_count; i++) {
        const struct entry *entry = &self->lines[i]->entry;
        if (entry_in_range(range, entry) && !visit(context, entry)) {
            break;
        }
    }
    return OK;
}

static void mem_head(struct store *store, struct store_head *ret_head)
{
    *ret_head = of(store)->head;
}

static void mem_identity(struct store *store, struct store_identity *ret_identity)
{
    *ret_identity = of(store)->identity;
}

/* Forget what is past its window. Small stores only: it looks at every record. */
static enum status mem_maintain(struct store *store, int64_t now_ms, struct err *err)
{
    (void)err;
    struct mem_store *self = of(store);
    for (size_t i = 0; i < self->bucket_count; i++) {
        struct node **link = &self->buckets[i];
        while (*link != NULL) {
            bool expires =
                (*link)->status != RECORD_IN_PROGRESS && (*link)->status != RECORD_UNKNOWN; /* P8 */
            if (expires && now_ms >= (*link)->due_ms) {
                struct node *gone = replace(self, link, NULL);
                drop_bodies(self, gone, NULL);
                mem_free(self->mem, gone);
            } else {
                link = &(*link)->next;
            }
        }
    }
    return OK;
}

static enum status mem_close(struct store *store, struct err *err)
{
    (void)err;
    struct mem_store *self = of(store);
    const struct mem *mem = self->mem;
    for (size_t i = 0; self->buckets != NULL && i < self->bucket_count; i++) {
        while (self->buckets[i] != NULL) {
            mem_free(mem, replace(self, &self->buckets[i], NULL));
        }
    }
    for (size_t i = 0; i < self->line_count; i++) {
        mem_free(mem, self->lines[i]);
    }
    for (size_t i = 0; i < self->body_count; i++) {
        mem_free(mem, self->bodies[i]);
    }
    mem_free(mem, self->buckets);
    mem_free(mem, self->lines);
    mem_free(mem, self->bodies);
    buf_release(&self->scratch);
    mem_wipe(&self->identity, sizeof self->identity);
    mem_free(mem, self);
    return OK;
}

static const struct store_ops mem_ops = {
    .name = "mem",
    .load = mem_load,
    .find = mem_find,
    .body = mem_body,
    .commit = mem_commit,
    .flush = mem_flush,
    .fences = mem_fences,
    .scan = mem_scan,
    .due = mem_due,
    .entries = mem_entries,
    .head = mem_head,
    .identity = mem_identity,
    .maintain = mem_maintain,
    .close = mem_close,
};

enum status store_mem_new(const struct mem *mem, const struct store_identity *identity,
    struct store **ret_store, struct err *err)
{
    struct mem_store *self = mem_zalloc(mem, 1, sizeof *self);
    if (self == NULL) {
        return err_set(err, E_NOMEM, "out of memory for a store");
    }
    self->store.ops = &mem_ops;
    self->mem = mem;
    self->bucket_count = MEM_BUCKETS_FIRST;
    buf_init(&self->scratch, mem, MEM_RECORD_BYTES_MAX);
    self->buckets = mem_zalloc(mem, MEM_BUCKETS_FIRST, sizeof *self->buckets);
    enum status status = OK;
    if (self->buckets == NULL) {
        status = err_set(err, E_NOMEM, "out of memory for a store");
    } else if (identity != NULL) {
        self->identity = *identity;
    } else {
        status = rand_bytes(&self->identity, sizeof self->identity, err);
    }
    if (status != OK) {
        (void)mem_close(&self->store, NULL);
        return status;
    }
    *ret_store = &self->store;
    return OK;
}
