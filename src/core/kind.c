#include "core/kind.h"

#include <string.h>

#include "base/check.h"
#include "base/macros.h"
#include "base/uuid.h"

#define STATUS(name)  (1u << RECORD_##name)
#define REQUEST(name) (1u << REQUEST_##name)

/* Requests of every kind: grants, their ends, and unknown outcomes. */
#define REQUESTS_OF_ALL                                                                            \
    (REQUEST(SEAL) | REQUEST(UNKNOWN) | REQUEST(RENEW) | REQUEST(RESOLVE) | REQUEST(LEASE_OVER) |  \
        REQUEST(HOLDER_GONE) | REQUEST(POSTPONE))
/* Additional requests for work that Once performs itself. */
#define REQUESTS_OF_WORK                                                                           \
    (REQUESTS_OF_ALL | REQUEST(ENQUEUE) | REQUEST(CLAIM) | REQUEST(RETRY) | REQUEST(GIVE_UP) |     \
        REQUEST(CANCEL) | REQUEST(TAKE_UP))

struct kind {
    const char *name;
    const char *id_prefix; /* NULL: its records have no id of their own */
    unsigned requests;     /* 1 << enum request_kind of the requests it takes */
    unsigned compensable;  /* 1 << enum record_status of the statuses that can be undone */
    const char *words[RECORD_STATUS_END]; /* by status; NULL: the kind does not have it */
};

static const struct kind kinds[] = {
    [RECORD_OPERATION] =
        {
            .name = "operation",
            .id_prefix = "op_",
            .requests = REQUESTS_OF_ALL | REQUEST(BEGIN) | REQUEST(RELEASE),
            .words =
                {
                    [RECORD_IN_PROGRESS] = "in_progress",
                    [RECORD_UNKNOWN] = "unknown",
                    [RECORD_RELEASED] = "released",
                    [RECORD_EXECUTED] = "executed",
                    [RECORD_FAILED] = "failed",
                    [RECORD_REJECTED] = "rejected",
                    [RECORD_COMPENSATED] = "compensated",
                },
        },
    [RECORD_SOURCE] =
        {
            .name = "source",
            .words = {[RECORD_EXECUTED] = "executed"},
        },
    [RECORD_COMMAND] =
        {
            .name = "command",
            .id_prefix = "cmd_",
            .requests = REQUESTS_OF_WORK | REQUEST(BEGIN) | REQUEST(WAIT) | REQUEST(WAKE) |
                        REQUEST(COMPENSATE) | REQUEST(COMPENSATION_SETTLE),
            .compensable = STATUS(EXECUTED) | STATUS(FAILED),
            .words =
                {
                    [RECORD_PENDING] = "received",
                    [RECORD_WAITING] = "awaiting_confirmation",
                    [RECORD_IN_PROGRESS] = "started",
                    [RECORD_UNKNOWN] = "blocked",
                    [RECORD_EXECUTED] = "executed",
                    [RECORD_FAILED] = "failed",
                    [RECORD_REJECTED] = "rejected",
                    [RECORD_DEAD] = "blocked",
                    [RECORD_COMPENSATING] = "compensating",
                    [RECORD_COMPENSATED] = "compensated",
                },
        },
    [RECORD_EFFECT] =
        {
            .name = "effect",
            .id_prefix = "eff_",
            .requests = REQUESTS_OF_WORK | REQUEST(WAIT) | REQUEST(WAKE) | REQUEST(COMPENSATE) |
                        REQUEST(COMPENSATION_SETTLE),
            .compensable = STATUS(EXECUTED),
            .words =
                {
                    [RECORD_PENDING] = "pending",
                    [RECORD_WAITING] = "pending", /* for its payload to be sealed */
                    [RECORD_IN_PROGRESS] = "dispatched",
                    [RECORD_UNKNOWN] = "dispatched",
                    [RECORD_EXECUTED] = "acknowledged",
                    [RECORD_FAILED] = "failed",
                    [RECORD_REJECTED] = "failed",
                    [RECORD_DEAD] = "dead_letter",
                    [RECORD_COMPENSATING] = "acknowledged", /* CCO-4 has no word for this */
                    [RECORD_COMPENSATED] = "compensated",
                },
        },
    [RECORD_DELIVERY] =
        {
            .name = "delivery",
            .id_prefix = "dlv_",
            .requests = REQUESTS_OF_WORK | REQUEST(BEGIN) | REQUEST(WAIT) | REQUEST(WAKE),
            .words =
                {
                    [RECORD_PENDING] = "pending",
                    [RECORD_WAITING] = "waiting",
                    [RECORD_IN_PROGRESS] = "delivering",
                    [RECORD_UNKNOWN] = "unknown",
                    [RECORD_EXECUTED] = "executed",
                    [RECORD_FAILED] = "failed",
                    [RECORD_REJECTED] = "failed",
                    [RECORD_DEAD] = "dead_letter",
                },
        },
};

