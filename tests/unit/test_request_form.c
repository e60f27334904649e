/*
 * What a request asks, part by part: which spellings are one, and which things are not.
 */
#include <stdio.h>

#include "base/limits.h"
#include "check_c.h"
#include "gateway/request_form.h"
#include "prng.h"

enum { MEMORY_MAX = 16 << 20, ROUNDS = 20000 };

static int set_up(void **state)
{
    struct arena *arena = mem_alloc(&mem_libc, sizeof *arena);
    arena_init(arena, &mem_libc, MEMORY_MAX);
    *state = arena;
    return 0;
}

static int tear_down(void **state)
{
    arena_release(*state);
    mem_free(&mem_libc, *state);
    return 0;
}

/* One of the readers below. A refusal comes back as NULL data. */
typedef enum status reader(struct slice, struct arena *, struct slice *, struct err *);

static enum status read_type(
    struct slice text, struct arena *arena, struct slice *ret, struct err *err)
{
    (void)err;
    return request_form_content_type(text, arena, ret);
}

struct spelling {
    const char *text;
    const char *form; /* NULL: refused */
};

static void check_spellings(
    struct arena *arena, reader *read, const struct spelling *table, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct slice form = SLICE_EMPTY;
        struct err err = {.status = OK};
        enum status status = read(slice_str(table[i].text), arena, &form, &err);
        if (table[i].form == NULL ? status != E_INVALID || err.text[0] == '\0'
                                  : status != OK || !slice_is(form, table[i].form)) {
            fail_msg(
                "%s: %s, %.*s %s", table[i].text, status_name(status), SLICE_ARGS(form), err.text);
        }
    }
}

#define CHECK(arena, read, table)                                                                  \
    check_spellings((arena), (read), (table), sizeof(table) / sizeof *(table))

/* ---- the key ------------------------------------------------------------------------------- */

static void a_quoted_and_a_bare_key_are_one(void **state)
{
    static const struct spelling table[] = {
        {"abc", "abc"},
        {"\"abc\"", "abc"},
        {" \tabc\t ", "abc"},
        {" \"abc\" ", "abc"},
        {"\"a\\\"b\"", "a\"b"},
        {"\"a\\\\b\"", "a\\b"},
        {"\"a, b\"", "a, b"},
        {"\" a \"", " a "},
        {"a'b;c=d", "a'b;c=d"},
        {"8e03978e-40d5-43dd-bc93-6894a57f9324", "8e03978e-40d5-43dd-bc93-6894a57f9324"},
        {"?1", "?1"},
    };
    CHECK(*state, request_form_key, table);
}

static void what_is_no_key_is_refused(void **state)
{
    static const struct spelling table[] = {
        {"", NULL},
        {"  ", NULL},
        {"\"\"", NULL},
        {"\"abc", NULL},
        {"\"", NULL},
        {"\"abc\\\"", NULL},
        {"\"a\\bc\"", NULL},
        {"\"abc\"x", NULL},
        {"\"abc\";a=1", NULL},
        {"\"abc\", \"def\"", NULL},
        {"\"a\tb\"", NULL},
        {"\"a\x7f\"", NULL},
        {"\"caf\xc3\xa9\"", NULL},
        {"caf\xc3\xa9", NULL},
        {"a b", NULL},
        {"a,b", NULL},
        {"a\\b", NULL},
        {"a\"b", NULL},
        {"abc\"", NULL},
        {"a\x01", NULL},
    };
    CHECK(*state, request_form_key, table);
    static const struct spelling printable[] = {
        {"abc", "abc"},
        {"\"a b\"", "a b"}, /* one key in both spellings, as elsewhere */
        {"a b", "a b"},
        {"a,b", "a,b"},
        {"a\\b", "a\\b"},
        {"\"not closed", "\"not closed"},
        {"  a;b=c  ", "a;b=c"},
        {"", NULL},
        {"caf\xc3\xa9", NULL},
        {"a\x01", NULL},
    };
    CHECK(*state, request_form_key_printable, printable);
    struct slice key;
    assert_int_equal(request_form_key(slice_of("a\0b", 3), *state, &key, NULL), E_INVALID);
    assert_int_equal(request_form_key(slice_of("\"a\0b\"", 5), *state, &key, NULL), E_INVALID);
}

