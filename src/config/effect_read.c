/*
 * Reads connectors and types of effect from the file and checks them as a whole.
 *
 * Each section is read by itself. Links between them (a type names its connector, and the type that
 * compensates it) are checked after everything has been read.
 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/macros.h"
#include "base/name.h"
#include "base/text.h"
#include "canon/jcs.h"
#include "canon/json_mask.h"
#include "canon/template.h"
#include "config/impl.h"

enum {
    TEXT_BYTES_MAX = 400,
    ROWS_MAX = 64,          /* of a table here */
    NATS_KEEPS_MS = 120000, /* the duplicate window of a stream, unless it says otherwise */
};
#define HOUR_MS INT64_C(3600000)
#define DAY_MS  (24 * HOUR_MS)

/* The names a template may contain; provider_ref is known only after the effect. */
static const char *const request_names[] = {"target", "payload", "idempotency_key", "effect_id",
    "command_id", "effect_type", "tenant", NULL};
static const char *const compensate_names[] = {"target", "payload", "idempotency_key", "effect_id",
    "command_id", "effect_type", "tenant", "provider_ref", NULL};

/* ---- presets ---------------------------------------------------------------------------- */

/*
 * How providers accept keys, and for how long we rely on them:
 *   stripe  docs.stripe.com/api/idempotent_requests: up to 255 characters, removed after at least
 *           24 hours. POST only, which is what effects use.
 *   paypal  developer.paypal.com/api/rest/reference/idempotency
 *   square  developer.squareup.com/docs/working-with-apis/idempotency
 *   adyen   docs.adyen.com/development-resources/api-idempotency: up to 64 characters, kept for at
 *           least 31 days; 7 in an earlier version of the page, which is what we rely on.
 *           For PayPal and Square the times and lengths are our own, conservative choices, not
 *           documented figures. If a time is too short, an uncertain effect is only held earlier;
 *           if it is too long, the effect could happen twice. Not every API of PayPal takes the
 *           field; Square's key is a member of the body.
 * None of them can be asked by that key alone, so none has a lookup here: docs/effects.md says what
 * each of them can be asked by.
 */
static const struct provider_preset {
    const char *name;
    const char *header;
    const char *body;
    int64_t keeps_ms;
    uint64_t key_bytes_max;
} presets[] = {
    {"stripe", "Idempotency-Key", NULL, 24 * HOUR_MS, 255},
    {"paypal", "PayPal-Request-Id", NULL, 6 * HOUR_MS, 108},
    {"square", NULL, "/idempotency_key", 1 * HOUR_MS, 45},
    {"adyen", "Idempotency-Key", NULL, 7 * DAY_MS, 64},
};

/* ---- places ------------------------------------------------------------------------------ */

/* A map while it is read, with the place of each setting. */
struct section {
    struct config_reader *reader;
    const struct yaml_node *key; /* the name of the connector or type */
    const struct config_option *options;
    struct setting_source sources[ROWS_MAX];
};

static const struct setting_source *source_of(const struct section *section, const char *path)
{
    size_t i = 0;
    while (strcmp(section->options[i].path, path) != 0) {
        i++;
        ASSERT(section->options[i].path != NULL);
    }
    return &section->sources[i];
}

static bool is_given(const struct section *section, const char *path)
{
    return source_of(section, path)->is_set;
}

/* Where a setting was given, for a fault about it; else the name. */
static struct yaml_node at(const struct section *section, const char *path)
{
    const struct setting_source *source = source_of(section, path);
    struct yaml_node node = *section->key;
    if (source->is_set) {
        node.line = source->place.line;
        node.column = source->place.column;
    }
    return node;
}

/* Read the map under a name, after setting the defaults. E_NOMEM. */
static enum status read_section(struct section *section, void *object)
{
    struct map_scope scope = {.options = section->options,
        .prefix = section->options == config_effect_options ? "effects." : "connectors.",
        .object = object,
        .sources = section->sources};
    return map_read(section->reader, &scope, section->key->value);
}

static const struct yaml_node *value_of(const struct yaml_node *map, const char *name)
{
    for (const struct yaml_node *key = map->first; key != NULL; key = key->next) {
        if (key->kind == YAML_SCALAR && slice_is(key->text, name)) {
            return key->value;
        }
    }
    return NULL;
}

