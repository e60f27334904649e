#include "cli/begin.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/holder.h"

bool begin_holder_gone(const struct operation *operation, struct arena *arena, int64_t *ret_pid)
{
    const struct json_value *trace =
        operation == NULL ? NULL : operation_member(operation, "trace");
    struct slice raw = trace == NULL ? SLICE_EMPTY : json_raw(operation->members, trace);
    char *text = trace == NULL ? NULL : arena_zalloc(arena, raw.len + 1);
    if (text == NULL || operation->attempt != 1) {
        return false;
    }
    memcpy(text, raw.data, raw.len);
    return holder_gone(text, ret_pid);
}

int begin_ask(struct backend *backend, const struct once_begin *request, const char *who,
    struct backend_answer *ret_answer, struct once_error *error)
{
    char reason[128];
    char actor[64];
    int64_t pid = 0;
    const struct once_call begin = {.begin = request};
    int result = backend->ops->call(backend, &begin, ret_answer, error);
    if (result != ONCE_OK || ret_answer->decision != ONCE_IN_PROGRESS ||
        !begin_holder_gone(ret_answer->operation, backend->found, &pid)) {
        return result;
    }
    (void)snprintf(
        reason, sizeof reason, "the process that ran it, pid %lld, is gone", (long long)pid);
    (void)snprintf(actor, sizeof actor, "%s, pid %lld", who, (long long)getpid());
    struct once_hold hold = {.operation_id = ret_answer->operation_id,
        .fence = ret_answer->operation->fence,
        .reason = reason,
        .actor = actor, /* a server records its own name for the caller */
        .request_id = request->request_id};
    struct backend_answer marked;
    result = backend->ops->call(backend, &(struct once_call){.unknown = &hold}, &marked, error);
    /* Whatever was decided: it may have been settled at this very moment. Beginning again shows
     * it. */
    return result == ONCE_OK ? backend->ops->call(backend, &begin, ret_answer, error) : result;
}
