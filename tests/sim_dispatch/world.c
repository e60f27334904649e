/*
 * Time, memory, the processes, the programs that create effects, and what happens next.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/macros.h"
#include "base/rand.h"
#include "canon/json.h"
#include "envelope/envelope.h"
#include "sim_dispatch.h"
#include "store/mem.h"

#define START_MS INT64_C(1700000000000) /* a day in 2023; nothing depends on it */

enum { DRAIN_MS = 600000 };

struct sim *sim;

/* ---- telling ------------------------------------------------------------------------------- */

void sim_say(const char *format, ...)
{
    if (!sim->is_traced) {
        return;
    }
    va_list args;
    va_start(args, format);
    printf("%5" PRIu64 " %+10.3fs  ", sim->step, (double)(sim->now_ms - START_MS) / 1000);
    vprintf(format, args);
    printf("\n");
    va_end(args);
}

void sim_violate(const char *format, ...)
{
    if (sim->violation[0] != '\0') {
        return; /* the first one is the cause */
    }
    va_list args;
    va_start(args, format);
    (void)vsnprintf(sim->violation, sizeof sim->violation, format, args);
    va_end(args);
    sim_say("VIOLATION: %s", sim->violation);
}

void sim_note(enum sometimes what)
{
    if (what < SOMETIMES_COUNT) {
        sim->sometimes[what]++;
        sim->trace = sim->trace * 31 + (uint64_t)what + (uint64_t)sim->now_ms;
    }
}

bool sim_once_in(uint64_t every)
{
    return prng_once_in(&sim->prng, every);
}

uint64_t sim_below(uint64_t count)
{
    return prng_below(&sim->prng, count);
}

/* ---- clocks and random bytes, instead of base/clock.c and base/rand.c ----------------------- */

static struct clock_reading read_clock(void *context)
{
    (void)context;
    return (struct clock_reading){.wall_ms = sim->now_ms, .boot_ms = 1 + sim->now_ms - START_MS};
}

void clock_system(struct clock *ret_clock)
{
    *ret_clock = (struct clock){.read = read_clock, .boot_id = 1};
}

struct clock_reading clock_read(const struct clock *clock)
{
    return clock->read(clock->context);
}

int64_t clock_asleep_ms(const struct clock *clock)
{
    (void)clock;
    return 0;
}

int64_t clock_boot_ms(void)
{
    return 1 + sim->now_ms - START_MS;
}

uint64_t clock_nanos(void)
{
    return (uint64_t)(sim->now_ms - START_MS + 1000) * 1000000;
}

enum status rand_bytes(void *ret_bytes, size_t size, struct err *err)
{
    (void)err;
    prng_fill(&sim->bytes, ret_bytes, size);
    return OK;
}

enum status rand_names(void *ret_bytes, size_t size, struct err *err)
{
    return rand_bytes(ret_bytes, size, err);
}

/* ---- the door, the server and its loop: a process is all three ------------------------------ */

static struct sim_process *process_at(const void *opaque)
{
    union {
        const void *in;
        struct sim_process *out;
    } cast = {.in = opaque};
    return cast.out;
}

struct engine *door_engine(const struct door *door)
{
    return &process_at(door)->engine;
}

struct log *door_log(const struct door *door)
{
    (void)door;
    return NULL;
}

struct metrics *door_metrics(const struct door *door)
{
    return process_at(door)->metrics;
}

void door_report(struct door *door, unsigned slot, const struct door_report *report)
{
    (void)door;
    (void)slot;
    (void)report;
}

struct door_grant door_grant_of(const struct engine_call *granted)
{
    return (struct door_grant){.now_ms = granted->now_ms,
        .boot_ms = granted->boot_before_ms,
        .lease_expires_ms = granted->decision.next.lease_expires_ms};
}

