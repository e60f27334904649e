#include "command/effects.h"

#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "base/limits.h"
#include "canon/jcs.h"
#include "command/compensate.h"
#include "command/declared.h"
#include "command/effect_list.h"
#include "command/recovery.h"
#include "engine/operation_document.h"
#include "engine/query.h"
#include "engine/request_builder.h"
#include "envelope/envelope.h"
#include "envelope/sealed.h"

#define WAITING_REASON "waiting for its required effects"
#define ENDED_REASON   "its required effects are acknowledged"

enum { OUTCOME_BYTES_MAX = 32 << 20, CHECK_ARENA_BYTES_MAX = 64 << 20, REASON_BYTES_MAX = 128 };

/* The reason, with the number of effects that the command does not wait for: they may complete
 * after it (CCO-10). If memory is short, without the number. */
static struct slice reason_of(const char *words, const struct detail *detail, struct arena *arena)
{
    char *text = detail->async == 0 ? NULL : arena_alloc(arena, REASON_BYTES_MAX);
    if (text == NULL) {
        return slice_str(words);
    }
    (void)snprintf(text, REASON_BYTES_MAX, "%s%s%llu async-completable", words,
        words[0] == '\0' ? "" : "; ", (unsigned long long)detail->async);
    return slice_str(text);
}

/* ---- accepting effects --------------------------------------------------------------------- */

static bool is_allowed(const struct config_command *command, struct slice type)
{
    for (size_t i = 0; i < command->effect_count; i++) {
        if (slice_is(type, command->effects[i])) {
            return true;
        }
    }
    return false;
}

/* The handler's answer without its effects: their payloads must not appear in documents. */
static enum status without_effects(
    const struct json_value *root, struct mem *mem, struct slice *ret_text)
{
    struct buf members;
    struct buf out;
    struct jcs_how how = {.keep_lossy = true};
    buf_init(&members, mem, OUTCOME_BYTES_MAX);
    buf_init(&out, mem, OUTCOME_BYTES_MAX);
    struct json_value copy = *root;
    copy.count = 0;
    for (uint32_t i = 0; i < root->count; i++) {
        if (!slice_is(json_text(&root->members[i].name), "effects")) {
            buf_append(&members, (const char *)&root->members[i], sizeof root->members[i]);
            copy.count++;
        }
    }
    copy.members = (const struct json_member *)(const void *)members.data;
    if (buf_status(&members) != OK || jcs_write_marked(&copy, &how, &out, NULL, NULL) != OK) {
        return E_NOMEM;
    }
    *ret_text = buf_view(&out);
    return OK;
}

/* Keep the outcome until the command ends: sealed, because details are in the evidence. */
static enum status keep_outcome(const struct commands *commands, const struct record *record,
    const struct json_value *root, struct slice outcome, struct mem *mem, struct slice *ret_text,
    struct err *err)
{
    struct vault_name name = sealed_name(&record->key, RECORD_COMMAND);
    struct buf plain;
    struct buf sealed;
    buf_init(&plain, mem, OUTCOME_BYTES_MAX);
    buf_init(&sealed, mem, OUTCOME_BYTES_MAX);
    const struct json_value *summary = json_find(root, SLICE_LIT("summary"));
    if (outcome.len <= COMMAND_KEPT_BYTES_MAX) {
        buf_slice(&plain, outcome);
    } else {
        struct jsonw json = {.out = &plain};
        jsonw_open(&json, NULL, '{');
        if (json_is(summary, JSON_STRING) && summary->count <= COMMAND_KEPT_BYTES_MAX / 2) {
            jsonw_bytes(&json, "summary", json_text(summary));
        }
        jsonw_close(&json, '}');
    }
    enum status status = vault_seal(commands->vault, &name, buf_view(&plain), &sealed, err);
    char *text = status == OK ? mem_zalloc(mem, 1, BASE64_TEXT_BYTES(sealed.len) + 1) : NULL;
    if (text == NULL) {
        return status == OK ? E_NOMEM : status;
    }
    *ret_text =
        slice_of(text, (size_t)(base64_put(text, sealed.data, sealed.len, BASE64_URL) - text));
    return OK;
}

/* The effects of an answer, as their command remembers them. */
struct effects_taken {
    struct jsonw waits; /* those that are waited for */
    struct effect_list made;
};

