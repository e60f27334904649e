#include "cli/remote_read.h"

#include "base/base64.h"
#include "base/text.h"
#include "base/uuid.h"
#include "canon/jcs.h"
#include "cli/operation.h"

/* ---- members ----------------------------------------------------------------------------- */

static enum status no_memory(struct err *err)
{
    return err_set(err, E_NOMEM, "out of memory");
}

/* A terminated copy of a string member; "" when there is none. NULL without memory. */
static const char *text_of(const struct json_value *object, const char *name, struct arena *arena)
{
    struct slice text = cli_member(object, slice_str(name));
    char *copy = arena_alloc(arena, text.len + 1);
    if (copy != NULL) {
        memcpy(copy, text.len == 0 ? "" : text.data, text.len);
        copy[text.len] = '\0';
    }
    return copy;
}

static int64_t time_of(const struct json_value *object, const char *name)
{
    int64_t ms = 0;
    (void)text_time(cli_member(object, slice_str(name)), &ms); /* left out, or null: 0 */
    return ms;
}

bool remote_read_u64(const struct json_value *object, struct slice name, uint64_t *ret_value)
{
    return text_u64(cli_member(object, name), ret_value);
}

static uint64_t number_of(const struct json_value *object, const char *name)
{
    uint64_t value = 0;
    (void)remote_read_u64(object, slice_str(name), &value);
    return value;
}

/* The canonical text of any value, in the arena. */
static enum status canonical(
    const struct json_value *value, struct arena *arena, struct slice *ret, struct err *err)
{
    struct buf text;
    buf_init(&text, &mem_libc, arena->max);
    enum status status = jcs_write(value, &text, NULL, err);
    if (status == OK && arena_copy(arena, buf_view(&text), ret) != OK) {
        status = no_memory(err);
    }
    buf_release(&text);
    return status;
}

static enum status unbase64(
    struct slice text, struct arena *arena, struct slice *ret_bytes, struct err *err)
{
    char *bytes = arena_alloc(arena, BASE64_BYTES_MAX(text.len));
    size_t size = 0;
    if (bytes == NULL) {
        return no_memory(err);
    }
    if (!base64_read(text, BASE64_PADDED, bytes, &size)) {
        return err_set(err, E_INVALID, "not valid base64");
    }
    *ret_bytes = slice_of(bytes, size);
    return OK;
}

/* Bytes as jsonw_bytes writes them: a string, or "<name>_base64". Any other value is its text. */
static enum status bytes_of(const struct json_value *object, const char *name, const char *base64,
    struct arena *arena, struct once_bytes *ret, struct err *err)
{
    struct slice bytes = SLICE_EMPTY;
    enum status status = OK;
    const struct json_value *value = json_find(object, slice_str(name));
    const struct json_value *coded = json_find(object, slice_str(base64));
    if (json_is(coded, JSON_STRING)) {
        status = unbase64(json_text(coded), arena, &bytes, err);
    } else if (json_is(value, JSON_STRING)) {
        status = arena_copy(arena, json_text(value), &bytes) == OK ? OK : no_memory(err);
    } else if (value != NULL && value->type != JSON_NULL) {
        status = canonical(value, arena, &bytes, err);
    }
    if (status == OK) {
        *ret = (struct once_bytes){bytes.data, bytes.len};
    }
    return status;
}

/* ---- an operation ------------------------------------------------------------------------ */

static bool status_of(struct slice name, enum once_status *ret)
{
    for (int i = ONCE_STATUS_IN_PROGRESS; i <= ONCE_COMPENSATED; i++) {
        if (slice_is(name, once_status_name((enum once_status)i))) {
            *ret = (enum once_status)i;
            return true;
        }
    }
    return false;
}

/* In parts, because it did not come through a server's door as JSON. */
static bool is_in_parts(const struct json_value *outcome, int64_t *ret_code)
{
    return json_int(json_find(outcome, SLICE_LIT("code")), ret_code) &&
           (json_is(json_find(outcome, SLICE_LIT("meta")), JSON_STRING) ||
               json_is(json_find(outcome, SLICE_LIT("meta_base64")), JSON_STRING));
}

