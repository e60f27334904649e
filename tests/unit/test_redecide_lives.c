/*
 * Deciding again, for every kind of record and every request: a random walk through the lives of
 * core/kind.h, each decision written as an entry, read back, and decided again from the entries
 * alone, beside the record that was stored.
 */
#include <stdio.h>
#include <string.h>

#include "cases.h"
#include "check_c.h"
#include "evidence/redecide.h"
#include "model.h"
#include "prng.h"

enum { STEPS = 40000, TEXTS = 64, KINDS = RECORD_DELIVERY + 1 };

/* What somebody changed after the decision: of the record stored, or of the entry. */
enum forgery {
    FORGE_NOTHING,
    FORGE_DUE,
    FORGE_HOLDER,
    FORGE_DETAIL,
    FORGE_DOOR,
    FORGE_RECONCILES,
    FORGE_PARENT,
    FORGE_SOURCE,
    FORGE_ENTRY, /* a member of the entry is left out */
};

struct walk {
    struct prng prng;
    struct arena arena;
    struct buf scratch;
    struct buf text;
    struct redecide redecide;
    struct chain chain;
    struct record records[KINDS];
    bool there[KINDS];
    uint64_t fence;
    int64_t now_ms;
    uint64_t decided;
    enum forgery forgery;
    const char *left_out; /* FORGE_ENTRY: the member … */
    const char *of_rule;  /* … of an entry by this rule; NULL: of any */
    bool forged;
    uint64_t mismatches;
    struct err first; /* the first mismatch */
    char types[TEXTS][40];
    size_t type_count;
    uint64_t rules[96];
    bool is_old;  /* decides H7 as a release that does not know it */
    uint64_t old; /* how often */
};

static void walk_init(struct walk *walk, uint64_t seed)
{
    *walk = (struct walk){.fence = 1, .now_ms = START_MS};
    walk->prng = (struct prng){seed};
    chain_init(
        &walk->chain, &(struct store_head){0}, &(struct store_identity){.chain_id = {1, 0x92}});
    arena_init(&walk->arena, &mem_libc, 1 << 20);
    buf_init(&walk->scratch, &mem_libc, 1 << 16);
    buf_init(&walk->text, &mem_libc, 1 << 16);
    redecide_init(&walk->redecide, &mem_libc);
}

static void walk_release(struct walk *walk)
{
    redecide_release(&walk->redecide);
    buf_release(&walk->text);
    buf_release(&walk->scratch);
    arena_release(&walk->arena);
}

static uint64_t below(struct walk *walk, uint64_t end)
{
    return prng_below(&walk->prng, end);
}

static enum record_status pick_status(struct walk *walk, enum request_kind kind)
{
    static const enum record_status sealed[] = {RECORD_EXECUTED, RECORD_FAILED, RECORD_REJECTED,
        RECORD_PENDING, RECORD_IN_PROGRESS, RECORD_WAITING};
    switch ((int)kind) {
    case REQUEST_SEAL: return sealed[below(walk, 3)];
    case REQUEST_RESOLVE: return below(walk, 3) ? sealed[below(walk, 2)] : RECORD_PENDING;
    case REQUEST_WAKE: return sealed[below(walk, 6)];
    case REQUEST_ENQUEUE: return below(walk, 2) ? RECORD_WAITING : RECORD_PENDING;
    case REQUEST_COMPENSATION_SETTLE: return below(walk, 2) ? RECORD_COMPENSATED : RECORD_UNKNOWN;
    default: return 0;
    }
}