static void a_key_has_255_bytes_however_it_is_written(void **state)
{
    char text[2 * LIMIT_KEY_BYTES_MAX + 8];
    for (size_t len = LIMIT_KEY_BYTES_MAX; len <= LIMIT_KEY_BYTES_MAX + 1; len++) {
        enum status expected = len == LIMIT_KEY_BYTES_MAX ? OK : E_INVALID;
        struct slice key;
        struct err err = {.status = OK};
        memset(text, 'k', len);
        assert_int_equal(request_form_key(slice_of(text, len), *state, &key, &err), expected);
        text[0] = '"';
        for (size_t i = 0; i < len; i++) { /* escaped, it takes twice the room */
            memcpy(text + 1 + 2 * i, "\\\"", 2);
        }
        text[1 + 2 * len] = '"';
        assert_int_equal(
            request_form_key(slice_of(text, 2 * len + 2), *state, &key, &err), expected);
        if (expected == OK) {
            assert_int_equal(key.len, len);
        } else {
            assert_non_null(strstr(err.text, "key_bytes_max (255)"));
        }
    }
}

static enum status id_of(struct slice body, struct arena *arena, struct slice *ret, struct err *err)
{
    return request_form_key_in_body(body, "/id", arena, ret, err);
}

static void equal_values_in_a_body_are_one_key(void **state)
{
    static const struct spelling table[] = {
        {"{\"id\":\"evt_1\"}", "evt_1"},
        {" {\"a\":[], \"id\" : \"\\u0065vt_1\"}\n", "evt_1"},
        {"{\"id\":\"a b,\\\"c\\\\\"}", "a b,\"c\\"},
        {"{\"id\":7}", "7"},
        {"{\"id\":7.0}", "7"},
        {"{\"id\":70e-1}", "7"},
        {"{\"id\":-12}", "-12"},
        {"{\"id\":0}", "0"},
        {"{\"id\":9007199254740992}", "9007199254740992"},
        {"{\"id\":9007199254740994}", "9007199254740994"},
        {"{\"ID\":1}", ""},
        {"{\"id\":{\"id\":1},\"di\":2}", NULL},
        {"[1]", ""},
        {"3", ""},
    };
    CHECK(*state, id_of, table);
}

static void what_could_be_two_keys_in_a_body_is_none(void **state)
{
    static const struct spelling table[] = {
        {"", NULL},
        {"id=1", NULL},
        {"{\"id\":1", NULL},
        {"{\"id\":1,\"id\":2}", NULL},
        {"{\"id\":9007199254740993}", NULL}, /* no double holds it */
        {"{\"id\":1e400}", NULL},
        {"{\"id\":1e21}", NULL},
        {"{\"id\":1.5}", NULL},
        {"{\"id\":null}", NULL},
        {"{\"id\":true}", NULL},
        {"{\"id\":[1]}", NULL},
        {"{\"id\":{}}", NULL},
        {"{\"id\":\"\"}", NULL},
        {"{\"id\":\"a\\nb\"}", NULL},
        {"{\"id\":\"caf\xc3\xa9\"}", NULL},
    };
    CHECK(*state, id_of, table);
    struct slice key;
    assert_int_equal(request_form_key_in_body(
                         SLICE_LIT("{\"a/b\":[{\"~\":\"k\"}]}"), "/a~1b/0/~0", *state, &key, NULL),
        OK);
    assert_true(slice_is(key, "k"));
}

/* What goes to the upstream names the key that is kept. */
static void any_key_comes_back_from_the_field_it_is_written_in(void **state)
{
    struct prng prng = {11};
    for (int round = 0; round < ROUNDS; round++) {
        char text[32];
        size_t len = 1 + prng_below(&prng, sizeof text);
        struct slice key, field, read;
        for (size_t i = 0; i < len; i++) {
            text[i] = prng_once_in(&prng, 6) ? "\"\\, "[prng_below(&prng, 4)]
                                             : (char)(0x21 + prng_below(&prng, 0x5e));
        }
        assert_int_equal(request_form_key_plain(slice_of(text, len), *state, &key, NULL), OK);
        assert_int_equal(request_form_key_field(key, *state, &field), OK);
        assert_int_equal(request_form_key(field, *state, &read, NULL), OK);
        assert_true(slice_equal(read, slice_of(text, len)));
    }
}

