/*
 * Time, memory, the process, and what happens next.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/rand.h"
#include "gateway/impl.h"
#include "sim_gateway.h"
#include "store/mem.h"

#define START_MS INT64_C(1700000000000) /* a day in 2023; nothing depends on it */

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
    sim->sometimes[what]++;
}

bool sim_once_in(uint64_t every)
{
    return prng_once_in(&sim->prng, every);
}

uint64_t sim_below(uint64_t count)
{
    return prng_below(&sim->prng, count);
}

void *sim_alloc(size_t size)
{
    void *made = calloc(1, size);
    ASSERT(made != NULL);
    return made;
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
    return 0; /* its standstills are the process's alone */
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

/* ---- no limit on duplicates, instead of door/flood.c, whose table is large ------------------ */

struct flood *flood_new(const struct mem *mem)
{
    return mem_zalloc(mem, 1, 1);
}

void flood_free(struct flood *flood)
{
    mem_free(&sim->mem, flood);
}

bool flood_refuse(struct flood *flood, const struct record_key *key, struct flood_rate rate,
    uint64_t now_nanos, int64_t *ret_after_ms)
{
    (void)flood;
    (void)key;
    (void)rate;
    (void)now_nanos;
    (void)ret_after_ms;
    return false;
}

void flood_count(
    struct flood *flood, const struct record_key *key, struct flood_rate rate, uint64_t now_nanos)
{
    (void)flood;
    (void)key;
    (void)rate;
    (void)now_nanos;
}

void flood_drain(struct flood *flood, flood_visit visit, void *context)
{
    (void)flood;
    (void)visit;
    (void)context;
}

/* ---- the process's memory ------------------------------------------------------------------ */

struct sim_block {
    struct sim_block *prev;
    struct sim_block *next;
    _Alignas(max_align_t) char bytes[];
};

static void block_unlink(struct sim_block *block)
{
    *(block->prev == NULL ? &sim->blocks : &block->prev->next) = block->next;
    if (block->next != NULL) {
        block->next->prev = block->prev;
    }
}

static bool memory_fails(void)
{
    if (sim->memory_fails_in == 0 || !sim_once_in(sim->memory_fails_in)) {
        return false;
    }
    sim_note(SOMETIMES_STARVED);
    sim_say("an allocation fails");
    return true;
}

static void *resize(void *context, void *pointer, size_t size)
{
    (void)context;
    if (size > 0 && memory_fails()) {
        return NULL;
    }
    struct sim_block *block =
        pointer == NULL ? NULL
                        : (struct sim_block *)(void *)((char *)pointer - sizeof(struct sim_block));
    if (block != NULL) {
        block_unlink(block);
    }
    if (size == 0) {
        free(block);
        return NULL;
    }
    block = realloc(block, sizeof *block + size);
    ASSERT(block != NULL);
    block->prev = NULL;
    block->next = sim->blocks;
    if (block->next != NULL) {
        block->next->prev = block;
    }
    sim->blocks = block;
    return block->bytes;
}

static void memory_drop(void)
{
    while (sim->blocks != NULL) {
        struct sim_block *block = sim->blocks;
        block_unlink(block);
        free(block);
    }
}

/* ---- the process --------------------------------------------------------------------------- */

static const char config_text[] =
    "limits: {outcome_bytes_max: 96KiB}\n"
    "gateway:\n"
    "  listen: 127.0.0.1:0\n"
    "  upstream: http://127.0.0.1:1\n"
    "  principal: none\n"
    "  lease: 15s\n"
    "  timeout: {connect: 2s, first_byte: 5s, total: 10s}\n"
    "  routes:\n"
    "    - {match: \"POST /r0/**\"}\n"
    "    - match: \"POST /r1/**\"\n"
    "      on_unknown: reconcile\n"
    "      on_status: {5xx: release}\n"
    "      reconcile: {get: \"/by-key/{key}\", executed: [200], not_executed: [404]}\n"
    "    - {match: \"POST /r2/**\", on_unknown: takeover, on_status: {5xx: seal}, lease: 90s}\n";

static struct config *make_config(void)
{
    struct config *config = NULL;
    struct config_faults faults = {0};
    ASSERT(config_new(&sim->mem, &config, NULL) == OK);
    enum status status = config_read(config, slice_str(config_text), &faults);
    status = status == OK ? config_check(config, &faults) : status;
    if (status != OK) {
        printf("configuration: %s\n", faults.items[0].text);
    }
    ASSERT(status == OK);
    return config;
}

static void process_start(void)
{
    struct err err = {0};
    engine_open();
    sim->loop = mem_zalloc(&sim->mem, 1, sizeof *sim->loop);
    ASSERT(sim->loop != NULL);
    sim->loop->uv.time = (uint64_t)(sim->now_ms - START_MS) + 1;
    net_wheel_init(&sim->loop->wheel, sim->loop->uv.time);
    struct door_options door = {.mem = &sim->mem, .engine = &sim->engine, .slots = 1};
    ASSERT(door_new(&door, &sim->door, &err) == OK);
    struct config *config = make_config();
    struct gateway_options options = {.mem = &sim->mem,
        .door = sim->door,
        .config = config,
        .loops = 1,
        .spool_dir = "/nonexistent"};
    enum status status = gateway_new(&options, &sim->gateway, &err);
    ASSERT(status == OK);
    config_free(config);
    gateway_attach(sim->gateway, (struct http_server *)(void *)sim); /* opaque to all but http.c */
    sim->dies_in = 0;
}

/* The process is gone: what it had in memory, and some of what it had not flushed. */
static void process_kill(void)
{
    size_t unflushed = store_mem_unflushed(sim->store);
    size_t kept = (size_t)sim_below(unflushed + 1);
    sim_note(SOMETIMES_KILLED);
    if (unflushed > 0) {
        sim_note(SOMETIMES_KILLED_UNFLUSHED);
    }
    sim_say("killed; %zu of %zu commits kept that were not flushed", kept, unflushed);
    upstream_lose();
    clients_lose();
    engine_close();
    memory_drop();
    store_mem_restart(sim->store, kept);
    sim->now_ms += 1 + (int64_t)sim_below(3000);
}

/* ---- steps --------------------------------------------------------------------------------- */

/* While the loop or the engine has something to do, time passes slowly, but that now and then
 * everything stands still for longer than a lease. */
static void pass_time(void)
{
    bool is_busy = clients_have_woken() || sim->tasks != NULL || !engine_is_idle();
    int64_t by = (int64_t)sim_below(is_busy ? 20 : 100);
    if (is_busy && sim_once_in(40)) {
        by = (int64_t)sim_below(3 * SIM_LEASE_MS);
        sim_note(SOMETIMES_STANDSTILLS);
    } else if (!is_busy && sim_once_in(sim->calls == NULL ? 5 : 60)) {
        by = (int64_t)sim_below(20000);
    }
    sim->now_ms += by;
    sim->loop->uv.time = (uint64_t)(sim->now_ms - START_MS) + 1;
    upstream_time();
    net_wheel_run(&sim->loop->wheel, sim->loop->uv.time);
}

/* In a poor process one allocation in many fails, or for a while all of them; from the start of a
 * drain on there is enough again. */
static void memory_turn(bool may_fail)
{
    sim->memory_fails_in = !may_fail || !sim->is_poor ? 0 : sim_once_in(40) ? 1 : 150;
}

static void reload(void)
{
    struct err err = {0};
    struct gateway_config *made = NULL;
    struct config *config = make_config();
    sim_note(SOMETIMES_RELOADS);
    sim_say("reload");
    memory_turn(true);
    enum status status = gateway_reload_prepare(sim->gateway, config, &made, &err);
    memory_turn(false);
    if (status == OK) {
        gateway_reload_end(sim->gateway, made, !sim_once_in(4)); /* a door may refuse it */
    }
    ASSERT(status == OK || (status == E_NOMEM && sim->is_poor)); /* the old one goes on */
    config_free(config);
}

/* False: there was nothing of the kind to do. */
static bool event(bool is_draining)
{
    switch (sim_below(16)) {
    case 0:
    case 1: return !is_draining && clients_arrive();
    case 2:
    case 3: return clients_step(true);
    case 4:
    case 5: return clients_wake();
    case 6: return tasks_run();
    case 7:
    case 8: return engine_batch();
    case 9:
    case 10: return engine_flush(!is_draining && sim_once_in(150));
    case 11: return !is_draining && sim_once_in(sim->is_narrow ? 1 : 4) && operator_settle();
    default: return upstream_step();
    }
}

static void step(bool is_draining)
{
    sim->step++;
    pass_time();
    memory_turn(!is_draining);
    for (int i = 0; i < 8 && !event(is_draining); i++) {
    }
    if (!sim_once_in(3)) {
        door_turn(sim->door, 0);
    }
    memory_turn(false);
}

/* ---- drains -------------------------------------------------------------------------------- */

static void check_drained(void)
{
    if (atomic_load(&sim->gateway->spooled.bytes) != 0) {
        sim_violate("P14: bytes are left in spools");
    }
    if (sim->calls != NULL || sim->tasks != NULL || sim->engine.queue.first != NULL ||
        sim->engine.parked.count > 0) {
        sim_violate("something is still under way after a drain");
    }
}

static void process_end(void)
{
    check_drained();
    gateway_end(sim->gateway, 0);
    while (tasks_run()) {
    }
    gateway_free(sim->gateway);
    door_free(sim->door);
    mem_free(&sim->mem, sim->loop);
    if (sim->blocks != NULL) {
        sim_violate("memory is left after a drain");
    }
    ASSERT(sim->store->ops->flush(sim->store, NULL) == OK);
    engine_close();
    memory_drop();
}

/* Everybody gets an answer, and then nothing is left. */
static void process_drain(void)
{
    sim_note(SOMETIMES_DRAINS);
    sim_say("drain");
    sim->engine.is_impatient = true;
    bool is_idle = false;
    uint64_t cut_in = 1 + sim_below(sim_once_in(2) ? 50 : 2000);
    for (uint64_t i = 0; i < 20000 && !is_idle && sim->violation[0] == '\0'; i++) {
        if (i == cut_in || (i > cut_in && sim->exchange_count == 0)) {
            if (sim->exchange_count > 0) {
                sim_note(SOMETIMES_CUTS);
            }
            gateway_cut(sim->gateway);
        }
        step(true);
        is_idle = i >= cut_in && sim->exchange_count == 0 && engine_is_idle() &&
                  sim->tasks == NULL && sim->calls == NULL && gateway_is_idle(sim->gateway);
    }
    if (!is_idle) {
        sim_violate("P14: %zu exchanges are not answered by a drain", sim->exchange_count);
    }
}

/* ---- the run ------------------------------------------------------------------------------- */

static void start_world(uint64_t seed)
{
    bool is_traced = sim->is_traced;
    uint64_t *sometimes = sim->sometimes;
    memset(sim, 0, sizeof *sim);
    sim->is_traced = is_traced;
    sim->sometimes = sometimes;
    sim->seed = seed;
    sim->prng.state = seed * UINT64_C(0xd1342543de82ef95) + 1;
    sim->bytes.state = ~seed;
    sim->now_ms = START_MS;
    sim->is_poor = seed % 2 == 0;
    sim->is_narrow = seed % 4 == 3;
    sim->mem = (struct mem){.resize = resize};
    clock_system(&sim->clock);
    for (int i = 0; i < SIM_KEYS; i++) {
        (void)snprintf(sim->keys[i].name, sizeof sim->keys[i].name, "key-%d", i);
        sim->keys[i].route = (enum sim_route)(i / SIM_ROUTE_KEYS);
    }
    struct store_mem_secrets secrets;
    prng_fill(&sim->bytes, &secrets, sizeof secrets);
    const struct store_options options = {.clock = &sim->clock};
    ASSERT(store_mem_new(&options, &secrets, &sim->store, NULL) == OK);
    process_start();
}

/* The process ends one way or the other, and the next one begins. */
static void maybe_end(void)
{
    bool is_over = sim->dies_in > 0 && --sim->dies_in == 0;
    if (is_over || sim_once_in(sim->is_narrow ? 800 : 200)) {
        process_kill();
        process_start();
    } else if (sim->dies_in == 0 && sim_once_in(600)) {
        process_drain();
        if (sim->violation[0] == '\0') {
            process_end();
            process_start();
        }
    } else if (sim_once_in(100)) {
        reload();
    }
}

bool sim_run(uint64_t seed)
{
    start_world(seed);
    for (int i = 0; i < SIM_STEPS && sim->violation[0] == '\0'; i++) {
        step(false);
        maybe_end();
    }
    if (sim->engine.failure.status != OK && sim->violation[0] == '\0') {
        process_kill();
        process_start();
    }
    process_drain();
    if (sim->violation[0] == '\0') {
        process_end();
    } else {
        process_kill();
    }
    ASSERT(sim->store->ops->close(sim->store, NULL) == OK);
    return sim->violation[0] == '\0';
}
