/*
 * The handler of a command: what is sent to it, and what its answer means (docs/commands.md).
 *
 *   2xx                        executed; its JSON is the outcome
 *   429, 503, Once-Effect: no  nothing was done: it is called again, with backoff, up to a limit
 *   other 4xx                  failed, for good
 *   other 5xx, no answer       unknown. With takeover it is called again; else it is blocked
 *   not connected              nothing was sent: called again
 *
 * With takeover, an attempt that may have taken effect is never forgotten (P5): the command is
 * uncertain (detail.h) until something settles it.
 *
 *   after a later attempt      2xx settles it. Nothing else does: a 4xx may come from a check
 *                              before the handler looks up the key, and "nothing was done" is
 *                              about the later attempt only. It is called again
 *   attempts used up           unknown, never given up as if nothing had happened
 *   before a later attempt     if the registry does not say takeover any more, it is unknown, and
 *                              nothing is sent
 *   a person                   cannot cancel it (recover.c). "not_executed" settles it
 */
#include <stdio.h>
#include <string.h>

#include "base/backoff.h"
#include "base/limits.h"
#include "base/macros.h"
#include "base/percent.h"
#include "base/text.h"
#include "command/effects.h"
#include "engine/operation_document.h"
#include "http/write.h"

enum { HEAD_BYTES_MAX = 16 << 10 };

/* ---- the target -------------------------------------------------------------------------- */

static const struct registry *registry_of(const struct dispatch_plan *plan)
{
    return (const struct registry *)(const void *)plan;
}

/* The index of a record's command; count: it no longer exists. */
static size_t command_number(const struct registry *registry, const struct record *record)
{
    struct arena arena;
    struct slice name;
    size_t count = registry->config->command_count;
    size_t found = count;
    arena_init(&arena, registry->mem, 1 << 20);
    if (detail_command(record->detail, &arena, &name) == OK) {
        for (size_t i = 0; i < count && found == count; i++) {
            found = slice_is(name, registry->config->commands[i].name) ? i : count;
        }
    }
    arena_release(&arena);
    return found;
}

static const struct config_command *command_of(const struct dispatch_call *call)
{
    const struct registry *registry = registry_of(call->plan);
    return &registry->config->commands[call->target - registry->targets];
}

static struct dispatch_target *target_of(
    const struct dispatch_plan *plan, const struct record *record)
{
    const struct registry *registry = registry_of(plan);
    size_t number = command_number(registry, record);
    return number < registry->config->command_count ? &registry->targets[number] : NULL;
}

static bool is_used_up(const struct config_command *command, const struct record *record)
{
    return command->attempts_max > 0 && record->attempt >= command->attempts_max;
}

bool command_takes_over(const struct config_command *command, const struct record *record)
{
    return command != NULL && command->on_unknown == CONFIG_UNKNOWN_TAKEOVER &&
           !is_used_up(command, record);
}

static enum dispatch_unknown unknown_of(const struct dispatch_plan *plan,
    const struct record *record, int64_t now_ms, struct arena *arena, struct slice *ret_detail)
{
    const struct registry *registry = registry_of(plan);
    size_t number = command_number(registry, record);
    (void)now_ms;
    if (number == registry->config->command_count || record_sealed(record)) {
        return DISPATCH_HOLD; /* sealed: what is unknown is its compensation */
    }
    const struct config_command *command = &registry->config->commands[number];
    switch (command->on_unknown) {
    case CONFIG_UNKNOWN_TAKEOVER:
        return command_takes_over(command, record) &&
                       detail_mark(record->detail, true, arena, ret_detail) == OK
                   ? DISPATCH_AGAIN
                   : DISPATCH_HOLD;
    case CONFIG_UNKNOWN_RECONCILE: return DISPATCH_ASK;
    default: return DISPATCH_HOLD;
    }
}

/* ---- what is sent ------------------------------------------------------------------------ */

/* Path and query of the handler's URL. */
static const char *path_of(const char *url)
{
    const char *path = url + text_url_origin(url);
    return path[0] == '\0' ? "/" : path;
}

static void put_field(struct buf *out, const char *name, struct slice value)
{
    buf_str(out, name);
    buf_str(out, ": ");
    buf_slice(out, value);
    buf_str(out, "\r\n");
}

