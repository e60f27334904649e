/*
 * The life of an upstream:
 *
 *   HELD ── the last holder drops it ──▶ LEAVING ── closed on each loop ──▶ (freed)
 *
 *   upstreams_hold   make: HELD; or find one that is HELD
 *   upstreams_drop   HELD → LEAVING: a task on every loop
 *   close_on_loop    on each loop: close its connections, wait until they are closed
 *   left             the last loop: leaves the list; its figures are added to those of its name
 *
 * What holds:
 *   UL1 HELD has holders; LEAVING has none and is never held again.
 *   UL2 LEAVING has no call: a caller holds its configuration until the call is over.
 *   UL3 is_attached[loop] is read and written only on that loop. An upstream in the list that is
 *       not yet closed on a loop is not freed, so that loop may use it without the lock.
 */
#include "outcall/upstreams.h"

#include <pthread.h>
#include <stdatomic.h>
#include <strings.h>

#include "base/check.h"
#include "base/macros.h"
#include "base/secret.h"
#include "canon/digest.h"

enum {
    NAME_BYTES_MAX = 64 << 10,
    CA_FILE_BYTES_MAX = 16 << 20, /* the system's bundle has 200 KiB */
    CLOSE_CHECK_MS = 20,          /* between two checks whether all connections are closed */
};

/* The figures of all upstreams of one name, including those that are freed. */
struct upstreams_figures {
    struct upstreams_figures *next;
    const char *name;           /* its URLs and CA file; ours */
    struct upstream_stats past; /* of those that are freed */
};

/* Closing an upstream on one loop. */
struct upstreams_closing {
    struct net_task task;
    struct net_deadline deadline; /* when to check again whether it is closed */
    struct upstreams_one *one;
    unsigned loop;
};

struct upstreams_one {
    struct upstreams_one *next;
    struct upstreams *upstreams;
    struct digest identity; /* of all of its settings */
    struct upstream *upstream;
    struct upstreams_figures *figures;
    unsigned holders;                  /* UL1; under the lock */
    atomic_uint loops_left;            /* LEAVING: loops on which it is not closed yet */
    struct upstreams_closing *closing; /* of each loop */
    bool *is_attached;                 /* of each loop; UL3 */
};

struct upstreams {
    const struct mem *mem;
    unsigned loops;
    struct http_server *server; /* NULL: not attached, or freed */
    uint64_t load;              /* number of the configuration that is being loaded */
    pthread_mutex_t lock;       /* guards both lists and holders */
    struct upstreams_one *first;
    struct upstreams_figures *figures;
    atomic_uint leaving;
};

/* ---- what makes one ------------------------------------------------------------------------ */

/* Appends the digest of the CA file, or that it is unreadable: upstream_new reports why. */
static enum status put_ca(const struct upstreams *upstreams, const char *path, struct buf *out)
{
    struct buf content;
    struct err err;
    struct digest digest = {{0}};
    buf_init(&content, upstreams->mem, CA_FILE_BYTES_MAX);
    enum status status = secret_read("CA file", path, &content, &err);
    if (status == OK) {
        digest_sha256(content.data, content.len, &digest);
    }
    buf_release(&content);
    buf_str(out, status == OK ? " content=" : " unreadable=");
    buf_append(out, &digest, sizeof digest);
    return status == E_NOMEM ? E_NOMEM : OK;
}

static bool is_tls(const struct upstreams_wanted *wanted)
{
    return strncasecmp(wanted->urls[0], "https:", 6) == 0;
}

/* Its name in the figures, as configured. */
static void put_name(const struct upstreams_wanted *wanted, struct buf *out)
{
    for (size_t i = 0; i < wanted->url_count; i++) {
        buf_str(out, i == 0 ? "" : " ");
        buf_str(out, wanted->urls[i]);
    }
    if (wanted->ca_file != NULL) {
        buf_str(out, " ca_file=");
        buf_str(out, wanted->ca_file);
    }
    buf_char(out, '\0');
}

/* Equal for two users that may share an upstream. It begins with the name and a NUL. */
static enum status identify(const struct upstreams *upstreams,
    const struct upstreams_wanted *wanted, struct digest *ret_identity)
{
    struct buf text;
    buf_init(&text, upstreams->mem, NAME_BYTES_MAX + 256);
    put_name(wanted, &text);
    buf_printf(&text, "connections_max=%llu idle=%lld public=%d",
        (unsigned long long)wanted->connections_max, (long long)wanted->idle_ms_max,
        wanted->is_public_only);
    enum status status = OK;
    if (is_tls(wanted) && wanted->ca_file != NULL) {
        status = put_ca(upstreams, wanted->ca_file, &text);
    } else if (is_tls(wanted)) {
        buf_printf(&text, " load=%llu", (unsigned long long)upstreams->load);
    }
    status = status == OK ? buf_status(&text) : status;
    if (status == OK) {
        digest_sha256(text.data, text.len, ret_identity);
    }
    buf_release(&text);
    return status;
}

