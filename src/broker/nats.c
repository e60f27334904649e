/*
 * NATS JetStream, as the module once-broker-nats.so.
 *
 * URL: nats://[USER:PASSWORD@|TOKEN@]HOST[:PORT],…/STREAM[?durable=once&subject=&ack_wait=30s],
 * nats+tls:// with TLS (cacert, cert, key). The stream must exist; the durable pull consumer is
 * made if it does not.
 *
 * A request for the next messages is sent to the consumer; the answers arrive on the library's
 * thread, which puts them into a list. So waiting for them can be interrupted, which the library's
 * own fetch cannot. A message is named by its sequence in the stream. Its answer subject, to which
 * acknowledgements go, is new at each delivery: the last one is kept in `taken`.
 *
 * While a handler works, +WPI ("in progress") restarts the server's ack wait. If this process
 * crashes, that wait ends and the server delivers again, to any process. Lost acknowledgements are
 * repeated in the same way.
 *
 * A parked message goes to the stream STREAM-parked, named so that parking it twice is once.
 *
 * It is past 800 lines because it is one module from its URL to its last acknowledgement.
 */
#include <inttypes.h>
#include <nats/nats.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/mem.h"
#include "base/text.h"
/* The opaque type of the table, as this module defines it. */
#define broker_source nats_source
#include "broker/common.h"

enum {
    HOSTS_MAX = 8,
    CONNECT_MS = 5000,
    ANSWER_MS = 5000,
    PING_MS = 5000, /* between two signs of life … */
    PINGS_MAX = 2,  /* … how many of them may be missing */
    ACK_WAIT_MS = 30000,
    ACK_WAIT_MS_MIN = 3000, /* with less, a slow moment would be taken for the end of a process */
    EXPIRES_MS = 5000,      /* of a request for messages */
    PENDING_MAX = 65536,    /* taken by all processes and not acknowledged */
    KEEPS_MS = 120000,      /* the duplicate window of a stream, unless it says otherwise */
    MS_NS = 1000000,
};

struct taken_message {
    uint64_t sequence;
    char *reply; /* where its acknowledgement goes */
};

struct nats_source {
    struct broker_url url;
    char durable[BROKER_TEXT_BYTES_MAX];
    char subject[BROKER_TEXT_BYTES_MAX]; /* consumed from, or published to */
    char cacert[BROKER_TEXT_BYTES_MAX];
    char cert[BROKER_TEXT_BYTES_MAX];
    char key[BROKER_TEXT_BYTES_MAX];
    char consumer[128];
    int64_t ack_wait_ms;
    bool publishes;
    int64_t keeps_ms;
    bool has_parked; /* the stream for parked messages is there */

    natsConnection *connection; /* NULL: closed */
    jsCtx *stream;
    natsSubscription *answers;
    char *inbox;
    struct taken_message *taken; /* in no order */
    size_t taken_count;
    size_t taken_room;

    int arrived_fd;       /* readable when something arrived */
    pthread_mutex_t lock; /* guards the rest of this block */
    natsMsg *arrived[BROKER_TAKE_MAX];
    size_t arrived_count;
    size_t requested;            /* messages that the last request may still bring … */
    uint64_t requested_until_ns; /* … until then */
    bool is_refused;             /* the consumer is gone */
    bool is_called;              /* the library's thread may still call on_message */
    pthread_cond_t quiet;        /* it does not any more */

    struct arena arena; /* of the messages below */
    natsMsg *held[BROKER_TAKE_MAX];
    size_t count;
    struct broker_message messages[BROKER_TAKE_MAX];
    struct broker_field fields[BROKER_TAKE_MAX][BROKER_FIELDS_MAX];
};

/* ---- the URL ------------------------------------------------------------------------------- */

static const char *name_of(const struct nats_source *self)
{
    return self->url.path[0];
}

/* A stream's or consumer's name is a part of subjects. */
static bool is_name(const char *text)
{
    return text[0] != '\0' && strpbrk(text, ".*> \t\r\n/\\") == NULL;
}

