/*
 * past 800 lines because a record is packed, compared and folded in this one file.
 */
#include "evidence/redecide.h"

#include "base/check.h"
#include "base/limits.h"
#include "base/macros.h"
#include "core/lane.h"
#include "core/source.h"

/* What is kept of a record: enough to decide on it. Texts are kept as digests, which are equal
 * exactly if the texts are. */
struct redecide_record {
    struct digest key_hash;
    struct digest fingerprint;
    struct digest body;      /* of the outcome */
    struct digest meta;      /* of the outcome, when has_meta */
    struct digest effect_id; /* when has_effect_id */
    struct digest detail;    /* when has_detail */
    struct digest came_from; /* source_digest */
    struct op_id operation_id;
    struct op_id parent;
    uint64_t seq;    /* of the last folded entry; 0: unreliable */
    uint64_t tenant; /* the first 64 bits of the tenant's digest */
    uint64_t fence;
    uint64_t version; /* 0: not known */
    uint64_t body_bytes;
    int64_t created_ms;
    int64_t updated_ms;
    int64_t sealed_ms;
    int64_t lease_expires_ms;
    int64_t window_expires_ms;
    int64_t window_ms;
    int64_t due_ms;
    uint64_t holder;
    uint32_t attempt;
    uint32_t duplicates;
    int32_t code;
    uint8_t kind;
    uint8_t status;
    uint8_t fingerprint_version;
    bool has_meta;
    bool has_effect_id;
    bool has_detail;
    bool reconciles;
    uint8_t door;
    bool retained;
    bool is_seen;         /* its record was compared (redecide_record_check) */
    uint8_t source_bytes; /* of a source: the length of its version … */
    char *source;         /* … and the version; owned */
};

enum {
    RECORDS_MIN = 1024,
    SHARED_MARGIN_MS = 60000, /* the times of several chains differ by less than this */
};

void redecide_init(struct redecide *redecide, const struct mem *mem)
{
    ASSERT(mem != NULL);
    *redecide = (struct redecide){.mem = mem};
}

void redecide_release(struct redecide *redecide)
{
    if (redecide->mem != NULL) {
        for (size_t i = 0; i < redecide->count; i++) {
            mem_free(redecide->mem, redecide->records[i].source);
        }
        mem_free(redecide->mem, redecide->records);
        mem_free(redecide->mem, redecide->slots);
    }
    *redecide = (struct redecide){0};
}

void redecide_gap(struct redecide *redecide, uint64_t seq)
{
    redecide->partial = true;
    redecide->gap_seq = seq;
}

/* ---- the records -------------------------------------------------------------------------- */

static uint64_t key_prefix(const struct digest *hash)
{
    uint64_t prefix = 0;
    for (int i = 0; i < 6; i++) {
        prefix = prefix << 8 | hash->bytes[i];
    }
    return prefix;
}

static size_t slot_of(const struct redecide *redecide, uint64_t prefix)
{
    ASSERT(redecide->slot_count > 0);
    ASSERT((redecide->slot_count & (redecide->slot_count - 1)) == 0); /* or the mask skips slots */
    /* Fibonacci hashing: a hostile journal can choose its prefixes, but that only makes it slow. */
    return (size_t)((prefix * UINT64_C(0x9e3779b97f4a7c15)) >> 16) & (redecide->slot_count - 1);
}

static void slots_fill(struct redecide *redecide)
{
    ASSERT(redecide->count < redecide->slot_count); /* an empty slot ends every search */
    memset(redecide->slots, 0, redecide->slot_count * sizeof *redecide->slots);
    for (size_t i = 0; i < redecide->count; i++) {
        size_t at = slot_of(redecide, key_prefix(&redecide->records[i].key_hash));
        while (redecide->slots[at] != 0) {
            at = (at + 1) & (redecide->slot_count - 1);
        }
        redecide->slots[at] = (uint32_t)(i + 1);
    }
}

static void record_expand(
    const struct redecide_record *from, const struct record_key *key, struct record *ret_record);

/* Forgets records past their window: to decide() they are the same as absent. */
static void records_sweep(struct redecide *redecide)
{
    static const struct record_key key = {.tenant = {"t", 1}, .key = {"k", 1}};
    size_t kept = 0;
    for (size_t i = 0; i < redecide->count; i++) {
        struct record record;
        record_expand(&redecide->records[i], &key, &record);
        int64_t now_ms = redecide->now_ms - (redecide->shared ? SHARED_MARGIN_MS : 0);
        if (!record_window_over(&record, now_ms)) {
            redecide->records[kept++] = redecide->records[i];
        } else {
            mem_free(redecide->mem, redecide->records[i].source);
        }
    }
    ASSERT(kept <= redecide->count);
    redecide->swept = redecide->swept || kept < redecide->count;
    redecide->count = kept;
}

