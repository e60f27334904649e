/*
 * queue_impl: one queue that runs. queue.c is the life of all of them; consume.c what the thread of
 * one does; waiting.c the messages that it has not acknowledged.
 */
#ifndef ONCE_INBOX_QUEUE_IMPL_H
#define ONCE_INBOX_QUEUE_IMPL_H

#include "broker/broker.h"
#include "inbox/enqueue.h"
#include "inbox/queue.h"

enum {
    QUEUE_HINTS_MAX = 512,       /* of deliveries that changed, between two rounds */
    QUEUE_LOOK_MS_MIN = 1000,    /* between two looks at the delivery of a message, at first … */
    QUEUE_LOOK_MS_MAX = 15000,   /* … and in the end: others may settle it, or a person */
    QUEUE_ROUND_MS_MAX = 1000,   /* of one wait for messages */
    QUEUE_BACKOFF_MS_MIN = 100,  /* between two tries to connect, at first … */
    QUEUE_BACKOFF_MS_MAX = 5000, /* … and in the end */
    QUEUE_FIGURES_MS = 5000,     /* between two questions for the lag */
    QUEUE_ROUND_BYTES_MAX = 512 << 20, /* of the arena of one round */
};

/* What becomes of a message. */
enum queue_verdict {
    QUEUE_WAITS,   /* until its delivery is settled */
    QUEUE_IS_OVER, /* acknowledge it */
    QUEUE_IS_HELD, /* likewise, and say in the evidence that only a person can move its delivery */
    QUEUE_IS_PARKED,
};

/* A message that is not acknowledged. */
struct queue_waiting {
    char id[BROKER_ID_BYTES_MAX];
    size_t id_bytes;
    struct op_id operation_id; /* its delivery */
    enum record_status status; /* of that, when it was last seen */
    enum queue_verdict verdict;
    uint64_t look_ns; /* when to look at its delivery, by clock_nanos */
    int64_t look_ms;  /* the pause before that */
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
    uint64_t connect_ns; /* not before this */
    uint64_t extend_ns;
    uint64_t figures_ns;
    struct queue_waiting *waiting;
    size_t waiting_count;
    size_t waiting_room;
    bool was_told; /* that it cannot connect: once, not every time */

    pthread_mutex_t lock; /* over hints */
    struct queue_hint hints[QUEUE_HINTS_MAX];
    size_t hint_count;
    bool has_lost_hints; /* there were more: look at everything */

    /* Figures. */
    atomic_ullong received, acknowledged, duplicates, parked, reconnects, lag, waits, settled;
    atomic_bool connected;
};

struct queues {
    struct inbox_door *inbox;
    unsigned slot;
    char consumer[64];
    bool is_started;
    pthread_mutex_t lock;        /* over list */
    struct consumer *list;       /* those that run, and those that end */
    pthread_mutex_t report_lock; /* one thread at a time has the slot */
};

/* The thread. */
void *queue_run(void *context);

/* ---- waiting.c ---- */

/* NULL: it is not there. */
struct queue_waiting *waiting_find(struct consumer *queue, struct slice id);
/* E_NOMEM. */
enum status waiting_add(struct consumer *queue, struct slice id, const struct record *record,
    enum queue_verdict verdict) MUST_CHECK;
/* What a delivery of this status means for its message. */
enum queue_verdict waiting_verdict(enum record_status status, unsigned on_unknown);
/* Take what others said of deliveries since the last time. */
void waiting_take_hints(struct consumer *queue, unsigned on_unknown);
/* Look at deliveries that nobody said anything of for a while. */
void waiting_look(struct consumer *queue, unsigned on_unknown);
/* Leave evidence where it is due, and acknowledge all that is over. E_UNAVAILABLE: the connection
 * is gone. */
enum status waiting_acknowledge(
    struct consumer *queue, const struct inbox_source *source, struct err *err) MUST_CHECK;
/* Milliseconds until there is something to look at, at most max_ms. */
int64_t waiting_pause_ms(const struct consumer *queue, int64_t max_ms);

#endif
