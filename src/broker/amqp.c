/*
 * RabbitMQ (AMQP 0-9-1), as the module once-broker-amqp.so.
 *
 * URL: amqp://[USER[:PASSWORD]@]HOST[:PORT],…/[VHOST/]QUEUE[?heartbeat=10s&exchange=&routing_key=],
 * amqps:// with TLS (cacert, cert, key). A queue that is not there is declared durable.
 *
 * Two connections. On one, messages are pushed to us, up to the prefetch, and acknowledged one by
 * one. On the other, every command has an answer: declare, lag, publish with confirms. So no answer
 * has to be looked for among messages.
 *
 * Message ids are delivery tags, which end with their connection: afterwards the broker delivers
 * again, with a new tag, whatever was not acknowledged. Its mark "redelivered" says only whether a
 * message may wait for its own delivery; the event's key decides what is a duplicate.
 *
 * A parked message is published to QUEUE.parked and confirmed, and then acknowledged: after a
 * crash in between it is there twice, and never nowhere.
 *
 * It is past 800 lines because it is one module from its URL to its last acknowledgement.
 */
#include <amqp.h>
#include <amqp_framing.h>
#include <amqp_ssl_socket.h>
#include <amqp_tcp_socket.h>
#include <inttypes.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/macros.h"
#include "base/mem.h"
#include "base/text.h"
/* The opaque type of the table, as this module defines it. */
#define broker_source amqp_source
#include "broker/common.h"

enum {
    CHANNEL = 1,
    PORT = 5672,
    PORT_TLS = 5671,
    FRAME_BYTES_MAX = 131072, /* RabbitMQ's default */
    CONNECT_MS = 5000,        /* for the connection and the login */
    ANSWER_MS = 10000,        /* for the answer to a command */
    HEARTBEAT_MS = 10000,
    CONFIRM_MS = 15000,   /* for the confirm of a parked message */
    PREFETCH_MAX = 65535, /* of the protocol */
    PERSISTENT = 2,       /* delivery mode */
    NOT_FOUND = 404,
};

struct amqp_source {
    struct broker_url url;
    char vhost[BROKER_TEXT_BYTES_MAX];
    char queue[BROKER_TEXT_BYTES_MAX];
    char parked[BROKER_TEXT_BYTES_MAX + 8];
    char exchange[BROKER_TEXT_BYTES_MAX];    /* empty: the default one, which names queues */
    char routing_key[BROKER_TEXT_BYTES_MAX]; /* empty: the queue */
    char cacert[BROKER_TEXT_BYTES_MAX];
    char cert[BROKER_TEXT_BYTES_MAX];
    char key[BROKER_TEXT_BYTES_MAX];
    char consumer[128];
    int64_t heartbeat_ms;
    bool publishes;
    bool has_parked;  /* the queue for parked messages was declared on `asks` */
    size_t next_host; /* where to connect next */

    amqp_connection_state_t takes; /* messages and acknowledgements; NULL: closed */
    amqp_connection_state_t asks;  /* everything that has an answer; NULL: closed */
    uint64_t published;            /* messages on `asks`: the number in the next confirm */
    size_t prefetch;               /* of the running consumer; 0: there is none */
    size_t held;                   /* taken and not acknowledged */

    struct arena arena; /* of the messages below */
    amqp_envelope_t envelopes[BROKER_TAKE_MAX];
    size_t count;
    struct broker_message messages[BROKER_TAKE_MAX];
    struct broker_field fields[BROKER_TAKE_MAX][BROKER_FIELDS_MAX];
};

/* ---- the URL ------------------------------------------------------------------------------- */

static enum status read_url(void *source, const char *text, struct err *err)
{
    struct amqp_source *self = source;
    const struct broker_option options[] = {
        {.name = "heartbeat", .ms = &self->heartbeat_ms, .ms_min = 1000, .ms_max = 600000},
        {.name = "exchange", .text = self->exchange},
        {.name = "routing_key", .text = self->routing_key},
        {.name = "cacert", .text = self->cacert}, {.name = "cert", .text = self->cert},
        {.name = "key", .text = self->key}};
    self->heartbeat_ms = HEARTBEAT_MS;
    enum status status = broker_url_read(text, &self->url, options, COUNT(options), err);
    size_t parts = self->url.path_count;
    if (status == OK && (parts == 0 || parts > 2)) {
        status = err_set(err, E_INVALID, "the path of an amqp: URL names its queue");
        err_hint(err, "amqp://127.0.0.1/orders, or amqp://127.0.0.1/VHOST/orders");
    }
    status = status == OK ? broker_pair(&self->url, self->cert, self->key, err) : status;
    if (status == OK) {
        memcpy(self->queue, self->url.path[parts - 1], sizeof self->queue);
        (void)snprintf(self->vhost, sizeof self->vhost, "%s", parts == 2 ? self->url.path[0] : "/");
        (void)snprintf(self->parked, sizeof self->parked, "%s.parked", self->queue);
    }
    return status;
}

