/*
 * Reads a policy file: `require_headers`, `reject_on_body_mismatch`, `stores`, `ttl`, `logging` and
 * `on_conflict` (OPS-11), as defaults of every route.
 *
 * The document that defines this form has lost its indentation: there `stores:` is empty and
 * `fence:` follows at the left margin. Such a file is read as it was meant: a name that belongs in
 * a map is accepted beside it while that map is empty.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "base/macros.h"
#include "base/secret.h"
#include "base/text.h"
#include "config/impl.h"

enum { LINES_MAX = 64, MEANING_BYTES_MAX = 256, WEBHOOK_DAYS_MAX = 3650, BATCH_DAYS_MAX = 3650 };
#define HOUR_MS INT64_C(3600000)
#define DAY_MS  (24 * HOUR_MS)

enum policy_key {
    KEY_REQUIRE_HEADERS,
    KEY_REJECT_ON_BODY_MISMATCH,
    KEY_FENCE,
    KEY_WEBHOOK_DAYS,
    KEY_API_HOURS,
    KEY_BATCH_DAYS,
    KEY_INCLUDE_FIELDS,
    KEY_STATUS,
    KEY_INCLUDE_DIFF,
    KEYS,
};

static const struct {
    const char *map;  /* "" for the top */
    const char *name; /* unique across all maps, so that lost indentation is harmless */
    const char *path;
} keys[KEYS] = {
    [KEY_REQUIRE_HEADERS] = {"", "require_headers", "require_headers"},
    [KEY_REJECT_ON_BODY_MISMATCH] = {"", "reject_on_body_mismatch", "reject_on_body_mismatch"},
    [KEY_FENCE] = {"stores", "fence", "stores.fence"},
    [KEY_WEBHOOK_DAYS] = {"ttl", "webhook_days", "ttl.webhook_days"},
    [KEY_API_HOURS] = {"ttl", "api_hours", "ttl.api_hours"},
    [KEY_BATCH_DAYS] = {"ttl", "batch_days", "ttl.batch_days"},
    [KEY_INCLUDE_FIELDS] = {"logging", "include_fields", "logging.include_fields"},
    [KEY_STATUS] = {"on_conflict", "status", "on_conflict.status"},
    [KEY_INCLUDE_DIFF] = {"on_conflict", "include_diff", "on_conflict.include_diff"},
};
static const char *const maps[] = {"stores", "ttl", "logging", "on_conflict"};
enum { MAPS = COUNT(maps) };

/* The fields of every log line about a decision (OPS-12). */
static const char *const logged[] = {"idempotency_key", "effect_id", "decision", "source_type",
    "source_id", "operation_id", "tenant", "scope", "request", "request_id", "trace_id", "actor",
    "status", "duration_us"};
enum { LOGGED = COUNT(logged) };

/* A policy file that is being read. */
struct policy_reader {
    struct config_reader *reader;
    const struct yaml_node *root;
    struct config_policy_line lines[LINES_MAX];
    size_t count;
};

/* ---- meaning ----------------------------------------------------------------------------- */

