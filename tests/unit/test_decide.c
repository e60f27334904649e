/*
 * The decision, held against a model written apart from it (model.h).
 *
 * First the rows of the table as sentences, for the reader. Then everything: each shape a record
 * can have, with each request that differs in anything decide looks at, at the moments around each
 * edge of lease and window; then each of these again on what the first one left; then every history
 * of any length, by following states until there are no new ones.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_c.h"
#include "core/decide.h"
#include "model.h"

enum {
    START_MS = 1000000,
    LEASE_MS = 10,
    LEASE_MS_OTHER = 15,
    WINDOW_MS = 100,
    WINDOW_MS_OTHER = 70,
    FENCE = 50,
};

static const struct digest print_a = {{0xaa}};
static const struct digest print_b = {{0xbb}};

static struct record_key the_key(void)
{
    struct record_key key = {.tenant = SLICE_LIT("acme"),
        .scope = SLICE_LIT("pay"),
        .principal = SLICE_LIT("ann"),
        .key = SLICE_LIT("k1")};
    assert_int_equal(record_key_seal(&key, NULL), OK);
    return key;
}

static struct outcome outcome_of(int which)
{
    struct outcome outcome = {.code = 200,
        .meta = SLICE_LIT("type: json"),
        .body = {.digest = {{1}}, .bytes = 5, .retained = true, .place = 9}};
    switch (which) {
    case 1: outcome.code = 201; break;
    case 2: outcome.meta = SLICE_LIT("type: text"); break;
    case 3: outcome.body.digest.bytes[31] = 1; break;
    case 4: outcome.body.bytes = 6; break;
    case 5: outcome = (struct outcome){0}; break;
    default: break;
    }
    return outcome;
}

/* A record as some history left it at START_MS. */
static struct record shape(enum record_status status)
{
    struct record record = {.key = the_key(),
        .version = 9,
        .kind = RECORD_OPERATION,
        .status = status,
        .fingerprint = print_a,
        .fingerprint_version = 1,
        .fence = FENCE,
        .attempt = 3,
        .duplicates = 4,
        .created_ms = START_MS - 500,
        .updated_ms = START_MS,
        .window_ms = WINDOW_MS,
        .request = {.digest = {{7}}, .bytes = 3, .retained = true, .place = 5},
        .source = {.type = SLICE_LIT("queue"), .id = SLICE_LIT("m-1")},
        .trace = SLICE_LIT("{}")};
    record.operation_id = op_id_make(record.created_ms, &record.key.hash, 40);
    if (status == RECORD_IN_PROGRESS) {
        record.lease_expires_ms = START_MS + LEASE_MS;
        return record;
    }
    record.reason = SLICE_LIT("because");
    if (status != RECORD_UNKNOWN) {
        record.window_expires_ms = START_MS + WINDOW_MS;
    }
    if (record_status_sealed(status)) {
        record.sealed_ms = START_MS;
        record.outcome = outcome_of(0);
        record.effect_id = SLICE_LIT("ch_1");
    }
    return record;
}

static struct request begin_request(void)
{
    return (struct request){.kind = REQUEST_BEGIN,
        .key = the_key(),
        .policy = {.window_ms = WINDOW_MS, .lease_ms = LEASE_MS},
        .fingerprint = print_a,
        .fingerprint_version = 1,
        .request = {.digest = {{8}}, .bytes = 4, .retained = true},
        .source = {.type = SLICE_LIT("http")},
        .trace = SLICE_LIT("{\"a\":1}")};
}

static struct request holder_request(enum request_kind kind, const struct record *record)
{
    struct request request = {.kind = kind,
        .key = record->key,
        .operation_id = record->operation_id,
        .fence = record->fence,
        .reason = SLICE_LIT("said so")};
    if (kind == REQUEST_RENEW) {
        request.policy.lease_ms = LEASE_MS;
    }
    if (kind == REQUEST_SEAL || kind == REQUEST_RESOLVE) {
        request.status = RECORD_EXECUTED;
        request.outcome = outcome_of(0);
        request.effect_id = SLICE_LIT("ch_1");
    }
    return request;
}

