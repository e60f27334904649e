#include "core/request.h"

#include "base/limits.h"
#include "base/macros.h"
#include "base/name.h"

const struct policy policy_default = {
    .window_ms = LIMIT_WINDOW_MS_DEFAULT,
    .lease_ms = LIMIT_LEASE_MS_DEFAULT,
    .on_unknown = ON_UNKNOWN_HOLD,
};

enum record_kind request_record_kind(const struct request *request)
{
    return (int)request->record_kind == 0 ? RECORD_OPERATION : request->record_kind;
}

bool request_by_key(enum request_kind kind)
{
    return kind == REQUEST_BEGIN || kind == REQUEST_ENQUEUE;
}

bool request_takes_fence(const struct request *request)
{
    return request_by_key(request->kind) || request->kind == REQUEST_CLAIM ||
           (request->kind == REQUEST_WAKE && request->status == RECORD_IN_PROGRESS);
}

bool request_asks_grant(const struct request *request)
{
    return request_takes_fence(request) && request->kind != REQUEST_ENQUEUE;
}

bool request_settles(const struct request *request)
{
    return request->kind == REQUEST_SEAL || request->kind == REQUEST_RESOLVE ||
           request->kind == REQUEST_CANCEL ||
           (request->kind == REQUEST_WAKE && record_status_sealed(request->status));
}

/* A text of a request, by where a request has it, and the limit on its bytes with its name. */
struct text_limit {
    const char *name;
    size_t at;
    const char *limit_name;
    size_t bytes_max;
};

static struct slice text_at(const struct request *request, size_t at)
{
    return *(const struct slice *)(const void *)((const char *)request + at);
}

static enum status check_text(const struct text_limit *limit, struct slice text, struct err *err)
{
    if (text.len > limit->bytes_max) {
        return err_set(err, E_INVALID, "%s is %zu bytes long, more than %s (%zu)", limit->name,
            text.len, limit->limit_name, limit->bytes_max);
    }
    return name_check_utf8(limit->name, text, err);
}

static const struct span_limit lease_limit = {
    "lease", "lease_ms_min", LIMIT_LEASE_MS_MIN, "lease_ms_max", LIMIT_LEASE_MS_MAX};
static const struct span_limit window_limit = {
    "ttl", NULL, 1, "window_ms_max", LIMIT_WINDOW_MS_MAX};
static const struct span_limit deadline_limit = {
    "deadline", NULL, 0, "window_ms_max", LIMIT_WINDOW_MS_MAX};
static const struct span_limit delay_limit = {
    "delay", NULL, 0, "window_ms_max", LIMIT_WINDOW_MS_MAX};

enum status request_check_span(const struct span_limit *limit, int64_t ms, struct err *err)
{
    bool is_short = ms < limit->ms_min;
    const char *name = is_short ? limit->min_name : limit->max_name;
    if (!is_short && ms <= limit->ms_max) {
        return OK;
    }
    return err_set(err, E_INVALID, "%s is %lld ms; the %s is %lld ms%s%s%s", limit->name,
        (long long)ms, is_short ? "least" : "most",
        (long long)(is_short ? limit->ms_min : limit->ms_max), name == NULL ? "" : " (",
        name == NULL ? "" : name, name == NULL ? "" : ")");
}

/* The statuses that a request can ask for or report, as 1 << status; 0: none. Only a resolve can
 * report "not executed": released for an operation, pending for work. */
static unsigned statuses_of(enum request_kind kind)
{
    const unsigned executed = 1u << RECORD_EXECUTED;
    const unsigned failed = 1u << RECORD_FAILED;
    const unsigned rejected = 1u << RECORD_REJECTED;
    const unsigned pending = 1u << RECORD_PENDING;
    const unsigned waiting = 1u << RECORD_WAITING;
    switch (kind) {
    case REQUEST_SEAL: return executed | failed | rejected;
    case REQUEST_RESOLVE: return executed | failed | pending | 1u << RECORD_RELEASED;
    case REQUEST_WAKE:
        return executed | failed | rejected | pending | waiting | 1u << RECORD_IN_PROGRESS;
    case REQUEST_ENQUEUE: return pending | waiting | 1u << 0;
    case REQUEST_COMPENSATION_SETTLE: return 1u << RECORD_COMPENSATED | 1u << RECORD_UNKNOWN;
    case REQUEST_BEGIN:
    case REQUEST_RELEASE:
    case REQUEST_UNKNOWN:
    case REQUEST_RENEW:
    case REQUEST_LEASE_OVER:
    case REQUEST_HOLDER_GONE:
    case REQUEST_CLAIM:
    case REQUEST_RETRY:
    case REQUEST_GIVE_UP:
    case REQUEST_WAIT:
    case REQUEST_CANCEL:
    case REQUEST_TAKE_UP:
    case REQUEST_POSTPONE:
    case REQUEST_COMPENSATE: break;
    }
    return 0;
}

bool request_names_status(enum request_kind kind)
{
    return statuses_of(kind) != 0;
}

static enum status check_status(const struct request *request, struct err *err)
{
    unsigned statuses = statuses_of(request->kind);
    bool known = (unsigned)request->status < RECORD_STATUS_END;
    if (statuses != 0 && (!known || (statuses & 1u << request->status) == 0)) {
        return err_set(err, E_INVALID, "status is not one that a %s can give",
            request_kind_name(request->kind));
    }
    return OK;
}

