#include "command/document.h"

#include <stdio.h>
#include <string.h>

#include "base/uuid.h"
#include "command/recovery.h"
#include "engine/operation_document.h"
#include "engine/query.h"

const char *document_status(const struct record *record, const struct detail *detail)
{
    if (record->status == RECORD_PENDING && detail->confirmed_ms > 0 && record->attempt == 0) {
        return "confirmed";
    }
    if (recovery_is_blocked(record)) {
        return "blocked";
    }
    return kind_word(RECORD_COMMAND, record->status, record->attempt);
}

struct slice document_id(
    const struct record *record, const struct detail *detail, char text[KIND_ID_TEXT_BYTES])
{
    return detail->command_id.len > 0
               ? detail->command_id
               : slice_str(kind_id_put(text, RECORD_COMMAND, &record->operation_id));
}

static void put_intent(struct jsonw *json, const struct detail *detail)
{
    const char *dot = memchr(detail->command.data, '.', detail->command.len);
    size_t len = dot == NULL ? detail->command.len : (size_t)(dot - detail->command.data);
    jsonw_bytes(json, "command", detail->command);
    jsonw_open(json, "intent", '{');
    jsonw_bytes(json, "entity", slice_of(detail->command.data, len));
    if (dot != NULL) {
        jsonw_bytes(json, "action", slice_of(dot + 1, detail->command.len - len - 1));
    }
    if (detail->target.len > 0) {
        jsonw_raw(json, "target", detail->target);
    }
    jsonw_close(json, '}');
    if (detail->args.len > 0) {
        jsonw_raw(json, "args", detail->args);
    }
}

/* An attempt may have taken effect, and nothing has settled that. */
static bool is_uncertain(const struct record *record, const struct detail *detail)
{
    return !record_sealed(record) && (record->status == RECORD_UNKNOWN || detail->is_uncertain);
}

/* A step of the lifecycle, and when it was reached. */
static void put_step(struct jsonw *json, const char *state, int64_t ms)
{
    jsonw_open(json, NULL, '{');
    jsonw_str(json, "state", state);
    jsonw_time(json, "at", ms);
    jsonw_close(json, '}');
}

/* How a command ended that is undone now, and since when it is. */
static void put_undone(struct jsonw *json, const struct record *record, const struct detail *detail)
{
    put_step(json, detail->has_failed ? "failed" : "executed", record->sealed_ms);
    if (detail->compensating_ms > 0 && record->status != RECORD_COMPENSATING) {
        put_step(json, "compensating", detail->compensating_ms);
    }
}

/* When it reached the status that it has. The time of a step stays the same when a later one is
 * reached, so the start of a compensation is not the time of its commit. */
static int64_t reached_ms(const struct record *record, const struct detail *detail, bool is_undone)
{
    if (record->status == RECORD_COMPENSATING && detail->compensating_ms > 0) {
        return detail->compensating_ms;
    }
    return record_sealed(record) && !is_undone ? record->sealed_ms : record->updated_ms;
}

static void put_lifecycle(
    struct jsonw *json, const struct record *record, const struct detail *detail)
{
    static const struct digest none;
    bool asks = !digest_equal(&detail->token, &none);
    const char *status = document_status(record, detail);
    jsonw_open(json, "lifecycle", '[');
    put_step(json, "received", record->created_ms);
    if (asks) {
        put_step(json, "awaiting_confirmation", record->created_ms);
    }
    if (detail->confirmed_ms > 0) {
        put_step(json, "confirmed", detail->confirmed_ms);
    }
    if (record->attempt > 0 && !asks) {
        put_step(json, "started", record->created_ms);
    } else if (record->attempt > 0 && detail->confirmed_ms > 0) {
        put_step(json, "started", detail->confirmed_ms);
    }
    bool is_undone = record_sealed(record) && !(record_status_sealed(record->status) &&
                                                  record->status != RECORD_COMPENSATED);
    if (is_undone) {
        put_undone(json, record, detail);
    }
    if (strcmp(status, "received") != 0 && strcmp(status, "awaiting_confirmation") != 0 &&
        strcmp(status, "started") != 0 && strcmp(status, "confirmed") != 0) {
        put_step(json, status, reached_ms(record, detail, is_undone));
    }
    jsonw_close(json, ']');
}

static void put_confirmation(
    struct jsonw *json, const struct command_document *document, const struct detail *detail)
{
    const struct record *record = document->record;
    static const struct digest none;
    if (digest_equal(&detail->token, &none)) {
        return;
    }
    bool waits = record->status == RECORD_WAITING && record->attempt == 0;
    jsonw_open(json, "confirmation", '{');
    jsonw_str(json, "mode", detail->is_confirmed_by_step_up ? "step_up" : "confirm");
    if (waits) {
        jsonw_str_some(json, "token", document->token);
        jsonw_time(json, "expires_at", record->due_ms);
        jsonw_bytes_some(json, "prompt", document->prompt);
    }
    jsonw_time(json, "confirmed_at", detail->confirmed_ms);
    jsonw_bytes_some(json, "confirmed_by", detail->confirmed_by);
    jsonw_close(json, '}');
}