static void a_refusal_does_not_show_the_key(void **state)
{
    static const char *const keys[] = {"s3cr3t key", "\"s3cr3t", "\"s3cr3t\\x\"", "\"s3cr3t\"x"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct slice key;
        struct err err = {.status = OK};
        assert_int_equal(request_form_key(slice_str(keys[i]), *state, &key, &err), E_INVALID);
        assert_null(strstr(err.text, "s3cr3t"));
    }
}

static void any_key_that_is_quoted_by_the_rules_comes_back(void **state)
{
    struct prng prng = {7};
    for (int round = 0; round < ROUNDS; round++) {
        char key[32], field[2 * sizeof key + 2];
        size_t len = 1 + prng_below(&prng, sizeof key);
        size_t at = 0;
        field[at++] = '"';
        for (size_t i = 0; i < len; i++) {
            key[i] = prng_once_in(&prng, 4) ? "\"\\, "[prng_below(&prng, 4)]
                                            : (char)(0x20 + prng_below(&prng, 0x5f));
            if (key[i] == '"' || key[i] == '\\') {
                field[at++] = '\\';
            }
            field[at++] = key[i];
        }
        field[at++] = '"';
        struct slice read;
        assert_int_equal(request_form_key(slice_of(field, at), *state, &read, NULL), OK);
        assert_true(slice_equal(read, slice_of(key, len)));
        arena_clear(*state);
    }
}

static void a_uuid_is_told_from_its_neighbours(void **state)
{
    (void)state;
    static const char good[] = "8e03978E-40d5-43dd-bc93-6894a57f9324";
    assert_true(request_form_key_is_uuid(slice_str(good)));
    assert_true(request_form_key_is_uuid(SLICE_LIT("00000000-0000-0000-0000-000000000000")));
    assert_false(request_form_key_is_uuid(SLICE_EMPTY));
    assert_false(request_form_key_is_uuid(slice_of(good, sizeof good - 2)));
    assert_false(request_form_key_is_uuid(slice_of(good, sizeof good)));
    for (size_t i = 0; i < sizeof good - 1; i++) {
        char bad[sizeof good];
        memcpy(bad, good, sizeof good);
        bad[i] = bad[i] == '-' ? '0' : i % 2 == 0 ? '-' : 'g';
        assert_false(request_form_key_is_uuid(slice_str(bad)));
    }
}

/* ---- paths and queries --------------------------------------------------------------------- */

static void paths_that_are_one_have_one_form(void **state)
{
    static const struct spelling table[] = {
        {"", "/"},
        {"/", "/"},
        {"*", "*"},
        {"/v1/payments", "/v1/payments"},
        {"/%7Ebob", "/~bob"},
        {"/%7ebob", "/~bob"},
        {"/%41%5a%61%7A%30%39%2d%2E%5f", "/AZaz09-._"},
        {"/a%2fb", "/a%2Fb"},
        {"/a%3ab%25", "/a%3Ab%25"},
        {"/a:b@c!$&'()*+,;=", "/a:b@c!$&'()*+,;="},
        {"/caf%c3%a9", "/caf%C3%A9"},
        {"/a/./b", "/a/b"},
        {"/a/../b", "/b"},
        {"/a/b/..", "/a/"},
        {"/a/b/.", "/a/b/"},
        {"/a/b/../", "/a/"},
        {"/a/%2e%2E/b", "/b"},
        {"/a/%2e/b", "/a/b"},
        {"/.", "/"},
        {"/./", "/"},
        {"/a/..", "/"},
        {"/a//b", "/a//b"},
        {"//", "//"},
        {"//a", "//a"},
        {"/a//../b", "/a/b"},
        {"/a/...", "/a/..."},
        {"/a/.b/..c/d.", "/a/.b/..c/d."},
        {"/a/b/", "/a/b/"},
        {"/%252e%252e/a", "/%252e%252e/a"},
        {"/[a]{b}|^", "/[a]{b}|^"},
    };
    CHECK(*state, request_form_path, table);
}

