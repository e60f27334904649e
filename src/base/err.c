#include "base/err.h"

#include <stdio.h>
#include <string.h>

const char *status_name(enum status status)
{
    switch (status) {
    case OK: return "ok";
    case E_UNKNOWN: return "unknown";
    case E_UNAVAILABLE: return "unavailable";
    case E_STALE: return "stale";
    case E_INVALID: return "invalid";
    case E_LIMIT: return "limit";
    case E_CORRUPT: return "corrupt";
    case E_NOMEM: return "no_memory";
    case E_MISUSE: return "misuse";
    }
    return "unnamed";
}

const char *err_limit_name(enum err_limit limit)
{
    switch (limit) {
    case ERR_LIMIT_NONE: return "";
    case ERR_LIMIT_QUEUE_REQUESTS: return "queue_requests_max";
    case ERR_LIMIT_KEYS: return "keys_max";
    case ERR_LIMIT_COMMIT_BYTES: return "commit_bytes_max";
    case ERR_LIMIT_SPOOL_BYTES: return "gateway.spool_max";
    case ERR_LIMIT_BODY_BYTES: return "body_bytes_max";
    case ERR_LIMIT_LISTENERS: return "listeners_max";
    }
    return "unnamed";
}

static void set_text(struct err *err, enum status status, const char *format, va_list args)
{
    err->status = status;
    err->limit = ERR_LIMIT_NONE;
    err->cause = 0;
    err->hint[0] = '\0';
    (void)vsnprintf(err->text, sizeof err->text, format, args);
}

enum status err_set(struct err *err, enum status status, const char *format, ...)
{
    if (err != NULL) {
        va_list args;
        va_start(args, format);
        set_text(err, status, format, args);
        va_end(args);
    }
    return status;
}

enum status err_limit(struct err *err, enum err_limit limit, const char *format, ...)
{
    if (err != NULL) {
        va_list args;
        va_start(args, format);
        set_text(err, E_LIMIT, format, args);
        va_end(args);
        err->limit = limit;
    }
    return E_LIMIT;
}

/* A text that was cut may end before its cause. */
static void set_cause(struct err *err, size_t at)
{
    size_t len = strlen(err->text);
    err->cause = (unsigned short)(at < len ? at : len);
}

enum status err_errno(struct err *err, enum status status, int errno_value, const char *format, ...)
{
    if (err != NULL) {
        va_list args;
        va_start(args, format);
        set_text(err, status, format, args);
        va_end(args);

        char reason[128];
        const char *text = strerror_r(errno_value, reason, sizeof reason);
        size_t used = strlen(err->text);
        (void)snprintf(err->text + used, sizeof err->text - used, ": %s", text);
        set_cause(err, used + strlen(": "));
    }
    return status;
}

void err_prefix(struct err *err, const char *format, ...)
{
    if (err == NULL) {
        return;
    }
    char old[ERR_TEXT_BYTES_MAX];
    memcpy(old, err->text, sizeof old);

    va_list args;
    va_start(args, format);
    (void)vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);

    size_t used = strlen(err->text);
    (void)snprintf(err->text + used, sizeof err->text - used, ": %s", old);
    if (err->cause > 0) {
        set_cause(err, err->cause + used + strlen(": "));
    }
}

void err_hint(struct err *err, const char *format, ...)
{
    if (err != NULL) {
        va_list args;
        va_start(args, format);
        (void)vsnprintf(err->hint, sizeof err->hint, format, args);
        va_end(args);
    }
}
