#include "store/postgres/columns.h"

#include <stddef.h>
#include <string.h>

#include "base/check.h"
#include "base/macros.h"
#include "core/kind.h"
#include "core/source.h"

/* What a column holds, in C and in SQL. _SOME: NULL stands for zero or empty. */
enum column_form {
    FORM_DIGEST,
    FORM_DIGEST_SOME,
    FORM_TEXT,
    FORM_TEXT_SOME,
    FORM_BYTES_SOME,
    FORM_ID,
    FORM_ID_SOME,
    FORM_U8,
    FORM_I32,
    FORM_U32,
    FORM_I64,
    FORM_U64,
    FORM_U64_SOME,
    FORM_TIME,
    FORM_TIME_SOME,
    FORM_BOOL,
    FORM_KIND,
    FORM_STATUS,
    FORM_DOOR,
};

struct column {
    const char *name;
    enum column_form form;
    size_t at;          /* in struct record */
    enum pg_alike each; /* rows that are similar to this degree may differ in it */
};

#define COLUMN(name_, form_, member_)                                                              \
    {                                                                                              \
        .name = name_, .form = FORM_##form_, .at = offsetof(struct record, member_)                \
    }
#define COLUMN_EACH(name_, form_, member_, alike_)                                                 \
    {                                                                                              \
        .name = name_, .form = FORM_##form_, .at = offsetof(struct record, member_),               \
        .each = PG_ROWS_##alike_                                                                   \
    }

/* The first columns never change in the life of a row. */
enum { COLUMNS_OF_KEY = 6 };

static const struct column columns[] = {
    COLUMN_EACH("key_hash", DIGEST, key.hash, SAME),
    COLUMN_EACH("tenant_id", TEXT, key.tenant, ALIKE),
    COLUMN_EACH("scope", TEXT, key.scope, ALIKE),
    COLUMN_EACH("principal", TEXT, key.principal, ALIKE),
    COLUMN_EACH("key", TEXT, key.key, SAME),
    COLUMN("kind", KIND, kind),
    COLUMN("status", STATUS, status),
    COLUMN("version", U64, version),
    COLUMN_EACH("operation_id", ID, operation_id, SAME),
    COLUMN_EACH("fence", U64, fence, SAME),
    COLUMN("attempt", U32, attempt),
    COLUMN("duplicates", U32, duplicates),
    COLUMN_EACH("fingerprint", DIGEST, fingerprint, SAME),
    COLUMN("fingerprint_version", U8, fingerprint_version),
    COLUMN_EACH("created_at", TIME, created_ms, ALIKE),
    COLUMN_EACH("updated_at", TIME, updated_ms, ALIKE),
    COLUMN("sealed_at", TIME_SOME, sealed_ms),
    COLUMN_EACH("lease_expires_at", TIME_SOME, lease_expires_ms, ALIKE),
    COLUMN("window_expires_at", TIME_SOME, window_expires_ms),
    COLUMN_EACH("window_ms", I64, window_ms, ALIKE),
    COLUMN("due_given_at", TIME_SOME, due_ms),
    COLUMN("effect_id", TEXT_SOME, effect_id),
    COLUMN("outcome_code", I32, outcome.code),
    COLUMN("outcome_meta", BYTES_SOME, outcome.meta),
    COLUMN("outcome_digest", DIGEST_SOME, outcome.body.digest),
    COLUMN("outcome_bytes", U64, outcome.body.bytes),
    COLUMN("outcome_retained", BOOL, outcome.body.retained),
    COLUMN_EACH("request_digest", DIGEST_SOME, request.digest, SAME),
    COLUMN_EACH("request_bytes", U64, request.bytes, SAME),
    COLUMN("request_retained", BOOL, request.retained),
    COLUMN("source_type", TEXT_SOME, source.type),
    COLUMN("source_id", TEXT_SOME, source.id),
    COLUMN("source_version", TEXT_SOME, source.version),
    COLUMN_EACH("trace", TEXT_SOME, trace, SAME),
    COLUMN("reason", TEXT_SOME, reason),
    COLUMN("door", DOOR, door),
    COLUMN("reconciles", BOOL, reconciles),
    COLUMN("holder", U64_SOME, holder),
    COLUMN("parent", ID_SOME, parent),
    COLUMN("detail", BYTES_SOME, detail),
};

enum { COLUMNS = COUNT(columns) };