bool door_grant_covers(
    const struct door *door, const struct door_grant *grant, int64_t boot_ms, int64_t call_ms)
{
    (void)door;
    return grant->now_ms + boot_ms - grant->boot_ms < grant->lease_expires_ms - call_ms;
}

struct flood *door_flood(const struct door *door)
{
    return process_at(door)->flood;
}

bool door_admit(
    struct door *door, const struct record_key *key, struct flood_rate rate, int64_t *ret_after_ms)
{
    (void)door;
    (void)key;
    (void)rate;
    (void)ret_after_ms;
    return true;
}

void door_submit(struct door *door, unsigned slot, struct door_call *call)
{
    (void)slot;
    call->door = door;
    if (engine_submit(door_engine(door), &call->engine, &call->engine.err) != OK) {
        call->refused(call);
    }
}

void door_submit_group(struct door *door, unsigned slot, struct door_group *group)
{
    struct err err = {.status = OK};
    (void)slot;
    if (engine_submit_all(door_engine(door), group->calls, group->count, &err) != OK) {
        group->refused(group, &err);
    }
}

/* What is submitted goes to the engine at once. */
void http_server_turn(struct http_server *server, unsigned loop)
{
    (void)server;
    (void)loop;
}

struct net_loop *http_server_loop(struct http_server *server, unsigned number)
{
    (void)number;
    return process_at(server)->loop;
}

static struct sim_process *loop_owner(const struct net_loop *loop)
{
    struct sim_process *process = sim->processes;
    while (process->loop != loop) {
        process++;
    }
    return process;
}

void net_loop_post(struct net_loop *loop, struct net_task *task)
{
    struct sim_process *process = loop_owner(loop);
    task->next = process->tasks;
    process->tasks = task;
}

void net_loop_deadline(struct net_loop *loop, struct net_deadline *deadline, uint64_t at_ms)
{
    net_wheel_set(&loop->wheel, deadline, loop->uv.time, at_ms);
}

static bool run_tasks(struct sim_process *process)
{
    struct net_task *oldest = NULL;
    for (struct net_task *at = process->tasks, *next; at != NULL; at = next) {
        next = at->next;
        at->next = oldest;
        oldest = at;
    }
    process->tasks = NULL;
    bool has_run = oldest != NULL;
    for (struct net_task *at = oldest, *next; at != NULL; at = next) {
        next = at->next;
        at->run(at);
    }
    return has_run;
}

/* ---- memory that goes with its process ------------------------------------------------------ */

static void *resize(void *context, void *pointer, size_t size)
{
    struct sim_block *blocks = context;
    struct sim_block *block = pointer == NULL ? NULL : (struct sim_block *)pointer - 1;
    if (block != NULL) {
        block->prev->next = block->next;
        block->next->prev = block->prev;
    }
    if (size == 0) {
        free(block);
        return NULL;
    }
    block = realloc(block, sizeof *block + size);
    ASSERT(block != NULL);
    block->prev = blocks;
    block->next = blocks->next;
    block->next->prev = block;
    blocks->next = block;
    return block + 1;
}

static void memory_make(struct sim_memory *memory)
{
    memory->blocks.prev = memory->blocks.next = &memory->blocks;
    memory->mem = (struct mem){.resize = resize, .context = &memory->blocks};
}

static void memory_drop(struct sim_memory *memory)
{
    while (memory->blocks.next != &memory->blocks) {
        struct sim_block *block = memory->blocks.next;
        memory->blocks.next = block->next;
        block->next->prev = &memory->blocks;
        free(block);
    }
}

/* ---- processes ----------------------------------------------------------------------------- */

static const char *const type_names[SIM_TYPES] = {"keyed", "asked", "bare", "lane"};

