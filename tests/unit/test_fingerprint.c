/*
 * A request as a whole: what its fingerprint counts, and what it takes to make it.
 */
#include <malloc.h>

#include "base/limits.h"
#include "check_c.h"
#include "files.h"
#include "request_form_kit.h"

enum { LARGE = 10 << 20 };

/* ---- the fingerprint ----------------------------------------------------------------------- */

/* The page's example; its figures come from elsewhere. */
static void the_fingerprint_is_as_the_page_says(void **state)
{
    struct fixture *f = *state;
    struct request_form_parts from = request("{\"currency\": \"EUR\", \"amount\": 1e2}");
    char hex[DIGEST_HEX_BYTES];
    from.has_query = true;
    from.query = SLICE_LIT("dry=no");
    struct request_form asked = read_from(f, &from);
    assert_int_equal(asked.body.version, FINGERPRINT_CANONICAL);
    assert_string_equal(digest_put_hex(hex, &asked.fingerprint),
        "b96e9317a4110fe594300c940e05780414b48e6b0afd3e8d8a49903bde3ec150");
    file_read_path(ONCE_TESTS_DIR "/../docs/formats/gateway.md", &f->text);
    assert_true(contains(buf_view(&f->text), hex));
}

static void bodies_that_are_one_have_one_fingerprint(void **state)
{
    static const char *const pairs[][2] = {
        {"{\"a\":1,\"b\":2}", "{\"b\":2,\"a\":1}"},
        {"{\"a\":1}", " { \"a\" :\t1 }\r\n"},
        {"{\"a\":1.50}", "{\"a\":15e-1}"},
        {"[\"\\u0041\\/\"]", "[\"A/\"]"},
        {"{\"a\":{\"c\":[],\"b\":{}}}", "{\"a\":{\"b\":{},\"c\":[]}}"},
        {"1", "1.0"},
        {"null", " null"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct request_form a = read_body(*state, pairs[i][0]);
        struct request_form b = read_body(*state, pairs[i][1]);
        assert_true(same(&a, &b));
        assert_int_equal(a.body.version, FINGERPRINT_CANONICAL);
    }
}

static void bodies_that_are_not_one_have_another(void **state)
{
    static const char *const pairs[][2] = {
        {"{\"a\":1}", "{\"a\":2}"},
        {"{\"a\":1}", "{\"a\":\"1\"}"},
        {"{\"a\":1}", "{\"b\":1}"},
        {"{\"a\":null}", "{}"},
        {"{}", "[]"},
        {"[1,2]", "[2,1]"},
        {"[1]", "[[1]]"},
        {"{\"n\":9007199254740993}", "{\"n\":9007199254740992}"},
        {"{\"n\":1e400}", "{\"n\":1e401}"},
        {"{\"n\":0.1}", "{\"n\":0.1000000000000000055}"},
        {"{\"a\":1,\"a\":2}", "{\"a\":2,\"a\":1}"},
        {"{\"a\":1,}", "{\"a\":1}"},
        {"", "null"},
        {"", "{}"},
        {"{\"a\":\"\xff\"}", "{\"a\":\"\xfe\"}"},
        {"[\"\\u00e9\"]", "[\"e\\u0301\"]"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct request_form a = read_body(*state, pairs[i][0]);
        struct request_form b = read_body(*state, pairs[i][1]);
        assert_false(same(&a, &b));
    }
}

static void what_is_no_json_or_lossy_is_taken_raw(void **state)
{
    struct fixture *f = *state;
    static const char *const raw[] = {"", "{", "{\"a\":1,\"a\":1}", "\xef\xbb\xbf{}",
        "{\"n\":9007199254740993}", "[1e400]", "[\"\\ud800\"]", "{} x", "a=1&b=2"};
    for (size_t i = 0; i < sizeof raw / sizeof *raw; i++) {
        assert_int_equal(read_body(f, raw[i]).body.version, FINGERPRINT_RAW);
    }
    struct request_form_parts from = request("{\"a\":1}");
    from.content_type = SLICE_LIT("text/plain");
    struct request_form plain = read_from(f, &from);
    assert_int_equal(plain.body.version, FINGERPRINT_RAW);
    from.body = SLICE_LIT("{ \"a\":1}");
    struct request_form spaced = read_from(f, &from);
    assert_false(same(&plain, &spaced));
}

/* What a replay is asked for with, instead of the whole body. */
static void a_known_body_has_its_fingerprint_and_is_not_read_again(void **state)
{
    static const char *const bodies[] = {
        "{\"b\": 1, \"a\": [1e2]}", "{\"a\":1}", "", "{\"a\":1,}", "{\"n\":9007199254740993}"};
    static const char *const ignore[] = {"/b"};
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        struct request_form again;
        struct request_form_parts from = request(bodies[i]);
        from.ignore = ignore;
        from.ignore_count = 1;
        struct request_form first = read_from(f, &from);
        assert_false(first.is_known);
        from.known = &first.body;
        from.ignore_count = 0; /* only who reads the body sees this */
        assert_int_equal(request_form_read(&from, &f->arena, &again), OK);
        assert_true(again.is_known && again.kept.len == 0);
        assert_true(same(&again, &first));
        assert_int_equal(again.body.version, first.body.version);
        from.path = SLICE_LIT("/v1/refunds"); /* all other parts count as always */
        assert_int_equal(request_form_read(&from, &f->arena, &again), OK);
        assert_true(again.is_known && !same(&again, &first));
    }
}

static void a_known_body_is_not_taken_for_a_different_one(void **state)
{
    struct fixture *f = *state;
    struct request_form known = read_body(f, "{\"a\": 1}");
    static const char *const bodies[] = {"{\"a\": 2}", "{\"a\":1}", "", "{\"a\": 1} "};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        struct request_form_parts from = request(bodies[i]);
        struct request_form plain = read_from(f, &from);
        from.known = &known.body;
        struct request_form asked = read_from(f, &from); /* which sees that something is kept */
        assert_false(asked.is_known);
        assert_true(same(&asked, &plain));
    }
    /* The same bytes of a different type have a different form. */
    struct request_form_parts text = request("{\"a\": 1}");
    text.content_type = SLICE_LIT("text/plain");
    text.known = &known.body;
    struct request_form asked = read_from(f, &text);
    assert_false(asked.is_known);
    assert_int_equal(asked.body.version, FINGERPRINT_RAW);
}

