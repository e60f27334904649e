/*
 * fuzz_mcp: the MCP proxy on any lines of both sides, and any answers of the ledger.
 *
 * The input is lines. The first byte of each says what it is: from the client, from the server, an
 * answer of the ledger, time that passes, bytes that one side takes, a request that the server will
 * not answer, the end of the server. The
 * proxy's invariants hold after each of them; everything that it writes is whole lines; whatever
 * happened, every call can be settled when the server is gone.
 */
#include <stdint.h>
#include <stdio.h>

#include "base/check.h"
#include "mcp/proxy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { JOBS_MAX = 4096 };

struct world {
    struct mcp_proxy proxy;
    struct mcp_job *jobs[JOBS_MAX];
    size_t job_count;
    int64_t now_ms;
};

/* The names that the proxy asks the library for: it is not linked here. */
const char *once_decision_name(enum once_decision decision)
{
    return decision == ONCE_FIRST_SEEN ? "first_seen" : "another";
}

static void submit(void *context, struct mcp_job *job)
{
    struct world *world = context;
    ASSERT(world->job_count < JOBS_MAX);
    ASSERT(job->is_busy);
    world->jobs[world->job_count++] = job;
}

static void say(void *context, const char *text)
{
    (void)context;
    ASSERT(text[0] != '\0');
}

/* The oldest job is answered by the byte. */
static void answer(struct world *world, char byte)
{
    static const enum once_decision begun[] = {ONCE_FIRST_SEEN, ONCE_DUPLICATE_REPLAYED,
        ONCE_IN_PROGRESS, ONCE_CONFLICT_REJECTED, ONCE_HELD_UNKNOWN};
    if (world->job_count == 0) {
        return;
    }
    struct mcp_job *job = world->jobs[0];
    world->job_count--;
    memmove(world->jobs, world->jobs + 1, world->job_count * sizeof world->jobs[0]);
    unsigned way = (unsigned char)byte % 8;
    job->result = way == 7 ? ONCE_E_UNAVAILABLE : way == 6 ? ONCE_E_LIMIT : ONCE_OK;
    job->decision = job->kind == MCP_BEGIN     ? begun[way % 5]
                    : way == 5                 ? ONCE_STALE_FENCE
                    : job->kind == MCP_SEAL    ? ONCE_SEALED
                    : job->kind == MCP_RELEASE ? ONCE_RELEASED_NOW
                    : job->kind == MCP_UNKNOWN ? ONCE_MARKED_UNKNOWN
                                               : ONCE_RENEWED;
    job->fence = 1 + way;
    job->has_moved = way % 2 == 0;
    job->is_kept = way % 2 == 0;
    job->status = ONCE_EXECUTED;
    (void)snprintf(job->operation_id, sizeof job->operation_id, "op_%u", way % 3);
    (void)snprintf(job->error, sizeof job->error, "why");
    buf_str(&job->outcome, "{\"content\":[]}");
    proxy_done(&world->proxy, job, world->now_ms);
}

/* What waits for a side is whole lines, and is taken in part. */
static void take(struct mcp_queue *queue, char byte)
{
    struct slice front = queue_front(queue);
    ASSERT(front.len == 0 || front.data[front.len - 1] == '\n');
    size_t some = (unsigned char)byte;
    queue_take(queue, some < front.len ? some : front.len);
}

static void step(struct world *world, struct slice line)
{
    char byte = line.len > 1 ? line.data[1] : '\0';
    struct slice rest = slice_of(line.data + 1, line.len - 1);
    switch (line.data[0]) {
    case 'c': proxy_client_line(&world->proxy, rest, world->now_ms); break;
    case 's': proxy_server_line(&world->proxy, rest, world->now_ms); break;
    case 'j': answer(world, byte); break;
    case 't':
        world->now_ms += (int64_t)(unsigned char)byte * (unsigned char)byte * 20;
        proxy_tick(&world->proxy, world->now_ms);
        break;
    case 'w': take(&world->proxy.to_server, byte); break;
    case 'r': take(&world->proxy.to_client, byte); break;
    case 'l': proxy_client_too_long(&world->proxy); break;
    case 'u': /* an id; one that begins with 0 was not sent */
        if (proxy_may_send(&world->proxy, rest, world->now_ms)) {
            proxy_server_lost(&world->proxy, rest, byte != '0', "why", world->now_ms);
            ASSERT(proxy_awaited(&world->proxy, rest) == MCP_AWAITED_NOTHING);
        }
        break;
    case 'x': proxy_server_gone(&world->proxy, world->now_ms); break;
    default: break;
    }
    if (queue_front(&world->proxy.to_server).len == 0 && !world->proxy.is_server_gone) {
        proxy_send(&world->proxy, world->now_ms);
    }
    ASSERT(proxy_due(&world->proxy) >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct config_mcp_tool tools[] = {
        {.name = "p*s", .key = CONFIG_MCP_PASS, .timeout_ms = 1000, .wait_ms = 1000},
        {.name = "r",
            .key = CONFIG_MCP_REQUIRE,
            .timeout_ms = 1000,
            .wait_ms = 0,
            .retry_errors = true,
            .redact = {"/a"},
            .redact_count = 1}};
    static const struct config_mcp policy = {.tools = tools, .tool_count = 2};
    static struct world world;
    struct mcp_proxy_options options = {.mem = &mem_libc,
        .policy = &policy,
        .prefix = "",
        .resolve = "",
        .submit = submit,
        .say = say,
        .context = &world};
    const char *at = (const char *)data;
    const char *end = at + size;
    world = (struct world){.now_ms = 1000};
    proxy_init(&world.proxy, &options);
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline == NULL ? end : newline;
        if (stop > at) {
            step(&world, slice_of(at, (size_t)(stop - at)));
        }
        at = newline == NULL ? end : newline + 1;
    }
    proxy_server_gone(&world.proxy, world.now_ms);
    for (size_t i = 0; i < JOBS_MAX && !proxy_is_settled(&world.proxy); i++) {
        world.now_ms += MCP_SETTLE_MS; /* also for what is tried again later */
        proxy_tick(&world.proxy, world.now_ms);
        answer(&world, 5);
    }
    ASSERT(proxy_is_settled(&world.proxy));
    proxy_release(&world.proxy);
    return 0;
}
