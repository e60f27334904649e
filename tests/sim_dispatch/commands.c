/*
 * Commands: their clients, the exchanges of the server, the handler, and what must hold of them.
 *
 * The model is docs/commands.md: which status may follow which (may_follow), who may start what
 * (command_begins), and what an answer may say (check_answer). A person settles a blocked command
 * after a look at the handler's books, only when no call of it can arrive any more, and only the
 * attempt that was the last one then: the request may be on its way for long.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/macros.h"
#include "canon/json.h"
#include "http/problem.h"
#include "sim_dispatch.h"

#define REASON_OF_A_PERSON "they looked at the books"

enum asked { ASK_SUBMIT, ASK_CONFIRM, ASK_DENY, ASK_RESOLVE, ASK_CANCEL, ASK_RETRY, ASK_READ };

static const char *const rules[SIM_RULES] = {"hold", "takeover", "ask", "confirm", "pay"};

void commands_make(void)
{
    sim->late = -1;
    for (int i = 0; i < SIM_COMMANDS; i++) {
        struct sim_command *command = &sim->commands[i];
        command->rule = (enum sim_rule)(i % SIM_RULES);
        command->is_busy = sim_once_in(12);
        (void)snprintf(command->key, sizeof command->key, "c%d", i);
    }
}

int command_find(struct slice key)
{
    for (int i = 0; i < SIM_COMMANDS; i++) {
        if (slice_is(key, sim->commands[i].key)) {
            return i;
        }
    }
    return -1;
}

int command_of(const struct op_id *id)
{
    for (int i = 0; i < SIM_COMMANDS; i++) {
        if (sim->commands[i].version > 0 && op_id_equal(id, &sim->commands[i].op)) {
            return i;
        }
    }
    return -1;
}

/* ---- decisions ----------------------------------------------------------------------------- */

#define IS(status) (1u << RECORD_##status)
#define TO_RUN     (IS(IN_PROGRESS) | IS(PENDING) | IS(WAITING))

/* Without compensation, which no command here has. 0: absent. */
static unsigned may_follow(const struct sim_command *command)
{
    if (command->version == 0) {
        return command->rule == RULE_CONFIRM ? IS(WAITING) : IS(IN_PROGRESS);
    }
    switch (command->status) {
    case RECORD_PENDING: return TO_RUN | IS(REJECTED) | IS(DEAD);
    case RECORD_WAITING: return TO_RUN | IS(REJECTED) | IS(EXECUTED) | IS(FAILED);
    case RECORD_IN_PROGRESS:
    case RECORD_UNKNOWN: return TO_RUN | IS(UNKNOWN) | IS(EXECUTED) | IS(FAILED) | IS(DEAD);
    case RECORD_DEAD: return IS(PENDING) | IS(REJECTED);
    case RECORD_REJECTED: return command->rule == RULE_CONFIRM ? IS(WAITING) : IS(IN_PROGRESS);
    case RECORD_EXECUTED:
    case RECORD_FAILED:
    case RECORD_RELEASED:
    case RECORD_COMPENSATING:
    case RECORD_COMPENSATED: break;
    }
    return 0; /* P3 */
}

/* The effect that a handler returned: it exists from the commit of its answer on. */
static void effect_returned(const struct record *effect)
{
    for (int i = 0; i < SIM_COMMANDS; i++) {
        struct sim_command *command = &sim->commands[i];
        if (command->version == 0 || !op_id_equal(&command->op, &effect->parent)) {
            continue;
        }
        if (command->returned == SIM_RETURNED) {
            sim_violate("the effects of %s were made twice", command->key);
            return;
        }
        struct sim_effect *made =
            &sim->effects[SIM_EFFECTS_MAX + i * SIM_RETURNED + command->returned++];
        made->type = TYPE_KEYED;
        (void)snprintf(
            made->key, sizeof made->key, "%.*s", (int)effect->key.key.len, effect->key.key.data);
        return;
    }
}

