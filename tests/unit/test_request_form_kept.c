/*
 * What is kept of a request, and what is said about one that differs from it.
 */
#include <stdio.h>

#include "base/limits.h"
#include "canon/json.h"
#include "check_c.h"
#include "patch.h"
#include "request_form_kit.h"

/* ---- what is kept -------------------------------------------------------------------------- */

static void a_kept_request_has_its_parts_and_its_body(void **state)
{
    struct fixture *f = *state;
    struct request_form_parts from = request("{\"b\": 1e1, \"a\": {\"pin\": 1234}}");
    static const char *const redact[] = {"/a/pin"};
    struct digest digest;
    char hex[DIGEST_HEX_BYTES];
    digest_sha256(from.body.data, from.body.len, &digest);
    keyed("key", &digest, &digest);
    from.redact = redact;
    from.redact_count = 1;
    buf_printf(&f->out,
        "{\"body\":{\"a\":{\"pin\":\"[redacted]\"},\"b\":10},\"body_digest\":\"%s\","
        "\"content_type\":\"application/json\",\"method\":\"POST\",\"path\":\"/v1/payments\","
        "\"query\":null}",
        digest_put_hex(hex, &digest));
    assert_true(slice_equal(read_from(f, &from).kept, buf_view(&f->out)));
    from.has_query = true;
    assert_true(contains(read_from(f, &from).kept, "\"query\":\"\"}"));
    from.content_type = SLICE_LIT("text/plain");
    struct request_form plain = read_from(f, &from);
    assert_false(contains(plain.kept, "\"body\":"));
    assert_false(contains(plain.kept, "1234"));
}

static void what_is_ignored_is_kept_all_the_same(void **state)
{
    struct fixture *f = *state;
    struct request_form_parts from = request("{\"b\": 1, \"a\": {\"sent_at\": 1234}}");
    static const char *const ignore[] = {"/a/sent_at"};
    from.ignore = ignore;
    from.ignore_count = 1;
    assert_true(contains(read_from(f, &from).kept, "{\"a\":{\"sent_at\":1234},\"b\":1}"));
}

static void what_is_not_utf8_is_kept_all_the_same(void **state)
{
    struct fixture *f = *state;
    struct request_form_parts from = request("{}");
    from.content_type = SLICE_LIT("a/b;c=\xff");
    struct request_form first = read_from(f, &from);
    from.content_type = SLICE_LIT("a/b;c=\xfe");
    struct request_form other = read_from(f, &from);
    size_t bytes;
    const struct json_value *value;
    assert_true(contains(first.kept, "\"content_type_base64\":"));
    assert_int_equal(json_read(first.kept, &f->arena, &value, NULL), OK);
    assert_int_equal(request_form_explain(first.kept, &other, true, NULL, 0, &f->out, &bytes), OK);
    assert_true(slice_is(buf_view(&f->out), "\"differs\":[\"content_type\"],\"diff\":null"));
}

static void a_lossy_number_is_kept_as_it_came(void **state)
{
    struct request_form asked = read_body(*state, "{\"n\":9007199254740993,\"m\":1e400,\"k\":1.0}");
    assert_true(contains(asked.kept, "{\"k\":1,\"m\":1e400,\"n\":9007199254740993}"));
}

static void kept_requests_are_canonical_and_bounded(void **state)
{
    struct fixture *f = *state;
    for (size_t size = LIMIT_REQUEST_KEPT_BYTES_MAX - 300; size < LIMIT_REQUEST_KEPT_BYTES_MAX + 20;
         size++) {
        struct request_form_parts from = request("");
        buf_clear(&f->text);
        buf_char(&f->text, '"');
        memset(buf_extend(&f->text, size), 'x', size);
        buf_char(&f->text, '"');
        from.body = buf_view(&f->text);
        struct request_form asked = read_from(f, &from);
        struct slice path;
        assert_true(request_form_kept_path(asked.kept, &f->arena, &path));
        assert_true(contains(asked.kept, "\"body\":") == (asked.kept.len > size));
        arena_clear(&f->arena);
    }
}