static enum status records_grow(struct redecide *redecide, struct err *err)
{
    size_t cap = redecide->cap == 0 ? RECORDS_MIN : 2 * redecide->cap;
    if (cap >= UINT32_MAX) {
        return err_set(err, E_NOMEM, "more than %zu live records", redecide->cap);
    }
    struct redecide_record *records =
        mem_resize(redecide->mem, redecide->records, cap * sizeof *records);
    if (records == NULL) {
        return err_set(err, E_NOMEM, "out of memory for %zu records", cap);
    }
    redecide->records = records;
    uint32_t *slots = mem_resize(redecide->mem, redecide->slots, 2 * cap * sizeof *slots);
    if (slots == NULL) {
        return err_set(err, E_NOMEM, "out of memory for %zu records", cap);
    }
    redecide->slots = slots;
    redecide->slot_count = 2 * cap;
    redecide->cap = cap;
    ASSERT(redecide->count < redecide->cap);
    return OK;
}

static enum status records_room(struct redecide *redecide, struct err *err)
{
    if (redecide->count < redecide->cap) {
        return OK;
    }
    records_sweep(redecide);
    /* Half of the room must be free after a sweep, or sweeps would become ever more frequent. */
    enum status status = redecide->count < redecide->cap / 2 ? OK : records_grow(redecide, err);
    if (redecide->slots != NULL) {
        slots_fill(redecide);
    }
    return status;
}

/* By operation if there is an id, otherwise by key. */
static struct redecide_record *records_find(
    struct redecide *redecide, const struct digest *key_hash, const struct op_id *operation_id)
{
    ASSERT(key_hash != NULL || operation_id != NULL);
    if (redecide->count == 0) {
        return NULL;
    }
    uint64_t prefix = operation_id != NULL ? op_id_prefix(operation_id) : key_prefix(key_hash);
    size_t at = slot_of(redecide, prefix);
    for (; redecide->slots[at] != 0; at = (at + 1) & (redecide->slot_count - 1)) {
        struct redecide_record *record = &redecide->records[redecide->slots[at] - 1];
        if (operation_id != NULL ? kind_has_id((enum record_kind)record->kind) &&
                                       op_id_equal(&record->operation_id, operation_id)
                                 : digest_equal(&record->key_hash, key_hash)) {
            return record;
        }
    }
    return NULL;
}

static enum status records_add(struct redecide *redecide, const struct digest *key_hash,
    struct redecide_record **ret_record, struct err *err)
{
    enum status status = records_room(redecide, err);
    if (status != OK) {
        return status;
    }
    ASSERT(redecide->count < redecide->cap);
    size_t at = slot_of(redecide, key_prefix(key_hash));
    while (redecide->slots[at] != 0) {
        at = (at + 1) & (redecide->slot_count - 1);
    }
    redecide->slots[at] = (uint32_t)(redecide->count + 1);
    struct redecide_record *record = &redecide->records[redecide->count++];
    *record = (struct redecide_record){.key_hash = *key_hash};
    *ret_record = record;
    return OK;
}

static uint64_t tenant_mark(struct slice tenant)
{
    struct digest digest;
    uint64_t mark;
    digest_sha256(tenant.data, tenant.len, &digest);
    memcpy(&mark, digest.bytes, sizeof mark);
    return mark;
}

static struct slice digest_slice(bool there, const struct digest *digest)
{
    return there ? slice_of(digest->bytes, sizeof digest->bytes) : SLICE_EMPTY;
}

/* Slices of the result point into `from`. */
static void record_expand(
    const struct redecide_record *from, const struct record_key *key, struct record *ret_record)
{
    ASSERT(from->source_bytes == 0 || from->source != NULL);
    ASSERT(from->kind != 0); /* it was folded, not just allocated */
    *ret_record = (struct record){
        .key = *key,
        .version = from->version,
        .kind = (enum record_kind)from->kind,
        .status = (enum record_status)from->status,
        .operation_id = from->operation_id,
        .fingerprint = from->fingerprint,
        .fingerprint_version = from->fingerprint_version,
        .fence = from->fence,
        .attempt = from->attempt,
        .duplicates = from->duplicates,
        .created_ms = from->created_ms,
        .updated_ms = from->updated_ms,
        .sealed_ms = from->sealed_ms,
        .lease_expires_ms = from->lease_expires_ms,
        .window_expires_ms = from->window_expires_ms,
        .window_ms = from->window_ms,
        .door = (enum record_door)from->door,
        .reconciles = from->reconciles,
        .holder = from->holder,
        .parent = from->parent,
        .due_ms = from->due_ms,
        .detail = digest_slice(from->has_detail, &from->detail),
        .effect_id = digest_slice(from->has_effect_id, &from->effect_id),
        .outcome = {.code = from->code,
            .meta = digest_slice(from->has_meta, &from->meta),
            .body = {.digest = from->body, .bytes = from->body_bytes, .retained = from->retained}},
        .source.version = slice_of(from->source, from->source_bytes),
    };
    ret_record->key.hash = from->key_hash;
}

