#include "lib/answer.h"

#include <string.h>

#include "base/check.h"
#include "canon/payload.h"

static_assert((int)ONCE_FIRST_SEEN == (int)DECISION_FIRST_SEEN, "public numbers are the core's");
static_assert((int)ONCE_HELD_UNKNOWN == (int)DECISION_HELD_UNKNOWN, "public numbers");
static_assert((int)ONCE_SEALED == (int)DECISION_SEALED, "public numbers");
static_assert((int)ONCE_STALE_VERSION == (int)DECISION_STALE_VERSION, "public numbers");
static_assert((int)ONCE_STILL_RUNNING == (int)DECISION_STILL_RUNNING, "public numbers");
static_assert((int)ONCE_STATUS_IN_PROGRESS == (int)RECORD_IN_PROGRESS, "public numbers");
static_assert((int)ONCE_COMPENSATED == (int)RECORD_COMPENSATED, "public numbers");
static_assert(sizeof((struct once_answer *)0)->operation_id == OP_ID_TEXT_BYTES, "same text");

/* A block that is filled in two passes: the first only counts. */
struct pack {
    char *place; /* NULL while counting */
    size_t used; /* bytes so far */
};

static void *pack_room(struct pack *pack, size_t size)
{
    char *at = pack->place == NULL ? NULL : pack->place + pack->used;
    pack->used += size;
    return at;
}

/* A terminated copy. Bodies are terminated too: it costs a byte and prevents bugs. */
static const char *pack_text(struct pack *pack, struct slice text)
{
    char *at = pack_room(pack, text.len + 1);
    if (at != NULL) {
        if (text.len > 0) {
            memcpy(at, text.data, text.len);
        }
        at[text.len] = '\0';
    }
    return at;
}

static struct once_bytes pack_body(struct pack *pack, struct slice body)
{
    struct once_bytes bytes = {NULL, body.len};
    if (body.len > 0) {
        bytes.data = pack_text(pack, body);
    }
    return bytes;
}

static void pack_names(
    struct pack *pack, const struct record *record, struct once_operation *ret_operation)
{
    ret_operation->tenant = pack_text(pack, record->key.tenant);
    ret_operation->scope = pack_text(pack, record->key.scope);
    ret_operation->principal = pack_text(pack, record->key.principal);
    ret_operation->key = pack_text(pack, record->key.key);
    ret_operation->effect_id = pack_text(pack, record->effect_id);
    ret_operation->reason = pack_text(pack, record->reason);
    ret_operation->trace = pack_text(pack, record->trace);
    ret_operation->source.type = pack_text(pack, record->source.type);
    ret_operation->source.id = pack_text(pack, record->source.id);
    ret_operation->source.version = pack_text(pack, record->source.version);
}

static void pack_outcome(
    struct pack *pack, const struct operation_parts *parts, struct once_operation *ret_operation)
{
    const struct outcome *outcome = &parts->record->outcome;
    ret_operation->outcome.code = outcome->code;
    ret_operation->outcome.meta = pack_body(pack, outcome->meta);
    ret_operation->outcome.body = pack_body(pack, parts->outcome_body);
    ret_operation->outcome.body.size = (size_t)outcome->body.bytes;
    ret_operation->outcome_retained = outcome->body.retained;
    ret_operation->request = pack_body(pack, parts->request_body);
    ret_operation->request_is_json = parts->record->fingerprint_version == FINGERPRINT_CANONICAL;
}

static const struct once_operation *pack_operation(
    struct pack *pack, const struct operation_parts *parts)
{
    const struct record *record = parts->record;
    struct once_operation *place = pack_room(pack, sizeof *place);
    struct once_operation operation = {
        .status = (enum once_status)record->status,
        .fence = record->fence,
        .attempt = record->attempt,
        .duplicates = record->duplicates,
        .created_ms = record->created_ms,
        .updated_ms = record->updated_ms,
        .sealed_ms = record->sealed_ms,
        .lease_expires_ms = record->lease_expires_ms,
        .window_expires_ms = record->window_expires_ms,
        .window_ms = record->window_ms,
    };
    (void)op_id_put(operation.operation_id, &record->operation_id);
    memcpy(operation.fingerprint, record->fingerprint.bytes, sizeof operation.fingerprint);
    pack_names(pack, record, &operation);
    pack_outcome(pack, parts, &operation);
    if (place != NULL) {
        *place = operation;
    }
    return place;
}

