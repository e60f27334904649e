#include "cli/given_outcome.h"

#include <string.h>

#include "base/limits.h"
#include "base/text.h"
#include "canon/json.h"
#include "canon/jsonw.h"
#include "cli/backend.h"
#include "cli/capture.h"
#include "cli/headers.h"
#include "server/server.h"

enum {
    META_BYTES_MAX = 2 * LIMIT_OUTCOME_META_BYTES_MAX, /* a longer one is refused */
    FOUND_BYTES_MAX = 4 << 20, /* an unknown operation: its first request and no outcome */
};

static int out_of_memory(void)
{
    cli_say("cannot read the outcome: out of memory");
    return CLI_UNAVAILABLE;
}

/* Copy a buffer's bytes into the arena. */
static int keep(struct cli *cli, struct buf *bytes, struct once_bytes *ret_bytes)
{
    struct slice kept = SLICE_EMPTY;
    bool is_kept = buf_status(bytes) == OK && arena_copy(&cli->arena, buf_view(bytes), &kept) == OK;
    buf_release(bytes);
    *ret_bytes = (struct once_bytes){kept.data, kept.len};
    return is_kept ? CLI_OK : out_of_memory();
}

/* FILE, @FILE, or - for standard input. */
static int read_file(struct cli *cli, struct slice *ret_bytes)
{
    const char *path = cli_text(cli, "outcome");
    if (path == NULL) {
        return CLI_OK;
    }
    int code = cli_read_file(cli, path[0] == '@' ? path + 1 : path, CAPTURE_BYTES_MAX, ret_bytes);
    if (code == CLI_IO) {
        cli_hint("--outcome names a file; for a text: printf '{…}' | once resolve … --outcome -");
    }
    return code;
}

/* ---- HTTP answers ------------------------------------------------------------------------ */

/* "Name: value" as a pair. */
static int put_pair(struct cli *cli, struct jsonw *json, const char *line)
{
    const char *colon = strchr(line, ':');
    if (colon == NULL || !text_utf8(slice_str(line))) {
        return cli_usage(cli, "%s: --header '%s' is not 'Name: value'", cli->command->name, line);
    }
    const char *value = colon + 1 + strspn(colon + 1, " \t");
    jsonw_open(json, NULL, '[');
    jsonw_bytes(json, NULL, slice_of(line, (size_t)(colon - line)));
    jsonw_bytes(json, NULL, slice_str(value));
    jsonw_close(json, ']');
    return CLI_OK;
}

/* The headers as a list of pairs. */
static int read_list(struct cli *cli, const struct json_value **ret_list)
{
    struct headers headers = {0};
    struct buf text;
    struct jsonw json = {.out = &text};
    struct once_bytes kept = {0};
    struct err err = {0};
    int code = headers_read(cli, &headers);
    if (code != CLI_OK) {
        return code;
    }
    buf_init(&text, &mem_libc, HEADERS_MAX * META_BYTES_MAX);
    jsonw_open(&json, NULL, '[');
    for (size_t i = 0; code == CLI_OK && i < headers.count; i++) {
        code = put_pair(cli, &json, headers.lines[i]);
    }
    jsonw_close(&json, ']');
    int kept_code = keep(cli, &text, &kept);
    code = code != CLI_OK ? code : kept_code;
    if (code == CLI_OK &&
        json_read(slice_of(kept.data, kept.size), &cli->arena, ret_list, &err) != OK) {
        return cli_fail_err(&err);
    }
    return code;
}

static int take_answer(struct cli *cli, struct slice body, struct once_outcome *ret_outcome)
{
    const struct json_value *list = NULL;
    const struct json_value *root = NULL;
    struct buf meta;
    struct err err = {0};
    uint64_t status = cli_count(cli, "http-status");
    if (body.len > 0 && (status == 204 || status == 304)) {
        return cli_usage(cli, "%s: an answer with status %d has no body: leave --outcome out",
            cli->command->name, (int)status);
    }
    int code = read_list(cli, &list);
    if (code != CLI_OK) {
        return code;
    }
    bool is_json = body.len > 0 && json_read(body, &cli->arena, &root, NULL) == OK;
    buf_init(&meta, &mem_libc, META_BYTES_MAX);
    if (server_answer_meta(list, is_json ? SLICE_LIT(OUTCOME_JSON_META) : SLICE_EMPTY, &cli->arena,
            &meta, &err) != OK) {
        buf_release(&meta);
        return cli_usage(cli, "%s: --header: %s", cli->command->name, err.text);
    }
    ret_outcome->code = (int)status;
    ret_outcome->body = (struct once_bytes){body.data, body.len};
    return keep(cli, &meta, &ret_outcome->meta);
}

/* ---- the outcome of a command, or JSON --------------------------------------------------- */