/* Additional columns: for searching, or because they are large. */
enum column_extra { EXTRA_DUE, EXTRA_SOURCE, EXTRA_REQUEST, EXTRA_OUTCOME, EXTRA_EXPECTED, EXTRAS };

static const struct {
    const char *name;
    const char *type;
    enum pg_type number;
} extras[EXTRAS] = {
    [EXTRA_DUE] = {"due_at", "timestamptz", PG_TIMESTAMPTZ},
    [EXTRA_SOURCE] = {"source_hash", "bytea", PG_BYTEA},
    [EXTRA_REQUEST] = {"request_body", "bytea", PG_BYTEA},
    [EXTRA_OUTCOME] = {"outcome_body", "bytea", PG_BYTEA},
    [EXTRA_EXPECTED] = {"version_expected", "bigint", PG_INT8},
};

static_assert(COLUMNS + EXTRAS <= ARGS_MAX, "a statement has room for all columns");

/* The type of the argument, and the enum that it is cast to, or NULL. */
struct sql_type {
    const char *name;
    enum pg_type number;
    const char *cast;
};

static struct sql_type type_of(enum column_form form)
{
    switch (form) {
    case FORM_DIGEST:
    case FORM_DIGEST_SOME:
    case FORM_BYTES_SOME: return (struct sql_type){"bytea", PG_BYTEA, NULL};
    case FORM_TEXT:
    case FORM_TEXT_SOME: return (struct sql_type){"text", PG_TEXT, NULL};
    case FORM_ID:
    case FORM_ID_SOME: return (struct sql_type){"uuid", PG_UUID, NULL};
    case FORM_U8: return (struct sql_type){"smallint", PG_INT2, NULL};
    case FORM_I32: return (struct sql_type){"integer", PG_INT4, NULL};
    case FORM_U32:
    case FORM_I64:
    case FORM_U64:
    case FORM_U64_SOME: return (struct sql_type){"bigint", PG_INT8, NULL};
    case FORM_TIME:
    case FORM_TIME_SOME: return (struct sql_type){"timestamptz", PG_TIMESTAMPTZ, NULL};
    case FORM_BOOL: return (struct sql_type){"boolean", PG_BOOL, NULL};
    case FORM_KIND: return (struct sql_type){"text", PG_TEXT, "record_kind"};
    case FORM_STATUS: return (struct sql_type){"text", PG_TEXT, "record_status"};
    case FORM_DOOR: return (struct sql_type){"text", PG_TEXT, "record_door"};
    }
    ASSERT(false);
    return (struct sql_type){NULL, PG_TEXT, NULL};
}

/* ---- SQL --------------------------------------------------------------------------------- */

int columns_count(void)
{
    return COLUMNS;
}

void columns_select(struct buf *sql, const char *table)
{
    for (size_t i = 0; i < COLUMNS; i++) {
        buf_printf(sql, "%s%s.%s", i == 0 ? "" : ", ", table, columns[i].name);
    }
}

/* "unnest($1::bytea[], …) AS w (key_hash, …)": the rows in the arguments. */
static void put_rows_sql(struct buf *sql)
{
    buf_str(sql, "unnest(");
    for (size_t i = 0; i < COLUMNS + EXTRAS; i++) {
        const char *type = i < COLUMNS ? type_of(columns[i].form).name : extras[i - COLUMNS].type;
        buf_printf(sql, "%s$%zu::%s[]", i == 0 ? "" : ", ", i + 1, type);
    }
    buf_str(sql, ") AS w (");
    for (size_t i = 0; i < COLUMNS + EXTRAS; i++) {
        buf_printf(sql, "%s%s", i == 0 ? "" : ", ",
            i < COLUMNS ? columns[i].name : extras[i - COLUMNS].name);
    }
    buf_str(sql, ")");
}

/* "w.status::record_status" */
static void put_value_sql(struct buf *sql, const struct column *column)
{
    const char *cast = type_of(column->form).cast;
    buf_printf(sql, "w.%s%s%s", column->name, cast == NULL ? "" : "::", cast == NULL ? "" : cast);
}

/* Plain: a row that is there makes it fail. ON CONFLICT would look up every key twice and write
 * more for each row, and the locks leave nearly no conflicts. */
