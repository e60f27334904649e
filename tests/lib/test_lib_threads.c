#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "lib/lib_help.h"

/* 64 threads ask for one key at the same moment, key after key: exactly one may be granted (P1). */
enum { THREADS = 64, KEYS = 40, CALLS = 200 };

struct contest {
    pthread_barrier_t start;
    char key[32];
    int64_t wait_ms;
    unsigned granted; /* under lock, as all below */
    unsigned replayed;
    unsigned in_progress;
    unsigned other;
    uint64_t fence_max;
    pthread_mutex_t lock;
};

static void count_answer(struct contest *contest, const struct once_answer *answer)
{
    (void)pthread_mutex_lock(&contest->lock);
    contest->granted += answer->decision == ONCE_FIRST_SEEN;
    contest->in_progress += answer->decision == ONCE_IN_PROGRESS;
    /* Whoever gets a replay gets the holder's own bytes. */
    contest->replayed +=
        answer->decision == ONCE_DUPLICATE_REPLAYED &&
        answer->operation->outcome.body.size == strlen(contest->key) &&
        memcmp(answer->operation->outcome.body.data, contest->key, strlen(contest->key)) == 0;
    (void)pthread_mutex_unlock(&contest->lock);
}

/* One thread's try; 0 when every call was answered. */
static int try_once(struct contest *contest)
{
    struct once_answer *answer;
    struct once_begin begin = {
        .scope = "contest", .key = contest->key, .wait_ms = contest->wait_ms, .payload = {"{}", 2}};
    if (once_begin(once, &begin, &answer, NULL) != ONCE_OK) {
        return 1;
    }
    count_answer(contest, answer);
    int failed = 0;
    if (answer->decision == ONCE_FIRST_SEEN) {
        struct once_seal seal = {.operation_id = answer->operation_id,
            .fence = answer->fence,
            .status = ONCE_EXECUTED,
            .outcome = {.body = {contest->key, strlen(contest->key)}}};
        failed = once_seal(once, &seal, NULL, NULL) != ONCE_OK;
    }
    once_answer_free(once, answer);
    return failed;
}

static void *contestant(void *context)
{
    struct contest *contest = context;
    uintptr_t failed = 0;
    for (int i = 0; i < KEYS; i++) {
        (void)pthread_barrier_wait(&contest->start); /* the key is chosen */
        failed += (uintptr_t)try_once(contest);
        (void)pthread_barrier_wait(&contest->start); /* all have tried */
    }
    return (void *)failed;
}

static void check_round(struct contest *contest)
{
    assert_int_equal(contest->granted, 1);
    assert_int_equal(contest->replayed + contest->in_progress, THREADS - 1);
    if (contest->wait_ms > 0) {
        assert_int_equal(contest->replayed, THREADS - 1);
    }
    contest->granted = 0;
    contest->replayed = 0;
    contest->in_progress = 0;
}

static void one_of_64_threads_is_granted(void **state)
{
    (void)state;
    struct contest contest = {.lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[THREADS];
    assert_int_equal(pthread_barrier_init(&contest.start, NULL, THREADS + 1), 0);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, contestant, &contest), 0);
    }
    for (int i = 0; i < KEYS; i++) {
        (void)snprintf(contest.key, sizeof contest.key, "key-%d", i);
        contest.wait_ms = i % 2 == 0 ? 0 : 20000;
        (void)pthread_barrier_wait(&contest.start);
        (void)pthread_barrier_wait(&contest.start);
        check_round(&contest);
    }
    for (int i = 0; i < THREADS; i++) {
        void *failed;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    (void)pthread_barrier_destroy(&contest.start);
}

struct tally {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned done;
    unsigned granted;
    unsigned failed;
};

static void tally_done(
    void *context, int result, struct once_answer *answer, const struct once_error *error)
{
    struct tally *tally = context;
    (void)error;
    (void)pthread_mutex_lock(&tally->lock);
    tally->done++;
    tally->failed += result != ONCE_OK;
    tally->granted += result == ONCE_OK && answer->decision == ONCE_FIRST_SEEN;
    (void)pthread_cond_signal(&tally->changed);
    (void)pthread_mutex_unlock(&tally->lock);
    once_answer_free(once, answer);
}

static void *submitter(void *context)
{
    for (int i = 0; i < CALLS; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "key-%d", i);
        struct once_begin begin = {.scope = "submit", .key = key};
        struct once_call call = {.begin = &begin};
        if (once_submit(once, &call, tally_done, context, NULL) != ONCE_OK) {
            return context;
        }
    }
    return NULL;
}

static void each_submitted_call_is_answered_once(void **state)
{
    (void)state;
    enum { SUBMITTERS = 8 };
    struct tally tally = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0};
    pthread_t threads[SUBMITTERS];
    for (int i = 0; i < SUBMITTERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, submitter, &tally), 0);
    }
    for (int i = 0; i < SUBMITTERS; i++) {
        void *failed;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    (void)pthread_mutex_lock(&tally.lock);
    while (tally.done < SUBMITTERS * CALLS) {
        (void)pthread_cond_wait(&tally.changed, &tally.lock);
    }
    (void)pthread_mutex_unlock(&tally.lock);
    assert_int_equal(tally.done, SUBMITTERS * CALLS);
    assert_int_equal(tally.granted, CALLS);
    assert_int_equal(tally.failed, 0);
}

static void closing_answers_what_was_submitted(void **state)
{
    (void)state;
    struct tally tally = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0};
    assert_null(submitter(&tally));
    reopen_place(NULL);
    assert_int_equal(tally.done, CALLS);
    assert_int_equal(tally.granted, CALLS);
}

int main(int argc, char **argv)
{
    store_kind = argc > 1 ? argv[1] : store_kind;
    const struct CMUnitTest tests[] = {
        ON_STORE(one_of_64_threads_is_granted),
        ON_STORE(each_submitted_call_is_answered_once),
        ON_STORE(closing_answers_what_was_submitted),
    };
    return cmocka_run_group_tests_name("lib_threads", tests, NULL, NULL);
}
