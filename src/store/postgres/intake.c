/*
 * Effects that an application's own transaction wrote (once_effect, schema_3.sql and schema_4.sql):
 * their payloads are in clear until a process has sealed them.
 *
 * A row is taken for a few seconds, sealed through the engine, and deleted in the commit that makes
 * its record pending or cancels it. A crash before that commit leaves the row, which is taken
 * again; after it the row is gone and the record is like any other.
 */
#include "base/check.h"
#include "base/limits.h"
#include "canon/jsonw.h"
#include "store/postgres/impl.h"

enum { TYPES_BYTES_MAX = 1 << 20 }; /* of the names of all types and their tenants */

/* Ends one statement in its own transaction. */
static enum status finish(struct pg_store *self, enum status status, struct err *err)
{
    status = status == OK ? link_finish(&self->link, err) : status;
    if (status != OK) {
        pg_recover(self);
    }
    ASSERT(self->phase != PG_PREPARED);
    return status;
}

static void put_types(struct buf *out, const struct store_effect_type *types, size_t count)
{
    struct jsonw json = {.out = out};
    jsonw_open(&json, NULL, '[');
    for (size_t i = 0; i < count; i++) {
        jsonw_open(&json, NULL, '{');
        jsonw_str(&json, "effect_type", types[i].name);
        jsonw_i64(&json, "window_ms", types[i].window_ms);
        if (types[i].tenant_count > 0) {
            jsonw_open(&json, "tenants", '[');
            for (size_t k = 0; k < types[i].tenant_count; k++) {
                jsonw_str(&json, NULL, types[i].tenants[k]);
            }
            jsonw_close(&json, ']');
        }
        jsonw_close(&json, '}');
    }
    jsonw_close(&json, ']');
}

static enum status register_types(
    struct store *store, const struct store_effect_type *types, size_t count, struct err *err)
{
    struct pg_store *self = pg_of(store);
    PGresult *result = NULL;
    struct buf text;
    buf_init(&text, self->mem, TYPES_BYTES_MAX);
    put_types(&text, types, count);
    enum status status = buf_status(&text);
    status = status == OK ? pg_ready(self, err)
                          : err_set(err, status, "out of memory for the types of effects");
    if (status == OK) {
        args_slice(&self->link.args, buf_view(&text));
        link_send(&self->link, PG_TYPES);
        link_sync(&self->link);
        status = finish(self, pg_rows(self, 1, &result, err), err);
        PQclear(result);
    }
    buf_release(&text);
    return status;
}

static enum status take_row(
    const PGresult *result, int at, struct arena *arena, struct store_intake_row *ret_row)
{
    enum status status = arena_copy(arena, pg_value_of(result, at, 0).bytes, &ret_row->tenant);
    if (status == OK && !pg_value_uuid(pg_value_of(result, at, 1), ret_row->operation_id.bytes)) {
        status = E_CORRUPT;
    }
    return status == OK ? arena_copy(arena, pg_value_of(result, at, 2).bytes, &ret_row->envelope)
                        : status;
}

static enum status take(struct store *store, const struct store_effect_type *types,
    size_t type_count, struct arena *arena, struct store_intake_row *ret_rows, size_t limit,
    size_t *ret_count, struct err *err)
{
    struct pg_store *self = pg_of(store);
    PGresult *result = NULL;
    *ret_count = 0;
    enum status status = pg_ready(self, err);
    if (status != OK) {
        return status;
    }
    args_array(&self->link.args, PG_TEXT);
    for (size_t i = 0; i < type_count; i++) {
        args_str(&self->link.args, types[i].name);
    }
    args_array_end(&self->link.args);
    args_array(&self->link.args, PG_TEXT);
    for (size_t i = 0; i < type_count; i++) {
        if (types[i].is_ordered) {
            args_str(&self->link.args, types[i].name);
        }
    }
    args_array_end(&self->link.args);
    args_int4(&self->link.args, (int32_t)limit);
    link_send(&self->link, PG_TAKE);
    link_sync(&self->link);
    status = finish(self, pg_rows(self, 3, &result, err), err);
    int rows = status == OK ? PQntuples(result) : 0;
    for (int i = 0; i < rows && status == OK && *ret_count < limit; i++) {
        status = take_row(result, i, arena, &ret_rows[*ret_count]);
        *ret_count += status == OK;
    }
    PQclear(result);
    if (status != OK && *ret_count > 0) {
        return OK; /* the rest is taken again later */
    }
    return status == OK || err->status != OK
               ? status
               : err_set(err, status, "cannot read an effect that waits to be sealed");
}

/* Its payload is sealed with this change, or it is cancelled: it was never granted, and is not
 * new. */
static bool leaves_intake(const struct pg_row *row)
{
    const struct record *record = &row->record;
    return record->kind == RECORD_EFFECT && record->fence == 0 && record->status != RECORD_WAITING;
}

void pg_intake_drop(struct pg_store *self, const struct pg_row *rows, size_t count)
{
    struct pg_args *args = &self->link.args;
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        found += leaves_intake(&rows[i]);
    }
    if (found == 0) {
        return;
    }
    ASSERT(args->count == 0);
    args_array(args, PG_BYTEA);
    for (size_t i = 0; i < count; i++) {
        if (leaves_intake(&rows[i])) {
            args_slice(args, slice_of(rows[i].record.key.hash.bytes, DIGEST_BYTES));
        }
    }
    args_array_end(args);
    link_send(&self->link, PG_DROP);
}

const struct store_intake pg_intake = {.types = register_types, .take = take};