static const char config_text[] =
    "connectors:\n"
    "  k: {url: \"http://127.0.0.1:1\", idempotency: {header: Idempotency-Key, keeps: 30s},\n"
    "    timeout: {connect: 2s, first_byte: 5s, total: 6s}, concurrency: 2,\n"
    "    breaker: {failures: 3, pause: 5s}}\n"
    "  a: {url: \"http://127.0.0.1:1\", timeout: {connect: 2s, first_byte: 5s, total: 6s},\n"
    "    lookup: {get: \"/by-key/{idempotency_key}\", executed: 200, not_executed: 404,\n"
    "      quiet: 10s}, breaker: {failures: 3, pause: 5s}}\n"
    "  b: {url: \"http://127.0.0.1:1\", timeout: {connect: 2s, first_byte: 5s, total: 6s},\n"
    "    rate: 5, breaker: {failures: 3, pause: 5s}}\n"
    "  l: {url: \"http://127.0.0.1:1\", idempotency: {header: Idempotency-Key, keeps: 30s},\n"
    "    timeout: {connect: 2s, first_byte: 5s, total: 6s},\n"
    "    breaker: {failures: 3, pause: 5s}}\n"
    "effects:\n"
    "  keyed: {connector: k, request: {path: /k}, provider_ref: /id, retry: {attempts: 4,\n"
    "    backoff: 1s, backoff_max: 20s}}\n"
    "  asked: {connector: a, request: {path: /a}, provider_ref: /id, retry: {attempts: 4,\n"
    "    backoff: 1s, backoff_max: 8s}}\n"
    "  bare: {connector: b, request: {path: /b}, retry: {attempts: 4, backoff: 1s,\n"
    "    backoff_max: 8s}}\n"
    "  lane: {connector: l, request: {path: /l}, order: \"{target.lane}\", retry: {attempts: 4,\n"
    "    backoff: 1s, backoff_max: 8s}}\n"
#define RETRY "timeout: 6s, retry: {attempts: 4, backoff: 1s, backoff_max: 8s}, "
    "commands:\n"
    "  c.hold: {" RETRY "handler: \"http://127.0.0.1:1/c\"}\n"
    "  c.takeover: {" RETRY "on_unknown: takeover, handler: \"http://127.0.0.1:1/c\"}\n"
    "  c.ask: {" RETRY "on_unknown: reconcile, handler: \"http://127.0.0.1:1/c\",\n"
    "    reconcile: {get: \"/by-key/{key}\", quiet: 10s}}\n"
    "  c.confirm: {" RETRY "confirm: confirm, confirm_ttl: 5s,\n"
    "    handler: \"http://127.0.0.1:1/c\"}\n"
    "  c.pay: {" RETRY "effects: [keyed], handler: \"http://127.0.0.1:1/c\"}\n"
#define SOURCE                                                                                     \
    "{preset: none, key: {json: /id}, handler: \"http://127.0.0.1:1/d\",\n"                        \
    "      timeout: {connect: 2s, first_byte: 5s, total: 6s},\n"                                   \
    "      breaker: {failures: 3, pause: 5s},\n"                                                   \
    "      retry: {attempts: 4, backoff: 1s, backoff_max: 8s},\n      "
#define ORDERED "order: {source_id: /object, version: /version}, "
    "inbox:\n"
    "  sources:\n"
    "    hold: " SOURCE ORDERED "mode: async}\n"
    "    again: " SOURCE ORDERED "mode: async, on_unknown: redeliver}\n"
    "    ask: " SOURCE "mode: async, on_unknown: reconcile,\n"
    "      reconcile: {get: \"/by-key/{key}\", quiet: 10s}}\n"
    "    sync: " SOURCE "mode: sync}\n";

static struct config *make_config(void)
{
    struct config *config = NULL;
    struct config_faults faults = {0};
    ASSERT(config_new(&sim->memory.mem, &config, NULL) == OK);
    enum status status = config_read(config, slice_str(config_text), &faults);
    status = status == OK ? config_check(config, &faults) : status;
    if (status != OK) {
        printf("configuration: %s\n", faults.items[0].text);
    }
    ASSERT(status == OK);
    return config;
}

