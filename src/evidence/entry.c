#include "evidence/entry.h"

#include <string.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/macros.h"
#include "base/text.h"
#include "base/uuid.h"
#include "canon/jcs.h"
#include "core/effect_names.h"
#include "core/source.h"
#include "evidence/entry_form.h"
#include "evidence/note.h"

void chain_init(
    struct chain *chain, const struct store_head *head, const struct store_identity *identity)
{
    static_assert(sizeof chain->chain_id == UUID_TEXT_BYTES, "a UUID");
    *chain = (struct chain){.seq = head->seq, .hash = head->hash};
    memcpy(chain->id, identity->chain_id, sizeof chain->id);
    (void)uuid_put(chain->chain_id, identity->chain_id);
}

/* Members are written in the order of RFC 8785, so the text is canonical from the start. Each
 * helper writes `,"name":value`, and object_begun makes an object's first comma its brace.
 *
 * Every decision makes an entry, and the engine spends half its work for a call on writing and
 * hashing this text. So the helpers are always inline: the length of a name is then a compile-time
 * constant, and appending it is a comparison and two or three stores. */
#define INLINE static inline __attribute__((always_inline))

INLINE void put_text(struct buf *out, const char *name, struct slice text)
{
    buf_str(out, name);
    jcs_put_string(out, text);
}

INLINE void put_text_if(struct buf *out, const char *name, struct slice text)
{
    if (text.len > 0) {
        put_text(out, name, text);
    }
}

INLINE void put_str(struct buf *out, const char *name, const char *text)
{
    buf_str(out, name);
    buf_char(out, '"');
    buf_str(out, text); /* one of our own words: nothing to escape */
    buf_char(out, '"');
}

/* The same for a text whose length is known. */
INLINE void put_word(struct buf *out, const char *name, struct slice word)
{
    buf_str(out, name);
    buf_char(out, '"');
    buf_slice(out, word);
    buf_char(out, '"');
}

/* RFC 8785 would change a number beyond ENTRY_NUMBER_MAX, and a holder can present any 64-bit
 * fence. */
INLINE void put_u64(struct buf *out, const char *name, uint64_t value)
{
    buf_str(out, name);
    if (value > ENTRY_NUMBER_MAX) {
        buf_char(out, '"');
        buf_u64(out, value);
        buf_char(out, '"');
    } else {
        buf_u64(out, value);
    }
}

INLINE void put_digest(struct buf *out, const char *name, const struct digest *digest)
{
    buf_str(out, name);
    buf_char(out, '"');
    buf_hex(out, digest->bytes, sizeof digest->bytes);
    buf_char(out, '"');
}

/* The object whose members were appended from an offset on. */
static void object_begun(struct buf *out, size_t from)
{
    if (buf_status(out) == OK) {
        ASSERT(out->data[from] == ',');
        out->data[from] = '{';
    }
}

static void put_conflict(struct buf *out, const struct entry_facts *facts)
{
    ASSERT(facts->found != NULL); /* P7: there is a record to conflict with */
    put_digest(out, ",\"conflict\":{\"received_fingerprint\":", &facts->request->fingerprint);
    put_digest(out, ",\"stored_fingerprint\":", &facts->found->fingerprint);
    buf_char(out, '}');
}

static void put_outcome_facts(struct buf *out, const struct outcome *outcome)
{
    put_u64(out, ",\"outcome\":{\"bytes\":", outcome->body.bytes);
    buf_str(out, ",\"code\":");
    buf_i64(out, outcome->code);
    put_digest(out, ",\"digest\":", &outcome->body.digest);
    if (outcome->meta.len > 0) {
        struct digest meta;
        digest_sha256(outcome->meta.data, outcome->meta.len, &meta);
        put_digest(out, ",\"meta_digest\":", &meta);
    }
    buf_str(out, outcome->body.retained ? ",\"retained\":true}" : ",\"retained\":false}");
}

static void put_source(struct buf *out, const struct source *source)
{
    if (source->type.len + source->id.len + source->version.len == 0) {
        return;
    }
    put_text(out, ",\"source\":{\"id\":", source->id);
    put_text(out, ",\"type\":", source->type);
    put_text_if(out, ",\"version\":", source->version);
    buf_char(out, '}');
}

