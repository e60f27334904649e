/* once canon: the canonical form of standard input. */
#include <unistd.h>

#include "base/limits.h"
#include "canon/jcs.h"
#include "cli/cli.h"
#include "cli/out.h"

/* Every error in the input is bad data, whatever its status. */
static int bad_input(const struct err *err)
{
    cli_say("standard input: %s", err->text);
    if (err->hint[0] != '\0') {
        cli_hint("%s", err->hint);
    }
    return err->status == E_NOMEM ? CLI_UNAVAILABLE : CLI_DATA;
}

static void say_lossy(struct slice text, const struct jcs_report *report)
{
    const struct json_value *first = report->lossy_first;
    struct json_place place = json_place(text, first->offset);
    struct slice number = json_text(first);
    cli_say("standard input: line %zu, column %zu: the number %.*s is lossy: a double does not "
            "hold it",
        place.line, place.column, (int)(number.len < 64 ? number.len : 64), number.data);
    if (report->lossy_count > 1) {
        cli_say("standard input: %zu numbers are lossy", report->lossy_count);
    }
}

static int write_canonical(struct cli *cli, struct slice text, struct buf *out)
{
    const struct json_value *value = NULL;
    struct jcs_report report = {0};
    struct err err = {0};
    if (json_read(text, &cli->arena, &value, &err) != OK ||
        jcs_write(value, out, &report, &err) != OK) {
        return bad_input(&err);
    }
    if (report.lossy_count > 0) {
        say_lossy(text, &report);
        if (cli_flag(cli, "strict")) {
            return CLI_DATA;
        }
    }
    out_bytes(buf_view(out));
    if (isatty(STDOUT_FILENO) == 1) {
        out_text("\n");
    }
    return out_finish();
}

int cmd_canon(struct cli *cli)
{
    struct slice text;
    int code = cli_read_stdin(cli, LIMIT_JSON_BYTES_MAX, &text);
    if (code != CLI_OK) {
        return code;
    }
    struct buf out;
    buf_init(&out, &mem_libc, 8U * LIMIT_JSON_BYTES_MAX); /* escapes: at most six bytes for one */
    code = write_canonical(cli, text, &out);
    buf_release(&out);
    return code;
}