static enum status read_url(void *source, const char *text, struct err *err)
{
    struct nats_source *self = source;
    const struct broker_option options[] = {{.name = "durable", .text = self->durable},
        {.name = "subject", .text = self->subject}, {.name = "cacert", .text = self->cacert},
        {.name = "cert", .text = self->cert}, {.name = "key", .text = self->key},
        {.name = "ack_wait",
            .ms = &self->ack_wait_ms,
            .ms_min = ACK_WAIT_MS_MIN,
            .ms_max = 3600000}};
    (void)snprintf(self->durable, sizeof self->durable, "once");
    self->ack_wait_ms = ACK_WAIT_MS;
    enum status status = broker_url_read(text, &self->url, options, COUNT(options), err);
    if (status == OK && (self->url.path_count != 1 || !is_name(name_of(self)))) {
        status = err_set(err, E_INVALID, "the path of a nats: URL names its stream");
        err_hint(err, "nats://127.0.0.1:4222/ORDERS?durable=once");
    }
    if (status == OK && !is_name(self->durable)) {
        status =
            err_set(err, E_INVALID, "'%s' cannot be the name of a durable consumer", self->durable);
    }
    status = status == OK ? broker_pair(&self->url, self->cert, self->key, err) : status;
    return status;
}

static enum status check(const char *url, struct err *err)
{
    return broker_source_read(sizeof(struct nats_source), read_url, url, NULL, err);
}

static enum status open_source(
    const struct broker_options *options, struct nats_source **ret_source, struct err *err)
{
    void *made = NULL;
    enum status status =
        broker_source_read(sizeof(struct nats_source), read_url, options->url, &made, err);
    if (status != OK) {
        return status;
    }
    struct nats_source *self = made;
    self->publishes = options->publishes;
    self->keeps_ms = options->keeps_ms;
    (void)snprintf(self->consumer, sizeof self->consumer, "%s", options->consumer);
    status = broker_arrivals(&self->arrived_fd, err);
    if (status != OK) {
        broker_source_free(self, sizeof *self);
        return status;
    }
    arena_init(&self->arena, &mem_libc, BROKER_TAKE_BYTES_MAX);
    (void)pthread_mutex_init(&self->lock, NULL);
    (void)pthread_cond_init(&self->quiet, NULL);
    *ret_source = self;
    return OK;
}

/* ---- what arrives -------------------------------------------------------------------------- */

static void notify(struct nats_source *self)
{
    uint64_t one = 1;
    ssize_t sent = write(self->arrived_fd, &one, sizeof one); /* full: it is awake */
    (void)sent;
}

/* A message of the stream has a place to acknowledge it; the rest are notes about the request: it
 * is over, or its consumer is gone. */
static void on_message(
    natsConnection *connection, natsSubscription *subscription, natsMsg *message, void *context)
{
    struct nats_source *self = context;
    const char *reply = natsMsg_GetReply(message);
    const char *text = NULL;
    bool is_message = reply != NULL && strncmp(reply, "$JS.ACK.", 8) == 0;
    (void)connection;
    (void)subscription;
    (void)pthread_mutex_lock(&self->lock);
    if (is_message && self->arrived_count < BROKER_TAKE_MAX) {
        self->arrived[self->arrived_count++] = message;
        self->requested -= self->requested > 0 ? 1 : 0;
        message = NULL;
    } else if (!is_message) {
        self->requested = 0;
        self->is_refused = self->is_refused ||
                           (natsMsgHeader_Get(message, "Description", &text) == NATS_OK &&
                               strstr(text, "Consumer Deleted") != NULL) ||
                           natsMsg_IsNoResponders(message);
    }
    (void)pthread_mutex_unlock(&self->lock);
    natsMsg_Destroy(message); /* a message that has no room comes again */
    notify(self);
}

static void drop_held(struct nats_source *self)
{
    for (size_t i = 0; i < self->count; i++) {
        natsMsg_Destroy(self->held[i]);
    }
    self->count = 0;
    arena_clear(&self->arena);
}

/* The last call for a subscription. */
static void on_complete(void *context)
{
    struct nats_source *self = context;
    (void)pthread_mutex_lock(&self->lock);
    self->is_called = false;
    (void)pthread_cond_signal(&self->quiet);
    (void)pthread_mutex_unlock(&self->lock);
}

/* After this returns nothing more arrives: otherwise the library's thread would use freed
 * memory. */
static void unsubscribe(struct nats_source *self)
{
    if (self->answers == NULL) {
        return;
    }
    natsSubscription_Destroy(self->answers);
    self->answers = NULL;
    (void)pthread_mutex_lock(&self->lock);
    while (self->is_called) {
        (void)pthread_cond_wait(&self->quiet, &self->lock);
    }
    (void)pthread_mutex_unlock(&self->lock);
}

