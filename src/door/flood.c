#include "door/flood.h"

#include <pthread.h>

#include "base/check.h"

enum {
    SHARDS = 64,     /* each with its own lock, so that loops rarely contend */
    WAYS = 16,       /* keys that compete for one place */
    SHARD_SETS = 64, /* sets of a shard */
    SHARD_KEYS = SHARD_SETS * WAYS,
    SHARD_REPORTS_MAX = 2 * SHARD_KEYS, /* refused keys between two drains, even if forgotten */
};

static_assert(SHARDS * SHARD_KEYS == FLOOD_KEYS_MAX, "the table has the size it promises");

/* Refusals of one key since the last drain. The report outlives its bucket if that is forgotten. */
struct report {
    struct report *next;
    struct bucket *bucket; /* the key's bucket; NULL: forgotten */
    uint64_t refused;      /* > 0 */
    struct record_key key; /* its slices point past this struct */
};

/*
 * F1  the first `filled` buckets of a set are in use: hash, tenant, tokens and last are set; the
 *     same hash is in one bucket only.
 * F2  report is NULL or in the shard's list, and then report->bucket is this one.
 */
struct bucket {
    struct digest hash;    /* of the record's key */
    uint64_t tenant;       /* hash of the tenant's name, to compute shares */
    double tokens;         /* duplicates that may come now; below 0 after a burst */
    uint64_t last_nanos;   /* when tokens was computed, and when the key last arrived */
    struct report *report; /* NULL: nothing refused since the last drain */
};

struct shard {
    pthread_mutex_t lock;
    uint8_t filled[SHARD_SETS]; /* buckets in use of each set. Most keys have no duplicates: their
                                   sets are empty, and nothing more need be fetched */
    struct bucket buckets[SHARD_KEYS];
    struct report *reports; /* waiting for the drain */
    size_t report_count;
    uint64_t used; /* buckets in use */
};

struct flood {
    const struct mem *mem;
    struct shard shards[SHARDS];
};

struct flood *flood_new(const struct mem *mem)
{
    struct flood *flood = mem_zalloc(mem, 1, sizeof *flood);
    if (flood == NULL) {
        return NULL;
    }
    flood->mem = mem;
    for (size_t i = 0; i < SHARDS; i++) {
        (void)pthread_mutex_init(&flood->shards[i].lock, NULL);
    }
    return flood;
}

static void free_reports(const struct mem *mem, struct report *report)
{
    while (report != NULL) {
        struct report *next = report->next;
        mem_free(mem, report);
        report = next;
    }
}

void flood_free(struct flood *flood)
{
    if (flood == NULL) {
        return;
    }
    for (size_t i = 0; i < SHARDS; i++) {
        free_reports(flood->mem, flood->shards[i].reports);
        (void)pthread_mutex_destroy(&flood->shards[i].lock);
    }
    mem_free(flood->mem, flood);
}

/* --- Finding a bucket ------------------------------------------------------------------------- */

static struct shard *shard_of(struct flood *flood, const struct digest *hash)
{
    return &flood->shards[hash->bytes[0] % SHARDS];
}

static size_t set_of(const struct digest *hash)
{
    return hash->bytes[1] % SHARD_SETS;
}

static struct bucket *find(struct shard *shard, const struct digest *hash)
{
    size_t number = set_of(hash);
    struct bucket *set = &shard->buckets[number * WAYS];
    for (size_t i = 0; i < shard->filled[number]; i++) {
        if (digest_equal(&set[i].hash, hash)) {
            return &set[i];
        }
    }
    return NULL;
}

/* FNV-1a. Tenants whose hashes collide share one share; nothing else depends on it. */
static uint64_t hash_tenant(struct slice tenant)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < tenant.len; i++) {
        hash = (hash ^ (unsigned char)tenant.data[i]) * 0x100000001b3;
    }
    return hash;
}

