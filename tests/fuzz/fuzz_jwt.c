/*
 * fuzz_jwt: tokens of any bytes.
 *
 * The first byte says what the rest is: a token for one of three keys, a payload, or a header and a
 * payload with a line feed between them; the latter two are signed here. What is believed was
 * signed, by a signature made apart; the answer is a text or a reason.
 */
#include <stdint.h>

#include "gateway/jwt.h"
#include "jwt_make.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SECRET "a secret of the fuzzer, 32 bytes."
#define NOW_MS INT64_C(1300819379000) /* a second before the examples of RFC 7515 expire */
/* Header and payload of its appendices A.2 and A.3: nobody here can sign anything else. */
#define PAYLOAD                                                                                    \
    "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVl" \
    "fQ"
#define A2 "eyJhbGciOiJSUzI1NiJ9." PAYLOAD
#define A3 "eyJhbGciOiJFUzI1NiJ9." PAYLOAD

#define A2_PEM                                                                                     \
    "-----BEGIN PUBLIC KEY-----\n"                                                                 \
    "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAofgWCuLjybRlzo0tZWJj\n"                           \
    "NiuSfb4p4fAkd/wWJcyQoTbji9k0l8W26mPddxHmfHQp+Vaw+4qPCJrcS2mJPMEz\n"                           \
    "P1Pt0Bm4d4QlL+yRT+SFd2lZS+pCgNMsD1W/YpRPEwOWvG6b32690r2jZ47soMZo\n"                           \
    "9wGzjb/7OMg0LOL+bSf63kpaSHSXndS5z5rexMdbBYUsLA9e+KXBdQOS+UTo7WTB\n"                           \
    "EMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6/I5IhlJH7aGhyxX\n"                           \
    "FvUK+DWNmoudF8NAco9/h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXp\n"                           \
    "oQIDAQAB\n"                                                                                   \
    "-----END PUBLIC KEY-----\n"
#define A3_PEM                                                                                     \
    "-----BEGIN PUBLIC KEY-----\n"                                                                 \
    "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEf83OJ3D2xF1Bg8vub9tLe1gHMzV7\n"                           \
    "6e8Tus9uPHvRVEXH8UTNG72bfocs3+257rn0s2ldbqkLJK2KRiMohYjlrQ==\n"                               \
    "-----END PUBLIC KEY-----\n"

static const struct jwt_signer signer = {.secret = {SECRET, sizeof SECRET - 1}};

/* Made once: what is fuzzed is tokens, and checking an RSA key takes longer than a token. */
static const struct jwt_key *key_of(enum jwt_alg alg)
{
    static struct jwt_key *keys[3];
    const struct slice materials[] = {signer.secret, SLICE_LIT(A2_PEM), SLICE_LIT(A3_PEM)};
    if (keys[alg] == NULL) {
        ASSERT(jwt_key_new(&mem_libc, alg, materials[alg], &keys[alg], NULL) == OK);
    }
    return keys[alg];
}

/* What stands in front of the last dot. */
static struct slice signed_text(struct slice token)
{
    const char *dot = memrchr(token.data, '.', token.len);
    ASSERT(dot != NULL);
    return slice_of(token.data, (size_t)(dot - token.data));
}

static void check_signed(enum jwt_alg alg, struct slice token)
{
    struct slice text = signed_text(token);
    if (alg != JWT_HS256) {
        ASSERT(slice_is(text, alg == JWT_RS256 ? A2 : A3));
        return;
    }
    struct buf again;
    buf_init(&again, &mem_libc, 1 << 20);
    buf_slice(&again, text);
    jwt_put_signature(&again, &signer);
    ASSERT(slice_equal(buf_view(&again), token));
    buf_release(&again);
}

static void check(enum jwt_alg alg, struct slice token)
{
    const struct slice names[] = {SLICE_LIT("iss"), SLICE_LIT("sub"), SLICE_LIT("")};
    const struct jwt_key *key = key_of(alg);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct arena arena;
        struct err err = {.status = OK};
        struct slice value = SLICE_EMPTY;
        struct jwt_expect expect = {.now_ms = NOW_MS};
        arena_init(&arena, &mem_libc, 1 << 20);
        enum status status = jwt_claim(key, token, &expect, names[i], &arena, &value, &err);
        ASSERT(status == OK || (status == E_INVALID && err.text[0] != '\0'));
        if (status == OK) {
            ASSERT(value.len > 0 && token.len <= JWT_TOKEN_BYTES_MAX);
            check_signed(alg, token);
        }
        arena_release(&arena);
    }
}

static void check_made(struct slice header, struct slice payload)
{
    struct buf token;
    buf_init(&token, &mem_libc, 16 << 20);
    jwt_put_base64url(&token, header);
    buf_char(&token, '.');
    jwt_put_base64url(&token, payload);
    jwt_put_signature(&token, &signer);
    check(JWT_HS256, buf_view(&token));
    buf_release(&token);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > 1 << 20) {
        return 0;
    }
    struct slice rest = slice_of(data + 1, size - 1);
    const char *line = memchr(rest.data, '\n', rest.len);
    switch (data[0] % 5) {
    case 0: check(JWT_HS256, rest); break;
    case 1: check(JWT_RS256, rest); break;
    case 2: check(JWT_ES256, rest); break;
    case 3: check_made(SLICE_LIT("{\"alg\":\"HS256\"}"), rest); break;
    default:
        if (line != NULL) {
            size_t at = (size_t)(line - rest.data);
            check_made(slice_of(rest.data, at), slice_of(line + 1, rest.len - at - 1));
        }
        break;
    }
    return 0;
}
