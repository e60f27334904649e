#include "command/detail.h"

#include "base/limits.h"
#include "base/text.h"
#include "canon/jsonw.h"

enum { PROBE_BYTES_MAX = 64 << 20 }; /* limit while it is measured, before parts are left out */

static void put_some(struct jsonw *json, const char *name, struct slice text)
{
    if (text.len > 0) {
        jsonw_bytes(json, name, text);
    }
}

static void put_digest(struct jsonw *json, const char *name, const struct digest *digest)
{
    static const struct digest zero;
    char hex[DIGEST_HEX_BYTES];
    if (!digest_equal(digest, &zero)) {
        jsonw_str(json, name, digest_put_hex(hex, digest));
    }
}

static void put_count(struct jsonw *json, const char *name, uint64_t count)
{
    if (count > 0) {
        jsonw_u64(json, name, count);
    }
}

/* What is left out of a detail that is too long: each step includes those before it. */
enum shortened { WHOLE, WITHOUT_ARGS, WITHOUT_TARGET, WITHOUT_MADE, SHORTENED };

static void put_all(const struct detail *detail, enum shortened how, struct buf *out)
{
    struct jsonw json = {.out = out};
    jsonw_open(&json, NULL, '{');
    jsonw_bytes(&json, "command", detail->command);
    put_some(&json, "command_id", detail->command_id);
    jsonw_bytes(&json, "actor_id", detail->actor_id);
    put_some(&json, "effective_actor_id", detail->effective_actor_id);
    if (how < WITHOUT_TARGET && detail->target.len > 0) {
        jsonw_raw(&json, "target", detail->target);
    }
    if (how < WITHOUT_ARGS && detail->args.len > 0) {
        jsonw_raw(&json, "args", detail->args);
    }
    if (detail->is_key_given) {
        jsonw_bool(&json, "key_given", true);
    }
    if (detail->is_read) {
        jsonw_bool(&json, "read", true);
    }
    if (detail->is_uncertain) {
        jsonw_bool(&json, "uncertain", true);
    }
    if (detail->is_confirmed_by_step_up) {
        jsonw_bool(&json, "step_up", true);
    }
    put_digest(&json, "token_sha256", &detail->token);
    put_digest(&json, "submitter", &detail->submitter);
    if (detail->confirmed_ms > 0) {
        jsonw_i64(&json, "confirmed_ms", detail->confirmed_ms);
    }
    put_some(&json, "confirmed_by", detail->confirmed_by);
    put_count(&json, "required", detail->required);
    put_count(&json, "effects", detail->effects);
    put_count(&json, "async", detail->async);
    if (detail->waits_for.len > 0) {
        jsonw_raw(&json, "waits_for", detail->waits_for);
    }
    if (how < WITHOUT_MADE && detail->made.len > 0) {
        jsonw_raw(&json, "made", detail->made);
    }
    put_some(&json, "kept_outcome", detail->kept_outcome);
    put_count(&json, "kept_code", (uint64_t)detail->kept_code);
    if (detail->has_failed) {
        jsonw_bool(&json, "failed", true);
    }
    put_count(&json, "compensating_ms", (uint64_t)detail->compensating_ms);
    jsonw_close(&json, '}');
}

enum status detail_put(const struct detail *detail, struct buf *out)
{
    size_t from = out->len;
    for (int how = WHOLE; how < SHORTENED; how++) {
        struct buf probe;
        buf_init(&probe, out->mem, PROBE_BYTES_MAX);
        put_all(detail, (enum shortened)how, &probe);
        enum status status = buf_status(&probe);
        bool fits = status == OK && probe.len <= LIMIT_DETAIL_BYTES_MAX;
        if (fits) {
            buf_slice(out, buf_view(&probe));
        }
        buf_release(&probe);
        if (fits || status == E_NOMEM) {
            return fits ? buf_status(out) : E_NOMEM;
        }
    }
    out->len = from;
    return E_INVALID;
}

static struct slice text_of(const struct json_value *root, const char *name)
{
    const struct json_value *value = json_find(root, slice_str(name));
    return json_is(value, JSON_STRING) ? json_text(value) : SLICE_EMPTY;
}

static struct slice raw_of(struct slice bytes, const struct json_value *root, const char *name)
{
    const struct json_value *value = json_find(root, slice_str(name));
    return value == NULL ? SLICE_EMPTY : json_raw(bytes, value);
}

static void digest_of(const struct json_value *root, const char *name, struct digest *ret_digest)
{
    struct slice hex = text_of(root, name);
    if (!text_hex(hex, ret_digest->bytes, sizeof ret_digest->bytes)) {
        *ret_digest = (struct digest){{0}};
    }
}

static int64_t int_of(const struct json_value *root, const char *name)
{
    int64_t number = 0;
    const struct json_value *value = json_find(root, slice_str(name));
    return value != NULL && json_int(value, &number) && number > 0 ? number : 0;
}

static bool bool_of(const struct json_value *root, const char *name)
{
    return json_is(json_find(root, slice_str(name)), JSON_TRUE);
}

enum status detail_read(struct slice bytes, struct arena *arena, struct detail *ret_detail)
{
    const struct json_value *root = NULL;
    enum status status = json_read(bytes, arena, &root, NULL);
    if (status != OK || !json_is(root, JSON_OBJECT) || text_of(root, "command").len == 0) {
        return status == E_NOMEM ? E_NOMEM : E_CORRUPT;
    }
    *ret_detail = (struct detail){.command = text_of(root, "command"),
        .command_id = text_of(root, "command_id"),
        .actor_id = text_of(root, "actor_id"),
        .effective_actor_id = text_of(root, "effective_actor_id"),
        .target = raw_of(bytes, root, "target"),
        .args = raw_of(bytes, root, "args"),
        .is_key_given = bool_of(root, "key_given"),
        .is_read = bool_of(root, "read"),
        .is_uncertain = bool_of(root, "uncertain"),
        .is_confirmed_by_step_up = bool_of(root, "step_up"),
        .confirmed_ms = int_of(root, "confirmed_ms"),
        .confirmed_by = text_of(root, "confirmed_by"),
        .required = (uint64_t)int_of(root, "required"),
        .effects = (uint64_t)int_of(root, "effects"),
        .async = (uint64_t)int_of(root, "async"),
        .waits_for = raw_of(bytes, root, "waits_for"),
        .made = raw_of(bytes, root, "made"),
        .kept_outcome = text_of(root, "kept_outcome"),
        .kept_code = int_of(root, "kept_code"),
        .has_failed = bool_of(root, "failed"),
        .compensating_ms = int_of(root, "compensating_ms")};
    digest_of(root, "token_sha256", &ret_detail->token);
    digest_of(root, "submitter", &ret_detail->submitter);
    return OK;
}

enum status detail_mark(
    struct slice bytes, bool is_uncertain, struct arena *arena, struct slice *ret_bytes)
{
    struct mem mem = arena_mem(arena);
    struct detail detail;
    struct buf out;
    enum status status = detail_read(bytes, arena, &detail);
    if (status != OK || detail.is_uncertain == is_uncertain) {
        *ret_bytes = SLICE_EMPTY;
        return status;
    }
    detail.is_uncertain = is_uncertain;
    buf_init(&out, &mem, 2 * LIMIT_DETAIL_BYTES_MAX);
    status = detail_put(&detail, &out);
    *ret_bytes = status == OK ? buf_view(&out) : SLICE_EMPTY;
    return status == E_INVALID ? E_CORRUPT : status; /* it was read, so that it fits */
}
