/*
 * Makes, updates and prints the schema.
 *
 * Each version is one text (schema_N.sql) that is run once, in order, and recorded in the table of
 * migrations. Everything happens in one transaction, under a lock that a second process waits for.
 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/macros.h"
#include "store/postgres/impl.h"
#include "store/postgres/schema.h"

enum {
    SCRIPT_BYTES_MAX = 1 << 20,
    LOCK_WAIT_S = 60, /* a different process may be migrating */
};

/* The texts that take the schema from the version before to this one, in order. */
static const struct {
    int version;
    const char *text;
    const size_t *bytes;
} parts[] = {
    {1, pg_schema_1, &pg_schema_1_bytes},
    {2, pg_schema_2_canonical, &pg_schema_2_canonical_bytes},
    {2, pg_schema_2, &pg_schema_2_bytes},
    {3, pg_schema_3, &pg_schema_3_bytes},
    {4, pg_schema_4, &pg_schema_4_bytes},
    {5, pg_schema_5, &pg_schema_5_bytes},
    {6, pg_schema_6, &pg_schema_6_bytes},
    {6, pg_schema_6_evidence, &pg_schema_6_evidence_bytes},
    {7, pg_schema_7, &pg_schema_7_bytes},
    {8, pg_schema_8, &pg_schema_8_bytes},
};

/* What a role needs to run Once: no right to create, drop or alter anything, nor to change or
 * delete evidence. */
static const char *const app_grants[] = {
    "GRANT USAGE ON SCHEMA %1$s TO %2$s",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON %1$s.records, %1$s.tallies TO %2$s",
    "GRANT SELECT, INSERT ON %1$s.entries, %1$s.commits TO %2$s",
    "GRANT SELECT, INSERT, UPDATE ON %1$s.chains TO %2$s",
    "GRANT SELECT ON %1$s.migrations, %1$s.removals, %1$s.removing, %1$s.store TO %2$s",
    "GRANT UPDATE (committed_at, boot_ms, boot_id, jump_ms) ON %1$s.store TO %2$s",
    "GRANT SELECT, UPDATE ON SEQUENCE %1$s.fences TO %2$s",
    "GRANT EXECUTE ON FUNCTION %1$s.keep_partitions, %1$s.chain_decisions TO %2$s",
    "GRANT SELECT ON %1$s.unchained, %1$s.roles, %1$s.intake, %1$s.effect_types TO %2$s",
    ("GRANT EXECUTE ON FUNCTION %1$s.register_effect_types, %1$s.take_intake, %1$s.drop_intake"
     " TO %2$s"),
};

/* What a role needs to fence in its own transactions: four functions, and no table. */
static const char *const functions_grants[] = {
    "GRANT USAGE ON SCHEMA %1$s TO %2$s",
    ("GRANT EXECUTE ON FUNCTION %1$s.once_begin, %1$s.once_seal, %1$s.once_release,"
     " %1$s.once_effect TO %2$s"),
};

/* What a role needs to read: everything but the fingerprint key and payloads in clear. */
static const char *const reader_grants[] = {
    "GRANT USAGE ON SCHEMA %1$s TO %2$s",
    ("GRANT SELECT ON %1$s.records, %1$s.tallies, %1$s.entries, %1$s.commits, %1$s.chains,"
     " %1$s.migrations, %1$s.removals, %1$s.removing, %1$s.operations, %1$s.unknown_operations,"
     " %1$s.evidence, %1$s.processes, %1$s.counts, %1$s.unchained, %1$s.roles, %1$s.intake,"
     " %1$s.effect_types TO %2$s"),
    ("GRANT SELECT (store_id, created_at, committed_at, boot_ms, boot_id, jump_ms) ON %1$s.store"
     " TO %2$s"),
    "GRANT SELECT ON SEQUENCE %1$s.fences TO %2$s",
};

/* The names of the functions without a schema, for applications that keep the usual search path. A
 * role may lack the right to create in the schema public, or have such functions of its own: then
 * only the full names work, as they always do. They depend on the schema and go with it. */
static const char short_names[] =
    "DO $names$\nBEGIN\n"
    "EXECUTE 'CREATE OR REPLACE FUNCTION public.once_begin(scope text, key text,"
    " payload jsonb DEFAULT NULL, fingerprint text DEFAULT NULL, principal text DEFAULT '''',"
    " ttl text DEFAULT NULL, lease text DEFAULT NULL, on_unknown text DEFAULT ''hold'',"
    " source jsonb DEFAULT NULL, trace jsonb DEFAULT NULL, retry_failed boolean DEFAULT false)"
    " RETURNS jsonb LANGUAGE sql"
    " RETURN once.once_begin($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)';\n"
    "EXECUTE 'CREATE OR REPLACE FUNCTION public.once_seal(operation_id text, fence bigint,"
    " status text DEFAULT ''executed'', effect_id text DEFAULT NULL, outcome jsonb DEFAULT NULL,"
    " ttl text DEFAULT NULL) RETURNS jsonb LANGUAGE sql"
    " RETURN once.once_seal($1, $2, $3, $4, $5, $6)';\n"
    "EXECUTE 'CREATE OR REPLACE FUNCTION public.once_release(operation_id text, fence bigint,"
    " reason text DEFAULT NULL) RETURNS jsonb LANGUAGE sql"
    " RETURN once.once_release($1, $2, $3)';\n"
    "EXECUTE 'CREATE OR REPLACE FUNCTION public.once_effect(envelope jsonb) RETURNS jsonb"
    " LANGUAGE sql RETURN once.once_effect($1)';\n"
    "EXCEPTION WHEN insufficient_privilege OR invalid_schema_name OR invalid_function_definition"
    " OR wrong_object_type THEN\n    NULL;\nEND $names$;\n";

