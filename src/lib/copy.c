#include "lib/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/io.h"
#include "base/limits.h"
#include "base/uuid.h"
#include "envelope/sealed.h"
#include "evidence/verify.h"
#include "lib/copy_impl.h"

enum {
    CHAINING_CALLS_MAX = 100000, /* housekeeping calls: more than a day of decisions */
    CHAINS_MAX = 1 << 20,        /* chains of a source; more would need a table of their own */
    PIECE_ATTEMPTS = 3,
    PIECE_ENTRIES = 512,
    SHOWN_BYTES_MAX = 4096,
};

enum status copy_report(
    struct copy *self, enum copy_step step, uint64_t done, uint64_t total, struct err *err)
{
    const struct copy_options *options = self->options;
    if (options->progress == NULL || options->progress(options->context, step, done, total)) {
        return OK;
    }
    (void)err_set(err, E_UNAVAILABLE, "the copy was stopped");
    err_hint(err, "the same command continues it");
    return E_UNAVAILABLE;
}

/* ---- the source ----------------------------------------------------------------------------- */

static bool on_chain(void *context, const struct store_chain *chain)
{
    struct copy_state *state = context;
    if (state->chain_count == state->chain_cap) {
        size_t cap = state->chain_cap == 0 ? 64 : 2 * state->chain_cap;
        struct store_chain *chains =
            cap > CHAINS_MAX ? NULL : mem_resize(&mem_libc, state->chains, cap * sizeof *chains);
        if (chains == NULL) {
            state->chains_left_out = true;
            return false;
        }
        state->chains = chains;
        state->chain_cap = cap;
    }
    state->chains[state->chain_count++] = *chain;
    state->unchained += chain->unchained;
    return true;
}

/* Identifies the source and its state: the ends of its evidence, its highest fence, and its number
 * of records. A decision changes the first, a forgotten record the last. */
static void origin_make(struct copy_state *state, const struct store_counts *counts)
{
    struct digest digest = {{0}};
    for (size_t i = 0; i < state->chain_count; i++) {
        const struct store_chain *chain = &state->chains[i];
        uint64_t seqs[2] = {chain->seq, chain->removed_seq};
        if (chain->seq > 0) { /* a process that only read has written nothing */
            digest_sha256_2(digest.bytes, DIGEST_BYTES, chain->chain_id, 16, &digest);
            digest_sha256_2(digest.bytes, DIGEST_BYTES, seqs, sizeof seqs, &digest);
            digest_sha256_2(digest.bytes, DIGEST_BYTES, chain->hash.bytes, DIGEST_BYTES, &digest);
        }
    }
    digest_sha256_2(digest.bytes, DIGEST_BYTES, &state->fence, sizeof state->fence, &digest);
    digest_sha256_2(
        digest.bytes, DIGEST_BYTES, counts->by_status, sizeof counts->by_status, &state->origin);
}

static enum status state_read(
    struct copy *self, struct store *store, struct copy_state *state, struct err *err)
{
    struct store_counts counts;
    struct store_batch batch = {.arena = &self->records};
    state->chain_count = 0;
    state->chains_left_out = false;
    state->unchained = 0;
    enum status status = store->ops->chains(store, on_chain, state, err);
    status = status == OK ? store->ops->read(store, &batch, err) : status;
    status = status == OK ? store->ops->counts(store, STORE_KINDS_ALL, &counts, err) : status;
    if (status != OK) {
        return status;
    }
    if (state->chains_left_out) {
        return err_set(err, E_NOMEM, "out of memory for the chains, or more than %d", CHAINS_MAX);
    }
    ASSERT(batch.fence_first > 0);
    state->fence = batch.fence_first - 1;
    state->time_ms = batch.now_ms;
    state->clock_ms = batch.clock_ms > 0 ? batch.clock_ms : batch.now_ms;
    state->records = counts.records;
    origin_make(state, &counts);
    return OK;
}

