/*
 * bench_canon: reading, canonicalising and hashing a command envelope of 1.1 KB, as a ratio to what
 * jansson takes to parse it; and the key of the command, which is derived from a part of it. All
 * run in turn in one process, in short rounds and by the time of the processor, so that other work
 * on the machine disturbs them alike; each figure is the median. jansson's json_decref is not
 * counted, although our arena_clear is.
 *
 * bench_canon [rounds=N]
 */
#include <time.h>

#include "base/buf.h"
#include "base/check.h"
#include "bench.h"
#include "canon/digest.h"
#include "canon/jcs.h"
#include "canon/json.h"
#include "canon/key.h"
#include "peer_jansson.h"

enum {
    ROUNDS = 501, /* many short ones: what disturbs a few does not move the median */
    BATCHES = 8,  /* timed pieces a round */
    BATCH = 16,   /* documents alive at once, so that freeing them can stay out of the time */
    BAR = 8,      /* how many times as fast we promise to be */
};

/* Members in the order people write them, not sorted; some text, some numbers, some nesting. */
static const char envelope[] =
    "{\n"
    "  \"command_id\": \"cmd_0192f3a1-7c44-7b7e-9d55-3f1e6a2b9c10\",\n"
    "  \"tenant_id\": \"acme-br\",\n"
    "  \"actor_id\": \"user:5511988887777\",\n"
    "  \"intent\": {\n"
    "    \"entity\": \"order\",\n"
    "    \"action\": \"refund\",\n"
    "    \"target\": {\"order_id\": \"204-8831\", \"line_ids\": [1, 2, 7]}\n"
    "  },\n"
    "  \"args\": {\n"
    "    \"amount\": 1990,\n"
    "    \"currency\": \"BRL\",\n"
    "    \"rate\": 5.4321,\n"
    "    \"reason\": \"customer said \\\"never arrived\\\" and asked for the money back\",\n"
    "    \"notify\": true,\n"
    "    \"customer\": {\"name\": \"João Conceição\", \"phone\": \"+5511988887777\", "
    "\"vip\": false},\n"
    "    \"items\": [\n"
    "      {\"sku\": \"SKU-1001\", \"quantity\": 1, \"price\": 995.00},\n"
    "      {\"sku\": \"SKU-2042\", \"quantity\": 2, \"price\": 497.50}\n"
    "    ]\n"
    "  },\n"
    "  \"command_kind\": \"mutation\",\n"
    "  \"source\": {\"type\": \"whatsapp\", "
    "\"id\": \"wamid.HBgNNTUxMTk4ODg4Nzc3NxUCABIYFjNFQjBD\", \"version\": 3},\n"
    "  \"trace\": {\n"
    "    \"correlation_id\": \"corr_789ab31f-55e0-4c0a-8a53-0f3e0a8f2f61\",\n"
    "    \"conversation_id\": \"conv_12345\",\n"
    "    \"message_ids\": [\"wamid.HBgNNTUxMTk4ODg4Nzc3NxUCABIYFjNFQjBD\"],\n"
    "    \"traceparent\": \"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\"\n"
    "  },\n"
    "  \"created_at\": \"2026-02-22T00:00:00Z\",\n"
    "  \"extensions\": {}\n"
    "}\n";

struct ours {
    struct arena arena;
    struct buf out;
    struct digest digest;
};

static uint64_t cpu_nanos(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* From the text to the key of its command. */
static double key_ns(struct ours *ours)
{
    uint64_t start = cpu_nanos();
    for (int i = 0; i < BATCH * BATCHES; i++) {
        const struct json_value *value;
        arena_clear(&ours->arena);
        struct slice text = slice_of(envelope, sizeof envelope - 1);
        ASSERT(json_read(text, &ours->arena, &value, NULL) == OK);
        ASSERT(key_derive(KEY_COMMAND, value, &ours->out, &ours->digest, NULL) == OK);
    }
    return (double)(cpu_nanos() - start) / (BATCH * BATCHES);
}

static double ours_ns(struct ours *ours)
{
    uint64_t start = cpu_nanos();
    for (int i = 0; i < BATCH * BATCHES; i++) {
        const struct json_value *value;
        arena_clear(&ours->arena);
        buf_clear(&ours->out);
        struct slice text = slice_of(envelope, sizeof envelope - 1);
        ASSERT(json_read(text, &ours->arena, &value, NULL) == OK);
        ASSERT(jcs_write(value, &ours->out, NULL, NULL) == OK);
        digest_sha256(ours->out.data, ours->out.len, &ours->digest);
    }
    return (double)(cpu_nanos() - start) / (BATCH * BATCHES);
}

static double jansson_ns(void)
{
    uint64_t total = 0;
    for (int b = 0; b < BATCHES; b++) {
        void *roots[BATCH];
        uint64_t start = cpu_nanos();
        for (int i = 0; i < BATCH; i++) {
            roots[i] = peer_jansson_parse(envelope, sizeof envelope - 1);
        }
        total += cpu_nanos() - start;
        for (int i = 0; i < BATCH; i++) {
            ASSERT(roots[i] != NULL);
            peer_jansson_free(roots[i]);
        }
    }
    return (double)total / (BATCH * BATCHES);
}

int main(int argc, char **argv)
{
    struct ours ours;
    static double mine[BENCH_ROUNDS_MAX], theirs[BENCH_ROUNDS_MAX], ratios[BENCH_ROUNDS_MAX];
    static double keys[BENCH_ROUNDS_MAX];
    size_t rounds = bench_rounds(argc, argv, ROUNDS);
    arena_init(&ours.arena, &mem_libc, 1 << 20);
    buf_init(&ours.out, &mem_libc, 1 << 20);
    (void)ours_ns(&ours);
    (void)jansson_ns();
    for (size_t i = 0; i < rounds; i++) {
        mine[i] = ours_ns(&ours);
        theirs[i] = jansson_ns();
        keys[i] = key_ns(&ours);
        ratios[i] = theirs[i] / mine[i];
    }
    bench_report(&(struct bench_row){.id = "canon",
        .what = "parse, canonicalise and SHA-256 of a 1.1 KB envelope",
        .figure = bench_median(mine, rounds),
        .unit = "ns",
        .compared = "jansson, parse alone",
        .compared_figure = bench_median(theirs, rounds),
        .ratios = ratios,
        .rounds = rounds,
        .better = BENCH_AT_LEAST,
        .bar = BAR});
    bench_report(&(struct bench_row){.id = "B13-key",
        .what = "read a 1.1 KB envelope and derive its command's key",
        .figure = bench_median(keys, rounds),
        .unit = "ns",
        .better = BENCH_INFO});
    arena_release(&ours.arena);
    buf_release(&ours.out);
    return 0;
}