/* In the order of the commits. */
void command_decided(const struct engine_call *call)
{
    const struct record *next = &call->decision.next;
    if (call->err.status != OK || call->decision.change != CHANGE_PUT) {
        return;
    }
    if (next->kind == RECORD_EFFECT && call->decision.kind == DECISION_ENQUEUED) {
        effect_returned(next);
    }
    int number = next->kind == RECORD_COMMAND ? command_find(next->key.key) : -1;
    if (number < 0) {
        return;
    }
    struct sim_command *command = &sim->commands[number];
    if (next->version != command->version + 1) {
        sim_violate("%s: version %" PRIu64 " follows %" PRIu64, command->key, next->version,
            command->version);
    }
    if ((may_follow(command) & 1u << next->status) == 0) {
        sim_violate("%s is %s after %s", command->key, record_status_name(next->status),
            command->version == 0 ? "nothing" : record_status_name(command->status));
    }
    bool is_new = command->version == 0 || command->status == RECORD_REJECTED;
    sim->sometimes[SOMETIMES_STARTED_OVER] += is_new && command->version > 0;
    sim->sometimes[SOMETIMES_AWAITED] += next->status == RECORD_WAITING && next->fence > 0;
    command->epochs += is_new;
    bool is_called_again = call->request.kind == REQUEST_RESOLVE &&
                           !slice_is(call->request.reason, REASON_OF_A_PERSON) &&
                           command->rule == RULE_TAKEOVER; /* nobody looked */
    if (next->status == RECORD_PENDING && call->request.kind == REQUEST_RESOLVE &&
        !is_called_again) {
        command->is_doubtful = false; /* somebody looked, and it had not been done */
        command->is_unsettled = false;
    }
    if (command->is_unsettled && (IS(REJECTED) | IS(DEAD) | IS(FAILED)) & 1u << next->status) {
        sim_violate(
            "P5: %s is %s, and may have happened", command->key, record_status_name(next->status));
    }
    if (slice_is(next->reason, "the confirmation expired") && next->status == RECORD_REJECTED) {
        sim_note(SOMETIMES_EXPIRED);
        if (call->now_ms < command->due_ms) {
            sim_violate("the confirmation of %s expired early", command->key);
        }
    }
    if (call->request.kind == REQUEST_WAKE && next->status == RECORD_IN_PROGRESS) {
        command->starts++;
        if (command->start_epoch == command->epochs) {
            sim_violate("C2: %s was started twice by one confirmation", command->key);
        }
        command->start_epoch = command->epochs;
    }
    command->op = next->operation_id;
    command->version = next->version;
    command->attempt = next->attempt;
    command->status = next->status;
    command->due_ms = next->due_ms;
}

/* ---- the handler --------------------------------------------------------------------------- */

void command_begins(const struct sim_wire *wire, const struct dispatching *run)
{
    struct sim_command *command = &sim->commands[wire->command];
    struct arena arena;
    struct record record = {.version = 0};
    sim_say("process %d %s %s, attempt %u", wire->process, wire->asks ? "asks about" : "calls",
        command->key, run->record.attempt);
    if (wire->asks) {
        sim_note(SOMETIMES_ASKED);
        return;
    }
    sim_note(SOMETIMES_CALLED);
    arena_init(&arena, &mem_libc, 1 << 22);
    bool is_there = oracle_stored(RECORD_COMMAND, &run->record.operation_id, &arena, &record);
    if (!is_there || record.status != RECORD_IN_PROGRESS || record.fence != run->record.fence ||
        record.holder != sim->processes[wire->process].engine.janitor.incarnation) {
        sim_violate("P6: %s was called without a durable grant", command->key);
    }
    arena_release(&arena);
    if (command->rule == RULE_TAKEOVER) {
        sim->sometimes[SOMETIMES_TAKEN_OVER] += command->is_doubtful;
    } else if (command->is_doubtful) {
        sim_violate("P5: %s is called again, and nobody knows of the first time", command->key);
    }
    if (command->rule == RULE_CONFIRM && command->sent_epoch < command->epochs) {
        sim_violate("C2: %s was started without its confirmation", command->key);
    }
    command->is_doubtful = true;
}

void command_arrives(struct sim_wire *wire)
{
    struct sim_command *command = &sim->commands[wire->command];
    if (wire->asks) {
        bool is_visible = command->done > 0 && sim->now_ms >= command->visible_ms;
        wire->status = wire->status != 200 ? wire->status : is_visible ? 200 : 404;
        return;
    }
    command->was_refused |= wire->status == 402 || wire->status == 409;
    if (!wire->does || (command->rule == RULE_TAKEOVER && command->done > 0)) {
        return; /* such a handler recognises the key */
    }
    command->done++;
    command->visible_ms = sim->now_ms + (int64_t)sim_below(4000);
    sim_note(SOMETIMES_HANDLED);
    sim_say("%s is done", command->key);
    if (command->done > 1) {
        sim_violate("P1: the handler did %s twice", command->key);
    }
}