/* Only the holder gets the fence: a caller without a grant must not seal by mistake. */
static bool shows_fence(const struct decision *decision)
{
    switch (decision->kind) {
    case DECISION_FIRST_SEEN:
    case DECISION_SEALED:
    case DECISION_RELEASED:
    case DECISION_UNKNOWN:
    case DECISION_RENEWED:
    case DECISION_RESOLVED: return true;
    case DECISION_DUPLICATE_REPLAYED:
    case DECISION_IN_PROGRESS:
    case DECISION_CONFLICT_REJECTED:
    case DECISION_HELD_UNKNOWN:
    case DECISION_NOT_FOUND:
    case DECISION_STALE_FENCE:
    case DECISION_ALREADY_SEALED:
    case DECISION_STILL_RUNNING:
    case DECISION_STALE_VERSION:
    case DECISION_NOTHING:
    case DECISION_ENQUEUED:
    case DECISION_CLAIMED:
    case DECISION_DONE:
    case DECISION_NOT_DUE:
    case DECISION_TOO_LATE:
    case DECISION_WRONG_STATUS: break;
    }
    return false;
}

static struct once_answer *pack_answer(struct pack *pack, const struct answer_parts *parts)
{
    const struct decision *decision = parts->decision;
    struct once_answer *place = pack_room(pack, sizeof *place);
    struct once_answer answer = {
        .decision = (enum once_decision)decision->kind,
        .rule = decision->rule,
        .repeated = decision->repeated,
        .fence = shows_fence(decision) ? decision->next.fence : 0,
        .attempt = decision->next.attempt,
        .lease_expires_ms = decision->next.lease_expires_ms,
        .retry_after_ms = parts->retry_after_ms,
        .diff_truncated = parts->diff_truncated,
        .effect_refused = (int)parts->effect_refused,
    };
    if (decision->next.fence > 0 && parts->effect_refused == 0) { /* R1: there is a record */
        (void)op_id_put(answer.operation_id, &decision->next.operation_id);
    }
    if (parts->operation.record != NULL) {
        answer.operation = pack_operation(pack, &parts->operation);
    }
    if (parts->diff.len > 0) {
        answer.diff = pack_text(pack, parts->diff);
    }
    if (parts->effects.len > 0) {
        answer.effects = pack_text(pack, parts->effects);
    }
    if (place != NULL) {
        *place = answer;
    }
    return place;
}

size_t answer_bytes_max(void)
{
    enum {
        NAMES = LIMIT_TENANT_BYTES_MAX + LIMIT_SCOPE_BYTES_MAX + LIMIT_PRINCIPAL_BYTES_MAX +
                LIMIT_KEY_BYTES_MAX + LIMIT_EFFECT_ID_BYTES_MAX + LIMIT_REASON_BYTES_MAX +
                LIMIT_TRACE_BYTES_MAX + 3 * LIMIT_SOURCE_BYTES_MAX,
        TERMINATORS = 11, /* of the ten names and of the meta */
    };
    return sizeof(struct once_answer) + sizeof(struct once_operation) + NAMES + TERMINATORS;
}

size_t answer_bytes(const struct answer_parts *parts)
{
    struct pack pack = {.place = NULL};
    (void)pack_answer(&pack, parts);
    return pack.used;
}

struct once_answer *answer_put(const struct answer_parts *parts, void *place)
{
    struct pack pack = {.place = place};
    return pack_answer(&pack, parts);
}

struct once_operation *operation_new(const struct mem *mem, const struct operation_parts *parts)
{
    struct pack counted = {.place = NULL};
    (void)pack_operation(&counted, parts);
    struct pack pack = {.place = mem_alloc(mem, counted.used)};
    if (pack.place == NULL) {
        return NULL;
    }
    (void)pack_operation(&pack, parts);
    ASSERT(pack.used == counted.used);
    return (struct once_operation *)(void *)pack.place;
}
