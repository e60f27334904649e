/* The order of effects and deliveries: core/lane.h. */
#include "check_c.h"
#include "core/lane.h"

static struct request joining(struct slice lane)
{
    return (struct request){.kind = REQUEST_ENQUEUE,
        .record_kind = RECORD_EFFECT,
        .source = {.type = SLICE_LIT(LANE_FIRST), .id = lane},
        .policy = {.deadline_ms = 5000}};
}

static struct record effect(unsigned char number, enum record_status status, uint64_t fence)
{
    return (struct record){.kind = RECORD_EFFECT,
        .status = status,
        .operation_id = {{number}},
        .fence = fence,
        .updated_ms = 1000,
        .window_ms = 2000,
        .sealed_ms = record_status_sealed(status) ? 1000 : 0};
}

/* A delivery of a source with an order. */
static struct request arriving(struct slice thing)
{
    return (struct request){.kind = REQUEST_ENQUEUE,
        .record_kind = RECORD_DELIVERY,
        .key = {.tenant = SLICE_LIT("t"), .scope = SLICE_LIT("pay"), .key = SLICE_LIT("k")},
        .source = {.type = SLICE_LIT("pay"), .id = thing, .version = SLICE_LIT("7")}};
}

static struct record delivery(unsigned char number, const struct request *request)
{
    struct record record = effect(number, RECORD_PENDING, 0);
    record.kind = RECORD_DELIVERY;
    record.key = request->key;
    record.source = request->source;
    record.parent = request->parent;
    return record;
}

static struct slice before_of(const struct record *lane, const struct record *self, int64_t now_ms,
    char text[KIND_ID_TEXT_BYTES])
{
    struct request request = joining(SLICE_LIT("a"));
    lane_place(lane, self, now_ms, text, &request);
    return request.source.type;
}

static void only_an_effect_with_a_lane_joins_one(void **state)
{
    (void)state;
    struct request request = joining(SLICE_LIT("a"));
    assert_true(lane_joins(&request));
    request.record_kind = RECORD_COMMAND;
    assert_false(lane_joins(&request));
    request = joining(SLICE_EMPTY);
    assert_false(lane_joins(&request));
    request = joining(SLICE_LIT("a"));
    request.source.version = SLICE_LIT("7"); /* an ordered source: core/source.h */
    assert_false(lane_joins(&request));
}

static void only_a_delivery_with_an_order_joins_a_lane(void **state)
{
    (void)state;
    struct request request = arriving(SLICE_LIT("a"));
    assert_true(lane_joins(&request));
    request.source.version = SLICE_EMPTY;
    assert_false(lane_joins(&request));
    request = arriving(SLICE_EMPTY);
    assert_false(lane_joins(&request));
    request = arriving(SLICE_LIT("a"));
    request.kind = REQUEST_BEGIN; /* its caller waits for it, and it is granted at once */
    assert_false(lane_joins(&request));
}

static void one_that_is_woken_joins_when_it_becomes_pending(void **state)
{
    (void)state;
    struct record found = effect(1, RECORD_WAITING, 0);
    struct request request = joining(SLICE_LIT("a"));
    request.kind = REQUEST_WAKE;
    request.record_kind = 0;
    request.status = RECORD_PENDING;
    assert_true(lane_joins(&request));
    struct decision decision = {
        .kind = DECISION_DONE, .change = CHANGE_PUT, .next = effect(1, RECORD_PENDING, 0)};
    assert_true(lane_joined(&found, &request, &decision));
    decision.change = CHANGE_NONE; /* a different process woke it before */
    decision.kind = DECISION_WRONG_STATUS;
    assert_false(lane_joined(&found, &request, &decision));
    request.status = RECORD_EXECUTED;
    assert_false(lane_joins(&request));
}

static void each_names_the_one_before_it(void **state)
{
    (void)state;
    struct request request = joining(SLICE_LIT("a"));
    struct record_key key = {
        .tenant = SLICE_LIT("t"), .scope = SLICE_LIT("pay"), .key = SLICE_LIT("k")};
    struct record_key lane_key;
    struct record lane, second;
    struct op_id before;
    char text[KIND_ID_TEXT_BYTES];
    request.key = key;
    assert_int_equal(lane_key_seal(&request, &lane_key, NULL), OK);
    assert_true(slice_is(before_of(NULL, NULL, 1000, text), LANE_FIRST));
    struct record first = effect(1, RECORD_PENDING, 0);
    lane_remember(NULL, &first, &request, &lane_key, &lane);
    assert_int_equal(lane.version, 1);
    assert_int_equal(lane.window_expires_ms, 1000 + 2000 + 5000); /* LN2 */
    second = effect(2, RECORD_PENDING, 0);
    second.source =
        (struct source){.type = before_of(&lane, NULL, 1000, text), .id = request.source.id};
    assert_true(lane_after(&second, &before));
    assert_true(op_id_equal(&before, &first.operation_id));
    first.source = request.source;
    assert_false(lane_after(&first, &before));
    /* Enqueued again it keeps its place, or the two would wait for each other. */
    lane_remember(&lane, &second, &request, &lane_key, &lane);
    assert_true(slice_is(before_of(&lane, &first, 1000, text), LANE_FIRST));
    first.key = second.key = key;
    assert_true(lane_ends_with(&lane, &second));
    assert_false(lane_ends_with(&lane, &first));
    /* Records of a damaged journal: no lane, a different one, no tenant. */
    second.source = (struct source){.id = SLICE_EMPTY};
    assert_false(lane_ends_with(&lane, &second));
    second.source = joining(SLICE_LIT("b")).source;
    assert_false(lane_ends_with(&lane, &second));
    second.source = request.source;
    second.key.tenant = SLICE_EMPTY;
    assert_false(lane_ends_with(&lane, &second));
    /* A lane that is forgotten has no last effect. */
    assert_true(slice_is(before_of(&lane, NULL, 8000, text), LANE_FIRST));
}

