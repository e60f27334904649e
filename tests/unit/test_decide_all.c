/*
 * The decision, held against a model written apart from it (model.h).
 *
 * For each kind of record: each shape it can have, with each request that differs in anything
 * decide looks at, at the moments around each edge of lease, window and due; then pairs of a
 * shorter list, on what the first left; then every history of any length, by following states until
 * there are no new ones.
 */
#include <stdio.h>
#include <string.h>

#include "cases.h"
#include "check_c.h"
#include "core/decide.h"
#include "model.h"
#include "promise.h"
#include "sanitized.h"

/* A request with its relations still open: they are about the record it will meet. */
struct asked {
    struct request request;
    int fence_off;        /* -1, 0, 1 against the record's; NO_FENCE: names none */
    bool other_operation; /* names another operation than the record's */
    const char *sealed;   /* what is told of its source: the last sealed version; NULL: none */
};

enum { NO_FENCE = 99, ASKED_MAX = 2000, SHAPES_MAX = 60, MOMENTS_MAX = 12 };

struct explorer {
    enum record_kind kind;
    struct asked asked[ASKED_MAX];
    size_t asked_count;
    uint64_t decided;   /* times decide and the model were compared */
    uint64_t histories; /* consecutive pairs and longer that these comparisons cover */
    uint64_t rules[96]; /* how often each of model_rules was seen */
};

static void add_asked(struct explorer *all, struct request request, int fence_off, bool other)
{
    assert_true(all->asked_count < ASKED_MAX);
    all->asked[all->asked_count++] = (struct asked){request, fence_off, other, NULL};
}

/* Begins or enqueues whose source is older than, as old as and newer than the last sealed
 * version. */
static void add_ordered(struct explorer *all, enum request_kind first, bool small)
{
    static const char *const versions[][2] = {
        {"9", NULL}, {"9", "8"}, {"9", "9"}, {"9", "10"}, {"10", "9"}, {"", "10"}};
    for (int i = 0; i < 2 * 2 * 2; i += small ? 2 : 1) {
        for (size_t j = small ? 2 : 0; j < sizeof versions / sizeof *versions; j++) {
            struct request request = first_request(first, all->kind);
            request.fingerprint = i % 2 ? print_b : print_a;
            request.policy.on_unknown = (enum on_unknown)(i / 2 % 2);
            request.policy.retry_failed = request.policy.retry_rejected = i / 4 % 2;
            request.source = (struct source){.type = SLICE_LIT("feed"),
                .id = SLICE_LIT("o-1"),
                .version = slice_str(versions[j][0])};
            add_asked(all, request, 0, false);
            all->asked[all->asked_count - 1].sealed = versions[j][1];
        }
    }
}

static void add_begins(struct explorer *all, bool small)
{
    int combinations = small ? 2 * 2 * 2 : 2 * 2 * 3 * 2 * 2 * 2;
    for (int i = 0; i < combinations; i++) {
        struct request request = first_request(REQUEST_BEGIN, all->kind);
        int rest = i;
        request.fingerprint = rest % 2 ? print_b : print_a;
        rest /= 2;
        request.policy.on_unknown = (enum on_unknown)(rest % (small ? 2 : 3));
        rest /= small ? 2 : 3;
        request.policy.retry_failed = rest % 2;
        request.policy.retry_rejected = small ? rest % 2 : rest / 2 % 2;
        rest /= 4;
        request.fingerprint_version = rest % 2 ? 2 : 1;
        rest /= 2;
        if (rest % 2) {
            request.policy.lease_ms = LEASE_MS_OTHER;
            request.policy.window_ms = WINDOW_MS_OTHER;
            request.door = RECORD_DOOR_GATEWAY;
            request.holder = LIVING;
            request.detail = SLICE_LIT("begun");
        }
        add_asked(all, request, 0, false);
    }
}

