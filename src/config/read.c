/* Checks a file's tree against a table of settings: maps, lists, values, and keys that are in no
 * row. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/macros.h"
#include "base/text.h"
#include "config/impl.h"

enum { NAMES_MAX = 64, PATH_BYTES_MAX = 96, HINT_BYTES_MAX = 128 };

/* ---- names ------------------------------------------------------------------------------- */

/* "it is one of a, b, c", or where to read more if there are many. */
static void hint_names(const char *const *names, size_t count, char ret_hint[HINT_BYTES_MAX])
{
    int used = snprintf(ret_hint, HINT_BYTES_MAX, "it is one of");
    for (size_t i = 0; i < count && used < HINT_BYTES_MAX; i++) {
        used += snprintf(
            ret_hint + used, (size_t)(HINT_BYTES_MAX - used), "%s %s", i == 0 ? "" : ",", names[i]);
    }
    if (used >= HINT_BYTES_MAX) {
        (void)snprintf(ret_hint, HINT_BYTES_MAX, "once check --example shows every setting");
    }
}

void reader_unknown(struct config_reader *reader, const struct yaml_node *key,
    const char *const *names, size_t count)
{
    char typed[PATH_BYTES_MAX];
    char hint[HINT_BYTES_MAX];
    (void)snprintf(typed, sizeof typed, "%.*s", SLICE_ARGS(key->text));
    const char *near = text_nearest(typed, names, count);
    if (near != NULL) {
        (void)snprintf(hint, sizeof hint, "did you mean '%s'?", near);
    } else {
        hint_names(names, count, hint);
    }
    reader_fault(reader, key, hint, "unknown key '%s'", typed);
}

/* The rest of a row's path in this map; NULL: the row is not in it. */
static const char *name_in(const struct map_scope *scope, const struct config_option *option)
{
    size_t len = strlen(scope->prefix);
    bool is_in = (scope->in == 0 || (option->in & scope->in) != 0) &&
                 strncmp(option->path, scope->prefix, len) == 0;
    return is_in ? option->path + len : NULL;
}

static const struct config_option *option_in(const struct map_scope *scope, struct slice name)
{
    for (const struct config_option *o = scope->options; o->path != NULL; o++) {
        const char *found = name_in(scope, o);
        if (found != NULL && slice_is(name, found)) {
            return o;
        }
    }
    return NULL;
}

/* The map of that name within this one: rows whose paths continue with it. */
static bool map_in(const struct map_scope *scope, struct slice name,
    char ret_prefix[PATH_BYTES_MAX], struct map_scope *ret_within)
{
    if (name.len >= PATH_BYTES_MAX / 2) {
        return false;
    }
    (void)snprintf(ret_prefix, PATH_BYTES_MAX, "%s%.*s.", scope->prefix, SLICE_ARGS(name));
    *ret_within = *scope;
    ret_within->prefix = ret_prefix;
    ret_within->explain = NULL;
    for (const struct config_option *o = scope->options; o->path != NULL; o++) {
        if (name_in(ret_within, o) != NULL) {
            return true;
        }
    }
    return false;
}

/* Report a key that is in no row; the known names are suggested. */
static void unknown_in(
    struct config_reader *reader, const struct map_scope *scope, const struct yaml_node *key)
{
    char texts[NAMES_MAX][PATH_BYTES_MAX];
    const char *names[NAMES_MAX];
    size_t count = 0;
    if (scope->explain != NULL && scope->explain(reader, key)) {
        return;
    }
    for (const struct config_option *o = scope->options; o->path != NULL; o++) {
        const char *rest = name_in(scope, o);
        size_t len = rest == NULL ? 0 : strcspn(rest, ".");
        bool is_seen = rest == NULL || (count > 0 && strlen(names[count - 1]) == len &&
                                           strncmp(names[count - 1], rest, len) == 0);
        if (!is_seen) {
            ASSERT(count < NAMES_MAX);
            (void)snprintf(texts[count], PATH_BYTES_MAX, "%.*s", (int)len, rest);
            names[count] = texts[count];
            count++;
        }
    }
    reader_unknown(reader, key, names, count);
}

/* ---- values ------------------------------------------------------------------------------ */

static const char *example_of(const struct config_option *option)
{
    return option->fallback == NULL ? option->example : option->fallback;
}

/* One value, or one item of a list. */
static enum status read_scalar(struct config_reader *reader, void *object,
    const struct config_option *option, const struct yaml_node *node)
{
    struct value_fault fault = {.hint = ""};
    if (node->kind == YAML_BAD) {
        return OK;
    }
    if (node->kind != YAML_SCALAR) {
        char hint[HINT_BYTES_MAX] = "";
        if (example_of(option) != NULL) {
            (void)snprintf(hint, sizeof hint, "such as %s", example_of(option));
        }
        reader_fault(reader, node, hint[0] == '\0' ? NULL : hint, "%s must be one value, not a %s",
            option->path, node->kind == YAML_LIST ? "list" : "map");
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
        status = OK; /* reported; the other items are read too */
    }
    return status;
}

