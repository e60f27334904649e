/*
 * Kafka, as the module once-broker-kafka.so (librdkafka).
 *
 * URL: kafka://[USER:PASSWORD@]HOST[:PORT],…/TOPIC[?group=once&session=10s&reset=earliest],
 * kafkas:// with TLS (cacert, cert, key); mechanism=PLAIN|SCRAM-SHA-256|SCRAM-SHA-512 with a user.
 *
 * Kafka has no acknowledgement of one message, only a position of each partition: everything before
 * it is done. So the offsets that were taken from a partition are kept in order (positions.h). An
 * acknowledged offset is marked, and the position moves up to the first offset that is not marked.
 * One message that takes long holds up the position and nothing else: later messages are taken and
 * delivered. After a crash they come again, and are duplicates. At most POSITION_SPAN_MAX offsets
 * are kept; then the partition is paused until its first message is settled.
 *
 * A rebalance takes partitions away at any poll: their position is committed and they are
 * forgotten. Acknowledgements that come later mean nothing: the process that has the partition now
 * gets the messages again.
 *
 * A message is named PARTITION-OFFSET. A parked one is published to TOPIC.parked, and then
 * acknowledged: after a crash in between it is there twice, and never nowhere.
 */
#include <inttypes.h>
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/mem.h"
#include "base/text.h"
/* The opaque type of the table, as this module defines it. */
#define broker_source kafka_source
#include "broker/common.h"
#include "broker/positions.h"

enum {
    ANSWER_MS = 5000,
    SESSION_MS = 10000,
    POLL_EVERY_MS = 5000, /* without a poll for minutes, the group would exclude us */
    ASKED_PARTS_MAX = 32, /* partitions whose ends are asked for, one by one */
    LOG_TEXT_MAX = 200,
};

struct kafka_source {
    struct broker_url url;
    char group[BROKER_TEXT_BYTES_MAX];
    char reset[BROKER_TEXT_BYTES_MAX];
    char mechanism[BROKER_TEXT_BYTES_MAX];
    char cacert[BROKER_TEXT_BYTES_MAX];
    char cert[BROKER_TEXT_BYTES_MAX];
    char key[BROKER_TEXT_BYTES_MAX];
    char consumer[128];
    int64_t session_ms;
    bool publishes;

    rd_kafka_t *takes;       /* the consumer; NULL: closed */
    rd_kafka_queue_t *queue; /* its messages and events */
    rd_kafka_t *sends;       /* the producer; NULL: closed */
    int arrived_fd;          /* readable when something arrived */
    bool is_down;            /* no broker answers */
    bool is_idle;            /* all partitions are paused: nothing is taken */
    char down[LOG_TEXT_MAX]; /* why, in the library's words */
    uint64_t poll_ns;        /* the last poll */
    struct positions positions;

    struct arena arena; /* of the messages below */
    rd_kafka_message_t *held[BROKER_TAKE_MAX];
    size_t count;
    struct broker_message messages[BROKER_TAKE_MAX];
    struct broker_field fields[BROKER_TAKE_MAX][BROKER_FIELDS_MAX];
};

/* ---- the URL ------------------------------------------------------------------------------- */

static const char *topic_of(const struct kafka_source *self)
{
    return self->url.path[0];
}

static enum status read_url(void *source, const char *text, struct err *err)
{
    struct kafka_source *self = source;
    const struct broker_option options[] = {{.name = "group", .text = self->group},
        {.name = "reset", .text = self->reset}, {.name = "mechanism", .text = self->mechanism},
        {.name = "cacert", .text = self->cacert}, {.name = "cert", .text = self->cert},
        {.name = "key", .text = self->key},
        {.name = "session", .ms = &self->session_ms, .ms_min = 1000, .ms_max = 1800000}};
    (void)snprintf(self->group, sizeof self->group, "once");
    (void)snprintf(self->reset, sizeof self->reset, "earliest");
    self->session_ms = SESSION_MS;
    enum status status = broker_url_read(text, &self->url, options, COUNT(options), err);
    if (status == OK && self->url.path_count != 1) {
        status = err_set(err, E_INVALID, "the path of a kafka: URL names its topic");
        err_hint(err, "kafka://127.0.0.1:9092/orders?group=once");
    }
    if (status == OK && strcmp(self->reset, "earliest") != 0 &&
        strcmp(self->reset, "latest") != 0 && strcmp(self->reset, "error") != 0) {
        status = err_set(err, E_INVALID, "reset is earliest, latest or error");
    }
    status = status == OK ? broker_pair(&self->url, self->cert, self->key, err) : status;
    return status;
}