/* A body that is lossy, and another that is exactly its bytes' canonical neighbour. */
static void a_raw_body_is_never_a_canonical_one(void **state)
{
    struct fixture *f = *state;
    struct request_form canonical = read_body(f, "{\"a\":1}");
    struct request_form_parts from = request("{\"a\":1}");
    from.content_type = SLICE_LIT("text/plain");
    struct request_form raw = read_from(f, &from);
    assert_false(same(&canonical, &raw));
}

static void every_part_counts_and_none_runs_into_the_next(void **state)
{
    struct fixture *f = *state;
    struct request_form all[16];
    size_t count = 0;
    struct request_form_parts from = request("{}");
    all[count++] = read_from(f, &from);
    from.method = SLICE_LIT("PUT");
    all[count++] = read_from(f, &from);
    from = request("{}");
    from.path = SLICE_LIT("/v1/payment");
    all[count++] = read_from(f, &from);
    from.query = SLICE_LIT("s");
    from.has_query = true;
    all[count++] = read_from(f, &from);
    from.method = SLICE_LIT("POST/v1");
    from.path = SLICE_LIT("/payments");
    all[count++] = read_from(f, &from);
    from = request("{}");
    from.has_query = true;
    all[count++] = read_from(f, &from);
    from.query = SLICE_LIT("application/json");
    from.content_type = SLICE_EMPTY;
    all[count++] = read_from(f, &from);
    from.query = SLICE_LIT("application/");
    from.content_type = SLICE_LIT("json");
    all[count++] = read_from(f, &from);
    from = request("{}");
    from.content_type = SLICE_LIT("application/json;charset=utf-16");
    all[count++] = read_from(f, &from);
    from = request("[]");
    all[count++] = read_from(f, &from);
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < i; j++) {
            assert_false(same(&all[i], &all[j]));
        }
    }
}

