/*
 * Redis Streams, as the module once-broker-redis.so.
 *
 * URL: redis://[USER[:PASSWORD]@]HOST[:PORT],…/STREAM[?group=once&idle=60s&db=0&socket=PATH],
 * rediss:// with TLS (cacert, cert, key), redis+sentinel://HOST,…/SERVICE/STREAM. The connection is
 * that of the Redis store (store/redis/link.c): deadlines, TLS, Sentinels, redirects of a cluster.
 *
 * A message is read by XREADGROUP and is then pending for our consumer until XACK. Read in this
 * order:
 *   1  messages pending for our own name: after a new connection, or a restart on the same store;
 *   2  messages pending for a different consumer for longer than `idle` (XAUTOCLAIM): that process
 *      is gone, because a live one extends its own (XCLAIM … JUSTID) every quarter of `idle`;
 *   3  new messages (">"), blocking on a separate connection, so that others can be acknowledged
 *      meanwhile.
 *
 * If this process crashes after a read, its messages are pending, and come by 1 or 2. If the server
 * crashes, it delivers again whatever its file lost, and lost XACKs are repeated.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "broker/common.h"
#include "store/redis/impl.h"

enum {
    IDLE_MS = 60000,    /* pending for longer than this without a sign of life: claimed */
    IDLE_MS_MIN = 3000, /* with less, a slow moment of a live process would be taken for its end */
    BLOCK_MS = 5000,    /* longest wait of one read for new messages */
    CLAIM_EVERY = 2,    /* how often in `idle` other consumers' messages are looked for */
    EXTEND_PAGES_MAX = 128, /* commands of FIELDS_MAX messages each: more than a prefetch */
    FIELDS_MAX = BROKER_FIELDS_MAX,
    WORDS_MAX = 2 * FIELDS_MAX + 16,
    URL_BYTES_MAX = 2048,
};

struct broker_source {
    struct redis_url url;
    struct redis_tls tls;
    struct redis_link reads; /* where XREADGROUP blocks */
    struct redis_link asks;  /* for all other commands */
    char stream[256];
    char parked[300]; /* the stream for parked messages: in the same slot of a cluster */
    char group[128];
    char consumer[128];
    int64_t idle_ms;
    bool publishes;
    bool is_reading;                   /* an XREADGROUP for new messages is in progress */
    bool has_history;                  /* our pending messages have not been read to the end … */
    char history[BROKER_ID_BYTES_MAX]; /* … but up to this id */
    bool is_claiming;                  /* other consumers' messages have not been searched to the
                                          end … */
    char claim[BROKER_ID_BYTES_MAX];   /* … but up to this id */
    uint64_t claim_ns;                 /* when to search again, by clock_nanos */
    redisReply *reply;                 /* holds the messages below */
    struct broker_message messages[BROKER_TAKE_MAX];
    struct broker_field fields[BROKER_TAKE_MAX][FIELDS_MAX];
};

/* ---- the URL ------------------------------------------------------------------------------- */

/* Whether the option is ours; the others belong to the connection. */
static bool own_option(
    struct broker_source *self, struct slice option, char ret_db[8], bool *ret_good)
{
    const char *equals = option.len == 0 ? NULL : memchr(option.data, '=', option.len);
    size_t at = equals == NULL ? option.len : (size_t)(equals - option.data);
    struct slice name = slice_of(option.data, at);
    struct slice value = at == option.len ? SLICE_EMPTY : slice_of(equals + 1, option.len - at - 1);
    uint64_t db = 0;
    if (slice_is(name, "group")) {
        *ret_good = broker_decode(value, self->group, sizeof self->group);
    } else if (slice_is(name, "idle")) {
        *ret_good = text_duration(value, &self->idle_ms) && self->idle_ms >= IDLE_MS_MIN;
    } else if (slice_is(name, "db")) {
        *ret_good = text_u64(value, &db) && db < 65536;
        (void)snprintf(ret_db, 8, "%u", (unsigned)db & 0xffff);
    } else {
        return false;
    }
    return true;
}

/* The URL of the connection: the last part of the path is the stream, which is replaced by the
 * number of the database. */
