#include "evidence/entry_view.h"

#include "base/check.h"
#include "base/limits.h"
#include "base/text.h"
#include "base/uuid.h"
#include "canon/jcs.h"
#include "canon/json.h"
#include "core/effect_names.h"
#include "core/source.h"
#include "evidence/entry_form.h"

/* A reader that remembers the first invalid member, so that it is checked once. */
struct members {
    const struct json_value *object;
    const char *wrong; /* NULL while all is well */
};

static const struct json_value *member(
    struct members *members, const char *name, enum json_type type, bool optional)
{
    ASSERT(members->object != NULL);
    const struct json_value *value = json_find(members->object, slice_str(name));
    if (value == NULL && optional) {
        return NULL;
    }
    if (!json_is(value, type)) {
        members->wrong = members->wrong == NULL ? name : members->wrong;
        return NULL;
    }
    return value;
}

static struct slice text_of(struct members *members, const char *name)
{
    const struct json_value *value = member(members, name, JSON_STRING, false);
    return value == NULL ? SLICE_EMPTY : json_text(value);
}

static struct slice text_if(struct members *members, const char *name)
{
    const struct json_value *value = member(members, name, JSON_STRING, true);
    return value == NULL ? SLICE_EMPTY : json_text(value);
}

static void fail(struct members *members, const char *name)
{
    members->wrong = members->wrong == NULL ? name : members->wrong;
}

static uint64_t u64_of(struct members *members, const char *name, bool optional)
{
    ASSERT(members->object != NULL);
    const struct json_value *value = json_find(members->object, slice_str(name));
    int64_t number = 0;
    uint64_t large = 0;
    if (value == NULL && optional) {
        return 0;
    }
    if (json_is(value, JSON_NUMBER) && json_int(value, &number) && number >= 0 &&
        (uint64_t)number <= ENTRY_NUMBER_MAX) {
        return (uint64_t)number;
    }
    if (json_is(value, JSON_STRING) && text_u64(json_text(value), &large) &&
        large > ENTRY_NUMBER_MAX) {
        return large;
    }
    fail(members, name);
    return 0;
}

/* A number that is at most max. */
static uint64_t u64_max(struct members *members, const char *name, bool optional, uint64_t max)
{
    uint64_t value = u64_of(members, name, optional);
    if (value > max) {
        fail(members, name);
        return 0;
    }
    return value;
}

static bool flag_of(struct members *members, const char *name, bool optional)
{
    ASSERT(members->object != NULL);
    const struct json_value *value = json_find(members->object, slice_str(name));
    if (!json_is(value, JSON_TRUE) && !json_is(value, JSON_FALSE) && !(value == NULL && optional)) {
        fail(members, name);
    }
    return json_is(value, JSON_TRUE);
}

static void digest_text(
    struct members *members, const char *name, struct slice text, struct digest *ret_digest)
{
    if (!text_hex(text, ret_digest->bytes, sizeof ret_digest->bytes)) {
        *ret_digest = (struct digest){0};
        fail(members, name);
    }
}

static void digest_of(struct members *members, const char *name, struct digest *ret_digest)
{
    digest_text(members, name, text_of(members, name), ret_digest);
}

/* The digest of a text that is not in the entry; empty if the member is absent. */
static struct slice digest_if(struct members *members, const char *name, struct arena *arena)
{
    if (text_if(members, name).len == 0) {
        return SLICE_EMPTY;
    }
    struct digest *digest = arena_alloc(arena, sizeof *digest);
    if (digest == NULL) {
        fail(members, name);
        return SLICE_EMPTY;
    }
    digest_of(members, name, digest);
    return slice_of(digest->bytes, sizeof digest->bytes);
}

static void read_outcome(struct members *decided, struct arena *arena, struct outcome *ret_outcome)
{
    struct members members = {.object = member(decided, "outcome", JSON_OBJECT, false)};
    int64_t code = 0;
    if (members.object == NULL) {
        return;
    }
    if (!json_int(json_find(members.object, SLICE_LIT("code")), &code) || code < INT32_MIN ||
        code > INT32_MAX) {
        fail(&members, "code");
    }
    ret_outcome->code = (int32_t)code;
    ret_outcome->body.bytes = u64_of(&members, "bytes", false);
    ret_outcome->body.retained = flag_of(&members, "retained", false);
    digest_of(&members, "digest", &ret_outcome->body.digest);
    ret_outcome->meta = digest_if(&members, "meta_digest", arena);
    if (members.wrong != NULL) {
        fail(decided, members.wrong);
    }
}