void command_ends(const struct sim_wire *wire, enum outcall_point point, unsigned status)
{
    bool is_answered = point == OUTCALL_ANSWERED;
    bool says_no = point == OUTCALL_NOT_SENT || (is_answered && (status == 503 || status == 429));
    struct sim_command *command = &sim->commands[wire->command];
    if (!wire->asks && says_no) {
        command->is_doubtful = false;
    }
    /* A later attempt says nothing about this one, unless it says that it is done. */
    if (command->rule == RULE_TAKEOVER && !says_no && !(is_answered && status < 500)) {
        command->is_unsettled = true;
    }
}

struct slice command_answer(const struct sim_wire *wire)
{
    return sim->commands[wire->command].rule != RULE_PAY || wire->status != 200
               ? SLICE_LIT("{\"summary\":\"Done.\"}")
               : SLICE_LIT("{\"summary\":\"Paid.\",\"effects\":["
                           "{\"effect_type\":\"keyed\",\"target\":{\"lane\":\"p\"},"
                           "\"payload\":{\"amount\":1},\"ordinal\":0},"
                           "{\"effect_type\":\"keyed\",\"target\":{\"lane\":\"p\"},"
                           "\"payload\":{\"amount\":2},\"ordinal\":1}]}");
}

/* ---- answers ------------------------------------------------------------------------------- */

static void take_token(struct sim_command *command, struct slice token, bool is_first)
{
    if (token.len == 0) {
        return;
    }
    if (!is_first || ++command->tokens > command->epochs) {
        sim_violate("a token of %s was shown to a duplicate", command->key);
    }
    (void)snprintf(command->token, sizeof command->token, "%.*s", (int)token.len, token.data);
    command->token_epoch = command->epochs; /* a later one may have begun: then it is refused */
}

/* P3: whoever is shown an outcome is shown this one. */
static void check_outcome(
    struct sim_command *command, const struct json_value *root, struct slice body)
{
    const struct json_value *outcome = json_find(root, SLICE_LIT("outcome"));
    struct slice text = outcome == NULL ? SLICE_LIT("-") : json_raw(body, outcome);
    if (command->outcome[0] == '\0') {
        (void)snprintf(command->outcome, sizeof command->outcome, "%.*s", (int)text.len, text.data);
    } else if (!slice_is(text, command->outcome)) {
        sim_violate("P3: %s is answered %.*s after %s", command->key, (int)text.len, text.data,
            command->outcome);
    }
}

static void check_document(
    const struct sim_exchange *exchange, struct slice body, const struct json_value *root)
{
    struct sim_command *command = &sim->commands[exchange->number];
    unsigned status = exchange->http.status;
    struct slice word = exchange_member(root, "status");
    struct slice id = exchange_member(root, "operation_id");
    bool is_first = slice_is(exchange_member(root, "decision"), "first_seen");
    const struct json_value *confirmation = json_find(root, SLICE_LIT("confirmation"));
    if (id.len > 0) {
        (void)snprintf(command->id, sizeof command->id, "%.*s", (int)id.len, id.data);
    }
    if (confirmation != NULL) {
        take_token(command, exchange_member(confirmation, "token"), is_first);
    }
    if (status == 201 || (status == 200 && slice_is(word, "executed"))) {
        sim_note(status == 201 ? SOMETIMES_EXECUTED : SOMETIMES_REPLAYED);
        if (command->done == 0) {
            sim_violate("%s is answered as executed and was not", command->key);
        }
        if (exchange->asked == ASK_SUBMIT || exchange->asked == ASK_CONFIRM) {
            check_outcome(command, root, body);
        }
    }
}