/* Two digests are equal exactly if the sources are. */
static struct digest source_digest(const struct source *source)
{
    struct digest parts[3], whole = {0};
    if (source->type.len + source->id.len + source->version.len == 0) {
        return whole; /* most have none */
    }
    digest_sha256(source->type.data, source->type.len, &parts[0]);
    digest_sha256(source->id.data, source->id.len, &parts[1]);
    digest_sha256(source->version.data, source->version.len, &parts[2]);
    digest_sha256(parts, sizeof parts, &whole);
    return whole;
}

static bool text_pack(struct slice digest, struct digest *ret_digest)
{
    if (digest.len == 0) {
        return false;
    }
    ASSERT(digest.len == sizeof ret_digest->bytes); /* texts were replaced by digests */
    memcpy(ret_digest->bytes, digest.data, sizeof ret_digest->bytes);
    return true;
}

/* Keeps a record whose texts are already digests. The key's own hash and tenant stay. */
static void record_pack(
    const struct record *from, uint64_t seq, uint64_t tenant, struct redecide_record *ret_record)
{
    struct redecide_record packed = {
        .key_hash = from->key.hash,
        .fingerprint = from->fingerprint,
        .body = from->outcome.body.digest,
        .came_from = source_digest(&from->source),
        .operation_id = from->operation_id,
        .seq = seq,
        .tenant = tenant,
        .fence = from->fence,
        .version = from->version,
        .body_bytes = from->outcome.body.bytes,
        .created_ms = from->created_ms,
        .updated_ms = from->updated_ms,
        .sealed_ms = from->sealed_ms,
        .lease_expires_ms = from->lease_expires_ms,
        .window_expires_ms = from->window_expires_ms,
        .window_ms = from->window_ms,
        .due_ms = from->due_ms,
        .holder = from->holder,
        .parent = from->parent,
        .door = (uint8_t)from->door,
        .reconciles = from->reconciles,
        .attempt = from->attempt,
        .duplicates = from->duplicates,
        .code = from->outcome.code,
        .kind = (uint8_t)from->kind,
        .status = (uint8_t)from->status,
        .fingerprint_version = from->fingerprint_version,
        .retained = from->outcome.body.retained,
    };
    packed.has_meta = text_pack(from->outcome.meta, &packed.meta);
    packed.has_effect_id = text_pack(from->effect_id, &packed.effect_id);
    packed.has_detail = text_pack(from->detail, &packed.detail);
    *ret_record = packed;
}

static struct slice text_digest(struct slice text, struct digest *ret_digest)
{
    if (text.len == 0) {
        return SLICE_EMPTY;
    }
    digest_sha256(text.data, text.len, ret_digest);
    return slice_of(ret_digest->bytes, sizeof ret_digest->bytes);
}

/* ---- comparing ---------------------------------------------------------------------------- */

static enum status differs(struct err *err, const char *name, struct slice stated, const char *made)
{
    return err_set(err, E_CORRUPT, "decided again, %s is '%s' and not '%.*s'", name, made,
        stated.len > 60 ? 60 : (int)stated.len, stated.len == 0 ? "" : stated.data);
}

static enum status differs_u64(struct err *err, const char *name, uint64_t stated, uint64_t made)
{
    return err_set(err, E_CORRUPT, "decided again, %s is %llu and not %llu", name,
        (unsigned long long)made, (unsigned long long)stated);
}

static enum status compare_entry_record(
    const struct entry_view *view, const struct decision *decision, struct err *err)
{
    const struct record *next = &decision->next;
    bool known = record_there(next);
    const char *state = known ? record_status_name(next->status) : "absent";
    char id[KIND_ID_TEXT_BYTES];
    struct digest effect_id, provider_ref;
    struct entry_view stated = *view; /* names as digests, as they are kept of the record */
    stated.effect_id = text_digest(view->effect_id, &effect_id);
    stated.provider_ref = text_digest(view->provider_ref, &provider_ref);
    if (!slice_is(view->lifecycle_state, state)) {
        return differs(err, "the status", view->lifecycle_state, state);
    }
    if (view->attempt != next->attempt) {
        return differs_u64(err, "the attempt", view->attempt, next->attempt);
    }
    if (request_takes_fence(&view->request) && view->fence != next->fence) {
        return differs_u64(err, "the fence", view->fence, next->fence);
    }
    if (known && !op_id_equal(&view->operation_id, &next->operation_id)) {
        return err_set(err, E_CORRUPT, "decided again, the operation is %s",
            kind_id_put(id, next->kind, &next->operation_id));
    }
    if (known && (!view->keyed || !digest_equal(&view->request.key.hash, &next->key.hash))) {
        return err_set(err, E_CORRUPT, "the entry's key differs from its operation's");
    }
    if (!entry_view_has_ref(&stated, next->effect_id)) {
        return err_set(err, E_CORRUPT, "the entry's %s differs from its operation's",
            view->kind == RECORD_EFFECT ? "provider_ref" : "effect_id");
    }
    return OK;
}

