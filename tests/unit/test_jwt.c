#include <openssl/err.h>
#include <openssl/rsa.h>
#include <pthread.h>
#include <stdlib.h>

#include "check_c.h"
#include "faulty_mem.h"
#include "files.h"
#include "gateway/jwt.h"
#include "jwt_make.h"

#define NOW_MS      INT64_C(1700000000000)
#define SECRET      "0123456789abcdef0123456789abcdef"
#define CLAIMS      "{\"sub\":\"ann\",\"exp\":1700000100}"
#define MARK        "c0ffee-mark" /* in a token, and never in an error's text */
#define CUT         "{\"alg\":\"HS256\",\"x\":\"" MARK
#define HEADER(alg) "{\"alg\":\"" alg "\"}"

enum { RFC_EXP_MS_BEHIND = 1000 };

static const struct jwt_signer by_secret = {.secret = {SECRET, sizeof SECRET - 1}};
static const struct jwt_expect expect_now = {.now_ms = NOW_MS};

/* Key pairs made once, their public halves, and what one test needs. */
static struct kit {
    struct jwt_signer rsa;
    struct jwt_signer p256;
    struct jwt_signer p384;
    struct buf rsa_pem;
    struct buf p256_pem;
    struct buf p384_pem;
    struct jwt_key *hs256;
    struct jwt_key *rs256;
    struct jwt_key *es256;
    struct arena arena;
    struct buf token;
    struct buf other;
} kit;

static struct jwt_key *key_of(enum jwt_alg alg, struct slice material)
{
    struct err err = {0};
    struct jwt_key *key = NULL;
    if (jwt_key_new(&mem_libc, alg, material, &key, &err) != OK) {
        fail_msg("no key: %s", err.text);
    }
    return key;
}

static int set_up(void **state)
{
    (void)state;
    struct buf *bufs[] = {&kit.rsa_pem, &kit.p256_pem, &kit.p384_pem, &kit.token, &kit.other};
    for (size_t i = 0; i < sizeof bufs / sizeof bufs[0]; i++) {
        buf_init(bufs[i], &mem_libc, 1 << 20);
    }
    arena_init(&kit.arena, &mem_libc, 1 << 20);
    kit.rsa.pair = EVP_RSA_gen(2048);
    kit.p256 = (struct jwt_signer){.pair = EVP_EC_gen("P-256"), .half_bytes = 32};
    kit.p384 = (struct jwt_signer){.pair = EVP_EC_gen("P-384"), .half_bytes = 48};
    kit.hs256 = key_of(JWT_HS256, by_secret.secret);
    kit.rs256 = key_of(JWT_RS256, jwt_put_pem(&kit.rsa_pem, kit.rsa.pair));
    kit.es256 = key_of(JWT_ES256, jwt_put_pem(&kit.p256_pem, kit.p256.pair));
    (void)jwt_put_pem(&kit.p384_pem, kit.p384.pair);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    struct buf *bufs[] = {&kit.rsa_pem, &kit.p256_pem, &kit.p384_pem, &kit.token, &kit.other};
    for (size_t i = 0; i < sizeof bufs / sizeof bufs[0]; i++) {
        buf_release(bufs[i]);
    }
    jwt_key_free(kit.hs256);
    jwt_key_free(kit.rs256);
    jwt_key_free(kit.es256);
    EVP_PKEY_free(kit.rsa.pair);
    EVP_PKEY_free(kit.p256.pair);
    EVP_PKEY_free(kit.p384.pair);
    arena_release(&kit.arena);
    return 0;
}

/* The claim as the token has it, or NULL with the reason in the arena's care. */
static enum status claim_of(const struct jwt_key *key, struct slice token,
    const struct jwt_expect *expect, const char *claim, struct slice *ret_value, struct err *err)
{
    /* An exact copy, so that a byte read past the end is noticed. */
    char *copy = mem_alloc(&mem_libc, token.len + 1);
    memcpy(copy, token.len == 0 ? "" : token.data, token.len);
    char *exact = mem_resize(&mem_libc, copy, token.len == 0 ? 1 : token.len);
    enum status status = jwt_claim(
        key, slice_of(exact, token.len), expect, slice_str(claim), &kit.arena, ret_value, err);
    mem_free(&mem_libc, exact);
    assert_int_equal(ERR_peek_error(), 0); /* or TLS would trip over it */
    return status;
}

