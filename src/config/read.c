/* A file's tree against the table: sections, settings, tokens. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/macros.h"
#include "base/text.h"
#include "config/impl.h"

enum { NAMES_MAX = 64, NAME_BYTES_MAX = 64, HINT_BYTES_MAX = 128 };

/* Known, and of a later version. */
static const char *const later[] = {"commands"};
/* Members of a token. */
static const char *const token_members[] = {"sha256", "tenant", "rights", "name"};
enum { TOKEN_SHA256, TOKEN_TENANT, TOKEN_RIGHTS, TOKEN_NAME, TOKEN_MEMBERS };

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

/* ---- names ------------------------------------------------------------------------------- */

void reader_unknown(
    struct reader *reader, const struct yaml_node *key, const char *const *names, size_t count)
{
    char typed[NAME_BYTES_MAX];
    char hint[HINT_BYTES_MAX] = "";
    (void)snprintf(typed, sizeof typed, "%.*s", SLICE_ARGS(key->text));
    const char *near = text_nearest(typed, names, count);
    if (near != NULL) {
        (void)snprintf(hint, sizeof hint, "did you mean '%s'?", near);
    }
    reader_fault(reader, key, near == NULL ? "once check --example shows every setting" : hint,
        "unknown key '%s'", typed);
}

/* The part of a path in front of its dot is this section; *ret_rest is behind it. */
static bool in_section(const char *path, struct slice section, const char **ret_rest)
{
    const char *dot = strchr(path, '.');
    size_t len = dot == NULL ? 0 : (size_t)(dot - path);
    *ret_rest = dot == NULL ? path : dot + 1;
    return slice_equal(slice_of(path, len), section);
}

/* Every name a section may hold; of the top, its sections and what is of later versions too. */
static size_t names_of(
    struct slice section, char (*ret_texts)[NAME_BYTES_MAX], const char **ret_names)
{
    size_t count = 0;
    for (const struct config_option *o = config_options; o->path != NULL; o++) {
        const char *rest = NULL;
        bool is_in = in_section(o->path, section, &rest);
        size_t len = is_in ? strlen(rest) : strcspn(o->path, ".");
        bool is_seen = count > 0 && strncmp(ret_names[count - 1], o->path, len) == 0 &&
                       ret_names[count - 1][len] == '\0';
        if ((is_in || section.len == 0) && !is_seen) {
            ASSERT(count < NAMES_MAX);
            (void)snprintf(
                ret_texts[count], NAME_BYTES_MAX, "%.*s", (int)len, is_in ? rest : o->path);
            ret_names[count] = ret_texts[count];
            count++;
        }
    }
    if (section.len == 0) {
        ret_names[count++] = "gateway";
    }
    return count;
}

static const struct config_option *find_in(struct slice section, struct slice name)
{
    for (const struct config_option *o = config_options; o->path != NULL; o++) {
        const char *rest = NULL;
        if (in_section(o->path, section, &rest) && slice_is(name, rest)) {
            return o;
        }
    }
    return NULL;
}

static bool is_section(struct slice name)
{
    for (const struct config_option *o = config_options; o->path != NULL; o++) {
        const char *rest = NULL;
        if (name.len > 0 && in_section(o->path, name, &rest)) {
            return true;
        }
    }
    return false;
}

/* ---- tokens ------------------------------------------------------------------------------ */

static void token_right(
    struct reader *reader, const struct yaml_node *node, struct config_token *token)
{
    unsigned right = node->kind == YAML_SCALAR ? config_right(node->text) : 0;
    if (right == 0 && node->kind != YAML_BAD) {
        reader_fault(reader, node, "the rights are execute, confirm, operate and audit",
            "'%.*s' is not a right", SLICE_ARGS(node->text));
    }
    token->rights |= right;
}

static void token_rights(
    struct reader *reader, const struct yaml_node *node, struct config_token *token)
{
    if (node->kind == YAML_SCALAR) {
        token_right(reader, node, token);
    } else if (node->kind == YAML_MAP || (node->kind == YAML_LIST && node->first == NULL)) {
        reader_fault(reader, node, "such as [execute, audit]",
            "rights has to be a list of at least one right");
    }
    for (const struct yaml_node *item = node->first; node->kind == YAML_LIST && item != NULL;
         item = item->next) {
        token_right(reader, item, token);
    }
}