static enum status compare_dedupe(
    const struct entry_view *view, const struct decision *decision, struct err *err)
{
    bool by_key = request_by_key(view->request.kind);
    const char *name = decision_name(decision->kind);
    const char *stated = entry_dedupe(decision->kind);
    bool detail = strcmp(stated, name) != 0;
    const struct body_ref *body = &decision->next.outcome.body;
    bool outcome = decision->kind == DECISION_DUPLICATE_REPLAYED && body->bytes > 0;
    if (view->dedupe != by_key) {
        return err_set(err, E_CORRUPT, "only the answer to a begin or an enqueue says dedupe");
    }
    if (by_key && (!slice_is(view->dedupe_decision, stated) ||
                      !slice_is(view->dedupe_detail, detail ? name : "") ||
                      view->executed != (decision->kind == DECISION_FIRST_SEEN) ||
                      view->outcome_known != outcome ||
                      (outcome && !digest_equal(&view->outcome_digest, &body->digest)))) {
        return err_set(err, E_CORRUPT, "dedupe does not say what was decided: %s", name);
    }
    return OK;
}

/* An effect of an application's transaction joins its lane when it is woken. */
static bool joins_late(const struct entry_view *view, const struct decision *decision)
{
    return view->request.kind == REQUEST_WAKE && decision->change == CHANGE_PUT &&
           decision->next.kind == RECORD_EFFECT && decision->next.status == RECORD_PENDING &&
           lane_is(&view->source);
}

/* A new operation takes the request's source, a new attempt takes it if it names a version, and
 * every other request keeps the old source, unless it joins a lane. A source without a version is
 * only in the record, so there is nothing to compare it with. */
static enum status compare_entry_source(const struct entry_view *view,
    const struct decision *decision, const struct redecide_record *known, struct err *err)
{
    const struct source *asked = &view->request.source;
    const struct record *next = &decision->next;
    bool makes = decision->kind == DECISION_FIRST_SEEN || decision->kind == DECISION_ENQUEUED;
    bool is_new = !record_there(next) || known == NULL ||
                  !op_id_equal(&known->operation_id, &next->operation_id);
    if (source_ordered(asked) && (makes || is_new)) {
        return source_equal(asked, &view->source)
                   ? OK
                   : err_set(err, E_CORRUPT, "the entry's source differs from the one asked for");
    }
    struct digest stated = source_digest(&view->source);
    return is_new || joins_late(view, decision) || digest_equal(&stated, &known->came_from)
               ? OK
               : err_set(err, E_CORRUPT, "the entry's source differs from its operation's");
}

static enum status compare_entry(const struct entry_view *view, const struct decision *decision,
    const struct record *found, struct err *err)
{
    bool conflict = decision->kind == DECISION_CONFLICT_REJECTED;
    ASSERT(!conflict || found != NULL); /* P7: it is in conflict with something */
    if (!slice_is(view->decision, decision_name(decision->kind))) {
        return differs(err, "the decision", view->decision, decision_name(decision->kind));
    }
    if (!slice_is(view->rule, decision->rule)) {
        return differs(err, "the rule", view->rule, decision->rule);
    }
    const char *type =
        entry_type(&(struct entry_facts){&view->request, found, decision, view->moment});
    if (!slice_is(view->type, type)) {
        return differs(err, "the type", view->type, type);
    }
    if (view->conflict != conflict ||
        (conflict && !digest_equal(&view->stored, &found->fingerprint))) {
        return err_set(err, E_CORRUPT, "conflict does not say what was decided");
    }
    enum status status = compare_entry_record(view, decision, err);
    return status == OK ? compare_dedupe(view, decision, err) : status;
}