void columns_insert(struct buf *sql)
{
    buf_str(sql, "INSERT INTO records (");
    for (size_t i = 0; i < COLUMNS + EXTRA_EXPECTED; i++) {
        buf_printf(sql, "%s%s", i == 0 ? "" : ", ",
            i < COLUMNS ? columns[i].name : extras[i - COLUMNS].name);
    }
    buf_str(sql, ") SELECT ");
    for (size_t i = 0; i < COLUMNS + EXTRA_EXPECTED; i++) {
        buf_str(sql, i == 0 ? "" : ", ");
        if (i < COLUMNS) {
            put_value_sql(sql, &columns[i]);
        } else {
            buf_printf(sql, "w.%s", extras[i - COLUMNS].name);
        }
    }
    buf_str(sql, " FROM ");
    put_rows_sql(sql);
}

/* The additional columns of similar rows, and how similar the rows are that may differ in each. */
static const struct {
    enum column_extra extra;
    enum pg_alike each;
} alike_extras[] = {{EXTRA_DUE, PG_ROWS_ALIKE}, {EXTRA_REQUEST, PG_ROWS_SAME}};

enum { ALIKE_EXTRAS = COUNT(alike_extras) };

/* "name" of column i of a similar row: first the additional ones. Returns how
 * similar the rows are that may differ in it. */
static enum pg_alike alike_column(size_t i, const char **ret_name, struct sql_type *ret_type)
{
    if (i < ALIKE_EXTRAS) {
        enum column_extra extra = alike_extras[i].extra;
        *ret_name = extras[extra].name;
        *ret_type = (struct sql_type){extras[extra].type, extras[extra].number, NULL};
        return alike_extras[i].each;
    }
    const struct column *column = &columns[i - ALIKE_EXTRAS];
    *ret_name = column->name;
    *ret_type = type_of(column->form);
    return column->each;
}

/* Arguments: first the arrays of what may differ, then the values of what is the same. Each array
 * has its own unnest, because one unnest of all of them in FROM would hold every row in memory
 * before the first is inserted. */
void columns_insert_alike(struct buf *sql, enum pg_alike alike)
{
    const char *name = NULL;
    struct sql_type type;
    const char *mark = "INSERT INTO records (";
    ASSERT(alike != PG_ROWS_DIFFER);
    for (int arrays = 1; arrays >= 0; arrays--) {
        for (size_t i = 0; i < ALIKE_EXTRAS + COLUMNS; i++) {
            if ((alike_column(i, &name, &type) >= alike) == arrays) {
                buf_printf(sql, "%s%s", mark, name);
                mark = ", ";
            }
        }
    }
    unsigned number = 0;
    mark = ") SELECT * FROM (SELECT ";
    for (int arrays = 1; arrays >= 0; arrays--) {
        for (size_t i = 0; i < ALIKE_EXTRAS + COLUMNS; i++) {
            if ((alike_column(i, &name, &type) >= alike) != arrays) {
                continue;
            }
            if (arrays == 1) {
                buf_printf(sql, "%sunnest($%u::%s[])", mark, ++number, type.name);
            } else {
                buf_printf(
                    sql, "%s$%u::%s", mark, ++number, type.cast == NULL ? type.name : type.cast);
            }
            mark = ", ";
        }
        mark = arrays == 1 ? ") AS w, (SELECT " : ") AS same";
    }
    buf_str(sql, mark);
}

/* Checks that every row was changed, and leaves what the counts change by in a setting of the
 * transaction: the rows of counts must not be locked while a commit before is under way. It
 * compares with the argument itself: a second use of w would keep all of it in memory. */
void columns_update(struct buf *sql)
{
    static const char where[] = " r.key_hash = w.key_hash AND r.tenant_id = w.tenant_id"
                                " AND r.version = w.version_expected";
    buf_str(sql, "WITH w AS (SELECT * FROM ");
    put_rows_sql(sql);
    buf_printf(sql,
        "), old AS (SELECT r.kind, r.status FROM w JOIN records r ON%s), done AS ("
        "UPDATE records r SET ",
        where);
    for (size_t i = COLUMNS_OF_KEY; i < COLUMNS; i++) {
        buf_printf(sql, "%s = ", columns[i].name);
        put_value_sql(sql, &columns[i]);
        buf_str(sql, ", ");
    }
    buf_printf(sql,
        "due_at = w.due_at, source_hash = w.source_hash,"
        " request_body = CASE WHEN w.request_retained"
        " THEN coalesce(w.request_body, r.request_body) END,"
        " outcome_body = CASE WHEN w.outcome_retained"
        " THEN coalesce(w.outcome_body, r.outcome_body) END"
        " FROM w WHERE%s RETURNING r.key_hash, r.kind, r.status)"
        " SELECT expect_changed($1::bytea[], ARRAY(SELECT key_hash FROM done)),"
        " set_config('once.updated', (SELECT string_agg(concat_ws(' ', kind, status, n), ',')"
        " FROM (SELECT kind, status, sum(n) AS n FROM (SELECT kind, status, 1 AS n FROM done"
        " UNION ALL SELECT kind, status, -1 FROM old) AS each GROUP BY kind, status) AS moved),"
        " true)",
        where);
}

