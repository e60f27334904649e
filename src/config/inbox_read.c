/* Reads the section `inbox`: its sources and queues, and checks that each is consistent. */
#include <string.h>

#include "base/macros.h"
#include "canon/json.h"
#include "config/impl.h"

/* ---- secrets ----------------------------------------------------------------------------- */

/* {file: PATH} or {env: NAME}. A text would put a secret into the file, which may be shown. */
static void read_secret(struct config_reader *reader, const struct yaml_node *node,
    struct config_source_secret *ret_secret)
{
    const struct yaml_node *key = node->kind == YAML_MAP && node->count == 1 ? node->first : NULL;
    bool is_file = key != NULL && slice_is(key->text, "file");
    bool is_env = key != NULL && slice_is(key->text, "env");
    if (node->kind == YAML_BAD) {
        return;
    }
    if ((!is_file && !is_env) || key->value->kind != YAML_SCALAR || key->value->text.len == 0) {
        struct config_fault fault = {.line = node->line,
            .column = node->column,
            .hint = "such as {file: /run/secrets/whsec} or {env: WHSEC}",
            .is_secret = true};
        config_fault_add(reader->config, reader->faults, &fault,
            "a secret is named by its file or its variable, and never written here");
        return;
    }
    *ret_secret = (struct config_source_secret){.file = is_file ? key->value->text.data : NULL,
        .env = is_env ? key->value->text.data : NULL,
        .line = node->line,
        .column = node->column};
}

enum status source_read_secrets(
    struct config_reader *reader, const struct yaml_node *key, void *member)
{
    struct config_source *source = member; /* the row has no offset: it is the whole source */
    const struct yaml_node *list = key->value;
    if (list->kind != YAML_LIST || list->count > CONFIG_SOURCE_SECRETS_MAX) {
        if (list->kind != YAML_BAD) {
            struct config_fault fault = {.line = list->line,
                .column = list->column,
                .hint = "such as [{file: /run/secrets/whsec}, {env: OLD_WHSEC}]",
                .is_secret = true};
            config_fault_add(reader->config, reader->faults, &fault,
                "secrets must be a list of at most %d", CONFIG_SOURCE_SECRETS_MAX);
        }
        return OK;
    }
    for (const struct yaml_node *item = list->first; item != NULL; item = item->next) {
        read_secret(reader, item, &source->secrets[source->secret_count++]);
    }
    return OK;
}

enum status source_read_token(
    struct config_reader *reader, const struct yaml_node *key, void *member)
{
    struct config_source *source = member;
    if (key->value->kind == YAML_SCALAR && key->value->text.len > 0) {
        source->verify_token =
            (struct config_source_secret){.text = key->value->text.data, .line = key->value->line};
        return OK;
    }
    read_secret(reader, key->value, &source->verify_token);
    return OK;
}

/* ---- commands ---------------------------------------------------------------------------- */

static bool is_member(struct slice name)
{
    static const char *const members[] = {
        "actor_id", "effective_actor_id", "target", "args", "idempotency_key", "extensions"};
    bool is_it = name.len > 2 && memcmp(name.data, "x_", 2) == 0;
    for (size_t i = 0; i < COUNT(members); i++) {
        is_it = is_it || slice_is(name, members[i]);
    }
    return is_it;
}

enum status source_read_envelope(
    struct config_reader *reader, const struct yaml_node *key, void *member)
{
    static const char *const names[] = {
        "event", "data", "event_id", "delivery_id", "key", "source", "tenant", NULL};
    const struct yaml_node *map = key->value;
    static const char *const needed[] = {"actor_id", "target"};
    if (map->kind != YAML_MAP) {
        if (map->kind != YAML_BAD) {
            reader_fault(reader, yaml_is_null(map) ? key : map,
                "such as {actor_id: \"{data.from}\", target: {order: \"{data.order}\"}}",
                "envelope must be a map");
        }
        return OK;
    }
    for (const struct yaml_node *one = map->first; one != NULL; one = one->next) {
        if (!is_member(one->text)) {
            reader_fault(reader, one,
                "actor_id, effective_actor_id, target, args, idempotency_key, extensions and x_*",
                "envelope: '%.*s' is not a member that a source can set", SLICE_ARGS(one->text));
        }
    }
    for (size_t i = 0; i < COUNT(needed); i++) {
        if (yaml_place_of(map, needed[i]) == map) {
            reader_fault(reader, map,
                "actor_id: \"{data.from}\", target: {order: \"{data.order}\"}",
                "envelope has no %s", needed[i]);
        }
    }
    return template_read(reader, key, names, member);
}