static void assert_claim_at(const struct jwt_key *key, struct slice token,
    const struct jwt_expect *expect, const char *claim, const char *wanted)
{
    struct err err = {0};
    struct slice value = SLICE_EMPTY;
    if (claim_of(key, token, expect, claim, &value, &err) != OK) {
        fail_msg("refused: %s", err.text);
    }
    if (!slice_is(value, wanted)) {
        fail_msg("'%.*s' instead of '%s'", SLICE_ARGS(value), wanted);
    }
}

static void assert_claim(const struct jwt_key *key, struct slice token, const char *wanted)
{
    assert_claim_at(key, token, &expect_now, "sub", wanted);
}

/* Refused, for a reason with these words in it. */
static void assert_refused_at(const struct jwt_key *key, struct slice token,
    const struct jwt_expect *expect, const char *claim, const char *words)
{
    struct err err = {0};
    struct slice value = SLICE_LIT("untouched");
    enum status status = claim_of(key, token, expect, claim, &value, &err);
    if (status != E_INVALID || strstr(err.text, words) == NULL) {
        fail_msg("%s '%s', wanted '%s' for %.*s", status_name(status), err.text, words,
            SLICE_ARGS(token));
    }
    assert_true(slice_is(value, "untouched"));
    assert_null(strstr(err.text, MARK));
}

static void assert_refused(const struct jwt_key *key, struct slice token, const char *words)
{
    assert_refused_at(key, token, &expect_now, "sub", words);
}

static struct slice hs256(const char *payload)
{
    return jwt_make(&kit.token, HEADER("HS256"), slice_str(payload), &by_secret);
}

/* ---- what is right ------------------------------------------------------------------------- */

static void check_rfc(const char *example, enum jwt_alg alg, const char *material)
{
    char name[128];
    struct jwt_expect expect = {.now_ms = INT64_C(1300819380000) - RFC_EXP_MS_BEHIND};
    buf_clear(&kit.token);
    buf_clear(&kit.other);
    (void)snprintf(name, sizeof name, "vectors/jwt/rfc7515-%s.token", example);
    file_read(name, &kit.token);
    (void)snprintf(name, sizeof name, "vectors/jwt/rfc7515-%s.%s", example, material);
    file_read(name, &kit.other);
    struct jwt_key *key = key_of(alg, buf_view(&kit.other));
    assert_claim_at(key, buf_view(&kit.token), &expect, "iss", "joe");
    expect.now_ms += RFC_EXP_MS_BEHIND + JWT_LEEWAY_MS;
    assert_refused_at(key, buf_view(&kit.token), &expect, "iss", "has expired");
    jwt_key_free(key);
}

static void the_examples_of_rfc_7515_are_believed(void **state)
{
    (void)state;
    check_rfc("a1", JWT_HS256, "secret");
    check_rfc("a2", JWT_RS256, "pem");
    check_rfc("a3", JWT_ES256, "pem");
}

static void a_token_of_each_algorithm_is_believed(void **state)
{
    (void)state;
    struct slice claims = SLICE_LIT(CLAIMS);
    assert_claim(kit.hs256, hs256(CLAIMS), "ann");
    assert_claim(kit.rs256, jwt_make(&kit.token, HEADER("RS256"), claims, &kit.rsa), "ann");
    for (int i = 0; i < 50; i++) { /* r and s begin with zeros, or a set bit, now and then */
        assert_claim(kit.es256, jwt_make(&kit.token, HEADER("ES256"), claims, &kit.p256), "ann");
    }
    assert_claim(kit.hs256,
        jwt_make(&kit.token, "{\"typ\":\"JWT\",\"kid\":\"1\",\"alg\":\"HS256\",\"x\":{}}", claims,
            &by_secret),
        "ann");
}

