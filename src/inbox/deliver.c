/*
 * The handler of a source: what is sent to it, and what its answer means (docs/inbox.md).
 *
 * With on_unknown: redeliver, an attempt that may have taken effect is followed by a further one.
 * It is never forgotten (P5): the delivery's detail is marked as uncertain in the commit that makes
 * it pending again, so a dead letter says that the handler may have done it. 2xx settles that.
 */
#include "inbox/deliver.h"

#include "base/backoff.h"
#include "base/check.h"
#include "base/macros.h"
#include "base/percent.h"
#include "core/lane.h"
#include "inbox/frame.h"
#include "inbox/plan.h"
#include "inbox/queue.h"
#include "inbox/submission.h"

enum { HEAD_BYTES_MAX = 64 << 10, ASK_AGAIN_MS = 1000, ASK_AGAIN_MS_MAX = 300000 };

static const struct inbox_source *source_of(
    const struct dispatch_plan *plan, const struct record *record)
{
    return inbox_plan_find(plan->state, record->key.scope);
}

static struct dispatch_target *target_of(
    const struct dispatch_plan *plan, const struct record *record)
{
    const struct inbox_plan *inbox = plan->state;
    const struct inbox_source *source = source_of(plan, record);
    return source == NULL ? NULL : &plan->targets[source - inbox->sources];
}

/* Events of the same source are delivered one at a time: in this process by its lane, and between
 * processes by what goes before each (core/lane.h). */
static struct slice lane_of(
    const struct dispatch_plan *plan, const struct record *record, struct arena *arena)
{
    (void)plan;
    (void)arena;
    return record->source.id;
}

/* The detail with "uncertain": an attempt may have taken effect. Empty: there is no memory. */
static struct slice mark_uncertain(const struct record *record, struct arena *arena)
{
    static const struct slice mark = SLICE_INIT("\"uncertain\":true}");
    struct slice detail = record->detail;
    struct mem mem = arena_mem(arena);
    struct buf out;
    bool is_marked = detail.len >= mark.len &&
                     memcmp(detail.data + detail.len - mark.len, mark.data, mark.len) == 0;
    if (detail.len < 2 || is_marked) {
        return detail;
    }
    buf_init(&out, &mem, LIMIT_DETAIL_BYTES_MAX);
    buf_append(&out, detail.data, detail.len - 1);
    buf_str(&out, detail.len == 2 ? "" : ",");
    buf_slice(&out, mark);
    return buf_status(&out) == OK ? buf_view(&out) : SLICE_EMPTY;
}

/* No call of the handler is left, or it would be made after the deadline. Nothing is called for a
 * command, so it has only the deadline. */
static bool is_used_up(
    const struct config_source *config, const struct record *record, int64_t now_ms)
{
    return (config->command == NULL && config->attempts_max > 0 &&
               record->attempt >= config->attempts_max) ||
           (config->deadline_ms > 0 && now_ms - record->created_ms > config->deadline_ms);
}

static enum dispatch_unknown unknown_of(const struct dispatch_plan *plan,
    const struct record *record, int64_t now_ms, struct arena *arena, struct slice *ret_detail)
{
    const struct inbox_source *source = source_of(plan, record);
    unsigned what = source == NULL ? CONFIG_DELIVERY_HOLD : source->config->on_unknown;
    if (what == CONFIG_DELIVERY_REDELIVER && source->config->command == NULL) {
        *ret_detail = mark_uncertain(record, arena);
    }
    if (what == CONFIG_DELIVERY_REDELIVER && is_used_up(source->config, record, now_ms)) {
        return DISPATCH_GIVE_UP;
    }
    return what == CONFIG_DELIVERY_REDELIVER   ? DISPATCH_AGAIN
           : what == CONFIG_DELIVERY_RECONCILE ? DISPATCH_ASK
                                               : DISPATCH_HOLD;
}

/* ---- what is sent -------------------------------------------------------------------------- */

static const struct judge_status retried[] = {{429, JUDGE_LATER}, {503, JUDGE_LATER}};

/* "/by-key/{key}" with the key in its place, percent-encoded. */
static void put_reconcile_target(struct buf *out, const char *get, const struct record *record)
{
    char id[KIND_ID_TEXT_BYTES];
    for (const char *at = get; *at != '\0';) {
        bool is_key = strncmp(at, "{key}", 5) == 0;
        bool is_id = strncmp(at, "{operation_id}", 14) == 0;
        struct slice value =
            is_key ? record->key.key
                   : slice_str(kind_id_put(id, RECORD_DELIVERY, &record->operation_id));
        if (!is_key && !is_id) {
            buf_char(out, *at++);
            continue;
        }
        for (size_t i = 0; i < value.len; i++) {
            char coded[PERCENT_BYTES_MAX];
            char *end = percent_put(coded, value.data[i]);
            buf_append(out, coded, (size_t)(end - coded));
        }
        at += is_key ? 5 : 14;
    }
}