static enum status check(const char *url, struct err *err)
{
    return broker_source_read(sizeof(struct amqp_source), read_url, url, NULL, err);
}

static enum status open_source(
    const struct broker_options *options, struct amqp_source **ret_source, struct err *err)
{
    void *made = NULL;
    enum status status =
        broker_source_read(sizeof(struct amqp_source), read_url, options->url, &made, err);
    if (status != OK) {
        return status;
    }
    struct amqp_source *self = made;
    arena_init(&self->arena, &mem_libc, BROKER_TAKE_BYTES_MAX);
    self->publishes = options->publishes;
    (void)snprintf(self->consumer, sizeof self->consumer, "%s", options->consumer);
    *ret_source = self;
    return OK;
}

/* ---- answers ------------------------------------------------------------------------------- */

/* The broker's own words when it closes a channel or a connection. */
static enum status closed(const amqp_method_t *method, const char *what, struct err *err)
{
    if (method->id == AMQP_CHANNEL_CLOSE_METHOD) {
        const amqp_channel_close_t *close = method->decoded;
        return err_set(err, E_UNAVAILABLE, "%s: RabbitMQ refused: %.*s", what,
            (int)close->reply_text.len, (const char *)close->reply_text.bytes);
    }
    if (method->id == AMQP_CONNECTION_CLOSE_METHOD) {
        const amqp_connection_close_t *close = method->decoded;
        return err_set(err, E_UNAVAILABLE, "%s: RabbitMQ closed the connection: %.*s", what,
            (int)close->reply_text.len, (const char *)close->reply_text.bytes);
    }
    return err_set(err, E_UNAVAILABLE, "%s: RabbitMQ ended it", what);
}

static enum status failed(int error, const char *what, struct err *err)
{
    return err_set(err, E_UNAVAILABLE, "%s: %s", what, amqp_error_string2(error));
}

static enum status reply_status(amqp_rpc_reply_t reply, const char *what, struct err *err)
{
    switch (reply.reply_type) {
    case AMQP_RESPONSE_NORMAL: return OK;
    case AMQP_RESPONSE_LIBRARY_EXCEPTION: return failed(reply.library_error, what, err);
    case AMQP_RESPONSE_SERVER_EXCEPTION: return closed(&reply.reply, what, err);
    case AMQP_RESPONSE_NONE: break;
    }
    return err_set(err, E_UNAVAILABLE, "%s: there is no answer from RabbitMQ", what);
}

static bool is_not_found(amqp_rpc_reply_t reply)
{
    return reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION &&
           reply.reply.id == AMQP_CHANNEL_CLOSE_METHOD &&
           ((const amqp_channel_close_t *)reply.reply.decoded)->reply_code == NOT_FOUND;
}

/* ---- connections --------------------------------------------------------------------------- */

static struct timeval time_of(int64_t ms)
{
    return (struct timeval){.tv_sec = ms / 1000, .tv_usec = (ms % 1000) * 1000};
}

/* No answer is read: the other end may be gone. */
static void drop(amqp_connection_state_t *connection)
{
    if (*connection != NULL) {
        (void)amqp_destroy_connection(*connection);
        *connection = NULL;
    }
}

static enum status prepare_tls(
    const struct amqp_source *self, amqp_socket_t *socket, struct err *err)
{
    bool is_good = true;
    amqp_ssl_socket_set_verify_peer(socket, 1);
    amqp_ssl_socket_set_verify_hostname(socket, 1);
    (void)amqp_ssl_socket_set_ssl_versions(socket, AMQP_TLSv1_2, AMQP_TLSvLATEST);
    if (self->cacert[0] != '\0') {
        is_good = amqp_ssl_socket_set_cacert(socket, self->cacert) == AMQP_STATUS_OK;
    } else {
        is_good = SSL_CTX_set_default_verify_paths(amqp_ssl_socket_get_context(socket)) == 1;
    }
    if (is_good && self->cert[0] != '\0') {
        is_good = amqp_ssl_socket_set_key(socket, self->cert, self->key) == AMQP_STATUS_OK;
    }
    return is_good ? OK
                   : err_set(err, E_UNAVAILABLE,
                         "cacert, cert or key of the amqps: URL cannot be "
                         "read");
}

