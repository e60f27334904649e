/*
 * Compares a copy with its source.
 *
 * Evidence is compared as one digest over all members of each entry, in order; records are compared
 * one by one. Bodies are read in the target too, which checks them against the digests in their
 * records.
 */

#include "base/check.h"
#include "base/clock.h"
#include "lib/copy_impl.h"

enum {
    HIDDEN_TRIES = 150, /* while other work on the server hides the newest entries … */
    HIDDEN_PAUSE_MS = 200,
    RECORD_BYTES_MAX = 8 << 20, /* more than a record's names, details and outcome's meta can be */
};

/* ---- entries -------------------------------------------------------------------------------- */

struct folding {
    struct copy *self;
    struct digest digest;
    uint64_t count;
    struct buf head;
    enum status status;
    struct err *err;
};

static bool on_entry(void *context, const struct entry *entry)
{
    struct folding *folding = context;
    struct buf *head = &folding->head;
    struct digest one;
    buf_clear(head);
    buf_le64(head, (uint64_t)entry->kind);
    buf_append(head, entry->chain_id, sizeof entry->chain_id);
    buf_le64(head, entry->seq);
    buf_append(head, entry->hash.bytes, DIGEST_BYTES);
    buf_append(head, entry->operation_id.bytes, sizeof entry->operation_id.bytes);
    buf_le64(head, (uint64_t)entry->time_ms);
    buf_le64(head, entry->tenant.len);
    buf_slice(head, entry->tenant);
    folding->status = buf_status(head) == OK ? OK : err_set(folding->err, E_NOMEM, "out of memory");
    if (folding->status == OK) {
        digest_sha256_2(head->data, head->len, entry->bytes.data, entry->bytes.len, &one);
        digest_sha256_2(
            folding->digest.bytes, DIGEST_BYTES, one.bytes, DIGEST_BYTES, &folding->digest);
        folding->count++;
    }
    if (folding->status == OK && folding->count % 1024 == 0) {
        folding->status = copy_report(folding->self, COPY_COMPARING, folding->count,
            folding->self->result.entries, folding->err);
    }
    return folding->status == OK;
}

static enum status fold(struct copy *self, struct store *store, struct digest *ret_digest,
    uint64_t *ret_count, struct err *err)
{
    struct entry_range range = {.pace = NULL};
    struct folding folding = {.self = self, .err = err};
    buf_init(&folding.head, &mem_libc, 4096);
    enum status status = store->ops->entries(store, &range, on_entry, &folding, err);
    buf_release(&folding.head);
    *ret_digest = folding.digest;
    *ret_count = folding.count;
    return status == OK ? folding.status : status;
}

static enum status compare_entries(struct copy *self, struct err *err)
{
    struct digest source;
    struct digest target;
    uint64_t wanted = 0;
    uint64_t count = 0;
    enum status status = fold(self, self->from, &source, &wanted, err);
    for (int i = 0; i < HIDDEN_TRIES && status == OK && (i == 0 || count < wanted); i++) {
        if (i > 0) {
            clock_sleep_ms(HIDDEN_PAUSE_MS);
        }
        status = fold(self, self->to, &target, &count, err);
    }
    if (status == OK && count < wanted) {
        (void)err_set(err, E_UNAVAILABLE, "only %llu of %llu entries can be read in the target yet",
            (unsigned long long)count, (unsigned long long)wanted);
        err_hint(err, "a transaction that is open on the server hides them; run the copy again "
                      "when it has ended");
        return E_UNAVAILABLE;
    }
    if (status == OK && (count != wanted || !digest_equal(&source, &target))) {
        (void)err_set(err, E_CORRUPT, "the target's evidence is not that of the source");
        err_hint(err, "somebody wrote to the target, or it lost something: remove it and copy "
                      "again");
        return E_CORRUPT;
    }
    return status;
}

/* ---- records -------------------------------------------------------------------------------- */

/* As stored, except for the place of its bodies. */
static void encode(const struct record *record, struct buf *out)
{
    struct record bare = *record;
    bare.request.place = 0;
    bare.outcome.body.place = 0;
    buf_clear(out);
    record_encode(&bare, out);
}

