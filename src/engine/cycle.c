#include "engine/cycle.h"

#include <string.h>

#include "base/check.h"
#include "base/limits.h"
#include "core/source.h"

enum {
    KEYS_A_CALL = 2,                           /* the operation's and its source's */
    SEEN_SLOTS = 4 * LIMIT_BATCH_REQUESTS_MAX, /* a power of two; half full at most */
    ENTRY_BYTES_MAX = 64 << 10, /* every name at its limit and escaped sixfold is about 20 KiB */
    STALE_RETRIES_MAX = 16,     /* lost races in a row before we say that the store is too busy */
};

#define CYCLE_ARENA_BYTES_MAX ((size_t)64 << 20) /* 1024 records at their limits */

/* A key that the batch has met, and its record as the batch left it so far (E2). */
struct cycle_seen {
    uint32_t turn; /* valid when it equals the cycle's */
    struct digest hash;
    const struct record *record; /* NULL: absent */
    struct slice request_body;   /* the record's, when this batch brought it: the store does not
                                    have it yet */
    struct slice outcome_body;   /* likewise */
};

enum status cycle_init(
    struct cycle *cycle, struct store *store, const struct mem *mem, struct err *err)
{
    struct store_head head;
    struct store_identity identity;
    store->ops->head(store, &head);
    store->ops->identity(store, &identity);
    *cycle = (struct cycle){
        .mem = mem, .store = store, .quarantine = {.opened_ms = head.moment.time_ms}};
    chain_init(&cycle->chain, &head, &identity);
    mem_wipe(&identity, sizeof identity);
    arena_init(&cycle->arena, mem, CYCLE_ARENA_BYTES_MAX);
    buf_init(&cycle->text, mem, ENTRY_BYTES_MAX);
    cycle->seen = mem_zalloc(mem, SEEN_SLOTS, sizeof *cycle->seen);
    if (cycle->seen == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    return OK;
}

void cycle_release(struct cycle *cycle)
{
    if (cycle->mem != NULL) {
        mem_free(cycle->mem, cycle->seen);
        cycle->seen = NULL;
        buf_release(&cycle->text);
        arena_release(&cycle->arena);
    }
}

/* The mark of a key in this batch; a fresh one has turn set and record NULL. */
static struct cycle_seen *seen_of(struct cycle *cycle, const struct digest *hash, bool *ret_fresh)
{
    uint32_t at;
    memcpy(&at, hash->bytes, sizeof at);
    for (;; at++) {
        struct cycle_seen *seen = &cycle->seen[at % SEEN_SLOTS];
        if (seen->turn != cycle->turn) {
            *seen = (struct cycle_seen){.turn = cycle->turn, .hash = *hash};
            *ret_fresh = true;
            return seen;
        }
        if (digest_equal(&seen->hash, hash)) {
            *ret_fresh = false;
            return seen;
        }
    }
}

static void next_turn(struct cycle *cycle)
{
    arena_clear(&cycle->arena);
    cycle->keys_made = 0;
    cycle->turn++;
    if (cycle->turn == 0) { /* after four thousand million batches old marks could read as new */
        memset(cycle->seen, 0, SEEN_SLOTS * sizeof *cycle->seen);
        cycle->turn = 1;
    }
}

/* It asks for a decision on a begin: not a read, nor a note. */
static bool begins(const struct engine_call *call)
{
    return call->read == NULL && call->note == NULL && call->request.kind == REQUEST_BEGIN;
}

/* ---- load ---------------------------------------------------------------------------------- */

/* The key whose record the call is about; NULL: it does not say, or has none. */
static const struct digest *key_of(const struct engine_call *call)
{
    if (call->note != NULL) {
        return call->note->kind == NOTE_DUPLICATES ? &call->note->key.hash : NULL;
    }
    return begins(call) ? &call->request.key.hash : NULL;
}

/* Keys that are to be loaded, and where what is found goes. */
struct wanted {
    struct digest *hashes;
    struct cycle_seen **marks;
    size_t count;
};

static void want(struct cycle *cycle, const struct digest *hash, struct wanted *wanted)
{
    bool fresh;
    struct cycle_seen *seen = seen_of(cycle, hash, &fresh);
    if (fresh) {
        wanted->hashes[wanted->count] = *hash;
        wanted->marks[wanted->count] = seen;
        wanted->count++;
    }
}

/* One load for all keys of the batch, and for the sources that its begins are ordered by. */
static enum status load_keys(
    struct cycle *cycle, struct engine_call *const *calls, size_t count, struct err *err)
{
    size_t most = count * KEYS_A_CALL;
    struct wanted wanted = {.hashes = arena_alloc(&cycle->arena, most * sizeof *wanted.hashes),
        .marks = arena_alloc(&cycle->arena, most * sizeof *wanted.marks)};
    const struct record **records = arena_alloc(&cycle->arena, most * sizeof *records);
    if (wanted.hashes == NULL || wanted.marks == NULL || records == NULL) {
        return err_set(err, E_NOMEM, "out of memory for a batch");
    }
    enum status status = OK;
    for (size_t i = 0; i < count && status == OK; i++) {
        const struct digest *hash = key_of(calls[i]);
        const struct request *request = &calls[i]->request;
        if (hash != NULL) {
            want(cycle, hash, &wanted);
        }
        if (begins(calls[i]) && source_ordered(&request->source)) {
            struct record_key key;
            status = source_key_seal(&request->key, &request->source, &key, err);
            if (status == OK) {
                want(cycle, &key.hash, &wanted);
            }
        }
    }
    if (status == OK && wanted.count > 0) {
        status = cycle->store->ops->load(
            cycle->store, wanted.hashes, wanted.count, &cycle->arena, records, err);
    }
    for (size_t i = 0; status == OK && i < wanted.count; i++) {
        wanted.marks[i]->record = records[i];
    }
    return status;
}

/* A key's hash says of which kind its record is. When another is stored there, the disk lies. */
static enum status kind_check(const struct record *record, enum record_kind kind, struct err *err)
{
    return record == NULL || record->kind == kind
               ? OK
               : err_set(err, E_CORRUPT, "a record is of kind %d where %d belongs",
                     (int)record->kind, (int)kind);
}

/* The record a call is about, as the batch left it so far; NULL when there is none. */
static enum status found_of(
    struct cycle *cycle, struct engine_call *call, const struct record **ret_found, struct err *err)
{
    bool fresh;
    if (call->request.kind == REQUEST_BEGIN) {
        *ret_found = seen_of(cycle, &call->request.key.hash, &fresh)->record;
        ASSERT(!fresh); /* load_keys marked it */
        return kind_check(*ret_found, RECORD_OPERATION, err);
    }
    const struct record *record = NULL;
    enum status status = cycle->store->ops->find(
        cycle->store, &call->request.operation_id, &cycle->arena, &record, err);
    if (status != OK) {
        return status;
    }
    if (record != NULL) {
        struct cycle_seen *seen = seen_of(cycle, &record->key.hash, &fresh);
        if (fresh) {
            seen->record = record;
        }
        record = seen->record;
    }
    /* P9: another tenant's operation is no operation. */
    if (record != NULL && call->request.key.tenant.len > 0 &&
        !slice_equal(record->key.tenant, call->request.key.tenant)) {
        record = NULL;
    }
    *ret_found = record;
    return OK;
}

/* What is remembered of an operation's source, as the batch left it so far. */
static enum status source_of(struct cycle *cycle, const struct record_key *operation,
    const struct source *source, struct record_key *ret_key, const struct record **ret_found,
    struct err *err)
{
    bool fresh;
    enum status status = source_key_seal(operation, source, ret_key, err);
    if (status != OK) {
        return status;
    }
    struct cycle_seen *seen = seen_of(cycle, &ret_key->hash, &fresh);
    if (fresh) {
        const struct record *record = NULL;
        status =
            cycle->store->ops->load(cycle->store, &ret_key->hash, 1, &cycle->arena, &record, err);
        if (status != OK) {
            return status;
        }
        seen->record = record;
    }
    *ret_found = seen->record;
    return kind_check(seen->record, RECORD_SOURCE, err);
}

/* ---- decide -------------------------------------------------------------------------------- */

static enum status compose(struct cycle *cycle, struct engine_call *call,
    const struct record *found, struct decide_moment moment, struct entry *ret_entry)
{
    struct entry_facts facts = {&call->request, found, &call->decision, moment};
    struct chain before = cycle->chain;
    buf_clear(&cycle->text);
    enum status status = entry_compose(&cycle->chain, &facts, &cycle->text, ret_entry);
    if (status == OK) {
        status = arena_copy(&cycle->arena, ret_entry->bytes, &ret_entry->bytes);
    }
    if (status != OK) {
        cycle->chain = before;
        (void)err_set(&call->err, status, "out of memory for evidence");
    }
    return status;
}

/* A body from the store, or from the call of this batch that brought it (E2). */
static enum status fetch_body(struct cycle *cycle, struct engine_call *call,
    const struct body_ref *body, struct slice brought, struct slice *ret_bytes, struct err *err)
{
    return brought.len > 0
               ? arena_copy(call->arena, brought, ret_bytes)
               : cycle->store->ops->body(cycle->store, body, call->arena, ret_bytes, err);
}

/* Fetch what the answer needs besides the record. */
static enum status fetch_bodies(struct cycle *cycle, struct engine_call *call, struct err *err)
{
    const struct record *record = &call->decision.next;
    bool replay = call->decision.kind == DECISION_DUPLICATE_REPLAYED || call->decision.repeated;
    bool fresh;
    if (replay && record->outcome.body.retained && record->outcome.body.bytes > 0) {
        struct slice brought = seen_of(cycle, &record->key.hash, &fresh)->outcome_body;
        return fetch_body(cycle, call, &record->outcome.body, brought, &call->outcome, err);
    }
    if (call->decision.kind == DECISION_CONFLICT_REJECTED && record->request.retained) {
        struct slice brought = seen_of(cycle, &record->key.hash, &fresh)->request_body;
        return fetch_body(cycle, call, &record->request, brought, &call->first_body, err);
    }
    return OK;
}

/* What the batch knows of the key from now on. A new operation brings its own bodies or none. */
static void remember(struct cycle *cycle, const struct engine_call *call, const struct record *next,
    const struct change *change)
{
    bool fresh;
    struct cycle_seen *seen = seen_of(cycle, &next->key.hash, &fresh);
    seen->record = next;
    if (call->decision.kind == DECISION_FIRST_SEEN && next->attempt == 1) {
        seen->request_body = change->request_body;
    }
    if (change->kind == CHANGE_PUT) {
        seen->outcome_body = change->outcome_body;
    }
}

/* Failures of one call that leave the batch as it was; all others end the batch. */
static bool only_this_call(enum status status)
{
    return status == E_NOMEM || status == E_LIMIT;
}

static void make_change(const struct engine_call *call, const struct record *found,
    const struct record *next, struct change *ret_change)
{
    bool put = call->decision.change == CHANGE_PUT;
    ret_change->kind = call->decision.change;
    ret_change->record = call->decision.change == CHANGE_NONE ? NULL : put ? next : found;
    ret_change->version_expected = found == NULL ? 0 : found->version;
    ret_change->request_body =
        put && call->decision.kind == DECISION_FIRST_SEEN && next->attempt == 1 ? call->request_body
                                                                                : SLICE_EMPTY;
    ret_change->outcome_body =
        put && record_status_sealed(next->status) ? call->outcome_body : SLICE_EMPTY;
}

/* P12: past the limit a new key is refused; what is there stays. True: refused. */
static bool past_keys_max(struct cycle *cycle, struct engine_call *call, const struct record *found)
{
    if (cycle->keys_max == 0 || found != NULL || call->decision.kind != DECISION_FIRST_SEEN) {
        return false;
    }
    struct store_head head;
    cycle->store->ops->head(cycle->store, &head);
    if (head.records + cycle->keys_made < cycle->keys_max) {
        return false;
    }
    (void)err_limit(&call->err, ERR_LIMIT_KEYS, "no room for another key: keys_max (%llu) are live",
        (unsigned long long)cycle->keys_max);
    return true;
}

/* The last sealed version of what a begin came from, for decide. */
static enum status tell_source(struct cycle *cycle, const struct request *request,
    struct decide_moment *moment, struct err *err)
{
    struct record_key key;
    const struct record *found = NULL;
    if (request->kind != REQUEST_BEGIN || !source_ordered(&request->source)) {
        return OK;
    }
    enum status status = source_of(cycle, &request->key, &request->source, &key, &found, err);
    if (status == OK) {
        moment->version_sealed = source_version(found, moment->now_ms);
    }
    return status;
}

/*
 * What is remembered of the source once this operation is sealed. ret_change stays "none" when that
 * is nothing new. The moment gets the version that is the last sealed one from now on: it is told
 * in the seal's entry.
 */
static enum status remember_source(struct cycle *cycle, enum decision_change change,
    const struct record *sealed, struct decide_moment *moment, struct change *ret_change,
    struct err *err)
{
    if (change != CHANGE_PUT || !record_status_sealed(sealed->status) ||
        !source_ordered(&sealed->source)) {
        return OK;
    }
    struct record_key key;
    const struct record *found = NULL;
    enum status status = source_of(cycle, &sealed->key, &sealed->source, &key, &found, err);
    struct record *next = arena_alloc(&cycle->arena, sizeof *next);
    if (status != OK || next == NULL) {
        return status != OK ? status : E_NOMEM;
    }
    if (source_remember(found, sealed, &key, next)) {
        *ret_change = (struct change){.kind = CHANGE_PUT,
            .record = next,
            .version_expected = found == NULL ? 0 : found->version};
        found = next;
    }
    moment->version_sealed = source_version(found, moment->now_ms);
    return OK;
}

/* Everything about an answer that can fail, before the batch takes notice of the call. ret_changes
 * are the source's, "none" when it stays, and the operation's with its entry. */
static enum status prepare_answer(struct cycle *cycle, struct engine_call *call,
    const struct record *found, struct decide_moment moment, struct change ret_changes[2],
    struct record **ret_next, struct err *err)
{
    struct record *next = arena_alloc(&cycle->arena, sizeof *next);
    if (next == NULL) {
        return E_NOMEM;
    }
    /* The batch keeps the record as decided; the answer gets one that outlives the batch. */
    *next = call->decision.next;
    enum status status = record_copy(next, call->arena, &call->decision.next);
    if (status == OK) {
        status = fetch_bodies(cycle, call, err);
    }
    if (status == OK) {
        status = remember_source(cycle, call->decision.change, next, &moment, &ret_changes[0], err);
    }
    if (status == OK) {
        status = compose(cycle, call, found, moment, &ret_changes[1].entry);
    }
    *ret_next = next;
    return status;
}

/*
 * Decide one call. ret_changes[1] gets what is to be committed, ret_changes[0] what goes before it;
 * the entry of the former is empty when the call is parked, refused, or leaves nothing behind.
 */
static enum status decide_call(struct cycle *cycle, struct engine_call *call,
    struct decide_moment moment, struct change ret_changes[2], struct err *err)
{
    const struct record *found = NULL;
    enum status status = found_of(cycle, call, &found, err);
    if (status == OK) {
        status = tell_source(cycle, &call->request, &moment, err);
    }
    if (status != OK) {
        return status;
    }
    bool lost =
        found == NULL && quarantine_notice(&cycle->quarantine, cycle->store, &call->request);
    if (lost || (call->request.kind == REQUEST_BEGIN &&
                    quarantine_holds(&cycle->quarantine, call->request.key.tenant))) {
        quarantine_say(&cycle->quarantine, &call->err);
        return OK;
    }
    decide_into(found, &call->request, moment, &call->decision);
    if (call->decision.kind == DECISION_IN_PROGRESS && call->wait_ms > 0) {
        call->parked = true;
        return OK;
    }
    if (call->decision.kind == DECISION_NOTHING || past_keys_max(cycle, call, found)) {
        return OK;
    }
    struct record *next = NULL;
    status = prepare_answer(cycle, call, found, moment, ret_changes, &next, err);
    if (only_this_call(status)) {
        return err_set(&call->err, status, "out of memory for the answer"), OK;
    }
    if (status != OK) {
        return status;
    }
    make_change(call, found, next, &ret_changes[1]);
    cycle->keys_made += call->decision.kind == DECISION_FIRST_SEEN && found == NULL;
    if (call->decision.change != CHANGE_NONE) {
        remember(cycle, call, next, &ret_changes[1]);
    }
    if (ret_changes[0].kind != CHANGE_NONE) {
        bool fresh;
        seen_of(cycle, &ret_changes[0].record->key.hash, &fresh)->record = ret_changes[0].record;
    }
    return OK;
}

/* ---- notes --------------------------------------------------------------------------------- */

/* The record that a note is about. What is of another tenant is left out of it (P9), so the id that
 * was asked for is not repeated either: *ret_note is what may be told. */
static enum status note_about(struct cycle *cycle, const struct note *note, int64_t now_ms,
    struct note *ret_note, const struct record **ret_found, struct err *err)
{
    static const struct op_id none = {{0}};
    const struct record *found = NULL;
    enum status status = OK;
    bool fresh;
    *ret_note = *note;
    if (note->kind == NOTE_DUPLICATES) {
        found = seen_of(cycle, &note->key.hash, &fresh)->record;
        ASSERT(!fresh); /* load_keys marked it */
        found = found != NULL && record_window_over(found, now_ms) ? NULL : found;
    } else if (!op_id_equal(&note->operation_id, &none)) {
        status =
            cycle->store->ops->find(cycle->store, &note->operation_id, &cycle->arena, &found, err);
    }
    if (status == OK && found != NULL && !slice_equal(found->key.tenant, note->tenant)) {
        found = NULL;
        ret_note->operation_id = none;
    }
    *ret_found = found;
    return status;
}

static enum status tell_note(struct cycle *cycle, struct engine_call *call, int64_t now_ms,
    struct entry *ret_entry, struct err *err)
{
    struct note note;
    const struct record *found = NULL;
    struct chain before = cycle->chain;
    call->decision = (struct decision){.kind = DECISION_NOTHING, .change = CHANGE_NONE};
    enum status status = note_about(cycle, call->note, now_ms, &note, &found, err);
    if (status != OK) {
        return status;
    }
    struct entry entry;
    buf_clear(&cycle->text);
    status = note_compose(&cycle->chain, &note, found, now_ms, &cycle->text, &entry);
    if (status == OK) {
        status = arena_copy(&cycle->arena, entry.bytes, &entry.bytes);
    }
    if (status != OK) {
        cycle->chain = before;
        return err_set(&call->err, status, "out of memory for evidence"), OK;
    }
    *ret_entry = entry;
    return OK;
}

/* ---- the batch ----------------------------------------------------------------------------- */

static void clear_answer(struct engine_call *call)
{
    call->parked = false;
    call->outcome = SLICE_EMPTY;
    call->first_body = SLICE_EMPTY;
    err_clear(&call->err);
}

static size_t count_begins(struct engine_call *const *calls, size_t count)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        found += begins(calls[i]);
    }
    return found;
}