static void check_answer(const struct sim_exchange *exchange, struct slice body)
{
    unsigned status = exchange->http.status;
    static const struct {
        unsigned statuses[9];
    } known[] = {
        [ASK_SUBMIT] = {{200, 201, 202, 409, 503, 504}},
        [ASK_CONFIRM] = {{200, 201, 202, 403, 429, 503, 504}},
        [ASK_DENY] = {{200, 403, 429, 503}},
        [ASK_RESOLVE] = {{200, 404, 409, 503}},
        [ASK_CANCEL] = {{200, 404, 409, 503}},
        [ASK_RETRY] = {{200, 404, 409, 503}},
        [ASK_READ] = {{200, 404, 503}},
    };
    const struct sim_command *command = &sim->commands[exchange->number];
    bool is_known = false;
    for (size_t i = 0; i < COUNT(known[0].statuses); i++) {
        is_known = is_known || known[exchange->asked].statuses[i] == status;
    }
    if (!is_known) {
        sim_violate("%s: request %d is answered %u %.*s", command->key, exchange->asked, status,
            (int)(body.len < 120 ? body.len : 120), body.data);
        return;
    }
    bool is_accepted = status < 300 || status == 504;
    if ((exchange->asked == ASK_CONFIRM || exchange->asked == ASK_DENY) && is_accepted) {
        sim_note(exchange->asked == ASK_DENY ? SOMETIMES_DENIED : SOMETIMES_CONFIRMED);
        if (!exchange->has_token) {
            sim_violate("C2: a wrong token of %s was accepted", command->key);
        }
    }
    sim->sometimes[SOMETIMES_NOT_CONFIRMED] += exchange->asked == ASK_CONFIRM && status == 403;
    sim->sometimes[SOMETIMES_SETTLED] += exchange->asked == ASK_RESOLVE && status == 200;
    sim->sometimes[SOMETIMES_CANCELLED] += exchange->asked == ASK_CANCEL && status == 200;
    sim->sometimes[SOMETIMES_NOT_CANCELLED] +=
        exchange->asked == ASK_CANCEL && status == 409 && command->is_unsettled;
}

static void on_answered(
    struct sim_exchange *exchange, struct slice body, const struct json_value *root)
{
    sim_say("%s: request %d is answered %u", sim->commands[exchange->number].key, exchange->asked,
        exchange->http.status);
    check_answer(exchange, body);
    if (root == NULL) {
        sim_violate("an answer is empty");
    } else if (exchange->http.status < 300) {
        check_document(exchange, body, root);
    }
}

/* ---- clients ------------------------------------------------------------------------------- */

static enum asked choose(const struct sim_command *command)
{
    if (command->id[0] == '\0' || sim_once_in(3)) {
        return ASK_SUBMIT;
    }
    if (command->rule == RULE_CONFIRM && !sim_once_in(4)) {
        return sim_once_in(5) ? ASK_DENY : ASK_CONFIRM;
    }
    static const enum asked others[] = {ASK_RESOLVE, ASK_RESOLVE, ASK_RETRY, ASK_READ, ASK_SUBMIT};
    return sim_once_in(12) ? ASK_CANCEL : others[sim_below(COUNT(others))];
}

static void ask_with_token(struct sim_exchange *exchange, struct sim_command *command)
{
    static const char *const verbs[] = {[ASK_CONFIRM] = "confirm", [ASK_DENY] = "deny"};
    char path[96];
    bool is_wrong = command->token[0] == '\0' || sim_once_in(4);
    exchange->has_token = !is_wrong;
    exchange->epoch = command->token_epoch;
    (void)snprintf(exchange->body, sizeof exchange->body, "{\"token\":\"%s\"}",
        is_wrong ? "wrong" : command->token);
    if (!is_wrong && exchange->asked == ASK_CONFIRM) {
        command->sent_epoch = command->token_epoch;
    }
    (void)snprintf(path, sizeof path, "/v1/commands/%s/%s", command->id, verbs[exchange->asked]);
    exchange_ask(exchange, "POST", path);
}

static void ask_as_a_person(struct sim_exchange *exchange, const struct sim_command *command)
{
    char path[96];
    const char *verb = exchange->asked == ASK_RESOLVE ? "resolve" : "recover";
    if (exchange->asked == ASK_RESOLVE) {
        (void)snprintf(exchange->body, sizeof exchange->body,
            "{\"status\":\"%s\",\"attempt\":%" PRIu64 ",\"reason\":\"" REASON_OF_A_PERSON "\"}",
            command->done > 0 ? "executed" : "not_executed", command->attempt);
    } else {
        (void)snprintf(exchange->body, sizeof exchange->body, "{\"action\":\"%s\"}",
            exchange->asked == ASK_CANCEL ? "cancel" : "retry");
    }
    (void)snprintf(path, sizeof path, "/v1/commands/%s/%s", command->id, verb);
    exchange_ask(exchange, "POST", path);
}

