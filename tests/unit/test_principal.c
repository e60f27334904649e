/* Whose a request is, by each of the four rules, with real tokens. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/limits.h"
#include "canon/digest.h"
#include "check_c.h"
#include "faulty_mem.h"
#include "gateway/principal.h"
#include "jwt_make.h"

enum { BYTES_MAX = 1 << 20 };

#define SECRET "0123456789abcdef0123456789abcdef"
#define HS256  "{\"alg\":\"HS256\",\"typ\":\"JWT\"}"
#define NOW_MS INT64_C(1700000000000)

/* ---- asking -------------------------------------------------------------------------------- */

struct asked {
    char text[20000];
    struct http_head head;
    struct arena arena;
    struct slice principal;
    struct err err;
    enum status status;
};

static void asked_init(struct asked *asked)
{
    *asked = (struct asked){.status = OK};
    arena_init(&asked->arena, &mem_libc, BYTES_MAX);
}

/* With these field lines, under a route of the gateway. */
static enum status ask_of(struct asked *asked, const struct principals *principals,
    const struct config_gateway *gateway, const struct config_route *route, const char *fields)
{
    int size =
        snprintf(asked->text, sizeof asked->text, "GET / HTTP/1.1\r\nHost: x\r\n%s\r\n", fields);
    struct http_limits limits = HTTP_LIMITS_DEFAULT;
    struct http_refusal refusal;
    http_head_init(&asked->head);
    assert_int_equal(
        http_request_head(slice_of(asked->text, (size_t)size), &limits, &asked->head, &refusal),
        HTTP_DONE);
    asked->principal = SLICE_LIT("untouched");
    asked->err = (struct err){.status = OK};
    asked->status = principal_of(principals, gateway, route, &asked->head, NOW_MS, &asked->arena,
        &asked->principal, &asked->err);
    if (asked->status != OK) {
        assert_true(slice_is(asked->principal, "untouched"));
        assert_int_equal(asked->err.status, asked->status);
    }
    return asked->status;
}

/* The same under a route that is all there is. */
static enum status ask(struct asked *asked, const struct config_route *route, const char *fields)
{
    struct config_gateway gateway = {.routes = route, .route_count = 1};
    struct principals *principals = NULL;
    assert_int_equal(principals_new(&mem_libc, &gateway, &principals, NULL), OK);
    enum status status = ask_of(asked, principals, &gateway, route, fields);
    principals_free(principals);
    return status;
}

static void check_is(
    struct asked *asked, const struct config_route *route, const char *fields, const char *expected)
{
    if (ask(asked, route, fields) != OK || !slice_is(asked->principal, expected)) {
        fail_msg("%.*s is not %s", SLICE_ARGS(asked->principal), expected);
    }
}

static void check_refused(
    struct asked *asked, const struct config_route *route, const char *fields, const char *text)
{
    assert_int_equal(ask(asked, route, fields), E_INVALID);
    assert_string_equal(asked->err.text, text);
}

/* ---- credentials --------------------------------------------------------------------------- */

static void credentials_are_kept_as_their_digest(void **state)
{
    (void)state;
    struct asked asked;
    struct config_route route = {.principal = CONFIG_PRINCIPAL_AUTHORIZATION};
    asked_init(&asked);
    /* printf 'Bearer abc' | sha256sum */
    check_is(&asked, &route, "authorization: Bearer abc\r\n",
        "auth:c355dce96c1612880d11940ffdd9014d386c253e0c3652a6cd06a7226f7bd2b6");
    arena_release(&asked.arena);
}

