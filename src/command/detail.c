#include "command/detail.h"

#include <stddef.h>
#include <string.h>

#include "base/limits.h"
#include "base/macros.h"
#include "base/text.h"
#include "canon/jsonw.h"

enum { PROBE_BYTES_MAX = 64 << 20 }; /* limit while it is measured, before parts are left out */

static void put_count(struct jsonw *json, const char *name, uint64_t count)
{
    if (count > 0) {
        jsonw_u64(json, name, count);
    }
}

/* What is left out of a detail that is too long: each step includes those before it. */
enum shortened { WHOLE, WITHOUT_RECOVERY, WITHOUT_ARGS, WITHOUT_TARGET, WITHOUT_MADE, SHORTENED };

static void put_all(const struct detail *detail, enum shortened how, struct buf *out)
{
    struct jsonw json = {.out = out};
    jsonw_open(&json, NULL, '{');
    jsonw_bytes(&json, "command", detail->command);
    jsonw_bytes_some(&json, "command_id", detail->command_id);
    jsonw_bytes(&json, "actor_id", detail->actor_id);
    jsonw_bytes_some(&json, "effective_actor_id", detail->effective_actor_id);
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
    jsonw_digest_some(&json, "token_sha256", &detail->token);
    jsonw_digest_some(&json, "submitter", &detail->submitter);
    if (detail->confirmed_ms > 0) {
        jsonw_i64(&json, "confirmed_ms", detail->confirmed_ms);
    }
    jsonw_bytes_some(&json, "confirmed_by", detail->confirmed_by);
    put_count(&json, "required", detail->required);
    put_count(&json, "effects", detail->effects);
    put_count(&json, "async", detail->async);
    if (detail->waits_for.len > 0) {
        jsonw_raw(&json, "waits_for", detail->waits_for);
    }
    if (how < WITHOUT_MADE && detail->made.len > 0) {
        jsonw_raw(&json, "made", detail->made);
    }
    jsonw_bytes_some(&json, "kept_outcome", detail->kept_outcome);
    put_count(&json, "kept_code", (uint64_t)detail->kept_code);
    if (detail->has_failed) {
        jsonw_bool(&json, "failed", true);
    }
    put_count(&json, "compensating_ms", (uint64_t)detail->compensating_ms);
    if (how < WITHOUT_RECOVERY && detail->recovery_id.len > 0) {
        jsonw_bytes(&json, "recovery_id", detail->recovery_id);
        jsonw_bytes(&json, "recovery_action", detail->recovery_action);
        jsonw_bytes_some(&json, "recovery_by", detail->recovery_by);
        put_count(&json, "recovery_ms", (uint64_t)detail->recovery_ms);
    }
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

/* ---- reading ------------------------------------------------------------------------------- */

enum detail_form { TEXT, RAW, FLAG, NUMBER /* int64_t or uint64_t */, DIGEST };

#define AT(member) offsetof(struct detail, member)
/* In the order in which put_all writes them. */
static const struct {
    struct slice name;
    enum detail_form form;
    size_t at;
} members[] = {
    {SLICE_INIT("command"), TEXT, AT(command)},
    {SLICE_INIT("command_id"), TEXT, AT(command_id)},
    {SLICE_INIT("actor_id"), TEXT, AT(actor_id)},
    {SLICE_INIT("effective_actor_id"), TEXT, AT(effective_actor_id)},
    {SLICE_INIT("target"), RAW, AT(target)},
    {SLICE_INIT("args"), RAW, AT(args)},
    {SLICE_INIT("key_given"), FLAG, AT(is_key_given)},
    {SLICE_INIT("read"), FLAG, AT(is_read)},
    {SLICE_INIT("uncertain"), FLAG, AT(is_uncertain)},
    {SLICE_INIT("step_up"), FLAG, AT(is_confirmed_by_step_up)},
    {SLICE_INIT("token_sha256"), DIGEST, AT(token)},
    {SLICE_INIT("submitter"), DIGEST, AT(submitter)},
    {SLICE_INIT("confirmed_ms"), NUMBER, AT(confirmed_ms)},
    {SLICE_INIT("confirmed_by"), TEXT, AT(confirmed_by)},
    {SLICE_INIT("required"), NUMBER, AT(required)},
    {SLICE_INIT("effects"), NUMBER, AT(effects)},
    {SLICE_INIT("async"), NUMBER, AT(async)},
    {SLICE_INIT("waits_for"), RAW, AT(waits_for)},
    {SLICE_INIT("made"), RAW, AT(made)},
    {SLICE_INIT("kept_outcome"), TEXT, AT(kept_outcome)},
    {SLICE_INIT("kept_code"), NUMBER, AT(kept_code)},
    {SLICE_INIT("failed"), FLAG, AT(has_failed)},
    {SLICE_INIT("compensating_ms"), NUMBER, AT(compensating_ms)},
    {SLICE_INIT("recovery_id"), TEXT, AT(recovery_id)},
    {SLICE_INIT("recovery_action"), TEXT, AT(recovery_action)},
    {SLICE_INIT("recovery_by"), TEXT, AT(recovery_by)},
    {SLICE_INIT("recovery_ms"), NUMBER, AT(recovery_ms)},
};

/* A value of a different form is read as absent. */
static void take(
    struct slice bytes, const struct json_value *value, enum detail_form form, void *into)
{
    struct slice text = json_is(value, JSON_STRING) ? json_text(value) : SLICE_EMPTY;
    struct digest digest = {{0}};
    int64_t number = 0;
    bool is_true = json_is(value, JSON_TRUE);
    switch (form) {
    case TEXT: memcpy(into, &text, sizeof text); return;
    case RAW:
        text = json_raw(bytes, value);
        memcpy(into, &text, sizeof text);
        return;
    case FLAG: memcpy(into, &is_true, sizeof is_true); return;
    case NUMBER:
        number = json_int(value, &number) && number > 0 ? number : 0;
        memcpy(into, &number, sizeof number);
        return;
    case DIGEST:
        if (text_hex(text, digest.bytes, sizeof digest.bytes)) {
            memcpy(into, &digest, sizeof digest);
        }
        return;
    }
}

enum status detail_read(struct slice bytes, struct arena *arena, struct detail *ret_detail)
{
    const struct json_value *root = NULL;
    struct detail detail = {.command = SLICE_EMPTY};
    enum status status = json_read(bytes, arena, &root, NULL);
    if (status != OK || !json_is(root, JSON_OBJECT)) {
        return status == E_NOMEM ? E_NOMEM : E_CORRUPT;
    }
    size_t at = 0; /* the next is usually the one after the last */
    for (uint32_t i = 0; i < root->count; i++) {
        struct slice name = json_text(&root->members[i].name);
        size_t tries = 0;
        while (tries < COUNT(members) && !slice_equal(members[at].name, name)) {
            at = (at + 1) % COUNT(members);
            tries++;
        }
        if (tries < COUNT(members)) {
            take(
                bytes, &root->members[i].value, members[at].form, (char *)&detail + members[at].at);
        }
    }
    if (detail.command.len == 0) {
        return E_CORRUPT;
    }
    *ret_detail = detail;
    return OK;
}

enum status detail_command(struct slice bytes, struct arena *arena, struct slice *ret_command)
{
    static const struct slice start = SLICE_INIT("{\"command\":\"");
    struct detail detail;
    size_t end = slice_starts(bytes, start) ? start.len : bytes.len; /* as put_all writes it */
    while (end < bytes.len && bytes.data[end] != '"' && bytes.data[end] != '\\') {
        end++;
    }
    if (end > start.len && end < bytes.len && bytes.data[end] == '"') {
        *ret_command = slice_of(bytes.data + start.len, end - start.len);
        return OK;
    }
    enum status status = detail_read(bytes, arena, &detail);
    *ret_command = status == OK ? detail.command : *ret_command;
    return status;
}

/* A detail that was read, with a change that may shorten it. */
static enum status put_again(
    const struct detail *detail, struct arena *arena, struct slice *ret_bytes)
{
    struct mem mem = arena_mem(arena);
    struct buf out;
    buf_init(&out, &mem, 2 * LIMIT_DETAIL_BYTES_MAX);
    enum status status = detail_put(detail, &out);
    *ret_bytes = status == OK ? buf_view(&out) : SLICE_EMPTY;
    return status == E_INVALID ? E_CORRUPT : status; /* it was read, so that it fits */
}

enum status detail_mark(
    struct slice bytes, bool is_uncertain, struct arena *arena, struct slice *ret_bytes)
{
    struct detail detail;
    enum status status = detail_read(bytes, arena, &detail);
    if (status != OK || detail.is_uncertain == is_uncertain) {
        *ret_bytes = SLICE_EMPTY;
        return status;
    }
    detail.is_uncertain = is_uncertain;
    return put_again(&detail, arena, ret_bytes);
}

void detail_set_recovery(struct detail *detail, const struct detail_recovery *recovery)
{
    detail->recovery_id = recovery->id;
    detail->recovery_action = recovery->action;
    detail->recovery_by = recovery->by;
    detail->recovery_ms = recovery->ms;
}

enum status detail_recovered(struct slice bytes, const struct detail_recovery *recovery,
    struct arena *arena, struct slice *ret_bytes)
{
    struct detail detail;
    enum status status = detail_read(bytes, arena, &detail);
    if (status != OK) {
        return status;
    }
    detail_set_recovery(&detail, recovery);
    return put_again(&detail, arena, ret_bytes);
}