/* ---- writing ----------------------------------------------------------------------------- */

static void put_slice_some(struct pg_args *args, struct slice slice)
{
    if (slice.len == 0) {
        args_null(args);
    } else {
        args_slice(args, slice);
    }
}

static void put_number_some(struct pg_args *args, uint64_t number)
{
    if (number == 0) {
        args_null(args);
    } else {
        args_int8(args, (int64_t)number);
    }
}

static void put_time_some(struct pg_args *args, int64_t ms)
{
    if (ms == 0) {
        args_null(args);
    } else {
        args_time(args, ms);
    }
}

/* Bytes that become NULL if they are all zero. */
static void put_bytes_some(struct pg_args *args, const void *bytes, size_t size)
{
    static const char zeros[DIGEST_BYTES] = {0};
    ASSERT(size <= sizeof zeros);
    put_slice_some(args, memcmp(bytes, zeros, size) == 0 ? SLICE_EMPTY : slice_of(bytes, size));
}

static void put_value(
    struct pg_args *args, const struct record *record, const struct column *column)
{
    const void *at = (const char *)record + column->at;
    switch (column->form) {
    case FORM_DIGEST: args_slice(args, slice_of(at, DIGEST_BYTES)); return;
    case FORM_DIGEST_SOME: put_bytes_some(args, at, DIGEST_BYTES); return;
    case FORM_TEXT: args_slice(args, *(const struct slice *)at); return;
    case FORM_TEXT_SOME:
    case FORM_BYTES_SOME: put_slice_some(args, *(const struct slice *)at); return;
    case FORM_ID: args_slice(args, slice_of(at, sizeof(struct op_id))); return;
    case FORM_ID_SOME: put_bytes_some(args, at, sizeof(struct op_id)); return;
    case FORM_U8: args_int2(args, *(const uint8_t *)at); return;
    case FORM_I32: args_int4(args, *(const int32_t *)at); return;
    case FORM_U32: args_int8(args, *(const uint32_t *)at); return;
    case FORM_I64: args_int8(args, *(const int64_t *)at); return;
    case FORM_U64: args_int8(args, (int64_t) * (const uint64_t *)at); return;
    case FORM_U64_SOME: put_number_some(args, *(const uint64_t *)at); return;
    case FORM_TIME: args_time(args, *(const int64_t *)at); return;
    case FORM_TIME_SOME: put_time_some(args, *(const int64_t *)at); return;
    case FORM_BOOL: args_bool(args, *(const bool *)at); return;
    case FORM_KIND: args_str(args, kind_name(record->kind)); return;
    case FORM_STATUS: args_str(args, record_status_name(record->status)); return;
    case FORM_DOOR: args_str(args, record_door_name(record->door)); return;
    }
    ASSERT(false);
}

/* When somebody must act; the store itself handles the end of a window. */
static int64_t due_ms_of(const struct record *record)
{
    enum record_due reason = record_due(record);
    return reason == RECORD_DUE_NEVER || reason == RECORD_DUE_WINDOW_OVER ? 0
                                                                          : record_due_ms(record);
}

static void put_source_hash(struct pg_args *args, const struct record *record)
{
    struct record_key key;
    bool has = record->kind != RECORD_SOURCE && source_ordered(&record->source) &&
               source_key_seal(&record->key, &record->source, &key, NULL) == OK;
    put_slice_some(args, has ? slice_of(key.hash.bytes, DIGEST_BYTES) : SLICE_EMPTY);
}

static void put_extra(struct pg_args *args, const struct pg_row *row, enum column_extra extra)
{
    switch (extra) {
    case EXTRA_DUE:
        put_time_some(args, due_ms_of(&row->record) == INT64_MAX ? 0 : due_ms_of(&row->record));
        return;
    case EXTRA_SOURCE: put_source_hash(args, &row->record); return;
    case EXTRA_REQUEST: put_slice_some(args, row->request_body); return;
    case EXTRA_OUTCOME: put_slice_some(args, row->outcome_body); return;
    case EXTRA_EXPECTED: args_int8(args, (int64_t)row->version_expected); return;
    case EXTRAS: break;
    }
    ASSERT(false);
}