static enum status connection_url(
    struct broker_source *self, const char *url, char ret_url[URL_BYTES_MAX], struct err *err)
{
    const char *host = strstr(url, "://");
    const char *options = strchr(url, '?');
    const char *end = options == NULL ? url + strlen(url) : options;
    const char *slash = end;
    char db[8] = "0";
    char rest[URL_BYTES_MAX] = "";
    size_t used = 0;
    while (host != NULL && slash > host + 3 && *slash != '/') {
        slash--;
    }
    if (host == NULL || *slash != '/' || slash <= host + 2 ||
        !broker_decode(
            slice_of(slash + 1, (size_t)(end - slash) - 1), self->stream, sizeof self->stream)) {
        (void)err_set(err, E_INVALID, "the path of a redis: queue names its stream");
        err_hint(err, "redis://127.0.0.1:6379/orders?group=once");
        return E_INVALID;
    }
    while (options != NULL) {
        const char *next = strchr(options + 1, '&');
        size_t len = next == NULL ? strlen(options + 1) : (size_t)(next - options) - 1;
        bool is_good = true;
        if (!own_option(self, slice_of(options + 1, len), db, &is_good)) {
            int size = snprintf(rest + used, sizeof rest - used, "%c%.*s", used == 0 ? '?' : '&',
                (int)len, options + 1);
            is_good = size > 0 && (size_t)size < sizeof rest - used;
            used += is_good ? (size_t)size : 0;
        }
        if (!is_good) {
            (void)err_set(err, E_INVALID, "option '%.*s' of the redis: queue cannot be that",
                (int)strcspn(options + 1, "=&"), options + 1);
            err_hint(err, "group=NAME, idle=60s (3s at least), db=0");
            return E_INVALID;
        }
        options = next;
    }
    int size = snprintf(ret_url, URL_BYTES_MAX, "%.*s/%s%s", (int)(slash - url), url, db, rest);
    mem_wipe(rest, sizeof rest);
    return size > 0 && size < URL_BYTES_MAX ? OK : err_set(err, E_INVALID, "the URL is too long");
}

static enum status read_url(void *source, const char *url, struct err *err)
{
    struct broker_source *self = source;
    char text[URL_BYTES_MAX] = "";
    (void)snprintf(self->group, sizeof self->group, "once");
    self->idle_ms = IDLE_MS;
    enum status status = connection_url(self, url, text, err);
    status = status == OK ? redis_url_read(text, &self->url, err) : status;
    mem_wipe(text, sizeof text);
    bool has_tag = strchr(self->stream, '{') != NULL;
    (void)snprintf(
        self->parked, sizeof self->parked, has_tag ? "%s:parked" : "{%s}:parked", self->stream);
    return status;
}

static enum status check(const char *url, struct err *err)
{
    return broker_source_read(sizeof(struct broker_source), read_url, url, NULL, err);
}

/* ---- commands ------------------------------------------------------------------------------ */

/* The words of one command; more than WORDS_MAX make it fail. */
struct command {
    struct slice words[WORDS_MAX];
    size_t count;
};

static void word(struct command *command, struct slice text)
{
    if (command->count < WORDS_MAX) {
        command->words[command->count] = text;
    }
    command->count++;
}

static void text(struct command *command, const char *word_text)
{
    word(command, slice_str(word_text));
}

static uint64_t deadline(int64_t ms)
{
    return clock_nanos() + UINT64_C(1000000) * (uint64_t)ms;
}

static enum status send_command(
    struct redis_link *link, const struct command *command, struct err *err)
{
    const char *argv[WORDS_MAX];
    size_t lens[WORDS_MAX];
    char *bytes = NULL;
    if (command->count > WORDS_MAX) {
        return err_set(err, E_LIMIT, "a message has more than %d fields", FIELDS_MAX);
    }
    for (size_t i = 0; i < command->count; i++) {
        argv[i] = command->words[i].len == 0 ? "" : command->words[i].data;
        lens[i] = command->words[i].len;
    }
    long long size = redisFormatCommandArgv(&bytes, (int)command->count, argv, lens);
    if (size < 0) {
        return err_set(err, E_NOMEM, "out of memory for a command");
    }
    enum status status = redis_link_send(
        link, slice_of(bytes, (size_t)size), false, deadline(REDIS_ANSWER_MS_MAX), err);
    redisFreeCommand(bytes);
    return status;
}

