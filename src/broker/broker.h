/*
 * broker: queues of other people's servers, behind one small table of functions. Each kind of
 * broker is a module, a shared object that is loaded when a URL names it: the program itself links
 * none of their libraries.
 *
 *     check … open → connect → (take → acknowledge | park | extend | lag)* → connect … → close
 *
 * Promises:  a message that was taken and not acknowledged comes again: after a new connection, or
 *            after this process is gone. What is parked is kept by the broker before it is
 *            acknowledged. The URL, which may have a password, is in no error text.
 * Does not:  know what an event or a delivery is, or acknowledge anything by itself.
 * Ownership: a message and its slices are the source's, until the next take or connect.
 * Threads:   a source is used by one thread at a time; take returns early when wake_fd is readable.
 */
#ifndef ONCE_BROKER_BROKER_H
#define ONCE_BROKER_BROKER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"

enum {
    BROKER_INTERFACE = 1,      /* changes with this file: a module of another build is refused */
    BROKER_ID_BYTES_MAX = 128, /* of a message */
    BROKER_TAKE_MAX = 128,     /* messages at once: they are remembered in one commit */
};

struct broker_source; /* the module's */

struct broker_field {
    struct slice name;
    struct slice value;
};

/* One message as the broker has it. */
struct broker_message {
    struct slice id; /* by which it is acknowledged */
    bool is_again;   /* a consumer may have had it before */
    bool is_gone;    /* the broker has its id and no longer its bytes */
    bool is_binary;  /* the attributes of a CloudEvent are in "ce-" fields; the body is its data */
    struct slice type; /* media type of the body; may be empty */
    struct slice body;
    const struct broker_field *fields; /* all others, as they came */
    size_t field_count;
};

struct broker_options {
    const char *url;
    const char *consumer; /* the name of this process among those that share the queue */
};

struct broker_module {
    unsigned interface; /* BROKER_INTERFACE */
    const char *name;   /* "redis" */
    /* The ids of messages outlive a connection. Where not, every message comes again under a new
     * one. */
    bool ids_last;
    int64_t extend_every_ms_max; /* extend must be called at least this often; 0: never */

    /* Whether the URL is right; connects to nothing. E_INVALID. */
    enum status (*check)(const char *url, struct err *err) MUST_CHECK;
    /* E_INVALID, E_NOMEM. Connects to nothing. */
    enum status (*open)(const struct broker_options *options, struct broker_source **ret_source,
        struct err *err) MUST_CHECK;
    /* Bounded by some seconds, as all below. E_UNAVAILABLE: try again later. */
    enum status (*connect)(struct broker_source *source, struct err *err) MUST_CHECK;
    /* Up to max messages; none when wait_ms is over or wake_fd became readable. E_UNAVAILABLE, here
     * and below: the connection is gone; what was asked may have happened. */
    enum status (*take)(struct broker_source *source, size_t max, int64_t wait_ms, int wake_fd,
        const struct broker_message **ret_messages, size_t *ret_count, struct err *err) MUST_CHECK;
    enum status (*acknowledge)(struct broker_source *source, const struct slice *ids, size_t count,
        struct err *err) MUST_CHECK;
    /* Keep the message apart with the reason, and acknowledge it; both or neither. */
    enum status (*park)(struct broker_source *source, const struct broker_message *message,
        const char *reason, struct err *err) MUST_CHECK;
    /* What this process has taken stays its own. NULL: it does by itself. */
    enum status (*extend)(struct broker_source *source, struct err *err) MUST_CHECK;
    /* Messages that nobody has taken yet. *ret_lag stays as it is where the broker cannot tell. */
    enum status (*lag)(struct broker_source *source, uint64_t *ret_lag, struct err *err) MUST_CHECK;
    /* NULL is fine. */
    void (*close)(struct broker_source *source);
};

/* ---- load.c, of the program ---- */

/* The module for a URL, loaded once and never unloaded. E_INVALID: no module is for it.
 * E_UNAVAILABLE: its file or a library is missing; the hint names the Debian package. Any thread.
 */
enum status broker_load(
    const char *url, const struct broker_module **ret_module, struct err *err) MUST_CHECK;

/* One kind of broker, for `once doctor`. */
struct broker_kind {
    const char *name;    /* "redis" */
    const char *schemes; /* "redis rediss …", with a space between two */
    const char *package; /* Debian's, with the library that the module needs */
};
/* By number; NULL past the last. */
const struct broker_kind *broker_kind(size_t number);

#endif
