#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/limits.h"
#include "evidence/entry_form.h"
#include "evidence/redecide.h"
#include "sim.h"

/* ---- What the oracle remembers. ---- */

struct sim_operation *oracle_operation(struct sim *sim, const struct op_id *id, int key)
{
    for (size_t i = sim->operation_count; i-- > 0;) {
        if (op_id_equal(&sim->operations[i].id, id)) {
            return &sim->operations[i];
        }
    }
    ASSERT(sim->operation_count < SIM_OPERATIONS_MAX);
    struct sim_operation *operation = &sim->operations[sim->operation_count++];
    *operation = (struct sim_operation){.id = *id, .key = key, .payload = -1, .over_ms = INT64_MAX};
    return operation;
}

void oracle_sent(struct sim *sim, const struct op_id *id, int key, uint32_t outcome)
{
    struct sim_operation *operation = oracle_operation(sim, id, key);
    for (size_t i = 0; i < operation->sent_count; i++) {
        if (operation->sent[i] == outcome) {
            return;
        }
    }
    ASSERT(operation->sent_count < SIM_OUTCOMES_MAX);
    operation->sent[operation->sent_count++] = outcome;
}

static bool takes_over(const struct sim *sim, const struct sim_operation *operation)
{
    return sim->keys[operation->key].policy.on_unknown == ON_UNKNOWN_TAKEOVER;
}

/* ---- Sources. ---- */

static struct sim_source *source_of(struct sim *sim, int key, int source)
{
    return &sim->sources[key / (SIM_KEYS / SIM_TENANTS)][source];
}

/* The source and version that a record carries. False: none. */
static bool source_read(const struct record *record, int *ret_source, uint64_t *ret_version)
{
    if (record->source.version.len < 2 || record->source.id.len != 3) {
        return false;
    }
    *ret_source = record->source.id.data[2] - '0';
    *ret_version = 0;
    for (size_t i = 1; i < record->source.version.len; i++) {
        *ret_version = 10 * *ret_version + (uint64_t)(record->source.version.data[i] - '0');
    }
    return true;
}

/* A seal was committed, maybe durably: what is remembered may from now on be this version. */
static void source_committed(struct sim *sim, const struct sim_call *call)
{
    const struct record *record = &call->call.decision.next;
    int which;
    uint64_t version;
    if (!record_status_sealed(record->status) || !source_read(record, &which, &version)) {
        return;
    }
    struct sim_source *source = source_of(sim, call->key, which);
    if (version > source->any || call->commit_ms >= source->any_end_ms) {
        source->any = version;
        source->any_end_ms = record->window_expires_ms;
    } else if (version == source->any && record->window_expires_ms < source->any_end_ms) {
        source->any_end_ms = record->window_expires_ms;
    }
    if (version > source->told && source->any_end_ms < source->told_end_ms) {
        source->told_end_ms = source->any_end_ms; /* the newer one is forgotten sooner */
    }
    source->ever = version > source->ever ? version : source->ever;
}

/* Somebody heard of the seal: from now on nothing older may be granted. */
static void source_told(struct sim *sim, const struct sim_call *call)
{
    const struct record *record = &call->call.decision.next;
    int which;
    uint64_t version;
    if (call->call.decision.repeated || !source_read(record, &which, &version)) {
        return;
    }
    struct sim_source *source = source_of(sim, call->key, which);
    if (version > source->told || call->commit_ms >= source->told_end_ms) {
        source->told = version;
        source->told_end_ms = record->window_expires_ms;
        if (source->any > version && source->any_end_ms < source->told_end_ms) {
            source->told_end_ms = source->any_end_ms;
        }
        sim_note(sim, SOMETIMES_VERSIONS_SEALED);
    }
}

static void check_granted_version(struct sim *sim, const struct sim_call *call)
{
    if (call->source < 0) {
        return;
    }
    const struct sim_source *source = source_of(sim, call->key, call->source);
    if (call->version < source->told && call->commit_ms < source->told_end_ms) {
        sim_violate(sim, "OPS-7: version %" PRIu64 " was granted after the seal of %" PRIu64,
            call->version, source->told);
    }
}

static void check_stale_version(struct sim *sim, const struct sim_call *call)
{
    if (call->source < 0 || source_of(sim, call->key, call->source)->ever <= call->version) {
        sim_violate(sim, "OPS-7: refused as stale, and nothing newer was sealed");
    }
    sim_note(sim, SOMETIMES_VERSIONS_STALE);
}

