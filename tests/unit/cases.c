#include "cases.h"

#include "base/check.h"

const struct digest print_a = {{0xaa}};
const struct digest print_b = {{0xbb}};

struct record_key the_key(void)
{
    return key_as(RECORD_OPERATION);
}

struct record_key key_as(enum record_kind kind)
{
    struct record_key key = {.tenant = SLICE_LIT("acme"),
        .scope = SLICE_LIT("pay"),
        .principal = SLICE_LIT("ann"),
        .key = SLICE_LIT("k1")};
    ASSERT(record_key_seal_as(&key, kind, NULL) == OK);
    return key;
}

struct outcome outcome_of(int which)
{
    struct outcome outcome = {.code = 200,
        .meta = SLICE_LIT("type: json"),
        .body = {.digest = {{1}}, .bytes = 5, .retained = true, .place = 9}};
    switch (which) {
    case 1: outcome.code = 201; break;
    case 2: outcome.meta = SLICE_LIT("type: text"); break;
    case 3: outcome.body.digest.bytes[31] = 1; break;
    case 4: outcome.body.bytes = 6; break;
    case 5: outcome = (struct outcome){0}; break;
    default: break;
    }
    return outcome;
}

struct record shape(enum record_status status)
{
    return shape_as(RECORD_OPERATION, status);
}

struct record shape_as(enum record_kind kind, enum record_status status)
{
    struct record record = {.key = key_as(kind),
        .version = 9,
        .kind = kind,
        .status = status,
        .fingerprint = print_a,
        .fingerprint_version = 1,
        .fence = FENCE,
        .attempt = 3,
        .duplicates = 4,
        .created_ms = START_MS - 500,
        .updated_ms = START_MS,
        .window_ms = WINDOW_MS,
        .request = {.digest = {{7}}, .bytes = 3, .retained = true, .place = 5},
        .source = {.type = SLICE_LIT("queue"), .id = SLICE_LIT("m-1")},
        .trace = SLICE_LIT("{}")};
    record.operation_id = op_id_make(record.created_ms, &record.key.hash, 40);
    if (kind != RECORD_OPERATION) {
        record.door = RECORD_DOOR_EFFECTS;
        record.parent = op_id_make(START_MS - 600, &record.key.hash, 39);
        record.detail = SLICE_LIT("mine");
    }
    if (status == RECORD_IN_PROGRESS) {
        record.lease_expires_ms = START_MS + LEASE_MS;
        record.holder = kind == RECORD_OPERATION ? 0 : GONE;
        return record;
    }
    record.reason = SLICE_LIT("because");
    if (record_status_expires(status)) {
        record.window_expires_ms = START_MS + WINDOW_MS;
    }
    if (status == RECORD_PENDING || status == RECORD_WAITING) {
        record.due_ms = DUE_MS;
    }
    if (record_status_sealed(status) || status == RECORD_COMPENSATING) {
        record.sealed_ms = START_MS;
        record.outcome = outcome_of(0);
        record.effect_id = SLICE_LIT("ch_1");
    }
    return record;
}

struct request begin_request(void)
{
    return first_request(REQUEST_BEGIN, RECORD_OPERATION);
}

struct request first_request(enum request_kind request, enum record_kind kind)
{
    return (struct request){.kind = request,
        .record_kind = kind == RECORD_OPERATION ? 0 : kind,
        .key = key_as(kind),
        .policy = {.window_ms = WINDOW_MS, .lease_ms = LEASE_MS},
        .fingerprint = print_a,
        .fingerprint_version = 1,
        .request = {.digest = {{8}}, .bytes = 4, .retained = true},
        .source = {.type = SLICE_LIT("http")},
        .trace = SLICE_LIT("{\"a\":1}")};
}

struct request holder_request(enum request_kind kind, const struct record *record)
{
    struct request request = {.kind = kind,
        .key = record->key,
        .operation_id = record->operation_id,
        .fence = record->fence,
        .reason = SLICE_LIT("said so")};
    if (kind == REQUEST_RENEW || kind == REQUEST_CLAIM || kind == REQUEST_WAKE) {
        request.policy.lease_ms = LEASE_MS;
    }
    if (kind == REQUEST_HOLDER_GONE) {
        request.holder = LIVING;
    }
    if (kind == REQUEST_COMPENSATION_SETTLE) {
        request.status = RECORD_COMPENSATED;
    }
    if (kind == REQUEST_SEAL || kind == REQUEST_RESOLVE || kind == REQUEST_WAKE) {
        request.status = RECORD_EXECUTED;
        request.outcome = outcome_of(0);
        request.effect_id = SLICE_LIT("ch_1");
    }
    return request;
}
