#include "store/postgres/args.h"

#include <string.h>

#include "base/check.h"

/* From 1970 to 2000. */
#define PG_EPOCH_US INT64_C(946684800000000)

void args_init(struct pg_args *args, const struct mem *mem, size_t bytes_max)
{
    *args = (struct pg_args){.count = 0};
    buf_init(&args->bytes, mem, bytes_max);
}

void args_release(struct pg_args *args)
{
    buf_release(&args->bytes);
}

void args_clear(struct pg_args *args)
{
    buf_clear(&args->bytes);
    args->count = 0;
    args->items = 0;
    args->open = false;
}

static void put_be(struct pg_args *args, uint64_t value, size_t size)
{
    char bytes[8];
    ASSERT(size <= sizeof bytes);
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (char)(unsigned char)(value >> 8 * (size - 1 - i));
    }
    buf_append(&args->bytes, bytes, size);
}

static uint64_t take_be(struct slice bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes.len; i++) {
        value = value << 8 | (unsigned char)bytes.data[i];
    }
    return value;
}

/* Begins an argument, or an item of the open array. */
static void begin(struct pg_args *args, bool null, size_t size)
{
    if (args->open) {
        args->items++;
        args->nones += null;
        put_be(args, null ? UINT32_MAX : size, 4);
        return;
    }
    ASSERT(args->count < ARGS_MAX);
    args->nulls[args->count] = null;
    args->starts[args->count++] = args->bytes.len;
}

/* The header of an array: dimensions, whether there may be NULLs, type, items, first index. */
void args_array(struct pg_args *args, enum pg_type type)
{
    ASSERT(!args->open);
    begin(args, false, 0);
    args->array = args->bytes.len;
    args->items = args->nones = 0;
    args->open = true;
    put_be(args, 1, 4);
    put_be(args, 1, 4);
    put_be(args, (uint64_t)type, 4);
    put_be(args, 0, 4);
    put_be(args, 1, 4);
}

void args_array_end(struct pg_args *args)
{
    enum { ITEMS_AT = 12 };
    ASSERT(args->open);
    args->open = false;
    if (args->bytes.status == OK) {
        for (unsigned i = 0; i < 4; i++) {
            args->bytes.data[args->array + ITEMS_AT + i] =
                (char)(unsigned char)(args->items >> 8 * (3 - i));
        }
    }
}

void args_array_end_some(struct pg_args *args)
{
    bool is_null = args->nones == args->items;
    args_array_end(args);
    if (is_null && args->bytes.status == OK) {
        args->bytes.len = args->array;
        args->nulls[args->count - 1] = true;
    }
}

void args_null(struct pg_args *args)
{
    begin(args, true, 0);
}

void args_bool(struct pg_args *args, bool value)
{
    begin(args, false, 1);
    put_be(args, value, 1);
}

void args_int2(struct pg_args *args, int16_t value)
{
    begin(args, false, 2);
    put_be(args, (uint16_t)value, 2);
}

void args_int4(struct pg_args *args, int32_t value)
{
    begin(args, false, 4);
    put_be(args, (uint32_t)value, 4);
}

void args_int8(struct pg_args *args, int64_t value)
{
    begin(args, false, 8);
    put_be(args, (uint64_t)value, 8);
}

void args_time(struct pg_args *args, int64_t ms)
{
    args_int8(args, ms * 1000 - PG_EPOCH_US);
}

void args_slice(struct pg_args *args, struct slice value)
{
    begin(args, false, value.len);
    buf_slice(&args->bytes, value);
}

void args_str(struct pg_args *args, const char *text)
{
    args_slice(args, slice_str(text));
}

struct pg_value pg_value_of(const PGresult *result, int row, int column)
{
    ASSERT(row < PQntuples(result));
    ASSERT(column < PQnfields(result));
    bool null = PQgetisnull(result, row, column) != 0;
    return (struct pg_value){.null = null,
        .bytes = null ? SLICE_EMPTY
                      : slice_of(PQgetvalue(result, row, column),
                            (size_t)PQgetlength(result, row, column))};
}

bool pg_value_int(struct pg_value value, int64_t *ret_number)
{
    size_t size = value.bytes.len;
    if (value.null || (size != 1 && size != 2 && size != 4 && size != 8)) {
        return false;
    }
    unsigned spare = 64 - 8 * (unsigned)size; /* the sign is in the first bit */
    *ret_number = (int64_t)(take_be(value.bytes) << spare) >> spare;
    return true;
}

bool pg_value_time(struct pg_value value, int64_t *ret_ms)
{
    int64_t us;
    if (value.bytes.len != 8 || !pg_value_int(value, &us) || us > INT64_MAX - PG_EPOCH_US) {
        return false;
    }
    *ret_ms = (us + PG_EPOCH_US) / 1000;
    return true;
}

bool pg_value_digest(struct pg_value value, struct digest *ret_digest)
{
    if (value.bytes.len != DIGEST_BYTES) {
        return false;
    }
    memcpy(ret_digest->bytes, value.bytes.data, DIGEST_BYTES);
    return true;
}

bool pg_value_uuid(struct pg_value value, unsigned char ret_bytes[16])
{
    if (value.bytes.len != 16) {
        return false;
    }
    memcpy(ret_bytes, value.bytes.data, 16);
    return true;
}
