/*
 * The record: its stored form, the names of operations, keys, windows and dues.
 *
 * What comes back from disk is never trusted: every cut and every flipped bit has to be refused or
 * read as something that holds together.
 */
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "check_c.h"
#include "core/kind.h"
#include "model.h"
#include "prng.h"

enum { ENCODED_BYTES_MAX = 1 << 16, ROUNDS = 2000 };

/* Bytes that random names are cut from; its content does not matter. */
static char letters[LIMIT_OUTCOME_META_BYTES_MAX];

static struct slice random_name(struct prng *prng, size_t bytes_min, size_t bytes_max)
{
    /* Mostly short, sometimes at the limit, where off-by-one lives. */
    size_t len = prng_once_in(prng, 8) ? bytes_max : bytes_min + prng_below(prng, 12);
    return slice_of(letters + prng_below(prng, sizeof letters - len + 1), len);
}

static struct body_ref random_body(struct prng *prng)
{
    struct body_ref body = {0};
    if (prng_once_in(prng, 3)) {
        return body;
    }
    prng_fill(prng, &body.digest, sizeof body.digest);
    body.bytes = 1 + (prng_next(prng) >> prng_below(prng, 64));
    body.retained = prng_once_in(prng, 2);
    body.place = body.retained ? prng_next(prng) >> prng_below(prng, 64) : 0;
    return body;
}

static int64_t random_time(struct prng *prng)
{
    return 1 + (int64_t)(prng_next(prng) >> (1 + prng_below(prng, 63)) >> 1);
}

/* The fields that depend on the status, so that R2 to R5 and R9 hold. */
static void random_times(struct prng *prng, struct record *record)
{
    record->created_ms = random_time(prng);
    record->updated_ms = random_time(prng);
    record->window_ms = random_time(prng);
    enum record_status status = record->status;
    if (status == RECORD_IN_PROGRESS) {
        record->lease_expires_ms = random_time(prng);
        record->holder = prng_next(prng) >> prng_below(prng, 64);
    } else if (record_status_expires(status)) {
        record->window_expires_ms = random_time(prng);
    }
    bool may_be_due =
        status == RECORD_WAITING || status == RECORD_UNKNOWN || status == RECORD_COMPENSATING;
    if (status == RECORD_PENDING || (may_be_due && prng_once_in(prng, 2))) {
        record->due_ms = random_time(prng);
    }
    bool in_doubt = status == RECORD_UNKNOWN && prng_once_in(prng, 2);
    if (record_status_sealed(status) || status == RECORD_COMPENSATING || in_doubt) {
        record->sealed_ms = random_time(prng);
        record->effect_id = random_name(prng, 0, LIMIT_EFFECT_ID_BYTES_MAX);
        record->outcome = (struct outcome){.code = (int32_t)prng_next(prng),
            .meta = random_name(prng, 0, LIMIT_OUTCOME_META_BYTES_MAX),
            .body = random_body(prng)};
    }
}

