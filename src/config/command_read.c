/* Reads the section `commands`: the registry, and its rules (IDS-2, IDS-7, IDS-13). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/name.h"
#include "canon/jsonw.h"
#include "config/impl.h"

enum { CRITICAL_TTL_MS_MIN = 24 * 3600 * 1000 }; /* IDS-7 */

/* ---- places ------------------------------------------------------------------------------ */

static bool is_given(const struct yaml_node *map, const char *name)
{
    return yaml_place_of(map, name) != map;
}

/* ---- arguments --------------------------------------------------------------------------- */

static bool is_text_type(const struct config_arg *arg)
{
    return arg->type == CONFIG_ARG_STRING;
}

static void check_arg(
    struct config_reader *reader, const struct yaml_node *map, const struct config_arg *arg)
{
    bool is_measured =
        is_text_type(arg) || arg->type == CONFIG_ARG_INTEGER || arg->type == CONFIG_ARG_NUMBER;
    if (arg->normalise_count > 0 && !is_text_type(arg)) {
        reader_fault(reader, yaml_place_of(map, "normalise"), "type: string",
            "argument '%s': only a string can be normalised", arg->name);
    }
    if ((arg->min != NULL || arg->max != NULL) && !is_measured) {
        reader_fault(reader, yaml_place_of(map, arg->min != NULL ? "min" : "max"),
            "type: integer, number or string",
            "argument '%s': min and max are for numbers and strings", arg->name);
    }
    if (arg->min != NULL && arg->max != NULL && strtod(arg->min, NULL) > strtod(arg->max, NULL)) {
        reader_fault(reader, yaml_place_of(map, "min"), "at most max",
            "argument '%s': min %s is above max %s, which no value is", arg->name, arg->min,
            arg->max);
    }
    if (arg->value_count > 0 && !is_text_type(arg)) {
        reader_fault(reader, yaml_place_of(map, "enum"), "type: string",
            "argument '%s': enum is for strings", arg->name);
    }
}

/* Letters, digits, "_" and "-": the name is a member of documents and prompts. */
static bool is_arg_name(struct slice name)
{
    bool is_good = name.len > 0 && name.len <= 64;
    for (size_t i = 0; is_good && i < name.len; i++) {
        char c = name.data[i];
        is_good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-';
    }
    return is_good;
}

static enum status read_arg(
    struct config_reader *reader, const struct yaml_node *key, struct config_arg *arg)
{
    struct map_scope scope = {.options = config_arg_options, .prefix = "", .object = arg};
    enum status status = value_defaults(&scope, reader->config);
    arg->name = status == OK ? config_text(reader->config, key->text) : NULL;
    if (status != OK || arg->name == NULL) {
        return E_NOMEM;
    }
    if (!is_arg_name(key->text)) {
        reader_fault(reader, key, "letters, digits, '_' and '-', at most 64",
            "'%.*s' is not the name of an argument", SLICE_ARGS(key->text));
        return OK;
    }
    if (key->value->kind == YAML_LIST ||
        (key->value->kind == YAML_SCALAR && !yaml_is_null(key->value))) {
        reader_fault(reader, key->value, "such as {type: string, required: true}",
            "argument '%s' must be a map", arg->name);
        return OK;
    }
    if (key->value->kind == YAML_MAP) {
        status = map_read(reader, &scope, key->value);
        check_arg(reader, key->value, arg);
    }
    return status;
}

