#include "api/life.h"

/*
 * POST /v1/fences and what its holder says afterwards. Each is read (ask.h), decided by the engine,
 * and shown (show.h); life.h takes it there and back.
 */

void api_fence_begin(struct api_ask *ask)
{
    struct ask_fault fault;
    const struct json_value *object;
    struct api_call *call = ask_call_new(ask);
    if (call == NULL) {
        api_fail_memory(ask);
        return;
    }
    enum status status = ask_json(ask, &object, &fault);
    status = status == OK ? ask_begin(call, object, false, &fault) : status;
    if (status != OK) {
        ask_answer_fault(ask, &fault);
        return;
    }
    life_submit(call);
}

static void hold(struct api_ask *ask, enum request_kind kind)
{
    struct ask_fault fault;
    const struct json_value *object;
    struct api_call *call = ask_call_new(ask);
    if (call == NULL) {
        api_fail_memory(ask);
        return;
    }
    enum status status = ask_json(ask, &object, &fault);
    if (status == OK) {
        status = kind == REQUEST_SEAL ? ask_seal(call, object, false, &fault)
                                      : ask_hold(call, kind, object, &fault);
    }
    if (status != OK) {
        ask_answer_fault(ask, &fault);
        return;
    }
    life_submit(call);
}

void api_fence_seal(struct api_ask *ask)
{
    hold(ask, REQUEST_SEAL);
}

void api_fence_release(struct api_ask *ask)
{
    hold(ask, REQUEST_RELEASE);
}

void api_fence_unknown(struct api_ask *ask)
{
    hold(ask, REQUEST_UNKNOWN);
}

void api_fence_renew(struct api_ask *ask)
{
    hold(ask, REQUEST_RENEW);
}