/* An error from the server is a failure; after a redirect the next command goes to the new
 * place. */
static enum status take_answer(
    struct redis_link *link, uint64_t until_ns, redisReply **ret_reply, struct err *err)
{
    redisReply *reply = NULL;
    enum status status = link_answer(link, &reply, until_ns, err);
    if (status == OK && reply->type == REDIS_REPLY_ERROR) {
        status = err_set(err, E_UNAVAILABLE, "the Redis server at '%s' refused: %.200s",
            link->where, reply->str);
        (void)nodes_redirect(link, reply->str);
        freeReplyObject(reply);
        return status;
    }
    if (status == OK) {
        *ret_reply = reply;
    }
    return status;
}

static enum status ask(struct broker_source *self, const struct command *command,
    redisReply **ret_reply, struct err *err)
{
    enum status status = send_command(&self->asks, command, err);
    return status == OK ? take_answer(&self->asks, deadline(REDIS_ANSWER_MS_MAX), ret_reply, err)
                        : status;
}

static enum status do_command(
    struct broker_source *self, const struct command *command, struct err *err)
{
    redisReply *reply = NULL;
    enum status status = ask(self, command, &reply, err);
    freeReplyObject(reply);
    return status;
}

/* ---- open and connect ---------------------------------------------------------------------- */

static void close_source(struct broker_source *self);

static enum status open_source(
    const struct broker_options *options, struct broker_source **ret_source, struct err *err)
{
    void *made = NULL;
    enum status status =
        broker_source_read(sizeof(struct broker_source), read_url, options->url, &made, err);
    if (status != OK) {
        return status;
    }
    struct broker_source *self = made;
    self->publishes = options->publishes;
    (void)snprintf(self->consumer, sizeof self->consumer, "%s", options->consumer);
    status = redis_tls_init(&self->tls, &self->url, err);
    redis_link_init(&self->reads, &self->url, &self->tls);
    redis_link_init(&self->asks, &self->url, &self->tls);
    if (status != OK) {
        close_source(self);
        return status;
    }
    *ret_source = self;
    return OK;
}

/* From the beginning of the stream, so that messages from before the group existed are not lost. */
static enum status make_group(struct broker_source *self, struct err *err)
{
    struct command make = {.count = 0};
    redisReply *reply = NULL;
    text(&make, "XGROUP");
    text(&make, "CREATE");
    text(&make, self->stream);
    text(&make, self->group);
    text(&make, "0");
    text(&make, "MKSTREAM");
    enum status status = send_command(&self->asks, &make, err);
    status = status == OK ? link_answer(&self->asks, &reply, deadline(REDIS_ANSWER_MS_MAX), err)
                          : status;
    if (status == OK && reply->type == REDIS_REPLY_ERROR &&
        strncmp(reply->str, "BUSYGROUP", 9) != 0) {
        status = err_set(err, E_UNAVAILABLE, "the Redis server at '%s' refused: %.200s",
            self->asks.where, reply->str);
        (void)nodes_redirect(&self->asks, reply->str);
    }
    freeReplyObject(reply);
    return status;
}

static void drop_reply(struct broker_source *self)
{
    freeReplyObject(self->reply);
    self->reply = NULL;
}

static enum status connect_source(struct broker_source *self, struct err *err)
{
    drop_reply(self);
    redis_link_close(&self->reads);
    redis_link_close(&self->asks);
    self->is_reading = false;
    self->has_history = true;
    (void)snprintf(self->history, sizeof self->history, "0");
    self->is_claiming = true;
    (void)snprintf(self->claim, sizeof self->claim, "0");
    enum status status = redis_link_open(&self->asks, deadline(REDIS_CONNECT_MS_MAX), err);
    if (status != OK || self->publishes) {
        return status;
    }
    status = make_group(self, err);
    if (status == OK) {
        self->reads.nodes = self->asks.nodes; /* where redirects led */
        status = redis_link_open(&self->reads, deadline(REDIS_CONNECT_MS_MAX), err);
    }
    return status;
}

static bool is_open(const struct broker_source *self)
{
    return link_is_open(&self->reads) && link_is_open(&self->asks);
}