static void disconnect(struct nats_source *self)
{
    unsubscribe(self);
    if (self->connection != NULL) {
        natsConnection_Close(self->connection);
    }
    jsCtx_Destroy(self->stream);
    self->stream = NULL;
    natsConnection_Destroy(self->connection);
    self->connection = NULL;
    natsInbox_Destroy(self->inbox);
    self->inbox = NULL;
    (void)pthread_mutex_lock(&self->lock);
    for (size_t i = 0; i < self->arrived_count; i++) {
        natsMsg_Destroy(self->arrived[i]);
    }
    self->arrived_count = 0;
    self->requested = 0;
    self->is_refused = false;
    (void)pthread_mutex_unlock(&self->lock);
}

/* ---- connecting ---------------------------------------------------------------------------- */

static enum status failed(natsStatus status, const char *what, struct err *err)
{
    return err_set(err, E_UNAVAILABLE, "%s: %s", what, natsStatus_GetText(status));
}

static natsStatus set_servers(const struct nats_source *self, natsOptions *options)
{
    char host[BROKER_TEXT_BYTES_MAX];
    char port[BROKER_PORT_TEXT_BYTES];
    char texts[HOSTS_MAX][BROKER_TEXT_BYTES_MAX + 32];
    const char *servers[HOSTS_MAX];
    int count = 0;
    bool is_tls = strcmp(self->url.scheme, "nats+tls") == 0;
    while (count < HOSTS_MAX && broker_url_host(&self->url, (size_t)count, host, port)) {
        bool is_v6 = strchr(host, ':') != NULL;
        (void)snprintf(texts[count], sizeof texts[count], "%s://%s%s%s:%s", is_tls ? "tls" : "nats",
            is_v6 ? "[" : "", host, is_v6 ? "]" : "", port[0] == '\0' ? "4222" : port);
        servers[count] = texts[count];
        count++;
    }
    return count == 0 ? NATS_INVALID_ARG : natsOptions_SetServers(options, servers, count);
}

static natsStatus set_options(const struct nats_source *self, natsOptions *options)
{
    const struct broker_url *url = &self->url;
    natsStatus status = set_servers(self, options);
    status = status == NATS_OK ? natsOptions_SetAllowReconnect(options, false) : status;
    status = status == NATS_OK ? natsOptions_SetTimeout(options, CONNECT_MS) : status;
    status = status == NATS_OK ? natsOptions_SetPingInterval(options, PING_MS) : status;
    status = status == NATS_OK ? natsOptions_SetMaxPingsOut(options, PINGS_MAX) : status;
    status = status == NATS_OK ? natsOptions_SetName(options, self->consumer) : status;
    if (status == NATS_OK && url->user[0] != '\0') {
        status = url->password[0] == '\0'
                     ? natsOptions_SetToken(options, url->user)
                     : natsOptions_SetUserInfo(options, url->user, url->password);
    }
    if (status == NATS_OK && strcmp(url->scheme, "nats+tls") == 0) {
        status = natsOptions_SetSecure(options, true);
        if (status == NATS_OK && self->cacert[0] != '\0') {
            status = natsOptions_LoadCATrustedCertificates(options, self->cacert);
        }
        if (status == NATS_OK && self->cert[0] != '\0') {
            status = natsOptions_LoadCertificatesChain(options, self->cert, self->key);
        }
    }
    return status;
}

/* Checks that the stream exists, and has the properties that a publisher relies on. */
static enum status check_stream(struct nats_source *self, struct err *err)
{
    jsStreamInfo *info = NULL;
    jsErrCode code = 0;
    natsStatus status = js_GetStreamInfo(&info, self->stream, name_of(self), NULL, &code);
    if (status == NATS_NOT_FOUND || (int)code == JSStreamNotFoundErr) {
        return err_set(err, E_UNAVAILABLE, "NATS has no stream '%s'", name_of(self));
    }
    if (status != NATS_OK) {
        return failed(status, "cannot read about the stream", err);
    }
    enum status result = OK;
    const jsStreamConfig *config = info->Config;
    if (self->publishes && self->subject[0] == '\0') {
        const char *first = config->SubjectsLen > 0 ? config->Subjects[0] : "";
        (void)snprintf(self->subject, sizeof self->subject, "%s", first);
    }
    if (self->publishes && (self->subject[0] == '\0' || strpbrk(self->subject, "*>") != NULL)) {
        self->subject[0] = '\0';
        result = err_set(err, E_UNAVAILABLE,
            "the stream '%s' has many subjects: the URL must name "
            "one, as subject=NAME",
            name_of(self));
    }
    if (result == OK && self->publishes && config->Duplicates / MS_NS < self->keeps_ms) {
        result = err_set(err, E_UNAVAILABLE,
            "the stream '%s' recognises duplicates for %" PRId64
            " ms, and idempotency.keeps is %" PRId64 " ms",
            name_of(self), config->Duplicates / MS_NS, self->keeps_ms);
    }
    jsStreamInfo_Destroy(info);
    return result;
}

