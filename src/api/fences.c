#include "api/call.h"

/*
 * POST /v1/fences and what its holder says afterwards. Each is read (ask.h), decided by the engine,
 * and shown (show.h); life.h takes it there and back.
 */

static enum status read_begin(
    struct api_call *call, const struct json_value *body, struct api_body_fault *fault)
{
    return api_body_begin(call, body, false, fault);
}

void api_fence_begin(struct api_ask *ask)
{
    api_call_run(ask, read_begin);
}

static enum status read_seal(
    struct api_call *call, const struct json_value *body, struct api_body_fault *fault)
{
    return api_body_seal(call, body, false, fault);
}

void api_fence_seal(struct api_ask *ask)
{
    api_call_run(ask, read_seal);
}

static enum status read_release(
    struct api_call *call, const struct json_value *body, struct api_body_fault *fault)
{
    return api_body_hold(call, REQUEST_RELEASE, body, fault);
}

void api_fence_release(struct api_ask *ask)
{
    api_call_run(ask, read_release);
}

static enum status read_unknown(
    struct api_call *call, const struct json_value *body, struct api_body_fault *fault)
{
    return api_body_hold(call, REQUEST_UNKNOWN, body, fault);
}

void api_fence_unknown(struct api_ask *ask)
{
    api_call_run(ask, read_unknown);
}

static enum status read_renew(
    struct api_call *call, const struct json_value *body, struct api_body_fault *fault)
{
    return api_body_hold(call, REQUEST_RENEW, body, fault);
}

void api_fence_renew(struct api_ask *ask)
{
    api_call_run(ask, read_renew);
}
