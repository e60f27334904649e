/* once key: the key derived from the envelope on standard input. */
#include "canon/key.h"

#include <string.h>

#include "base/limits.h"
#include "base/macros.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/out.h"

static bool kind_read(const char *word, enum key_kind *ret_kind)
{
    static const char *const names[] = {
        [KEY_COMMAND] = "command",
        [KEY_EFFECT] = "effect",
        [KEY_SOURCE] = "source",
    };
    for (size_t i = 0; i < COUNT(names); i++) {
        if (strcmp(names[i], word) == 0) {
            *ret_kind = (enum key_kind)i;
            return true;
        }
    }
    return false;
}

static int print_key(struct cli *cli, const struct digest *digest, struct slice hashed)
{
    char hex[65];
    text_put_hex(hex, digest->bytes, sizeof digest->bytes);
    if (cli->json) {
        struct out_json whole;
        struct jsonw *json = out_json_begin(&whole, 8U * LIMIT_JSON_BYTES_MAX);
        jsonw_str(json, "kind", cli->operands[0]);
        jsonw_str(json, "key", hex);
        jsonw_bytes(json, "canonical", hashed);
        return out_json_end(&whole);
    }
    if (cli_flag(cli, "show")) {
        out_bytes(hashed);
        out_text("\n");
    } else {
        out_text("%s\n", hex);
    }
    return out_finish();
}

int cmd_key(struct cli *cli)
{
    enum key_kind kind = KEY_COMMAND;
    struct slice text;
    if (!kind_read(cli->operands[0], &kind)) {
        return cli_usage(cli, "key: '%s' is not one of command, effect, source", cli->operands[0]);
    }
    int code = cli_read_stdin(cli, LIMIT_JSON_BYTES_MAX, &text);
    if (code != CLI_OK) {
        return code;
    }
    const struct json_value *envelope = NULL;
    struct digest digest;
    struct err err = {0};
    struct buf hashed;
    buf_init(&hashed, &mem_libc, 8U * LIMIT_JSON_BYTES_MAX);
    if (json_read(text, &cli->arena, &envelope, &err) != OK ||
        key_derive(kind, envelope, &hashed, &digest, &err) != OK) {
        cli_say("standard input: %s", err.text);
        code = err.status == E_NOMEM ? CLI_UNAVAILABLE : CLI_DATA;
    } else {
        code = print_key(cli, &digest, buf_view(&hashed));
    }
    buf_release(&hashed);
    return code;
}
