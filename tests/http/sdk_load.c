/*
 * sdk_load: many operations through the SDK against a server that fails, counted at this end.
 *
 *     sdk_load URL [operations=2000] [threads=8] [prefix=load] [deadline_ms=60000] [answers]
 *
 * Each operation is a POST of {"n":N} under the key PREFIX-N. Every one has to end with a 2xx;
 * every 20th is sent once more afterwards, and has to be a replay with the same body. The last line
 * is a JSON object of figures. Exit 0: none was lost. Whether each took effect exactly once is for
 * the one behind the URL to say; to compare, `answers` is a file that gets a line "KEY STATUS BODY"
 * for each that was done.
 */
#include <once/client.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { THREADS_MAX = 256, SENT_AGAIN_EVERY = 20, RETRIES = 1000, ATTEMPT_MS = 5000 };

struct load {
    struct once_client *client; /* one for all threads */
    const char *url;
    const char *prefix;
    long operations;
    long deadline_ms;
    FILE *answers;        /* NULL: nobody compares */
    atomic_long next;     /* the next operation to take */
    atomic_long done;     /* ended with 2xx */
    atomic_long replayed; /* of these, by an answer of an earlier attempt */
    atomic_long attempts;
    atomic_long failures; /* anything that should not be */
};

static struct once_send make(const struct load *load, long number, char key[128], char body[64])
{
    int size = snprintf(body, 64, "{\"n\":%ld}", number);
    (void)snprintf(key, 128, "%s-%ld", load->prefix, number);
    return (struct once_send){
        .method = "POST",
        .url = load->url,
        .body = {body, (size_t)size},
        .idempotency_key = key,
        .retries = RETRIES,
        .deadline_ms = load->deadline_ms,
        .attempt_timeout_ms = ATTEMPT_MS,
    };
}

/* NULL when it did not end with 2xx, which is counted. */
static struct once_response *send_one(struct load *load, const struct once_send *send)
{
    struct once_response *response = NULL;
    struct once_error error;
    int result = once_client_send(load->client, send, &response, &error);
    if (response != NULL) {
        load->attempts += response->attempts;
    }
    if (result == ONCE_OK && response->status / 100 == 2) {
        return response;
    }
    load->failures++;
    fprintf(stderr, "%s: %s, status %d, effect %s, %d attempts\n", send->idempotency_key,
        result == ONCE_OK ? "answered" : error.text, response == NULL ? 0 : response->status,
        response == NULL ? "no" : once_effect_name(response->effect),
        response == NULL ? 0 : response->attempts);
    once_response_free(load->client, response);
    return NULL;
}

static void send_again(
    struct load *load, const struct once_send *send, const struct once_response *first)
{
    struct once_response *again = send_one(load, send);
    if (again == NULL) {
        return;
    }
    if (!again->is_replayed || again->status != first->status ||
        again->body.size != first->body.size ||
        memcmp(again->body.data, first->body.data, first->body.size) != 0) {
        load->failures++;
        fprintf(stderr, "%s: sent again, it is not the same\n", send->idempotency_key);
    }
    once_response_free(load->client, again);
}

/* One call a line: stdio keeps them apart. */
static void write_down(struct load *load, const char *key, const struct once_response *response)
{
    if (load->answers != NULL &&
        fprintf(load->answers, "%s %d %.*s\n", key, response->status, (int)response->body.size,
            (const char *)response->body.data) < 0) {
        load->failures++;
    }
}

static void *work(void *context)
{
    struct load *load = context;
    char key[128];
    char body[64];
    for (long n = load->next++; n < load->operations; n = load->next++) {
        struct once_send send = make(load, n, key, body);
        struct once_response *response = send_one(load, &send);
        if (response == NULL) {
            continue;
        }
        load->done++;
        load->replayed += response->is_replayed;
        write_down(load, key, response);
        if (response->effect != ONCE_EFFECT_YES) {
            load->failures++;
            fprintf(stderr, "%s: 2xx and effect %s\n", key, once_effect_name(response->effect));
        }
        if (n % SENT_AGAIN_EVERY == 0) {
            send_again(load, &send, response);
        }
        once_response_free(load->client, response);
    }
    return NULL;
}

static void run(struct load *load, int threads)
{
    pthread_t started[THREADS_MAX];
    int count = 0;
    while (count < threads && pthread_create(&started[count], NULL, work, load) == 0) {
        count++;
    }
    load->failures += count == 0;
    for (int i = 0; i < count; i++) {
        (void)pthread_join(started[i], NULL);
    }
}

static double now_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static long number_of(int argc, char **argv, int at, long fallback)
{
    return argc > at ? strtol(argv[at], NULL, 10) : fallback;
}

int main(int argc, char **argv)
{
    struct once_client_options options = {
        .backoff_base_ms = 5, .backoff_max_ms = 200, .idle_max = THREADS_MAX};
    struct once_error error;
    struct load load = {
        .url = argc > 1 ? argv[1] : NULL,
        .operations = number_of(argc, argv, 2, 2000),
        .prefix = argc > 4 ? argv[4] : "load",
        .deadline_ms = number_of(argc, argv, 5, 60000),
    };
    long threads = number_of(argc, argv, 3, 8);
    if (load.url == NULL || threads < 1 || threads > THREADS_MAX) {
        fprintf(stderr,
            "usage: sdk_load URL [operations] [threads] [prefix] [deadline_ms] [answers]\n");
        return 64;
    }
    load.answers = argc > 6 ? fopen(argv[6], "w") : NULL;
    if (argc > 6 && load.answers == NULL) {
        perror(argv[6]);
        return 69;
    }
    if (once_client_new(&options, &load.client, &error) != ONCE_OK) {
        fprintf(stderr, "sdk_load: %s\n", error.text);
        return 69;
    }
    double began = now_s();
    run(&load, (int)threads);
    double seconds = now_s() - began;
    once_client_free(load.client);
    load.failures += load.answers != NULL && fclose(load.answers) != 0;
    printf("{\"operations\":%ld,\"done\":%ld,\"replayed\":%ld,\"attempts\":%ld,\"failures\":%ld,"
           "\"seconds\":%.2f,\"per_second\":%.0f}\n",
        load.operations, (long)load.done, (long)load.replayed, (long)load.attempts,
        (long)load.failures, seconds, (double)load.done / seconds);
    return load.done == load.operations && load.failures == 0 ? 0 : 1;
}
