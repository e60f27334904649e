#include <stdatomic.h>
#include <string.h>

#include "lib/lib_help.h"
#include "store/store.h"

/*
 * What a program sees when its disk fails. The store is the one in memory with two calls replaced;
 * the linker hands the library's store_open to us (--wrap).
 */

enum status __real_store_open(const char *url, const struct store_options *options,
    struct store **ret_store, struct err *err);
enum status __wrap_store_open(const char *url, const struct store_options *options,
    struct store **ret_store, struct err *err);

static const struct store_ops *real;
static struct store_ops failing;
static atomic_bool flush_fails;
static atomic_int commit_status; /* OK: works */

static enum status failing_flush(struct store *store, struct err *err)
{
    return atomic_load(&flush_fails) ? err_set(err, E_UNKNOWN, "flushing: the disk is gone")
                                     : real->flush(store, err);
}

static enum status failing_commit(struct store *store, const struct commit *commit, struct err *err)
{
    enum status status = (enum status)atomic_load(&commit_status);
    if (status == OK) {
        return real->commit(store, commit, err);
    }
    real->abort(store); /* a commit ends what was prepared, whatever becomes of it */
    return err_set(err, status, "writing: no space left on device");
}

enum status __wrap_store_open(
    const char *url, const struct store_options *options, struct store **ret_store, struct err *err)
{
    enum status status = __real_store_open(url, options, ret_store, err);
    if (status == OK) {
        real = (*ret_store)->ops;
        failing = *real;
        failing.flush = failing_flush;
        failing.commit = failing_commit;
        (*ret_store)->ops = &failing;
    }
    return status;
}

static void forget_done(
    void *context, int result, struct once_answer *answer, const struct once_error *error)
{
    (void)error;
    *(int *)context = result;
    once_answer_free(once, answer);
}

static void a_failed_flush_stops_the_handle_and_not_the_program(void **state)
{
    (void)state;
    once = open_url("mem:", NULL);
    struct once_answer *grant = begin_key(once, "k", "");
    struct once_answer *answer;
    struct once_operation *operation;
    struct once_error error;
    atomic_store(&flush_fails, true);
    assert_int_equal(
        once_begin(once, &(struct once_begin){.key = "k2"}, &answer, &error), ONCE_E_UNKNOWN);
    assert_non_null(strstr(error.text, "flushing: the disk is gone"));
    assert_null(answer);

    /* It stays so, even if the disk came back: what is on it is not known (P11). */
    atomic_store(&flush_fails, false);
    assert_int_equal(
        once_begin(once, &(struct once_begin){.key = "k3"}, &answer, &error), ONCE_E_UNKNOWN);
    struct once_seal seal = {
        .operation_id = grant->operation_id, .fence = grant->fence, .status = ONCE_EXECUTED};
    assert_int_equal(once_seal(once, &seal, NULL, &error), ONCE_E_UNKNOWN);
    assert_int_equal(once_get(once, grant->operation_id, &operation, &error), ONCE_E_UNKNOWN);
    int result = 0;
    assert_int_equal(
        once_submit(once, &(struct once_call){.seal = &seal}, forget_done, &result, &error),
        ONCE_E_UNKNOWN);
    assert_int_equal(result, 0);
    once_answer_free(once, grant);
    assert_int_equal(once_close(once, &error), ONCE_E_UNKNOWN);
    assert_non_null(strstr(error.text, "flushing: the disk is gone"));
}

static void a_commit_that_did_not_happen_may_be_tried_again(void **state)
{
    (void)state;
    const enum status statuses[] = {E_UNAVAILABLE, E_LIMIT, E_NOMEM};
    once = open_url("mem:", NULL);
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        struct once_begin begin = {.key = once_result_name(statuses[i])};
        struct once_answer *answer;
        struct once_error error;
        atomic_store(&commit_status, (int)statuses[i]);
        assert_int_equal(once_begin(once, &begin, &answer, &error), (int)statuses[i]);
        assert_non_null(strstr(error.text, "no space left on device"));
        atomic_store(&commit_status, (int)OK);
        assert_int_equal(once_begin(once, &begin, &answer, &error), ONCE_OK);
        assert_int_equal(answer->decision, ONCE_FIRST_SEEN);
        once_answer_free(once, answer);
    }
    close_once(once);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_failed_flush_stops_the_handle_and_not_the_program),
        TEST(a_commit_that_did_not_happen_may_be_tried_again),
    };
    return cmocka_run_group_tests_name("lib_stop", tests, NULL, NULL);
}