/* The envelope as submitted, with the command's id. */
static enum status put_payload(struct dispatch_call *call, const char *id, struct err *err)
{
    struct buf out;
    struct detail detail;
    if (detail_read(call->record->detail, call->arena, &detail) != OK) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    buf_init(&out, call->mem, ENVELOPE_DERIVED_BYTES_MAX);
    if (call->body.len < 2 || call->body.data[0] != '{') {
        return err_set(err, E_CORRUPT, "the envelope was not kept; nothing was sent");
    }
    if (detail.command_id.len > 0) { /* the envelope has it */
        call->payload = call->body;
        return OK;
    }
    buf_printf(&out, "{\"command_id\":\"%s\"%s", id, call->body.data[1] == '}' ? "" : ",");
    buf_slice(&out, slice_of(call->body.data + 1, call->body.len - 1));
    call->payload = buf_view(&out);
    return buf_status(&out) == OK ? OK : err_set(err, buf_status(&out), "out of memory");
}

/* A value in a path cannot leave its segment. */
static void put_escaped(struct buf *out, struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                        (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '~';
        char escaped[3];
        if (is_plain) {
            buf_char(out, c);
        } else {
            (void)percent_put(escaped, c);
            buf_append(out, escaped, sizeof escaped);
        }
    }
}

/* Put the path of a question, with the key in place of {key}. */
static void put_question(struct buf *out, const char *path, const struct record *record)
{
    char id[KIND_ID_TEXT_BYTES];
    (void)kind_id_put(id, RECORD_COMMAND, &record->operation_id);
    while (*path != '\0') {
        bool is_key = strncmp(path, "{key}", 5) == 0;
        bool is_id = strncmp(path, "{operation_id}", 14) == 0;
        if (is_key) {
            put_escaped(out, record->key.key);
        } else if (is_id) {
            buf_str(out, id);
        } else {
            buf_char(out, *path);
        }
        path += is_key ? 5 : is_id ? 14 : 1;
    }
}

/* These statuses say that nothing was done. So does Once-Effect, which settle reads first. */
static const struct judge_status statuses[] = {{429, JUDGE_LATER}, {503, JUDGE_LATER}};

static struct judge_rules rules_of(void)
{
    return (struct judge_rules){.statuses = statuses,
        .status_count = COUNT(statuses),
        .classes = {[2] = JUDGE_SEAL, [3] = JUDGE_UNKNOWN, [4] = JUDGE_SEAL, [5] = JUDGE_UNKNOWN},
        .not_sent = JUDGE_LATER,
        .no_answer = JUDGE_UNKNOWN}; /* P5 */
}

/* An earlier attempt may have taken effect. A detail that cannot be read does not say so; then
 * nothing can be sent either. */
static bool is_uncertain(const struct dispatch_call *call)
{
    struct detail detail;
    return call->record->attempt > 1 &&
           detail_read(call->record->detail, call->arena, &detail) == OK && detail.is_uncertain;
}

static enum status check_again(
    const struct dispatch_call *call, const struct config_command *command, struct err *err)
{
    return call->asks || command->on_unknown == CONFIG_UNKNOWN_TAKEOVER || !is_uncertain(call)
               ? OK
               : err_set(err, E_INVALID,
                     "it may have happened, and its registry does not say takeover any more");
}

static enum status compose(struct dispatch_call *call, struct err *err)
{
    const struct config_command *command = command_of(call);
    const struct record *record = call->record;
    char id[KIND_ID_TEXT_BYTES];
    struct buf head;
    (void)kind_id_put(id, RECORD_COMMAND, &record->operation_id);
    call->method = call->asks ? HTTP_METHOD_GET : HTTP_METHOD_POST;
    call->rules = rules_of();
    if (check_again(call, command, err) != OK ||
        (!call->asks && put_payload(call, id, err) != OK)) {
        return err->status;
    }
    buf_init(&head, call->mem, HEAD_BYTES_MAX);
    buf_str(&head, call->asks ? "GET " : "POST ");
    if (call->asks) {
        put_question(&head, command->reconcile_get, record);
    } else {
        buf_str(&head, path_of(command->handler));
    }
    buf_str(&head, " HTTP/1.1\r\n");
    put_field(&head, "Host", upstreams_authority(call->target->one));
    put_field(&head, "Accept", SLICE_LIT("application/json"));
    put_field(&head, "Idempotency-Key", record->key.key);
    put_field(&head, "Request-Id", slice_str(call->request_id));
    put_field(&head, "Once-Operation-Id", slice_str(id));
    put_field(&head, "Once-Tenant", record->key.tenant);
    buf_printf(&head, "Once-Fence: %llu\r\nOnce-Attempt: %lu\r\n",
        (unsigned long long)record->fence, (unsigned long)record->attempt);
    if (!call->asks) {
        buf_printf(
            &head, "Content-Type: application/json\r\nContent-Length: %zu\r\n", call->payload.len);
    }
    buf_str(&head, "\r\n");
    call->head = buf_view(&head);
    return buf_status(&head) == OK ? OK : err_set(err, buf_status(&head), "out of memory");
}