/* ---- ignored pointers ---------------------------------------------------------------------- */

static struct request_form read_ignoring(struct fixture *f, const char *body, const char *pointer)
{
    struct request_form_parts from = request(body);
    from.ignore = &pointer;
    from.ignore_count = 1;
    return read_from(f, &from);
}

static void an_ignored_pointer_leads_where_rfc_6901_says(void **state)
{
    static const struct {
        const char *body, *pointer, *left; /* NULL: it leads nowhere */
    } table[] = {
        {"{\"a\":1,\"b\":2}", "/a", "{\"b\":2}"},
        {"{\"a\":{\"b\":1,\"c\":2}}", "/a/b", "{\"a\":{\"c\":2}}"},
        {"{\"a\":{\"b\":1}}", "/a/b", "{\"a\":{}}"},
        {"{\"a\":[1,2,3]}", "/a/1", "{\"a\":[1,3]}"},
        {"[1]", "/0", "[]"},
        {"[[1,2],[3,4]]", "/1/0", "[[1,2],[4]]"},
        {"{\"\":1,\"a\":2}", "/", "{\"a\":2}"},
        {"{\"\":{\"\":1}}", "//", "{\"\":{}}"},
        {"{\"a/b\":1}", "/a~1b", "{}"},
        {"{\"m~n\":1}", "/m~0n", "{}"},
        {"{\"~1\":1}", "/~01", "{}"},
        {"{\"0\":1}", "/0", "{}"},
        {"{\"01\":1}", "/01", "{}"},
        {"{\"\\u00e9\":1}", "/\xc3\xa9", "{}"},
        {"{\"n\":9007199254740993,\"a\":1}", "/n", "{\"a\":1}"},
        {"{\"n\":1e400,\"a\":1}", "/n", "{\"a\":1}"},
        {"{\"a\":1}", "a", NULL},
        {"{\"a\":1}", "/b", NULL},
        {"{\"a\":1}", "/a/b", NULL},
        {"{\"a\":1}", "/a/", NULL},
        {"[1,2]", "/2", NULL},
        {"[1,2]", "/-", NULL},
        {"[1,2]", "/01", NULL},
        {"[1,2]", "/+1", NULL},
        {"[1,2]", "/18446744073709551616", NULL},
        {"[1,2]", "/a", NULL},
        {"{\"~2\":1}", "/~2", NULL},
        {"{\"~\":1}", "/~", NULL},
        {"1", "/0", NULL},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const char *left = table[i].left == NULL ? table[i].body : table[i].left;
        struct request_form ignored = read_ignoring(*state, table[i].body, table[i].pointer);
        struct request_form expected = read_body(*state, left);
        if (!same(&ignored, &expected)) {
            fail_msg("%s without %s", table[i].body, table[i].pointer);
        }
    }
}

static void ignoring_the_whole_leaves_all_json_the_same_and_nothing_else(void **state)
{
    struct request_form a = read_ignoring(*state, "{\"a\":1}", "");
    struct request_form b = read_ignoring(*state, "[2]", "");
    struct request_form broken = read_ignoring(*state, "[2", "");
    struct request_form none = read_ignoring(*state, "", "");
    assert_true(same(&a, &b));
    assert_int_equal(a.body.version, FINGERPRINT_CANONICAL);
    assert_false(same(&a, &broken));
    assert_false(same(&a, &none));
}

/* ---- random bodies ------------------------------------------------------------------------- */

static void any_spelling_of_a_body_has_its_fingerprint_and_any_change_another(void **state)
{
    struct fixture *f = *state;
    for (int round = 0; round < ROUNDS; round++) {
        struct model model, changed;
        new_model(&model, &f->prng);
        struct request_form first = read_model(f, &model, &f->text);
        struct request_form again = read_model(f, &model, &f->other);
        assert_int_equal(first.body.version, FINGERPRINT_CANONICAL);
        assert_true(same(&first, &again));
        changed = model;
        change(&changed, any_place(&model, &f->prng), &f->prng);
        struct request_form other = read_model(f, &changed, &f->other);
        assert_false(same(&first, &other));
        arena_clear(&f->arena);
    }
}

