/*
 * inbox: the door for webhooks, events and queues (DESIGN section 12): verified, deduplicated, put
 * in order, and delivered to a handler once.
 *
 *     POST /in/{source} > verify > split > enqueue all, one commit > answer … dispatch > handler
 *
 * Promises:  nothing is remembered of a request that was not verified. Every event of a request is
 *            durable before its sender is answered (P2), and none is called out about before its
 *            claim is (P6). Bodies are sealed before they reach the store. All refusals for a
 *            signature are one answer.
 * Threads:   the handlers on the server's loops; deliver.h's functions on loop 0; each queue on a
 *            thread of its own (queue.h).
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
    const struct vault *vault; /* seals what is kept; outlives the inbox */
    unsigned slot;             /* of the door, for the threads of queues; 0: there are none */
    struct config *config;
};

/* E_INVALID, E_UNAVAILABLE: a secret, URL or CA file is wrong; the text says which. */
enum status inbox_new(
    const struct inbox_options *options, struct inbox_door **ret_inbox, struct err *err) MUST_CHECK;
/* The loops run: messages may be taken from now on. */
void inbox_start(struct inbox_door *inbox);
/* Take no more messages; whether some are settled and not acknowledged; end; whether it has. */
void inbox_drain(struct inbox_door *inbox);
bool inbox_is_busy(struct inbox_door *inbox);
void inbox_cut(struct inbox_door *inbox);
bool inbox_is_idle(struct inbox_door *inbox);
/* Whether every queue of a configuration has its module and a right URL. E_INVALID, E_UNAVAILABLE:
 * the text names the queue. */
enum status inbox_queues_check(const struct config *config, struct err *err) MUST_CHECK;
/* After the server is gone. NULL is fine. */
void inbox_free(struct inbox_door *inbox);
/* For the API, which serves them. */
struct api_routes inbox_routes(struct inbox_door *inbox);

/* Make what a different configuration needs, and change nothing; inbox_reload_end must follow. */
enum status inbox_reload_prepare(struct inbox_door *inbox, struct config *config,
    struct inbox_plan **ret_plan, struct err *err) MUST_CHECK;
/* Use it for requests that begin from now on, or drop it. */
void inbox_reload_end(struct inbox_door *inbox, struct inbox_plan *plan, bool is_used);

/* What a request to a source would be taken for, without remembering it: JSON for `once inbox
 * test`. head and body as they would come. E_INVALID: there is no such source, or its secrets
 * cannot be used. */
struct inbox_trial {
    const struct config *config;
    struct slice source;
    struct slice request; /* head and body */
    int64_t now_ms;
};
enum status inbox_try(const struct inbox_trial *trial, const struct mem *mem, struct buf *out,
    bool *ret_accepted, struct err *err) MUST_CHECK;
/* A signed request for trying out, of any preset: fields and an empty line, each with a line end.
 * E_INVALID: the secret does not fit the preset, or there is no such preset. */
enum status inbox_sign(struct slice preset, struct slice secret, struct slice id, struct slice body,
    int64_t now_ms, struct buf *out, struct err *err) MUST_CHECK;

#endif