static void add_enqueues(struct explorer *all, bool small)
{
    for (int i = 0; i < (small ? 8 : 64); i++) {
        struct request request = first_request(REQUEST_ENQUEUE, all->kind);
        request.fingerprint = i % 2 ? print_b : print_a;
        request.policy.retry_failed = request.policy.retry_rejected = i / 2 % 2;
        request.delay_ms = i / 4 % 2 ? DELAY_MS : 0;
        request.door = small && i / 4 % 2 ? RECORD_DOOR_INBOX : 0; /* which reconciles */
        request.status = i / 8 % 2 ? RECORD_WAITING : 0;
        request.fingerprint_version = i / 16 % 2 ? 2 : 1;
        if (i / 32 % 2) {
            request.policy.window_ms = WINDOW_MS_OTHER;
            request.not_before_ms = START_MS + 12;
            request.status = request.status == 0 ? RECORD_PENDING : request.status;
            request.door = RECORD_DOOR_INBOX;
            request.parent = op_id_make(START_MS, &request.key.hash, 38);
            request.detail = SLICE_LIT("queued");
        }
        add_asked(all, request, 0, false);
    }
    struct request waits = first_request(REQUEST_ENQUEUE, all->kind);
    waits.status = RECORD_WAITING;
    add_asked(all, waits, 0, false);
}

static void add_seals(struct explorer *all, struct request request, bool small, bool to_released)
{
    /* Not executed is released for an operation and pending for work; asked the wrong way around it
     * is refused. */
    static const enum record_status sealed[] = {RECORD_EXECUTED, RECORD_FAILED, RECORD_REJECTED};
    static const enum record_status resolved[] = {
        RECORD_EXECUTED, RECORD_FAILED, RECORD_RELEASED, RECORD_PENDING};
    const enum record_status *statuses = to_released ? resolved : sealed;
    for (size_t i = 0; i < (to_released ? 4 : 3); i++) {
        for (int which = 0; which <= (small ? 1 : 5); which++) {
            for (int width = 0; width < (small ? 1 : 2); width++) {
                request.status = statuses[i];
                request.outcome = outcome_of(which);
                request.policy.window_ms = width ? WINDOW_MS_OTHER : 0;
                for (int off = -1; off <= 1; off++) {
                    add_asked(all, request, off, false);
                }
                if (request.kind == REQUEST_RESOLVE) {
                    add_asked(all, request, NO_FENCE, false);
                }
            }
        }
    }
    request.effect_id = SLICE_LIT("ch_2");
    request.outcome = outcome_of(0);
    add_asked(all, request, 0, false);
    add_asked(all, request, 0, true);
}

/* One request with each relation that its fence can have to the record's, and with another
 * operation than the record's. */
static void add_aimed(struct explorer *all, struct request request, bool small)
{
    add_asked(all, request, 0, false);
    add_asked(all, request, 1, false);
    if (!small) {
        add_asked(all, request, -1, false);
        add_asked(all, request, 0, true);
    }
    add_asked(all, request, NO_FENCE, false);
}

/* Retry and give up, with limits just used up, just not, and absent. */
static void add_limited(struct explorer *all, struct request request, bool small)
{
    static const struct {
        uint32_t attempts_max;
        int64_t deadline_ms;
    } limits[] = {{0, 0}, {3, 0}, {4, 0}, {1, 0}, {0, 505}, {0, 504}, {0, 520}, {4, 600}};
    for (size_t i = 0; i < (small ? 2 : sizeof limits / sizeof *limits); i++) {
        request.policy.attempts_max = limits[i].attempts_max;
        request.policy.deadline_ms = limits[i].deadline_ms;
        add_aimed(all, request, small);
    }
}

/* What is not there is not asked for by a status: wake, and how a compensation ended. */
static void add_by_status(
    struct explorer *all, struct request request, const enum record_status *statuses, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        request.status = statuses[i];
        add_asked(all, request, 0, false);
        add_asked(all, request, 0, true);
    }
}

static void add_claims(struct explorer *all, const struct record *any)
{
    struct request claim = holder_request(REQUEST_CLAIM, any);
    claim.fence = 0;
    add_asked(all, claim, NO_FENCE, false);
    add_asked(all, claim, NO_FENCE, true);
    all->asked[all->asked_count - 2].sealed = "8";
    claim.holder = LIVING;
    claim.policy.on_unknown = ON_UNKNOWN_RECONCILE;
    add_asked(all, claim, NO_FENCE, false);
    add_asked(all, claim, NO_FENCE, false);
    all->asked[all->asked_count - 1].sealed = "10";
}