static bool on_unknown_read(struct slice text, enum on_unknown *ret_on_unknown)
{
    for (int i = ON_UNKNOWN_HOLD; i <= ON_UNKNOWN_RECONCILE; i++) {
        if (slice_is(text, on_unknown_name((enum on_unknown)i))) {
            *ret_on_unknown = (enum on_unknown)i;
            return true;
        }
    }
    return false;
}

static void read_source(struct members *outer, struct source *ret_source)
{
    struct members members = {.object = member(outer, "source", JSON_OBJECT, true)};
    if (members.object == NULL) {
        return;
    }
    ret_source->id = text_of(&members, "id");
    ret_source->type = text_of(&members, "type");
    ret_source->version = text_if(&members, "version");
    if (members.wrong != NULL || ret_source->id.len > LIMIT_SOURCE_BYTES_MAX ||
        ret_source->type.len > LIMIT_SOURCE_BYTES_MAX ||
        ret_source->version.len > LIMIT_SOURCE_BYTES_MAX) {
        fail(outer, "source");
    }
}

/* A begin or an enqueue. */
static void read_by_key(struct members *decided, struct entry_view *view)
{
    struct request *request = &view->request;
    struct slice parent = text_if(decided, "parent");
    struct slice door = text_if(decided, "door");
    ASSERT(request_by_key(request->kind));
    digest_of(decided, "fingerprint", &request->fingerprint);
    request->fingerprint_version =
        (uint8_t)u64_max(decided, "fingerprint_version", false, UINT8_MAX);
    request->policy.retry_failed = flag_of(decided, "retry_failed", true);
    request->policy.retry_rejected = flag_of(decided, "retry_rejected", true);
    if (json_find(decided->object, SLICE_LIT("source")) != NULL) {
        read_source(decided, &request->source);
        if (!source_ordered(&request->source)) {
            fail(decided, "source");
        }
    } else if (view->moment.version_sealed.len > 0) {
        fail(decided, "sealed_version"); /* a version without a source */
    }
    if (parent.len > 0 && !uuid_read(parent, request->parent.bytes)) {
        fail(decided, "parent");
    }
    if (door.len > 0 && !record_door_read(door, &request->door)) {
        fail(decided, "door");
    }
}

/* Reads the fence of a grant, or of a request that names a new record. */
static void read_fence(struct members *decided, struct entry_view *view)
{
    struct request *request = &view->request;
    if (!request_takes_fence(request)) {
        request->fence = view->fence;
        return;
    }
    view->moment.fence_next = u64_of(decided, "fence_next", false);
    if (view->moment.fence_next == 0) {
        fail(decided, "fence_next");
    }
    if (request_asks_grant(request) &&
        !on_unknown_read(text_of(decided, "on_unknown"), &request->policy.on_unknown)) {
        fail(decided, "on_unknown");
    }
}

/* Spans, times and counts; absent is 0. */
static void read_numbers(struct members *decided, struct request *request)
{
    struct policy *policy = &request->policy;
    const uint64_t span_max = LIMIT_WINDOW_MS_MAX;
    policy->lease_ms = (int64_t)u64_max(decided, "lease_ms", true, (uint64_t)LIMIT_LEASE_MS_MAX);
    policy->window_ms = (int64_t)u64_max(decided, "window_ms", true, span_max);
    policy->attempts_max = (uint32_t)u64_max(decided, "attempts_max", true, UINT32_MAX);
    policy->deadline_ms = (int64_t)u64_max(decided, "deadline_ms", true, span_max);
    request->delay_ms = (int64_t)u64_max(decided, "delay_ms", true, span_max);
    request->not_before_ms =
        (int64_t)u64_max(decided, "not_before_ms", true, (uint64_t)LIMIT_TIME_MS_MAX);
    request->holder = u64_of(decided, "holder", true);
    request->version = u64_max(decided, "wanted_version", true, INT64_MAX);
}

