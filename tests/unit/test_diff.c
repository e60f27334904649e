/*
 * The diff of two values: applied it gives the second, redacted it gives nothing away, capped it is
 * still a patch.
 */
#include <stdio.h>

#include "canon/diff.h"
#include "check_c.h"
#include "patch.h"

enum { MEMORY_MAX = 16 << 20, PAIRS = 20000 };

struct random {
    uint64_t state;
};

static uint32_t random_below(struct random *random, uint32_t limit)
{
    random->state = random->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random->state >> 33) % limit;
}

static void put_random(struct random *random, struct buf *out, int depth);

static void put_random_members(struct random *random, struct buf *out, int depth)
{
    static const char *const names[] = {"a", "b", "a/b", "m~n", "", "card", "number", "\\u00e9",
        "\\ud83d\\ude02", "~1", "0", "\\n"};
    bool any = false;
    buf_char(out, '{');
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (random_below(random, 4) == 0) {
            buf_printf(out, "%s\"%s\":", any ? "," : "", names[i]);
            put_random(random, out, depth - 1);
            any = true;
        }
    }
    buf_char(out, '}');
}

static void put_random(struct random *random, struct buf *out, int depth)
{
    static const char *const scalars[] = {"null", "true", "false", "0", "1", "1.0", "-2.5e3",
        "9007199254740993", "9007199254740992", "\"\"", "\"x\"", "\"y\\n\"", "\"\\u00e9\""};
    uint32_t kind = random_below(random, depth == 0 ? 2 : 6);
    if (kind < 2) {
        buf_str(out, scalars[random_below(random, sizeof scalars / sizeof *scalars)]);
    } else if (kind < 4) {
        put_random_members(random, out, depth);
    } else {
        buf_char(out, '[');
        uint32_t count = random_below(random, 6);
        for (uint32_t i = 0; i < count; i++) {
            buf_str(out, i == 0 ? "" : ",");
            put_random(random, out, depth - 1);
        }
        buf_char(out, ']');
    }
}

struct fixture {
    struct arena arena;
    struct buf before, after, patch, result;
    struct random random;
};

static int set_up(void **state)
{
    struct fixture *f = mem_zalloc(&mem_libc, 1, sizeof *f);
    arena_init(&f->arena, &mem_libc, MEMORY_MAX);
    buf_init(&f->before, &mem_libc, MEMORY_MAX);
    buf_init(&f->after, &mem_libc, MEMORY_MAX);
    buf_init(&f->patch, &mem_libc, MEMORY_MAX);
    buf_init(&f->result, &mem_libc, MEMORY_MAX);
    f->random.state = 42;
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    arena_release(&f->arena);
    buf_release(&f->before);
    buf_release(&f->after);
    buf_release(&f->patch);
    buf_release(&f->result);
    mem_free(&mem_libc, f);
    return 0;
}

static const struct json_value *read_or_fail(struct fixture *f, struct slice text)
{
    const struct json_value *value = NULL;
    struct err err;
    if (json_read(text, &f->arena, &value, &err) != OK) {
        fail_msg("%.*s: %s", SLICE_ARGS(text), err.text);
    }
    return value;
}

static void new_pair(struct fixture *f)
{
    arena_clear(&f->arena);
    buf_clear(&f->before);
    buf_clear(&f->after);
    buf_clear(&f->patch);
    buf_clear(&f->result);
    put_random(&f->random, &f->before, 4);
    put_random(&f->random, &f->after, 4);
}