static struct record random_record(struct prng *prng)
{
    static const enum record_kind kinds[] = {
        RECORD_OPERATION, RECORD_OPERATION, RECORD_COMMAND, RECORD_EFFECT, RECORD_DELIVERY};
    enum record_kind kind = kinds[prng_below(prng, sizeof kinds / sizeof *kinds)];
    enum record_status status;
    do {
        status = (enum record_status)(1 + prng_below(prng, RECORD_STATUS_END - 1));
    } while (!kind_has_status(kind, status));
    struct record record = {
        .kind = kind,
        .status = status,
        .door = (enum record_door)prng_below(prng, RECORD_DOOR_END),
        .reconciles = prng_once_in(prng, 2),
        .detail =
            prng_once_in(prng, 2) ? random_name(prng, 0, LIMIT_DETAIL_BYTES_MAX) : SLICE_EMPTY,
        .version = prng_next(prng) >> prng_below(prng, 64),
        .fence = 1 + (prng_next(prng) >> (1 + prng_below(prng, 63))),
        .attempt = 1 + (uint32_t)(prng_next(prng) >> (33 + prng_below(prng, 31))),
        .duplicates = (uint32_t)(prng_next(prng) >> (32 + prng_below(prng, 32))),
        .fingerprint_version = (uint8_t)prng_next(prng),
        .trace = random_name(prng, 0, LIMIT_TRACE_BYTES_MAX),
        .reason = random_name(prng, 0, LIMIT_REASON_BYTES_MAX),
        .request = random_body(prng),
    };
    record.key.tenant = random_name(prng, 1, LIMIT_TENANT_BYTES_MAX);
    record.key.scope = random_name(prng, 0, LIMIT_SCOPE_BYTES_MAX);
    record.key.principal = random_name(prng, 0, LIMIT_PRINCIPAL_BYTES_MAX);
    record.key.key = random_name(prng, 1, LIMIT_KEY_BYTES_MAX);
    assert_int_equal(record_key_seal_as(&record.key, kind, NULL), OK);
    if (prng_once_in(prng, 2)) {
        prng_fill(prng, &record.parent, sizeof record.parent);
    }
    record.source.type = random_name(prng, 0, LIMIT_SOURCE_BYTES_MAX);
    record.source.id = random_name(prng, 0, LIMIT_SOURCE_BYTES_MAX);
    record.source.version = random_name(prng, 0, LIMIT_SOURCE_BYTES_MAX);
    prng_fill(prng, &record.fingerprint, sizeof record.fingerprint);
    random_times(prng, &record);
    record.operation_id = op_id_make(record.created_ms, &record.key.hash, record.fence);
    bool before_grant = status == RECORD_PENDING || status == RECORD_WAITING ||
                        status == RECORD_DEAD || status == RECORD_REJECTED;
    if (before_grant && prng_once_in(prng, 2)) {
        record.fence = record.attempt = 0;
    }
    return record;
}

/* A plain record for tests that change one thing. */
static struct record plain_record(enum record_status status)
{
    struct record record = {.kind = RECORD_OPERATION,
        .status = status,
        .version = 1,
        .fence = 7,
        .attempt = 1,
        .created_ms = 1000,
        .updated_ms = 1000,
        .window_ms = 100,
        .key = {.tenant = SLICE_LIT("acme"), .key = SLICE_LIT("k")}};
    assert_int_equal(record_key_seal(&record.key, NULL), OK);
    record.operation_id = op_id_make(1000, &record.key.hash, 7);
    if (status == RECORD_IN_PROGRESS) {
        record.lease_expires_ms = 1030;
    } else if (status != RECORD_UNKNOWN) {
        record.window_expires_ms = 1100;
    }
    record.sealed_ms = record_status_sealed(status) ? 1000 : 0;
    return record;
}

/* Decode a copy that ends exactly where the bytes end, so that a read past them is seen. */
static enum status decode_copy(const char *bytes, size_t size, struct record *ret_record)
{
    struct err err = {0};
    char *copy = test_malloc(size + 1);
    memcpy(copy + 1, bytes, size);
    struct record record = {0};
    enum status status = record_decode(slice_of(copy + 1, size), &record, &err);
    if (status == OK) {
        record_check(&record);
        if (ret_record != NULL) {
            *ret_record = record;
        }
    } else {
        assert_int_equal(status, E_CORRUPT);
        assert_int_equal(err.status, E_CORRUPT);
        assert_true(err.text[0] != '\0');
        assert_int_equal(record.fence, 0);
    }
    test_free(copy);
    return status;
}

static void encode(struct buf *buf, const struct record *record)
{
    buf_clear(buf);
    record_encode(record, buf);
    assert_int_equal(buf_status(buf), OK);
}

static void a_record_comes_back_as_it_was_written(void **state)
{
    (void)state;
    struct prng prng = {1};
    struct buf buf;
    struct buf again;
    buf_init(&buf, &mem_libc, ENCODED_BYTES_MAX);
    buf_init(&again, &mem_libc, ENCODED_BYTES_MAX);
    for (int i = 0; i < ROUNDS; i++) {
        struct record record = random_record(&prng);
        struct record back;
        encode(&buf, &record);
        assert_int_equal(record_decode(buf_view(&buf), &back, NULL), OK);
        assert_true(model_same_record(&record, &back));
        encode(&again, &back);
        assert_true(slice_equal(buf_view(&buf), buf_view(&again)));
    }
    buf_release(&again);
    buf_release(&buf);
}