static void what_is_ignored_does_not_count_and_all_else_does(void **state)
{
    struct fixture *f = *state;
    for (int round = 0; round < ROUNDS; round++) {
        struct model model, without, changed;
        struct places places;
        new_model(&model, &f->prng);
        draw_places(&places, &model, &f->prng);
        struct request_form_parts from = request("");
        from.body = body_of(&model, &f->prng, &f->text);
        from.ignore = places.pointers;
        from.ignore_count = places.count;
        struct request_form ignored = read_from(f, &from);
        without = model;
        for (size_t i = 0; i < places.count; i++) {
            without.nodes[places.at[i]].is_gone = true;
        }
        struct request_form expected = read_model(f, &without, &f->other);
        assert_true(same(&ignored, &expected));

        /* Another value moves no index, so the pointers still lead to the same places. */
        unsigned at = any_place(&model, &f->prng);
        changed = model;
        change_value(&changed, at);
        from.body = body_of(&changed, &f->prng, &f->text);
        struct request_form other = read_from(f, &from);
        assert_true(same(&ignored, &other) == is_covered(&places, &model, at));
        arena_clear(&f->arena);
    }
}

/* ---- memory -------------------------------------------------------------------------------- */

struct memory {
    long live;    /* bytes */
    long peak;    /* of live */
    long asked;   /* allocations */
    long failing; /* which of them fails; 0: none */
};

static void *counted_resize(void *context, void *pointer, size_t size)
{
    struct memory *memory = context;
    long before = pointer == NULL ? 0 : (long)malloc_usable_size(pointer);
    if (size > 0 && ++memory->asked == memory->failing) {
        return NULL;
    }
    void *result = mem_libc.resize(NULL, pointer, size);
    memory->live += (size == 0 ? 0 : (long)malloc_usable_size(result)) - before;
    /* While a block moves, both are there. */
    long peak = memory->live + before;
    memory->peak = peak > memory->peak ? peak : memory->peak;
    return result;
}

/* Bytes held at most while a body is read, for each byte of it. */
static double cost(struct fixture *f, enum fingerprint_version expected)
{
    struct memory memory = {.live = 0};
    struct mem mem = {counted_resize, &memory};
    struct arena arena;
    struct request_form asked;
    static const char *const pointers[] = {"/0/id", "/1/name", "/2"};
    struct request_form_parts from = request("");
    from.body = buf_view(&f->text);
    from.ignore = from.redact = pointers;
    from.ignore_count = from.redact_count = 3;
    arena_init(&arena, &mem, MEMORY_MAX);
    assert_int_equal(request_form_read(&from, &arena, &asked), OK);
    assert_int_equal(asked.body.version, expected);
    arena_release(&arena);
    assert_int_equal(memory.live, 0);
    return (double)memory.peak / (double)from.body.len;
}

static void put_list(struct buf *out, const char *item, size_t size)
{
    buf_clear(out);
    buf_char(out, '[');
    while (out->len < size) {
        buf_str(out, item);
        buf_char(out, ',');
    }
    out->data[out->len - 1] = ']';
}

static void a_large_body_takes_a_few_times_its_size(void **state)
{
    struct fixture *f = *state;
    put_list(&f->text,
        "{\"id\":12345,\"name\":\"Some name\",\"amount\":12.50,\"note\":\"a line of text\"}",
        LARGE);
    double usual = cost(f, FINGERPRINT_CANONICAL);
    put_list(&f->text, "0", LARGE);
    double dense = cost(f, FINGERPRINT_RAW);
    put_list(&f->text, "\"\"", LARGE);
    double empty = cost(f, FINGERPRINT_RAW);
    put_list(&f->text, "0", 128 << 10);
    (void)cost(f, FINGERPRINT_CANONICAL); /* small ones are never raw for that */
    put_list(&f->text, "0", LIMIT_JSON_BYTES_MAX + 1);
    double beyond = cost(f, FINGERPRINT_RAW);
    print_message("bytes for each byte: usual %.1f, dense %.1f, empty %.1f, beyond %.1f\n", usual,
        dense, empty, beyond);
    assert_true(usual < 8);
    assert_true(dense < 12);
    assert_true(empty < 12);
    assert_true(beyond < 0.1);
}