/* Of two limits on one thing there is only one, so that leaving it out makes a difference. */
static struct request pick_request(struct walk *walk, enum record_kind kind)
{
    const struct record *found = &walk->records[kind];
    enum request_kind asked = (enum request_kind)below(walk, REQUEST_KIND_END);
    bool first = !walk->there[kind] || request_by_key(asked);
    if (first) {
        asked = kind == RECORD_OPERATION || (kind != RECORD_EFFECT && below(walk, 3) == 0)
                    ? REQUEST_BEGIN
                    : REQUEST_ENQUEUE;
    }
    const struct source sources[] = {{.type = SLICE_EMPTY},
        {.type = SLICE_LIT("feed"), .id = SLICE_LIT("o-1")}, /* no version: not compared */
        {SLICE_LIT("feed"), SLICE_LIT("o-1"), SLICE_LIT("7")},
        {SLICE_LIT("feed"), SLICE_LIT("o-2"), SLICE_LIT("8")}};
    struct request request = first ? first_request(asked, kind) : holder_request(asked, found);
    request.status = pick_status(walk, asked);
    if (kind == RECORD_EFFECT && request.status == RECORD_WAITING) {
        request.status = 0;
    }
    if (kind == RECORD_OPERATION && request.status == RECORD_PENDING) {
        request.status = RECORD_RELEASED;
    }
    if (first) {
        request.policy.retry_failed = request.policy.retry_rejected = below(walk, 2);
        request.fingerprint = below(walk, 8) ? print_a : print_b;
        request.door = (enum record_door)below(walk, RECORD_DOOR_END);
        request.source = sources[below(walk, 4)];
        request.parent =
            below(walk, 2) ? op_id_make(START_MS, &request.key.hash, 38) : (struct op_id){0};
    }
    if (request_asks_grant(&request) || asked == REQUEST_RENEW) {
        request.holder = below(walk, 3);
        request.policy.on_unknown = (enum on_unknown)below(walk, 3);
    }
    request.fence += !first && below(walk, 10) == 0;
    request.fence = asked == REQUEST_GIVE_UP && below(walk, 2) ? 0 : request.fence;
    request.delay_ms = below(walk, 2) ? (int64_t)below(walk, 9) : 0;
    request.not_before_ms = request.delay_ms > 0 || below(walk, 2) ? 0 : walk->now_ms + 3;
    if (asked == REQUEST_RETRY || asked == REQUEST_GIVE_UP) {
        request.policy.attempts_max = (uint32_t)below(walk, 6);
        request.policy.deadline_ms = request.policy.attempts_max > 0 ? 0 : 200;
    }
    request.detail = below(walk, 3) ? SLICE_EMPTY : SLICE_LIT("from now on");
    return request;
}

/* The record as somebody wants it to be read later. */
static void forge_record(struct walk *walk, struct record *stored)
{
    struct record before = *stored;
    switch (walk->forgery) {
    case FORGE_DUE: stored->due_ms += stored->due_ms != 0; break;
    case FORGE_HOLDER: stored->holder += stored->holder != 0; break;
    case FORGE_DETAIL: stored->detail = stored->detail.len ? SLICE_LIT("x") : SLICE_EMPTY; break;
    case FORGE_DOOR: stored->door = RECORD_DOOR_RUN; break;
    case FORGE_RECONCILES: stored->reconciles = !stored->reconciles; break;
    case FORGE_PARENT: stored->parent.bytes[5] ^= !op_id_absent(&stored->parent); break;
    case FORGE_SOURCE:
        stored->source.id = stored->source.id.len ? SLICE_LIT("o-3") : SLICE_EMPTY;
        break;
    case FORGE_NOTHING:
    case FORGE_ENTRY: return;
    }
    walk->forged = !model_same_record(&before, stored);
}

/* Leave a member whose value is a number, or a text without commas, out of the entry. */
static struct slice forge_entry(struct walk *walk, struct slice bytes, const char *rule)
{
    static char line[8192];
    char name[64];
    if (walk->forgery != FORGE_ENTRY || walk->forged ||
        (walk->of_rule != NULL && strcmp(walk->of_rule, rule) != 0)) {
        return bytes;
    }
    (void)snprintf(name, sizeof name, ",\"%s\":", walk->left_out);
    const char *at = memmem(bytes.data, bytes.len, name, strlen(name));
    if (at == NULL) {
        return bytes;
    }
    const char *end = at + strlen(name);
    while (*end != ',' && *end != '}') { /* the entry ends with a brace, and with no zero */
        end++;
    }
    int length = snprintf(line, sizeof line, "%.*s%.*s", (int)(at - bytes.data), bytes.data,
        (int)(bytes.data + bytes.len - end), end);
    walk->forged = true;
    return slice_of(line, (size_t)length);
}