static void paths_that_lead_nowhere_good_are_refused(void **state)
{
    static const struct spelling table[] = {
        {"/..", NULL},
        {"/../a", NULL},
        {"/a/../..", NULL},
        {"/a/%2e%2e/%2e./b", NULL},
        {"/%", NULL},
        {"/%4", NULL},
        {"/%4g", NULL},
        {"/%g4", NULL},
        {"/a%00b", NULL},
        {"a", NULL},
        {"**", NULL},
        {"?a", NULL},
    };
    CHECK(*state, request_form_path, table);
    struct slice path;
    assert_int_equal(request_form_path(slice_of("/a\0", 3), *state, &path, NULL), E_INVALID);
}

static void queries_that_are_one_have_one_form(void **state)
{
    static const struct spelling table[] = {
        {"", ""},
        {"a=1&b", "a=1&b"},
        {"b&a=1", "a=1&b"},
        {"b=", "b="},
        {"b", "b"},
        {"%62=%31&%61", "a&b=1"},
        {"a=2&a=1", "a=2&a=1"},
        {"b=1&a=2&b=0&a=1", "a=2&a=1&b=1&b=0"},
        {"a=&a", "a=&a"},
        {"a&a=", "a&a="},
        {"ab=1&a=2", "a=2&ab=1"},
        {"a%3d=1", "a%3D=1"},
        {"a=b=c", "a=b=c"},
        {"a%26b", "a%26b"},
        {"a+b=c%20d", "a+b=c%20d"},
        {"&a", "&a"},
        {"a&", "&a"},
        {"a&&b", "&a&b"},
        {"=1&=0", "=1&=0"},
        {"a?b/c", "a?b/c"},
        {"%", NULL},
        {"a=%0", NULL},
        {"a=%zz", NULL},
        {"a=%00", NULL},
    };
    CHECK(*state, request_form_query, table);
}

/* A reference that is slow and plain: of the names left, always the first of the least. */
static void sort_slowly(const char *const *names, size_t count, char *ret_text)
{
    bool used[64] = {false};
    size_t at = 0;
    for (size_t k = 0; k < count; k++) {
        size_t least = count;
        for (size_t i = 0; i < count; i++) {
            if (!used[i] && (least == count || strcmp(names[i], names[least]) < 0)) {
                least = i;
            }
        }
        used[least] = true;
        at +=
            (size_t)snprintf(ret_text + at, 32, "%s%s=%zu", k == 0 ? "" : "&", names[least], least);
    }
}

static void pairs_of_any_query_are_sorted_and_those_of_one_name_are_not(void **state)
{
    static const char *const known[] = {"a", "b", "ab", "aa", "", "B", "~", "-"};
    struct prng prng = {11};
    for (int round = 0; round < ROUNDS / 4; round++) {
        const char *names[64];
        char text[64 * 32] = "", expected[64 * 32] = "";
        size_t count = 1 + prng_below(&prng, 64);
        size_t at = 0;
        for (size_t i = 0; i < count; i++) {
            names[i] = known[prng_below(&prng, sizeof known / sizeof *known)];
            bool encoded = names[i][0] != '\0' && prng_once_in(&prng, 3);
            at += (size_t)(encoded ? snprintf(text + at, 32, "%s%%%02x%s=%zu", i == 0 ? "" : "&",
                                         (unsigned)names[i][0], names[i] + 1, i)
                                   : snprintf(text + at, 32, "%s%s=%zu", i == 0 ? "" : "&",
                                         names[i], i));
        }
        sort_slowly(names, count, expected);
        struct slice query;
        assert_int_equal(request_form_query(slice_str(text), *state, &query, NULL), OK);
        assert_true(slice_is(query, expected));
        arena_clear(*state);
    }
}