enum { KIND_END = COUNT(kinds) };

/* The arrows of the state diagram, by their start; 0 is absent. in_progress to in_progress is a
 * renewal, or a takeover after the lease; pending to pending is a person who asks for an earlier
 * attempt; waiting to waiting is a record that waits for less than before. */
static const unsigned arrows[RECORD_STATUS_END] = {
    [0] = STATUS(IN_PROGRESS) | STATUS(PENDING) | STATUS(WAITING),
    [RECORD_PENDING] = STATUS(IN_PROGRESS) | STATUS(PENDING) | STATUS(DEAD) | STATUS(REJECTED),
    [RECORD_WAITING] = STATUS(IN_PROGRESS) | STATUS(PENDING) | STATUS(WAITING) | STATUS(EXECUTED) |
                       STATUS(FAILED) | STATUS(REJECTED),
    [RECORD_IN_PROGRESS] = STATUS(IN_PROGRESS) | STATUS(PENDING) | STATUS(WAITING) | STATUS(DEAD) |
                           STATUS(UNKNOWN) | STATUS(RELEASED) | STATUS(EXECUTED) | STATUS(FAILED) |
                           STATUS(REJECTED),
    /* The holder may still report how it ended, so unknown leads wherever in_progress does. */
    [RECORD_UNKNOWN] = STATUS(IN_PROGRESS) | STATUS(PENDING) | STATUS(WAITING) | STATUS(DEAD) |
                       STATUS(RELEASED) | STATUS(EXECUTED) | STATUS(FAILED) | STATUS(REJECTED) |
                       STATUS(COMPENSATED),
    [RECORD_RELEASED] = STATUS(IN_PROGRESS),
    [RECORD_EXECUTED] = STATUS(COMPENSATING),
    [RECORD_FAILED] =
        STATUS(IN_PROGRESS) | STATUS(PENDING) | STATUS(WAITING) | STATUS(COMPENSATING),
    [RECORD_REJECTED] = STATUS(IN_PROGRESS) | STATUS(PENDING) | STATUS(WAITING),
    [RECORD_DEAD] = STATUS(PENDING) | STATUS(REJECTED),
    [RECORD_COMPENSATING] = STATUS(COMPENSATED) | STATUS(UNKNOWN),
    [RECORD_COMPENSATED] = 0,
};

bool kind_known(enum record_kind kind)
{
    return (int)kind > 0 && (int)kind < KIND_END;
}

const char *kind_name(enum record_kind kind)
{
    return kind_known(kind) ? kinds[kind].name : "unnamed";
}

bool kind_has_id(enum record_kind kind)
{
    return kind_known(kind) && kinds[kind].id_prefix != NULL;
}

bool kind_has_status(enum record_kind kind, enum record_status status)
{
    return kind_known(kind) && (int)status > 0 && (int)status < RECORD_STATUS_END &&
           kinds[kind].words[status] != NULL;
}

