/* Which action a command's status allows, and what its compensation does with each effect: every
 * cell of the two tables of command/recovery.h, and decide agrees with the first. */
#include "cases.h"
#include "check_c.h"
#include "command/effect_list.h"
#include "command/recovery.h"
#include "core/decide.h"

enum { WRONG = RECOVERY_WRONG_STATUS, UNSURE = RECOVERY_UNKNOWN, DO = RECOVERY_DO };
enum { AGAIN = RECOVERY_AGAIN, EFFECTS = RECOVERY_EFFECTS };

struct cell {
    enum record_status status;
    bool is_granted;
    bool is_sealed;
    int answers[RECOVERIES]; /* retry, cancel, compensate */
};

static const struct cell cells[] = {
    {RECORD_PENDING, false, false, {DO, DO, WRONG}},
    {RECORD_PENDING, true, false, {DO, DO, WRONG}},
    {RECORD_WAITING, false, false, {WRONG, DO, WRONG}},
    {RECORD_WAITING, true, false, {EFFECTS, WRONG, EFFECTS}},
    {RECORD_IN_PROGRESS, true, false, {WRONG, WRONG, WRONG}},
    {RECORD_UNKNOWN, true, false, {UNSURE, UNSURE, UNSURE}},
    {RECORD_UNKNOWN, true, true, {UNSURE, UNSURE, EFFECTS}},
    {RECORD_DEAD, false, false, {DO, DO, WRONG}},
    {RECORD_DEAD, true, false, {DO, DO, WRONG}},
    {RECORD_EXECUTED, true, true, {WRONG, WRONG, DO}},
    {RECORD_FAILED, true, true, {WRONG, WRONG, DO}},
    {RECORD_REJECTED, false, true, {WRONG, AGAIN, WRONG}},
    {RECORD_REJECTED, true, true, {WRONG, AGAIN, WRONG}},
    {RECORD_COMPENSATING, true, true, {WRONG, WRONG, AGAIN}},
    {RECORD_COMPENSATED, true, true, {WRONG, WRONG, AGAIN}},
};

static struct record record_of(const struct cell *cell)
{
    struct record record = shape_as(RECORD_COMMAND, cell->status);
    if (!cell->is_granted) {
        record.fence = record.attempt = 0;
    }
    if (cell->is_sealed && record.sealed_ms == 0) {
        record.sealed_ms = START_MS;
        record.outcome = outcome_of(0);
    }
    return record;
}

static void every_cell_of_the_table(void **state)
{
    (void)state;
    unsigned statuses = 0;
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        struct record record = record_of(&cells[i]);
        statuses |= 1u << cells[i].status;
        for (int action = 0; action < RECOVERIES; action++) {
            assert_int_equal(recovery_allows((enum recovery_action)action, &record, false),
                cells[i].answers[action]);
        }
    }
    for (int status = 1; status < RECORD_STATUS_END; status++) { /* none was forgotten */
        assert_int_equal((statuses & 1u << status) != 0,
            kind_has_status(RECORD_COMMAND, (enum record_status)status));
    }
}

/* P5. The engine does not read the detail: the door names the version that it read. */
static void what_may_have_happened_is_not_cancelled(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        struct record record = record_of(&cells[i]);
        for (int action = 0; action < RECOVERIES; action++) {
            bool is_due = record.status == RECORD_PENDING || record.status == RECORD_DEAD;
            int answer = is_due && action == RECOVERY_CANCEL ? UNSURE : cells[i].answers[action];
            assert_int_equal(recovery_allows((enum recovery_action)action, &record, true), answer);
        }
    }
}

/* What the table allows the engine carries out, and nothing else; what concerns the effects is not
 * one request. */
static void decide_agrees_with_the_table(void **state)
{
    (void)state;
    static const enum request_kind kinds[RECOVERIES] = {[RECOVERY_RETRY] = REQUEST_TAKE_UP,
        [RECOVERY_CANCEL] = REQUEST_CANCEL,
        [RECOVERY_COMPENSATE] = REQUEST_COMPENSATE};
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        struct record record = record_of(&cells[i]);
        for (int action = 0; action < RECOVERIES; action++) {
            struct request request = holder_request(kinds[action], &record);
            struct decide_moment moment = {.now_ms = START_MS, .fence_next = 99};
            struct decision said = decide(&record, &request, moment);
            int answer = cells[i].answers[action];
            assert_int_equal(said.kind == DECISION_DONE, answer == DO || answer == AGAIN);
            assert_int_equal(said.change == CHANGE_PUT, answer == DO);
        }
    }
}

