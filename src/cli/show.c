/* once show: what is remembered of one operation. */
#include "base/limits.h"
#include "base/text.h"
#include "cli/capture.h"
#include "cli/operation.h"

static void line(const char *name, const char *text)
{
    if (text != NULL && text[0] != '\0') {
        out_text("%-14s ", name);
        out_safe(slice_str(text));
        out_text("\n");
    }
}

static void line_time(const char *name, int64_t ms)
{
    char text[TEXT_TIME_BYTES];
    line(name, ms == 0 ? NULL : text_put_time(text, ms));
}

static void print_bytes(const char *name, struct slice bytes)
{
    out_text("%s--- %s, %zu bytes%s\n", out_tint(TINT_FAINT), name, bytes.len, out_plain());
    out_safe_lines(bytes);
    if (bytes.len > 0 && bytes.data[bytes.len - 1] != '\n') {
        out_text("\n");
    }
}

static bool print_piece(void *context, int stream, struct slice bytes)
{
    (void)context;
    print_bytes(stream == CAPTURE_STDOUT ? "standard output" : "standard error", bytes);
    return !out_broken();
}

static void print_outcome(struct cli *cli, const struct once_operation *operation)
{
    struct err err = {0};
    struct recording recording;
    if (operation->sealed_ms == 0) {
        return;
    }
    if (operation_outcome_is_null(operation)) {
        line("outcome",
            operation_outcome_is_retained(operation) ? "none" : "JSON, no longer retained");
        return;
    }
    if (operation_outcome_is_json(operation)) {
        print_bytes(
            "outcome, JSON", slice_of(operation->outcome.body.data, operation->outcome.body.size));
        return;
    }
    out_text("%-14s %d\n", "code", operation->outcome.code);
    if (recording_read(operation, &cli->arena, &recording, &err) != OK) {
        cli_say("%s", err.text);
        return;
    }
    uint64_t dropped = recording.dropped[0] + recording.dropped[1];
    out_text("%-14s %zu bytes%s\n", "outcome", operation->outcome.body.size,
        recording.gone ? ", no longer retained" : "");
    if (dropped > 0) {
        out_text("%-14s %llu bytes of output\n", "not retained", (unsigned long long)dropped);
    }
    if (!recording.gone && operation->outcome.body.size > 0) {
        recording_each(&recording, print_piece, NULL);
    }
}

static void print_text(struct cli *cli, const struct once_operation *operation)
{
    out_text("%-14s %s\n", "operation", operation->operation_id);
    out_text("%-14s %s%s%s\n", "status", out_tint(operation_tint(operation->status)),
        once_status_name(operation->status), out_plain());
    line("scope", operation->scope);
    line("principal", operation->principal);
    line("key", operation->key);
    out_text("%-14s %llu, attempt %u\n", "fence", (unsigned long long)operation->fence,
        operation->attempt);
    out_text("%-14s %u\n", "duplicates", operation->duplicates);
    line_time("created", operation->created_ms);
    line_time("updated", operation->updated_ms);
    line_time("sealed", operation->sealed_ms);
    line_time("lease until", operation->lease_expires_ms);
    line_time("window until", operation->window_expires_ms);
    line("effect", operation->effect_id);
    line("reason", operation->reason);
    line("trace", operation->trace);
    if (operation->request.size > 0) {
        out_text("%-14s ", "request");
        out_safe(slice_of(operation->request.data, operation->request.size));
        out_text("\n");
    }
    print_outcome(cli, operation);
}

static int print_json(struct cli *cli, const struct once_operation *operation)
{
    struct buf bytes;
    struct jsonw json = {.out = &bytes};
    buf_init(&bytes, &mem_libc, 8U * LIMIT_OUTCOME_BYTES_MAX);
    jsonw_open(&json, NULL, '{');
    operation_json(&json, cli, operation, true);
    jsonw_close(&json, '}');
    int code = jsonw_print(&json);
    buf_release(&bytes);
    return code;
}

int cmd_show(struct cli *cli)
{
    struct origin origin;
    const struct once_operation *operation = NULL;
    int code = origin_open(cli, &origin);
    if (code != CLI_OK) {
        return code;
    }
    code = operation_find(cli, &origin, &operation);
    if (code == CLI_OK && cli->json) {
        code = print_json(cli, operation);
    } else if (code == CLI_OK) {
        print_text(cli, operation);
        code = out_finish();
    }
    origin_close(&origin);
    return code;
}