static int take_run(
    struct cli *cli, enum once_status status, struct slice output, struct once_outcome *ret_outcome)
{
    struct capture capture;
    struct buf json;
    const char *given = cli_text(cli, "exit-code");
    int exit_code = given != NULL           ? (int)cli_count(cli, "exit-code")
                    : status == ONCE_FAILED ? 1
                                            : 0;
    capture_init(&capture, CAPTURE_BYTES_MAX);
    buf_init(&json, &mem_libc, LIMIT_OUTCOME_BYTES_MAX);
    capture_add(&capture, CAPTURE_STDOUT, output);
    capture_json(&capture, exit_code, true, &json);
    capture_release(&capture);
    ret_outcome->code = exit_code;
    ret_outcome->meta = (struct once_bytes){OUTCOME_JSON_META, strlen(OUTCOME_JSON_META)};
    if (buf_status(&json) == E_LIMIT) {
        buf_release(&json);
        cli_say("the outcome is too large");
        return CLI_DATA;
    }
    return keep(cli, &json, &ret_outcome->body);
}

static int take_json(struct cli *cli, struct slice text, struct once_outcome *ret_outcome)
{
    struct err err = {0};
    const struct json_value *root = NULL;
    if (text.len == 0) {
        return CLI_OK;
    }
    if (json_read(text, &cli->arena, &root, &err) != OK) {
        err_prefix(&err, "the outcome must be JSON, unless --http-status or --exit-code is given");
        (void)cli_fail_err(&err);
        return CLI_DATA;
    }
    ret_outcome->meta = (struct once_bytes){OUTCOME_JSON_META, strlen(OUTCOME_JSON_META)};
    ret_outcome->body = (struct once_bytes){text.data, text.len};
    return CLI_OK;
}

/* ---- options ----------------------------------------------------------------------------- */

static int check_options(struct cli *cli, bool not_executed)
{
    const char *name = cli->command->name;
    bool has_http = cli_text(cli, "http-status") != NULL;
    bool has_exit = cli_text(cli, "exit-code") != NULL;
    if (not_executed && (has_http || has_exit || cli_text(cli, "outcome") != NULL)) {
        return cli_usage(cli,
            "%s: an operation not executed has no --outcome, --http-status or --exit-code", name);
    }
    if (has_http && has_exit) {
        return cli_usage(cli, "%s: give --http-status or --exit-code, not both", name);
    }
    if (has_http && (cli_count(cli, "http-status") < 200 || cli_count(cli, "http-status") > 599)) {
        return cli_usage(cli, "%s: --http-status is not from 200 to 599", name);
    }
    if (cli_flag(cli, "header") && !has_http) {
        return cli_usage(cli, "%s: --header needs --http-status", name);
    }
    if (has_exit && cli_count(cli, "exit-code") > 255) {
        return cli_usage(cli, "%s: --exit-code is more than 255", name);
    }
    return CLI_OK;
}

int given_outcome_read(struct cli *cli, enum once_status status, struct given_outcome *ret_given)
{
    int code = check_options(cli, status == ONCE_STATUS_RELEASED);
    *ret_given = (struct given_outcome){.status = status};
    return code != CLI_OK ? code : read_file(cli, &ret_given->bytes);
}

/* Whether once run made it: then its first request is the command. With a server this is not known
 * before it answers, so --exit-code says so. */
static int find_command(struct backend *backend, const char *operation_id, bool *ret_is_command)
{
    struct arena arena; /* one of many may be settled: nothing of it is kept */
    struct arena *kept = backend->found;
    const struct operation *operation = NULL;
    const struct json_value *root = NULL;
    if (backend->remote != NULL) {
        *ret_is_command = false;
        return CLI_OK;
    }
    arena_init(&arena, &mem_libc, FOUND_BYTES_MAX);
    backend->found = &arena;
    int code = backend->ops->get(backend, operation_id, &operation);
    backend->found = kept;
    *ret_is_command = code == CLI_OK && operation != NULL &&
                      json_read(operation->request, &arena, &root, NULL) == OK &&
                      json_find(root, SLICE_LIT("argv")) != NULL;
    arena_release(&arena);
    return code;
}

int given_outcome_make(struct cli *cli, const struct given_outcome *given, struct backend *backend,
    const char *operation_id, struct once_outcome *ret_outcome)
{
    bool is_command = cli_text(cli, "exit-code") != NULL;
    int code = CLI_OK;
    *ret_outcome = (struct once_outcome){0};
    if (given->status == ONCE_STATUS_RELEASED) {
        return CLI_OK;
    }
    if (cli_text(cli, "http-status") != NULL) {
        return take_answer(cli, given->bytes, ret_outcome);
    }
    if (!is_command) {
        code = find_command(backend, operation_id, &is_command);
    }
    return code != CLI_OK ? code
           : is_command   ? take_run(cli, given->status, given->bytes, ret_outcome)
                          : take_json(cli, given->bytes, ret_outcome);
}
