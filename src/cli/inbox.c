/* once inbox test: shows how a request would be read. once inbox sign: makes a signed one. */
#include <string.h>

#include "base/secret.h"
#include "canon/jcs.h"
#include "cli/headers.h"
#include "cli/out.h"
#include "cli/serve_config.h"
#include "server/server.h"

enum { BODY_BYTES_MAX = 16 << 20, OUT_BYTES_MAX = 64 << 20, SECRET_BYTES_MAX = 4096 };

static int read_body(struct cli *cli, struct slice *ret_body)
{
    const char *text = cli_text(cli, "body");
    *ret_body = slice_str(text);
    return text != NULL && text[0] == '@' ? cli_read_file(cli, text + 1, BODY_BYTES_MAX, ret_body)
                                          : CLI_OK;
}

/* ---- test -------------------------------------------------------------------------------- */

static int compose(struct cli *cli, struct slice body, struct buf *out)
{
    struct headers headers = {0};
    int code = headers_read(cli, &headers);
    if (code != CLI_OK) {
        return code;
    }
    buf_str(out, "POST /in/test HTTP/1.1\r\nHost: once\r\n");
    for (size_t i = 0; i < headers.count; i++) {
        buf_str(out, headers.lines[i]);
        buf_str(out, "\r\n");
    }
    buf_str(out, "\r\n");
    buf_slice(out, body);
    return CLI_OK;
}

static struct slice member(const struct json_value *object, const char *name)
{
    return cli_member(object, slice_str(name));
}

/* What an event becomes: "  command order.cancel, key delivery-…" and its envelope. */
static void print_command(const struct json_value *command)
{
    struct slice refused = member(command, "refused");
    out_text("  command %.*s", SLICE_ARGS(member(command, "name")));
    if (refused.len > 0) {
        out_text(": a dead letter: %.*s", SLICE_ARGS(refused));
    } else {
        out_text(", key %.*s", SLICE_ARGS(member(command, "idempotency_key")));
    }
    out_text("\n");
    const struct json_value *envelope = json_find(command, SLICE_LIT("envelope"));
    if (envelope != NULL) {
        struct buf text;
        buf_init(&text, &mem_libc, OUT_BYTES_MAX);
        if (jcs_write(envelope, &text, NULL, NULL) == OK) {
            out_text("    %.*s\n", SLICE_ARGS(buf_view(&text)));
        }
        buf_release(&text);
    }
}

static void print(const struct json_value *root)
{
    const struct json_value *events = json_find(root, SLICE_LIT("events"));
    const struct json_value *accepted = json_find(root, SLICE_LIT("accepted"));
    out_text("%s: signature %.*s", json_is(accepted, JSON_TRUE) ? "accepted" : "refused",
        SLICE_ARGS(member(root, "signature")));
    struct slice file = member(root, "secret_file"), env = member(root, "secret_env");
    if (file.len + env.len > 0) {
        out_text(" by %s %.*s", file.len > 0 ? "file" : "variable",
            SLICE_ARGS(file.len > 0 ? file : env));
    }
    out_text(", window %.*s\n", SLICE_ARGS(member(root, "window")));
    if (member(root, "refused").len > 0) {
        out_text("  %.*s\n", SLICE_ARGS(member(root, "refused")));
    }
    for (uint32_t i = 0; json_is(events, JSON_ARRAY) && i < events->count; i++) {
        const struct json_value *event = &events->items[i];
        out_text("  key %.*s", SLICE_ARGS(member(event, "key")));
        if (member(event, "source_id").len > 0) {
            out_text("  version %.*s of %.*s", SLICE_ARGS(member(event, "version")),
                SLICE_ARGS(member(event, "source_id")));
        }
        out_text("\n");
        if (json_find(event, SLICE_LIT("command")) != NULL) {
            print_command(json_find(event, SLICE_LIT("command")));
        }
    }
}

static int show(struct cli *cli, struct slice text, bool is_accepted)
{
    const struct json_value *root = NULL;
    struct err err = {0};
    if (cli->json) {
        out_bytes(text);
        out_text("\n");
    } else if (json_read(text, &cli->arena, &root, &err) != OK) {
        return cli_fail_err(&err);
    } else {
        print(root);
    }
    int code = out_finish();
    return code != CLI_OK ? code : is_accepted ? CLI_OK : CLI_DATA;
}

static int test(struct cli *cli, struct config *config)
{
    struct buf request, out;
    struct slice body;
    struct err err = {0};
    bool is_accepted = false;
    buf_init(&request, &mem_libc, 2 * BODY_BYTES_MAX);
    buf_init(&out, &mem_libc, OUT_BYTES_MAX);
    int code = read_body(cli, &body);
    code = code == CLI_OK ? compose(cli, body, &request) : code;
    if (code == CLI_OK && buf_status(&request) != OK) {
        cli_say("out of memory for the request");
        code = CLI_UNAVAILABLE;
    }
    if (code == CLI_OK) {
        struct server_inbox_trial trial = {.config = config,
            .source = cli->operands[1],
            .request = buf_view(&request),
            .now_ms = cli_now_ms()};
        code = server_inbox_try(&trial, &out, &is_accepted, &err) == OK
                   ? show(cli, buf_view(&out), is_accepted)
                   : cli_fail_err(&err);
    }
    buf_release(&request);
    buf_release(&out);
    return code;
}

static int run_test(struct cli *cli)
{
    struct serve_file file;
    const char *path = cli_text(cli, "config");
    if (path == NULL) {
        return cli_usage(cli, "inbox: --config FILE says which sources there are");
    }
    int code = serve_config_file(path, &file);
    if (code != CLI_OK) {
        serve_faults_say(path, &file.faults);
    } else {
        code = test(cli, file.config);
    }
    config_free(file.config);
    return code;
}

/* ---- sign -------------------------------------------------------------------------------- */

static int run_sign(struct cli *cli)
{
    const char *path = cli_text(cli, "secret-file");
    struct buf secret, out;
    struct slice body;
    struct err err = {0};
    if (path == NULL) {
        return cli_usage(cli, "inbox: --secret-file FILE has the secret to sign with");
    }
    buf_init(&secret, &mem_libc, SECRET_BYTES_MAX);
    buf_init(&out, &mem_libc, OUT_BYTES_MAX);
    int code = read_body(cli, &body);
    if (code == CLI_OK) {
        enum status status = secret_read("secret", path, &secret, &err);
        status = status == OK ? server_inbox_sign(cli->operands[1], secret_line(buf_view(&secret)),
                                    cli_text(cli, "id"), body, cli_now_ms(), &out, &err)
                              : status;
        if (status == OK) {
            struct slice text = buf_view(&out);
            for (size_t i = 0; i < text.len; i++) { /* lines for --header @FILE, and for curl */
                if (text.data[i] != '\r') {
                    out_bytes(slice_of(text.data + i, 1));
                }
            }
            code = out_finish();
        } else {
            code = cli_fail_err(&err);
        }
    }
    secret_release(&secret);
    buf_release(&out);
    return code;
}

int cmd_inbox(struct cli *cli)
{
    if (strcmp(cli->operands[0], "test") == 0) {
        return run_test(cli);
    }
    if (strcmp(cli->operands[0], "sign") == 0) {
        return run_sign(cli);
    }
    return cli_usage(cli, "inbox: '%s' is neither test nor sign", cli->operands[0]);
}