static void token_text(
    struct reader *reader, const struct yaml_node *node, const char *name, struct slice *ret_text)
{
    if (node->kind == YAML_SCALAR && node->text.len > 0 &&
        node->text.len <= LIMIT_TENANT_BYTES_MAX) {
        *ret_text = node->text;
    } else if (node->kind != YAML_BAD) {
        reader_fault(reader, node, NULL, "%s has to be a text of 1 to %d bytes", name,
            LIMIT_TENANT_BYTES_MAX);
    }
}

static void token_digest(
    struct reader *reader, const struct yaml_node *node, struct config_token *token)
{
    static const char hint[] = "once token new makes a token and this line; once token hash hashes "
                               "one that exists";
    if (node->kind == YAML_BAD) {
        return;
    }
    if (node->kind != YAML_SCALAR || node->text.len != 2 * sizeof token->sha256.bytes ||
        !text_hex(node->text, token->sha256.bytes, sizeof token->sha256.bytes)) {
        /* It may be the token itself: never shown, and the line is not either. */
        struct config_fault fault = {
            .line = node->line, .column = node->column, .hint = hint, .is_secret = true};
        config_fault_add(reader->config, reader->faults, &fault,
            "sha256 has to be the SHA-256 of a token: 64 hex digits");
    }
}

static void token_member(struct reader *reader, const struct yaml_node *key,
    struct config_token *token, bool has[TOKEN_MEMBERS])
{
    size_t which = 0;
    while (which < TOKEN_MEMBERS && !slice_is(key->text, token_members[which])) {
        which++;
    }
    if (which == TOKEN_MEMBERS) {
        reader_unknown(reader, key, token_members, TOKEN_MEMBERS);
        return;
    }
    has[which] = true;
    switch (which) {
    case TOKEN_SHA256: token_digest(reader, key->value, token); break;
    case TOKEN_TENANT: token_text(reader, key->value, "tenant", &token->tenant); break;
    case TOKEN_RIGHTS: token_rights(reader, key->value, token); break;
    default: token_text(reader, key->value, "name", &token->name); break;
    }
}

static void read_token(
    struct reader *reader, const struct yaml_node *node, struct config_token *token)
{
    bool has[TOKEN_MEMBERS] = {0};
    if (node->kind != YAML_MAP) {
        reader_fault(reader, node, "{sha256: \"...\", tenant: acme, rights: [execute]}",
            "a token has to be a map");
        return;
    }
    for (const struct yaml_node *key = node->first; key != NULL; key = key->next) {
        if (key->kind == YAML_SCALAR) {
            token_member(reader, key, token, has);
        } else if (key->kind != YAML_BAD) {
            reader_fault(reader, key, NULL, "a key has to be a name");
        }
    }
    bool is_for_metrics = slice_is(token->tenant, "*");
    for (size_t i = 0; i < TOKEN_NAME; i++) {
        if (!has[i] && !(i == TOKEN_RIGHTS && is_for_metrics)) {
            reader_fault(reader, node, NULL, "the token has no %s", token_members[i]);
        }
    }
    if (is_for_metrics && token->rights != 0) {
        reader_fault(reader, node, "leave rights out, or name a tenant",
            "a token of tenant '*' may only read /metrics and has no rights");
    }
}

static void check_same_token(struct reader *reader, const struct yaml_node *node,
    const struct config_token *tokens, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (digest_equal(&tokens[i].sha256, &tokens[count].sha256)) {
            reader_fault(reader, node, "make one for each: once token new",
                "the same token is here twice; whose it is would be open");
            return;
        }
    }
}