/* CP1. A killed process counts as gone only after a while. */
static enum status refuse_served(const struct copy *self, struct err *err)
{
    for (size_t i = 0; i < self->state.chain_count; i++) {
        const struct store_chain *chain = &self->state.chains[i];
        int64_t heard_ms = chain->seen_ms > chain->started_ms ? chain->seen_ms : chain->started_ms;
        char id[UUID_TEXT_BYTES];
        if (!chain->ended && heard_ms > self->state.clock_ms - LIMIT_HOLDER_GONE_MS) {
            (void)err_set(err, E_UNAVAILABLE,
                "'%s' is in use: the process of chain %s was heard of %lld s ago", self->shown.data,
                uuid_put(id, chain->chain_id), (long long)(self->state.clock_ms - heard_ms) / 1000);
            err_hint(err,
                "stop every process of the store; one that was killed counts as gone "
                "after %d s",
                LIMIT_HOLDER_GONE_MS / 1000);
            return E_UNAVAILABLE;
        }
    }
    return OK;
}

static enum status open_source(struct copy *self, struct err *err)
{
    struct store_options how = {.read_only = true, .must_exist = true, .to_copy = true};
    enum status status = store_open(self->options->from, &how, &self->from, err);
    if (status == OK && self->from->ops->chains == NULL) {
        status = err_set(err, E_INVALID, "a store in memory cannot be copied");
    }
    status = status == OK ? state_read(self, self->from, &self->state, err) : status;
    return status == OK ? refuse_served(self, err) : status;
}

static enum status close_store(struct store **store, enum status status, struct err *err)
{
    if (*store != NULL) {
        enum status closed = (*store)->ops->close(*store, status == OK ? err : NULL);
        status = status == OK ? closed : status;
        *store = NULL;
    }
    return status;
}

/* Chains the decisions of applications' own transactions, as any process does. */
static enum status chain_decisions(struct copy *self, struct err *err)
{
    struct store_options how = {.must_exist = true};
    struct store *store = NULL;
    enum status status = close_store(&self->from, OK, err);
    status = status == OK ? store_open(self->options->from, &how, &store, err) : status;
    for (int i = 0; i < CHAINING_CALLS_MAX && status == OK && self->state.unchained > 0; i++) {
        status = store->ops->housekeeping->maintain(store, err);
        status = status == OK ? state_read(self, store, &self->state, err) : status;
    }
    status = close_store(&store, status, err);
    return status == OK ? open_source(self, err) : status;
}

/* A copy of a damaged store would be worthless. */
static bool on_verified(void *context, const struct verify_progress *now)
{
    struct copy *self = context;
    return copy_report(self, self->to == NULL ? COPY_CHECKING : COPY_VERIFYING, now->bytes_done,
               now->bytes_total, NULL) == OK;
}

static enum status verify(struct copy *self, const char *url, bool unfinished,
    struct verify_result *result, struct err *err)
{
    struct verify_options options = {
        .url = url, .unfinished = unfinished, .progress = on_verified, .context = self};
    enum status status = verify_run(&options, result, err);
    if (status == OK && result->damage_count > 0) {
        (void)err_set(err, E_CORRUPT, "the %s does not check out: %s",
            unfinished ? "target" : "source", result->damages[0].what);
        err_hint(err, unfinished ? "remove the target and copy again" : "run once verify");
        status = E_CORRUPT;
    }
    return status;
}

/* ---- entries -------------------------------------------------------------------------------- */

/* The state of copying entries. */
struct entry_copy {
    struct copy *self;
    struct digest *heads; /* of each chain: the hash of its last entry so far */
    uint64_t *seqs;
    size_t chain;   /* of the piece */
    uint64_t seen;  /* entries of the source so far */
    uint64_t had;   /* how many of these the target already has */
    uint64_t total; /* entries of the source, without checkpoints: only to show the progress */
    struct change changes[PIECE_ENTRIES];
    struct digest prev_hashes[PIECE_ENTRIES];
    size_t count;
    size_t bytes;
    enum status status;
    struct err *err;
};