static void seen(struct walk *walk, const char *type, const char *rule)
{
    for (size_t i = 0; model_rules[i] != NULL; i++) {
        walk->rules[i] += strcmp(model_rules[i], rule) == 0;
    }
    for (size_t i = 0; i < walk->type_count; i++) {
        if (strcmp(walk->types[i], type) == 0) {
            return;
        }
    }
    assert_true(walk->type_count < TEXTS);
    (void)snprintf(walk->types[walk->type_count++], sizeof walk->types[0], "%s", type);
}

/* Write the decision as an entry, and decide it again beside what was stored. */
static void again(struct walk *walk, const struct entry_facts *facts)
{
    const struct decision *decision = facts->decision;
    struct record forged = decision->next;
    struct redecide_stored stored = {
        .record = decision->change == CHANGE_PUT ? &forged : NULL,
        .touch = decision->change == CHANGE_TOUCH ? &decision->next.key.hash : NULL,
    };
    struct entry entry;
    struct entry_view view;
    struct err err = {0};
    buf_clear(&walk->text);
    arena_clear(&walk->arena);
    assert_int_equal(entry_compose(&walk->chain, facts, &walk->text, &entry), OK);
    seen(walk, entry_type(facts), decision->rule);
    if (stored.record != NULL && !walk->forged) {
        forge_record(walk, &forged);
    }
    entry.bytes = forge_entry(walk, entry.bytes, decision->rule);
    enum status status = entry_view_read(&entry, &walk->arena, &walk->scratch, &view, &err);
    if (status == OK) {
        assert_int_equal(view.kind, entry_kind(facts));
        status = redecide_entry(&walk->redecide, &view, &stored, &err);
    }
    if (status != OK) {
        assert_int_equal(status, E_CORRUPT);
        walk->first = walk->mismatches == 0 ? err : walk->first;
        walk->mismatches++;
    }
}

static void step(struct walk *walk)
{
    static const enum record_kind kinds[] = {
        RECORD_OPERATION, RECORD_COMMAND, RECORD_EFFECT, RECORD_DELIVERY};
    enum record_kind kind = kinds[below(walk, 4)];
    struct err err;
    walk->now_ms += (int64_t)below(walk, 100 * (1 + below(walk, 2) * below(walk, 2))) / 12;
    struct request request = pick_request(walk, kind);
    if (request_check(&request, &err) != OK) {
        return; /* a status that the kind cannot be asked for */
    }
    struct decide_moment moment = {
        .now_ms = walk->now_ms, .fence_next = request_takes_fence(&request) ? walk->fence : 0};
    const struct record *found = walk->there[kind] ? &walk->records[kind] : NULL;
    struct decision decision = decide(found, &request, moment);
    if (decision.kind == DECISION_NOTHING) {
        return;
    }
    if (walk->is_old && strcmp(decision.rule, "H7") == 0) {
        decision.rule = "H5";
        decision.next.due_ms = walk->now_ms;
        walk->old++;
    }
    again(walk, &(struct entry_facts){&request, found, &decision, moment});
    walk->decided++;
    walk->fence += decision_took_fence(&decision);
    if (decision.change != CHANGE_NONE) {
        walk->records[kind] = decision.next;
        walk->there[kind] = true;
    }
}

/* A forgery that was found says no more. */
static void run(struct walk *walk)
{
    for (int i = 0; i < STEPS && !(walk->forged && walk->mismatches > 0); i++) {
        step(walk);
    }
}

static void every_decision_comes_out_the_same(void **state)
{
    static struct walk walk;
    (void)state;
    walk_init(&walk, 1);
    run(&walk);
    if (walk.mismatches > 0) {
        print_error("%s\n", walk.first.text);
    }
    assert_int_equal(walk.mismatches, 0);
    assert_int_equal(walk.redecide.redecided, walk.decided);
    assert_int_equal(walk.redecide.not_redecidable, 0);
    walk_release(&walk);
}

/* A release that had no rule H7 wrote the delay of an unknown down, and was due at once. */
static void entries_from_before_rule_h7_come_out_the_same(void **state)
{
    static struct walk walk;
    (void)state;
    walk_init(&walk, 1);
    walk.is_old = true;
    run(&walk);
    if (walk.mismatches > 0) {
        print_error("%s\n", walk.first.text);
    }
    assert_int_equal(walk.mismatches, 0);
    assert_true(walk.old > 0);
    walk_release(&walk);
}

