/*
 * floor_redis: what a commit of begins writes to a Redis server, and nothing else.
 *
 * The same keys as a store's, of the same sizes, with one round trip for all begins of a commit; no
 * version is compared by the plain commands, nothing is decided, and every key is new. A failure
 * ends the program. One thread at a time.
 */
#ifndef ONCE_BENCH_FLOOR_REDIS_H
#define ONCE_BENCH_FLOOR_REDIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How much of it: each has what is before it, too. */
enum floor_writes {
    FLOOR_RECORDS = 1, /* a string each */
    FLOOR_EVIDENCE,    /* one item of a stream, the chain, the fences, the counts */
    FLOOR_DUES,        /* a member of one sorted set each */
    FLOOR_KEYS,        /* the same, of one of 65536 */
};

struct floor_redis;

struct floor_redis *floor_redis_open(uint16_t port, enum floor_writes writes, bool by_script);
/* Durable on return, if the server flushes before it answers. */
void floor_redis_commit(struct floor_redis *self, size_t begins);

#endif