/* A record of the same key may belong to a later operation, which is not the one asked for. */
static bool found_named(const struct entry_facts *facts)
{
    return facts->found != NULL &&
           (request_by_key(facts->request->kind) ||
               op_id_equal(&facts->found->operation_id, &facts->request->operation_id));
}

enum record_kind entry_kind(const struct entry_facts *facts)
{
    const struct record *next = &facts->decision->next;
    return record_there(next)   ? next->kind
           : found_named(facts) ? facts->found->kind
                                : request_record_kind(facts->request);
}

INLINE void put_u64_if(struct buf *out, const char *name, uint64_t value)
{
    if (value != 0) {
        put_u64(out, name, value);
    }
}

static void put_parent(struct buf *out, const struct op_id *parent)
{
    char text[UUID_TEXT_BYTES];
    if (!op_id_absent(parent)) {
        put_str(out, ",\"parent\":", uuid_put(text, parent->bytes));
    }
}

static void put_detail(struct buf *out, struct slice detail)
{
    struct digest digest;
    if (detail.len > 0) {
        digest_sha256(detail.data, detail.len, &digest);
        put_digest(out, ",\"detail_digest\":", &digest);
    }
}

/* From "attempt" to "effect_id". */
static void put_decided_work(struct buf *out, const struct entry_facts *facts)
{
    const struct request *request = facts->request;
    const struct policy *policy = &request->policy;
    /* request_check ensures it: a negative number would be written as a large one. */
    ASSERT(policy->deadline_ms >= 0);
    ASSERT(request->delay_ms >= 0);
    if (facts->decision->next.attempt != 1) {
        put_u64(out, ",\"attempt\":", facts->decision->next.attempt);
    }
    put_u64_if(out, ",\"attempts_max\":", policy->attempts_max);
    put_u64_if(out, ",\"deadline_ms\":", (uint64_t)policy->deadline_ms);
    put_str(out, ",\"decision\":", decision_name(facts->decision->kind));
    put_u64_if(out, ",\"delay_ms\":", (uint64_t)request->delay_ms);
    put_detail(out, request->detail);
    if (request->door != RECORD_DOOR_NONE) {
        put_str(out, ",\"door\":", record_door_name(request->door));
    }
    /* The requested one; the record's own is at the top. They differ if a seal is refused. */
    if (entry_kind(facts) != RECORD_EFFECT) {
        put_text_if(out, ",\"effect_id\":", request->effect_id);
    }
}

/* From "fence" to "outcome". */
static void put_decided_grant(struct buf *out, const struct entry_facts *facts)
{
    const struct request *request = facts->request;
    bool takes_fence = request_takes_fence(request);
    bool asks_grant = request_asks_grant(request);
    ASSERT(!takes_fence || facts->moment.fence_next > 0); /* P4 */
    ASSERT(facts->moment.now_ms > 0);
    ASSERT(request->not_before_ms >= 0);
    ASSERT(request->policy.lease_ms >= 0);
    uint64_t fence = takes_fence ? facts->decision->next.fence : request->fence;
    if (fence != (takes_fence ? facts->moment.fence_next : 0)) {
        put_u64(out, ",\"fence\":", fence);
    }
    if (takes_fence) {
        put_u64(out, ",\"fence_next\":", facts->moment.fence_next);
    }
    if (request_by_key(request->kind)) {
        put_digest(out, ",\"fingerprint\":", &request->fingerprint);
        if (request->fingerprint_version != 1) {
            put_u64(out, ",\"fingerprint_version\":", request->fingerprint_version);
        }
    }
    put_u64_if(out, ",\"holder\":", request->holder);
    if (asks_grant || request->kind == REQUEST_RENEW) {
        put_u64(out, ",\"lease_ms\":", (uint64_t)request->policy.lease_ms);
    }
    put_u64_if(out, ",\"not_before_ms\":", (uint64_t)request->not_before_ms);
    put_u64(out, ",\"now_ms\":", (uint64_t)facts->moment.now_ms);
    if (asks_grant && request->policy.on_unknown != ON_UNKNOWN_HOLD) {
        put_str(out, ",\"on_unknown\":", on_unknown_name(request->policy.on_unknown));
    }
    if (request_settles(request)) {
        put_outcome_facts(out, &request->outcome);
    }
}