static enum status check(const char *url, struct err *err)
{
    return broker_source_read(sizeof(struct kafka_source), read_url, url, NULL, err);
}

static enum status open_source(
    const struct broker_options *options, struct kafka_source **ret_source, struct err *err)
{
    void *made = NULL;
    enum status status =
        broker_source_read(sizeof(struct kafka_source), read_url, options->url, &made, err);
    if (status != OK) {
        return status;
    }
    struct kafka_source *self = made;
    self->publishes = options->publishes;
    (void)snprintf(self->consumer, sizeof self->consumer, "%s", options->consumer);
    status = broker_arrivals(&self->arrived_fd, err);
    if (status != OK) {
        broker_source_free(self, sizeof *self);
        return status;
    }
    arena_init(&self->arena, &mem_libc, BROKER_TAKE_BYTES_MAX);
    *ret_source = self;
    return OK;
}

/* ---- positions ------------------------------------------------------------------------------ */

/* Commit the positions that moved. */
static rd_kafka_resp_err_t commit(struct kafka_source *self, bool is_async)
{
    rd_kafka_topic_partition_list_t *list =
        rd_kafka_topic_partition_list_new((int)self->positions.count + 1);
    for (size_t i = 0; i < self->positions.count; i++) {
        struct position *part = &self->positions.items[i];
        if (part->is_dirty) {
            rd_kafka_topic_partition_list_add(list, topic_of(self), part->partition)->offset =
                part->next;
            part->is_dirty = false;
        }
    }
    rd_kafka_resp_err_t error = list->cnt == 0
                                    ? RD_KAFKA_RESP_ERR_NO_ERROR
                                    : rd_kafka_commit(self->takes, list, is_async ? 1 : 0);
    rd_kafka_topic_partition_list_destroy(list);
    return error;
}

/* ---- events of the library ----------------------------------------------------------------- */

static void on_log(const rd_kafka_t *client, int level, const char *facility, const char *text)
{
    (void)client; /* what matters comes as an error */
    (void)level;
    (void)facility;
    (void)text;
}

static void on_error(rd_kafka_t *client, int error, const char *reason, void *context)
{
    struct kafka_source *self = context;
    (void)client;
    if (error == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN || error == RD_KAFKA_RESP_ERR__FATAL ||
        error == RD_KAFKA_RESP_ERR__AUTHENTICATION || error == RD_KAFKA_RESP_ERR__SSL) {
        self->is_down = true;
        (void)snprintf(self->down, sizeof self->down, "%s", reason);
    }
}

/* Called from a poll or from the close. */
static void on_rebalance(rd_kafka_t *client, rd_kafka_resp_err_t error,
    rd_kafka_topic_partition_list_t *partitions, void *context)
{
    struct kafka_source *self = context;
    if (error == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) {
        positions_clear(&self->positions);
        self->is_idle = false;
        (void)rd_kafka_assign(client, partitions);
        return;
    }
    if (!rd_kafka_assignment_lost(client)) {
        (void)commit(self, false);
    }
    positions_clear(&self->positions);
    (void)rd_kafka_assign(client, NULL);
}

/* ---- connecting ---------------------------------------------------------------------------- */

static void drop_held(struct kafka_source *self)
{
    for (size_t i = 0; i < self->count; i++) {
        rd_kafka_message_destroy(self->held[i]);
    }
    self->count = 0;
    arena_clear(&self->arena);
}

static void disconnect(struct kafka_source *self)
{
    if (self->queue != NULL) {
        rd_kafka_queue_io_event_enable(self->queue, -1, NULL, 0);
        rd_kafka_queue_destroy(self->queue);
        self->queue = NULL;
    }
    if (self->takes != NULL) {
        drop_held(self);
        rd_kafka_destroy(self->takes); /* leaves the group; on_rebalance commits */
        self->takes = NULL;
    }
    if (self->sends != NULL) {
        rd_kafka_destroy(self->sends);
        self->sends = NULL;
    }
    positions_clear(&self->positions);
    self->is_down = false;
}

static void on_report(rd_kafka_t *client, const rd_kafka_message_t *message, void *context);

struct setting {
    const char *name;
    const char *value; /* NULL: not set */
};