/* Everything that only work which Once performs itself is asked; an operation refuses it. */
static void add_work(struct explorer *all, const struct record *any, bool small)
{
    static const enum record_status wakes[] = {RECORD_PENDING, RECORD_IN_PROGRESS, RECORD_WAITING,
        RECORD_EXECUTED, RECORD_FAILED, RECORD_REJECTED};
    static const enum record_status undone[] = {RECORD_COMPENSATED, RECORD_UNKNOWN};
    static const enum request_kind plain[] = {
        REQUEST_WAIT, REQUEST_CANCEL, REQUEST_TAKE_UP, REQUEST_POSTPONE, REQUEST_COMPENSATE};
    for (int delayed = small ? 1 : 0; delayed < 2; delayed++) {
        struct request request;
        for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
            request = holder_request(plain[i], any);
            request.delay_ms = delayed ? DELAY_MS : 0;
            request.detail = delayed ? SLICE_LIT("changed") : SLICE_EMPTY;
            add_aimed(all, request, small);
        }
        request = holder_request(REQUEST_RETRY, any);
        request.delay_ms = delayed ? DELAY_MS : 0;
        add_limited(all, request, small);
        request = holder_request(REQUEST_WAKE, any);
        request.delay_ms = delayed ? DELAY_MS : 0;
        request.holder = delayed ? LIVING : 0;
        add_by_status(all, request, wakes, sizeof wakes / sizeof *wakes);
    }
    add_limited(all, holder_request(REQUEST_GIVE_UP, any), small);
    add_by_status(all, holder_request(REQUEST_COMPENSATION_SETTLE, any), undone, 2);
    add_claims(all, any);
}

static void collect_requests(struct explorer *all, enum record_kind kind, bool small)
{
    static const enum request_kind plain[] = {
        REQUEST_RELEASE, REQUEST_UNKNOWN, REQUEST_RENEW, REQUEST_LEASE_OVER, REQUEST_HOLDER_GONE};
    struct record any = shape_as(kind, RECORD_IN_PROGRESS);
    all->kind = kind;
    all->asked_count = 0;
    if (kind != RECORD_EFFECT) {
        add_begins(all, small);
        add_ordered(all, REQUEST_BEGIN, small);
    }
    if (kind != RECORD_OPERATION) {
        add_enqueues(all, small);
        add_ordered(all, REQUEST_ENQUEUE, small);
    }
    add_seals(all, holder_request(REQUEST_SEAL, &any), small, false);
    add_seals(all, holder_request(REQUEST_RESOLVE, &any), small, true);
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        add_aimed(all, holder_request(plain[i], &any), small);
    }
    struct request later = holder_request(REQUEST_UNKNOWN, &any);
    later.delay_ms = DELAY_MS;
    add_aimed(all, later, small);
    struct request renew = holder_request(REQUEST_RENEW, &any);
    renew.policy.lease_ms = LEASE_MS_OTHER;
    renew.holder = LIVING;
    add_asked(all, renew, 0, false);
    struct request gone = holder_request(REQUEST_HOLDER_GONE, &any);
    gone.holder = GONE;
    add_asked(all, gone, 0, false);
    add_work(all, &any, small);
}

/* Fill in the relations. Without a record, any operation and fence will do. */
static struct request aim(const struct asked *asked, const struct record *found)
{
    struct request request = asked->request;
    if (request_by_key(request.kind) || found == NULL) {
        return request;
    }
    request.operation_id = found->operation_id;
    request.operation_id.bytes[9] ^= asked->other_operation ? 1 : 0;
    request.fence =
        asked->fence_off == NO_FENCE ? 0 : (uint64_t)((int64_t)found->fence + asked->fence_off);
    return request;
}

static void fail_step(const char *what, const struct record *found, const struct request *request,
    struct decide_moment moment, const struct decision *said)
{
    struct decision ought = model_decide(found, request, moment);
    printf("  %s\n  %s on %s at %+lld, fence %lld, record fence %lld, lease %+lld, window %+lld\n",
        what, request_kind_name(request->kind),
        found == NULL ? "nothing" : record_status_name(found->status),
        (long long)(moment.now_ms - START_MS), (long long)request->fence,
        found == NULL ? -1LL : (long long)found->fence,
        found == NULL ? 0LL : (long long)(found->lease_expires_ms - START_MS),
        found == NULL ? 0LL : (long long)(found->window_expires_ms - START_MS));
    printf("  decide says %s %s, the model %s %s\n", said->rule, decision_name(said->kind),
        ought.rule, decision_name(ought.kind));
    fail();
}

static void count_rule(struct explorer *all, const char *rule)
{
    for (size_t i = 0; model_rules[i] != NULL; i++) {
        if (strcmp(model_rules[i], rule) == 0) {
            all->rules[i]++;
            return;
        }
    }
    fail_msg("rule %s is in no list", rule);
}