static enum status log_in(const struct amqp_source *self, amqp_connection_state_t connection,
    int64_t heartbeat_ms, struct err *err)
{
    amqp_table_entry_t capability = {.key = amqp_cstring_bytes("consumer_cancel_notify"),
        .value = {.kind = AMQP_FIELD_KIND_BOOLEAN, .value = {.boolean = 1}}};
    amqp_table_entry_t properties[] = {
        {.key = amqp_cstring_bytes("capabilities"),
            .value = {.kind = AMQP_FIELD_KIND_TABLE, .value = {.table = {1, &capability}}}},
        {.key = amqp_cstring_bytes("connection_name"),
            .value = {.kind = AMQP_FIELD_KIND_UTF8,
                .value = {.bytes = amqp_cstring_bytes(self->consumer)}}}};
    amqp_table_t table = {.num_entries = COUNT(properties), .entries = properties};
    const char *user = self->url.user[0] == '\0' ? "guest" : self->url.user;
    const char *password = self->url.user[0] == '\0' ? "guest" : self->url.password;
    enum status status = reply_status(
        amqp_login_with_properties(connection, self->vhost, 0, FRAME_BYTES_MAX,
            (int)(heartbeat_ms / 1000), &table, AMQP_SASL_METHOD_PLAIN, user, password),
        "cannot log in", err);
    if (status == OK) {
        (void)amqp_channel_open(connection, CHANNEL);
        status = reply_status(amqp_get_rpc_reply(connection), "cannot open a channel", err);
    }
    return status;
}

static enum status open_at(struct amqp_source *self, const char *host, int port,
    int64_t heartbeat_ms, amqp_connection_state_t *ret_connection, struct err *err)
{
    bool is_tls = strcmp(self->url.scheme, "amqps") == 0;
    struct timeval most = time_of(CONNECT_MS);
    struct timeval answer = time_of(ANSWER_MS);
    amqp_connection_state_t connection = amqp_new_connection();
    amqp_socket_t *socket = connection == NULL ? NULL
                            : is_tls           ? amqp_ssl_socket_new(connection)
                                               : amqp_tcp_socket_new(connection);
    if (socket == NULL) {
        drop(&connection);
        return err_set(err, E_NOMEM, "out of memory for a connection");
    }
    enum status status = is_tls ? prepare_tls(self, socket, err) : OK;
    (void)amqp_set_handshake_timeout(connection, &most);
    (void)amqp_set_rpc_timeout(connection, &answer);
    int error = status == OK ? amqp_socket_open_noblock(socket, host, port, &most) : 0;
    if (status == OK && error != AMQP_STATUS_OK) {
        status = err_set(err, E_UNAVAILABLE, "cannot connect to RabbitMQ at '%s:%d': %s", host,
            port, amqp_error_string2(error));
    }
    status = status == OK ? log_in(self, connection, heartbeat_ms, err) : status;
    if (status != OK) {
        drop(&connection);
        return status;
    }
    *ret_connection = connection;
    return OK;
}

/* The hosts take turns, beginning with the one that answered last. */
static enum status open_connection(struct amqp_source *self, int64_t heartbeat_ms,
    amqp_connection_state_t *ret_connection, struct err *err)
{
    char host[BROKER_TEXT_BYTES_MAX];
    char port[BROKER_PORT_TEXT_BYTES];
    uint64_t number = strcmp(self->url.scheme, "amqps") == 0 ? PORT_TLS : PORT;
    if (!broker_url_host(&self->url, self->next_host, host, port)) {
        self->next_host = 0;
        if (!broker_url_host(&self->url, 0, host, port)) {
            return err_set(err, E_UNAVAILABLE, "the URL names no host");
        }
    }
    if (port[0] != '\0' && (!text_u64(slice_str(port), &number) || number > 65535)) {
        return err_set(err, E_UNAVAILABLE, "'%s' is not a port", port);
    }
    enum status status = open_at(self, host, (int)number, heartbeat_ms, ret_connection, err);
    self->next_host += status == OK ? 0 : 1;
    return status;
}

/* Makes sure that `asks` is open. An error or the broker may have closed it. Anything that arrived
 * without being asked for means that it is closing. It has no heartbeat, because nothing is read
 * between two commands. */