static void a_claim_is_a_string_or_an_integer(void **state)
{
    (void)state;
    static const char *const good[][2] = {
        {"{\"sub\":\"\\u00e4 \\\"b\\\" \\n\"}", "\xc3\xa4 \"b\" \n"},
        {"{\"sub\":42}", "42"},
        {"{\"sub\":-7}", "-7"},
        {"{\"sub\":-0}", "0"},
        {"{\"sub\":9223372036854775807}", "9223372036854775807"},
        {"{\"\\u0073ub\":\"x\"}", "x"},
    };
    static const char *const bad[] = {
        "{}",
        "{\"sub\":\"\"}",
        "{\"sub\":null}",
        "{\"sub\":true}",
        "{\"sub\":[\"" MARK "\"]}",
        "{\"sub\":{\"sub\":\"" MARK "\"}}",
        "{\"sub\":1.5}",
        "{\"sub\":1e3}",
        "{\"sub\":9223372036854775808}",
        "{\"Sub\":\"" MARK "\"}",
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_claim(kit.hs256, hs256(good[i][0]), good[i][1]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_refused(kit.hs256, hs256(bad[i]), "the claim 'sub' of the token is not");
    }
    assert_claim_at(kit.hs256, hs256("{\"https://a.example/id\":\"7\"}"), &expect_now,
        "https://a.example/id", "7");
}

/* ---- dates, issuer, audience --------------------------------------------------------------- */

static void check_date(const char *name, const char *value, const char *refused)
{
    char payload[128];
    (void)snprintf(payload, sizeof payload, "{\"sub\":\"ann\",\"%s\":%s}", name, value);
    if (refused == NULL) {
        assert_claim(kit.hs256, hs256(payload), "ann");
    } else {
        assert_refused(kit.hs256, hs256(payload), refused);
    }
}

static void dates_are_compared_with_a_minute_of_leeway(void **state)
{
    (void)state;
    check_date("exp", "1699999940", "has expired"); /* 60 s ago */
    check_date("exp", "1699999940.001", NULL);
    check_date("exp", "1699999941", NULL);
    check_date("exp", "1.699999941e9", NULL);
    check_date("exp", "1e300", NULL);
    check_date("exp", "0", "has expired");
    check_date("exp", "-1e300", "has expired");
    check_date("nbf", "1700000060", NULL); /* in 60 s */
    check_date("nbf", "1700000060.5", "not valid yet");
    check_date("nbf", "1700000061", "not valid yet");
    check_date("nbf", "0", NULL);
    check_date("iat", "1800000000", NULL); /* says when, not until when */
    static const char *const no_dates[] = {
        "\"1800000000\"", "null", "true", "[]", "{}", "\"\"", "1e400", "-1e999999999999"};
    for (size_t i = 0; i < sizeof no_dates / sizeof no_dates[0]; i++) {
        check_date("exp", no_dates[i], "not a number of seconds");
        check_date("nbf", no_dates[i], "not a number of seconds");
    }
}

static void issuer_and_audience_are_those_expected(void **state)
{
    (void)state;
    struct jwt_expect both = {
        .issuer = SLICE_LIT("us"), .audience = SLICE_LIT("api"), .now_ms = NOW_MS};
    struct jwt_expect to_api = {.audience = SLICE_LIT("api"), .now_ms = NOW_MS};
    struct slice token = hs256("{\"sub\":\"a\",\"iss\":\"us\",\"aud\":\"api\"}");
    assert_claim_at(kit.hs256, token, &both, "sub", "a");
    assert_claim_at(kit.hs256, token, &expect_now, "sub", "a");
    token = hs256("{\"sub\":\"a\",\"iss\":\"us\",\"aud\":[\"web\",\"api\"]}");
    assert_claim_at(kit.hs256, token, &both, "sub", "a");
    static const char *const others[] = {"{\"sub\":\"a\",\"aud\":\"api\"}",
        "{\"sub\":\"a\",\"aud\":\"api\",\"iss\":\"us" MARK "\"}",
        "{\"sub\":\"a\",\"aud\":\"api\",\"iss\":\"u\"}",
        "{\"sub\":\"a\",\"aud\":\"api\",\"iss\":[\"us\"]}",
        "{\"sub\":\"a\",\"aud\":\"api\",\"iss\":null}"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        assert_refused_at(kit.hs256, hs256(others[i]), &both, "sub", "the issuer");
        assert_claim_at(kit.hs256, hs256(others[i]), &to_api, "sub", "a");
    }
    static const char *const elsewhere[] = {"{\"sub\":\"a\"}", "{\"sub\":\"a\",\"aud\":\"ap\"}",
        "{\"sub\":\"a\",\"aud\":[]}", "{\"sub\":\"a\",\"aud\":[\"web\",[\"api\"],7]}",
        "{\"sub\":\"a\",\"aud\":{\"api\":\"api\"}}", "{\"sub\":\"a\",\"aud\":\"apis\"}"};
    for (size_t i = 0; i < sizeof elsewhere / sizeof elsewhere[0]; i++) {
        assert_refused_at(kit.hs256, hs256(elsewhere[i]), &to_api, "sub", "the audience");
    }
}

/* ---- forgeries ----------------------------------------------------------------------------- */

static void no_token_chooses_its_algorithm(void **state)
{
    (void)state;
    struct slice claims = SLICE_LIT("{\"sub\":\"" MARK "\"}");
    static const char *const headers[] = {HEADER("none"), HEADER("None"), HEADER("NONE"),
        HEADER(""), HEADER("hs256"), HEADER("HS384"), HEADER("HS256 "), HEADER("HS256\\u0000"),
        "{}", "{\"alg\":null}", "{\"alg\":256}", "{\"alg\":[\"HS256\"]}", "{\"Alg\":\"HS256\"}"};
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        struct slice token = jwt_make(&kit.token, headers[i], claims, &by_secret);
        assert_refused(kit.hs256, token, "not signed with HS256");
        assert_refused(kit.rs256, token, "not signed with RS256");
        const char *dot = memrchr(token.data, '.', token.len);
        token.len = (size_t)(dot - token.data) + 1; /* nothing behind it: "unsecured" */
        assert_refused(kit.hs256, token, "not three parts");
        token.len--;
        assert_refused(kit.hs256, token, "not three parts");
    }
}

