#include "config/cases.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "canon/json.h"
#include "canon/jsonw.h"
#include "config/impl.h"

enum { BODY_BYTES_MAX = 8 << 20, SCRATCH_BYTES_MAX = 1 << 20, EFFECTS_MAX = 1000000 };

/* ---- bodies ------------------------------------------------------------------------------ */

static void put_text(struct buf *out, struct slice text)
{
    struct jsonw json = {.out = out};
    jsonw_bytes(&json, NULL, text);
}

/* A scalar that reads as JSON null, true, false or a number is that; any other is a text. */
static enum status put_scalar(const struct yaml_node *node, struct arena *scratch, struct buf *out)
{
    const struct json_value *value = NULL;
    struct err err;
    if (!node->is_plain) {
        put_text(out, node->text);
        return OK;
    }
    if (yaml_is_null(node)) {
        buf_str(out, "null");
        return OK;
    }
    enum status status = json_read(node->text, scratch, &value, &err);
    bool is_literal = status == OK && !json_is(value, JSON_STRING) &&
                      !json_is(value, JSON_OBJECT) && !json_is(value, JSON_ARRAY);
    if (is_literal) {
        buf_slice(out, node->text);
    } else {
        put_text(out, node->text);
    }
    arena_clear(scratch);
    return status == E_NOMEM ? status : OK;
}

/* Recursion is bounded by the file's depth (CONFIG_DEPTH_MAX). */
static enum status put_json(struct config_reader *reader, const struct yaml_node *node,
    struct arena *scratch, struct buf *out)
{
    enum status status = OK;
    if (node->kind == YAML_SCALAR) {
        return put_scalar(node, scratch, out);
    }
    if (node->kind == YAML_BAD) {
        return OK; /* reported already */
    }
    buf_char(out, node->kind == YAML_MAP ? '{' : '[');
    for (const struct yaml_node *at = node->first; status == OK && at != NULL; at = at->next) {
        buf_str(out, at == node->first ? "" : ",");
        if (node->kind == YAML_MAP && at->kind != YAML_SCALAR && at->kind != YAML_BAD) {
            reader_fault(reader, at, NULL, "the name of a member must be a text");
        }
        if (node->kind == YAML_MAP) {
            put_text(out, at->text);
            buf_char(out, ':');
        }
        status = put_json(reader, node->kind == YAML_MAP ? at->value : at, scratch, out);
    }
    buf_char(out, node->kind == YAML_MAP ? '}' : ']');
    return status;
}

static enum status take_json(
    struct config_reader *reader, const struct yaml_node *node, struct slice *ret_body)
{
    struct arena scratch;
    struct buf json;
    arena_init(&scratch, &mem_libc, SCRATCH_BYTES_MAX);
    buf_init(&json, &mem_libc, BODY_BYTES_MAX);
    enum status status = put_json(reader, node, &scratch, &json);
    if (status != OK) {
        goto out;
    }
    status = buf_status(&json);
    if (status != OK) {
        goto out;
    }
    status = arena_copy(&reader->config->arena, buf_view(&json), ret_body);
out:
    buf_release(&json);
    arena_release(&scratch);
    return status;
}

/* A body has two forms; a message may have only one of them. */
static bool takes_body(
    struct config_reader *reader, const struct yaml_node *key, struct case_content *content)
{
    bool is_first = !content->has_body;
    if (!is_first) {
        reader_fault(
            reader, key, NULL, "there is a body already: body and json are two forms of it");
    }
    content->has_body = true;
    return is_first;
}

static enum status read_json(
    struct config_reader *reader, const struct yaml_node *key, void *member)
{
    struct case_content *content = member;
    if (!takes_body(reader, key, content)) {
        return OK;
    }
    content->is_json = true;
    return take_json(reader, key->value, &content->body);
}