/* Called before the map is read, so that the map's own settings win. */
static void take_preset(
    struct config_reader *reader, const struct yaml_node *map, struct config_connector *connector)
{
    const char *names[COUNT(presets)];
    const struct yaml_node *given = value_of(map, "preset");
    if (given == NULL || given->kind != YAML_SCALAR) {
        return;
    }
    for (size_t i = 0; i < COUNT(presets); i++) {
        names[i] = presets[i].name;
        if (slice_is(given->text, presets[i].name)) {
            connector->idempotency = (struct config_idempotency){.header = presets[i].header,
                .body = presets[i].body,
                .keeps_ms = presets[i].keeps_ms,
                .key_bytes_max = presets[i].key_bytes_max};
            return;
        }
    }
    char typed[64];
    (void)snprintf(typed, sizeof typed, "%.*s", SLICE_ARGS(given->text));
    const char *near = text_nearest(typed, names, COUNT(presets));
    char hint[96];
    (void)snprintf(hint, sizeof hint,
        near == NULL ? "stripe, paypal, square or adyen" : "did you mean '%s'?", near);
    reader_fault(reader, given, hint, "there is no preset '%s'", typed);
}

enum status effect_read_json(
    struct config_reader *reader, const struct yaml_node *key, void *member)
{
    return template_read(reader, key, compensate_names, member);
}

/* ---- fields of a request ---------------------------------------------------------------- */

/* Whether the field is ours, or belongs to a connection. */
static bool is_own_field(struct slice name)
{
    static const char *const own[] = {"Host", "Content-Length", "Transfer-Encoding", "Connection",
        "Authorization", "Content-Type", "Expect", "TE", "Upgrade", "Request-Id"};
    for (size_t i = 0; i < COUNT(own); i++) {
        if (name.len == strlen(own[i]) && strncasecmp(name.data, own[i], name.len) == 0) {
            return true;
        }
    }
    return false;
}

enum status effect_read_headers(
    struct config_reader *reader, const struct yaml_node *key, void *member)
{
    struct config_effect *effect = CONTAINER_OF(member, struct config_effect, headers);
    struct err err = {.status = OK};
    if (key->value->kind != YAML_MAP || key->value->count > CONFIG_EFFECT_HEADERS_MAX) {
        reader_fault(reader, key->value, "such as {X-Account: \"{target.account}\"}",
            "headers must be a map of at most %d fields", CONFIG_EFFECT_HEADERS_MAX);
        return OK;
    }
    for (const struct yaml_node *one = key->value->first; one != NULL; one = one->next) {
        if (one->kind != YAML_SCALAR || one->value->kind != YAML_SCALAR ||
            !value_form_is_token(one->text) || !value_form_is_line(one->value->text)) {
            reader_fault(reader, one, NULL, "headers must be a map of fields to one line each");
        } else if (is_own_field(one->text)) {
            reader_fault(reader, one, "auth: is for credentials",
                "%.*s is not a field that a type can set", SLICE_ARGS(one->text));
        } else if (template_check(one->value->text, request_names, &err) != OK) {
            reader_fault(reader, one->value, NULL, "headers: %s", err.text);
        } else {
            struct config_effect_header header = {config_text(reader->config, one->text),
                config_text(reader->config, one->value->text)};
            if (header.name == NULL || header.value == NULL) {
                return E_NOMEM;
            }
            effect->headers[effect->header_count++] = header;
        }
    }
    return OK;
}

/* ---- sections --------------------------------------------------------------------------- */

/* A map of names to maps. */
struct named_shape {
    const char *section;
    const char *one; /* with its article, for faults: "an effect type" */
    size_t item_bytes;
    size_t count_max;
    enum status (*read)(struct config_reader *reader, const struct yaml_node *key, void *item);
};

