/*
 * server: a running Once: one store and its engine, the listeners, and the doors behind them.
 *
 *     server_open → server_reload … → server_drain → server_close
 *
 * Promises:  open makes all of it or nothing. A reload is used whole or not at all. A drain ends
 *            what is in flight; close first makes what was sent and not answered unknown, durably,
 *            and ends only when the engine has answered everything.
 * Does not:  know an option of the command line, read a file of its configuration, handle a
 *            signal or print: what it has to say is in the log, in facts and in errors.
 * Ownership: it holds the configuration that it is given until a different one takes its place.
 * Threads:   open, reload, answers and close on one thread; drain, hurry and failure on any.
 */
#ifndef ONCE_SERVER_SERVER_H
#define ONCE_SERVER_SERVER_H

#include "base/arena.h"
#include "base/log.h"
#include "config/config.h"

struct server;

struct server_options {
    struct config *config; /* checked */
    struct log *log;       /* may be NULL; outlives the server */
};

/* E_INVALID: an address or the store's URL is wrong. Else as the store, the doors and the listeners
 * say. */
enum status server_open(
    const struct server_options *options, struct server **ret_server, struct err *err) MUST_CHECK;
/* Use a different configuration for requests that begin from now on. What needs a restart is named
 * in the log. On failure the old one stays in use. E_INVALID: it would leave a public address
 * without tokens. */
enum status server_reload(struct server *server, struct config *config, struct err *err) MUST_CHECK;
/* A configuration was to be reloaded and could not be read: the figures say so. */
void server_reload_failed(struct server *server);
/* Take no new connection and let what is in flight end, as long as the configuration says. Returns
 * when that is over. True: everything was answered. */
bool server_drain(struct server *server);
/* A drain that is under way, or comes, waits for nobody. */
void server_hurry(struct server *server);
/* Stop, flush and free everything. The server is gone whatever is returned. NULL is fine. */
enum status server_close(struct server *server, struct err *err) MUST_CHECK;

/* Whether the engine stopped for good: then only a restart reads the truth (P11), and err says why.
 */
bool server_failure(struct server *server, struct err *err) MUST_CHECK;
/* Whether a shared store cannot be reached, and why: nothing is granted until it can. */
bool server_store_away(struct server *server, struct err *err) MUST_CHECK;
/* Asks the engine something cheap. True when it answered what was asked by the call before. */
bool server_answers(struct server *server);

/* How the store writes. */
enum server_writes {
    SERVER_WRITES_MEMORY,
    SERVER_WRITES_BUFFERED,
    SERVER_WRITES_DIRECT,
    SERVER_WRITES_ELSEWHERE, /* a database server does, for many processes */
};

/* What the server found when it was opened. */
struct server_facts {
    unsigned loops;
    enum server_writes writes;
    const char *dir;             /* the data directory; NULL: the store has none */
    const char *store;           /* its URL, passwords masked */
    const char *const *cautions; /* what weakens a promise where the store is kept; NULL ends it */
    uint64_t operations;
    uint64_t in_progress;
    uint64_t unknown;
    uint64_t entries; /* of evidence, in the chain of this process */
};
const struct server_facts *server_facts(const struct server *server);
/* The address that a door's listener really has, such as "127.0.0.1:7411", by its place in the
 * configuration; NULL past the last. door: "api", "gateway". */
const char *server_address(const struct server *server, const char *door, size_t which);

/* Whether there is such a store, without opening it. E_INVALID. */
enum status server_store_check(const char *url, struct err *err) MUST_CHECK;
/* Whether every queue of the inbox has its module and a right URL; connects to nothing. E_INVALID,
 * E_UNAVAILABLE: the text names the queue, the hint what to install. */
enum status server_queues_check(const struct config *config, struct err *err) MUST_CHECK;
/* The kinds of brokers that queues may be of, by number; NULL past the last. err says what is
 * missing for it, or OK. */
const char *server_broker(size_t number, struct err *err);
/* The directory of a store's URL, in the arena; NULL when the store has none, or without memory. */
const char *server_store_dir(const char *url, struct arena *arena);
/* The URL as it may be shown, in the arena: passwords are masked. Never NULL. */
const char *server_store_shown(const char *url, struct arena *arena);
/* The `match` of the route that the gateway takes for a request; "" when the path is invalid or no
 * route is there for it. */
const char *server_route(
    const struct config *config, const char *method, const char *target, struct arena *arena);

/* A request to a source of the inbox, as `once inbox test` has it. */
struct server_inbox_trial {
    const struct config *config;
    const char *source;
    struct slice request; /* head and body */
    int64_t now_ms;
};
/* What it would be taken for, as JSON; nothing is remembered. E_INVALID: there is no such source,
 * its secrets cannot be used, or the head is not valid. E_UNAVAILABLE, E_NOMEM. */
enum status server_inbox_try(const struct server_inbox_trial *trial, struct buf *out,
    bool *ret_accepted, struct err *err) MUST_CHECK;
/* The fields of a request that a sender of this preset would sign. E_INVALID, E_NOMEM. */
enum status server_inbox_sign(const char *preset, struct slice secret, const char *id,
    struct slice body, int64_t now_ms, struct buf *out, struct err *err) MUST_CHECK;

#endif
