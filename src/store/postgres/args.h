/*
 * args: the arguments of one statement in PostgreSQL's binary form, and values read from results.
 *
 * Arguments are appended one after the other; arrays are begun, filled and ended. The form is
 * binary, so that nothing needs escaping and nothing is lost. Numbers are big-endian, times
 * microseconds since 2000.
 *
 * Ownership: bytes are copied into one buffer.
 */
#ifndef ONCE_STORE_POSTGRES_ARGS_H
#define ONCE_STORE_POSTGRES_ARGS_H

#include "base/buf.h"
#include "canon/digest.h"
#include "store/postgres/libpq.h"

enum { ARGS_MAX = 64 };

/* Types of the server, by their fixed numbers (pg_type.dat). */
enum pg_type {
    PG_BOOL = 16,
    PG_BYTEA = 17,
    PG_INT8 = 20,
    PG_INT2 = 21,
    PG_INT4 = 23,
    PG_TEXT = 25,
    PG_TIMESTAMPTZ = 1184,
    PG_UUID = 2950,
};

struct pg_args {
    struct buf bytes;
    size_t starts[ARGS_MAX]; /* of each argument in bytes */
    bool nulls[ARGS_MAX];
    int count;
    size_t array; /* where the open array begins; 0 and no items: none is open */
    uint32_t items;
    uint32_t nones; /* how many of them are NULL */
    bool open;      /* an array is open */
};

void args_init(struct pg_args *args, const struct mem *mem, size_t bytes_max);
void args_release(struct pg_args *args);
void args_clear(struct pg_args *args);

/* Begins an array: values put before its end are its items. */
void args_array(struct pg_args *args, enum pg_type type);
void args_array_end(struct pg_args *args);
/* The same, but an array of only NULLs becomes NULL. unnest beside other arrays makes the same rows
 * of both, and NULL is cheaper. */
void args_array_end_some(struct pg_args *args);

void args_null(struct pg_args *args);
void args_bool(struct pg_args *args, bool value);
void args_int2(struct pg_args *args, int16_t value);
void args_int4(struct pg_args *args, int32_t value);
void args_int8(struct pg_args *args, int64_t value);
void args_time(struct pg_args *args, int64_t ms);
/* Text, bytes and UUIDs. */
void args_slice(struct pg_args *args, struct slice value);
void args_str(struct pg_args *args, const char *text);

/* One value of a result; for NULL it is empty, with null set. */
struct pg_value {
    struct slice bytes;
    bool null;
};
struct pg_value pg_value_of(const PGresult *result, int row, int column);
/* false: the value does not have that form. */
bool pg_value_int(struct pg_value value, int64_t *ret_number);
bool pg_value_time(struct pg_value value, int64_t *ret_ms);
bool pg_value_digest(struct pg_value value, struct digest *ret_digest);
bool pg_value_uuid(struct pg_value value, unsigned char ret_bytes[16]);

#endif
