#include "command/compensate.h"

#include <stdatomic.h>

#include "base/limits.h"
#include "canon/trace.h"
#include "command/effect_list.h"
#include "command/effects.h"
#include "command/recovery.h"
#include "engine/query.h"
#include "envelope/envelope.h"

enum { UNDO_ARENA_BYTES_MAX = 64 << 20, UNDO_CALLS_MAX = 2, UNDO_AGAIN_MS = 1000 };

enum undo_purpose {
    PURPOSE_DRIVE,  /* COMPENSATE_DRIVE */
    PURPOSE_FAILED, /* COMPENSATE_FAILED */
    PURPOSE_CHECK,  /* an operator's: read all effects, then begin */
    PURPOSE_RETRY,  /* an operator's: retry what was given up */
};

/*
 * One pass over a command's effects, from the last to the first.
 *
 *     on_command > ask_next > on_effect > (a commit) > ask_next > … > on_all > (a commit) > over
 */
struct undoing {
    struct query query; /* first */
    struct engine_call calls[UNDO_CALLS_MAX];
    struct engine_call *group[UNDO_CALLS_MAX];
    size_t call_count;
    _Atomic size_t left; /* calls of the group that are not done */
    void (*committed)(struct undoing *self);
    struct commands *commands;
    struct registry *registry;
    struct arena arena;   /* of the command */
    struct arena scratch; /* of one effect */
    enum undo_purpose purpose;
    bool is_asked_again; /* drive: a failed undo is tried again */
    struct effects_recover options;
    struct record record;
    struct detail detail;
    struct slice trace; /* that names the recovery; empty: the record's */
    struct effect_list_item *items;
    size_t item_count;
    size_t at; /* effects before this one are still to be read */
    const struct record *effect;
    struct effect_detail effect_detail;
    /* What was found. */
    bool has_done;    /* an effect that happened */
    bool has_open;    /* an effect that may still happen */
    size_t recovered; /* effects that were taken up */
};

bool compensation_is_open(const struct record *command)
{
    return command->status == RECORD_COMPENSATING ||
           (command->status == RECORD_UNKNOWN && record_sealed(command));
}

struct slice recovery_trace(
    const struct record *command, struct slice recovery_id, struct arena *arena)
{
    struct mem mem = arena_mem(arena);
    struct trace_member member = {SLICE_LIT("recovery_id"), recovery_id};
    const struct json_value *trace = NULL;
    struct buf out;
    struct err err;
    buf_init(&out, &mem, 2 * LIMIT_TRACE_BYTES_MAX);
    bool is_known =
        recovery_id.len > 0 &&
        (command->trace.len == 0 || json_read(command->trace, arena, &trace, NULL) == OK);
    return is_known && trace_write(trace, &member, 1, &out, &err) == OK &&
                   out.len <= LIMIT_TRACE_BYTES_MAX
               ? buf_view(&out)
               : SLICE_EMPTY;
}

/* ---- the end of a pass --------------------------------------------------------------------- */

static void release(struct undoing *self)
{
    struct commands *commands = self->commands;
    registry_drop(self->registry);
    arena_release(&self->arena);
    arena_release(&self->scratch);
    mem_free(commands->mem, self);
    atomic_fetch_sub(&commands->expiring, 1);
}

static void report(struct undoing *self, struct effects_recovery *recovery)
{
    if (self->options.done == NULL) {
        release(self);
        return;
    }
    bool has_record = recovery->end == EFFECTS_RECOVERED || recovery->end == EFFECTS_REFUSED;
    if (has_record && record_copy(&self->record, self->options.arena, &recovery->record) != OK) {
        recovery->end = EFFECTS_ERROR;
        (void)err_set(&recovery->err, E_NOMEM, "out of memory");
    }
    struct effects_recover options = self->options;
    release(self);
    options.done(options.context, recovery);
}

static void over(struct undoing *self)
{
    report(self, &(struct effects_recovery){.end = EFFECTS_RECOVERED});
}

static void fail(struct undoing *self, const struct err *err)
{
    report(self, &(struct effects_recovery){.end = EFFECTS_ERROR, .err = *err});
}

static void fail_memory(struct undoing *self)
{
    fail(self, &(struct err){.status = E_NOMEM, .text = "out of memory"});
}

/* An operator's request is refused; nothing was changed. */
static void refuse(struct undoing *self, const char *code, const struct err *why)
{
    report(self, &(struct effects_recovery){.end = EFFECTS_REFUSED, .code = code, .err = *why});
}

