#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "base/check.h"
#include "base/limits.h"
#include "base/macros.h"
#include "base/text.h"
#include "canon/jsonw.h"
#include "envelope/effect.h"

enum { COMPENSATES_KEY_BYTES_MAX = 64 }; /* "compensates:" and an id */

/* ---- words ------------------------------------------------------------------------------ */

static const char *const acks[EFFECT_ACKS] = {[EFFECT_ACK_ACKNOWLEDGED] = "acknowledged",
    [EFFECT_ACK_REJECTED] = "rejected",
    [EFFECT_ACK_FAILED] = "failed",
    [EFFECT_ACK_PENDING] = "pending"};

const char *effect_ack_name(enum effect_ack ack)
{
    return acks[ack];
}

bool effect_ack_read(struct slice text, enum effect_ack *ret_ack)
{
    for (size_t i = 0; i < COUNT(acks); i++) {
        if (acks[i] != NULL && slice_is(text, acks[i])) {
            *ret_ack = (enum effect_ack)i;
            return true;
        }
    }
    return false;
}

/* ---- out -------------------------------------------------------------------------------- */

/* Sealed bytes as base64. */
static void put_sealed(
    struct jsonw *json, const char *name, struct slice bytes, struct buf *scratch)
{
    if (bytes.len == 0) {
        return;
    }
    if (buf_status(scratch) != OK) {
        return; /* the first failure counts */
    }
    buf_clear(scratch);
    char *text = buf_extend(scratch, BASE64_TEXT_BYTES(bytes.len));
    if (text != NULL) {
        (void)base64_put(text, bytes.data, bytes.len, BASE64_PADDED);
        jsonw_bytes(json, name, buf_view(scratch));
    }
}

static void put_number(struct jsonw *json, const char *name, int64_t number)
{
    if (number != 0) {
        jsonw_i64(json, name, number);
    }
}

static void put_made(struct jsonw *json, const struct effect_detail *detail, struct buf *scratch)
{
    char id[KIND_ID_TEXT_BYTES];
    jsonw_bytes_some(json, "effect_id", detail->effect_id);
    jsonw_bytes_some(json, "command_id", detail->command_id);
    jsonw_raw_some(json, "target", detail->target);
    put_number(json, "ordinal", detail->ordinal);
    jsonw_raw_some(json, "policy_refs", detail->policy_refs);
    jsonw_raw_some(json, "extensions", detail->extensions);
    jsonw_bytes_some(json, "lane", detail->lane);
    put_sealed(json, "redacted", detail->redacted, scratch);
    put_sealed(json, "undo", detail->undo, scratch);
    if (!op_id_absent(&detail->compensates)) {
        jsonw_str(json, "compensates", kind_id_put(id, RECORD_EFFECT, &detail->compensates));
    }
}

static void put_sent(struct jsonw *json, const struct effect_detail *detail)
{
    put_number(json, "first_sent_ms", detail->first_sent_ms);
    jsonw_str_some(json, "ack", effect_ack_name(detail->ack));
    jsonw_bytes_some(json, "provider_ref", detail->provider_ref);
    put_number(json, "ack_ms", detail->ack_ms);
    if (detail->is_uncertain) {
        jsonw_bool(json, "is_uncertain", true);
    }
    if (detail->retryable) {
        jsonw_bool(json, "retryable", true);
    }
    jsonw_digest_some(json, "ack_token", &detail->ack_token);
    put_number(json, "ack_attempt", detail->ack_attempt);
    jsonw_digest_some(json, "ack_token_before", &detail->ack_token_before);
    jsonw_bytes_some(json, "compensation", detail->compensation);
}