/* ---- figures ------------------------------------------------------------------------------- */

static void stats_add(struct upstream_stats *sum, const struct upstream_stats *more)
{
    sum->calls += more->calls;
    sum->connects += more->connects;
    sum->reused += more->reused;
    sum->open += more->open;
    sum->idle += more->idle;
    sum->waiting += more->waiting;
    sum->down += more->down;
    for (size_t i = 0; i < COUNT(sum->failed); i++) {
        sum->failed[i] += more->failed[i];
    }
}

/* The figures of this name, made if it is new. Under the lock. */
static enum status figures_of(struct upstreams *upstreams, const struct upstreams_wanted *wanted,
    struct upstreams_figures **ret_figures)
{
    struct buf name;
    buf_init(&name, upstreams->mem, NAME_BYTES_MAX);
    put_name(wanted, &name);
    struct upstreams_figures *found = NULL;
    for (struct upstreams_figures *at = upstreams->figures; at != NULL; at = at->next) {
        found = buf_status(&name) == OK && strcmp(at->name, name.data) == 0 ? at : found;
    }
    if (found == NULL && buf_status(&name) == OK) {
        found = mem_zalloc(upstreams->mem, 1, sizeof *found);
        if (found != NULL) {
            *found = (struct upstreams_figures){.next = upstreams->figures, .name = name.data};
            name = (struct buf){.mem = NULL}; /* taken */
            upstreams->figures = found;
        }
    }
    buf_release(&name);
    *ret_figures = found;
    return found == NULL ? E_NOMEM : OK;
}

static void figures_sum(const struct upstreams *upstreams, const struct upstreams_figures *figures,
    struct upstream_stats *ret_sum)
{
    *ret_sum = figures->past;
    for (const struct upstreams_one *at = upstreams->first; at != NULL; at = at->next) {
        if (at->figures == figures) {
            struct upstream_stats stats;
            upstream_stats(at->upstream, &stats);
            stats_add(ret_sum, &stats);
        }
    }
}

/* The newest names first: names of old configurations are added up into one. */
size_t upstreams_figures(void *context, struct upstream_figures *ret_figures, size_t max)
{
    struct upstreams *upstreams = context;
    size_t count = 0;
    (void)pthread_mutex_lock(&upstreams->lock);
    for (const struct upstreams_figures *at = upstreams->figures; at != NULL; at = at->next) {
        struct upstream_stats stats;
        figures_sum(upstreams, at, &stats);
        if (count < max) {
            ret_figures[count++] = (struct upstream_figures){.name = at->name, .stats = stats};
        } else {
            ret_figures[max - 1].name = NULL;
            stats_add(&ret_figures[max - 1].stats, &stats);
        }
    }
    (void)pthread_mutex_unlock(&upstreams->lock);
    return count;
}

unsigned upstreams_fill(struct upstreams *upstreams, unsigned loop)
{
    unsigned most = 0;
    (void)pthread_mutex_lock(&upstreams->lock);
    for (const struct upstreams_one *at = upstreams->first; at != NULL; at = at->next) {
        unsigned fill = upstream_fill(at->upstream, loop);
        most = fill > most ? fill : most;
    }
    (void)pthread_mutex_unlock(&upstreams->lock);
    return most;
}

/* ---- the end of one ------------------------------------------------------------------------ */

static void one_free(struct upstreams_one *one)
{
    const struct mem *mem = one->upstreams->mem;
    upstream_free(one->upstream);
    mem_free(mem, one->closing);
    mem_free(mem, one->is_attached);
    mem_free(mem, one);
}

/* Closed on every loop. */
static void left(struct upstreams_one *one)
{
    struct upstreams *upstreams = one->upstreams;
    struct upstream_stats stats;
    (void)pthread_mutex_lock(&upstreams->lock);
    ASSERT(one->holders == 0); /* UL1 */
    struct upstreams_one **at = &upstreams->first;
    while (*at != one) {
        at = &(*at)->next;
    }
    *at = one->next;
    upstream_stats(one->upstream, &stats);
    stats.open = stats.idle = stats.waiting = stats.down = 0; /* not counters */
    stats_add(&one->figures->past, &stats);
    (void)pthread_mutex_unlock(&upstreams->lock);
    one_free(one);
    atomic_fetch_sub(&upstreams->leaving, 1); /* from here on the loops may end */
}