void columns_put(struct pg_args *args, const struct pg_row *rows, size_t count)
{
    ASSERT(count > 0);
    for (size_t i = 0; i < COLUMNS; i++) {
        args_array(args, type_of(columns[i].form).number);
        for (size_t row = 0; row < count; row++) {
            put_value(args, &rows[row].record, &columns[i]);
        }
        args_array_end_some(args);
    }
    for (size_t i = 0; i < EXTRAS; i++) {
        args_array(args, extras[i].number);
        for (size_t row = 0; row < count; row++) {
            put_extra(args, &rows[row], (enum column_extra)i);
        }
        args_array_end_some(args);
    }
}

static size_t size_of(enum column_form form)
{
    switch (form) {
    case FORM_DIGEST:
    case FORM_DIGEST_SOME: return DIGEST_BYTES;
    case FORM_TEXT:
    case FORM_TEXT_SOME:
    case FORM_BYTES_SOME: return sizeof(struct slice);
    case FORM_ID:
    case FORM_ID_SOME: return sizeof(struct op_id);
    case FORM_U8: return sizeof(uint8_t);
    case FORM_I32: return sizeof(int32_t);
    case FORM_U32: return sizeof(uint32_t);
    case FORM_I64:
    case FORM_U64:
    case FORM_U64_SOME:
    case FORM_TIME:
    case FORM_TIME_SOME: return sizeof(int64_t);
    case FORM_BOOL: return sizeof(bool);
    case FORM_KIND: return sizeof(enum record_kind);
    case FORM_STATUS: return sizeof(enum record_status);
    case FORM_DOOR: return sizeof(enum record_door);
    }
    ASSERT(false);
    return 0;
}

static bool value_is_same(
    const struct record *left, const struct record *right, const struct column *column)
{
    const char *a = (const char *)left + column->at;
    const char *b = (const char *)right + column->at;
    bool is_slice = column->form == FORM_TEXT || column->form == FORM_TEXT_SOME ||
                    column->form == FORM_BYTES_SOME;
    return is_slice ? slice_equal(*(const struct slice *)a, *(const struct slice *)b)
                    : memcmp(a, b, size_of(column->form)) == 0;
}

/* What two rows have in common. */
static enum pg_alike two_alike(const struct pg_row *left, const struct pg_row *right)
{
    enum pg_alike alike =
        due_ms_of(&left->record) == due_ms_of(&right->record) ? PG_ROWS_SAME : PG_ROWS_ALIKE;
    for (size_t i = 0; i < COLUMNS && alike != PG_ROWS_DIFFER; i++) {
        if (columns[i].each < alike && !value_is_same(&left->record, &right->record, &columns[i])) {
            alike = columns[i].each;
        }
    }
    return alike;
}

enum pg_alike columns_alike(const struct pg_row *rows, size_t count)
{
    enum pg_alike alike = PG_ROWS_SAME;
    ASSERT(count > 0);
    for (size_t row = 0; row < count && alike != PG_ROWS_DIFFER; row++) {
        if (source_ordered(&rows[row].record.source) || rows[row].outcome_body.len > 0) {
            return PG_ROWS_DIFFER; /* the statement has no room for these */
        }
        enum pg_alike both = two_alike(&rows[0], &rows[row]);
        alike = both < alike ? both : alike;
    }
    return alike;
}

/* Column i of a row, as alike_column counts them. */
static void put_alike(struct pg_args *args, const struct pg_row *row, size_t i)
{
    if (i < ALIKE_EXTRAS) {
        put_extra(args, row, alike_extras[i].extra);
    } else {
        put_value(args, &row->record, &columns[i - ALIKE_EXTRAS]);
    }
}

void columns_put_alike(
    struct pg_args *args, const struct pg_row *rows, size_t count, enum pg_alike alike)
{
    const char *name = NULL;
    struct sql_type type;
    ASSERT(count > 0 && alike != PG_ROWS_DIFFER);
    for (size_t i = 0; i < ALIKE_EXTRAS + COLUMNS; i++) {
        if (alike_column(i, &name, &type) >= alike) {
            args_array(args, type.number);
            for (size_t row = 0; row < count; row++) {
                put_alike(args, &rows[row], i);
            }
            args_array_end_some(args);
        }
    }
    for (size_t i = 0; i < ALIKE_EXTRAS + COLUMNS; i++) {
        if (alike_column(i, &name, &type) < alike) {
            put_alike(args, &rows[0], i);
        }
    }
}