static void a_record_cut_anywhere_is_refused(void **state)
{
    (void)state;
    struct prng prng = {2};
    struct buf buf;
    buf_init(&buf, &mem_libc, ENCODED_BYTES_MAX);
    for (int i = 0; i < 30; i++) {
        struct record record = random_record(&prng);
        encode(&buf, &record);
        for (size_t size = 0; size < buf.len; size++) {
            assert_int_equal(decode_copy(buf.data, size, NULL), E_CORRUPT);
        }
        buf_char(&buf, 0);
        assert_int_equal(decode_copy(buf.data, buf.len, NULL), E_CORRUPT);
    }
    buf_release(&buf);
}

static void a_flipped_bit_is_refused_or_reads_as_another_sound_record(void **state)
{
    (void)state;
    struct prng prng = {3};
    struct buf buf;
    struct buf again;
    buf_init(&buf, &mem_libc, ENCODED_BYTES_MAX);
    buf_init(&again, &mem_libc, ENCODED_BYTES_MAX);
    size_t refused = 0;
    for (int i = 0; i < 40; i++) {
        struct record record = random_record(&prng);
        encode(&buf, &record);
        for (size_t bit = 0; bit < 8 * buf.len && bit < 40000; bit++) {
            buf.data[bit / 8] = (char)(buf.data[bit / 8] ^ 1 << bit % 8);
            struct record back = {0};
            if (record_decode(buf_view(&buf), &back, NULL) == OK) {
                /* One record, one spelling: what was read is written as the same bytes. */
                encode(&again, &back);
                assert_true(slice_equal(buf_view(&buf), buf_view(&again)));
            } else {
                refused++;
            }
            buf.data[bit / 8] = (char)(buf.data[bit / 8] ^ 1 << bit % 8);
        }
        for (int flip = 0; flip < 200; flip++) {
            size_t at = prng_below(&prng, buf.len);
            char before = buf.data[at];
            buf.data[at] = (char)prng_next(&prng);
            (void)decode_copy(buf.data, buf.len, NULL);
            buf.data[at] = before;
        }
    }
    assert_true(refused > 1000);
    buf_release(&again);
    buf_release(&buf);
}

static void random_bytes_never_crash_the_reader(void **state)
{
    (void)state;
    struct prng prng = {4};
    char bytes[400];
    for (int i = 0; i < 20000; i++) {
        size_t size = prng_below(&prng, sizeof bytes);
        prng_fill(&prng, bytes, size);
        bytes[0] = (char)(1 + prng_below(&prng, 2));
        bytes[1] = (char)(1 + prng_below(&prng, 5));
        bytes[2] = (char)(1 + prng_below(&prng, RECORD_STATUS_END - 1));
        (void)decode_copy(bytes, size < 3 ? 3 : size, NULL);
    }
}

/* Where the first varint, the version, begins. */
enum { VERSION_AT = 4 + 32 + 16 + 32 };

static void a_number_with_a_second_spelling_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        bool good;
    } spellings[] = {
        {"\x01", 1, true},
        {"\x81\x00", 2, false},
        {"\x80\x00", 2, false},
        {"\x80\x01", 2, true},
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10, true},
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 10, false},
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x81\x00", 11, false},
        {"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 11, false},
    };
    struct record record = plain_record(RECORD_EXECUTED);
    struct buf buf;
    struct buf spelt;
    buf_init(&buf, &mem_libc, ENCODED_BYTES_MAX);
    buf_init(&spelt, &mem_libc, ENCODED_BYTES_MAX);
    encode(&buf, &record);
    assert_int_equal(buf.data[VERSION_AT], 1);
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        buf_clear(&spelt);
        buf_append(&spelt, buf.data, VERSION_AT);
        buf_append(&spelt, spellings[i].bytes, spellings[i].size);
        buf_append(&spelt, buf.data + VERSION_AT + 1, buf.len - VERSION_AT - 1);
        assert_int_equal(
            decode_copy(spelt.data, spelt.len, NULL), spellings[i].good ? OK : E_CORRUPT);
    }
    buf_release(&spelt);
    buf_release(&buf);
}

static void a_body_without_bytes_that_is_not_kept_has_one_spelling(void **state)
{
    (void)state;
    struct record record = plain_record(RECORD_EXECUTED);
    record.request = (struct body_ref){.bytes = 1, .digest = {{0xee}}};
    struct buf buf;
    buf_init(&buf, &mem_libc, ENCODED_BYTES_MAX);
    encode(&buf, &record);
    /* After the digest: the count, the place, five empty names, the door and the flags. */
    assert_int_equal(buf.data[buf.len - 9], 1);
    assert_int_equal(decode_copy(buf.data, buf.len, NULL), OK);
    buf.data[buf.len - 9] = 0;
    assert_int_equal(decode_copy(buf.data, buf.len, NULL), E_CORRUPT);
    buf_release(&buf);
}

