#include "core/record.h"

#include <string.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/text.h"
#include "base/uuid.h"

enum { RECORD_FORMAT = 1 }; /* first byte of the stored form */

struct key_part {
    const char *name;
    struct slice value;
    size_t bytes_max;
    bool required;
};

enum status record_key_seal(struct record_key *key, struct err *err)
{
    return record_key_seal_as(key, RECORD_OPERATION, err);
}

enum status record_key_seal_as(struct record_key *key, enum record_kind kind, struct err *err)
{
    const struct key_part parts[] = {
        {"tenant", key->tenant, LIMIT_TENANT_BYTES_MAX, true},
        {"scope", key->scope, LIMIT_SCOPE_BYTES_MAX, false},
        {"principal", key->principal, LIMIT_PRINCIPAL_BYTES_MAX, false},
        {"key", key->key, LIMIT_KEY_BYTES_MAX, true},
    };
    /* Each part behind its length: "ab" + "c" is not "a" + "bc" (P9, OPS-1). */
    char framed[1 + 4 * (2 + 255)];
    size_t at = 0;
    /* An operation's starts with the upper byte of a small length, which is 0 and no kind. */
    if (kind != RECORD_OPERATION) {
        framed[at++] = (char)kind;
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i].required && parts[i].value.len == 0) {
            return err_set(err, E_INVALID, "%s is empty", parts[i].name);
        }
        if (parts[i].value.len > parts[i].bytes_max) {
            return err_set(err, E_INVALID, "%s is %zu bytes long, more than %s_bytes_max (%zu)",
                parts[i].name, parts[i].value.len, parts[i].name, parts[i].bytes_max);
        }
        /* Evidence is JSON: a name that is not text could not be told truthfully there. */
        if (!text_utf8(parts[i].value)) {
            return err_set(err, E_INVALID, "%s is not valid UTF-8", parts[i].name);
        }
        framed[at++] = (char)(unsigned char)(parts[i].value.len >> 8);
        framed[at++] = (char)(unsigned char)(parts[i].value.len & 0xff);
        if (parts[i].value.len > 0) {
            memcpy(framed + at, parts[i].value.data, parts[i].value.len);
            at += parts[i].value.len;
        }
    }
    ASSERT(at <= sizeof framed);
    digest_sha256(framed, at, &key->hash);
    return OK;
}

/*
 * RFC 9562 UUIDv7: 48 bits of time, version, 12 bits, variant, 62 bits. The free 74 bits are 26 of
 * the fence and 48 of the key's hash. Two grants of one key in one millisecond differ in the fence;
 * nothing is random, so that decide stays pure.
 */
struct op_id op_id_make(int64_t now_ms, const struct digest *key_hash, uint64_t fence)
{
    struct op_id id;
    uint64_t time = now_ms < 0 ? 0 : (uint64_t)now_ms;
    for (int i = 0; i < 6; i++) {
        id.bytes[i] = (unsigned char)(time >> (40 - 8 * i));
    }
    id.bytes[6] = (unsigned char)(0x70 | ((fence >> 22) & 0x0f));
    id.bytes[7] = (unsigned char)(fence >> 14);
    id.bytes[8] = (unsigned char)(0x80 | ((fence >> 8) & 0x3f));
    id.bytes[9] = (unsigned char)fence;
    memcpy(id.bytes + 10, key_hash->bytes, 6);
    return id;
}

uint64_t op_id_prefix(const struct op_id *id)
{
    uint64_t prefix = 0;
    for (int i = 10; i < 16; i++) {
        prefix = prefix << 8 | id->bytes[i];
    }
    return prefix;
}

int64_t op_id_time_ms(const struct op_id *id)
{
    uint64_t time = 0;
    for (int i = 0; i < 6; i++) {
        time = time << 8 | id->bytes[i];
    }
    return (int64_t)time;
}

uint32_t op_id_fence(const struct op_id *id)
{
    return (uint32_t)(id->bytes[6] & 0x0f) << 22 | (uint32_t)id->bytes[7] << 14 |
           (uint32_t)(id->bytes[8] & 0x3f) << 8 | id->bytes[9];
}