/* A body may be as deep as JSON is read; with what is around it, it would be deeper. */
static void a_body_too_deep_to_be_read_again_is_not_kept(void **state)
{
    struct fixture *f = *state;
    for (unsigned depth = LIMIT_JSON_DEPTH_MAX - 2; depth <= LIMIT_JSON_DEPTH_MAX + 1; depth++) {
        struct request_form_parts from = request("");
        struct slice path;
        buf_clear(&f->text);
        for (unsigned i = 0; i < 2 * depth; i++) {
            buf_char(&f->text, i < depth ? '[' : ']');
        }
        from.body = buf_view(&f->text);
        struct request_form asked = read_from(f, &from);
        assert_int_equal(asked.body.version,
            depth <= LIMIT_JSON_DEPTH_MAX ? FINGERPRINT_CANONICAL : FINGERPRINT_RAW);
        assert_true(contains(asked.kept, "\"body\":") == (depth < LIMIT_JSON_DEPTH_MAX));
        assert_true(request_form_kept_path(asked.kept, &f->arena, &path));
    }
    /* Brackets in strings are no depth. */
    assert_true(contains(read_body(f, "[\"\\\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["
                                      "[[[[[[[[[[[[[[[[[[[[[[[[[[[[\"]")
                             .kept,
        "\"body\":"));
}

static void only_what_was_kept_here_has_a_path(void **state)
{
    struct fixture *f = *state;
    struct slice path;
    assert_true(request_form_kept_path(read_body(f, "{}").kept, &f->arena, &path));
    assert_true(slice_is(path, "/v1/payments"));
    static const char short_digest[] = "{\"body\":1,\"body_digest\":\"00\",\"content_type\":\"\","
                                       "\"method\":\"\",\"path\":\"\",\"query\":null}";
    static const char *const foreign[] = {"", "{}", "null", "{", "{\"path\":\"/a\"}", short_digest};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        assert_false(request_form_kept_path(slice_str(foreign[i]), &f->arena, &path));
    }
}

/* Every name and value that is at or below a place, but for the place's own name. */
static bool shows_any(const struct model *model, unsigned top, struct slice text)
{
    bool shown = false;
    for (unsigned i = 0; i < model->count; i++) {
        const struct node *node = &model->nodes[i];
        char word[16];
        if (i == 0 || node->is_gone || !is_below(model, i, top)) {
            continue;
        }
        if (node->kind == SCALAR) {
            (void)snprintf(word, sizeof word, node->value % 2 == 0 ? "v%u_" : "7%06u", node->value);
            shown = shown || contains(text, word);
        }
        (void)snprintf(word, sizeof word, "n%u_", node->name);
        shown = shown || (i != top && contains(text, word));
    }
    return shown;
}

static void what_is_redacted_is_in_nothing_kept_and_all_else_is(void **state)
{
    struct fixture *f = *state;
    for (int round = 0; round < ROUNDS; round++) {
        struct model model;
        struct places places;
        new_model(&model, &f->prng);
        draw_places(&places, &model, &f->prng);
        struct request_form_parts from = request("");
        from.body = body_of(&model, &f->prng, &f->text);
        struct request_form open = read_from(f, &from);
        from.redact = places.pointers;
        from.redact_count = places.count;
        struct request_form asked = read_from(f, &from);
        assert_true(same(&open, &asked)); /* it counts all the same */
        for (size_t i = 0; i < places.count; i++) {
            assert_false(shows_any(&model, places.at[i], asked.kept));
        }
        for (unsigned i = 1; i < model.count; i++) {
            if (model.nodes[i].kind == SCALAR && !is_covered(&places, &model, i)) {
                assert_true(shows_any(&model, i, asked.kept));
            }
        }
        arena_clear(&f->arena);
    }
}

/* ---- how two differ ------------------------------------------------------------------------ */