static void closing_check(struct net_deadline *deadline, uint64_t now_ms)
{
    struct upstreams_closing *closing = CONTAINER_OF(deadline, struct upstreams_closing, deadline);
    struct upstreams_one *one = closing->one;
    struct net_loop *loop = http_server_loop(one->upstreams->server, closing->loop);
    if (!upstream_is_closed(one->upstream, closing->loop)) {
        net_loop_deadline(loop, &closing->deadline, now_ms + CLOSE_CHECK_MS);
    } else if (atomic_fetch_sub(&one->loops_left, 1) == 1) {
        left(one);
    }
}

static void close_on_loop(struct net_task *task)
{
    struct upstreams_closing *closing = CONTAINER_OF(task, struct upstreams_closing, task);
    struct upstreams_one *one = closing->one;
    if (one->is_attached[closing->loop]) {
        upstream_detach(one->upstream, closing->loop);
        one->is_attached[closing->loop] = false;
    }
    closing_check(
        &closing->deadline, net_loop_now(http_server_loop(one->upstreams->server, closing->loop)));
}

void upstreams_drop(struct upstreams *upstreams, struct upstreams_one *one)
{
    if (one == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&upstreams->lock);
    ASSERT(one->holders > 0);
    bool is_last = --one->holders == 0 && upstreams->server != NULL;
    if (is_last) {
        atomic_fetch_add(&upstreams->leaving, 1);
        atomic_store(&one->loops_left, upstreams->loops);
    }
    (void)pthread_mutex_unlock(&upstreams->lock);
    for (unsigned i = 0; is_last && i < upstreams->loops; i++) {
        net_loop_post(http_server_loop(upstreams->server, i), &one->closing[i].task);
    }
}

/* ---- the beginning of one ------------------------------------------------------------------ */

static struct upstreams_one *find(struct upstreams *upstreams, const struct digest *identity)
{
    struct upstreams_one *found = NULL;
    (void)pthread_mutex_lock(&upstreams->lock);
    for (struct upstreams_one *at = upstreams->first; at != NULL && found == NULL; at = at->next) {
        found = at->holders > 0 && digest_equal(&at->identity, identity) ? at : NULL; /* UL1 */
    }
    if (found != NULL) {
        found->holders++;
    }
    (void)pthread_mutex_unlock(&upstreams->lock);
    return found;
}

