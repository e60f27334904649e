#include "cli/mcp_ledger.h"

#include <errno.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"
#include "base/limits.h"
#include "cli/backend.h"
#include "cli/begin.h"

enum { LOCK_WAIT_MS = 5000, ARENA_BYTES_MAX = 64 << 20 };

/* ---- one job --------------------------------------------------------------------------------- */

static void fail(struct mcp_job *job, int result, const struct once_error *error)
{
    job->result = result;
    (void)snprintf(job->error, sizeof job->error, "%s%s%s",
        error->text[0] == '\0' ? once_result_name(result) : error->text,
        error->hint[0] == '\0' ? "" : "; ", error->hint);
}

static void put_reason(struct mcp_job *job, const struct operation *operation)
{
    buf_slice(&job->words, operation->reason);
    buf_char(&job->words, '\0');
}

/* The answer, copied: the backend's memory goes when it is closed. */
static void take_answer(struct mcp_job *job, const struct backend_answer *answer)
{
    const struct operation *operation = answer->operation;
    job->decision = answer->decision;
    memcpy(job->operation_id, answer->operation_id, sizeof job->operation_id);
    job->fence = answer->fence;
    if (answer->decision == ONCE_CONFLICT_REJECTED) {
        buf_slice(&job->words, answer->diff);
    } else if (operation != NULL) {
        job->fence = job->fence == 0 ? operation->fence : job->fence;
        job->status = operation->status;
        put_reason(job, operation);
    }
    if (answer->decision == ONCE_DUPLICATE_REPLAYED && operation != NULL) {
        job->is_kept = operation->outcome.form == OUTCOME_JSON && operation->outcome.is_retained;
        buf_slice(&job->outcome, job->is_kept ? operation->outcome.body : SLICE_EMPTY);
    }
    if (buf_status(&job->outcome) != OK || buf_status(&job->words) != OK) {
        job->result = ONCE_E_NOMEM;
        (void)snprintf(job->error, sizeof job->error, "out of memory");
    }
}

/* A result that a server does not take, because of its size, is recorded without its bytes. */
static int seal(struct backend *backend, struct mcp_job *job, struct backend_answer *ret_answer,
    struct once_error *error)
{
    static const char too_large[] =
        "{\"content\":[{\"type\":\"text\",\"text\":\"The call was made, but its result was larger "
        "than the server of Once keeps.\"}]}";
    job->seal.outcome.meta = (struct once_bytes){OUTCOME_JSON_META, sizeof OUTCOME_JSON_META - 1};
    int result =
        backend->ops->call(backend, &(struct once_call){.seal = &job->seal}, ret_answer, error);
    if (result == ONCE_E_LIMIT && backend->remote != NULL) {
        job->seal.outcome.body = (struct once_bytes){too_large, sizeof too_large - 1};
        result =
            backend->ops->call(backend, &(struct once_call){.seal = &job->seal}, ret_answer, error);
    }
    return result;
}

static int settle(struct backend *backend, struct mcp_job *job, struct backend_answer *ret_answer,
    struct once_error *error)
{
    struct once_call call = {.unknown = &job->hold};
    if (job->kind == MCP_BEGIN) {
        return begin_ask(backend, &job->begin, "once mcp", ret_answer, error);
    }
    if (job->kind == MCP_SEAL) {
        return seal(backend, job, ret_answer, error);
    }
    if (job->kind != MCP_UNKNOWN) {
        call = job->kind == MCP_RENEW ? (struct once_call){.renew = &job->hold}
                                      : (struct once_call){.release = &job->hold};
    }
    return backend->ops->call(backend, &call, ret_answer, error);
}

/* Whether somebody else's call has moved on, without adding evidence. */
static void peek(struct cli *cli, struct mcp_job *job)
{
    struct backend backend;
    const struct operation *operation = NULL;
    int64_t pid = 0;
    if (backend_try_read(cli, &backend) == ONCE_OK &&
        backend.ops->peek(&backend, job->hold.operation_id, &operation) == ONCE_OK) {
        job->has_moved = operation == NULL || operation->status != ONCE_STATUS_IN_PROGRESS ||
                         begin_holder_gone(operation, &backend.own, &pid);
    }
    backend_close(&backend); /* only looked */
}

/* backend is open from the first job that needs it, and closed after a failure: one whose commit is
 * unknown refuses every call. */
