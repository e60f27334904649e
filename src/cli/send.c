/* once send: sends one request through the SDK (once/client.h), and does nothing beyond the SDK. */
#include <once/client.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/headers.h"
#include "cli/out.h"

enum {
    DATA_BYTES_MAX = 16 << 20,           /* of a request; a gateway takes 10 MiB by default */
    JSON_BYTES_MAX = 8 * DATA_BYTES_MAX, /* of the output of --json: one byte may become six */
};

/* ---- what to send ------------------------------------------------------------------------ */

/* @FILE, - or the text itself. */
static int read_data(struct cli *cli, struct once_bytes *ret_body)
{
    const char *data = cli_text(cli, "data");
    struct slice bytes = slice_str(data);
    int code = CLI_OK;
    if (data != NULL && data[0] == '@') {
        code = cli_read_file(cli, data + 1, DATA_BYTES_MAX, &bytes);
    } else if (data != NULL && strcmp(data, "-") == 0) {
        code = cli_read_stdin(cli, DATA_BYTES_MAX, &bytes);
    }
    if (code == CLI_OK) {
        *ret_body = (struct once_bytes){bytes.data, bytes.len};
    }
    return code;
}

static bool is_read(const char *method)
{
    return strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0 ||
           strcmp(method, "OPTIONS") == 0 || strcmp(method, "TRACE") == 0;
}

/* The key is reported before anything is sent: whatever happens, the request can be continued. */
static int choose_key(struct cli *cli, struct once_client *client, const char *method,
    char made[ONCE_CLIENT_KEY_SIZE], const char **ret_key)
{
    struct once_error error;
    const char *given = cli_text(cli, "idempotency-key");
    *ret_key = given;
    if (is_read(method)) {
        if (given != NULL) {
            cli_say("%s changes nothing: the key is not sent", method);
        }
        return CLI_OK;
    }
    if (given != NULL) {
        return CLI_OK;
    }
    if (once_client_key(client, made, &error) != ONCE_OK) {
        return cli_fail(&error);
    }
    cli_say("the key of this operation is %s", made);
    *ret_key = made;
    return CLI_OK;
}

/* ---- the result -------------------------------------------------------------------------- */

/* A word from outside, made safe for a terminal. */
static const char *printable(const char *word)
{
    return strspn(word, "abcdefghijklmnopqrstuvwxyz_") == strlen(word) ? word : "?";
}

static void show_attempt(void *context, const struct once_attempt *attempt)
{
    (void)context;
    if (attempt->status == 0) {
        cli_say("attempt %d: %s", attempt->number, attempt->why);
    } else {
        cli_say("attempt %d: %d%s%s", attempt->number, attempt->status,
            attempt->decision[0] == '\0' ? "" : " ", printable(attempt->decision));
    }
    if (attempt->sleep_ms >= 0) {
        cli_say("again in %lld ms", (long long)attempt->sleep_ms);
    }
}

static void put_headers(struct jsonw *json, const struct once_response *response)
{
    jsonw_open(json, "headers", '[');
    for (size_t i = 0; i < response->header_count; i++) {
        jsonw_open(json, NULL, '{');
        jsonw_bytes(json, "name", slice_str(response->headers[i].name));
        jsonw_bytes(json, "value", slice_str(response->headers[i].value));
        jsonw_close(json, '}');
    }
    jsonw_close(json, ']');
}

static int print_json(const struct once_response *response)
{
    struct out_json whole;
    struct jsonw *json = out_json_begin(&whole, JSON_BYTES_MAX);
    jsonw_i64(json, "status", response->status);
    jsonw_str(json, "effect", once_effect_name(response->effect));
    jsonw_bool(json, "replayed", response->is_replayed != 0);
    if (response->decision[0] != '\0') {
        jsonw_bytes(json, "decision", slice_str(response->decision));
    }
    jsonw_str_some(json, "idempotency_key", response->idempotency_key);
    jsonw_str(json, "request_id", response->request_id);
    jsonw_i64(json, "attempts", response->attempts);
    if (response->operation_id[0] != '\0') {
        jsonw_bytes(json, "operation_id", slice_str(response->operation_id));
    }
    put_headers(json, response);
    if (response->status != 0 && !response->body_is_lost) {
        jsonw_bytes(json, "body", slice_of(response->body.data, response->body.size));
    }
    return out_json_end(&whole);
}