static enum status not_open(struct err *err)
{
    return err_set(err, E_UNAVAILABLE, "the connection to the Redis server is gone");
}

/* ---- messages ------------------------------------------------------------------------------ */

static bool is_attribute(struct slice name)
{
    return name.len > 3 && memcmp(name.data, "ce-", 3) == 0;
}

static void read_field(struct broker_message *message, struct broker_field *fields,
    struct slice name, struct slice value)
{
    if (slice_is(name, "event")) {
        message->body = value;
    } else if (slice_is(name, "content-type") || slice_is(name, "ce-datacontenttype")) {
        message->type = value;
    } else if (slice_is(name, "data") && message->body.len == 0) {
        message->body = value;
    } else if (message->field_count < FIELDS_MAX) {
        message->is_binary = message->is_binary || is_attribute(name);
        fields[message->field_count++] = (struct broker_field){name, value};
    }
}

/* One entry: its id, and a flat list of fields and values; nil if it was trimmed. False: not an
 * entry. */
static bool read_entry(struct broker_source *self, const redisReply *entry, bool is_again,
    struct broker_message *message, struct broker_field *fields)
{
    struct slice id, name, value;
    const redisReply *list = reply_at(entry, 1);
    (void)self;
    if (!reply_text(reply_at(entry, 0), &id) || id.len >= BROKER_ID_BYTES_MAX) {
        return false;
    }
    *message = (struct broker_message){.id = id, .is_again = is_again, .fields = fields};
    message->is_gone = list == NULL || list->type == REDIS_REPLY_NIL;
    bool has_event = false;
    for (size_t i = 0; i + 1 < reply_count(list); i += 2) {
        if (!reply_text(reply_at(list, i), &name) || !reply_text(reply_at(list, i + 1), &value)) {
            return false;
        }
        has_event = has_event || slice_is(name, "event");
        read_field(message, fields, name, value);
    }
    message->is_binary = message->is_binary && !has_event;
    return true;
}

static enum status read_entries(struct broker_source *self, const redisReply *entries,
    bool is_again, size_t *ret_count, struct err *err)
{
    size_t count = 0;
    for (size_t i = 0; i < reply_count(entries) && count < BROKER_TAKE_MAX; i++) {
        const redisReply *entry = reply_at(entries, i);
        if (entry == NULL || entry->type == REDIS_REPLY_NIL) {
            continue; /* trimmed and claimed, from servers before 7 */
        }
        if (!read_entry(self, entry, is_again, &self->messages[count], self->fields[count])) {
            redis_link_close(&self->reads);
            return err_set(
                err, E_UNAVAILABLE, "the Redis server's answer is not a list of entries");
        }
        count++;
    }
    *ret_count = count;
    return OK;
}

/* The entries of our one stream; none: nil. */
static const redisReply *entries_of(const redisReply *reply)
{
    return reply_at(reply_at(reply, 0), 1);
}

static void start_read(struct command *command, const struct broker_source *self, const char *max)
{
    *command = (struct command){.count = 0};
    text(command, "XREADGROUP");
    text(command, "GROUP");
    text(command, self->group);
    text(command, self->consumer);
    text(command, "COUNT");
    text(command, max);
}

static void keep_id(char ret_id[BROKER_ID_BYTES_MAX], struct slice id)
{
    memcpy(ret_id, id.data, id.len);
    ret_id[id.len] = '\0';
}

/* 1: our pending messages. */
static enum status take_history(
    struct broker_source *self, const char *max, size_t *ret_count, struct err *err)
{
    struct command read;
    start_read(&read, self, max);
    text(&read, "STREAMS");
    text(&read, self->stream);
    text(&read, self->history);
    enum status status = ask(self, &read, &self->reply, err);
    status =
        status == OK ? read_entries(self, entries_of(self->reply), true, ret_count, err) : status;
    if (status == OK) {
        self->has_history = *ret_count > 0;
        if (self->has_history) {
            keep_id(self->history, self->messages[*ret_count - 1].id);
        }
    }
    return status;
}

