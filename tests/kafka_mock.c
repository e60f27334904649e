/*
 * kafka_mock: a cluster of Kafka for the tests: librdkafka's own mock, in a process of its own.
 *
 * Prints the addresses of its brokers. Then a command a line is read from stdin, and answered by
 * lines of which the last is ".". Texts are hex, "-" for an empty one.
 *
 *     topic NAME PARTITIONS
 *     produce TOPIC PARTITION KEY VALUE [NAME=VALUE …]    PARTITION OFFSET
 *     read TOPIC                                          PARTITION OFFSET KEY VALUE NAME=VALUE …
 *     committed TOPIC GROUP                               PARTITION COMMITTED LOW HIGH
 *     down, up                                            all brokers
 *     rtt MS                                              how long each answer takes
 *     fail CODE COUNT                                     the next COUNT answers to Produce
 */
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BROKERS = 3, LINE_BYTES = 32 << 20, WORDS_MAX = 80, PARTS_MAX = 64, WAIT_MS = 10000 };

static rd_kafka_t *owner; /* of the cluster; and the tests' producer */
static rd_kafka_mock_cluster_t *cluster;

/* Decoded in place; returns its length. */
static size_t from_hex(char *text)
{
    size_t len = strcmp(text, "-") == 0 ? 0 : strlen(text) / 2;
    for (size_t i = 0; i < len; i++) {
        char digits[3] = {text[2 * i], text[2 * i + 1], '\0'};
        text[i] = (char)strtoul(digits, NULL, 16);
    }
    text[len] = '\0';
    return len;
}

static void put_hex(const void *data, size_t len)
{
    const unsigned char *bytes = data;
    if (len == 0) {
        (void)putchar('-');
    }
    for (size_t i = 0; i < len; i++) {
        (void)printf("%02x", bytes[i]);
    }
}

static int partitions_of(const char *topic)
{
    const struct rd_kafka_metadata *metadata = NULL;
    rd_kafka_topic_t *handle = rd_kafka_topic_new(owner, topic, NULL);
    int count = 0;
    if (rd_kafka_metadata(owner, 0, handle, &metadata, WAIT_MS) == RD_KAFKA_RESP_ERR_NO_ERROR) {
        count = metadata->topic_cnt == 1 ? metadata->topics[0].partition_cnt : 0;
        rd_kafka_metadata_destroy(metadata);
    }
    rd_kafka_topic_destroy(handle);
    return count < PARTS_MAX ? count : PARTS_MAX;
}

static void on_report(rd_kafka_t *client, const rd_kafka_message_t *message, void *context)
{
    (void)client;
    (void)context;
    if (message->_private == NULL) {
        return;
    }
    *(int *)message->_private = 1;
    if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
        (void)printf("error %s\n", rd_kafka_err2str(message->err));
    } else {
        (void)printf("%d %lld\n", message->partition, (long long)message->offset);
    }
}

static void produce(char **words, int count)
{
    int is_over = 0;
    size_t key_len = from_hex(words[3]);
    size_t len = from_hex(words[4]);
    rd_kafka_headers_t *headers = rd_kafka_headers_new(8);
    for (int i = 5; i < count; i++) {
        char *value = strchr(words[i], '=');
        *value++ = '\0';
        (void)from_hex(words[i]);
        size_t size = from_hex(value);
        (void)rd_kafka_header_add(headers, words[i], -1, value, (ssize_t)size);
    }
    rd_kafka_resp_err_t error = __extension__ rd_kafka_producev(owner, RD_KAFKA_V_TOPIC(words[1]),
        RD_KAFKA_V_PARTITION(atoi(words[2])), RD_KAFKA_V_KEY(words[3], key_len),
        RD_KAFKA_V_VALUE(words[4], len), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
        RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_OPAQUE(&is_over), RD_KAFKA_V_END);
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
        (void)printf("error %s\n", rd_kafka_err2str(error));
        return;
    }
    while (!is_over) {
        (void)rd_kafka_poll(owner, 100);
    }
}