static struct decision step(struct explorer *all, const struct record *found,
    const struct request *request, struct decide_moment moment)
{
    struct decision said = decide(found, request, moment);
    struct decision ought = model_decide(found, request, moment);
    if (said.kind != ought.kind || said.change != ought.change || said.repeated != ought.repeated ||
        strcmp(said.rule, ought.rule) != 0) {
        fail_step("the decision differs from the model's", found, request, moment, &said);
    }
    if (!model_same_record(&said.next, &ought.next)) {
        fail_step("the record differs from the model's", found, request, moment, &said);
    }
    const char *broken = promise_broken(found, request, moment, &said);
    if (broken != NULL) {
        fail_step(broken, found, request, moment, &said);
    }
    all->decided++;
    count_rule(all, said.rule);
    return said;
}

/* The moments worth looking at from `now`: now, and around each edge that lies ahead. */
static size_t moments_after(
    const struct record *found, int64_t now_ms, int64_t ret_moments[MOMENTS_MAX])
{
    size_t count = 0;
    ret_moments[count++] = now_ms;
    if (found == NULL) {
        return count;
    }
    const int64_t edges[] = {found->lease_expires_ms, found->window_expires_ms, found->due_ms};
    for (size_t i = 0; i < 3; i++) {
        for (int64_t at = edges[i] - 1; edges[i] != 0 && at <= edges[i] + 1; at++) {
            if (at > now_ms) {
                ret_moments[count++] = at;
            }
        }
    }
    if (count == 1) {
        ret_moments[count++] = now_ms + 1;
    }
    return count;
}

/* The shapes that only some statuses have. */
static size_t more_shapes(struct record record, struct record *ret_shapes)
{
    size_t count = 0;
    if (record_sealed(&record)) {
        record.outcome = outcome_of(5);
        record.effect_id = SLICE_EMPTY;
        ret_shapes[count++] = record;
    }
    if (record.status == RECORD_UNKNOWN || record.status == RECORD_WAITING) {
        record.due_ms = record.due_ms == 0 ? DUE_MS : 0;
        ret_shapes[count++] = record;
    }
    if (record.status == RECORD_UNKNOWN && kind_has_status(record.kind, RECORD_COMPENSATING)) {
        record.sealed_ms = START_MS;
        record.outcome = outcome_of(0);
        record.effect_id = SLICE_LIT("ch_1");
        ret_shapes[count++] = record;
    }
    if (record.status == RECORD_IN_PROGRESS) {
        record.holder = record.holder == 0 ? GONE : 0;
        record.door = RECORD_DOOR_GATEWAY;
        record.reconciles = true;
        ret_shapes[count++] = record;
    }
    if (record.status == RECORD_PENDING || record.status == RECORD_WAITING ||
        record.status == RECORD_DEAD) {
        record.source = (struct source){SLICE_LIT("feed"), SLICE_LIT("o-1"), SLICE_LIT("9")};
        record.fence = record.attempt = 0; /* never granted */
        ret_shapes[count++] = record;
    }
    return count;
}

/* Every shape of records of a kind; returns how many. NULL, absence, is the caller's. */
static size_t all_shapes(enum record_kind kind, struct record ret_shapes[SHAPES_MAX])
{
    size_t count = 0;
    for (int i = RECORD_IN_PROGRESS; i < RECORD_STATUS_END; i++) {
        enum record_status status = (enum record_status)i;
        if (!kind_has_status(kind, status)) {
            continue;
        }
        struct record record = shape_as(kind, status);
        ret_shapes[count++] = record;
        record.duplicates = UINT32_MAX; /* the count stays there instead of starting over */
        record.attempt = 1;
        ret_shapes[count++] = record;
        record.fingerprint_version = 2;
        record.version = 1;
        record.duplicates = 0;
        ret_shapes[count++] = record;
        count += more_shapes(shape_as(kind, status), ret_shapes + count);
    }
    assert_true(count <= SHAPES_MAX);
    return count;
}

/* A state that some first request left, to ask the second one in. */
struct state {
    struct record record;
    bool there;
    int64_t now_ms;
    uint64_t fence_next;
    uint64_t ways; /* how many histories lead here */
};

struct states {
    struct state *at;
    size_t count;
    size_t room;
    size_t *slots; /* open-addressed: index + 1 into at */
    size_t slot_count;
};

static void states_init(struct states *states, size_t slot_count)
{
    *states = (struct states){.slot_count = slot_count};
    states->slots = test_calloc(slot_count, sizeof *states->slots);
}