static struct decision decide_at(
    const struct record *found, const struct request *request, int64_t now_ms)
{
    return decide(found, request, (struct decide_moment){.now_ms = now_ms, .fence_next = 60});
}

/* ---- The rows, as sentences. ---- */

static void a_new_key_is_granted(void **state)
{
    (void)state;
    struct request request = begin_request();
    struct decision said = decide_at(NULL, &request, START_MS);
    assert_string_equal(said.rule, "B1");
    assert_int_equal(said.kind, DECISION_FIRST_SEEN);
    assert_int_equal(said.change, CHANGE_PUT);
    assert_int_equal(said.next.status, RECORD_IN_PROGRESS);
    assert_int_equal(said.next.fence, 60);
    assert_int_equal(said.next.attempt, 1);
    assert_int_equal(said.next.version, 1);
    assert_int_equal(said.next.lease_expires_ms, START_MS + LEASE_MS);
    assert_int_equal(said.next.window_expires_ms, 0);
}

static void a_key_whose_window_is_over_is_a_new_operation(void **state)
{
    (void)state;
    struct record found = shape(RECORD_EXECUTED);
    struct request request = begin_request();
    request.fingerprint = print_b;
    struct decision said = decide_at(&found, &request, START_MS + WINDOW_MS);
    assert_string_equal(said.rule, "B1");
    assert_int_equal(said.next.attempt, 1);
    assert_int_equal(said.next.version, found.version + 1);
    assert_false(op_id_equal(&said.next.operation_id, &found.operation_id));
    said = decide_at(&found, &request, START_MS + WINDOW_MS - 1);
    assert_string_equal(said.rule, "B2");
}

static void another_payload_is_refused_before_anything_else_is_said(void **state)
{
    (void)state;
    for (int status = RECORD_IN_PROGRESS; status <= RECORD_COMPENSATED; status++) {
        struct record found = shape((enum record_status)status);
        struct request request = begin_request();
        request.fingerprint = print_b;
        request.policy.on_unknown = ON_UNKNOWN_TAKEOVER;
        request.policy.retry_failed = request.policy.retry_rejected = true;
        struct decision said = decide_at(&found, &request, START_MS + LEASE_MS);
        assert_string_equal(said.rule, "B2");
        assert_int_equal(said.change, CHANGE_TOUCH);
        said.next.duplicates--;
        assert_true(model_same_record(&found, &said.next));
    }
}

static void a_duplicate_of_a_running_operation_hears_in_progress(void **state)
{
    (void)state;
    struct record found = shape(RECORD_IN_PROGRESS);
    struct request request = begin_request();
    request.policy.on_unknown = ON_UNKNOWN_TAKEOVER;
    struct decision said = decide_at(&found, &request, START_MS + LEASE_MS - 1);
    assert_string_equal(said.rule, "B3");
    assert_int_equal(said.kind, DECISION_IN_PROGRESS);
    assert_int_equal(said.next.duplicates, 5);
}

static void a_lease_that_is_over_means_unknown_not_free(void **state)
{
    (void)state;
    struct record found = shape(RECORD_IN_PROGRESS);
    struct request request = begin_request();
    struct decision said = decide_at(&found, &request, START_MS + LEASE_MS);
    assert_string_equal(said.rule, "B5");
    assert_int_equal(said.kind, DECISION_HELD_UNKNOWN);
    assert_int_equal(said.next.status, RECORD_UNKNOWN);
    assert_int_equal(said.next.fence, FENCE);
    assert_true(slice_is(said.next.reason, "lease_expired"));
}