static const char *explain(struct fixture *f, const struct request_form *first,
    const struct request_form *now, const struct request_form_parts *from, size_t *ret_diff_bytes)
{
    buf_clear(&f->out);
    assert_int_equal(request_form_explain(first->kept, now, true, from->redact, from->redact_count,
                         &f->out, ret_diff_bytes),
        OK);
    buf_char(&f->out, '\0');
    return f->out.data;
}

static void a_conflict_names_what_differs(void **state)
{
    struct fixture *f = *state;
    static const char *const ignore[] = {"/at"};
    static const char *const redact[] = {"/pin"};
    struct request_form_parts from = request("{\"a\":1,\"at\":1,\"pin\":1}");
    size_t bytes;
    from.ignore = ignore;
    from.redact = redact;
    from.ignore_count = from.redact_count = 1;
    struct request_form first = read_from(f, &from);

    struct request_form_parts other = from;
    other.method = SLICE_LIT("PUT");
    other.path = SLICE_LIT("/v2");
    other.has_query = true;
    other.content_type = SLICE_LIT("application/json;a=b");
    struct request_form now = read_from(f, &other);
    assert_string_equal(explain(f, &first, &now, &from, &bytes),
        "\"differs\":[\"method\",\"path\",\"query\",\"content_type\"],\"diff\":[],"
        "\"diff_truncated\":false");
    assert_int_equal(bytes, 2);

    other = from;
    other.body = SLICE_LIT("{\"a\":2,\"at\":1,\"pin\":1}");
    now = read_from(f, &other);
    const char *diff = "[{\"op\":\"replace\",\"path\":\"/a\",\"value\":2}]";
    assert_non_null(strstr(explain(f, &first, &now, &from, &bytes), diff));
    assert_non_null(strstr(f->out.data, "\"differs\":[\"body\"],"));
    assert_int_equal(bytes, strlen(diff));

    /* What may differ is no part of the reason. */
    other.body = SLICE_LIT("{\"a\":2,\"at\":2,\"pin\":1}");
    now = read_from(f, &other);
    assert_non_null(strstr(explain(f, &first, &now, &from, &bytes), diff));
    assert_int_equal(bytes, strlen(diff));

    static const char *const hidden[] = {
        "{\"a\":1,\"at\":1,\"pin\":2}", "{\"a\":1,\"at\":2,\"pin\":2}"};
    for (size_t i = 0; i < 2; i++) {
        other.body = slice_str(hidden[i]);
        now = read_from(f, &other);
        assert_false(same(&first, &now));
        assert_string_equal(explain(f, &first, &now, &from, &bytes),
            "\"differs\":[\"redacted\"],\"diff\":[],\"diff_truncated\":false");
    }
}

static void another_spelling_beside_another_query_is_no_difference(void **state)
{
    struct fixture *f = *state;
    struct request_form_parts from = request("{\"a\":1,\"b\":2}");
    size_t bytes;
    struct request_form first = read_from(f, &from);
    from.body = SLICE_LIT("{\"b\":2, \"a\":1}");
    from.has_query = true;
    struct request_form now = read_from(f, &from);
    assert_string_equal(explain(f, &first, &now, &from, &bytes),
        "\"differs\":[\"query\"],\"diff\":[],\"diff_truncated\":false");
}

static void a_raw_body_that_is_spelled_otherwise_differs(void **state)
{
    struct fixture *f = *state;
    struct request_form_parts from = request("{\"n\":9007199254740993}");
    size_t bytes;
    struct request_form first = read_from(f, &from);
    from.body = SLICE_LIT("{\"n\": 9007199254740993}");
    struct request_form now = read_from(f, &from);
    assert_string_equal(explain(f, &first, &now, &from, &bytes),
        "\"differs\":[\"body\"],\"diff\":[],\"diff_truncated\":false");
    from.body = SLICE_LIT("{\"n\":9007199254740992}");
    now = read_from(f, &from);
    assert_non_null(strstr(explain(f, &first, &now, &from, &bytes), "9007199254740992}]"));
    from.content_type = SLICE_LIT("text/plain");
    first = read_from(f, &from);
    from.body = SLICE_LIT("x");
    now = read_from(f, &from);
    assert_string_equal(
        explain(f, &first, &now, &from, &bytes), "\"differs\":[\"body\"],\"diff\":null");
    assert_int_equal(bytes, 0);
}