/* Explains a failed write: a second copy may have taken the target over, and even finished it. */
static enum status target_failed(const struct copy *self, enum status status, struct err *err)
{
    struct store_options how = {.read_only = true, .must_exist = true};
    struct store *finished = NULL;
    struct err ignored = {0};
    bool is_other = status == E_CORRUPT || status == E_STALE;
    if ((is_other || status == E_UNAVAILABLE) && store_url_shared(self->options->to) &&
        store_open(self->options->to, &how, &finished, &ignored) == OK) {
        status = close_store(&finished, OK, &ignored);
        (void)err_set(err, E_UNAVAILABLE, "a second copy to the same target has finished it");
        err_hint(err, "nothing is left to do: once verify checks it");
        return E_UNAVAILABLE;
    }
    err_prefix(err, "cannot write to the target");
    if (is_other) {
        err_hint(err, "is a second copy to the same target under way?");
    }
    err->status = status == E_STALE ? E_UNAVAILABLE : status;
    return err->status;
}

/* Commits a piece on the target. If this process was held up between prepare and commit, the store
 * reports that the commit did not happen (S10), and the piece is prepared again. */
static enum status commit_piece(
    struct copy *self, const struct change *changes, size_t count, struct err *err)
{
    struct store *to = self->to;
    struct arena none;
    arena_init(&none, &mem_libc, 1 << 20);
    struct store_batch batch = {.arena = &none};
    struct commit commit = {
        .changes = changes, .count = count, .fence_floor = self->state.fence, .inherits = true};
    enum status status = OK;
    for (int attempt = 0; attempt < PIECE_ATTEMPTS; attempt++) {
        status = to->ops->prepare(to, &batch, err);
        if (status != OK) {
            break;
        }
        status = to->ops->commit(to, &commit, err);
        if (status != E_UNAVAILABLE) {
            break;
        }
    }
    arena_release(&none);
    return status == OK ? OK : target_failed(self, status, err);
}

static enum status entries_commit(struct entry_copy *copy)
{
    struct copy *self = copy->self;
    if (copy->count > 0) {
        copy->status = commit_piece(self, copy->changes, copy->count, copy->err);
        copy->count = 0;
        copy->bytes = 0;
        arena_clear(&self->bodies);
    }
    if (copy->status == OK) {
        copy->status = copy_report(self, COPY_ENTRIES, copy->seen, copy->total, copy->err);
    }
    return copy->status;
}

static bool chain_of(struct entry_copy *copy, const struct entry *entry, size_t *ret_chain)
{
    const struct copy_state *state = &copy->self->state;
    size_t at = copy->chain;
    for (size_t i = 0; i < state->chain_count; i++, at++) {
        at = at == state->chain_count ? 0 : at;
        if (memcmp(state->chains[at].chain_id, entry->chain_id, 16) == 0) {
            *ret_chain = at;
            return true;
        }
    }
    return false;
}

static enum status entry_take(
    struct entry_copy *copy, const struct entry *entry, const struct digest *prev_hash)
{
    struct change *change = &copy->changes[copy->count];
    struct arena *arena = &copy->self->bodies;
    *change = (struct change){.kind = CHANGE_NONE, .entry = *entry};
    enum status status = arena_copy(arena, entry->bytes, &change->entry.bytes);
    status = status == OK ? arena_copy(arena, entry->tenant, &change->entry.tenant) : status;
    if (status != OK) {
        return err_set(copy->err, status, "out of memory for an entry");
    }
    copy->prev_hashes[copy->count] = *prev_hash;
    change->prev_hash = &copy->prev_hashes[copy->count];
    copy->count++;
    copy->bytes += entry->bytes.len;
    return OK;
}

static bool on_entry(void *context, const struct entry *entry)
{
    struct entry_copy *copy = context;
    size_t chain = 0;
    if (!chain_of(copy, entry, &chain)) {
        copy->status = err_set(copy->err, E_UNAVAILABLE, "the source was changed during the copy");
        return false;
    }
    bool is_new = copy->seen++ >= copy->had;
    bool is_full = copy->count == PIECE_ENTRIES || copy->bytes >= COPY_PIECE_BYTES;
    if (is_new && copy->count > 0 && (is_full || chain != copy->chain)) {
        (void)entries_commit(copy);
    }
    copy->chain = chain;
    if (is_new && copy->status == OK) {
        copy->status = entry_take(copy, entry, &copy->heads[chain]);
    }
    if (entry->kind == ENTRY_EVIDENCE) {
        copy->heads[chain] = entry->hash;
        copy->seqs[chain] = entry->seq;
    }
    return copy->status == OK;
}

