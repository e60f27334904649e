/*
 * limits: every bound of the core with its name and its reason (P14).
 *
 * A refusal by one of these names it: "key is longer than key_bytes_max (255)".
 */
#ifndef ONCE_BASE_LIMITS_H
#define ONCE_BASE_LIMITS_H

#include <stdint.h>

enum {
    /* Names. 255 is what the idempotency-key draft and its users allow; the others follow it. */
    LIMIT_KEY_BYTES_MAX = 255,
    LIMIT_TENANT_BYTES_MAX = 255,
    LIMIT_SCOPE_BYTES_MAX = 255,
    LIMIT_PRINCIPAL_BYTES_MAX = 255,
    LIMIT_EFFECT_ID_BYTES_MAX = 255,
    LIMIT_SOURCE_BYTES_MAX = 255, /* each of type, id, version */
    LIMIT_REASON_BYTES_MAX = 255,
    LIMIT_TRACE_BYTES_MAX = 2048,  /* canonical JSON of all trace ids of one request */
    LIMIT_DETAIL_BYTES_MAX = 4096, /* a kind's own bytes: names and numbers; payloads are bodies */

    /* Bodies. An outcome past its limit is sealed without its bytes, and replays say so. */
    LIMIT_OUTCOME_BYTES_MAX = 16 << 20,
    LIMIT_OUTCOME_META_BYTES_MAX = 16 << 10, /* allow-listed headers and the like */
    LIMIT_REQUEST_KEPT_BYTES_MAX = 64 << 10, /* the first body, kept to explain conflicts */

    /* JSON. 64 levels is far beyond what an API nests and far below any stack. */
    LIMIT_JSON_DEPTH_MAX = 64,
    LIMIT_JSON_BYTES_MAX = 16 << 20,
    LIMIT_DIFF_BYTES_MAX = 16 << 10,

    /* The engine. */
    LIMIT_BATCH_REQUESTS_MAX = 1024, /* one commit: past this, latency grows and speed does not */
    LIMIT_GROUP_REQUESTS_MAX = 1000, /* of one caller in one commit: POST /v1/fences/batch */
    LIMIT_BATCH_BYTES_MAX = 4 << 20, /* of encoded changes in one commit, except for the bodies of a
                                        single change */
    LIMIT_QUEUE_REQUESTS_MAX = 1 << 16, /* waiting to be collected; more are refused, overloaded */
    LIMIT_QUARANTINED_TENANTS_MAX = 64, /* held by name; if there are more, all tenants are held */
    LIMIT_DISPATCH_GROUP_MAX = 66, /* requests that settle one call: its outcome, the step of its
                                      parent, and 64 effects that it returned */
    LIMIT_WAITERS_MAX = 1 << 16,   /* duplicates parked until the first execution settles */
    LIMIT_REPLAYS_SOON_MAX = 1024, /* answered before their entry is durable: what a crash may lose
                                      of the evidence with `evidence.replays: soon` */
    LIMIT_REPLAYS_SOON_MS = 5,     /* until their flush begins: on a healthy disk it is over within
                                      the 10 ms that are promised */

    /* Durations, in milliseconds. */
    LIMIT_WINDOW_MS_DEFAULT = 86400000, /* 24 h, what all five sources agree on */
    LIMIT_LEASE_MS_DEFAULT = 30000,     /* 30 s */
    LIMIT_WAIT_MS_MAX = 60000,          /* a caller may park this long for a replay */
    LIMIT_CLOCK_JUMP_MS_MAX = 60000,    /* a larger forward step pauses expiry */

    /* Stores that several processes share, in milliseconds. */
    LIMIT_BEAT_MS = 5000,          /* how often a process says that it is alive */
    LIMIT_HOLDER_GONE_MS = 30000,  /* a process that has not said so for this long is gone: six
                                      beats missed */
    LIMIT_PREPARED_MS_MAX = 10000, /* from prepare to commit: less than the time after which a
                                      holder is gone */
    LIMIT_ASK_AGAIN_MS = 150, /* how often a parked call asks again, in case the notice of its key
                                 was lost: 200 ms after a seal it has asked, with two round trips */
    LIMIT_NOTICES_MAX = 1024, /* not yet acted on; past it every parked call asks again */

    /* A store on a database server, in milliseconds unless the name says otherwise. */
    LIMIT_STORE_CONNECT_S = 3,        /* to connect to one host: calls wait meanwhile */
    LIMIT_STORE_LOCK_WAIT_MS = 12000, /* for keys: longer than a stalled process holds them */
    LIMIT_STORE_STATEMENT_MS = 20000, /* one statement on the server, waiting included */
    LIMIT_STORE_ANSWER_MS = 25000,    /* without one the connection is given up */
    LIMIT_STORE_FATE_MS = 10000,      /* to find out whether a commit happened whose answer was
                                         lost */
    LIMIT_SETTLED_MAX =
        16, /* commits whose fate a store remembers: more than there are batches under way */
    LIMIT_STORE_BACKOFF_MS_MAX = 2000, /* between two attempts to connect */
};

/* Fences skipped after a fence that was presented from a lost future: more than were granted
 * since. */
#define LIMIT_QUARANTINE_FENCES UINT64_C(1048576)
/* How far ahead of ours a lost fence may be: years of grants, and a fraction of all fences. */
#define LIMIT_LOST_FENCES_MAX (UINT64_C(1) << 40)

#define LIMIT_WINDOW_MS_MAX INT64_C(315360000000) /* ten years; beyond is a typing error */
/* The last moment that has a text form (RFC 3339); its sums with any span are far from overflow. */
#define LIMIT_TIME_MS_MAX  INT64_C(253402300799999)
#define LIMIT_LEASE_MS_MAX INT64_C(604800000) /* a week: the longest batch job we have heard of */
#define LIMIT_LEASE_MS_MIN INT64_C(10)        /* shorter leases are over before they are known */

#endif
