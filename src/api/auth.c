#include "api/auth.h"

#include "base/limits.h"
#include "base/name.h"

enum {
    /* Far longer than any token that `once token new` makes; a longer one is not even hashed. */
    TOKEN_BYTES_MAX = 4096,
    RIGHTS_ALL =
        CONFIG_RIGHT_EXECUTE | CONFIG_RIGHT_CONFIRM | CONFIG_RIGHT_OPERATE | CONFIG_RIGHT_AUDIT,
};

/* RFC 6750 section 2.1: letters, digits and -._~+/ with = at the end. It is enough to check each
 * character against the whole set: a malformed token has no known digest. */
static bool is_token(struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        bool is_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!is_word && (c == '\0' || strchr("-._~+/=", c) == NULL)) {
            return false;
        }
    }
    return text.len > 0 && text.len <= TOKEN_BYTES_MAX;
}

/* "Bearer" in any case, one space, a token. */
static bool read_bearer(struct slice value, struct slice *ret_token)
{
    const struct slice scheme = SLICE_LIT("Bearer");
    if (value.len <= scheme.len || value.data[scheme.len] != ' ' ||
        !http_same_name(slice_of(value.data, scheme.len), scheme)) {
        return false;
    }
    *ret_token = slice_of(value.data + scheme.len + 1, value.len - scheme.len - 1);
    return is_token(*ret_token);
}

/* Every token is compared, whichever matches, and the choice is made by arithmetic: the time taken
 * reveals neither which token matched nor how much of it. */
static size_t find_token(const struct api_policy *policy, const struct digest *shown)
{
    size_t found = SIZE_MAX;
    for (size_t i = 0; i < policy->token_count; i++) {
        size_t same = (size_t)0 - (size_t)digest_equal_secret(&policy->tokens[i].sha256, shown);
        found = (i & same) | (found & ~same);
    }
    return found;
}

static struct api_caller caller_of(const struct config_token *token)
{
    bool is_all = slice_is(token->tenant, "*");
    return (struct api_caller){.tenant = token->tenant,
        .actor = token->name,
        .rights = is_all ? 0 : token->rights,
        .sees_all = is_all};
}

/* A peer that may open the data directory's socket could open the store itself, so it may choose
 * its tenant. */
static enum auth_verdict check_own(const struct http_head *head, struct api_caller *ret_caller)
{
    struct slice tenant = SLICE_LIT("default");
    bool is_single = http_find_single(head, SLICE_LIT("Once-Tenant"), &tenant);
    if (!is_single || tenant.len == 0 || tenant.len > LIMIT_TENANT_BYTES_MAX ||
        !name_valid(tenant)) {
        return AUTH_WRONG;
    }
    *ret_caller = (struct api_caller){
        .tenant = tenant, .actor = SLICE_LIT("operator"), .rights = RIGHTS_ALL, .sees_all = true};
    return AUTH_OK;
}

static enum auth_verdict check_token(
    const struct api_policy *policy, const struct http_head *head, struct api_caller *ret_caller)
{
    struct slice value = SLICE_EMPTY, token;
    if (http_find(head, SLICE_LIT("Authorization"), 0) == head->field_count) {
        return AUTH_MISSING;
    }
    if (!http_find_single(head, SLICE_LIT("Authorization"), &value) ||
        !read_bearer(value, &token)) {
        return AUTH_WRONG;
    }
    struct digest shown;
    digest_sha256(token.data, token.len, &shown);
    size_t found = find_token(policy, &shown);
    if (found == SIZE_MAX) {
        return AUTH_WRONG;
    }
    *ret_caller = caller_of(&policy->tokens[found]);
    ret_caller->token = token;
    return AUTH_OK;
}

enum auth_verdict auth_check(const struct api_policy *policy, const struct http_head *head,
    bool is_own, struct api_caller *ret_caller)
{
    if (is_own) {
        return check_own(head, ret_caller);
    }
    if (policy->needs_token) {
        return check_token(policy, head, ret_caller);
    }
    *ret_caller =
        (struct api_caller){.tenant = SLICE_LIT("default"), .rights = RIGHTS_ALL, .sees_all = true};
    return AUTH_OK;
}