static void ask_one(struct sim_exchange *exchange)
{
    struct sim_command *command = &sim->commands[exchange->number];
    char path[80];
    switch ((enum asked)exchange->asked) {
    case ASK_SUBMIT:
        (void)snprintf(exchange->body, sizeof exchange->body,
            "{\"actor_id\":\"ana\",\"idempotency_key\":\"%s\",\"intent\":{\"entity\":\"c\","
            "\"action\":\"%s\",\"target\":{\"n\":%d}},\"args\":{}}",
            command->key, rules[command->rule], exchange->number);
        exchange_ask(exchange, "POST", "/v1/commands");
        return;
    case ASK_CONFIRM:
    case ASK_DENY: ask_with_token(exchange, command); return;
    case ASK_RESOLVE:
    case ASK_CANCEL:
    case ASK_RETRY: ask_as_a_person(exchange, command); return;
    case ASK_READ:
        (void)snprintf(path, sizeof path, "/v1/commands/%s", command->id);
        exchange_ask(exchange, "GET", path);
        return;
    }
}

void commands_step(struct sim_process *process)
{
    bool is_late = sim->late >= 0 && !sim_once_in(4);
    int number = is_late ? sim->late : (int)sim_below(SIM_COMMANDS);
    struct sim_exchange *exchange = exchange_new(process, number, on_answered);
    bool denies = is_late && sim->commands[number].status == RECORD_WAITING &&
                  sim->commands[number].token[0] != '\0';
    exchange->asked = (int)(!is_late ? choose(&sim->commands[number])
                            : denies ? ASK_DENY
                                     : ASK_SUBMIT);
    sim->late = is_late && exchange->asked == ASK_SUBMIT ? -1 : sim->late;
    /* A call may be on its way, or, while it is in progress, be sent after the look: the answer to
     * that question may be refused now, or arrive when the attempt is unknown. */
    bool is_early = sim->commands[number].attempt == 0 ||
                    sim->commands[number].status == RECORD_IN_PROGRESS ||
                    provider_is_calling(RECORD_COMMAND, number);
    if (exchange->asked == ASK_RESOLVE && is_early) {
        exchange->asked = ASK_READ; /* it is too early to tell */
    }
    ask_one(exchange);
}

/* ---- the end ------------------------------------------------------------------------------- */

static bool has_effects(int number, enum record_status status, struct arena *arena)
{
    int found = 0;
    for (int i = 0; i < SIM_RETURNED; i++) {
        const struct sim_effect *effect =
            &sim->effects[SIM_EFFECTS_MAX + number * SIM_RETURNED + i];
        struct record record;
        found += effect->is_known && oracle_stored(RECORD_EFFECT, &effect->id, arena, &record) &&
                 record.status == status;
    }
    return status == RECORD_EXECUTED ? found == SIM_RETURNED : found > 0;
}

static void end_one(int number, struct arena *arena)
{
    const struct sim_command *command = &sim->commands[number];
    struct record record;
    if (command->version == 0) {
        return;
    }
    if (!oracle_stored(RECORD_COMMAND, &command->op, arena, &record) ||
        record.status != command->status) {
        sim_violate("%s is forgotten", command->key);
        return;
    }
    bool is_paid = command->rule == RULE_PAY;
    bool may_be = false;
    switch (record.status) {
    case RECORD_EXECUTED:
        sim_note(SOMETIMES_C_EXECUTED);
        may_be = command->done == 1 && (!is_paid || command->returned == 0 ||
                                           has_effects(number, RECORD_EXECUTED, arena));
        break;
    case RECORD_FAILED:
        sim_note(SOMETIMES_C_FAILED);
        may_be = (command->was_refused && command->done == 0) || (is_paid && command->returned > 0);
        break;
    case RECORD_REJECTED:
        sim_note(SOMETIMES_C_REJECTED);
        may_be = command->done == 0;
        break;
    case RECORD_DEAD:
        sim_note(SOMETIMES_C_DEAD);
        may_be = command->done == 0;
        break;
    case RECORD_UNKNOWN:
        sim_note(SOMETIMES_C_HELD);
        may_be = command->rule != RULE_ASK &&
                 (command->rule != RULE_TAKEOVER || record.attempt >= SIM_ATTEMPTS);
        break;
    case RECORD_WAITING: may_be = is_paid && has_effects(number, RECORD_UNKNOWN, arena); break;
    case RECORD_IN_PROGRESS:
    case RECORD_PENDING:
    case RECORD_RELEASED:
    case RECORD_COMPENSATING:
    case RECORD_COMPENSATED: break;
    }
    if (!may_be) {
        sim_violate("%s is %s at the end and was done %d times", command->key,
            record_status_name(record.status), command->done);
    }
}

void commands_end(void)
{
    struct arena arena;
    arena_init(&arena, &mem_libc, 1 << 26);
    for (int i = 0; i < SIM_COMMANDS; i++) {
        end_one(i, &arena);
    }
    arena_release(&arena);
}