enum status command_read_args(
    struct config_reader *reader, const struct yaml_node *key, void *member)
{
    struct config_command *command = member; /* the row has no offset: it is the whole command */
    const struct yaml_node *map = key->value;
    command->has_args = true;
    if (map->kind != YAML_MAP) {
        if (map->kind != YAML_BAD && !yaml_is_null(map)) {
            reader_fault(reader, map, "such as {amount: {type: integer, required: true}}",
                "args must be a map of arguments by name");
        }
        return OK;
    }
    if (map->count > CONFIG_ARGS_MAX) {
        reader_fault(reader, map, NULL, "more than %d arguments", CONFIG_ARGS_MAX);
        return OK;
    }
    struct config_arg *args = arena_zalloc(&reader->config->arena, (map->count + 1) * sizeof *args);
    if (args == NULL) {
        return E_NOMEM;
    }
    enum status status = OK;
    for (const struct yaml_node *arg = map->first; status == OK && arg != NULL; arg = arg->next) {
        if (arg->kind == YAML_SCALAR) {
            status = read_arg(reader, arg, &args[command->arg_count++]);
        }
    }
    command->args = args;
    return status;
}

/* ---- effects ----------------------------------------------------------------------------- */

/* What the templates of a declared effect can name (command/effects.c gives the values). */
static const char *const template_names[] = {"target", "args", "actor_id", "effective_actor_id",
    "command_id", "idempotency_key", "outcome", NULL};

enum status command_read_template(
    struct config_reader *reader, const struct yaml_node *key, void *member)
{
    return template_read(reader, key, template_names, member);
}

static enum status read_declared(struct config_reader *reader, const struct yaml_node *map,
    struct config_declared_effect *effect)
{
    struct map_scope scope = {.options = config_declared_options, .prefix = "", .object = effect};
    const struct yaml_node *place = yaml_place_of(map, "effect");
    effect->place = (struct config_place){.line = place->line, .column = place->column};
    enum status status = map_read(reader, &scope, map);
    map_require(reader, config_declared_options, "declared effect", map);
    return status;
}

/* The name of a type that the handler may return. */
static enum status read_returned(
    struct config_reader *reader, const struct yaml_node *item, struct config_command *command)
{
    const char *type = config_text(reader->config, item->text);
    struct err err = {0};
    if (type == NULL) {
        return E_NOMEM;
    }
    if (name_check("the effect's type", item->text, &err) != OK) {
        reader_fault(reader, item, "such as payment.capture", "%s", err.text);
        return OK;
    }
    command->effects[command->effect_count++] = type;
    return OK;
}

enum status command_read_effects(
    struct config_reader *reader, const struct yaml_node *key, void *member)
{
    struct config_command *command = member; /* as args */
    const struct yaml_node *list = key->value;
    bool is_one = list->kind == YAML_SCALAR && !yaml_is_null(list);
    const struct yaml_node *first = list->kind == YAML_LIST ? list->first : is_one ? list : NULL;
    size_t count = list->kind == YAML_LIST ? list->count : 1;
    if (list->kind == YAML_MAP) {
        reader_fault(reader, list, "[payment.capture], or [{effect: payment.refund, payload: …}]",
            "effects must be a list");
    }
    if (count > CONFIG_COMMAND_EFFECTS_MAX) {
        reader_fault(
            reader, list, NULL, "effects has more than %d items", CONFIG_COMMAND_EFFECTS_MAX);
        return OK;
    }
    struct config_declared_effect *declared =
        arena_zalloc(&reader->config->arena, count * sizeof *declared + 1);
    enum status status = declared == NULL ? E_NOMEM : OK;
    for (const struct yaml_node *item = first; status == OK && item != NULL; item = item->next) {
        if (item->kind == YAML_MAP) {
            status = read_declared(reader, item, &declared[command->declared_count++]);
        } else if (item->kind == YAML_SCALAR) {
            status = read_returned(reader, item, command);
        } else if (item->kind == YAML_LIST) {
            reader_fault(reader, item, "payment.capture, or {effect: payment.refund, payload: …}",
                "an item of effects must be the name of a type, or a map");
        }
    }
    command->declared = declared;
    return status;
}

bool config_command_has_effects(const struct config_command *command)
{
    return command->effect_count > 0 || command->declared_count > 0;
}

/* ---- the rules --------------------------------------------------------------------------- */

bool config_command_shield(const struct config_command *command, const char *shield)
{
    for (size_t i = 0; i < command->shield_count; i++) {
        if (strcmp(command->shields[i], shield) == 0) {
            return true;
        }
    }
    return false;
}

