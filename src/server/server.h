/*
 * server: a running Once: one store with its engine, the listeners, and their doors.
 *
 *     server_open → server_reload … → server_drain → server_close
 *
 * Promises:  open makes all of it or nothing. A reload is used whole or not at all. A drain lets
 *            requests in flight end. close first makes requests that were sent and not answered
 *            unknown, durably, and returns only when the engine has answered everything.
 * Does not:  know command-line options, read configuration files, handle signals or print: it
 *            reports through the log, facts and errors.
 * Ownership: it holds its configuration until a different one replaces it.
 * Threads:   open, reload, answers and close on one thread; drain, hurry and failure on any.
 */
#ifndef ONCE_SERVER_SERVER_H
#define ONCE_SERVER_SERVER_H

#include "base/arena.h"
#include "base/log.h"
#include "canon/json.h"
#include "config/config.h"

struct server;

struct server_options {
    struct config *config; /* checked */
    struct log *log;       /* may be NULL; outlives the server */
};

/* E_INVALID: an address or the store's URL is invalid. Other statuses are those of the store, the
 * doors and the listeners. */
enum status server_open(
    const struct server_options *options, struct server **ret_server, struct err *err) MUST_CHECK;
/* Use a different configuration for requests that begin from now on. The log names the settings
 * that need a restart. On failure the old one stays in use. E_INVALID: it would leave a public
 * address without tokens. */
enum status server_reload(struct server *server, struct config *config, struct err *err) MUST_CHECK;
/* A configuration could not be read for a reload: the metrics show it. */
void server_reload_failed(struct server *server);
/* Accept no new connections and let requests in flight end, within the configured time. Returns
 * when that is over. True: every request was answered. */
bool server_drain(struct server *server);
/* Makes a current or later drain wait for nothing. */
void server_hurry(struct server *server);
/* Stop, flush and free everything. The server is freed whatever is returned. NULL is fine. */
enum status server_close(struct server *server, struct err *err) MUST_CHECK;

/* Whether the engine has stopped permanently: then only a restart reads the truth (P11), and err
 * says why. */
bool server_failure(struct server *server, struct err *err) MUST_CHECK;
/* Whether a shared store cannot be reached, and why: nothing is granted until it can be. */
bool server_store_away(struct server *server, struct err *err) MUST_CHECK;
/* Send a cheap query to the engine. True if it answered the query of the previous call. */
bool server_answers(struct server *server);

/* Where the store writes. */
enum server_writes {
    SERVER_WRITES_MEMORY,
    SERVER_WRITES_FILES,
    SERVER_WRITES_ELSEWHERE, /* a database server writes, for many processes */
};

/* Facts about the server, from when it was opened. */
struct server_facts {
    unsigned loops; /* that there are; with 0 in the configuration fewer may serve */
    enum server_writes writes;
    const char *way;             /* how files are written, with the system calls */
    uint64_t flush_ns;           /* what one flush of a block took; 0: not known */
    const char *dir;             /* the data directory; NULL: the store has none */
    const char *store;           /* its URL, passwords masked */
    const char *const *cautions; /* what weakens a promise of the store; ends with NULL */
    uint64_t operations;
    uint64_t in_progress;
    uint64_t unknown;
    uint64_t entries; /* of evidence, in the chain of this process */
};
const struct server_facts *server_facts(const struct server *server);
/* The actual address of a door's listener, such as "127.0.0.1:7411", by its index in the
 * configuration; NULL past the last. door: "api", "gateway". */
const char *server_address(const struct server *server, const char *door, size_t which);

/* Whether a store's URL is valid, without opening the store. E_INVALID. */
enum status server_store_check(const char *url, struct err *err) MUST_CHECK;
/* Check that every queue of the inbox, and every connector that publishes, has its module and a
 * valid URL; connects to nothing.
 * E_INVALID, E_UNAVAILABLE: the text names the queue, the hint what to install. */
enum status server_queues_check(const struct config *config, struct err *err) MUST_CHECK;
/* The kinds of brokers for queues, by number; NULL past the last. err says what is missing for it,
 * or OK. */
const char *server_broker(size_t number, struct err *err);
/* The directory of a store's URL, in the arena; NULL if the store has none, or memory is short. */
const char *server_store_dir(const char *url, struct arena *arena);
/* The URL for display, in the arena: passwords are masked. Never NULL. */
const char *server_store_shown(const char *url, struct arena *arena);
/* The `match` of the route that the gateway uses for a request; "" if the path is invalid or no
 * route matches it. */
const char *server_route(
    const struct config *config, const char *method, const char *target, struct arena *arena);

/* A request to a source of the inbox, for `once inbox test`. */
struct server_inbox_trial {
    struct config *config;
    const char *source;
    struct slice request; /* head and body */
    int64_t now_ms;
};
/* How the inbox would read it, as JSON, and what it would submit where its events become commands;
 * nothing is stored. *ret_accepted: nothing of it would be refused. E_INVALID: there is no such
 * source, its secrets cannot be used, or the head is invalid. E_UNAVAILABLE, E_NOMEM. */
enum status server_inbox_try(const struct server_inbox_trial *trial, struct buf *out,
    bool *ret_accepted, struct err *err) MUST_CHECK;
/* Whether a source's nth secret has the form that its preset needs, if it can be read here.
 * E_INVALID: the text says why not. */
enum status server_inbox_secret(
    const struct config_source *source, size_t nth, struct err *err) MUST_CHECK;
/* The signature fields of a request by a sender of this preset. E_INVALID, E_NOMEM. */
enum status server_inbox_sign(const char *preset, struct slice secret, const char *id,
    struct slice body, int64_t now_ms, struct buf *out, struct err *err) MUST_CHECK;

/* Whether the meta of an outcome is that of an HTTP answer, as the gateway keeps it. */
bool server_is_answer_meta(struct slice meta);
/* Appends the meta of an HTTP answer with these headers, as [["Content-Type","text/plain"],…]. A
 * type that is not empty becomes Content-Type if the list has none. E_INVALID names the header that
 * is malformed or is never kept; E_LIMIT, E_NOMEM. */
enum status server_answer_meta(const struct json_value *headers, struct slice type,
    struct arena *arena, struct buf *out, struct err *err) MUST_CHECK;

struct api_policy;
/* The part of a configuration that the API needs; its tokens are the configuration's. */
struct api_policy server_api_policy(const struct config *config);

#endif