/* The status that the request names; NULL if it names none. An enqueue without one asks for
 * pending. */
static const char *status_named(const struct request *request)
{
    return !request_names_status(request->kind) ? NULL
           : (int)request->status == 0          ? record_status_name(RECORD_PENDING)
                                                : record_status_name(request->status);
}

/* The input of decide and the rule it applied: enough to decide again. */
static void put_decided(struct buf *out, const struct entry_facts *facts)
{
    const struct request *request = facts->request;
    const struct policy *policy = &request->policy;
    bool by_key = request_by_key(request->kind);
    ASSERT(facts->decision->rule != NULL); /* P10: needed to decide again */
    ASSERT(policy->window_ms >= 0);
    buf_str(out, ",\"decided\":");
    size_t from = out->len;
    put_decided_work(out, facts);
    put_decided_grant(out, facts);
    put_parent(out, &request->parent);
    if (entry_kind(facts) == RECORD_EFFECT) {
        put_text_if(out, ",\"provider_ref\":", request->effect_id);
    }
    put_str(out, ",\"request\":", request_kind_name(request->kind));
    if (by_key && policy->retry_failed) {
        buf_str(out, ",\"retry_failed\":true");
    }
    if (by_key && policy->retry_rejected) {
        buf_str(out, ",\"retry_rejected\":true");
    }
    put_str(out, ",\"rule\":", facts->decision->rule);
    put_text_if(out, ",\"sealed_version\":", facts->moment.version_sealed);
    if (by_key && source_ordered(&request->source)) {
        put_source(out, &request->source);
    }
    if (request_names_status(request->kind)) {
        put_str(out, ",\"status\":", status_named(request));
    }
    put_u64_if(out, ",\"version\":", found_named(facts) ? facts->found->version : 0);
    put_u64_if(out, ",\"wanted_version\":", request->version);
    put_u64_if(out, ",\"window_ms\":", (uint64_t)policy->window_ms);
    object_begun(out, from);
    buf_char(out, '}');
}

const char *entry_dedupe(enum decision_kind kind)
{
    switch (kind) {
    case DECISION_IN_PROGRESS:
    case DECISION_HELD_UNKNOWN: return "duplicate_replayed";
    case DECISION_STALE_VERSION: return "conflict_rejected";
    case DECISION_ENQUEUED: return "first_seen";
    case DECISION_FIRST_SEEN:
    case DECISION_DUPLICATE_REPLAYED:
    case DECISION_CONFLICT_REJECTED:
    case DECISION_SEALED:
    case DECISION_RELEASED:
    case DECISION_UNKNOWN:
    case DECISION_RENEWED:
    case DECISION_RESOLVED:
    case DECISION_NOT_FOUND:
    case DECISION_STALE_FENCE:
    case DECISION_ALREADY_SEALED:
    case DECISION_STILL_RUNNING:
    case DECISION_NOTHING:
    case DECISION_CLAIMED:
    case DECISION_DONE:
    case DECISION_NOT_DUE:
    case DECISION_TOO_LATE:
    case DECISION_WRONG_STATUS: break;
    }
    return decision_name(kind);
}

/* All that does not follow from the decision: which outcome was replayed. */
static void put_dedupe(struct buf *out, const struct entry_facts *facts)
{
    const struct body_ref *outcome = &facts->decision->next.outcome.body;
    if (request_by_key(facts->request->kind) &&
        facts->decision->kind == DECISION_DUPLICATE_REPLAYED && outcome->bytes > 0) {
        buf_str(out, ",\"dedupe\":{\"outcome_ref\":\"sha256:");
        buf_hex(out, outcome->digest.bytes, sizeof outcome->digest.bytes);
        buf_str(out, "\"}");
    }
}

