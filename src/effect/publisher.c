#include "effect/publisher.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/macros.h"

enum { THREADS_MAX = 4 }; /* connections of one connector: brokers confirm many a second on each */

struct publisher {
    struct dispatch_sender sender; /* first */
    const struct mem *mem;
    const struct broker_module *module;
    struct broker_options options;
    char *url; /* a copy, wiped at the end */
    char name[64];
    pthread_t threads[THREADS_MAX];
    size_t thread_count;
    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t more;
    struct dispatch_sending *first;
    struct dispatch_sending **last;
    bool is_ending;
};

enum status publishers_check(const struct config_effects *effects, struct err *err)
{
    enum status status = OK;
    for (size_t i = 0; status == OK && i < effects->connector_count; i++) {
        const struct config_connector *connector = &effects->connectors[i];
        const struct broker_module *module = NULL;
        if (config_connector_publishes(connector)) {
            status = broker_load(connector->url, &module, err);
            status = status == OK ? module->check(connector->url, err) : status;
        }
        if (status != OK) {
            err_prefix(err, "connector '%s'", connector->name);
        }
    }
    return status;
}

/* ---- one publication ----------------------------------------------------------------------- */

static void set_result(struct dispatch_sending *sending, enum status status, const struct err *err)
{
    bool is_refused = status == E_INVALID || status == E_LIMIT;
    sending->point = status == OK || is_refused ? OUTCALL_ANSWERED
                     : status == E_UNKNOWN      ? OUTCALL_SENT
                                                : OUTCALL_NOT_SENT;
    sending->verdict = status == OK          ? VERDICT_EXECUTED
                       : is_refused          ? VERDICT_FAILED
                       : status == E_UNKNOWN ? VERDICT_UNKNOWN
                                             : VERDICT_LATER;
    sending->status = status == OK ? 200 : is_refused ? 422 : 0;
    (void)snprintf(sending->reason, sizeof sending->reason, "%.*s", (int)sizeof sending->reason - 1,
        status == OK ? "" : err->text);
}

/* A thread's connection. */
struct publishing {
    struct publisher *publisher;
    struct broker_source *source;
    bool is_connected;
};

static enum status publish(
    struct publishing *link, struct dispatch_sending *sending, struct err *err)
{
    const struct broker_module *module = link->publisher->module;
    struct broker_outgoing message = {
        .id = sending->id, .key = sending->lane, .type = sending->type, .body = sending->payload};
    char ref[BROKER_ID_BYTES_MAX] = "";
    enum status status = OK;
    if (link->source == NULL) {
        status = module->open(&link->publisher->options, &link->source, err);
        status = status == OK ? OK : E_UNAVAILABLE;
    }
    if (status == OK && !link->is_connected) {
        status = module->connect(link->source, err);
        link->is_connected = status == OK;
        status = status == OK ? OK : E_UNAVAILABLE; /* nothing was sent yet */
    }
    if (status == OK && clock_boot_ms() >= sending->send_until_boot_ms) {
        status = err_set(err, E_UNAVAILABLE, "waited too long for the broker; nothing was sent");
    }
    if (status == OK) { /* the module may connect again first, within the same time */
        status = module->publish(link->source, &message, sending->timeout_ms, ref, err);
        link->is_connected = status == OK || status == E_INVALID || status == E_LIMIT;
    }
    if (status == OK) {
        (void)snprintf(sending->ref, sizeof sending->ref, "%s", ref);
    }
    return status;
}

/* ---- threads ------------------------------------------------------------------------------- */

/* NULL: the end. */
static struct dispatch_sending *take(struct publisher *publisher)
{
    (void)pthread_mutex_lock(&publisher->lock);
    while (publisher->first == NULL && !publisher->is_ending) {
        (void)pthread_cond_wait(&publisher->more, &publisher->lock);
    }
    struct dispatch_sending *taken = publisher->first;
    if (taken != NULL) {
        publisher->first = taken->next;
        publisher->last = publisher->first == NULL ? &publisher->first : publisher->last;
    }
    (void)pthread_mutex_unlock(&publisher->lock);
    return taken;
}