static void unknown_is_held_unless_the_policy_takes_over(void **state)
{
    (void)state;
    struct record found = shape(RECORD_UNKNOWN);
    struct request request = begin_request();
    assert_string_equal(decide_at(&found, &request, INT64_MAX - 1000).rule, "B5");
    request.policy.on_unknown = ON_UNKNOWN_RECONCILE;
    assert_string_equal(decide_at(&found, &request, START_MS).rule, "B5");
    request.policy.on_unknown = ON_UNKNOWN_TAKEOVER;
    struct decision said = decide_at(&found, &request, START_MS);
    assert_string_equal(said.rule, "B4");
    assert_int_equal(said.kind, DECISION_FIRST_SEEN);
    assert_int_equal(said.next.fence, 60);
    assert_int_equal(said.next.attempt, 4);
    assert_true(op_id_equal(&said.next.operation_id, &found.operation_id));
}

static void what_was_released_may_be_tried_again(void **state)
{
    (void)state;
    struct record found = shape(RECORD_RELEASED);
    struct request request = begin_request();
    struct decision said = decide_at(&found, &request, START_MS + 1);
    assert_string_equal(said.rule, "B6");
    assert_int_equal(said.kind, DECISION_FIRST_SEEN);
    assert_int_equal(said.next.attempt, 4);
    assert_int_equal(said.next.fence, 60);
}

static void a_failure_is_final_unless_the_policy_tries_again(void **state)
{
    (void)state;
    struct record failed = shape(RECORD_FAILED);
    struct record rejected = shape(RECORD_REJECTED);
    struct request request = begin_request();
    assert_string_equal(decide_at(&failed, &request, START_MS).rule, "B8");
    request.policy.retry_rejected = true;
    assert_string_equal(decide_at(&failed, &request, START_MS).rule, "B8");
    struct decision said = decide_at(&rejected, &request, START_MS);
    assert_string_equal(said.rule, "B7");
    assert_int_equal(said.next.outcome.body.bytes, 0);
    assert_int_equal(said.next.sealed_ms, 0);
}

static void a_sealed_operation_is_replayed(void **state)
{
    (void)state;
    for (int status = RECORD_EXECUTED; status <= RECORD_COMPENSATED; status++) {
        struct record found = shape((enum record_status)status);
        struct request request = begin_request();
        struct decision said = decide_at(&found, &request, START_MS + WINDOW_MS - 1);
        assert_string_equal(said.rule, "B8");
        assert_int_equal(said.kind, DECISION_DUPLICATE_REPLAYED);
        assert_true(model_same_outcome(&said.next.outcome, &found.outcome));
    }
}

static void the_window_counts_from_the_seal(void **state)
{
    (void)state;
    struct record found = shape(RECORD_IN_PROGRESS);
    struct request request = holder_request(REQUEST_SEAL, &found);
    struct decision said = decide_at(&found, &request, START_MS + 5);
    assert_string_equal(said.rule, "H5");
    assert_int_equal(said.next.sealed_ms, START_MS + 5);
    assert_int_equal(said.next.window_expires_ms, START_MS + 5 + WINDOW_MS);
    request.policy.window_ms = WINDOW_MS_OTHER;
    said = decide_at(&found, &request, START_MS + 5);
    assert_int_equal(said.next.window_expires_ms, START_MS + 5 + WINDOW_MS_OTHER);
}

static void the_holder_may_seal_long_after_its_lease(void **state)
{
    (void)state;
    struct record running = shape(RECORD_IN_PROGRESS);
    struct record unknown = shape(RECORD_UNKNOWN);
    struct request request = holder_request(REQUEST_SEAL, &running);
    assert_int_equal(decide_at(&running, &request, START_MS + 99999).kind, DECISION_SEALED);
    assert_int_equal(decide_at(&unknown, &request, START_MS + 99999).kind, DECISION_SEALED);
}