/* For refusals: why nothing happened; otherwise the reason given. */
static struct slice entry_reason(const struct entry_facts *facts)
{
    switch (facts->decision->kind) {
    case DECISION_CONFLICT_REJECTED: return SLICE_LIT("idempotency_conflict");
    case DECISION_HELD_UNKNOWN: return SLICE_LIT("outcome_unknown");
    case DECISION_RENEWED: return SLICE_LIT("lease_renewed");
    case DECISION_NOT_FOUND:
    case DECISION_STALE_FENCE:
    case DECISION_ALREADY_SEALED:
    case DECISION_STILL_RUNNING:
    case DECISION_NOT_DUE:
    case DECISION_TOO_LATE:
    case DECISION_WRONG_STATUS:
    case DECISION_STALE_VERSION: return slice_str(decision_name(facts->decision->kind));
    case DECISION_FIRST_SEEN:
    case DECISION_DUPLICATE_REPLAYED:
    case DECISION_IN_PROGRESS:
    case DECISION_SEALED:
    case DECISION_RELEASED:
    case DECISION_UNKNOWN:
    case DECISION_RESOLVED:
    case DECISION_NOTHING:
    case DECISION_ENQUEUED:
    case DECISION_CLAIMED:
    case DECISION_DONE: break;
    }
    return facts->decision->repeated ? SLICE_LIT("repeated") : facts->decision->next.reason;
}

static void put_quoted_if(struct buf *out, const char *name, struct slice quoted)
{
    if (quoted.len > 0) {
        buf_str(out, name);
        buf_slice(out, quoted);
    }
}

/* Links an effect to its command and to the provider (CCO-8). The record's effect_id is the
 * provider's name for it; its own name is the caller's, or else its id, which is left out. So is
 * the id of a command (IDS-14). */
static void put_command(struct buf *out, const struct entry_facts *facts)
{
    const struct record *record = &facts->decision->next;
    if (entry_kind(facts) == RECORD_EFFECT) {
        put_quoted_if(out, ",\"command_id\":", effect_names_of(record->detail).command_id);
    }
}

static void put_effect(struct buf *out, const struct entry_facts *facts, struct slice operation_id)
{
    const struct record *record = &facts->decision->next;
    if (entry_kind(facts) != RECORD_EFFECT) {
        put_text_if(out, ",\"effect_id\":", record->effect_id);
        return;
    }
    struct slice given = effect_names_of(record->detail).effect_id;
    bool is_own = given.len == operation_id.len + 2 &&
                  memcmp(given.data + 1, operation_id.data, operation_id.len) == 0;
    put_quoted_if(out, ",\"effect_id\":", is_own ? SLICE_EMPTY : given);
}

/* The state and the type are left out where they are the usual ones after such a decision. */
static void put_state(struct buf *out, const struct entry_facts *facts, const char *state)
{
    const char *usual = entry_state_default(facts->decision->kind, status_named(facts->request));
    if (usual == NULL || strcmp(state, usual) != 0) {
        put_str(out, ",\"lifecycle_state\":", state);
    }
}

static void put_type(struct buf *out, const struct entry_facts *facts, const char *state)
{
    const char *type = entry_type(facts);
    if (strcmp(type, entry_type_default(facts->decision->kind, slice_str(state))) != 0) {
        put_str(out, ",\"type\":", type);
    }
}

static void put_reason(struct buf *out, struct slice reason)
{
    if (reason.len > 0) {
        put_text(out, ",\"outcome\":{\"reason\":", reason);
        buf_char(out, '}');
    }
}

/* If something happens to a command without a request, such as an expiry, it is the command's: so
 * all entries of a conversation can be found. */
static struct slice trace_of(const struct entry_facts *facts)
{
    const struct record *record = &facts->decision->next;
    bool is_own =
        facts->request->trace.len > 0 || !record_there(record) || record->kind != RECORD_COMMAND;
    return is_own ? facts->request->trace : record->trace;
}

static void put_trace(struct buf *out, struct slice trace)
{
    if (trace.len > 0) {
        buf_str(out, ",\"trace\":");
        buf_slice(out, trace); /* canonical JSON already */
    }
}

