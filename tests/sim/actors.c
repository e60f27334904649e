#include <inttypes.h>
#include <stdio.h>

#include "base/check.h"
#include "sim.h"

enum { CALL_ARENA_BYTES_MAX = 1 << 20, SCAN_MAX = 64 };

/* ---- Making calls. ---- */

struct sim_call *actor_call(struct sim *sim, int from, int key, enum request_kind kind)
{
    struct sim_call *call = mem_zalloc(&mem_libc, 1, sizeof *call);
    ASSERT(call != NULL);
    ASSERT(sim->call_count + 1 < SIM_CALLS_MAX);
    call->id = ++sim->call_count;
    call->from = from;
    call->key = key;
    call->source = -1;
    arena_init(&call->arena, &mem_libc, CALL_ARENA_BYTES_MAX);
    int len = snprintf(call->trace, sizeof call->trace, "{\"call\":%" PRIu32 "}", call->id);
    call->call.arena = &call->arena;
    call->call.context = call;
    call->call.request.kind = kind;
    call->call.request.key = sim->keys[key].key;
    call->call.request.trace = slice_of(call->trace, (size_t)len);
    return call;
}

static void give_payload(struct sim_call *call, int payload)
{
    struct request *request = &call->call.request;
    call->payload = payload;
    int len = snprintf(call->payload_text, sizeof call->payload_text, "{\"payload\":%d}", payload);
    call->call.request_body = slice_of(call->payload_text, (size_t)len);
    request->request.bytes = (uint64_t)len;
    request->request.retained = true;
    digest_sha256(call->payload_text, (size_t)len, &request->request.digest);
    request->fingerprint = request->request.digest;
    request->fingerprint_version = 1;
}

size_t actor_outcome_text(uint32_t number, char *ret_text, size_t size)
{
    size_t len = 0;
    for (uint32_t i = 0; i < number % 5; i++) {
        len += (size_t)snprintf(ret_text + len, size - len, "outcome %" PRIu32 "; ", number);
    }
    return len;
}

static void give_outcome(struct sim_call *call, enum record_status status, uint32_t number)
{
    struct request *request = &call->call.request;
    call->outcome = number;
    request->status = status;
    size_t len = actor_outcome_text(number, call->outcome_text, sizeof call->outcome_text);
    int meta = snprintf(call->outcome_meta, sizeof call->outcome_meta, "n=%" PRIu32, number);
    request->outcome.code = (int32_t)(200 + number % 7);
    request->outcome.meta = slice_of(call->outcome_meta, (size_t)meta);
    if (len > 0) {
        request->outcome.body.bytes = len;
        request->outcome.body.retained = true;
        digest_sha256(call->outcome_text, len, &request->outcome.body.digest);
        call->call.outcome_body = slice_of(call->outcome_text, len);
    }
}

static void give_source(struct sim_call *call, int source, uint64_t version)
{
    struct request *request = &call->call.request;
    call->source = source;
    call->version = version;
    if (source >= 0) {
        int id = snprintf(call->source_text, sizeof call->source_text, "o-%d", source);
        int len = snprintf(call->version_text, sizeof call->version_text, "v%" PRIu64, version);
        request->source = (struct source){.type = SLICE_LIT("feed"),
            .id = slice_of(call->source_text, (size_t)id),
            .version = slice_of(call->version_text, (size_t)len)};
    }
}

/* ---- Clients. ---- */

static void client_done(struct sim_client *client)
{
    *client = (struct sim_client){.state = CLIENT_IDLE};
}

static void client_sleep(struct sim *sim, struct sim_client *client, int64_t ms)
{
    client->wake_ms = sim->true_ms + (int64_t)prng_below(&sim->prng, (uint64_t)ms + 1);
}

static void client_take_job(struct sim *sim, struct sim_client *client)
{
    client->state = CLIENT_BEGIN;
    client->key = (int)prng_below(&sim->prng, SIM_KEYS);
    client->payload = prng_once_in(&sim->prng, 7) ? 1 : 0;
    client->source = -1;
    if (sim->sourced && !prng_once_in(&sim->prng, 4)) {
        client->source = (int)prng_below(&sim->prng, SIM_SOURCES);
        /* Around ten, where text and number differ in order, and on as things get done. */
        client->version = 8 + sim->outcome_count / 8 + prng_below(&sim->prng, 4);
    }
}