bool op_id_equal(const struct op_id *a, const struct op_id *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

char *op_id_put(char ret_text[OP_ID_TEXT_BYTES], const struct op_id *id)
{
    memcpy(ret_text, "op_", 3);
    (void)uuid_put(ret_text + 3, id->bytes);
    return ret_text;
}

bool op_id_read(struct slice text, struct op_id *ret_id)
{
    return text.len == OP_ID_TEXT_BYTES - 1 && memcmp(text.data, "op_", 3) == 0 &&
           uuid_read(slice_of(text.data + 3, text.len - 3), ret_id->bytes);
}

static const char *const status_names[] = {
    [RECORD_IN_PROGRESS] = "in_progress",
    [RECORD_UNKNOWN] = "unknown",
    [RECORD_RELEASED] = "released",
    [RECORD_EXECUTED] = "executed",
    [RECORD_FAILED] = "failed",
    [RECORD_REJECTED] = "rejected",
    [RECORD_COMPENSATED] = "compensated",
};

enum { STATUS_COUNT = sizeof status_names / sizeof *status_names };

const char *record_status_name(enum record_status status)
{
    return status >= RECORD_IN_PROGRESS && (int)status < STATUS_COUNT ? status_names[status]
                                                                      : "unnamed";
}

bool record_status_read(struct slice text, enum record_status *ret_status)
{
    for (int i = RECORD_IN_PROGRESS; i < STATUS_COUNT; i++) {
        if (slice_is(text, status_names[i])) {
            *ret_status = (enum record_status)i;
            return true;
        }
    }
    return false;
}

bool record_status_sealed(enum record_status status)
{
    return status >= RECORD_EXECUTED;
}

bool record_window_over(const struct record *record, int64_t now_ms)
{
    switch (record->status) {
    case RECORD_IN_PROGRESS:
    case RECORD_UNKNOWN: return false; /* P8 */
    case RECORD_RELEASED:
    case RECORD_EXECUTED:
    case RECORD_FAILED:
    case RECORD_REJECTED:
    case RECORD_COMPENSATED: break;
    }
    return now_ms >= record->window_expires_ms;
}

int64_t record_due_ms(const struct record *record)
{
    switch (record->status) {
    case RECORD_IN_PROGRESS: return record->lease_expires_ms;
    case RECORD_UNKNOWN: return INT64_MAX;
    case RECORD_RELEASED:
    case RECORD_EXECUTED:
    case RECORD_FAILED:
    case RECORD_REJECTED:
    case RECORD_COMPENSATED: break;
    }
    return record->window_expires_ms;
}

/* R7 */
static bool source_holds(const struct record *record)
{
    const struct outcome *outcome = &record->outcome;
    return record->status == RECORD_EXECUTED && record->source.version.len > 0 &&
           slice_equal(record->source.type, record->key.principal) &&
           slice_equal(record->source.id, record->key.key) && record->source.type.len > 0 &&
           record->effect_id.len == 0 && outcome->code == 0 && outcome->meta.len == 0 &&
           outcome->body.bytes == 0 && !outcome->body.retained && record->request.bytes == 0 &&
           !record->request.retained;
}

/* The first invariant that does not hold, or NULL. Shared by record_check and record_decode, so
 * that what is written and what is read are held to the same rules. */
static const char *record_fault(const struct record *record)
{
    if (record->kind != RECORD_OPERATION && record->kind != RECORD_SOURCE) {
        return "the kind is not known";
    }
    if (record->kind == RECORD_SOURCE && !source_holds(record)) {
        return "it is not what is remembered of a source"; /* R7 */
    }
    if ((int)record->status < RECORD_IN_PROGRESS || (int)record->status >= STATUS_COUNT) {
        return "the status is not known";
    }
    if (record->fence == 0 || record->attempt == 0) {
        return "there is no fence or attempt"; /* R1 */
    }
    bool lease = record->lease_expires_ms != 0;
    bool window = record->window_expires_ms != 0;
    if (lease != (record->status == RECORD_IN_PROGRESS)) {
        return "only what is in progress has a lease"; /* R2, R3 */
    }
    if (window == (record->status == RECORD_IN_PROGRESS || record->status == RECORD_UNKNOWN)) {
        return "what is in progress or unknown has no window, all else has"; /* R2, R3, R4 */
    }
    if ((record->sealed_ms != 0) != record_status_sealed(record->status)) {
        return "only what is sealed has a seal time"; /* R5 */
    }
    if (!record_status_sealed(record->status) &&
        (record->outcome.body.bytes != 0 || record->outcome.meta.len != 0 ||
            record->outcome.code != 0 || record->effect_id.len != 0)) {
        return "only what is sealed has an outcome"; /* R5 */
    }
    if (record->window_ms <= 0) {
        return "the window has no length"; /* R4 */
    }
    if (record->key.tenant.len == 0 || record->key.key.len == 0) {
        return "tenant or key is empty"; /* R6 */
    }
    if (record->key.tenant.len > LIMIT_TENANT_BYTES_MAX ||
        record->key.scope.len > LIMIT_SCOPE_BYTES_MAX ||
        record->key.principal.len > LIMIT_PRINCIPAL_BYTES_MAX ||
        record->key.key.len > LIMIT_KEY_BYTES_MAX ||
        record->effect_id.len > LIMIT_EFFECT_ID_BYTES_MAX ||
        record->outcome.meta.len > LIMIT_OUTCOME_META_BYTES_MAX ||
        record->trace.len > LIMIT_TRACE_BYTES_MAX || record->reason.len > LIMIT_REASON_BYTES_MAX ||
        record->source.type.len > LIMIT_SOURCE_BYTES_MAX ||
        record->source.id.len > LIMIT_SOURCE_BYTES_MAX ||
        record->source.version.len > LIMIT_SOURCE_BYTES_MAX) {
        return "a name is longer than its limit"; /* R6 */
    }
    return NULL;
}

void record_check(const struct record *record)
{
    const char *fault = record_fault(record);
    if (fault != NULL) {
        check_failed(fault, __FILE__, __LINE__);
    }
}

static void put_slice(struct buf *out, struct slice slice)
{
    buf_varint(out, slice.len);
    buf_slice(out, slice);
}

static void put_body(struct buf *out, const struct body_ref *body)
{
    bool there = body->retained || body->bytes > 0;
    buf_char(out, (char)((there ? 1 : 0) | (body->retained ? 2 : 0)));
    if (there) {
        buf_append(out, body->digest.bytes, sizeof body->digest.bytes);
        buf_varint(out, body->bytes);
        buf_varint(out, body->place);
    }
}

void record_encode(const struct record *record, struct buf *out)
{
    record_check(record);
    buf_char(out, RECORD_FORMAT);
    buf_char(out, (char)record->kind);
    buf_char(out, (char)record->status);
    buf_char(out, (char)record->fingerprint_version);
    buf_append(out, record->key.hash.bytes, sizeof record->key.hash.bytes);
    buf_append(out, record->operation_id.bytes, sizeof record->operation_id.bytes);
    buf_append(out, record->fingerprint.bytes, sizeof record->fingerprint.bytes);
    buf_varint(out, record->version);
    buf_varint(out, record->fence);
    buf_varint(out, record->attempt);
    buf_varint(out, record->duplicates);
    buf_varint(out, (uint64_t)record->created_ms);
    buf_varint(out, (uint64_t)record->updated_ms);
    buf_varint(out, (uint64_t)record->sealed_ms);
    buf_varint(out, (uint64_t)record->lease_expires_ms);
    buf_varint(out, (uint64_t)record->window_expires_ms);
    buf_varint(out, (uint64_t)record->window_ms);
    put_slice(out, record->key.tenant);
    put_slice(out, record->key.scope);
    put_slice(out, record->key.principal);
    put_slice(out, record->key.key);
    put_slice(out, record->effect_id);
    buf_le32(out, (uint32_t)record->outcome.code);
    put_slice(out, record->outcome.meta);
    put_body(out, &record->outcome.body);
    put_body(out, &record->request);
    put_slice(out, record->source.type);
    put_slice(out, record->source.id);
    put_slice(out, record->source.version);
    put_slice(out, record->trace);
    put_slice(out, record->reason);
}

/* A reader that remembers running out, so that decoding is checked once at the end. */
struct reader {
    const char *at;
    const char *end;
    bool failed;
};

static const char *take(struct reader *reader, size_t size)
{
    if (reader->failed || size > (size_t)(reader->end - reader->at)) {
        reader->failed = true;
        return NULL;
    }
    const char *place = reader->at;
    reader->at += size;
    return place;
}

static void take_bytes(struct reader *reader, void *ret_bytes, size_t size)
{
    const char *place = take(reader, size);
    if (place != NULL) {
        memcpy(ret_bytes, place, size);
    }
}

static unsigned char take_byte(struct reader *reader)
{
    unsigned char byte = 0;
    take_bytes(reader, &byte, 1);
    return byte;
}

static uint64_t take_varint(struct reader *reader)
{
    /* Most of them are one byte. */
    if (reader->at < reader->end && (*reader->at & 0x80) == 0 && !reader->failed) {
        return (unsigned char)*reader->at++;
    }
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        unsigned char byte = take_byte(reader);
        value |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            /* The tenth byte has one bit of room; anything else has a second spelling. */
            if ((shift == 63 && byte > 1) || (shift > 0 && byte == 0)) {
                reader->failed = true;
            }
            return value;
        }
    }
    reader->failed = true;
    return 0;
}