static enum status explain(struct policy_reader *policy, const struct yaml_node *node,
    enum policy_key key, bool is_note, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

static enum status explain(struct policy_reader *policy, const struct yaml_node *node,
    enum policy_key key, bool is_note, const char *format, ...)
{
    char text[MEANING_BYTES_MAX];
    struct config *config = policy->reader->config;
    if (policy->count == LINES_MAX) {
        reader_fault(policy->reader, node, NULL, "more than %d values", LINES_MAX);
        return OK;
    }
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    struct config_policy_line *line = &policy->lines[policy->count++];
    *line = (struct config_policy_line){.line = node->line,
        .setting = keys[key].path,
        .value = config_text(config, node->text),
        .meaning = config_text(config, slice_str(text)),
        .is_note = is_note};
    return line->value == NULL || line->meaning == NULL ? E_NOMEM : OK;
}

/* ---- values ------------------------------------------------------------------------------ */

/* Whether there is a single value; if not, adds a fault. */
static bool is_value(
    struct policy_reader *policy, const struct yaml_node *node, enum policy_key key)
{
    if (node->kind == YAML_SCALAR && !yaml_is_null(node)) {
        return true;
    }
    if (node->kind != YAML_BAD) {
        reader_fault(policy->reader, node, NULL, "%s must be one value", keys[key].path);
    }
    return false;
}

static bool read_bool(struct policy_reader *policy, const struct yaml_node *node,
    enum policy_key key, bool *ret_value)
{
    if (!is_value(policy, node, key)) {
        return false;
    }
    bool is_true = slice_is(node->text, "true");
    if (!is_true && !slice_is(node->text, "false")) {
        reader_fault(policy->reader, node, NULL, "%s: '%.*s' is not true or false", keys[key].path,
            SLICE_ARGS(node->text));
        return false;
    }
    *ret_value = is_true;
    return true;
}

static enum status take_mismatch(struct policy_reader *policy, const struct yaml_node *node)
{
    bool value = false;
    if (!read_bool(policy, node, KEY_REJECT_ON_BODY_MISMATCH, &value)) {
        return OK;
    }
    if (!value) {
        reader_fault(policy->reader, node, "reject_on_body_mismatch: true",
            "reject_on_body_mismatch: false is refused: a different body under the same key "
            "would get an answer that is not its own");
        return OK;
    }
    return explain(policy, node, KEY_REJECT_ON_BODY_MISMATCH, false,
        "the same key with a different body is always refused and changes nothing");
}

static enum status take_fence(struct policy_reader *policy, const struct yaml_node *node)
{
    static const char *const stores[] = {"journal", "redis", "postgres"};
    char shown[SECRET_URL_BYTES_MAX];
    const char *url = secret_url_put(shown, policy->reader->config->store);
    if (!is_value(policy, node, KEY_FENCE)) {
        return OK;
    }
    bool is_known = false;
    for (size_t i = 0; i < COUNT(stores); i++) {
        is_known = is_known || slice_is(node->text, stores[i]);
    }
    if (!is_known) {
        reader_fault(policy->reader, node, "journal, redis or postgres",
            "stores.fence: '%.*s' is not a store", SLICE_ARGS(node->text));
        return OK;
    }
    /* "postgresql://" is a second spelling of its URLs. */
    if (strncmp(url, node->text.data, node->text.len) == 0) {
        return explain(
            policy, node, KEY_FENCE, false, "fences are kept there: the store is '%s'", url);
    }
    return explain(policy, node, KEY_FENCE, true,
        "this process keeps fences in '%s'; --store and store: say where", url);
}

struct days {
    enum policy_key key;
    enum config_retention kind;
    uint64_t min;
    uint64_t max;
    int64_t unit_ms;
    const char *unit;
    const char *why;
};

static enum status take_ttl(
    struct policy_reader *policy, const struct yaml_node *node, const struct days *days)
{
    static const char *const what[] = {"API writes", "webhooks", "batch jobs"};
    static const char *const kinds[] = {"api", "webhook", "batch"};
    uint64_t number = 0;
    struct policy_raw *raw = &policy->reader->config->raw->policy;
    if (!is_value(policy, node, days->key)) {
        return OK;
    }
    if (!text_u64(node->text, &number)) {
        reader_fault(policy->reader, node, NULL, "%s: '%.*s' is not a whole number of %s",
            keys[days->key].path, SLICE_ARGS(node->text), days->unit);
        return OK;
    }
    if (number < days->min || number > days->max) {
        reader_fault(policy->reader, node, days->why, "%s: %" PRIu64 " is %s than %" PRIu64 " %s",
            keys[days->key].path, number, number < days->min ? "less" : "more",
            number < days->min ? days->min : days->max, days->unit);
        return OK;
    }
    raw->window_ms[days->kind] = (int64_t)number * days->unit_ms;
    raw->line[days->kind] = node->line;
    return explain(policy, node, days->key, false,
        "keys of %s (routes of kind %s) are remembered for %" PRIu64 " %s after they are done",
        what[days->kind], kinds[days->kind], number, days->unit);
}

/* ---- lists ------------------------------------------------------------------------------- */

static bool is_header_known(const struct config_gateway *gateway, struct slice name)
{
    for (size_t i = 0; i < gateway->require_header_count; i++) {
        if (strcasecmp(gateway->require_headers[i], name.data) == 0) {
            return true;
        }
    }
    return false;
}

static enum status take_header(struct policy_reader *policy, const struct yaml_node *node)
{
    struct config *config = policy->reader->config;
    struct config_gateway *gateway = &config->gateway;
    if (!is_value(policy, node, KEY_REQUIRE_HEADERS)) {
        return OK;
    }
    if (!value_form_is_token(node->text)) {
        reader_fault(policy->reader, node, "such as Idempotency-Key",
            "require_headers: '%.*s' is not the name of a field", SLICE_ARGS(node->text));
        return OK;
    }
    if (strcasecmp(node->text.data, "Idempotency-Key") == 0) {
        config->raw->policy.needs_key = true;
        return explain(policy, node, KEY_REQUIRE_HEADERS, false,
            "a write without an Idempotency-Key is refused with 400");
    }
    if (!is_header_known(gateway, node->text)) {
        if (gateway->require_header_count == CONFIG_HEADERS_MAX) {
            reader_fault(policy->reader, node, NULL, "require_headers: more than %d of them",
                CONFIG_HEADERS_MAX);
            return OK;
        }
        const char *name = config_text(config, node->text);
        if (name == NULL) {
            return E_NOMEM;
        }
        gateway->require_headers[gateway->require_header_count++] = name;
    }
    return explain(policy, node, KEY_REQUIRE_HEADERS, false,
        "a fenced request without this field is refused with 400");
}

static enum status take_field(struct policy_reader *policy, const struct yaml_node *node)
{
    char hint[MEANING_BYTES_MAX] = "";
    if (!is_value(policy, node, KEY_INCLUDE_FIELDS)) {
        return OK;
    }
    for (size_t i = 0; i < LOGGED; i++) {
        if (slice_is(node->text, logged[i])) {
            policy->reader->config->raw->policy.needs_log = true;
            return explain(policy, node, KEY_INCLUDE_FIELDS, false,
                "log lines about decisions include it, if present");
        }
    }
    const char *near = text_nearest(node->text.data, logged, LOGGED);
    if (near != NULL) {
        (void)snprintf(hint, sizeof hint, "did you mean '%s'?", near);
    }
    reader_fault(policy->reader, node, near == NULL ? NULL : hint,
        "logging.include_fields: '%.*s' is not a field of the log", SLICE_ARGS(node->text));
    return OK;
}

static enum status take_each(struct policy_reader *policy, const struct yaml_node *node,
    enum policy_key key, enum status (*take)(struct policy_reader *, const struct yaml_node *))
{
    enum status status = OK;
    if (node->kind == YAML_SCALAR && !yaml_is_null(node)) {
        return take(policy, node);
    }
    if (node->kind != YAML_LIST) {
        if (node->kind != YAML_BAD) {
            reader_fault(policy->reader, node, NULL, "%s must be a list", keys[key].path);
        }
        return OK;
    }
    for (const struct yaml_node *item = node->first; status == OK && item != NULL;
         item = item->next) {
        status = take(policy, item);
    }
    return status;
}

/* ---- conflicts --------------------------------------------------------------------------- */

static enum status take_status(struct policy_reader *policy, const struct yaml_node *node)
{
    uint64_t number = 0;
    if (!is_value(policy, node, KEY_STATUS)) {
        return OK;
    }
    if (!text_u64(node->text, &number) || (number != 400 && number != 409 && number != 422)) {
        reader_fault(policy->reader, node, "409, 422 or 400: those that clients know it by",
            "on_conflict.status: '%.*s' is not a status of a conflict", SLICE_ARGS(node->text));
        return OK;
    }
    policy->reader->config->raw->policy.conflict_status = (unsigned)number;
    return explain(policy, node, KEY_STATUS, false, "the same key with a different request gets %u",
        (unsigned)number);
}

static enum status take_diff(struct policy_reader *policy, const struct yaml_node *node)
{
    bool value = false;
    struct policy_raw *raw = &policy->reader->config->raw->policy;
    if (!read_bool(policy, node, KEY_INCLUDE_DIFF, &value)) {
        return OK;
    }
    raw->has_diff = true;
    raw->diff = value;
    return explain(policy, node, KEY_INCLUDE_DIFF, false,
        value ? "that answer has the differences of the two bodies, without redacted members"
              : "that answer says which parts differ, and not how");
}

/* ---- the file ---------------------------------------------------------------------------- */

static enum status take(
    struct policy_reader *policy, enum policy_key key, const struct yaml_node *value)
{
    static const struct days webhook = {KEY_WEBHOOK_DAYS, CONFIG_RETENTION_WEBHOOK, 7,
        WEBHOOK_DAYS_MAX, DAY_MS, "days",
        "senders repeat for days: 7 to 14 days, or their own horizon with a margin"};
    static const struct days api = {KEY_API_HOURS, CONFIG_RETENTION_API, 24, 72, HOUR_MS, "hours",
        "API writes are kept for 24 to 72 hours"};
    static const struct days batch = {KEY_BATCH_DAYS, CONFIG_RETENTION_BATCH, 1, BATCH_DAYS_MAX,
        DAY_MS, "days", "a batch is kept for its whole run and a day more"};
    switch (key) {
    case KEY_REQUIRE_HEADERS: return take_each(policy, value, key, take_header);
    case KEY_REJECT_ON_BODY_MISMATCH: return take_mismatch(policy, value);
    case KEY_FENCE: return take_fence(policy, value);
    case KEY_WEBHOOK_DAYS: return take_ttl(policy, value, &webhook);
    case KEY_API_HOURS: return take_ttl(policy, value, &api);
    case KEY_BATCH_DAYS: return take_ttl(policy, value, &batch);
    case KEY_INCLUDE_FIELDS: return take_each(policy, value, key, take_field);
    case KEY_STATUS: return take_status(policy, value);
    case KEY_INCLUDE_DIFF: return take_diff(policy, value);
    case KEYS: break;
    }
    return OK;
}

/* Whether the map of that name is present and empty: its indentation was lost. */
static bool is_flat(const struct policy_reader *policy, const char *map)
{
    for (const struct yaml_node *key = policy->root->first; key != NULL; key = key->next) {
        if (key->kind == YAML_SCALAR && slice_is(key->text, map) && yaml_is_null(key->value)) {
            return true;
        }
    }
    return false;
}

static enum policy_key key_in(
    const struct policy_reader *policy, const char *map, struct slice name)
{
    size_t key = 0;
    while (key < KEYS && !(slice_is(name, keys[key].name) &&
                             (strcmp(keys[key].map, map) == 0 ||
                                 (map[0] == '\0' && is_flat(policy, keys[key].map))))) {
        key++;
    }
    return (enum policy_key)key;
}

static void unknown(struct policy_reader *policy, const char *map, const struct yaml_node *key)
{
    const char *names[KEYS + MAPS];
    char hint[MEANING_BYTES_MAX];
    size_t count = 0;
    for (size_t i = 0; i < KEYS; i++) {
        if (slice_is(key->text, keys[i].name)) {
            (void)snprintf(hint, sizeof hint, "it belongs under '%s:', indented", keys[i].map);
            reader_fault(policy->reader, key, keys[i].map[0] == '\0' ? NULL : hint,
                "key '%s' is not at its place", keys[i].name);
            return;
        }
        if (strcmp(keys[i].map, map) == 0) {
            names[count++] = keys[i].name;
        }
    }
    for (size_t i = 0; map[0] == '\0' && i < MAPS; i++) {
        names[count++] = maps[i];
    }
    reader_unknown(policy->reader, key, names, count);
}

static const char *map_of(struct slice name)
{
    for (size_t i = 0; i < MAPS; i++) {
        if (slice_is(name, maps[i])) {
            return maps[i];
        }
    }
    return NULL;
}

static enum status take_map(
    struct policy_reader *policy, const char *map, const struct yaml_node *node);

static enum status take_key(
    struct policy_reader *policy, const char *map, const struct yaml_node *key)
{
    const char *inner = map[0] == '\0' ? map_of(key->text) : NULL;
    enum policy_key which = key_in(policy, map, key->text);
    if (which < KEYS) {
        return take(policy, which, key->value);
    }
    if (inner == NULL) {
        unknown(policy, map, key);
    } else if (key->value->kind == YAML_MAP) {
        return take_map(policy, inner, key->value);
    } else if (key->value->kind != YAML_BAD && !yaml_is_null(key->value)) {
        reader_fault(policy->reader, key->value, NULL, "%s must be a map", inner);
    }
    return OK;
}

static enum status take_map(
    struct policy_reader *policy, const char *map, const struct yaml_node *node)
{
    enum status status = OK;
    for (const struct yaml_node *key = node->first; status == OK && key != NULL; key = key->next) {
        if (key->kind == YAML_SCALAR) {
            status = take_key(policy, map, key);
        } else if (key->kind != YAML_BAD) {
            reader_fault(policy->reader, key, NULL, "a key must be a name");
        }
    }
    return status;
}

/* Copy the lines so far into the config. */
static enum status keep_lines(const struct policy_reader *policy)
{
    struct config_policy_line *lines = arena_alloc(
        &policy->reader->config->arena, (policy->count + 1) * sizeof(struct config_policy_line));
    if (lines == NULL) {
        return E_NOMEM;
    }
    memcpy(lines, policy->lines, policy->count * sizeof *lines);
    policy->reader->config->policy = (struct config_policy){.lines = lines, .count = policy->count};
    return OK;
}

enum status config_policy_read(
    struct config *config, struct slice text, struct config_faults *faults)
{
    struct config_reader reader = {.config = config, .faults = faults, .text = text};
    struct yaml_node *root = NULL;
    enum status status = reader_begin(&reader, &root);
    struct policy_reader policy = {.reader = &reader, .root = root};
    if (status == OK && root != NULL && root->kind == YAML_MAP) {
        status = take_map(&policy, "", root);
    } else if (status == OK && (root == NULL || root->kind != YAML_BAD)) {
        struct yaml_node place = {.line = 1, .column = 1};
        reader_fault(&reader, root == NULL ? &place : root,
            "such as require_headers: "
            "[Idempotency-Key]",
            "the policy file must be a map of rules");
    }
    if (status == OK) {
        config->raw->policy.is_here = true;
        status = keep_lines(&policy);
    }
    return reader_end(&reader, status);
}

bool policy_has(struct slice name)
{
    return map_of(name) != NULL || slice_is(name, keys[KEY_REQUIRE_HEADERS].name) ||
           slice_is(name, keys[KEY_REJECT_ON_BODY_MISMATCH].name);
}

/* A configuration with a policy rule in the wrong place is still a configuration. */
static bool has_rules(const struct yaml_node *root)
{
    bool is_policy = false;
    for (const struct yaml_node *key = root->first; key != NULL; key = key->next) {
        if (slice_is(key->text, "gateway") || slice_is(key->text, "listen") ||
            slice_is(key->text, "store")) {
            return false;
        }
        is_policy = is_policy || policy_has(key->text);
    }
    return is_policy;
}

bool config_is_policy(const struct mem *mem, struct slice text)
{
    struct config *config = NULL;
    struct config_faults unheard = {.count = 0};
    struct yaml_node *root = NULL;
    if (text.len > CONFIG_BYTES_MAX || config_new(mem, &config, NULL) != OK) {
        return false;
    }
    struct config_reader reader = {.config = config, .faults = &unheard, .text = text};
    bool is_policy = yaml_load(&reader, &root) == OK && root != NULL && root->kind == YAML_MAP &&
                     has_rules(root);
    config_free(config);
    return is_policy;
}