/* Reads the decision, its version and its time. */
static void read_decision(struct members *decided, struct entry_view *view)
{
    view->decision = text_of(decided, "decision");
    view->rule = text_of(decided, "rule");
    view->fence = u64_of(decided, "fence", false);
    view->attempt = u64_of(decided, "attempt", false);
    view->versioned = json_find(decided->object, SLICE_LIT("version")) != NULL;
    view->version = u64_max(decided, "version", true, INT64_MAX);
    view->moment.now_ms = (int64_t)u64_max(decided, "now_ms", false, (uint64_t)LIMIT_TIME_MS_MAX);
    if (view->moment.now_ms == 0) {
        fail(decided, "now_ms");
    }
    view->moment.version_sealed = text_if(decided, "sealed_version");
    if (view->moment.version_sealed.len > LIMIT_SOURCE_BYTES_MAX) {
        fail(decided, "sealed_version");
    }
}

static const char *read_decided(
    const struct json_value *object, struct arena *arena, struct entry_view *view)
{
    struct members decided = {.object = object};
    struct request *request = &view->request;
    if (!request_kind_read(text_of(&decided, "request"), &request->kind)) {
        fail(&decided, "request");
        request->kind = REQUEST_LEASE_OVER;
    }
    if (request_names_status(request->kind) &&
        !record_status_read(text_of(&decided, "status"), &request->status)) {
        fail(&decided, "status");
    }
    request->record_kind = view->kind;
    read_decision(&decided, view);
    read_numbers(&decided, request);
    read_fence(&decided, view);
    request->detail = digest_if(&decided, "detail_digest", arena);
    if (request_by_key(request->kind)) {
        read_by_key(&decided, view);
    } else {
        request->operation_id = view->operation_id;
    }
    if (request_settles(request)) {
        read_outcome(&decided, arena, &request->outcome);
        request->effect_id = text_if(&decided, "effect_id");
        if (view->kind == RECORD_EFFECT && request->effect_id.len == 0) {
            request->effect_id = text_if(&decided, "provider_ref");
        }
    }
    return decided.wrong;
}

static void read_dedupe(struct members *top, struct entry_view *view)
{
    static const char prefix[] = "sha256:";
    struct members members = {.object = member(top, "dedupe", JSON_OBJECT, true)};
    enum record_kind kind;
    struct op_id original;
    if (members.object == NULL) {
        return;
    }
    view->dedupe = true;
    view->dedupe_decision = text_of(&members, "decision");
    view->dedupe_detail = text_if(&members, "detail");
    view->executed = flag_of(&members, "executed", false);
    if (!kind_id_read(text_of(&members, "original_operation_id"), &kind, &original) ||
        kind != view->kind || !op_id_equal(&original, &view->operation_id)) {
        fail(&members, "original_operation_id");
    }
    struct slice reference = text_if(&members, "outcome_ref");
    if (reference.len > sizeof prefix - 1 && memcmp(reference.data, prefix, 7) == 0) {
        view->outcome_known = true;
        digest_text(&members, "outcome_ref", slice_of(reference.data + 7, reference.len - 7),
            &view->outcome_digest);
    } else if (reference.len > 0) {
        fail(&members, "outcome_ref");
    }
    if (members.wrong != NULL) {
        fail(top, members.wrong);
    }
}

static void read_conflict(struct members *top, struct entry_view *view)
{
    struct members members = {.object = member(top, "conflict", JSON_OBJECT, true)};
    struct digest received;
    if (members.object == NULL) {
        return;
    }
    view->conflict = true;
    digest_of(&members, "stored_fingerprint", &view->stored);
    digest_of(&members, "received_fingerprint", &received);
    if (members.wrong == NULL &&
        (!view->decides ||
            memcmp(received.bytes, view->request.fingerprint.bytes, sizeof received.bytes) != 0)) {
        fail(&members, "received_fingerprint");
    }
    if (members.wrong != NULL) {
        fail(top, members.wrong);
    }
}

static void read_key(struct members *top, struct entry_view *view)
{
    struct record_key *key = &view->request.key;
    struct err err;
    key->tenant = text_if(top, "tenant_id");
    key->scope = text_if(top, "scope");
    key->principal = text_if(top, "principal");
    key->key = text_if(top, "idempotency_key");
    if (key->tenant.len == 0 || key->key.len == 0) {
        return; /* the operation is absent, and so is its key */
    }
    view->keyed = record_key_seal_as(key, view->kind, &err) == OK;
    if (!view->keyed) {
        fail(top, "idempotency_key");
    }
}

