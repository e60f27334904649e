/* The effect document (docs/effects.md), and the answer that is one. */
#include <string.h>

#include "base/macros.h"
#include "effect/impl.h"

/* ---- members ----------------------------------------------------------------------------- */

static void put_names(
    struct jsonw *json, const struct record *record, const struct effect_detail *detail)
{
    char id[KIND_ID_TEXT_BYTES];
    jsonw_bytes(json, "effect_id", effect_name(record, detail, id));
    if (detail->effect_id.len > 0) { /* the id for paths */
        jsonw_str(json, "once_effect_id", kind_id_put(id, RECORD_EFFECT, &record->operation_id));
    }
    jsonw_bytes_some(json, "command_id", detail->command_id);
    jsonw_bytes(json, "tenant", record->key.tenant);
    jsonw_bytes(json, "idempotency_key", record->key.key);
    jsonw_bytes(json, "effect_type", record->key.scope);
    jsonw_raw_some(json, "target", detail->target);
    if (detail->ordinal != 0) {
        jsonw_i64(json, "ordinal", detail->ordinal);
    }
}

static void put_state(struct jsonw *json, const struct record *record)
{
    jsonw_str(json, "status", kind_word(RECORD_EFFECT, record->status, record->attempt));
    jsonw_bool(json, "uncertain", kind_uncertain(RECORD_EFFECT, record->status));
    if (record->status == RECORD_COMPENSATING) { /* CCO-4 has no word for it */
        jsonw_bool(json, "compensating", true);
    }
    jsonw_u64(json, "attempt", record->attempt);
    if (record->status == RECORD_PENDING) {
        jsonw_time(json, "next_attempt_at", record->due_ms);
    }
    jsonw_time(json, "created_at", record->created_ms);
    jsonw_time(json, "updated_at", record->updated_ms);
    jsonw_u64(json, "duplicates", record->duplicates);
    jsonw_bytes_some(json, "reason", record->reason);
}

static void put_ack(
    struct jsonw *json, const struct record *record, const struct effect_detail *detail)
{
    char id[KIND_ID_TEXT_BYTES];
    if (detail->ack == EFFECT_ACK_NONE) {
        return;
    }
    jsonw_open(json, "acknowledgement", '{');
    jsonw_bytes(json, "effect_id", effect_name(record, detail, id));
    jsonw_str(json, "status", effect_ack_name(detail->ack));
    jsonw_bytes_some(json, "provider_ref", detail->provider_ref);
    jsonw_time(json, "timestamp", detail->ack_ms);
    jsonw_bool(json, "retryable", detail->retryable);
    jsonw_close(json, '}');
}

/* Both sides of a compensation. */
static void put_links(
    struct jsonw *json, const struct effect_document *document, const struct effect_detail *detail)
{
    char id[KIND_ID_TEXT_BYTES];
    const struct record *undo = document->compensation;
    if (undo != NULL) {
        jsonw_open(json, "compensation", '{');
        jsonw_str(json, "effect_id", kind_id_put(id, RECORD_EFFECT, &undo->operation_id));
        jsonw_str(json, "status", kind_word(RECORD_EFFECT, undo->status, undo->attempt));
        jsonw_close(json, '}');
    }
    if (!op_id_absent(&detail->compensates)) {
        jsonw_str(json, "compensates", kind_id_put(id, RECORD_EFFECT, &detail->compensates));
    }
}

/* x_* and extensions, each under its own name: the names were checked when it was made. */
static void put_extensions(struct jsonw *json, const struct effect_detail *detail)
{
    struct slice all = detail->extensions;
    if (all.len > 2) { /* "{…}" */
        buf_char(json->out, ',');
        buf_slice(json->out, slice_of(all.data + 1, all.len - 2));
    }
}

/* ---- the payload ------------------------------------------------------------------------- */

/* The redacted form that was kept; else the payload, if it is still kept, redacted now. */
static enum status put_payload(struct jsonw *json, struct effects *effects, struct arena *arena,
    const struct effect_document *document, const struct effect_detail *detail, struct err *err)
{
    const struct record *record = document->record;
    struct mem mem = arena_mem(arena);
    struct buf plain, shown;
    const struct json_value *payload;
    bool is_redacted = detail->redacted.len > 0;
    struct slice sealed = is_redacted ? detail->redacted : document->request_body;
    if (sealed.len == 0 || effects->vault == NULL) {
        return OK;
    }
    buf_init(&plain, &mem, EFFECT_ANSWER_BYTES_MAX);
    enum status status = effect_open(effects->vault, &record->key, sealed, &plain, err);
    if (status == OK && is_redacted) {
        jsonw_raw(json, "payload", buf_view(&plain));
        return OK;
    }
    status = status == OK ? json_read(buf_view(&plain), arena, &payload, err) : status;
    if (status == E_INVALID || status == E_CORRUPT) { /* the rest of the effect can be read */
        jsonw_str(json, "payload_unreadable", err->text);
        return OK;
    }
    if (status != OK) {
        return status;
    }
    struct config *config = effects_config(effects);
    buf_init(&shown, &mem, EFFECT_ANSWER_BYTES_MAX);
    status = effect_redact(
        config_effect_find(&config->effects, record->key.scope), payload, arena, &shown, err);
    if (status == OK) {
        jsonw_raw(json, "payload", buf_view(&shown));
    }
    config_free(config);
    return status;
}