/* The classic: what everybody knows as the public key, used as a secret. */
static void a_public_key_is_never_a_secret(void **state)
{
    (void)state;
    struct slice claims = SLICE_LIT("{\"sub\":\"" MARK "\"}");
    struct jwt_signer by_rsa_pem = {.secret = buf_view(&kit.rsa_pem)};
    struct jwt_signer by_p256_pem = {.secret = buf_view(&kit.p256_pem)};
    assert_refused(kit.rs256, jwt_make(&kit.token, HEADER("HS256"), claims, &by_rsa_pem),
        "not signed with RS256");
    assert_refused(kit.rs256, jwt_make(&kit.token, HEADER("RS256"), claims, &by_rsa_pem),
        "the signature of the token is wrong");
    assert_refused(kit.es256, jwt_make(&kit.token, HEADER("HS256"), claims, &by_p256_pem),
        "not signed with ES256");
    assert_refused(kit.es256, jwt_make(&kit.token, HEADER("ES256"), claims, &by_p256_pem),
        "the signature of the token is wrong");
    struct err err = {0};
    struct jwt_key *key = NULL;
    assert_int_equal(
        jwt_key_new(&mem_libc, JWT_HS256, buf_view(&kit.rsa_pem), &key, &err), E_INVALID);
    assert_null(key);
}

static void a_signature_by_another_key_is_wrong(void **state)
{
    (void)state;
    const char *wrong = "the signature of the token is wrong";
    struct slice claims = SLICE_LIT(CLAIMS);
    struct jwt_signer other = {.secret = SLICE_LIT("x123456789abcdef0123456789abcdef")};
    struct jwt_signer p256 = {.pair = EVP_EC_gen("P-256"), .half_bytes = 32};
    struct jwt_signer rsa = {.pair = EVP_RSA_gen(2048)};
    assert_refused(kit.hs256, jwt_make(&kit.token, HEADER("HS256"), claims, &other), wrong);
    assert_refused(kit.es256, jwt_make(&kit.token, HEADER("ES256"), claims, &p256), wrong);
    assert_refused(kit.es256, jwt_make(&kit.token, HEADER("ES256"), claims, &kit.p384), wrong);
    assert_refused(kit.es256, jwt_make(&kit.token, HEADER("ES256"), claims, &kit.rsa), wrong);
    assert_refused(kit.rs256, jwt_make(&kit.token, HEADER("RS256"), claims, &rsa), wrong);
    assert_refused(kit.rs256, jwt_make(&kit.token, HEADER("RS256"), claims, &kit.p256), wrong);
    EVP_PKEY_free(p256.pair);
    EVP_PKEY_free(rsa.pair);
}