static void refuse_effect(struct undoing *self, const char *code, const char *what)
{
    char id[KIND_ID_TEXT_BYTES];
    struct err err;
    struct slice name = effect_name(self->effect, &self->effect_detail, id);
    (void)err_set(&err, E_INVALID, "effect '%.*s' (%.*s) %s; nothing was changed", SLICE_ARGS(name),
        SLICE_ARGS(self->effect->key.scope), what);
    refuse(self, code, &err);
}

/* ---- commits ------------------------------------------------------------------------------- */

static void one_done(struct engine_call *call)
{
    struct undoing *self = call->context;
    if (atomic_fetch_sub(&self->left, 1) == 1) {
        self->committed(self);
    }
}

static struct engine_call *call_new(struct undoing *self)
{
    struct engine_call *call = &self->calls[self->call_count];
    *call = (struct engine_call){.arena = &self->arena,
        .context = self,
        .done = one_done,
        .needs_previous = self->call_count > 0};
    call->request.actor = self->options.actor;
    call->request.reason = self->options.reason;
    call->request.trace = self->trace;
    self->group[self->call_count++] = call;
    return call;
}

/* The calls of a new commit. */
static struct engine_call *first_call(struct undoing *self)
{
    self->call_count = 0;
    return call_new(self);
}

static void submit(struct undoing *self, void (*committed)(struct undoing *self))
{
    struct err err;
    self->committed = committed;
    atomic_store(&self->left, self->call_count);
    if (engine_submit_all(door_engine(self->commands->door), self->group, self->call_count, &err) !=
        OK) {
        fail(self, &err);
    }
}

static bool is_good(const struct undoing *self)
{
    for (size_t i = 0; i < self->call_count; i++) {
        enum decision_kind kind = self->calls[i].decision.kind;
        if (self->calls[i].err.status != OK ||
            (kind != DECISION_DONE && kind != DECISION_ENQUEUED && kind != DECISION_IN_PROGRESS &&
                kind != DECISION_DUPLICATE_REPLAYED)) {
            return false;
        }
    }
    return true;
}

static struct effect_sender sender_of(struct undoing *self)
{
    return (struct effect_sender){.types = &self->registry->config->effects,
        .vault = self->commands->vault,
        .engine = door_engine(self->commands->door),
        .arena = &self->scratch,
        .tenant = self->record.key.tenant,
        .actor = self->options.actor,
        .trace = self->trace};
}

/* ---- the command --------------------------------------------------------------------------- */

static struct undoing *undoing_new(
    struct commands *commands, const struct op_id *id, enum undo_purpose purpose);
static void start(struct undoing *self);

static void drive(struct commands *commands, const struct op_id *id, bool is_asked_again)
{
    struct undoing *self = undoing_new(commands, id, PURPOSE_DRIVE);
    if (self != NULL) {
        self->is_asked_again = is_asked_again;
        start(self);
    }
}

static void on_begun(struct undoing *self)
{
    struct commands *commands = self->commands;
    const struct engine_call *last = &self->calls[self->call_count - 1];
    struct op_id id = self->record.operation_id;
    bool is_refused = last->err.status == OK && !is_good(self);
    for (size_t i = 0; i < self->call_count; i++) {
        is_refused = is_refused || self->calls[i].refused;
    }
    if (is_refused) {
        struct err err;
        (void)err_set(&err, E_STALE, "the command changed meanwhile; read it and ask again");
        refuse(self, "wrong_status", &err);
    } else if (last->err.status != OK) {
        fail(self, &last->err);
    } else {
        self->record = last->decision.next;
        if (compensation_is_open(&self->record)) {
            drive(commands, &id, false);
        }
        over(self);
    }
}

/* The detail with the time at which the compensation begins. Empty if that does not fit: the list
 * of effects is needed more, so the detail is then left unchanged. */
static struct slice with_time(
    const struct commands *commands, struct slice bytes, struct arena *arena)
{
    struct mem mem = arena_mem(arena);
    struct engine_stats stats;
    struct detail detail;
    struct detail put;
    struct buf out;
    if (detail_read(bytes, arena, &detail) != OK) {
        return SLICE_EMPTY;
    }
    engine_stats(door_engine(commands->door), &stats);
    detail.compensating_ms = stats.now_ms;
    buf_init(&out, &mem, 2 * LIMIT_DETAIL_BYTES_MAX);
    bool is_whole = detail_put(&detail, &out) == OK &&
                    detail_read(buf_view(&out), arena, &put) == OK &&
                    put.made.len == detail.made.len;
    return is_whole ? buf_view(&out) : SLICE_EMPTY;
}