static void another_fence_changes_nothing(void **state)
{
    (void)state;
    static const enum request_kind kinds[] = {
        REQUEST_SEAL, REQUEST_RELEASE, REQUEST_UNKNOWN, REQUEST_RENEW};
    for (int status = RECORD_IN_PROGRESS; status <= RECORD_COMPENSATED; status++) {
        for (size_t i = 0; i < 4; i++) {
            struct record found = shape((enum record_status)status);
            struct request request = holder_request(kinds[i], &found);
            request.fence = FENCE - 1;
            struct decision said = decide_at(&found, &request, START_MS);
            assert_string_equal(said.rule, "H2");
            assert_int_equal(said.kind, DECISION_STALE_FENCE);
            assert_int_equal(said.change, CHANGE_NONE);
        }
    }
}

static void a_seal_is_final_and_the_same_seal_again_is_fine(void **state)
{
    (void)state;
    struct record found = shape(RECORD_EXECUTED);
    struct request request = holder_request(REQUEST_SEAL, &found);
    struct decision said = decide_at(&found, &request, START_MS + 1);
    assert_int_equal(said.kind, DECISION_SEALED);
    assert_true(said.repeated);
    assert_int_equal(said.change, CHANGE_NONE);
    for (int which = 1; which <= 5; which++) {
        request.outcome = outcome_of(which);
        said = decide_at(&found, &request, START_MS + 1);
        assert_string_equal(said.rule, "H3");
        assert_int_equal(said.kind, DECISION_ALREADY_SEALED);
        assert_true(model_same_record(&said.next, &found));
    }
}

static void who_released_has_given_up_the_right_to_seal(void **state)
{
    (void)state;
    struct record found = shape(RECORD_RELEASED);
    struct request seal = holder_request(REQUEST_SEAL, &found);
    struct request release = holder_request(REQUEST_RELEASE, &found);
    assert_int_equal(decide_at(&found, &seal, START_MS).kind, DECISION_STALE_FENCE);
    struct decision said = decide_at(&found, &release, START_MS);
    assert_string_equal(said.rule, "H4");
    assert_true(said.repeated);
}

static void an_operator_settles_what_is_unknown_and_not_what_runs(void **state)
{
    (void)state;
    struct record running = shape(RECORD_IN_PROGRESS);
    struct record unknown = shape(RECORD_UNKNOWN);
    struct request request = holder_request(REQUEST_RESOLVE, &running);
    assert_string_equal(decide_at(&running, &request, START_MS + LEASE_MS - 1).rule, "N4");
    assert_string_equal(decide_at(&running, &request, START_MS + LEASE_MS).rule, "N5");
    struct decision said = decide_at(&unknown, &request, START_MS);
    assert_string_equal(said.rule, "N5");
    assert_int_equal(said.next.status, RECORD_EXECUTED);
    request.status = RECORD_RELEASED;
    said = decide_at(&unknown, &request, START_MS);
    assert_int_equal(said.next.status, RECORD_RELEASED);
    assert_int_equal(said.next.sealed_ms, 0);
    assert_int_equal(said.next.outcome.body.bytes, 0);
}

static void the_janitor_only_turns_what_ran_out_into_unknown(void **state)
{
    (void)state;
    for (int status = RECORD_IN_PROGRESS; status <= RECORD_COMPENSATED; status++) {
        struct record found = shape((enum record_status)status);
        struct request request = holder_request(REQUEST_LEASE_OVER, &found);
        assert_string_equal(decide_at(&found, &request, START_MS + LEASE_MS - 1).rule, "J3");
        const char *rule = status == RECORD_IN_PROGRESS ? "J2" : "J3";
        assert_string_equal(decide_at(&found, &request, START_MS + LEASE_MS).rule, rule);
    }
    struct record found = shape(RECORD_IN_PROGRESS);
    struct request request = holder_request(REQUEST_LEASE_OVER, &found);
    assert_string_equal(decide_at(NULL, &request, START_MS).rule, "J1");
}

/* ---- Everything. ---- */

