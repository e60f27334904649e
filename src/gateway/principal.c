#include "gateway/principal.h"

#include "base/buf.h"
#include "base/check.h"
#include "base/limits.h"
#include "base/macros.h"
#include "base/name.h"
#include "base/secret.h"
#include "canon/digest.h"
#include "gateway/jwt.h"

struct principals {
    const struct mem *mem;
    size_t count;           /* routes, and one for requests that no route matches */
    struct jwt_key *keys[]; /* of the route with that number; NULL: it needs no key */
};

/* ---- keys ---------------------------------------------------------------------------------- */

static enum status read_key(
    const struct mem *mem, const struct config_jwt *jwt, struct jwt_key **ret_key, struct err *err)
{
    static const enum jwt_alg algs[] = {[CONFIG_JWT_HS256] = JWT_HS256,
        [CONFIG_JWT_RS256] = JWT_RS256,
        [CONFIG_JWT_ES256] = JWT_ES256};
    struct buf file;
    buf_init(&file, mem, JWT_KEY_BYTES_MAX);
    enum status status = secret_read("key file", jwt->key_file, &file, err);
    if (status == OK) {
        struct slice material = buf_view(&file);
        material = jwt->alg == CONFIG_JWT_HS256 ? secret_line(material) : material;
        status = jwt_key_new(mem, algs[jwt->alg], material, ret_key, err);
        if (status != OK) {
            err_prefix(err, "key file '%s'", jwt->key_file);
        }
    }
    secret_release(&file);
    return status;
}

static const struct config_route *route_at(const struct config_gateway *gateway, size_t number)
{
    return number < gateway->route_count ? &gateway->routes[number] : gateway->otherwise;
}

