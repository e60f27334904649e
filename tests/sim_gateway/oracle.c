/*
 * What must hold, said from what was committed and what the upstream saw, apart from the gateway.
 */
#include <string.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/text.h"
#include "sim_gateway.h"

struct sim_attempt *oracle_attempt(struct slice operation_id, uint64_t fence)
{
    for (size_t i = sim->attempt_count; i-- > 0;) {
        struct sim_attempt *at = &sim->attempts[i];
        if (at->fence == fence && slice_is(operation_id, at->operation_id)) {
            return at;
        }
    }
    return NULL;
}

static struct sim_attempt *attempt_of(const struct engine_call *call)
{
    char text[OP_ID_TEXT_BYTES];
    (void)op_id_put(text, &call->decision.next.operation_id);
    return oracle_attempt(slice_str(text), call->decision.next.fence);
}

static int key_of(const struct record_key *key)
{
    for (int i = 0; i < SIM_KEYS; i++) {
        if (slice_is(key->key, sim->keys[i].name)) {
            return i;
        }
    }
    ASSERT(false);
    return 0;
}

/* ---- commits ------------------------------------------------------------------------------- */

/* Of a trace, {"request_id":"r-7",…}. */
static void read_request_id(struct slice trace, char ret_id[24])
{
    size_t len = 0;
    for (size_t i = 0; i + 2 < trace.len; i++) {
        if (memcmp(trace.data + i, "\"r-", 3) == 0) {
            while (len < 23 && trace.data[i + 1 + len] != '"') {
                ret_id[len] = trace.data[i + 1 + len];
                len++;
            }
        }
    }
    ASSERT(len > 0);
    ret_id[len] = '\0';
}

static void granted(const struct engine_call *call)
{
    const struct record *record = &call->decision.next;
    ASSERT(sim->attempt_count < SIM_ATTEMPTS_MAX);
    struct sim_attempt *attempt = &sim->attempts[sim->attempt_count++];
    *attempt = (struct sim_attempt){.fence = record->fence,
        .key = key_of(&record->key),
        .granted_ms = sim->now_ms,
        .lease_ends_ms = record->lease_expires_ms};
    (void)op_id_put(attempt->operation_id, &record->operation_id);
    read_request_id(call->request.trace, attempt->request_id);
    /* {"amount": N} is kept as it was sent, or in canonical form. */
    attempt->payload = -1;
    for (size_t i = 0; i + 8 < call->request_body.len; i++) {
        if (memcmp(call->request_body.data + i, "amount", 6) == 0) {
            const char *amount = call->request_body.data + i + 6;
            while (*amount < '0' || *amount > '9') {
                amount++;
            }
            attempt->payload = *amount - '0';
        }
    }
    ASSERT(attempt->payload >= 0 && attempt->payload < SIM_PAYLOADS);
    sim_note(record->attempt > 1 && sim->keys[attempt->key].route == ROUTE_TAKEOVER
                 ? SOMETIMES_TAKEOVERS
                 : SOMETIMES_GRANTS);
    sim_say("key %d: granted, fence %llu", attempt->key, (unsigned long long)attempt->fence);
}

static void sealed(struct sim_attempt *attempt, const struct engine_call *call)
{
    const struct outcome *outcome = &call->decision.next.outcome;
    attempt->settled = SETTLED_SEALED;
    attempt->sealed_status = (unsigned)outcome->code;
    attempt->is_retained = outcome->body.retained;
    digest_sha256(call->outcome_body.data, call->outcome_body.len, &attempt->sealed);
    if (attempt->status != attempt->sealed_status) {
        sim_violate("P3: key %d is sealed with %u, and the upstream said %u", attempt->key,
            attempt->sealed_status, attempt->status);
    } else if (attempt->is_retained &&
               (!attempt->is_whole || !digest_equal(&attempt->sealed, &attempt->answer))) {
        sim_violate("P3: key %d is sealed with a body that is not the upstream's", attempt->key);
    }
    if (!attempt->is_retained) {
        sim_note(SOMETIMES_LONG);
    }
}

static bool is_releasing(const struct sim_attempt *attempt)
{
    unsigned status = attempt->status;
    enum sim_route route = sim->keys[attempt->key].route;
    return status == 408 || status == 429 || (status >= 500 && route == ROUTE_RECONCILE) ||
           (status == 503 && route == ROUTE_HOLD);
}

static void released(struct sim_attempt *attempt, struct slice reason)
{
    bool is_standstill = slice_is(reason, "the gateway stood still; nothing was sent");
    attempt->settled = SETTLED_RELEASED;
    /* What there is no memory for is settled from its head, like what is too long to keep. */
    bool is_settled_by_head = attempt->is_long || (sim->is_poor && attempt->status != 0);
    if (attempt->sent != SENT_NOTHING &&
        !((attempt->is_whole || is_settled_by_head) && is_releasing(attempt))) {
        sim_violate("P5: key %d is released, and its request had left", attempt->key);
    }
    sim_note(attempt->sent != SENT_NOTHING ? SOMETIMES_RELEASED_STATUS
             : is_standstill               ? SOMETIMES_NOT_COVERED
                                           : SOMETIMES_NOT_SENT);
}

