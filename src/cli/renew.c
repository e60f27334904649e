#include "cli/renew.h"

#include <errno.h>
#include <time.h>

#include "base/check.h"
#include "cli/backend.h"

enum { LOCK_WAIT_MS = 1000 };

/* Wait until then or until stopped; true: stopped. */
static bool rest(struct renewer *renewer, int64_t ms)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_mutex_lock(&renewer->mutex);
    while (!renewer->stop &&
           pthread_cond_timedwait(&renewer->wake, &renewer->mutex, &until) != ETIMEDOUT) {
    }
    bool stop = renewer->stop;
    (void)pthread_mutex_unlock(&renewer->mutex);
    return stop;
}

bool renew_now(struct cli *cli, const struct grant *grant, enum once_decision *ret_decision)
{
    struct backend backend;
    struct backend_answer answer = {.decision = ONCE_RENEWED};
    struct once_error error = {0};
    struct cli_open how = {.must_exist = true, .lock_wait_ms = LOCK_WAIT_MS};
    struct once_hold hold = {
        .operation_id = grant->operation_id, .fence = grant->fence, .lease_ms = grant->lease_ms};
    bool is_answered = backend_try_open(cli, how, &backend, &error) == ONCE_OK &&
                       backend.ops->call(&backend, &(struct once_call){.renew = &hold}, &answer,
                           &error) == ONCE_OK;
    backend_close(&backend); /* the renewal is durable already */
    *ret_decision = answer.decision;
    return is_answered && answer.decision == ONCE_RENEWED;
}

enum renewal { RENEWAL_DONE, RENEWAL_LATER, RENEWAL_LOST };

static enum renewal renew(struct renewer *renewer)
{
    const struct grant *grant = renewer->grant;
    enum once_decision decision = ONCE_RENEWED;
    if (renew_now(renewer->cli, grant, &decision)) {
        return RENEWAL_DONE;
    }
    if (decision == ONCE_RENEWED) {
        return RENEWAL_LATER;
    }
    cli_say(
        "warning: the grant of %s is lost: %s", grant->operation_id, once_decision_name(decision));
    cli_hint("the command keeps running, but its end will not be recorded: once why %s",
        grant->operation_id);
    return RENEWAL_LOST;
}

static void *renewer_main(void *context)
{
    struct renewer *renewer = context;
    int64_t third_ms = renewer->grant->lease_ms / 3 + 1;
    int64_t pause_ms = third_ms;
    while (!rest(renewer, pause_ms)) {
        enum renewal renewal = renew(renewer);
        if (renewal == RENEWAL_LOST) {
            return NULL;
        }
        pause_ms = renewal == RENEWAL_DONE ? third_ms : third_ms / 8 + 1;
    }
    return NULL;
}

int renewer_start(struct renewer *renewer, struct cli *cli, const struct grant *grant)
{
    pthread_condattr_t monotonic;
    *renewer = (struct renewer){.cli = cli, .grant = grant};
    (void)pthread_mutex_init(&renewer->mutex, NULL);
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&renewer->wake, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    return pthread_create(&renewer->thread, NULL, renewer_main, renewer);
}

void renewer_stop(struct renewer *renewer)
{
    (void)pthread_mutex_lock(&renewer->mutex);
    renewer->stop = true;
    (void)pthread_cond_signal(&renewer->wake);
    (void)pthread_mutex_unlock(&renewer->mutex);
    ASSERT(pthread_join(renewer->thread, NULL) == 0);
    (void)pthread_cond_destroy(&renewer->wake);
    (void)pthread_mutex_destroy(&renewer->mutex);
}