static void nobody_and_somebody_are_not_the_same(void **state)
{
    (void)state;
    struct asked asked;
    struct config_route route = {.principal = CONFIG_PRINCIPAL_AUTHORIZATION};
    asked_init(&asked);
    check_is(&asked, &route, "", "anonymous");
    /* The digest of nothing: a field was sent, so this is not nobody. */
    check_is(&asked, &route, "Authorization:\r\n",
        "auth:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_int_equal(ask(&asked, &route, "Authorization: anonymous\r\n"), OK);
    assert_int_equal(asked.principal.len, 5 + 64);
    arena_release(&asked.arena);
}

static void an_api_key_is_a_principal_where_there_are_no_credentials(void **state)
{
    (void)state;
    struct asked asked;
    struct config_route route = {.principal = CONFIG_PRINCIPAL_AUTO};
    struct config_route authorization = {.principal = CONFIG_PRINCIPAL_AUTHORIZATION};
    asked_init(&asked);
    /* printf abc | sha256sum */
    static const char key[] =
        "api-key:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    check_is(&asked, &route, "x-api-key: abc\r\n", key);
    check_is(&asked, &route, "Api-Key: abc\r\n", key);
    check_is(&asked, &route, "Api-Key: other\r\nX-Api-Key: abc\r\nCookie: a=b\r\n", key);
    check_is(&asked, &authorization, "X-Api-Key: abc\r\n", "anonymous");
    check_is(&asked, &route, "", "anonymous");
    check_is(&asked, &route, "Cookie: a=b\r\n", "anonymous");
    /* As before: what a journal has stays meaningful. */
    check_is(&asked, &route, "X-Api-Key: abc\r\nauthorization: Bearer abc\r\n",
        "auth:c355dce96c1612880d11940ffdd9014d386c253e0c3652a6cd06a7226f7bd2b6");
    check_refused(&asked, &route, "X-Api-Key: a\r\nX-Api-Key: b\r\n",
        "there is more than one X-Api-Key field");
    check_refused(&asked, &route, "Authorization: a\r\nAuthorization: a\r\n",
        "there is more than one Authorization field");
    arena_release(&asked.arena);
}

static void what_is_doubtful_about_a_principal_is_found(void **state)
{
    (void)state;
    static const struct {
        const char *fields;
        enum principal_doubt doubt;
    } rows[] = {
        {"Authorization: Bearer sk_live_1\r\n", PRINCIPAL_SURE},
        {"Authorization: Basic eyJhIjoxfQ.e30.x\r\n", PRINCIPAL_SURE},
        {"Authorization: Bearer a.b.c\r\n", PRINCIPAL_SURE},
        {"Authorization: Bearer eyJhIjoxfQ.e30\r\n", PRINCIPAL_SURE},
        {"Authorization: Bearer eyJhIjoxfQ.e30.c2ln\r\n", PRINCIPAL_CHANGES},
        {"Authorization: bearer   eyJhIjoxfQ.e30.c2ln\r\n", PRINCIPAL_CHANGES},
        {"Authorization: AWS4-HMAC-SHA256 Credential=a\r\n", PRINCIPAL_CHANGES},
        {"Authorization: digest username=a\r\n", PRINCIPAL_CHANGES},
        {"X-Api-Key: a\r\nCookie: b=c\r\n", PRINCIPAL_SURE},
        {"Api-Key: a\r\n", PRINCIPAL_SURE},
        {"Cookie: b=c\r\n", PRINCIPAL_COOKIES},
        {"", PRINCIPAL_NOTHING},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct asked asked;
        struct config_route route = {.principal = CONFIG_PRINCIPAL_AUTO};
        asked_init(&asked);
        assert_int_equal(ask(&asked, &route, rows[i].fields), OK);
        assert_int_equal(principal_doubt(&route, &asked.head), rows[i].doubt);
        route.principal = CONFIG_PRINCIPAL_AUTHORIZATION; /* it was typed: somebody chose it */
        assert_int_equal(principal_doubt(&route, &asked.head), PRINCIPAL_SURE);
        arena_release(&asked.arena);
    }
}

static void two_credentials_are_refused(void **state)
{
    (void)state;
    struct asked asked;
    struct config_route route = {.principal = CONFIG_PRINCIPAL_AUTHORIZATION};
    asked_init(&asked);
    check_refused(&asked, &route, "Authorization: a\r\nauthorization: a\r\n",
        "there is more than one Authorization field");
    arena_release(&asked.arena);
}

static void under_none_all_are_one(void **state)
{
    (void)state;
    struct asked asked;
    struct config_route route = {.principal = CONFIG_PRINCIPAL_NONE};
    asked_init(&asked);
    check_is(&asked, &route, "Authorization: a\r\nAuthorization: b\r\n", "");
    arena_release(&asked.arena);
}

/* ---- a field ------------------------------------------------------------------------------- */

static const struct config_route by_header = {
    .principal = CONFIG_PRINCIPAL_HEADER, .principal_name = "X-User"};

static void a_field_is_a_principal_unless_it_is_empty(void **state)
{
    (void)state;
    struct asked asked;
    asked_init(&asked);
    check_is(&asked, &by_header, "x-user:  anna\r\nAuthorization: b\r\n", "header:anna");
    check_is(&asked, &by_header, "X-User: j\xc3\xb6rg, b\r\n", "header:j\xc3\xb6rg, b");
    check_refused(&asked, &by_header, "", "the X-User field is missing or empty");
    check_refused(&asked, &by_header, "X-User:\r\n", "the X-User field is missing or empty");
    check_refused(&asked, &by_header, "X-User:  \t \r\n", "the X-User field is missing or empty");
    check_refused(
        &asked, &by_header, "X-User: a\r\nX-User: a\r\n", "there is more than one X-User field");
    check_refused(
        &asked, &by_header, "X-User:\r\nX-User: a\r\n", "there is more than one X-User field");
    arena_release(&asked.arena);
}

/* A name of so many bytes, in a field. */
static void ask_long(struct asked *asked, int bytes, char last)
{
    char field[8192];
    (void)snprintf(field, sizeof field, "X-User: %0*d%c\r\n", bytes - 1, 0, last);
    assert_int_equal(ask(asked, &by_header, field), OK);
}

static void a_long_or_odd_one_is_kept_as_its_digest(void **state)
{
    (void)state;
    struct asked asked;
    asked_init(&asked);
    const int fits = LIMIT_PRINCIPAL_BYTES_MAX - 7;
    ask_long(&asked, fits, 'a');
    assert_int_equal(asked.principal.len, LIMIT_PRINCIPAL_BYTES_MAX);
    assert_memory_equal(asked.principal.data, "header:000", 10);
    ask_long(&asked, fits + 1, 'a');
    assert_int_equal(asked.principal.len, strlen("header-sha256:") + 64);
    assert_memory_equal(asked.principal.data, "header-sha256:", 14);
    struct slice first = asked.principal;
    ask_long(&asked, fits + 1, 'b');
    assert_int_equal(asked.principal.len, first.len);
    assert_false(slice_equal(first, asked.principal));
    /* What the digest reads as, sent as a name, is somebody else. */
    char field[256];
    (void)snprintf(field, sizeof field, "X-User: %.*s\r\n", SLICE_ARGS(first));
    assert_int_equal(ask(&asked, &by_header, field), OK);
    assert_memory_equal(asked.principal.data, "header:header-sha256:", 21);
    /* Neither bytes that are not text nor a tab get into logs. */
    check_is(&asked, &by_header, "X-User: \xff\r\n",
        "header-sha256:a8100ae6aa1940d0b663bb31cd466142ebbdbd5187131b92d93818987832eb89");
    check_is(&asked, &by_header, "X-User: a\tb\r\n",
        "header-sha256:894891f8b78a9945b0aa07e70d5f71f10b1f1990af127de561cc0ac36024c188");
    arena_release(&asked.arena);
}

/* ---- a claim ------------------------------------------------------------------------------- */

struct key_file {
    char path[64];
};

static void key_file_make(struct key_file *file, struct slice bytes)
{
    (void)snprintf(file->path, sizeof file->path, "/tmp/once-principal-XXXXXX");
    int fd = mkstemp(file->path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes.data, bytes.len), (ssize_t)bytes.len);
    assert_int_equal(close(fd), 0);
}