static enum status set_all(
    rd_kafka_conf_t *conf, const struct setting *settings, size_t count, struct err *err)
{
    char why[LOG_TEXT_MAX];
    for (size_t i = 0; i < count; i++) {
        if (settings[i].value != NULL && settings[i].value[0] != '\0' &&
            rd_kafka_conf_set(conf, settings[i].name, settings[i].value, why, sizeof why) !=
                RD_KAFKA_CONF_OK) {
            return err_set(
                err, E_UNAVAILABLE, "librdkafka refuses its setting %s", settings[i].name);
        }
    }
    return OK;
}

/* What a consumer and a producer have in common, and then their own. */
static enum status new_client(struct kafka_source *self, rd_kafka_type_t type,
    const struct setting *own, size_t own_count, rd_kafka_t **ret_client, struct err *err)
{
    bool is_tls = strcmp(self->url.scheme, "kafkas") == 0;
    bool has_user = self->url.user[0] != '\0';
    const struct setting usual[] = {{"bootstrap.servers", self->url.hosts},
        {"client.id", self->consumer},
        {"security.protocol",
            is_tls ? (has_user ? "sasl_ssl" : "ssl") : (has_user ? "sasl_plaintext" : "plaintext")},
        {"sasl.mechanisms", !has_user                    ? NULL
                            : self->mechanism[0] == '\0' ? "PLAIN"
                                                         : self->mechanism},
        {"sasl.username", self->url.user}, {"sasl.password", self->url.password},
        {"ssl.ca.location", self->cacert}, {"ssl.certificate.location", self->cert},
        {"ssl.key.location", self->key}, {"socket.timeout.ms", "5000"},
        {"reconnect.backoff.ms", "50"}, {"reconnect.backoff.max.ms", "1000"},
        {"topic.metadata.refresh.interval.ms", "10000"}};
    char why[LOG_TEXT_MAX] = "";
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set_opaque(conf, self);
    rd_kafka_conf_set_log_cb(conf, on_log);
    rd_kafka_conf_set_error_cb(conf, on_error);
    if (type == RD_KAFKA_CONSUMER) {
        rd_kafka_conf_set_rebalance_cb(conf, on_rebalance);
    } else {
        rd_kafka_conf_set_dr_msg_cb(conf, on_report);
    }
    enum status status = set_all(conf, usual, COUNT(usual), err);
    status = status == OK ? set_all(conf, own, own_count, err) : status;
    rd_kafka_t *client = status == OK ? rd_kafka_new(type, conf, why, sizeof why) : NULL;
    if (client == NULL) {
        rd_kafka_conf_destroy(conf);
        return status == OK ? err_set(err, E_UNAVAILABLE, "cannot make a client of Kafka: %s", why)
                            : status;
    }
    *ret_client = client;
    return OK;
}

/* A broker answers. */
static enum status check_broker(rd_kafka_t *client, struct err *err)
{
    const struct rd_kafka_metadata *metadata = NULL;
    rd_kafka_resp_err_t error = rd_kafka_metadata(client, 0, NULL, &metadata, ANSWER_MS);
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
        return err_set(
            err, E_UNAVAILABLE, "no broker of Kafka answers: %s", rd_kafka_err2str(error));
    }
    rd_kafka_metadata_destroy(metadata);
    return OK;
}

static enum status ready_to_send(struct kafka_source *self, struct err *err)
{
    static const struct setting settings[] = {{"enable.idempotence", "true"}, {"acks", "all"},
        {"linger.ms", "0"}, {"message.max.bytes", "67108864"}};
    return self->sends != NULL
               ? OK
               : new_client(self, RD_KAFKA_PRODUCER, settings, COUNT(settings), &self->sends, err);
}