static void *run(void *context)
{
    struct publishing link = {.publisher = context};
    struct dispatch_sending *sending = NULL;
    (void)pthread_setname_np(pthread_self(), "once-publish");
    while ((sending = take(link.publisher)) != NULL) {
        struct err err = {.status = OK};
        enum status status = publish(&link, sending, &err);
        set_result(sending, status, &err);
        sending->done(sending);
    }
    link.publisher->module->close(link.source);
    return NULL;
}

static void enqueue(struct dispatch_sender *sender, struct dispatch_sending *sending)
{
    struct publisher *publisher = CONTAINER_OF(sender, struct publisher, sender);
    sending->next = NULL;
    (void)pthread_mutex_lock(&publisher->lock);
    *publisher->last = sending;
    publisher->last = &sending->next;
    (void)pthread_cond_signal(&publisher->more);
    (void)pthread_mutex_unlock(&publisher->lock);
}

struct dispatch_sender *publisher_sender(struct publisher *publisher)
{
    return &publisher->sender;
}

/* ---- lifetime ------------------------------------------------------------------------------ */

static enum status start(struct publisher *publisher, size_t count, struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        int failed = pthread_create(&publisher->threads[i], NULL, run, publisher);
        if (failed != 0) {
            return err_errno(err, E_UNAVAILABLE, failed, "cannot make a thread");
        }
        publisher->thread_count++;
    }
    return OK;
}

enum status publisher_new(const struct mem *mem, const struct config_connector *connector,
    const char *name, struct publisher **ret_publisher, struct err *err)
{
    struct publisher *publisher = mem_zalloc(mem, 1, sizeof *publisher);
    if (publisher == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    publisher->mem = mem;
    publisher->sender.send = enqueue;
    publisher->last = &publisher->first;
    (void)snprintf(publisher->name, sizeof publisher->name, "%s", name);
    (void)pthread_mutex_init(&publisher->lock, NULL);
    (void)pthread_cond_init(&publisher->more, NULL);
    publisher->url = mem_copy_text(mem, slice_str(connector->url));
    enum status status = publisher->url == NULL
                             ? err_set(err, E_NOMEM, "out of memory")
                             : broker_load(connector->url, &publisher->module, err);
    if (status == OK) {
        publisher->options = (struct broker_options){.url = publisher->url,
            .consumer = publisher->name,
            .publishes = true,
            .keeps_ms =
                connector->protocol == CONFIG_PROTOCOL_NATS ? connector->idempotency.keeps_ms : 0};
        status = publisher->module->check(publisher->url, err);
    }
    size_t count =
        connector->concurrency < THREADS_MAX ? (size_t)connector->concurrency : THREADS_MAX;
    status = status == OK ? start(publisher, count, err) : status;
    if (status != OK) {
        err_prefix(err, "connector '%s'", connector->name);
        publisher_free(publisher);
        return status;
    }
    *ret_publisher = publisher;
    return OK;
}

void publisher_free(struct publisher *publisher)
{
    if (publisher == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&publisher->lock);
    publisher->is_ending = true;
    (void)pthread_cond_broadcast(&publisher->more);
    (void)pthread_mutex_unlock(&publisher->lock);
    for (size_t i = 0; i < publisher->thread_count; i++) {
        (void)pthread_join(publisher->threads[i], NULL);
    }
    ASSERT(publisher->first == NULL); /* every sender holds the plan */
    if (publisher->url != NULL) {
        mem_wipe(publisher->url, strlen(publisher->url));
    }
    mem_free(publisher->mem, publisher->url);
    (void)pthread_cond_destroy(&publisher->more);
    (void)pthread_mutex_destroy(&publisher->lock);
    mem_free(publisher->mem, publisher);
}