/* Compares the numbers of the stored record with those of the record made again. */
static enum status compare_record(
    const struct record *stored, const struct record *made, bool version_known, struct err *err)
{
    const struct {
        const char *name;
        uint64_t stored;
        uint64_t made;
    } numbers[] = {
        {"the record's fence", stored->fence, made->fence},
        {"the record's attempt", stored->attempt, made->attempt},
        {"created_at", (uint64_t)stored->created_ms, (uint64_t)made->created_ms},
        {"updated_at", (uint64_t)stored->updated_ms, (uint64_t)made->updated_ms},
        {"sealed_at", (uint64_t)stored->sealed_ms, (uint64_t)made->sealed_ms},
        {"lease_expires_at", (uint64_t)stored->lease_expires_ms, (uint64_t)made->lease_expires_ms},
        {"window_expires_at", (uint64_t)stored->window_expires_ms,
            (uint64_t)made->window_expires_ms},
        {"the window", (uint64_t)stored->window_ms, (uint64_t)made->window_ms},
        {"the due time", (uint64_t)stored->due_ms, (uint64_t)made->due_ms},
        {"the holder", stored->holder, made->holder},
        {"the door", (uint64_t)stored->door, (uint64_t)made->door},
        {"whether its door reconciles", stored->reconciles, made->reconciles},
        {"the outcome's code", (uint32_t)stored->outcome.code, (uint32_t)made->outcome.code},
        {"the outcome's size", stored->outcome.body.bytes, made->outcome.body.bytes},
        {"the record's status", (uint64_t)stored->status, (uint64_t)made->status},
        {"the record's version", version_known ? stored->version : 0,
            version_known ? made->version : 0},
    };
    for (size_t i = 0; i < COUNT(numbers); i++) {
        if (numbers[i].stored != numbers[i].made) {
            return differs_u64(err, numbers[i].name, numbers[i].stored, numbers[i].made);
        }
    }
    struct digest meta, effect_id, detail;
    if (!digest_equal(&stored->key.hash, &made->key.hash) ||
        !op_id_equal(&stored->operation_id, &made->operation_id) ||
        !op_id_equal(&stored->parent, &made->parent) || stored->kind != made->kind ||
        !slice_equal(text_digest(stored->detail, &detail), made->detail) ||
        !digest_equal(&stored->fingerprint, &made->fingerprint) ||
        stored->fingerprint_version != made->fingerprint_version ||
        !digest_equal(&stored->outcome.body.digest, &made->outcome.body.digest) ||
        !slice_equal(text_digest(stored->outcome.meta, &meta), made->outcome.meta) ||
        !slice_equal(text_digest(stored->effect_id, &effect_id), made->effect_id) ||
        !source_equal(&stored->source, &made->source)) {
        return err_set(err, E_CORRUPT, "the record stored is not the one that was decided");
    }
    return OK;
}

/*
 * The record's version after the decision. After an expired record it continues, or starts again if
 * the store had forgotten that record; the entry says which. Old entries do not say it: then the
 * version is taken from the stored record, or is 0: not known.
 */
static bool version_follows(
    const struct entry_view *view, const struct record *found, struct decision *decision)
{
    if (view->versioned) {
        decision->next.version = view->version + (decision->change == CHANGE_PUT);
        return true;
    }
    return found != NULL && found->version != 0 &&
           op_id_equal(&found->operation_id, &decision->next.operation_id);
}

static enum status compare_stored(const struct redecide_stored *stored,
    const struct decision *decision, bool version_known, struct err *err)
{
    bool put = decision->change == CHANGE_PUT;
    bool touch = decision->change == CHANGE_TOUCH;
    if (stored->squeezed) {
        return OK;
    }
    if ((stored->record != NULL) != put) {
        return err_set(err, E_CORRUPT,
            put ? "the record that was decided was not stored" : "a record was stored undecided");
    }
    if ((stored->touch != NULL) != touch ||
        (touch && !digest_equal(stored->touch, &decision->next.key.hash))) {
        return err_set(err, E_CORRUPT, "the duplicate was not counted as it was decided");
    }
    return put ? compare_record(stored->record, &decision->next, version_known, err) : OK;
}

/* ---- the fold ----------------------------------------------------------------------------- */

/* The record that decide() was given; absent if it belongs to a different tenant (P9). */
static struct redecide_record *find(struct redecide *redecide, const struct entry_view *view)
{
    const struct request *request = &view->request;
    bool by_key = request_by_key(request->kind);
    struct redecide_record *record =
        records_find(redecide, &request->key.hash, by_key ? NULL : &request->operation_id);
    if (record != NULL && !by_key && request->key.tenant.len > 0 &&
        record->tenant != tenant_mark(request->key.tenant)) {
        return NULL;
    }
    /* A key's hash determines the kind of its record. If a different kind is stored there, it was
     * not written by us, and decide() would assert. */
    if (record != NULL && record->kind != view->kind) {
        return NULL;
    }
    return record;
}

/* Folds the decided record, or the stored one if it could not be decided again. */
static enum status fold(struct redecide *redecide, const struct record *next, uint64_t seq,
    struct slice tenant, struct err *err)
{
    struct redecide_record *record = records_find(redecide, &next->key.hash, NULL);
    if (record == NULL) {
        enum status status = records_add(redecide, &next->key.hash, &record, err);
        if (status != OK) {
            return status;
        }
    }
    ASSERT(next->kind != RECORD_SOURCE);     /* source_put */
    mem_free(redecide->mem, record->source); /* a hostile record may have the hash of a source */
    record_pack(next, seq, tenant_mark(tenant), record);
    redecide->fence_max = next->fence > redecide->fence_max ? next->fence : redecide->fence_max;
    return OK;
}

/* ---- sources ------------------------------------------------------------------------------ */

/* What the entries so far say about a source. *ret_sure is false if entries are missing. */
static enum status source_known(struct redecide *redecide, const struct record_key *operation,
    const struct source *source, struct record *ret_known, bool *ret_there, bool *ret_sure,
    struct err *err)
{
    ASSERT(source_ordered(source));
    struct record_key key;
    enum status status = source_key_seal(operation, source, &key, err);
    if (status != OK) {
        return E_CORRUPT;
    }
    const struct redecide_record *known = records_find(redecide, &key.hash, NULL);
    bool other = known != NULL && known->kind != RECORD_SOURCE; /* not written by us */
    *ret_there = known != NULL && !other;
    *ret_sure = known == NULL ? !redecide->partial : !other && known->seq > redecide->gap_seq;
    ret_known->key = key;
    if (*ret_there) {
        record_expand(known, &key, ret_known);
        ret_known->source.type = source->type;
        ret_known->source.id = source->id;
    }
    return OK;
}