static enum status start_consumer(struct kafka_source *self, struct err *err)
{
    char session[24], beat[24];
    (void)snprintf(session, sizeof session, "%" PRId64, self->session_ms);
    (void)snprintf(beat, sizeof beat, "%" PRId64, self->session_ms / 4);
    const struct setting settings[] = {{"group.id", self->group}, {"session.timeout.ms", session},
        {"heartbeat.interval.ms", beat}, {"enable.auto.commit", "false"},
        {"enable.auto.offset.store", "false"}, {"auto.offset.reset", self->reset},
        {"queued.max.messages.kbytes", "16384"}, {"fetch.wait.max.ms", "100"},
        {"fetch.error.backoff.ms", "100"}, {"allow.auto.create.topics", "true"}};
    enum status status =
        new_client(self, RD_KAFKA_CONSUMER, settings, COUNT(settings), &self->takes, err);
    if (status != OK) {
        return status;
    }
    (void)rd_kafka_poll_set_consumer(self->takes);
    status = check_broker(self->takes, err);
    if (status != OK) {
        return status;
    }
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(topics, topic_of(self), RD_KAFKA_PARTITION_UA);
    rd_kafka_resp_err_t error = rd_kafka_subscribe(self->takes, topics);
    rd_kafka_topic_partition_list_destroy(topics);
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
        return err_set(err, E_UNAVAILABLE, "cannot subscribe: %s", rd_kafka_err2str(error));
    }
    uint64_t one = 1; /* what the library writes to the descriptor */
    self->queue = rd_kafka_queue_get_consumer(self->takes);
    rd_kafka_queue_io_event_enable(self->queue, self->arrived_fd, &one, sizeof one);
    self->poll_ns = clock_nanos();
    self->is_idle = false;
    return OK;
}

static enum status connect_source(struct kafka_source *self, struct err *err)
{
    disconnect(self);
    drop_held(self);
    enum status status = self->publishes ? ready_to_send(self, err) : start_consumer(self, err);
    status = status == OK && self->publishes ? check_broker(self->sends, err) : status;
    if (status != OK) {
        disconnect(self);
    }
    return status;
}

static enum status gone(struct kafka_source *self, struct err *err)
{
    enum status status = err_set(err, E_UNAVAILABLE, "the connection to Kafka is gone%s%s",
        self->is_down ? ": " : "", self->is_down ? self->down : "");
    disconnect(self);
    return status;
}

/* ---- messages ------------------------------------------------------------------------------ */

static bool put_headers(struct kafka_source *self, const rd_kafka_message_t *from,
    struct broker_message *message, struct broker_field *fields)
{
    rd_kafka_headers_t *headers = NULL;
    bool is_good = true;
    const char *name = NULL;
    const void *value = NULL;
    size_t size = 0;
    if (rd_kafka_message_headers(from, &headers) == RD_KAFKA_RESP_ERR_NO_ERROR) {
        for (size_t i = 0; is_good && rd_kafka_header_get_all(headers, i, &name, &value, &size) ==
                                          RD_KAFKA_RESP_ERR_NO_ERROR;
             i++) {
            is_good = broker_put_field(message, fields, "ce_", slice_str(name),
                slice_of(value, value == NULL ? 0 : size), &self->arena);
        }
    }
    if (is_good && from->key_len > 0) {
        is_good = broker_put_field(message, fields, "ce_", SLICE_LIT("kafka-key"),
            slice_of(from->key, from->key_len), &self->arena);
    }
    return is_good;
}

/* The message belongs to `held` from now on. */
static bool read_message(struct kafka_source *self, rd_kafka_message_t *from)
{
    struct broker_message *message = &self->messages[self->count];
    struct broker_field *fields = self->fields[self->count];
    char *id = arena_alloc(&self->arena, 40);
    self->held[self->count++] = from;
    if (id == NULL || !positions_take(&self->positions, from->partition, from->offset)) {
        return false;
    }
    int len = snprintf(id, 40, "%" PRId32 "-%" PRId64, from->partition, from->offset);
    *message = (struct broker_message){.id = slice_of(id, (size_t)len),
        .body = slice_of(from->payload, from->len),
        .fields = fields};
    bool is_good = put_headers(self, from, message, fields);
    broker_end_fields(message);
    return is_good;
}

/* ---- taking -------------------------------------------------------------------------------- */

static void set_paused(struct kafka_source *self, int32_t partition, bool is_paused)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, topic_of(self), partition);
    (void)(is_paused ? rd_kafka_pause_partitions(self->takes, list)
                     : rd_kafka_resume_partitions(self->takes, list));
    rd_kafka_topic_partition_list_destroy(list);
}

/* P14: no more offsets of a partition are kept than POSITION_SPAN_MAX. */
static void pause_long(struct kafka_source *self)
{
    for (size_t i = 0; i < self->positions.count; i++) {
        struct position *part = &self->positions.items[i];
        bool is_paused = position_is_long(part, part->is_paused);
        if (is_paused != part->is_paused) {
            part->is_paused = is_paused;
            set_paused(self, part->partition, is_paused);
        }
    }
}