/* A setting of an I0 command that only commands that mutate may have. */
static const char *changes_by(const struct config_command *command)
{
    return command->mutates                          ? "mutates"
           : config_command_has_effects(command)     ? "effects"
           : command->confirm != CONFIG_CONFIRM_NONE ? "confirm"
           : command->is_critical                    ? "critical"
                                                     : NULL;
}

/* IDS-2. */
static void check_class(
    struct config_reader *reader, const struct yaml_node *map, const struct config_command *command)
{
    static const char *const names[] = {"I0", "I1", "I2", "I3"};
    const char *change = changes_by(command);
    const char *words = command->justification == NULL ? "" : command->justification;
    bool is_justified = words[strspn(words, " \t")] != '\0';
    bool is_read = command->class == CONFIG_CLASS_I0;
    if (command->class >= CONFIG_CLASS_I2 && !is_justified) {
        reader_fault(reader, yaml_place_of(map, "class"),
            "justification: \"why it cannot be I1\", or class: I1",
            "'%s' is %s without a justification", command->name, names[command->class]);
    } else if (is_read && change != NULL && !is_justified) {
        reader_fault(reader, yaml_place_of(map, "class"), "class: I1, or a justification",
            "'%s' is I0 and changes something ('%s'), without a justification", command->name,
            change);
    }
    if (command->class == CONFIG_CLASS_I2 && !is_given(map, "ttl")) {
        reader_fault(reader, yaml_place_of(map, "class"), "ttl: 1h",
            "'%s' is I2 and does not declare its window, ttl", command->name);
    }
    if (command->is_critical && command->ttl_ms < CRITICAL_TTL_MS_MIN) {
        reader_fault(reader, yaml_place_of(map, "ttl"), "ttl: 24h or more",
            "'%s' is critical and its ttl is less than 24h", command->name);
    }
}

/* IDS-13: a declared shield must really be applied. */
static void check_shields(
    struct config_reader *reader, const struct yaml_node *map, const struct config_command *command)
{
    const struct yaml_node *place = yaml_place_of(map, "shield");
    if (command->class == CONFIG_CLASS_I3 && command->shield_count == 0) {
        reader_fault(reader, yaml_place_of(map, "class"), "shield: [S3]",
            "'%s' is I3 without a shield", command->name);
    }
    if (config_command_shield(command, "S2") && !config_command_has_effects(command)) {
        reader_fault(reader, place, "effects: [payment.capture]",
            "'%s' declares S2 without effects: nothing would go through the outbox", command->name);
    }
    if (config_command_shield(command, "S3") && command->on_unknown == CONFIG_UNKNOWN_TAKEOVER) {
        reader_fault(reader, yaml_place_of(map, "on_unknown"), "on_unknown: hold",
            "'%s' declares S3, strict replay, and takeover calls its handler again", command->name);
    }
    if (config_command_shield(command, "S4") && command->on_unknown != CONFIG_UNKNOWN_RECONCILE) {
        reader_fault(reader, place, "on_unknown: reconcile",
            "'%s' declares S4 and nothing reconciles it", command->name);
    }
}