static void client_send_begin(struct sim *sim, int index)
{
    struct sim_client *client = &sim->clients[index];
    struct sim_call *call = actor_call(sim, index, client->key, REQUEST_BEGIN);
    call->call.request.policy = sim->keys[client->key].policy;
    give_payload(call, client->payload);
    give_source(call, client->source, client->version);
    if (prng_once_in(&sim->prng, 4)) {
        call->call.wait_ms = 1000;
    }
    client->waiting = call;
    sim_submit(sim, call);
}

static void client_send_settle(struct sim *sim, int index, enum request_kind kind)
{
    struct sim_client *client = &sim->clients[index];
    struct sim_call *call = actor_call(sim, index, client->key, kind);
    struct request *request = &call->call.request;
    request->operation_id = client->operation_id;
    request->fence = client->fence;
    if (kind == REQUEST_SEAL) {
        give_outcome(call, client->settles_as, client->outcome);
        oracle_sent(sim, &client->operation_id, client->key, client->outcome);
    } else if (kind == REQUEST_RENEW) {
        request->policy.lease_ms = sim->keys[client->key].policy.lease_ms;
    } else {
        request->reason = SLICE_LIT("as it went");
    }
    client->waiting = call;
    sim_submit(sim, call);
}

static void client_settle(
    struct sim *sim, struct sim_client *client, enum request_kind kind, enum record_status as)
{
    client->state = CLIENT_SETTLES;
    client->settles_with = kind;
    client->settles_as = as;
    client->outcome = ++sim->outcome_count;
    client->wake_ms = sim->true_ms;
}

/* The moment the plan comes to its point. */
static void client_act(struct sim *sim, struct sim_client *client)
{
    switch (client->plan) {
    case PLAN_RENEW:
    case PLAN_PAUSE:
    case PLAN_EXECUTE:
        oracle_effect(sim, client);
        client_settle(sim, client, REQUEST_SEAL, RECORD_EXECUTED);
        break;
    case PLAN_FAIL: client_settle(sim, client, REQUEST_SEAL, RECORD_FAILED); break;
    case PLAN_NOT_STARTED: client_settle(sim, client, REQUEST_RELEASE, 0); break;
    case PLAN_LOSE_ANSWER:
        oracle_effect(sim, client);
        client_settle(sim, client, REQUEST_UNKNOWN, 0);
        break;
    case PLAN_DIE_AFTER:
        oracle_effect(sim, client);
        client_done(client);
        break;
    case PLAN_DIE_BEFORE:
    case PLAN_COUNT: client_done(client); break;
    }
}

static void client_granted(struct sim *sim, struct sim_client *client, const struct sim_call *call)
{
    static const int weights[PLAN_COUNT] = {12, 3, 3, 2, 2, 1, 4, 2};
    const struct record *record = &call->call.decision.next;
    int64_t lease = sim->keys[client->key].policy.lease_ms;
    int draw = (int)prng_below(&sim->prng, 29);
    int plan = 0;
    while (draw >= weights[plan]) {
        draw -= weights[plan++];
    }
    client->state = CLIENT_HOLDS;
    client->plan = (enum client_plan)plan;
    client->operation_id = record->operation_id;
    client->fence = record->fence;
    client->renewals = client->plan == PLAN_RENEW ? 2 : 0;
    client_sleep(sim, client, client->plan == PLAN_PAUSE ? 4 * lease : lease / 3);
    if (client->plan == PLAN_PAUSE) {
        client->wake_ms += lease;
    }
}

static void client_begin_answered(
    struct sim *sim, struct sim_client *client, const struct sim_call *call)
{
    switch (call->call.decision.kind) {
    case DECISION_FIRST_SEEN: client_granted(sim, client, call); return;
    case DECISION_IN_PROGRESS:
    case DECISION_HELD_UNKNOWN:
        if (prng_once_in(&sim->prng, 6)) {
            client_done(client); /* gave up */
        } else {
            client_sleep(sim, client, sim->ending ? 5000 : 60000);
        }
        return;
    case DECISION_DUPLICATE_REPLAYED:
    case DECISION_CONFLICT_REJECTED:
    case DECISION_SEALED:
    case DECISION_RELEASED:
    case DECISION_UNKNOWN:
    case DECISION_RENEWED:
    case DECISION_RESOLVED:
    case DECISION_NOT_FOUND:
    case DECISION_STALE_FENCE:
    case DECISION_ALREADY_SEALED:
    case DECISION_STILL_RUNNING:
    case DECISION_STALE_VERSION:
    case DECISION_NOTHING:
    case DECISION_ENQUEUED:
    case DECISION_CLAIMED:
    case DECISION_DONE:
    case DECISION_NOT_DUE:
    case DECISION_TOO_LATE:
    case DECISION_WRONG_STATUS: break;
    }
    client_done(client);
}