void compensation_begin(const struct commands *commands, const struct record *command,
    struct slice detail, struct engine_call *call)
{
    struct request *request = &call->request;
    request->kind = REQUEST_COMPENSATE;
    request->operation_id = command->operation_id;
    request->delay_ms = UNDO_AGAIN_MS;
    request->reason = SLICE_LIT("a required effect failed");
    request->detail = with_time(commands, detail, call->arena);
}

/* The command is failed, if it waited for its effects; and compensating, if there is something to
 * undo: one commit. */
static void begin(struct undoing *self, bool undoes)
{
    struct engine_call *call = first_call(self);
    struct slice detail = self->record.detail;
    if (self->record.status == RECORD_WAITING) {
        struct slice reason = call->request.reason;
        struct err err;
        if (command_effects_end(self->commands, &self->record, &self->detail, true, call, &err) !=
            OK) {
            fail_memory(self);
            return;
        }
        call->request.reason = reason.len > 0 ? reason : call->request.reason;
        detail = call->request.detail;
        call = undoes ? call_new(self) : NULL;
    }
    if (call != NULL) {
        struct slice reason = call->request.reason;
        if (self->options.done != NULL &&
            detail_recovered(detail, &self->options.recovery, &self->arena, &detail) != OK) {
            fail_memory(self);
            return;
        }
        compensation_begin(self->commands, &self->record, detail, call);
        call->request.reason = self->purpose == PURPOSE_FAILED ? call->request.reason : reason;
    }
    submit(self, on_begun);
}

static void on_ended(struct undoing *self)
{
    over(self); /* if it was not good, the command is still due */
}

/* The compensation ended, or cannot go on without a person. */
static void end(struct undoing *self, enum record_status status, struct slice reason)
{
    struct engine_call *call = first_call(self);
    if (self->record.status == status) {
        over(self); /* it is stuck already */
        return;
    }
    call->request.kind = REQUEST_COMPENSATION_SETTLE;
    call->request.operation_id = self->record.operation_id;
    call->request.status = status;
    call->request.reason = reason;
    submit(self, on_ended);
}

static void block(struct undoing *self, const char *text)
{
    struct slice reason = slice_str(text);
    reason.len = reason.len < LIMIT_REASON_BYTES_MAX ? reason.len : LIMIT_REASON_BYTES_MAX;
    if (arena_copy(&self->arena, reason, &reason) != OK) {
        fail_memory(self);
        return;
    }
    end(self, RECORD_UNKNOWN, reason);
}

static void on_waiting(struct undoing *self)
{
    if (is_good(self)) {
        self->record = self->calls[0].decision.next;
    }
    over(self); /* else an acknowledgement was faster */
}

/* What was given up is under way again, and so is its command. */
static void end_retry(struct undoing *self)
{
    struct err err;
    if (self->recovered == 0) {
        struct commands *commands = self->commands;
        struct op_id id = self->record.operation_id;
        (void)command_effects_check(commands, &id); /* it may be over (effects.h, crash) */
        (void)err_set(&err, E_INVALID, "none of the command's effects was given up");
        refuse(self, "wrong_status", &err);
        return;
    }
    detail_set_recovery(&self->detail, &self->options.recovery);
    if (command_effects_wait(
            &self->record, &self->detail, COMMAND_CHECK_MS, first_call(self), &err) != OK) {
        fail_memory(self);
    } else {
        submit(self, on_waiting);
    }
}

static void on_all(struct undoing *self)
{
    struct err err;
    switch (self->purpose) {
    case PURPOSE_DRIVE:
        end(self, RECORD_COMPENSATED, SLICE_LIT("its effects are compensated"));
        return;
    case PURPOSE_FAILED:
        if (self->has_done || !self->has_open) {
            begin(self, self->has_done);
        } else {
            over(self); /* what is under way may still happen: its end is awaited */
        }
        return;
    case PURPOSE_RETRY: end_retry(self); return;
    case PURPOSE_CHECK: break;
    }
    if (!self->has_done) {
        (void)err_set(&err, E_INVALID,
            "none of the command's effects was acknowledged: there is "
            "nothing to undo");
        refuse(self, "nothing_to_compensate", &err);
    } else if (compensation_is_open(&self->record)) { /* it got stuck, and a person asks again */
        struct commands *commands = self->commands;
        struct op_id id = self->record.operation_id;
        drive(commands, &id, true);
        over(self);
    } else {
        begin(self, true);
    }
}