static void check_rest(
    struct config_reader *reader, const struct yaml_node *map, const struct config_command *command)
{
    bool reconciles = command->on_unknown == CONFIG_UNKNOWN_RECONCILE;
    if (reconciles && command->reconcile_get == NULL) {
        reader_fault(reader, yaml_place_of(map, "on_unknown"),
            "reconcile: {get: \"/refunds/{key}\"}", "'%s' has no reconcile.get to ask",
            command->name);
    }
    if (!reconciles && is_given(map, "reconcile")) {
        reader_fault(reader, yaml_place_of(map, "reconcile"), "on_unknown: reconcile",
            "'%s' has a reconcile that nothing uses", command->name);
    }
    if (command->class == CONFIG_CLASS_I0 && command->confirm != CONFIG_CONFIRM_NONE) {
        reader_fault(reader, yaml_place_of(map, "confirm"), "class: I1",
            "'%s' is I0, which runs every time, and cannot be confirmed", command->name);
    }
    if (command->class == CONFIG_CLASS_I0 && config_command_has_effects(command)) {
        reader_fault(reader, yaml_place_of(map, "effects"), "class: I1",
            "'%s' is I0, which runs every time, and cannot have effects", command->name);
    }
    if (command->confirm == CONFIG_CONFIRM_NONE && is_given(map, "prompt")) {
        reader_fault(reader, yaml_place_of(map, "prompt"), "confirm: confirm",
            "'%s' has a prompt but needs no confirmation", command->name);
    }
    for (size_t i = 0; i < command->executed_count; i++) {
        for (size_t k = 0; k < command->not_executed_count; k++) {
            if (command->executed[i] == command->not_executed[k]) {
                reader_fault(reader, yaml_place_of(map, "reconcile"), NULL,
                    "'%s': status %u cannot mean both executed and not_executed", command->name,
                    command->executed[i]);
            }
        }
    }
}

/* Whether the name that begins here, and ends before one of these characters, is an argument. */
static bool is_declared(const struct config_command *command, const char *name, const char *ends)
{
    size_t len = strcspn(name, ends);
    for (size_t i = 0; i < command->arg_count; i++) {
        if (strlen(command->args[i].name) == len && memcmp(command->args[i].name, name, len) == 0) {
            return true;
        }
    }
    return !command->has_args;
}

/* A place of the prompt that no argument can fill would be a question mark in every question. */
static void check_prompt(
    struct config_reader *reader, const struct yaml_node *map, const struct config_command *command)
{
    static const char mark[] = "{args.";
    const char *at = command->prompt == NULL ? NULL : strstr(command->prompt, mark);
    for (; at != NULL; at = strstr(at + 1, mark)) {
        const char *name = at + sizeof mark - 1;
        if (!is_declared(command, name, ".}")) {
            reader_fault(reader, yaml_place_of(map, "prompt"), "the name of an argument",
                "'%s' asks with '{args.%.*s}', which is not one of its arguments", command->name,
                (int)strcspn(name, ".}"), name);
        }
    }
}

/* Members that can be hidden: those that documents mask, and those that nothing shows. The others
 * name the command, or are not members of an envelope. */
static bool is_hidden(const char *pointer)
{
    static const char *const roots[] = {"/args", "/intent/target", "/trace", "/source",
        "/extensions", "/created_at", "/confirmation"};
    bool is_found = strncmp(pointer, "/x_", 3) == 0;
    for (size_t i = 0; i < COUNT(roots); i++) {
        size_t len = strlen(roots[i]);
        is_found = is_found || (strncmp(pointer, roots[i], len) == 0 &&
                                   (pointer[len] == '\0' || pointer[len] == '/'));
    }
    return is_found;
}

/* A pointer that would hide nothing is a secret that is shown. One to an argument that is not
 * declared is only a warning: an envelope with that argument is refused, so nothing is shown. */
static void check_redact(
    struct config_reader *reader, const struct yaml_node *map, const struct config_command *command)
{
    static const char args[] = "/args/";
    for (size_t i = 0; i < command->redact_count; i++) {
        const char *pointer = command->redact[i];
        bool is_arg = strncmp(pointer, args, sizeof args - 1) == 0;
        if (!is_hidden(pointer)) {
            reader_fault(reader, yaml_place_of(map, "redact"),
                "a pointer into /args, /intent/target, /trace, /source, /extensions or /x_…",
                "'%s' redacts '%s', which is always shown, or which no envelope has", command->name,
                pointer);
        } else if (is_arg && !is_declared(command, pointer + sizeof args - 1, "/")) {
            reader_warn(reader, yaml_place_of(map, "redact"), "the name of an argument",
                "'%s' redacts '%s', which is not one of its arguments", command->name, pointer);
        }
    }
}

