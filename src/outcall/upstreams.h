/*
 * upstreams: the upstreams of all configurations of one door that are in use.
 *
 * Two users share one, and a reload keeps one, if they agree in everything that makes it: the
 * URLs, the content of the CA file, the limits of its connections and its rule for addresses. The
 * certificates of the system have no one file to compare, so a reload makes an upstream that trusts
 * them anew.
 *
 * Promises:  a call is made with the CA certificates that the files held when its configuration was
 *            loaded. One that no configuration uses any more is closed on every loop, and freed.
 *            Figures go by name, until the end: a counter never goes back.
 * Threads:   upstreams_on and upstreams_detach on the loop; upstreams_hold on one thread at a time;
 *            the others on any thread.
 */
#ifndef ONCE_OUTCALL_UPSTREAMS_H
#define ONCE_OUTCALL_UPSTREAMS_H

#include "http/serve.h"
#include "http/upstream.h"

struct upstreams;
struct upstreams_one;

/* E_NOMEM. */
enum status upstreams_new(const struct mem *mem, unsigned loops, struct upstreams **ret_upstreams,
    struct err *err) MUST_CHECK;
/* Before the server is started. */
void upstreams_attach(struct upstreams *upstreams, struct http_server *server);
/* When no configuration holds one and the server is gone. NULL is fine. */
void upstreams_free(struct upstreams *upstreams);

/* A configuration is about to be loaded: what follows is read from files now. */
void upstreams_load(struct upstreams *upstreams);
/* What makes one. Its texts are borrowed for the call. */
struct upstreams_wanted {
    const char *const *urls;
    size_t url_count;
    const char *ca_file;      /* NULL: the system's certificates */
    uint32_t connections_max; /* a loop */
    int64_t idle_ms_max;      /* a connection is kept */
    bool is_public_only;      /* its names must not lead to private addresses (upstream.h) */
};
/* The upstream that is wanted, held. E_INVALID, E_UNAVAILABLE: a URL or the CA file is wrong; the
 * text says which. E_NOMEM. */
enum status upstreams_hold(struct upstreams *upstreams, const struct upstreams_wanted *wanted,
    struct upstreams_one **ret_one, struct err *err) MUST_CHECK;
/* No call with it is under way for this holder. NULL is fine. */
void upstreams_drop(struct upstreams *upstreams, struct upstreams_one *one);

/* What the Host field says. */
struct slice upstreams_authority(const struct upstreams_one *one);
/* Its connections on this loop; attached when they are first used. */
struct upstream *upstreams_on(
    struct upstreams *upstreams, struct upstreams_one *one, unsigned loop);
/* Close all of them on a loop: calls under way fail, and so does every later one. */
void upstreams_detach(struct upstreams *upstreams, unsigned loop);
/* Whether no loop is needed any more to close one that is not used. */
bool upstreams_is_idle(const struct upstreams *upstreams);

/* For metrics_upstreams; context: the upstreams. */
size_t upstreams_figures(void *context, struct upstream_figures *ret_figures, size_t max);

#endif