static bool decodes(struct buf *buf, size_t at, char byte)
{
    char before = buf->data[at];
    buf->data[at] = byte;
    bool good = decode_copy(buf->data, buf->len, NULL) == OK;
    buf->data[at] = before;
    return good;
}

static void an_unknown_format_kind_or_status_is_refused(void **state)
{
    (void)state;
    struct record record = plain_record(RECORD_EXECUTED);
    struct buf buf;
    buf_init(&buf, &mem_libc, ENCODED_BYTES_MAX);
    encode(&buf, &record);
    assert_true(decodes(&buf, 0, 2));
    assert_false(decodes(&buf, 0, 0));
    assert_false(decodes(&buf, 0, 1)); /* it has two bytes more */
    assert_false(decodes(&buf, 0, 3));
    assert_false(decodes(&buf, 1, 0));
    assert_false(decodes(&buf, 1, RECORD_SOURCE));
    assert_false(decodes(&buf, 1, 6));
    assert_false(decodes(&buf, 2, 0));
    assert_false(decodes(&buf, 2, RECORD_STATUS_END));
    assert_false(decodes(&buf, 2, RECORD_COMPENSATING)); /* not an operation's */
    assert_false(decodes(&buf, buf.len - 2, RECORD_DOOR_END));
    assert_true(decodes(&buf, buf.len - 2, RECORD_DOOR_INBOX));
    assert_false(decodes(&buf, buf.len - 1, 1 << 5));
    /* Statuses of another shape: R2 to R5 tell them apart. */
    assert_false(decodes(&buf, 2, RECORD_IN_PROGRESS));
    assert_false(decodes(&buf, 2, RECORD_UNKNOWN));
    assert_false(decodes(&buf, 2, RECORD_RELEASED));
    assert_true(decodes(&buf, 2, RECORD_FAILED));
    buf_release(&buf);
}

/* Read what a careless writer would have left, by patching the encoded form of a longer name. */
static void a_name_past_its_limit_is_refused(void **state)
{
    (void)state;
    struct record record = plain_record(RECORD_RELEASED);
    record.reason = slice_of(letters, LIMIT_REASON_BYTES_MAX);
    struct buf buf;
    buf_init(&buf, &mem_libc, ENCODED_BYTES_MAX);
    encode(&buf, &record);
    assert_int_equal(decode_copy(buf.data, buf.len, NULL), OK);
    /* Door and flags come last, the reason before them, after its length: the two bytes ff 01. */
    size_t at = buf.len - 2 - LIMIT_REASON_BYTES_MAX - 2;
    assert_int_equal((unsigned char)buf.data[at], 0xff);
    buf.data[at] = (char)0x80;
    buf.data[at + 1] = 2;
    buf_char(&buf, '\0');
    assert_int_equal(buf.data[buf.len - 3], 0);
    buf.data[buf.len - 3] = 'x';
    assert_int_equal(decode_copy(buf.data, buf.len, NULL), E_CORRUPT);
    buf_release(&buf);
}

static void operations_of_different_fences_have_different_ids(void **state)
{
    (void)state;
    struct digest hash;
    digest_sha256("k", 1, &hash);
    struct prng prng = {5};
    for (int i = 0; i < 100000; i++) {
        uint64_t fence = prng_next(&prng) >> prng_below(&prng, 60);
        uint64_t other = fence + 1 + prng_below(&prng, (1 << 26) - 1);
        struct op_id a = op_id_make(1700000000000, &hash, fence);
        struct op_id b = op_id_make(1700000000000, &hash, other);
        assert_false(op_id_equal(&a, &b));
    }
    for (int bit = 0; bit < 26; bit++) {
        struct op_id a = op_id_make(1, &hash, 0);
        struct op_id b = op_id_make(1, &hash, UINT64_C(1) << bit);
        assert_false(op_id_equal(&a, &b));
    }
}