static enum status read_list(struct config_reader *reader, void *object,
    const struct config_option *option, const struct yaml_node *node)
{
    bool may_be_empty = option->form != CONFIG_FORM_ADDRESS && option->form != CONFIG_FORM_URL;
    *value_count(object, option) = 0;
    if (node->kind != YAML_LIST) {
        return read_scalar(reader, object, option, node);
    }
    if (node->first == NULL && !may_be_empty) {
        reader_fault(reader, node, example_of(option), "%s is empty", option->path);
    }
    for (const struct yaml_node *item = node->first; item != NULL; item = item->next) {
        enum status status = read_scalar(reader, object, option, item);
        if (status != OK) {
            return status;
        }
    }
    return OK;
}

/* A map of statuses and classes. */
static enum status read_rules(struct config_reader *reader, void *object,
    const struct config_option *option, const struct yaml_node *key)
{
    const struct yaml_node *map = key->value;
    if (map->kind != YAML_MAP) {
        reader_fault(reader, yaml_is_null(map) ? key : map, option->example,
            "%s must be a map of statuses", option->path);
        return OK;
    }
    if (*value_count(object, option) > 0) { /* given under its former name */
        reader_fault(reader, key, "leave the old one out", "%s is set twice", option->path);
        return OK;
    }
    for (const struct yaml_node *rule = map->first; rule != NULL; rule = rule->next) {
        struct value_fault fault = {.hint = ""};
        struct value_target target = {.config = reader->config, .object = object};
        bool is_one = rule->kind == YAML_SCALAR && rule->value->kind == YAML_SCALAR;
        if (!is_one) {
            reader_fault(
                reader, rule, option->example, "%s must be a map of statuses", option->path);
        } else if (value_add_rule(&target, option, rule->text, rule->value->text, &fault) != OK) {
            reader_fault(reader, rule, fault.hint[0] == '\0' ? NULL : fault.hint, "%s", fault.text);
        }
    }
    return OK;
}

/* {header: NAME}, which means the same as "header:NAME". */
static enum status read_source(struct config_reader *reader, void *object,
    const struct config_option *option, const struct yaml_node *map)
{
    const struct yaml_node *name = map->first;
    bool is_one = map->count == 1 && name->kind == YAML_SCALAR && name->value->kind == YAML_SCALAR;
    char text[HINT_BYTES_MAX];
    if (!is_one) {
        reader_fault(reader, map, "such as {header: X-GitHub-Delivery}",
            "%s takes one of header and json", option->path);
        return OK;
    }
    int size = snprintf(
        text, sizeof text, "%.*s:%.*s", SLICE_ARGS(name->text), SLICE_ARGS(name->value->text));
    if (size < 0 || (size_t)size >= sizeof text) {
        reader_fault(reader, name->value, NULL, "%s is longer than %zu bytes", option->path,
            sizeof text - 1);
        return OK;
    }
    struct yaml_node joined = *name->value;
    joined.text = slice_str(text);
    return read_scalar(reader, object, option, &joined);
}

static enum status read_option(struct config_reader *reader, const struct map_scope *scope,
    const struct config_option *option, const struct yaml_node *key)
{
    bool is_of_route = scope->route != NULL && (option->in & CONFIG_IN_ROUTE) != 0;
    void *object = is_of_route ? scope->route : scope->object;
    const struct yaml_node *node = key->value;
    if (scope->sources != NULL) {
        scope->sources[option - scope->options] =
            (struct setting_source){.place = {node->line, node->column}, .is_set = true};
    }
    switch (option->kind) {
    case CONFIG_OWN: return option->read(reader, key, value_member(object, option));
    case CONFIG_LIST:
    case CONFIG_STATUSES: return read_list(reader, object, option, node);
    case CONFIG_RULES: return read_rules(reader, object, option, key);
    case CONFIG_TEXT:
        if (option->form == CONFIG_FORM_KEY && node->kind == YAML_MAP) {
            return read_source(reader, object, option, node);
        }
        break;
    case CONFIG_DURATION:
    case CONFIG_SIZE:
    case CONFIG_COUNT:
    case CONFIG_REAL:
    case CONFIG_BOOL:
    case CONFIG_CHOICE: break;
    }
    return read_scalar(reader, object, option, node);
}

/* ---- maps -------------------------------------------------------------------------------- */

static enum status read_key(
    struct config_reader *reader, const struct map_scope *scope, const struct yaml_node *key)
{
    char prefix[PATH_BYTES_MAX];
    struct map_scope within;
    const struct config_option *option = option_in(scope, key->text);
    if (option != NULL) {
        return read_option(reader, scope, option, key);
    }
    if (map_in(scope, key->text, prefix, &within)) {
        return map_read_value(reader, &within, key);
    }
    unknown_in(reader, scope, key);
    return OK;
}

static bool has_key(const struct yaml_node *map, const char *name)
{
    for (const struct yaml_node *key = map->first; key != NULL; key = key->next) {
        if (slice_is(key->text, name)) {
            return true;
        }
    }
    return false;
}