/* ---- what its answer means --------------------------------------------------------------- */

/* "Once-Effect: no" on any answer means that nothing was done. */
static bool says_no_effect(const struct outcall *out)
{
    struct slice value = SLICE_EMPTY;
    return out != NULL && out->answer != NULL && out->point == OUTCALL_ANSWERED &&
           http_find_single(out->answer, SLICE_LIT("Once-Effect"), &value) && slice_is(value, "no");
}

/* Full jitter: any time up to the pause, which doubles with each attempt. */
static int64_t pause_ms(const struct config_command *command, uint32_t attempt, uint64_t random)
{
    int64_t ceiling_ms = backoff_ceiling_ms(
        command->backoff_ms, command->backoff_ms_max, attempt > 0 ? attempt - 1 : 0);
    return 1 + (int64_t)(random % (uint64_t)ceiling_ms);
}

/* Nothing was done: try again later, or give up. */
static void settle_later(
    struct dispatch_call *call, const struct config_command *command, struct request *request)
{
    request->kind = REQUEST_RETRY;
    request->status = 0;
    request->outcome = (struct outcome){0};
    request->delay_ms = pause_ms(command, call->record->attempt, call->random);
    request->policy.attempts_max = (uint32_t)command->attempts_max;
}

/* The answer to a question, by the registry's rules. */
static enum status settle_question(
    struct dispatch_call *call, const struct config_command *command, struct engine_call *engine)
{
    enum status status = OK;
    const struct outcall *out = call->out;
    struct request *request = &engine->request;
    bool is_answered = out != NULL && out->point == OUTCALL_ANSWERED;
    bool is_executed = false;
    bool is_not = false;
    for (size_t i = 0; is_answered && i < command->executed_count; i++) {
        is_executed = is_executed || command->executed[i] == out->status;
    }
    for (size_t i = 0; is_answered && i < command->not_executed_count; i++) {
        is_not = is_not || command->not_executed[i] == out->status;
    }
    bool is_quiet = call->quiet_ms >= command->quiet_ms;
    if (is_executed) {
        outcall_settle(out, request, &engine->outcome_body);
        request->kind = REQUEST_RESOLVE;
        request->status = RECORD_EXECUTED;
        request->reason = SLICE_LIT("reconciled: the handler's server says that it happened");
    } else if (is_not && is_quiet) {
        request->kind = REQUEST_RESOLVE;
        request->status = RECORD_PENDING;
        request->reason = SLICE_LIT("reconciled: the handler's server says that it did not happen");
    } else {
        request->kind = REQUEST_POSTPONE;
        request->delay_ms = pause_ms(command, call->record->attempt + 1, call->random);
    }
    if (request->kind == REQUEST_RESOLVE && is_uncertain(call)) {
        status = detail_mark(call->record->detail, false, call->arena, &request->detail);
    }
    return status;
}

/* The answer's JSON is the outcome, as received. It is read, because documents contain it: a text
 * such as 'done' would make each of them malformed. If it has too many values to read, only its
 * form is checked. */
static enum status mark_outcome(struct dispatch_call *call, struct engine_call *engine)
{
    const struct json_value *root;
    struct slice body = engine->outcome_body;
    enum status status = json_read(body, call->arena, &root, NULL);
    if (status == OK || (status == E_LIMIT && json_framed(json_trim(body)) && text_utf8(body))) {
        engine->request.outcome.meta = OUTCOME_META_JSON;
    }
    return status == E_NOMEM ? status : OK;
}

static bool is_executed(const struct dispatch_call *call, const struct request *request)
{
    return request->kind == (call->asks ? REQUEST_RESOLVE : REQUEST_SEAL) &&
           request->status == RECORD_EXECUTED;
}

/* Nobody knows, or the handler did its work but what it returned cannot be stored with that: a
 * person must look at it. */
static enum status block(struct dispatch_call *call, struct engine_call *engine, struct slice why)
{
    struct request *request = &engine->request;
    call->call_count = 1;
    engine->outcome_body = SLICE_EMPTY;
    request->kind = REQUEST_UNKNOWN;
    request->status = 0;
    request->outcome = (struct outcome){0};
    request->effect_id = SLICE_EMPTY;
    request->detail = SLICE_EMPTY;
    request->reason = why;
    return OK;
}