/* Stale versions need a source, and the janitor writes nothing when there is nothing to do. */
static bool not_here(const char *rule)
{
    static const char *const rules[] = {
        "B9", "E7", "C4", "J1", "J3", "J5", "H1", "N1", "C1", "W1", "X1", "U1", "Q1", "K1"};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (strcmp(rules[i], rule) == 0) {
            return true;
        }
    }
    return false;
}

static void the_walk_applies_every_rule_and_writes_every_type(void **state)
{
    static const char *const types[] = {"execution.started", "execution.executed",
        "execution.failed", "execution.rejected", "execution.blocked", "execution.released",
        "execution.resolved", "observation.emitted", "command.received", "confirmation.requested",
        "confirmation.accepted", "confirmation.denied", "confirmation.expired", "effect.created",
        "effect.dispatched", "effect.acknowledged", "effect.retried", "effect.failed",
        "effect.uncertain", "effect.dead_lettered", "effect.cancelled", "effect.compensated",
        "compensation.started", "compensation.executed", "compensation.failed", "delivery.received",
        "delivery.delivered", "delivery.retried", "delivery.failed", "delivery.dead_lettered",
        "delivery.skipped"};
    static struct walk walk;
    (void)state;
    walk_init(&walk, 1);
    run(&walk);
    for (size_t i = 0; model_rules[i] != NULL; i++) {
        if (walk.rules[i] == 0 && !not_here(model_rules[i])) {
            fail_msg("rule %s was never applied", model_rules[i]);
        }
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        bool found = false;
        for (size_t k = 0; k < walk.type_count; k++) {
            found = found || strcmp(walk.types[k], types[i]) == 0;
        }
        if (!found) {
            fail_msg("no entry is of type %s", types[i]);
        }
    }
    assert_int_equal(walk.type_count, sizeof types / sizeof *types);
    walk_release(&walk);
}

static void a_changed_due_holder_detail_or_source_is_found(void **state)
{
    static struct walk walk;
    (void)state;
    for (int forgery = FORGE_DUE; forgery <= FORGE_SOURCE; forgery++) {
        walk_init(&walk, 1);
        walk.forgery = (enum forgery)forgery;
        run(&walk);
        assert_true(walk.forged);
        if (walk.mismatches == 0) {
            fail_msg("forgery %d was not found", forgery);
        }
        walk_release(&walk);
    }
}

static void an_entry_that_lacks_what_was_decided_on_is_found(void **state)
{
    static const struct {
        const char *member;
        const char *rule;
    } members[] = {{"delay_ms", "E1"}, {"delay_ms", "T1"}, {"delay_ms", "Q3"}, {"holder", "B1"},
        {"holder", "C2"}, {"holder", "J4"}, {"door", "B1"}, {"detail_digest", "E1"},
        {"parent", "E1"}, {"not_before_ms", "E1"}, {"attempts_max", "T4"}, {"fence_next", "C2"},
        {"lease_ms", "C2"}, {"on_unknown", "B4"}, {"status", "W2"}, {"status", "E1"}};
    static struct walk walk;
    (void)state;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        walk_init(&walk, 1);
        walk.forgery = FORGE_ENTRY;
        walk.left_out = members[i].member;
        walk.of_rule = members[i].rule;
        run(&walk);
        if (!walk.forged || walk.mismatches == 0) {
            fail_msg("%s of %s: %s", members[i].member, members[i].rule,
                walk.forged ? "not found" : "no entry");
        }
        walk_release(&walk);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_decision_comes_out_the_same),
        cmocka_unit_test(entries_from_before_rule_h7_come_out_the_same),
        cmocka_unit_test(the_walk_applies_every_rule_and_writes_every_type),
        cmocka_unit_test(a_changed_due_holder_detail_or_source_is_found),
        cmocka_unit_test(an_entry_that_lacks_what_was_decided_on_is_found),
    };
    return cmocka_run_group_tests_name("redecide_lives", tests, NULL, NULL);
}