/* An event goes to a handler, or becomes a command. */
static void check_command(struct config_reader *reader, const struct yaml_node *map,
    const char *what, struct config_source *source)
{
    static const char *const of_handlers[] = {"mode", "on_unknown", "reconcile", "ca_file"};
    bool has_command = yaml_place_of(map, "command") != map;
    bool has_envelope = yaml_place_of(map, "envelope") != map;
    if (!has_command && yaml_place_of(map, "handler") == map) {
        reader_fault(reader, map, "handler: http://127.0.0.1:9000/events",
            "%s '%s' has no handler and no command", what, source->name);
    }
    if (has_command != has_envelope) {
        reader_fault(reader, yaml_place_of(map, has_command ? "command" : "envelope"),
            "command: order.paid, and envelope: {actor_id: …, target: …}",
            "%s '%s': command and envelope go together", what, source->name);
    }
    if (!has_command) {
        return;
    }
    if (yaml_place_of(map, "handler") != map) {
        reader_fault(reader, yaml_place_of(map, "handler"), NULL,
            "%s '%s' has a command: its handler is the registry's", what, source->name);
    }
    for (size_t i = 0; i < COUNT(of_handlers); i++) {
        if (yaml_place_of(map, of_handlers[i]) != map) {
            reader_fault(reader, yaml_place_of(map, of_handlers[i]), "leave it out",
                "%s '%s': %s is about a handler, and the command has its own", what, source->name,
                of_handlers[i]);
        }
    }
    /* Nothing outside happens before the commit that has the command too. */
    source->on_unknown = CONFIG_DELIVERY_REDELIVER;
}

/* ---- one source -------------------------------------------------------------------------- */

static bool is_signed(const struct config_source *source)
{
    return source->preset < CONFIG_PRESET_CLOUDEVENTS;
}

static void check_secrets(
    struct config_reader *reader, const struct yaml_node *map, const struct config_source *source)
{
    if (is_signed(source) && source->secret_count == 0 && yaml_place_of(map, "secrets") == map) {
        reader_fault(reader, map, "secrets: [{file: /run/secrets/whsec}]",
            "source '%s' has no secrets, and its sender signs", source->name);
    }
    bool has_token = yaml_place_of(map, "verify_token") != map;
    if (has_token && source->preset != CONFIG_PRESET_META) {
        reader_fault(reader, yaml_place_of(map, "verify_token"), "preset: meta",
            "source '%s' has a verify_token that nothing uses", source->name);
    }
    if (yaml_place_of(map, "signature") != map && source->preset != CONFIG_PRESET_HMAC) {
        reader_fault(reader, yaml_place_of(map, "signature"), "preset: hmac",
            "source '%s' has a signature that its preset knows already", source->name);
    }
}

static void check_together(
    struct config_reader *reader, const struct yaml_node *map, const struct config_source *source)
{
    if (source->preset == CONFIG_PRESET_EFFECT && source->command != NULL) {
        reader_fault(reader, yaml_place_of(map, "command"),
            "handler: http://127.0.0.1:9000/effects",
            "source '%s': the sender of an effect waits for its acknowledgement, which a command "
            "has not yet",
            source->name);
    }
    if ((source->order_source_id == NULL) != (source->order_version == NULL)) {
        reader_fault(reader, yaml_place_of(map, "order"),
            "order: {source_id: /data/object/id, version: /created}",
            "source '%s': order needs source_id and version", source->name);
    }
    if (source->key_header != NULL && source->key_json != NULL) {
        reader_fault(reader, yaml_place_of(map, "key"), NULL,
            "source '%s': key is a header or a member of the body, not both", source->name);
    }
    if (source->preset == CONFIG_PRESET_EFFECT && source->mode == CONFIG_MODE_ASYNC) {
        reader_fault(reader, yaml_place_of(map, "mode"), "mode: sync",
            "source '%s': the sender of an effect waits for its acknowledgement", source->name);
    }
    bool reconciles = source->on_unknown == CONFIG_DELIVERY_RECONCILE;
    if (reconciles && source->reconcile_get == NULL) {
        reader_fault(reader, yaml_place_of(map, "on_unknown"),
            "reconcile: {get: \"/by-key/{key}\"}", "source '%s' has no reconcile.get to ask",
            source->name);
    }
    if (!reconciles && yaml_place_of(map, "reconcile") != map) {
        reader_fault(reader, yaml_place_of(map, "reconcile"), "on_unknown: reconcile",
            "source '%s' has a reconcile that nothing uses", source->name);
    }
}