static void client_answered(struct sim *sim, struct sim_client *client, const struct sim_call *call)
{
    client->waiting = NULL;
    if (client->state == CLIENT_BEGIN) {
        client_begin_answered(sim, client, call);
    } else if (client->state == CLIENT_SETTLES) {
        /* Now and then the same again, as if the answer had been lost; or another seal. */
        bool again = prng_once_in(&sim->prng, 6) && !sim->ending;
        if (again && client->settles_with == REQUEST_SEAL && prng_once_in(&sim->prng, 2)) {
            client->outcome = ++sim->outcome_count;
        } else if (!again) {
            client_done(client);
        }
    } else if (client->state == CLIENT_HOLDS) {
        client_sleep(sim, client, sim->keys[client->key].policy.lease_ms / 3);
    }
}

static void client_turn(struct sim *sim, int index)
{
    struct sim_client *client = &sim->clients[index];
    if (!sim->ending && client->state != CLIENT_IDLE && prng_once_in(&sim->prng, 300)) {
        if (client->waiting != NULL) {
            client->waiting->from = FROM_NOBODY; /* it dies; nobody hears the answer */
        }
        client_done(client);
        return;
    }
    if (client->waiting != NULL || sim->true_ms < client->wake_ms) {
        return;
    }
    switch (client->state) {
    case CLIENT_IDLE:
        if (!sim->ending && prng_once_in(&sim->prng, 3)) {
            client_take_job(sim, client);
        }
        break;
    case CLIENT_BEGIN: client_send_begin(sim, index); break;
    case CLIENT_HOLDS:
        if (client->renewals > 0) {
            client->renewals--;
            client_send_settle(sim, index, REQUEST_RENEW);
        } else {
            client_act(sim, client);
        }
        break;
    case CLIENT_SETTLES: client_send_settle(sim, index, client->settles_with); break;
    }
}

/* ---- The operator. ---- */

static bool holder_lives(const struct sim *sim, const struct record *record)
{
    for (int i = 0; i < SIM_CLIENTS; i++) {
        const struct sim_client *client = &sim->clients[i];
        if ((client->state == CLIENT_HOLDS || client->state == CLIENT_SETTLES) &&
            op_id_equal(&client->operation_id, &record->operation_id)) {
            return true;
        }
    }
    return false;
}

static int key_of(const struct sim *sim, const struct record *record)
{
    for (int i = 0; i < SIM_KEYS; i++) {
        if (memcmp(&sim->keys[i].key.hash, &record->key.hash, sizeof record->key.hash) == 0) {
            return i;
        }
    }
    return 0;
}

/* Asks the provider, and settles what nobody works on any more. */
static void operator_settle(struct sim *sim, const struct sim_call *look)
{
    for (size_t i = 0; i < look->query.count; i++) {
        const struct record *record = look->query.records[i];
        if (holder_lives(sim, record)) {
            continue;
        }
        int key = key_of(sim, record);
        struct sim_operation *operation = oracle_operation(sim, &record->operation_id, key);
        struct sim_call *call = actor_call(sim, FROM_OPERATOR, key, REQUEST_RESOLVE);
        call->call.request.operation_id = record->operation_id;
        call->call.request.fence = record->fence; /* what was looked into: no later attempt */
        if (operation->effects > 0) {
            give_outcome(call, RECORD_EXECUTED, ++sim->outcome_count);
            oracle_sent(sim, &record->operation_id, key, call->outcome);
        } else {
            call->call.request.status = RECORD_RELEASED;
        }
        call->call.request.reason = SLICE_LIT("looked it up");
        sim->operator_call = call;
        sim_submit(sim, call);
        return;
    }
}

static void operator_turn(struct sim *sim)
{
    if (sim->operator_call != NULL || !prng_once_in(&sim->prng, sim->ending ? 2 : 12)) {
        return;
    }
    int key = (int)prng_below(&sim->prng, SIM_KEYS); /* of the tenant whose unknown ones are read */
    struct sim_call *call = actor_call(sim, FROM_OPERATOR, key, REQUEST_BEGIN);
    call->query.kind = QUERY_RECORDS;
    call->query.tenant = sim->keys[key].key.tenant;
    call->query.scan = (struct scan){.status = RECORD_UNKNOWN, .limit = SCAN_MAX};
    call->call.query = &call->query;
    sim->operator_call = call;
    sim_submit(sim, call);
}

