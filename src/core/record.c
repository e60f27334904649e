#include "core/record.h"

#include <string.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/macros.h"
#include "base/name.h"
#include "base/uuid.h"
#include "core/kind.h"

/* First byte of the stored form. Format 1 ends before the door. */
enum { RECORD_FORMAT_1 = 1, RECORD_FORMAT = 2 };

/* Which optional members a record of format 2 has: flags in the byte after the door. */
enum {
    HAS_HOLDER = 1 << 0,
    HAS_PARENT = 1 << 1,
    HAS_DUE = 1 << 2,
    HAS_DETAIL = 1 << 3,
    RECONCILES = 1 << 4,
    HAS_KNOWN = (1 << 5) - 1,
};

enum { VARINT_MAX = 10 }; /* bytes of a number of 64 bits, seven to a byte */

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
    ASSERT(kind_known(kind)); /* P9: it is a part of the hash */
    const struct key_part parts[] = {
        {"tenant", key->tenant, LIMIT_TENANT_BYTES_MAX, true},
        {"scope", key->scope, LIMIT_SCOPE_BYTES_MAX, false},
        {"principal", key->principal, LIMIT_PRINCIPAL_BYTES_MAX, false},
        {"key", key->key, LIMIT_KEY_BYTES_MAX, true},
    };
    /* Each part after its length: "ab" + "c" is not "a" + "bc" (P9, OPS-1). */
    char framed[1 + 4 * (2 + 255)];
    size_t at = 0;
    /* An operation's bytes start with the upper byte of a small length: 0, which is no kind. */
    if (kind != RECORD_OPERATION) {
        framed[at++] = (char)kind;
    }
    for (size_t i = 0; i < COUNT(parts); i++) {
        if (parts[i].required && parts[i].value.len == 0) {
            return err_set(err, E_INVALID, "%s is empty", parts[i].name);
        }
        if (parts[i].value.len > parts[i].bytes_max) {
            return err_set(err, E_INVALID, "%s is %zu bytes long, more than %s_bytes_max (%zu)",
                parts[i].name, parts[i].value.len, parts[i].name, parts[i].bytes_max);
        }
        /* Evidence is JSON: a name that is not text could not be written there unchanged. */
        if (name_check_utf8(parts[i].name, parts[i].value, err) != OK) {
            return E_INVALID;
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

bool op_id_absent(const struct op_id *id)
{
    static const struct op_id absent = {{0}};
    return op_id_equal(id, &absent);
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
    [RECORD_PENDING] = "pending",
    [RECORD_WAITING] = "waiting",
    [RECORD_DEAD] = "dead",
    [RECORD_COMPENSATING] = "compensating",
};
static_assert(COUNT(status_names) == RECORD_STATUS_END, "all have names");

const char *record_status_name(enum record_status status)
{
    return (int)status >= RECORD_IN_PROGRESS && (int)status < RECORD_STATUS_END
               ? status_names[status]
               : "unnamed";
}

bool record_status_read(struct slice text, enum record_status *ret_status)
{
    for (int i = RECORD_IN_PROGRESS; i < RECORD_STATUS_END; i++) {
        if (slice_is(text, status_names[i])) {
            *ret_status = (enum record_status)i;
            return true;
        }
    }
    return false;
}

bool record_status_sealed(enum record_status status)
{
    return status == RECORD_EXECUTED || status == RECORD_FAILED || status == RECORD_REJECTED ||
           status == RECORD_COMPENSATED;
}

bool record_status_expires(enum record_status status)
{
    return status == RECORD_RELEASED || record_status_sealed(status); /* R4 */
}

static const char *const door_names[] = {
    [RECORD_DOOR_FENCES] = "fences",
    [RECORD_DOOR_GATEWAY] = "gateway",
    [RECORD_DOOR_RUN] = "run",
    [RECORD_DOOR_COMMANDS] = "commands",
    [RECORD_DOOR_EFFECTS] = "effects",
    [RECORD_DOOR_INBOX] = "inbox",
};
static_assert(COUNT(door_names) == RECORD_DOOR_END, "all have names");

const char *record_door_name(enum record_door door)
{
    return (int)door > RECORD_DOOR_NONE && (int)door < RECORD_DOOR_END ? door_names[door]
                                                                       : "unnamed";
}

bool record_door_read(struct slice text, enum record_door *ret_door)
{
    for (int i = RECORD_DOOR_NONE + 1; i < RECORD_DOOR_END; i++) {
        if (slice_is(text, door_names[i])) {
            *ret_door = (enum record_door)i;
            return true;
        }
    }
    return false;
}

const char *record_due_name(enum record_due due)
{
    switch (due) {
    case RECORD_DUE_NEVER: return "never";
    case RECORD_DUE_LEASE_OVER: return "lease_over";
    case RECORD_DUE_NEXT_ATTEMPT: return "next_attempt";
    case RECORD_DUE_CONFIRMATION_OVER: return "confirmation_over";
    case RECORD_DUE_RECONCILE_AGAIN: return "reconcile_again";
    case RECORD_DUE_WINDOW_OVER: return "window_over";
    }
    return "unnamed";
}

bool record_window_over(const struct record *record, int64_t now_ms)
{
    return record_status_expires(record->status) && now_ms >= record->window_expires_ms; /* P8 */
}

/* Its door may ask the provider. Whether it does depends on its configuration, which may change: so
 * the record is due for as long as it is unknown. Format 1 does not name the door. */
static bool may_reconcile(const struct record *record)
{
    return record->kind == RECORD_OPERATION &&
           (record->door == RECORD_DOOR_GATEWAY || record->door == RECORD_DOOR_NONE);
}

enum record_due record_due(const struct record *record)
{
    switch (record->status) {
    case RECORD_IN_PROGRESS: return RECORD_DUE_LEASE_OVER;
    case RECORD_PENDING: return RECORD_DUE_NEXT_ATTEMPT;
    case RECORD_WAITING:
    case RECORD_COMPENSATING:
        return record->due_ms == 0 ? RECORD_DUE_NEVER : RECORD_DUE_CONFIRMATION_OVER;
    case RECORD_UNKNOWN:
        return record->due_ms == 0 && !may_reconcile(record) ? RECORD_DUE_NEVER
                                                             : RECORD_DUE_RECONCILE_AGAIN;
    case RECORD_DEAD: return RECORD_DUE_NEVER;
    case RECORD_RELEASED:
    case RECORD_EXECUTED:
    case RECORD_FAILED:
    case RECORD_REJECTED:
    case RECORD_COMPENSATED: break;
    }
    return RECORD_DUE_WINDOW_OVER;
}

int64_t record_due_ms(const struct record *record)
{
    switch (record_due(record)) {
    case RECORD_DUE_LEASE_OVER: return record->lease_expires_ms;
    case RECORD_DUE_WINDOW_OVER: return record->window_expires_ms;
    case RECORD_DUE_NEXT_ATTEMPT:
    case RECORD_DUE_CONFIRMATION_OVER: return record->due_ms;
    case RECORD_DUE_RECONCILE_AGAIN:
        return record->due_ms == 0 ? record->updated_ms : record->due_ms;
    case RECORD_DUE_NEVER: break;
    }
    return INT64_MAX;
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
           !record->request.retained && record->door == RECORD_DOOR_NONE && !record->reconciles &&
           op_id_absent(&record->parent) && record->detail.len == 0;
}

/* R1: whether a record can be in this status before it was ever granted. */
static bool before_grant(enum record_status status)
{
    return status == RECORD_PENDING || status == RECORD_WAITING || status == RECORD_DEAD ||
           status == RECORD_REJECTED;
}

/* R1 to R5: grants, times and outcome fit the status. */
static const char *life_fault(const struct record *record)
{
    enum record_status status = record->status;
    bool starts_over = record->kind == RECORD_COMMAND && record->attempt == 0;
    if ((record->fence == 0) != (record->attempt == 0) && !starts_over) {
        return "a fence and an attempt come together"; /* R1 */
    }
    if (record->attempt == 0 && !before_grant(status)) {
        return "the fence or attempt is missing"; /* R1 */
    }
    if ((record->lease_expires_ms != 0) != (status == RECORD_IN_PROGRESS)) {
        return "only what is in progress has a lease"; /* R2, R3, R4 */
    }
    if ((record->window_expires_ms != 0) != record_status_expires(status)) {
        return "a released or settled record has a window, no other has"; /* R2, R3, R4 */
    }
    bool sealed = record_status_sealed(status) || status == RECORD_COMPENSATING;
    if (record_sealed(record) != sealed && !(record_sealed(record) && status == RECORD_UNKNOWN)) {
        return "only what is sealed has a seal time"; /* R5 */
    }
    if (!record_sealed(record) &&
        (record->outcome.body.bytes != 0 || record->outcome.meta.len != 0 ||
            record->outcome.code != 0 || record->effect_id.len != 0)) {
        return "only what is sealed has an outcome"; /* R5 */
    }
    if (record->window_ms <= 0) {
        return "the window has no length"; /* R4 */
    }
    return NULL;
}

/* R9 */
static const char *due_fault(const struct record *record)
{
    enum record_status status = record->status;
    bool may = status == RECORD_PENDING || status == RECORD_WAITING || status == RECORD_UNKNOWN ||
               status == RECORD_COMPENSATING;
    if (record->due_ms < 0 || (record->due_ms != 0 && !may) ||
        (record->due_ms == 0 && status == RECORD_PENDING)) {
        return "the due time is not one that the status has";
    }
    if (record->holder != 0 && status != RECORD_IN_PROGRESS) {
        return "only what is in progress has a holder";
    }
    if ((int)record->door < RECORD_DOOR_NONE || (int)record->door >= RECORD_DOOR_END) {
        return "the door is not known";
    }
    return NULL;
}

/* R6 */
static const char *name_fault(const struct record *record)
{
    if (record->key.tenant.len == 0 || record->key.key.len == 0) {
        return "tenant or key is empty";
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
        record->source.version.len > LIMIT_SOURCE_BYTES_MAX ||
        record->detail.len > LIMIT_DETAIL_BYTES_MAX) {
        return "a name is longer than its limit";
    }
    return NULL;
}

const char *record_flaw(const struct record *record)
{
    if (!kind_known(record->kind)) {
        return "the kind is not known";
    }
    if (!kind_has_status(record->kind, record->status)) {
        return "the status is not one that the kind has"; /* R8 */
    }
    if (record->kind == RECORD_SOURCE && !source_holds(record)) {
        return "it is not the record of a source"; /* R7 */
    }
    const char *fault = life_fault(record);
    fault = fault == NULL ? due_fault(record) : fault;
    return fault == NULL ? name_fault(record) : fault;
}

void record_check(const struct record *record)
{
    const char *fault = record_flaw(record);
    if (fault != NULL) {
        check_failed(fault, __FILE__, __LINE__);
    }
}

/* ---- the stored form ----------------------------------------------------------------------- */

/* Each function writes where record_bytes_max has made room, and returns the end. */

static char *put_bytes(char *at, const void *bytes, size_t size)
{
    memcpy(at, bytes, size);
    return at + size;
}

/* LEB128. Most numbers and lengths of a record are one byte. */
static char *put_varint(char *at, uint64_t value)
{
    for (; value >= 0x80; value >>= 7) {
        *at++ = (char)(unsigned char)(value | 0x80);
    }
    *at++ = (char)value;
    return at;
}

static char *put_slice(char *at, struct slice slice)
{
    at = put_varint(at, slice.len);
    return slice.len == 0 ? at : put_bytes(at, slice.data, slice.len);
}

static char *put_body(char *at, const struct body_ref *body)
{
    bool there = body->retained || body->bytes > 0;
    *at++ = (char)((there ? 1 : 0) | (body->retained ? 2 : 0));
    if (there) {
        at = put_bytes(at, body->digest.bytes, sizeof body->digest.bytes);
        at = put_varint(at, body->bytes);
        at = put_varint(at, body->place);
    }
    return at;
}

static char *put_numbers(char *at, const struct record *record)
{
    at = put_varint(at, record->version);
    at = put_varint(at, record->fence);
    at = put_varint(at, record->attempt);
    at = put_varint(at, record->duplicates);
    at = put_varint(at, (uint64_t)record->created_ms);
    at = put_varint(at, (uint64_t)record->updated_ms);
    at = put_varint(at, (uint64_t)record->sealed_ms);
    at = put_varint(at, (uint64_t)record->lease_expires_ms);
    at = put_varint(at, (uint64_t)record->window_expires_ms);
    return put_varint(at, (uint64_t)record->window_ms);
}

static char *put_names(char *at, const struct record *record)
{
    uint32_t code = (uint32_t)record->outcome.code;
    at = put_slice(at, record->key.tenant);
    at = put_slice(at, record->key.scope);
    at = put_slice(at, record->key.principal);
    at = put_slice(at, record->key.key);
    at = put_slice(at, record->effect_id);
    for (int i = 0; i < 4; i++) {
        *at++ = (char)(unsigned char)(code >> (8 * i));
    }
    at = put_slice(at, record->outcome.meta);
    at = put_body(at, &record->outcome.body);
    at = put_body(at, &record->request);
    at = put_slice(at, record->source.type);
    at = put_slice(at, record->source.id);
    at = put_slice(at, record->source.version);
    at = put_slice(at, record->trace);
    return put_slice(at, record->reason);
}

/* Members that most records do not have: two bytes if all are absent. */
static char *put_life(char *at, const struct record *record)
{
    bool parent = !op_id_absent(&record->parent);
    *at++ = (char)record->door;
    *at++ = (char)((record->holder != 0 ? HAS_HOLDER : 0) | (parent ? HAS_PARENT : 0) |
                   (record->due_ms != 0 ? HAS_DUE : 0) | (record->detail.len > 0 ? HAS_DETAIL : 0) |
                   (record->reconciles ? RECONCILES : 0));
    if (record->holder != 0) {
        at = put_varint(at, record->holder);
    }
    if (parent) {
        at = put_bytes(at, record->parent.bytes, sizeof record->parent.bytes);
    }
    if (record->due_ms != 0) {
        at = put_varint(at, (uint64_t)record->due_ms);
    }
    return record->detail.len > 0 ? put_slice(at, record->detail) : at;
}

/* Total bytes of the slices of a record. */
static size_t pointed_bytes(const struct record *record)
{
    const struct record_key *key = &record->key;
    const struct source *source = &record->source;
    return key->tenant.len + key->scope.len + key->principal.len + key->key.len +
           record->effect_id.len + record->outcome.meta.len + source->type.len + source->id.len +
           source->version.len + record->trace.len + record->reason.len + record->detail.len;
}

size_t record_bytes_max(const struct record *record)
{
    /* Bytes, digests, numbers at their longest: 4 + 32 + 16 + 32; ten numbers; twelve lengths; the
     * code; two bodies with two numbers each; door, flags, holder, parent and due. */
    enum {
        FIXED = 84 + 10 * VARINT_MAX + 12 * VARINT_MAX + 4 + 2 * (33 + 2 * VARINT_MAX) + 2 +
                VARINT_MAX + 16 + VARINT_MAX
    };
    return FIXED + pointed_bytes(record);
}

void record_encode(const struct record *record, struct buf *out)
{
    record_check(record);
    size_t bytes_max = record_bytes_max(record);
    char *start = buf_extend(out, bytes_max);
    if (start == NULL) {
        return; /* out says why */
    }
    char *at = start;
    *at++ = RECORD_FORMAT;
    *at++ = (char)record->kind;
    *at++ = (char)record->status;
    *at++ = (char)record->fingerprint_version;
    at = put_bytes(at, record->key.hash.bytes, sizeof record->key.hash.bytes);
    at = put_bytes(at, record->operation_id.bytes, sizeof record->operation_id.bytes);
    at = put_bytes(at, record->fingerprint.bytes, sizeof record->fingerprint.bytes);
    at = put_numbers(at, record);
    at = put_names(at, record);
    at = put_life(at, record);
    ASSERT((size_t)(at - start) <= bytes_max);
    out->len -= bytes_max - (size_t)(at - start);
}

/* A reader that remembers a failure, so that decoding is checked once at the end. */
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
    const char *at = reader->at;
    const char *end = reader->failed ? at : reader->end;
    /* Most of them are one byte. */
    if (at < end && (*at & 0x80) == 0) {
        return (unsigned char)*reader->at++;
    }
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && at < end; shift += 7) {
        unsigned char byte = (unsigned char)*at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            reader->at = at;
            /* The tenth byte has room for one bit; anything else would be a second spelling. */
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
        /* A body that is neither kept nor has bytes is absent, which has its own spelling. */
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

/* One record has one spelling: a member that a flag announces must be present. */
static void take_life(struct reader *reader, struct record *record)
{
    record->door = (enum record_door)take_byte(reader);
    unsigned has = take_byte(reader);
    reader->failed = reader->failed || (has & ~(unsigned)HAS_KNOWN) != 0;
    record->reconciles = (has & RECONCILES) != 0;
    if (has & HAS_HOLDER) {
        record->holder = take_varint(reader);
        reader->failed = reader->failed || record->holder == 0;
    }
    if (has & HAS_PARENT) {
        take_bytes(reader, record->parent.bytes, sizeof record->parent.bytes);
        reader->failed = reader->failed || op_id_absent(&record->parent);
    }
    if (has & HAS_DUE) {
        record->due_ms = take_time(reader);
        reader->failed = reader->failed || record->due_ms == 0;
    }
    if (has & HAS_DETAIL) {
        record->detail = take_slice(reader);
        reader->failed = reader->failed || record->detail.len == 0;
    }
}

enum status record_decode(struct slice bytes, struct record *ret_record, struct err *err)
{
    struct reader reader = {.at = bytes.data, .end = bytes.data + bytes.len};
    struct record record = {0};
    unsigned char format = take_byte(&reader);
    if (!reader.failed && format != RECORD_FORMAT && format != RECORD_FORMAT_1) {
        return err_set(err, E_CORRUPT, "record format %u is not known", format);
    }
    record.kind = (enum record_kind)take_byte(&reader);
    /* Format 1 was never written for other kinds, and one record has one spelling. */
    if (format == RECORD_FORMAT_1 && record.kind != RECORD_OPERATION &&
        record.kind != RECORD_SOURCE) {
        reader.failed = true;
    }
    record.status = (enum record_status)take_byte(&reader);
    record.fingerprint_version = take_byte(&reader);
    take_bytes(&reader, record.key.hash.bytes, sizeof record.key.hash.bytes);
    take_bytes(&reader, record.operation_id.bytes, sizeof record.operation_id.bytes);
    take_bytes(&reader, record.fingerprint.bytes, sizeof record.fingerprint.bytes);
    take_numbers(&reader, &record);
    take_names(&reader, &record);
    if (format != RECORD_FORMAT_1) {
        take_life(&reader, &record);
    }
    if (reader.failed) {
        return err_set(err, E_CORRUPT, "record of length %zu is cut short or malformed", bytes.len);
    }
    if (reader.at != reader.end) {
        return err_set(err, E_CORRUPT, "record of length %zu goes on after its end", bytes.len);
    }
    const char *fault = record_flaw(&record);
    if (fault != NULL) {
        return err_set(err, E_CORRUPT, "record does not hold together: %s", fault);
    }
    *ret_record = record;
    return OK;
}

enum status record_copy(const struct record *from, struct arena *arena, struct record *ret_record)
{
    /* One allocation for all slices: most are empty or short, and every answer is copied. */
    size_t bytes = pointed_bytes(from);
    char *piece = bytes == 0 ? NULL : arena_alloc(arena, bytes);
    if (bytes > 0 && piece == NULL) {
        return E_NOMEM;
    }
    *ret_record = *from;
    struct record *copy = ret_record;
    struct slice *const slices[] = {&copy->key.tenant, &copy->key.scope, &copy->key.principal,
        &copy->key.key, &copy->effect_id, &copy->outcome.meta, &copy->source.type, &copy->source.id,
        &copy->source.version, &copy->trace, &copy->reason, &copy->detail};
    char *at = piece;
    for (size_t i = 0; i < COUNT(slices); i++) {
        size_t len = slices[i]->len;
        if (len > 0) {
            memcpy(at, slices[i]->data, len);
            *slices[i] = slice_of(at, len);
            at += len;
        } else {
            *slices[i] = SLICE_EMPTY;
        }
    }
    ASSERT(at == piece + bytes); /* both lists name the same slices */
    return OK;
}