enum status effect_document_put(struct jsonw *json, struct effects *effects, struct arena *arena,
    const struct effect_document *document, struct err *err)
{
    const struct record *record = document->record;
    struct effect_detail detail;
    enum status status = effect_detail_decode(record->detail, arena, &detail, err);
    if (status != OK) {
        return status;
    }
    jsonw_str_some(json, "decision", document->decision);
    put_names(json, record, &detail);
    put_state(json, record);
    put_ack(json, record, &detail);
    put_links(json, document, &detail);
    jsonw_raw_some(json, "trace", record->trace);
    jsonw_raw_some(json, "policy_refs", detail.policy_refs);
    put_extensions(json, &detail);
    return document->has_payload ? put_payload(json, effects, arena, document, &detail, err) : OK;
}

/* ---- an answer --------------------------------------------------------------------------- */

/* One effect to be shown, and then the one that compensates it. */
struct showing {
    struct effect_show show;
    const struct record *record;
    struct slice request_body;
};

struct show_query {
    struct api_query query;
    struct showing *showing;
};

static void answer_document(
    struct api_request *request, const struct showing *showing, const struct record *undo)
{
    struct err err = {.status = OK};
    struct buf out;
    struct jsonw json = {.out = &out};
    struct effect_document document = {.record = showing->record,
        .compensation = undo,
        .request_body = showing->request_body,
        .decision = showing->show.decision,
        .has_payload = true};
    buf_init(&out, &request->mem, EFFECT_ANSWER_BYTES_MAX);
    jsonw_open(&json, NULL, '{');
    enum status status =
        effect_document_put(&json, request->state, request->exchange->arena, &document, &err);
    jsonw_close(&json, '}');
    if (status != OK) {
        api_fail(request, &err);
    } else if (buf_status(&out) != OK) {
        api_fail_memory(request);
    } else {
        api_answer_begin(request, showing->show.status);
        api_answer_end(request, SLICE_LIT("application/json"), buf_view(&out), true);
    }
}

static void answer_undo(struct api_query *query)
{
    struct showing *showing = CONTAINER_OF(query, struct show_query, query)->showing;
    answer_document(query->request, showing, query->query.record);
}

static struct show_query *ask(
    struct api_request *request, struct showing *showing, void (*answer)(struct api_query *query))
{
    struct show_query *self = arena_zalloc(request->exchange->arena, sizeof *self);
    if (self == NULL) {
        api_fail_memory(request);
        return NULL;
    }
    self->showing = showing;
    self->query.answer = answer;
    self->query.query.kind = QUERY_OPERATION;
    self->query.query.kinds = STORE_KIND(RECORD_EFFECT);
    return self;
}

/* Its compensation is found by its key, which is known. */
static void answer_effect(struct api_query *query)
{
    struct api_request *request = query->request;
    struct showing *showing = CONTAINER_OF(query, struct show_query, query)->showing;
    struct arena *arena = request->exchange->arena;
    struct effect_detail detail;
    struct record_key key;
    struct err err = {.status = OK};
    if (query->query.record == NULL) {
        effects_refuse_missing(request);
        return;
    }
    showing->record = query->query.record;
    showing->request_body = query->query.request_body;
    enum status status = effect_detail_decode(showing->record->detail, arena, &detail, &err);
    if (status == OK && detail.compensation.len > 0) {
        status = effect_undo_key(showing->record, detail.compensation, arena, &key, &err);
        struct show_query *next = status == OK ? ask(request, showing, answer_undo) : NULL;
        if (next != NULL) {
            next->query.query.key = key;
            api_query_run(&next->query, request);
        } else if (status != OK) {
            api_fail(request, &err);
        }
        return;
    }
    answer_document(request, showing, NULL);
}

void effects_show(struct api_request *request, const struct effect_show *show)
{
    struct showing *showing = arena_zalloc(request->exchange->arena, sizeof *showing);
    if (showing == NULL) {
        api_fail_memory(request);
        return;
    }
    showing->show = *show;
    struct show_query *self = ask(request, showing, answer_effect);
    if (self != NULL) {
        self->query.query.operation_id = show->id;
        api_query_run(&self->query, request);
    }
}

void effect_get(struct api_request *request)
{
    struct effect_show show = {.status = 200};
    if (effects_id(request, &show.id)) {
        effects_show(request, &show);
    }
}
