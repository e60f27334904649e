/*
 * Finds the store of a URL: one row for each scheme.
 */
#include <string.h>

#include "base/buf.h"
#include "base/macros.h"
#include "store/journal/journal.h"
#include "store/journal/verify.h"
#include "store/mem.h"
#include "store/replay.h"
#include "store/store.h"
#ifdef ONCE_POSTGRES
#include "store/postgres/postgres.h"
#endif
#ifdef ONCE_REDIS
#include "store/redis/redis.h"
#endif

/* What a kind of store does with its URL. */
struct scheme {
    const char *name;  /* before the colon */
    const char *shown; /* in lists of schemes for people; NULL: a second spelling */
    bool whole;        /* it gets the whole URL, not only the part after the colon */
    bool shared;       /* shared by several processes (store_ops.shared) */
    enum status (*check)(const char *url, struct err *err);
    enum status (*open)(const char *url, const struct store_options *options,
        struct store **ret_store, struct err *err);
    enum status (*replay)(const char *url, const struct store_options *options, replay_visit visit,
        void *context, struct err *err);
};

static enum status mem_check(const char *rest, struct err *err)
{
    return *rest == '\0'
               ? OK
               : err_set(err, E_INVALID, "the store URL 'mem:' takes no path, but got '%s'", rest);
}

static enum status mem_open(const char *rest, const struct store_options *options,
    struct store **ret_store, struct err *err)
{
    enum status status = mem_check(rest, err);
    return status == OK ? store_mem_new(options, NULL, ret_store, err) : status;
}

static enum status mem_replay(const char *rest, const struct store_options *options,
    replay_visit visit, void *context, struct err *err)
{
    (void)rest;
    (void)options;
    (void)visit;
    (void)context;
    return err_set(err, E_INVALID, "a store in memory has nothing to verify");
}

static enum status server_replay(const char *url, const struct store_options *options,
    replay_visit visit, void *context, struct err *err)
{
    (void)url;
    (void)options;
    (void)visit;
    (void)context;
    return err_set(err, E_INVALID, "a shared store has no single stream to replay");
}

#ifndef ONCE_POSTGRES
static enum status postgres_url_check(const char *url, struct err *err)
{
    (void)url;
    return err_set(err, E_INVALID, "this build of once has no PostgreSQL store");
}

static enum status postgres_open(
    const char *url, const struct store_options *options, struct store **ret_store, struct err *err)
{
    (void)options;
    (void)ret_store;
    return postgres_url_check(url, err);
}
#endif

#ifndef ONCE_REDIS
static enum status redis_url_check(const char *url, struct err *err)
{
    (void)url;
    return err_set(err, E_INVALID, "this build of once has no Redis store");
}

static enum status redis_open(
    const char *url, const struct store_options *options, struct store **ret_store, struct err *err)
{
    (void)options;
    (void)ret_store;
    return redis_url_check(url, err);
}
#endif

static const struct scheme schemes[] = {
    {.name = "journal",
        .shown = "journal:PATH",
        .check = journal_url_check,
        .open = journal_open,
        .replay = journal_verify},
    {.name = "mem", .shown = "mem:", .check = mem_check, .open = mem_open, .replay = mem_replay},
    {.name = "postgres",
        .shown = "postgres://HOST/DATABASE",
        .whole = true,
        .shared = true,
        .check = postgres_url_check,
        .open = postgres_open,
        .replay = server_replay},
    {.name = "postgresql",
        .whole = true,
        .shared = true,
        .check = postgres_url_check,
        .open = postgres_open,
        .replay = server_replay},
    {.name = "redis",
        .shown = "redis://HOST",
        .whole = true,
        .shared = true,
        .check = redis_url_check,
        .open = redis_open,
        .replay = server_replay},
    {.name = "rediss",
        .whole = true,
        .shared = true,
        .check = redis_url_check,
        .open = redis_open,
        .replay = server_replay},
    {.name = "redis+sentinel",
        .whole = true,
        .shared = true,
        .check = redis_url_check,
        .open = redis_open,
        .replay = server_replay},
    {.name = "rediss+sentinel",
        .whole = true,
        .shared = true,
        .check = redis_url_check,
        .open = redis_open,
        .replay = server_replay},
};

/* The length of a leading "word:", as in "postgres://…" or "jornal:…". A path may have a later
 * colon. */
static size_t scheme_len(const char *url)
{
    size_t len = strspn(url, "abcdefghijklmnopqrstuvwxyz0123456789+-");
    return len > 1 && url[len] == ':' ? len : 0;
}