/* Pauses or resumes everything that is assigned. */
static void set_idle(struct kafka_source *self, bool is_idle)
{
    rd_kafka_topic_partition_list_t *list = NULL;
    if (self->is_idle == is_idle ||
        rd_kafka_assignment(self->takes, &list) != RD_KAFKA_RESP_ERR_NO_ERROR) {
        return;
    }
    (void)(is_idle ? rd_kafka_pause_partitions(self->takes, list)
                   : rd_kafka_resume_partitions(self->takes, list));
    self->is_idle = is_idle;
    for (size_t i = 0; i < self->positions.count; i++) {
        self->positions.items[i].is_paused = is_idle;
    }
    rd_kafka_topic_partition_list_destroy(list);
}

/* One message or event. *ret_is_there is false if there is none. */
static enum status poll_one(struct kafka_source *self, bool *ret_is_there, struct err *err)
{
    rd_kafka_message_t *message = rd_kafka_consumer_poll(self->takes, 0);
    self->poll_ns = clock_nanos();
    *ret_is_there = message != NULL;
    if (self->is_down) {
        if (message != NULL) {
            rd_kafka_message_destroy(message);
        }
        return gone(self, err);
    }
    if (message == NULL) {
        return OK;
    }
    rd_kafka_resp_err_t error = message->err;
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR) {
        if (!read_message(self, message)) {
            disconnect(self);
            return err_set(err, E_UNAVAILABLE, "out of memory for a message");
        }
        return OK;
    }
    rd_kafka_message_destroy(message);
    bool is_well = error == RD_KAFKA_RESP_ERR__PARTITION_EOF ||
                   error == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART ||
                   error == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC ||
                   error == RD_KAFKA_RESP_ERR__TRANSPORT;
    if (is_well) { /* the topic is not there yet, or the library connects again */
        return OK;
    }
    disconnect(self);
    return err_set(err, E_UNAVAILABLE, "cannot read messages: %s", rd_kafka_err2str(error));
}

static enum status take(struct kafka_source *self, size_t max, int64_t wait_ms, int wake_fd,
    const struct broker_message **ret_messages, size_t *ret_count, struct err *err)
{
    uint64_t until_ns = broker_until(wait_ms);
    enum status status = OK;
    size_t bytes = 0;
    drop_held(self);
    if (self->takes == NULL) {
        return gone(self, err);
    }
    set_idle(self, false);
    pause_long(self);
    max = max < BROKER_TAKE_MAX ? max : BROKER_TAKE_MAX;
    while (status == OK && self->count < max && bytes < BROKER_TAKE_BYTES_MAX) {
        bool is_there = false;
        size_t before = self->count;
        broker_arrivals_clear(self->arrived_fd);
        status = poll_one(self, &is_there, err);
        bytes += status == OK && self->count > before ? self->messages[before].body.len : 0;
        if (status == OK && !is_there &&
            (self->count > 0 ||
                !broker_wait(self->arrived_fd, wake_fd, broker_left_ms(until_ns)))) {
            break;
        }
    }
    if (status == OK) {
        *ret_messages = self->messages;
        *ret_count = self->count;
    }
    return status;
}

/* Not waited for: if the commit is lost, the messages come again and are duplicates. */
static enum status acknowledge(
    struct kafka_source *self, const struct slice *ids, size_t count, struct err *err)
{
    if (self->takes == NULL) {
        return gone(self, err);
    }
    for (size_t i = 0; i < count; i++) {
        positions_done(&self->positions, ids[i]);
    }
    (void)commit(self, true);
    return OK;
}

/* While too many messages wait, nothing is taken. A consumer that does not poll would be considered
 * dead, so it polls with all partitions paused. */
static enum status extend(struct kafka_source *self, struct err *err)
{
    enum status status = OK;
    if (self->takes == NULL) {
        return gone(self, err);
    }
    if (clock_nanos() < self->poll_ns + UINT64_C(1000000) * POLL_EVERY_MS) {
        return OK;
    }
    set_idle(self, true);
    rd_kafka_message_t *message = rd_kafka_consumer_poll(self->takes, 0);
    self->poll_ns = clock_nanos();
    if (message != NULL &&
        message->err ==
            RD_KAFKA_RESP_ERR_NO_ERROR) { /* read before the pause: from there on again */
        rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
        rd_kafka_topic_partition_list_add(list, topic_of(self), message->partition)->offset =
            message->offset;
        rd_kafka_error_t *error = rd_kafka_seek_partitions(self->takes, list, ANSWER_MS);
        status = error == NULL ? OK : err_set(err, E_UNAVAILABLE, "cannot go back to a message");
        if (error != NULL) {
            rd_kafka_error_destroy(error);
        }
        rd_kafka_topic_partition_list_destroy(list);
    }
    if (message != NULL) {
        rd_kafka_message_destroy(message);
    }
    return self->is_down || status != OK ? gone(self, err) : OK;
}