static void perform(struct mcp_ledger *ledger, struct backend *backend, struct mcp_job *job)
{
    struct once_error error = {0};
    struct backend_answer answer = {0};
    struct cli_open how = {.lock_wait_ms = LOCK_WAIT_MS};
    int result = ONCE_OK;
    if (job->kind == MCP_PEEK) {
        peek(&ledger->cli, job);
        return;
    }
    if (backend->ops == NULL) {
        result = backend_try_open(&ledger->cli, how, backend, &error);
    }
    if (result == ONCE_OK) {
        result = settle(backend, job, &answer, &error);
    }
    if (result == ONCE_OK) {
        take_answer(job, &answer);
    } else {
        fail(job, result, &error);
        backend_close(backend);
    }
}

/* ---- the thread ------------------------------------------------------------------------------ */

static struct mcp_job *take(struct mcp_job **list)
{
    struct mcp_job *job = *list;
    if (job != NULL) {
        *list = job->next;
        job->next = NULL;
    }
    return job;
}

static void append(struct mcp_job **list, struct mcp_job *job)
{
    job->next = NULL;
    while (*list != NULL) {
        list = &(*list)->next;
    }
    *list = job;
}

/* NULL: stopped, and nothing waits. */
static struct mcp_job *next_job(struct mcp_ledger *ledger, struct backend *backend)
{
    (void)pthread_mutex_lock(&ledger->mutex);
    struct mcp_job *job = take(&ledger->waiting);
    if (job == NULL) {
        (void)pthread_mutex_unlock(&ledger->mutex);
        backend_close(backend); /* what was answered is durable (P2) */
        *backend = (struct backend){.ops = NULL};
        arena_clear(&ledger->cli.arena);
        (void)pthread_mutex_lock(&ledger->mutex);
        while ((job = take(&ledger->waiting)) == NULL && !ledger->stop) {
            (void)pthread_cond_wait(&ledger->wake, &ledger->mutex);
        }
    }
    (void)pthread_mutex_unlock(&ledger->mutex);
    return job;
}

static void *ledger_main(void *context)
{
    struct mcp_ledger *ledger = context;
    struct backend backend = {.ops = NULL};
    struct mcp_job *job = NULL;
    while ((job = next_job(ledger, &backend)) != NULL) {
        struct mcp_ledger_port *port = job->port;
        perform(ledger, &backend, job);
        (void)pthread_mutex_lock(&ledger->mutex);
        append(&port->done, job);
        ASSERT(eventfd_write(port->readable, 1) == 0); /* the port may go after the unlock */
        (void)pthread_mutex_unlock(&ledger->mutex);
    }
    return NULL;
}

int mcp_ledger_start(struct mcp_ledger *ledger, const struct cli *cli)
{
    *ledger = (struct mcp_ledger){.cli = *cli};
    arena_init(&ledger->cli.arena, &mem_libc, ARENA_BYTES_MAX);
    (void)pthread_mutex_init(&ledger->mutex, NULL);
    (void)pthread_cond_init(&ledger->wake, NULL);
    return pthread_create(&ledger->thread, NULL, ledger_main, ledger);
}

void mcp_ledger_stop(struct mcp_ledger *ledger)
{
    (void)pthread_mutex_lock(&ledger->mutex);
    ledger->stop = true;
    (void)pthread_cond_signal(&ledger->wake);
    (void)pthread_mutex_unlock(&ledger->mutex);
    ASSERT(pthread_join(ledger->thread, NULL) == 0);
    (void)pthread_cond_destroy(&ledger->wake);
    (void)pthread_mutex_destroy(&ledger->mutex);
    arena_release(&ledger->cli.arena);
}

int mcp_ledger_port_open(struct mcp_ledger_port *port, struct mcp_ledger *ledger)
{
    *port = (struct mcp_ledger_port){
        .ledger = ledger, .readable = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    return port->readable < 0 ? errno : 0;
}

void mcp_ledger_port_close(struct mcp_ledger_port *port)
{
    if (port->readable >= 0) {
        (void)close(port->readable); /* an eventfd has nothing to lose */
    }
}

void mcp_ledger_submit(struct mcp_ledger_port *port, struct mcp_job *job)
{
    struct mcp_ledger *ledger = port->ledger;
    job->port = port;
    (void)pthread_mutex_lock(&ledger->mutex);
    append(&ledger->waiting, job);
    (void)pthread_cond_signal(&ledger->wake);
    (void)pthread_mutex_unlock(&ledger->mutex);
}

struct mcp_job *mcp_ledger_take_done(struct mcp_ledger_port *port)
{
    eventfd_t count = 0;
    (void)eventfd_read(port->readable, &count); /* before the list, so that none is missed */
    (void)pthread_mutex_lock(&port->ledger->mutex);
    struct mcp_job *done = port->done;
    port->done = NULL;
    (void)pthread_mutex_unlock(&port->ledger->mutex);
    return done;
}