enum status principals_new(const struct mem *mem, const struct config_gateway *gateway,
    struct principals **ret_principals, struct err *err)
{
    size_t count = gateway->route_count + 1;
    struct principals *principals =
        mem_zalloc(mem, 1, sizeof *principals + count * sizeof principals->keys[0]);
    if (principals == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    principals->mem = mem;
    principals->count = count;
    enum status status = OK;
    for (size_t i = 0; status == OK && i < count; i++) {
        const struct config_route *route = route_at(gateway, i);
        if (route != NULL && route->principal == CONFIG_PRINCIPAL_JWT) {
            status = read_key(mem, &route->jwt, &principals->keys[i], err);
        }
    }
    if (status != OK) {
        principals_free(principals);
        return status;
    }
    *ret_principals = principals;
    return OK;
}

void principals_free(struct principals *principals)
{
    if (principals == NULL) {
        return;
    }
    for (size_t i = 0; i < principals->count; i++) {
        if (principals->keys[i] != NULL) {
            jwt_key_free(principals->keys[i]);
        }
    }
    mem_free(principals->mem, principals);
}

/* ---- the principal ------------------------------------------------------------------------- */

static enum status no_memory(struct err *err)
{
    return err_set(err, E_NOMEM, "out of memory");
}

/* Join prefix and value, in the arena. */
static enum status join(const char *prefix, struct slice value, struct arena *arena,
    struct slice *ret_text, struct err *err)
{
    size_t len = strlen(prefix);
    char *text = arena_alloc(arena, len + value.len);
    if (text == NULL) {
        return no_memory(err);
    }
    memcpy(text, prefix, len);
    memcpy(text + len, value.data, value.len);
    *ret_text = slice_of(text, len + value.len);
    return OK;
}

static enum status join_hashed(const char *prefix, struct slice value, struct arena *arena,
    struct slice *ret_text, struct err *err)
{
    struct digest digest;
    char hex[DIGEST_HEX_BYTES];
    digest_sha256(value.data == NULL ? "" : value.data, value.len, &digest);
    return join(prefix, slice_str(digest_put_hex(hex, &digest)), arena, ret_text, err);
}

/* The two prefixes differ before the colon, so that no value can equal the digest of a different
 * one. */
static enum status join_shown(const char *prefix, const char *prefix_hashed, struct slice value,
    struct arena *arena, struct slice *ret_text, struct err *err)
{
    ASSERT(value.len > 0); /* P9 */
    bool fits = value.len <= LIMIT_PRINCIPAL_BYTES_MAX - strlen(prefix);
    return fits && name_valid(value) ? join(prefix, value, arena, ret_text, err)
                                     : join_hashed(prefix_hashed, value, arena, ret_text, err);
}

static bool has_field(const struct http_head *head, const char *name)
{
    return http_find(head, slice_str(name), 0) < head->field_count;
}

/* The digest of a field, if it is present. */
static enum status of_secret(const char *name, const char *prefix, const struct http_head *head,
    struct arena *arena, struct slice *ret_principal, struct err *err)
{
    struct slice value = SLICE_EMPTY;
    if (!http_find_single(head, slice_str(name), &value)) {
        return err_set(err, E_INVALID, "there is more than one %s field", name);
    }
    return join_hashed(prefix, value, arena, ret_principal, err);
}

/* The name of the field with the API key; NULL: absent. */
static const char *key_field(const struct http_head *head)
{
    return has_field(head, "X-Api-Key") ? "X-Api-Key"
           : has_field(head, "Api-Key") ? "Api-Key"
                                        : NULL;
}

static enum status of_credentials(bool with_key, const struct http_head *head, struct arena *arena,
    struct slice *ret_principal, struct err *err)
{
    const char *key = with_key ? key_field(head) : NULL;
    if (has_field(head, "Authorization")) {
        return of_secret("Authorization", "auth:", head, arena, ret_principal, err);
    }
    if (key != NULL) {
        return of_secret(key, "api-key:", head, arena, ret_principal, err);
    }
    *ret_principal = SLICE_LIT("anonymous");
    return OK;
}

enum status principal_auto(
    const struct http_head *head, struct arena *arena, struct slice *ret_principal, struct err *err)
{
    return of_credentials(true, head, arena, ret_principal, err);
}

static enum status of_header(const struct config_route *route, const struct http_head *head,
    struct arena *arena, struct slice *ret_principal, struct err *err)
{
    struct slice value = SLICE_EMPTY;
    if (!http_find_single(head, slice_str(route->principal_name), &value)) {
        return err_set(err, E_INVALID, "there is more than one %s field", route->principal_name);
    }
    if (value.len == 0) {
        return err_set(err, E_INVALID, "the %s field is missing or empty", route->principal_name);
    }
    return join_shown("header:", "header-sha256:", value, arena, ret_principal, err);
}

/* RFC 6750 section 2.1: "Bearer" in any case, spaces, the token. */
static enum status bearer_of(const struct http_head *head, struct slice *ret_token, struct err *err)
{
    const struct slice scheme = SLICE_LIT("Bearer ");
    struct slice value = SLICE_EMPTY;
    if (!http_find_single(head, SLICE_LIT("authorization"), &value)) {
        return err_set(err, E_INVALID, "there is more than one Authorization field");
    }
    if (value.len <= scheme.len || !http_same_name(slice_of(value.data, scheme.len), scheme)) {
        return err_set(err, E_INVALID, "the Authorization field has no bearer token");
    }
    *ret_token = slice_of(value.data + scheme.len, value.len - scheme.len);
    while (ret_token->len > 0 && ret_token->data[0] == ' ') {
        *ret_token = slice_of(ret_token->data + 1, ret_token->len - 1);
    }
    return OK;
}

static enum status of_jwt(const struct jwt_key *key, const struct config_route *route,
    const struct http_head *head, int64_t now_ms, struct arena *arena, struct slice *ret_principal,
    struct err *err)
{
    ASSERT(key != NULL);
    struct slice token, value = SLICE_EMPTY;
    struct jwt_expect expect = {.issuer = slice_str(route->jwt.issuer),
        .audience = slice_str(route->jwt.audience),
        .now_ms = now_ms};
    enum status status = bearer_of(head, &token, err);
    if (status == OK) {
        status =
            jwt_claim(key, token, &expect, slice_str(route->principal_name), arena, &value, err);
    }
    if (status == OK && value.len == 0) {
        status = err_set(err, E_INVALID, "the claim '%s' is empty", route->principal_name);
    }
    return status == OK ? join_shown("jwt:", "jwt-sha256:", value, arena, ret_principal, err)
                        : status;
}

/* The key of one of the gateway's routes. */
static const struct jwt_key *key_of(const struct principals *principals,
    const struct config_gateway *gateway, const struct config_route *route)
{
    size_t number =
        route == gateway->otherwise ? gateway->route_count : (size_t)(route - gateway->routes);
    ASSERT(number < principals->count);
    return principals->keys[number];
}

enum status principal_of(const struct principals *principals, const struct config_gateway *gateway,
    const struct config_route *route, const struct http_head *head, int64_t now_ms,
    struct arena *arena, struct slice *ret_principal, struct err *err)
{
    switch (route->principal) {
    case CONFIG_PRINCIPAL_AUTO: return of_credentials(true, head, arena, ret_principal, err);
    case CONFIG_PRINCIPAL_AUTHORIZATION:
        return of_credentials(false, head, arena, ret_principal, err);
    case CONFIG_PRINCIPAL_HEADER: return of_header(route, head, arena, ret_principal, err);
    case CONFIG_PRINCIPAL_JWT:
        return of_jwt(
            key_of(principals, gateway, route), route, head, now_ms, arena, ret_principal, err);
    case CONFIG_PRINCIPAL_NONE: *ret_principal = SLICE_EMPTY; return OK;
    }
    return err_set(err, E_INVALID, "the route has no rule for principals");
}

/* ---- doubts -------------------------------------------------------------------------------- */

/* Three parts, the first of which is the beginning of a JSON object in base64url (RFC 7519 section
 * 3). */
static bool is_jwt(struct slice token)
{
    size_t dots = 0;
    for (size_t i = 0; i < token.len; i++) {
        dots += token.data[i] == '.';
    }
    return dots == 2 && slice_starts(token, SLICE_LIT("eyJ"));
}

/* Schemes that sign each request, so that every value is different. */
static bool is_signature(struct slice value)
{
    static const char *const schemes[] = {
        "AWS4-HMAC-SHA256 ", "Digest ", "Hawk ", "HMAC ", "OAuth ", "Signature "};
    for (size_t i = 0; i < COUNT(schemes); i++) {
        struct slice scheme = slice_str(schemes[i]);
        if (value.len > scheme.len && http_same_name(slice_of(value.data, scheme.len), scheme)) {
            return true;
        }
    }
    return false;
}

enum principal_doubt principal_doubt(const struct config_route *route, const struct http_head *head)
{
    struct slice value = SLICE_EMPTY;
    struct slice token = SLICE_EMPTY;
    if (route->principal != CONFIG_PRINCIPAL_AUTO) {
        return PRINCIPAL_SURE;
    }
    if (has_field(head, "Authorization")) {
        bool changes =
            (bearer_of(head, &token, NULL) == OK && is_jwt(token)) ||
            (http_find_single(head, SLICE_LIT("Authorization"), &value) && is_signature(value));
        return changes ? PRINCIPAL_CHANGES : PRINCIPAL_SURE;
    }
    return key_field(head) != NULL     ? PRINCIPAL_SURE
           : has_field(head, "Cookie") ? PRINCIPAL_COOKIES
                                       : PRINCIPAL_NOTHING;
}

static const struct {
    const char *text;
    const char *hint;
} doubts[PRINCIPAL_DOUBTS] = {
    [PRINCIPAL_SURE] = {"", ""},
    [PRINCIPAL_CHANGES] = {"the Authorization field is a JWT or a signature: when it changes, the "
                           "client's key is a new one, and a retry runs again",
        "principal: jwt:sub, or header:NAME of a field that stays the same"},
    [PRINCIPAL_COOKIES] = {"requests have cookies and neither Authorization nor an API key: all of "
                           "them are one principal, and one client may get the answer of another",
        "principal: header:NAME of a field that names the client, or none if one client is meant"},
    [PRINCIPAL_NOTHING] = {"requests have neither Authorization nor an API key: all of them are "
                           "one principal, and one client may get the answer of another",
        "principal: header:NAME of a field that names the client, or none if one client is meant"},
};

const char *principal_doubt_text(enum principal_doubt doubt)
{
    return doubts[doubt].text;
}

const char *principal_doubt_hint(enum principal_doubt doubt)
{
    return doubts[doubt].hint;
}