static enum status ready_to_ask(struct amqp_source *self, struct err *err)
{
    struct timeval now = {.tv_sec = 0};
    amqp_frame_t frame;
    if (self->asks != NULL &&
        amqp_simple_wait_frame_noblock(self->asks, &frame, &now) != AMQP_STATUS_TIMEOUT) {
        drop(&self->asks);
    }
    if (self->asks != NULL) {
        amqp_maybe_release_buffers(self->asks);
        return OK;
    }
    enum status status = open_connection(self, 0, &self->asks, err);
    if (status == OK) {
        self->published = 0;
        self->has_parked = false;
        (void)amqp_confirm_select(self->asks, CHANNEL);
        status = reply_status(amqp_get_rpc_reply(self->asks), "cannot have confirms", err);
    }
    if (status != OK) {
        drop(&self->asks);
    }
    return status;
}

/* Declares the queue only if it does not exist: a declaration with properties different from the
 * existing queue's would be refused. */
static enum status declare(struct amqp_source *self, const char *queue, struct err *err)
{
    enum status status = ready_to_ask(self, err);
    if (status != OK) {
        return status;
    }
    (void)amqp_queue_declare(
        self->asks, CHANNEL, amqp_cstring_bytes(queue), 1, 0, 0, 0, amqp_empty_table);
    amqp_rpc_reply_t reply = amqp_get_rpc_reply(self->asks);
    if (is_not_found(reply)) { /* this closed the channel */
        drop(&self->asks);
        status = ready_to_ask(self, err);
        if (status == OK) {
            (void)amqp_queue_declare(
                self->asks, CHANNEL, amqp_cstring_bytes(queue), 0, 1, 0, 0, amqp_empty_table);
            reply = amqp_get_rpc_reply(self->asks);
        }
    }
    status = status == OK ? reply_status(reply, "cannot declare the queue", err) : status;
    if (status != OK) {
        drop(&self->asks);
    }
    return status;
}

static void drop_messages(struct amqp_source *self)
{
    for (size_t i = 0; i < self->count; i++) {
        amqp_destroy_envelope(&self->envelopes[i]);
    }
    self->count = 0;
    arena_clear(&self->arena);
}

static void disconnect(struct amqp_source *self)
{
    drop(&self->takes);
    drop(&self->asks);
    self->prefetch = 0;
    self->held = 0;
}

static enum status connect_source(struct amqp_source *self, struct err *err)
{
    disconnect(self);
    drop_messages(self);
    bool needs_queue = !self->publishes || self->exchange[0] == '\0';
    enum status status = needs_queue ? declare(self, self->queue, err) : ready_to_ask(self, err);
    if (status == OK && !self->publishes) {
        status = open_connection(self, self->heartbeat_ms, &self->takes, err);
    }
    if (status != OK) {
        disconnect(self);
    }
    return status;
}

static enum status not_open(struct err *err)
{
    return err_set(err, E_UNAVAILABLE, "the connection to RabbitMQ is gone");
}

/* ---- messages ------------------------------------------------------------------------------ */

static struct slice bytes_of(amqp_bytes_t bytes)
{
    return slice_of(bytes.bytes, bytes.len);
}

static struct slice text_in(struct arena *arena, const char *text)
{
    size_t len = strlen(text);
    char *made = arena_alloc(arena, len + 1);
    if (made == NULL) {
        return SLICE_EMPTY;
    }
    memcpy(made, text, len + 1);
    return slice_of(made, len);
}

/* A value of a header as text. Tables, arrays and the like are left out. */
static bool value_of(const amqp_field_value_t *value, struct arena *arena, struct slice *ret_text)
{
    char text[TEXT_TIME_BYTES + 32] = "";
    switch (value->kind) {
    case AMQP_FIELD_KIND_UTF8:
    case AMQP_FIELD_KIND_BYTES: *ret_text = bytes_of(value->value.bytes); return true;
    case AMQP_FIELD_KIND_BOOLEAN:
        (void)snprintf(text, sizeof text, "%s", value->value.boolean ? "true" : "false");
        break;
    case AMQP_FIELD_KIND_I8: (void)snprintf(text, sizeof text, "%d", value->value.i8); break;
    case AMQP_FIELD_KIND_U8: (void)snprintf(text, sizeof text, "%d", value->value.u8); break;
    case AMQP_FIELD_KIND_I16: (void)snprintf(text, sizeof text, "%d", value->value.i16); break;
    case AMQP_FIELD_KIND_U16: (void)snprintf(text, sizeof text, "%d", value->value.u16); break;
    case AMQP_FIELD_KIND_I32:
        (void)snprintf(text, sizeof text, "%" PRId32, value->value.i32);
        break;
    case AMQP_FIELD_KIND_U32:
        (void)snprintf(text, sizeof text, "%" PRIu32, value->value.u32);
        break;
    case AMQP_FIELD_KIND_I64:
        (void)snprintf(text, sizeof text, "%" PRId64, value->value.i64);
        break;
    case AMQP_FIELD_KIND_U64:
        (void)snprintf(text, sizeof text, "%" PRIu64, value->value.u64);
        break;
    case AMQP_FIELD_KIND_TIMESTAMP:
        if (value->value.u64 > (uint64_t)LIMIT_TIME_MS_MAX / 1000) {
            return false;
        }
        (void)text_put_time(text, (int64_t)value->value.u64 * 1000);
        break;
    default: return false;
    }
    *ret_text = text_in(arena, text);
    return ret_text->len > 0;
}