/*
 * A commit may be durable without anybody ever hearing of it, so what it allows is noted here and
 * not with the answer: a release frees the key, a seal starts its window.
 */
void oracle_committed(struct sim *sim, const struct sim_call *call)
{
    const struct decision *said = &call->call.decision;
    if (call->from == FROM_WORKER) {
        work_committed(sim, call);
        return;
    }
    if (call->call.query != NULL || call->from == FROM_ROGUE || said->next.fence == 0 ||
        said->repeated) {
        return;
    }
    struct sim_operation *operation = oracle_operation(sim, &said->next.operation_id, call->key);
    int64_t over_ms = call->commit_ms + sim->keys[call->key].policy.window_ms;
    bool resolved = said->kind == DECISION_RESOLVED;
    if (said->kind == DECISION_SEALED || resolved) {
        source_committed(sim, call);
    }
    if (said->kind == DECISION_FIRST_SEEN) {
        operation->fence_any = said->next.fence;
        /* An id that nobody was told of can come again after a crash, for another payload. */
        operation->payload = operation->fence == 0 ? call->payload : operation->payload;
        operation->sealed = operation->sealed && !operation->may_retry;
    } else if (said->kind == DECISION_UNKNOWN) {
        operation->may_unknown = true;
    } else if (said->kind == DECISION_RELEASED ||
               (resolved && call->call.request.status == RECORD_RELEASED)) {
        operation->may_release = true;
        operation->over_ms = over_ms;
    } else if (said->kind == DECISION_SEALED || resolved) {
        operation->may_retry =
            call->call.request.status == RECORD_FAILED && sim->keys[call->key].policy.retry_failed;
        operation->over_ms = operation->sealed ? operation->over_ms : over_ms;
    }
}

/* ---- Grants. ---- */

/* Another attempt of an operation that somebody was granted before: by what right? */
static void check_again(
    struct sim *sim, const struct sim_operation *operation, const struct sim_call *call)
{
    if (operation->may_release) {
        sim_note(sim, SOMETIMES_RELEASES);
        return;
    }
    if (operation->may_retry) {
        sim_note(sim, SOMETIMES_RETRIES);
        return;
    }
    if (operation->sealed) {
        sim_violate(sim, "P3: granted again after its seal was told");
        return;
    }
    if (!takes_over(sim, operation)) {
        sim_violate(sim, "P1: a second grant of an operation that is to be held");
        return;
    }
    if (!operation->may_unknown && call->commit_ms < operation->lease_ms) {
        sim_violate(sim, "P1: taken over while the lease is alive");
    }
    sim_note(sim, SOMETIMES_TAKEOVERS);
}

static void check_grant(struct sim *sim, const struct sim_call *call)
{
    const struct record *record = &call->call.decision.next;
    struct sim_key *key = &sim->keys[call->key];
    struct sim_operation *operation = oracle_operation(sim, &record->operation_id, call->key);
    sim_note(sim, SOMETIMES_GRANTS);
    check_granted_version(sim, call);
    if (record->fence <= sim->fence_told) {
        sim_violate(
            sim, "P4: fence %" PRIu64 " was told after %" PRIu64, record->fence, sim->fence_told);
    }
    sim->fence_told = record->fence;
    if (key->told == operation) {
        check_again(sim, operation, call);
    } else if (key->told != NULL) {
        /* A new operation of the key: the window of the old one must be over. */
        if (call->commit_ms < key->told->over_ms) {
            sim_violate(sim, "P8: a new operation before the window of the last one is over");
        }
        sim_note(sim, SOMETIMES_EXPIRIES);
    }
    if (operation->fence > 0 && operation->payload != call->payload) {
        sim_violate(sim, "P7: granted to another payload");
    }
    key->told = operation;
    operation->payload = call->payload;
    operation->fence = record->fence;
    operation->lease_ms = call->commit_ms + key->policy.lease_ms;
    operation->may_release = operation->may_unknown = operation->may_retry = false;
    operation->sealed = false;
    operation->over_ms = INT64_MAX;
}

/* ---- Outcomes. ---- */

static bool was_sent(const struct sim_operation *operation, uint32_t outcome)
{
    for (size_t i = 0; i < operation->sent_count; i++) {
        if (operation->sent[i] == outcome) {
            return true;
        }
    }
    return false;
}