static void what_another_door_kept_explains_nothing(void **state)
{
    struct fixture *f = *state;
    static const char *const foreign[] = {"", "{\"amount\":100}", "\"x\"", "no json"};
    struct request_form now = read_body(f, "{}");
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        size_t bytes = 1;
        buf_clear(&f->out);
        assert_int_equal(
            request_form_explain(slice_str(foreign[i]), &now, true, NULL, 0, &f->out, &bytes), OK);
        assert_true(slice_is(buf_view(&f->out), "\"differs\":null,\"diff\":null"));
        assert_int_equal(bytes, 0);
    }
}

static void without_a_diff_none_is_shown(void **state)
{
    struct fixture *f = *state;
    struct request_form first = read_body(f, "{\"a\":1}");
    struct request_form now = read_body(f, "{\"a\":2}");
    size_t bytes = 1;
    assert_int_equal(request_form_explain(first.kept, &now, false, NULL, 0, &f->out, &bytes), OK);
    assert_true(slice_is(buf_view(&f->out), "\"differs\":[\"body\"],\"diff\":null"));
    assert_int_equal(bytes, 0);
}

/* Pointers that came after the first request was kept hide what it kept, too. */
static void a_new_redaction_covers_what_was_kept_before(void **state)
{
    struct fixture *f = *state;
    static const char *const redact[] = {"/pin"};
    struct request_form_parts from = request("{\"a\":1,\"pin\":\"s3cr3t\"}");
    size_t bytes;
    struct request_form first = read_from(f, &from);
    from.redact = redact;
    from.redact_count = 1;
    from.body = SLICE_LIT("{\"a\":1,\"pin\":\"hidd3n\"}");
    struct request_form now = read_from(f, &from);
    const char *text = explain(f, &first, &now, &from, &bytes);
    assert_string_equal(text, "\"differs\":[\"redacted\"],\"diff\":[],\"diff_truncated\":false");
    from.body = SLICE_LIT("{\"a\":2,\"pin\":\"hidd3n\"}");
    now = read_from(f, &from);
    text = explain(f, &first, &now, &from, &bytes);
    assert_null(strstr(text, "s3cr3t"));
    assert_null(strstr(text, "hidd3n"));
    assert_non_null(strstr(text, "\"differs\":[\"body\"]"));
}

/* Nor does it depend on what was redacted when either of them was read. */
static void an_explanation_redacts_for_itself(void **state)
{
    struct fixture *f = *state;
    static const char *const redact[] = {"/pin", "/list/1"};
    struct request_form first = read_body(f, "{\"a\":1,\"list\":[1,2],\"pin\":{\"s3cr3t\":1}}");
    struct request_form now = read_body(f, "{\"a\":2,\"list\":[1,77777],\"pin\":{\"hidd3n\":1}}");
    size_t bytes;
    assert_int_equal(request_form_explain(first.kept, &now, true, redact, 2, &f->out, &bytes), OK);
    assert_true(contains(buf_view(&f->out), "{\"op\":\"replace\",\"path\":\"/a\",\"value\":2}"));
    assert_true(contains(buf_view(&f->out), "[redacted]"));
    assert_false(contains(buf_view(&f->out), "s3cr3t"));
    assert_false(contains(buf_view(&f->out), "hidd3n"));
    assert_false(contains(buf_view(&f->out), "77777"));
}

static const struct json_value *member_of(struct fixture *f, struct slice text, const char *name)
{
    const struct json_value *whole;
    assert_int_equal(json_read(text, &f->arena, &whole, NULL), OK);
    return json_find(whole, slice_str(name));
}

