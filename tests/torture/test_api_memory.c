#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api_drive.h"
#include "check_c.h"
#include "faulty_mem.h"
#include "sanitized.h"

/*
 * A begin, its duplicate, its seal and a replay through the door, again and again, each time with
 * another allocation failing: once, or from then on until the step is over. A step is answered as
 * always or with 503, and then it was not taken: asked again it must decide as if the first try had
 * never been. So no grant and no seal is lost behind an answer that could not be made.
 */

/* One step of the story: what is asked, and the only right answer. */
struct api_step {
    const char *target;
    const char *body;
    unsigned status;
    const char *decision; /* or code */
};

struct told {
    char id[64];
    char fence[32];
    char pad[2048]; /* members of an array that is passed over, to fill memory with */
};

/* Put a text in the place of a mark, where there is one. */
static void replace(char body[4096], char mark, const char *text)
{
    char rest[4096];
    char *at = strchr(body, mark);
    if (at != NULL) {
        (void)snprintf(rest, sizeof rest, "%s", at + 1);
        (void)snprintf(at, 4096 - (size_t)(at - body), "%s%.512s", text, rest);
    }
}

/* Ask once; true when it was answered as it should, false when memory was short. */
static bool ask(struct house *house, const struct api_step *step, struct told *told)
{
    struct reply reply;
    char target[128], body[4096];
    (void)snprintf(target, sizeof target, "%s%s%s", step->target,
        step->target[strlen(step->target) - 1] == '/' ? told->id : "",
        step->target[strlen(step->target) - 1] == '/' ? "/seal" : "");
    (void)snprintf(body, sizeof body, "%s", step->body);
    replace(body, '@', told->fence);
    replace(body, '#', told->pad);
    house_ask(house, "POST", target, NULL, slice_str(body), &reply);
    bool in_batch = strcmp(reply_get(&reply, "0/code"), "out_of_memory") == 0;
    bool done = reply.status != 503 && !in_batch;
    if (done) {
        const char *said = reply_get(&reply, reply.status == 409 ? "code" : "decision");
        said = strcmp(said, "(none)") == 0 ? reply_get(&reply, "0/decision") : said;
        if (reply.status != step->status || strcmp(said, step->decision) != 0) {
            fail_msg("%.100s: %u %.300s", body, reply.status, reply.text);
        }
        if (strcmp(said, "first_seen") == 0) {
            bool many = reply.json->type == JSON_ARRAY;
            (void)snprintf(told->id, sizeof told->id, "%s",
                reply_get(&reply, many ? "0/operation_id" : "operation_id"));
            (void)snprintf(told->fence, sizeof told->fence, "%s",
                reply_get(&reply, many ? "0/fence" : "fence"));
        }
    } else {
        assert_string_equal(reply_get(&reply, in_batch ? "0/code" : "code"), "out_of_memory");
        assert_string_equal(reply_get(&reply, in_batch ? "0/effect" : "effect"), "no");
    }
    reply_release(&reply);
    return done;
}

#define BEGIN(key)                                                                                 \
    "{\"scope\":\"s\",\"key\":\"" key "\",\"payload\":{\"a\":[1,2,{\"b\":\"c\"}]},\"x_pad\":[#]}"
#define SEAL                                                                                       \
    "{\"fence\":@,\"status\":\"executed\",\"effect_id\":\"e\",\"outcome\":{\"x\":1},"              \
    "\"x_pad\":[#]}"
static const struct api_step story[] = {
    {"/v1/fences", BEGIN("k"), 201, "first_seen"},
    {"/v1/fences", BEGIN("k"), 202, "in_progress"},
    {"/v1/fences", "{\"scope\":\"s\",\"key\":\"k\",\"payload\":{\"a\":2}}", 409,
        "idempotency_conflict"},
    {"/v1/fences/", SEAL, 200, "sealed"},
    {"/v1/fences/", SEAL, 200, "sealed"},
    {"/v1/fences", BEGIN("k"), 200, "duplicate_replayed"},
    {"/v1/fences/batch", "[" BEGIN("l") "]", 200, "first_seen"},
};
enum { STEPS = sizeof story / sizeof story[0] };

/* The story with allocation n of step `at` failing. True when there was such an allocation. */
static bool tell(size_t at, long n, bool sticky, unsigned pad)
{
    struct faulty faulty = {.live = 0};
    struct mem mem = {faulty_resize, &faulty};
    struct api_policy policy = house_policy();
    struct house house;
    struct told told = {"", "", ""};
    for (unsigned i = 0; i < pad; i++) {
        memcpy(told.pad + 2 * (size_t)i, i + 1 < pad ? "0," : "0", i + 1 < pad ? 3 : 2);
    }
    bool reached = false;
    assert_int_equal(house_open(&house, &mem, &policy), OK);
    for (size_t i = 0; i < STEPS; i++) {
        faulty_arm(&faulty, i == at ? n : 0, sticky ? FAULTY_FOR_GOOD : 1);
        bool done = ask(&house, &story[i], &told);
        if (i == at) {
            reached = faulty.asked >= n;
        }
        faulty_arm(&faulty, 0, 0);
        if (!done) {
            assert_true(i == at);
            assert_true(ask(&house, &story[i], &told));
        }
    }
    house_close(&house);
    assert_int_equal(faulty.live, 0);
    return reached;
}

/* Each allocation of a step fails in turn, once and then for good. Returns how many there were. */
static long tell_all(size_t at, unsigned pad, bool for_good)
{
    long n = 1;
    for (int sticky = 0; sticky < 1 + for_good; sticky++) {
        for (n = 1; tell(at, n, sticky != 0, pad); n++) {
        }
        assert_true(n > 1); /* something was allocated, or this tests nothing */
    }
    return n;
}

/* Memory comes in large pieces. What fills the first one up, so that a piece ends at another place
 * each time, makes every use of it the one that needs more. A stride is larger than an answer:
 * where one more piece is needed, what changes something is looked at closely. ONCE_TEST_LONG has
 * more places; with sanitizers the short tier has the first one only. */
static void no_grant_or_seal_is_hidden_by_a_lack_of_memory(void **state)
{
    (void)state;
    enum {
        CLOSELY = 8,   /* so many members of an array take less room than any answer */
        PADS_END = 700 /* past it the first piece is full */
    };
    bool is_long = getenv("ONCE_TEST_LONG") != NULL;
    unsigned stride = IS_SANITIZED ? (is_long ? 100 : PADS_END) : is_long ? 10 : 30;
    for (size_t at = 0; at < STEPS; at++) {
        bool changes = strcmp(story[at].decision, "first_seen") == 0 ||
                       strcmp(story[at].decision, "sealed") == 0;
        long before = tell_all(at, 0, true);
        for (unsigned pad = stride; pad < PADS_END; pad += stride) {
            long asked = tell_all(at, pad, true);
            unsigned near = changes && asked > before ? pad - stride + CLOSELY : pad;
            for (; near < pad; near += CLOSELY) {
                (void)tell_all(at, near, false);
            }
            before = asked;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(no_grant_or_seal_is_hidden_by_a_lack_of_memory)};
    return cmocka_run_group_tests_name("api_memory", tests, NULL, NULL);
}