static void states_release(struct states *states)
{
    test_free(states->at);
    test_free(states->slots);
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ (hash >> 29);
}

static uint64_t state_hash(const struct state *state)
{
    const struct record *record = &state->record;
    const uint64_t parts[] = {state->there, (uint64_t)state->now_ms, state->fence_next,
        record->version, (uint64_t)record->status, record->fence, record->attempt,
        record->duplicates, (uint64_t)record->lease_expires_ms, (uint64_t)record->window_expires_ms,
        (uint64_t)record->window_ms, (uint64_t)record->sealed_ms, record->outcome.body.bytes,
        (uint64_t)record->outcome.code, record->reason.len, record->effect_id.len,
        record->fingerprint.bytes[0], record->operation_id.bytes[9], (uint64_t)record->due_ms,
        record->holder, (uint64_t)record->door, record->reconciles, record->detail.len,
        record->parent.bytes[9], record->source.version.len, record->request.bytes};
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        hash = mix(hash, parts[i]);
    }
    return hash;
}

static bool state_same(const struct state *a, const struct state *b)
{
    return a->there == b->there && a->now_ms == b->now_ms && a->fence_next == b->fence_next &&
           model_same_record(&a->record, &b->record);
}

/* Add it, or count another way to it. True when it is new. */
static bool states_add(struct states *states, const struct state *state)
{
    size_t slot = state_hash(state) % states->slot_count;
    for (; states->slots[slot] != 0; slot = (slot + 1) % states->slot_count) {
        struct state *there = &states->at[states->slots[slot] - 1];
        if (state_same(there, state)) {
            there->ways += state->ways;
            return false;
        }
    }
    if (states->count == states->room) {
        states->room = states->room == 0 ? 1024 : 2 * states->room;
        states->at = test_realloc(states->at, states->room * sizeof *states->at);
    }
    assert_true(states->count + 1 < states->slot_count);
    states->at[states->count++] = *state;
    states->slots[slot] = states->count;
    return true;
}

/* What the state is after a decision at that moment. */
static struct state follow(
    const struct state *from, const struct decision *said, struct decide_moment moment)
{
    struct state to = *from;
    to.now_ms = moment.now_ms;
    if (said->change != CHANGE_NONE) {
        to.record = said->next;
        to.there = true;
    }
    if (decision_took_fence(said)) {
        to.fence_next = moment.fence_next + 1;
    }
    return to;
}

/* Every request at every moment from one state; what follows goes to `ret_next` unless NULL. */
static void explore_from(struct explorer *all, const struct state *from, struct states *ret_next)
{
    const struct record *found = from->there ? &from->record : NULL;
    int64_t moments[MOMENTS_MAX];
    size_t count = moments_after(found, from->now_ms, moments);
    for (size_t i = 0; i < count; i++) {
        struct decide_moment moment = {.now_ms = moments[i], .fence_next = from->fence_next};
        for (size_t j = 0; j < all->asked_count; j++) {
            struct request request = aim(&all->asked[j], found);
            const char *sealed = all->asked[j].sealed;
            moment.version_sealed = sealed == NULL ? SLICE_EMPTY : slice_str(sealed);
            struct decision said = step(all, found, &request, moment);
            all->histories += from->ways;
            if (ret_next != NULL) {
                struct state to = follow(from, &said, moment);
                (void)states_add(ret_next, &to);
            }
        }
    }
}

static void start_states(enum record_kind kind, struct states *states)
{
    struct record shapes[SHAPES_MAX];
    size_t count = all_shapes(kind, shapes);
    struct state absent = {.now_ms = START_MS, .fence_next = 60, .ways = 1};
    assert_true(states_add(states, &absent));
    for (size_t i = 0; i < count; i++) {
        struct state state = {
            .record = shapes[i], .there = true, .now_ms = START_MS, .fence_next = 60, .ways = 1};
        assert_true(states_add(states, &state));
    }
}

static void assert_every_rule_was_seen(const struct explorer *all)
{
    for (size_t i = 0; model_rules[i] != NULL; i++) {
        if (all->rules[i] == 0) {
            fail_msg("rule %s was never reached", model_rules[i]);
        }
    }
}

/* Every kind that is decided about. */
static const enum record_kind decided[] = {
    RECORD_OPERATION, RECORD_COMMAND, RECORD_EFFECT, RECORD_DELIVERY};
enum { DECIDED = sizeof decided / sizeof *decided };

