/*
 * inbox: the door for webhooks, events and queues (docs/inbox.md). Events are verified,
 * deduplicated, ordered, and delivered to a handler once.
 *
 *     POST /in/{source} > verify > split > enqueue all, one commit > answer … dispatch > handler
 *
 * Promises:  nothing is stored of a request that was not verified. Every event of a request is
 *            durable before its sender is answered (P2), and no handler is called before the claim
 *            is durable (P6). Bodies are sealed before they reach the store. Every refused
 *            signature gets the same answer.
 * Threads:   the handlers and deliver.h's functions on the server's loops; each queue on its own
 *            thread (queue.h).
 */
#ifndef ONCE_INBOX_INBOX_H
#define ONCE_INBOX_INBOX_H

#include "api/api.h"
#include "base/vault.h"
#include "config/config.h"
#include "dispatch/dispatch.h"

struct inbox_door;
struct inbox_plan;

struct inbox_options {
    const struct mem *mem; /* NULL: the C library's */
    struct door *door;
    struct dispatch *dispatch;
    const struct vault *vault; /* seals kept bodies; outlives the inbox */
    unsigned slot;             /* of the door, for the queues' threads; 0: there are none */
    struct config *config;
};

/* E_INVALID, E_UNAVAILABLE: a secret, URL or CA file is invalid; the text says which. */
enum status inbox_new(
    const struct inbox_options *options, struct inbox_door **ret_inbox, struct err *err) MUST_CHECK;
/* An event that becomes a command: whose it is, and the command's envelope. */
struct inbox_submitted {
    struct slice tenant;
    struct slice envelope; /* JSON */
    struct slice request_id;
};
/* Where events become commands. submit makes the call that enqueues one: E_INVALID: it can never
 * be; E_UNAVAILABLE: not now; E_LIMIT: not before *ret_after_ms; E_NOMEM. The text says why. Loop
 * 0. */
struct inbox_commands {
    enum status (*submit)(void *context, const struct inbox_submitted *event,
        struct engine_call *call, int64_t *ret_after_ms, struct err *err);
    void *context;
};
/* Call it before the loops run. */
void inbox_commands(struct inbox_door *inbox, const struct inbox_commands *commands);
/* The loops run: messages may be taken from now on. */
void inbox_start(struct inbox_door *inbox);
/* Take no more messages; whether settled ones are not acknowledged yet; end; whether all have
 * ended. */
void inbox_drain(struct inbox_door *inbox);
bool inbox_is_busy(struct inbox_door *inbox);
void inbox_cut(struct inbox_door *inbox);
bool inbox_is_idle(struct inbox_door *inbox);
/* Whether every queue of a configuration has its module and a valid URL. E_INVALID, E_UNAVAILABLE:
 * the text names the queue. */
enum status inbox_queues_check(const struct config *config, struct err *err) MUST_CHECK;
/* Call it after the server has been freed. NULL is fine. */
void inbox_free(struct inbox_door *inbox);
/* The routes, served by the API. */
struct api_routes inbox_routes(struct inbox_door *inbox);

/* Prepare a different configuration, and change nothing; inbox_reload_end must follow. */
enum status inbox_reload_prepare(struct inbox_door *inbox, struct config *config,
    struct inbox_plan **ret_plan, struct err *err) MUST_CHECK;
/* Use it for requests that begin from now on, or drop it. */
void inbox_reload_end(struct inbox_door *inbox, struct inbox_plan *plan, bool is_used);

/* Read a request to a source without storing it; the result is JSON for `once inbox test`. head and
 * body are as they would arrive. *ret_accepted: it would be accepted, and its events can be
 * delivered or submitted. E_INVALID: there is no such source, or its secrets cannot be used. */
struct inbox_trial {
    struct config *config;
    struct slice source;
    struct slice request; /* head and body */
    int64_t now_ms;
    /* Whether the registry would accept the command of an event, and the key it would have.
     * E_INVALID: the text says why not. E_NOMEM. */
    enum status (*check_command)(struct config *config, const struct inbox_submitted *event,
        struct arena *arena, struct slice *ret_key, struct err *err);
};
enum status inbox_try(const struct inbox_trial *trial, const struct mem *mem, struct buf *out,
    bool *ret_accepted, struct err *err) MUST_CHECK;
/* Whether a source's nth secret has the form that its preset needs. E_INVALID: the text says why
 * not. OK also if it cannot be read here: a configuration may be checked elsewhere. */
enum status inbox_secret_check(const struct config_source *config, size_t nth,
    const struct mem *mem, struct err *err) MUST_CHECK;
/* Sign a test request for any preset: fields and an empty line, each with a line end. E_INVALID:
 * the secret does not suit the preset, or there is no such preset. */
enum status inbox_sign(struct slice preset, struct slice secret, struct slice id, struct slice body,
    int64_t now_ms, struct buf *out, struct err *err) MUST_CHECK;

#endif
