#include "floor_redis.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "bench.h"
#include "canon/digest.h"

enum {
    BEGINS_MAX = 1024,
    WORDS_MAX = 2 * BEGINS_MAX + 16,
    LEASE_MS = 30000,
    TEXT_BYTES_MAX = 32,
    NAME_BYTES_MAX = 32,
    KEY_BYTES_MAX = NAME_BYTES_MAX + DIGEST_BYTES + 8,
    RECORD_BYTES = 454, /* of one begin of begin.lua, as STRLEN reports it */
    ENTRY_BYTES = 535,  /* the same, of one entry in an item of several */
};

/* One command, or the arguments of the script. */
struct words {
    const char *bytes[WORDS_MAX];
    size_t lens[WORDS_MAX];
    int count;
};

struct floor_redis {
    redisContext *context;
    char name[NAME_BYTES_MAX]; /* "{floor-N}:", in front of every key */
    enum floor_writes writes;
    bool by_script;
    char sha1[41];
    struct words words;
    size_t answers; /* that are to come */
    char keys[BEGINS_MAX][KEY_BYTES_MAX];
    size_t key_bytes;
    char key[KEY_BYTES_MAX]; /* of one command */
    uint64_t seed;           /* of this run, its beginning in ms: every key is new */
    uint64_t begun;          /* begins so far */
    uint64_t commits;
    char record[RECORD_BYTES];
    char entries[BEGINS_MAX * ENTRY_BYTES];
};

/* Compares what a commit of new keys has to compare, and writes all of it. */
static const char script[] =
    "local name, n = KEYS[1], tonumber(ARGV[1])\n"
    "local time, commits, position = unpack(ARGV, 2, 4)\n"
    "if redis.call('HGET', name .. 'chain', 'commits') ~= commits then return 0 end\n"
    "if redis.call('EXISTS', unpack(ARGV, 7, 6 + n)) > 0 then return 0 end\n"
    "local sets, dues = {}, {}\n"
    "for i = 1, n do\n"
    "    sets[2 * i - 1], sets[2 * i] = ARGV[6 + i], ARGV[6 + n + i]\n"
    "    dues[2 * i - 1], dues[2 * i] = time, string.sub(ARGV[6 + i], -32)\n"
    "end\n"
    "redis.call('MSET', unpack(sets))\n"
    "redis.call('XADD', name .. 'entries', position .. '-1', 'e', ARGV[6])\n"
    "redis.call('HSET', name .. 'chain', 'commits', ARGV[5])\n"
    "redis.call('INCRBY', name .. 'fence', n)\n"
    "redis.call('HINCRBY', name .. 'counts', '1:1', n)\n"
    "redis.call('ZADD', name .. 'due', unpack(dues))\n"
    "for i = 2, 2 * n, 2 do\n"
    "    redis.call('ZADD', name .. 'keys:' .. string.sub(dues[i], 1, 2), '0', dues[i])\n"
    "end\n"
    "return n\n";

/* ---- commands ------------------------------------------------------------------------------- */

static void word_put(struct words *words, const char *bytes, size_t len)
{
    if (words->count == WORDS_MAX) {
        bench_fail("a command has too many words");
    }
    words->bytes[words->count] = bytes;
    words->lens[words->count++] = len;
}

static void text_put(struct words *words, const char *text)
{
    word_put(words, text, strlen(text));
}

/* Begins a command on a key of the store. */
static struct words *command(struct floor_redis *self, const char *word, const char *key)
{
    self->words.count = 0;
    text_put(&self->words, word);
    if (key != NULL) {
        (void)snprintf(self->key, sizeof self->key, "%s%s", self->name, key);
        text_put(&self->words, self->key);
    }
    return &self->words;
}

/* It goes out with the next wait for an answer. */
static void command_end(struct floor_redis *self)
{
    struct words *words = &self->words;
    if (redisAppendCommandArgv(self->context, words->count, words->bytes, words->lens) !=
        REDIS_OK) {
        bench_fail("redis: %s", self->context->errstr);
    }
    self->answers++;
}

/* The answer to the last command; all before it were good. */
static redisReply *answers_take(struct floor_redis *self)
{
    redisReply *reply = NULL;
    for (; self->answers > 0; self->answers--) {
        void *next = NULL;
        freeReplyObject(reply);
        if (redisGetReply(self->context, &next) != REDIS_OK) {
            bench_fail("redis: %s", self->context->errstr);
        }
        reply = next;
        if (reply->type == REDIS_REPLY_ERROR) {
            bench_fail("redis: %s", reply->str);
        }
    }
    return reply;
}

/* ---- a commit ------------------------------------------------------------------------------- */

static const char *hash_of(const struct floor_redis *self, size_t at)
{
    return self->keys[at] + self->key_bytes - DIGEST_BYTES;
}

static void keys_make(struct floor_redis *self, size_t begins)
{
    for (size_t i = 0; i < begins; i++) {
        struct digest digest;
        uint64_t of[2] = {self->seed, ++self->begun};
        digest_sha256(of, sizeof of, &digest);
        int len = snprintf(self->keys[i], sizeof self->keys[i], "%sr:", self->name);
        memcpy(self->keys[i] + len, digest.bytes, DIGEST_BYTES);
        self->key_bytes = (size_t)len + DIGEST_BYTES;
    }
}

static void records_put(struct floor_redis *self, size_t begins)
{
    struct words *words = command(self, "MSET", NULL);
    for (size_t i = 0; i < begins; i++) {
        word_put(words, self->keys[i], self->key_bytes);
        word_put(words, self->record, RECORD_BYTES);
    }
    command_end(self);
}