static enum status check_consumer(const jsConsumerInfo *info, struct err *err)
{
    if (info->Config->AckPolicy != js_AckExplicit || info->Config->DeliverSubject != NULL) {
        return err_set(err, E_UNAVAILABLE,
            "the consumer is not a pull consumer with explicit "
            "acknowledgements");
    }
    if (info->Config->AckWait / MS_NS < ACK_WAIT_MS_MIN) {
        return err_set(
            err, E_UNAVAILABLE, "the consumer's ack wait is less than %d ms", (int)ACK_WAIT_MS_MIN);
    }
    return OK;
}

static enum status ready_consumer(struct nats_source *self, struct err *err)
{
    jsConsumerInfo *info = NULL;
    jsErrCode code = 0;
    natsStatus status =
        js_GetConsumerInfo(&info, self->stream, name_of(self), self->durable, NULL, &code);
    if (status == NATS_NOT_FOUND || (int)code == JSConsumerNotFoundErr) {
        jsConsumerConfig config;
        (void)jsConsumerConfig_Init(&config);
        config.Durable = self->durable;
        config.AckPolicy = js_AckExplicit;
        config.AckWait = self->ack_wait_ms * MS_NS;
        config.MaxDeliver = -1; /* Once itself gives up, and reports it */
        config.MaxAckPending = PENDING_MAX;
        config.FilterSubject = self->subject[0] == '\0' ? NULL : self->subject;
        status = js_AddConsumer(&info, self->stream, name_of(self), &config, NULL, &code);
    }
    if (status != NATS_OK) {
        return failed(status, "cannot make the durable consumer", err);
    }
    enum status result = check_consumer(info, err);
    jsConsumerInfo_Destroy(info);
    return result;
}

static enum status subscribe(struct nats_source *self, struct err *err)
{
    natsStatus status = natsInbox_Create(&self->inbox);
    if (status == NATS_OK) {
        status = natsConnection_Subscribe(
            &self->answers, self->connection, self->inbox, on_message, self);
    }
    if (status == NATS_OK) {
        status = natsSubscription_SetOnCompleteCB(self->answers, on_complete, self);
        self->is_called = status == NATS_OK;
    }
    return status == NATS_OK ? OK : failed(status, "cannot subscribe", err);
}

static enum status connect_source(struct nats_source *self, struct err *err)
{
    natsOptions *options = NULL;
    disconnect(self);
    drop_held(self);
    natsStatus made = natsOptions_Create(&options);
    made = made == NATS_OK ? set_options(self, options) : made;
    made = made == NATS_OK ? natsConnection_Connect(&self->connection, options) : made;
    made = made == NATS_OK ? natsConnection_JetStream(&self->stream, self->connection, NULL) : made;
    natsOptions_Destroy(options);
    enum status status =
        made == NATS_OK ? check_stream(self, err) : failed(made, "cannot connect to NATS", err);
    if (status == OK && !self->publishes) {
        status = ready_consumer(self, err);
        status = status == OK ? subscribe(self, err) : status;
    }
    if (status != OK) {
        disconnect(self);
    }
    return status;
}

static bool is_open(const struct nats_source *self)
{
    return self->connection != NULL &&
           natsConnection_Status(self->connection) == NATS_CONN_STATUS_CONNECTED;
}

static enum status not_open(struct nats_source *self, struct err *err)
{
    disconnect(self);
    return err_set(err, E_UNAVAILABLE, "the connection to NATS is gone");
}

/* ---- messages ------------------------------------------------------------------------------ */