/* The diff leads from what was kept first to what would be kept now. */
static void check_patch(
    struct fixture *f, const struct request_form *first, const struct request_form *now)
{
    buf_clear(&f->other);
    buf_char(&f->other, '{');
    buf_append(&f->other, f->out.data, f->out.len - 1);
    buf_char(&f->other, '}');
    const struct json_value *diff = member_of(f, buf_view(&f->other), "diff");
    const struct json_value *before = member_of(f, first->kept, "body");
    const struct json_value *after = member_of(f, now->kept, "body");
    const struct json_value *patched;
    buf_clear(&f->text);
    assert_true(patch_apply(before, diff, &f->arena, &f->text));
    assert_int_equal(json_read(buf_view(&f->text), &f->arena, &patched, NULL), OK);
    assert_true(json_equal(patched, after));
}

static void an_explanation_is_right_and_gives_nothing_away(void **state)
{
    struct fixture *f = *state;
    size_t hidden = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct model model, changed;
        struct places places;
        size_t bytes;
        new_model(&model, &f->prng);
        draw_places(&places, &model, &f->prng);
        unsigned at = any_place(&model, &f->prng);
        changed = model;
        change_value(&changed, at);
        struct request_form_parts from = request("");
        from.redact = places.pointers;
        from.redact_count = places.count;
        from.body = body_of(&model, &f->prng, &f->text);
        struct request_form first = read_from(f, &from);
        from.body = body_of(&changed, &f->prng, &f->text);
        struct request_form now = read_from(f, &from);
        bool covered = is_covered(&places, &model, at);
        const char *text = explain(f, &first, &now, &from, &bytes);
        const char *differs = covered ? "\"differs\":[\"redacted\"]," : "\"differs\":[\"body\"],";
        assert_int_equal(strncmp(text, differs, strlen(differs)), 0);
        assert_true((bytes == 2) == covered);
        for (size_t i = 0; i < places.count; i++) {
            assert_false(shows_any(&model, places.at[i], slice_str(text)));
            assert_false(is_below(&changed, at, places.at[i]) &&
                         shows_any(&changed, places.at[i], slice_str(text)));
        }
        check_patch(f, &first, &now);
        hidden += covered;
        arena_clear(&f->arena);
    }
    assert_true(hidden > ROUNDS / 10);
}

static void an_explanation_that_does_not_fit_leaves_nothing_behind(void **state)
{
    struct fixture *f = *state;
    struct request_form first = read_body(f, "{\"a\":1}");
    struct request_form now = read_body(f, "{\"a\":2,\"b\":\"0123456789\"}");
    bool fitted = false;
    for (size_t max = 1; max < 200; max++) {
        struct buf out;
        size_t bytes = 77;
        buf_init(&out, &mem_libc, max);
        buf_char(&out, '{');
        enum status status = request_form_explain(first.kept, &now, true, NULL, 0, &out, &bytes);
        assert_true(status == OK || (status == E_LIMIT && out.len == 1 && bytes == 77));
        fitted = status == OK;
        buf_release(&out);
    }
    assert_true(fitted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH(a_kept_request_has_its_parts_and_its_body),
        WITH(what_is_ignored_is_kept_all_the_same),
        WITH(what_is_not_utf8_is_kept_all_the_same),
        WITH(a_lossy_number_is_kept_as_it_came),
        WITH(kept_requests_are_canonical_and_bounded),
        WITH(a_body_too_deep_to_be_read_again_is_not_kept),
        WITH(only_what_was_kept_here_has_a_path),
        WITH(what_is_redacted_is_in_nothing_kept_and_all_else_is),
        WITH(a_conflict_names_what_differs),
        WITH(another_spelling_beside_another_query_is_no_difference),
        WITH(a_raw_body_that_is_spelled_otherwise_differs),
        WITH(what_another_door_kept_explains_nothing),
        WITH(without_a_diff_none_is_shown),
        WITH(a_new_redaction_covers_what_was_kept_before),
        WITH(an_explanation_redacts_for_itself),
        WITH(an_explanation_is_right_and_gives_nothing_away),
        WITH(an_explanation_that_does_not_fit_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