enum status effect_detail_encode(
    const struct effect_detail *detail, struct buf *out, struct err *err)
{
    struct buf scratch;
    struct jsonw json = {.out = out};
    size_t start = out->len;
    buf_init(&scratch, out->mem, 2 * LIMIT_DETAIL_BYTES_MAX);
    jsonw_open(&json, NULL, '{');
    put_made(&json, detail, &scratch);
    put_sent(&json, detail);
    jsonw_close(&json, '}');
    enum status status = buf_status(&scratch) == E_NOMEM ? E_NOMEM : buf_status(out);
    bool is_too_long = buf_status(&scratch) == E_LIMIT || out->len - start > LIMIT_DETAIL_BYTES_MAX;
    buf_release(&scratch);
    if (status == OK && is_too_long) {
        return err_set(err, E_LIMIT,
            "target, extensions, policy_refs and what its compensation needs are together longer "
            "than detail_bytes_max (%d)",
            LIMIT_DETAIL_BYTES_MAX);
    }
    return status == OK ? OK : err_set(err, status, "out of memory for an effect");
}

enum status effect_detail_fit(struct effect_detail *detail, struct buf *out, struct err *err)
{
    enum status status = effect_detail_encode(detail, out, err);
    if (status == E_LIMIT && detail->redacted.len > 0) {
        detail->redacted = SLICE_EMPTY;
        buf_clear(out);
        status = effect_detail_encode(detail, out, err);
    }
    return status;
}

/* ---- in --------------------------------------------------------------------------------- */

struct decoding {
    const struct json_value *object;
    struct slice bytes; /* the detail's bytes */
    struct arena *arena;
    enum status status; /* the first failure */
};

static void fail(struct decoding *in, enum status status)
{
    in->status = in->status == OK ? status : in->status;
}

static void get_text(struct decoding *in, const char *name, struct slice *ret_text)
{
    const struct json_value *value = json_find(in->object, slice_str(name));
    if (json_is(value, JSON_STRING)) {
        *ret_text = json_text(value);
    } else if (value != NULL) {
        fail(in, E_CORRUPT);
    }
}

static void get_json(
    struct decoding *in, const char *name, enum json_type type, struct slice *ret_text)
{
    const struct json_value *value = json_find(in->object, slice_str(name));
    if (value != NULL && type != JSON_NULL && value->type != type) {
        fail(in, E_CORRUPT);
    } else if (value != NULL) {
        *ret_text = json_raw(in->bytes, value);
    }
}

static void get_sealed(struct decoding *in, const char *name, struct slice *ret_bytes)
{
    struct slice text = SLICE_EMPTY;
    size_t len = 0;
    get_text(in, name, &text);
    char *bytes = text.len == 0 ? NULL : arena_alloc(in->arena, BASE64_BYTES_MAX(text.len));
    if (text.len == 0) {
        return;
    }
    if (bytes == NULL) {
        fail(in, E_NOMEM);
    } else if (!base64_read(text, BASE64_PADDED, bytes, &len)) {
        fail(in, E_CORRUPT);
    } else {
        *ret_bytes = slice_of(bytes, len);
    }
}

static void get_number(struct decoding *in, const char *name, int64_t *ret_number)
{
    const struct json_value *value = json_find(in->object, slice_str(name));
    if (value != NULL && !json_int(value, ret_number)) {
        fail(in, E_CORRUPT);
    }
}

static void get_digest(struct decoding *in, const char *name, struct digest *ret_digest)
{
    struct slice text = SLICE_EMPTY;
    get_text(in, name, &text);
    if (text.len > 0 && !text_hex(text, ret_digest->bytes, sizeof ret_digest->bytes)) {
        fail(in, E_CORRUPT);
    }
}

static void get_made(struct decoding *in, struct effect_detail *detail)
{
    enum record_kind kind = RECORD_EFFECT;
    struct slice text = SLICE_EMPTY;
    get_text(in, "effect_id", &detail->effect_id);
    get_text(in, "command_id", &detail->command_id);
    get_json(in, "target", JSON_NULL, &detail->target);
    get_number(in, "ordinal", &detail->ordinal);
    get_json(in, "policy_refs", JSON_ARRAY, &detail->policy_refs);
    get_json(in, "extensions", JSON_OBJECT, &detail->extensions);
    get_text(in, "lane", &detail->lane);
    get_sealed(in, "redacted", &detail->redacted);
    get_sealed(in, "undo", &detail->undo);
    get_text(in, "compensates", &text);
    if (text.len > 0 &&
        (!kind_id_read(text, &kind, &detail->compensates) || kind != RECORD_EFFECT)) {
        fail(in, E_CORRUPT);
    }
}

