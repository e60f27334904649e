#include "inbox/submission.h"

#include "base/check.h"
#include "base/macros.h"
#include "canon/jcs.h"
#include "canon/jsonw.h"
#include "canon/template.h"
#include "engine/operation_document.h"
#include "engine/request_builder.h"
#include "inbox/deliver.h"
#include "inbox/frame.h"

enum {
    ENVELOPE_BYTES_MAX = 16 << 20,
    RECEIPT_BYTES_MAX = 4096,
    TRACED_BYTES_MAX = 512, /* of an event's id: a trace has room for it */
    CODE = 202,             /* of the outcome: accepted */
    ROOTS = 7,
};

/* Of one attempt. */
struct submission {
    struct engine_call *enqueued; /* the last call for it; NULL: none was made */
};

/* ---- the envelope ------------------------------------------------------------------------ */

/* What a template can name. */
struct event_naming {
    struct json_value strings[ROOTS];
    struct template_root items[ROOTS];
    struct template_roots all;
};

static void name(struct event_naming *naming, const char *as, const struct json_value *value)
{
    naming->items[naming->all.count++] = (struct template_root){slice_str(as), value};
}

static void name_text(struct event_naming *naming, const char *as, struct slice text)
{
    struct json_value *string = &naming->strings[naming->all.count];
    *string = template_string(text);
    name(naming, as, text.len > 0 ? string : NULL);
}

/* An event that is not JSON has no members, and what the template names is absent. */
static enum status make_names(
    const struct submission_event *of, struct arena *arena, struct event_naming *naming)
{
    static const struct slice structured = SLICE_INIT("application/cloudevents+json");
    const struct json_value *event = NULL;
    enum status status = json_read(of->bytes, arena, &event, NULL);
    if (status == E_NOMEM) {
        return E_NOMEM;
    }
    event = status == OK ? event : NULL;
    bool is_structured = of->type.len >= structured.len &&
                         http_same_name(slice_of(of->type.data, structured.len), structured);
    naming->all = (struct template_roots){.items = naming->items};
    name(naming, "event", event);
    name(naming, "data", is_structured ? json_find(event, SLICE_LIT("data")) : event);
    name_text(naming, "event_id", of->id);
    name_text(naming, "delivery_id", slice_str(of->delivery_id));
    name_text(naming, "key", of->key->key);
    name_text(naming, "source", of->key->scope);
    name_text(naming, "tenant", of->key->tenant);
    return OK;
}

/* One more member of an object that has some. */
static enum status put_member(struct buf *out, struct slice as, const struct json_value *tree,
    const struct event_naming *naming, struct err *err)
{
    buf_char(out, ',');
    jcs_put_string(out, as);
    buf_char(out, ':');
    return template_put_json(tree, &naming->all, out, err);
}

/* {"action":…,"entity":…,"target":…} */
static enum status put_intent(struct jsonw *json, const struct config_source *config,
    const struct event_naming *naming, struct err *err)
{
    const struct json_value *target = json_find(config->envelope, SLICE_LIT("target"));
    struct slice full = slice_str(config->command);
    const char *dot = memchr(full.data, '.', full.len); /* the configuration has checked it */
    enum status status = OK;
    jsonw_open(json, "intent", '{');
    jsonw_bytes(json, "entity", slice_of(full.data, (size_t)(dot - full.data)));
    jsonw_str(json, "action", dot + 1);
    if (target != NULL) {
        status = put_member(json->out, SLICE_LIT("target"), target, naming, err);
    }
    jsonw_close(json, '}');
    return status;
}

/* IS3 */
static void put_trace(struct jsonw *json, const struct submission_event *of)
{
    jsonw_open(json, "trace", '{');
    jsonw_str(json, "delivery_id", of->delivery_id);
    if (of->id.len > 0 && of->id.len <= TRACED_BYTES_MAX) {
        jsonw_bytes(json, "event_id", of->id);
    }
    jsonw_bytes(json, "source", of->key->scope);
    jsonw_close(json, '}');
}

static enum status put_envelope(const struct submission_event *of,
    const struct config_source *config, const struct event_naming *naming, struct buf *out,
    struct err *err)
{
    struct jsonw json = {.out = out};
    char key[sizeof "delivery-" + DIGEST_HEX_BYTES] = "delivery-";
    enum status status = OK;
    (void)digest_put_hex(key + strlen(key), &of->key->hash);
    jsonw_open(&json, NULL, '{');
    status = put_intent(&json, config, naming, err);
    put_trace(&json, of);
    if (json_find(config->envelope, SLICE_LIT("idempotency_key")) == NULL) {
        jsonw_str(&json, "idempotency_key", key); /* IS2 */
    }
    for (uint32_t i = 0; status == OK && i < config->envelope->count; i++) {
        const struct json_member *member = &config->envelope->members[i];
        struct slice as = json_text(&member->name);
        if (!slice_is(as, "target")) {
            status = put_member(out, as, &member->value, naming, err);
        }
    }
    jsonw_close(&json, '}');
    return status == OK ? buf_status(out) : status;
}

enum status submission_envelope(const struct submission_event *of,
    const struct config_source *config, struct arena *arena, struct slice *ret_envelope,
    struct err *err)
{
    struct event_naming *naming = arena_zalloc(arena, sizeof *naming);
    struct mem mem = arena_mem(arena);
    struct buf out;
    ASSERT(config->command != NULL && config->envelope != NULL);
    buf_init(&out, &mem, ENVELOPE_BYTES_MAX);
    if (naming == NULL || make_names(of, arena, naming) != OK) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    enum status status = put_envelope(of, config, naming, &out, err);
    if (status == OK) {
        *ret_envelope = buf_view(&out);
    }
    return status == E_LIMIT ? err_set(err, E_INVALID, "the envelope is too long") : status;
}