/* ---- the section ------------------------------------------------------------------------- */

/* entity.action: one dot, so that a name stands for one pair only. */
static bool check_name(struct config_reader *reader, const struct yaml_node *key)
{
    struct slice name = key->text;
    const char *dot = name.len == 0 ? NULL : memchr(name.data, '.', name.len);
    size_t before = dot == NULL ? 0 : (size_t)(dot - name.data);
    size_t after = dot == NULL ? 0 : name.len - before - 1;
    struct err err = {0};
    if (before == 0 || after == 0 || memchr(dot + 1, '.', after) != NULL) {
        reader_fault(
            reader, key, "such as order.refund", "'%.*s' is not entity.action", SLICE_ARGS(name));
        return false;
    }
    if (name_check("the command's name", name, &err) != OK) {
        reader_fault(reader, key, NULL, "%s", err.text);
        return false;
    }
    return true;
}

static enum status read_command(
    struct config_reader *reader, const struct yaml_node *key, struct config_command *command)
{
    struct map_scope scope = {.options = config_command_options, .prefix = "", .object = command};
    enum status status = value_defaults(&scope, reader->config);
    command->name = status == OK ? config_text(reader->config, key->text) : NULL;
    if (status != OK || command->name == NULL) {
        return E_NOMEM;
    }
    command->line = key->line;
    command->column = key->column;
    status = map_read_value(reader, &scope, key);
    if (status == OK && key->value->kind == YAML_MAP) {
        map_require(reader, config_command_options, "command", key->value);
        check_class(reader, key->value, command);
        check_shields(reader, key->value, command);
        check_rest(reader, key->value, command);
        check_prompt(reader, key->value, command);
        check_redact(reader, key->value, command);
        command->mutates = command->mutates || command->class != CONFIG_CLASS_I0;
    }
    return status;
}

enum status commands_read(struct config_reader *reader, const struct yaml_node *key, void *object)
{
    struct config *config = object;
    const struct yaml_node *map = key->value;
    if (map->kind != YAML_MAP) {
        if (map->kind != YAML_BAD) {
            reader_fault(reader, yaml_is_null(map) ? key : map,
                "such as order.refund: {handler: \"http://127.0.0.1:9000/refund\"}",
                "commands must be a map of commands by name");
        }
        return OK;
    }
    struct config_command *commands =
        arena_zalloc(&config->arena, (map->count + 1) * sizeof *commands);
    if (commands == NULL) {
        return E_NOMEM;
    }
    config->commands = commands;
    config->command_count = 0;
    enum status status = OK;
    for (const struct yaml_node *one = map->first; status == OK && one != NULL; one = one->next) {
        if (one->kind == YAML_SCALAR && check_name(reader, one)) {
            status = read_command(reader, one, &commands[config->command_count++]);
        }
    }
    return status;
}

static struct config_place place_of(const struct config_command *command)
{
    return (struct config_place){.line = command->line, .column = command->column};
}

/* A declared effect while its templates are checked. */
struct declared_check {
    struct config *config;
    struct config_faults *faults;
    const struct config_command *command;
    const struct config_declared_effect *effect;
    const struct config_effect *type; /* NULL: it does not exist, or its target is checked */
};

/* Whether one pointer is the other one, or inside of it. */
static bool are_nested(struct slice a, struct slice b)
{
    struct slice short_one = a.len < b.len ? a : b;
    struct slice long_one = a.len < b.len ? b : a;
    return slice_starts(long_one, short_one) &&
           (long_one.len == short_one.len || long_one.data[short_one.len] == '/');
}

/* A value that the command redacts must be redacted in the effect too, or the effect's document
 * would show it (CM4). A target is always shown. `into`: where in the payload the value goes. */