static void a_patch_applied_to_the_first_value_gives_the_second(void **state)
{
    struct fixture *f = *state;
    size_t operations = 0;
    for (int i = 0; i < PAIRS; i++) {
        new_pair(f);
        const struct json_value *before = read_or_fail(f, buf_view(&f->before));
        const struct json_value *after = read_or_fail(f, buf_view(&f->after));
        struct diff_options options = {.bytes_max = MEMORY_MAX};
        bool truncated = true;
        assert_int_equal(diff_write(before, after, &options, &f->patch, &truncated, NULL), OK);
        assert_false(truncated);
        const struct json_value *patch = read_or_fail(f, buf_view(&f->patch));
        operations += patch->count;
        if (!patch_apply(before, patch, &f->arena, &f->result) ||
            !json_equal(read_or_fail(f, buf_view(&f->result)), after)) {
            fail_msg("pair %d: %.*s to %.*s by %.*s", i, SLICE_ARGS(buf_view(&f->before)),
                SLICE_ARGS(buf_view(&f->after)), SLICE_ARGS(buf_view(&f->patch)));
        }
        assert_int_equal(patch->count == 0, json_equal(before, after));
    }
    assert_true(operations > PAIRS);
}

static void a_capped_patch_is_valid_and_within_its_cap(void **state)
{
    struct fixture *f = *state;
    size_t cut = 0;
    for (int i = 0; i < 3000; i++) {
        new_pair(f);
        const struct json_value *before = read_or_fail(f, buf_view(&f->before));
        const struct json_value *after = read_or_fail(f, buf_view(&f->after));
        struct diff_options options = {.bytes_max = 2 + random_below(&f->random, 120)};
        bool truncated = true;
        buf_str(&f->patch, "before"); /* what is in the buffer already does not count */
        assert_int_equal(diff_write(before, after, &options, &f->patch, &truncated, NULL), OK);
        assert_true(f->patch.len - 6 <= options.bytes_max);
        struct slice text = slice_of(f->patch.data + 6, f->patch.len - 6);
        const struct json_value *patch = read_or_fail(f, text);
        assert_true(patch_apply(before, patch, &f->arena, &f->result));
        bool arrived = json_equal(read_or_fail(f, buf_view(&f->result)), after);
        assert_int_equal(arrived, !truncated);
        cut += truncated;
    }
    assert_true(cut > 500);
}

/* The patch from one text to another with some pointers redacted. */
static struct slice patch_text(struct fixture *f, const char *before, const char *after,
    const struct slice *redact, size_t redact_count)
{
    struct diff_options options = {
        .redact = redact, .redact_count = redact_count, .bytes_max = MEMORY_MAX};
    bool truncated;
    buf_clear(&f->patch);
    assert_int_equal(diff_write(read_or_fail(f, slice_str(before)),
                         read_or_fail(f, slice_str(after)), &options, &f->patch, &truncated, NULL),
        OK);
    return buf_view(&f->patch);
}