static void resolved(struct sim_attempt *attempt, const struct engine_call *call)
{
    const struct record *record = &call->decision.next;
    uint64_t asked = sim->keys[attempt->key].asked_fence;
    if (slice_is(call->request.actor, "reconcile") && attempt->fence != asked) {
        sim_violate("N6: an answer about attempt %llu of key %d settles attempt %llu",
            (unsigned long long)asked, attempt->key, (unsigned long long)attempt->fence);
    }
    if (record->status == RECORD_RELEASED) {
        attempt->settled = SETTLED_RELEASED;
        sim_note(slice_is(call->request.actor, "operator") ? SOMETIMES_OPERATOR_RELEASED
                                                           : SOMETIMES_RECONCILED_RELEASED);
        if (sim->keys[attempt->key].effects > 0 || upstream_has(attempt)) {
            sim_violate("P5: key %d is free again, and it happened or may happen", attempt->key);
        }
        return;
    }
    attempt->settled = SETTLED_SEALED;
    attempt->sealed_status = (unsigned)record->outcome.code;
    attempt->is_retained = record->outcome.body.retained;
    digest_sha256(call->outcome_body.data, call->outcome_body.len, &attempt->sealed);
    sim_note(SOMETIMES_RECONCILED_EXECUTED);
    if (sim->keys[attempt->key].effects == 0) {
        sim_violate("key %d is settled as executed, and it did not happen", attempt->key);
    }
}

/* One request waits for at most two questions, the second of which is its own, so it begins at most
 * three times: otherwise a client that stays would make the gateway ask as fast as the upstream
 * answers. */
static void held(const struct engine_call *call)
{
    char id[24];
    uint64_t number = 0;
    read_request_id(call->request.trace, id);
    ASSERT(text_u64(slice_str(id + 2), &number) && number < SIM_REQUESTS_MAX);
    if (++sim->held[number] == 2) {
        sim_note(SOMETIMES_STILL_HELD);
    } else if (sim->held[number] == 3) {
        sim_note(SOMETIMES_HELD_AFTER_JOINING);
    } else if (sim->held[number] > 3) {
        sim_violate("request %s asks the upstream again and again", id);
    }
}

void oracle_committed(const struct engine_call *call)
{
    if (call->decision.kind == DECISION_FIRST_SEEN) {
        granted(call);
        return;
    }
    if (call->decision.kind == DECISION_HELD_UNKNOWN) {
        held(call);
    }
    struct sim_attempt *attempt = attempt_of(call);
    if (call->decision.kind == DECISION_STALE_FENCE && slice_is(call->request.actor, "reconcile")) {
        sim_note(SOMETIMES_OVERTAKEN);
    }
    if (attempt == NULL || call->decision.repeated) {
        return;
    }
    if (call->decision.kind == DECISION_SEALED) {
        sealed(attempt, call);
    } else if (call->decision.kind == DECISION_RELEASED) {
        released(attempt, call->request.reason);
    } else if (call->decision.kind == DECISION_RESOLVED) {
        resolved(attempt, call);
        return; /* that it was unknown stays durable, and may be answered still */
    } else if (call->decision.kind == DECISION_UNKNOWN) {
        attempt->settled = SETTLED_UNKNOWN;
        attempt->unknown_ms = sim->now_ms;
        if (call->request.actor.len > 0 || call->request.trace.len == 0) {
            sim_note(SOMETIMES_LEASES_OVER);
        }
    } else {
        return;
    }
    attempt->settled_durably = false;
}

void oracle_flushed(const struct engine_call *call)
{
    struct sim_attempt *attempt = attempt_of(call);
    enum decision_kind kind = call->decision.kind;
    if (kind == DECISION_FIRST_SEEN) {
        attempt->is_durable = true;
    } else if (attempt != NULL && (kind == DECISION_SEALED || kind == DECISION_RELEASED ||
                                      kind == DECISION_UNKNOWN || kind == DECISION_RESOLVED)) {
        attempt->settled_durably = true;
    }
}

/* ---- the upstream -------------------------------------------------------------------------- */

void oracle_sending(const struct sim_attempt *attempt)
{
    if (!attempt->is_durable) {
        sim_violate("P6: key %d is sent before its grant is durable", attempt->key);
    }
    if (attempt->sent != SENT_NOTHING) {
        sim_violate("P1: one grant of key %d is sent twice", attempt->key);
    }
    if (sim->now_ms >= attempt->lease_ends_ms) {
        sim_violate("P1: key %d is sent after its lease has ended", attempt->key);
    }
    if (sim->now_ms - attempt->granted_ms >= LIMIT_HOLDER_GONE_MS) {
        sim_violate("S12: key %d is sent when its holder was taken for gone", attempt->key);
    }
}