static void an_id_tells_its_time_and_the_prefix_of_its_key(void **state)
{
    (void)state;
    struct digest hash;
    for (int i = 0; i < 32; i++) {
        hash.bytes[i] = (unsigned char)(0xa0 + i);
    }
    struct prng prng = {6};
    for (int i = 0; i < 10000; i++) {
        int64_t time = (int64_t)prng_below(&prng, UINT64_C(1) << 48);
        uint64_t fence = prng_next(&prng);
        struct op_id id = op_id_make(time, &hash, fence);
        assert_true(op_id_time_ms(&id) == time);
        assert_true(op_id_prefix(&id) == UINT64_C(0xa0a1a2a3a4a5));
        assert_int_equal(op_id_fence(&id), fence & 0x3ffffff);
        assert_int_equal(id.bytes[6] >> 4, 7);
        assert_int_equal(id.bytes[8] >> 6, 2);
    }
    struct op_id early = op_id_make(-5, &hash, 1);
    assert_true(op_id_time_ms(&early) == 0);
}

static void an_id_reads_back_from_its_text_and_nothing_else_does(void **state)
{
    (void)state;
    struct prng prng = {7};
    char text[OP_ID_TEXT_BYTES];
    struct op_id id;
    struct op_id back;
    for (int i = 0; i < 1000; i++) {
        prng_fill(&prng, &id, sizeof id);
        assert_ptr_equal(op_id_put(text, &id), text);
        assert_int_equal(strlen(text), OP_ID_TEXT_BYTES - 1);
        assert_true(op_id_read(slice_str(text), &back));
        assert_true(op_id_equal(&id, &back));
    }
    static const char *const bad[] = {"", "op_", "0192f0c1-2b3c-7d4e-8f50-617283940506",
        "OP_0192f0c1-2b3c-7d4e-8f50-617283940506", "op_0192f0c1-2b3c-7d4e-8f50-61728394050",
        "op_0192f0c1-2b3c-7d4e-8f50-6172839405060", "op_0192f0c12b3c-7d4e-8f50-6172839405060",
        "op_0192f0c1-2b3c-7d4e-8f50-61728394050g", "op_0192f0c1+2b3c-7d4e-8f50-617283940506",
        "op_0192f0c1-2b3c-7d4e-8f50_617283940506", "op-0192f0c1-2b3c-7d4e-8f50-617283940506"};
    struct op_id untouched = id;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(op_id_read(slice_str(bad[i]), &untouched));
        assert_true(op_id_equal(&id, &untouched));
    }
    assert_true(op_id_read(slice_str("op_0192f0c1-2b3c-7d4e-8f50-617283940506"), &back));
}

static struct digest hash_of(
    const char *tenant, const char *scope, const char *principal, const char *key)
{
    struct record_key parts = {
        slice_str(tenant), slice_str(scope), slice_str(principal), slice_str(key), {{0}}};
    assert_int_equal(record_key_seal(&parts, NULL), OK);
    return parts.hash;
}