/* $JS.ACK.STREAM.CONSUMER.DELIVERED.SEQUENCE.…, or with a domain and an account before STREAM. */
static bool read_reply(const char *reply, uint64_t *ret_delivered, uint64_t *ret_sequence)
{
    struct slice words[16];
    size_t count = 0;
    for (const char *at = reply; count < COUNT(words); at++) {
        size_t len = strcspn(at, ".");
        words[count++] = slice_of(at, len);
        at += len;
        if (*at == '\0') {
            break;
        }
    }
    size_t from = count == 9 ? 4 : 6;
    return count >= 9 && from + 1 < count && text_u64(words[from], ret_delivered) &&
           text_u64(words[from + 1], ret_sequence);
}

static struct taken_message *find_taken(struct nats_source *self, uint64_t sequence)
{
    for (size_t i = 0; i < self->taken_count; i++) {
        if (self->taken[i].sequence == sequence) {
            return &self->taken[i];
        }
    }
    return NULL;
}

/* Only the latest answer subject is valid. */
static bool keep_taken(struct nats_source *self, uint64_t sequence, const char *reply)
{
    struct taken_message *one = find_taken(self, sequence);
    size_t size = strlen(reply) + 1;
    char *copy = mem_alloc(&mem_libc, size);
    if (copy == NULL) {
        return false;
    }
    memcpy(copy, reply, size);
    if (one == NULL && self->taken_count == self->taken_room) {
        size_t room = self->taken_room == 0 ? BROKER_TAKE_MAX : 2 * self->taken_room;
        struct taken_message *grown = mem_zalloc(&mem_libc, room, sizeof *grown);
        if (grown == NULL) {
            mem_free(&mem_libc, copy);
            return false;
        }
        if (self->taken_count > 0) {
            memcpy(grown, self->taken, self->taken_count * sizeof *grown);
        }
        mem_free(&mem_libc, self->taken);
        self->taken = grown;
        self->taken_room = room;
    }
    if (one == NULL) {
        one = &self->taken[self->taken_count++];
        *one = (struct taken_message){.sequence = sequence};
    }
    mem_free(&mem_libc, one->reply);
    one->reply = copy;
    return true;
}

static bool put_headers(struct nats_source *self, natsMsg *from, struct broker_message *message)
{
    const char **names = NULL;
    int count = 0;
    bool is_good = true;
    if (natsMsgHeader_Keys(from, &names, &count) != NATS_OK) {
        return true; /* it has none */
    }
    struct broker_field *fields = self->fields[self->count];
    for (int i = 0; is_good && i < count; i++) {
        const char *value = NULL;
        size_t len = strlen(names[i]);
        char *name = arena_alloc(&self->arena, len + 1);
        is_good = name != NULL;
        if (is_good && natsMsgHeader_Get(from, names[i], &value) == NATS_OK && value != NULL) {
            for (size_t k = 0; k <= len; k++) { /* names differ in case only: as HTTP's */
                char c = names[i][k];
                name[k] = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
            }
            is_good = broker_put_field(
                message, fields, "ce-", slice_of(name, len), slice_str(value), &self->arena);
        }
    }
    mem_free(&mem_libc, names);
    return is_good;
}

/* The message belongs to `held` from now on. */
static bool read_message(struct nats_source *self, natsMsg *from)
{
    uint64_t delivered = 0;
    uint64_t sequence = 0;
    const char *reply = natsMsg_GetReply(from);
    struct broker_message *message = &self->messages[self->count];
    char *id = arena_alloc(&self->arena, 24);
    self->held[self->count] = from;
    if (id == NULL || !read_reply(reply, &delivered, &sequence) ||
        !keep_taken(self, sequence, reply)) {
        natsMsg_Destroy(from);
        return false;
    }
    int len = snprintf(id, 24, "%" PRIu64, sequence);
    *message = (struct broker_message){.id = slice_of(id, (size_t)len),
        .is_again = delivered > 1,
        .body = slice_of(natsMsg_GetData(from), (size_t)natsMsg_GetDataLength(from)),
        .fields = self->fields[self->count]};
    bool is_good = put_headers(self, from, message);
    is_good = is_good &&
              broker_put_field(message, self->fields[self->count], "ce-", SLICE_LIT("nats-subject"),
                  slice_str(natsMsg_GetSubject(from)), &self->arena);
    broker_end_fields(message);
    self->count++;
    return is_good;
}