/* In a full set. */
static size_t count_of(const struct bucket *set, uint64_t tenant)
{
    size_t count = 0;
    for (size_t i = 0; i < WAYS; i++) {
        count += set[i].tenant == tenant;
    }
    return count;
}

/* The tenant that gives way in a full set: the one that holds the most of it. If the newcomer holds
 * as much as any other, it gives way itself, so that no tenant exceeds an equal share. */
static uint64_t tenant_that_gives_way(const struct bucket *set, uint64_t newcomer)
{
    uint64_t most = newcomer;
    size_t most_count = count_of(set, newcomer);
    for (size_t i = 0; i < WAYS; i++) {
        size_t count = count_of(set, set[i].tenant);
        /* A tenant with just one more than the newcomer would only swap places with it. */
        if (count > most_count + (most == newcomer)) {
            most = set[i].tenant;
            most_count = count;
        }
    }
    return most_count == 0 ? set[0].tenant : most;
}

/* The bucket to forget in a full set: the quietest of the tenant that gives way. */
static struct bucket *choose(struct bucket *set, uint64_t newcomer)
{
    struct bucket *chosen = NULL;
    uint64_t tenant = tenant_that_gives_way(set, newcomer);
    for (size_t i = 0; i < WAYS; i++) {
        bool is_older = chosen == NULL || set[i].last_nanos < chosen->last_nanos;
        if (set[i].tenant == tenant && is_older) {
            chosen = &set[i];
        }
    }
    ASSERT(chosen != NULL);
    return chosen;
}

/* --- Buckets ---------------------------------------------------------------------------------- */

static double burst_of(struct flood_rate rate)
{
    return rate.burst < 1 ? 1 : rate.burst; /* it must hold a whole token to let one in */
}

static void refill(struct bucket *bucket, struct flood_rate rate, uint64_t now_nanos)
{
    if (now_nanos > bucket->last_nanos) {
        double seconds = (double)(now_nanos - bucket->last_nanos) / 1e9;
        bucket->tokens += seconds * rate.per_second;
        bucket->last_nanos = now_nanos;
    }
    double burst = burst_of(rate);
    bucket->tokens = bucket->tokens > burst ? burst : bucket->tokens;
}

static struct bucket *insert(
    struct shard *shard, const struct record_key *key, struct flood_rate rate, uint64_t now_nanos)
{
    uint64_t tenant = hash_tenant(key->tenant);
    size_t number = set_of(&key->hash);
    struct bucket *set = &shard->buckets[number * WAYS];
    bool is_full = shard->filled[number] == WAYS;
    struct bucket *bucket = is_full ? choose(set, tenant) : &set[shard->filled[number]];
    shard->filled[number] = (uint8_t)(shard->filled[number] + !is_full);
    shard->used += !is_full;
    if (bucket->report != NULL) {
        bucket->report->bucket = NULL; /* its count stays for the drain */
    }
    *bucket = (struct bucket){
        .hash = key->hash, .tenant = tenant, .tokens = burst_of(rate), .last_nanos = now_nanos};
    return bucket;
}

void flood_count(
    struct flood *flood, const struct record_key *key, struct flood_rate rate, uint64_t now_nanos)
{
    if (rate.per_second <= 0) {
        return;
    }
    struct shard *shard = shard_of(flood, &key->hash);
    (void)pthread_mutex_lock(&shard->lock);
    struct bucket *bucket = find(shard, &key->hash);
    if (bucket == NULL) {
        bucket = insert(shard, key, rate, now_nanos);
    }
    refill(bucket, rate, now_nanos);
    /* Duplicates that were let in side by side may overdraw, but by no more than a burst. Otherwise
     * one moment would close a key for minutes. */
    double burst = burst_of(rate);
    bucket->tokens = bucket->tokens - 1 < -burst ? -burst : bucket->tokens - 1;
    (void)pthread_mutex_unlock(&shard->lock);
}

