#include "engine/operation_document.h"

#include "base/check.h"
#include "base/limits.h"
#include "base/text.h"
#include "canon/json.h"
#include "canon/payload.h"

enum {
    PLAIN_BYTES = 1536, /* of a document without texts chosen by callers */
    ESCAPED_BYTES = 6,  /* of one byte as \u00XX */
};

/* ---- the outcome ----------------------------------------------------------------------------- */

bool operation_document_is_retained(const struct record *record)
{
    return record->outcome.body.bytes == 0 || record->outcome.body.retained;
}

/* Whether an outcome can be put into a document unchanged. Its meta says that it came as JSON; its
 * form is checked too, because other doors may write any meta. */
static bool is_json(const struct outcome *outcome, struct slice body)
{
    return slice_equal(outcome->meta, OUTCOME_META_JSON) && json_framed(body) && text_utf8(body);
}

static bool is_absent(const struct record *record)
{
    const struct outcome *outcome = &record->outcome;
    bool is_marked = slice_equal(outcome->meta, OUTCOME_META_JSON);
    return !record_status_sealed(record->status) ||
           (is_marked && !operation_document_is_retained(record) && outcome->code == 0) ||
           (outcome->body.bytes == 0 && outcome->meta.len == 0 && outcome->code == 0);
}

void operation_document_outcome(
    struct jsonw *json, const struct record *record, struct slice body, bool null_when_absent)
{
    const struct outcome *outcome = &record->outcome;
    if (is_absent(record)) {
        if (null_when_absent) {
            jsonw_raw(json, "outcome", SLICE_LIT("null"));
        }
        return;
    }
    if (is_json(outcome, body)) {
        jsonw_raw(json, "outcome", body);
        return;
    }
    jsonw_open(json, "outcome", '{');
    jsonw_i64(json, "code", outcome->code);
    jsonw_bytes(json, "meta", outcome->meta);
    if (operation_document_is_retained(record)) {
        jsonw_bytes(json, "body", body);
    } else {
        jsonw_u64(json, "bytes", outcome->body.bytes);
    }
    jsonw_close(json, '}');
}

/* ---- the members ----------------------------------------------------------------------------- */

/* Tenant, names and counts. */
static void put_names(struct jsonw *json, const struct record *record)
{
    char id[OP_ID_TEXT_BYTES];
    jsonw_str(json, "operation_id", op_id_put(id, &record->operation_id));
    jsonw_str(json, "status", record_status_name(record->status));
    jsonw_bytes(json, "tenant", record->key.tenant);
    jsonw_bytes(json, "scope", record->key.scope);
    jsonw_bytes_some(json, "principal", record->key.principal);
    jsonw_bytes(json, "key", record->key.key);
    jsonw_u64(json, "fence", record->fence);
    jsonw_u64(json, "attempt", record->attempt);
    jsonw_u64(json, "duplicates", record->duplicates);
}

static void put_times(struct jsonw *json, const struct record *record)
{
    jsonw_time(json, "created_at", record->created_ms);
    jsonw_time(json, "first_seen_at", record->created_ms);
    jsonw_time(json, "updated_at", record->updated_ms);
    if (record->status == RECORD_UNKNOWN) {
        jsonw_time(json, "unknown_since", record->updated_ms); /* duplicates do not change it */
    }
    jsonw_time(json, "sealed_at", record->sealed_ms);
    jsonw_time(json, "lease_expires_at", record->lease_expires_ms);
    jsonw_time(json, "window_expires_at", record->window_expires_ms);
}

static void put_source(struct jsonw *json, const struct source *source)
{
    if (source->type.len + source->id.len + source->version.len == 0) {
        return;
    }
    jsonw_open(json, "source", '{');
    jsonw_bytes(json, "type", source->type);
    jsonw_bytes(json, "id", source->id);
    jsonw_bytes_some(json, "version", source->version);
    jsonw_close(json, '}');
}

static void put_request(struct jsonw *json, const struct record *record, struct slice body)
{
    if (body.len > 0 && record->fingerprint_version == FINGERPRINT_CANONICAL) {
        jsonw_raw(json, "request", body);
    } else {
        jsonw_bytes_some(json, "request", body);
    }
}

void operation_document_put(struct jsonw *json, const struct operation_document *document)
{
    const struct record *record = document->record;
    char hex[DIGEST_HEX_BYTES];
    ASSERT(record != NULL);
    put_names(json, record);
    put_times(json, record);
    jsonw_bytes_some(json, "effect_id", record->effect_id);
    jsonw_bytes_some(json, "reason", record->reason);
    jsonw_str(json, "fingerprint", digest_put_hex(hex, &record->fingerprint));
    put_source(json, &record->source);
    if (record->trace.len > 0) {
        jsonw_raw(json, "trace", record->trace);
    }
    if (record_status_sealed(record->status)) {
        jsonw_bool(json, "outcome_retained", operation_document_is_retained(record));
    }
    if (document->has_bodies) {
        operation_document_outcome(json, record, document->outcome_body, false);
        put_request(json, record, document->request_body);
    }
}

size_t operation_document_bytes_max(void)
{
    enum {
        NAMES = LIMIT_TENANT_BYTES_MAX + LIMIT_SCOPE_BYTES_MAX + LIMIT_PRINCIPAL_BYTES_MAX +
                LIMIT_KEY_BYTES_MAX + LIMIT_EFFECT_ID_BYTES_MAX + LIMIT_REASON_BYTES_MAX +
                3 * LIMIT_SOURCE_BYTES_MAX,
    };
    return PLAIN_BYTES + LIMIT_TRACE_BYTES_MAX + ESCAPED_BYTES * NAMES;
}