static enum status read_tokens(struct reader *reader, const struct yaml_node *node)
{
    static const struct digest none;
    struct config *config = reader->config;
    config->has_auth = true;
    if (node->kind != YAML_LIST || node->first == NULL) {
        if (node->kind != YAML_BAD) {
            reader_fault(reader, node, "once token new prints one to put here",
                "auth.tokens has to be a list of at least one token");
        }
        return OK;
    }
    if (node->count > CONFIG_TOKENS_MAX) {
        reader_fault(reader, node, NULL, "more than %d tokens", CONFIG_TOKENS_MAX);
        return OK;
    }
    struct config_token *tokens =
        arena_zalloc(&config->arena, node->count * sizeof(struct config_token));
    if (tokens == NULL) {
        return E_NOMEM;
    }
    size_t count = 0;
    for (const struct yaml_node *item = node->first; item != NULL; item = item->next) {
        if (item->kind != YAML_BAD) {
            read_token(reader, item, &tokens[count]);
            if (!digest_equal(&tokens[count].sha256, &none)) {
                check_same_token(reader, item, tokens, count);
            }
            count++;
        }
    }
    config->tokens = tokens;
    config->token_count = count;
    return OK;
}

/* ---- settings ---------------------------------------------------------------------------- */

enum status reader_value(struct reader *reader, void *object, const struct config_option *option,
    const struct yaml_node *node)
{
    struct value_fault fault = {.hint = ""};
    if (node->kind == YAML_BAD) {
        return OK;
    }
    if (node->kind != YAML_SCALAR) {
        char hint[HINT_BYTES_MAX];
        (void)snprintf(hint, sizeof hint, "such as %s",
            option->fallback == NULL ? option->example : option->fallback);
        reader_fault(reader, node, hint, "%s has to be one value, not a %s", option->path,
            node->kind == YAML_LIST ? "list" : "map");
        return OK;
    }
    if (yaml_is_null(node)) {
        reader_fault(
            reader, node, "leave the line out for the default", "%s has no value", option->path);
        return OK;
    }
    struct value_target target = {.config = reader->config,
        .object = object,
        .place = {.line = node->line, .column = node->column}};
    enum status status = value_set(&target, option, node->text, &fault);
    if (status == E_INVALID) {
        reader_fault(reader, node, fault.hint[0] == '\0' ? NULL : fault.hint, "%s", fault.text);
        status = OK; /* told; the others are read too */
    }
    return status;
}

/* Remembers the place: whether an address is fit is known only at the end. */
static enum status read_address(
    struct reader *reader, const struct config_option *option, const struct yaml_node *node)
{
    struct config *config = reader->config;
    uint64_t before = config->listen_count;
    enum status status = reader_value(reader, reader->config, option, node);
    if (config->listen_count > before) {
        config->listen_at[before] = (struct config_place){node->line, node->column};
    }
    return status;
}

static enum status read_listen(
    struct reader *reader, const struct config_option *option, const struct yaml_node *node)
{
    enum status status = OK;
    reader->config->listen_count = 0;
    if (node->kind != YAML_LIST) {
        return read_address(reader, option, node);
    }
    if (node->first == NULL) {
        reader_fault(reader, node, "such as 127.0.0.1:7411", "listen is empty");
    }
    for (const struct yaml_node *item = node->first; status == OK && item != NULL;
         item = item->next) {
        status = read_address(reader, option, item);
    }
    return status;
}

static enum status read_map(
    struct reader *reader, const struct yaml_node *map, struct slice section);

/* A rule of a policy file, which is another file. */
static bool told_rule(struct reader *reader, const struct yaml_node *key)
{
    if (!policy_has(key->text)) {
        return false;
    }
    reader_fault(reader, key, "once gateway --policy FILE takes a file of such rules",
        "'%.*s' is of a policy file, not of a configuration", SLICE_ARGS(key->text));
    return true;
}

/* What the reader does not know of this version, in words. */
static bool told_later(struct reader *reader, const struct yaml_node *key)
{
    for (size_t i = 0; i < COUNT(later); i++) {
        if (slice_is(key->text, later[i])) {
            reader_fault(reader, key, "leave it out; once serve does everything else in this file",
                "'%s' is not supported by this version (once %s)", later[i], ONCE_VERSION);
            return true;
        }
    }
    return false;
}