static void a_form_is_its_own_form(void **state)
{
    static const char bytes[] = "//..%%2e%2F%7E&=abAB?+~";
    static reader *const readers[] = {request_form_path, request_form_query, read_type};
    struct prng prng = {3};
    size_t taken = 0;
    for (int round = 0; round < ROUNDS; round++) {
        char text[24] = "/";
        size_t len = 1;
        for (size_t count = prng_below(&prng, 16); len < 1 + count; len++) {
            text[len] = bytes[prng_below(&prng, sizeof bytes - 1)];
        }
        reader *read = readers[prng_below(&prng, 3)];
        struct slice once, twice;
        if (read(slice_of(text, len), *state, &once, NULL) == OK) {
            assert_int_equal(read(once, *state, &twice, NULL), OK);
            assert_true(slice_equal(once, twice));
            taken++;
        }
        arena_clear(*state);
    }
    assert_true(taken > ROUNDS / 4);
}

/* ---- content types ------------------------------------------------------------------------- */

static void content_types_that_are_one_have_one_form(void **state)
{
    static const struct spelling table[] = {
        {"", ""},
        {"application/json", "application/json"},
        {"Application/JSON", "application/json"},
        {" application/json ", "application/json"},
        {"text/plain; charset=UTF-8", "text/plain;charset=UTF-8"},
        {"text/plain ;\tCharset=UTF-8 ", "text/plain;charset=UTF-8"},
        {"application/json;", "application/json"},
        {"application/json; ; a=b;;", "application/json;a=b"},
        {"a/b; B=1; A=2", "a/b;b=1;a=2"},
        {"a/b; X=\"C; D=E\"; F=G", "a/b;x=\"C; D=E\";f=G"},
        {"a/b; x=\"\\\"; Y=1\"; Z=2", "a/b;x=\"\\\"; Y=1\";z=2"},
        {"a/b; x=\"C; D", "a/b;x=\"C; D"},
        {"multipart/form-data; boundary=AbC", "multipart/form-data;boundary=AbC"},
    };
    CHECK(*state, read_type, table);
}

static void json_that_says_it_is_utf8_is_json(void **state)
{
    static const struct spelling table[] = {
        {"application/json; charset=utf-8", "application/json"},
        {"Application/JSON ;\tCharset=UTF-8 ", "application/json"},
        {"application/json;charset=\"utf-8\"", "application/json"},
        {"application/json;charset=\"UTF-8\";", "application/json"},
        {"application/json;charset=utf-8;charset=UTF-8", "application/json"},
        {"application/vnd.api+json; charset=utf-8", "application/vnd.api+json"},
        {"application/json; Profile=X; charset=utf-8; A=B", "application/json;profile=X;a=B"},
        {"application/json; x=\"; charset=utf-8\"", "application/json;x=\"; charset=utf-8\""},
    };
    CHECK(*state, read_type, table);
}

/* A different charset may be read differently, and so may two of them. */
static void any_other_charset_counts(void **state)
{
    static const struct spelling table[] = {
        {"application/json;charset=iso-8859-1", "application/json;charset=iso-8859-1"},
        {"application/json;charset=utf-16", "application/json;charset=utf-16"},
        {"application/json;charset=utf-80", "application/json;charset=utf-80"},
        {"application/json;charset=", "application/json;charset="},
        {"application/json;charset", "application/json;charset"},
        {"application/json;charset=\"utf-8", "application/json;charset=\"utf-8"},
        {"application/json;charset=utf-8\"\"", "application/json;charset=utf-8\"\""},
        {"application/json;charset= utf-8", "application/json;charset= utf-8"},
        {"application/json;charset=utf-8;charset=l1", "application/json;charset=utf-8;charset=l1"},
        {"application/json;charset=l1;charset=utf-8", "application/json;charset=l1;charset=utf-8"},
        {"application/json;charset =l1;charset=utf-8",
            "application/json;charset =l1;charset=utf-8"},
        {"application/json;x-charset=utf-8", "application/json;x-charset=utf-8"},
        {"application/jsonl;charset=utf-8", "application/jsonl;charset=utf-8"},
        {"text/json;charset=utf-8", "text/json;charset=utf-8"},
    };
    CHECK(*state, read_type, table);
}

