/* once token: makes a bearer token, or hashes one. Only the hash goes into the configuration. */
#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "base/limits.h"
#include "base/macros.h"
#include "base/name.h"
#include "base/rand.h"
#include "canon/digest.h"
#include "cli/cli.h"
#include "cli/out.h"
#include "config/config.h"

enum {
    SECRET_BYTES = 32,           /* 256 bits: impossible to guess */
    SECRET_CHARS = 43,           /* of these in base64url without padding */
    PREFIX_CHARS = 5,            /* "once_": so that scanners find a leaked token */
    TOKEN_STDIN_BYTES_MAX = 512, /* of one on standard input */
    LINE_BYTES_MAX = 4096,
};

/* The line for the configuration. JSON strings are also YAML strings. */
static void put_line(struct buf *out, struct cli *cli, const char *hex)
{
    static const char *const names[] = {"execute", "confirm", "operate", "audit"};
    unsigned rights =
        cli_text(cli, "rights") == NULL ? 0 : config_rights(slice_str(cli_text(cli, "rights")));
    struct jsonw json = {.out = out};
    buf_printf(out, "- {sha256: \"%s\", tenant: ", hex);
    jsonw_str(&json, NULL, cli_text(cli, "tenant"));
    const char *between = ", rights: [";
    for (size_t i = 0; i < COUNT(names); i++) {
        if ((rights & config_right(slice_str(names[i]))) != 0) {
            buf_printf(out, "%s%s", between, names[i]);
            between = ", ";
        }
    }
    buf_str(out, rights == 0 ? "" : "]");
    if (cli_text(cli, "name") != NULL) {
        buf_str(out, ", name: ");
        json.comma = false;
        jsonw_str(&json, NULL, cli_text(cli, "name"));
    }
    buf_char(out, '}');
}

static int print_json(const char *token, const char *hex, struct slice line)
{
    struct out_json whole;
    struct jsonw *json = out_json_begin(&whole, LINE_BYTES_MAX * 4);
    jsonw_str_some(json, "token", token);
    jsonw_str(json, "sha256", hex);
    if (line.len > 0) {
        jsonw_bytes(json, "config", line);
    }
    return out_json_end(&whole);
}

static int print_new(struct cli *cli, const char *token, const char *hex)
{
    struct buf line;
    buf_init(&line, &mem_libc, LINE_BYTES_MAX);
    put_line(&line, cli, hex);
    int code = CLI_OK;
    if (cli->json) {
        code = print_json(token, hex, buf_view(&line));
    } else {
        out_text("token, for the client; it is not shown again:\n\n    %s\n\n", token);
        out_text("line for the configuration, under auth: tokens:\n\n    ");
        out_bytes(buf_view(&line));
        out_text("\n");
        code = out_finish();
    }
    buf_release(&line);
    return code;
}

static void hash_token(struct slice token, char ret_hex[DIGEST_HEX_BYTES])
{
    struct digest digest;
    digest_sha256(token.data, token.len, &digest);
    digest_put_hex(ret_hex, &digest);
}

/* The token's tenant, rights and name must be valid in a configuration. */
static int check_new(struct cli *cli)
{
    struct slice tenant = slice_str(cli_text(cli, "tenant"));
    struct slice name = slice_str(cli_text(cli, "name"));
    struct slice rights = slice_str(cli_text(cli, "rights"));
    bool is_for_metrics = slice_is(tenant, "*");
    if (tenant.len == 0) {
        return cli_usage(cli, "token: --tenant NAME is missing");
    }
    if (tenant.len > LIMIT_TENANT_BYTES_MAX || name.len > LIMIT_TENANT_BYTES_MAX) {
        return cli_usage(
            cli, "token: a tenant or name has at most %d bytes", LIMIT_TENANT_BYTES_MAX);
    }
    struct err err = {0};
    if (name_check("--tenant", tenant, &err) != OK || name_check("--name", name, &err) != OK) {
        return cli_usage(cli, "token: %s", err.text);
    }
    if (is_for_metrics != (rights.len == 0)) {
        return cli_usage(cli, "%s",
            is_for_metrics ? "token: tenant '*' may only read /metrics: leave --rights out"
                           : "token: --rights LIST is missing");
    }
    if (!is_for_metrics && config_rights(rights) == 0) {
        return cli_usage(cli,
            "token: '%s' is not a list of rights: execute, confirm, operate, "
            "audit",
            cli_text(cli, "rights"));
    }
    return CLI_OK;
}

static int token_new(struct cli *cli)
{
    unsigned char secret[SECRET_BYTES];
    char token[PREFIX_CHARS + SECRET_CHARS + 1] = "once_";
    char hex[DIGEST_HEX_BYTES];
    struct err err = {0};
    int code = check_new(cli);
    if (code != CLI_OK) {
        return code;
    }
    if (rand_bytes(secret, sizeof secret, &err) != OK) {
        return cli_fail_err(&err);
    }
    *base64_put(token + PREFIX_CHARS, secret, sizeof secret, BASE64_URL) = '\0';
    hash_token(slice_str(token), hex);
    code = print_new(cli, token, hex);
    mem_wipe(secret, sizeof secret);
    mem_wipe(token, sizeof token);
    return code;
}

static int token_hash(struct cli *cli)
{
    struct slice text = SLICE_EMPTY;
    char hex[DIGEST_HEX_BYTES];
    int code = cli_read_stdin(cli, TOKEN_STDIN_BYTES_MAX, &text);
    if (code != CLI_OK) {
        return code;
    }
    while (text.len > 0 && (text.data[text.len - 1] == '\n' || text.data[text.len - 1] == '\r')) {
        text.len--; /* added by echo, not part of the token */
    }
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] <= ' ' || text.data[i] > '~') {
            cli_say("standard input: a token has no spaces and no odd bytes");
            return CLI_DATA;
        }
    }
    if (text.len == 0) {
        cli_say("standard input: there is no token");
        return CLI_DATA;
    }
    hash_token(text, hex);
    if (cli->json) {
        return print_json(NULL, hex, SLICE_EMPTY);
    }
    out_text("%s\n", hex);
    return out_finish();
}

int cmd_token(struct cli *cli)
{
    if (strcmp(cli->operands[0], "new") == 0) {
        return token_new(cli);
    }
    if (strcmp(cli->operands[0], "hash") == 0) {
        return token_hash(cli);
    }
    return cli_usage(cli, "token: '%s' is not one of new, hash", cli->operands[0]);
}