/* ---- taking -------------------------------------------------------------------------------- */

static enum status ask_for(struct nats_source *self, size_t max, struct err *err)
{
    char subject[2 * BROKER_TEXT_BYTES_MAX + 40];
    char text[96];
    (void)pthread_mutex_lock(&self->lock);
    bool is_requested = self->requested > 0 && clock_nanos() < self->requested_until_ns;
    if (!is_requested) {
        self->requested = max;
        self->requested_until_ns = broker_until(EXPIRES_MS + ANSWER_MS);
    }
    (void)pthread_mutex_unlock(&self->lock);
    if (is_requested) {
        return OK;
    }
    (void)snprintf(
        subject, sizeof subject, "$JS.API.CONSUMER.MSG.NEXT.%s.%s", name_of(self), self->durable);
    (void)snprintf(text, sizeof text, "{\"batch\":%zu,\"expires\":%" PRId64 "}", max,
        (int64_t)EXPIRES_MS * MS_NS);
    natsStatus status =
        natsConnection_PublishRequestString(self->connection, subject, self->inbox, text);
    return status == NATS_OK ? OK : failed(status, "cannot ask NATS for messages", err);
}

/* Hand out what has arrived. */
static bool take_arrived(struct nats_source *self, size_t max)
{
    size_t bytes = 0;
    size_t used = 0;
    bool is_good = true;
    (void)pthread_mutex_lock(&self->lock);
    while (is_good && used < self->arrived_count && self->count < max &&
           bytes < BROKER_TAKE_BYTES_MAX) {
        bytes += (size_t)natsMsg_GetDataLength(self->arrived[used]);
        is_good = read_message(self, self->arrived[used++]);
    }
    self->arrived_count -= used;
    memmove(self->arrived, self->arrived + used, self->arrived_count * sizeof *self->arrived);
    (void)pthread_mutex_unlock(&self->lock);
    return is_good;
}

static bool is_refused(struct nats_source *self)
{
    (void)pthread_mutex_lock(&self->lock);
    bool is_refused = self->is_refused;
    (void)pthread_mutex_unlock(&self->lock);
    return is_refused;
}

static enum status take(struct nats_source *self, size_t max, int64_t wait_ms, int wake_fd,
    const struct broker_message **ret_messages, size_t *ret_count, struct err *err)
{
    uint64_t until_ns = broker_until(wait_ms);
    enum status status = OK;
    bool waits = true;
    drop_held(self);
    max = max < BROKER_TAKE_MAX ? max : BROKER_TAKE_MAX;
    while (status == OK && waits) {
        if (!is_open(self) || is_refused(self)) {
            return not_open(self, err);
        }
        broker_arrivals_clear(self->arrived_fd);
        if (!take_arrived(self, max)) {
            disconnect(self);
            return err_set(err, E_UNAVAILABLE, "out of memory for a message");
        }
        if (self->count > 0) {
            break;
        }
        status = ask_for(self, max, err);
        waits = status == OK && broker_wait(self->arrived_fd, wake_fd, broker_left_ms(until_ns));
    }
    if (status == OK) {
        *ret_messages = self->messages;
        *ret_count = self->count;
    }
    return status;
}

/* ---- acknowledging ------------------------------------------------------------------------- */

static void forget_taken(struct nats_source *self, struct taken_message *one)
{
    mem_free(&mem_libc, one->reply);
    *one = self->taken[--self->taken_count];
}

/* When the server answers this, it has read everything before it. */
static enum status flush(struct nats_source *self, const char *what, struct err *err)
{
    natsStatus status = natsConnection_FlushTimeout(self->connection, ANSWER_MS);
    if (status != NATS_OK) {
        disconnect(self);
        return failed(status, what, err);
    }
    return OK;
}

static enum status acknowledge(
    struct nats_source *self, const struct slice *ids, size_t count, struct err *err)
{
    if (!is_open(self)) {
        return not_open(self, err);
    }
    natsStatus status = NATS_OK;
    for (size_t i = 0; status == NATS_OK && i < count; i++) {
        uint64_t sequence = 0;
        struct taken_message *one = text_u64(ids[i], &sequence) ? find_taken(self, sequence) : NULL;
        if (one != NULL) {
            status = natsConnection_PublishString(self->connection, one->reply, "+ACK");
        }
    }
    enum status result = status == NATS_OK ? flush(self, "cannot acknowledge", err)
                                           : failed(status, "cannot acknowledge", err);
    for (size_t i = 0; result == OK && i < count; i++) { /* until then it may be repeated */
        uint64_t sequence = 0;
        struct taken_message *one = text_u64(ids[i], &sequence) ? find_taken(self, sequence) : NULL;
        if (one != NULL) {
            forget_taken(self, one);
        }
    }
    return result;
}