/* A request with its relations still open: they are about the record it will meet. */
struct asked {
    struct request request;
    int fence_off;        /* -1, 0, 1 against the record's */
    bool other_operation; /* names another operation than the record's */
};

enum { ASKED_MAX = 2000, SHAPES_MAX = 40, MOMENTS_MAX = 8 };

struct explorer {
    struct asked asked[ASKED_MAX];
    size_t asked_count;
    uint64_t decided;   /* times decide and the model were compared */
    uint64_t histories; /* consecutive pairs and longer that these comparisons cover */
    uint64_t rules[32]; /* how often each of model_rules was seen */
};

static void add_asked(struct explorer *all, struct request request, int fence_off, bool other)
{
    assert_true(all->asked_count < ASKED_MAX);
    all->asked[all->asked_count++] = (struct asked){request, fence_off, other};
}

static void add_begins(struct explorer *all, bool small)
{
    int combinations = small ? 2 * 2 * 2 : 2 * 2 * 3 * 2 * 2 * 2;
    for (int i = 0; i < combinations; i++) {
        struct request request = begin_request();
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
        }
        add_asked(all, request, 0, false);
    }
}

static void add_seals(struct explorer *all, struct request request, bool small, bool to_released)
{
    static const enum record_status statuses[] = {
        RECORD_EXECUTED, RECORD_FAILED, RECORD_REJECTED, RECORD_COMPENSATED, RECORD_RELEASED};
    for (size_t i = 0; i < (to_released ? 5 : 4); i += small && i == 1 ? 3 : 1) {
        for (int which = 0; which <= (small ? 1 : 5); which++) {
            for (int width = 0; width < (small ? 1 : 2); width++) {
                request.status = statuses[i];
                request.outcome = outcome_of(which);
                request.policy.window_ms = width ? WINDOW_MS_OTHER : 0;
                for (int off = request.kind == REQUEST_SEAL ? -1 : 0; off <= 1; off++) {
                    add_asked(all, request, off, false);
                }
            }
        }
    }
    request.effect_id = SLICE_LIT("ch_2");
    request.outcome = outcome_of(0);
    add_asked(all, request, 0, false);
    add_asked(all, request, 0, true);
}

static void collect_requests(struct explorer *all, bool small)
{
    static const enum request_kind plain[] = {
        REQUEST_RELEASE, REQUEST_UNKNOWN, REQUEST_RENEW, REQUEST_LEASE_OVER};
    struct record any = shape(RECORD_IN_PROGRESS);
    add_begins(all, small);
    add_seals(all, holder_request(REQUEST_SEAL, &any), small, false);
    add_seals(all, holder_request(REQUEST_RESOLVE, &any), small, true);
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        struct request request = holder_request(plain[i], &any);
        for (int off = -1; off <= 1; off++) {
            add_asked(all, request, off, false);
        }
        add_asked(all, request, 0, true);
    }
    struct request renew = holder_request(REQUEST_RENEW, &any);
    renew.policy.lease_ms = LEASE_MS_OTHER;
    add_asked(all, renew, 0, false);
}

