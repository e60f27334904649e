/*
 * gateway_config: a configuration in use, with the objects made from it: keys of principals,
 * credentials, upstreams.
 *
 * Ownership: held by the gateway while it is the current one, and by each request and each question
 *            that began under it. The last holder frees it.
 * Threads:   any.
 */
#ifndef ONCE_GATEWAY_GATEWAY_CONFIG_H
#define ONCE_GATEWAY_GATEWAY_CONFIG_H

#include <stdatomic.h>

#include "base/buf.h"
#include "config/config.h"
#include "gateway/principal.h"
#include "outcall/judge.h"
#include "outcall/upstreams.h"

struct gateway;

/* What an upstream's answers mean on one route. */
struct route_results {
    struct judge_rules rules;
    struct judge_status statuses[CONFIG_RULES_MAX];
};

struct gateway_config {
    uint64_t number;      /* no other configuration of this gateway has it; from 1 on */
    struct config *whole; /* held */
    const struct config_gateway *settings;
    struct principals *principals;
    struct upstreams_one **upstreams; /* of each route; the last is for `otherwise` */
    struct route_results *results;    /* of each route, from its on_status */
    atomic_uint *doubts;     /* of each route: bits of enum principal_doubt logged so far */
    struct buf *credentials; /* of each route: the Authorization of its reconcile; may be empty */
    unsigned holders;        /* under the gateway's lock */
};

/* Returns it held once. E_INVALID, E_UNAVAILABLE: an upstream's URL or a file is invalid; the text
 * says which. E_NOMEM. */
enum status gateway_config_new(struct gateway *gateway, struct config *config,
    struct gateway_config **ret_config, struct err *err) MUST_CHECK;
/* The current configuration, held. */
struct gateway_config *gateway_config_take(struct gateway *gateway);
void gateway_config_hold(struct gateway *gateway, struct gateway_config *config);
/* NULL is fine. */
void gateway_config_drop(struct gateway *gateway, struct gateway_config *config);

/* The first route that matches, or `otherwise`, which may be NULL. method: a bit of enum
 * config_method, or 0 for the others. */
const struct config_route *gateway_config_route(const struct gateway_config *config,
    unsigned method, struct slice path, struct upstreams_one **ret_upstream);
/* What the upstream's answers to fenced requests on a route mean. */
const struct judge_rules *gateway_config_rules(
    const struct gateway_config *config, const struct config_route *route);
/* True the first time a doubt about the principals of a route comes up. Any thread. */
bool gateway_config_is_first(const struct gateway_config *config, const struct config_route *route,
    enum principal_doubt doubt);
/* The Authorization of a route's reconcile; may be empty. */
struct slice gateway_config_credential(
    const struct gateway_config *config, const struct config_route *route);

#endif