static enum status read_named(struct config_reader *reader, const struct named_shape *shape,
    const struct yaml_node *key, void *ret_items, size_t *ret_count)
{
    const struct yaml_node *map = key->value;
    struct err err = {.status = OK};
    if (map->kind != YAML_MAP || map->count > shape->count_max) {
        reader_fault(reader, yaml_is_null(map) ? key : map, NULL,
            "%s must be a map of at most %zu, each with its name", shape->section,
            shape->count_max);
        return OK;
    }
    char *items = arena_zalloc(&reader->config->arena, (map->count + 1) * shape->item_bytes);
    if (items == NULL) {
        return E_NOMEM;
    }
    size_t count = 0;
    for (const struct yaml_node *one = map->first; one != NULL; one = one->next) {
        if (one->kind != YAML_SCALAR || one->value->kind != YAML_MAP) {
            reader_fault(reader, one, NULL, "%s must be a map", shape->one);
        } else if (one->text.len == 0 || one->text.len > LIMIT_SCOPE_BYTES_MAX ||
                   name_check("it", one->text, &err) != OK) {
            reader_fault(reader, one, NULL, "this is not a name for %s: %s", shape->one,
                err.status == OK ? "it must have 1 to 255 bytes" : err.text);
        } else {
            enum status status = shape->read(reader, one, items + count * shape->item_bytes);
            if (status != OK) {
                return status;
            }
            count++;
        }
    }
    memcpy(ret_items, &items, sizeof items);
    *ret_count = count;
    return OK;
}

/* ---- connectors ------------------------------------------------------------------------- */

/* Split the URL. */
static enum status make_url(struct config *config, struct config_connector *connector)
{
    size_t len = text_url_origin(connector->url);
    struct slice rest = slice_str(connector->url + len);
    while (rest.len > 0 && rest.data[rest.len - 1] == '/') {
        rest.len--;
    }
    connector->origin = config_text(config, slice_of(connector->url, len));
    connector->base_path = rest.len == 0 ? "" : config_text(config, rest);
    return connector->origin == NULL || connector->base_path == NULL ? E_NOMEM : OK;
}

bool config_connector_publishes(const struct config_connector *connector)
{
    return connector->protocol != CONFIG_PROTOCOL_HTTP &&
           connector->protocol != CONFIG_PROTOCOL_ENVELOPE;
}

/* Where a broker is, for people: without user, password and options. */
static enum status make_broker_url(struct config *config, struct config_connector *connector)
{
    const char *host = strstr(connector->url, "://") + 3;
    size_t len = strcspn(host, "/?");
    size_t from = 0;
    for (size_t i = 0; i < len; i++) {
        from = host[i] == '@' ? i + 1 : from;
    }
    char text[TEXT_BYTES_MAX];
    (void)snprintf(text, sizeof text, "%.*s%.*s", (int)(host - connector->url), connector->url,
        (int)(len - from + strcspn(host + len, "?")), host + from);
    connector->origin = config_text(config, slice_str(text));
    connector->base_path = "";
    return connector->origin == NULL ? E_NOMEM : OK;
}

/* A broker confirms what is published, and nothing else. */
static void check_broker(const struct section *section, struct config_connector *connector)
{
    const char *name =
        config_choice_of(config_connector_options, "connectors.protocol", connector->protocol);
    const struct config_effect_auth *auth = &connector->auth;
    struct yaml_node place = at(section, "connectors.url");
    size_t len = strlen(name);
    if (strncmp(connector->url, name, len) != 0 || strstr(connector->url, "://") == NULL) {
        reader_fault(section->reader, &place, NULL,
            "connectors.url: protocol %s needs a URL of "
            "%s:",
            name, name);
        connector->url = NULL;
    }
    if (connector->idempotency.header != NULL || connector->idempotency.body != NULL ||
        connector->lookup.get != NULL || connector->preset != NULL || auth->header != NULL ||
        auth->bearer.file != NULL || auth->bearer.env != NULL || auth->basic.file != NULL ||
        auth->basic.env != NULL) {
        reader_fault(section->reader, section->key, "a user and a password are part of the URL",
            "connector '%s': a broker has no preset, auth, lookup or place for a key",
            connector->name);
    }
    if (connector->protocol == CONFIG_PROTOCOL_NATS) {
        connector->idempotency.header = "Nats-Msg-Id";
        connector->idempotency.keeps_ms = is_given(section, "connectors.idempotency.keeps")
                                              ? connector->idempotency.keeps_ms
                                              : NATS_KEEPS_MS;
    }
}

static void check_web(const struct section *section, struct config_connector *connector)
{
    static const struct config_option option = {
        .path = "connectors.url", .form = CONFIG_FORM_HANDLER};
    struct value_fault fault = {.text = ""};
    struct yaml_node place = at(section, "connectors.url");
    if (value_form_check(&option, slice_str(connector->url), &fault) != OK) {
        reader_fault(
            section->reader, &place, fault.hint[0] == '\0' ? NULL : fault.hint, "%s", fault.text);
        connector->url = NULL;
    } else if (strchr(connector->url, '?') != NULL) {
        reader_fault(section->reader, &place, "put it into request.path",
            "connectors.url: '%s' has a query", connector->url);
    }
}

