#include "store/postgres/link.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/macros.h"

enum {
    ARGS_BYTES_MAX = 256 << 20, /* a commit at its limits, all of it in one statement */
    SERVER_VERSION_MIN = 140000,
    SCHEMA_BYTES_MAX = 63, /* PostgreSQL's own limit */
};

#define SCHEMA_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

/* ---- where ------------------------------------------------------------------------------- */

/* Reads the URL options that are ours and not libpq's: "schema=NAME", "fsync=off". */
static enum status take_option(
    const struct mem *mem, struct slice option, struct pg_target *target, struct err *err)
{
    struct slice schema = SLICE_LIT("schema=");
    if (!slice_starts(option, schema)) {
        target->no_fsync = true;
        return OK;
    }
    struct slice name = slice_of(option.data + schema.len, option.len - schema.len);
    size_t plain = 0;
    while (plain < name.len && strchr(SCHEMA_LETTERS, name.data[plain])) {
        plain++;
    }
    if (name.len == 0 || plain < name.len || name.len > SCHEMA_BYTES_MAX) {
        return err_set(err, E_INVALID,
            "the schema '%.*s' of the store URL is not a name of letters, digits, _ and -",
            (int)(name.len < 64 ? name.len : 64), name.data);
    }
    mem_free(mem, target->schema);
    target->schema = mem_alloc(mem, name.len + 1);
    if (target->schema == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    memcpy(target->schema, name.data, name.len);
    target->schema[name.len] = '\0';
    return OK;
}

static bool is_ours(struct slice option)
{
    return slice_starts(option, SLICE_LIT("schema=")) || slice_is(option, "fsync=off");
}

/* Copies the URL without our options. */
static enum status split_options(
    const struct mem *mem, const char *url, struct pg_target *target, struct err *err)
{
    struct buf kept;
    const char *options = strchr(url, '?');
    enum status status = OK;
    buf_init(&kept, mem, strlen(url) + 1);
    buf_append(&kept, url, options == NULL ? strlen(url) : (size_t)(options - url));
    char mark = '?';
    while (options != NULL && *options != '\0' && status == OK) {
        struct slice option = slice_of(options + 1, strcspn(options + 1, "&"));
        if (is_ours(option)) {
            status = take_option(mem, option, target, err);
        } else {
            buf_char(&kept, mark);
            buf_slice(&kept, option);
            mark = '&';
        }
        options = option.data + option.len;
    }
    buf_char(&kept, '\0');
    if (status == OK && buf_status(&kept) != OK) {
        status = err_set(err, E_NOMEM, "out of memory");
    }
    target->url = status == OK ? kept.data : NULL;
    if (status != OK) {
        buf_release(&kept);
    }
    return status;
}

/* A password follows a ':' before an '@', or is an option. */
static bool may_have_password(const char *url)
{
    const char *scheme = strstr(url, "://");
    const char *user = scheme == NULL ? url : scheme + 3;
    const char *at = strrchr(user, '@');
    return (at != NULL && memchr(user, ':', (size_t)(at - user)) != NULL) ||
           strstr(url, "password") != NULL;
}

/* Checks the URL with libpq. Its message may repeat the URL, which may have a password: only
 * messages known to have none are shown. */
static enum status check_url(const char *url, struct err *err)
{
    char *fault = NULL;
    PQconninfoOption *parts = PQconninfoParse(url, &fault);
    if (parts != NULL) {
        PQconninfoFree(parts);
        return OK;
    }
    bool harmless = fault != NULL && !may_have_password(url);
    size_t len = fault == NULL ? 0 : strcspn(fault, "\n");
    (void)err_set(err, E_INVALID, "the PostgreSQL store URL is wrong%s%.*s", harmless ? ": " : "",
        harmless ? (int)len : 0, harmless ? fault : "");
    err_hint(err, "postgres://USER@HOST:PORT/DATABASE?schema=once, and any option of libpq");
    PQfreemem(fault);
    return E_INVALID;
}

enum status pg_target_read(
    const struct mem *mem, const char *url, struct pg_target *ret_target, struct err *err)
{
    struct pg_target target = {.schema = NULL};
    enum status status = libpq_load(err);
    if (status == OK) {
        status = take_option(mem, SLICE_LIT("schema=once"), &target, err);
    }
    if (status == OK) {
        status = split_options(mem, url, &target, err);
    }
    if (status == OK) {
        status = check_url(target.url, err);
    }
    if (status != OK) {
        pg_target_release(mem, &target);
        return status;
    }
    *ret_target = target;
    return OK;
}

void pg_target_release(const struct mem *mem, struct pg_target *target)
{
    if (target->url != NULL) {
        mem_wipe(target->url, strlen(target->url)); /* a password may be in it */
    }
    mem_free(mem, target->url);
    mem_free(mem, target->schema);
    *target = (struct pg_target){.url = NULL};
}

/* ---- connecting -------------------------------------------------------------------------- */

bool link_alive(const struct pg_link *link)
{
    return link->conn != NULL && PQstatus(link->conn) == CONNECTION_OK;
}

void link_close(struct pg_link *link)
{
    PQfinish(link->conn);
    link->conn = NULL;
    link->syncs = 0;
    args_release(&link->args);
}

static void drop_notice(void *context, const PGresult *result)
{
    (void)context;
    (void)result;
}

/* The first line of libpq's message, which never has a password. */
static enum status connect_failed(const PGconn *conn, struct err *err)
{
    const char *text = conn == NULL ? "out of memory\n" : PQerrorMessage(conn);
    return err_set(
        err, E_UNAVAILABLE, "cannot reach PostgreSQL: %.*s", (int)strcspn(text, "\n"), text);
}

/* The settings of all our sessions. Plans are made once and do not depend on a table's current
 * size. */
static void send_settings(struct pg_link *link, const struct pg_target *target)
{
    char text[256];
    (void)snprintf(text, sizeof text, "SET search_path = \"%s\", pg_temp", target->schema);
    link_text(link, text);
    (void)snprintf(text, sizeof text, "SET idle_in_transaction_session_timeout = %d",
        (int)LIMIT_PREPARED_MS_MAX);
    link_text(link, text);
    (void)snprintf(text, sizeof text, "SET lock_timeout = %d", (int)LIMIT_STORE_LOCK_WAIT_MS);
    link_text(link, text);
    (void)snprintf(text, sizeof text, "SET statement_timeout = %d", (int)LIMIT_STORE_STATEMENT_MS);
    link_text(link, text);
    static const char *const settings[] = {"SET client_min_messages = error",
        "SET plan_cache_mode = force_generic_plan", "SET enable_seqscan = off",
        "SET enable_bitmapscan = off", "SET enable_hashjoin = off", "SET enable_mergejoin = off",
        "SET jit = off", "SET timezone = 'UTC'",
        "SET default_transaction_isolation = 'read committed'",
        ("SELECT set_config('synchronous_commit', 'on', false)"
         " WHERE current_setting('synchronous_commit') = 'off'")};
    for (size_t i = 0; i < COUNT(settings); i++) {
        link_text(link, settings[i]);
    }
    link_sync(link);
}

static enum status check_server(const struct pg_link *link, struct err *err)
{
    int version = PQserverVersion(link->conn);
    if (version < SERVER_VERSION_MIN) {
        return err_set(err, E_UNAVAILABLE, "PostgreSQL %d is too old: Once needs version %d",
            version / 10000, SERVER_VERSION_MIN / 10000);
    }
    const char *encoding = PQparameterStatus(link->conn, "server_encoding");
    if (encoding == NULL || strcmp(encoding, "UTF8") != 0) {
        return err_set(err, E_UNAVAILABLE,
            "the database has the encoding '%s': Once needs one with UTF8",
            encoding == NULL ? "" : encoding);
    }
    return OK;
}

enum status link_open(struct pg_link *link, const struct pg_target *target, struct err *err)
{
    char seconds[16];
    (void)snprintf(seconds, sizeof seconds, "%d", (int)LIMIT_STORE_CONNECT_S);
    /* The URL overrides the parameters before it; those after it override the URL. */
    const char *const names[] = {"connect_timeout", "keepalives_idle", "tcp_user_timeout",
        "fallback_application_name", "target_session_attrs", "dbname", "client_encoding", NULL};
    const char *const values[] = {seconds, "10", "15000", "once",
        target->read_only ? "any" : "read-write", target->url, "UTF8", NULL};
    ASSERT(link->conn == NULL);
    args_release(&link->args); /* of the connection before, if it was used since */
    args_init(&link->args, link->mem, ARGS_BYTES_MAX);
    link->conn = PQconnectdbParams(names, values, 1);
    if (PQstatus(link->conn) != CONNECTION_OK) {
        enum status failed = connect_failed(link->conn, err);
        link_close(link);
        return failed;
    }
    (void)PQsetNoticeReceiver(link->conn, drop_notice, NULL); /* the library never prints */
    enum status status = check_server(link, err);
    if (status == OK &&
        (PQsetnonblocking(link->conn, 1) != 0 || PQenterPipelineMode(link->conn) == 0)) {
        status = connect_failed(link->conn, err);
    }
    if (status == OK) {
        send_settings(link, target);
        status = link_finish(link, err);
    }
    if (status != OK) {
        link_close(link);
    }
    return status;
}

/* ---- sending ----------------------------------------------------------------------------- */

/* After a failed send, link_next reports the failure. */
static void sent(struct pg_link *link, int is_sent)
{
    if (is_sent == 0 && link->conn != NULL && PQstatus(link->conn) == CONNECTION_OK) {
        PQfinish(link->conn); /* out of memory in libpq: earlier statements are incomplete */
        link->conn = NULL;
    }
    link->waited = false;
    args_clear(&link->args);
}

void link_prepare(struct pg_link *link, const char *name, const char *sql)
{
    if (link->conn != NULL) {
        sent(link, PQsendPrepare(link->conn, name, sql, 0, NULL));
    }
}

void link_text(struct pg_link *link, const char *sql)
{
    if (link->conn != NULL) {
        sent(link, PQsendQueryParams(link->conn, sql, 0, NULL, NULL, NULL, NULL, 1));
    }
}

void link_send(struct pg_link *link, const char *name)
{
    const struct pg_args *args = &link->args;
    ASSERT(args->count <= ARGS_MAX);
    const char *values[ARGS_MAX];
    int lengths[ARGS_MAX];
    int formats[ARGS_MAX];
    ASSERT(!args->open);
    if (link->conn == NULL) {
        args_clear(&link->args);
        return;
    }
    if (buf_status(&args->bytes) != OK) {
        sent(link, 0);
        return;
    }
    for (int i = 0; i < args->count; i++) {
        size_t end = i + 1 < args->count ? args->starts[i + 1] : args->bytes.len;
        values[i] = args->nulls[i] ? NULL : end == 0 ? "" : args->bytes.data + args->starts[i];
        lengths[i] = (int)(end - args->starts[i]);
        formats[i] = 1;
    }
    sent(link, PQsendQueryPrepared(link->conn, name, args->count, values, lengths, formats, 1));
}

void link_sync(struct pg_link *link)
{
    ASSERT(link->args.count == 0); /* arguments without a statement */
    if (link->conn != NULL) {
        sent(link, PQpipelineSync(link->conn));
        link->syncs++;
    }
    link->deadline_ns = (int64_t)clock_nanos() + INT64_C(1000000) * LIMIT_STORE_ANSWER_MS;
}

/* ---- receiving --------------------------------------------------------------------------- */

/* Closes the connection: the result of the exchange under way is not known. */
static enum status broke(struct pg_link *link, const char *why, struct err *err)
{
    const char *text = why != NULL ? why : PQerrorMessage(link->conn);
    (void)err_set(err, E_UNAVAILABLE, "the connection to PostgreSQL broke: %.*s",
        (int)strcspn(text, "\n"), text);
    link_close(link);
    return E_UNAVAILABLE;
}

/* Waits until the server has sent something or can receive more; bounded. */
static enum status wait_turn(struct pg_link *link, bool unsent, struct err *err)
{
    struct pollfd ready = {
        .fd = PQsocket(link->conn), .events = (short)(unsent ? POLLIN | POLLOUT : POLLIN)};
    int64_t left_ms = (link->deadline_ns - (int64_t)clock_nanos()) / 1000000;
    if (!link->waited) {
        link->trips++;
        link->waited = true;
    }
    if (left_ms <= 0 || poll(&ready, 1, (int)left_ms) == 0) {
        return broke(link, "no answer in time", err);
    }
    return OK;
}

void link_flush(struct pg_link *link)
{
    while (link_alive(link) && PQflush(link->conn) > 0) {
        struct pollfd ready = {.fd = PQsocket(link->conn), .events = POLLIN | POLLOUT};
        int64_t left_ms = (link->deadline_ns - (int64_t)clock_nanos()) / 1000000;
        if (left_ms <= 0 || poll(&ready, 1, (int)left_ms) <= 0 || PQconsumeInput(link->conn) == 0) {
            return;
        }
    }
}

/* Takes libpq's next result, if there is one; NULL between two statements. */
static enum status take_result(struct pg_link *link, PGresult **ret_result, struct err *err)
{
    for (;;) {
        int unsent = PQflush(link->conn);
        if (PQisBusy(link->conn) == 0) {
            *ret_result = PQgetResult(link->conn);
            return OK;
        }
        enum status status = wait_turn(link, unsent > 0, err);
        if (status != OK) {
            return status;
        }
        if (PQconsumeInput(link->conn) == 0) {
            return broke(link, NULL, err);
        }
    }
}

enum status link_next(struct pg_link *link, PGresult **ret_result, struct err *err)
{
    enum { NULLS_MAX = 3 }; /* one after each statement and one after a sync */
    PGresult *result = NULL;
    *ret_result = NULL;
    for (unsigned nulls = 0; result == NULL; nulls++) {
        if (link->conn == NULL || nulls == NULLS_MAX) {
            return err_set(err, E_UNAVAILABLE, "there is no connection to PostgreSQL");
        }
        enum status status = take_result(link, &result, err);
        if (status != OK) {
            return status;
        }
    }
    ExecStatusType kind = PQresultStatus(result);
    if (PQstatus(link->conn) != CONNECTION_OK) {
        enum status status = broke(link, PQresultErrorMessage(result), err);
        PQclear(result);
        return status;
    }
    if (kind == PGRES_PIPELINE_SYNC) {
        ASSERT(link->syncs > 0);
        link->syncs--;
        PQclear(result);
        return OK;
    }
    *ret_result = result;
    return kind == PGRES_FATAL_ERROR || kind == PGRES_BAD_RESPONSE ? link_status(result, err) : OK;
}

enum status link_finish(struct pg_link *link, struct err *err)
{
    enum status first = OK;
    for (;;) {
        PGresult *result = NULL;
        enum status status = link_next(link, &result, first == OK ? err : NULL);
        bool at_sync = status == OK && result == NULL;
        first = first == OK ? status : first;
        PQclear(result);
        if (at_sync || !link_alive(link)) {
            return first;
        }
    }
}

void link_drain(struct pg_link *link)
{
    while (link_alive(link) && link->syncs > 0) {
        enum status ignored = link_finish(link, NULL);
        (void)ignored; /* the first failure was reported */
    }
}

/* ---- what the server said ---------------------------------------------------------------- */

/* The status and hint of a failure, by the beginning of its SQLSTATE; the first match wins. */
static const struct {
    const char *state;
    enum status status;
    const char *hint;
} meanings[] = {
    {"ONC01", E_STALE, NULL},
    {"ONC02", E_CORRUPT, "the database was restored from an older copy, or failed over to one"},
    {"XX001", E_CORRUPT, NULL},
    {"XX002", E_CORRUPT, NULL},
    {"53100", E_UNAVAILABLE, "the disk of the PostgreSQL server is full"},
    {"53200", E_UNAVAILABLE, "raise max_locks_per_transaction of the PostgreSQL server"},
    {"53300", E_UNAVAILABLE, "raise max_connections of the PostgreSQL server"},
    {"55P03", E_UNAVAILABLE, "a different process holds the same keys"},
    {"26000", E_UNAVAILABLE,
        "is a pooler in front of PostgreSQL? Once needs sessions: pool_mode = session"},
    {"42501", E_UNAVAILABLE, "grant the role what it needs: once migrate --grant ROLE"},
    {"42P01", E_UNAVAILABLE, "run once migrate"},
    {"42883", E_UNAVAILABLE, "run once migrate"},
    {"3F000", E_UNAVAILABLE, "run once migrate"},
    {"25006", E_UNAVAILABLE, "the server is a standby; name the primary too in the URL"},
};

bool link_failed_as(const PGresult *result, const char *sqlstate)
{
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    return state != NULL && strcmp(state, sqlstate) == 0;
}

bool link_ended(const PGresult *result)
{
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    return severity != NULL && (strcmp(severity, "FATAL") == 0 || strcmp(severity, "PANIC") == 0);
}

enum status link_status(const PGresult *result, struct err *err)
{
    const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    if (text == NULL) {
        text = PQresultErrorMessage(result);
    }
    enum status status = E_UNAVAILABLE;
    const char *hint = NULL;
    for (size_t i = 0; i < COUNT(meanings); i++) {
        if (link_failed_as(result, meanings[i].state)) {
            status = meanings[i].status;
            hint = meanings[i].hint;
        }
    }
    (void)err_set(err, status, "PostgreSQL: %.*s%s%s%s", (int)strcspn(text, "\n"), text,
        state == NULL ? "" : " (", state == NULL ? "" : state, state == NULL ? "" : ")");
    if (hint != NULL) {
        err_hint(err, "%s", hint);
    }
    return status;
}