static void each_delivery_names_the_one_before_it(void **state)
{
    (void)state;
    struct request request = arriving(SLICE_LIT("a"));
    struct record_key key;
    struct record lane;
    struct op_id before;
    char text[KIND_ID_TEXT_BYTES];
    assert_int_equal(lane_key_seal(&request, &key, NULL), OK);
    lane_place(NULL, NULL, 1000, text, &request);
    struct record first = delivery(1, &request);
    assert_false(lane_after(&first, &before));
    lane_remember(NULL, &first, &request, &key, &lane);
    lane_place(&lane, NULL, 1000, text, &request);
    struct record second = delivery(2, &request);
    assert_true(lane_after(&second, &before));
    assert_true(op_id_equal(&before, &first.operation_id));
    assert_true(slice_is(second.source.type, "pay")); /* its versions are compared as before */
    lane_remember(&lane, &second, &request, &key, &lane);
    assert_true(lane_ends_with(&lane, &second));
    assert_false(lane_ends_with(&lane, &first));
    /* A duplicate does not move it. */
    lane_place(&lane, &first, 1000, text, &request);
    assert_true(op_id_absent(&request.parent));
    second.source.version = SLICE_EMPTY; /* of a damaged journal */
    assert_false(lane_after(&second, &before));
    assert_false(lane_ends_with(&lane, &second));
}

static void a_lane_has_records_of_one_kind(void **state)
{
    (void)state;
    struct request request = arriving(SLICE_LIT("a"));
    struct record_key of_deliveries, of_effects;
    assert_int_equal(lane_key_seal(&request, &of_deliveries, NULL), OK);
    struct record_key key = request.key;
    request = joining(SLICE_LIT("a"));
    request.key = key;
    assert_int_equal(lane_key_seal(&request, &of_effects, NULL), OK);
    assert_false(digest_equal(&of_deliveries.hash, &of_effects.hash)); /* LN3 */
}

static void no_request_can_name_the_record_of_a_lane(void **state)
{
    (void)state;
    struct request request = joining(SLICE_LIT("a"));
    struct record_key key = {
        .tenant = SLICE_LIT("t"), .scope = SLICE_LIT("pay"), .key = SLICE_LIT("k")};
    struct record_key lane_key;
    request.key = key;
    assert_int_equal(lane_key_seal(&request, &lane_key, NULL), OK);
    assert_int_equal(lane_key.principal.data[0], '\x01');
}

static void what_is_over_lets_the_next_go(void **state)
{
    (void)state;
    static const struct {
        enum record_status status;
        uint64_t fence;
        int64_t due_ms;
        enum lane_turn turn;
    } rows[] = {
        {RECORD_PENDING, 0, 1, LANE_BLOCKED},
        {RECORD_PENDING, 7, 1, LANE_BLOCKED}, /* it is tried again later */
        {RECORD_IN_PROGRESS, 7, 0, LANE_BLOCKED},
        {RECORD_UNKNOWN, 7, 1, LANE_BLOCKED}, /* asked about, or sent again */
        {RECORD_UNKNOWN, 7, 0, LANE_PASSED},  /* parked, and shown */
        {RECORD_DEAD, 7, 0, LANE_PASSED},     /* likewise */
        {RECORD_DEAD, 0, 0, LANE_ASK_BEFORE}, {RECORD_EXECUTED, 7, 0, LANE_PASSED},
        {RECORD_FAILED, 7, 0, LANE_PASSED}, {RECORD_COMPENSATED, 7, 0, LANE_PASSED},
        {RECORD_REJECTED, 7, 0, LANE_PASSED},
        {RECORD_REJECTED, 0, 0, LANE_ASK_BEFORE}, /* cancelled before its turn */
    };
    assert_int_equal(lane_turn(NULL), LANE_PASSED); /* forgotten */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct record record = effect(1, rows[i].status, rows[i].fence);
        record.due_ms = rows[i].due_ms;
        assert_int_equal(lane_turn(&record), rows[i].turn);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(only_an_effect_with_a_lane_joins_one),
        TEST(only_a_delivery_with_an_order_joins_a_lane),
        TEST(one_that_is_woken_joins_when_it_becomes_pending),
        TEST(each_names_the_one_before_it),
        TEST(each_delivery_names_the_one_before_it),
        TEST(a_lane_has_records_of_one_kind),
        TEST(no_request_can_name_the_record_of_a_lane),
        TEST(what_is_over_lets_the_next_go),
    };
    return cmocka_run_group_tests_name("lane", tests, NULL, NULL);
}