/* 2: messages that other consumers left. */
static enum status take_claimed(
    struct broker_source *self, const char *max, size_t *ret_count, struct err *err)
{
    struct command claim = {.count = 0};
    struct slice next;
    char idle[24];
    (void)snprintf(idle, sizeof idle, "%lld", (long long)self->idle_ms);
    text(&claim, "XAUTOCLAIM");
    text(&claim, self->stream);
    text(&claim, self->group);
    text(&claim, self->consumer);
    text(&claim, idle);
    text(&claim, self->claim);
    text(&claim, "COUNT");
    text(&claim, max);
    enum status status = ask(self, &claim, &self->reply, err);
    status =
        status == OK ? read_entries(self, reply_at(self->reply, 1), true, ret_count, err) : status;
    if (status == OK) {
        bool has_next = reply_text(reply_at(self->reply, 0), &next) &&
                        next.len < BROKER_ID_BYTES_MAX && !slice_is(next, "0-0");
        self->is_claiming = has_next;
        keep_id(self->claim, has_next ? next : SLICE_LIT("0"));
        self->claim_ns = deadline(self->idle_ms / CLAIM_EVERY);
    }
    return status;
}

/* 3: new messages. A command that was sent stays open until it is answered. */
static enum status take_new(struct broker_source *self, const char *max, int64_t wait_ms,
    int wake_fd, size_t *ret_count, struct err *err)
{
    char block[24];
    struct command read;
    enum status status = OK;
    if (!self->is_reading) {
        start_read(&read, self, max);
        (void)snprintf(block, sizeof block, "%d", (int)BLOCK_MS);
        text(&read, "BLOCK");
        text(&read, block);
        text(&read, "STREAMS");
        text(&read, self->stream);
        text(&read, ">");
        status = send_command(&self->reads, &read, err);
        self->is_reading = status == OK;
    }
    if (status != OK || !link_wait(&self->reads, wake_fd, wait_ms)) {
        return status;
    }
    self->is_reading = false;
    status = take_answer(&self->reads, deadline(BLOCK_MS + REDIS_ANSWER_MS_MAX), &self->reply, err);
    return status == OK ? read_entries(self, entries_of(self->reply), false, ret_count, err)
                        : status;
}

static enum status take(struct broker_source *self, size_t max, int64_t wait_ms, int wake_fd,
    const struct broker_message **ret_messages, size_t *ret_count, struct err *err)
{
    char number[24];
    size_t count = 0;
    enum status status = OK;
    (void)snprintf(number, sizeof number, "%zu", max < BROKER_TAKE_MAX ? max : BROKER_TAKE_MAX);
    drop_reply(self);
    if (!is_open(self)) {
        return not_open(err);
    }
    if (self->has_history) {
        status = take_history(self, number, &count, err);
    } else if (!self->is_reading && (self->is_claiming || clock_nanos() >= self->claim_ns)) {
        status = take_claimed(self, number, &count, err);
    }
    /* While 1 and 2 are not at their end, the next call goes on with them: once 3 is asked for,
     * both wait for its answer. */
    if (status == OK && count == 0 && !self->has_history && !self->is_claiming) {
        drop_reply(self);
        status = take_new(self, number, wait_ms, wake_fd, &count, err);
    }
    if (status == OK) {
        *ret_messages = self->messages;
        *ret_count = count;
    }
    return status;
}

/* ---- acknowledging and parking ------------------------------------------------------------- */

static enum status acknowledge(
    struct broker_source *self, const struct slice *ids, size_t count, struct err *err)
{
    enum status status = is_open(self) ? OK : not_open(err);
    for (size_t from = 0; status == OK && from < count; from += FIELDS_MAX) {
        struct command ack = {.count = 0};
        text(&ack, "XACK");
        text(&ack, self->stream);
        text(&ack, self->group);
        for (size_t i = from; i < count && i < from + FIELDS_MAX; i++) {
            word(&ack, ids[i]);
        }
        status = do_command(self, &ack, err);
    }
    return status;
}

static void put_parked(struct command *add, const struct broker_source *self,
    const struct broker_message *message, const char *reason)
{
    text(add, "XADD");
    text(add, self->parked);
    text(add, "*");
    text(add, "once-reason");
    text(add, reason);
    text(add, "once-message");
    word(add, message->id);
    if (message->type.len > 0) {
        text(add, "content-type");
        word(add, message->type);
    }
    text(add, message->is_binary ? "data" : "event");
    word(add, message->body);
    for (size_t i = 0; i < message->field_count; i++) {
        word(add, message->fields[i].name);
        word(add, message->fields[i].value);
    }
}