/* ---- reading ----------------------------------------------------------------------------- */

static bool take_kind(struct slice text, enum record_kind *ret_kind)
{
    for (int kind = RECORD_OPERATION; kind <= RECORD_DELIVERY; kind++) {
        if (slice_is(text, kind_name((enum record_kind)kind))) {
            *ret_kind = (enum record_kind)kind;
            return true;
        }
    }
    return false;
}

static bool take_door(struct slice text, enum record_door *ret_door)
{
    *ret_door = RECORD_DOOR_NONE;
    return slice_is(text, record_door_name(RECORD_DOOR_NONE)) || record_door_read(text, ret_door);
}

/* Reads a number from 0 to max. */
static bool take_number(struct pg_value value, uint64_t max, uint64_t *ret_number)
{
    int64_t number;
    if (!pg_value_int(value, &number) || number < 0 || (uint64_t)number > max) {
        return false;
    }
    *ret_number = (uint64_t)number;
    return true;
}

static bool take_numbers(struct pg_value value, enum column_form form, void *at)
{
    uint64_t number = 0;
    int64_t signed_number = 0;
    switch ((int)form) {
    case FORM_U8:
    case FORM_BOOL:
        if (!take_number(value, form == FORM_BOOL ? 1 : UINT8_MAX, &number)) {
            return false;
        }
        if (form == FORM_BOOL) {
            *(bool *)at = number != 0;
        } else {
            *(uint8_t *)at = (uint8_t)number;
        }
        return true;
    case FORM_U32:
        if (!take_number(value, UINT32_MAX, &number)) {
            return false;
        }
        *(uint32_t *)at = (uint32_t)number;
        return true;
    case FORM_I32:
        if (value.bytes.len != 4 || !pg_value_int(value, &signed_number)) {
            return false;
        }
        *(int32_t *)at = (int32_t)signed_number;
        return true;
    case FORM_I64: return pg_value_int(value, at);
    default: return take_number(value, INT64_MAX, at);
    }
}

static bool take_value(struct pg_value value, const struct column *column, struct record *record)
{
    void *at = (char *)record + column->at;
    switch (column->form) {
    case FORM_DIGEST: return pg_value_digest(value, at);
    case FORM_DIGEST_SOME: return value.null || pg_value_digest(value, at);
    case FORM_TEXT:
    case FORM_TEXT_SOME:
    case FORM_BYTES_SOME:
        *(struct slice *)at = value.bytes;
        return !value.null || column->form != FORM_TEXT;
    case FORM_ID: return pg_value_uuid(value, at);
    case FORM_ID_SOME: return value.null || pg_value_uuid(value, at);
    case FORM_U8:
    case FORM_BOOL:
    case FORM_I32:
    case FORM_U32:
    case FORM_I64:
    case FORM_U64: return take_numbers(value, column->form, at);
    case FORM_U64_SOME: return value.null || take_numbers(value, column->form, at);
    case FORM_TIME: return pg_value_time(value, at);
    case FORM_TIME_SOME: return value.null || pg_value_time(value, at);
    case FORM_KIND: return take_kind(value.bytes, &record->kind);
    case FORM_STATUS: return record_status_read(value.bytes, &record->status);
    case FORM_DOOR: return take_door(value.bytes, &record->door);
    }
    ASSERT(false);
    return false;
}

/* Whether its key has the hash that it was found by. */
static bool key_holds(const struct record *record)
{
    struct record_key key = record->key;
    return record_key_seal_as(&key, record->kind, NULL) == OK &&
           digest_equal(&key.hash, &record->key.hash);
}

enum status columns_take(
    const PGresult *result, int row, int column, struct record *ret_record, struct err *err)
{
    struct record record = {.version = 0};
    const char *flaw = NULL;
    ASSERT(column + COLUMNS <= PQnfields(result));
    for (int i = 0; i < COLUMNS && flaw == NULL; i++) {
        if (!take_value(pg_value_of(result, row, column + i), &columns[i], &record)) {
            flaw = columns[i].name;
        }
    }
    if (flaw == NULL) {
        flaw = key_holds(&record) ? record_flaw(&record) : "key_hash is not that of the key";
    }
    if (flaw != NULL) {
        char hash[DIGEST_HEX_BYTES];
        return err_set(err, E_CORRUPT, "the record with key_hash \\x%s does not check out: %s",
            digest_put_hex(hash, &record.key.hash), flaw);
    }
    *ret_record = record;
    return OK;
}