/* A secret is in exactly one place, which must be named completely. */
static void check_secret(
    const struct section *section, const struct config_secret *secret, const char *path)
{
    if (secret->file != NULL && secret->env != NULL) {
        struct yaml_node place = at(section, path);
        reader_fault(section->reader, &place, "keep one of them",
            "%s is given by a file and by a variable", path);
    }
}

static void check_auth(const struct section *section, const struct config_effect_auth *auth)
{
    struct yaml_node bearer = at(section, "connectors.auth.bearer_file");
    struct yaml_node header = at(section, "connectors.auth.header");
    bool has_bearer = auth->bearer.file != NULL || auth->bearer.env != NULL;
    bool has_basic = auth->basic.file != NULL || auth->basic.env != NULL;
    bool has_value = auth->header_value.file != NULL || auth->header_value.env != NULL;
    check_secret(section, &auth->bearer, "connectors.auth.bearer_env");
    check_secret(section, &auth->basic, "connectors.auth.basic_env");
    check_secret(section, &auth->header_value, "connectors.auth.header_env");
    if (has_bearer && has_basic) {
        reader_fault(section->reader, &bearer, "keep one of them",
            "auth has both a bearer token and a password");
    }
    if ((auth->header != NULL) != has_value) {
        reader_fault(section->reader, &header,
            "auth: {header: X-API-Key, header_file: /run/secrets/key}",
            "auth.header and auth.header_file go together");
    }
}

/* Without a path nobody is asked, so the other settings would have no effect. */
static void check_no_lookup(const struct section *section)
{
    static const char *const paths[] = {"connectors.lookup.executed",
        "connectors.lookup.not_executed", "connectors.lookup.found", "connectors.lookup.quiet",
        "connectors.lookup.every", "connectors.lookup.every_max"};
    for (size_t i = 0; i < COUNT(paths); i++) {
        if (is_given(section, paths[i])) {
            struct yaml_node place = at(section, paths[i]);
            reader_fault(section->reader, &place,
                "lookup: {get: \"/v1/charges/by-key/{idempotency_key}\", …}",
                "%s has no effect without lookup.get", paths[i] + sizeof "connectors." - 1);
            return;
        }
    }
}

static void check_lookup(const struct section *section, const struct config_lookup *lookup)
{
    static const char hint[] = "such as \"/v1/charges/by-key/{idempotency_key}\"";
    struct err err = {.status = OK};
    struct yaml_node get = at(section, "connectors.lookup.get");
    struct yaml_node executed = at(section, "connectors.lookup.executed");
    if (lookup->get == NULL) {
        check_no_lookup(section);
        return;
    }
    if (lookup->get[0] != '/') {
        (void)err_set(&err, E_INVALID, "it does not begin with '/'");
    } else if (template_check(slice_str(lookup->get), request_names, &err) == OK &&
               strchr(lookup->get, '{') == NULL) {
        (void)err_set(&err, E_INVALID, "it would ask the same of every effect");
    }
    if (err.status != OK) {
        reader_fault(section->reader, &get, hint, "lookup.get '%s': %s", lookup->get, err.text);
    }
    for (size_t i = 0; i < lookup->executed_count * lookup->not_executed_count; i++) {
        uint16_t status = lookup->executed[i % lookup->executed_count];
        if (status == lookup->not_executed[i / lookup->executed_count]) {
            reader_fault(section->reader, &executed, NULL,
                "lookup: %u means both that it was executed and that it was not", status);
        }
    }
}

/* A key that does not arrive, or arrives beside a second one, protects nothing. */
static void check_key_place(const struct section *section, const struct config_connector *connector)
{
    const struct config_idempotency *key = &connector->idempotency;
    const char *auth = connector->auth.header;
    struct yaml_node header = at(section, "connectors.idempotency.header");
    struct yaml_node body = at(section, "connectors.idempotency.body");
    if (key->header != NULL && (is_own_field(slice_str(key->header)) ||
                                   (auth != NULL && strcasecmp(key->header, auth) == 0))) {
        reader_fault(section->reader, &header, "such as Idempotency-Key",
            "%s has a value of its own and cannot carry the key", key->header);
    }
    if (key->body != NULL && connector->protocol == CONFIG_PROTOCOL_ENVELOPE) {
        reader_fault(section->reader, &body, "leave it out",
            "idempotency.body has no effect: an envelope has the key as idempotency_key");
    }
    if (key->body != NULL && strlen(key->body) > JSON_POINTER_BYTES_MAX) {
        reader_fault(section->reader, &body, NULL, "idempotency.body is longer than %d bytes",
            JSON_POINTER_BYTES_MAX);
    }
}

