#include "evidence/entry.h"

#include <string.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/text.h"
#include "base/uuid.h"
#include "canon/jcs.h"
#include "core/effect_names.h"
#include "core/source.h"
#include "evidence/note.h"

void chain_init(
    struct chain *chain, const struct store_head *head, const struct store_identity *identity)
{
    static_assert(sizeof chain->chain_id == UUID_TEXT_BYTES, "a UUID");
    *chain = (struct chain){.seq = head->seq, .hash = head->hash};
    (void)uuid_put(chain->chain_id, identity->chain_id);
    (void)text_put_time(chain->time, chain->time_ms);
}

void chain_hash(const struct digest *prev_hash, struct slice bytes, struct digest *ret_hash)
{
    ASSERT(bytes.len > 0);
    digest_sha256_2(prev_hash->bytes, sizeof prev_hash->bytes, bytes.data, bytes.len, ret_hash);
}

/* Members are written in the order of RFC 8785, so the text is canonical from the start. Each
 * helper writes `,"name":value`; the first member of an object is written separately.
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

/* Beyond 2^53 readers disagree about a JSON number, and RFC 8785 would change it. A holder can
 * present any 64-bit fence, so such a number is written as text (RFC 7493 section 2.2). */
INLINE void put_u64(struct buf *out, const char *name, uint64_t value)
{
    buf_str(out, name);
    if (value > UINT64_C(1) << 53) {
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
    put_u64(out, ",\"decided\":{\"attempt\":", facts->decision->next.attempt);
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
    put_u64(out, ",\"fence\":", takes_fence ? facts->decision->next.fence : request->fence);
    if (takes_fence) {
        put_u64(out, ",\"fence_next\":", facts->moment.fence_next);
    }
    if (request_by_key(request->kind)) {
        put_digest(out, ",\"fingerprint\":", &request->fingerprint);
        put_u64(out, ",\"fingerprint_version\":", request->fingerprint_version);
    }
    put_u64_if(out, ",\"holder\":", request->holder);
    if (asks_grant || request->kind == REQUEST_RENEW) {
        put_u64(out, ",\"lease_ms\":", (uint64_t)request->policy.lease_ms);
    }
    put_u64_if(out, ",\"not_before_ms\":", (uint64_t)request->not_before_ms);
    put_u64(out, ",\"now_ms\":", (uint64_t)facts->moment.now_ms);
    if (asks_grant) {
        put_str(out, ",\"on_unknown\":", on_unknown_name(request->policy.on_unknown));
    }
    if (request_settles(request)) {
        put_outcome_facts(out, &request->outcome);
    }
}

/* The input of decide and the rule it applied: enough to decide again. */
static void put_decided(struct buf *out, const struct entry_facts *facts)
{
    const struct request *request = facts->request;
    const struct policy *policy = &request->policy;
    bool by_key = request_by_key(request->kind);
    ASSERT(facts->decision->rule != NULL); /* P10: needed to decide again */
    ASSERT(policy->window_ms >= 0);
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
        /* An enqueue without a status asks for pending. */
        put_str(out, ",\"status\":",
            record_status_name((int)request->status == 0 ? RECORD_PENDING : request->status));
    }
    put_u64(out, ",\"version\":", found_named(facts) ? facts->found->version : 0);
    put_u64_if(out, ",\"wanted_version\":", request->version);
    put_u64_if(out, ",\"window_ms\":", (uint64_t)policy->window_ms);
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

static void put_dedupe(struct buf *out, const struct entry_facts *facts, struct slice operation_id)
{
    ASSERT(request_by_key(facts->request->kind));
    const char *decision = decision_name(facts->decision->kind);
    const char *told = entry_dedupe(facts->decision->kind);
    bool executed = facts->decision->kind == DECISION_FIRST_SEEN;
    put_str(out, ",\"dedupe\":{\"decision\":", told);
    if (strcmp(told, decision) != 0) {
        put_str(out, ",\"detail\":", decision);
    }
    buf_str(out, executed ? ",\"executed\":true" : ",\"executed\":false");
    put_word(out, ",\"original_operation_id\":", operation_id);
    if (facts->decision->kind == DECISION_DUPLICATE_REPLAYED &&
        facts->decision->next.outcome.body.bytes > 0) {
        buf_str(out, ",\"outcome_ref\":\"sha256:");
        buf_hex(out, facts->decision->next.outcome.body.digest.bytes, 32);
        buf_char(out, '"');
    }
    buf_char(out, '}');
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

static void put_outcome(struct buf *out, struct slice reason, const char *state)
{
    buf_str(out, ",\"outcome\":{");
    if (reason.len > 0) {
        put_text(out, "\"reason\":", reason);
        buf_char(out, ',');
    }
    put_str(out, "\"status\":", state);
    buf_char(out, '}');
}

static void put_entry_id(const struct chain *chain, struct buf *out)
{
    buf_str(out, ",\"entry_id\":\"ent_");
    buf_append(out, chain->chain_id, 8);
    buf_char(out, '_');
    buf_u64(out, chain->seq + 1);
    buf_char(out, '"');
}

/* Formatting the date costs more than all other numbers of the line, and all entries of a batch
 * have the same time. */
static struct slice chain_time(struct chain *chain, int64_t now_ms)
{
    if (chain->time_ms != now_ms) {
        (void)text_put_time(chain->time, now_ms);
        chain->time_ms = now_ms;
    }
    return slice_of(chain->time, TEXT_TIME_BYTES - 1);
}

static void put_quoted_if(struct buf *out, const char *name, struct slice quoted)
{
    if (quoted.len > 0) {
        buf_str(out, name);
        buf_slice(out, quoted);
    }
}

/* Links an effect to its command and to the provider (CCO-8). The record's effect_id is the
 * provider's name for it; its own name is the caller's, or else its id. */
static void put_command(struct buf *out, const struct entry_facts *facts, struct slice operation_id)
{
    const struct record *record = &facts->decision->next;
    enum record_kind kind = entry_kind(facts);
    if (kind == RECORD_COMMAND) {
        put_word(out, ",\"command_id\":", operation_id); /* IDS-14 */
    } else if (kind == RECORD_EFFECT) {
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
    put_quoted_if(out, ",\"effect_id\":", given);
    if (given.len == 0) {
        put_word(out, ",\"effect_id\":", operation_id);
    }
}

static void put_entry(struct chain *chain, const struct entry_facts *facts, struct buf *out)
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

    buf_char(out, '{');
    if (request->actor.len > 0) {
        put_text(out, "\"actor\":", request->actor);
        buf_char(out, ',');
    }
    put_word(out, "\"chain_id\":", slice_of(chain->chain_id, sizeof chain->chain_id - 1));
    put_command(out, facts, operation_id);
    if (facts->decision->kind == DECISION_CONFLICT_REJECTED) {
        put_conflict(out, facts);
    }
    put_decided(out, facts);
    if (request_by_key(request->kind)) {
        put_dedupe(out, facts, operation_id);
    }
    put_effect(out, facts, operation_id);
    put_entry_id(chain, out);
    put_text_if(out, ",\"idempotency_key\":", key->key);
    put_str(out, ",\"lifecycle_state\":", state);
    put_word(out, ",\"occurred_at\":", chain_time(chain, facts->moment.now_ms));
    put_word(out, ",\"operation_id\":", operation_id);
    put_outcome(out, entry_reason(facts), state);
    put_text_if(out, ",\"principal\":", key->principal);
    if (entry_kind(facts) == RECORD_EFFECT) {
        put_text_if(out, ",\"provider_ref\":", record->effect_id);
    }
    put_text(out, ",\"scope\":", key->scope);
    put_u64(out, ",\"seq\":", chain->seq + 1);
    put_source(out, known ? &record->source : &request->source);
    put_text(out, ",\"tenant_id\":", key->tenant);
    if (request->trace.len > 0) {
        buf_str(out, ",\"trace\":");
        buf_slice(out, request->trace); /* canonical JSON already */
    }
    put_str(out, ",\"type\":", entry_type(facts));
    buf_char(out, '}');
}

/* Chains the bytes that were appended to out from an offset on. */
static enum status append(struct chain *chain, struct buf *out, size_t from, struct entry *entry)
{
    if (buf_status(out) != OK) {
        return buf_status(out);
    }
    entry->kind = ENTRY_EVIDENCE;
    entry->seq = chain->seq + 1;
    ASSERT(out->len > from);
    ASSERT(chain->seq < UINT64_MAX);
    entry->bytes = slice_of(out->data + from, out->len - from);
    chain_hash(&chain->hash, entry->bytes, &entry->hash);
    ASSERT(entry->bytes.data[0] == '{');
    ASSERT(entry->bytes.data[entry->bytes.len - 1] == '}');
    chain->seq = entry->seq;
    chain->hash = entry->hash;
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
    put_entry(chain, facts, out);
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
    put_digest(out, "{\"archived\":{\"hash\":", &removable->hash);
    put_u64(out, ",\"seq\":", removable->seq);
    put_str(out, "},\"chain_id\":", chain->chain_id);
    put_entry_id(chain, out);
    put_str(out, ",\"lifecycle_state\":", "archived");
    put_str(out, ",\"occurred_at\":", text_put_time(time, now_ms));
    put_str(out, ",\"operation_id\":", op_id_put(operation_id, &ret_entry->operation_id));
    put_u64(out, ",\"seq\":", chain->seq + 1);
    put_str(out, ",\"type\":", "evidence.archived");
    buf_char(out, '}');
    return append(chain, out, from, ret_entry);
}

/* ---- showing ------------------------------------------------------------------------------ */

/* Moves *at past the string that begins there; false: it does not end. */
static bool skip_string(struct slice text, size_t *at)
{
    ASSERT(text.data[*at] == '"');
    for (size_t i = *at + 1; i < text.len; i++) {
        if (text.data[i] == '"') {
            *at = i + 1;
            return true;
        }
        i += text.data[i] == '\\';
    }
    return false;
}

/* Moves *at past the value that begins there: brackets are counted, strings skipped. */
static bool skip_value(struct slice text, size_t *at)
{
    size_t depth = 0;
    while (*at < text.len) {
        char c = text.data[*at];
        if (c == '"') {
            if (!skip_string(text, at)) {
                return false;
            }
            continue;
        }
        if (depth == 0 && (c == ',' || c == '}')) {
            return true;
        }
        depth += c == '{' || c == '[';
        depth -= c == '}' || c == ']';
        (*at)++;
    }
    return false;
}

/* Where the first member begins whose name does not sort before the given one; if there is none,
 * where the object ends. 0: the text is not an object. Canonical text has no spaces and our names
 * are ASCII, so byte order is the order of RFC 8785. */
static size_t member_place(struct slice text, const char *name)
{
    struct slice wanted = slice_str(name);
    size_t at = 1;
    if (text.len < 2 || text.data[0] != '{') {
        return 0;
    }
    while (at < text.len && text.data[at] == '"') {
        size_t start = at;
        if (!skip_string(text, &at)) {
            return 0;
        }
        struct slice found = slice_of(text.data + start + 1, at - start - 2);
        size_t less = found.len < wanted.len ? found.len : wanted.len;
        int order = memcmp(found.data, wanted.data, less);
        if (order > 0 || (order == 0 && found.len >= wanted.len)) {
            return start;
        }
        if (!skip_value(text, &at) || at >= text.len) {
            return 0;
        }
        at += text.data[at] == ',';
    }
    return at < text.len && text.data[at] == '}' ? at : 0;
}

/* Adds a member before the one at a place, or after the last one. */
static void put_member(
    struct buf *out, struct slice text, size_t place, const char *name, const struct digest *digest)
{
    ASSERT(place > 0 && place < text.len);
    bool last = text.data[place] == '}';
    buf_str(out, last ? ",\"" : "\"");
    buf_str(out, name);
    put_digest(out, "\":", digest);
    if (!last) {
        buf_char(out, ',');
    }
}

enum status entry_show(const struct entry *entry, const struct digest *prev_hash, struct buf *out)
{
    struct slice text = entry->bytes;
    size_t hash = member_place(text, "hash");
    size_t previous = member_place(text, "prev_hash");
    if (hash == 0 || previous == 0 || previous < hash) {
        return E_CORRUPT;
    }
    buf_slice(out, slice_of(text.data, hash));
    put_member(out, text, hash, "hash", &entry->hash);
    buf_slice(out, slice_of(text.data + hash, previous - hash));
    put_member(out, text, previous, "prev_hash", prev_hash);
    buf_slice(out, slice_of(text.data + previous, text.len - previous));
    return buf_status(out);
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
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
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
                                        : record_status_name(found->status);
    size_t from = out->len;
    char id_text[KIND_ID_TEXT_BYTES];
    *ret_entry = (struct entry){
        .operation_id = found != NULL ? found->operation_id : note->operation_id,
        .tenant = note->tenant,
        .time_ms = now_ms,
    };
    enum record_kind about = note->about == 0 ? RECORD_OPERATION : note->about;
    struct slice operation_id = slice_str(
        kind_id_put(id_text, found != NULL ? found->kind : about, &ret_entry->operation_id));
    buf_char(out, '{');
    if (note->actor.len > 0) {
        put_text(out, "\"actor\":", note->actor);
        buf_char(out, ',');
    }
    put_word(out, "\"chain_id\":", slice_of(chain->chain_id, sizeof chain->chain_id - 1));
    if (note->count > 0) {
        put_u64(out, ",\"count\":", note->count);
    }
    if (duplicates) {
        put_str(out, ",\"dedupe\":{\"decision\":", "duplicate_replayed");
        buf_str(out, ",\"executed\":false");
        put_word(out, ",\"original_operation_id\":", operation_id);
        buf_char(out, '}');
    }
    put_entry_id(chain, out);
    put_text_if(out, ",\"idempotency_key\":", duplicates ? note->key.key : SLICE_EMPTY);
    put_str(out, ",\"lifecycle_state\":", state);
    put_word(out, ",\"occurred_at\":", chain_time(chain, now_ms));
    put_word(out, ",\"operation_id\":", operation_id);
    put_outcome(out, note->reason, state);
    put_text_if(out, ",\"principal\":", duplicates ? note->key.principal : SLICE_EMPTY);
    if (duplicates) {
        put_text(out, ",\"scope\":", note->key.scope);
    }
    put_u64(out, ",\"seq\":", chain->seq + 1);
    put_text(out, ",\"tenant_id\":", note->tenant);
    if (note->trace.len > 0) {
        buf_str(out, ",\"trace\":");
        buf_slice(out, note->trace); /* canonical JSON already */
    }
    put_str(out, ",\"type\":", note_type(note->kind));
    buf_char(out, '}');
    return append(chain, out, from, ret_entry);
}