static struct config_route by_claim(const struct key_file *file)
{
    return (struct config_route){.principal = CONFIG_PRINCIPAL_JWT,
        .principal_name = "sub",
        .jwt = {.alg = CONFIG_JWT_HS256, .key_file = file->path}};
}

/* An Authorization line with a token of these claims. */
static const char *bearer(
    char line[4096], const char *scheme, const char *secret, struct slice claims)
{
    struct buf token;
    buf_init(&token, &mem_libc, BYTES_MAX);
    struct slice made =
        jwt_make(&token, HS256, claims, &(struct jwt_signer){.secret = slice_str(secret)});
    (void)snprintf(line, 4096, "Authorization: %s%.*s\r\n", scheme, SLICE_ARGS(made));
    buf_release(&token);
    return line;
}

static void a_verified_claim_is_a_principal(void **state)
{
    (void)state;
    struct asked asked;
    struct key_file file;
    char line[4096];
    asked_init(&asked);
    key_file_make(&file, SLICE_LIT(SECRET "\n")); /* whose line end is no part of it */
    struct config_route route = by_claim(&file);
    struct slice anna = SLICE_LIT("{\"sub\":\"anna\",\"iss\":\"us\",\"aud\":\"api\"}");
    check_is(&asked, &route, bearer(line, "Bearer ", SECRET, anna), "jwt:anna");
    check_is(&asked, &route, bearer(line, "bEARER   ", SECRET, anna), "jwt:anna");
    /* Another credential of the same person. */
    check_is(&asked, &route,
        bearer(line, "Bearer ", SECRET, SLICE_LIT("{\"sub\":\"anna\",\"jti\":\"2\"}")), "jwt:anna");
    check_is(&asked, &route, bearer(line, "Bearer ", SECRET, SLICE_LIT("{\"sub\":\"a\\u0000\"}")),
        "jwt-sha256:ffe9aaeaa2a2d5048174df0b80599ef0197ec024c4b051bc9860cff58ef7f9f3");
    route.jwt.issuer = "us";
    route.jwt.audience = "api";
    check_is(&asked, &route, bearer(line, "Bearer ", SECRET, anna), "jwt:anna");
    route.jwt.audience = "other";
    assert_int_equal(ask(&asked, &route, line), E_INVALID);
    route.jwt.audience = NULL;
    route.jwt.issuer = "them";
    assert_int_equal(ask(&asked, &route, line), E_INVALID);
    (void)unlink(file.path);
    arena_release(&asked.arena);
}