/* An outcome is an object with code, meta and body; anything else is the body itself. */
static enum status read_outcome(struct slice text, const struct json_value *object,
    struct arena *arena, struct once_operation *op, struct err *err)
{
    const struct json_value *outcome = json_find(object, SLICE_LIT("outcome"));
    const struct json_value *kept = json_find(object, SLICE_LIT("outcome_retained"));
    int64_t code = 0;
    op->outcome_retained = !json_is(kept, JSON_FALSE);
    if (outcome == NULL || outcome->type == JSON_NULL) {
        op->outcome_retained = json_is(kept, JSON_TRUE);
        if (json_is(kept, JSON_FALSE)) { /* of how many bytes is not said: one stands for them */
            op->outcome.body = (struct once_bytes){NULL, 1};
            op->outcome.meta =
                (struct once_bytes){OPERATION_META_JSON.data, OPERATION_META_JSON.len};
        }
        return OK;
    }
    if (!is_in_parts(outcome, &code)) {
        struct slice body = SLICE_EMPTY;
        if (arena_copy(arena, json_raw(text, outcome), &body) != OK) {
            return no_memory(err);
        }
        op->outcome.body = (struct once_bytes){body.data, body.len};
        op->outcome.meta = (struct once_bytes){OPERATION_META_JSON.data, OPERATION_META_JSON.len};
        return OK;
    }
    op->outcome.code = (int32_t)code;
    op->outcome_retained =
        op->outcome_retained && !json_is(json_find(outcome, SLICE_LIT("retained")), JSON_FALSE);
    enum status status = bytes_of(outcome, "meta", "meta_base64", arena, &op->outcome.meta, err);
    if (status == OK) {
        status = bytes_of(outcome, "body", "body_base64", arena, &op->outcome.body, err);
    }
    if (status == OK && !op->outcome_retained) {
        op->outcome.body = (struct once_bytes){NULL, (size_t)number_of(outcome, "bytes")};
    }
    return status;
}

static enum status read_texts(const struct json_value *object, struct arena *arena,
    struct once_operation *op, struct err *err)
{
    const struct json_value *source = json_find(object, SLICE_LIT("source"));
    const struct json_value *trace = json_find(object, SLICE_LIT("trace"));
    op->tenant = text_of(object, "tenant", arena);
    op->scope = text_of(object, "scope", arena);
    op->principal = text_of(object, "principal", arena);
    op->key = text_of(object, "key", arena);
    op->effect_id = text_of(object, "effect_id", arena);
    op->reason = text_of(object, "reason", arena);
    op->source.type = text_of(source, "type", arena);
    op->source.id = text_of(source, "id", arena);
    op->source.version = text_of(source, "version", arena);
    op->trace = "";
    if (op->source.version == NULL || op->source.id == NULL || op->source.type == NULL ||
        op->reason == NULL || op->effect_id == NULL || op->key == NULL || op->principal == NULL ||
        op->scope == NULL || op->tenant == NULL) {
        return no_memory(err);
    }
    if (json_is(trace, JSON_OBJECT)) {
        struct slice text;
        enum status status = canonical(trace, arena, &text, err);
        char *copy = status == OK ? arena_zalloc(arena, text.len + 1) : NULL;
        if (copy == NULL) {
            return status == OK ? no_memory(err) : status;
        }
        memcpy(copy, text.data, text.len);
        op->trace = copy;
    }
    return OK;
}

/* A request is the JSON that it was, or else bytes as text. A server does not tell a text that was
 * JSON from one that was not: it is taken for JSON, which it shows in nearly all cases. */
static enum status read_request(const struct json_value *object, struct arena *arena,
    struct once_operation *op, struct err *err)
{
    const struct json_value *value = json_find(object, SLICE_LIT("request"));
    struct slice text = SLICE_EMPTY;
    if (!json_is(value, JSON_STRING)) {
        return bytes_of(object, "request", "request_base64", arena, &op->request, err);
    }
    enum status status = canonical(value, arena, &text, err);
    op->request = (struct once_bytes){text.data, text.len};
    return status;
}

