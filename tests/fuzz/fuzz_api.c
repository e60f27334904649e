/*
 * fuzz_api: any bytes as the body of any request to the house.
 *
 * The first byte chooses the path. Whatever the body is, the answer is one JSON document with one
 * of the statuses the path has; what is granted is in progress for whoever asks again, and what is
 * refused is refused the same way.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "api_drive.h"
#include "base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ID "op_018f0000-0000-7000-8000-000000000000"
static const char *const targets[] = {"/v1/fences", "/v1/fences/batch", "/v1/fences/" ID "/seal",
    "/v1/fences/" ID "/release", "/v1/fences/" ID "/unknown", "/v1/fences/" ID "/renew",
    "/v1/operations/" ID "/resolve"};

static void check_answer(const struct reply *reply)
{
    static const unsigned known[] = {200, 201, 202, 400, 404, 409};
    bool found = false;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        found = found || reply->status == known[i];
    }
    ASSERT(found);
    ASSERT(reply->json != NULL);
    ASSERT(reply->status < 400 || json_find(reply->json, SLICE_LIT("code")) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct api_policy policy = house_policy();
    struct house house;
    struct reply first, again;
    if (size == 0) {
        return 0;
    }
    const char *target = targets[data[0] % (sizeof targets / sizeof targets[0])];
    struct slice body = slice_of(data + 1, size - 1);
    if (house_open(&house, &mem_libc, &policy) != OK) {
        return 0;
    }
    house_ask(&house, "POST", target, NULL, body, &first);
    check_answer(&first);
    house_ask(&house, "POST", target, NULL, body, &again);
    check_answer(&again);
    /* What was granted is in progress now, and what was refused is refused the same way. */
    ASSERT(first.status != 201 || again.status == 202);
    ASSERT(first.status < 400 || strcmp(first.text, again.text) == 0);
    reply_release(&first);
    reply_release(&again);
    house_close(&house);
    return 0;
}