static rd_kafka_t *reader_new(const char *group)
{
    char why[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    (void)rd_kafka_conf_set(
        conf, "bootstrap.servers", rd_kafka_mock_cluster_bootstraps(cluster), why, sizeof why);
    (void)rd_kafka_conf_set(conf, "group.id", group, why, sizeof why);
    (void)rd_kafka_conf_set(conf, "enable.auto.commit", "false", why, sizeof why);
    (void)rd_kafka_conf_set(conf, "enable.partition.eof", "true", why, sizeof why);
    (void)rd_kafka_conf_set(conf, "auto.offset.reset", "earliest", why, sizeof why);
    rd_kafka_t *reader = rd_kafka_new(RD_KAFKA_CONSUMER, conf, why, sizeof why);
    if (reader == NULL) {
        (void)fprintf(stderr, "no consumer: %s\n", why);
        exit(1);
    }
    (void)rd_kafka_poll_set_consumer(reader);
    return reader;
}

static void put_message(const rd_kafka_message_t *message)
{
    rd_kafka_headers_t *headers = NULL;
    const char *name = NULL;
    const void *value = NULL;
    size_t size = 0;
    (void)printf("%d %lld ", message->partition, (long long)message->offset);
    put_hex(message->key, message->key_len);
    (void)putchar(' ');
    put_hex(message->payload, message->len);
    if (rd_kafka_message_headers(message, &headers) == RD_KAFKA_RESP_ERR_NO_ERROR) {
        for (size_t i = 0; rd_kafka_header_get_all(headers, i, &name, &value, &size) ==
                           RD_KAFKA_RESP_ERR_NO_ERROR;
             i++) {
            (void)putchar(' ');
            put_hex(name, strlen(name));
            (void)putchar('=');
            if (size > 0) {
                put_hex(value, size);
            }
        }
    }
    (void)putchar('\n');
}

static void read_topic(const char *topic)
{
    rd_kafka_t *reader = reader_new("reader");
    int count = partitions_of(topic);
    int ends = 0;
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(count);
    for (int i = 0; i < count; i++) {
        rd_kafka_topic_partition_list_add(list, topic, i)->offset = RD_KAFKA_OFFSET_BEGINNING;
    }
    (void)rd_kafka_assign(reader, list);
    rd_kafka_topic_partition_list_destroy(list);
    for (int tries = 0; ends < count && tries < 100000; tries++) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(reader, 100);
        if (message != NULL && message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
            put_message(message);
        }
        ends += message != NULL && message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF;
        if (message != NULL) {
            rd_kafka_message_destroy(message);
        }
    }
    (void)rd_kafka_consumer_close(reader);
    rd_kafka_destroy(reader);
}

static void committed(const char *topic, const char *group)
{
    rd_kafka_t *reader = reader_new(group);
    int count = partitions_of(topic);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(count);
    for (int i = 0; i < count; i++) {
        rd_kafka_topic_partition_list_add(list, topic, i);
    }
    rd_kafka_resp_err_t error = rd_kafka_committed(reader, list, WAIT_MS);
    for (int i = 0; error == RD_KAFKA_RESP_ERR_NO_ERROR && i < count; i++) {
        int64_t low = 0;
        int64_t high = 0;
        error = rd_kafka_query_watermark_offsets(reader, topic, i, &low, &high, WAIT_MS);
        (void)printf("%d %lld %lld %lld\n", i, (long long)list->elems[i].offset, (long long)low,
            (long long)high);
    }
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
        (void)printf("error %s\n", rd_kafka_err2str(error));
    }
    rd_kafka_topic_partition_list_destroy(list);
    rd_kafka_destroy(reader);
}

static void set_down(int is_down)
{
    for (int i = 1; i <= BROKERS; i++) {
        (void)(is_down ? rd_kafka_mock_broker_set_down(cluster, i)
                       : rd_kafka_mock_broker_set_up(cluster, i));
    }
}

static void fail_produce(int code, int count)
{
    for (int i = 0; i < count; i++) {
        rd_kafka_mock_push_request_errors(cluster, 0 /* Produce */, 1, (rd_kafka_resp_err_t)code);
    }
}

static void obey(char **words, int count)
{
    if (strcmp(words[0], "topic") == 0 && count == 3) {
        (void)rd_kafka_mock_topic_create(cluster, words[1], atoi(words[2]), BROKERS);
    } else if (strcmp(words[0], "produce") == 0 && count >= 5) {
        produce(words, count);
    } else if (strcmp(words[0], "read") == 0 && count == 2) {
        read_topic(words[1]);
    } else if (strcmp(words[0], "committed") == 0 && count == 3) {
        committed(words[1], words[2]);
    } else if (strcmp(words[0], "down") == 0 || strcmp(words[0], "up") == 0) {
        set_down(words[0][0] == 'd');
    } else if (strcmp(words[0], "rtt") == 0 && count == 2) {
        for (int i = 1; i <= BROKERS; i++) {
            (void)rd_kafka_mock_broker_set_rtt(cluster, i, atoi(words[1]));
        }
    } else if (strcmp(words[0], "fail") == 0 && count == 3) {
        fail_produce(atoi(words[1]), atoi(words[2]));
    } else {
        (void)printf("error no such command\n");
    }
}

static rd_kafka_t *owner_new(void)
{
    char why[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    (void)rd_kafka_conf_set(conf, "test.mock.num.brokers", "3", why, sizeof why);
    (void)rd_kafka_conf_set(conf, "linger.ms", "0", why, sizeof why);
    (void)rd_kafka_conf_set(conf, "message.max.bytes", "16777216", why, sizeof why);
    rd_kafka_conf_set_dr_msg_cb(conf, on_report);
    return rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof why);
}

int main(void)
{
    char *line = malloc(LINE_BYTES);
    owner = owner_new();
    cluster = owner == NULL ? NULL : rd_kafka_handle_mock_cluster(owner);
    if (cluster == NULL || line == NULL) {
        return 1;
    }
    (void)printf("%s\n", rd_kafka_mock_cluster_bootstraps(cluster));
    (void)fflush(stdout);
    while (fgets(line, LINE_BYTES, stdin) != NULL) {
        char *words[WORDS_MAX];
        int count = 0;
        for (char *at = strtok(line, " \n"); at != NULL && count < WORDS_MAX;
             at = strtok(NULL, " \n")) {
            words[count++] = at;
        }
        if (count > 0) {
            obey(words, count);
        }
        (void)printf(".\n");
        (void)fflush(stdout);
    }
    free(line);
    rd_kafka_destroy(owner);
    return 0;
}