static void get_sent(struct decoding *in, struct effect_detail *detail)
{
    struct slice ack = SLICE_EMPTY;
    int64_t attempt = 0;
    get_number(in, "first_sent_ms", &detail->first_sent_ms);
    get_text(in, "ack", &ack);
    get_text(in, "provider_ref", &detail->provider_ref);
    get_number(in, "ack_ms", &detail->ack_ms);
    detail->is_uncertain = json_is(json_find(in->object, SLICE_LIT("is_uncertain")), JSON_TRUE);
    detail->retryable = json_is(json_find(in->object, SLICE_LIT("retryable")), JSON_TRUE);
    get_digest(in, "ack_token", &detail->ack_token);
    get_number(in, "ack_attempt", &attempt);
    get_digest(in, "ack_token_before", &detail->ack_token_before);
    get_text(in, "compensation", &detail->compensation);
    if ((ack.len > 0 && !effect_ack_read(ack, &detail->ack)) || attempt < 0 ||
        attempt > UINT32_MAX) {
        fail(in, E_CORRUPT);
    }
    detail->ack_attempt = (uint32_t)attempt;
}

bool effect_detail_may_have(struct slice bytes, const char *name)
{
    char text[32];
    int len = snprintf(text, sizeof text, "\"%s\":", name);
    ASSERT(len > 0 && (size_t)len < sizeof text);
    return memmem(bytes.data, bytes.len, text, (size_t)len) != NULL;
}

enum status effect_detail_decode(
    struct slice bytes, struct arena *arena, struct effect_detail *ret_detail, struct err *err)
{
    struct decoding in = {.bytes = bytes, .arena = arena};
    struct effect_detail detail = {.ordinal = 0};
    enum status status = OK;
    if (bytes.len > 0) {
        status = json_read(bytes, arena, &in.object, NULL);
        if (status == OK && in.object->type == JSON_OBJECT) {
            get_made(&in, &detail);
            get_sent(&in, &detail);
            status = in.status;
        } else {
            status = status == E_NOMEM ? E_NOMEM : E_CORRUPT;
        }
    }
    if (status != OK) {
        return err_set(err, status,
            status == E_NOMEM ? "out of memory for an effect"
                              : "the detail of an effect is damaged");
    }
    *ret_detail = detail;
    return OK;
}

/* ---- names ------------------------------------------------------------------------------ */

bool effect_has_moved_command(const struct record *last)
{
    return last->kind == RECORD_COMMAND && last->status != RECORD_COMPENSATING;
}

bool effect_has_command(const struct record *record, const struct effect_detail *detail)
{
    enum record_kind kind = RECORD_OPERATION;
    struct op_id id;
    return !op_id_absent(&record->parent) && kind_id_read(detail->command_id, &kind, &id) &&
           kind == RECORD_COMMAND;
}

struct slice effect_name(const struct record *record, const struct effect_detail *detail,
    char buffer[KIND_ID_TEXT_BYTES])
{
    return detail->effect_id.len > 0
               ? detail->effect_id
               : slice_str(kind_id_put(buffer, RECORD_EFFECT, &record->operation_id));
}

enum status effect_undo_key(const struct record *record, struct slice effect_type,
    struct arena *arena, struct record_key *ret_key, struct err *err)
{
    static const char prefix[] = "compensates:";
    char *text = arena_alloc(arena, COMPENSATES_KEY_BYTES_MAX);
    if (text == NULL) {
        return err_set(err, E_NOMEM, "out of memory for an effect");
    }
    memcpy(text, prefix, sizeof prefix);
    (void)kind_id_put(text + sizeof prefix - 1, RECORD_EFFECT, &record->operation_id);
    *ret_key = (struct record_key){
        .tenant = record->key.tenant, .scope = effect_type, .key = slice_str(text)};
    return record_key_seal_as(ret_key, RECORD_EFFECT, err);
}