/* The event's id, as its detail has it. */
static enum status take_event_id(
    const struct record *record, struct arena *arena, struct slice *ret_id)
{
    const struct json_value *detail = NULL;
    enum status status = json_read(record->detail, arena, &detail, NULL);
    const struct json_value *id = status == OK ? json_find(detail, SLICE_LIT("event_id")) : NULL;
    *ret_id = json_is(id, JSON_STRING) ? json_text(id) : SLICE_EMPTY;
    return status == E_NOMEM ? E_NOMEM : OK;
}

enum status submission_compose(
    struct dispatch_call *call, const struct inbox_source *source, struct err *err)
{
    const struct record *record = call->record;
    struct kept_event frame;
    struct submission *own = arena_zalloc(call->arena, sizeof *own);
    char delivery_id[KIND_ID_TEXT_BYTES];
    struct submission_event of = {.key = &record->key,
        .delivery_id = kind_id_put(delivery_id, RECORD_DELIVERY, &record->operation_id)};
    enum status status = frame_read(call->body, &frame, err);
    if (status != OK) {
        return status;
    }
    if (own == NULL || take_event_id(record, call->arena, &of.id) != OK) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    call->own = own;
    of.type = frame.type;
    of.bytes = frame.bytes;
    return submission_envelope(&of, source->config, call->arena, &call->payload, err);
}

/* ---- nothing is sent --------------------------------------------------------------------- */

static void send_nothing(struct dispatch_sender *sender, struct dispatch_sending *sending)
{
    (void)sender;
    sending->point = OUTCALL_ANSWERED;
    sending->verdict = VERDICT_EXECUTED;
    sending->status = CODE;
    sending->done(sending);
}

struct dispatch_sender submission_sender = {.send = send_nothing};

/* ---- the commit -------------------------------------------------------------------------- */

static enum status put_receipt(struct dispatch_call *call, const struct config_source *config,
    const struct engine_call *enqueued, struct engine_call *first, struct err *err)
{
    struct buf out;
    struct jsonw json = {.out = &out};
    buf_init(&out, call->mem, RECEIPT_BYTES_MAX);
    jsonw_open(&json, NULL, '{');
    jsonw_str(&json, "command", config->command);
    jsonw_bytes(&json, "idempotency_key", enqueued->request.key.key);
    jsonw_close(&json, '}');
    if (buf_status(&out) != OK) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    first->request.kind = REQUEST_SEAL;
    first->request.status = RECORD_EXECUTED;
    first->request.outcome = (struct outcome){.code = CODE, .meta = OUTCOME_META_JSON};
    builder_outcome_body(first, buf_view(&out), LIMIT_OUTCOME_BYTES_MAX);
    return OK;
}

/* Not now. attempts_max 1: never, until a person says so (IS4). */
static enum status put_later(struct dispatch_call *call, struct engine_call *first, const char *why,
    int64_t delay_ms, uint32_t attempts_max)
{
    struct slice text = slice_of(why, strnlen(why, LIMIT_REASON_BYTES_MAX));
    call->call_count = 1;
    first->request.kind = REQUEST_RETRY;
    first->request.delay_ms = delay_ms;
    first->request.policy.attempts_max = attempts_max;
    return arena_copy(call->arena, text, &first->request.reason);
}

/* The commit was refused: a different command has that key, or the cause is temporary, such as a
 * full store. */
static enum status settle_refused(struct dispatch_call *call, const struct submission *own,
    struct engine_call *first, int64_t pause_ms, uint32_t attempts_max)
{
    bool is_conflict = own->enqueued != NULL && own->enqueued->refused &&
                       own->enqueued->decision.kind == DECISION_CONFLICT_REJECTED;
    return is_conflict
               ? put_later(call, first, "its command's key has a different envelope", 1, 1)
               : put_later(call, first, "the command was not accepted", pause_ms, attempts_max);
}

enum status submission_settle(struct dispatch_call *call, const struct inbox_plan *plan,
    struct engine_call *first, struct err *err)
{
    const struct inbox_source *source = inbox_plan_find(plan, call->record->key.scope);
    const struct config_source *config = source->config;
    const struct inbox_commands *commands = plan->commands;
    struct submission *own = call->own;
    uint32_t attempts_max = (uint32_t)config->attempts_max;
    int64_t after_ms = 0;
    if (call->out == NULL) { /* it could not be composed */
        return put_later(call, first, call->fault.text, 1, 1);
    }
    if (call->is_alone) {
        return settle_refused(call, own, first, deliver_pause_ms(call, config), attempts_max);
    }
    struct engine_call *enqueued = dispatch_settle_new(call);
    if (enqueued == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    own->enqueued = enqueued;
    struct inbox_submitted event = {.tenant = call->record->key.tenant,
        .envelope = call->payload,
        .request_id = slice_str(call->request_id)};
    enum status status = commands->submit(commands->context, &event, enqueued, &after_ms, err);
    if (status == OK) {
        return put_receipt(call, config, enqueued, first, err);
    }
    if (status == E_NOMEM || status == E_INVALID) {
        return status == E_NOMEM ? E_NOMEM : put_later(call, first, err->text, 1, 1);
    }
    bool is_fast = status == E_LIMIT && after_ms > 0; /* which is no fault of the event */
    return put_later(call, first, err->text, is_fast ? after_ms : deliver_pause_ms(call, config),
        is_fast ? 0 : attempts_max);
}

void submission_settled(struct dispatch_call *call)
{
    const struct engine_call *enqueued = call->call_count > 1 ? call->calls[1] : NULL;
    if (enqueued != NULL && enqueued->err.status == OK) {
        dispatch_offer(call->dispatch, call->loop, &enqueued->decision.next);
    }
}
