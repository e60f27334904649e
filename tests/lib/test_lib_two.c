/*
 * Two stores in one process, and as many calls at once as one commit takes, one less and one more.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "lib/lib_help.h"

static void two_stores_of_one_process_share_nothing(void **state)
{
    (void)state;
    struct place second_place;
    place_init(&second_place);
    struct once *second = open_url(second_place.url, "default");
    /* An id is made of the time, the key and the fence: stores that grant one key with one fence in
     * the same millisecond make the same id. Here the fences differ. */
    struct once_answer *other = begin_key(second, "other", "two");
    struct once_answer *here = begin_key(once, "k", "one");
    struct once_answer *there = begin_key(second, "k", "two"); /* no conflict: it is elsewhere */
    assert_int_equal(here->decision, ONCE_FIRST_SEEN);
    assert_int_equal(there->decision, ONCE_FIRST_SEEN);
    assert_null(get_one(second, here->operation_id));
    assert_null(get_one(once, there->operation_id));
    struct once_answer *sealed = seal_text(once, here, "outcome");
    struct once_answer *again = begin_key(second, "k", "two");
    assert_int_equal(again->decision, ONCE_IN_PROGRESS);
    size_t entries[2] = {0};
    assert_int_equal(once_evidence(once, NULL, NULL, count_entry, &entries[0], NULL), ONCE_OK);
    assert_int_equal(once_evidence(second, NULL, NULL, count_entry, &entries[1], NULL), ONCE_OK);
    assert_int_equal(entries[0], 2);
    assert_int_equal(entries[1], 3);
    once_answer_free(second, other);
    once_answer_free(second, there);
    once_answer_free(second, again);
    free_answers(here, sealed, NULL);
    close_once(second);
    place_release(&second_place);
}

static atomic_int granted;
static atomic_int answered;

static void count_grant(
    void *context, int result, struct once_answer *answer, const struct once_error *error)
{
    (void)error;
    if (result == ONCE_OK && answer->decision == ONCE_FIRST_SEEN) {
        atomic_fetch_add(&granted, 1);
    }
    if (answer != NULL) {
        once_answer_free(context, answer);
    }
    atomic_fetch_add(&answered, 1);
}

/* Each key twice, one call after the other: one of the two is granted, in whichever commit. */
static void submit_pairs(int count)
{
    char key[32];
    atomic_store(&granted, 0);
    atomic_store(&answered, 0);
    for (int i = 0; i < 2 * count; i++) {
        (void)snprintf(key, sizeof key, "k-%d-%d", count, i % count);
        struct once_begin begin = {.scope = "test", .key = key};
        struct once_call call = {.begin = &begin};
        assert_int_equal(once_submit(once, &call, count_grant, once, NULL), ONCE_OK);
    }
    for (int i = 0; i < 30000 && atomic_load(&answered) < 2 * count; i++) {
        sleep_ms(1);
    }
    assert_int_equal(atomic_load(&answered), 2 * count);
    assert_int_equal(atomic_load(&granted), count);
}

static void any_number_at_once_is_answered_each_once(void **state)
{
    (void)state;
    static const int counts[] = {1, 2, 511, 512, 513, 1023, 1024, 1025, 2048};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        submit_pairs(counts[i]);
    }
}

int main(int argc, char **argv)
{
    store_kind = argc > 1 ? argv[1] : "mem";
    const struct CMUnitTest tests[] = {
        ON_STORE(two_stores_of_one_process_share_nothing),
        ON_STORE(any_number_at_once_is_answered_each_once),
    };
    return cmocka_run_group_tests_name("two", tests, NULL, NULL);
}