/* As src/server/doors.c ties them together. */
static enum status effect_ends(void *context, const struct record *command,
    const struct record *effect, bool has_failed, struct effect_command_calls *calls,
    struct err *err)
{
    return commands_effect_ends(context, command, effect, has_failed, calls, err);
}

static void effect_settled(void *context, const struct record *effect)
{
    commands_effect_settled(context, effect);
}

static void process_start(struct sim_process *process)
{
    struct err err = {0};
    engine_open(process);
    memory_make(&process->memory);
    process->loop = mem_zalloc(&process->memory.mem, 1, sizeof *process->loop);
    process->loop->uv.time = (uint64_t)(sim->now_ms - START_MS) + 1;
    net_wheel_init(&process->loop->wheel, process->loop->uv.time);
    process->tasks = NULL;
    memset(process->breakers, 0, sizeof process->breakers);
    process->metrics = metrics_new(&process->memory.mem, 1);
    ASSERT(process->metrics != NULL);
    struct dispatch_options dispatch = {.mem = &process->memory.mem,
        .door = (struct door *)(void *)process,
        .server = (struct http_server *)(void *)process,
        .loops = 1,
        .spool_dir = "/nonexistent"};
    ASSERT(dispatch_new(&dispatch, &process->dispatch, &err) == OK);
    dispatch_vault(process->dispatch, sim->vault);
    struct outbox_options outbox = {
        .mem = &process->memory.mem, .dispatch = process->dispatch, .config = sim->config};
    ASSERT(outbox_new(&outbox, &process->outbox, &err) == OK);
    process->flood = flood_new(&process->memory.mem);
    ASSERT(process->flood != NULL);
    struct commands_options commands = {.mem = &process->memory.mem,
        .door = dispatch.door,
        .dispatch = process->dispatch,
        .vault = sim->vault,
        .config = sim->config};
    ASSERT(commands_new(&commands, &process->commands, &err) == OK);
    outbox_parent(
        process->outbox, &(struct outbox_parent){effect_ends, effect_settled, process->commands});
    struct inbox_options inbox = {.mem = &process->memory.mem,
        .door = dispatch.door,
        .dispatch = process->dispatch,
        .vault = sim->vault,
        .config = sim->config};
    ASSERT(inbox_new(&inbox, &process->inbox, &err) == OK);
    struct api_routes routes[] = {commands_routes(process->commands), inbox_routes(process->inbox)};
    struct api_options api = {.mem = &process->memory.mem,
        .door = dispatch.door,
        .own_listener = UINT_MAX,
        .routes = routes,
        .routes_count = COUNT(routes),
        .policy = {.body_bytes_max = 1 << 20, .outcome_bytes_max = 1 << 20}};
    ASSERT(api_new(&api, &process->api, &err) == OK);
    process->is_up = true;
}

static void process_kill(struct sim_process *process)
{
    int number = (int)(process - sim->processes);
    sim_say("process %d is killed", number);
    provider_lose(number);
    engine_close(process);
    memory_drop(&process->memory);
    process->loop = NULL;
    process->dispatch = NULL;
    process->is_up = false;
    process->start_ms = sim->now_ms + (int64_t)sim_below(sim_once_in(4) ? 90000 : 4000);
}

/* ---- programs ------------------------------------------------------------------------------ */

/* An effect on its way into the store. */
struct creation {
    struct engine_call call;
    struct engine_call *claim; /* the dispatcher's, in the same commit; NULL: none */
    struct dispatch_start start;
    struct arena arena;
    struct sim_process *process;
};

static void on_created(struct engine_call *call)
{
    struct creation *creation = call->context;
    struct sim_process *process = creation->process;
    bool is_new = call->err.status == OK && call->decision.kind == DECISION_ENQUEUED;
    sim->sometimes[SOMETIMES_DUPLICATES] += call->err.status == OK && !is_new;
    if (is_new && creation->claim == NULL && !sim_once_in(5)) { /* else its due is found, by any
                                                                    process */
        dispatch_offer(process->dispatch, DISPATCH_NO_LOOP, &call->decision.next);
    }
    arena_release(&creation->arena);
    mem_free(&process->memory.mem, creation);
}

