/*
 * Runs the scripts: their arguments, the connection, and the meaning of their answers.
 *
 * A script is called by its hash; a server that does not know it yet (NOSCRIPT: nothing was run)
 * gets its text once and keeps it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/macros.h"
#include "base/text.h"
#include "store/redis/impl.h"

/* ---- arguments ------------------------------------------------------------------------------ */

void call_clear(struct redis *self)
{
    ASSERT(self->request.max > 0);
    buf_clear(&self->request);
    self->request_count = 0;
    err_clear(&self->begun);
}

void call_begin(struct redis *self)
{
    struct err err = {0};
    enum status status = self->failed == OK ? fate_settle(self, &err) : OK;
    ASSERT(status != OK || self->failed != OK || !self->fate.is_open); /* P11 */
    call_clear(self);
    if (status != OK) {
        self->begun = err;
        self->begun.status = status;
    }
}

/* Appends one argument in the protocol's form: its length, then its bytes. */
static void word_put(struct buf *out, const void *bytes, size_t size)
{
    buf_char(out, '$');
    buf_u64(out, size);
    buf_append(out, "\r\n", 2);
    buf_append(out, bytes, size);
    buf_append(out, "\r\n", 2);
}

void call_bytes(struct redis *self, const void *bytes, size_t size)
{
    word_put(&self->request, bytes, size);
    self->request_count++;
}

void call_slice(struct redis *self, struct slice bytes)
{
    call_bytes(self, bytes.data, bytes.len);
}

void call_text(struct redis *self, const char *text)
{
    call_bytes(self, text, strlen(text));
}

void call_buf(struct redis *self, const struct buf *bytes)
{
    enum status status = buf_status(bytes);
    call_slice(self, buf_view(bytes));
    if (status != OK && buf_status(&self->request) == OK) {
        self->request.status = status; /* or an argument would be sent that is cut off */
    }
}

void call_u64(struct redis *self, uint64_t value)
{
    buf_clear(&self->word);
    buf_u64(&self->word, value);
    call_buf(self, &self->word);
}

void call_i64(struct redis *self, int64_t value)
{
    ASSERT(value >= 0); /* times and lengths */
    call_u64(self, (uint64_t)value);
}

void call_key(struct redis *self, const char *name)
{
    char key[REDIS_NAME_BYTES_MAX + 64];
    int len = snprintf(key, sizeof key, "{%s}:%s", self->url.name, name);
    ASSERT(len > 0 && (size_t)len < sizeof key);
    call_bytes(self, key, (size_t)len);
}

void call_record_key(struct redis *self, const struct digest *hash)
{
    buf_clear(&self->word);
    buf_char(&self->word, '{');
    buf_str(&self->word, self->url.name);
    buf_str(&self->word, "}:r:");
    buf_append(&self->word, hash->bytes, DIGEST_BYTES);
    call_buf(self, &self->word);
}

/* ---- failures ------------------------------------------------------------------------------- */

enum status call_fail(struct redis *self, enum status status)
{
    if (status == E_CORRUPT) {
        self->failed = E_CORRUPT;
        redis_link_close(&self->link);
    }
    return status;
}

enum status call_failed(const struct redis *self, struct err *err)
{
    return self->failed == OK
               ? OK
               : err_set(err, self->failed, "the store failed before; only a restart helps");
}

/* Whether the call that was begun can be made. */
static enum status call_can(const struct redis *self, struct err *err)
{
    enum status status = call_failed(self, err);
    if (status == OK && self->begun.status != OK) {
        status = err_set(err, self->begun.status, "%s", self->begun.text);
        err_hint(err, "%s", self->begun.hint);
    }
    return status;
}

/* Errors that a server returns before it has done anything: of the conditions that come and go, it
 * reports none after the first write of a script. */
static const struct {
    const char *code;
    enum status status;
    bool leaves;      /* close the connection: a different server may work */
    bool midway;      /* except that a script may meet it after its first write */
    const char *hint; /* NULL: none */
} refusals[] = {
    {.code = "OOM",
        .status = E_LIMIT,
        .hint = "raise the server's maxmemory; live records are never dropped"},
    {.code = "LOADING", .status = E_UNAVAILABLE},
    {.code = "MISCONF", .status = E_UNAVAILABLE},
    {.code = "NOREPLICAS", .status = E_UNAVAILABLE},
    {.code = "BUSY", .status = E_UNAVAILABLE},
    {.code = "NOAUTH", .status = E_UNAVAILABLE, .leaves = true},
    {.code = "NOPERM", .status = E_UNAVAILABLE, .midway = true},
    {.code = "READONLY", .status = E_UNAVAILABLE, .leaves = true},
    {.code = "MASTERDOWN", .status = E_UNAVAILABLE, .leaves = true},
    {.code = "CLUSTERDOWN", .status = E_UNAVAILABLE},
    {.code = "TRYAGAIN",
        .status = E_UNAVAILABLE,
        .hint = "repeat it when the slot has arrived; nothing happened"},
    {.code = "MOVED", .status = E_UNAVAILABLE, .leaves = true},
    {.code = "ASK", .status = E_UNAVAILABLE, .leaves = true},
    {.code = "ABSENT",
        .status = E_UNAVAILABLE,
        .hint = "the first once serve or once run makes it; name= in the URL names it"},
    {.code = "NOPLACE", .status = E_INVALID},
    {.code = "EXISTS", .status = E_INVALID},
    {.code = "COPYING",
        .status = E_UNAVAILABLE,
        .hint = "run the same once copy again to finish it, or remove the keys of the store"},
    {.code = "TAKEN", .status = E_STALE},
    {.code = "LOST", .status = E_CORRUPT, .leaves = true},
};

