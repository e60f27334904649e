/*
 * GET /v1/effects, and POST /v1/effects/retry: many effects at once.
 *
 * CCO-4 has fewer words than there are statuses: "dispatched" is in progress or uncertain, "failed"
 * is failed or cancelled. If a word stands for two statuses, the page is filtered after it was
 * read, so it can be shorter than its limit; "next" still leads to the next page.
 */
#include <stdatomic.h>
#include <string.h>

#include "base/limits.h"
#include "base/macros.h"
#include "effect/impl.h"

/* The parts of the query that a scan cannot filter by. */
struct list_filter {
    const char *word; /* of CCO-4; NULL: any */
    struct slice command_id;
    bool is_uncertain; /* only uncertain effects */
};

struct list_query {
    struct api_query query;
    struct list_filter filter;
    bool is_dry;                /* of a bulk retry */
    struct slice reason;        /* likewise */
    struct engine_call **calls; /* likewise: the effects that are retried */
    size_t call_count;
    _Atomic size_t left;
};

/* ---- filters ----------------------------------------------------------------------------- */

/* The status that a word stands for; 0: several. */
static bool take_word(struct slice text, struct scan *scan, struct list_filter *filter)
{
    static const struct {
        const char *word;
        enum record_status status;
    } words[] = {{"pending", 0}, {"dispatched", 0}, {"acknowledged", 0}, {"failed", 0},
        {"compensated", RECORD_COMPENSATED}, {"dead_letter", RECORD_DEAD}};
    for (size_t i = 0; i < COUNT(words); i++) {
        if (slice_is(text, words[i].word)) {
            filter->word = words[i].word;
            scan->status = words[i].status;
            return true;
        }
    }
    return false;
}

static bool matches(const struct list_query *self, const struct record *record, struct arena *arena)
{
    const struct list_filter *filter = &self->filter;
    struct effect_detail detail;
    const char *word = kind_word(RECORD_EFFECT, record->status, record->attempt);
    if (filter->word != NULL && (word == NULL || strcmp(word, filter->word) != 0)) {
        return false;
    }
    if (filter->is_uncertain && !kind_uncertain(RECORD_EFFECT, record->status)) {
        return false;
    }
    return filter->command_id.len == 0 ||
           (effect_detail_decode(record->detail, arena, &detail, NULL) == OK &&
               slice_equal(detail.command_id, filter->command_id));
}

/* NULL, or what is invalid. */
static const char *take_params(const struct api_request *request, struct list_query *self)
{
    struct scan *scan = &self->query.query.scan;
    struct slice value;
    (void)!api_param(request, "effect_type", &scan->scope);
    (void)!api_param(request, "key", &scan->key);
    (void)!api_param(request, "command_id", &self->filter.command_id);
    if (api_param(request, "status", &value) && !take_word(value, scan, &self->filter)) {
        return "parameter 'status' must be one of pending, dispatched, acknowledged, failed, "
               "compensated or dead_letter";
    }
    if (api_param(request, "uncertain", &value)) {
        self->filter.is_uncertain = slice_is(value, "true");
        scan->status = self->filter.is_uncertain ? RECORD_UNKNOWN : scan->status;
        if (!self->filter.is_uncertain && !slice_is(value, "false")) {
            return "parameter 'uncertain' must be true or false";
        }
    }
    return NULL;
}

/* ---- a page ------------------------------------------------------------------------------ */

static struct list_query *list_new(
    struct api_request *request, void (*answer)(struct api_query *query))
{
    struct list_query *self = arena_zalloc(request->exchange->arena, sizeof *self);
    if (self == NULL) {
        api_fail_memory(request);
        return NULL;
    }
    self->query.answer = answer;
    self->query.query.kind = QUERY_RECORDS;
    self->query.query.scan.kinds = STORE_KIND(RECORD_EFFECT);
    return self;
}

static void answer_page(struct api_query *query)
{
    struct list_query *self = CONTAINER_OF(query, struct list_query, query);
    struct api_request *request = query->request;
    struct arena *arena = request->exchange->arena;
    struct err err = {.status = OK};
    struct buf out;
    struct jsonw json = {.out = &out};
    enum status status = OK;
    buf_init(&out, &request->mem, EFFECT_ANSWER_BYTES_MAX);
    jsonw_open(&json, NULL, '{');
    jsonw_open(&json, "effects", '[');
    for (size_t i = 0; status == OK && i < query->query.count; i++) {
        struct effect_document document = {.record = query->query.records[i]};
        if (matches(self, document.record, arena)) {
            jsonw_open(&json, NULL, '{');
            status = effect_document_put(&json, request->state, arena, &document, &err);
            jsonw_close(&json, '}');
        }
    }
    jsonw_close(&json, ']');
    api_query_put_next(&json, &query->query);
    jsonw_close(&json, '}');
    if (status != OK) {
        api_fail(request, &err);
    } else {
        api_answer_json(request, &out);
    }
}

void effect_list(struct api_request *request)
{
    struct list_query *self = list_new(request, answer_page);
    if (self != NULL) {
        api_query_list(&self->query, request, take_params(request, self));
    }
}

/* ---- bulk retry -------------------------------------------------------------------------- */