/* Fill in the relations. Without a record, any operation and fence will do. */
static struct request aim(const struct asked *asked, const struct record *found)
{
    struct request request = asked->request;
    if (request.kind == REQUEST_BEGIN || found == NULL) {
        return request;
    }
    request.operation_id = found->operation_id;
    request.operation_id.bytes[9] ^= asked->other_operation ? 1 : 0;
    request.fence = (uint64_t)((int64_t)found->fence + asked->fence_off);
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

/* What must hold whatever the model says: the promises themselves. */
static const char *broken_promise(const struct record *found, const struct request *request,
    struct decide_moment moment, const struct decision *said)
{
    bool granted = said->kind == DECISION_FIRST_SEEN;
    const struct record *next = &said->next;
    if (granted && (next->fence != moment.fence_next || next->status != RECORD_IN_PROGRESS)) {
        return "P4: a grant has the new fence";
    }
    if (found == NULL) {
        return !granted && next->fence != 0 ? "only a grant makes a record" : NULL;
    }
    if (granted && next->fence <= found->fence) {
        return "P4: fences strictly increase";
    }
    if (!granted && next->fence != 0 && next->fence != found->fence) {
        return "P4: only a grant changes the fence";
    }
    bool open = found->status == RECORD_IN_PROGRESS || found->status == RECORD_UNKNOWN;
    if (granted && open && request->policy.on_unknown != ON_UNKNOWN_TAKEOVER) {
        return "P1: hold never grants again";
    }
    if (granted && found->status == RECORD_IN_PROGRESS && moment.now_ms < found->lease_expires_ms) {
        return "P1: no grant while a lease is alive";
    }
    if (granted && open && !op_id_equal(&found->operation_id, &next->operation_id)) {
        return "P8: what is in progress or unknown never expires";
    }
    bool replaced = granted && !op_id_equal(&found->operation_id, &next->operation_id);
    if (replaced && moment.now_ms < found->window_expires_ms) {
        return "P8: a live record never leaves early";
    }
    if (said->kind == DECISION_CONFLICT_REJECTED && said->change != CHANGE_TOUCH) {
        return "P7: a conflict touches nothing";
    }
    if (said->change == CHANGE_TOUCH && request->kind != REQUEST_BEGIN) {
        return "only a begin is a duplicate";
    }
    if (record_status_sealed(found->status) && !granted && next->fence != 0) {
        bool kept = model_same_outcome(&found->outcome, &next->outcome) &&
                    found->status == next->status && found->sealed_ms == next->sealed_ms &&
                    found->window_expires_ms == next->window_expires_ms;
        return kept ? NULL : "P3: seals are final";
    }
    return NULL;
}

static const char *broken_bookkeeping(const struct record *found, const struct decision *said)
{
    uint64_t version = found == NULL ? 0 : found->version;
    struct record but_for_duplicates = said->next;
    switch (said->change) {
    case CHANGE_PUT:
        record_check(&said->next);
        if (said->next.version != version + 1) {
            return "every change is one version";
        }
        return found != NULL && said->next.updated_ms < found->updated_ms ? "time goes on" : NULL;
    case CHANGE_TOUCH:
        but_for_duplicates.duplicates = found->duplicates;
        return model_same_record(&but_for_duplicates, found) ? NULL : "a touch only counts";
    case CHANGE_NONE: break;
    }
    bool shown = said->next.fence != 0;
    return shown && !model_same_record(&said->next, found) ? "nothing changes by itself" : NULL;
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
    const char *broken = broken_promise(found, request, moment, &said);
    broken = broken == NULL ? broken_bookkeeping(found, &said) : broken;
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
    const int64_t edges[] = {found->lease_expires_ms, found->window_expires_ms};
    for (size_t i = 0; i < 2; i++) {
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

/* Every record shape; returns how many. NULL, absence, is the caller's. */
static size_t all_shapes(struct record ret_shapes[SHAPES_MAX])
{
    size_t count = 0;
    for (int status = RECORD_IN_PROGRESS; status <= RECORD_COMPENSATED; status++) {
        struct record record = shape((enum record_status)status);
        ret_shapes[count++] = record;
        record.duplicates = UINT32_MAX; /* the count stays there instead of starting over */
        record.attempt = 1;
        ret_shapes[count++] = record;
        record.fingerprint_version = 2;
        record.version = 1;
        record.duplicates = 0;
        ret_shapes[count++] = record;
        if (record_status_sealed(record.status)) {
            record.outcome = outcome_of(5);
            record.effect_id = SLICE_EMPTY;
            ret_shapes[count++] = record;
        }
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
        record->fingerprint.bytes[0], record->operation_id.bytes[9]};
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
    if (said->kind == DECISION_FIRST_SEEN) {
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
            struct decision said = step(all, found, &request, moment);
            all->histories += from->ways;
            if (ret_next != NULL) {
                struct state to = follow(from, &said, moment);
                (void)states_add(ret_next, &to);
            }
        }
    }
}

static void start_states(struct states *states)
{
    struct record shapes[SHAPES_MAX];
    size_t count = all_shapes(shapes);
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

/* To this depth, each state is reached in every possible way; equal states are asked once, because
 * the same arguments give the same decision. */
static void explore(bool small, int depth, const char *what)
{
    struct explorer *all = test_calloc(1, sizeof *all);
    collect_requests(all, small);
    struct states now;
    states_init(&now, 1 << 10);
    start_states(&now);
    for (int i = 1; i <= depth; i++) {
        struct states next;
        states_init(&next, (size_t)1 << 20);
        all->histories = 0;
        for (size_t j = 0; j < now.count; j++) {
            explore_from(all, &now.at[j], i < depth ? &next : NULL);
        }
        printf("  %s %d: %zu states x %zu requests, %llu histories\n", what, i, now.count,
            all->asked_count, (unsigned long long)all->histories);
        states_release(&now);
        now = next;
    }
    states_release(&now);
    printf("  %llu decisions held against the model\n", (unsigned long long)all->decided);
    assert_every_rule_was_seen(all);
    test_free(all);
}

static void every_request_and_every_pair_agrees_with_the_model(void **state)
{
    (void)state;
    explore(false, 2, "requests in a row");
}

static void every_three_in_a_row_agree_with_the_model(void **state)
{
    (void)state;
    explore(true, 3, "of the shorter list, in a row");
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
    record->fence = FENCE;
    record->duplicates = 4;
    record->attempt = record->attempt > 1 ? 3 : 1;
    record->created_ms = record->updated_ms = START_MS;
    record->sealed_ms = record->sealed_ms == 0 ? 0 : START_MS;
    record->operation_id = op_id_make(START_MS, &record->key.hash, 40);
    if (record->lease_expires_ms != 0) {
        record->lease_expires_ms += shift;
        record->lease_expires_ms =
            record->lease_expires_ms < START_MS ? START_MS : record->lease_expires_ms;
    }
    if (record->window_expires_ms != 0) {
        record->window_expires_ms += shift;
        record->window_expires_ms =
            record->window_expires_ms < START_MS ? START_MS : record->window_expires_ms;
    }
    return state;
}

static void every_history_from_nothing_agrees_with_the_model(void **state)
{
    (void)state;
    struct explorer *all = test_calloc(1, sizeof *all);
    collect_requests(all, false);
    struct states seen;
    struct states next;
    states_init(&seen, 1 << 16);
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
    printf("  %zu states are all there are; %llu decisions held against the model\n", seen.count,
        (unsigned long long)all->decided);
    assert_every_rule_was_seen(all);
    states_release(&seen);
    test_free(all);
}

static void assert_refused(const struct request *request, const char *text)
{
    struct err err = {0};
    assert_int_equal(request_check(request, &err), E_INVALID);
    if (strstr(err.text, text) == NULL) {
        fail_msg("'%s' does not say '%s'", err.text, text);
    }
}

static void a_request_outside_its_limits_is_refused_by_name(void **state)
{
    (void)state;
    static char long_text[300];
    memset(long_text, 'x', sizeof long_text);
    struct request request = begin_request();
    assert_int_equal(request_check(&request, NULL), OK);
    request.policy.lease_ms = 9;
    assert_refused(&request, "lease is 9ms, outside of 10ms");
    request.policy.lease_ms = LEASE_MS;
    request.policy.window_ms = 0;
    assert_refused(&request, "ttl");
    request.policy.window_ms = INT64_MAX; /* now + window would overflow */
    assert_refused(&request, "ttl");
    request.policy.window_ms = WINDOW_MS;
    request.source.id = slice_of(long_text, 256);
    assert_refused(&request, "source_id_bytes_max (255)");
    request.source.id = SLICE_LIT("\xff");
    assert_refused(&request, "source_id is not valid UTF-8");
}

static void a_seal_says_what_it_became_and_only_a_resolve_says_not_executed(void **state)
{
    (void)state;
    struct record found = shape(RECORD_IN_PROGRESS);
    static const struct {
        enum record_status status;
        bool seal;
        bool resolve;
    } rows[] = {{RECORD_EXECUTED, true, true}, {RECORD_FAILED, true, true},
        {RECORD_REJECTED, true, false}, {RECORD_RELEASED, false, true}, {0, false, false},
        {RECORD_IN_PROGRESS, false, false}, {RECORD_UNKNOWN, false, false},
        {RECORD_COMPENSATED, false, false}, {(enum record_status)8, false, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct request seal = holder_request(REQUEST_SEAL, &found);
        struct request resolve = holder_request(REQUEST_RESOLVE, &found);
        seal.status = resolve.status = rows[i].status;
        assert_int_equal(request_check(&seal, NULL), rows[i].seal ? OK : E_INVALID);
        assert_int_equal(request_check(&resolve, NULL), rows[i].resolve ? OK : E_INVALID);
    }
}

static void the_words_are_those_of_the_api(void **state)
{
    (void)state;
    assert_string_equal(decision_name(DECISION_FIRST_SEEN), "first_seen");
    assert_string_equal(decision_name(DECISION_DUPLICATE_REPLAYED), "duplicate_replayed");
    assert_string_equal(decision_name(DECISION_IN_PROGRESS), "in_progress");
    assert_string_equal(decision_name(DECISION_CONFLICT_REJECTED), "conflict_rejected");
    assert_string_equal(decision_name(DECISION_HELD_UNKNOWN), "held_unknown");
    assert_string_equal(on_unknown_name(ON_UNKNOWN_HOLD), "hold");
    assert_string_equal(on_unknown_name(ON_UNKNOWN_TAKEOVER), "takeover");
    assert_string_equal(on_unknown_name(ON_UNKNOWN_RECONCILE), "reconcile");
    assert_int_equal(policy_default.on_unknown, ON_UNKNOWN_HOLD);
    assert_int_equal(policy_default.window_ms, 86400000);
    assert_false(policy_default.retry_failed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_new_key_is_granted),
        TEST(a_key_whose_window_is_over_is_a_new_operation),
        TEST(another_payload_is_refused_before_anything_else_is_said),
        TEST(a_duplicate_of_a_running_operation_hears_in_progress),
        TEST(a_lease_that_is_over_means_unknown_not_free),
        TEST(unknown_is_held_unless_the_policy_takes_over),
        TEST(what_was_released_may_be_tried_again),
        TEST(a_failure_is_final_unless_the_policy_tries_again),
        TEST(a_sealed_operation_is_replayed),
        TEST(the_window_counts_from_the_seal),
        TEST(the_holder_may_seal_long_after_its_lease),
        TEST(another_fence_changes_nothing),
        TEST(a_seal_is_final_and_the_same_seal_again_is_fine),
        TEST(who_released_has_given_up_the_right_to_seal),
        TEST(an_operator_settles_what_is_unknown_and_not_what_runs),
        TEST(the_janitor_only_turns_what_ran_out_into_unknown),
        TEST(every_request_and_every_pair_agrees_with_the_model),
        TEST(every_three_in_a_row_agree_with_the_model),
        TEST(every_history_from_nothing_agrees_with_the_model),
        TEST(a_request_outside_its_limits_is_refused_by_name),
        TEST(a_seal_says_what_it_became_and_only_a_resolve_says_not_executed),
        TEST(the_words_are_those_of_the_api),
    };
    return cmocka_run_group_tests_name("decide", tests, NULL, NULL);
}