static void check_secret(
    const struct declared_check *check, struct slice placeholder, struct slice into)
{
    static const char target[] = "target";
    char pointer[512];
    bool is_target = slice_starts(placeholder, slice_str(target));
    int len = snprintf(
        pointer, sizeof pointer, "/%s%.*s", is_target ? "intent/" : "", SLICE_ARGS(placeholder));
    bool is_hidden_there = false;
    for (size_t i = 0; check->type != NULL && i < check->type->redact_count; i++) {
        struct slice redacted = slice_str(check->type->redact[i]);
        is_hidden_there =
            is_hidden_there || (are_nested(redacted, into) && redacted.len <= into.len);
    }
    for (int i = 0; i < len && i < (int)sizeof pointer - 1; i++) {
        pointer[i] = pointer[i] == '.' ? '/' : pointer[i];
    }
    for (size_t i = 0; i < check->command->redact_count; i++) {
        struct slice hidden = slice_str(check->command->redact[i]);
        if (are_nested(slice_str(pointer), hidden) && !is_hidden_there) {
            config_fault_at(check->config, check->faults, &check->effect->place,
                "redact: the same value in the payload of that effect",
                "'%s' redacts '%s', and its effect '%s' would show it ('{%.*s}')",
                check->command->name, check->command->redact[i], check->effect->type,
                SLICE_ARGS(placeholder));
            return;
        }
    }
}

/* An argument that an envelope need not have would leave an effect that cannot be made after the
 * handler did its work. */
static void check_argument(const struct declared_check *check, struct slice placeholder)
{
    static const char mark[] = "args.";
    const struct config_command *command = check->command;
    const size_t skip = sizeof mark - 1;
    if (!command->has_args || !slice_starts(placeholder, slice_str(mark))) {
        return;
    }
    struct slice name = slice_of(placeholder.data + skip, placeholder.len - skip);
    const char *dot = memchr(name.data, '.', name.len);
    name.len = dot == NULL ? name.len : (size_t)(dot - name.data);
    for (size_t i = 0; i < command->arg_count; i++) {
        if (slice_is(name, command->args[i].name) && command->args[i].is_required) {
            return;
        }
    }
    config_fault_at(check->config, check->faults, &check->effect->place, "a required argument",
        "'%s' makes '%s' with '{args.%.*s}', which is not a required argument", command->name,
        check->effect->type, SLICE_ARGS(name));
}

/* template_read has checked that every brace has its partner. */
static void check_text(const struct declared_check *check, struct slice text, struct slice into)
{
    for (size_t i = 0; i < text.len; i++) {
        const char *end = text.data[i] == '{' ? memchr(text.data + i, '}', text.len - i) : NULL;
        if (end != NULL) {
            struct slice name = slice_of(text.data + i + 1, (size_t)(end - text.data) - i - 1);
            check_argument(check, name);
            check_secret(check, name, into);
        }
    }
}

/* Recursion is bounded by the file's depth. `into`: a pointer, whose end may be changed. */
static void check_tree(
    const struct declared_check *check, const struct json_value *tree, char *into, size_t len)
{
    enum { POINTER_BYTES_MAX = 512 };
    for (uint32_t i = 0; json_is(tree, JSON_OBJECT) && i < tree->count; i++) {
        struct slice name = json_text(&tree->members[i].name);
        size_t more = len + 1 + name.len < POINTER_BYTES_MAX ? 1 + name.len : 0;
        if (more > 0) { /* otherwise it counts as the value around it, which is stricter */
            into[len] = '/';
            memcpy(into + len + 1, name.data, name.len);
        }
        check_tree(check, &tree->members[i].value, into, len + more);
    }
    for (uint32_t i = 0; json_is(tree, JSON_ARRAY) && i < tree->count; i++) {
        check_tree(check, &tree->items[i], into, len);
    }
    if (json_is(tree, JSON_STRING)) {
        check_text(check, json_text(tree), slice_of(into, len));
    }
}