static enum status one_new(struct upstreams *upstreams, const struct upstreams_wanted *wanted,
    struct upstreams_one **ret_one, struct err *err)
{
    struct upstreams_one *one = mem_zalloc(upstreams->mem, 1, sizeof *one);
    struct upstream_options options = {.mem = upstreams->mem,
        .urls = wanted->urls,
        .url_count = wanted->url_count,
        .ca_file = wanted->ca_file,
        .connections_max = wanted->connections_max,
        .idle_ms_max = wanted->idle_ms_max,
        .is_public_only = wanted->is_public_only};
    if (one == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    one->upstreams = upstreams;
    one->holders = 1;
    one->is_attached = mem_zalloc(upstreams->mem, upstreams->loops, sizeof *one->is_attached);
    one->closing = mem_zalloc(upstreams->mem, upstreams->loops, sizeof *one->closing);
    bool has_memory = one->is_attached != NULL && one->closing != NULL;
    for (unsigned i = 0; has_memory && i < upstreams->loops; i++) {
        one->closing[i] = (struct upstreams_closing){
            .task.run = close_on_loop, .deadline.due = closing_check, .one = one, .loop = i};
    }
    enum status status = has_memory ? OK : err_set(err, E_NOMEM, "out of memory");
    status = status == OK ? upstream_new(&options, upstreams->loops, &one->upstream, err) : status;
    if (status != OK) {
        one_free(one);
        return status;
    }
    *ret_one = one;
    return OK;
}

static enum status enter(
    struct upstreams *upstreams, const struct upstreams_wanted *wanted, struct upstreams_one *one)
{
    (void)pthread_mutex_lock(&upstreams->lock);
    enum status status = figures_of(upstreams, wanted, &one->figures);
    if (status == OK) {
        one->next = upstreams->first;
        upstreams->first = one;
    }
    (void)pthread_mutex_unlock(&upstreams->lock);
    return status;
}

enum status upstreams_hold(struct upstreams *upstreams, const struct upstreams_wanted *wanted,
    struct upstreams_one **ret_one, struct err *err)
{
    struct digest identity, after;
    if (identify(upstreams, wanted, &identity) != OK) {
        return err_set(err, E_NOMEM, "out of memory for the name of an upstream");
    }
    *ret_one = find(upstreams, &identity);
    if (*ret_one != NULL) {
        return OK;
    }
    struct upstreams_one *one = NULL;
    enum status status = one_new(upstreams, wanted, &one, err);
    if (status != OK) {
        return status;
    }
    one->identity = identity;
    /* The CA file was read twice: once for its content, once for its certificates. */
    if (identify(upstreams, wanted, &after) != OK || enter(upstreams, wanted, one) != OK) {
        status = err_set(err, E_NOMEM, "out of memory for the name of an upstream");
    } else if (!digest_equal(&identity, &after)) {
        ASSERT(wanted->ca_file != NULL);
        upstreams_drop(upstreams, one);
        return err_set(
            err, E_UNAVAILABLE, "CA file '%s' changed while it was read", wanted->ca_file);
    }
    if (status != OK) {
        one_free(one);
        return status;
    }
    *ret_one = one;
    return OK;
}

void upstreams_load(struct upstreams *upstreams)
{
    upstreams->load++;
}

/* ---- their use ----------------------------------------------------------------------------- */

struct slice upstreams_authority(const struct upstreams_one *one)
{
    return upstream_authority(one->upstream);
}

struct upstream *upstreams_on(struct upstreams *upstreams, struct upstreams_one *one, unsigned loop)
{
    if (!one->is_attached[loop]) {
        upstream_attach(one->upstream, loop, http_server_loop(upstreams->server, loop));
        one->is_attached[loop] = true;
    }
    return one->upstream;
}

/* An upstream that is attached to the loop; UL3. */
static struct upstreams_one *attached_to(struct upstreams *upstreams, unsigned loop)
{
    struct upstreams_one *found = NULL;
    (void)pthread_mutex_lock(&upstreams->lock);
    for (struct upstreams_one *at = upstreams->first; at != NULL && found == NULL; at = at->next) {
        found = at->is_attached[loop] ? at : NULL;
    }
    (void)pthread_mutex_unlock(&upstreams->lock);
    return found;
}

void upstreams_detach(struct upstreams *upstreams, unsigned loop)
{
    struct upstreams_one *one;
    while ((one = attached_to(upstreams, loop)) != NULL) {
        one->is_attached[loop] = false;
        upstream_detach(one->upstream, loop); /* its calls fail, and take the lock */
    }
}

bool upstreams_is_idle(const struct upstreams *upstreams)
{
    return atomic_load(&upstreams->leaving) == 0;
}

/* ---- all of them --------------------------------------------------------------------------- */

enum status upstreams_new(
    const struct mem *mem, unsigned loops, struct upstreams **ret_upstreams, struct err *err)
{
    struct upstreams *upstreams = mem_zalloc(mem, 1, sizeof *upstreams);
    if (upstreams == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    upstreams->mem = mem;
    upstreams->loops = loops;
    atomic_init(&upstreams->leaving, 0);
    (void)pthread_mutex_init(&upstreams->lock, NULL);
    *ret_upstreams = upstreams;
    return OK;
}

void upstreams_attach(struct upstreams *upstreams, struct http_server *server)
{
    (void)pthread_mutex_lock(&upstreams->lock);
    upstreams->server = server;
    (void)pthread_mutex_unlock(&upstreams->lock);
}

void upstreams_free(struct upstreams *upstreams)
{
    if (upstreams == NULL) {
        return;
    }
    ASSERT(upstreams_is_idle(upstreams));
    for (struct upstreams_one *at = upstreams->first, *next = NULL; at != NULL; at = next) {
        next = at->next;
        ASSERT(at->holders == 0);
        one_free(at);
    }
    for (struct upstreams_figures *at = upstreams->figures, *next = NULL; at != NULL; at = next) {
        next = at->next;
        union { /* the name is ours to free */
            const char *in;
            char *out;
        } name = {.in = at->name};
        mem_free(upstreams->mem, name.out);
        mem_free(upstreams->mem, at);
    }
    (void)pthread_mutex_destroy(&upstreams->lock);
    mem_free(upstreams->mem, upstreams);
}