const char *kind_word(enum record_kind kind, enum record_status status, uint32_t attempt)
{
    if (!kind_has_status(kind, status)) {
        return NULL;
    }
    if (kind == RECORD_COMMAND && status == RECORD_WAITING && attempt > 0) {
        return "awaiting_effects";
    }
    return kinds[kind].words[status];
}

bool kind_uncertain(enum record_kind kind, enum record_status status)
{
    return kind == RECORD_EFFECT && status == RECORD_UNKNOWN;
}

bool kind_takes(enum record_kind kind, enum request_kind request)
{
    ASSERT((unsigned)request < REQUEST_KIND_END);
    return kind_known(kind) && (kinds[kind].requests & 1u << request) != 0;
}

bool kind_may_become(enum record_kind kind, enum record_status from, enum record_status to)
{
    ASSERT((unsigned)from < RECORD_STATUS_END);
    return ((int)from == 0 || kind_has_status(kind, from)) && kind_has_status(kind, to) &&
           (arrows[from] & 1u << to) != 0;
}

bool kind_may_compensate(enum record_kind kind, enum record_status status)
{
    ASSERT((unsigned)status < RECORD_STATUS_END);
    return kind_known(kind) && (kinds[kind].compensable & 1u << status) != 0;
}

char *kind_id_put(char ret_text[KIND_ID_TEXT_BYTES], enum record_kind kind, const struct op_id *id)
{
    ASSERT(kind_has_id(kind));
    size_t len = strlen(kinds[kind].id_prefix);
    memcpy(ret_text, kinds[kind].id_prefix, len);
    (void)uuid_put(ret_text + len, id->bytes);
    return ret_text;
}

bool kind_id_read(struct slice text, enum record_kind *ret_kind, struct op_id *ret_id)
{
    for (int i = 1; i < KIND_END; i++) {
        const char *prefix = kinds[i].id_prefix;
        size_t len = prefix == NULL ? 0 : strlen(prefix);
        if (len > 0 && text.len > len && memcmp(text.data, prefix, len) == 0) {
            if (!uuid_read(slice_of(text.data + len, text.len - len), ret_id->bytes)) {
                return false;
            }
            *ret_kind = (enum record_kind)i;
            return true;
        }
    }
    return false;
}

static const char *const request_names[REQUEST_KIND_END] = {
    [REQUEST_BEGIN] = "begin",
    [REQUEST_SEAL] = "seal",
    [REQUEST_RELEASE] = "release",
    [REQUEST_UNKNOWN] = "unknown",
    [REQUEST_RENEW] = "renew",
    [REQUEST_RESOLVE] = "resolve",
    [REQUEST_LEASE_OVER] = "lease_over",
    [REQUEST_HOLDER_GONE] = "holder_gone",
    [REQUEST_ENQUEUE] = "enqueue",
    [REQUEST_CLAIM] = "claim",
    [REQUEST_RETRY] = "retry",
    [REQUEST_GIVE_UP] = "give_up",
    [REQUEST_WAIT] = "wait",
    [REQUEST_WAKE] = "wake",
    [REQUEST_CANCEL] = "cancel",
    [REQUEST_TAKE_UP] = "take_up",
    [REQUEST_POSTPONE] = "postpone",
    [REQUEST_COMPENSATE] = "compensate",
    [REQUEST_COMPENSATION_SETTLE] = "compensation_settle",
};

const char *request_kind_name(enum request_kind kind)
{
    return (unsigned)kind < REQUEST_KIND_END ? request_names[kind] : "unnamed";
}

bool request_kind_read(struct slice text, enum request_kind *ret_kind)
{
    for (int i = 0; i < REQUEST_KIND_END; i++) {
        if (slice_is(text, request_names[i])) {
            *ret_kind = (enum request_kind)i;
            return true;
        }
    }
    return false;
}