/* Checks that the request can make a record of its kind. */
static enum status check_kind(const struct request *request, struct err *err)
{
    enum record_kind kind = request_record_kind(request);
    if (!request_by_key(request->kind)) {
        return OK;
    }
    if (!kind_takes(kind, request->kind) ||
        (request->status == RECORD_WAITING && !kind_has_status(kind, RECORD_WAITING))) {
        return err_set(err, E_INVALID, "a record of kind %s does not start with this %s",
            kind_name(kind), request_kind_name(request->kind));
    }
    return OK;
}

static enum status check_spans(const struct request *request, struct err *err)
{
    const struct policy *policy = &request->policy;
    enum status status = OK;
    if (request->kind == REQUEST_RENEW || request_asks_grant(request)) {
        status = request_check_span(&lease_limit, policy->lease_ms, err);
    }
    if (status == OK && (request_by_key(request->kind) || policy->window_ms != 0)) {
        status = request_check_span(&window_limit, policy->window_ms, err);
    }
    if (status == OK) {
        status = request_check_span(&deadline_limit, policy->deadline_ms, err);
    }
    if (status == OK) {
        status = request_check_span(&delay_limit, request->delay_ms, err);
    }
    if (status == OK &&
        (request->not_before_ms < 0 || request->not_before_ms > LIMIT_TIME_MS_MAX)) {
        status = err_set(err, E_INVALID, "not_before is not a time before the year 10000");
    }
    return status;
}

enum status request_names_check(const struct request *request, struct err *err)
{
    static const struct {
        const char *member;
        size_t at;
    } names[] = {
        {"effect_id", offsetof(struct request, effect_id)},
        {"source.type", offsetof(struct request, source.type)},
        {"source.id", offsetof(struct request, source.id)},
        {"source.version", offsetof(struct request, source.version)},
        {"actor", offsetof(struct request, actor)},
        /* The names below belong to the record, which a request by id may find older than the
         * rule. */
        {"tenant", offsetof(struct request, key.tenant)},
        {"scope", offsetof(struct request, key.scope)},
        {"principal", offsetof(struct request, key.principal)},
        {"key", offsetof(struct request, key.key)},
    };
    enum { KEY_PARTS = 4 };
    size_t count = COUNT(names) - (request_by_key(request->kind) ? 0 : KEY_PARTS);
    for (size_t i = 0; i < count; i++) {
        struct slice name = text_at(request, names[i].at);
        if (name.len > 0 && name_check(names[i].member, name, err) != OK) {
            return E_INVALID;
        }
    }
    return OK;
}

enum status request_check(const struct request *request, struct err *err)
{
    static const struct text_limit texts[] = {
        {"effect_id", offsetof(struct request, effect_id), "effect_id_bytes_max",
            LIMIT_EFFECT_ID_BYTES_MAX},
        {"source.type", offsetof(struct request, source.type), "source_bytes_max",
            LIMIT_SOURCE_BYTES_MAX},
        {"source.id", offsetof(struct request, source.id), "source_bytes_max",
            LIMIT_SOURCE_BYTES_MAX},
        {"source.version", offsetof(struct request, source.version), "source_bytes_max",
            LIMIT_SOURCE_BYTES_MAX},
        {"trace", offsetof(struct request, trace), "trace_bytes_max", LIMIT_TRACE_BYTES_MAX},
        {"actor", offsetof(struct request, actor), "principal_bytes_max",
            LIMIT_PRINCIPAL_BYTES_MAX},
        {"reason", offsetof(struct request, reason), "reason_bytes_max", LIMIT_REASON_BYTES_MAX},
    };
    for (size_t i = 0; i < COUNT(texts); i++) {
        struct slice text = text_at(request, texts[i].at);
        if (text.len > 0 && check_text(&texts[i], text, err) != OK) {
            return E_INVALID;
        }
    }
    if (request->outcome.meta.len > LIMIT_OUTCOME_META_BYTES_MAX) {
        return err_set(err, E_INVALID,
            "outcome.meta is %zu bytes long, more than outcome_meta_bytes_max (%d)",
            request->outcome.meta.len, LIMIT_OUTCOME_META_BYTES_MAX);
    }
    if (request->detail.len > LIMIT_DETAIL_BYTES_MAX) {
        return err_set(err, E_INVALID, "detail is %zu bytes long, more than detail_bytes_max (%d)",
            request->detail.len, LIMIT_DETAIL_BYTES_MAX);
    }
    if (request->kind == REQUEST_HOLDER_GONE && request->holder == 0) {
        return err_set(err, E_INVALID, "holder_gone does not name the living incarnation");
    }
    enum status status = check_spans(request, err);
    if (status == OK) {
        status = check_kind(request, err);
    }
    return status == OK ? check_status(request, err) : status;
}

enum status request_new_check(const struct request *request, struct err *err)
{
    enum status status = request_names_check(request, err);
    return status == OK ? request_check(request, err) : status;
}

const char *on_unknown_name(enum on_unknown on_unknown)
{
    switch (on_unknown) {
    case ON_UNKNOWN_HOLD: return "hold";
    case ON_UNKNOWN_TAKEOVER: return "takeover";
    case ON_UNKNOWN_RECONCILE: return "reconcile";
    }
    return "unnamed";
}