static enum status read_section(struct reader *reader, const struct yaml_node *key)
{
    const struct yaml_node *value = key->value;
    if (value->kind == YAML_MAP) {
        return read_map(reader, value, key->text);
    }
    if (value->kind != YAML_BAD) {
        reader_fault(reader, yaml_is_null(value) ? key : value,
            "its settings follow, each on a line of its own and indented", "%.*s has to be a map",
            SLICE_ARGS(key->text));
    }
    return OK;
}

static enum status read_key(
    struct reader *reader, const struct yaml_node *key, struct slice section)
{
    char texts[NAMES_MAX][NAME_BYTES_MAX];
    const char *names[NAMES_MAX];
    const struct config_option *option = find_in(section, key->text);
    if (option != NULL && option->kind == CONFIG_TOKENS) {
        return read_tokens(reader, key->value);
    }
    if (option != NULL && option->kind == CONFIG_LISTEN) {
        return read_listen(reader, option, key->value);
    }
    if (option != NULL && option->offset == offsetof(struct config, store)) {
        /* Whether there is such a store is for those to say who know stores. */
        reader->config->store_at = (struct config_place){key->value->line, key->value->column};
    }
    if (option != NULL) {
        return reader_value(reader, reader->config, option, key->value);
    }
    if (section.len == 0 && is_section(key->text)) {
        return read_section(reader, key);
    }
    if (section.len == 0 && slice_is(key->text, "gateway")) {
        return gateway_read(reader, key, key->value);
    }
    if (section.len > 0 || !(told_later(reader, key) || told_rule(reader, key))) {
        reader_unknown(reader, key, names, names_of(section, texts, names));
    }
    return OK;
}

static enum status read_map(
    struct reader *reader, const struct yaml_node *map, struct slice section)
{
    enum status status = OK;
    for (const struct yaml_node *key = map->first; status == OK && key != NULL; key = key->next) {
        ASSERT(key->value != NULL);
        if (key->kind == YAML_SCALAR) {
            status = read_key(reader, key, section);
        } else if (key->kind != YAML_BAD) {
            reader_fault(reader, key, NULL, "a key has to be a name");
        }
    }
    return status;
}

static bool is_before(const struct config_fault *a, const struct config_fault *b)
{
    return a->line < b->line || (a->line == b->line && a->column < b->column);
}

/* Into the order of the file: what is wrong with the YAML was found before what it says. */
void faults_sort(struct config_faults *faults, size_t first)
{
    for (size_t i = first + 1; i < faults->count; i++) {
        struct config_fault moved = faults->items[i];
        size_t k = i;
        for (; k > first && is_before(&moved, &faults->items[k - 1]); k--) {
            faults->items[k] = faults->items[k - 1];
        }
        faults->items[k] = moved;
    }
}

static void hide_secrets(struct config_faults *faults)
{
    for (size_t i = 0; i < faults->count; i++) {
        for (size_t k = 0; faults->items[i].is_secret && k < faults->count; k++) {
            if (faults->items[k].line == faults->items[i].line) {
                faults->items[k].source = SLICE_EMPTY;
            }
        }
    }
}

enum status config_read(struct config *config, struct slice text, struct config_faults *faults)
{
    struct reader reader = {.config = config, .faults = faults, .text = text};
    struct yaml_node *root = NULL;
    size_t first = faults->count;
    config->source = text;
    if (text.len > CONFIG_BYTES_MAX) {
        struct config_fault fault = {.line = 1, .column = 1};
        config_fault_add(
            config, faults, &fault, "the file is larger than %d bytes", CONFIG_BYTES_MAX);
        return E_INVALID;
    }
    enum status status = yaml_load(&reader, &root);
    if (status == OK && root != NULL && root->kind == YAML_MAP) {
        status = read_map(&reader, root, SLICE_EMPTY);
    } else if (status == OK && root != NULL && root->kind != YAML_BAD && !yaml_is_null(root)) {
        reader_fault(&reader, root, "such as listen: 127.0.0.1:7411",
            "the file has to be a map of settings");
    }
    faults_sort(faults, first);
    hide_secrets(faults);
    return status == OK && faults->count > first ? E_INVALID : status;
}