static void check_declared(struct config *config, struct config_faults *faults,
    const struct config_command *command, const struct config_declared_effect *effect)
{
    char into[512];
    struct declared_check check = {
        .config = config, .faults = faults, .command = command, .effect = effect};
    for (size_t i = 0; i < command->effect_count; i++) {
        if (strcmp(command->effects[i], effect->type) == 0) {
            config_fault_at(config, faults, &effect->place, "one of the two",
                "'%s' makes '%s' itself, and its handler may return it too", command->name,
                effect->type);
        }
    }
    if (effect->target != NULL) {
        check_tree(&check, effect->target, into, 0);
    } else {
        check_secret(&check, SLICE_LIT("target"), SLICE_EMPTY);
    }
    check.type = config_effect_find(&config->effects, slice_str(effect->type));
    if (effect->payload != NULL) {
        check_tree(&check, effect->payload, into, 0);
    }
}

/* A type must exist, and be compensable if the command relies on that. */
static void check_type(struct config *config, struct config_faults *faults,
    const struct config_command *command, const char *name, struct config_place place)
{
    const struct config_effect *type = config_effect_find(&config->effects, slice_str(name));
    bool undoes = command->on_effect_failure == CONFIG_EFFECT_FAILURE_COMPENSATE;
    if (type == NULL) {
        config_fault_at(config, faults, &place,
            "declare it under effects:", "'%s' names an effect type that does not exist: '%s'",
            command->name, name);
    } else if ((undoes || config_command_shield(command, "S4")) && type->compensate_name == NULL) {
        config_fault_at(config, faults, &place,
            "compensate: {effect: …, payload: …} of that effect",
            "'%s' %s, and its effect '%s' declares no compensation", command->name,
            undoes ? "has on_effect_failure: compensate" : "declares S4", name);
    }
}

/* Refuse types that are not declared, and a compensation that could not undo all of them. */
static void check_effects(
    struct config *config, struct config_faults *faults, const struct config_command *command)
{
    struct config_place place = place_of(command);
    bool is_s4 = config_command_shield(command, "S4");
    bool undoes = command->on_effect_failure == CONFIG_EFFECT_FAILURE_COMPENSATE;
    if (is_s4 && !config_command_has_effects(command)) { /* IDS-13 */
        config_fault_at(config, faults, &place,
            "effects: [payment.capture], a type that declares compensate",
            "'%s' declares S4 and has no effects: what happened could not be compensated",
            command->name);
    }
    if (undoes && !config_command_has_effects(command)) {
        config_fault_at(config, faults, &place, "effects: [payment.capture]",
            "'%s' has on_effect_failure: compensate and no effects: nothing could be undone",
            command->name);
    }
    for (size_t i = 0; i < command->effect_count; i++) {
        check_type(config, faults, command, command->effects[i], place);
    }
    for (size_t i = 0; i < command->declared_count; i++) {
        const struct config_declared_effect *effect = &command->declared[i];
        if (effect->type != NULL) {
            check_type(config, faults, command, effect->type, effect->place);
            check_declared(config, faults, command, effect);
        }
    }
}

void commands_check(struct config *config, struct config_faults *faults)
{
    for (size_t i = 0; i < config->command_count; i++) {
        check_effects(config, faults, &config->commands[i]);
    }
    for (size_t i = 0; i < config->command_count && !config->has_auth; i++) {
        if (config->commands[i].confirm == CONFIG_CONFIRM_STEP_UP) {
            struct config_place place = place_of(&config->commands[i]);
            config_fault_at(config, faults, &place, "auth: {tokens: […]}, or confirm: confirm",
                "confirm: step_up needs auth: without tokens everybody is the submitter");
        }
    }
}

/* ---- finding ----------------------------------------------------------------------------- */

const struct config_command *config_command_find(
    const struct config_command *commands, size_t count, struct slice entity, struct slice action)
{
    for (size_t i = 0; i < count; i++) {
        const char *name = commands[i].name;
        if (strlen(name) == entity.len + 1 + action.len && name[entity.len] == '.' &&
            memcmp(name, entity.data, entity.len) == 0 &&
            memcmp(name + entity.len + 1, action.data, action.len) == 0) {
            return &commands[i];
        }
    }
    return NULL;
}
