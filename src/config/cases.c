#include "config/cases.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "base/text.h"
#include "canon/json.h"
#include "canon/jsonw.h"
#include "config/impl.h"

enum { BODY_BYTES_MAX = 8 << 20, SCRATCH_BYTES_MAX = 1 << 20, NAMES_BYTES_MAX = 320 };

const char *const case_decisions[] = {"first_seen", "duplicate_replayed", "conflict_rejected",
    "in_progress", "held_unknown", "duplicate_refused", "passed_through", "refused", NULL};

static const char *const fails[] = {"none", "refuse", "reset", "timeout", "half", NULL};

/* ---- members ----------------------------------------------------------------------------- */

/* "a, b and their like", for hints. */
static void list_names(const char *const *names, char ret_text[NAMES_BYTES_MAX])
{
    size_t used = 0;
    ret_text[0] = '\0';
    for (size_t i = 0; names[i] != NULL; i++) {
        int more =
            snprintf(ret_text + used, NAMES_BYTES_MAX - used, "%s%s", i == 0 ? "" : ", ", names[i]);
        used += more > 0 ? (size_t)more : 0;
        ASSERT(used < NAMES_BYTES_MAX);
    }
}

static size_t count_of(const char *const *names)
{
    size_t count = 0;
    while (names[count] != NULL) {
        count++;
    }
    return count;
}

/* The number of a name; that of the NULL behind them when it is none, which was told. */
static size_t pick(
    struct reader *reader, const struct yaml_node *node, const char *what, const char *const *names)
{
    char hint[NAMES_BYTES_MAX + 32];
    size_t count = count_of(names);
    for (size_t i = 0; node->kind == YAML_SCALAR && i < count; i++) {
        if (slice_is(node->text, names[i])) {
            return i;
        }
    }
    if (node->kind == YAML_BAD) {
        return count; /* told already */
    }
    char list[NAMES_BYTES_MAX];
    list_names(names, list);
    const char *near =
        node->kind != YAML_SCALAR ? NULL : text_nearest(node->text.data, names, count);
    (void)snprintf(hint, sizeof hint, near == NULL ? "it is one of %s" : "did you mean '%s'?",
        near == NULL ? list : near);
    reader_fault(reader, node, hint, "%s '%.*s'", what,
        SLICE_ARGS(node->kind == YAML_SCALAR ? node->text : SLICE_LIT("(a map or a list)")));
    return count;
}

static bool is_map(struct reader *reader, const struct yaml_node *node, const char *what)
{
    if (node->kind != YAML_MAP && node->kind != YAML_BAD) {
        reader_fault(reader, node, NULL, "%s has to be a map", what);
    }
    return node->kind == YAML_MAP;
}

/* ---- values ------------------------------------------------------------------------------ */

/* A text without control characters, which would break a line of a message. */
static bool take_text(
    struct reader *reader, const struct yaml_node *node, const char *what, const char **ret_text)
{
    bool is_text = node->kind == YAML_SCALAR && !yaml_is_null(node);
    for (size_t i = 0; is_text && i < node->text.len; i++) {
        unsigned char c = (unsigned char)node->text.data[i];
        is_text = c >= ' ' && c != 127;
    }
    if (is_text) {
        *ret_text = node->text.data;
    } else if (node->kind != YAML_BAD) {
        reader_fault(reader, node, NULL, "%s has to be a text of one line", what);
    }
    return is_text;
}

static void take_bool(
    struct reader *reader, const struct yaml_node *node, const char *what, bool *ret_value)
{
    bool is_true = node->kind == YAML_SCALAR && slice_is(node->text, "true");
    bool is_false = node->kind == YAML_SCALAR && slice_is(node->text, "false");
    if (!is_true && !is_false && node->kind != YAML_BAD) {
        reader_fault(reader, node, NULL, "%s has to be true or false", what);
    }
    *ret_value = is_true;
}

static void take_count(struct reader *reader, const struct yaml_node *node, const char *what,
    const uint64_t range[2], uint64_t *ret_value)
{
    uint64_t value = 0;
    if (node->kind == YAML_SCALAR && text_u64(node->text, &value) && value >= range[0] &&
        value <= range[1]) {
        *ret_value = value;
    } else if (node->kind != YAML_BAD) {
        reader_fault(reader, node, NULL, "%s has to be a whole number from %llu to %llu", what,
            (unsigned long long)range[0], (unsigned long long)range[1]);
    }
}

