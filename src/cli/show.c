/* once show: prints the record of one operation. */
#include "cli/backend.h"
#include "cli/capture.h"
#include "cli/work.h"
#include "server/server.h"

static void line(const char *name, struct slice text)
{
    if (text.len > 0) {
        out_text("%-14s ", name);
        out_safe(text);
        out_text("\n");
    }
}

static void line_of(const char *name, const struct operation *operation, const char *member)
{
    line(name, cli_member(operation->root, slice_str(member)));
}

static void print_bytes(const char *name, struct slice bytes)
{
    out_text("%s--- %s, %s%s\n", out_tint(TINT_FAINT), name, COUNTED(bytes.len, "byte", "bytes"),
        out_plain());
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

/* What once run recorded. */
static void print_recording(const struct operation *operation, const struct recording *recording)
{
    uint64_t dropped = recording->dropped[0] + recording->dropped[1];
    uint64_t kept = recording->kept[0] + recording->kept[1];
    out_text("%-14s %d\n", "code", recording->exit_code);
    out_text("%-14s %s%s\n", "outcome",
        COUNTED(kept > 0 ? kept : operation->outcome.bytes, "byte", "bytes"),
        recording->gone ? ", no longer retained" : "");
    if (dropped > 0) {
        out_text("%-14s %s of output\n", "not retained", COUNTED(dropped, "byte", "bytes"));
    }
    if (!recording->gone && kept > 0) {
        recording_each(recording, print_piece, NULL);
    }
}

/* The fields of an HTTP answer, which duplicates get with it. */
static void print_fields(struct cli *cli, struct slice meta)
{
    const struct json_value *root = NULL;
    if (json_read(meta, &cli->arena, &root, NULL) != OK) {
        return;
    }
    const struct json_value *fields = json_find(root, SLICE_LIT("headers"));
    for (uint32_t i = 0; json_is(fields, JSON_ARRAY) && i < fields->count; i++) {
        const struct json_value *field = &fields->items[i];
        if (json_is(field, JSON_ARRAY) && field->count == 2 &&
            json_is(&field->items[0], JSON_STRING) && json_is(&field->items[1], JSON_STRING)) {
            out_text("%-14s ", "header");
            out_safe(json_text(&field->items[0]));
            out_text(": ");
            out_safe(json_text(&field->items[1]));
            out_text("\n");
        }
    }
}

/* An outcome sealed by a gateway or any other program. */
static void print_sealed(struct cli *cli, const struct operation_outcome *outcome)
{
    bool is_http = server_is_answer_meta(outcome->meta);
    out_text("%-14s %d\n", is_http ? "HTTP status" : "code", outcome->code);
    if (is_http) {
        print_fields(cli, outcome->meta);
    }
    out_text("%-14s %s%s\n", "outcome", COUNTED(outcome->bytes, "byte", "bytes"),
        outcome->is_retained ? "" : ", no longer retained");
    if (outcome->is_retained && outcome->body.len > 0) {
        print_bytes(is_http ? "body" : "outcome", outcome->body);
    }
}

static void print_outcome(struct cli *cli, const struct operation *operation)
{
    struct err err = {0};
    struct recording recording;
    const struct operation_outcome *outcome = &operation->outcome;
    if (operation_member(operation, "sealed_at") == NULL) {
        return;
    }
    if (outcome->form == OUTCOME_ABSENT) {
        line("outcome", slice_str(outcome->is_retained ? "none" : "JSON, no longer retained"));
        return;
    }
    if (recording_read(operation, &cli->arena, &recording, &err) != OK) {
        cli_say("%s", err.text);
        return;
    }
    if (outcome->form == OUTCOME_JSON && !recording.is_run) {
        print_bytes("outcome, JSON", outcome->body);
    } else if (!recording.is_run) {
        print_sealed(cli, outcome);
    } else {
        print_recording(operation, &recording);
    }
}

static void print_text(struct cli *cli, const struct operation *operation)
{
    const struct json_value *trace = operation_member(operation, "trace");
    out_text("%-14s %.*s\n", "operation", SLICE_ARGS(operation->id));
    out_text("%-14s %s%s%s\n", "status", out_tint(operation_tint(operation->status)),
        once_status_name(operation->status), out_plain());
    line("scope", operation->scope);
    line("principal", operation->principal);
    line("key", operation->key);
    out_text("%-14s %llu, attempt %llu\n", "fence", (unsigned long long)operation->fence,
        (unsigned long long)operation->attempt);
    out_text("%-14s %llu\n", "duplicates", (unsigned long long)operation->duplicates);
    line_of("created", operation, "created_at");
    line_of("updated", operation, "updated_at");
    line_of("sealed", operation, "sealed_at");
    line_of("lease until", operation, "lease_expires_at");
    line_of("window until", operation, "window_expires_at");
    line_of("effect", operation, "effect_id");
    line("reason", operation->reason);
    line("trace", trace == NULL ? SLICE_EMPTY : json_raw(operation->members, trace));
    line("request", operation->request);
    print_outcome(cli, operation);
}

int cmd_show(struct cli *cli)
{
    struct backend backend;
    const struct operation *operation = NULL;
    const struct work_kind *kind = NULL;
    const char *id = cli->operand_count > 0 ? cli->operands[0] : NULL;
    int code = work_find(cli, &id, &kind);
    if (code == CLI_OK && kind != NULL) {
        return work_show(cli, kind, id);
    }
    code = code == CLI_OK ? backend_open(cli, &backend) : code;
    if (code != CLI_OK) {
        return code;
    }
    code = operation_find(cli, &backend, &operation);
    if (code == CLI_OK && cli->json) {
        out_bytes(operation->json);
        out_text("\n");
    } else if (code == CLI_OK) {
        print_text(cli, operation);
    }
    int written = out_finish_listing();
    code = code == CLI_OK ? written : code;
    backend_close(&backend);
    return code;
}
