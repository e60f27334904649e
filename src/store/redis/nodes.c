/*
 * Finds the server: from the URL, the Sentinels, or the nodes of a cluster.
 *
 * A store is in one slot of a cluster, so one node has all of it. Any node redirects us to that
 * node (MOVED). While the slot moves from one node to another, its keys are on both, and a key that
 * is absent on one may be on the other: a script would treat an existing record as absent (P1). So
 * ASK is followed without ASKING: a node that does not have the whole slot sends us back, and the
 * call is refused until the slot has arrived (common.lua has the rest).
 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/text.h"
#include "store/redis/impl.h"

static bool same_address(const struct redis_address *a, const struct redis_address *b)
{
    return strcmp(a->host, b->host) == 0 && strcmp(a->port, b->port) == 0;
}

static void node_add(struct redis_nodes *nodes, const struct redis_address *address)
{
    ASSERT(nodes->count <= REDIS_NODES_MAX);
    ASSERT(address->host[0] != '\0');
    for (size_t i = 0; i < nodes->count; i++) {
        if (same_address(&nodes->known[i], address)) {
            return;
        }
    }
    if (nodes->count < REDIS_NODES_MAX) {
        nodes->known[nodes->count++] = *address;
    }
}

/* ---- redirects ------------------------------------------------------------------------------ */

/* The last word is HOST:PORT. An IPv6 host has no brackets; an empty one is this node's own. */
static bool target_read(
    const struct redis_nodes *nodes, struct slice text, struct redis_address *ret_address)
{
    size_t colon = text.len;
    while (colon > 0 && text.data[colon - 1] != ':') {
        colon--;
    }
    uint64_t port = 0;
    struct redis_address address = nodes->at;
    if (colon == 0 || !text_u64(slice_of(text.data + colon, text.len - colon), &port) ||
        port == 0 || port > 65535 || colon > sizeof address.host) {
        return false;
    }
    if (colon > 1 && !(colon == 2 && text.data[0] == '?')) {
        memcpy(address.host, text.data, colon - 1);
        address.host[colon - 1] = '\0';
    }
    (void)snprintf(address.port, sizeof address.port, "%u", (unsigned)port & 0xffff);
    *ret_address = address;
    return address.host[0] != '\0';
}

bool nodes_redirect(struct redis_link *link, const char *text)
{
    struct redis_address address;
    const char *slot = strchr(text, ' ');
    const char *target = slot == NULL ? NULL : strchr(slot + 1, ' ');
    if ((strncmp(text, "MOVED ", 6) != 0 && strncmp(text, "ASK ", 4) != 0) || target == NULL ||
        !target_read(&link->nodes, slice_str(target + 1), &address)) {
        return false;
    }
    redis_link_close(link);
    link->nodes.best = address;
    link->nodes.is_cluster = true;
    return true;
}

/* ---- a cluster ------------------------------------------------------------------------------ */

/* Host and port of a node in the answer to CLUSTER SLOTS. An empty host is the one we asked. */
static bool node_read(
    const struct redis_link *link, const redisReply *node, struct redis_address *ret_address)
{
    struct slice host = SLICE_EMPTY;
    uint64_t port = 0;
    struct redis_address address = link->nodes.at;
    (void)reply_text(reply_at(node, 0), &host);
    if (!reply_u64(reply_at(node, 1), &port) || port == 0 || port > 65535 ||
        host.len >= sizeof address.host) {
        return false;
    }
    if (host.len > 0 && !slice_is(host, "?")) {
        memcpy(address.host, host.data, host.len);
        address.host[host.len] = '\0';
    }
    (void)snprintf(address.port, sizeof address.port, "%u", (unsigned)port & 0xffff);
    *ret_address = address;
    return true;
}

void nodes_learn(struct redis_link *link, uint64_t deadline_ns)
{
    redisReply *reply = NULL;
    struct redis_nodes *nodes = &link->nodes;
    const char *const words[] = {"CLUSTER", "SLOTS"};
    ASSERT(link_is_open(link));
    if (link_ask(link, words, 2, deadline_ns, &reply, NULL) != OK || reply_count(reply) == 0) {
        freeReplyObject(reply);
        return;
    }
    nodes->count = 0;
    for (size_t i = 0; i < reply_count(reply); i++) {
        const redisReply *range = reply_at(reply, i); /* first slot, last slot, nodes */
        for (size_t j = 2; j < reply_count(range); j++) {
            struct redis_address address;
            if (node_read(link, reply_at(range, j), &address)) {
                node_add(nodes, &address);
            }
        }
    }
    for (size_t i = 0; i < link->url->hosts_count; i++) {
        node_add(nodes, &link->url->hosts[i]); /* they may be the only nodes left */
    }
    freeReplyObject(reply);
}

/* ---- Sentinels ------------------------------------------------------------------------------ */