static int print(const struct cli *cli, const struct once_response *response)
{
    if (response == NULL) {
        return CLI_OK;
    }
    if (cli->json) {
        return print_json(response);
    }
    out_bytes(slice_of(response->body.data, response->body.size));
    return out_finish();
}

/* The exit code for an answer that is not 2xx. */
static int exit_of_answer(const struct once_response *response)
{
    if (response->effect == ONCE_EFFECT_UNKNOWN) {
        return CLI_AGAIN;
    }
    return response->status == 429 || response->status >= 500 ? CLI_UNAVAILABLE : CLI_DATA;
}

static int say_answer(const struct once_response *response, bool is_verbose)
{
    static const char *const known[] = {
        [ONCE_EFFECT_UNKNOWN] = "it may have happened, or be in progress",
        [ONCE_EFFECT_NO] = "nothing happened",
        [ONCE_EFFECT_YES] = "it happened",
    };
    if (response->body_is_lost) {
        cli_say("the body of the answer is too large and left out");
    }
    if (response->status >= 200 && response->status < 300) {
        if (is_verbose) {
            cli_say("%s", response->is_replayed ? "replayed: it was done before" : "first answer");
        }
        return response->body_is_lost ? CLI_IO : CLI_OK;
    }
    cli_say("the server answered %d; %s", response->status, known[response->effect]);
    if (response->effect == ONCE_EFFECT_UNKNOWN && response->idempotency_key[0] != '\0') {
        cli_hint("--idempotency-key '%s' continues it", response->idempotency_key);
    }
    if (response->status >= 300 && response->status < 400) {
        cli_hint("redirects are not followed; send it where Location says");
    }
    return exit_of_answer(response);
}

/* ---- sending ----------------------------------------------------------------------------- */

static int send_and_show(
    struct cli *cli, struct once_client *client, const struct once_send *send, bool is_verbose)
{
    struct once_response *response = NULL;
    struct once_error error;
    int result = once_client_send(client, send, &response, &error);
    int printed = print(cli, response);
    int code = result == ONCE_OK ? say_answer(response, is_verbose) : cli_fail(&error);
    once_response_free(client, response);
    return code == CLI_OK ? printed : code;
}

static int send_with(struct cli *cli, struct once_client *client, bool is_verbose)
{
    struct headers headers = {0};
    char made[ONCE_CLIENT_KEY_SIZE];
    struct once_send send = {
        .method = cli->operands[0],
        .url = cli->operands[1],
        .headers = headers.lines,
        .request_id = cli_text(cli, "request-id"),
        .deadline_ms = cli_ms(cli, "deadline"),
        .attempt_timeout_ms = cli_ms(cli, "timeout"),
    };
    uint64_t retries = cli_count(cli, "retries");
    send.retries =
        retries == 0 ? ONCE_NO_RETRIES : (int)(retries < INT32_MAX ? retries : INT32_MAX);
    int code = headers_read(cli, &headers);
    code = code == CLI_OK ? read_data(cli, &send.body) : code;
    if (code == CLI_OK) {
        code = choose_key(cli, client, send.method, made, &send.idempotency_key);
    }
    return code == CLI_OK ? send_and_show(cli, client, &send, is_verbose) : code;
}

int cmd_send(struct cli *cli)
{
    bool is_verbose = cli_flag(cli, "verbose") || isatty(STDERR_FILENO) == 1;
    struct once_client_options options = {
        .ca_file = cli_text(cli, "cacert"),
        .user_agent = "once/" ONCE_VERSION,
        .attempted = is_verbose ? show_attempt : NULL,
    };
    struct once_client *client = NULL;
    struct once_error error;
    if (cli_ms(cli, "deadline") == 0 || cli_ms(cli, "timeout") == 0) {
        return cli_usage(cli, "send: --deadline and --timeout are longer than nothing");
    }
    if (once_client_new(&options, &client, &error) != ONCE_OK) {
        return cli_fail(&error);
    }
    int code = send_with(cli, client, is_verbose);
    once_client_free(client);
    return code;
}