/* Header and payload with any bytes as the signature. */
static struct slice with_signature(const char *header, struct slice signature)
{
    buf_clear(&kit.token);
    jwt_put_base64url(&kit.token, slice_str(header));
    buf_char(&kit.token, '.');
    jwt_put_base64url(&kit.token, SLICE_LIT(CLAIMS));
    buf_char(&kit.token, '.');
    jwt_put_base64url(&kit.token, signature);
    return buf_view(&kit.token);
}

static void a_signature_has_one_form_only(void **state)
{
    (void)state;
    const char *wrong = "the signature of the token is wrong";
    struct slice claims = SLICE_LIT(CLAIMS);
    struct jwt_signer der = {.pair = kit.p256.pair, .half_bytes = 32, .der = true};
    assert_refused(kit.es256, jwt_make(&kit.token, HEADER("ES256"), claims, &der), wrong);
    char bytes[257] = {0};
    for (size_t size = 1; size <= sizeof bytes; size++) { /* all of zeros */
        struct slice zeros = slice_of(bytes, size);
        assert_refused(kit.es256, with_signature(HEADER("ES256"), zeros), wrong);
        assert_refused(kit.rs256, with_signature(HEADER("RS256"), zeros), wrong);
        assert_refused(kit.hs256, with_signature(HEADER("HS256"), zeros), wrong);
    }
    memset(bytes, 0xff, sizeof bytes); /* beyond the order and the modulus */
    assert_refused(kit.es256, with_signature(HEADER("ES256"), slice_of(bytes, 64)), wrong);
    assert_refused(kit.rs256, with_signature(HEADER("RS256"), slice_of(bytes, 256)), wrong);
}

/* Each character replaced, left out and doubled; cut everywhere; with more behind it. */
static void check_bent(const struct jwt_key *key, struct slice token)
{
    static const char others[] = "AQz9-_=+/. \n";
    char bent[2048];
    assert_true(token.len < sizeof bent - 8);
    for (size_t i = 0; i < token.len; i++) {
        memcpy(bent, token.data, token.len);
        for (size_t k = 0; k < sizeof others; k++) { /* its terminator too */
            bent[i] = others[k];
            if (others[k] != token.data[i]) {
                assert_refused(key, slice_of(bent, token.len), "");
            }
        }
        memmove(bent + i, token.data + i + 1, token.len - i - 1);
        assert_refused(key, slice_of(bent, token.len - 1), "");
        assert_refused(key, slice_of(token.data, i), "");
    }
    static const char *const tails[] = {"A", "=", "==", ".", ".A", "\n", " ", "AAAA", "\xff"};
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        memcpy(bent, token.data, token.len);
        memcpy(bent + token.len, tails[i], strlen(tails[i]));
        assert_refused(key, slice_of(bent, token.len + strlen(tails[i])), "");
        memcpy(bent, tails[i], strlen(tails[i]));
        memcpy(bent + strlen(tails[i]), token.data, token.len);
        assert_refused(key, slice_of(bent, token.len + strlen(tails[i])), "");
    }
    assert_claim(key, token, "ann"); /* and it was the bend each time */
}

static void a_token_bent_anywhere_is_refused(void **state)
{
    (void)state;
    struct slice claims = SLICE_LIT(CLAIMS);
    check_bent(kit.hs256, hs256(CLAIMS));
    check_bent(kit.rs256, jwt_make(&kit.token, HEADER("RS256"), claims, &kit.rsa));
    check_bent(kit.es256, jwt_make(&kit.token, HEADER("ES256"), claims, &kit.p256));
}

/* 32 bytes leave two bits of the last digit unused: four spellings, one of them right. */
static void stray_bits_are_refused(void **state)
{
    (void)state;
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    char bent[512];
    struct slice token = hs256(CLAIMS);
    memcpy(bent, token.data, token.len);
    size_t right = (size_t)(strchr(digits, bent[token.len - 1]) - digits);
    assert_int_equal(right % 4, 0);
    for (size_t i = 1; i < 4; i++) {
        bent[token.len - 1] = digits[right + i];
        assert_refused(
            kit.hs256, slice_of(bent, token.len), "the signature of the token is not base64url");
    }
}