static void take_status(
    struct reader *reader, const struct yaml_node *node, const char *what, unsigned *ret_status)
{
    static const uint64_t range[] = {200, 599};
    uint64_t status = *ret_status;
    take_count(reader, node, what, range, &status);
    *ret_status = (unsigned)status;
}

/* ---- bodies ------------------------------------------------------------------------------ */

static void put_text(struct buf *out, struct slice text)
{
    struct jsonw json = {.out = out};
    jsonw_bytes(&json, NULL, text);
}

/* What reads as a JSON null, truth or number is one; everything else is a text. */
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

/* As deep as the file, which is bounded (CONFIG_DEPTH_MAX). */
static enum status put_json(
    struct reader *reader, const struct yaml_node *node, struct arena *scratch, struct buf *out)
{
    enum status status = OK;
    if (node->kind == YAML_SCALAR) {
        return put_scalar(node, scratch, out);
    }
    if (node->kind == YAML_BAD) {
        return OK; /* told already */
    }
    buf_char(out, node->kind == YAML_MAP ? '{' : '[');
    for (const struct yaml_node *at = node->first; status == OK && at != NULL; at = at->next) {
        buf_str(out, at == node->first ? "" : ",");
        if (node->kind == YAML_MAP && at->kind != YAML_SCALAR && at->kind != YAML_BAD) {
            reader_fault(reader, at, NULL, "the name of a member has to be a text");
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
    struct reader *reader, const struct yaml_node *node, struct slice *ret_body)
{
    struct arena scratch;
    struct buf out;
    arena_init(&scratch, &mem_libc, SCRATCH_BYTES_MAX);
    buf_init(&out, &mem_libc, BODY_BYTES_MAX);
    enum status status = put_json(reader, node, &scratch, &out);
    status = status == OK ? buf_status(&out) : status;
    if (status == OK) {
        status = arena_copy(&reader->config->arena, buf_view(&out), ret_body);
    }
    buf_release(&out);
    arena_release(&scratch);
    return status;
}

/* A member that two messages have. */
struct content {
    struct slice *body;
    bool *has_body;
    bool *is_json;
};

static enum status take_body(
    struct reader *reader, const struct yaml_node *key, bool is_json, const struct content *content)
{
    const struct yaml_node *node = key->value;
    if (*content->has_body) {
        reader_fault(
            reader, key, NULL, "there is a body already: body and json are two forms of it");
        return OK;
    }
    *content->has_body = true;
    *content->is_json = is_json;
    if (is_json) {
        return take_json(reader, node, content->body);
    }
    if (node->kind == YAML_SCALAR) {
        *content->body = yaml_is_null(node) ? SLICE_EMPTY : node->text;
    } else if (node->kind != YAML_BAD) {
        reader_fault(reader, node, "json: takes maps and lists", "body has to be a text");
    }
    return OK;
}

/* ---- header fields ----------------------------------------------------------------------- */

/* What frames a message is not for a case to say: it would never end, or have two readings. */
static bool is_framing(const char *name)
{
    return strcasecmp(name, "Content-Length") == 0 || strcasecmp(name, "Transfer-Encoding") == 0 ||
           strcasecmp(name, "Connection") == 0 || strcasecmp(name, "Expect") == 0;
}

static void add_header(struct reader *reader, const struct yaml_node *key,
    const struct yaml_node *node, struct case_headers *headers)
{
    const char *value = NULL;
    if (headers->count == CASE_HEADERS_MAX) {
        reader_fault(reader, key, NULL, "more than %d fields", CASE_HEADERS_MAX);
        return;
    }
    if (take_text(reader, node, "the value of a field", &value)) {
        headers->items[headers->count++] = (struct case_header){key->text.data, value};
    }
}

/* A list is several fields of one name. may_be_absent: null means that there is none. */
static void take_headers(struct reader *reader, const struct yaml_node *map, bool may_be_absent,
    struct case_headers *headers)
{
    if (!is_map(reader, map, "headers")) {
        return;
    }
    for (const struct yaml_node *key = map->first; key != NULL; key = key->next) {
        const struct yaml_node *value = key->value;
        bool is_name = key->kind == YAML_SCALAR && value_form_is_token(key->text);
        if (!is_name || (!may_be_absent && is_framing(key->text.data))) {
            reader_fault(reader, key, NULL,
                is_name ? "'%.*s' is said by the body itself" : "'%.*s' is not the name of a field",
                SLICE_ARGS(key->text));
        } else if (may_be_absent && yaml_is_null(value) && headers->count < CASE_HEADERS_MAX) {
            headers->items[headers->count++] = (struct case_header){key->text.data, NULL};
        } else if (value->kind == YAML_LIST && !may_be_absent) {
            for (const struct yaml_node *at = value->first; at != NULL; at = at->next) {
                add_header(reader, key, at, headers);
            }
        } else {
            add_header(reader, key, value, headers);
        }
    }
}

/* ---- a step ------------------------------------------------------------------------------ */

enum { REQUEST_METHOD, REQUEST_PATH, REQUEST_HEADERS, REQUEST_BODY, REQUEST_JSON };
static const char *const request_names[] = {"method", "path", "headers", "body", "json", NULL};

static void take_method(
    struct reader *reader, const struct yaml_node *node, struct case_request *request)
{
    if (take_text(reader, node, "method", &request->method) && !value_form_is_token(node->text)) {
        reader_fault(reader, node, "such as POST", "'%s' is not a method", request->method);
    }
}

static void take_path(
    struct reader *reader, const struct yaml_node *node, struct case_request *request)
{
    bool is_path = take_text(reader, node, "path", &request->path);
    if (is_path && (request->path[0] != '/' || strpbrk(request->path, " #") != NULL)) {
        reader_fault(
            reader, node, "such as /v1/payments?dry=1", "'%s' is not a path", request->path);
    }
}

static enum status take_request_member(
    struct reader *reader, const struct yaml_node *key, struct case_request *request)
{
    struct content content = {&request->body, &request->has_body, &request->is_json};
    switch (pick(reader, key, "unknown key", request_names)) {
    case REQUEST_METHOD: take_method(reader, key->value, request); break;
    case REQUEST_PATH: take_path(reader, key->value, request); break;
    case REQUEST_HEADERS: take_headers(reader, key->value, false, &request->headers); break;
    case REQUEST_BODY: return take_body(reader, key, false, &content);
    case REQUEST_JSON: return take_body(reader, key, true, &content);
    default: break; /* told */
    }
    return OK;
}

static enum status take_request(
    struct reader *reader, const struct yaml_node *node, const struct case_request **ret_request)
{
    enum status status = OK;
    struct case_request *request = arena_zalloc(&reader->config->arena, sizeof *request);
    if (request == NULL) {
        return E_NOMEM;
    }
    request->method = "POST";
    *ret_request = request;
    if (!is_map(reader, node, "request")) {
        return OK;
    }
    for (const struct yaml_node *key = node->first; status == OK && key != NULL; key = key->next) {
        status = take_request_member(reader, key, request);
    }
    if (request->path == NULL) {
        reader_fault(reader, node, "such as path: /v1/payments", "the request has no path");
        request->path = "/";
    }
    return status;
}

enum {
    UPSTREAM_STATUS,
    UPSTREAM_HEADERS,
    UPSTREAM_BODY,
    UPSTREAM_JSON,
    UPSTREAM_FAIL,
    UPSTREAM_WAITS,
    UPSTREAM_RECONCILE,
};
static const char *const upstream_names[] = {
    "status", "headers", "body", "json", "fail", "waits", "reconcile", NULL};

static enum status take_upstream(
    struct reader *reader, const struct yaml_node *node, struct case_upstream *upstream);

/* An answer like any other, but that it can neither fail nor wait. */
static enum status take_reconcile(
    struct reader *reader, const struct yaml_node *node, struct case_upstream *upstream)
{
    struct case_upstream *reconcile = arena_zalloc(&reader->config->arena, sizeof *reconcile);
    if (reconcile == NULL) {
        return E_NOMEM;
    }
    reconcile->status = 200;
    upstream->reconcile = reconcile;
    enum status status = take_upstream(reader, node, reconcile);
    if (reconcile->waits || reconcile->fail != CASE_FAIL_NONE || reconcile->reconcile != NULL) {
        reader_fault(reader, node, NULL, "reconcile has a status, headers, and a body or json");
    }
    return status;
}

static enum status take_upstream_member(
    struct reader *reader, const struct yaml_node *key, struct case_upstream *upstream)
{
    struct content content = {&upstream->body, &upstream->has_body, &upstream->is_json};
    const struct yaml_node *value = key->value;
    size_t fail = 0;
    switch (pick(reader, key, "unknown key", upstream_names)) {
    case UPSTREAM_STATUS: take_status(reader, value, "status", &upstream->status); break;
    case UPSTREAM_HEADERS: take_headers(reader, value, false, &upstream->headers); break;
    case UPSTREAM_BODY: return take_body(reader, key, false, &content);
    case UPSTREAM_JSON: return take_body(reader, key, true, &content);
    case UPSTREAM_FAIL:
        fail = pick(reader, value, "unknown failure", fails);
        upstream->fail = fails[fail] == NULL ? CASE_FAIL_NONE : (enum case_fail)fail;
        break;
    case UPSTREAM_WAITS: take_bool(reader, value, "waits", &upstream->waits); break;
    case UPSTREAM_RECONCILE: return take_reconcile(reader, value, upstream);
    default: break; /* told */
    }
    return OK;
}

static enum status take_upstream(
    struct reader *reader, const struct yaml_node *node, struct case_upstream *upstream)
{
    enum status status = OK;
    if (!is_map(reader, node, "upstream")) {
        return OK;
    }
    for (const struct yaml_node *key = node->first; status == OK && key != NULL; key = key->next) {
        status = take_upstream_member(reader, key, upstream);
    }
    if (upstream->waits && upstream->fail != CASE_FAIL_NONE) {
        reader_fault(reader, node, NULL, "the upstream either fails or waits");
    }
    return status;
}

enum {
    EXPECT_STATUS,
    EXPECT_DECISION,
    EXPECT_REPLAYED,
    EXPECT_EFFECTS,
    EXPECT_CODE,
    EXPECT_ROUTE,
    EXPECT_BODY_CONTAINS,
    EXPECT_HEADER,
};
static const char *const expect_names[] = {
    "status", "decision", "replayed", "effects", "code", "route", "body_contains", "header", NULL};

static void take_expect_member(
    struct reader *reader, const struct yaml_node *key, struct case_expect *expect)
{
    static const uint64_t any[] = {0, 1000000};
    const struct yaml_node *value = key->value;
    switch (pick(reader, key, "unknown key", expect_names)) {
    case EXPECT_STATUS: take_status(reader, value, "status", &expect->status); break;
    case EXPECT_DECISION:
        expect->decision = case_decisions[pick(reader, value, "unknown decision", case_decisions)];
        break;
    case EXPECT_REPLAYED:
        expect->has_replayed = true;
        take_bool(reader, value, "replayed", &expect->replayed);
        break;
    case EXPECT_EFFECTS:
        expect->has_effects = true;
        take_count(reader, value, "effects", any, &expect->effects);
        break;
    case EXPECT_CODE: (void)take_text(reader, value, "code", &expect->code); break;
    case EXPECT_ROUTE: (void)take_text(reader, value, "route", &expect->route); break;
    case EXPECT_BODY_CONTAINS:
        (void)take_text(reader, value, "body_contains", &expect->body_contains);
        break;
    case EXPECT_HEADER: take_headers(reader, value, true, &expect->headers); break;
    default: break; /* told */
    }
}

/* A step that expects nothing prepares others; one that says so and names nothing is a mistake. */
static void take_expect(
    struct reader *reader, const struct yaml_node *node, struct case_expect *expect)
{
    if (!is_map(reader, node, "expect")) {
        return;
    }
    if (node->first == NULL) {
        reader_fault(reader, node, "leave it out where anything may come", "expect is empty");
    }
    for (const struct yaml_node *key = node->first; key != NULL; key = key->next) {
        take_expect_member(reader, key, expect);
    }
}

enum { STEP_REQUEST, STEP_UPSTREAM, STEP_REPEAT, STEP_EXPECT };
static const char *const step_names[] = {"request", "upstream", "repeat", "expect", NULL};

static enum status take_step(
    struct reader *reader, const struct yaml_node *node, struct case_step *step)
{
    static const uint64_t times[] = {1, CASE_REPEAT_MAX};
    enum status status = OK;
    step->line = node->line;
    step->repeat = 1;
    step->upstream.status = 200;
    if (!is_map(reader, node, "a step")) {
        return OK;
    }
    for (const struct yaml_node *key = node->first; status == OK && key != NULL; key = key->next) {
        switch (pick(reader, key, "unknown key", step_names)) {
        case STEP_REQUEST: status = take_request(reader, key->value, &step->request); break;
        case STEP_UPSTREAM: status = take_upstream(reader, key->value, &step->upstream); break;
        case STEP_REPEAT: take_count(reader, key->value, "repeat", times, &step->repeat); break;
        case STEP_EXPECT: take_expect(reader, key->value, &step->expect); break;
        default: break; /* told */
        }
    }
    if (status == OK && step->request == NULL) {
        reader_fault(reader, node, "later ones repeat that of the step before",
            "the first step needs a request");
    }
    if (step->repeat > 1 && step->upstream.waits) {
        reader_fault(reader, node, NULL, "a step that waits cannot be repeated");
    }
    return status;
}

/* ---- the file ---------------------------------------------------------------------------- */

static bool is_list(
    struct reader *reader, const struct yaml_node *node, const char *what, size_t count_max)
{
    if (node->kind != YAML_LIST || node->first == NULL) {
        if (node->kind != YAML_BAD) {
            reader_fault(reader, node, NULL, "%s has to be a list of at least one", what);
        }
        return false;
    }
    if (node->count > count_max) {
        reader_fault(reader, node, NULL, "%s: more than %zu", what, count_max);
        return false;
    }
    return true;
}

static enum status take_steps(
    struct reader *reader, const struct yaml_node *node, struct config_case *one)
{
    enum status status = OK;
    if (!is_list(reader, node, "steps", CASE_STEPS_MAX)) {
        return OK;
    }
    struct case_step *steps = arena_zalloc(&reader->config->arena, node->count * sizeof *steps);
    if (steps == NULL) {
        return E_NOMEM;
    }
    one->steps = steps;
    for (const struct yaml_node *at = node->first; status == OK && at != NULL; at = at->next) {
        struct case_step *step = &steps[one->step_count++];
        step->request = one->step_count > 1 ? step[-1].request : NULL;
        status = take_step(reader, at, step);
    }
    return status;
}

enum { CASE_NAME, CASE_STEPS };
static const char *const case_names[] = {"name", "steps", NULL};

static enum status take_case(
    struct reader *reader, const struct yaml_node *node, struct config_case *one)
{
    enum status status = OK;
    bool has_steps = false;
    one->line = node->line;
    if (!is_map(reader, node, "a case")) {
        return OK;
    }
    for (const struct yaml_node *key = node->first; status == OK && key != NULL; key = key->next) {
        switch (pick(reader, key, "unknown key", case_names)) {
        case CASE_NAME: (void)take_text(reader, key->value, "name", &one->name); break;
        case CASE_STEPS:
            has_steps = true;
            status = take_steps(reader, key->value, one);
            break;
        default: break; /* told */
        }
    }
    if (one->name == NULL) {
        reader_fault(reader, node, "name: what it shows", "the case has no name");
    }
    if (!has_steps) {
        reader_fault(reader, node, NULL, "the case has no steps");
    }
    return status;
}

static enum status take_cases(
    struct reader *reader, const struct yaml_node *root, struct config_cases *ret_cases)
{
    enum status status = OK;
    if (!is_list(reader, root, "the file", CASES_MAX)) {
        return OK;
    }
    struct config_case *cases = arena_zalloc(&reader->config->arena, root->count * sizeof *cases);
    if (cases == NULL) {
        return E_NOMEM;
    }
    ret_cases->items = cases;
    for (const struct yaml_node *at = root->first; status == OK && at != NULL; at = at->next) {
        status = take_case(reader, at, &cases[ret_cases->count++]);
    }
    return status;
}

enum status config_cases_read(struct config *config, struct slice text,
    struct config_cases *ret_cases, struct config_faults *faults)
{
    static const struct yaml_node nothing = {.kind = YAML_SCALAR, .line = 1, .column = 1};
    struct reader reader = {.config = config, .faults = faults, .text = text};
    struct yaml_node *root = NULL;
    struct config_cases cases = {.count = 0};
    size_t first = faults->count;
    size_t before = faults->count + faults->more;
    if (text.len > CONFIG_BYTES_MAX) {
        struct config_fault fault = {.line = 1, .column = 1};
        config_fault_add(
            config, faults, &fault, "the file is larger than %d bytes", CONFIG_BYTES_MAX);
        return E_INVALID;
    }
    enum status status = yaml_load(&reader, &root);
    status = status == OK ? take_cases(&reader, root == NULL ? &nothing : root, &cases) : status;
    faults_sort(faults, first);
    if (status == OK && faults->count + faults->more > before) {
        return E_INVALID;
    }
    if (status == OK) {
        *ret_cases = cases;
    }
    return status;
}