static int64_t take_time(struct reader *reader)
{
    uint64_t value = take_varint(reader);
    reader->failed = reader->failed || value > INT64_MAX;
    return reader->failed ? 0 : (int64_t)value;
}

static uint32_t take_u32(struct reader *reader)
{
    uint64_t value = take_varint(reader);
    reader->failed = reader->failed || value > UINT32_MAX;
    return reader->failed ? 0 : (uint32_t)value;
}

static struct slice take_slice(struct reader *reader)
{
    uint64_t size = take_varint(reader);
    const char *place = size > SIZE_MAX ? NULL : take(reader, (size_t)size);
    return place == NULL ? SLICE_EMPTY : slice_of(place, (size_t)size);
}

static void take_body(struct reader *reader, struct body_ref *ret_body)
{
    unsigned char flags = take_byte(reader);
    reader->failed = reader->failed || flags > 3 || flags == 2;
    if (flags & 1) {
        take_bytes(reader, ret_body->digest.bytes, sizeof ret_body->digest.bytes);
        ret_body->bytes = take_varint(reader);
        ret_body->place = take_varint(reader);
        ret_body->retained = (flags & 2) != 0;
        /* A body that is neither kept nor has bytes is no body, and that has its own spelling. */
        reader->failed = reader->failed || (ret_body->bytes == 0 && !ret_body->retained);
    }
}