/* ---- its effects --------------------------------------------------------------------------- */

static void ask_next(struct undoing *self);

/* The effect was cancelled, or changed before that: then the command is read again. */
static void on_stepped(struct undoing *self)
{
    if (!is_good(self)) {
        over(self);
        return;
    }
    ask_next(self);
}

static void on_taken_up(struct undoing *self)
{
    if (is_good(self)) {
        self->recovered++;
        dispatch_offer(self->commands->dispatch, DISPATCH_NO_LOOP, &self->calls[0].decision.next);
    }
    ask_next(self);
}

static void cancel(struct undoing *self)
{
    struct engine_call *call = first_call(self);
    struct mem mem = arena_mem(&self->scratch);
    struct buf out;
    struct err err;
    buf_init(&out, &mem, 4 * LIMIT_DETAIL_BYTES_MAX);
    self->effect_detail.ack = EFFECT_ACK_REJECTED;
    self->effect_detail.ack_ms = self->query.call.now_ms;
    if (effect_detail_fit(&self->effect_detail, &out, &err) != OK) {
        fail(self, &err);
        return;
    }
    call->request.kind = REQUEST_CANCEL;
    call->request.operation_id = self->effect->operation_id;
    call->request.version = self->effect->version; /* it may have been sent since (P5) */
    call->request.detail = buf_view(&out);
    call->request.reason = SLICE_LIT("its command is compensated");
    submit(self, on_stepped);
}

static void on_undone(struct undoing *self)
{
    if (is_good(self)) {
        dispatch_offer(self->commands->dispatch, DISPATCH_NO_LOOP,
            &self->calls[self->call_count - 1].decision.next);
    }
    over(self);
}

/* Make the effect that undoes this one, and wait for it. */
static void undo(struct undoing *self)
{
    struct effect_sender sender = sender_of(self);
    struct engine_call *own = first_call(self);
    struct err err = {.status = OK};
    enum status status =
        effect_undo_calls(&sender, self->effect, &self->effect_detail, own, call_new(self), &err);
    if (status == E_INVALID) {
        block(self, err.text);
    } else if (status != OK) {
        fail(self, &err);
    } else {
        self->calls[1].request.actor = self->options.actor;
        submit(self, on_undone);
    }
}

/* The undo may be a dead letter, which an enqueue leaves as it is. */
static void on_requeued(struct undoing *self)
{
    const struct record *made = &self->calls[0].decision.next;
    if (is_good(self) && made->status == RECORD_DEAD) {
        struct op_id id = made->operation_id;
        struct engine_call *call = first_call(self);
        call->request.kind = REQUEST_TAKE_UP;
        call->request.operation_id = id;
        submit(self, on_undone);
        return;
    }
    on_undone(self);
}

/* A person asks again: the undo that failed is tried once more. */
static void undo_again(struct undoing *self)
{
    struct effect_sender sender = sender_of(self);
    struct engine_call *call = first_call(self);
    struct engine_call made = {.arena = NULL};
    struct err err = {.status = OK};
    if (effect_undo_make(&sender, self->effect, &self->effect_detail, &made, &err) != OK) {
        fail(self, &err);
        return;
    }
    call->request = made.request;
    call->request_body = made.request_body;
    submit(self, on_requeued);
}

static void drive_effect(struct undoing *self, enum undo_step step)
{
    switch (step) {
    case UNDO_PASS: ask_next(self); return;
    case UNDO_CANCEL: cancel(self); return;
    case UNDO_START: undo(self); return;
    case UNDO_WAIT:
    case UNDO_UNSURE: over(self); return; /* its end is reported (commands_effect_settled) */
    case UNDO_STUCK: break;
    }
    if (self->is_asked_again) {
        undo_again(self);
    } else {
        block(self, "the compensation of one of its effects failed");
    }
}

static void note_effect(struct undoing *self, enum undo_step step)
{
    bool is_undone = self->effect->status == RECORD_COMPENSATING;
    self->has_done = self->has_done || step == UNDO_START || step == UNDO_STUCK || is_undone ||
                     self->effect->status == RECORD_COMPENSATED;
    self->has_open = self->has_open || ((step == UNDO_WAIT || step == UNDO_UNSURE) && !is_undone);
    if (step == UNDO_CANCEL) {
        cancel(self);
    } else {
        ask_next(self);
    }
}