enum status remote_read_operation(struct slice text, const struct json_value *object,
    struct arena *arena, struct once_operation *ret_operation, struct err *err)
{
    struct once_operation op = {0};
    struct slice id = cli_member(object, SLICE_LIT("operation_id"));
    if (id.len == 0 || id.len >= sizeof op.operation_id ||
        !status_of(cli_member(object, SLICE_LIT("status")), &op.status)) {
        return err_set(err, E_INVALID, "an operation without id or status");
    }
    memcpy(op.operation_id, id.data, id.len);
    op.fence = number_of(object, "fence");
    op.attempt = (uint32_t)number_of(object, "attempt");
    op.duplicates = (uint32_t)number_of(object, "duplicates");
    op.created_ms = time_of(object, "created_at");
    op.updated_ms = time_of(object, "updated_at");
    op.sealed_ms = time_of(object, "sealed_at");
    op.lease_expires_ms = time_of(object, "lease_expires_at");
    op.window_expires_ms = time_of(object, "window_expires_at");
    (void)text_hex(cli_member(object, SLICE_LIT("fingerprint")), op.fingerprint,
        sizeof op.fingerprint); /* of none there is nothing to show */
    enum status status = read_texts(object, arena, &op, err);
    status = status != OK ? status : read_outcome(text, object, arena, &op, err);
    status = status != OK ? status : read_request(object, arena, &op, err);
    if (status == OK) {
        *ret_operation = op;
    }
    return status;
}

/* ---- an entry ---------------------------------------------------------------------------- */

/* The same object without the two members that are not hashed. */
static enum status strip(const struct json_value *object, struct arena *arena,
    struct json_value *ret_bare, struct err *err)
{
    struct json_member *members = arena_alloc(arena, object->count * sizeof *members + 1);
    uint32_t count = 0;
    if (members == NULL) {
        return no_memory(err);
    }
    for (uint32_t i = 0; i < object->count; i++) {
        struct slice name = json_text(&object->members[i].name);
        if (!slice_is(name, "hash") && !slice_is(name, "prev_hash")) {
            members[count++] = object->members[i];
        }
    }
    *ret_bare = *object;
    ret_bare->members = members;
    ret_bare->count = count;
    return OK;
}

enum status remote_read_entry(const struct json_value *object, struct arena *arena,
    struct remote_entry *ret_entry, struct err *err)
{
    struct remote_entry read = {0};
    struct json_value bare;
    struct slice text;
    if (!json_is(object, JSON_OBJECT) ||
        !remote_read_u64(object, SLICE_LIT("seq"), &read.entry.seq) ||
        !text_hex(cli_member(object, SLICE_LIT("hash")), read.hash.bytes, DIGEST_BYTES) ||
        !text_hex(cli_member(object, SLICE_LIT("prev_hash")), read.prev_hash.bytes, DIGEST_BYTES)) {
        return err_set(err, E_INVALID, "an entry without seq, hash or prev_hash");
    }
    enum status status = strip(object, arena, &bare, err);
    status = status != OK ? status : canonical(&bare, arena, &text, err);
    if (status != OK) {
        return status;
    }
    read.entry.json = (struct once_bytes){text.data, text.len};
    read.entry.time_ms = time_of(object, "occurred_at");
    memcpy(read.entry.hash, read.hash.bytes, DIGEST_BYTES);
    read.type = cli_member(object, SLICE_LIT("type"));
    read.chain_id = cli_member(object, SLICE_LIT("chain_id"));
    read.operation_id = cli_member(object, SLICE_LIT("operation_id"));
    read.request_id = cli_member(json_find(object, SLICE_LIT("trace")), SLICE_LIT("request_id"));
    *ret_entry = read;
    struct evidence_cursor cursor = {.seq = read.entry.seq};
    if (uuid_read(read.chain_id, cursor.chain_id)) {
        ret_entry->entry.cursor = evidence_cursor_put(ret_entry->cursor, &cursor);
    }
    return OK;
}

bool remote_read_next(const struct json_value *page, char cursor[CURSOR_BYTES_MAX], bool *ret_more)
{
    const struct json_value *next = json_find(page, SLICE_LIT("next"));
    struct slice text = json_is(next, JSON_STRING) ? json_text(next) : SLICE_EMPTY;
    *ret_more = next != NULL && !json_is(next, JSON_NULL);
    if (!*ret_more) {
        return true;
    }
    if (text.len == 0 || text.len >= CURSOR_BYTES_MAX || slice_is(text, cursor)) {
        return false;
    }
    memcpy(cursor, text.data, text.len);
    cursor[text.len] = '\0';
    /* It goes into a query as it is: what would need escaping is not a cursor of ours. */
    return strspn(cursor, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") ==
           text.len;
}