/* The first time that anybody hears of a seal it is fixed for good. */
static void note_sealed(
    struct sim *sim, struct sim_operation *operation, uint32_t outcome, const struct record *record)
{
    if (operation->sealed && operation->outcome != outcome) {
        sim_violate(sim, "P3: outcome %" PRIu32 " after outcome %" PRIu32 " was told", outcome,
            operation->outcome);
    }
    if (!was_sent(operation, outcome)) {
        sim_violate(sim, "P3: an outcome that nobody sent for this operation");
    }
    operation->sealed = true;
    operation->outcome = outcome;
    operation->status = record->status;
    operation->over_ms = record->window_expires_ms;
}

static void check_replay(
    struct sim *sim, struct sim_operation *operation, const struct sim_call *call)
{
    const struct record *record = &call->call.decision.next;
    char text[160];
    uint32_t outcome = 0;
    struct slice meta = record->outcome.meta;
    for (size_t i = 2; i < meta.len; i++) {
        outcome = 10 * outcome + (uint32_t)(meta.data[i] - '0');
    }
    size_t len = actor_outcome_text(outcome, text, sizeof text);
    if (!slice_equal(call->call.outcome, slice_of(text, len))) {
        sim_violate(sim, "P3: the replayed bytes are not those of outcome %" PRIu32, outcome);
    }
    if (record->outcome.code != (int32_t)(200 + outcome % 7)) {
        sim_violate(sim, "P3: the replayed code is not that of outcome %" PRIu32, outcome);
    }
    note_sealed(sim, operation, outcome, record);
    sim_note(sim, SOMETIMES_REPLAYS);
}

/* ---- Answers. ---- */

static void check_begin(struct sim *sim, const struct sim_call *call)
{
    const struct decision *said = &call->call.decision;
    if (said->kind == DECISION_STALE_VERSION) {
        check_stale_version(sim, call);
        if (said->next.fence == 0) {
            return; /* there is no record to show */
        }
    }
    if (memcmp(&said->next.key.hash, &sim->keys[call->key].key.hash, 32) != 0 ||
        !slice_equal(said->next.key.tenant, sim->keys[call->key].key.tenant)) {
        sim_violate(sim, "P9: the answer is about another key");
        return;
    }
    if (said->kind == DECISION_FIRST_SEEN) {
        check_grant(sim, call);
        return;
    }
    struct sim_operation *operation = oracle_operation(sim, &said->next.operation_id, call->key);
    bool conflict = said->kind == DECISION_CONFLICT_REJECTED;
    if (operation->payload >= 0 && conflict == (operation->payload == call->payload)) {
        sim_violate(sim,
            conflict ? "P7: the same payload was refused" : "P7: another payload was not refused");
    }
    if (conflict && call->call.outcome.len > 0) {
        sim_violate(sim, "P7: a conflict was shown the outcome");
    }
    if (operation->sealed && !operation->may_retry && !conflict &&
        said->kind != DECISION_DUPLICATE_REPLAYED) {
        sim_violate(sim, "P3: no replay of a seal that was told");
    }
    if (said->kind == DECISION_DUPLICATE_REPLAYED) {
        check_replay(sim, operation, call);
    } else if (said->kind == DECISION_HELD_UNKNOWN && takes_over(sim, operation)) {
        sim_violate(sim, "held although the policy takes over");
    }
    if (said->kind != DECISION_DUPLICATE_REPLAYED && said->kind != DECISION_STALE_VERSION) {
        sim_note(sim, conflict                             ? SOMETIMES_CONFLICTS
                      : said->kind == DECISION_IN_PROGRESS ? SOMETIMES_IN_PROGRESS
                                                           : SOMETIMES_HELD);
    }
}