/* Both prefixes of CloudEvents' AMQP binding, and "ce-", which HTTP's has. */
static bool put_header(struct amqp_source *self, struct broker_message *message,
    struct broker_field *fields, const amqp_table_entry_t *entry)
{
    struct slice name = bytes_of(entry->key);
    struct slice value;
    bool is_underscored = name.len > 12 && memcmp(name.data, "cloudEvents_", 12) == 0;
    if (!value_of(&entry->value, &self->arena, &value)) {
        return true;
    }
    return broker_put_field(message, fields, is_underscored ? "cloudEvents_" : "cloudEvents:", name,
        value, &self->arena);
}

static bool put_properties(struct amqp_source *self, struct broker_message *message,
    struct broker_field *fields, const amqp_basic_properties_t *properties)
{
    const struct {
        amqp_flags_t flag;
        const char *name;
        amqp_bytes_t value;
    } texts[] = {{AMQP_BASIC_CONTENT_TYPE_FLAG, "content-type", properties->content_type},
        {AMQP_BASIC_CONTENT_ENCODING_FLAG, "content-encoding", properties->content_encoding},
        {AMQP_BASIC_MESSAGE_ID_FLAG, "message-id", properties->message_id},
        {AMQP_BASIC_CORRELATION_ID_FLAG, "correlation-id", properties->correlation_id},
        {AMQP_BASIC_TYPE_FLAG, "type", properties->type},
        {AMQP_BASIC_APP_ID_FLAG, "app-id", properties->app_id}};
    bool is_good = true;
    if ((properties->_flags & AMQP_BASIC_HEADERS_FLAG) != 0) {
        for (int i = 0; is_good && i < properties->headers.num_entries; i++) {
            is_good = put_header(self, message, fields, &properties->headers.entries[i]);
        }
    }
    for (size_t i = 0; is_good && i < COUNT(texts); i++) {
        if ((properties->_flags & texts[i].flag) != 0) {
            is_good = broker_put_field(message, fields, "cloudEvents:", slice_str(texts[i].name),
                bytes_of(texts[i].value), &self->arena);
        }
    }
    return is_good;
}

/* The envelope is the last one taken. */
static bool read_envelope(struct amqp_source *self)
{
    const amqp_envelope_t *envelope = &self->envelopes[self->count];
    struct broker_message *message = &self->messages[self->count];
    struct broker_field *fields = self->fields[self->count];
    char id[24];
    (void)snprintf(id, sizeof id, "%" PRIu64, envelope->delivery_tag);
    *message = (struct broker_message){.id = text_in(&self->arena, id),
        .is_again = envelope->redelivered != 0,
        .body = bytes_of(envelope->message.body),
        .fields = fields};
    bool is_good =
        message->id.len > 0 && put_properties(self, message, fields, &envelope->message.properties);
    broker_end_fields(message);
    return is_good;
}

/* ---- taking -------------------------------------------------------------------------------- */

/* Consumes with this prefetch. Every kind of queue supports a prefetch per consumer, which cannot
 * be changed: to change it, the consumer is cancelled and started again. */
static enum status consume(struct amqp_source *self, size_t prefetch, struct err *err)
{
    amqp_bytes_t tag = amqp_cstring_bytes("once");
    prefetch = prefetch < PREFETCH_MAX ? prefetch : PREFETCH_MAX;
    enum status status = OK;
    if (self->prefetch == prefetch) {
        return OK;
    }
    if (self->prefetch > 0) {
        (void)amqp_basic_cancel(self->takes, CHANNEL, tag);
        status = reply_status(amqp_get_rpc_reply(self->takes), "cannot end the consumer", err);
    }
    if (status == OK) {
        (void)amqp_basic_qos(self->takes, CHANNEL, 0, (uint16_t)prefetch, 0);
        status = reply_status(amqp_get_rpc_reply(self->takes), "cannot set the prefetch", err);
    }
    if (status == OK) {
        (void)amqp_basic_consume(
            self->takes, CHANNEL, amqp_cstring_bytes(self->queue), tag, 0, 0, 0, amqp_empty_table);
        status = reply_status(amqp_get_rpc_reply(self->takes), "cannot consume", err);
    }
    self->prefetch = status == OK ? prefetch : 0;
    return status;
}