/* The ends of a partition: asked for if there are few partitions, otherwise as of the last
 * fetch. */
static bool ends_of(
    struct kafka_source *self, int32_t partition, bool asks, int64_t *ret_low, int64_t *ret_high)
{
    rd_kafka_resp_err_t error = asks ? rd_kafka_query_watermark_offsets(self->takes, topic_of(self),
                                           partition, ret_low, ret_high, ANSWER_MS)
                                     : rd_kafka_get_watermark_offsets(self->takes, topic_of(self),
                                           partition, ret_low, ret_high);
    return error == RD_KAFKA_RESP_ERR_NO_ERROR && *ret_high >= 0;
}

/* Messages from our position (else the group's, else the partition's start) to the end. */
static enum status lag(struct kafka_source *self, uint64_t *ret_lag, struct err *err)
{
    rd_kafka_topic_partition_list_t *list = NULL;
    uint64_t sum = 0;
    if (self->takes == NULL) {
        return gone(self, err);
    }
    /* The library connects again by itself, and does not always report that nobody answers. */
    enum status status = check_broker(self->takes, err);
    if (status != OK) {
        disconnect(self);
        return status;
    }
    if (rd_kafka_assignment(self->takes, &list) != RD_KAFKA_RESP_ERR_NO_ERROR) {
        return OK;
    }
    rd_kafka_topic_partition_list_t *before = rd_kafka_topic_partition_list_copy(list);
    (void)rd_kafka_position(self->takes, list);
    (void)rd_kafka_committed(self->takes, before, ANSWER_MS);
    for (int i = 0; i < list->cnt; i++) {
        int64_t low = 0;
        int64_t high = 0;
        int64_t at = list->elems[i].offset >= 0 ? list->elems[i].offset : before->elems[i].offset;
        if (ends_of(self, list->elems[i].partition, list->cnt <= ASKED_PARTS_MAX, &low, &high)) {
            at = at < low ? low : at;
            sum += high > at ? (uint64_t)(high - at) : 0;
        }
    }
    rd_kafka_topic_partition_list_destroy(before);
    rd_kafka_topic_partition_list_destroy(list);
    *ret_lag = sum;
    return OK;
}

/* ---- publishing and parking ---------------------------------------------------------------- */

/* What became of one message. */
struct sent {
    bool is_over;
    rd_kafka_resp_err_t error;
    rd_kafka_msg_status_t status;
    int32_t partition;
    int64_t offset;
};

static void on_report(rd_kafka_t *client, const rd_kafka_message_t *message, void *context)
{
    struct sent *sent = message->_private;
    (void)client;
    (void)context;
    if (sent != NULL) {
        *sent = (struct sent){.is_over = true,
            .error = message->err,
            .status = rd_kafka_message_status(message),
            .partition = message->partition,
            .offset = message->offset};
    }
}

/* P5: the library knows whether a message that failed may have been written. */
static enum status sent_status(const struct sent *sent, struct err *err)
{
    if (sent->error == RD_KAFKA_RESP_ERR_NO_ERROR) {
        return OK;
    }
    enum status status = sent->status == RD_KAFKA_MSG_STATUS_PERSISTED            ? OK
                         : sent->status == RD_KAFKA_MSG_STATUS_POSSIBLY_PERSISTED ? E_UNKNOWN
                                                                                  : E_UNAVAILABLE;
    if (sent->error == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE) {
        status = E_LIMIT;
    }
    return status == OK
               ? OK
               : err_set(err, status, "cannot publish to Kafka: %s", rd_kafka_err2str(sent->error));
}

/* Waits for the report. When the time is over, the message is purged: if it was not sent, it is
 * certainly not written; if it was sent, it may be. */