static void check_refused(
    struct sim *sim, struct sim_operation *operation, const struct sim_call *call)
{
    uint64_t fence = call->call.request.fence;
    switch (call->call.decision.kind) {
    case DECISION_STALE_FENCE:
        if (operation->fence_any <= fence && !operation->may_release) {
            sim_violate(sim, "P4: the holder of the latest grant was called stale");
        }
        if (operation->fence_any > fence) {
            sim_note(sim, SOMETIMES_LATE_SEAL_REFUSED);
        }
        return;
    case DECISION_ALREADY_SEALED:
        if (operation->sent_count < 2 && call->call.request.kind == REQUEST_SEAL) {
            sim_violate(sim, "P3: already sealed, and nobody sent another seal");
        }
        sim_note(sim, SOMETIMES_OTHER_SEAL_REFUSED);
        return;
    case DECISION_NOT_FOUND:
        if (call->commit_ms < operation->over_ms) {
            sim_violate(sim, "P8: an operation is not found before its window is over");
        }
        return;
    case DECISION_FIRST_SEEN:
    case DECISION_DUPLICATE_REPLAYED:
    case DECISION_IN_PROGRESS:
    case DECISION_CONFLICT_REJECTED:
    case DECISION_HELD_UNKNOWN:
    case DECISION_SEALED:
    case DECISION_RELEASED:
    case DECISION_UNKNOWN:
    case DECISION_RENEWED:
    case DECISION_RESOLVED:
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
    sim_violate(sim, "a holder was told %s", decision_name(call->call.decision.kind));
}

static void check_holder(struct sim *sim, const struct sim_call *call)
{
    const struct decision *said = &call->call.decision;
    struct sim_operation *operation =
        oracle_operation(sim, &call->call.request.operation_id, call->key);
    switch (said->kind) {
    case DECISION_SEALED:
        if (!said->repeated && call->commit_ms >= operation->lease_ms) {
            sim_note(sim, SOMETIMES_LATE_SEAL);
        }
        if (said->repeated) {
            sim_note(sim, SOMETIMES_SEAL_REPEATED);
        } else if (said->next.window_expires_ms !=
                   call->commit_ms + sim->keys[call->key].policy.window_ms) {
            sim_violate(sim, "P8: the window does not count from the seal");
        }
        note_sealed(sim, operation, call->outcome, &said->next);
        source_told(sim, call);
        return;
    case DECISION_RENEWED:
        operation->lease_ms = said->next.lease_expires_ms;
        sim_note(sim, SOMETIMES_RENEWED);
        return;
    case DECISION_UNKNOWN: sim_note(sim, SOMETIMES_UNKNOWN_SAID); return;
    case DECISION_RELEASED: return;
    case DECISION_FIRST_SEEN:
    case DECISION_DUPLICATE_REPLAYED:
    case DECISION_IN_PROGRESS:
    case DECISION_CONFLICT_REJECTED:
    case DECISION_HELD_UNKNOWN:
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
    check_refused(sim, operation, call);
}

static void check_rogue(struct sim *sim, const struct sim_call *call)
{
    enum decision_kind kind = call->call.decision.kind;
    if (call->wrong_tenant) {
        if (kind != DECISION_NOT_FOUND) {
            sim_violate(sim, "P9: another tenant was told %s", decision_name(kind));
        }
        sim_note(sim, SOMETIMES_TENANT_REFUSED);
    } else {
        if (kind != DECISION_STALE_FENCE && kind != DECISION_NOT_FOUND) {
            sim_violate(sim, "P4: a wrong fence was told %s", decision_name(kind));
        }
        sim_note(sim, SOMETIMES_ROGUE_REFUSED);
    }
    if (call->call.decision.change != CHANGE_NONE) {
        sim_violate(sim, "P4: a wrong fence changed something");
    }
}

static void check_resolve(struct sim *sim, const struct sim_call *call)
{
    const struct decision *said = &call->call.decision;
    if (said->kind == DECISION_STALE_FENCE) {
        sim_note(sim, SOMETIMES_RESOLVE_STALE);
    }
    if (said->kind != DECISION_RESOLVED || said->repeated) {
        return;
    }
    if (call->call.request.status == RECORD_RELEASED) {
        sim_note(sim, SOMETIMES_RESOLVED_RELEASED);
        return;
    }
    struct sim_operation *operation =
        oracle_operation(sim, &call->call.request.operation_id, call->key);
    note_sealed(sim, operation, call->outcome, &said->next);
    source_told(sim, call);
    sim_note(sim, SOMETIMES_RESOLVED_EXECUTED);
}

void oracle_answered(struct sim *sim, const struct sim_call *call)
{
    const struct decision *said = &call->call.decision;
    if (call->call.query != NULL) {
        return; /* a look alone is not committed, and so neither is its time */
    }
    if (call->commit_ms < sim->acked_ms) {
        sim_violate(sim, "P8: time went back behind what was told");
    }
    sim->acked_ms = call->commit_ms;
    sim->fates[call->id] = FATE_ANSWERED;
    const uint64_t parts[] = {call->id, (uint64_t)said->kind, (uint64_t)said->rule[1],
        said->next.fence, (uint64_t)call->commit_ms, call->call.outcome.len};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        sim->trace = (sim->trace ^ parts[i]) * UINT64_C(0x100000001b3);
    }
    sim_say(sim, "call %" PRIu32 " from %d, %s of key %d: %s %s, fence %" PRIu64, call->id,
        call->from, request_kind_name(call->call.request.kind), call->key, said->rule,
        decision_name(said->kind), said->next.fence);
    if (call->from == FROM_WORKER) {
        return; /* work.c checks it */
    }
    if (call->from == FROM_ROGUE) {
        check_rogue(sim, call);
    } else if (call->call.request.kind == REQUEST_BEGIN) {
        check_begin(sim, call);
    } else if (call->call.request.kind == REQUEST_RESOLVE) {
        check_resolve(sim, call);
    } else {
        check_holder(sim, call);
    }
}

/* ---- The provider. ---- */

void oracle_effect(struct sim *sim, const struct sim_client *client)
{
    struct sim_operation *operation = oracle_operation(sim, &client->operation_id, client->key);
    if (operation->effect_fence == client->fence) {
        sim_violate(sim, "P1: two effects of one grant");
    }
    if (operation->effects > 0 && !takes_over(sim, operation)) {
        sim_violate(sim, "P1: the effect happened twice");
    }
    sim_say(sim, "effect of key %d with fence %" PRIu64, client->key, client->fence);
    operation->effects++;
    operation->effect_fence = client->fence;
    sim_note(sim, SOMETIMES_EFFECTS);
}

/* ---- The clock. ---- */

/* The engine may be behind the true time as far as it likes, and ahead of it by the jumps that it
 * believes: a minute and a thousandth of the time since the machine started. */
void oracle_clock(struct sim *sim, int64_t engine_ms)
{
    int64_t ahead = engine_ms - sim->true_ms;
    int64_t run_ms = sim->true_ms - sim->drift_from_ms;
    if (ahead > sim->drift_max_ms + LIMIT_CLOCK_JUMP_MS_MAX + run_ms / 1000) {
        sim_violate(sim, "P8: the engine believed a jump of the clock by %" PRId64 " ms", ahead);
    }
    if (sim->calm && ahead > 0) {
        sim_violate(sim, "P8: the engine is ahead of a clock that is right");
    }
    if (engine_ms < sim->acked_ms) {
        sim_violate(sim, "P8: engine time went back");
    }
}

/* ---- Everything, after each recovery and at the end. ---- */

static enum status audit_key(struct sim *sim, const struct sim_key *key, int64_t now_ms)
{
    const struct sim_operation *told = key->told;
    struct store *store = sim->store;
    struct arena arena;
    const struct record *record = NULL;
    if (told == NULL) {
        return OK;
    }
    arena_init(&arena, &mem_libc, 1 << 20);
    struct store_want want = {.key = &key->key.hash};
    struct store_batch batch = {.wants = &want, .count = 1, .arena = &arena};
    enum status status = store->ops->read(store, &batch, NULL);
    record = status == OK ? want.record : NULL;
    if (status != OK) {
        arena_release(&arena);
        return status;
    }
    if (record == NULL || !op_id_equal(&record->operation_id, &told->id)) {
        /* After a seal or release was committed, expiry and a new start are possible. */
        if (now_ms < told->over_ms) {
            sim_violate(sim, "P2: an operation that was told of is gone");
        }
    } else if (record->fence < told->fence) {
        sim_violate(sim, "P4: a grant that was told of is gone");
    } else if (told->sealed && !told->may_retry) {
        char meta[16];
        (void)snprintf(meta, sizeof meta, "n=%" PRIu32, told->outcome);
        if (record->status != told->status || !slice_is(record->outcome.meta, meta)) {
            sim_violate(sim, "P3: a seal that was told of is gone");
        }
    }
    arena_release(&arena);
    return OK;
}

struct oracle_audit {
    struct sim *sim;
    uint64_t seq;
    struct digest hash;
    struct arena arena;
    struct buf scratch;
    struct redecide redecide; /* at the end of a run; verify does it for the journal */
};

/* The evidence alone must lead to the same decisions. */
static void audit_decision(struct oracle_audit *audit, const struct entry *entry)
{
    static const struct redecide_stored nothing = {.squeezed = true};
    struct entry_view view;
    struct err err = {0};
    arena_clear(&audit->arena);
    enum status status = entry_view_read(entry, &audit->arena, &audit->scratch, &view, &err);
    if (status == OK) {
        status = redecide_entry(&audit->redecide, &view, &nothing, &err);
    }
    if (status != OK) {
        sim_violate(audit->sim, "P10: entry %" PRIu64 " decided again: %s", entry->seq, err.text);
    }
}

static bool audit_entry(void *context, const struct entry *entry)
{
    struct oracle_audit *audit = context;
    struct sim *sim = audit->sim;
    if (entry->kind != ENTRY_EVIDENCE) {
        return true;
    }
    struct digest hash;
    entry_link(&audit->hash, entry, &hash);
    if (entry->seq != audit->seq + 1) {
        sim_violate(sim, "P10: entry %" PRIu64 " follows %" PRIu64, entry->seq, audit->seq);
    }
    if (memcmp(&hash, &entry->hash, sizeof hash) != 0) {
        sim_violate(sim, "P10: entry %" PRIu64 " is not chained", entry->seq);
    }
    audit->seq = entry->seq;
    audit->hash = entry->hash;
    if (sim->ending && !sim->on_journal) {
        audit_decision(audit, entry);
    }
    static const char mark[] = "\"trace\":{\"call\":";
    /* The janitor's rules: what it does to a command has the trace of the call that made it. */
    bool is_own = memmem(entry->bytes.data, entry->bytes.len, "\"J2\"", 4) != NULL ||
                  memmem(entry->bytes.data, entry->bytes.len, "\"J4\"", 4) != NULL;
    const char *at = memmem(entry->bytes.data, entry->bytes.len, mark, sizeof mark - 1);
    if (at != NULL && !is_own) {
        uint64_t id = strtoull(at + sizeof mark - 1, NULL, 10);
        if (id < SIM_CALLS_MAX) {
            sim->entries[id]++;
        }
    }
    return true;
}

static enum status walk_evidence(struct sim *sim, struct oracle_audit *audit)
{
    struct store *store = sim->store;
    struct entry_range all = {0};
    memset(sim->entries, 0, sim->call_count + 1);
    arena_init(&audit->arena, &mem_libc, 1 << 20);
    buf_init(&audit->scratch, &mem_libc, 1 << 20);
    redecide_init(&audit->redecide, &mem_libc);
    enum status status = store->ops->entries(store, &all, audit_entry, audit, NULL);
    redecide_release(&audit->redecide);
    buf_release(&audit->scratch);
    arena_release(&audit->arena);
    return status;
}

static enum status audit_evidence(struct sim *sim)
{
    struct store *store = sim->store;
    struct oracle_audit audit = {.sim = sim};
    struct store_head head;
    enum status status = walk_evidence(sim, &audit);
    if (status != OK) {
        return status;
    }
    store->ops->head(store, &head);
    if (head.seq != audit.seq || memcmp(&head.hash, &audit.hash, sizeof head.hash) != 0) {
        sim_violate(sim, "P10: the head is not the last entry");
    }
    for (uint32_t id = 1; id <= sim->call_count; id++) {
        if (sim->fates[id] == FATE_ANSWERED && sim->entries[id] != 1) {
            sim_violate(
                sim, "P10: call %" PRIu32 " was answered and has %d entries", id, sim->entries[id]);
        } else if (sim->fates[id] == FATE_REFUSED && sim->entries[id] != 0) {
            sim_violate(sim, "P10: call %" PRIu32 " did not happen and has an entry", id);
        } else if (sim->entries[id] > 1) {
            sim_violate(sim, "P10: call %" PRIu32 " has %d entries", id, sim->entries[id]);
        }
    }
    return OK;
}

enum status oracle_audit(struct sim *sim)
{
    enum status status = OK;
    for (int i = 0; i < SIM_KEYS && status == OK; i++) {
        status = audit_key(sim, &sim->keys[i], sim->engine_ms);
    }
    return status == OK ? audit_evidence(sim) : status;
}