/* Whether this effect lets an operator's compensation begin. */
static void check_effect(struct undoing *self, enum undo_step step)
{
    struct effect_sender sender = sender_of(self);
    struct engine_call made = {.arena = NULL};
    struct err err = {.status = OK};
    bool is_undone = self->effect->status == RECORD_COMPENSATING;
    bool goes_on = compensation_is_open(&self->record);
    if (step == UNDO_UNSURE || (step == UNDO_STUCK && !goes_on)) {
        refuse_effect(self, "outcome_unknown", "is uncertain: settle it first");
        return;
    }
    if (step == UNDO_WAIT && !is_undone && !goes_on) {
        refuse_effect(self, "still_running", "is being sent: wait until it is settled");
        return;
    }
    if (step == UNDO_START) {
        enum status status =
            effect_undo_make(&sender, self->effect, &self->effect_detail, &made, &err);
        if (status == E_INVALID) {
            refuse(self, "no_compensation", &err);
            return;
        }
        if (status != OK) {
            fail(self, &err);
            return;
        }
    }
    self->has_done = self->has_done || step == UNDO_START || step == UNDO_STUCK || is_undone ||
                     self->effect->status == RECORD_COMPENSATED;
    ask_next(self);
}

static void retry_effect(struct undoing *self)
{
    if (self->effect->status != RECORD_DEAD) {
        ask_next(self);
        return;
    }
    struct engine_call *call = first_call(self);
    call->request.kind = REQUEST_TAKE_UP;
    call->request.operation_id = self->effect->operation_id;
    submit(self, on_taken_up);
}

/* The window of an effect is over: nobody can tell what became of it, or undo it. */
static void on_lost(struct undoing *self)
{
    struct err err;
    const struct effect_list_item *item = &self->items[self->at];
    (void)err_set(&err, E_INVALID, "an effect of type '%.*s' is no longer remembered",
        SLICE_ARGS(item->type));
    switch (self->purpose) {
    case PURPOSE_CHECK: refuse(self, "no_compensation", &err); return;
    case PURPOSE_DRIVE: block(self, err.text); return;
    case PURPOSE_FAILED:
    case PURPOSE_RETRY: break;
    }
    ask_next(self);
}

static void on_effect(struct engine_call *call)
{
    struct undoing *self = call->context;
    struct err err = {.status = OK};
    if (call->err.status != OK) {
        fail(self, &call->err);
        return;
    }
    self->effect = self->query.record;
    if (self->effect == NULL) {
        on_lost(self);
        return;
    }
    if (effect_detail_decode(self->effect->detail, &self->scratch, &self->effect_detail, &err) !=
        OK) {
        fail(self, &err);
        return;
    }
    enum undo_step step = recovery_undo(self->effect, self->effect_detail.is_uncertain);
    switch (self->purpose) {
    case PURPOSE_DRIVE: drive_effect(self, step); return;
    case PURPOSE_FAILED: note_effect(self, step); return;
    case PURPOSE_CHECK: check_effect(self, step); return;
    case PURPOSE_RETRY: break;
    }
    retry_effect(self);
}

static void submit_query(
    struct undoing *self, struct arena *arena, void (*done)(struct engine_call *call))
{
    struct err err;
    self->query.kind = QUERY_OPERATION;
    self->query.call = (struct engine_call){.arena = arena, .context = self, .done = done};
    if (query_submit(door_engine(self->commands->door), &self->query, &err) != OK) {
        fail(self, &err);
    }
}

static void ask_next(struct undoing *self)
{
    struct err err;
    if (self->at == 0) {
        on_all(self);
        return;
    }
    const struct effect_list_item *item = &self->items[--self->at];
    arena_clear(&self->scratch);
    self->query = (struct query){.kinds = STORE_KIND(RECORD_EFFECT),
        .tenant = self->record.key.tenant,
        .key = {.tenant = self->record.key.tenant, .scope = item->type, .key = item->key}};
    if (record_key_seal_as(&self->query.key, RECORD_EFFECT, &err) != OK) {
        fail(self, &err);
        return;
    }
    submit_query(self, &self->scratch, on_effect);
}

/* ---- the beginning of a pass --------------------------------------------------------------- */