static void put_fields(struct http_put *put, const struct dispatch_call *call)
{
    const struct record *record = call->record;
    char id[KIND_ID_TEXT_BYTES];
    http_put_field(put, SLICE_LIT("Host"), upstreams_authority(call->target->one));
    http_put_field(put, SLICE_LIT("Idempotency-Key"), record->key.key);
    http_put_field(put, SLICE_LIT("Request-Id"), slice_str(call->request_id));
    http_put_field(put, SLICE_LIT("Once-Delivery-Id"),
        slice_str(kind_id_put(id, RECORD_DELIVERY, &record->operation_id)));
    http_put_number(put, SLICE_LIT("Once-Fence"), record->fence);
    http_put_number(put, SLICE_LIT("Once-Attempt"), record->attempt);
    http_put_field(put, SLICE_LIT("Once-Source"), record->key.scope);
}

static enum status compose_ask(
    struct dispatch_call *call, const struct config_source *config, struct err *err)
{
    struct buf out, target;
    struct http_put put;
    struct judge_status *statuses = arena_alloc(
        call->arena, (config->executed_count + config->not_executed_count) * sizeof *statuses);
    buf_init(&target, call->mem, HEAD_BYTES_MAX);
    buf_init(&out, call->mem, HEAD_BYTES_MAX);
    put_reconcile_target(&target, config->reconcile_get, call->record);
    if (statuses == NULL || buf_status(&target) != OK) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    http_put_request(&put, &out, SLICE_LIT("GET"), buf_view(&target));
    put_fields(&put, call);
    enum status status = http_put_end(&put);
    if (status != OK) {
        return err_set(err, status, "the question cannot be written");
    }
    size_t count = 0;
    for (size_t i = 0; i < config->executed_count; i++) {
        statuses[count++] = (struct judge_status){config->executed[i], JUDGE_EXECUTED};
    }
    for (size_t i = 0; i < config->not_executed_count; i++) {
        statuses[count++] = (struct judge_status){config->not_executed[i], JUDGE_RELEASE};
    }
    call->method = HTTP_METHOD_GET;
    call->head = buf_view(&out);
    call->rules = (struct judge_rules){
        .statuses = statuses, .status_count = count, .not_sent = JUDGE_UNKNOWN};
    return OK;
}

static enum status compose_post(
    struct dispatch_call *call, const struct inbox_source *source, struct err *err)
{
    struct buf out;
    struct http_put put;
    struct kept_event frame;
    struct slice name, value;
    enum status status = frame_read(call->body, &frame, err);
    if (status != OK) {
        return status;
    }
    buf_init(&out, call->mem, HEAD_BYTES_MAX);
    http_put_request(&put, &out, SLICE_LIT("POST"), source->target);
    put_fields(&put, call);
    if (frame.type.len > 0) {
        http_put_field(&put, SLICE_LIT("Content-Type"), frame.type);
    }
    while (frame_field(&frame.fields, &name, &value)) {
        http_put_field(&put, name, value);
    }
    http_put_length(&put, frame.bytes.len);
    status = http_put_end(&put);
    if (status != OK) {
        return err_set(err, status, "the request for the handler cannot be written");
    }
    call->method = HTTP_METHOD_POST;
    call->head = buf_view(&out);
    call->payload = frame.bytes;
    call->rules = (struct judge_rules){.statuses = retried,
        .status_count = COUNT(retried),
        .classes = {[2] = JUDGE_SEAL, [3] = JUDGE_LATER, [4] = JUDGE_SEAL, [5] = JUDGE_LATER},
        .not_sent = JUDGE_LATER,
        .no_answer = JUDGE_UNKNOWN};
    return OK;
}

static enum status compose(struct dispatch_call *call, struct err *err)
{
    const struct inbox_source *source = source_of(call->plan, call->record);
    ASSERT(source != NULL); /* it has a target */
    call->deadline_ms = source->config->deadline_ms;
    if (dispatch_is_late(call, source->config->deadline_ms)) {
        return err_set(err, E_INVALID, "retry.deadline is over; this attempt was not made");
    }
    if (source->config->command != NULL) {
        return submission_compose(call, source, err);
    }
    return call->asks ? compose_ask(call, source->config, err) : compose_post(call, source, err);
}

/* ---- settling ------------------------------------------------------------------------------ */

/* The handler's Once-Effect; empty: absent. */
static struct slice stated_effect(const struct outcall *out)
{
    struct slice said = SLICE_EMPTY;
    bool is_said = out->point == OUTCALL_ANSWERED && out->answer != NULL &&
                   http_find_single(out->answer, SLICE_LIT("Once-Effect"), &said);
    return is_said ? said : SLICE_EMPTY;
}

int64_t deliver_pause_ms(const struct dispatch_call *call, const struct config_source *config)
{
    const struct record *record = call->record;
    struct slice after = SLICE_EMPTY;
    int64_t ceiling_ms = backoff_ceiling_ms(
        config->backoff_ms, config->backoff_ms_max, record->attempt > 0 ? record->attempt - 1 : 0);
    int64_t ms = backoff_jitter_ms(ceiling_ms, call->random);
    if (call->out != NULL && call->out->answer != NULL &&
        http_find_single(call->out->answer, SLICE_LIT("Retry-After"), &after)) {
        int64_t said_ms = backoff_retry_after_ms(after, call->now_ms);
        ms = said_ms > ms ? said_ms : ms; /* a lower bound */
    }
    return ms < 1 ? 1 : ms;
}