/* The name is part of a path, and of the keys of records. */
static bool is_name(struct slice name)
{
    for (size_t i = 0; i < name.len; i++) {
        char c = name.data[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                (i > 0 && (c == '-' || c == '_' || c == '.')))) {
            return false;
        }
    }
    return name.len > 0 && name.len <= 64;
}

static enum status read_entry(struct config_reader *reader, const struct yaml_node *key,
    unsigned in, struct config_source *source)
{
    struct map_scope scope = {
        .options = config_source_options, .prefix = "", .in = in, .object = source};
    enum status status = value_defaults(&scope, reader->config);
    source->name = status == OK ? config_text(reader->config, key->text) : NULL;
    if (status != OK || source->name == NULL) {
        return E_NOMEM;
    }
    source->line = key->line;
    return map_read_value(reader, &scope, key);
}

static enum status read_source(
    struct config_reader *reader, const struct yaml_node *key, struct config_source *source)
{
    enum status status = read_entry(reader, key, CONFIG_IN_ENTRY, source);
    if (status == OK && key->value->kind == YAML_MAP) {
        map_require(reader, config_source_options, "source", key->value);
        check_secrets(reader, key->value, source);
        check_together(reader, key->value, source);
        check_command(reader, key->value, "source", source);
    }
    if (source->mode == CONFIG_MODE_AUTO) {
        source->mode =
            source->preset == CONFIG_PRESET_EFFECT ? CONFIG_MODE_SYNC : CONFIG_MODE_ASYNC;
    }
    return status;
}

/* ---- one queue --------------------------------------------------------------------------- */

static void check_queue(
    struct config_reader *reader, const struct yaml_node *map, const struct config_source *queue)
{
    bool has_key = queue->key_header != NULL || queue->key_json != NULL;
    if (queue->from == NULL && yaml_place_of(map, "from") == map) {
        reader_fault(reader, map, "from: redis://127.0.0.1:6379/orders?group=once",
            "queue '%s' has no from", queue->name);
    }
    if (queue->format == CONFIG_FORMAT_RAW && !has_key && yaml_place_of(map, "key") == map) {
        reader_fault(reader, yaml_place_of(map, "format"), "key: {header: order-id}",
            "queue '%s': nothing names a raw message without a key", queue->name);
    }
    if (queue->format == CONFIG_FORMAT_CLOUDEVENTS && has_key) {
        reader_fault(reader, yaml_place_of(map, "key"), "format: raw",
            "queue '%s' has a key, and a CloudEvent names itself", queue->name);
    }
}

static enum status read_queue(
    struct config_reader *reader, const struct yaml_node *key, struct config_source *queue)
{
    enum status status = read_entry(reader, key, CONFIG_IN_QUEUE, queue);
    if (status == OK && key->value->kind == YAML_MAP) {
        check_queue(reader, key->value, queue);
        check_together(reader, key->value, queue);
        check_command(reader, key->value, "queue", queue);
    }
    queue->mode = CONFIG_MODE_ASYNC;
    queue->preset =
        queue->format == CONFIG_FORMAT_RAW ? CONFIG_PRESET_NONE : CONFIG_PRESET_CLOUDEVENTS;
    queue->from = queue->from == NULL ? "" : queue->from; /* which distinguishes it from a source */
    return status;
}

/* ---- the section ------------------------------------------------------------------------- */

/* Entries by name: sources, or queues. */
struct inbox_entries {
    const char *what;
    const char *hint;
    size_t count_max;
    enum status (*read)(
        struct config_reader *reader, const struct yaml_node *key, struct config_source *source);
};