/* Members that repeat others must agree with them. */
static void check_echoes(struct members *top, const struct entry_view *view)
{
    char text[64];
    struct buf id = {.data = text, .cap = sizeof text, .max = sizeof text};
    ASSERT(view->chain_id.len == 36); /* read_members: eight of its bytes are shown */
    buf_str(&id, "ent_");
    buf_append(&id, view->chain_id.data, 8);
    buf_char(&id, '_');
    buf_u64(&id, view->seq);
    if (!slice_equal(text_of(top, "entry_id"), buf_view(&id))) {
        fail(top, "entry_id");
    }
    char time[TEXT_TIME_BYTES];
    if (view->decides &&
        !slice_is(text_of(top, "occurred_at"), text_put_time(time, view->moment.now_ms))) {
        fail(top, "occurred_at");
    }
    struct members outcome = {.object = member(top, "outcome", JSON_OBJECT, true)};
    if (outcome.object != NULL &&
        !slice_equal(text_of(&outcome, "status"), view->lifecycle_state)) {
        fail(top, "outcome");
    }
}

static void read_archived(struct members *top, struct entry_view *view)
{
    struct members members = {.object = member(top, "archived", JSON_OBJECT, true)};
    view->archives = slice_is(view->type, "evidence.archived");
    if (view->archives != (members.object != NULL)) {
        fail(top, "archived");
    }
    if (members.object != NULL) {
        view->archived_seq = u64_of(&members, "seq", false);
        digest_of(&members, "hash", &view->archived_hash);
        if (members.wrong != NULL || view->archived_seq >= view->seq) {
            fail(top, "archived");
        }
    }
}

/* An entry without a decision must be one of the known notes. */
static void check_note(struct members *top, const struct entry_view *view)
{
    bool duplicates = slice_is(view->type, "observation.emitted");
    if (!view->decides && duplicates && (view->count == 0 || !view->keyed || !view->dedupe)) {
        fail(top, "count"); /* coalesced duplicates need a count and a key */
    }
    if (!view->decides && !duplicates && !view->archives && !slice_is(view->type, "access.read") &&
        !slice_is(view->type, "config.changed") && !slice_is(view->type, "delivery.acknowledged") &&
        !slice_is(view->type, "evidence.interrupted")) {
        fail(top, "decided");
    }
}

static enum status read_members(
    const struct json_value *object, struct arena *arena, struct entry_view *view, struct err *err)
{
    struct members top = {.object = object};
    view->seq = u64_of(&top, "seq", false);
    view->chain_id = text_of(&top, "chain_id");
    view->type = text_of(&top, "type");
    view->lifecycle_state = text_of(&top, "lifecycle_state");
    view->effect_id = text_if(&top, "effect_id");
    view->command_id = text_if(&top, "command_id");
    view->provider_ref = text_if(&top, "provider_ref");
    view->count = u64_of(&top, "count", true);
    uint64_t version = u64_of(&top, "v", true);
    if (version != 0 && version != 2) {
        fail(&top, "v");
    }
    if (view->chain_id.len != 36) {
        fail(&top, "chain_id");
    }
    if (!kind_id_read(text_of(&top, "operation_id"), &view->kind, &view->operation_id)) {
        view->kind = RECORD_OPERATION;
        fail(&top, "operation_id");
    }
    read_key(&top, view);
    read_source(&top, &view->source);
    const struct json_value *decided = member(&top, "decided", JSON_OBJECT, true);
    if (decided != NULL && top.wrong == NULL) {
        view->decides = true;
        const char *wrong = read_decided(decided, arena, view);
        if (wrong != NULL) {
            fail(&top, wrong);
        }
    }
    if (top.wrong == NULL && version == 2 && view->decides) {
        /* The document has the word of the record's kind; entry_form.c has compared them. */
        struct members outcome = {.object = member(&top, "outcome", JSON_OBJECT, true)};
        view->lifecycle_state = text_of(&outcome, "status");
    }
    if (top.wrong == NULL) {
        read_dedupe(&top, view);
        read_conflict(&top, view);
        read_archived(&top, view);
        check_note(&top, view);
        check_echoes(&top, view);
    }
    if (top.wrong != NULL) {
        return err_set(err, E_CORRUPT, "member '%s' of the entry is missing or invalid", top.wrong);
    }
    return OK;
}

