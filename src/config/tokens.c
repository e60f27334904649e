/* Reads `auth.tokens`: the rights of each token. */
#include <stddef.h>
#include <string.h>

#include "base/limits.h"
#include "base/macros.h"
#include "base/name.h"
#include "base/text.h"
#include "config/impl.h"

static const struct {
    const char *name;
    unsigned right;
} rights[] = {{"execute", CONFIG_RIGHT_EXECUTE}, {"confirm", CONFIG_RIGHT_CONFIRM},
    {"operate", CONFIG_RIGHT_OPERATE}, {"audit", CONFIG_RIGHT_AUDIT}};

unsigned config_right(struct slice name)
{
    for (size_t i = 0; i < COUNT(rights); i++) {
        if (slice_is(name, rights[i].name)) {
            return rights[i].right;
        }
    }
    return 0;
}

unsigned config_rights(struct slice text)
{
    unsigned all = 0;
    size_t at = 0;
    while (at <= text.len) {
        const char *comma = at == text.len ? NULL : memchr(text.data + at, ',', text.len - at);
        size_t end = comma == NULL ? text.len : (size_t)(comma - text.data);
        unsigned right = end == at ? 0 : config_right(slice_of(text.data + at, end - at));
        if (right == 0) {
            return 0;
        }
        all |= right;
        at = end + 1;
    }
    return all;
}

/* ---- the members of a token ---------------------------------------------------------------- */

static void take_right(
    struct config_reader *reader, const struct yaml_node *node, unsigned *rights_taken)
{
    unsigned right = node->kind == YAML_SCALAR ? config_right(node->text) : 0;
    if (right == 0 && node->kind != YAML_BAD) {
        reader_fault(reader, node, "the rights are execute, confirm, operate and audit",
            "'%.*s' is not a right", SLICE_ARGS(node->text));
    }
    *rights_taken |= right;
}

static enum status read_rights(
    struct config_reader *reader, const struct yaml_node *key, void *member)
{
    const struct yaml_node *node = key->value;
    if (node->kind == YAML_SCALAR) {
        take_right(reader, node, member);
    } else if (node->kind == YAML_MAP || (node->kind == YAML_LIST && node->first == NULL)) {
        reader_fault(reader, node, "such as [execute, audit]",
            "rights must be a list of at least one right");
    }
    for (const struct yaml_node *item = node->first; node->kind == YAML_LIST && item != NULL;
         item = item->next) {
        take_right(reader, item, member);
    }
    return OK;
}

static enum status read_text(
    struct config_reader *reader, const struct yaml_node *key, void *member)
{
    const struct yaml_node *node = key->value;
    const char *name = slice_is(key->text, "tenant") ? "tenant" : "name";
    struct err err = {0};
    if (node->kind == YAML_SCALAR && name_check(name, node->text, &err) != OK) {
        reader_fault(reader, node, NULL, "%s", err.text);
    } else if (node->kind == YAML_SCALAR && node->text.len > 0 &&
               node->text.len <= LIMIT_TENANT_BYTES_MAX) {
        *(struct slice *)member = node->text;
    } else if (node->kind != YAML_BAD) {
        reader_fault(reader, node, NULL, "%.*s must be a text of 1 to %d bytes",
            SLICE_ARGS(key->text), LIMIT_TENANT_BYTES_MAX);
    }
    return OK;
}

static enum status read_digest(
    struct config_reader *reader, const struct yaml_node *key, void *member)
{
    static const char hint[] = "once token new makes a token and this line; once token hash hashes "
                               "one that exists";
    struct digest *digest = member;
    const struct yaml_node *node = key->value;
    if (node->kind != YAML_BAD &&
        (node->kind != YAML_SCALAR || node->text.len != 2 * sizeof digest->bytes ||
            !text_hex(node->text, digest->bytes, sizeof digest->bytes))) {
        /* The text may be the token itself: neither it nor its line is ever shown. */
        struct config_fault fault = {
            .line = node->line, .column = node->column, .hint = hint, .is_secret = true};
        config_fault_add(reader->config, reader->faults, &fault,
            "sha256 must be the SHA-256 of a token: 64 hex digits");
    }
    return OK;
}

#define AT(member) .offset = offsetof(struct config_token, member)

static const struct config_option members[] = {
    ROW("sha256", OWN, AT(sha256), .read = read_digest, .is_required = true),
    ROW("tenant", OWN, AT(tenant), .read = read_text, .is_required = true),
    ROW("rights", OWN, AT(rights), .read = read_rights),
    ROW("name", OWN, AT(name), .read = read_text),
    {0},
};

/* ---- tokens -------------------------------------------------------------------------------- */

/* "*" may only read /metrics; every other token has rights. */
static void check_rights(
    struct config_reader *reader, const struct yaml_node *map, const struct config_token *token)
{
    bool is_for_metrics = slice_is(token->tenant, "*");
    if (is_for_metrics && token->rights != 0) {
        reader_fault(reader, map, "leave rights out, or name a tenant",
            "a token of tenant '*' may only read /metrics and has no rights");
    }
    bool has_rights = is_for_metrics;
    for (const struct yaml_node *key = map->first; key != NULL; key = key->next) {
        has_rights = has_rights || slice_is(key->text, "rights");
    }
    if (!has_rights) {
        reader_fault(reader, map, NULL, "the token has no rights");
    }
}

static void check_same(struct config_reader *reader, const struct yaml_node *map,
    const struct config_token *tokens, size_t count)
{
    static const struct digest zero;
    for (size_t i = 0; i < count && !digest_equal(&tokens[count].sha256, &zero); i++) {
        if (digest_equal(&tokens[i].sha256, &tokens[count].sha256)) {
            reader_fault(reader, map, "make one for each: once token new",
                "the same token is given twice, so it would have two owners");
            return;
        }
    }
}

static enum status read_token(
    struct config_reader *reader, const struct yaml_node *map, void *items, size_t index)
{
    struct config_token *tokens = items;
    struct map_scope scope = {.options = members, .prefix = "", .object = &tokens[index]};
    enum status status = map_read(reader, &scope, map);
    if (status == OK) {
        map_require(reader, members, "token", map);
        check_rights(reader, map, &tokens[index]);
        check_same(reader, map, tokens, index);
    }
    return status;
}

enum status tokens_read(struct config_reader *reader, const struct yaml_node *key, void *object)
{
    static const struct list_shape shape = {.name = "auth.tokens",
        .one = "token",
        .hint = "once token new prints one to put here",
        .example = "{sha256: \"...\", tenant: acme, rights: [execute]}",
        .item_bytes = sizeof(struct config_token),
        .count_max = CONFIG_TOKENS_MAX,
        .read = read_token};
    struct config *config = object;
    void *tokens = NULL;
    config->has_auth = true;
    enum status status = list_read(reader, &shape, key->value, &tokens, &config->token_count);
    config->tokens = tokens;
    return status;
}