/* How many of the two changes of one call are to be stored, moved to the front. */
static size_t keep_changes(struct change changes[2])
{
    if (changes[1].entry.bytes.len == 0) {
        return 0;
    }
    if (changes[0].kind == CHANGE_NONE) {
        changes[0] = changes[1];
        return 1;
    }
    return 2;
}

/* Decide all calls in order; *ret_count changes are to be committed. */
static enum status decide_all(struct cycle *cycle, struct engine_call *const *calls, size_t count,
    int64_t now_ms, struct change *changes, size_t *ret_count, struct err *err)
{
    uint64_t fence_next = 0;
    size_t grants = count_begins(calls, count);
    enum status status =
        grants == 0 ? OK : cycle->store->ops->fences(cycle->store, grants, &fence_next, err);
    size_t used = 0;
    for (size_t i = 0; status == OK && i < count; i++) {
        struct engine_call *call = calls[i];
        clear_answer(call);
        if (call->read != NULL) {
            /* A read fails for itself alone, unless it found damage. */
            (void)call->read(cycle->store, call, &call->err);
            status =
                call->err.status == E_CORRUPT ? err_set(err, E_CORRUPT, "%s", call->err.text) : OK;
            continue;
        }
        struct decide_moment moment = {.now_ms = now_ms, .fence_next = fence_next};
        struct change *made = changes + used; /* there is room for two of each call */
        made[0] = made[1] = (struct change){.kind = CHANGE_NONE};
        status = call->note != NULL ? tell_note(cycle, call, now_ms, &made[1].entry, err)
                                    : decide_call(cycle, call, moment, made, err);
        used += keep_changes(made);
        fence_next += begins(call);
    }
    *ret_count = used;
    return status;
}

