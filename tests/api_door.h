/*
 * api_door: one door for each test of a program, opened and closed around it.
 *
 * For cmocka_unit_test_setup_teardown(test, open_door, close_door).
 */
#ifndef ONCE_TESTS_API_DOOR_H
#define ONCE_TESTS_API_DOOR_H

#include <stdio.h>

#include "api_drive.h"
#include "check_c.h"

static struct house house;

static int open_door(void **state)
{
    struct api_policy policy = house_policy();
    (void)state;
    return house_open(&house, &mem_libc, &policy) == OK ? 0 : -1;
}

static int close_door(void **state)
{
    (void)state;
    house_close(&house);
    return 0;
}

static inline void post(const char *target, const char *body, struct reply *ret_reply)
{
    house_ask(&house, "POST", target, NULL, slice_str(body), ret_reply);
}

/* What the holder of a grant needs. */
struct house_grant {
    char id[64];
    char fence[32];
};

/* Begin with this body; it must be granted. */
static inline struct house_grant begin(const char *body)
{
    struct reply reply;
    struct house_grant grant;
    post("/v1/fences", body, &reply);
    assert_int_equal(reply.status, 201);
    (void)snprintf(grant.id, sizeof grant.id, "%s", reply_get(&reply, "operation_id"));
    (void)snprintf(grant.fence, sizeof grant.fence, "%s", reply_get(&reply, "fence"));
    reply_release(&reply);
    return grant;
}

#endif