static enum status take_effects(struct dispatch_call *call, const struct config_command *command,
    struct engine_call *engine, struct err *err)
{
    struct slice why = SLICE_EMPTY;
    enum status status = command_effects_take(call, command, engine, err);
    if (status == OK && call->is_alone && call->call_count > 1) {
        return block(call, engine, SLICE_LIT("the handler's effects were refused by the outbox"));
    }
    if (status == OK || status == E_NOMEM) {
        return status;
    }
    struct slice text = slice_str(err->text);
    text.len = text.len < LIMIT_REASON_BYTES_MAX ? text.len : LIMIT_REASON_BYTES_MAX;
    status = arena_copy(call->arena, text, &why);
    return status == OK ? block(call, engine, why) : status;
}

/* Nobody knows, and the handler recognises a repetition: unknown, and called again later, in one
 * commit. If the group is refused, unknown alone; unknown_of then says the same. */
static enum status settle_again(
    struct dispatch_call *call, const struct config_command *command, struct engine_call *engine)
{
    const struct record *record = call->record;
    struct slice detail = SLICE_EMPTY;
    enum status status = block(call, engine, engine->request.reason);
    if (call->is_alone || !command_takes_over(command, record)) {
        return status;
    }
    status = detail_mark(record->detail, true, call->arena, &detail);
    struct engine_call *again = status == OK ? dispatch_settle_new(call) : NULL;
    if (again == NULL) {
        return status == OK ? E_NOMEM : status;
    }
    again->request.kind = REQUEST_RESOLVE;
    again->request.operation_id = record->operation_id;
    again->request.fence = record->fence;
    again->request.status = RECORD_PENDING;
    again->request.delay_ms = pause_ms(command, record->attempt, call->random);
    again->request.reason = COMMAND_AGAIN_REASON;
    again->request.detail = detail;
    return OK;
}

/* The request that the handler's answer asks for, when no earlier attempt is uncertain. */
static void settle_answer(struct dispatch_call *call, struct engine_call *engine)
{
    struct request *request = &engine->request;
    if (call->out == NULL || says_no_effect(call->out)) {
        request->kind = REQUEST_RETRY;
        request->reason = call->out == NULL ? slice_str(call->fault.text)
                                            : SLICE_LIT("the handler says that nothing was done");
        return;
    }
    outcall_settle(call->out, request, &engine->outcome_body);
    if (call->out->point == OUTCALL_NOT_SENT) {
        /* Callers see the reason; the handler's address is not for them. The log has it. */
        request->reason = SLICE_LIT("the handler could not be reached; nothing was sent");
    }
    if (request->kind == REQUEST_RETRY) {
        engine->outcome_body = SLICE_EMPTY;
    }
}

static enum status settle_attempt(
    struct dispatch_call *call, const struct config_command *command, struct engine_call *engine)
{
    struct request *request = &engine->request;
    bool was_uncertain = is_uncertain(call);
    settle_answer(call, engine);
    if (request->reason.len > LIMIT_REASON_BYTES_MAX) {
        request->reason.len = LIMIT_REASON_BYTES_MAX;
    }
    if (was_uncertain && request->kind == REQUEST_SEAL && request->status != RECORD_EXECUTED) {
        request->reason = SLICE_LIT("refused, but an earlier attempt may have happened");
        return settle_again(call, command, engine);
    }
    if (request->kind == REQUEST_UNKNOWN) {
        return settle_again(call, command, engine);
    }
    if (request->kind == REQUEST_RETRY && was_uncertain &&
        !command_takes_over(command, call->record)) {
        return block(call, engine, request->reason);
    }
    if (request->kind == REQUEST_RETRY) {
        settle_later(call, command, request);
    } else if (was_uncertain) {
        return detail_mark(call->record->detail, false, call->arena, &request->detail);
    }
    return OK;
}

static enum status settle(struct dispatch_call *call, struct err *err)
{
    const struct config_command *command = command_of(call);
    struct engine_call *engine = dispatch_settle_new(call);
    if (engine == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    enum status status =
        call->asks ? settle_question(call, command, engine) : settle_attempt(call, command, engine);
    if (status == OK && request_settles(&engine->request)) {
        status = mark_outcome(call, engine);
    }
    if (status != OK) {
        return err_set(err, status, "out of memory");
    }
    return is_executed(call, &engine->request) ? take_effects(call, command, engine, err) : OK;
}

const struct dispatch_kind command_kind = {.name = "commands",
    .kind = RECORD_COMMAND,
    .target = target_of,
    .unknown = unknown_of,
    .compose = compose,
    .settle = settle,
    .settled = command_effects_settled};
