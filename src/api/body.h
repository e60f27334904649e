/*
 * body: request bodies, read into calls for the engine.
 *
 * Promises:  a member that is unknown, missing or wrong is refused, and the refusal names it. A
 *            body that is not JSON is refused with line and column. Both happen before the engine
 *            is called. The tenant is the caller's, whatever the body says (P9). Everything a call
 *            points at belongs to the exchange: its body, its arena, or its policy.
 * Does not:  submit, or read Content-Type.
 */
#ifndef ONCE_API_BODY_H
#define ONCE_API_BODY_H

#include "api/routes.h"
#include "canon/json.h"
#include "canon/members.h"

/* Read the body of the exchange. False: it is not JSON, or memory is short; the request has been
 * answered. */
bool api_body_json(struct api_request *request, const struct json_value **ret_value) MUST_CHECK;
/* Answer with the reason for refusing a body: E_NOMEM, or E_INVALID with its fault. */
void api_body_refuse(
    struct api_request *request, enum status status, const struct member_fault *fault);

/* Read a value of the exchange's body into a call: one reader for each route that changes something
 * (routes.h). In a batch a seal names its operation itself, and a begin may not wait. E_INVALID,
 * E_NOMEM. */
enum status api_body_begin(
    struct api_call *call, const struct json_value *value, struct member_fault *fault) MUST_CHECK;
enum status api_body_seal(
    struct api_call *call, const struct json_value *value, struct member_fault *fault) MUST_CHECK;
enum status api_body_release(
    struct api_call *call, const struct json_value *value, struct member_fault *fault) MUST_CHECK;
enum status api_body_unknown(
    struct api_call *call, const struct json_value *value, struct member_fault *fault) MUST_CHECK;
enum status api_body_renew(
    struct api_call *call, const struct json_value *value, struct member_fault *fault) MUST_CHECK;
enum status api_body_resolve(
    struct api_call *call, const struct json_value *value, struct member_fault *fault) MUST_CHECK;

#endif