/* To this depth, each state is reached in every possible way; equal states are asked once, because
 * the same arguments give the same decision. */
static void explore_kind(struct explorer *all, enum record_kind kind, bool small, int depth)
{
    collect_requests(all, kind, small);
    struct states now;
    states_init(&now, 1 << 10);
    start_states(kind, &now);
    for (int i = 1; i <= depth; i++) {
        struct states next;
        states_init(&next, (size_t)1 << 20);
        all->histories = 0;
        for (size_t j = 0; j < now.count; j++) {
            explore_from(all, &now.at[j], i < depth ? &next : NULL);
        }
        printf("  %s, %d in a row: %zu states x %zu requests, %llu histories\n", kind_name(kind), i,
            now.count, all->asked_count, (unsigned long long)all->histories);
        states_release(&now);
        now = next;
    }
    states_release(&now);
}

static void explore(bool small, int depth)
{
    struct explorer *all = test_calloc(1, sizeof *all);
    for (size_t i = 0; i < DECIDED; i++) {
        explore_kind(all, decided[i], small, depth);
    }
    printf("  %llu decisions held against the model\n", (unsigned long long)all->decided);
    assert_every_rule_was_seen(all);
    test_free(all);
}

static void every_request_of_every_shape_agrees_with_the_model(void **state)
{
    (void)state;
    explore(false, 1);
}

static void every_two_in_a_row_agree_with_the_model(void **state)
{
    (void)state;
    explore(true, 2);
}

/* An end that lies ahead is as far away as it was; all that are past are the same. */
static int64_t shifted(int64_t end_ms, int64_t shift)
{
    int64_t to = end_ms + shift;
    return end_ms == 0 ? 0 : to < START_MS ? START_MS : to;
}

/* The same state but for what decide only counts or copies: numbers start over, time is now. */
static struct state normal(struct state state)
{
    int64_t shift = START_MS - state.now_ms;
    struct record *record = &state.record;
    state.now_ms = START_MS;
    state.fence_next = 60;
    state.ways = 1;
    if (!state.there) {
        return state;
    }
    record->version = 9;
    record->fence = record->fence == 0 ? 0 : FENCE;
    record->duplicates = 4;
    record->attempt = record->attempt > 1 ? 3 : record->attempt;
    record->created_ms = record->updated_ms = START_MS;
    record->sealed_ms = record->sealed_ms == 0 ? 0 : START_MS;
    record->operation_id = op_id_make(START_MS, &record->key.hash, 40);
    record->lease_expires_ms = shifted(record->lease_expires_ms, shift);
    record->window_expires_ms = shifted(record->window_expires_ms, shift);
    record->due_ms = shifted(record->due_ms, shift);
    return state;
}

static void follow_all(struct explorer *all, enum record_kind kind)
{
    struct states seen;
    struct states next;
    collect_requests(all, kind, true);
    states_init(&seen, 1 << 18);
    struct state absent = normal((struct state){.ways = 1});
    assert_true(states_add(&seen, &absent));
    for (size_t i = 0; i < seen.count; i++) {
        struct state from = seen.at[i];
        states_init(&next, 1 << 12);
        explore_from(all, &from, &next);
        for (size_t j = 0; j < next.count; j++) {
            struct state to = normal(next.at[j]);
            (void)states_add(&seen, &to);
        }
        states_release(&next);
    }
    printf("  %s: %zu states are all there are\n", kind_name(kind), seen.count);
    states_release(&seen);
}

static void every_history_from_nothing_agrees_with_the_model(void **state)
{
    (void)state;
    struct explorer *all = test_calloc(1, sizeof *all);
    for (size_t i = 0; i < DECIDED; i++) {
        follow_all(all, decided[i]);
    }
    printf("  %llu decisions held against the model\n", (unsigned long long)all->decided);
    assert_every_rule_was_seen(all);
    test_free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_request_of_every_shape_agrees_with_the_model),
        TEST(every_two_in_a_row_agree_with_the_model),
        TEST(every_history_from_nothing_agrees_with_the_model),
    };
    /* The others are millions of calls of a function without memory of its own. */
    const struct CMUnitTest sanitized[] = {
        TEST(every_request_of_every_shape_agrees_with_the_model),
    };
    return IS_SANITIZED ? cmocka_run_group_tests_name("decide_all", sanitized, NULL, NULL)
                        : cmocka_run_group_tests_name("decide_all", tests, NULL, NULL);
}