enum status call_refused(struct redis *self, const char *text, enum status other, struct err *err)
{
    enum status status = other;
    const char *hint = NULL;
    ASSERT(text != NULL);
    size_t len = strcspn(text, " ");
    const char *in_script = strstr(text, " script: "); /* as the server says of a script's calls */
    size_t shown = strlen(text);
    for (size_t i = 0; i < COUNT(refusals); i++) {
        if (strlen(refusals[i].code) == len && strncmp(text, refusals[i].code, len) == 0) {
            bool is_midway = in_script != NULL && refusals[i].midway;
            status = is_midway ? other : refusals[i].status;
            /* It says the same of any script: this one's hash and line help nobody. */
            shown = in_script != NULL && !is_midway ? (size_t)(in_script - text) : shown;
            hint = refusals[i].hint;
            if (refusals[i].leaves) {
                redis_link_close(&self->link);
            }
        }
    }
    status = strstr(text, "CORRUPT ") != NULL ? E_CORRUPT : status;
    if (strncmp(text, "ASK ", 4) == 0) { /* a number and an address */
        text = "the slot of the store is being moved to a different node";
        shown = strlen(text);
    }
    (void)err_set(err, status, "the Redis server says: %.*s", (int)shown, text);
    if (strstr(text, "NOPERM ") != NULL || strstr(text, "The user executing the script") != NULL) {
        err_hint(err, "ACL SETUSER: the account needs the commands that docs/redis.md lists");
    }
    if (hint != NULL) {
        err_hint(err, "%s", hint);
    }
    return status;
}

/* ---- connection ----------------------------------------------------------------------------- */

enum status call_connect(struct redis *self, struct err *err)
{
    struct err *cause = &self->apart;
    if (link_is_open(&self->link)) {
        return OK;
    }
    enum status status = E_UNAVAILABLE;
    uint64_t now_ns = clock_nanos();
    if (now_ns >= self->try_again_ns) {
        err_clear(cause);
        status =
            redis_link_open(&self->link, now_ns + UINT64_C(1000000) * REDIS_CONNECT_MS_MAX, cause);
        if (status == OK && self->chain[0] != '\0') { /* it is open, and writes */
            status = settings_check_again(self, cause);
        }
        if (status == OK) {
            self->backoff_ms = 0;
            self->presuming.must_ask = true; /* PB4: it may be a different server */
            return OK;
        }
        self->backoff_ms = self->backoff_ms == 0
                               ? REDIS_BACKOFF_MS_MIN
                               : clock_doubled_ms(self->backoff_ms, REDIS_BACKOFF_MS_MAX);
        self->try_again_ns = clock_nanos() + UINT64_C(1000000) * (uint64_t)self->backoff_ms;
    }
    (void)err_set(err, status, "%s", cause->text);
    err_hint(err, "%s", cause->hint);
    return status;
}

/* Appends the words before the arguments: the script, and the one key that names the slot. */
static void head_put(struct redis *self, const struct redis_script *script, bool by_hash)
{
    struct buf *head = &self->head;
    char key[REDIS_NAME_BYTES_MAX + 16];
    int len = snprintf(key, sizeof key, "{%s}:store", self->url.name);
    ASSERT(len > 0 && (size_t)len < sizeof key);
    buf_clear(head);
    buf_printf(head, "*%zu\r\n", 4 + self->request_count);
    if (by_hash) {
        word_put(head, "EVALSHA", 7);
        word_put(head, script->sha1, strlen(script->sha1));
    } else {
        word_put(head, "EVAL", 4);
        word_put(head, script->text, script->bytes);
    }
    word_put(head, "1", 1);
    word_put(head, key, (size_t)len);
}