/* One Sentinel's answer: host and port, or nothing if it does not know the service. */
static enum status sentinel_ask(struct redis_link *link, uint64_t deadline_ns,
    struct redis_address *ret_address, struct err *err)
{
    const char *const words[] = {"SENTINEL", "get-master-addr-by-name", link->url->service};
    redisReply *reply = NULL;
    struct slice host;
    struct slice port;
    ASSERT(link_is_open(link));
    ASSERT(link->url->sentinels);
    enum status status = link_ask(link, words, 3, deadline_ns, &reply, err);
    if (status == OK && reply->type == REDIS_REPLY_ERROR && link->url->password[0] != '\0' &&
        strncmp(reply->str, "NOAUTH", 6) == 0) {
        freeReplyObject(reply);
        reply = NULL;
        status = link_authenticate(link, deadline_ns, err);
        status = status == OK ? link_ask(link, words, 3, deadline_ns, &reply, err) : status;
    }
    if (status != OK) {
        return status;
    }
    uint64_t number = 0;
    if (!reply_text(reply_at(reply, 0), &host) || !reply_text(reply_at(reply, 1), &port) ||
        host.len == 0 || host.len >= sizeof ret_address->host || !text_u64(port, &number) ||
        number == 0 || number > 65535) {
        status = err_set(err, E_UNAVAILABLE, "the Sentinel at '%s' knows no server called '%s'%s%s",
            link->where, link->url->service, reply->type == REDIS_REPLY_ERROR ? ": " : "",
            reply->type == REDIS_REPLY_ERROR ? reply->str : "");
    } else {
        memcpy(ret_address->host, host.data, host.len);
        ret_address->host[host.len] = '\0';
        (void)snprintf(
            ret_address->port, sizeof ret_address->port, "%u", (unsigned)number & 0xffff);
    }
    freeReplyObject(reply);
    return status;
}

/* Each address but the last gets a part of the remaining time: a silent one must not use it up. */
static uint64_t share_ns(uint64_t deadline_ns, bool is_last)
{
    uint64_t now_ns = clock_nanos();
    return is_last || now_ns >= deadline_ns ? deadline_ns : now_ns + (deadline_ns - now_ns) / 2;
}

enum status nodes_ask_sentinels(struct redis_link *link, uint64_t deadline_ns,
    struct redis_address *ret_address, struct err *err)
{
    const struct redis_url *url = link->url;
    enum status status = E_UNAVAILABLE;
    ASSERT(url->hosts_count > 0);
    for (size_t i = 0; i < url->hosts_count && status == E_UNAVAILABLE; i++) {
        uint64_t until_ns = share_ns(deadline_ns, i + 1 == url->hosts_count);
        status = link_dial(link, &url->hosts[i], until_ns, err);
        status = status == OK ? sentinel_ask(link, until_ns, ret_address, err) : status;
        redis_link_close(link);
    }
    return status;
}

/* ---- opening a link ------------------------------------------------------------------------- */

static enum status open_by_sentinels(struct redis_link *link, uint64_t deadline_ns, struct err *err)
{
    struct redis_address address = {.host = ""};
    ASSERT(link->url->service[0] != '\0');
    enum status status = nodes_ask_sentinels(link, share_ns(deadline_ns, false), &address, err);
    return status == OK ? link_connect(link, &address, deadline_ns, err) : status;
}

/* Tries the redirect's target first, then all others in turn. */
static enum status open_by_nodes(struct redis_link *link, uint64_t deadline_ns, struct err *err)
{
    struct redis_nodes *nodes = &link->nodes;
    struct redis_address best = nodes->best;
    enum status status = E_UNAVAILABLE;
    ASSERT(nodes->count > 0);
    if (best.host[0] != '\0') {
        status = link_connect(link, &best, share_ns(deadline_ns, false), err);
        nodes->best.host[0] = status == OK ? nodes->best.host[0] : '\0';
    }
    for (size_t i = 0; i < nodes->count && status == E_UNAVAILABLE; i++) {
        struct redis_address next = nodes->known[i];
        if (best.host[0] == '\0' || !same_address(&next, &best) || nodes->count == 1) {
            status = link_connect(link, &next, share_ns(deadline_ns, i + 1 == nodes->count), err);
        }
    }
    if (status == OK && nodes->is_cluster) {
        nodes_learn(link, deadline_ns);
        status = link_is_open(link) ? OK : E_UNAVAILABLE;
    }
    return status;
}

void redis_link_init(
    struct redis_link *link, const struct redis_url *url, const struct redis_tls *tls)
{
    *link = (struct redis_link){.url = url, .tls = tls, .fd = -1};
    (void)snprintf(link->where, sizeof link->where, "%s", url->where);
    for (size_t i = 0; i < url->hosts_count && !url->sentinels; i++) {
        node_add(&link->nodes, &url->hosts[i]);
    }
}

enum status redis_link_open(struct redis_link *link, uint64_t deadline_ns, struct err *err)
{
    ASSERT(!link_is_open(link));
    ASSERT(link->url != NULL);
    if (link->url->socket[0] != '\0') {
        return link_connect(link, NULL, deadline_ns, err);
    }
    return link->url->sentinels ? open_by_sentinels(link, deadline_ns, err)
                                : open_by_nodes(link, deadline_ns, err);
}