static bool same(struct digest a, struct digest b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

static void keys_are_framed_so_that_gluing_collides_with_nothing(void **state)
{
    (void)state;
    assert_true(same(hash_of("a", "b", "c", "d"), hash_of("a", "b", "c", "d")));
    assert_false(same(hash_of("ab", "c", "", "d"), hash_of("a", "bc", "", "d")));
    assert_false(same(hash_of("a", "bc", "", "d"), hash_of("a", "b", "c", "d")));
    assert_false(same(hash_of("a", "", "bc", "d"), hash_of("a", "", "b", "cd")));
    assert_false(same(hash_of("a", "b", "", "d"), hash_of("a", "", "b", "d")));
}

static void each_part_of_a_key_counts(void **state)
{
    (void)state;
    struct digest hash = hash_of("t", "s", "p", "k");
    assert_false(same(hash, hash_of("T", "s", "p", "k"))); /* P9: tenants are apart */
    assert_false(same(hash, hash_of("t", "S", "p", "k")));
    assert_false(same(hash, hash_of("t", "s", "P", "k")));
    assert_false(same(hash, hash_of("t", "s", "p", "K")));
}

static void a_key_past_its_limit_is_refused_by_name(void **state)
{
    (void)state;
    struct err err = {0};
    struct record_key key = {.tenant = SLICE_LIT("t"), .key = slice_of(letters, 256)};
    assert_int_equal(record_key_seal(&key, &err), E_INVALID);
    assert_non_null(strstr(err.text, "key_bytes_max (255)"));
    key.key.len = 255;
    key.scope = slice_of(letters, 255);
    key.principal = slice_of(letters, 255);
    key.tenant = slice_of(letters, 255);
    assert_int_equal(record_key_seal(&key, &err), OK);
    key.tenant.len = 256;
    assert_int_equal(record_key_seal(&key, &err), E_INVALID);
    assert_non_null(strstr(err.text, "tenant_bytes_max (255)"));
    key.tenant.len = 0;
    assert_int_equal(record_key_seal(&key, &err), E_INVALID);
    assert_string_equal(err.text, "tenant is empty");
    key.tenant.len = 1;
    key.key.len = 0;
    assert_int_equal(record_key_seal(&key, &err), E_INVALID);
    assert_string_equal(err.text, "key is empty");
}

static void a_key_that_is_not_text_is_refused_by_name(void **state)
{
    (void)state;
    static const char *const bad[] = {"\xff", "\xc0\x80", "\xed\xa0\x80", "\xe2\x82", "a\x80"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct err err = {0};
        struct record_key key = {.tenant = SLICE_LIT("t"), .key = slice_str(bad[i])};
        assert_int_equal(record_key_seal(&key, &err), E_INVALID);
        assert_memory_equal(err.text, "key is not valid UTF-8: 0x", 26);
    }
}

static void what_is_in_progress_or_unknown_never_expires(void **state)
{
    (void)state;
    struct record running = plain_record(RECORD_IN_PROGRESS);
    struct record unknown = plain_record(RECORD_UNKNOWN);
    assert_false(record_window_over(&running, INT64_MAX));
    assert_false(record_window_over(&unknown, INT64_MAX));
    assert_true(record_due_ms(&running) == 1030);
    assert_true(record_due_ms(&unknown) == unknown.updated_ms); /* its door is not said */
    unknown.door = RECORD_DOOR_FENCES;
    assert_true(record_due_ms(&unknown) == INT64_MAX);
    assert_int_equal(record_due(&unknown), RECORD_DUE_NEVER);
}

/* Whatever its policy was: whether a route can ask is configuration, which a reload changes. */
static void what_is_unknown_to_the_gateway_is_due_since_then(void **state)
{
    (void)state;
    struct record unknown = plain_record(RECORD_UNKNOWN);
    unknown.door = RECORD_DOOR_GATEWAY;
    assert_true(record_due_ms(&unknown) == unknown.updated_ms);
    assert_int_equal(record_due(&unknown), RECORD_DUE_RECONCILE_AGAIN);
    unknown.due_ms = unknown.updated_ms + 5000;
    assert_true(record_due_ms(&unknown) == unknown.updated_ms + 5000);
}

static void all_else_expires_at_the_end_of_its_window_and_not_before(void **state)
{
    (void)state;
    static const enum record_status ended[] = {
        RECORD_RELEASED, RECORD_EXECUTED, RECORD_FAILED, RECORD_REJECTED, RECORD_COMPENSATED};
    for (size_t i = 0; i < sizeof ended / sizeof *ended; i++) {
        struct record record = plain_record(ended[i]);
        assert_false(record_window_over(&record, 1099));
        assert_true(record_window_over(&record, 1100));
        assert_true(record_due_ms(&record) == 1100);
    }
}

/* What is pending, waiting or unknown needs somebody at its due, and is not gone then (P8). */
static void what_somebody_has_to_act_on_is_due_and_does_not_expire(void **state)
{
    (void)state;
    static const struct {
        enum record_status status;
        int64_t due_ms;
        enum record_due due;
        const char *name;
    } rows[] = {
        {RECORD_PENDING, 1050, RECORD_DUE_NEXT_ATTEMPT, "next_attempt"},
        {RECORD_WAITING, 1050, RECORD_DUE_CONFIRMATION_OVER, "confirmation_over"},
        {RECORD_WAITING, 0, RECORD_DUE_NEVER, "never"},
        {RECORD_UNKNOWN, 1050, RECORD_DUE_RECONCILE_AGAIN, "reconcile_again"},
        {RECORD_UNKNOWN, 0, RECORD_DUE_NEVER, "never"},
        {RECORD_DEAD, 0, RECORD_DUE_NEVER, "never"},
        {RECORD_COMPENSATING, 1050, RECORD_DUE_CONFIRMATION_OVER, "confirmation_over"},
        {RECORD_COMPENSATING, 0, RECORD_DUE_NEVER, "never"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct record record = {
            .kind = RECORD_COMMAND, .status = rows[i].status, .due_ms = rows[i].due_ms};
        assert_int_equal(record_due(&record), rows[i].due);
        assert_string_equal(record_due_name(record_due(&record)), rows[i].name);
        assert_true(record_due_ms(&record) == (rows[i].due_ms == 0 ? INT64_MAX : rows[i].due_ms));
        assert_false(record_window_over(&record, INT64_MAX));
    }
    struct record running = plain_record(RECORD_IN_PROGRESS);
    struct record executed = plain_record(RECORD_EXECUTED);
    assert_string_equal(record_due_name(record_due(&running)), "lease_over");
    assert_string_equal(record_due_name(record_due(&executed)), "window_over");
}

/* Format 1 is format 2 without what a record of format 2 can have besides. */
static void a_record_of_format_1_is_still_read(void **state)
{
    (void)state;
    struct prng prng = {9};
    struct buf buf;
    buf_init(&buf, &mem_libc, ENCODED_BYTES_MAX);
    for (int i = 0; i < ROUNDS; i++) {
        struct record record = random_record(&prng);
        record.door = RECORD_DOOR_NONE;
        record.reconciles = false;
        record.holder = 0;
        record.parent = (struct op_id){{0}};
        record.detail = SLICE_EMPTY;
        if (record.due_ms != 0 && record.status != RECORD_PENDING) {
            record.due_ms = 0;
        }
        encode(&buf, &record);
        bool old = record.kind == RECORD_OPERATION;
        struct record back;
        buf.data[0] = 1;
        assert_int_equal(decode_copy(buf.data, buf.len, NULL), E_CORRUPT);
        buf.len -= 2;
        assert_int_equal(record_decode(buf_view(&buf), &back, NULL), old ? OK : E_CORRUPT);
        assert_true(!old || model_same_record(&record, &back));
    }
    buf_release(&buf);
}

static void an_operation_costs_two_bytes_more_than_in_format_1(void **state)
{
    (void)state;
    struct record record = plain_record(RECORD_EXECUTED);
    struct buf buf;
    struct record back;
    buf_init(&buf, &mem_libc, ENCODED_BYTES_MAX);
    record.door = RECORD_DOOR_FENCES;
    encode(&buf, &record);
    buf.data[0] = 1;
    assert_int_equal(record_decode(slice_of(buf.data, buf.len - 2), &back, NULL), OK);
    buf_release(&buf);
}

/* What a flag announces is there and is something: a record has one spelling. */
static void what_a_flag_announces_is_there(void **state)
{
    (void)state;
    struct record record = plain_record(RECORD_IN_PROGRESS);
    struct buf buf;
    buf_init(&buf, &mem_libc, ENCODED_BYTES_MAX);
    encode(&buf, &record);
    for (int flag = 0; flag < 4; flag++) {
        buf.data[buf.len - 1] = (char)(1 << flag);
        assert_int_equal(decode_copy(buf.data, buf.len, NULL), E_CORRUPT);
        for (int zeros = 0; zeros < 16; zeros++) {
            buf_char(&buf, 0);
            assert_int_equal(decode_copy(buf.data, buf.len, NULL), E_CORRUPT);
        }
        encode(&buf, &record);
    }
    buf_release(&buf);
}

/* Each of these records was sound but for one thing. */
static void what_does_not_hold_together_is_refused_by_name(void **state)
{
    (void)state;
    struct record pending = {.kind = RECORD_EFFECT,
        .status = RECORD_PENDING,
        .version = 1,
        .window_ms = 100,
        .due_ms = 5,
        .key = {.tenant = SLICE_LIT("t"), .key = SLICE_LIT("k")}};
    struct record dead = pending;
    struct record waiting = pending;
    struct record executed = pending;
    struct record held = pending;
    struct record half = pending;
    pending.due_ms = 0;
    dead.status = RECORD_DEAD;
    waiting.status = RECORD_WAITING;
    waiting.kind = RECORD_OPERATION; /* callers hold these: none of them waits */
    executed.status = RECORD_EXECUTED;
    executed.due_ms = 0;
    executed.sealed_ms = executed.window_expires_ms = 7;
    held.holder = 3;
    half.attempt = 1;
    const struct {
        const struct record *record;
        const char *why;
    } rows[] = {
        {&pending, "the due time is not one that the status has"},
        {&dead, "the due time is not one that the status has"},
        {&waiting, "the status is not one that the kind has"},
        {&executed, "the fence or attempt is missing"},
        {&held, "only what is in progress has a holder"},
        {&half, "a fence and an attempt come together"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_string_equal(record_flaw(rows[i].record), rows[i].why);
    }
}

static void statuses_have_names_that_read_back(void **state)
{
    (void)state;
    for (int i = RECORD_IN_PROGRESS; i < RECORD_STATUS_END; i++) {
        enum record_status back = 0;
        const char *name = record_status_name((enum record_status)i);
        assert_true(record_status_read(slice_str(name), &back));
        assert_int_equal(back, i);
        assert_int_equal(
            record_status_sealed(back), i >= RECORD_EXECUTED && i <= RECORD_COMPENSATED);
    }
    enum record_status untouched = RECORD_FAILED;
    assert_false(record_status_read(SLICE_LIT("Executed"), &untouched));
    assert_false(record_status_read(SLICE_LIT("unnamed"), &untouched));
    assert_false(record_status_read(SLICE_EMPTY, &untouched));
    assert_int_equal(untouched, RECORD_FAILED);
    assert_string_equal(record_status_name((enum record_status)0), "unnamed");
    assert_string_equal(record_status_name((enum record_status)RECORD_STATUS_END), "unnamed");
}

static void a_copy_owes_nothing_to_the_original(void **state)
{
    (void)state;
    struct prng prng = {8};
    struct arena arena;
    struct buf buf;
    arena_init(&arena, &mem_libc, 1 << 20);
    buf_init(&buf, &mem_libc, ENCODED_BYTES_MAX);
    for (int i = 0; i < 50; i++) {
        struct record record = random_record(&prng);
        struct record back;
        struct record copy;
        encode(&buf, &record);
        assert_int_equal(record_decode(buf_view(&buf), &back, NULL), OK);
        assert_int_equal(record_copy(&back, &arena, &copy), OK);
        memset(buf.data, 0x5a, buf.len);
        assert_true(model_same_record(&record, &copy));
        arena_clear(&arena);
    }
    arena_release(&arena);
    arena_init(&arena, &mem_libc, 16);
    struct record record = random_record(&prng);
    struct record untouched = {0};
    assert_int_equal(record_copy(&record, &arena, &untouched), E_NOMEM);
    assert_int_equal(untouched.fence, 0);
    arena_release(&arena);
    buf_release(&buf);
}

int main(void)
{
    struct prng prng = {0};
    for (size_t i = 0; i < sizeof letters; i++) {
        letters[i] = (char)(' ' + prng_below(&prng, 95));
    }
    const struct CMUnitTest tests[] = {
        TEST(a_record_comes_back_as_it_was_written),
        TEST(a_record_cut_anywhere_is_refused),
        TEST(a_flipped_bit_is_refused_or_reads_as_another_sound_record),
        TEST(random_bytes_never_crash_the_reader),
        TEST(a_number_with_a_second_spelling_is_refused),
        TEST(a_body_without_bytes_that_is_not_kept_has_one_spelling),
        TEST(an_unknown_format_kind_or_status_is_refused),
        TEST(a_name_past_its_limit_is_refused),
        TEST(operations_of_different_fences_have_different_ids),
        TEST(an_id_tells_its_time_and_the_prefix_of_its_key),
        TEST(an_id_reads_back_from_its_text_and_nothing_else_does),
        TEST(keys_are_framed_so_that_gluing_collides_with_nothing),
        TEST(each_part_of_a_key_counts),
        TEST(a_key_past_its_limit_is_refused_by_name),
        TEST(a_key_that_is_not_text_is_refused_by_name),
        TEST(what_is_in_progress_or_unknown_never_expires),
        TEST(what_is_unknown_to_the_gateway_is_due_since_then),
        TEST(all_else_expires_at_the_end_of_its_window_and_not_before),
        TEST(what_somebody_has_to_act_on_is_due_and_does_not_expire),
        TEST(a_record_of_format_1_is_still_read),
        TEST(an_operation_costs_two_bytes_more_than_in_format_1),
        TEST(what_a_flag_announces_is_there),
        TEST(what_does_not_hold_together_is_refused_by_name),
        TEST(statuses_have_names_that_read_back),
        TEST(a_copy_owes_nothing_to_the_original),
    };
    return cmocka_run_group_tests_name("record", tests, NULL, NULL);
}