static enum status source_differs(struct slice stated, struct slice made, struct err *err)
{
    return err_set(err, E_CORRUPT,
        "decided again, the last sealed version of the source is '%.*s' and not '%.*s'",
        SLICE_ARGS(made), SLICE_ARGS(stated));
}

/* Whether decide was given the last sealed version of a source. */
static bool compares_version(const struct request *request)
{
    return request_by_key(request->kind) || request->kind == REQUEST_CLAIM;
}

/* The source of that version: for a claim, the record's. */
static const struct source *source_compared(const struct entry_view *view)
{
    return view->request.kind == REQUEST_CLAIM ? &view->source : &view->request.source;
}

/* A begin, an enqueue and a claim must have been given the last version sealed before them. */
static enum status check_entry_version(
    struct redecide *redecide, const struct entry_view *view, struct err *err)
{
    struct record known;
    bool there, sure;
    const struct source *source = source_compared(view);
    if (!compares_version(&view->request) || !view->keyed || !source_ordered(source) ||
        redecide->shared) {
        return OK;
    }
    enum status status =
        source_known(redecide, &view->request.key, source, &known, &there, &sure, err);
    if (status != OK || !sure) {
        return status;
    }
    struct slice made = source_version(there ? &known : NULL, view->moment.now_ms);
    return slice_equal(made, view->moment.version_sealed)
               ? OK
               : source_differs(view->moment.version_sealed, made, err);
}

static enum status source_put(struct redecide *redecide, const struct record *next, uint64_t seq,
    struct slice tenant, struct err *err)
{
    ASSERT(next->kind == RECORD_SOURCE);
    ASSERT(next->source.version.len <= UINT8_MAX); /* of source_bytes */
    char *version = mem_alloc(redecide->mem, next->source.version.len);
    struct redecide_record *known = records_find(redecide, &next->key.hash, NULL);
    enum status status = version == NULL ? E_NOMEM : OK;
    if (status == OK && known == NULL) {
        status = records_add(redecide, &next->key.hash, &known, err);
    }
    if (status != OK) {
        mem_free(redecide->mem, version);
        return err_set(err, status, "out of memory for a source");
    }
    memcpy(version, next->source.version.data, next->source.version.len);
    mem_free(redecide->mem, known->source);
    record_pack(next, seq, tenant_mark(tenant), known);
    known->source = version;
    known->source_bytes = (uint8_t)next->source.version.len;
    return OK;
}

/* Compares the numbers of a stored source record with those that its seal makes. */
static enum status compare_source(
    const struct redecide_stored *stored, bool changes, const struct record *next, struct err *err)
{
    if (stored->squeezed) {
        return OK;
    }
    if ((stored->source != NULL) != changes) {
        return err_set(err, E_CORRUPT,
            changes ? "the version that was sealed was not remembered"
                    : "a version was remembered that is not the newest");
    }
    if (changes && (!digest_equal(&stored->source->key.hash, &next->key.hash) ||
                       !slice_equal(stored->source->source.version, next->source.version) ||
                       stored->source->window_expires_ms != next->window_expires_ms ||
                       stored->source->fence != next->fence)) {
        return err_set(err, E_CORRUPT, "the version remembered is not the one that was sealed");
    }
    return OK;
}

/*
 * A seal whose operation, or an earlier seal, is not known: takes the stored source record if it is
 * still there; otherwise remembers that its duration is not known.
 */
static enum status source_unsure(struct redecide *redecide, const struct entry_view *view,
    const struct redecide_stored *stored, struct err *err)
{
    struct record_key key;
    struct err ignored;
    if (compares_version(&view->request) || view->moment.version_sealed.len == 0 || !view->keyed ||
        !source_ordered(&view->source) ||
        source_key_seal(&view->request.key, &view->source, &key, &ignored) != OK) {
        return OK;
    }
    if (stored->source != NULL && digest_equal(&stored->source->key.hash, &key.hash)) {
        return source_put(redecide, stored->source, view->seq, key.tenant, err);
    }
    struct redecide_record *known = records_find(redecide, &key.hash, NULL);
    if (known != NULL) {
        known->seq = 0;
    }
    return OK;
}

/* Folds the source of a seal. Only entries of stores that remember sources have it: they name the
 * last sealed version after the seal. */