static void on_ready(struct dispatch_start *start, struct engine_call *claim)
{
    struct creation *creation = CONTAINER_OF(start, struct creation, start);
    struct sim_process *process = creation->process;
    struct engine_call *calls[] = {&creation->call, claim};
    struct err err;
    sim->sometimes[SOMETIMES_HELD_BACK] += start->until_ms > 0;
    creation->claim = claim;
    if (engine_submit_all(&process->engine, calls, claim == NULL ? 1 : 2, &err) != OK) {
        if (claim != NULL) {
            dispatch_claim_refused(claim, &err);
        }
        arena_release(&creation->arena);
        mem_free(&process->memory.mem, creation);
    }
}

static void create(struct sim_process *process)
{
    bool is_again = sim->effect_count > 0 && sim_once_in(5);
    int number = is_again ? (int)sim_below((uint64_t)sim->effect_count) : sim->effect_count;
    if (number == SIM_EFFECTS_MAX) {
        return;
    }
    struct sim_effect *effect = &sim->effects[number];
    if (!is_again) {
        *effect = (struct sim_effect){.type = (enum sim_type)sim_below(SIM_TYPES),
            .lane = (int)sim_below(2),
            .poison = sim_once_in(12)   ? POISON_LATER
                      : sim_once_in(12) ? POISON_LOST
                                        : POISON_NONE};
        (void)snprintf(effect->key, sizeof effect->key, "e%d", number);
        sim->effect_count++;
    }
    char text[256];
    struct creation *creation = mem_zalloc(&process->memory.mem, 1, sizeof *creation);
    const struct json_value *envelope = NULL;
    struct effect_order order;
    struct member_fault fault;
    struct err err;
    creation->process = process;
    arena_init(&creation->arena, &process->memory.mem, 1 << 22);
    (void)snprintf(text, sizeof text,
        "{\"effect_type\":\"%s\",\"idempotency_key\":\"%s\",\"target\":{\"lane\":\"%d\"},"
        "\"payload\":{\"amount\":%d}}",
        type_names[effect->type], effect->key, effect->lane, number);
    struct slice kept;
    ASSERT(arena_copy(&creation->arena, slice_str(text), &kept) == OK);
    ASSERT(json_read(kept, &creation->arena, &envelope, &err) == OK);
    struct effect_sender sender = {.types = &sim->config->effects,
        .vault = sim->vault,
        .engine = &process->engine,
        .arena = &creation->arena,
        .tenant = SLICE_LIT("default"),
        .text = kept};
    ASSERT(effect_envelope_read(&sender, envelope, &creation->call, &order, &fault) == OK);
    creation->call.context = creation;
    creation->call.done = on_created;
    sim_note(SOMETIMES_CREATED);
    sim_say("%s of %s", effect->key, type_names[effect->type]);
    creation->start = (struct dispatch_start){
        .enqueue = &creation->call, .body = order.payload, .ready = on_ready};
    if (sim_once_in(4)) {
        on_ready(&creation->start, NULL);
    } else {
        dispatch_start_with(process->dispatch, 0, &creation->start);
    }
}

/* ---- steps --------------------------------------------------------------------------------- */

static bool is_busy(void)
{
    for (int i = 0; i < SIM_PROCESSES; i++) {
        const struct sim_process *process = &sim->processes[i];
        if (process->is_up && (process->tasks != NULL || process->engine.queue.first != NULL ||
                                  process->engine.answer_count > 0)) {
            return true;
        }
    }
    return false;
}

