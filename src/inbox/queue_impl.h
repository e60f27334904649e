/*
 * queue_impl: a running queue. queue.c has the life of all queues; consume.c the thread of one;
 * waiting.c its messages that are not acknowledged.
 */
#ifndef ONCE_INBOX_QUEUE_IMPL_H
#define ONCE_INBOX_QUEUE_IMPL_H

#include "broker/broker.h"
#include "inbox/enqueue.h"
#include "inbox/queue.h"

enum {
    QUEUE_HINTS_MAX = 512,       /* about changed deliveries, between two cycles */
    QUEUE_CHECK_MS_MIN = 1000,   /* between two reads of a message's delivery, at first … */
    QUEUE_CHECK_MS_MAX = 15000,  /* … and at most: other processes or a person may settle it */
    QUEUE_WAIT_MS_MAX = 1000,    /* longest wait for messages */
    QUEUE_BACKOFF_MS_MIN = 100,  /* between two attempts to connect, at first … */
    QUEUE_BACKOFF_MS_MAX = 5000, /* … and at most */
    QUEUE_FIGURES_MS = 5000,     /* between two queries for the lag */
    QUEUE_BATCH_BYTES_MAX = 512 << 20, /* of the arena of one batch */
};

/* What happens to a message. */
enum queue_verdict {
    QUEUE_WAITS,   /* wait until its delivery is settled */
    QUEUE_IS_OVER, /* acknowledge it */
    QUEUE_IS_HELD, /* the same, after an entry that says that only a person can settle its
                      delivery */
    QUEUE_IS_PARKED,
};

/* A message that is not acknowledged yet. */
struct queue_waiting {
    char id[BROKER_ID_BYTES_MAX];
    size_t id_bytes;
    struct op_id operation_id; /* its delivery */
    enum record_status status; /* of the delivery, when it was last read */
    enum queue_verdict verdict;
    uint64_t check_ns; /* when to read its delivery again, by clock_nanos */
    int64_t check_ms;  /* the pause before that */
};

struct queue_hint {
    struct op_id operation_id;
    enum record_status status;
};

struct consumer {
    struct consumer *next;
    struct queues *all;
    char *name;
    char *from;
    const struct broker_module *module;
    struct broker_source *source;
    pthread_t thread;
    bool has_thread;
    int wake_fd;
    atomic_bool is_draining;
    atomic_bool is_stopping;
    atomic_bool is_ended;

    /* The thread's own. */
    bool is_connected;
    int64_t backoff_ms;
    uint64_t connect_ns; /* do not connect before this */
    uint64_t extend_ns;
    uint64_t figures_ns;
    struct queue_waiting *waiting;
    size_t waiting_count;
    size_t waiting_room;
    bool is_reported; /* the log has reported that it cannot connect */

    pthread_mutex_t lock; /* guards hints */
    struct queue_hint hints[QUEUE_HINTS_MAX];
    size_t hint_count;
    bool has_lost_hints; /* some hints were lost: read every delivery */

    /* Figures. */
    atomic_ullong received, acknowledged, duplicates, parked, reconnects, lag, waits, settled;
    atomic_bool connected;
};

struct queues {
    struct inbox_door *inbox;
    unsigned slot;
    char consumer[64];
    bool is_started;
    pthread_mutex_t lock;        /* guards list */
    struct consumer *list;       /* running and ending */
    pthread_mutex_t report_lock; /* only one thread at a time may use the slot */
};

/* The thread's function. */
void *queue_run(void *context);

/* ---- waiting.c ---- */

/* NULL: absent. */
struct queue_waiting *waiting_find(struct consumer *queue, struct slice id);
/* E_NOMEM. */
enum status waiting_add(struct consumer *queue, struct slice id, const struct record *record,
    enum queue_verdict verdict) MUST_CHECK;
/* What a delivery with this status means for its message. */
enum queue_verdict waiting_verdict(enum record_status status, unsigned on_unknown);
/* Apply the hints about deliveries since the last call. */
void waiting_take_hints(struct consumer *queue, unsigned on_unknown);
/* Read the deliveries that had no hint for a while. */
void waiting_check(struct consumer *queue, unsigned on_unknown);
/* Write evidence where necessary, and acknowledge every message that is over. E_UNAVAILABLE: the
 * connection is gone. */
enum status waiting_acknowledge(
    struct consumer *queue, const struct inbox_source *source, struct err *err) MUST_CHECK;
/* Milliseconds until a delivery must be read, at most max_ms. */
int64_t waiting_pause_ms(const struct consumer *queue, int64_t max_ms);

#endif