/* The stored form: without what entry_expand adds. */
static void put_entry(const struct entry_facts *facts, struct buf *out)
{
    const struct record *record = &facts->decision->next;
    const struct request *request = facts->request;
    bool known = record_there(record);
    const struct record_key *key = known ? &record->key : &request->key;
    const char *state = known ? record_status_name(record->status) : "absent";
    char id_text[KIND_ID_TEXT_BYTES];
    /* P9: a different tenant's record counts as absent. The janitor's requests have no tenant. */
    ASSERT(!known || request->key.tenant.len == 0 ||
           slice_equal(record->key.tenant, request->key.tenant));
    struct slice operation_id = slice_str(kind_id_put(
        id_text, entry_kind(facts), known ? &record->operation_id : &request->operation_id));

    put_text_if(out, ",\"actor\":", request->actor);
    put_command(out, facts);
    if (facts->decision->kind == DECISION_CONFLICT_REJECTED) {
        put_conflict(out, facts);
    }
    put_decided(out, facts);
    put_dedupe(out, facts);
    put_effect(out, facts, operation_id);
    put_text_if(out, ",\"idempotency_key\":", key->key);
    put_state(out, facts, state);
    put_word(out, ",\"operation_id\":", operation_id);
    put_reason(out, entry_reason(facts));
    put_text_if(out, ",\"principal\":", key->principal);
    if (entry_kind(facts) == RECORD_EFFECT) {
        put_text_if(out, ",\"provider_ref\":", record->effect_id);
    }
    put_text(out, ",\"scope\":", key->scope);
    put_source(out, known ? &record->source : &request->source);
    put_text(out, ",\"tenant_id\":", key->tenant);
    put_trace(out, trace_of(facts));
    put_type(out, facts, state);
}

void chain_append(struct chain *chain, struct entry *entry)
{
    ASSERT(chain->seq < UINT64_MAX);
    entry->seq = chain->seq + 1;
    memcpy(entry->chain_id, chain->id, sizeof entry->chain_id);
    entry_link(&chain->hash, entry, &entry->hash);
    chain->seq = entry->seq;
    chain->hash = entry->hash;
}

/* Ends the entry whose members were appended to out from an offset on, and chains it. */
static enum status append(struct chain *chain, struct buf *out, size_t from, struct entry *entry)
{
    buf_str(out, ENTRY_VERSION_2);
    object_begun(out, from);
    if (buf_status(out) != OK) {
        return buf_status(out);
    }
    entry->kind = ENTRY_EVIDENCE;
    ASSERT(out->len > from);
    entry->bytes = slice_of(out->data + from, out->len - from);
    ASSERT(entry->bytes.data[0] == '{');
    ASSERT(entry_is_version_2(entry->bytes));
    chain_append(chain, entry);
    return OK;
}

enum status entry_compose(
    struct chain *chain, const struct entry_facts *facts, struct buf *out, struct entry *ret_entry)
{
    ASSERT(facts->decision->kind != DECISION_NOTHING);
    size_t from = out->len;
    bool known = record_there(&facts->decision->next);
    *ret_entry = (struct entry){
        .operation_id = known ? facts->decision->next.operation_id : facts->request->operation_id,
        .tenant = known ? facts->decision->next.key.tenant : facts->request->key.tenant,
        .time_ms = facts->moment.now_ms,
    };
    put_entry(facts, out);
    return append(chain, out, from, ret_entry);
}

enum status entry_compose_archived(struct chain *chain, const struct store_removable *removable,
    int64_t now_ms, struct buf *out, struct entry *ret_entry)
{
    size_t from = out->len;
    char operation_id[OP_ID_TEXT_BYTES];
    char time[TEXT_TIME_BYTES];
    ASSERT(removable->seq > 0 && removable->seq <= chain->seq); /* P10: it was in this chain */
    *ret_entry = (struct entry){.time_ms = now_ms}; /* about no operation: the id is zero */
    put_digest(out, ",\"archived\":{\"hash\":", &removable->hash);
    put_u64(out, ",\"seq\":", removable->seq);
    put_str(out, "},\"lifecycle_state\":", "archived");
    put_str(out, ",\"occurred_at\":", text_put_time(time, now_ms));
    put_str(out, ",\"operation_id\":", op_id_put(operation_id, &ret_entry->operation_id));
    put_str(out, ",\"type\":", "evidence.archived");
    return append(chain, out, from, ret_entry);
}

/* ---- notes -------------------------------------------------------------------------------- */

