/*
 * The kinds of record: what the outside calls their statuses, how their ids are spelt, and which
 * arrows their lives have.
 */
#include <string.h>

#include "check_c.h"
#include "core/kind.h"

static const enum record_kind all_kinds[] = {
    RECORD_OPERATION, RECORD_SOURCE, RECORD_COMMAND, RECORD_EFFECT, RECORD_DELIVERY};
enum { KINDS = sizeof all_kinds / sizeof *all_kinds };

static void the_outside_hears_the_words_of_the_source_documents(void **state)
{
    (void)state;
    /* The table of docs/formats/evidence.md, row by row; NULL where it has no word. There
     * effects do not wait; those of once_effect do, until their payload is sealed. */
    static const struct {
        enum record_status status;
        const char *operation, *effect, *command, *delivery;
    } rows[] = {
        {RECORD_PENDING, NULL, "pending", "received", "pending"},
        {RECORD_WAITING, NULL, "pending", "awaiting_confirmation", "waiting"},
        {RECORD_IN_PROGRESS, "in_progress", "dispatched", "started", "delivering"},
        {RECORD_UNKNOWN, "unknown", "dispatched", "blocked", "unknown"},
        {RECORD_EXECUTED, "executed", "acknowledged", "executed", "executed"},
        {RECORD_FAILED, "failed", "failed", "failed", "failed"},
        {RECORD_REJECTED, "rejected", "failed", "rejected", "failed"},
        {RECORD_DEAD, NULL, "dead_letter", "blocked", "dead_letter"},
        {RECORD_COMPENSATING, NULL, "acknowledged", "compensating", NULL},
        {RECORD_COMPENSATED, "compensated", "compensated", "compensated", NULL},
        {RECORD_RELEASED, "released", NULL, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct {
            enum record_kind kind;
            const char *word;
        } cells[] = {{RECORD_OPERATION, rows[i].operation}, {RECORD_EFFECT, rows[i].effect},
            {RECORD_COMMAND, rows[i].command}, {RECORD_DELIVERY, rows[i].delivery}};
        for (size_t j = 0; j < sizeof cells / sizeof *cells; j++) {
            const char *word = kind_word(cells[j].kind, rows[i].status, 0);
            assert_int_equal(word == NULL, cells[j].word == NULL);
            assert_true(word == NULL || strcmp(word, cells[j].word) == 0);
            assert_int_equal(kind_has_status(cells[j].kind, rows[i].status), word != NULL);
        }
    }
    assert_string_equal(kind_word(RECORD_COMMAND, RECORD_WAITING, 1), "awaiting_effects");
    assert_true(kind_uncertain(RECORD_EFFECT, RECORD_UNKNOWN));
    assert_false(kind_uncertain(RECORD_EFFECT, RECORD_IN_PROGRESS));
    assert_false(kind_uncertain(RECORD_COMMAND, RECORD_UNKNOWN));
}

static void an_id_says_its_kind_and_reads_back(void **state)
{
    (void)state;
    static const char *const prefixes[] = {
        [RECORD_OPERATION] = "op_",
        [RECORD_SOURCE] = NULL,
        [RECORD_COMMAND] = "cmd_",
        [RECORD_EFFECT] = "eff_",
        [RECORD_DELIVERY] = "dlv_",
    };
    struct digest hash = {{0xab}};
    struct op_id id = op_id_make(1700000000000, &hash, 77);
    for (size_t i = 0; i < KINDS; i++) {
        enum record_kind kind = all_kinds[i];
        char text[KIND_ID_TEXT_BYTES];
        assert_int_equal(kind_has_id(kind), prefixes[kind] != NULL);
        if (prefixes[kind] == NULL) {
            continue;
        }
        assert_ptr_equal(kind_id_put(text, kind, &id), text);
        assert_memory_equal(text, prefixes[kind], strlen(prefixes[kind]));
        assert_true(strlen(text) < sizeof text);
        enum record_kind back_kind = 0;
        struct op_id back;
        assert_true(kind_id_read(slice_str(text), &back_kind, &back));
        assert_int_equal(back_kind, kind);
        assert_true(op_id_equal(&back, &id));
        text[strlen(text) - 1] = 'g';
        assert_false(kind_id_read(slice_str(text), &back_kind, &back));
    }
    enum record_kind kind = 0;
    struct op_id back;
    static const char *const bad[] = {"", "op_", "cmd_", "src_0192f0c1-2b3c-7d4e-8f50-617283940506",
        "0192f0c1-2b3c-7d4e-8f50-617283940506", "cmd_0192f0c1-2b3c-7d4e-8f50-6172839405060"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(kind_id_read(slice_str(bad[i]), &kind, &back));
    }
}

/* P3, P5, P8: the arrows that must never be drawn, whatever the kind. */
static void no_life_leads_from_done_to_not_done(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        enum record_kind kind = all_kinds[i];
        for (int to = 0; to < RECORD_STATUS_END; to++) {
            enum record_status next = (enum record_status)to;
            assert_false(kind_may_become(kind, RECORD_COMPENSATED, next));
            bool undo = next == RECORD_COMPENSATING && kind_may_compensate(kind, RECORD_EXECUTED);
            assert_int_equal(kind_may_become(kind, RECORD_EXECUTED, next), undo);
            assert_false(kind_may_become(kind, next, (enum record_status)0));
        }
        /* Work is granted before it runs (P6). */
        assert_false(kind_may_become(kind, RECORD_PENDING, RECORD_EXECUTED));
        assert_false(kind_may_become(kind, RECORD_PENDING, RECORD_UNKNOWN));
        assert_false(kind_may_become(kind, RECORD_DEAD, RECORD_IN_PROGRESS));
        assert_false(kind_may_become(kind, RECORD_COMPENSATING, RECORD_PENDING));
    }
}