/* --- Reports ---------------------------------------------------------------------------------- */

static struct slice keep(char **at, struct slice text)
{
    struct slice kept = slice_of(*at, text.len);
    if (text.len > 0) {
        memcpy(*at, text.data, text.len);
    }
    *at += text.len;
    return kept;
}

static struct report *report_new(const struct mem *mem, const struct record_key *key)
{
    size_t size = key->tenant.len + key->scope.len + key->principal.len + key->key.len;
    struct report *report = mem_alloc(mem, sizeof *report + size);
    if (report == NULL) {
        return NULL;
    }
    char *at = (char *)(report + 1);
    *report = (struct report){.key.hash = key->hash};
    report->key.tenant = keep(&at, key->tenant);
    report->key.scope = keep(&at, key->scope);
    report->key.principal = keep(&at, key->principal);
    report->key.key = keep(&at, key->key);
    return report;
}

/* Count one refusal. False: there is no room to remember it. Then the duplicate is not refused,
 * because every refusal must be in the evidence. */
static bool count_refused(
    const struct mem *mem, struct shard *shard, struct bucket *bucket, const struct record_key *key)
{
    if (bucket->report == NULL) {
        struct report *report =
            shard->report_count < SHARD_REPORTS_MAX ? report_new(mem, key) : NULL;
        if (report == NULL) {
            return false;
        }
        report->bucket = bucket;
        report->next = shard->reports;
        shard->reports = report;
        shard->report_count++;
        bucket->report = report;
    }
    bucket->report->refused++;
    return true;
}

/* Milliseconds until there is a whole token, rounded up. */
static int64_t after_ms(const struct bucket *bucket, struct flood_rate rate)
{
    double ms = (1 - bucket->tokens) / rate.per_second * 1000;
    return ms >= 3600000 ? 3600000 : (int64_t)ms + 1;
}

bool flood_refuse(struct flood *flood, const struct record_key *key, struct flood_rate rate,
    uint64_t now_nanos, int64_t *ret_after_ms)
{
    if (rate.per_second <= 0) {
        return false;
    }
    bool refused = false;
    struct shard *shard = shard_of(flood, &key->hash);
    (void)pthread_mutex_lock(&shard->lock);
    struct bucket *bucket = find(shard, &key->hash);
    if (bucket != NULL) {
        refill(bucket, rate, now_nanos);
        refused = bucket->tokens < 1 && count_refused(flood->mem, shard, bucket, key);
        if (refused) {
            *ret_after_ms = after_ms(bucket, rate);
        }
    }
    (void)pthread_mutex_unlock(&shard->lock);
    return refused;
}

/* Take a shard's reports; its buckets begin new ones from now on. */
static struct report *take_reports(struct shard *shard)
{
    (void)pthread_mutex_lock(&shard->lock);
    struct report *reports = shard->reports;
    shard->reports = NULL;
    shard->report_count = 0;
    for (struct report *report = reports; report != NULL; report = report->next) {
        if (report->bucket != NULL) {
            ASSERT(report->bucket->report == report); /* F2 */
            report->bucket->report = NULL;
        }
    }
    (void)pthread_mutex_unlock(&shard->lock);
    return reports;
}

void flood_drain(struct flood *flood, flood_visit visit, void *context)
{
    for (size_t i = 0; i < SHARDS; i++) {
        struct report *reports = take_reports(&flood->shards[i]);
        for (const struct report *report = reports; report != NULL; report = report->next) {
            visit(context, &report->key, report->refused);
        }
        free_reports(flood->mem, reports);
    }
}

uint64_t flood_keys(struct flood *flood)
{
    uint64_t used = 0;
    for (size_t i = 0; i < SHARDS; i++) {
        (void)pthread_mutex_lock(&flood->shards[i].lock);
        used += flood->shards[i].used;
        (void)pthread_mutex_unlock(&flood->shards[i].lock);
    }
    return used;
}