static void pass_time(void)
{
    int64_t by = (int64_t)sim_below(is_busy() ? 20 : 300);
    if (!is_busy() && sim_once_in(10)) {
        by = (int64_t)sim_below(8000);
    }
    sim->now_ms += by;
    for (int i = 0; i < SIM_PROCESSES; i++) {
        if (sim->processes[i].is_up) {
            sim->processes[i].loop->uv.time = (uint64_t)(sim->now_ms - START_MS) + 1;
        }
    }
    provider_time();
    for (int i = 0; i < SIM_PROCESSES; i++) {
        struct sim_process *process = &sim->processes[i];
        if (process->is_up) {
            net_wheel_run(&process->loop->wheel, process->loop->uv.time);
        } else if (process->start_ms <= sim->now_ms || sim->is_ending) {
            process_start(process);
        }
    }
}

static void step(void)
{
    struct sim_process *process = &sim->processes[sim_below(SIM_PROCESSES)];
    uint64_t choice = sim_below(20);
    sim->step++;
    if (!process->is_up || choice < 6) {
        pass_time();
    } else if (choice < 10) {
        (void)engine_batch(process);
    } else if (choice < 13) {
        (void)engine_answer(process);
    } else if (choice < 17) {
        (void)run_tasks(process);
    } else if (sim->is_ending) {
        pass_time();
    } else if (sim_once_in(25)) {
        sim_note(SOMETIMES_KILLED);
        process_kill(process);
    } else if (sim_once_in(15)) {
        sim->down_until_ms = sim->now_ms + (int64_t)sim_below(60000);
    } else if (sim_once_in(3)) {
        create(process);
    } else if (sim_once_in(2)) {
        commands_step(process);
    } else {
        deliveries_step(process);
    }
}

/* Longer than any pause, lease and silence together. */
static void drain(void)
{
    sim->is_ending = true;
    sim->down_until_ms = 0;
    int64_t end_ms = sim->now_ms + DRAIN_MS;
    while (sim->now_ms < end_ms && sim->violation[0] == '\0') {
        step();
        if (!is_busy() && provider_is_idle()) {
            sim->now_ms += 500;
            pass_time();
            for (int i = 0; i < SIM_PROCESSES; i++) {
                (void)engine_batch(&sim->processes[i]);
            }
        }
    }
}

bool sim_run(uint64_t seed)
{
    struct err err = {0};
    uint64_t *sometimes = sim->sometimes;
    bool is_traced = sim->is_traced;
    memset(sim, 0, sizeof *sim);
    sim->sometimes = sometimes;
    sim->is_traced = is_traced;
    sim->seed = seed;
    sim->prng.state = seed;
    sim->bytes.state = seed ^ 0x5bd1e995;
    sim->now_ms = START_MS;
    clock_system(&sim->clock);
    const struct store_options options = {.clock = &sim->clock};
    const struct vault_options vault = {.is_ephemeral = true};
    ASSERT(vault_new(&vault, &sim->vault, &err) == OK);
    ASSERT(store_mem_hub_new(&options, NULL, &sim->hub, &err) == OK);
    ASSERT(store_mem_hub_open(sim->hub, NULL, &sim->reader, &err) == OK);
    memory_make(&sim->memory);
    sim->config = make_config();
    commands_make();
    deliveries_make();
    for (int i = 0; i < SIM_PROCESSES; i++) {
        process_start(&sim->processes[i]);
    }
    while (sim->step < SIM_STEPS && sim->violation[0] == '\0') {
        step();
    }
    drain();
    if (sim->violation[0] == '\0') {
        oracle_end();
        commands_end();
        deliveries_end();
    }
    for (int i = 0; i < SIM_PROCESSES; i++) {
        if (sim->processes[i].is_up) {
            process_kill(&sim->processes[i]);
        }
    }
    store_mem_kill(sim->reader);
    store_mem_hub_free(sim->hub);
    vault_free(sim->vault);
    memory_drop(&sim->memory); /* the configuration, which killed processes still held */
    return sim->violation[0] == '\0';
}