/* The handler's sentence for the user: the same on every replay (IDS-11). */
static void put_summary(struct jsonw *json, struct slice body, const struct mem *mem)
{
    struct arena arena;
    const struct json_value *root = NULL;
    arena_init(&arena, mem, 64 << 20);
    if (body.len > 0 && json_read(body, &arena, &root, NULL) == OK) {
        const struct json_value *summary = json_find(root, SLICE_LIT("summary"));
        if (json_is(summary, JSON_STRING)) {
            jsonw_bytes(json, "summary", json_text(summary));
        }
    }
    arena_release(&arena);
}

static void put_outcome(struct jsonw *json, const struct command_document *document)
{
    const struct record *record = document->record;
    char ref[8 + DIGEST_HEX_BYTES];
    char hex[DIGEST_HEX_BYTES];
    if (!record_sealed(record)) {
        return;
    }
    if (record->outcome.body.bytes > 0) {
        (void)snprintf(
            ref, sizeof ref, "sha256:%s", digest_put_hex(hex, &record->outcome.body.digest));
        jsonw_str(json, "outcome_ref", ref);
    }
    if (record->outcome.code > 0) {
        jsonw_i64(json, "outcome_code", record->outcome.code);
    }
    jsonw_bool(json, "outcome_retained", operation_document_is_retained(record));
    if (document->has_outcome) {
        put_summary(json, document->outcome_body, json->out->mem);
        operation_document_outcome(json, record, document->outcome_body, false);
    }
}

static void put_effects(struct jsonw *json, const struct detail *detail)
{
    if (detail->effects == 0) {
        return;
    }
    jsonw_open(json, "effects", '{');
    jsonw_u64(json, "count", detail->effects);
    jsonw_u64(json, "required_outstanding", detail->required);
    jsonw_u64(json, "async_completable", detail->async);
    jsonw_close(json, '}');
}

/* The last recovery of the command; the evidence has all of them. */
static void put_recovery(struct jsonw *json, const struct detail *detail)
{
    if (detail->recovery_id.len == 0) {
        return;
    }
    jsonw_open(json, "recovery", '{');
    jsonw_bytes(json, "recovery_id", detail->recovery_id);
    jsonw_bytes(json, "action", detail->recovery_action);
    jsonw_bytes_some(json, "actor", detail->recovery_by);
    jsonw_time(json, "at", detail->recovery_ms);
    jsonw_close(json, '}');
}

static void put_links(struct jsonw *json, const struct record *record)
{
    char id[KIND_ID_TEXT_BYTES];
    char url[96];
    (void)kind_id_put(id, RECORD_COMMAND, &record->operation_id);
    jsonw_str(json, "operation_id", id);
    (void)snprintf(url, sizeof url, "/v1/commands/%s", id);
    jsonw_str(json, "status_url", url);
    (void)snprintf(url, sizeof url, "/v1/evidence?operation_id=%s", id);
    jsonw_str(json, "evidence_url", url);
}

/* The ids of its entries, the oldest first. They name the entry without its contents, so reading
 * them leaves no access.read. */
static void put_evidence(struct jsonw *json, const struct query *evidence)
{
    if (evidence == NULL) {
        return;
    }
    jsonw_open(json, "evidence", '{');
    jsonw_open(json, "entry_ids", '[');
    for (size_t i = 0; i < evidence->count; i++) {
        const struct entry *entry = &evidence->entries[i].entry;
        char chain_id[UUID_TEXT_BYTES];
        char id[64];
        (void)uuid_put(chain_id, entry->chain_id);
        (void)snprintf(id, sizeof id, "ent_%.8s_%llu", chain_id, (unsigned long long)entry->seq);
        jsonw_str(json, NULL, id);
    }
    jsonw_close(json, ']');
    jsonw_bool(json, "complete", !evidence->has_more);
    jsonw_close(json, '}');
}

void document_put(
    struct jsonw *json, const struct command_document *document, const struct detail *detail)
{
    const struct record *record = document->record;
    char id[KIND_ID_TEXT_BYTES];
    if (document->decision != NULL) {
        jsonw_str(json, "decision", document->decision);
    }
    jsonw_bytes(json, "command_id", document_id(record, detail, id));
    jsonw_str(json, "status", document_status(record, detail));
    jsonw_bytes(json, "tenant_id", record->key.tenant);
    jsonw_bytes(json, "idempotency_key", record->key.key);
    jsonw_bytes(json, "actor_id", detail->actor_id);
    jsonw_bytes_some(json, "effective_actor_id", detail->effective_actor_id);
    put_intent(json, detail);
    jsonw_bool(json, "uncertain", is_uncertain(record, detail));
    jsonw_u64(json, "attempt", record->attempt);
    jsonw_u64(json, "duplicates", record->duplicates);
    jsonw_time(json, "created_at", record->created_ms);
    jsonw_time(json, "updated_at", record->updated_ms);
    jsonw_time(json, "sealed_at", record->sealed_ms);
    if (record->status == RECORD_PENDING) {
        jsonw_time(json, "next_attempt_at", record->due_ms);
    }
    jsonw_time(json, "ttl_expires_at", record->window_expires_ms);
    jsonw_bytes_some(json, "reason", record->reason);
    put_lifecycle(json, record, detail);
    put_confirmation(json, document, detail);
    put_outcome(json, document);
    put_effects(json, detail);
    put_recovery(json, detail);
    if (record->trace.len > 0) {
        jsonw_raw(json, "trace", record->trace);
    }
    put_links(json, record);
    put_evidence(json, document->evidence);
}