static void what_a_compensation_does_with_each_effect(void **state)
{
    (void)state;
    static const struct {
        enum record_status status;
        bool is_uncertain;
        bool is_sealed;
        enum undo_step step;
    } rows[] = {
        {RECORD_EXECUTED, false, true, UNDO_START},
        {RECORD_COMPENSATING, false, true, UNDO_WAIT},
        {RECORD_COMPENSATED, false, true, UNDO_PASS},
        {RECORD_FAILED, false, true, UNDO_PASS},
        {RECORD_REJECTED, false, true, UNDO_PASS},
        {RECORD_PENDING, false, false, UNDO_CANCEL},
        {RECORD_PENDING, true, false, UNDO_WAIT},    /* it may have happened (P5) */
        {RECORD_WAITING, false, false, UNDO_CANCEL}, /* for its payload to be sealed */
        {RECORD_DEAD, false, false, UNDO_CANCEL},
        {RECORD_IN_PROGRESS, false, false, UNDO_WAIT},
        {RECORD_UNKNOWN, true, false, UNDO_UNSURE},
        {RECORD_UNKNOWN, false, true, UNDO_STUCK},
    };
    unsigned statuses = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct record effect = {.kind = RECORD_EFFECT,
            .status = rows[i].status,
            .sealed_ms = rows[i].is_sealed ? START_MS : 0};
        statuses |= 1u << rows[i].status;
        assert_int_equal(recovery_undo(&effect, rows[i].is_uncertain), rows[i].step);
    }
    for (int status = 1; status < RECORD_STATUS_END; status++) {
        assert_int_equal((statuses & 1u << status) != 0,
            kind_has_status(RECORD_EFFECT, (enum record_status)status));
    }
}

static void the_list_of_effects_comes_back_in_its_order(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        const char *key;
    } rows[] = {
        {"pay", "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"},
        {"pay", "00112233445566778899AABBCCDDEEFF00112233445566778899aabbccddeeff"},
        {"mail", "~given"},
        {"pay", "=\"\\ \xc3\xa9"},
        {"pay", "k"},
    };
    enum { COUNT_ROWS = sizeof rows / sizeof *rows };
    struct arena arena;
    struct buf out;
    struct effect_list list;
    struct effect_list_item *effects = NULL;
    size_t count = 9;
    arena_init(&arena, &mem_libc, 1 << 20);
    buf_init(&out, &mem_libc, 1 << 20);
    effect_list_begin(&list, &out);
    for (size_t i = 0; i < COUNT_ROWS; i++) {
        struct record_key key = {.scope = slice_str(rows[i].type), .key = slice_str(rows[i].key)};
        effect_list_add(&list, &key);
    }
    assert_int_equal(effect_list_read(effect_list_end(&list), &arena, &effects, &count), OK);
    assert_int_equal(count, COUNT_ROWS);
    for (size_t i = 0; i < COUNT_ROWS; i++) {
        assert_true(slice_is(effects[i].type, rows[i].type));
        assert_true(slice_is(effects[i].key, rows[i].key));
    }
    assert_int_equal(effect_list_read(SLICE_EMPTY, &arena, &effects, &count), OK);
    assert_int_equal(count, 0);
    static const char *const wrong[] = {"{}", "[1]", "[[\"t\"]]", "[[\"t\",1]]", "[[1,\"=k\"]]",
        "[[\"t\",\"\"]]", "[[\"t\",\"~AA\"]]", "[[\"t\",\"k\"]]", "["};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(
            effect_list_read(slice_str(wrong[i]), &arena, &effects, &count), E_CORRUPT);
    }
    buf_release(&out);
    arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_cell_of_the_table),
        TEST(what_may_have_happened_is_not_cancelled),
        TEST(decide_agrees_with_the_table),
        TEST(what_a_compensation_does_with_each_effect),
        TEST(the_list_of_effects_comes_back_in_its_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