static void a_header_is_an_object_with_each_member_once(void **state)
{
    (void)state;
    struct slice claims = SLICE_LIT(CLAIMS);
    static const char *const headers[] = {"{\"alg\":\"none\",\"alg\":\"HS256\"}",
        "{\"alg\":\"HS256\",\"alg\":\"HS256\"}", "{\"alg\":\"HS256\",\"\\u0061lg\":\"HS256\"}",
        "[\"alg\",\"HS256\"]", "\"HS256\"", "{\"alg\":\"HS256\"", "{\"alg\":\"HS256\"}}", CUT,
        "\xef\xbb\xbf{\"alg\":\"HS256\"}", "{\"alg\":\"HS256\",\"x\":\"\xff\"}"};
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        assert_refused(kit.hs256, jwt_make(&kit.token, headers[i], claims, &by_secret),
            "the header of the token is not a JSON object");
    }
    static const char *const crit[] = {"{\"alg\":\"HS256\",\"crit\":[\"exp\"],\"exp\":1}",
        "{\"alg\":\"HS256\",\"crit\":[]}", "{\"alg\":\"HS256\",\"crit\":null}",
        "{\"alg\":\"HS256\",\"b64\":false,\"crit\":[\"b64\"]}"};
    for (size_t i = 0; i < sizeof crit / sizeof crit[0]; i++) {
        assert_refused(kit.hs256, jwt_make(&kit.token, crit[i], claims, &by_secret), "crit");
    }
}

static void a_payload_is_an_object_with_each_member_once(void **state)
{
    (void)state;
    static const char *const payloads[] = {"{\"sub\":\"" MARK "\",\"sub\":\"ann\"}", "[]", "7",
        "\"" MARK "\"", "null", "{\"sub\":\"ann\"} x", "{\"sub\":\"\\ud800\"}", "not json"};
    for (size_t i = 0; i < sizeof payloads / sizeof payloads[0]; i++) {
        assert_refused(
            kit.hs256, hs256(payloads[i]), "the payload of the token is not a JSON object");
    }
    char deep[400];
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    assert_refused(kit.hs256, hs256(deep), "the payload of the token is not a JSON object");
}

static void a_token_is_three_parts(void **state)
{
    (void)state;
    static const char *const texts[] = {"", ".", "..", "...", "a", "a.b", "a..c", ".b.c", "a.b.",
        "a.b.c.", ".a.b.c", "a.b.c.d", "a.b.c.d.e"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        assert_refused(kit.hs256, slice_str(texts[i]), "not three parts");
    }
    assert_refused(kit.hs256, SLICE_EMPTY, "not three parts");
}

/* ---- limits -------------------------------------------------------------------------------- */

static struct slice token_of_bytes(size_t bytes, bool dense)
{
    static char payload[JWT_TOKEN_BYTES_MAX];
    size_t rest = strlen("eyJhbGciOiJIUzI1NiJ9") + 1 + 1 + 43;
    size_t size = (bytes - rest) * 3 / 4;
    const char *start = dense ? "{\"sub\":\"ann\",\"x\":[1" : "{\"sub\":\"ann\",\"x\":\"";
    const char *end = dense ? "]}" : "\"}";
    memset(payload, 'x', sizeof payload);
    memcpy(payload, start, strlen(start));
    for (size_t i = strlen(start); dense && i + 1 < size - strlen(end); i += 2) {
        memcpy(payload + i, ",1", 2);
        payload[i + 2] = ' ';
    }
    memcpy(payload + size - strlen(end), end, strlen(end));
    struct slice token = jwt_make(&kit.token, HEADER("HS256"), slice_of(payload, size), &by_secret);
    return token;
}