/* Checks everything that decide() asserts about a request: these bytes come from a disk. */
static enum status check_request(const struct entry_view *view, struct err *err)
{
    ASSERT(view->decides);
    if (request_by_key(view->request.kind) && !view->keyed) {
        return err_set(
            err, E_CORRUPT, "a %s without its key", request_kind_name(view->request.kind));
    }
    enum status status = request_check(&view->request, err);
    if (status != OK) {
        err_prefix(err, "the request in the entry is not one");
        return E_CORRUPT;
    }
    return OK;
}

static enum status check_canonical(
    struct slice bytes, const struct json_value *value, struct buf *scratch, struct err *err)
{
    struct jcs_report report = {0};
    buf_clear(scratch);
    enum status status = jcs_write(value, scratch, &report, err);
    if (status == E_NOMEM) {
        return status;
    }
    if (status != OK || report.lossy_count > 0 || !slice_equal(bytes, buf_view(scratch))) {
        return err_set(err, E_CORRUPT, "the entry is not in canonical form");
    }
    return OK;
}

/* The full document. Version 2 is accepted only in its one stored form: everything that can be left
 * out is left out. */
static enum status read_full(const struct entry *entry, struct arena *arena, struct buf *scratch,
    struct slice *ret_full, struct err *err)
{
    if (!entry_is_version_2(entry->bytes)) {
        *ret_full = entry->bytes;
        return OK;
    }
    struct entry full = *entry;
    buf_clear(scratch);
    enum status status = entry_expand(entry, scratch);
    status = status == OK ? arena_copy(arena, buf_view(scratch), &full.bytes) : status;
    if (status == OK) {
        buf_clear(scratch);
        status = entry_contract(&full, scratch);
    }
    if (status == E_NOMEM) {
        return err_set(err, status, "out of memory for an entry");
    }
    if (status != OK || !slice_equal(entry->bytes, buf_view(scratch))) {
        return err_set(err, E_CORRUPT, "the entry is not in the stored form of version 2");
    }
    *ret_full = full.bytes;
    return OK;
}

enum status entry_view_read(const struct entry *entry, struct arena *arena, struct buf *scratch,
    struct entry_view *ret_view, struct err *err)
{
    const struct json_value *value;
    struct entry_view view = {0};
    struct slice bytes;
    enum status status = read_full(entry, arena, scratch, &bytes, err);
    if (status != OK) {
        return status;
    }
    status = json_read(bytes, arena, &value, err);
    if (status != OK) {
        err_prefix(err, "the entry is not JSON");
        return status == E_NOMEM ? status : E_CORRUPT;
    }
    if (!json_is(value, JSON_OBJECT)) {
        return err_set(err, E_CORRUPT, "the entry is not a JSON object");
    }
    status = check_canonical(bytes, value, scratch, err);
    if (status == OK) {
        status = read_members(value, arena, &view, err);
    }
    if (status == OK && view.decides) {
        status = check_request(&view, err);
    }
    if (status == OK) {
        ASSERT(!view.decides || view.moment.now_ms > 0);
        *ret_view = view;
    }
    return status;
}

bool entry_view_has_ref(const struct entry_view *view, struct slice effect_id)
{
    bool is_effect = view->kind == RECORD_EFFECT;
    bool is_old = !is_effect || (view->command_id.len == 0 && view->provider_ref.len == 0);
    return (is_effect && slice_equal(view->provider_ref, effect_id)) ||
           (is_old && slice_equal(view->effect_id, effect_id));
}

/* Whether the entry's name equals a JSON string of the detail. */
static bool name_equals(struct slice name, struct slice quoted, struct buf *scratch)
{
    buf_clear(scratch);
    jcs_put_string(scratch, name);
    return buf_status(scratch) == OK && slice_equal(buf_view(scratch), quoted);
}

bool entry_view_has_names(
    const struct entry_view *view, const struct record *record, struct buf *scratch)
{
    struct effect_names names = effect_names_of(record->detail);
    char id[KIND_ID_TEXT_BYTES];
    bool is_old = view->provider_ref.len == 0 && slice_equal(view->effect_id, record->effect_id);
    if (record->kind != RECORD_EFFECT || is_old) {
        return true;
    }
    bool is_named =
        names.effect_id.len > 0
            ? name_equals(view->effect_id, names.effect_id, scratch)
            : slice_is(view->effect_id, kind_id_put(id, RECORD_EFFECT, &record->operation_id));
    bool is_linked = view->command_id.len > 0
                         ? name_equals(view->command_id, names.command_id, scratch)
                         : names.command_id.len == 0;
    return is_named && is_linked;
}