/* A name in double quotes. */
static void put_name(struct buf *out, const char *name)
{
    buf_char(out, '"');
    for (; *name != '\0'; name++) {
        if (*name == '"') {
            buf_char(out, '"');
        }
        buf_char(out, *name);
    }
    buf_char(out, '"');
}

static const struct {
    const char *const *texts;
    size_t count;
} grant_texts[] = {
    [POSTGRES_GRANT_PROCESS] = {app_grants, COUNT(app_grants)},
    [POSTGRES_GRANT_READ] = {reader_grants, COUNT(reader_grants)},
    [POSTGRES_GRANT_FUNCTIONS] = {functions_grants, COUNT(functions_grants)},
};

/* A text in single quotes. */
static void put_literal(struct buf *out, const char *text)
{
    buf_str(out, "'");
    for (; *text != '\0'; text++) {
        if (*text == '\'') {
            buf_char(out, '\'');
        }
        buf_char(out, *text);
    }
    buf_str(out, "'");
}

/* Sets the tenant that the role acts for in the functions, if one was given. */
static void put_tenant(struct buf *out, const struct postgres_grant *grant)
{
    if (grant->tenant == NULL) {
        return;
    }
    buf_str(out, "INSERT INTO roles (role_name, tenant_id) VALUES (");
    put_literal(out, grant->role);
    buf_str(out, ", ");
    put_literal(out, grant->tenant);
    buf_str(out, ") ON CONFLICT (role_name) DO UPDATE SET tenant_id = excluded.tenant_id;\n");
}

static void put_grant(struct buf *out, const struct postgres_grant *grant, const char *schema)
{
    const char *const *texts = grant_texts[grant->kind].texts;
    size_t count = grant_texts[grant->kind].count;
    struct buf role;
    struct buf place;
    buf_init(&role, out->mem, SCRIPT_BYTES_MAX);
    buf_init(&place, out->mem, SCRIPT_BYTES_MAX);
    put_name(&role, grant->role);
    put_name(&place, schema);
    buf_char(&role, '\0');
    buf_char(&place, '\0');
    for (size_t i = 0; i < count; i++) {
        if (buf_status(&role) == OK && buf_status(&place) == OK) {
            buf_printf(out, texts[i], place.data, role.data);
            buf_str(out, ";\n");
        } else {
            out->status = E_NOMEM;
        }
    }
    buf_release(&role);
    buf_release(&place);
}

/* Runs before the steps: takes the lock, and sets the search path to this schema. */
static void put_begin(struct buf *out, const char *schema)
{
    buf_printf(out,
        "BEGIN;\nSET LOCAL lock_timeout = '%ds';\nSET LOCAL client_min_messages = warning;\n"
        "SELECT pg_advisory_xact_lock(hashtextextended('once migrate %s', 0));\n"
        "CREATE SCHEMA IF NOT EXISTS \"%s\";\nSET LOCAL search_path = \"%s\", pg_temp;\n"
        "CREATE TABLE IF NOT EXISTS migrations (version integer PRIMARY KEY,"
        " once_version text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now(),"
        " applied_by text NOT NULL DEFAULT current_user);\n",
        LOCK_WAIT_S, schema, schema, schema);
}

static void put_step(struct buf *out, int version)
{
    ASSERT(version > 0 && version <= PG_SCHEMA_VERSION);
    for (size_t i = 0; i < COUNT(parts); i++) {
        if (parts[i].version == version) {
            buf_append(out, parts[i].text, *parts[i].bytes);
        }
    }
    buf_printf(out, "\nINSERT INTO migrations (version, once_version) VALUES (%d, '%s');\n",
        version, ONCE_VERSION);
}

/* Only one store of a database can have them: the one in the schema that is used unless the URL
 * names a different one. */
static void put_short_names(struct buf *out, const char *schema)
{
    if (strcmp(schema, "once") == 0) {
        buf_str(out, short_names);
    }
}

static void put_grants(
    struct buf *out, const struct postgres_migration *migration, const char *schema)
{
    for (size_t i = 0; i < migration->grant_count; i++) {
        put_grant(out, &migration->grants[i], schema);
        put_tenant(out, &migration->grants[i]);
    }
}