static enum status extend(struct nats_source *self, struct err *err)
{
    natsStatus status = NATS_OK;
    if (!is_open(self)) {
        return not_open(self, err);
    }
    for (size_t i = 0; status == NATS_OK && i < self->taken_count; i++) {
        status = natsConnection_PublishString(self->connection, self->taken[i].reply, "+WPI");
    }
    return status == NATS_OK ? OK : failed(status, "cannot keep the messages", err);
}

static enum status lag(struct nats_source *self, uint64_t *ret_lag, struct err *err)
{
    jsConsumerInfo *info = NULL;
    if (!is_open(self)) {
        return not_open(self, err);
    }
    natsStatus status =
        js_GetConsumerInfo(&info, self->stream, name_of(self), self->durable, NULL, NULL);
    if (status != NATS_OK) {
        disconnect(self);
        return failed(status, "cannot ask for the lag", err);
    }
    *ret_lag = info->NumPending;
    jsConsumerInfo_Destroy(info);
    return OK;
}

/* ---- publishing and parking ---------------------------------------------------------------- */

/* P5: a missing answer says nothing; only the server's own refusal is certain. */
static enum status publish_status(
    natsStatus status, jsErrCode code, const char *what, struct err *err)
{
    if (status == NATS_OK) {
        return OK;
    }
    enum status result = status == NATS_MAX_PAYLOAD                  ? E_LIMIT
                         : status == NATS_NO_RESPONDERS || code != 0 ? E_UNAVAILABLE
                                                                     : E_UNKNOWN;
    return err_set(err, result, "%s: %s", what, natsStatus_GetText(status));
}

static enum status publish_message(struct nats_source *self, natsMsg *message, const char *stream,
    const char *id, int64_t timeout_ms, uint64_t *ret_sequence, struct err *err)
{
    jsPubOptions options;
    jsPubAck *ack = NULL;
    jsErrCode code = 0;
    (void)jsPubOptions_Init(&options);
    options.MaxWait = timeout_ms;
    options.MsgId = id;
    options.ExpectStream = stream;
    natsStatus status = js_PublishMsg(&ack, self->stream, message, &options, &code);
    enum status result = publish_status(status, code, "cannot publish to NATS", err);
    if (result == OK) {
        *ret_sequence = ack->Sequence;
        jsPubAck_Destroy(ack);
    }
    return result;
}

static enum status publish(struct nats_source *self, const struct broker_outgoing *message,
    int64_t timeout_ms, char ret_ref[BROKER_ID_BYTES_MAX], struct err *err)
{
    natsMsg *made = NULL;
    uint64_t sequence = 0;
    char id[BROKER_ID_BYTES_MAX];
    char type[BROKER_ID_BYTES_MAX];
    if (!is_open(self)) {
        return not_open(self, err);
    }
    (void)snprintf(id, sizeof id, "%.*s", SLICE_ARGS(message->id));
    (void)snprintf(type, sizeof type, "%.*s", SLICE_ARGS(message->type));
    natsStatus status =
        natsMsg_Create(&made, self->subject, NULL, message->body.data, (int)message->body.len);
    status = status == NATS_OK ? natsMsgHeader_Set(made, "content-type", type) : status;
    enum status result = status == NATS_OK ? publish_message(self, made, name_of(self), id,
                                                 timeout_ms, &sequence, err)
                                           : failed(status, "cannot make a message", err);
    natsMsg_Destroy(made);
    if (result == OK) {
        (void)snprintf(ret_ref, BROKER_ID_BYTES_MAX, "%" PRIu64, sequence);
    } else if (result != E_LIMIT) {
        disconnect(self);
    }
    return result;
}

