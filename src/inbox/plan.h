/*
 * plan: the sources and queues of the inbox, made from one configuration: rules, secrets and
 * handlers, ready to use. It is also the dispatcher's plan of deliveries.
 *
 * Promises:  secrets are read when the plan is made, and wiped when its last holder drops it. A
 *            request and a delivery use one plan from start to end.
 * Threads:   read-only once made; held and dropped from any thread.
 */
#ifndef ONCE_INBOX_PLAN_H
#define ONCE_INBOX_PLAN_H

#include <stdatomic.h>

#include "config/config.h"
#include "dispatch/dispatch.h"
#include "inbox/event.h"

struct inbox_commands;
struct queues;
struct source_counts;

struct inbox_source {
    const struct config_source *config;
    const struct preset *preset;
    struct signature_rule signature; /* the preset's, changed by the source's settings */
    struct event_rule rule;
    struct signature_secret secrets[CONFIG_SOURCE_SECRETS_MAX];
    size_t secret_count;
    struct digest verify_token; /* of the token's text */
    bool has_token;
    int64_t window_ms;
    struct slice target;          /* path and query of the handler */
    const char *handler_url;      /* its scheme, host and port */
    struct source_counts *counts; /* of requests; NULL: a queue, or not counted */
};

struct inbox_plan {
    struct dispatch_plan dispatch; /* its targets are the sources, in their order */
    const struct mem *mem;
    struct config *config; /* held */
    struct arena arena;
    struct inbox_source *sources;
    size_t count;
    const struct inbox_commands *commands; /* where events become commands */
    struct queues *queues;                 /* notified of settled deliveries; NULL: none */
    atomic_uint holders;
};

/* E_INVALID, E_UNAVAILABLE: a secret is invalid or cannot be read; the text names its source and
 * its file or variable. E_NOMEM. */
enum status inbox_plan_new(const struct mem *mem, struct config *config,
    struct inbox_plan **ret_plan, struct err *err) MUST_CHECK;
/* Returns its argument. */
struct inbox_plan *inbox_plan_hold(struct inbox_plan *plan);
/* The last holder frees it. NULL is fine. */
void inbox_plan_drop(struct inbox_plan *plan);
/* A source or a queue. NULL: none has that name. */
struct inbox_source *inbox_plan_find(const struct inbox_plan *plan, struct slice name);

/* Make one source without its handler, for `once inbox test`. The caller must release the
 * secrets. */
enum status inbox_source_init(struct inbox_source *source, const struct config_source *config,
    const struct mem *mem, struct err *err) MUST_CHECK;
void inbox_source_release(struct inbox_source *source);

#endif