/* One transaction: the message is in one stream or in the other. */
static enum status park(struct broker_source *self, const struct broker_message *message,
    const char *reason, struct err *err)
{
    struct command begin = {.count = 0};
    struct command add = {.count = 0};
    struct command ack = {.count = 0};
    struct command end = {.count = 0};
    text(&begin, "MULTI");
    put_parked(&add, self, message, reason);
    text(&ack, "XACK");
    text(&ack, self->stream);
    text(&ack, self->group);
    word(&ack, message->id);
    text(&end, "EXEC");
    enum status status = is_open(self) ? OK : not_open(err);
    status = status == OK ? do_command(self, &begin, err) : status;
    status = status == OK ? do_command(self, &add, err) : status;
    status = status == OK ? do_command(self, &ack, err) : status;
    status = status == OK ? do_command(self, &end, err) : status;
    if (status != OK) {
        redis_link_close(&self->asks); /* and the transaction with it, if it was begun */
    }
    return status;
}

/* ---- publishing ---------------------------------------------------------------------------- */

/* An idle connection that has something to read was closed by the server: nothing was sent yet, so
 * a new one is made. */
static enum status ready_to_publish(struct broker_source *self, struct err *err)
{
    if (link_is_open(&self->asks) && link_wait(&self->asks, -1, 0)) {
        redis_link_close(&self->asks);
    }
    return link_is_open(&self->asks)
               ? OK
               : redis_link_open(&self->asks, deadline(REDIS_CONNECT_MS_MAX), err);
}

/* Once bytes may have left, only the server's own answer says what happened (P5). */
static enum status publish(struct broker_source *self, const struct broker_outgoing *message,
    int64_t timeout_ms, char ret_ref[BROKER_ID_BYTES_MAX], struct err *err)
{
    struct command add = {.count = 0};
    redisReply *reply = NULL;
    struct slice id;
    uint64_t until_ns = deadline(timeout_ms);
    enum status status = ready_to_publish(self, err);
    if (status == OK && clock_nanos() >= until_ns) { /* connecting took all of it */
        status = err_set(err, E_UNAVAILABLE, "its time was over before it could be published");
    }
    if (status != OK) {
        return E_UNAVAILABLE;
    }
    text(&add, "XADD");
    text(&add, self->stream);
    text(&add, "*");
    text(&add, "content-type");
    word(&add, message->type);
    text(&add, "event");
    word(&add, message->body);
    status = send_command(&self->asks, &add, err);
    if (status == E_NOMEM) {
        return err_set(err, E_UNAVAILABLE, "out of memory for a command");
    }
    status = status == OK ? link_answer(&self->asks, &reply, until_ns, err) : status;
    if (status != OK) {
        redis_link_close(&self->asks);
        err->status = E_UNKNOWN;
        return E_UNKNOWN;
    }
    if (reply_text(reply, &id) && reply->type != REDIS_REPLY_ERROR &&
        id.len < BROKER_ID_BYTES_MAX) {
        keep_id(ret_ref, id);
    } else {
        status = err_set(err, E_UNAVAILABLE, "the Redis server at '%s' refused: %.200s",
            self->asks.where, reply->type == REDIS_REPLY_ERROR ? reply->str : "no id");
        (void)nodes_redirect(&self->asks, reply->type == REDIS_REPLY_ERROR ? reply->str : "");
    }
    freeReplyObject(reply);
    return status;
}

/* ---- keeping ------------------------------------------------------------------------------- */