static enum status read_body(
    struct config_reader *reader, const struct yaml_node *key, void *member)
{
    struct case_content *content = member;
    const struct yaml_node *node = key->value;
    if (!takes_body(reader, key, content)) {
        return OK;
    }
    if (node->kind == YAML_SCALAR) {
        content->body = yaml_is_null(node) ? SLICE_EMPTY : node->text;
    } else if (node->kind != YAML_BAD) {
        reader_fault(reader, node, "json: takes maps and lists", "body must be a text");
    }
    return OK;
}

/* ---- header fields ----------------------------------------------------------------------- */

/* A case must not set the fields that frame a message: it would never end, or have two readings. */
static bool is_framing(const char *name)
{
    return strcasecmp(name, "Content-Length") == 0 || strcasecmp(name, "Transfer-Encoding") == 0 ||
           strcasecmp(name, "Connection") == 0 || strcasecmp(name, "Expect") == 0;
}

bool case_headers_have(const struct case_headers *headers, const char *name)
{
    for (size_t i = 0; i < headers->count; i++) {
        if (strcasecmp(headers->items[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Add a field. A value is a text without control characters, which would break the message. */
static void add_header(struct config_reader *reader, const struct yaml_node *key,
    const struct yaml_node *node, struct case_headers *headers)
{
    bool is_text =
        node->kind == YAML_SCALAR && !yaml_is_null(node) && value_form_is_line(node->text);
    if (node->kind == YAML_BAD) {
        return;
    }
    if (headers->count == CASE_HEADERS_MAX) {
        reader_fault(reader, key, NULL, "more than %d fields", CASE_HEADERS_MAX);
    } else if (!is_text) {
        reader_fault(reader, node, NULL, "the value of a field must be a text of one line");
    } else {
        headers->items[headers->count++] = (struct case_header){key->text.data, node->text.data};
    }
}

/* A list means several fields of one name. is_expected: null means that the field is absent. */
static void add_headers(struct config_reader *reader, const struct yaml_node *key, bool is_expected,
    struct case_headers *headers)
{
    const struct yaml_node *value = key->value;
    bool is_name = key->kind == YAML_SCALAR && value_form_is_token(key->text);
    if (!is_name || (!is_expected && is_framing(key->text.data))) {
        reader_fault(reader, key, NULL,
            is_name ? "'%.*s' is set by the body itself" : "'%.*s' is not the name of a field",
            SLICE_ARGS(key->text));
    } else if (is_expected && yaml_is_null(value) && headers->count < CASE_HEADERS_MAX) {
        headers->items[headers->count++] = (struct case_header){key->text.data, NULL};
    } else if (value->kind == YAML_LIST && !is_expected) {
        for (const struct yaml_node *at = value->first; at != NULL; at = at->next) {
            add_header(reader, key, at, headers);
        }
    } else {
        add_header(reader, key, value, headers);
    }
}

static void take_headers(
    struct config_reader *reader, const struct yaml_node *map, bool is_expected, void *headers)
{
    if (map->kind != YAML_MAP && map->kind != YAML_BAD) {
        reader_fault(reader, map, NULL, "headers must be a map");
    }
    for (const struct yaml_node *key = map->kind == YAML_MAP ? map->first : NULL; key != NULL;
         key = key->next) {
        add_headers(reader, key, is_expected, headers);
    }
}

static enum status read_headers(
    struct config_reader *reader, const struct yaml_node *key, void *member)
{
    take_headers(reader, key->value, false, member);
    return OK;
}

static enum status read_expected_headers(
    struct config_reader *reader, const struct yaml_node *key, void *member)
{
    take_headers(reader, key->value, true, member);
    return OK;
}

/* ---- the parts of a step ----------------------------------------------------------------- */

/* Read a map whose members are rows, after setting the defaults. */
static enum status read_part(struct config_reader *reader, const struct yaml_node *key,
    const struct config_option *options, void *object)
{
    struct map_scope scope = {.options = options, .prefix = "", .object = object};
    enum status status = value_defaults(&scope, reader->config);
    return status == OK ? map_read_value(reader, &scope, key) : status;
}

#define REQUEST(member)  .offset = offsetof(struct case_request, member)
#define UPSTREAM(member) .offset = offsetof(struct case_upstream, member)
#define EXPECT(member)   .offset = offsetof(struct case_expect, member)
#define STEP(member)     .offset = offsetof(struct case_step, member)
#define CASE(member)     .offset = offsetof(struct config_case, member)

static const struct config_option request_rows[] = {
    ROW("method", TEXT, REQUEST(method), .form = CONFIG_FORM_METHOD, .fallback = "POST"),
    ROW("path", TEXT, REQUEST(path), .form = CONFIG_FORM_TARGET, .is_required = true,
        .example = "/v1/payments"),
    ROW("headers", OWN, REQUEST(content.headers), .read = read_headers),
    ROW("body", OWN, REQUEST(content), .read = read_body),
    ROW("json", OWN, REQUEST(content), .read = read_json),
    {0},
};

static enum status read_request(
    struct config_reader *reader, const struct yaml_node *key, void *member)
{
    struct case_request *request = arena_zalloc(&reader->config->arena, sizeof *request);
    if (request == NULL) {
        return E_NOMEM;
    }
    *(const struct case_request **)member = request;
    enum status status = read_part(reader, key, request_rows, request);
    if (status == OK && key->value->kind == YAML_MAP) {
        map_require(reader, request_rows, "request", key->value);
    }
    return status;
}

static enum status read_reconcile(
    struct config_reader *reader, const struct yaml_node *key, void *member);

static const struct config_option upstream_rows[] = {
    ROW("status", COUNT, UPSTREAM(status), .fallback = "200", .min = 200, .max = 599),
    ROW("headers", OWN, UPSTREAM(content.headers), .read = read_headers),
    ROW("body", OWN, UPSTREAM(content), .read = read_body),
    ROW("json", OWN, UPSTREAM(content), .read = read_json),
    ROW("fail", CHOICE, UPSTREAM(fail), .choices = {"none", "refuse", "reset", "timeout", "half"}),
    ROW("waits", BOOL, UPSTREAM(waits)),
    ROW("reconcile", OWN, UPSTREAM(reconcile), .read = read_reconcile),
    {0},
};

/* An answer like any other, but it can neither fail nor wait. */
static enum status read_reconcile(
    struct config_reader *reader, const struct yaml_node *key, void *member)
{
    struct case_upstream *reconcile = arena_zalloc(&reader->config->arena, sizeof *reconcile);
    if (reconcile == NULL) {
        return E_NOMEM;
    }
    *(const struct case_upstream **)member = reconcile;
    enum status status = read_part(reader, key, upstream_rows, reconcile);
    if (reconcile->waits || reconcile->fail != CASE_FAIL_NONE || reconcile->reconcile != NULL) {
        reader_fault(
            reader, key->value, NULL, "reconcile has a status, headers, and a body or json");
    }
    return status;
}

static enum status read_upstream(
    struct config_reader *reader, const struct yaml_node *key, void *member)
{
    struct case_upstream *upstream = member;
    enum status status = read_part(reader, key, upstream_rows, upstream);
    if (upstream->waits && upstream->fail != CASE_FAIL_NONE) {
        reader_fault(reader, key->value, NULL, "the upstream either fails or waits");
    }
    return status;
}

static const struct config_option expect_rows[] = {
    ROW("status", COUNT, EXPECT(status), .min = 200, .max = 599),
    ROW("decision", CHOICE, EXPECT(decision),
        .choices = {"any", "first_seen", "duplicate_replayed", "conflict_rejected", "in_progress",
            "held_unknown", "duplicate_refused", "passed_through", "refused"}),
    ROW("replayed", CHOICE, EXPECT(replayed), .choices = {"any", "true", "false"}),
    ROW("effects", COUNT, EXPECT(effects), .max = EFFECTS_MAX),
    ROW("code", TEXT, EXPECT(code), .form = CONFIG_FORM_LINE),
    ROW("route", TEXT, EXPECT(route), .form = CONFIG_FORM_LINE),
    ROW("body_contains", TEXT, EXPECT(body_contains), .form = CONFIG_FORM_LINE),
    ROW("header", OWN, EXPECT(headers), .read = read_expected_headers),
    {0},
};

const char *case_decision(unsigned decision)
{
    return decision == 0 ? NULL : expect_rows[1].choices[decision];
}

/* A step without `expect` prepares later ones; an `expect` that names nothing is a mistake. */
static enum status read_expect(
    struct config_reader *reader, const struct yaml_node *key, void *member)
{
    if (key->value->kind == YAML_MAP && key->value->first == NULL) {
        reader_fault(reader, key->value, "leave it out where anything may come", "expect is empty");
    }
    return read_part(reader, key, expect_rows, member);
}

/* ---- steps and cases --------------------------------------------------------------------- */

static const struct config_option step_rows[] = {
    ROW("request", OWN, STEP(request), .read = read_request),
    ROW("upstream", OWN, STEP(upstream), .read = read_upstream),
    ROW("repeat", COUNT, STEP(repeat), .fallback = "1", .min = 1, .max = CASE_REPEAT_MAX),
    ROW("expect", OWN, STEP(expect), .read = read_expect),
    {0},
};

static enum status read_step(
    struct config_reader *reader, const struct yaml_node *map, void *items, size_t index)
{
    struct case_step *step = (struct case_step *)items + index;
    struct map_scope scope = {.options = step_rows, .prefix = "", .object = step};
    step->line = map->line;
    step->request = index > 0 ? step[-1].request : NULL;
    step->upstream.status = 200;
    step->expect.effects = CASE_EFFECTS_ANY;
    enum status status = value_defaults(&scope, reader->config);
    if (status == OK) {
        status = map_read(reader, &scope, map);
    }
    if (status == OK && step->request == NULL) {
        reader_fault(reader, map, "later ones repeat that of the step before",
            "the first step needs a request");
    }
    if (step->repeat > 1 && step->upstream.waits) {
        reader_fault(reader, map, NULL, "a step that waits cannot be repeated");
    }
    return status;
}

static enum status read_steps(
    struct config_reader *reader, const struct yaml_node *key, void *object)
{
    static const struct list_shape shape = {.name = "steps",
        .one = "step",
        .item_bytes = sizeof(struct case_step),
        .count_max = CASE_STEPS_MAX,
        .read = read_step};
    struct config_case *one = object;
    void *steps = NULL;
    enum status status = list_read(reader, &shape, key->value, &steps, &one->step_count);
    one->steps = steps;
    return status;
}

static const struct config_option case_rows[] = {
    ROW("name", TEXT, CASE(name), .form = CONFIG_FORM_LINE, .is_required = true,
        .example = "what it shows"),
    ROW("steps", OWN, .read = read_steps, .is_required = true),
    {0},
};

static enum status read_case(
    struct config_reader *reader, const struct yaml_node *map, void *items, size_t index)
{
    struct config_case *one = (struct config_case *)items + index;
    struct map_scope scope = {.options = case_rows, .prefix = "", .object = one};
    one->line = map->line;
    enum status status = map_read(reader, &scope, map);
    if (status == OK) {
        map_require(reader, case_rows, "case", map);
    }
    return status;
}

enum status config_cases_read(struct config *config, struct slice text,
    struct config_cases *ret_cases, struct config_faults *faults)
{
    static const struct yaml_node nothing = {.kind = YAML_SCALAR, .line = 1, .column = 1};
    static const struct list_shape shape = {.name = "the file",
        .one = "case",
        .item_bytes = sizeof(struct config_case),
        .count_max = CASES_MAX,
        .read = read_case};
    struct config_reader reader = {.config = config, .faults = faults, .text = text};
    struct yaml_node *root = NULL;
    void *items = NULL;
    size_t count = 0;
    enum status status = reader_begin(&reader, &root);
    if (status == OK) {
        status = list_read(&reader, &shape, root == NULL ? &nothing : root, &items, &count);
    }
    status = reader_end(&reader, status);
    if (status == OK) {
        *ret_cases = (struct config_cases){.items = items, .count = count};
    }
    return status;
}