/* Checks that every chain was copied to its end. */
static enum status check_ends(const struct entry_copy *copy, struct err *err)
{
    const struct copy_state *state = &copy->self->state;
    for (size_t i = 0; i < state->chain_count; i++) {
        char id[UUID_TEXT_BYTES];
        if (copy->seqs[i] != state->chains[i].seq) {
            (void)err_set(err, E_UNAVAILABLE,
                "chain %s has entries that cannot be read yet: %llu of %llu",
                uuid_put(id, state->chains[i].chain_id), (unsigned long long)copy->seqs[i],
                (unsigned long long)state->chains[i].seq);
            err_hint(err, "a transaction that is open on the server hides them; run the copy again "
                          "when it has ended");
            return E_UNAVAILABLE;
        }
    }
    return OK;
}

static enum status copy_entries(struct copy *self, struct err *err)
{
    const struct copy_state *state = &self->state;
    struct entry_range range = {.pace = NULL};
    struct entry_copy *copy = mem_zalloc(&mem_libc, 1, sizeof *copy);
    struct digest *heads = mem_zalloc(&mem_libc, state->chain_count + 1, sizeof *heads);
    uint64_t *seqs = mem_zalloc(&mem_libc, state->chain_count + 1, sizeof *seqs);
    enum status status = E_NOMEM;
    if (copy != NULL && heads != NULL && seqs != NULL) {
        *copy = (struct entry_copy){.self = self, .heads = heads, .seqs = seqs, .err = err};
        for (size_t i = 0; i < state->chain_count; i++) {
            heads[i] = state->chains[i].removed_hash;
            seqs[i] = state->chains[i].removed_seq;
            copy->total += state->chains[i].seq - state->chains[i].removed_seq;
        }
        status = self->to->ops->inheriting->entries(self->to, &copy->had, err);
        status = status == OK ? OK : target_failed(self, status, err);
        arena_clear(&self->bodies);
        status = status == OK ? self->from->ops->entries(self->from, &range, on_entry, copy, err)
                              : status;
        status = status == OK ? copy->status : status;
        status = status == OK ? entries_commit(copy) : status;
        status = status == OK ? check_ends(copy, err) : status;
        status = status == OK ? self->to->ops->flush(self->to, err) : status;
        self->result.entries = copy->seen;
        self->result.entries_had = copy->had < copy->seen ? copy->had : copy->seen;
    } else {
        (void)err_set(err, E_NOMEM, "out of memory for the entries");
    }
    mem_free(&mem_libc, copy);
    mem_free(&mem_libc, heads);
    mem_free(&mem_libc, seqs);
    return status;
}

/* ---- records -------------------------------------------------------------------------------- */

enum status copy_page_read(struct copy *self, struct store *store, const struct digest *after,
    struct copy_page *ret_page, struct err *err)
{
    struct scan scan = {.kinds = STORE_KINDS_ALL, .after = *after, .limit = COPY_PAGE};
    arena_clear(&self->records);
    return store->ops->scan(store, &scan, &self->records, ret_page->records, &ret_page->count, err);
}

static uint64_t body_bytes(const struct record *record)
{
    return (record->request.retained ? record->request.bytes : 0) +
           (record->outcome.body.retained ? record->outcome.body.bytes : 0);
}

enum status copy_bodies(struct copy *self, struct store *store, struct copy_page *page, size_t at,
    size_t *ret_count, struct err *err)
{
    uint64_t bytes = 0;
    size_t count = 0;
    arena_clear(&self->bodies);
    while (at + count < page->count &&
           (count == 0 || bytes + body_bytes(page->records[at + count]) <= COPY_PIECE_BYTES)) {
        bytes += body_bytes(page->records[at + count]);
        page->wants[count] = (struct store_want){.key = &page->records[at + count]->key.hash,
            .kinds = STORE_KINDS_ALL,
            .bodies = WANT_OUTCOME | WANT_REQUEST,
            .arena = &self->bodies};
        count++;
    }
    struct store_batch batch = {.wants = page->wants, .count = count, .arena = &self->bodies};
    enum status status = store->ops->read(store, &batch, err);
    for (size_t i = 0; i < count && status == OK; i++) {
        const struct store_want *want = &page->wants[i];
        if (want->record == NULL || want->record->version != page->records[at + i]->version) {
            status = err_set(err, E_UNAVAILABLE, "the store was changed during the copy");
        } else if (want->body_status != OK) {
            status = err_set(err, want->body_status, "out of memory for a body");
        }
    }
    *ret_count = count;
    return status;
}