static enum status run_once(struct cycle *cycle, struct engine_call *const *calls, size_t count,
    const struct store_moment *moment, struct err *err)
{
    next_turn(cycle);
    struct change *changes = arena_alloc(&cycle->arena, 2 * count * sizeof *changes);
    if (changes == NULL) {
        return err_set(err, E_NOMEM, "out of memory for a batch");
    }
    struct chain before = cycle->chain;
    size_t used = 0;
    enum status status = load_keys(cycle, calls, count, err);
    if (status == OK) {
        status = decide_all(cycle, calls, count, moment->time_ms, changes, &used, err);
    }
    if (status == OK && used > 0) {
        struct commit commit = {.changes = changes, .count = used, .moment = *moment};
        status = cycle->store->ops->commit(cycle->store, &commit, err);
    }
    if (status != OK) {
        cycle->chain = before; /* nothing of it was written, or nobody will write after it (E5) */
    }
    return status;
}

enum status cycle_run(struct cycle *cycle, struct engine_call *const *calls, size_t count,
    const struct store_moment *moment, struct err *err)
{
    ASSERT(count > 0 && count <= LIMIT_BATCH_REQUESTS_MAX);
    enum status status = E_STALE;
    for (int i = 0; status == E_STALE && i < STALE_RETRIES_MAX; i++) {
        status = run_once(cycle, calls, count, moment, err);
    }
    if (status == E_STALE) {
        return err_set(err, E_UNAVAILABLE, "lost %d races for the same records", STALE_RETRIES_MAX);
    }
    return status;
}

enum status cycle_note(struct cycle *cycle, const struct entry *note,
    const struct store_moment *moment, struct err *err)
{
    struct change change = {.kind = CHANGE_NONE, .entry = *note};
    struct commit commit = {.changes = &change, .count = 1, .moment = *moment};
    return cycle->store->ops->commit(cycle->store, &commit, err);
}

enum status cycle_archive(struct cycle *cycle, const struct store_removable *removable,
    const struct store_moment *moment, struct err *err)
{
    struct chain before = cycle->chain;
    struct entry entry;
    buf_clear(&cycle->text);
    enum status status =
        entry_compose_archived(&cycle->chain, removable, moment->time_ms, &cycle->text, &entry);
    status = status == OK ? cycle_note(cycle, &entry, moment, err)
                          : err_set(err, status, "out of memory for evidence");
    if (status != OK) {
        cycle->chain = before;
    }
    return status;
}