static void a_token_has_at_most_8_kib(void **state)
{
    (void)state;
    struct slice longest = token_of_bytes(JWT_TOKEN_BYTES_MAX, false);
    assert_in_range(longest.len, JWT_TOKEN_BYTES_MAX - 1, JWT_TOKEN_BYTES_MAX);
    assert_claim(kit.hs256, longest, "ann");
    assert_refused(
        kit.hs256, token_of_bytes(JWT_TOKEN_BYTES_MAX + 4, false), "token_bytes_max (8192)");
    assert_claim(kit.hs256, token_of_bytes(JWT_TOKEN_BYTES_MAX - 1, true), "ann");
}

static void assert_no_key(enum jwt_alg alg, struct slice material, const char *words)
{
    struct err err = {0};
    struct jwt_key *key = NULL;
    enum status status = jwt_key_new(&mem_libc, alg, material, &key, &err);
    if (status != E_INVALID || strstr(err.text, words) == NULL) {
        fail_msg("%s '%s', wanted '%s'", status_name(status), err.text, words);
    }
    assert_null(key);
    assert_int_equal(ERR_peek_error(), 0);
}

static void keys_that_are_weak_or_of_another_kind_are_refused(void **state)
{
    (void)state;
    static char large[JWT_KEY_BYTES_MAX + 1];
    memset(large, 's', sizeof large);
    assert_no_key(JWT_HS256, slice_of(SECRET, 31), "at least 32 bytes");
    assert_no_key(JWT_HS256, SLICE_EMPTY, "1 to 65536 bytes");
    assert_no_key(JWT_HS256, slice_of(large, sizeof large), "1 to 65536 bytes");
    assert_no_key(JWT_RS256, buf_view(&kit.p256_pem), "needs an RSA key");
    assert_no_key(JWT_ES256, buf_view(&kit.rsa_pem), "on the curve P-256");
    assert_no_key(JWT_ES256, buf_view(&kit.p384_pem), "on the curve P-256");
    assert_no_key(JWT_RS256, by_secret.secret, "one public key in PEM");
    assert_no_key(JWT_ES256, SLICE_LIT("-----BEGIN PUBLIC KEY-----\nAAAA\n"), "one public key");
    struct slice cut = buf_view(&kit.rsa_pem);
    cut.len -= 40;
    assert_no_key(JWT_RS256, cut, "one public key in PEM");
    static const char *const other_curves[] = {"secp256k1", "P-521", "brainpoolP256r1"};
    for (size_t i = 0; i < sizeof other_curves / sizeof other_curves[0]; i++) {
        EVP_PKEY *pair = EVP_EC_gen(other_curves[i]);
        assert_no_key(JWT_ES256, jwt_put_pem(&kit.other, pair), "on the curve P-256");
        EVP_PKEY_free(pair);
    }
    EVP_PKEY *edwards = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    assert_no_key(JWT_ES256, jwt_put_pem(&kit.other, edwards), "on the curve P-256");
    EVP_PKEY_free(edwards);
    EVP_PKEY *weak = EVP_RSA_gen(1024);
    assert_no_key(JWT_RS256, jwt_put_pem(&kit.other, weak), "2048 to 8192 bits, this has 1024");
    EVP_PKEY_free(weak);
}

/* A private key in the place of the public one is a mistake that must not go unnoticed. */
static void a_private_key_is_refused(void **state)
{
    (void)state;
    char *text = NULL;
    BIO *bio = BIO_new(BIO_s_mem());
    assert_int_equal(PEM_write_bio_PrivateKey(bio, kit.rsa.pair, NULL, NULL, 0, NULL, NULL), 1);
    struct slice pem = slice_of(text, 0);
    pem.len = (size_t)BIO_get_mem_data(bio, &text);
    pem.data = text;
    assert_no_key(JWT_RS256, pem, "one public key in PEM");
    buf_clear(&kit.other);
    buf_slice(&kit.other, buf_view(&kit.rsa_pem));
    buf_slice(&kit.other, pem);
    assert_no_key(JWT_RS256, buf_view(&kit.other), "one public key in PEM");
    BIO_free(bio);
}

/* ---- memory and threads -------------------------------------------------------------------- */