/* ---- The rogue: calls that must never be obeyed. ---- */

static void rogue_turn(struct sim *sim)
{
    static const enum request_kind kinds[] = {
        REQUEST_SEAL, REQUEST_RELEASE, REQUEST_UNKNOWN, REQUEST_RENEW};
    if (sim->ending || sim->operation_count == 0 || !prng_once_in(&sim->prng, 10)) {
        return;
    }
    const struct sim_operation *operation =
        &sim->operations[prng_below(&sim->prng, sim->operation_count)];
    if (operation->fence == 0) {
        return; /* a grant that was lost would read as one from the future, which is quarantined */
    }
    struct sim_call *call =
        actor_call(sim, FROM_ROGUE, operation->key, kinds[prng_below(&sim->prng, 4)]);
    struct request *request = &call->call.request;
    request->operation_id = operation->id;
    call->wrong_tenant = prng_once_in(&sim->prng, 3);
    if (call->wrong_tenant) {
        request->key = sim->keys[(operation->key + SIM_KEYS / 2) % SIM_KEYS].key;
        request->fence = operation->fence;
    } else {
        request->fence = operation->fence + 1000003; /* never to be reached in a run */
    }
    request->policy.lease_ms = 60000;
    if (request->kind == REQUEST_SEAL) {
        give_outcome(call, RECORD_FAILED, ++sim->outcome_count);
    }
    sim_submit(sim, call);
}

/* ---- What all of them hear. ---- */

void actors_answered(struct sim *sim, struct sim_call *call)
{
    if (call->from == FROM_OPERATOR) {
        sim->operator_call = NULL;
        if (call->call.query != NULL) {
            operator_settle(sim, call);
        }
    } else if (call->from == FROM_WORKER) {
        work_answered(sim, call);
    } else if (call->from >= 0) {
        client_answered(sim, &sim->clients[call->from], call);
    }
}

/* Nobody knows, or nothing happened: either way the same call is sent again later. */
void actors_lost(struct sim *sim, struct sim_call *call)
{
    if (call->from == FROM_OPERATOR) {
        sim->operator_call = NULL;
    } else if (call->from == FROM_WORKER) {
        work_lost(sim, call);
    } else if (call->from >= 0) {
        struct sim_client *client = &sim->clients[call->from];
        client->waiting = NULL;
        client_sleep(sim, client, 2000);
    }
}

void actors_refused(struct sim *sim, struct sim_call *call)
{
    actors_lost(sim, call);
}

bool actors_idle(const struct sim *sim)
{
    for (int i = 0; i < SIM_CLIENTS; i++) {
        if (sim->clients[i].state != CLIENT_IDLE) {
            return false;
        }
    }
    return sim->operator_call == NULL && work_idle(sim);
}

void actors_turn(struct sim *sim)
{
    for (int i = 0; i < SIM_CLIENTS; i++) {
        client_turn(sim, i);
    }
    work_turn(sim);
    operator_turn(sim);
    rogue_turn(sim);
}

void actors_init(struct sim *sim)
{
    static const char *const tenants[SIM_TENANTS] = {"acme", "zeta"};
    sim->sourced = prng_once_in(&sim->prng, 3);
    work_init(sim);
    for (int i = 0; i < SIM_KEYS; i++) {
        struct sim_key *key = &sim->keys[i];
        (void)snprintf(sim->key_names[i], sizeof sim->key_names[i], "k%d", i % (SIM_KEYS / 2));
        key->key.tenant = slice_str(tenants[i / (SIM_KEYS / 2)]);
        key->key.scope = SLICE_LIT("pay");
        key->key.key = slice_str(sim->key_names[i]);
        ASSERT(record_key_seal(&key->key, NULL) == OK);
        uint64_t draw = prng_below(&sim->prng, 10);
        key->policy = (struct policy){
            .window_ms = 120000 + (int64_t)prng_below(&sim->prng, 7200000),
            .lease_ms = 10000 + (int64_t)prng_below(&sim->prng, 290000),
            .on_unknown = draw < 5   ? ON_UNKNOWN_HOLD
                          : draw < 6 ? ON_UNKNOWN_RECONCILE
                                     : ON_UNKNOWN_TAKEOVER,
            .retry_failed = prng_once_in(&sim->prng, 3),
        };
    }
}