static void note_taken(struct effects_taken *taken, struct detail *detail,
    const struct record_key *key, bool is_required)
{
    effect_list_add(&taken->made, key);
    detail->effects++;
    detail->required += is_required ? 1 : 0;
    detail->async += is_required ? 0 : 1;
    if (is_required) {
        jsonw_open(&taken->waits, NULL, '[');
        jsonw_bytes(&taken->waits, NULL, key->scope);
        jsonw_bytes(&taken->waits, NULL, key->key);
        jsonw_close(&taken->waits, ']');
    }
}

/* Add one effect as a call of the group. */
static enum status take_one(struct dispatch_call *call, const struct effect_sender *sender,
    const struct json_value *item, struct effects_taken *taken, struct detail *detail,
    struct err *err)
{
    struct member_fault fault;
    struct effect_order order;
    struct engine_call *made = dispatch_settle_new(call);
    if (made == NULL) {
        return err_set(err, call->call_count == LIMIT_DISPATCH_GROUP_MAX ? E_INVALID : E_NOMEM,
            "there are too many effects");
    }
    enum status status = effect_envelope_read(sender, item, made, &order, &fault);
    if (status != OK) {
        *err = fault.err;
        return status;
    }
    made->wait_ms = 0;
    note_taken(taken, detail, &made->request.key, order.type->required);
    return OK;
}

/* Those that the handler returned. */
static enum status take_returned(struct dispatch_call *call, const struct config_command *command,
    const struct effect_sender *sender, const struct json_value *list, struct effects_taken *taken,
    struct detail *detail, struct err *err)
{
    enum status status = OK;
    for (uint32_t i = 0; list != NULL && status == OK && i < list->count; i++) {
        const struct json_value *type = json_find(&list->items[i], SLICE_LIT("effect_type"));
        if (!json_is(type, JSON_STRING) || !is_allowed(command, json_text(type))) {
            return err_set(err, E_INVALID,
                "the handler returned an effect that '%s' does not declare", command->name);
        }
        status = take_one(call, sender, &list->items[i], taken, detail, err);
    }
    return status;
}

/* Those that the registry declares, after them. */
static enum status take_declared(struct dispatch_call *call, const struct config_command *command,
    const struct effect_sender *sender, const struct json_value *outcome,
    struct effects_taken *taken, struct detail *detail, struct err *err)
{
    struct declared_values values = {.text = call->body,
        .command_id = detail->command_id.len > 0 ? detail->command_id : sender->command_id,
        .key = call->record->key.key,
        .outcome = outcome};
    enum status status = command->declared_count == 0
                             ? OK
                             : json_read(call->body, call->arena, &values.envelope, err);
    for (size_t i = 0; status == OK && i < command->declared_count; i++) {
        struct effect_sender own = *sender;
        const struct json_value *item = NULL;
        struct buf text;
        buf_init(&text, call->mem, ENVELOPE_DERIVED_BYTES_MAX);
        status = declared_put(command, i, &values, call->record->trace, &text, err);
        own.text = buf_view(&text);
        status = status == OK ? json_read(own.text, call->arena, &item, err) : status;
        status = status == OK ? take_one(call, &own, item, taken, detail, err) : status;
    }
    return status;
}

static enum status put_detail(struct dispatch_call *call, const struct config_command *command,
    const struct detail *detail, struct request *request, struct err *err)
{
    struct buf out;
    struct detail put;
    buf_init(&out, call->mem, 2 * LIMIT_DETAIL_BYTES_MAX);
    enum status status = detail_put(detail, &out);
    request->detail = buf_view(&out);
    status = status == OK ? detail_read(request->detail, call->arena, &put) : status;
    bool is_lost = status == OK && put.made.len == 0 &&
                   command->on_effect_failure == CONFIG_EFFECT_FAILURE_COMPENSATE;
    return status == OK && !is_lost ? OK
                                    : err_set(err, is_lost ? E_INVALID : status,
                                          "there are too many effects for one command");
}