/* The text after the scheme may have a password and is not repeated. */
static enum status refuse_scheme(struct slice name, struct err *err)
{
    enum { SHOWN_BYTES_MAX = 256 };
    struct buf text;
    buf_init(&text, &mem_libc, SHOWN_BYTES_MAX);
    for (size_t i = 0; i < COUNT(schemes); i++) {
        if (schemes[i].shown != NULL) {
            buf_printf(&text, "%s%s", i == 0 ? "" : ", ", schemes[i].shown);
        }
    }
    (void)err_set(
        err, E_INVALID, "there is no kind of store called '%.*s'", (int)name.len, name.data);
    err_hint(err, "there are %.*s", (int)text.len, text.len == 0 ? "" : text.data);
    buf_release(&text);
    return E_INVALID;
}

/* The row of a URL, and the part that its functions get. A plain path is a journal. */
static enum status read_url(
    const char *url, const struct scheme **ret_scheme, const char **ret_rest, struct err *err)
{
    struct slice name = slice_of(url, scheme_len(url));
    *ret_scheme = &schemes[0];
    *ret_rest = url;
    if (name.len == 0) {
        return OK;
    }
    for (size_t i = 0; i < COUNT(schemes); i++) {
        if (slice_is(name, schemes[i].name)) {
            *ret_scheme = &schemes[i];
            *ret_rest = schemes[i].whole ? url : url + name.len + 1;
            return OK;
        }
    }
    return refuse_scheme(name, err);
}

const char *store_url_dir(const char *url, struct arena *arena)
{
    bool journal = strncmp(url, "journal:", 8) == 0;
    const char *path = journal ? url + 8 : url;
    size_t len = strcspn(path, "?"); /* options follow */
    char *dir = arena_zalloc(arena, len + 1);
    if (dir == NULL || (!journal && memchr(path, ':', len) != NULL)) {
        return NULL;
    }
    memcpy(dir, path, len);
    return dir;
}

bool store_url_shared(const char *url)
{
    const struct scheme *scheme = NULL;
    const char *rest = NULL;
    return read_url(url, &scheme, &rest, NULL) == OK && scheme->shared;
}

enum status store_url_check(const char *url, struct err *err)
{
    const struct scheme *scheme = NULL;
    const char *rest = NULL;
    enum status status = read_url(url, &scheme, &rest, err);
    return status == OK ? scheme->check(rest, err) : status;
}

/* The length of "postgres://user:" if a password and an "@" follow; 0: there is none. A password
 * may have an "@", a "/" or a "?" that was not encoded: everything between the first ":" and the
 * last "@" is masked. */
static size_t before_password(const char *url, const char *authority, const char **ret_after)
{
    const char *colon = strchr(authority, ':');
    const char *at = strrchr(authority, '@');
    if (colon == NULL || at == NULL || at < colon) {
        return 0;
    }
    *ret_after = at;
    return (size_t)(colon + 1 - url);
}

void store_url_show(struct buf *out, const char *url)
{
    static const char mask[] = "***";
    static const char word[] = "password="; /* and sslpassword= */
    const char *authority = strstr(url, "://");
    const char *rest = url;
    if (authority != NULL) {
        size_t len = before_password(url, authority + 3, &rest);
        buf_append(out, url, len);
        buf_str(out, len > 0 ? mask : "");
    }
    for (const char *at = rest; (at = strstr(rest, word)) != NULL;) {
        at += sizeof word - 1;
        buf_append(out, rest, (size_t)(at - rest));
        buf_str(out, mask);
        rest = at + strcspn(at, "&");
    }
    buf_str(out, rest);
}

enum status store_open(
    const char *url, const struct store_options *options, struct store **ret_store, struct err *err)
{
    static const struct store_options none = {0};
    const struct scheme *scheme = NULL;
    const char *rest = NULL;
    enum status status = read_url(url, &scheme, &rest, err);
    return status == OK ? scheme->open(rest, options == NULL ? &none : options, ret_store, err)
                        : status;
}

enum status store_replay(const char *url, const struct store_options *options, replay_visit visit,
    void *context, struct err *err)
{
    const struct scheme *scheme = NULL;
    const char *rest = NULL;
    enum status status = read_url(url == NULL ? "" : url, &scheme, &rest, err);
    return status == OK ? scheme->replay(rest, options, visit, context, err) : status;
}