enum status note_check(const struct note *note, struct err *err)
{
    const struct {
        const char *name;
        struct slice text;
        size_t bytes_max;
    } texts[] = {
        {"tenant", note->tenant, LIMIT_TENANT_BYTES_MAX},
        {"actor", note->actor, LIMIT_PRINCIPAL_BYTES_MAX},
        {"trace", note->trace, LIMIT_TRACE_BYTES_MAX},
        {"reason", note->reason, LIMIT_REASON_BYTES_MAX},
    };
    for (size_t i = 0; i < COUNT(texts); i++) {
        if (texts[i].text.len > texts[i].bytes_max || !text_utf8(texts[i].text)) {
            return err_set(
                err, E_INVALID, "%s of the note is too long or not valid UTF-8", texts[i].name);
        }
    }
    if (note->tenant.len == 0 && note->kind != NOTE_CONFIG_CHANGED &&
        note->kind != NOTE_INTERRUPTED && note->kind != NOTE_ACCESS_READ) {
        return err_set(err, E_INVALID, "the note has no tenant");
    }
    if (note->kind != NOTE_DUPLICATES) {
        return OK;
    }
    struct record_key key = note->key;
    enum status status = record_key_seal(&key, err);
    if (status == OK && !slice_equal(key.tenant, note->tenant)) {
        status = err_set(err, E_INVALID, "the note is about a different tenant's key"); /* P9 */
    }
    if (status == OK && (note->count == 0 || !digest_equal(&key.hash, &note->key.hash))) {
        status = err_set(err, E_INVALID, "the note has no count, or its key is not sealed");
    }
    return status;
}

static const char *note_type(enum note_kind kind)
{
    switch (kind) {
    case NOTE_ACCESS_READ: return "access.read";
    case NOTE_CONFIG_CHANGED: return "config.changed";
    case NOTE_ACKNOWLEDGED: return "delivery.acknowledged";
    case NOTE_INTERRUPTED: return "evidence.interrupted";
    case NOTE_DUPLICATES: break;
    }
    return "observation.emitted";
}

enum status note_compose(struct chain *chain, const struct note *note, const struct record *found,
    int64_t now_ms, struct buf *out, struct entry *ret_entry)
{
    bool duplicates = note->kind == NOTE_DUPLICATES;
    ASSERT(!duplicates || note->count > 0);                                /* note_check */
    ASSERT(!duplicates || slice_equal(note->key.tenant, note->tenant));    /* P9 */
    ASSERT(found == NULL || slice_equal(found->key.tenant, note->tenant)); /* P9 */
    const char *state = !duplicates     ? "noted"
                        : found == NULL ? "absent"
                                        : kind_word(found->kind, found->status, found->attempt);
    size_t from = out->len;
    char id_text[KIND_ID_TEXT_BYTES];
    char time[TEXT_TIME_BYTES];
    *ret_entry = (struct entry){
        .operation_id = found != NULL ? found->operation_id : note->operation_id,
        .tenant = note->tenant,
        .time_ms = now_ms,
    };
    enum record_kind about = note->about == 0 ? RECORD_OPERATION : note->about;
    struct slice operation_id = slice_str(
        kind_id_put(id_text, found != NULL ? found->kind : about, &ret_entry->operation_id));
    put_text_if(out, ",\"actor\":", note->actor);
    put_u64_if(out, ",\"count\":", note->count);
    if (duplicates) {
        put_str(out, ",\"dedupe\":{\"decision\":", "duplicate_replayed");
        buf_str(out, ",\"executed\":false");
        put_word(out, ",\"original_operation_id\":", operation_id);
        buf_char(out, '}');
    }
    put_text_if(out, ",\"idempotency_key\":", duplicates ? note->key.key : SLICE_EMPTY);
    put_str(out, ",\"lifecycle_state\":", state);
    put_str(out, ",\"occurred_at\":", text_put_time(time, now_ms));
    put_word(out, ",\"operation_id\":", operation_id);
    buf_str(out, ",\"outcome\":{");
    if (note->reason.len > 0) {
        put_text(out, "\"reason\":", note->reason);
        buf_char(out, ',');
    }
    put_str(out, "\"status\":", state);
    buf_char(out, '}');
    put_text_if(out, ",\"principal\":", duplicates ? note->key.principal : SLICE_EMPTY);
    if (duplicates) {
        put_text(out, ",\"scope\":", note->key.scope);
    }
    put_text(out, ",\"tenant_id\":", note->tenant);
    put_trace(out, note->trace);
    put_str(out, ",\"type\":", note_type(note->kind));
    return append(chain, out, from, ret_entry);
}