static enum status ready_parked(
    struct nats_source *self, const char *stream, const char *subject, struct err *err)
{
    jsStreamInfo *info = NULL;
    jsErrCode code = 0;
    natsStatus status =
        self->has_parked ? NATS_OK : js_GetStreamInfo(&info, self->stream, stream, NULL, &code);
    if (status != NATS_OK) {
        jsStreamConfig config;
        (void)jsStreamConfig_Init(&config);
        config.Name = stream;
        config.Subjects = &subject;
        config.SubjectsLen = 1;
        status = js_AddStream(&info, self->stream, &config, NULL, &code);
    }
    jsStreamInfo_Destroy(info);
    self->has_parked = status == NATS_OK;
    return status == NATS_OK ? OK
                             : failed(status, "cannot make the stream for parked messages", err);
}

static natsStatus copy_headers(natsMsg *from, natsMsg *to)
{
    const char **names = NULL;
    int count = 0;
    natsStatus status = NATS_OK;
    if (natsMsgHeader_Keys(from, &names, &count) != NATS_OK) {
        return NATS_OK; /* it has none */
    }
    for (int i = 0; status == NATS_OK && i < count; i++) {
        const char *value = NULL;
        bool is_copied = strncmp(names[i], "Nats-", 5) != 0; /* those are orders to the server */
        if (is_copied && natsMsgHeader_Get(from, names[i], &value) == NATS_OK) {
            status = natsMsgHeader_Set(to, names[i], value);
        }
    }
    mem_free(&mem_libc, names);
    return status;
}

static enum status park_copy(struct nats_source *self, const struct broker_message *message,
    const char *reason, struct err *err)
{
    char stream[BROKER_TEXT_BYTES_MAX + 8];
    char subject[BROKER_TEXT_BYTES_MAX + 16];
    char id[BROKER_ID_BYTES_MAX];
    char name[BROKER_TEXT_BYTES_MAX + BROKER_ID_BYTES_MAX];
    natsMsg *original = self->held[message - self->messages];
    natsMsg *copy = NULL;
    uint64_t sequence = 0;
    (void)snprintf(stream, sizeof stream, "%s-parked", name_of(self));
    (void)snprintf(subject, sizeof subject, "once.parked.%s", name_of(self));
    (void)snprintf(id, sizeof id, "%.*s", SLICE_ARGS(message->id));
    (void)snprintf(name, sizeof name, "%s-%s", name_of(self), id);
    enum status result = ready_parked(self, stream, subject, err);
    if (result != OK) {
        return result;
    }
    natsStatus status =
        natsMsg_Create(&copy, subject, NULL, message->body.data, (int)message->body.len);
    status = status == NATS_OK ? copy_headers(original, copy) : status;
    status = status == NATS_OK ? natsMsgHeader_Set(copy, "once-reason", reason) : status;
    status = status == NATS_OK ? natsMsgHeader_Set(copy, "once-message", id) : status;
    result = status == NATS_OK
                 ? publish_message(self, copy, stream, name, ANSWER_MS, &sequence, err)
                 : failed(status, "cannot make a message", err);
    natsMsg_Destroy(copy);
    return result;
}

static enum status park(struct nats_source *self, const struct broker_message *message,
    const char *reason, struct err *err)
{
    if (!is_open(self)) {
        return not_open(self, err);
    }
    enum status status = park_copy(self, message, reason, err);
    if (status != OK) {
        disconnect(self);
        return E_UNAVAILABLE;
    }
    return acknowledge(self, &message->id, 1, err);
}

/* ---- the end ------------------------------------------------------------------------------- */

static void close_source(struct nats_source *self)
{
    if (self == NULL) {
        return;
    }
    disconnect(self);
    drop_held(self);
    for (size_t i = 0; i < self->taken_count; i++) {
        mem_free(&mem_libc, self->taken[i].reply);
    }
    mem_free(&mem_libc, self->taken);
    arena_release(&self->arena);
    (void)close(self->arrived_fd);
    (void)pthread_cond_destroy(&self->quiet);
    (void)pthread_mutex_destroy(&self->lock);
    broker_source_free(self, sizeof *self);
}

/* A third of the shortest ack wait. */
__attribute__((visibility("default"))) extern const struct broker_module once_broker;
const struct broker_module once_broker = {.interface = BROKER_INTERFACE,
    .name = "nats",
    .ids_last = true,
    .extend_every_ms_max = ACK_WAIT_MS_MIN / 3,
    .keeps_ms_usual = KEEPS_MS,
    BROKER_FUNCTIONS};
