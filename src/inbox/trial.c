/* Reads a request on trial, and makes a signed one: nothing is stored. */
#include "base/text.h"
#include "canon/jsonw.h"
#include "inbox/inbox.h"
#include "inbox/plan.h"
#include "inbox/submission.h"

enum { TRIAL_BYTES_MAX = 256 << 20 };

/* A trial: what is tried, and what has come of it. */
struct trying {
    const struct inbox_trial *trial;
    const struct inbox_source *source;
    struct arena *arena;
    struct jsonw json;
    bool is_refused; /* an event cannot become its command */
};

/* The command that the event would become. No delivery is made, so its id is all zeros. */
static enum status put_command(struct trying *trying, const struct event *event)
{
    static const struct op_id none = {0};
    const struct config_source *config = trying->source->config;
    struct jsonw *json = &trying->json;
    struct err fault = {.status = OK};
    char delivery_id[KIND_ID_TEXT_BYTES];
    struct slice envelope = SLICE_EMPTY, command_key = SLICE_EMPTY;
    struct record_key key = {
        .tenant = slice_str(config->tenant), .scope = trying->source->rule.name, .key = event->key};
    enum status status = record_key_seal_as(&key, RECORD_DELIVERY, &fault);
    if (status == OK) {
        status =
            submission_envelope(&(struct submission_event){.key = &key,
                                    .delivery_id = kind_id_put(delivery_id, RECORD_DELIVERY, &none),
                                    .id = event->id,
                                    .type = event->type,
                                    .bytes = event->bytes},
                config, trying->arena, &envelope, &fault);
    }
    if (status == OK) {
        struct inbox_submitted made = {.tenant = key.tenant, .envelope = envelope};
        status = trying->trial->check_command(
            trying->trial->config, &made, trying->arena, &command_key, &fault);
    }
    if (status == E_NOMEM) {
        return status;
    }
    trying->is_refused = trying->is_refused || status != OK;
    jsonw_open(json, "command", '{');
    jsonw_bool(json, "accepted", status == OK);
    jsonw_str(json, "name", config->command);
    jsonw_str_some(json, "refused", status == OK ? NULL : fault.text);
    if (status == OK) {
        jsonw_bytes(json, "idempotency_key", command_key);
    }
    if (envelope.len > 0) {
        jsonw_raw(json, "envelope", envelope);
    }
    jsonw_close(json, '}');
    return OK;
}

static enum status put_event(struct trying *trying, const struct event *event)
{
    struct jsonw *json = &trying->json;
    char hex[DIGEST_HEX_BYTES];
    enum status status = OK;
    jsonw_open(json, NULL, '{');
    jsonw_bytes(json, "key", event->key);
    if (event->id.len > 0) {
        jsonw_bytes(json, "event_id", event->id);
    }
    if (event->source.id.len > 0) {
        jsonw_bytes(json, "source_id", event->source.id);
        jsonw_bytes(json, "version", event->source.version);
    }
    jsonw_bytes(json, "content_type", event->type);
    jsonw_u64(json, "bytes", event->bytes.len);
    jsonw_str(json, "fingerprint", digest_put_hex(hex, &event->payload.digest));
    if (trying->source->config->command != NULL) {
        status = put_command(trying, event);
    }
    jsonw_close(json, '}');
    return status;
}

static void put_verdict(struct jsonw *json, const struct inbox_source *source,
    enum signature_verdict verdict, size_t by)
{
    const struct config_source *config = source->config;
    char window[32];
    jsonw_str(json, "source", config->name);
    jsonw_str(json, "preset", source->preset->name);
    jsonw_str(json, "signature",
        source->signature.scheme == SIGNATURE_NOTHING ? "not_needed"
                                                      : signature_verdict_name(verdict));
    if (verdict == SIGNATURE_OK && source->secret_count > 0) {
        const struct config_source_secret *secret = &config->secrets[by];
        jsonw_str(json, secret->file != NULL ? "secret_file" : "secret_env",
            secret->file != NULL ? secret->file : secret->env);
    }
    jsonw_str(json, "window", text_put_duration(window, source->window_ms));
    jsonw_str_some(json, "handler", config->handler);
    jsonw_str_some(json, "command", config->command);
    jsonw_str(json, "tenant", config->tenant);
}