static void a_token_that_is_not_good_is_nobody(void **state)
{
    (void)state;
    struct asked asked;
    struct key_file file;
    char line[4096];
    asked_init(&asked);
    key_file_make(&file, SLICE_LIT(SECRET));
    struct config_route route = by_claim(&file);
    check_refused(&asked, &route, "", "the Authorization field has no bearer token");
    check_refused(&asked, &route, "Authorization: Basic abc\r\n",
        "the Authorization field has no bearer token");
    check_refused(
        &asked, &route, "Authorization: Bearer\r\n", "the Authorization field has no bearer token");
    check_refused(&asked, &route, "Authorization: Bearer a\r\nAuthorization: Bearer a\r\n",
        "there is more than one Authorization field");
    assert_int_equal(ask(&asked, &route, "Authorization: Bearer a.b.c\r\n"), E_INVALID);
    static const char *const claims[] = {
        "{\"sub\":\"\"}", "{}", "{\"sub\":null}", "{\"sub\":\"anna\",\"exp\":1699999000}"};
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
        assert_int_equal(
            ask(&asked, &route, bearer(line, "Bearer ", SECRET, slice_str(claims[i]))), E_INVALID);
        assert_null(strstr(asked.err.text, "anna"));
    }
    assert_int_equal(ask(&asked, &route,
                         bearer(line, "Bearer ", "another secret of thirty-two byt",
                             SLICE_LIT("{\"sub\":\"anna\"}"))),
        E_INVALID);
    (void)unlink(file.path);
    arena_release(&asked.arena);
}

static void each_route_has_its_own_key(void **state)
{
    (void)state;
    struct asked asked;
    struct key_file files[2];
    char line[4096];
    struct slice anna = SLICE_LIT("{\"sub\":\"anna\"}");
    asked_init(&asked);
    key_file_make(&files[0], SLICE_LIT(SECRET "\r\n"));
    key_file_make(&files[1], SLICE_LIT("another secret of thirty-two byt"));
    struct config_route routes[] = {
        by_claim(&files[0]), {.principal = CONFIG_PRINCIPAL_NONE}, by_claim(&files[1])};
    struct config_route otherwise = by_claim(&files[0]);
    struct config_gateway gateway = {.routes = routes, .route_count = 3, .otherwise = &otherwise};
    struct principals *principals = NULL;
    assert_int_equal(principals_new(&mem_libc, &gateway, &principals, NULL), OK);
    (void)bearer(line, "Bearer ", SECRET, anna);
    assert_int_equal(ask_of(&asked, principals, &gateway, &routes[0], line), OK);
    assert_int_equal(ask_of(&asked, principals, &gateway, &routes[1], line), OK);
    assert_int_equal(asked.principal.len, 0);
    assert_int_equal(ask_of(&asked, principals, &gateway, &routes[2], line), E_INVALID);
    assert_int_equal(ask_of(&asked, principals, &gateway, &otherwise, line), OK);
    (void)bearer(line, "Bearer ", "another secret of thirty-two byt", anna);
    assert_int_equal(ask_of(&asked, principals, &gateway, &routes[2], line), OK);
    assert_int_equal(ask_of(&asked, principals, &gateway, &otherwise, line), E_INVALID);
    principals_free(principals);
    principals_free(NULL);
    (void)unlink(files[0].path);
    (void)unlink(files[1].path);
    arena_release(&asked.arena);
}

