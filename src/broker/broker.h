/*
 * broker: message queues of other servers, behind one small table of functions. Each kind of broker
 * is a module, a shared object that is loaded when a URL names it: the program itself links none of
 * their libraries.
 *
 *     check … open → connect → (take → acknowledge | park | extend | lag)* → connect … → close
 *             open → connect → publish* → connect … → close              (options.publishes)
 *
 * Promises:  a message that was taken and not acknowledged is delivered again: after a new
 *            connection, or after this process has ended. The broker keeps a parked message before
 *            it is acknowledged. A published message is confirmed by the broker, or certainly not
 *            stored, or its fate is unknown (E_UNKNOWN); these are never mixed up (P5). No error
 *            text contains the URL, which may have a password.
 * Does not:  know events or deliveries, or acknowledge anything by itself.
 * Ownership: a message and its slices belong to the source, and live until the next take or
 *            connect.
 * Threads:   a source is used by one thread at a time; take returns early when wake_fd is readable.
 */
#ifndef ONCE_BROKER_BROKER_H
#define ONCE_BROKER_BROKER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"

enum {
    BROKER_INTERFACE = 2, /* changes with this file: a module of a different build is refused */
    BROKER_ID_BYTES_MAX = 128, /* of a message */
    BROKER_TAKE_MAX = 128,     /* messages at once: they are stored in one commit */
};

struct broker_source; /* the module's */

struct broker_field {
    struct slice name;
    struct slice value;
};

/* One message of the broker. */
struct broker_message {
    struct slice id; /* names it when it is acknowledged */
    bool is_again;   /* a consumer may have received it before */
    bool is_gone;    /* the broker has its id but no longer its bytes */
    bool is_binary;  /* the attributes of a CloudEvent are in "ce-" fields; the body is its data */
    struct slice type; /* media type of the body; may be empty */
    struct slice body;
    const struct broker_field *fields; /* all other fields, as received */
    size_t field_count;
};

/* One message to publish: a structured CloudEvent. */
struct broker_outgoing {
    struct slice id;   /* the same in every attempt: brokers that deduplicate do it by this */
    struct slice key;  /* messages with the same key stay in order where a queue has partitions */
    struct slice type; /* media type of the body */
    struct slice body;
};

struct broker_options {
    const char *url;
    const char *consumer; /* this process's name among the consumers of the queue */
    bool publishes;       /* it is opened for publish, and takes nothing */
    int64_t keeps_ms;     /* publishes: connect must refuse a broker that recognises a repetition
                             for a shorter time; 0: repetitions are not relied on */
};

struct broker_module {
    unsigned interface; /* BROKER_INTERFACE */
    const char *name;   /* "redis" */
    /* The ids of messages outlive a connection. Otherwise every message comes again under a new
     * id. */
    bool ids_last;
    int64_t extend_every_ms_max; /* extend must be called at least this often; 0: never */
    /* How long the broker recognises a repeated publication unless its administrator changed it;
     * 0: it does not. */
    int64_t keeps_ms_usual;

    /* Whether the URL is valid; connects to nothing. E_INVALID. */
    enum status (*check)(const char *url, struct err *err) MUST_CHECK;
    /* E_INVALID, E_NOMEM. Connects to nothing. */
    enum status (*open)(const struct broker_options *options, struct broker_source **ret_source,
        struct err *err) MUST_CHECK;
    /* Takes some seconds at most, like all functions below. E_UNAVAILABLE: try again later. */
    enum status (*connect)(struct broker_source *source, struct err *err) MUST_CHECK;
    /* Up to max messages; none if wait_ms is over or wake_fd became readable. E_UNAVAILABLE, here
     * and below: the connection is gone; the command may have been executed. */
    enum status (*take)(struct broker_source *source, size_t max, int64_t wait_ms, int wake_fd,
        const struct broker_message **ret_messages, size_t *ret_count, struct err *err) MUST_CHECK;
    enum status (*acknowledge)(struct broker_source *source, const struct slice *ids, size_t count,
        struct err *err) MUST_CHECK;
    /* Keep the message aside with the reason, then acknowledge it. If that fails in between, the
     * message comes again, and may be kept aside twice. */
    enum status (*park)(struct broker_source *source, const struct broker_message *message,
        const char *reason, struct err *err) MUST_CHECK;
    /* Keep the taken messages assigned to this process. NULL: they stay by themselves. */
    enum status (*extend)(struct broker_source *source, struct err *err) MUST_CHECK;
    /* Messages that no consumer has taken yet. *ret_lag is unchanged if the broker cannot tell. */
    enum status (*lag)(struct broker_source *source, uint64_t *ret_lag, struct err *err) MUST_CHECK;
    /* Publish, and wait for the broker's confirmation; *ret_ref is the broker's name of the
     * message. E_UNAVAILABLE: it was certainly not stored, try later. E_INVALID, E_LIMIT: it was
     * not stored, and it never will be. E_UNKNOWN: it may have been stored. */
    enum status (*publish)(struct broker_source *source, const struct broker_outgoing *message,
        int64_t timeout_ms, char ret_ref[BROKER_ID_BYTES_MAX], struct err *err) MUST_CHECK;
    /* NULL is fine. */
    void (*close)(struct broker_source *source);
};

/* ---- load.c, of the program ---- */

/* The module for a URL, loaded once and never unloaded. E_INVALID: there is no module for it.
 * E_UNAVAILABLE: its file or a library is missing; the hint names the Debian package. Any
 * thread. */
enum status broker_load(
    const char *url, const struct broker_module **ret_module, struct err *err) MUST_CHECK;

/* One kind of broker, for `once doctor`. */
struct broker_kind {
    const char *name;    /* "redis" */
    const char *schemes; /* "redis rediss …", separated by spaces */
    const char *package; /* the Debian package of the library that the module needs */
    const char *headers; /* the one that it is built with */
};
/* By number; NULL past the last. */
const struct broker_kind *broker_kind(size_t number);

#endif