enum status postgres_migrate_print(
    const char *url, const struct postgres_migration *migration, struct buf *out, struct err *err)
{
    struct pg_target target = {.url = NULL};
    enum status status = pg_target_read(&mem_libc, url, &target, err);
    if (status != OK) {
        return status;
    }
    put_begin(out, target.schema);
    for (int version = 1; version <= PG_SCHEMA_VERSION; version++) {
        put_step(out, version);
    }
    put_short_names(out, target.schema);
    put_grants(out, migration, target.schema);
    buf_str(out, "COMMIT;\n");
    pg_target_release(&mem_libc, &target);
    status = buf_status(out);
    return status == OK ? OK : err_set(err, status, "out of memory for the script");
}

/* ---- running ----------------------------------------------------------------------------- */

/* Runs several statements at once; *ret_number, if not NULL, is the first value of the last one. */
static enum status run_text(PGconn *conn, const char *sql, int *ret_number, struct err *err)
{
    PGresult *result = PQexec(conn, sql);
    ExecStatusType kind = PQresultStatus(result);
    enum status status = OK;
    if (kind != PGRES_COMMAND_OK && kind != PGRES_TUPLES_OK) {
        status = link_status(result, err);
        status = status == E_UNAVAILABLE ? status : E_UNAVAILABLE;
        if (link_failed_as(result, "42501")) {
            err_hint(err, "migrate as the role that owns the schema; the first time it needs "
                          "GRANT CREATE ON DATABASE");
        }
    } else if (ret_number != NULL) {
        int number = 0;
        (void)sscanf(PQntuples(result) == 1 ? PQgetvalue(result, 0, 0) : "", "%d", &number);
        *ret_number = number;
    }
    PQclear(result);
    return status;
}

static enum status run_buf(PGconn *conn, struct buf *sql, struct err *err)
{
    buf_char(sql, '\0');
    enum status status = buf_status(sql);
    if (status != OK) {
        return err_set(err, status, "out of memory for the migration");
    }
    status = run_text(conn, sql->data, NULL, err);
    buf_clear(sql);
    return status;
}

static enum status refuse_newer(int version, const char *schema, struct err *err)
{
    (void)err_set(err, E_UNAVAILABLE,
        "the schema '%s' has version %d, and this program knows versions up to %d", schema, version,
        PG_SCHEMA_VERSION);
    err_hint(err, "use the newer once that migrated it; nothing was changed");
    return E_UNAVAILABLE;
}

/* In the transaction that put_begin opened. */
static enum status migrate_on(PGconn *conn, struct postgres_migration *migration,
    const char *schema, struct buf *sql, struct err *err)
{
    int version = 0;
    enum status status =
        run_text(conn, "SELECT coalesce(max(version), 0) FROM migrations", &version, err);
    if (status == OK && version > PG_SCHEMA_VERSION) {
        return refuse_newer(version, schema, err);
    }
    for (int next = version + 1; status == OK && next <= PG_SCHEMA_VERSION; next++) {
        put_step(sql, next);
        status = run_buf(conn, sql, err);
    }
    if (status == OK) {
        put_short_names(sql, schema);
        put_grants(sql, migration, schema);
        buf_str(sql, "SELECT 0"); /* there may be nothing else */
        status = run_buf(conn, sql, err);
    }
    if (status == OK) {
        status = run_text(conn, "COMMIT", NULL, err);
        migration->version_before = version;
        migration->version_after = PG_SCHEMA_VERSION;
    }
    return status;
}

static void drop_words(void *context, const char *text)
{
    (void)context;
    (void)text;
}

enum status postgres_migrate(const char *url, struct postgres_migration *migration, struct err *err)
{
    struct pg_target target = {.url = NULL};
    struct buf sql;
    enum status status = pg_target_read(&mem_libc, url, &target, err);
    if (status != OK) {
        return status;
    }
    buf_init(&sql, &mem_libc, SCRIPT_BYTES_MAX);
    const char *const names[] = {"connect_timeout", "fallback_application_name",
        "target_session_attrs", "dbname", "client_encoding", NULL};
    const char *const values[] = {"10", "once migrate", "read-write", target.url, "UTF8", NULL};
    PGconn *conn = PQconnectdbParams(names, values, 1);
    (void)PQsetNoticeProcessor(conn, drop_words, NULL);
    if (PQstatus(conn) != CONNECTION_OK) {
        const char *text = PQerrorMessage(conn);
        status = err_set(
            err, E_UNAVAILABLE, "cannot reach PostgreSQL: %.*s", (int)strcspn(text, "\n"), text);
    } else {
        put_begin(&sql, target.schema);
        status = run_buf(conn, &sql, err);
        status = status == OK ? migrate_on(conn, migration, target.schema, &sql, err) : status;
    }
    PQfinish(conn); /* a transaction that is open is rolled back */
    buf_release(&sql);
    pg_target_release(&mem_libc, &target);
    return status;
}