static void json_is_known_by_its_type(void **state)
{
    (void)state;
    static const char *const json[] = {"application/json", "application/json;charset=utf-8",
        "application/vnd.api+json", "application/problem+json;a=b", "x/y+json"};
    static const char *const other[] = {"", "text/plain", "application/jsonl", "application/json2",
        "text/json", "application/x-www-form-urlencoded", "application/xml;a=+json", "json", "+jso",
        "application/json-seq"};
    for (size_t i = 0; i < sizeof json / sizeof *json; i++) {
        assert_true(request_form_is_json(slice_str(json[i])));
    }
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        assert_false(request_form_is_json(slice_str(other[i])));
    }
    assert_false(request_form_is_json(SLICE_EMPTY));
}

/* ---- globs --------------------------------------------------------------------------------- */

static void globs_match_as_their_stars_say(void **state)
{
    (void)state;
    static const struct {
        const char *glob, *path;
        bool matches;
    } table[] = {
        {"/v1/payments", "/v1/payments", true},
        {"/v1/payments", "/v1/payments/", false},
        {"/v1/payments", "/v1/payment", false},
        {"/v1/payments", "/V1/payments", false},
        {"/v1/*", "/v1/payments", true},
        {"/v1/*", "/v1/", true},
        {"/v1/*", "/v1", false},
        {"/v1/*", "/v1/payments/7", false},
        {"/v1/*/7", "/v1/payments/7", true},
        {"/v1/*/7", "/v1/a/b/7", false},
        {"/v1/pay*", "/v1/payments", true},
        {"/v1/pay*", "/v1/pay", true},
        {"/v1/*ments", "/v1/payments", true},
        {"/v1/p*y*s", "/v1/payments", true},
        {"/v1/p*y*x", "/v1/payments", false},
        {"/v1/payments/**", "/v1/payments", true},
        {"/v1/payments/**", "/v1/payments/", true},
        {"/v1/payments/**", "/v1/payments/7/refunds", true},
        {"/v1/payments/**", "/v1/paymentsx", false},
        {"/v1/**/refunds", "/v1/refunds", true},
        {"/v1/**/refunds", "/v1/a/b/refunds", true},
        {"/v1/**/refunds", "/v1/a/b/refunds/c", false},
        {"/**", "/", true},
        {"/**", "/a/b", true},
        {"/**", "*", false},
        {"**", "/a/b", true},
        {"**", "*", true},
        {"/**/**", "/", true},
        {"/**/a/**/b", "/x/a/y/a/z/b", true},
        {"/**/a/**/b", "/x/b/y/a", false},
        {"/a**b", "/axxb", true},
        {"/a**b", "/a/b", false},
        {"/", "/", true},
        {"/", "/a", false},
        {"/a?", "/ab", false},
        {"/a?", "/a?", true},
        {"/[ab]", "/a", false},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (route_glob(table[i].glob, slice_str(table[i].path)) != table[i].matches) {
            fail_msg("%s and %s", table[i].glob, table[i].path);
        }
    }
}

/* The oracle: tries everything, at both levels. The texts end in a zero. */
static const char *behind_segment(const char *at)
{
    const char *slash = strchr(at, '/');
    return slash == NULL ? NULL : slash + 1;
}

static bool is_end(char c)
{
    return c == '\0' || c == '/';
}

static bool oracle_segment(const char *glob, const char *text)
{
    if (is_end(*glob)) {
        return is_end(*text);
    }
    if (*glob == '*') {
        return oracle_segment(glob + 1, text) || (!is_end(*text) && oracle_segment(glob, text + 1));
    }
    return *glob == *text && oracle_segment(glob + 1, text + 1);
}

static bool oracle(const char *glob, const char *path)
{
    if (glob == NULL) {
        return path == NULL;
    }
    if (strncmp(glob, "**", 2) == 0 && is_end(glob[2])) {
        return oracle(behind_segment(glob), path) ||
               (path != NULL && oracle(glob, behind_segment(path)));
    }
    return path != NULL && oracle_segment(glob, path) &&
           oracle(behind_segment(glob), behind_segment(path));
}