/* The outcome is kept until the required effects are acknowledged: the command waits. */
static enum status wait_for_effects(struct dispatch_call *call,
    const struct config_command *command, const struct json_value *root, struct detail *detail,
    struct engine_call *first, struct err *err)
{
    const struct registry *registry = (const struct registry *)(const void *)call->plan;
    struct request *request = &first->request;
    detail->kept_code = request->outcome.code;
    enum status status = keep_outcome(registry->commands, call->record, root, first->outcome_body,
        call->mem, &detail->kept_outcome, err);
    request->kind = REQUEST_WAIT;
    request->status = 0;
    request->outcome = (struct outcome){0};
    request->effect_id = SLICE_EMPTY;
    first->outcome_body = SLICE_EMPTY;
    request->delay_ms = COMMAND_CHECK_MS;
    request->reason = reason_of(WAITING_REASON, detail, call->arena);
    return status == OK ? put_detail(call, command, detail, request, err) : status;
}

enum status command_effects_take(struct dispatch_call *call, const struct config_command *command,
    struct engine_call *first, struct err *err)
{
    const struct registry *registry = (const struct registry *)(const void *)call->plan;
    const struct commands *commands = registry->commands;
    const struct json_value *root = NULL;
    struct detail detail;
    struct buf waits_for;
    struct buf made;
    struct effects_taken taken = {.waits = {.out = &waits_for}};
    char id[KIND_ID_TEXT_BYTES];
    struct slice body = first->outcome_body;
    if (json_read(body, call->arena, &root, NULL) == E_NOMEM) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    /* The answer to a question describes the outcome; it orders no effects. */
    const struct json_value *list = call->asks ? NULL : json_find(root, SLICE_LIT("effects"));
    if (list == NULL && command->declared_count == 0) {
        return OK;
    }
    if ((list != NULL && !json_is(list, JSON_ARRAY)) ||
        detail_read(call->record->detail, call->arena, &detail) != OK) {
        return err_set(err, E_INVALID, "the handler's effects are not an array");
    }
    detail.is_uncertain = false; /* the answer says that it happened */
    struct effect_sender sender = {.types = &registry->config->effects,
        .vault = commands->vault,
        .engine = door_engine(commands->door),
        .arena = call->arena,
        .tenant = call->record->key.tenant,
        .text = body,
        .command_id = slice_str(kind_id_put(id, RECORD_COMMAND, &call->record->operation_id)),
        .request_id = slice_str(call->request_id)};
    enum status status = arena_copy(call->arena, sender.command_id, &sender.command_id);
    buf_init(&waits_for, call->mem, OUTCOME_BYTES_MAX);
    buf_init(&made, call->mem, OUTCOME_BYTES_MAX);
    effect_list_begin(&taken.made, &made);
    jsonw_open(&taken.waits, NULL, '[');
    status =
        status == OK ? take_returned(call, command, &sender, list, &taken, &detail, err) : status;
    status =
        status == OK ? take_declared(call, command, &sender, root, &taken, &detail, err) : status;
    jsonw_close(&taken.waits, ']');
    detail.made = effect_list_end(&taken.made);
    if (status == OK && list != NULL) {
        status = without_effects(root, call->mem, &first->outcome_body);
    }
    if (status != OK) {
        return status;
    }
    if (buf_status(&waits_for) != OK || buf_status(&made) != OK) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    if (detail.required == 0) {
        builder_outcome_body(first, first->outcome_body, LIMIT_OUTCOME_BYTES_MAX);
        first->request.reason = reason_of("", &detail, call->arena);
        return put_detail(call, command, &detail, &first->request, err);
    }
    detail.waits_for = buf_view(&waits_for);
    return wait_for_effects(call, command, root, &detail, first, err);
}

void command_effects_settled(struct dispatch_call *call)
{
    for (size_t i = 1; i < call->call_count; i++) {
        const struct engine_call *made = call->calls[i];
        if (made->err.status == OK && made->decision.next.kind == RECORD_EFFECT) {
            dispatch_offer(call->dispatch, call->loop, &made->decision.next);
        }
    }
}

/* ---- waiting for effects ------------------------------------------------------------------- */

/* A check of one command: the command is read, then each effect that it waits for; then it is
 * woken. */
struct effects_check {
    struct query query; /* first */
    struct engine_call wake;
    struct commands *commands;
    struct registry *registry;
    struct arena arena;
    struct record record; /* of the command */
    struct detail detail;
    const struct json_value *waits_for;
    uint32_t next; /* of these */
    bool is_open;  /* one of them is not settled */
    bool has_failed;
};