/* A call that repeats a key must end within `keeps`, so a key that is forgotten earlier than a call
 * ends would protect nothing. */
static void check_key(const struct section *section, const struct config_connector *connector)
{
    const struct config_idempotency *key = &connector->idempotency;
    char keeps[32], total[32];
    check_key_place(section, connector);
    if (key->header != NULL && key->body != NULL) {
        struct yaml_node place = at(section, "connectors.idempotency.body");
        reader_fault(section->reader, &place, "keep one of them",
            "the key goes into a field (%s) or into the body, not into both", key->header);
    }
    if ((key->header != NULL || key->body != NULL) && key->keeps_ms <= connector->total_ms) {
        struct yaml_node place = at(section, "connectors.idempotency.keeps");
        reader_fault(section->reader, &place, "shorten timeout.total, or leave idempotency out",
            "idempotency.keeps (%s) is not longer than timeout.total (%s): nothing could be sent "
            "again in time",
            text_put_duration(keeps, key->keeps_ms), text_put_duration(total, connector->total_ms));
    }
}

static enum status read_connector(
    struct config_reader *reader, const struct yaml_node *key, void *item)
{
    struct config_connector *connector = item;
    struct map_scope scope = {.options = config_connector_options, .object = connector};
    struct section section = {.reader = reader, .key = key, .options = config_connector_options};
    connector->name = config_text(reader->config, key->text);
    connector->place = (struct config_place){key->line, key->column};
    enum status status = connector->name == NULL ? E_NOMEM : value_defaults(&scope, reader->config);
    if (status != OK) {
        return status;
    }
    take_preset(reader, key->value, connector);
    status = read_section(&section, connector);
    if (status != OK) {
        return status;
    }
    map_require(reader, config_connector_options, "connector", key->value);
    check_auth(&section, &connector->auth);
    check_lookup(&section, &connector->lookup);
    bool publishes = config_connector_publishes(connector);
    if (connector->url != NULL) {
        (publishes ? check_broker : check_web)(&section, connector);
    }
    check_key(&section, connector);
    return connector->url == NULL ? OK
           : publishes            ? make_broker_url(reader->config, connector)
                                  : make_url(reader->config, connector);
}

enum status connectors_read(struct config_reader *reader, const struct yaml_node *key, void *object)
{
    static const struct named_shape shape = {.section = "connectors",
        .one = "a connector",
        .item_bytes = sizeof(struct config_connector),
        .count_max = CONFIG_CONNECTORS_MAX,
        .read = read_connector};
    struct config_effects *effects = &((struct config *)object)->effects;
    return read_named(reader, &shape, key, &effects->connectors, &effects->connector_count);
}

/* ---- types ------------------------------------------------------------------------------ */

static void check_template(
    const struct section *section, const char *path, const char *text, bool is_path)
{
    struct err err = {.status = OK};
    if (text == NULL) {
        return;
    }
    if (is_path && text[0] != '/') {
        (void)err_set(&err, E_INVALID, "it does not begin with '/'");
    }
    if (err.status != OK || template_check(slice_str(text), request_names, &err) != OK) {
        struct yaml_node place = at(section, path);
        reader_fault(section->reader, &place, "such as \"/v1/charges/{target.order_id}\"",
            "%s '%s': %s", path, text, err.text);
    }
}

/* "/id" or "header:NAME". */
static void check_provider_ref(const struct section *section, const char *text)
{
    struct slice rest = text == NULL ? SLICE_EMPTY : slice_str(text);
    bool is_header = slice_starts(rest, SLICE_LIT("header:"));
    bool is_good = text == NULL || text[0] == '/' ||
                   (is_header && value_form_is_token(slice_of(text + 7, rest.len - 7)));
    if (!is_good) {
        struct yaml_node place = at(section, "effects.provider_ref");
        reader_fault(section->reader, &place, "such as /id, or header:Location",
            "provider_ref '%s' is neither a JSON Pointer nor header:NAME", text);
    }
}