static void answer_many(struct list_query *self)
{
    struct api_request *request = self->query.request;
    struct buf out;
    struct jsonw json = {.out = &out};
    char id[KIND_ID_TEXT_BYTES];
    size_t taken = 0;
    buf_init(&out, &request->mem, EFFECT_ANSWER_BYTES_MAX);
    jsonw_open(&json, NULL, '{');
    jsonw_bool(&json, "dry_run", self->is_dry);
    jsonw_u64(&json, "matched", self->call_count);
    jsonw_open(&json, "effects", '[');
    for (size_t i = 0; i < self->call_count; i++) {
        const struct engine_call *call = self->calls[i];
        bool is_done =
            !self->is_dry && call->err.status == OK && call->decision.kind == DECISION_DONE;
        taken += is_done;
        if (is_done) {
            effects_offer(request->state, request->exchange->loop, &call->decision.next);
        }
        if (self->is_dry || is_done) {
            jsonw_str(&json, NULL, kind_id_put(id, RECORD_EFFECT, &call->request.operation_id));
        }
    }
    jsonw_close(&json, ']');
    jsonw_u64(&json, "retried", taken);
    jsonw_bool(&json, "has_more", self->query.query.has_more);
    jsonw_close(&json, '}');
    api_answer_json(request, &out);
}

static void many_resume(void *context, struct http_exchange *exchange)
{
    (void)context;
    answer_many(exchange->state);
}

static void one_done(struct engine_call *call)
{
    struct list_query *self = call->context;
    if (atomic_fetch_sub(&self->left, 1) == 1) {
        http_wake(self->query.request->exchange);
    }
}

/* Each is a separate call: if one was changed meanwhile, the others are unaffected. */
static struct engine_call *take_up_new(struct list_query *self, const struct record *record)
{
    struct api_request *request = self->query.request;
    struct engine_call *call = arena_zalloc(request->exchange->arena, sizeof *call);
    if (call != NULL) {
        call->arena = request->exchange->arena;
        call->context = self;
        call->done = one_done;
        call->request = (struct request){.kind = REQUEST_TAKE_UP,
            .operation_id = record->operation_id,
            .key = record->key,
            .actor = request->caller.actor,
            .reason = self->reason};
    }
    return call;
}

static void answer_dead(struct api_query *query)
{
    struct list_query *self = CONTAINER_OF(query, struct list_query, query);
    struct api_request *request = query->request;
    struct arena *arena = request->exchange->arena;
    self->calls = arena_alloc(arena, (query->query.count + 1) * sizeof(struct engine_call *));
    for (size_t i = 0; self->calls != NULL && i < query->query.count; i++) {
        const struct record *record = query->query.records[i];
        if (matches(self, record, arena)) {
            self->calls[self->call_count] = take_up_new(self, record);
            if (self->calls[self->call_count++] == NULL) {
                self->calls = NULL;
            }
        }
    }
    if (self->calls == NULL) {
        api_fail_memory(request);
        return;
    }
    if (self->is_dry || self->call_count == 0) {
        answer_many(self);
        return;
    }
    atomic_store(&self->left, self->call_count);
    request->exchange->state = self;
    request->exchange->resume = many_resume;
    api_submit_group(request, self->calls, self->call_count);
}

/* Only effects that Once gave up on: uncertain ones are settled one at a time. */
void effect_retry_many(struct api_request *request)
{
    struct retry_filter {
        struct slice effect_type, command_id, reason, status;
        bool is_dry;
        uint64_t limit;
    } wanted = {.limit = LIMIT_GROUP_REQUESTS_MAX};
    static const struct member members[] = {
        {SLICE_INIT("effect_type"), MEMBER_TEXT, false, offsetof(struct retry_filter, effect_type)},
        {SLICE_INIT("command_id"), MEMBER_TEXT, false, offsetof(struct retry_filter, command_id)},
        {SLICE_INIT("status"), MEMBER_TEXT, false, offsetof(struct retry_filter, status)},
        {SLICE_INIT("reason"), MEMBER_TEXT, false, offsetof(struct retry_filter, reason)},
        {SLICE_INIT("dry_run"), MEMBER_BOOL, false, offsetof(struct retry_filter, is_dry)},
        {SLICE_INIT("limit"), MEMBER_POSITIVE, false, offsetof(struct retry_filter, limit)}};
    static const struct member_table table = {"", members, COUNT(members), true};
    const struct json_value *values[COUNT(members)];
    const struct json_value *body;
    struct member_fault fault = {.code = NULL};
    if (!effects_body(request, &body)) {
        return;
    }
    enum status status = members_read(&table, body, &wanted, values, &fault);
    if (status == OK && wanted.limit > LIMIT_GROUP_REQUESTS_MAX) {
        status = member_refuse(&fault, NULL,
            "member 'limit' must be at most group_requests_max "
            "(%d)",
            LIMIT_GROUP_REQUESTS_MAX);
    }
    if (status == OK && wanted.status.len > 0 && !slice_is(wanted.status, "dead_letter")) {
        status = member_refuse(&fault, NULL, "member 'status' must be \"dead_letter\"");
    }
    if (status != OK) {
        api_refuse_plain(
            request, 422, fault.code == NULL ? "invalid_member" : fault.code, fault.err.text);
        return;
    }
    struct list_query *self = list_new(request, answer_dead);
    if (self != NULL) {
        self->filter.command_id = wanted.command_id;
        self->is_dry = wanted.is_dry;
        self->reason = wanted.reason;
        self->query.query.scan.status = RECORD_DEAD;
        self->query.query.scan.scope = wanted.effect_type;
        self->query.query.scan.limit = (size_t)wanted.limit;
        api_query_run(&self->query, request);
    }
}