enum status map_read(
    struct config_reader *reader, const struct map_scope *scope, const struct yaml_node *map)
{
    for (const struct yaml_node *key = map->first; key != NULL; key = key->next) {
        ASSERT(key->value != NULL);
        enum status status = OK;
        if (key->kind == YAML_SCALAR) {
            status = read_key(reader, scope, key);
        } else if (key->kind != YAML_BAD) {
            reader_fault(reader, key, NULL, "a key must be a name");
        }
        if (status != OK) {
            return status;
        }
    }
    return OK;
}

enum status map_read_value(
    struct config_reader *reader, const struct map_scope *scope, const struct yaml_node *key)
{
    const struct yaml_node *value = key->value;
    if (value->kind == YAML_MAP) {
        return map_read(reader, scope, value);
    }
    if (value->kind != YAML_BAD) {
        reader_fault(reader, yaml_is_null(value) ? key : value,
            "its settings follow, each on its own line and indented", "%.*s must be a map",
            SLICE_ARGS(key->text));
    }
    return OK;
}

void map_require(struct config_reader *reader, const struct config_option *options,
    const char *what, const struct yaml_node *map)
{
    for (const struct config_option *o = options; o->path != NULL; o++) {
        const char *dot = strrchr(o->path, '.');
        const char *name = dot == NULL ? o->path : dot + 1;
        if (o->is_required && !has_key(map, name)) {
            char hint[HINT_BYTES_MAX];
            (void)snprintf(hint, sizeof hint, "%s: %s", name, o->example);
            reader_fault(
                reader, map, o->example == NULL ? NULL : hint, "the %s has no %s", what, name);
        }
    }
}

enum status list_read(struct config_reader *reader, const struct list_shape *shape,
    const struct yaml_node *node, void **ret_items, size_t *ret_count)
{
    if (node->kind != YAML_LIST || node->first == NULL) {
        if (node->kind != YAML_BAD) {
            reader_fault(reader, node, shape->hint, "%s must be a list of at least one %s",
                shape->name, shape->one);
        }
        return OK;
    }
    if (node->count > shape->count_max) {
        reader_fault(reader, node, NULL, "more than %zu %ss", shape->count_max, shape->one);
        return OK;
    }
    char *items = arena_zalloc(&reader->config->arena, node->count * shape->item_bytes);
    if (items == NULL) {
        return E_NOMEM;
    }
    size_t count = 0;
    for (const struct yaml_node *item = node->first; item != NULL; item = item->next) {
        if (item->kind == YAML_MAP) {
            enum status status = shape->read(reader, item, items, count++);
            if (status != OK) {
                return status;
            }
        } else if (item->kind != YAML_BAD) {
            reader_fault(reader, item, shape->example, "a %s must be a map", shape->one);
        }
    }
    *ret_items = items;
    *ret_count = count;
    return OK;
}

/* ---- the file ---------------------------------------------------------------------------- */

/* Explain a rule that belongs in a policy file. */
static bool explain_rule(struct config_reader *reader, const struct yaml_node *key)
{
    if (!policy_has(key->text)) {
        return false;
    }
    reader_fault(reader, key, "once gateway --policy FILE takes a file of such rules",
        "'%.*s' belongs in a policy file, not in a configuration", SLICE_ARGS(key->text));
    return true;
}

static bool is_before(const struct config_fault *a, const struct config_fault *b)
{
    return a->line < b->line || (a->line == b->line && a->column < b->column);
}

/* Sort faults into the order of the file: faults of the YAML were found before those of its
 * contents. */
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

enum status reader_begin(struct config_reader *reader, struct yaml_node **ret_root)
{
    reader->first = reader->faults->count;
    reader->before = reader->faults->count + reader->faults->more;
    if (reader->text.len > CONFIG_BYTES_MAX) {
        struct config_fault fault = {.line = 1, .column = 1};
        config_fault_add(reader->config, reader->faults, &fault, "the file is larger than %d bytes",
            CONFIG_BYTES_MAX);
        return E_INVALID;
    }
    return yaml_load(reader, ret_root);
}

enum status reader_end(struct config_reader *reader, enum status status)
{
    faults_sort(reader->faults, reader->first);
    hide_secrets(reader->faults);
    bool has_more = reader->faults->count + reader->faults->more > reader->before;
    return status == OK && has_more ? E_INVALID : status;
}

enum status config_read(struct config *config, struct slice text, struct config_faults *faults)
{
    struct config_reader reader = {.config = config, .faults = faults, .text = text};
    struct map_scope scope = {
        .options = config_options, .prefix = "", .object = config, .explain = explain_rule};
    struct yaml_node *root = NULL;
    config->source = text;
    enum status status = reader_begin(&reader, &root);
    if (status == OK && root != NULL && root->kind == YAML_MAP) {
        status = map_read(&reader, &scope, root);
    } else if (status == OK && root != NULL && root->kind != YAML_BAD && !yaml_is_null(root)) {
        reader_fault(
            &reader, root, "such as listen: 127.0.0.1:7411", "the file must be a map of settings");
    }
    return reader_end(&reader, status);
}