static enum status read_effect(
    struct config_reader *reader, const struct yaml_node *key, void *item)
{
    struct config_effect *effect = item;
    struct map_scope scope = {.options = config_effect_options, .object = effect};
    struct section section = {.reader = reader, .key = key, .options = config_effect_options};
    effect->name = config_text(reader->config, key->text);
    effect->place = (struct config_place){key->line, key->column};
    enum status status = effect->name == NULL ? E_NOMEM : value_defaults(&scope, reader->config);
    status = status == OK ? read_section(&section, effect) : status;
    if (status != OK) {
        return status;
    }
    map_require(reader, config_effect_options, "effect", key->value);
    check_template(&section, "effects.request.path", effect->path, true);
    check_template(&section, "effects.order", effect->order, false);
    check_provider_ref(&section, effect->provider_ref);
    if (effect->compensate_name == NULL &&
        (effect->compensate_payload != NULL || effect->compensate_target != NULL)) {
        struct yaml_node place = at(&section, "effects.compensate.payload");
        reader_fault(reader, &place, "compensate: {effect: payment.refund, payload: ...}",
            "compensate.effect is missing");
    }
    if (effect->backoff_ms > effect->backoff_ms_max) {
        struct yaml_node place = at(&section, "effects.retry.backoff");
        reader_fault(reader, &place, NULL, "retry.backoff is more than retry.backoff_max");
    }
    return OK;
}

enum status effects_read(struct config_reader *reader, const struct yaml_node *key, void *object)
{
    static const struct named_shape shape = {.section = "effects",
        .one = "an effect type",
        .item_bytes = sizeof(struct config_effect),
        .count_max = CONFIG_EFFECTS_MAX,
        .read = read_effect};
    struct config_effects *effects = &((struct config *)object)->effects;
    return read_named(reader, &shape, key, &effects->types, &effects->type_count);
}

/* ---- both ------------------------------------------------------------------------------- */

const struct config_effect *config_effect_find(
    const struct config_effects *effects, struct slice name)
{
    for (size_t i = 0; i < effects->type_count; i++) {
        if (slice_is(name, effects->types[i].name)) {
            return &effects->types[i];
        }
    }
    return NULL;
}

bool config_connector_serves(const struct config_connector *connector, struct slice tenant)
{
    for (size_t i = 0; i < connector->tenant_count; i++) {
        if (slice_is(tenant, connector->tenants[i])) {
            return true;
        }
    }
    return connector->tenant_count == 0;
}

bool config_connector_is_shielded(const struct config_connector *connector)
{
    return connector->idempotency.header != NULL || connector->idempotency.body != NULL ||
           connector->lookup.get != NULL || connector->protocol == CONFIG_PROTOCOL_ENVELOPE;
}

/* Append the names of the rows that differ. */
static void put_changes(
    const struct config_option *options, const void *a, const void *b, struct buf *out)
{
    for (const struct config_option *o = options; o->path != NULL; o++) {
        if (o->kind != CONFIG_OWN && !value_equal(a, b, o)) {
            buf_char(out, ' ');
            buf_str(out, strchr(o->path, '.') + 1);
        }
    }
}

void config_connector_changes(
    const struct config_connector *a, const struct config_connector *b, struct buf *out)
{
    put_changes(config_connector_options, a, b, out);
}

static bool same_json(const struct json_value *a, const struct json_value *b)
{
    return (a == NULL) == (b == NULL) && (a == NULL || json_equal(a, b));
}

void config_effect_changes(
    const struct config_effect *a, const struct config_effect *b, struct buf *out)
{
    put_changes(config_effect_options, a, b, out);
    bool same_headers = a->header_count == b->header_count;
    for (size_t i = 0; same_headers && i < a->header_count; i++) {
        same_headers = strcmp(a->headers[i].name, b->headers[i].name) == 0 &&
                       strcmp(a->headers[i].value, b->headers[i].value) == 0;
    }
    buf_str(out, same_headers ? "" : " request.headers");
    buf_str(
        out, same_json(a->compensate_payload, b->compensate_payload) ? "" : " compensate.payload");
    buf_str(out, same_json(a->compensate_target, b->compensate_target) ? "" : " compensate.target");
}

struct checker {
    struct config *config;
    struct config_faults *faults;
};