/* Sends one form of the call and reads its answer, even if that is an error. */
static enum status exchange(struct redis *self, const struct redis_script *script, bool by_hash,
    redisReply **ret_reply, bool *ret_sent, struct err *err)
{
    uint64_t deadline_ns = clock_nanos() + UINT64_C(1000000) * REDIS_ANSWER_MS_MAX;
    ASSERT(self->failed == OK); /* P11 */
    ASSERT(script->bytes > 0);
    head_put(self, script, by_hash);
    if (buf_status(&self->head) != OK || buf_status(&self->request) != OK) {
        return err_set(err, E_NOMEM, "out of memory for a request to the Redis server");
    }
    *ret_sent = true;
    enum status status =
        redis_link_send(&self->link, buf_view(&self->head), true, deadline_ns, err);
    status = status == OK
                 ? redis_link_send(&self->link, buf_view(&self->request), false, deadline_ns, err)
                 : status;
    return status == OK ? link_answer(&self->link, ret_reply, deadline_ns, err) : status;
}

static bool is_error(const redisReply *reply, const char *code)
{
    return reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, code, strlen(code)) == 0;
}

static bool is_redirect(const redisReply *reply)
{
    return is_error(reply, "MOVED ") || is_error(reply, "ASK ");
}

/* Follows a redirect. True: nothing was run, and we are connected to the right server: call again.
 * *ret_status: no server could be reached. */
static bool follow(
    struct redis *self, redisReply **reply, size_t hops, enum status *ret_status, struct err *err)
{
    if (*ret_status != OK || (*reply)->type != REDIS_REPLY_ERROR || hops == REDIS_HOPS_MAX ||
        !nodes_redirect(&self->link, (*reply)->str)) {
        return false;
    }
    freeReplyObject(*reply);
    *reply = NULL;
    *ret_status = call_connect(self, err);
    return *ret_status == OK;
}

enum status call_once(struct redis *self, const struct redis_script *script, redisReply **ret_reply,
    bool *ret_sent, struct err *err)
{
    enum status status = OK;
    redisReply *reply = NULL;
    size_t hops = 0;
    ASSERT(link_is_open(&self->link));
    do {
        *ret_sent = false;
        status = exchange(self, script, true, &reply, ret_sent, err);
        if (status == OK && is_error(reply, "NOSCRIPT")) {
            freeReplyObject(reply);
            reply = NULL;
            *ret_sent = false;
            status = exchange(self, script, false, &reply, ret_sent, err);
        }
        *ret_sent = *ret_sent && !(status == OK && is_redirect(reply));
    } while (follow(self, &reply, hops++, &status, err));
    if (self->request.cap > REDIS_BUFFER_BYTES_KEPT && status == OK) {
        buf_release(&self->request);
        buf_init(&self->request, self->mem, REDIS_REQUEST_BYTES_MAX);
    }
    *ret_reply = reply;
    return status;
}

enum status call_words(struct redis *self, const char *const *words, size_t count,
    redisReply **ret_reply, struct err *err)
{
    redisReply *reply = NULL;
    size_t hops = 0;
    bool was_open = link_is_open(&self->link);
    ASSERT(count > 0);
    enum status status = call_failed(self, err);
    status = status == OK ? fate_settle(self, err) : status;
    status = status == OK ? call_connect(self, err) : status;
    if (status != OK) {
        return status;
    }
    do {
        uint64_t deadline_ns = clock_nanos() + UINT64_C(1000000) * REDIS_ANSWER_MS_MAX;
        status = link_ask(&self->link, words, count, deadline_ns, &reply, err);
        if (status == E_UNAVAILABLE && was_open) { /* perhaps closed while it was idle */
            was_open = false;
            status = call_connect(self, err);
            status = status == OK ? link_ask(&self->link, words, count, deadline_ns, &reply, err)
                                  : status;
        }
    } while (follow(self, &reply, hops++, &status, err));
    if (status == OK && reply->type == REDIS_REPLY_ERROR) {
        status = call_refused(self, reply->str, E_UNAVAILABLE, err);
        freeReplyObject(reply);
    }
    if (status == OK) {
        *ret_reply = reply;
    }
    return status;
}

enum status call_run(
    struct redis *self, const struct redis_script *script, redisReply **ret_reply, struct err *err)
{
    bool sent = false;
    redisReply *reply = NULL;
    bool was_open = link_is_open(&self->link);
    enum status status = call_can(self, err);
    status = status == OK ? call_connect(self, err) : status;
    status = status == OK ? call_once(self, script, &reply, &sent, err) : status;
    if (status == E_UNAVAILABLE && was_open && sent) {
        /* The connection may have been closed while idle: that says nothing about the server
         * now. */
        status = call_connect(self, err);
        status = status == OK ? call_once(self, script, &reply, &sent, err) : status;
    }
    if (status == OK && reply->type == REDIS_REPLY_ERROR) {
        status = call_fail(self, call_refused(self, reply->str, E_UNAVAILABLE, err));
        freeReplyObject(reply);
        reply = NULL;
    }
    if (status == OK) {
        *ret_reply = reply;
    }
    return status;
}

/* ---- parts of answers ----------------------------------------------------------------------- */

enum status reply_malformed(const struct redis_script *script, struct err *err)
{
    return err_set(
        err, E_CORRUPT, "the Redis server's answer to '%s' is not in its form", script->name);
}