static void evidence_put(struct floor_redis *self, size_t begins, const char *count)
{
    char id[TEXT_BYTES_MAX];
    struct words *words = command(self, "XADD", "entries");
    (void)snprintf(id, sizeof id, "%llu-1", (unsigned long long)self->begun);
    text_put(words, id);
    text_put(words, "e");
    word_put(words, self->entries, begins * ENTRY_BYTES);
    command_end(self);
    words = command(self, "HSET", "chain");
    text_put(words, "commits");
    text_put(words, id);
    command_end(self);
    text_put(command(self, "INCRBY", "fence"), count);
    command_end(self);
    words = command(self, "HINCRBY", "counts");
    text_put(words, "1:1");
    text_put(words, count);
    command_end(self);
}

static void dues_put(struct floor_redis *self, size_t begins, const char *time)
{
    struct words *words = command(self, "ZADD", "due");
    for (size_t i = 0; i < begins; i++) {
        text_put(words, time);
        word_put(words, hash_of(self, i), DIGEST_BYTES);
    }
    command_end(self);
}

static void parts_put(struct floor_redis *self, size_t begins)
{
    for (size_t i = 0; i < begins; i++) {
        struct words *words = command(self, "ZADD", "keys:");
        memcpy(self->key + words->lens[1], hash_of(self, i), 2);
        words->lens[1] += 2;
        text_put(words, "0");
        word_put(words, hash_of(self, i), DIGEST_BYTES);
        command_end(self);
    }
}

/* All or nothing, as a commit has to be. */
static void commit_by_commands(
    struct floor_redis *self, size_t begins, const char *count, const char *time)
{
    (void)command(self, "MULTI", NULL);
    command_end(self);
    records_put(self, begins);
    if (self->writes >= FLOOR_EVIDENCE) {
        evidence_put(self, begins, count);
    }
    if (self->writes >= FLOOR_DUES) {
        dues_put(self, begins, time);
    }
    if (self->writes >= FLOOR_KEYS) {
        parts_put(self, begins);
    }
    (void)command(self, "EXEC", NULL);
    command_end(self);
}

static void commit_by_script(
    struct floor_redis *self, size_t begins, const char *count, const char *time)
{
    char before[TEXT_BYTES_MAX], after[TEXT_BYTES_MAX], position[TEXT_BYTES_MAX];
    struct words *words = command(self, "EVALSHA", NULL);
    (void)snprintf(before, sizeof before, "%llu", (unsigned long long)self->commits++);
    (void)snprintf(after, sizeof after, "%llu", (unsigned long long)self->commits);
    (void)snprintf(position, sizeof position, "%llu", (unsigned long long)self->begun);
    text_put(words, self->sha1);
    text_put(words, "1");
    text_put(words, self->name);
    text_put(words, count);
    text_put(words, time);
    text_put(words, before);
    text_put(words, position);
    text_put(words, after);
    word_put(words, self->entries, begins * ENTRY_BYTES);
    for (size_t i = 0; i < begins; i++) {
        word_put(words, self->keys[i], self->key_bytes);
    }
    for (size_t i = 0; i < begins; i++) {
        word_put(words, self->record, RECORD_BYTES);
    }
    command_end(self);
}

void floor_redis_commit(struct floor_redis *self, size_t begins)
{
    char count[TEXT_BYTES_MAX], time[TEXT_BYTES_MAX];
    if (begins > BEGINS_MAX) {
        bench_fail("a commit of more than %d begins", BEGINS_MAX);
    }
    (void)snprintf(count, sizeof count, "%zu", begins);
    (void)snprintf(time, sizeof time, "%llu",
        (unsigned long long)(self->seed + clock_nanos() / 1000000 + LEASE_MS));
    keys_make(self, begins);
    if (self->by_script) {
        commit_by_script(self, begins, count, time);
    } else {
        commit_by_commands(self, begins, count, time);
    }
    redisReply *reply = answers_take(self);
    bool is_whole =
        self->by_script ? reply->integer == (long long)begins : reply->type == REDIS_REPLY_ARRAY;
    if (!is_whole) {
        bench_fail("redis: a commit was refused");
    }
    freeReplyObject(reply);
}

struct floor_redis *floor_redis_open(uint16_t port, enum floor_writes writes, bool by_script)
{
    struct floor_redis *self = mem_zalloc(&mem_libc, 1, sizeof *self);
    struct clock clock;
    if (self == NULL) {
        bench_fail("out of memory");
    }
    self->writes = writes;
    self->by_script = by_script;
    clock_system(&clock);
    self->seed = (uint64_t)clock_read(&clock).wall_ms;
    self->context = redisConnect("127.0.0.1", port);
    if (self->context == NULL || self->context->err != 0) {
        bench_fail("redis: cannot connect to port %u", port);
    }
    (void)snprintf(
        self->name, sizeof self->name, "{floor-%d%s}:", (int)writes, by_script ? "s" : "");
    memset(self->record, '1', sizeof self->record);
    memset(self->entries, '2', sizeof self->entries);
    struct words *words = command(self, "HSET", "chain");
    text_put(words, "commits");
    text_put(words, "0");
    command_end(self);
    words = command(self, "SCRIPT", NULL);
    text_put(words, "LOAD");
    text_put(words, script);
    command_end(self);
    redisReply *reply = answers_take(self);
    (void)snprintf(self->sha1, sizeof self->sha1, "%s", reply->str);
    freeReplyObject(reply);
    return self;
}