/* Both functions need the head: E_INVALID if it is invalid. */
static enum status read_head(
    struct slice request, struct http_head *ret_head, struct slice *ret_body, struct err *err)
{
    struct http_limits limits = HTTP_LIMITS_DEFAULT;
    struct http_refusal refusal;
    http_head_init(ret_head);
    if (http_request_head(request, &limits, ret_head, &refusal) != HTTP_DONE) {
        return err_set(err, E_INVALID, "a header is not valid");
    }
    *ret_body = slice_of(request.data + ret_head->bytes, request.len - ret_head->bytes);
    return OK;
}

static enum status try_source(
    struct trying *trying, struct buf *out, bool *ret_accepted, struct err *err)
{
    const struct inbox_source *source = trying->source;
    struct jsonw *json = &trying->json;
    struct http_head head;
    struct slice body;
    struct events events = {.count = 0};
    struct err fault = {.status = OK};
    size_t by = 0;
    enum status status = read_head(trying->trial->request, &head, &body, err);
    if (status != OK) {
        return status;
    }
    enum signature_verdict verdict = signature_verify(&source->signature,
        &(struct signature_keys){source->secrets, source->secret_count}, &head, body,
        trying->trial->now_ms, trying->arena, &by);
    if (verdict == SIGNATURE_OK) {
        status = events_read(&source->rule, &head, body, trying->arena, &events, &fault);
    }
    bool is_taken = verdict == SIGNATURE_OK && status == OK;
    jsonw_open(json, NULL, '{');
    jsonw_bool(json, "accepted", is_taken);
    put_verdict(json, source, verdict, by);
    jsonw_str_some(json, "refused", fault.text);
    jsonw_open(json, "events", '[');
    status = OK;
    for (size_t i = 0; status == OK && i < events.count; i++) {
        status = put_event(trying, &events.items[i]);
    }
    jsonw_close(json, ']');
    jsonw_close(json, '}');
    *ret_accepted = is_taken && !trying->is_refused;
    return status == OK && buf_status(out) == OK ? OK : err_set(err, E_NOMEM, "out of memory");
}

enum status inbox_try(const struct inbox_trial *trial, const struct mem *mem, struct buf *out,
    bool *ret_accepted, struct err *err)
{
    const struct config_source *config = config_source_find(&trial->config->inbox, trial->source);
    struct inbox_source source;
    struct arena arena;
    if (config == NULL) {
        return err_set(
            err, E_INVALID, "the configuration has no source '%.*s'", SLICE_ARGS(trial->source));
    }
    enum status status = inbox_source_init(&source, config, mem, err);
    if (status != OK) {
        return status;
    }
    arena_init(&arena, mem, TRIAL_BYTES_MAX);
    struct trying trying = {
        .trial = trial, .source = &source, .arena = &arena, .json = {.out = out}};
    status = try_source(&trying, out, ret_accepted, err);
    arena_release(&arena);
    inbox_source_release(&source);
    return status;
}

enum status inbox_sign(struct slice preset, struct slice secret, struct slice id, struct slice body,
    int64_t now_ms, struct buf *out, struct err *err)
{
    enum preset_kind kind;
    struct signature_secret read;
    if (!preset_find(preset, &kind)) {
        return err_set(err, E_INVALID, "'%.*s' is not a preset", SLICE_ARGS(preset));
    }
    const struct preset *of = &presets[kind];
    enum status status = signature_secret_read(&of->signature, secret, &read, err);
    if (status != OK) {
        return status;
    }
    struct signature_stamp stamp = {.id = id, .now_ms = now_ms, .body = body};
    status = signature_put(&of->signature, &read, &stamp, out, err);
    signature_secret_release(&read);
    if (status == OK && of->id_field.len > 0 && of->signature.scheme == SIGNATURE_BODY) {
        buf_printf(out, "%.*s: %.*s\r\n", SLICE_ARGS(of->id_field), SLICE_ARGS(id));
    }
    if (status == OK && kind == PRESET_CLOUDEVENTS) { /* its type says what it is */
        bool is_batch = body.len > 0 && body.data[0] == '[';
        buf_printf(
            out, "Content-Type: application/cloudevents%s+json\r\n", is_batch ? "-batch" : "");
    }
    return status;
}