static enum status compare_record(
    const struct record *source, const struct record *target, struct buf bytes[2], struct err *err)
{
    char id[OP_ID_TEXT_BYTES];
    encode(source, &bytes[0]);
    encode(target, &bytes[1]);
    if (buf_status(&bytes[0]) != OK || buf_status(&bytes[1]) != OK) {
        return err_set(err, E_NOMEM, "out of memory for a record");
    }
    if (slice_equal(buf_view(&bytes[0]), buf_view(&bytes[1]))) {
        return OK;
    }
    (void)err_set(err, E_CORRUPT, "the target's record of %s is not that of the source",
        op_id_put(id, &source->operation_id));
    err_hint(err, "somebody wrote to the target, or it lost something: remove it and copy again");
    return E_CORRUPT;
}

/* Two pages, of the source and of the target, after the same key. */
struct page_pair {
    struct copy_page source;
    struct copy_page target;
    struct arena records; /* of the source's page, while the target's is read */
    struct buf bytes[2];
    uint64_t count;
};

static enum status keep_page(struct page_pair *pair, struct err *err)
{
    arena_clear(&pair->records);
    for (size_t i = 0; i < pair->source.count; i++) {
        struct record *kept = arena_alloc(&pair->records, sizeof *kept);
        if (kept == NULL || record_copy(pair->source.records[i], &pair->records, kept) != OK) {
            return err_set(err, E_NOMEM, "out of memory for records");
        }
        pair->source.records[i] = kept;
    }
    return OK;
}

static enum status compare_page(struct copy *self, struct page_pair *pair, struct err *err)
{
    size_t bodies = 0;
    enum status status = OK;
    if (pair->source.count != pair->target.count) {
        return err_set(err, E_CORRUPT, "the target does not have as many records as the source");
    }
    for (size_t i = 0; i < pair->source.count && status == OK; i++) {
        status = compare_record(pair->source.records[i], pair->target.records[i], pair->bytes, err);
    }
    for (size_t at = 0; at < pair->target.count && status == OK; at += bodies) {
        status = copy_bodies(self, self->to, &pair->target, at, &bodies, err);
        for (size_t i = 0; i < bodies && status == OK; i++) {
            const struct store_want *want = &pair->target.wants[i];
            const struct record *record = want->record;
            if ((record->request.retained && want->request.len != record->request.bytes) ||
                (record->outcome.body.retained &&
                    want->outcome.len != record->outcome.body.bytes)) {
                status = err_set(err, E_CORRUPT, "a body is missing in the target");
            }
        }
    }
    pair->count += pair->source.count;
    return status == OK ? copy_report(self, COPY_COMPARING, pair->count, self->state.records, err)
                        : status;
}

static enum status compare_records(struct copy *self, struct page_pair *pair, struct err *err)
{
    struct digest after = {{0}};
    enum status status = OK;
    do {
        status = copy_page_read(self, self->from, &after, &pair->source, err);
        status = status == OK ? keep_page(pair, err) : status;
        status = status == OK ? copy_page_read(self, self->to, &after, &pair->target, err) : status;
        status = status == OK ? compare_page(self, pair, err) : status;
        if (status == OK && pair->source.count > 0) {
            after = pair->source.records[pair->source.count - 1]->key.hash;
        }
    } while (status == OK && pair->source.count == COPY_PAGE);
    return status;
}

enum status copy_compare(struct copy *self, struct err *err)
{
    struct page_pair *pair = mem_zalloc(&mem_libc, 1, sizeof *pair);
    if (pair == NULL) {
        return err_set(err, E_NOMEM, "out of memory for comparing");
    }
    arena_init(&pair->records, &mem_libc, COPY_ARENA_BYTES);
    buf_init(&pair->bytes[0], &mem_libc, RECORD_BYTES_MAX);
    buf_init(&pair->bytes[1], &mem_libc, RECORD_BYTES_MAX);
    enum status status = compare_entries(self, err);
    status = status == OK ? compare_records(self, pair, err) : status;
    buf_release(&pair->bytes[0]);
    buf_release(&pair->bytes[1]);
    arena_release(&pair->records);
    mem_free(&mem_libc, pair);
    return status;
}