static void a_request_applies_where_its_statuses_exist(void **state)
{
    (void)state;
    static const struct {
        enum request_kind request;
        const char *kinds; /* o operation, c command, e effect, d delivery */
    } rows[] = {
        {REQUEST_BEGIN, "ocd"},
        {REQUEST_ENQUEUE, "ced"},
        {REQUEST_CLAIM, "ced"},
        {REQUEST_RELEASE, "o"},
        {REQUEST_RETRY, "ced"},
        {REQUEST_GIVE_UP, "ced"},
        {REQUEST_WAIT, "ced"},
        {REQUEST_WAKE, "ced"},
        {REQUEST_CANCEL, "ced"},
        {REQUEST_TAKE_UP, "ced"},
        {REQUEST_COMPENSATE, "ce"},
        {REQUEST_COMPENSATION_SETTLE, "ce"},
        {REQUEST_SEAL, "oced"},
        {REQUEST_UNKNOWN, "oced"},
        {REQUEST_RENEW, "oced"},
        {REQUEST_RESOLVE, "oced"},
        {REQUEST_LEASE_OVER, "oced"},
        {REQUEST_HOLDER_GONE, "oced"},
        {REQUEST_POSTPONE, "oced"},
    };
    assert_int_equal(sizeof rows / sizeof *rows, REQUEST_KIND_END);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *kinds = rows[i].kinds;
        enum request_kind request = rows[i].request;
        assert_int_equal(kind_takes(RECORD_OPERATION, request), strchr(kinds, 'o') != NULL);
        assert_int_equal(kind_takes(RECORD_COMMAND, request), strchr(kinds, 'c') != NULL);
        assert_int_equal(kind_takes(RECORD_EFFECT, request), strchr(kinds, 'e') != NULL);
        assert_int_equal(kind_takes(RECORD_DELIVERY, request), strchr(kinds, 'd') != NULL);
        assert_false(kind_takes(RECORD_SOURCE, request));
        enum request_kind back = 0;
        assert_true(request_kind_read(slice_str(request_kind_name(request)), &back));
        assert_int_equal(back, request);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_outside_hears_the_words_of_the_source_documents),
        TEST(an_id_says_its_kind_and_reads_back),
        TEST(no_life_leads_from_done_to_not_done),
        TEST(a_request_applies_where_its_statuses_exist),
    };
    return cmocka_run_group_tests_name("kind", tests, NULL, NULL);
}
