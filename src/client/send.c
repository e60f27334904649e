/*
 * once_client_send: one operation, from its first attempt to what is known of it at the end.
 *
 *     attempt -> judge -> answer
 *        ^         |
 *        +- wait <-+  while a further attempt is safe, may end differently, and is in time
 *
 * A crash of the caller at any point has the same result as an attempt without an answer: the same
 * key, sent again, continues the operation.
 */
#include <string.h>

#include "base/check.h"
#include "client/attempt.h"
#include "client/wait.h"

enum { MARKS_BYTES_MAX = 64 << 10, MARKS_ARENA_BYTES_MAX = 1 << 20 }; /* a refusal is short */

struct sending {
    struct once_client *client;
    struct client_request request;
    struct client_response *response;
    int64_t started_ms;         /* of the steady clock */
    bool in_doubt;              /* an attempt before this one may have happened */
    struct attempt_facts facts; /* of the last attempt */
    struct verdict verdict;     /* on it */
};

/* ---- one attempt ------------------------------------------------------------------------- */

static int64_t left_ms(const struct sending *sending)
{
    const struct once_client_options *options = &sending->client->options;
    int64_t passed = options->steady_ms(options->world_context) - sending->started_ms;
    return sending->request.deadline_ms - passed;
}

/* A refusal may say in its body what it is. */
static void read_marks(struct sending *sending)
{
    struct client_response *response = sending->response;
    struct attempt_facts *facts = &sending->facts;
    const struct once_response *shown = &response->shown;
    const char *type = once_response_header(shown, "Content-Type");
    if (facts->status < 400 || shown->body.size == 0 || shown->body.size > MARKS_BYTES_MAX ||
        type == NULL || strstr(type, "json") == NULL) {
        return;
    }
    struct arena arena;
    arena_init(&arena, &sending->client->mem, MARKS_ARENA_BYTES_MAX);
    struct slice body = slice_of(shown->body.data, shown->body.size);
    facts->marks_unread = client_marks_read(body, &arena, &facts->marks) != OK;
    arena_release(&arena);
    static_assert(sizeof response->operation_id == sizeof facts->marks.operation_id, "copied");
    memcpy(response->operation_id, facts->marks.operation_id, sizeof response->operation_id);
}

static enum status attempt(struct sending *sending, struct err *err)
{
    struct client_response *response = sending->response;
    int64_t left = left_ms(sending);
    int64_t timeout = left < sending->request.attempt_ms ? left : sending->request.attempt_ms;
    int number = response->shown.attempts + 1;
    enum status status = client_request_number(
        &sending->request, sending->client, number, response->request_id, err);
    if (status != OK) {
        return status;
    }
    client_response_clear(response);
    response->shown.attempts = number;
    client_attempt(
        sending->client, &sending->request, timeout > 0 ? timeout : 1, response, &sending->facts);
    read_marks(sending);
    sending->verdict = client_judge(&sending->facts);
    return OK;
}

/* ---- between two ------------------------------------------------------------------------- */

/* How long to wait before the next attempt, or -1 if this was the last. */
static int64_t pause_ms(const struct sending *sending)
{
    const struct once_client *client = sending->client;
    const struct once_response *shown = &sending->response->shown;
    struct err err = {0};
    struct client_wait wait = {
        .base_ms = client->options.backoff_base_ms,
        .max_ms = client->options.backoff_max_ms,
        .retry = (unsigned)(shown->attempts - 1),
        .left_ms = left_ms(sending),
    };
    if (!sending->verdict.retry || shown->attempts > sending->request.retries ||
        client_random(client, &wait.random, sizeof wait.random, &err) != OK) {
        return -1;
    }
    const char *after = once_response_header(shown, "Retry-After");
    wait.after_ms = client_retry_after_ms(slice_str(after), client_wall_ms(client));
    return client_wait_ms(&wait);
}

static void report(const struct sending *sending, int64_t sleep_ms)
{
    const struct once_client_options *options = &sending->client->options;
    const struct client_response *response = sending->response;
    if (options->attempted != NULL) {
        struct once_attempt attempt = {
            .number = response->shown.attempts,
            .request_id = response->request_id,
            .status = response->shown.status,
            .decision = response->shown.decision,
            .why = response->why,
            .sleep_ms = sleep_ms,
        };
        options->attempted(options->attempted_context, &attempt);
    }
}