/* Whether the pass may continue with this record. False: it is over. */
static bool may_go_on(struct undoing *self)
{
    struct err err;
    bool waits = self->record.status == RECORD_WAITING && self->record.attempt > 0;
    enum recovery_answer answer = recovery_allows(RECOVERY_COMPENSATE, &self->record, false);
    switch (self->purpose) {
    case PURPOSE_DRIVE:
        if (!compensation_is_open(&self->record)) {
            over(self);
            return false;
        }
        return true;
    case PURPOSE_FAILED:
    case PURPOSE_RETRY:
        if (!waits) {
            over(self);
        }
        return waits;
    case PURPOSE_CHECK: break;
    }
    if (answer == RECOVERY_AGAIN) {
        struct commands *commands = self->commands;
        struct op_id id = self->record.operation_id;
        drive(commands, &id, false);
        over(self);
        return false;
    }
    if (answer == RECOVERY_WRONG_STATUS || answer == RECOVERY_UNKNOWN) {
        (void)err_set(&err, E_INVALID, "the command is %s, which does not allow this",
            document_status(&self->record, &self->detail));
        refuse(self, answer == RECOVERY_UNKNOWN ? "outcome_unknown" : "wrong_status", &err);
        return false;
    }
    if (self->item_count != self->detail.effects) {
        (void)err_set(&err, E_INVALID,
            "the command has more effects than its record could name; "
            "compensate them one by one");
        refuse(self, "no_compensation", &err);
        return false;
    }
    return true;
}

static void on_command(struct engine_call *call)
{
    struct undoing *self = call->context;
    if (call->err.status != OK) {
        fail(self, &call->err);
        return;
    }
    if (self->query.record == NULL) {
        report(self, &(struct effects_recovery){.end = EFFECTS_NOT_FOUND});
        return;
    }
    self->record = *self->query.record;
    enum status status = detail_read(self->record.detail, &self->arena, &self->detail);
    status = status == OK ? effect_list_read(
                                self->detail.made, &self->arena, &self->items, &self->item_count)
                          : status;
    if (status != OK) {
        fail(self, &(struct err){.status = status, .text = "the command's record is damaged"});
        return;
    }
    self->at = self->item_count;
    self->trace = self->options.trace;
    if (compensation_is_open(&self->record) && self->trace.len == 0 &&
        slice_is(self->detail.recovery_action, "compensate")) {
        self->trace = recovery_trace(&self->record, self->detail.recovery_id, &self->arena);
    }
    if (may_go_on(self)) {
        ask_next(self);
    }
}

static struct undoing *undoing_new(
    struct commands *commands, const struct op_id *id, enum undo_purpose purpose)
{
    bool is_own = purpose == PURPOSE_DRIVE || purpose == PURPOSE_FAILED;
    if (commands->vault == NULL || (is_own && atomic_load(&commands->is_cut))) {
        return NULL; /* the next process continues */
    }
    struct undoing *self = mem_zalloc(commands->mem, 1, sizeof *self);
    if (self == NULL) {
        return NULL;
    }
    self->commands = commands;
    self->purpose = purpose;
    self->registry = registry_take(commands);
    arena_init(&self->arena, commands->mem, UNDO_ARENA_BYTES_MAX);
    arena_init(&self->scratch, commands->mem, UNDO_ARENA_BYTES_MAX);
    atomic_fetch_add(&commands->expiring, 1);
    self->query = (struct query){
        .kinds = STORE_KIND(RECORD_COMMAND), .operation_id = *id, .any_tenant = true};
    return self;
}

static void start(struct undoing *self)
{
    submit_query(self, &self->arena, on_command);
}

void command_compensate(struct commands *commands, const struct op_id *id, enum compensate_why why)
{
    if (why == COMPENSATE_DRIVE) {
        drive(commands, id, false);
        return;
    }
    struct undoing *self = undoing_new(commands, id, PURPOSE_FAILED);
    if (self != NULL) {
        start(self);
    }
}

enum status command_effects_recover(
    struct commands *commands, const struct effects_recover *options)
{
    struct undoing *self =
        undoing_new(commands, &options->id, options->retries ? PURPOSE_RETRY : PURPOSE_CHECK);
    if (self == NULL) {
        return commands->vault == NULL ? E_UNAVAILABLE : E_NOMEM;
    }
    self->options = *options;
    self->query.any_tenant = false;
    self->query.tenant = options->tenant;
    start(self);
    return OK;
}