static void redacted_values_show_that_they_differ_and_nothing_else(void **state)
{
    static const struct {
        const char *pointer, *before, *after, *expected;
    } cases[] = {
        {"/card/number", "{\"card\":{\"number\":\"41\",\"n\":1}}",
            "{\"card\":{\"number\":\"42\",\"n\":2}}",
            "[{\"op\":\"replace\",\"path\":\"/card/n\",\"value\":2},"
            "{\"op\":\"replace\",\"path\":\"/card/number\",\"value\":\"[redacted]\"}]"},
        {"/card/number", "{\"card\":{\"number\":\"41\"}}", "{\"card\":{\"number\":\"41\"}}", "[]"},
        /* Inside a value that is new as a whole. */
        {"/card/number", "{}", "{\"card\":{\"number\":\"42\",\"n\":2}}",
            "[{\"op\":\"add\",\"path\":\"/card\",\"value\":{\"n\":2,\"number\":\"[redacted]\"}}]"},
        {"/card/number", "7", "{\"card\":{\"number\":{\"deep\":\"42\"}}}",
            "[{\"op\":\"replace\",\"path\":\"\","
            "\"value\":{\"card\":{\"number\":\"[redacted]\"}}}]"},
        /* Names below a redacted pointer are not shown either. */
        {"/card", "{\"card\":{\"pin\":1}}", "{\"card\":{\"pin\":2,\"cvc\":3}}",
            "[{\"op\":\"replace\",\"path\":\"/card\",\"value\":\"[redacted]\"}]"},
        {"/card", "{\"cards\":1}", "{\"cards\":2}",
            "[{\"op\":\"replace\",\"path\":\"/cards\",\"value\":2}]"},
        {"/a~1b/0", "{\"a/b\":[1,2]}", "{\"a/b\":[3,4]}",
            "[{\"op\":\"replace\",\"path\":\"/a~1b/0\",\"value\":\"[redacted]\"},"
            "{\"op\":\"replace\",\"path\":\"/a~1b/1\",\"value\":4}]"},
        {"/list/1", "{\"list\":[1]}", "{\"list\":[1,2]}",
            "[{\"op\":\"add\",\"path\":\"/list/1\",\"value\":\"[redacted]\"}]"},
        {"", "{\"a\":1}", "{\"a\":2}",
            "[{\"op\":\"replace\",\"path\":\"\",\"value\":\"[redacted]\"}]"},
        /* What was redacted when it was stored may be the same. Elsewhere it is a text. */
        {"/card", "{\"card\":\"[redacted]\",\"n\":1}", "{\"card\":\"42\",\"n\":2}",
            "[{\"op\":\"replace\",\"path\":\"/n\",\"value\":2}]"},
        {"/card", "{\"note\":\"[redacted]\"}", "{\"note\":\"42\"}",
            "[{\"op\":\"replace\",\"path\":\"/note\",\"value\":\"42\"}]"},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct slice pointer = slice_str(cases[i].pointer);
        struct slice got = patch_text(f, cases[i].before, cases[i].after, &pointer, 1);
        if (!slice_is(got, cases[i].expected)) {
            fail_msg("%s: %.*s", cases[i].pointer, SLICE_ARGS(got));
        }
    }
}

static void what_is_ignored_is_in_no_operation(void **state)
{
    static const struct {
        const char *pointer, *before, *after, *expected;
    } cases[] = {
        {"/at", "{\"a\":1,\"at\":1}", "{\"a\":2,\"at\":2}",
            "[{\"op\":\"replace\",\"path\":\"/a\",\"value\":2}]"},
        {"/at", "{\"at\":1}", "{\"ate\":2}", "[{\"op\":\"add\",\"path\":\"/ate\",\"value\":2}]"},
        {"/a~1b/0", "{\"a/b\":[{\"x\":1},1]}", "{\"a/b\":[{\"x\":2},2]}",
            "[{\"op\":\"replace\",\"path\":\"/a~1b/1\",\"value\":2}]"},
        {"/at/ms", "{\"at\":{\"ms\":1}}", "{\"at\":7}",
            "[{\"op\":\"replace\",\"path\":\"/at\",\"value\":7}]"},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct slice pointer = slice_str(cases[i].pointer);
        struct diff_options options = {
            .ignore = &pointer, .ignore_count = 1, .bytes_max = MEMORY_MAX};
        bool truncated;
        buf_clear(&f->patch);
        assert_int_equal(
            diff_write(read_or_fail(f, slice_str(cases[i].before)),
                read_or_fail(f, slice_str(cases[i].after)), &options, &f->patch, &truncated, NULL),
            OK);
        if (!slice_is(buf_view(&f->patch), cases[i].expected)) {
            fail_msg("%s: %.*s", cases[i].pointer, SLICE_ARGS(buf_view(&f->patch)));
        }
    }
}