/* True if a further attempt should be made. */
static bool wait_for_next(struct sending *sending)
{
    const struct once_client_options *options = &sending->client->options;
    int64_t sleep_ms = pause_ms(sending);
    report(sending, sleep_ms);
    if (sleep_ms < 0 || options->sleep(options->world_context, sleep_ms) != 0 ||
        left_ms(sending) <= 0) {
        return false;
    }
    sending->in_doubt = sending->in_doubt || sending->verdict.effect != ONCE_EFFECT_NO;
    return true;
}

/* ---- the end ----------------------------------------------------------------------------- */

/* What is known of the operation over all attempts. */
static enum once_effect effect_of(const struct sending *sending)
{
    const struct verdict *verdict = &sending->verdict;
    if (verdict->settles || verdict->effect == ONCE_EFFECT_YES || !sending->in_doubt) {
        return verdict->effect;
    }
    return ONCE_EFFECT_UNKNOWN; /* P5: "no" from the last attempt says nothing about earlier ones */
}

static enum status conclude(struct sending *sending, struct err *err)
{
    struct client_response *response = sending->response;
    response->shown.effect = effect_of(sending);
    if (sending->facts.end == ATTEMPT_ANSWERED) {
        return OK;
    }
    int attempts = response->shown.attempts;
    const char *plural = attempts == 1 ? "" : "s";
    if (response->shown.effect != ONCE_EFFECT_NO) {
        (void)err_set(err, E_UNKNOWN, "no answer after %d attempt%s: %s; it may have happened",
            attempts, plural, response->why);
        err_hint(err, "the same key '%s' continues it", response->key);
        return E_UNKNOWN;
    }
    if (sending->facts.end == ATTEMPT_NO_MEMORY) {
        return E_NOMEM;
    }
    const char *what = sending->request.is_read ? "no answer" : "cannot reach the server";
    return err_set(err, E_UNAVAILABLE, "%s after %d attempt%s: %s; nothing happened", what,
        attempts, plural, response->why);
}

static enum status send_all(struct sending *sending, struct err *err)
{
    enum status status = OK;
    do {
        status = attempt(sending, err);
    } while (status == OK && wait_for_next(sending));
    if (status == OK) {
        return conclude(sending, err);
    }
    /* No random bytes for a new id: report what was known before. */
    client_response_clear(sending->response);
    sending->response->shown.effect = sending->in_doubt ? ONCE_EFFECT_UNKNOWN : ONCE_EFFECT_NO;
    if (sending->in_doubt) {
        err->status = status = E_UNKNOWN;
    }
    return status;
}

static enum status send_one(struct once_client *client, const struct once_send *send,
    struct once_response **ret_response, struct err *err)
{
    const struct once_client_options *options = &client->options;
    struct sending sending = {.client = client};
    enum status status = client_request_init(&sending.request, client, send, err);
    if (status == OK) {
        sending.response = client_response_new(client);
        status = sending.response == NULL ? E_NOMEM : OK;
    }
    if (status == OK) {
        memcpy(sending.response->key, sending.request.key, sizeof sending.response->key);
        sending.started_ms = options->steady_ms(options->world_context);
        status = send_all(&sending, err);
    }
    client_request_release(&sending.request);
    if (sending.response != NULL && status == E_NOMEM) {
        once_response_free(client, &sending.response->shown);
    } else if (sending.response != NULL) {
        *ret_response = &sending.response->shown;
    }
    return status;
}

int once_client_send(struct once_client *client, const struct once_send *send,
    struct once_response **ret_response, struct once_error *error)
{
    struct err err = {0};
    if (ret_response != NULL) {
        *ret_response = NULL;
    }
    if (client == NULL || send == NULL || ret_response == NULL) {
        return client_error(error,
            err_set(&err, E_MISUSE, "%s is NULL",
                client == NULL ? "client"
                : send == NULL ? "send"
                               : "ret_response"),
            &err);
    }
    return client_error(error, send_one(client, send, ret_response, &err), &err);
}