static void take_numbers(struct reader *reader, struct record *record)
{
    record->version = take_varint(reader);
    record->fence = take_varint(reader);
    record->attempt = take_u32(reader);
    record->duplicates = take_u32(reader);
    record->created_ms = take_time(reader);
    record->updated_ms = take_time(reader);
    record->sealed_ms = take_time(reader);
    record->lease_expires_ms = take_time(reader);
    record->window_expires_ms = take_time(reader);
    record->window_ms = take_time(reader);
}

static void take_names(struct reader *reader, struct record *record)
{
    record->key.tenant = take_slice(reader);
    record->key.scope = take_slice(reader);
    record->key.principal = take_slice(reader);
    record->key.key = take_slice(reader);
    record->effect_id = take_slice(reader);
    unsigned char code[4] = {0};
    take_bytes(reader, code, sizeof code);
    record->outcome.code = (int32_t)((uint32_t)code[0] | (uint32_t)code[1] << 8 |
                                     (uint32_t)code[2] << 16 | (uint32_t)code[3] << 24);
    record->outcome.meta = take_slice(reader);
    take_body(reader, &record->outcome.body);
    take_body(reader, &record->request);
    record->source.type = take_slice(reader);
    record->source.id = take_slice(reader);
    record->source.version = take_slice(reader);
    record->trace = take_slice(reader);
    record->reason = take_slice(reader);
}

enum status record_decode(struct slice bytes, struct record *ret_record, struct err *err)
{
    struct reader reader = {.at = bytes.data, .end = bytes.data + bytes.len};
    struct record record = {0};
    unsigned char format = take_byte(&reader);
    if (!reader.failed && format != RECORD_FORMAT) {
        return err_set(err, E_CORRUPT, "record format %u is not known", format);
    }
    record.kind = (enum record_kind)take_byte(&reader);
    record.status = (enum record_status)take_byte(&reader);
    record.fingerprint_version = take_byte(&reader);
    take_bytes(&reader, record.key.hash.bytes, sizeof record.key.hash.bytes);
    take_bytes(&reader, record.operation_id.bytes, sizeof record.operation_id.bytes);
    take_bytes(&reader, record.fingerprint.bytes, sizeof record.fingerprint.bytes);
    take_numbers(&reader, &record);
    take_names(&reader, &record);
    if (reader.failed) {
        return err_set(err, E_CORRUPT, "record of %zu bytes is cut short or malformed", bytes.len);
    }
    if (reader.at != reader.end) {
        return err_set(
            err, E_CORRUPT, "record has %zu bytes too many", (size_t)(reader.end - reader.at));
    }
    const char *fault = record_fault(&record);
    if (fault != NULL) {
        return err_set(err, E_CORRUPT, "record does not hold together: %s", fault);
    }
    *ret_record = record;
    return OK;
}

enum status record_copy(const struct record *from, struct arena *arena, struct record *ret_record)
{
    struct record copy = *from;
    struct slice *const slices[] = {&copy.key.tenant, &copy.key.scope, &copy.key.principal,
        &copy.key.key, &copy.effect_id, &copy.outcome.meta, &copy.source.type, &copy.source.id,
        &copy.source.version, &copy.trace, &copy.reason};
    size_t bytes = 0;
    for (size_t i = 0; i < sizeof slices / sizeof *slices; i++) {
        bytes += slices[i]->len;
    }
    /* One piece for all of them: most are empty or short, and every answer is copied. */
    char *at = bytes == 0 ? NULL : arena_alloc(arena, bytes);
    if (bytes > 0 && at == NULL) {
        return E_NOMEM;
    }
    for (size_t i = 0; i < sizeof slices / sizeof *slices; i++) {
        size_t len = slices[i]->len;
        if (len > 0) {
            memcpy(at, slices[i]->data, len);
            *slices[i] = slice_of(at, len);
            at += len;
        } else {
            *slices[i] = SLICE_EMPTY;
        }
    }
    *ret_record = copy;
    return OK;
}