/* Reads and explains; either as always, or not at all. */
static enum status run_once(
    const struct mem *mem, const struct request_form *expected, struct slice text)
{
    static const char first[] =
        "{\"body\":{\"list\":[1,{\"pin\":2}]},\"body_digest\":"
        "\"0000000000000000000000000000000000000000000000000000000000000000\","
        "\"content_type\":\"\",\"method\":\"POST\",\"path\":\"/\",\"query\":null}";
    static const char *const ignore[] = {"/at"};
    static const char *const redact[] = {"/list/1/pin"};
    struct request_form_parts from = request("");
    struct arena arena;
    struct request_form asked = {.body.version = FINGERPRINT_OWN};
    struct buf out;
    size_t bytes;
    from.body = text;
    from.ignore = ignore;
    from.redact = redact;
    from.ignore_count = from.redact_count = 1;
    arena_init(&arena, mem, MEMORY_MAX);
    buf_init(&out, mem, MEMORY_MAX);
    enum status status = request_form_read(&from, &arena, &asked);
    if (status == OK) {
        /* Want of memory never makes another fingerprint: it would be another request. */
        assert_true(same(&asked, expected));
        assert_true(slice_equal(asked.kept, expected->kept));
        status = request_form_explain(slice_str(first), &asked, true, redact, 1, &out, &bytes);
        assert_true(status == OK ? contains(buf_view(&out), "\"diff\":[{") : out.len == 0);
    }
    buf_release(&out);
    arena_release(&arena);
    return status;
}

static void a_failed_allocation_fails_the_reading_and_changes_nothing(void **state)
{
    struct fixture *f = *state;
    static const char *const ignore[] = {"/at"};
    static const char *const redact[] = {"/list/1/pin"};
    struct request_form_parts from = request("");
    buf_str(&f->text, "{\"at\":1,\"list\":[{},{\"pin\":7,\"x\":\"\\u0041\"}],\"long\":[");
    for (int i = 0; i < 3000; i++) {
        buf_printf(&f->text, "%s\"\\u0042 %d\"", i == 0 ? "" : ",", i);
    }
    buf_str(&f->text, "]}");
    from.body = buf_view(&f->text);
    from.ignore = ignore;
    from.redact = redact;
    from.ignore_count = from.redact_count = 1;
    struct request_form expected = read_from(f, &from);
    long n = 1;
    for (enum status status = E_NOMEM; status != OK; n++) {
        struct memory memory = {.failing = n};
        struct mem mem = {counted_resize, &memory};
        status = run_once(&mem, &expected, buf_view(&f->text));
        assert_true(status == OK || status == E_NOMEM);
        assert_int_equal(memory.live, 0);
        assert_true(status == OK || memory.asked >= n);
    }
    assert_true(n > 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH(the_fingerprint_is_as_the_page_says),
        WITH(bodies_that_are_one_have_one_fingerprint),
        WITH(bodies_that_are_not_one_have_another),
        WITH(what_is_no_json_or_lossy_is_taken_raw),
        WITH(a_known_body_has_its_fingerprint_and_is_not_read_again),
        WITH(a_known_body_is_not_taken_for_a_different_one),
        WITH(a_raw_body_is_never_a_canonical_one),
        WITH(every_part_counts_and_none_runs_into_the_next),
        WITH(an_ignored_pointer_leads_where_rfc_6901_says),
        WITH(ignoring_the_whole_leaves_all_json_the_same_and_nothing_else),
        WITH(any_spelling_of_a_body_has_its_fingerprint_and_any_change_another),
        WITH(what_is_ignored_does_not_count_and_all_else_does),
        WITH(a_large_body_takes_a_few_times_its_size),
        WITH(a_failed_allocation_fails_the_reading_and_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