/* Counts an encrypted body, and whether the key beside the source opens it. */
static void count_sealed(struct copy *self, const struct store_want *want)
{
    const struct record *record = want->record;
    struct slice body = want->request;
    bool may_be = record->kind == RECORD_COMMAND || record->kind == RECORD_EFFECT ||
                  record->kind == RECORD_DELIVERY;
    if (!may_be || body.len < VAULT_OVERHEAD_BYTES || body.data[0] != 1) {
        return; /* the redacted form is JSON, which does not begin like this */
    }
    struct err ignored = {0};
    struct buf plain;
    struct vault_name name = sealed_name(&record->key, record->kind);
    buf_init(&plain, &mem_libc, body.len);
    self->result.sealed++;
    self->result.sealed_own +=
        self->vault != NULL && vault_open(self->vault, &name, body, &plain, &ignored) == OK;
    if (plain.data != NULL) {
        mem_wipe(plain.data, plain.cap);
    }
    buf_release(&plain);
}

/* Unchanged, except for the place of its bodies. */
static enum status record_take(
    struct copy *self, const struct store_want *want, struct change *ret_change, struct err *err)
{
    struct record *record = arena_alloc(&self->bodies, sizeof *record);
    if (record == NULL) {
        return err_set(err, E_NOMEM, "out of memory for a record");
    }
    *record = *want->record;
    record->request.place = 0;
    record->outcome.body.place = 0;
    *ret_change = (struct change){.kind = CHANGE_PUT,
        .record = record,
        .request_body = want->request,
        .outcome_body = want->outcome};
    self->result.body_bytes += want->request.len + want->outcome.len;
    count_sealed(self, want);
    return OK;
}

static enum status copy_page_records(struct copy *self, struct copy_page *page, struct err *err)
{
    struct change changes[COPY_PAGE];
    size_t count = 0;
    enum status status = OK;
    for (size_t at = 0; at < page->count && status == OK; at += count) {
        status = copy_bodies(self, self->from, page, at, &count, err);
        for (size_t i = 0; i < count && status == OK; i++) {
            status = record_take(self, &page->wants[i], &changes[i], err);
        }
        status = status == OK ? commit_piece(self, changes, count, err) : status;
        self->result.records += status == OK ? count : 0;
        status = status == OK ? copy_report(self, COPY_RECORDS, self->result.records,
                                    self->state.records, err)
                              : status;
    }
    return status;
}

/* Records are copied in hash order: the last one in the target shows the progress. */
static enum status find_last(
    struct copy *self, struct copy_page *page, struct digest *ret_last, struct err *err)
{
    struct digest last = {{0}};
    enum status status = OK;
    do {
        status = copy_page_read(self, self->to, &last, page, err);
        if (status == OK && page->count > 0) {
            last = page->records[page->count - 1]->key.hash;
            self->result.records_had += page->count;
        }
    } while (status == OK && page->count == COPY_PAGE);
    self->result.records = self->result.records_had;
    *ret_last = last;
    return status;
}

static enum status copy_records(struct copy *self, struct err *err)
{
    struct copy_page *page = mem_zalloc(&mem_libc, 1, sizeof *page);
    struct digest last = {{0}};
    if (page == NULL) {
        return err_set(err, E_NOMEM, "out of memory for records");
    }
    enum status status = find_last(self, page, &last, err);
    page->count = COPY_PAGE;
    while (status == OK && page->count == COPY_PAGE) {
        status = copy_page_read(self, self->from, &last, page, err);
        if (status == OK && page->count > 0) {
            last = page->records[page->count - 1]->key.hash;
            status = copy_page_records(self, page, err);
        }
    }
    mem_free(&mem_libc, page);
    return status == OK ? self->to->ops->flush(self->to, err) : status;
}