static void draw(struct prng *prng, const char *const *from, size_t count, char ret_text[64])
{
    ret_text[0] = '\0';
    size_t at = 0;
    for (size_t n = prng_below(prng, 9); n > 0; n--) {
        at += (size_t)snprintf(ret_text + at, 64 - at, "%s", from[prng_below(prng, count)]);
    }
}

static void globs_match_what_a_plain_search_finds(void **state)
{
    (void)state;
    static const char *const glob_parts[] = {"a", "b", "/", "/**", "/**/", "*", "/*", "ab"};
    static const char *const path_parts[] = {"a", "b", "/", "/a", "/b", "ab"};
    struct prng prng = {5};
    size_t matched = 0;
    for (int round = 0; round < 10 * ROUNDS; round++) {
        char glob[64], path[64];
        draw(&prng, glob_parts, sizeof glob_parts / sizeof *glob_parts, glob);
        draw(&prng, path_parts, sizeof path_parts / sizeof *path_parts, path);
        bool expected = oracle(glob, path);
        if (route_glob(glob, slice_str(path)) != expected) {
            fail_msg("%s and %s", glob, path);
        }
        matched += expected;
    }
    assert_true(matched > ROUNDS / 2);
}

/* A search that goes back to more than the last star would take longer than anybody waits. */
static void no_glob_takes_long(void **state)
{
    (void)state;
    static const char *const parts[] = {"a*", "/**/a*", "/**/*", "*a"};
    static char glob[2048], path[8001];
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        for (int slashes = 0; slashes < 2; slashes++) {
            size_t at = (size_t)snprintf(glob, sizeof glob, "/");
            while (at + strlen(parts[i]) + 8 < sizeof glob) {
                at += (size_t)snprintf(glob + at, sizeof glob - at, "%s", parts[i]);
            }
            (void)snprintf(glob + at, sizeof glob - at, "b");
            for (size_t j = 0; j < sizeof path - 1; j++) {
                path[j] = j == 0 || (slashes != 0 && j % 2 == 0) ? '/' : 'a';
            }
            assert_false(route_glob(glob, slice_of(path, sizeof path - 1)));
        }
    }
}

/* ---- scope and wait ------------------------------------------------------------------------ */

static enum status scope_of(struct slice path, struct arena *arena, struct slice *ret_scope)
{
    struct request_form_place place = {.method = SLICE_LIT("POST"), .path = path};
    return request_form_scope(&place, arena, ret_scope);
}

static void a_scope_is_the_method_and_the_path(void **state)
{
    struct slice scope;
    assert_int_equal(scope_of(SLICE_LIT("/v1/payments"), *state, &scope), OK);
    assert_true(slice_is(scope, "POST /v1/payments"));
    struct request_form_place place = {.method = SLICE_LIT("POST"),
        .host = SLICE_LIT("Shop.Example:81"),
        .path = SLICE_LIT("/v1/payments")};
    assert_int_equal(request_form_scope(&place, *state, &scope), OK);
    assert_true(slice_is(scope, "POST shop.example:81/v1/payments"));
}

static void long_scopes_are_cut_and_stay_apart(void **state)
{
    char path[400];
    struct slice fits, cut, other;
    memset(path, 'a', sizeof path);
    path[0] = '/';
    size_t most = LIMIT_SCOPE_BYTES_MAX - 5;
    assert_int_equal(scope_of(slice_of(path, most), *state, &fits), OK);
    assert_int_equal(fits.len, LIMIT_SCOPE_BYTES_MAX);
    assert_null(memchr(fits.data, '#', fits.len));
    assert_int_equal(scope_of(slice_of(path, most + 1), *state, &cut), OK);
    assert_int_equal(cut.len, LIMIT_SCOPE_BYTES_MAX);
    assert_int_equal(cut.data[cut.len - 2 * DIGEST_BYTES - 1], '#');
    path[most] = 'b';
    assert_int_equal(scope_of(slice_of(path, most + 1), *state, &other), OK);
    assert_int_equal(other.len, LIMIT_SCOPE_BYTES_MAX);
    assert_false(slice_equal(cut, other));
    /* What looks like a cut one is none. */
    struct slice forged = slice_of(cut.data + 5, cut.len - 5);
    assert_int_equal(scope_of(forged, *state, &other), OK);
    assert_false(slice_equal(cut, other));
    assert_true(other.len <= LIMIT_SCOPE_BYTES_MAX);
}

