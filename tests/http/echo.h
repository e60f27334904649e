/*
 * echo: what the files of echo_server share: echo_server.c (the server and whole requests) and
 * echo_stream.c (bodies in pieces and streamed answers).
 */
#ifndef ONCE_TESTS_HTTP_ECHO_H
#define ONCE_TESTS_HTTP_ECHO_H

#include <pthread.h>
#include <stdatomic.h>

#include "faulty_mem.h"
#include "http/serve.h"

/* Exchanges that wait for the other thread. */
struct waiting {
    struct waiting *next;
    struct http_exchange *exchange;
    uint64_t due_nanos;
};

struct echo {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct waiting *waiting; /* newest first; under lock */
    bool is_over;            /* under lock */
    pthread_t thread;
    struct faulty memory; /* of the server */
    atomic_uint_fast64_t turns;
    atomic_uint_fast64_t ends;   /* loops that said that they end */
    atomic_uint_fast64_t jobs;   /* exchanges that echo_stream.c has */
    atomic_uint_fast64_t cuts;   /* of them, that were cut */
    atomic_uint_fast64_t gones;  /* and whose client went away */
    atomic_uint_fast64_t wholes; /* and whose body was whole */
};

/* Call exchange->resume from another thread, in so many milliseconds. */
void echo_later(struct echo *echo, struct http_exchange *exchange, uint64_t ms);
/* Its body was cut: nobody wakes it any more. */
void echo_forget(struct echo *echo, struct http_exchange *exchange);
/* The number that is the query. */
uint64_t echo_number(const struct http_exchange *exchange);

/* The hook. */
void stream_begin(void *context, struct http_exchange *exchange);
/* False: its path is none of this file's. */
bool stream_handle(struct echo *echo, struct http_exchange *exchange);

#endif