void oracle_effect(struct sim_attempt *attempt)
{
    struct sim_key *key = &sim->keys[attempt->key];
    attempt->effects++;
    key->effects++;
    sim_note(SOMETIMES_EFFECTS);
    sim_say("key %d: effect number %d", attempt->key, key->effects);
    if (key->effects > 1 && key->route != ROUTE_TAKEOVER) {
        sim_violate("P1: key %d has %d effects", attempt->key, key->effects);
    }
}

/* ---- answers ------------------------------------------------------------------------------- */

static bool is_decision(const struct sim_answer *answer, const char *decision)
{
    return strcmp(answer->decision, decision) == 0;
}

/* What the answer is about: the attempt that was granted to its request, or the latest one of the
 * operation, or the one that sealed it. */
static struct sim_attempt *answered_attempt(const struct sim_answer *answer)
{
    bool is_first = is_decision(answer, "first_seen");
    bool is_replay = is_decision(answer, "duplicate_replayed");
    for (size_t i = sim->attempt_count; i-- > 0;) {
        struct sim_attempt *at = &sim->attempts[i];
        if (strcmp(at->operation_id, answer->operation_id) == 0 &&
            (!is_first || strcmp(at->request_id, answer->request_id) == 0) &&
            (!is_replay || at->settled == SETTLED_SEALED)) {
            return at;
        }
    }
    return NULL;
}

void oracle_answering(const struct sim_answer *answer)
{
    const struct sim_attempt *attempt = answered_attempt(answer);
    bool is_first = is_decision(answer, "first_seen");
    if (answer->is_ours || (!is_first && !is_decision(answer, "duplicate_replayed"))) {
        return;
    }
    if (attempt == NULL) {
        sim_violate("an outcome of no operation is answered");
    } else if (is_first && !attempt->settled_durably) {
        sim_violate("P2: key %d is answered before it is settled durably", answer->key);
    }
}

static void check_outcome(const struct sim_answer *answer, const struct sim_attempt *attempt)
{
    struct digest body;
    digest_sha256(answer->body.data, answer->body.len, &body);
    bool is_first = is_decision(answer, "first_seen");
    const struct digest *expected = is_first ? &attempt->answer : &attempt->sealed;
    unsigned status = is_first ? attempt->status : attempt->sealed_status;
    if (answer->status != status || (answer->is_whole && !digest_equal(&body, expected))) {
        sim_violate("P3: key %d is answered %u with a body that is not its outcome's %u",
            answer->key, answer->status, status);
    }
    if (strcmp(answer->type, SIM_CONTENT_TYPE) != 0) {
        sim_violate("P3: key %d is answered without the outcome's fields", answer->key);
    }
    if (attempt->payload != answer->payload) {
        sim_violate("P7: a different payload of key %d gets the outcome", answer->key);
    }
    sim_note(is_first ? SOMETIMES_FIRST_ANSWERS : SOMETIMES_REPLAYS);
}

static void check_refusal(const struct sim_answer *answer, const struct sim_attempt *attempt)
{
    for (size_t i = 0; i + 8 <= answer->body.len; i++) {
        if (memcmp(answer->body.data + i, "outcome-", 8) == 0) {
            sim_violate("P7: a refusal of key %d shows an outcome", answer->key);
        }
    }
    if (is_decision(answer, "conflict_rejected")) {
        sim_note(SOMETIMES_CONFLICTS);
        if (attempt != NULL && attempt->payload == answer->payload) {
            sim_violate("the payload of key %d is refused as a different one", answer->key);
        }
    } else if (is_decision(answer, "in_progress")) {
        sim_note(SOMETIMES_IN_PROGRESS);
    } else if (is_decision(answer, "held_unknown")) {
        sim_note(SOMETIMES_HELD);
    }
}

static void note_trace(const struct sim_answer *answer)
{
    uint64_t hash = sim->trace;
    for (size_t i = 0; i < answer->body.len && i < 64; i++) {
        hash = (hash ^ (unsigned char)answer->body.data[i]) * UINT64_C(0x100000001b3);
    }
    sim->trace = (hash ^ answer->status) * UINT64_C(0x100000001b3);
}

void oracle_answered(const struct sim_answer *answer)
{
    const struct sim_attempt *attempt = answered_attempt(answer);
    note_trace(answer);
    if (!answer->is_whole && answer->decision[0] == '\0') {
        return; /* it breaks off before it says anything: memory ran out */
    }
    if (attempt != NULL && is_decision(answer, "first_seen") && strcmp(answer->effect, "no") == 0 &&
        attempt->effects > 0) {
        sim_violate("key %d is answered that it had no effect, and it had one", answer->key);
    }
    if (!answer->is_ours && attempt == NULL) {
        sim_violate("P3: key %d is answered with an outcome, and was not sealed", answer->key);
    } else if (!answer->is_ours) {
        check_outcome(answer, attempt);
    } else {
        check_refusal(answer, attempt);
    }
}