/* A frame that is not a message: the broker ends the consumer, the channel or the connection. */
static enum status read_other(struct amqp_source *self, struct err *err)
{
    struct timeval now = {.tv_sec = 0};
    amqp_frame_t frame;
    int error = amqp_simple_wait_frame_noblock(self->takes, &frame, &now);
    if (error != AMQP_STATUS_OK) {
        return failed(error, "the connection to RabbitMQ is gone", err);
    }
    if (frame.frame_type == AMQP_FRAME_METHOD &&
        frame.payload.method.id == AMQP_BASIC_CANCEL_METHOD) {
        return err_set(err, E_UNAVAILABLE, "the queue was deleted, or its node is gone");
    }
    return frame.frame_type == AMQP_FRAME_METHOD
               ? closed(&frame.payload.method, "cannot read messages", err)
               : OK;
}

/* One message that has arrived. *ret_is_there is false if there is none. */
static enum status take_one(struct amqp_source *self, bool *ret_is_there, struct err *err)
{
    struct timeval now = {.tv_sec = 0};
    *ret_is_there = false;
    amqp_maybe_release_buffers(self->takes);
    amqp_rpc_reply_t reply =
        amqp_consume_message(self->takes, &self->envelopes[self->count], &now, 0);
    if (reply.reply_type == AMQP_RESPONSE_NORMAL) {
        bool is_good = read_envelope(self);
        self->count++;
        self->held++;
        *ret_is_there = true;
        return is_good ? OK : err_set(err, E_UNAVAILABLE, "out of memory for a message");
    }
    if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION &&
        reply.library_error == AMQP_STATUS_TIMEOUT) {
        return OK;
    }
    if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION &&
        reply.library_error == AMQP_STATUS_UNEXPECTED_STATE) {
        return read_other(self, err);
    }
    return reply_status(reply, "cannot read messages", err);
}

/* Whether the library has bytes that no descriptor will announce. */
static bool has_more(const struct amqp_source *self)
{
    return amqp_frames_enqueued(self->takes) || amqp_data_in_buffer(self->takes);
}

static enum status take(struct amqp_source *self, size_t max, int64_t wait_ms, int wake_fd,
    const struct broker_message **ret_messages, size_t *ret_count, struct err *err)
{
    uint64_t until_ns = broker_until(wait_ms);
    size_t bytes = 0;
    bool is_there = true;
    drop_messages(self);
    if (self->takes == NULL) {
        return not_open(err);
    }
    enum status status = consume(self, self->held + max, err);
    max = max < BROKER_TAKE_MAX ? max : BROKER_TAKE_MAX;
    while (status == OK && self->count < max && bytes < BROKER_TAKE_BYTES_MAX) {
        status = take_one(self, &is_there, err);
        bytes += status == OK && is_there ? self->messages[self->count - 1].body.len : 0;
        if (status == OK && !is_there && self->count > 0) {
            break;
        }
        if (status == OK && !is_there && !has_more(self) &&
            !broker_wait(amqp_get_sockfd(self->takes), wake_fd, broker_left_ms(until_ns))) {
            break;
        }
    }
    if (status != OK) {
        disconnect(self);
        return status;
    }
    *ret_messages = self->messages;
    *ret_count = self->count;
    return OK;
}

static enum status acknowledge(
    struct amqp_source *self, const struct slice *ids, size_t count, struct err *err)
{
    enum status status = self->takes == NULL ? not_open(err) : OK;
    for (size_t i = 0; status == OK && i < count; i++) {
        uint64_t tag = 0;
        int error = text_u64(ids[i], &tag) ? amqp_basic_ack(self->takes, CHANNEL, tag, 0)
                                           : AMQP_STATUS_INVALID_PARAMETER;
        status = error == AMQP_STATUS_OK ? OK : failed(error, "cannot acknowledge", err);
        self->held -= status == OK && self->held > 0 ? 1 : 0;
    }
    if (status != OK) {
        disconnect(self);
    }
    return status;
}

/* While too many messages wait, nothing is taken, so nothing else would send the heartbeat. */
static enum status extend(struct amqp_source *self, struct err *err)
{
    amqp_frame_t beat = {.frame_type = AMQP_FRAME_HEARTBEAT, .channel = 0};
    if (self->takes == NULL) {
        return not_open(err);
    }
    int error = amqp_send_frame(self->takes, &beat);
    if (error != AMQP_STATUS_OK) {
        disconnect(self);
        return failed(error, "the connection to RabbitMQ is gone", err);
    }
    return OK;
}