static void settle_question(struct dispatch_call *call, const struct config_source *config,
    struct request *request, struct slice *ret_body)
{
    const struct outcall *out = call->out;
    const struct record *record = call->record;
    enum outcall_verdict verdict = out == NULL ? VERDICT_UNKNOWN : out->verdict;
    int64_t unknown_ms = call->now_ms - record->updated_ms;
    if (verdict == VERDICT_EXECUTED) {
        outcall_settle(out, request, ret_body);
        request->kind = REQUEST_RESOLVE;
        request->reason = SLICE_LIT("the handler's server says that it happened");
    } else if (verdict == VERDICT_RELEASED && call->quiet_ms >= config->quiet_ms) {
        bool is_over = is_used_up(config, record, call->now_ms);
        request->kind = is_over ? REQUEST_GIVE_UP : REQUEST_RESOLVE;
        request->status = is_over ? 0 : RECORD_PENDING;
        request->version = record->version; /* N9: nobody has parked it since */
        request->policy.attempts_max = (uint32_t)config->attempts_max;
        request->policy.deadline_ms = config->deadline_ms;
        request->reason = SLICE_LIT("the handler's server says that it did not happen");
    } else { /* it did not say, or may still be running */
        request->kind = REQUEST_POSTPONE;
        request->delay_ms = unknown_ms < ASK_AGAIN_MS       ? ASK_AGAIN_MS
                            : unknown_ms < ASK_AGAIN_MS_MAX ? unknown_ms
                                                            : ASK_AGAIN_MS_MAX;
    }
}

static void settle_attempt(struct dispatch_call *call, const struct config_source *config,
    struct request *request, struct slice *ret_body)
{
    struct slice said = call->out == NULL ? SLICE_EMPTY : stated_effect(call->out);
    if (call->out == NULL) {
        /* Nothing was sent: its handler is busy, or the kept event is damaged. Both are tried again
         * and, when the attempts are used up, shown to a person. */
        request->kind = REQUEST_RETRY;
        request->reason =
            slice_of(call->fault.text, strnlen(call->fault.text, LIMIT_REASON_BYTES_MAX));
    } else {
        outcall_settle(call->out, request, ret_body);
    }
    if (slice_is(said, "no")) {
        *ret_body = SLICE_EMPTY;
        *request = (struct request){.kind = REQUEST_RETRY,
            .operation_id = request->operation_id,
            .fence = request->fence,
            .trace = request->trace,
            .actor = request->actor,
            .reason = SLICE_LIT("the handler says that nothing was done")};
    } else if (slice_is(said, "unknown") && request->kind == REQUEST_RETRY) {
        request->kind = REQUEST_UNKNOWN;
        request->reason = SLICE_LIT("the handler answered that the outcome is unknown");
    }
    if (request->kind == REQUEST_UNKNOWN && config->on_unknown == CONFIG_DELIVERY_REDELIVER) {
        request->kind = REQUEST_RETRY;
        request->detail = mark_uncertain(call->record, call->arena);
    }
    if (request->kind == REQUEST_RETRY) {
        request->delay_ms = deliver_pause_ms(call, config);
        request->policy.attempts_max = (uint32_t)config->attempts_max;
        request->policy.deadline_ms = config->deadline_ms;
    } else if (request->kind == REQUEST_UNKNOWN &&
               config->on_unknown == CONFIG_DELIVERY_RECONCILE) {
        request->delay_ms = ASK_AGAIN_MS;
    }
}

static enum status settle(struct dispatch_call *call, struct err *err)
{
    const struct inbox_source *source = source_of(call->plan, call->record);
    struct engine_call *first = dispatch_settle_new(call);
    if (first == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    ASSERT(source != NULL);
    if (source->config->command != NULL) {
        return submission_settle(call, call->plan->state, first, err);
    }
    if (call->asks) {
        settle_question(call, source->config, &first->request, &first->outcome_body);
    } else {
        settle_attempt(call, source->config, &first->request, &first->outcome_body);
    }
    return OK;
}

/* Notify the queue of a message at once. */
static void settled(struct dispatch_call *call)
{
    const struct inbox_plan *plan = call->plan->state;
    const struct inbox_source *source = source_of(call->plan, call->record);
    const struct record *record = call->call_count == 0 ? NULL : &call->calls[0]->decision.next;
    if (source != NULL && source->config->command != NULL) {
        submission_settled(call);
    }
    if (plan->queues != NULL && source != NULL && source->config->from != NULL && record != NULL &&
        record_there(record)) {
        queues_settled(plan->queues, record);
    }
}

const struct dispatch_kind deliver_kind = {.name = "deliveries",
    .kind = RECORD_DELIVERY,
    .target = target_of,
    .lane = lane_of,
    .after = lane_after,
    .unknown = unknown_of,
    .compose = compose,
    .settle = settle,
    .settled = settled};