static enum status fold_source(struct redecide *redecide, const struct entry_view *view,
    const struct redecide_stored *stored, const struct decision *decision, struct err *err)
{
    struct record known = {0};
    struct record next = decision->next;
    bool there, sure;
    if (redecide->shared) {
        return OK;
    }
    bool joins =
        (decision->kind == DECISION_ENQUEUED && lane_kind(next.kind)) || joins_late(view, decision);
    if (stored->source != NULL && joins) {
        /* A record that joined a lane is its last one. */
        return op_id_equal(&stored->source->operation_id, &next.operation_id)
                   ? OK
                   : err_set(err, E_CORRUPT, "the last record of a lane is a different one");
    }
    if (view->moment.version_sealed.len == 0 || decision->change != CHANGE_PUT ||
        !record_status_sealed(next.status) || !source_ordered(&view->source) || !view->keyed) {
        return stored->source == NULL
                   ? OK
                   : err_set(err, E_CORRUPT, "a version was remembered without a seal");
    }
    enum status status =
        source_known(redecide, &view->request.key, &view->source, &known, &there, &sure, err);
    if (status != OK || !sure) {
        return status != OK ? status : source_unsure(redecide, view, stored, err);
    }
    struct record_key key = known.key;
    struct record made = known;
    bool changes = source_remember(there ? &known : NULL, &next, &key, &made);
    struct slice version = source_version(&made, view->moment.now_ms);
    if (!slice_equal(version, view->moment.version_sealed)) {
        return source_differs(view->moment.version_sealed, version, err);
    }
    status = compare_source(stored, changes, &made, err);
    return status == OK && changes
               ? source_put(redecide, &made, view->seq, view->request.key.tenant, err)
               : status;
}

/*
 * The record does not follow from the entries: takes the stored record if there is one that
 * decide() accepts; otherwise remembers that it is not known.
 */
static enum status fold_unsure(struct redecide *redecide, const struct entry_view *view,
    const struct redecide_stored *stored, struct err *err)
{
    const struct record *record = stored->record;
    enum status status = source_unsure(redecide, view, stored, err);
    if (status != OK) {
        return status;
    }
    if (record != NULL && record->window_ms <= LIMIT_WINDOW_MS_MAX &&
        record->attempt < UINT32_MAX && record->fence <= view->fence) {
        struct record next = *record;
        struct digest meta, effect_id, detail;
        next.outcome.meta = text_digest(record->outcome.meta, &meta);
        next.effect_id = text_digest(record->effect_id, &effect_id);
        next.detail = text_digest(record->detail, &detail);
        return fold(redecide, &next, view->seq, record->key.tenant, err);
    }
    struct redecide_record *known =
        view->keyed ? records_find(redecide, &view->request.key.hash, NULL) : NULL;
    if (known != NULL) {
        known->seq = 0;
    }
    return OK;
}

static enum status decide_again(struct redecide *redecide, const struct entry_view *view,
    const struct redecide_stored *stored, const struct redecide_record *known, struct err *err)
{
    static const struct record_key nameless = {.tenant = {"t", 1}, .key = {"k", 1}};
    struct redecide_record copy; /* the records may move while slices of the decision are in use */
    struct record found;
    struct request request = view->request;
    struct digest effect_id;
    request.effect_id = text_digest(view->request.effect_id, &effect_id);
    if (request.kind == REQUEST_UNKNOWN && slice_is(view->rule, "H5")) {
        /* Before rule H7 there was no delay here. An entry could have one, which was ignored. */
        request.delay_ms = request.not_before_ms = 0;
    }
    if (known != NULL) {
        copy = *known;
        record_expand(&copy, view->keyed ? &view->request.key : &nameless, &found);
        found.source = view->source; /* what a claim compares; the rest is not read */
    }
    const struct record *there = known == NULL ? NULL : &found;
    struct decision decision = decide(there, &request, view->moment);
    if (decision_took_fence(&decision)) {
        ASSERT(redecide->shared || view->moment.fence_next > redecide->fence_max); /* P4 */
        redecide->fence_max = view->moment.fence_next;
    }
    bool version_known = version_follows(view, there, &decision);
    enum status status = compare_entry(view, &decision, there, err);
    if (status == OK) {
        status = compare_entry_source(view, &decision, known, err);
        decision.next.source = view->source;
    }
    if (status == OK) {
        status = compare_stored(stored, &decision, version_known, err);
    }
    if (stored->record != NULL) {
        decision.next.version = stored->record->version;
    } else if (!version_known) {
        decision.next.version = 0;
    }
    if (status == OK) {
        status = fold_source(redecide, view, stored, &decision, err);
    }
    if (status == OK && decision.change != CHANGE_NONE) {
        status = fold(redecide, &decision.next, view->seq, decision.next.key.tenant, err);
    }
    return status;
}

/*
 * The entry must name the version that the entries before it make. A store forgets an expired
 * record at any time, and so do we: then the version may be 0 or continue.
 */