/* ---- the key of bodies ---------------------------------------------------------------------- */

static enum status open_vault(struct copy *self, struct err *err)
{
    char path[PATH_MAX];
    const char *files[] = {path};
    struct vault_options how = {.key_files = files, .key_file_count = 1};
    struct vault *vault = NULL;
    const char *dir = self->options->from_dir;
    int fd = dir != NULL && vault_path(dir, path, sizeof path)
                 ? io_system.open(io_system.context, path, O_RDONLY, 0)
                 : -ENOENT;
    if (fd < 0) {
        return fd == -ENOENT ? OK : err_errno(err, E_UNAVAILABLE, -fd, "cannot read '%s'", path);
    }
    (void)io_system.close(io_system.context, fd);
    enum status status = vault_new(&how, &vault, err);
    self->vault = vault;
    return status;
}

/* From journal to journal the key is copied too: otherwise the new journal would make its own. */
static enum status copy_key(struct copy *self, struct err *err)
{
    const struct copy_options *options = self->options;
    return self->vault == NULL || options->to_dir == NULL
               ? OK
               : vault_copy_key(options->from_dir, options->to_dir, &self->result.key_copied, err);
}

/* ---- all of it ------------------------------------------------------------------------------ */

static enum status open_target(struct copy *self, struct err *err)
{
    struct store_inheritance inherit = {.from = self->shown.data,
        .origin = self->state.origin,
        .time_ms = self->state.time_ms,
        .fence = self->state.fence,
        .chains = self->state.chains,
        .chain_count = self->state.chain_count};
    struct store_options how = {.inherit = &inherit};
    self->from->ops->identity(self->from, NULL, &inherit.shared);
    enum status status = store_open(self->options->to, &how, &self->to, err);
    mem_wipe(&inherit.shared, sizeof inherit.shared);
    if (status == OK && self->to->ops->inheriting == NULL) {
        status = err_set(err, E_INVALID, "a store in memory cannot be the target of a copy");
    }
    return status;
}

/* Checks that the source has not changed since the copy began. */
static enum status check_unchanged(struct copy *self, struct err *err)
{
    struct copy_state now = {.chains = NULL};
    enum status status = state_read(self, self->from, &now, err);
    if (status == OK && !digest_equal(&now.origin, &self->state.origin)) {
        (void)err_set(err, E_UNAVAILABLE, "'%s' was changed while it was copied", self->shown.data);
        err_hint(err, "stop every process and application that uses it, remove the target, and "
                      "copy again");
        status = E_UNAVAILABLE;
    }
    mem_free(&mem_libc, now.chains);
    return status == OK ? refuse_served(self, err) : status;
}