/* Our messages that have not been touched for a quarter of `idle`. */
static enum status extend_page(struct broker_source *self, size_t *ret_count, struct err *err)
{
    char idle[24], page[24];
    redisReply *pending = NULL;
    struct command ask_for = {.count = 0};
    (void)snprintf(idle, sizeof idle, "%lld", (long long)(self->idle_ms / 4));
    (void)snprintf(page, sizeof page, "%d", (int)FIELDS_MAX);
    text(&ask_for, "XPENDING");
    text(&ask_for, self->stream);
    text(&ask_for, self->group);
    text(&ask_for, "IDLE");
    text(&ask_for, idle);
    text(&ask_for, "-");
    text(&ask_for, "+");
    text(&ask_for, page);
    text(&ask_for, self->consumer);
    enum status status = ask(self, &ask_for, &pending, err);
    if (status != OK) {
        return status;
    }
    struct command claim = {.count = 0};
    text(&claim, "XCLAIM");
    text(&claim, self->stream);
    text(&claim, self->group);
    text(&claim, self->consumer);
    text(&claim, "0");
    *ret_count = 0;
    for (size_t i = 0; i < reply_count(pending); i++) {
        struct slice id;
        if (reply_text(reply_at(reply_at(pending, i), 0), &id)) {
            word(&claim, id);
            (*ret_count)++;
        }
    }
    text(&claim, "JUSTID"); /* does not count as a delivery */
    status = *ret_count > 0 ? do_command(self, &claim, err) : OK;
    freeReplyObject(pending);
    return status;
}

static enum status extend(struct broker_source *self, struct err *err)
{
    enum status status = is_open(self) ? OK : not_open(err);
    size_t count = FIELDS_MAX;
    for (size_t i = 0; status == OK && count == FIELDS_MAX && i < EXTEND_PAGES_MAX; i++) {
        status = extend_page(self, &count, err);
    }
    return status;
}

static void read_lag(const struct broker_source *self, const redisReply *groups, uint64_t *ret_lag)
{
    for (size_t i = 0; i < reply_count(groups); i++) {
        const redisReply *group = reply_at(groups, i);
        struct slice name, value;
        bool is_ours = false;
        uint64_t lag = 0;
        bool is_known = false;
        for (size_t k = 0; k + 1 < reply_count(group); k += 2) {
            if (!reply_text(reply_at(group, k), &name)) {
                continue;
            }
            if (slice_is(name, "name")) {
                is_ours = reply_text(reply_at(group, k + 1), &value) &&
                          slice_equal(value, slice_str(self->group));
            } else if (slice_is(name, "lag")) { /* of servers from 7 on; nil: not known */
                is_known = reply_u64(reply_at(group, k + 1), &lag);
            }
        }
        if (is_ours && is_known) {
            *ret_lag = lag;
        }
    }
}

static enum status lag(struct broker_source *self, uint64_t *ret_lag, struct err *err)
{
    struct command info = {.count = 0};
    redisReply *groups = NULL;
    text(&info, "XINFO");
    text(&info, "GROUPS");
    text(&info, self->stream);
    enum status status = is_open(self) ? ask(self, &info, &groups, err) : not_open(err);
    if (status == OK) {
        read_lag(self, groups, ret_lag);
    }
    freeReplyObject(groups);
    return status;
}

/* A consumer with nothing pending leaves the group, in one step: pending messages would be lost
 * with it. */
static void leave(struct broker_source *self)
{
    static const char script[] =
        "if #redis.call('XPENDING',KEYS[1],ARGV[1],'-','+',1,ARGV[2]) == 0 then "
        "redis.call('XGROUP','DELCONSUMER',KEYS[1],ARGV[1],ARGV[2]) end";
    struct command eval = {.count = 0};
    struct err err;
    text(&eval, "EVAL");
    text(&eval, script);
    text(&eval, "1");
    text(&eval, self->stream);
    text(&eval, self->group);
    text(&eval, self->consumer);
    (void)!do_command(self, &eval, &err); /* it stays in the list, which is harmless */
}

static void close_source(struct broker_source *self)
{
    if (self == NULL) {
        return;
    }
    redis_link_close(&self->reads);
    if (link_is_open(&self->asks) && !self->publishes) {
        leave(self);
    }
    drop_reply(self);
    redis_link_close(&self->asks);
    redis_tls_release(&self->tls);
    broker_source_free(self, sizeof *self);
}

/* A third of the shortest `idle`. */
__attribute__((visibility("default"))) extern const struct broker_module once_broker;
const struct broker_module once_broker = {.interface = BROKER_INTERFACE,
    .name = "redis",
    .ids_last = true,
    .extend_every_ms_max = IDLE_MS_MIN / 3,
    BROKER_FUNCTIONS};