static void check_over(struct effects_check *check)
{
    struct commands *commands = check->commands;
    registry_drop(check->registry);
    arena_release(&check->arena);
    mem_free(commands->mem, check);
    atomic_fetch_sub(&commands->expiring, 1);
}

static void on_woken(struct engine_call *call)
{
    check_over((struct effects_check *)call->context);
}

/* The handler's answer, kept until the command ends. */
static enum status open_outcome(const struct commands *commands, const struct record *record,
    const struct detail *detail, struct arena *arena, struct slice *ret_outcome, struct err *err)
{
    struct mem mem = arena_mem(arena);
    struct vault_name name = sealed_name(&record->key, RECORD_COMMAND);
    struct slice text = detail->kept_outcome;
    size_t size = 0;
    struct buf plain;
    char *sealed = arena_alloc(arena, BASE64_BYTES_MAX(text.len) + 1);
    if (sealed == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    if (!base64_read(text, BASE64_URL, sealed, &size)) {
        return err_set(err, E_CORRUPT, "the outcome kept with a command is invalid");
    }
    buf_init(&plain, &mem, OUTCOME_BYTES_MAX);
    enum status status = vault_open(commands->vault, &name, slice_of(sealed, size), &plain, err);
    *ret_outcome = buf_view(&plain);
    return status == E_INVALID ? err_set(err, E_UNAVAILABLE, COMMAND_NO_KEY) : status;
}

/* A wake of a command, as it was read: to a new status, with a new detail. */
static enum status compose_wake(const struct record *record, const struct detail *detail,
    enum record_status status, struct engine_call *call, struct err *err)
{
    struct mem mem = arena_mem(call->arena);
    struct buf out;
    struct request *request = &call->request;
    buf_init(&out, &mem, 2 * LIMIT_DETAIL_BYTES_MAX);
    if (detail_put(detail, &out) != OK) {
        return err_set(err, E_NOMEM, "out of memory for a command");
    }
    request->kind = REQUEST_WAKE;
    request->operation_id = record->operation_id;
    request->version = record->version; /* W6 */
    request->status = status;
    request->detail = buf_view(&out);
    return OK;
}

/* The end of a command: all required effects are acknowledged; or one has failed, and the registry
 * says that the command fails with it. */
enum status command_effects_end(const struct commands *commands, const struct record *record,
    const struct detail *detail, bool has_failed, struct engine_call *call, struct err *err)
{
    struct slice outcome = SLICE_EMPTY;
    struct detail next = *detail;
    next.required = 0;
    next.waits_for = SLICE_EMPTY;
    next.kept_outcome = SLICE_EMPTY;
    next.has_failed = has_failed;
    enum status status = open_outcome(commands, record, detail, call->arena, &outcome, err);
    status = status == OK ? compose_wake(record, &next,
                                has_failed ? RECORD_FAILED : RECORD_EXECUTED, call, err)
                          : status;
    if (status != OK) {
        return status;
    }
    call->request.reason = has_failed ? SLICE_LIT("a required effect failed")
                                      : reason_of(ENDED_REASON, detail, call->arena);
    call->request.outcome.code = (int32_t)detail->kept_code;
    call->request.outcome.meta = OUTCOME_META_JSON;
    builder_outcome_body(call, outcome, LIMIT_OUTCOME_BYTES_MAX);
    return OK;
}

enum status command_effects_wait(const struct record *record, const struct detail *detail,
    int64_t delay_ms, struct engine_call *call, struct err *err)
{
    call->request.delay_ms = delay_ms;
    call->request.reason =
        delay_ms > 0 ? reason_of(WAITING_REASON, detail, call->arena) : record->reason;
    return compose_wake(record, detail, RECORD_WAITING, call, err);
}

static void submit_wake(struct effects_check *check, enum status composed)
{
    struct err err;
    if (composed != OK ||
        engine_submit(door_engine(check->commands->door), &check->wake, &err) != OK) {
        check_over(check);
    }
}

static struct engine_call *new_wake(struct effects_check *check)
{
    check->wake = (struct engine_call){.context = check, .arena = &check->arena, .done = on_woken};
    return &check->wake;
}

static void wake(struct effects_check *check)
{
    struct err err;
    submit_wake(check, command_effects_end(check->commands, &check->record, &check->detail,
                           check->has_failed, new_wake(check), &err));
}

/* None of the effects that it waits for has failed any more: it was retried. */
static void unblock(struct effects_check *check)
{
    struct err err;
    submit_wake(check, command_effects_wait(&check->record, &check->detail, COMMAND_CHECK_MS,
                           new_wake(check), &err));
}

/* The effect that failed comes first in the list, so that the acknowledgement of a different one
 * leaves the command blocked. */
static enum status put_failed_first(struct slice text, const struct json_value *list,
    uint32_t failed, struct arena *arena, struct slice *ret_list)
{
    struct mem mem = arena_mem(arena);
    struct buf out;
    struct jsonw json = {.out = &out};
    buf_init(&out, &mem, LIMIT_DETAIL_BYTES_MAX);
    jsonw_open(&json, NULL, '[');
    jsonw_raw(&json, NULL, json_raw(text, &list->items[failed]));
    for (uint32_t i = 0; i < list->count; i++) {
        if (i != failed) {
            jsonw_raw(&json, NULL, json_raw(text, &list->items[i]));
        }
    }
    jsonw_close(&json, ']');
    *ret_list = buf_view(&out);
    return buf_status(&out);
}

/* A command, the effects that it waits for, and the one of them that is settled. */
struct settling {
    const struct record *command;
    const struct detail *detail;
    const struct json_value *list;
    uint32_t at; /* of the list */
    const struct record *effect;
};

/* A required effect failed, and the registry leaves it to a person. */
static enum status compose_block(
    const struct settling *failure, struct engine_call *call, struct err *err)
{
    char id[KIND_ID_TEXT_BYTES];
    const struct record *effect = failure->effect;
    char *reason = arena_alloc(call->arena, LIMIT_REASON_BYTES_MAX);
    struct detail next = *failure->detail;
    if (reason == NULL || put_failed_first(next.waits_for, failure->list, failure->at, call->arena,
                              &next.waits_for) != OK) {
        return err_set(err, E_NOMEM, "out of memory for a command");
    }
    (void)snprintf(reason, LIMIT_REASON_BYTES_MAX, "required effect %s (%.*s) failed",
        kind_id_put(id, RECORD_EFFECT, &effect->operation_id), SLICE_ARGS(effect->key.scope));
    enum status status = command_effects_wait(failure->command, &next, 0, call, err);
    call->request.reason = slice_str(reason);
    return status;
}

static void block(struct effects_check *check, const struct record *effect)
{
    struct settling failure = {
        &check->record, &check->detail, check->waits_for, check->next, effect};
    struct err err;
    if (recovery_is_blocked(&check->record)) {
        check_over(check); /* already */
    } else {
        submit_wake(check, compose_block(&failure, new_wake(check), &err));
    }
}

static void ask_next(struct effects_check *check);

static void on_effect(struct engine_call *call)
{
    struct effects_check *check = call->context;
    const struct record *effect = check->query.record;
    const struct config_command *command = registry_find(check->registry, check->detail.command);
    if (call->err.status != OK || effect == NULL || command == NULL) {
        check_over(check);
        return;
    }
    bool is_acknowledged = record_sealed(effect) && effect->status != RECORD_FAILED &&
                           effect->status != RECORD_REJECTED;
    bool has_failed = effect->status == RECORD_FAILED || effect->status == RECORD_REJECTED ||
                      effect->status == RECORD_DEAD;
    if (has_failed && command->on_effect_failure == CONFIG_EFFECT_FAILURE_FAIL) {
        check->has_failed = true;
        wake(check);
    } else if (has_failed && command->on_effect_failure == CONFIG_EFFECT_FAILURE_COMPENSATE) {
        struct commands *commands = check->commands;
        struct op_id id = check->record.operation_id;
        command_compensate(commands, &id, COMPENSATE_FAILED);
        check_over(check);
    } else if (has_failed) {
        block(check, effect);
    } else {
        check->is_open = check->is_open || !is_acknowledged;
        check->next++;
        ask_next(check); /* a later one may have failed */
    }
}

static void submit_query(struct effects_check *check, void (*done)(struct engine_call *call))
{
    struct err err;
    check->query.kind = QUERY_OPERATION;
    check->query.any_tenant = true;
    check->query.call =
        (struct engine_call){.arena = &check->arena, .context = check, .done = done};
    if (query_submit(door_engine(check->commands->door), &check->query, &err) != OK) {
        check_over(check);
    }
}

static void ask_next(struct effects_check *check)
{
    struct err err;
    if (check->next == check->waits_for->count && check->is_open) {
        if (recovery_is_blocked(&check->record)) {
            unblock(check);
        } else {
            check_over(check); /* still in progress: it is checked again later */
        }
        return;
    }
    if (check->next == check->waits_for->count) {
        wake(check);
        return;
    }
    const struct json_value *pair = &check->waits_for->items[check->next];
    check->query = (struct query){.kinds = STORE_KIND(RECORD_EFFECT)};
    if (!json_is(pair, JSON_ARRAY) || pair->count != 2) {
        check_over(check);
        return;
    }
    check->query.key = (struct record_key){.tenant = check->record.key.tenant,
        .scope = json_text(&pair->items[0]),
        .key = json_text(&pair->items[1])};
    if (record_key_seal_as(&check->query.key, RECORD_EFFECT, &err) != OK) {
        check_over(check);
        return;
    }
    submit_query(check, on_effect);
}

/* Whether the command waits for effects, and for which. */
static bool waits_for(const struct record *record, struct arena *arena, struct detail *ret_detail,
    const struct json_value **ret_list)
{
    return record->kind == RECORD_COMMAND && record->status == RECORD_WAITING &&
           record->attempt > 0 && detail_read(record->detail, arena, ret_detail) == OK &&
           json_read(ret_detail->waits_for, arena, ret_list, NULL) == OK &&
           json_is(*ret_list, JSON_ARRAY);
}

static void on_command(struct engine_call *call)
{
    struct effects_check *check = call->context;
    const struct record *record = check->query.record;
    if (call->err.status == OK && record != NULL && record->status == RECORD_WAITING &&
        record->attempt == 0) { /* for a confirmation, after it was submitted anew */
        if (record_due_ms(record) <= call->now_ms) {
            (void)command_expire(check->commands, record); /* or at its next due */
        }
        check_over(check);
        return;
    }
    if (check->commands->vault == NULL) {
        check_over(check); /* without a registry it cannot be read: it waits for one */
        return;
    }
    if (call->err.status != OK || record == NULL ||
        !waits_for(record, &check->arena, &check->detail, &check->waits_for)) {
        bool is_undone = call->err.status == OK && record != NULL && compensation_is_open(record);
        struct op_id id = is_undone ? record->operation_id : (struct op_id){{0}};
        if (is_undone) {
            command_compensate(check->commands, &id, COMPENSATE_DRIVE);
        }
        check_over(check);
        return;
    }
    check->record = *record;
    ask_next(check);
}

bool command_effects_check(struct commands *commands, const struct op_id *id)
{
    struct effects_check *check = mem_zalloc(commands->mem, 1, sizeof *check);
    if (check == NULL) {
        return false;
    }
    check->commands = commands;
    check->registry = registry_take(commands);
    arena_init(&check->arena, commands->mem, CHECK_ARENA_BYTES_MAX);
    atomic_fetch_add(&commands->expiring, 1);
    check->query = (struct query){.kinds = STORE_KIND(RECORD_COMMAND), .operation_id = *id};
    submit_query(check, on_command);
    return true;
}

static bool names(const struct json_value *pair, const struct record_key *effect)
{
    return json_is(pair, JSON_ARRAY) && pair->count == 2 &&
           slice_equal(json_text(&pair->items[0]), effect->scope) &&
           slice_equal(json_text(&pair->items[1]), effect->key);
}

/* False: the registry no longer has the command. */
static bool on_failure(
    struct commands *commands, const struct detail *detail, enum config_effect_failure *ret)
{
    struct registry *registry = registry_take(commands);
    const struct config_command *command = registry_find(registry, detail->command);
    if (command != NULL) {
        *ret = command->on_effect_failure;
    }
    registry_drop(registry);
    return command != NULL;
}

static struct engine_call *call_new(struct effect_command_calls *calls)
{
    struct engine_call *call = &calls->calls[calls->count++];
    *call = (struct engine_call){.arena = calls->arena};
    return call;
}

/* How many of the effects that it waited for are acknowledged: those that are no longer in its
 * list. */
static uint64_t acknowledged(const struct settling *failure)
{
    uint64_t others = failure->detail->async + failure->list->count;
    return failure->detail->effects > others ? failure->detail->effects - others : 0;
}

/* The command fails, and is compensating, in the commit of the effect's failure, if its own record
 * says that something happened; it fails alone if there is no other effect. Otherwise the others
 * must be read first, which a commit cannot do: it follows at once (command_compensate). */
static enum status compose_compensation(struct commands *commands, const struct settling *failure,
    struct effect_command_calls *calls, struct err *err)
{
    bool has_done = acknowledged(failure) > 0;
    if (!has_done && failure->detail->effects > 1) {
        return OK;
    }
    struct engine_call *end = call_new(calls);
    enum status status =
        command_effects_end(commands, failure->command, failure->detail, true, end, err);
    if (status == OK && has_done) {
        compensation_begin(commands, failure->command, end->request.detail, call_new(calls));
    }
    return status;
}

/* What becomes of a command when a required effect fails or is given up. */
static enum status compose_failure(struct commands *commands, const struct settling *failure,
    struct effect_command_calls *calls, struct err *err)
{
    enum config_effect_failure what;
    if (!on_failure(commands, failure->detail, &what)) {
        return OK;
    }
    switch (what) {
    case CONFIG_EFFECT_FAILURE_FAIL:
        return command_effects_end(
            commands, failure->command, failure->detail, true, call_new(calls), err);
    case CONFIG_EFFECT_FAILURE_BLOCK:
        return recovery_is_blocked(failure->command) ? OK
                                                     : compose_block(failure, call_new(calls), err);
    case CONFIG_EFFECT_FAILURE_COMPENSATE: break;
    }
    return compose_compensation(commands, failure, calls, err);
}

/* The list without this effect. */
static enum status without(struct slice text, const struct json_value *list, uint32_t index,
    struct arena *arena, struct slice *ret_list)
{
    struct mem mem = arena_mem(arena);
    struct buf others;
    struct jsonw json = {.out = &others};
    buf_init(&others, &mem, LIMIT_DETAIL_BYTES_MAX);
    jsonw_open(&json, NULL, '[');
    for (uint32_t i = 0; i < list->count; i++) {
        if (i != index) {
            jsonw_raw(&json, NULL, json_raw(text, &list->items[i]));
        }
    }
    jsonw_close(&json, ']');
    *ret_list = buf_view(&others);
    return buf_status(&others);
}

static enum status compose_acknowledged(struct commands *commands, const struct settling *settled,
    struct effect_command_calls *calls, struct err *err)
{
    struct detail detail = *settled->detail;
    const struct json_value *list = settled->list;
    struct engine_call *call = call_new(calls);
    bool stays_blocked = recovery_is_blocked(settled->command) && settled->at != 0;
    if (list->count == 1) {
        return command_effects_end(commands, settled->command, &detail, false, call, err);
    }
    detail.required -= detail.required > 0;
    return without(detail.waits_for, list, settled->at, calls->arena, &detail.waits_for) == OK
               ? command_effects_wait(
                     settled->command, &detail, stays_blocked ? 0 : COMMAND_CHECK_MS, call, err)
               : err_set(err, E_NOMEM, "out of memory for a command");
}

enum status commands_effect_ends(struct commands *commands, const struct record *command,
    const struct record *effect, bool has_failed, struct effect_command_calls *calls,
    struct err *err)
{
    struct detail detail;
    struct settling settled = {.command = command, .detail = &detail, .effect = effect};
    calls->count = 0;
    if (commands->vault == NULL || !waits_for(command, calls->arena, &detail, &settled.list)) {
        return OK;
    }
    while (settled.at < settled.list->count &&
           !names(&settled.list->items[settled.at], &effect->key)) {
        settled.at++;
    }
    if (settled.at == settled.list->count) {
        return OK; /* it does not wait for this one */
    }
    enum status status = has_failed ? compose_failure(commands, &settled, calls, err)
                                    : compose_acknowledged(commands, &settled, calls, err);
    calls->count = status == OK ? calls->count : 0;
    return status;
}

void commands_effect_settled(struct commands *commands, const struct record *effect)
{
    if (!atomic_load(&commands->is_cut) &&
        atomic_load(&commands->expiring) < COMMAND_CHECKS_RUNNING_MAX) {
        (void)command_effects_check(commands, &effect->parent); /* if not now, at its due */
    }
}