static enum status lag(struct amqp_source *self, uint64_t *ret_lag, struct err *err)
{
    enum status status = ready_to_ask(self, err);
    if (status != OK) {
        return status;
    }
    const amqp_queue_declare_ok_t *queue = amqp_queue_declare(
        self->asks, CHANNEL, amqp_cstring_bytes(self->queue), 1, 0, 0, 0, amqp_empty_table);
    status = reply_status(amqp_get_rpc_reply(self->asks), "cannot ask for the lag", err);
    if (status == OK && queue != NULL) {
        *ret_lag = queue->message_count;
    } else {
        drop(&self->asks);
    }
    return status;
}

/* ---- publishing ---------------------------------------------------------------------------- */

/* If no queue takes the message, the broker returns it first and then confirms it. */
static enum status read_returned(struct amqp_source *self, bool *ret_is_returned, struct err *err)
{
    amqp_message_t message;
    *ret_is_returned = true;
    enum status status = reply_status(
        amqp_read_message(self->asks, CHANNEL, &message, 0), "no confirm from RabbitMQ", err);
    if (status == OK) {
        amqp_destroy_message(&message);
    }
    return status;
}

/* What a method says about message number `published`. E_STALE: it says nothing about it. */
static enum status read_confirm(
    struct amqp_source *self, const amqp_method_t *method, bool *is_returned, struct err *err)
{
    if (method->id == AMQP_BASIC_ACK_METHOD) {
        const amqp_basic_ack_t *ack = method->decoded;
        return ack->delivery_tag == self->published ||
                       (ack->multiple && ack->delivery_tag > self->published)
                   ? OK
                   : E_STALE;
    }
    if (method->id == AMQP_BASIC_NACK_METHOD) { /* the broker could not, and has not, kept it */
        return err_set(err, E_UNAVAILABLE, "RabbitMQ could not keep the message");
    }
    if (method->id == AMQP_BASIC_RETURN_METHOD) {
        enum status status = read_returned(self, is_returned, err);
        return status == OK ? E_STALE : E_UNKNOWN;
    }
    (void)closed(method, "no confirm", err);
    bool is_refused = method->id == AMQP_CHANNEL_CLOSE_METHOD; /* such as: no such exchange */
    return is_refused ? E_UNAVAILABLE : E_UNKNOWN;
}

/* E_UNKNOWN unless the broker says what became of it. */
static enum status await_confirm(struct amqp_source *self, uint64_t until_ns, struct err *err)
{
    bool is_returned = false;
    enum status status = E_STALE;
    while (status == E_STALE) {
        struct timeval left = time_of(broker_left_ms(until_ns));
        amqp_frame_t frame;
        int error = amqp_simple_wait_frame_noblock(self->asks, &frame, &left);
        if (error != AMQP_STATUS_OK) {
            (void)failed(error, "no confirm from RabbitMQ", err);
            return E_UNKNOWN;
        }
        if (frame.frame_type == AMQP_FRAME_METHOD) {
            status = read_confirm(self, &frame.payload.method, &is_returned, err);
        }
    }
    if (status == OK && is_returned) {
        return err_set(err, E_UNAVAILABLE, "no queue of RabbitMQ takes the message");
    }
    return status;
}

/* `asks` is ready. */
static enum status publish_confirmed(struct amqp_source *self, const char *exchange,
    const char *routing_key, const amqp_basic_properties_t *properties, struct slice body,
    uint64_t until_ns, struct err *err)
{
    self->published++;
    int error = amqp_basic_publish(self->asks, CHANNEL, amqp_cstring_bytes(exchange),
        amqp_cstring_bytes(routing_key), 1, 0, properties,
        (amqp_bytes_t){.len = body.len,
            .bytes = (union {
                const char *in;
                char *out;
            }){.in = body.data}
                         .out});
    enum status status = E_UNKNOWN;
    if (error == AMQP_STATUS_OK) {
        status = await_confirm(self, until_ns, err);
    } else {
        (void)failed(error, "the connection to RabbitMQ ended while it was published", err);
    }
    if (status != OK) {
        err->status = status;
        drop(&self->asks);
    }
    return status;
}