static void a_preference_to_wait_is_found_among_others(void **state)
{
    (void)state;
    static const struct {
        const char *prefer;
        int64_t ms;
    } table[] = {
        {"", -1},
        {"wait=10", 10000},
        {"Wait=10", 10000},
        {"wait = 3", 3000},
        {"respond-async, wait=10", 10000},
        {"respond-async;wait=9, wait=10", 10000},
        {"wait=10;foo=bar", 10000},
        {"wait=1, wait=2", 1000},
        {"foo=\"a, wait=5\", wait=7", 7000},
        {"foo=\"\\\", wait=5\"", -1},
        {"wait", -1},
        {"wait=", -1},
        {"wait=-1", -1},
        {"wait=1.5", -1},
        {"wait=1s", -1},
        {"wait=\"5\"", -1},
        {"wait=x, wait=5", -1},
        {"waiting=5", -1},
        {"wait=0", 0},
        {"wait=00060", 60000},
        {"wait=9223372036854775", INT64_C(9223372036854775000)},
        {"wait=9223372036854776", INT64_MAX},
        {"wait=99999999999999999999999999", INT64_MAX},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (request_form_wait_ms(slice_str(table[i].prefer)) != table[i].ms) {
            fail_msg("%s", table[i].prefer);
        }
    }
    assert_true(request_form_wait_ms(SLICE_EMPTY) == -1);
}

/* ---- memory -------------------------------------------------------------------------------- */

static void *no_memory(void *context, void *pointer, size_t size)
{
    (void)context;
    (void)pointer;
    (void)size;
    return NULL;
}

static void without_memory_nothing_is_read_and_that_is_said(void **state)
{
    (void)state;
    struct mem mem = {no_memory, NULL};
    struct arena arena;
    struct slice out;
    arena_init(&arena, &mem, MEMORY_MAX);
    assert_int_equal(request_form_key(SLICE_LIT("a"), &arena, &out, NULL), E_NOMEM);
    assert_int_equal(request_form_path(SLICE_LIT("/a"), &arena, &out, NULL), E_NOMEM);
    assert_int_equal(request_form_query(SLICE_LIT("a"), &arena, &out, NULL), E_NOMEM);
    assert_int_equal(request_form_content_type(SLICE_LIT("a/b"), &arena, &out), E_NOMEM);
    assert_int_equal(scope_of(SLICE_LIT("/"), &arena, &out), E_NOMEM);
    arena_release(&arena);
}

#define WITH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH(a_quoted_and_a_bare_key_are_one),
        WITH(what_is_no_key_is_refused),
        WITH(a_key_has_255_bytes_however_it_is_written),
        WITH(a_refusal_does_not_show_the_key),
        WITH(any_key_that_is_quoted_by_the_rules_comes_back),
        WITH(equal_values_in_a_body_are_one_key),
        WITH(what_could_be_two_keys_in_a_body_is_none),
        WITH(any_key_comes_back_from_the_field_it_is_written_in),
        TEST(a_uuid_is_told_from_its_neighbours),
        WITH(paths_that_are_one_have_one_form),
        WITH(paths_that_lead_nowhere_good_are_refused),
        WITH(queries_that_are_one_have_one_form),
        WITH(pairs_of_any_query_are_sorted_and_those_of_one_name_are_not),
        WITH(a_form_is_its_own_form),
        WITH(content_types_that_are_one_have_one_form),
        WITH(json_that_says_it_is_utf8_is_json),
        WITH(any_other_charset_counts),
        TEST(json_is_known_by_its_type),
        TEST(globs_match_as_their_stars_say),
        TEST(globs_match_what_a_plain_search_finds),
        TEST(no_glob_takes_long),
        WITH(a_scope_is_the_method_and_the_path),
        WITH(long_scopes_are_cut_and_stay_apart),
        TEST(a_preference_to_wait_is_found_among_others),
        TEST(without_memory_nothing_is_read_and_that_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