/* The connector of a type, by its name. */
static void link_connector(const struct checker *checker, struct config_effect *effect)
{
    const struct config_effects *effects = &checker->config->effects;
    for (size_t i = 0; effect->connector_name != NULL && i < effects->connector_count; i++) {
        if (strcmp(effects->connectors[i].name, effect->connector_name) == 0) {
            effect->connector = &effects->connectors[i];
            return;
        }
    }
    if (effect->connector_name != NULL) {
        config_fault_at(checker->config, checker->faults, &effect->connector_at,
            "connectors: lists them", "effect '%s' names a connector that does not exist: '%s'",
            effect->name, effect->connector_name);
    }
}

/* CCO-9: an effect that cannot be taken back has a compensation. A compensation has none itself. */
static void link_compensation(const struct checker *checker, struct config_effect *effect)
{
    if (effect->compensate_name != NULL) {
        effect->compensate =
            config_effect_find(&checker->config->effects, slice_str(effect->compensate_name));
        if (effect->compensate == NULL) {
            config_fault_at(checker->config, checker->faults, &effect->compensate_at,
                "effects: lists them", "effect '%s' names a compensation that does not exist: '%s'",
                effect->name, effect->compensate_name);
        } else if (effect->compensate == effect) {
            config_fault_at(checker->config, checker->faults, &effect->compensate_at, NULL,
                "effect '%s' cannot be its own compensation", effect->name);
        }
    } else if (effect->irreversible || effect->critical) {
        config_fault_at(checker->config, checker->faults, &effect->place,
            "compensate: {effect: payment.refund, payload: {charge: \"{provider_ref}\"}}",
            "effect '%s' is %s and has no compensate: nothing could undo it", effect->name,
            effect->irreversible ? "irreversible" : "critical");
    }
}

/* CCO-6: without a key and without a lookup, only a person can settle an effect whose answer was
 * lost. */
static void check_shield(const struct checker *checker, const struct config_effect *effect)
{
    const struct config_connector *connector = effect->connector;
    bool is_approved = effect->approve == CONFIG_APPROVE_MANUAL ||
                       (connector != NULL && connector->approve == CONFIG_APPROVE_MANUAL);
    if (connector == NULL || is_approved || config_connector_is_shielded(connector) ||
        !(effect->irreversible || effect->critical)) {
        return;
    }
    config_fault_at(checker->config, checker->faults, &effect->place,
        "give the connector idempotency: or lookup:, or write approve: manual and have a person "
        "settle what is uncertain",
        "effect '%s' is %s, and connector '%s' has neither idempotency nor lookup: an answer that "
        "is lost could not be settled",
        effect->name, effect->irreversible ? "irreversible" : "critical", connector->name);
}

/* The type must leave the connector's key its place: a key that is not sent, or is sent beside a
 * second one, lets a resend happen twice. */
static void check_carries_key(const struct checker *checker, const struct config_effect *effect)
{
    const struct config_connector *connector = effect->connector;
    const struct config_idempotency *key = connector == NULL ? NULL : &connector->idempotency;
    if (key != NULL && key->body != NULL && effect->body == CONFIG_EFFECT_BODY_NONE) {
        config_fault_at(checker->config, checker->faults, &effect->place,
            "request: {body: payload}, or leave the connector's idempotency out",
            "effect '%s' has no body, and connector '%s' puts the key into the body", effect->name,
            connector->name);
    }
    for (size_t i = 0; key != NULL && key->header != NULL && i < effect->header_count; i++) {
        if (strcasecmp(effect->headers[i].name, key->header) == 0) {
            config_fault_at(checker->config, checker->faults, &effect->place,
                "leave it out of request.headers",
                "effect '%s' sets %s, in which connector '%s' sends the key", effect->name,
                key->header, connector->name);
        }
    }
}

void effects_check(struct config *config, struct config_faults *faults)
{
    struct checker checker = {.config = config, .faults = faults};
    size_t first = faults->count;
    for (size_t i = 0; i < config->effects.type_count; i++) {
        /* This module may change them until they have been checked. */
        struct config_effect *effect = (struct config_effect *)(uintptr_t)&config->effects.types[i];
        link_connector(&checker, effect);
        link_compensation(&checker, effect);
        check_shield(&checker, effect);
        check_carries_key(&checker, effect);
    }
    faults_sort(faults, first);
}
