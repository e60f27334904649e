/*
 * api_drive: the HTTP door without sockets: requests as text in, answers as text out.
 *
 * A real engine over "mem:" decides. The server's side (http/serve.h, http/problem.h) is played by
 * this file, on the test's own thread.
 */
#ifndef ONCE_TESTS_API_DRIVE_H
#define ONCE_TESTS_API_DRIVE_H

#include "api/api.h"
#include "canon/json.h"

/* A door and everything that it uses. */
struct house {
    const struct mem *mem;
    struct engine *engine;
    struct door *door;
    struct api *api;
};

/* One answer. */
struct reply {
    struct arena arena;
    unsigned status;
    char *fields; /* "Name: value\n", in the order they were given */
    char *text;   /* the body, terminated */
    struct slice content_type;
    const struct json_value *json; /* NULL: no JSON */
};

/* What a server has without a configuration. */
struct api_policy house_policy(void);
/* E_NOMEM only. */
enum status house_open(
    struct house *house, const struct mem *mem, const struct api_policy *policy) MUST_CHECK;
/* The same with a second door, whose routes the API serves: asked for when there is an engine. */
enum status house_open_with(struct house *house, const struct mem *mem,
    const struct api_policy *policy, struct api_routes (*routes)(struct house *house)) MUST_CHECK;
void house_close(struct house *house);

/* headers is "Name: value\r\n" for each, or NULL; body NULL: none. Free with reply_release. */
void house_ask(struct house *house, const char *method, const char *target, const char *headers,
    struct slice body, struct reply *ret_reply);
void reply_release(struct reply *reply);

/* A text or number below the answer, by a path such as "outcome/id" or "0/code"; "null", "true" and
 * "false" for those; "(none)" when there is no such value; "{" and "[" for what has parts. */
const char *reply_get(struct reply *reply, const char *path);
/* The value of a field, or "(none)". */
const char *reply_field(struct reply *reply, const char *name);

#endif