static enum status publish(struct amqp_source *self, const struct broker_outgoing *message,
    int64_t timeout_ms, char ret_ref[BROKER_ID_BYTES_MAX], struct err *err)
{
    uint64_t until_ns = broker_until(timeout_ms);
    const char *key = self->routing_key[0] == '\0' ? self->queue : self->routing_key;
    enum status status = ready_to_ask(self, err);
    if (status == OK && broker_left_ms(until_ns) == 0) { /* connecting took all of it */
        status = err_set(err, E_UNAVAILABLE, "its time was over before it could be published");
    }
    if (status != OK) {
        return status;
    }
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_CONTENT_TYPE_FLAG |
                                                    AMQP_BASIC_DELIVERY_MODE_FLAG |
                                                    AMQP_BASIC_MESSAGE_ID_FLAG,
        .content_type = {message->type.len, (union {
                             const char *in;
                             char *out;
                         }){.in = message->type.data}
                                                .out},
        .message_id = {message->id.len, (union {
                           const char *in;
                           char *out;
                       }){.in = message->id.data}
                                            .out},
        .delivery_mode = PERSISTENT};
    status =
        publish_confirmed(self, self->exchange, key, &properties, message->body, until_ns, err);
    if (status == OK) {
        (void)snprintf(
            ret_ref, BROKER_ID_BYTES_MAX, "%.*s", (int)message->id.len, message->id.data);
    }
    return status;
}

/* ---- parking ------------------------------------------------------------------------------- */

/* With all its properties and headers, and two more. */
static enum status park_copy(struct amqp_source *self, const amqp_envelope_t *envelope,
    const struct broker_message *message, const char *reason, struct err *err)
{
    amqp_basic_properties_t properties = envelope->message.properties;
    bool has_headers = (properties._flags & AMQP_BASIC_HEADERS_FLAG) != 0;
    int count = has_headers ? properties.headers.num_entries : 0;
    amqp_table_entry_t *entries = arena_zalloc(&self->arena, ((size_t)count + 2) * sizeof *entries);
    struct slice id = text_in(&self->arena, message->id.data);
    if (entries == NULL || id.len == 0) {
        return err_set(err, E_UNAVAILABLE, "out of memory for a message");
    }
    if (count > 0) {
        memcpy(entries, properties.headers.entries, (size_t)count * sizeof *entries);
    }
    const struct {
        const char *name;
        const char *value;
    } added[] = {{"once-reason", reason}, {"once-message", id.data}};
    for (size_t i = 0; i < COUNT(added); i++) {
        entries[count++] = (amqp_table_entry_t){.key = amqp_cstring_bytes(added[i].name),
            .value = {.kind = AMQP_FIELD_KIND_UTF8,
                .value = {.bytes = amqp_cstring_bytes(added[i].value)}}};
    }
    properties._flags |= AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG;
    properties._flags &= ~(amqp_flags_t)AMQP_BASIC_USER_ID_FLAG; /* only its own user may set it */
    properties._flags &= ~(amqp_flags_t)AMQP_BASIC_EXPIRATION_FLAG; /* it waits for a person */
    properties.headers = (amqp_table_t){.num_entries = count, .entries = entries};
    properties.delivery_mode = PERSISTENT;
    return publish_confirmed(
        self, "", self->parked, &properties, message->body, broker_until(CONFIRM_MS), err);
}

static enum status park(struct amqp_source *self, const struct broker_message *message,
    const char *reason, struct err *err)
{
    const amqp_envelope_t *envelope = &self->envelopes[message - self->messages];
    enum status status = self->takes == NULL ? not_open(err) : ready_to_ask(self, err);
    if (status == OK && !self->has_parked) {
        status = declare(self, self->parked, err);
        self->has_parked = status == OK;
    }
    status = status == OK ? park_copy(self, envelope, message, reason, err) : status;
    return status == OK ? acknowledge(self, &message->id, 1, err) : E_UNAVAILABLE;
}

/* ---- the end ------------------------------------------------------------------------------- */

static void close_source(struct amqp_source *self)
{
    if (self == NULL) {
        return;
    }
    if (self->takes != NULL) { /* acknowledgements on the way arrive before it */
        (void)amqp_connection_close(self->takes, AMQP_REPLY_SUCCESS);
    }
    disconnect(self);
    drop_messages(self);
    arena_release(&self->arena);
    broker_source_free(self, sizeof *self);
}

/* A tenth of the shortest heartbeat would do; a second is the shortest round. */
__attribute__((visibility("default"))) extern const struct broker_module once_broker;
const struct broker_module once_broker = {.interface = BROKER_INTERFACE,
    .name = "amqp",
    .ids_last = false,
    .extend_every_ms_max = 500,
    BROKER_FUNCTIONS};