static void await_report(struct kafka_source *self, struct sent *sent, uint64_t until_ns)
{
    while (!sent->is_over && broker_left_ms(until_ns) > 0 && !self->is_down) {
        (void)rd_kafka_poll(
            self->sends, (int)(broker_left_ms(until_ns) < 100 ? broker_left_ms(until_ns) : 100));
    }
    if (!sent->is_over) {
        (void)rd_kafka_purge(self->sends, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    }
    while (!sent->is_over) {
        (void)rd_kafka_poll(self->sends, 100);
    }
}

static enum status send_one(struct kafka_source *self, const char *topic,
    rd_kafka_headers_t *headers, struct slice key, struct slice body, int64_t timeout_ms,
    struct sent *ret_sent, struct err *err)
{
    uint64_t until_ns = broker_until(timeout_ms);
    struct sent sent = {.is_over = false};
    union {
        const char *in;
        char *out;
    } bytes = {.in = body.data};
    rd_kafka_resp_err_t error = __extension__ rd_kafka_producev(self->sends,
        RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_KEY(key.len == 0 ? NULL : key.data, key.len),
        RD_KAFKA_V_VALUE(bytes.out, body.len), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
        RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_OPAQUE(&sent), RD_KAFKA_V_END);
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
        rd_kafka_headers_destroy(headers);
        return err_set(err, error == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE ? E_LIMIT : E_UNAVAILABLE,
            "cannot publish to Kafka: %s", rd_kafka_err2str(error));
    }
    await_report(self, &sent, until_ns);
    *ret_sent = sent;
    return sent_status(&sent, err);
}

static enum status publish(struct kafka_source *self, const struct broker_outgoing *message,
    int64_t timeout_ms, char ret_ref[BROKER_ID_BYTES_MAX], struct err *err)
{
    struct sent sent;
    if (self->sends == NULL || self->is_down) {
        return gone(self, err);
    }
    rd_kafka_headers_t *headers = rd_kafka_headers_new(1);
    (void)rd_kafka_header_add(
        headers, "content-type", -1, message->type.data, (ssize_t)message->type.len);
    enum status status = send_one(
        self, topic_of(self), headers, message->key, message->body, timeout_ms, &sent, err);
    if (status == OK) {
        (void)snprintf(
            ret_ref, BROKER_ID_BYTES_MAX, "%" PRId32 "-%" PRId64, sent.partition, sent.offset);
    } else if (status != E_LIMIT) {
        disconnect(self); /* a fatal error of the idempotent producer needs a new one */
    }
    return status;
}

static enum status park(struct kafka_source *self, const struct broker_message *message,
    const char *reason, struct err *err)
{
    char topic[BROKER_TEXT_BYTES_MAX + 8];
    rd_kafka_message_t *original = self->held[message - self->messages];
    rd_kafka_headers_t *headers = NULL;
    struct sent sent;
    enum status status = self->takes == NULL ? gone(self, err) : ready_to_send(self, err);
    if (status != OK) {
        return status;
    }
    if (rd_kafka_message_headers(original, &headers) == RD_KAFKA_RESP_ERR_NO_ERROR) {
        headers = rd_kafka_headers_copy(headers);
    } else {
        headers = rd_kafka_headers_new(2);
    }
    (void)rd_kafka_header_add(headers, "once-reason", -1, reason, -1);
    (void)rd_kafka_header_add(
        headers, "once-message", -1, message->id.data, (ssize_t)message->id.len);
    (void)snprintf(topic, sizeof topic, "%s.parked", topic_of(self));
    status = send_one(self, topic, headers, slice_of(original->key, original->key_len),
        message->body, 2 * ANSWER_MS, &sent, err);
    if (status != OK) {
        disconnect(self);
        return E_UNAVAILABLE;
    }
    return acknowledge(self, &message->id, 1, err);
}

/* ---- the end ------------------------------------------------------------------------------- */

static void close_source(struct kafka_source *self)
{
    if (self == NULL) {
        return;
    }
    if (self->takes != NULL) {
        drop_held(self);
        (void)commit(self, false);
        (void)rd_kafka_consumer_close(self->takes);
    }
    disconnect(self);
    drop_held(self);
    arena_release(&self->arena);
    (void)close(self->arrived_fd);
    broker_source_free(self, sizeof *self);
}

/* Any time well below POLL_EVERY_MS. */
__attribute__((visibility("default"))) extern const struct broker_module once_broker;
const struct broker_module once_broker = {.interface = BROKER_INTERFACE,
    .name = "kafka",
    .ids_last = true,
    .extend_every_ms_max = 1000,
    BROKER_FUNCTIONS};