/* One story with the nth allocation failing; false when there was no nth. */
static bool tell(enum jwt_alg alg, struct slice material, struct slice token, long fail_at)
{
    struct faulty faulty = {.fail_at = fail_at};
    struct mem mem = {.resize = faulty_resize, .context = &faulty};
    struct jwt_key *key = NULL;
    struct err err = {0};
    struct arena arena;
    struct slice value;
    arena_init(&arena, &mem, 1 << 20);
    enum status status = jwt_key_new(&mem, alg, material, &key, &err);
    if (status == OK) {
        status = jwt_claim(key, token, &expect_now, SLICE_LIT("sub"), &arena, &value, &err);
    }
    assert_int_equal(status, faulty.asked >= fail_at ? E_NOMEM : OK);
    arena_release(&arena);
    jwt_key_free(key);
    assert_int_equal(faulty.live, 0);
    return status != OK;
}

static void every_failed_allocation_is_said_and_nothing_is_lost(void **state)
{
    (void)state;
    struct slice claims = SLICE_LIT("{\"sub\":\"\\u0061nn\",\"aud\":[1,2,3]}");
    struct slice token = jwt_make(&kit.token, HEADER("HS256"), claims, &by_secret);
    long failed = 0;
    while (tell(JWT_HS256, by_secret.secret, token, failed + 1)) {
        failed++;
    }
    assert_in_range(failed, 3, 1000);
    token = jwt_make(&kit.token, HEADER("ES256"), claims, &kit.p256);
    for (failed = 0; tell(JWT_ES256, buf_view(&kit.p256_pem), token, failed + 1); failed++) {
    }
    assert_in_range(failed, 2, 1000);
}

static void *believe_many(void *context)
{
    const struct slice *tokens = context;
    const struct jwt_key *keys[] = {kit.hs256, kit.rs256, kit.es256};
    struct arena arena;
    arena_init(&arena, &mem_libc, 1 << 20);
    uintptr_t good = 0;
    for (int i = 0; i < 90; i++) {
        struct slice value = SLICE_EMPTY;
        struct err err = {0};
        enum status status = jwt_claim(
            keys[i % 3], tokens[i % 3], &expect_now, SLICE_LIT("sub"), &arena, &value, &err);
        good += status == OK && slice_is(value, "ann");
        good += jwt_claim(keys[i % 3], tokens[(i + 1) % 3], &expect_now, SLICE_LIT("sub"), &arena,
                    &value, &err) == E_INVALID;
    }
    arena_release(&arena);
    return (void *)good; /* NOLINT */
}

static void one_key_serves_many_threads(void **state)
{
    (void)state;
    static char texts[3][1024];
    struct slice claims = SLICE_LIT(CLAIMS);
    struct slice tokens[3] = {hs256(CLAIMS)};
    pthread_t threads[4];
    static const char *const headers[] = {HEADER("HS256"), HEADER("RS256"), HEADER("ES256")};
    const struct jwt_signer *signers[] = {&by_secret, &kit.rsa, &kit.p256};
    for (size_t i = 0; i < 3; i++) {
        struct slice token = jwt_make(&kit.token, headers[i], claims, signers[i]);
        memcpy(texts[i], token.data, token.len);
        tokens[i] = slice_of(texts[i], token.len);
    }
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, believe_many, tokens), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        void *good = NULL;
        assert_int_equal(pthread_join(threads[i], &good), 0);
        assert_int_equal((uintptr_t)good, 180);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_examples_of_rfc_7515_are_believed),
        TEST(a_token_of_each_algorithm_is_believed),
        TEST(a_claim_is_a_string_or_an_integer),
        TEST(dates_are_compared_with_a_minute_of_leeway),
        TEST(issuer_and_audience_are_those_expected),
        TEST(no_token_chooses_its_algorithm),
        TEST(a_public_key_is_never_a_secret),
        TEST(a_signature_by_another_key_is_wrong),
        TEST(a_signature_has_one_form_only),
        TEST(a_token_bent_anywhere_is_refused),
        TEST(stray_bits_are_refused),
        TEST(a_header_is_an_object_with_each_member_once),
        TEST(a_payload_is_an_object_with_each_member_once),
        TEST(a_token_is_three_parts),
        TEST(a_token_has_at_most_8_kib),
        TEST(keys_that_are_weak_or_of_another_kind_are_refused),
        TEST(a_private_key_is_refused),
        TEST(every_failed_allocation_is_said_and_nothing_is_lost),
        TEST(one_key_serves_many_threads),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