static enum status new_with(const char *path, enum config_jwt_alg alg, struct err *err)
{
    struct config_route route = {.principal = CONFIG_PRINCIPAL_JWT,
        .principal_name = "sub",
        .jwt = {.alg = alg, .key_file = path}};
    struct config_gateway gateway = {.otherwise = &route};
    struct principals *principals = NULL;
    *err = (struct err){.status = OK};
    enum status status = principals_new(&mem_libc, &gateway, &principals, err);
    assert_true((status == OK) == (principals != NULL));
    assert_true(status == OK || strstr(err->text, path) != NULL);
    principals_free(principals);
    return status;
}

static void a_key_file_that_cannot_be_used_is_named(void **state)
{
    (void)state;
    struct err err;
    struct key_file file;
    assert_int_equal(new_with("/nonexistent/key", CONFIG_JWT_HS256, &err), E_UNAVAILABLE);
    assert_int_equal(new_with("/tmp", CONFIG_JWT_HS256, &err), E_UNAVAILABLE);
    key_file_make(&file, SLICE_LIT("too short\n"));
    assert_int_equal(new_with(file.path, CONFIG_JWT_HS256, &err), E_INVALID);
    assert_null(strstr(err.text, "too short\n"));
    assert_int_equal(new_with(file.path, CONFIG_JWT_RS256, &err), E_INVALID);
    assert_int_equal(truncate(file.path, 0), 0);
    assert_int_equal(new_with(file.path, CONFIG_JWT_HS256, &err), E_INVALID);
    assert_int_equal(truncate(file.path, 1 << 20), 0);
    assert_int_equal(new_with(file.path, CONFIG_JWT_HS256, &err), E_INVALID);
    (void)unlink(file.path);
    assert_int_equal(
        new_with(ONCE_TESTS_DIR "/vectors/jwt/rfc7515-a2.pem", CONFIG_JWT_RS256, &err), OK);
    assert_int_equal(
        new_with(ONCE_TESTS_DIR "/vectors/jwt/rfc7515-a3.pem", CONFIG_JWT_ES256, &err), OK);
    assert_int_equal(
        new_with(ONCE_TESTS_DIR "/vectors/jwt/rfc7515-a3.pem", CONFIG_JWT_RS256, &err), E_INVALID);
}

/* ---- torture ------------------------------------------------------------------------------- */

static void short_memory_is_told_and_nothing_is_lost(void **state)
{
    (void)state;
    struct key_file file;
    char line[4096];
    struct faulty faulty = {.fail_at = 0};
    struct mem mem = {.resize = faulty_resize, .context = &faulty};
    key_file_make(&file, SLICE_LIT(SECRET));
    struct config_route route = by_claim(&file);
    struct config_gateway gateway = {.routes = &route, .route_count = 1};
    (void)bearer(line, "Bearer ", SECRET, SLICE_LIT("{\"sub\":\"anna\"}"));
    unsigned failures = 0;
    bool is_done = false;
    while (!is_done) {
        struct asked asked;
        struct principals *principals = NULL;
        struct err err = {.status = OK};
        asked_init(&asked);
        arena_init(&asked.arena, &mem, BYTES_MAX);
        faulty_arm(&faulty, (long)failures + 1, FAULTY_FOR_GOOD);
        enum status status = principals_new(&mem, &gateway, &principals, &err);
        if (status == OK) {
            status = ask_of(&asked, principals, &gateway, &route, line);
        }
        assert_true(status == OK || status == E_NOMEM);
        is_done = status == OK;
        failures += !is_done;
        principals_free(principals);
        arena_release(&asked.arena);
        assert_int_equal(faulty.live, 0);
    }
    assert_true(failures >= 4);
    (void)unlink(file.path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(credentials_are_kept_as_their_digest),
        TEST(nobody_and_somebody_are_not_the_same),
        TEST(an_api_key_is_a_principal_where_there_are_no_credentials),
        TEST(what_is_doubtful_about_a_principal_is_found),
        TEST(two_credentials_are_refused),
        TEST(under_none_all_are_one),
        TEST(a_field_is_a_principal_unless_it_is_empty),
        TEST(a_long_or_odd_one_is_kept_as_its_digest),
        TEST(a_verified_claim_is_a_principal),
        TEST(a_token_that_is_not_good_is_nobody),
        TEST(each_route_has_its_own_key),
        TEST(a_key_file_that_cannot_be_used_is_named),
        TEST(short_memory_is_told_and_nothing_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