static enum status check_version(const struct redecide *redecide, const struct entry_view *view,
    const struct redecide_record *known, struct err *err)
{
    static const struct record_key nameless = {.tenant = {"t", 1}, .key = {"k", 1}};
    struct record found = {0};
    bool forgettable = redecide->swept;
    if (known != NULL) {
        record_expand(known, &nameless, &found);
        forgettable = record_window_over(&found, view->moment.now_ms);
    }
    bool known_version = known == NULL || known->version != 0;
    if (!view->versioned || !known_version || view->version == found.version ||
        (forgettable && (known == NULL || view->version == 0))) {
        return OK;
    }
    return differs_u64(err, "the version decided on", view->version, found.version);
}

/* P4: decide() asserts this, and an entry may contain anything. */
static enum status check_fence(const struct redecide *redecide, const struct entry_view *view,
    const struct redecide_record *known, struct err *err)
{
    uint64_t before = !redecide->shared ? redecide->fence_max : known == NULL ? 0 : known->fence;
    if (request_takes_fence(&view->request) && view->moment.fence_next <= before) {
        return err_set(err, E_CORRUPT, "fence %llu is not greater than %llu, granted before",
            (unsigned long long)view->moment.fence_next, (unsigned long long)before);
    }
    return OK;
}

/*
 * This decision may depend on missing entries. A new operation depends on them only because there
 * must be none before it; and if nothing is known, deciding without a record may give the same
 * result.
 */
static enum status decide_unsure(struct redecide *redecide, const struct entry_view *view,
    const struct redecide_stored *stored, const struct redecide_record *known, struct err *err)
{
    struct err mismatch;
    if (known == NULL || slice_is(view->rule, "B1") || slice_is(view->rule, "E1")) {
        enum status status = decide_again(redecide, view, stored, NULL, &mismatch);
        if (status == OK || status == E_NOMEM) {
            redecide->redecided += status == OK && known == NULL;
            redecide->not_redecidable += status == OK && known != NULL;
            return status == OK ? OK : err_set(err, status, "%s", mismatch.text);
        }
    }
    redecide->not_redecidable++;
    return fold_unsure(redecide, view, stored, err);
}

enum status redecide_entry(struct redecide *redecide, const struct entry_view *view,
    const struct redecide_stored *stored, struct err *err)
{
    ASSERT(redecide->mem != NULL);
    if (!view->decides) {
        return OK;
    }
    /* entry_view_read refuses entries without these. */
    ASSERT(view->moment.now_ms > 0);
    ASSERT(view->keyed || !request_by_key(view->request.kind));
    struct redecide_record *known = find(redecide, view);
    bool sure = known == NULL ? !redecide->partial : known->seq > redecide->gap_seq;
    redecide->now_ms = view->moment.now_ms;
    enum status status = check_fence(redecide, view, known, err);
    if (status == OK) {
        status = check_entry_version(redecide, view, err);
    }
    if (status == OK && sure) {
        status = check_version(redecide, view, known, err);
    }
    if (status == OK && !sure) {
        return decide_unsure(redecide, view, stored, known, err);
    }
    if (status == OK) {
        status = decide_again(redecide, view, stored, known, err);
        redecide->redecided += status == OK;
    }
    if (status == E_CORRUPT) {
        struct err folding;
        enum status folded = fold_unsure(redecide, view, stored, &folding);
        return folded == OK ? E_CORRUPT : err_set(err, folded, "%s", folding.text);
    }
    return status;
}

enum status redecide_record_check(
    struct redecide *redecide, const struct record *stored, bool *ret_newer, struct err *err)
{
    ASSERT(stored->kind != RECORD_SOURCE); /* entries do not make it, so it cannot be compared */
    struct redecide_record *known = records_find(redecide, &stored->key.hash, NULL);
    struct record made;
    *ret_newer = known == NULL || (known->version != 0 && stored->version > known->version);
    if (known == NULL) {
        return redecide->partial || redecide->swept ? OK : E_STALE;
    }
    known->is_seen = true;
    if (known->seq == 0 || known->version == 0) {
        return OK; /* unreliable */
    }
    if (stored->version != known->version) {
        return E_STALE;
    }
    record_expand(known, &stored->key, &made);
    made.source = stored->source; /* compared by its digest below */
    struct digest stated = source_digest(&stored->source);
    if (!digest_equal(&stated, &known->came_from)) {
        return err_set(err, E_CORRUPT, "the record's source is not the one that was decided");
    }
    return compare_record(stored, &made, true, err);
}

uint64_t redecide_version_of(struct redecide *redecide, const struct digest *key_hash)
{
    const struct redecide_record *known = records_find(redecide, key_hash, NULL);
    return known == NULL ? 0 : known->version;
}

const struct op_id *redecide_unseen(struct redecide *redecide, int64_t now_ms, size_t *at)
{
    ASSERT(*at <= redecide->count);
    static const struct record_key key = {.tenant = {"t", 1}, .key = {"k", 1}};
    while (*at < redecide->count) {
        const struct redecide_record *known = &redecide->records[(*at)++];
        struct record record;
        record_expand(known, &key, &record);
        if (!known->is_seen && known->seq != 0 && !record_window_over(&record, now_ms)) {
            return &known->operation_id;
        }
    }
    return NULL;
}