static enum status read_entries(struct config_reader *reader, const struct yaml_node *key,
    const struct inbox_entries *of, const struct config_source **ret_items, size_t *ret_count)
{
    const struct yaml_node *map = key->value;
    if (map->kind != YAML_MAP || map->count > of->count_max) {
        if (map->kind != YAML_BAD) {
            reader_fault(reader, yaml_is_null(map) ? key : map, of->hint,
                "inbox.%ss must be a map of at most %zu %ss by name", of->what, of->count_max,
                of->what);
        }
        return OK;
    }
    struct config_source *items =
        arena_zalloc(&reader->config->arena, (map->count + 1) * sizeof *items);
    if (items == NULL) {
        return E_NOMEM;
    }
    size_t count = 0;
    enum status status = OK;
    for (const struct yaml_node *one = map->first; status == OK && one != NULL; one = one->next) {
        if (one->kind != YAML_SCALAR) {
            continue;
        }
        if (!is_name(one->text)) {
            reader_fault(reader, one, "letters, digits, '-', '_' and '.', at most 64",
                "'%.*s' is not the name of a %s: it is a part of paths and keys",
                SLICE_ARGS(one->text), of->what);
            continue;
        }
        status = of->read(reader, one, &items[count++]);
    }
    *ret_items = items;
    *ret_count = count;
    return status;
}

enum status inbox_read_sources(
    struct config_reader *reader, const struct yaml_node *key, void *object)
{
    static const struct inbox_entries of = {
        "source", "such as shop-payments: {preset: stripe, …}", CONFIG_SOURCES_MAX, read_source};
    struct config_inbox *inbox = &((struct config *)object)->inbox;
    return read_entries(reader, key, &of, &inbox->sources, &inbox->source_count);
}

enum status inbox_read_queues(
    struct config_reader *reader, const struct yaml_node *key, void *object)
{
    static const struct inbox_entries of = {
        "queue", "such as orders: {from: redis://…, …}", CONFIG_QUEUES_MAX, read_queue};
    struct config_inbox *inbox = &((struct config *)object)->inbox;
    return read_entries(reader, key, &of, &inbox->queues, &inbox->queue_count);
}

const struct config_source *config_source_find(const struct config_inbox *inbox, struct slice name)
{
    for (size_t i = 0; i < inbox->source_count; i++) {
        if (slice_is(name, inbox->sources[i].name)) {
            return &inbox->sources[i];
        }
    }
    return NULL;
}

/* A command that an event submits must be there, and must not ask for a confirmation. */
static void check_registry(
    struct config *config, struct config_faults *faults, const struct config_source *source)
{
    struct slice name = slice_str(source->command);
    const char *dot = name.len == 0 ? NULL : memchr(name.data, '.', name.len);
    size_t len = dot == NULL ? name.len : (size_t)(dot - name.data);
    const struct config_command *command =
        dot == NULL ? NULL
                    : config_command_find(config->commands, config->command_count,
                          slice_of(name.data, len), slice_of(dot + 1, name.len - len - 1));
    struct config_fault fault = {.line = source->command_at.line,
        .column = source->command_at.column,
        .hint = command == NULL ? "declare it under commands:" : "confirm: none"};
    if (source->command == NULL) {
        return;
    }
    if (command == NULL) {
        config_fault_add(config, faults, &fault, "'%s' submits a command that does not exist: '%s'",
            source->name, source->command);
    } else if (command->confirm != CONFIG_CONFIRM_NONE) {
        config_fault_add(config, faults, &fault,
            "'%s' submits '%s', which asks for a confirmation: nobody would get its token",
            source->name, source->command);
    }
}

/* A source that anybody may send to must not be reachable from other machines. Deliveries are named
 * by their source or queue, so no two may share a name. */
void inbox_check(struct config *config, struct config_faults *faults)
{
    for (size_t i = 0; i < config->inbox.source_count; i++) {
        check_registry(config, faults, &config->inbox.sources[i]);
    }
    for (size_t i = 0; i < config->inbox.queue_count; i++) {
        const struct config_source *queue = &config->inbox.queues[i];
        check_registry(config, faults, queue);
        if (config_source_find(&config->inbox, slice_str(queue->name)) != NULL) {
            struct config_fault fault = {.line = queue->line, .column = 1};
            config_fault_add(config, faults, &fault,
                "queue '%s' has the name of a source of the inbox", queue->name);
        }
    }
    for (size_t i = 0; config_is_public(config) && i < config->inbox.source_count; i++) {
        const struct config_source *source = &config->inbox.sources[i];
        if (!is_signed(source) && source->secret_count == 0) {
            struct config_fault fault = {.line = source->line,
                .column = 1,
                .hint = "secrets: [{file: /run/secrets/token}], or listen on 127.0.0.1"};
            config_fault_add(config, faults, &fault,
                "source '%s' takes events from anybody, and other machines can reach it",
                source->name);
        }
    }
}