static void no_redacted_secret_is_in_any_patch(void **state)
{
    struct fixture *f = *state;
    /* Whatever is at these places becomes a word that occurs nowhere else. */
    static const struct slice redact[] = {
        {"/a", 2}, {"/card/number", 12}, {"/0/b", 4}, {"/b/1", 4}};
    size_t shown = 0;
    for (int i = 0; i < 5000; i++) {
        new_pair(f);
        struct buf with_secrets;
        buf_init(&with_secrets, &mem_libc, MEMORY_MAX);
        struct slice after = buf_view(&f->after);
        buf_printf(&with_secrets,
            "{\"a\":{\"x\":\"SECRET\"},\"b\":[%.*s,\"SECRET\",1],\"card\":{\"number\":[\"SECRET\"],"
            "\"more\":%.*s}}",
            SLICE_ARGS(after), SLICE_ARGS(after));
        const struct json_value *before = read_or_fail(f, buf_view(&f->before));
        const struct json_value *value = read_or_fail(f, buf_view(&with_secrets));
        struct diff_options options = {
            .redact = redact, .redact_count = 4, .bytes_max = 100 + random_below(&f->random, 4000)};
        bool truncated;
        assert_int_equal(diff_write(before, value, &options, &f->patch, &truncated, NULL), OK);
        (void)read_or_fail(f, buf_view(&f->patch));
        assert_null(memmem(f->patch.data, f->patch.len, "SECRET", 6));
        shown += memmem(f->patch.data, f->patch.len, "[redacted]", 10) != NULL;
        buf_release(&with_secrets);
    }
    assert_true(shown > 1000);
}

static void numbers_differ_by_exact_value_and_are_shown_as_written(void **state)
{
    struct fixture *f = *state;
    assert_true(slice_is(patch_text(f, "[9007199254740992,1.0]", "[9007199254740993,1]", NULL, 0),
        "[{\"op\":\"replace\",\"path\":\"/0\",\"value\":9007199254740993}]"));
}

static void arrays_lose_their_common_ends(void **state)
{
    struct fixture *f = *state;
    assert_true(slice_is(patch_text(f, "[1,2,3,4,5]", "[1,2,9,3,4,5]", NULL, 0),
        "[{\"op\":\"add\",\"path\":\"/2\",\"value\":9}]"));
    assert_true(slice_is(patch_text(f, "[1,2,3,4,5]", "[1,5]", NULL, 0),
        "[{\"op\":\"remove\",\"path\":\"/3\"},{\"op\":\"remove\",\"path\":\"/2\"},"
        "{\"op\":\"remove\",\"path\":\"/1\"}]"));
}

/* Fails the nth allocation. */
static void *failing_resize(void *context, void *pointer, size_t size)
{
    int *left = context;
    if (size > 0 && (*left)-- == 0) {
        return NULL;
    }
    return mem_libc.resize(NULL, pointer, size);
}

static void a_failed_allocation_is_reported(void **state)
{
    struct fixture *f = *state;
    buf_str(&f->after, "{\"a\":\"");
    for (int i = 0; i < 2000; i++) {
        buf_char(&f->after, 'x');
    }
    buf_str(&f->after, "\"}");
    const struct json_value *before = read_or_fail(f, SLICE_LIT("{\"a\":1}"));
    const struct json_value *after = read_or_fail(f, buf_view(&f->after));
    for (int n = 0;; n++) {
        int left = n;
        struct mem mem = {failing_resize, &left};
        struct buf patch;
        struct diff_options options = {.bytes_max = MEMORY_MAX};
        bool truncated = true;
        buf_init(&patch, &mem, MEMORY_MAX);
        enum status status = diff_write(before, after, &options, &patch, &truncated, NULL);
        buf_release(&patch);
        if (status == OK) {
            assert_false(truncated);
            assert_true(n >= 3);
            break;
        }
        assert_int_equal(status, E_NOMEM);
    }
}

#define WITH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH(a_patch_applied_to_the_first_value_gives_the_second),
        WITH(a_capped_patch_is_valid_and_within_its_cap),
        WITH(redacted_values_show_that_they_differ_and_nothing_else),
        WITH(what_is_ignored_is_in_no_operation),
        WITH(no_redacted_secret_is_in_any_patch),
        WITH(numbers_differ_by_exact_value_and_are_shown_as_written),
        WITH(arrays_lose_their_common_ends),
        WITH(a_failed_allocation_is_reported),
    };
    return cmocka_run_group_tests_name("diff", tests, NULL, NULL);
}