static enum status check_target(
    struct copy *self, const struct verify_result *source, struct err *err)
{
    struct verify_result *target = mem_zalloc(&mem_libc, 1, sizeof *target);
    if (target == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    enum status status = copy_compare(self, err);
    status = status == OK ? verify(self, self->options->to, true, target, err) : status;
    if (status == OK && (target->entries != source->entries || target->unsettled)) {
        status = err_set(err, E_CORRUPT, "the target has %llu entries, and the source %llu",
            (unsigned long long)target->entries, (unsigned long long)source->entries);
    }
    mem_free(&mem_libc, target);
    return status;
}

/* Copies everything after the source has been read. */
static enum status copy_over(struct copy *self, const struct verify_result *source, struct err *err)
{
    enum status status = open_target(self, err);
    if (status != OK) {
        return status;
    }
    struct err changed = {0};
    status = copy_entries(self, err);
    status = status == OK ? copy_records(self, err) : status;
    status = status == OK ? check_target(self, source, err) : status;
    if (check_unchanged(self, &changed) != OK) { /* it explains whatever was found before */
        status = err_set(err, changed.status, "%s", changed.text);
        err_hint(err, "%s", changed.hint);
    }
    status = status == OK ? copy_key(self, err) : status;
    if (status == OK) {
        status = self->to->ops->inheriting->finish(self->to, err);
        status = status == OK ? OK : target_failed(self, status, err);
    }
    return status;
}

static bool on_counted(void *context, const struct entry *entry)
{
    uint64_t *count = context;
    (void)entry;
    (*count)++;
    return true;
}

/* The payload of an effect from once_effect is only in a table of the source, in clear, until a
 * process seals it. Only such an effect is waiting. In the copy it would wait forever. */
static enum status refuse_waiting(const struct copy *self, struct err *err)
{
    struct store_counts counts = {.records = 0};
    enum status status =
        self->from->ops->counts(self->from, STORE_KIND(RECORD_EFFECT), &counts, err);
    uint64_t waiting = counts.by_status[RECORD_WAITING];
    if (status == OK && waiting > 0) {
        status = err_set(err, E_UNAVAILABLE,
            "effects of once_effect in '%s' wait for a process to encrypt them: %" PRIu64,
            self->shown.data, waiting);
        err_hint(
            err, "run once serve with their types over it until there are none, or cancel them");
    }
    return status;
}

/* Reads what there is to copy. A target that is not empty is refused here too. */
static enum status read_source(struct copy *self, struct err *err)
{
    struct entry_range range = {.pace = NULL};
    struct store_options how = {.read_only = true, .must_exist = true};
    struct store *to = NULL;
    struct err ignored = {0};
    struct store_counts counts = {.records = 0};
    self->result.records = self->state.records;
    enum status status =
        self->from->ops->entries(self->from, &range, on_counted, &self->result.entries, err);
    status = status == OK ? store_url_check(self->options->to, err) : status;
    if (status == OK && store_open(self->options->to, &how, &to, &ignored) == OK) {
        status = to->ops->counts(to, STORE_KINDS_ALL, &counts, err);
        status = close_store(&to, status, err);
        if (status == OK && (counts.records > 0 || self->options->to_dir != NULL)) {
            (void)err_set(err, E_INVALID, "the target is a store already");
            err_hint(err, "a copy never adds to a store");
            status = E_INVALID;
        }
    }
    return status;
}

static enum status run(struct copy *self, struct err *err)
{
    struct verify_result *source = mem_zalloc(&mem_libc, 1, sizeof *source);
    if (source == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    enum status status = open_source(self, err);
    if (status == OK && self->state.unchained > 0 && !self->options->dry_run) {
        status = chain_decisions(self, err);
    }
    status = status == OK ? refuse_waiting(self, err) : status;
    status = status == OK ? open_vault(self, err) : status;
    self->result.chains = self->state.chain_count;
    if (status == OK && self->options->dry_run) {
        status = read_source(self, err);
    } else if (status == OK) {
        status = verify(self, self->options->from, false, source, err);
        status = status == OK ? copy_over(self, source, err) : status;
    }
    status = close_store(&self->to, status, err);
    status = close_store(&self->from, status, err);
    mem_free(&mem_libc, source);
    return status;
}

enum status copy_store(
    const struct copy_options *options, struct copy_result *ret_result, struct err *err)
{
    struct copy self = {.options = options};
    if (strcmp(options->from, options->to) == 0) {
        return err_set(err, E_INVALID, "the source and the target are the same store");
    }
    arena_init(&self.records, &mem_libc, COPY_ARENA_BYTES);
    arena_init(&self.bodies, &mem_libc, COPY_ARENA_BYTES);
    buf_init(&self.shown, &mem_libc, SHOWN_BYTES_MAX);
    store_url_show(&self.shown, options->from);
    buf_char(&self.shown, '\0');
    enum status status = buf_status(&self.shown) == OK
                             ? run(&self, err)
                             : err_set(err, E_INVALID, "the URL of the source is too long");
    if (status == OK) {
        *ret_result = self.result;
    }
    union { /* made by vault_new */
        const struct vault *is;
        struct vault *was;
    } vault = {.is = self.vault};
    vault_free(vault.was);
    mem_free(&mem_libc, self.state.chains);
    buf_release(&self.shown);
    arena_release(&self.records);
    arena_release(&self.bodies);
    return status;
}
