/*
 * upstreams: the upstreams of all configurations of one door that are in use.
 *
 * Two users share an upstream, and a reload keeps it, if all of its settings are equal: the URLs,
 * the content of the CA file, the limits of its connections and its rule for addresses. The
 * system's certificates are not one file that could be compared, so a reload always makes a new
 * upstream if it trusts them.
 *
 * Promises:  a call uses the CA certificates that the files held when its configuration was loaded.
 *            An upstream that no configuration uses any more is closed on every loop, and freed.
 *            Figures are kept by name to the end: a counter never goes back.
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
/* Call it before the server is started. */
void upstreams_attach(struct upstreams *upstreams, struct http_server *server);
/* Call it after all configurations have dropped theirs and the server is freed. NULL is fine. */
void upstreams_free(struct upstreams *upstreams);

/* A configuration is about to be loaded: upstreams held from now on read their files again. */
void upstreams_load(struct upstreams *upstreams);
/* The settings of an upstream. The texts are borrowed for the call. */
struct upstreams_wanted {
    const char *const *urls;
    size_t url_count;
    const char *ca_file;      /* NULL: the system's certificates */
    uint32_t connections_max; /* for each loop */
    int64_t idle_ms_max;      /* how long an idle connection is kept */
    bool is_public_only;      /* its names must not resolve to private addresses (upstream.h) */
};
/* Finds or makes the upstream and holds it. E_INVALID, E_UNAVAILABLE: a URL or the CA file is
 * invalid; the text says which. E_NOMEM. */
enum status upstreams_hold(struct upstreams *upstreams, const struct upstreams_wanted *wanted,
    struct upstreams_one **ret_one, struct err *err) MUST_CHECK;
/* Releases a held upstream. The holder must have no call under way with it. NULL is fine. */
void upstreams_drop(struct upstreams *upstreams, struct upstreams_one *one);

/* The value of the Host field. */
struct slice upstreams_authority(const struct upstreams_one *one);
/* Its connections on this loop, attached at first use. */
struct upstream *upstreams_on(
    struct upstreams *upstreams, struct upstreams_one *one, unsigned loop);
/* Closes all upstreams on a loop: calls under way fail, and so does every later one. */
void upstreams_detach(struct upstreams *upstreams, unsigned loop);
/* True if no unused upstream remains to be closed on a loop. */
bool upstreams_is_idle(const struct upstreams *upstreams);

/* The largest upstream_fill of all of them on a loop. Any thread. */
unsigned upstreams_fill(struct upstreams *upstreams, unsigned loop);

/* For metrics_upstreams; context: the upstreams. */
size_t upstreams_figures(void *context, struct upstream_figures *ret_figures, size_t max);

#endif
