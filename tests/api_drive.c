#include "api_drive.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "http/problem.h"
#include "http/write.h"

enum { DRIVE_BYTES_MAX = 256 << 20 };

/* ---- the server's side --------------------------------------------------------------------- */

struct play {
    struct http_exchange exchange; /* first, so that the exchange's pointer is ours */
    struct http_head head;
    struct arena arena;
    struct reply *reply;
    char *fields;
    size_t fields_len;
    FILE *fields_file;
    bool is_answered;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned wakes; /* not yet followed */
};

static struct play *play_of(struct http_exchange *exchange)
{
    return (struct play *)(void *)exchange;
}

void http_answer_begin(struct http_exchange *exchange, unsigned status)
{
    ASSERT(exchange->status == 0);
    exchange->status = status;
}

void http_answer_field(struct http_exchange *exchange, struct slice name, struct slice value)
{
    ASSERT(exchange->status != 0);
    (void)fprintf(
        play_of(exchange)->fields_file, "%.*s: %.*s\n", SLICE_ARGS(name), SLICE_ARGS(value));
}

void http_answer_close(struct http_exchange *exchange)
{
    (void)exchange;
}

void http_answer_end(
    struct http_exchange *exchange, struct slice content_type, struct slice body, bool is_stable)
{
    struct play *play = play_of(exchange);
    (void)is_stable;
    ASSERT(!play->is_answered);
    play->is_answered = true;
    play->reply->status = exchange->status;
    play->reply->content_type = content_type;
    play->reply->text = calloc(1, body.len + 1);
    ASSERT(play->reply->text != NULL);
    memcpy(play->reply->text, body.data == NULL ? "" : body.data, body.len);
}

void http_wake(struct http_exchange *exchange)
{
    struct play *play = play_of(exchange);
    (void)pthread_mutex_lock(&play->lock);
    play->wakes++;
    (void)pthread_cond_signal(&play->changed);
    (void)pthread_mutex_unlock(&play->lock);
}

static const char *const effects[] = {"no", "yes", "unknown"};
static const char *const retries[] = {"safe", "after", "no"};

__attribute__((weak)) void problem_put(
    struct buf *out, const struct problem *problem, struct slice request_id)
{
    buf_printf(out,
        "{\"type\":\"/docs/problems.md#%s\",\"title\":\"%s\",\"status\":%u,\"code\":\"%s\","
        "\"effect\":\"%s\",\"retry\":\"%s\",\"request_id\":\"%.*s\"",
        problem->code, http_status_phrase(problem->status), problem->status, problem->code,
        effects[problem->effect], retries[problem->retry], SLICE_ARGS(request_id));
    if (problem->operation_id.len > 0) {
        buf_printf(out, ",\"operation_id\":\"%.*s\"", SLICE_ARGS(problem->operation_id));
    }
    buf_str(out, ",\"detail\":\"");
    for (size_t i = 0; i < problem->detail.len; i++) {
        char c = problem->detail.data[i];
        buf_char(out, c == '"' || c == '\\' || (unsigned char)c < 0x20 ? '?' : c);
    }
    buf_char(out, '"');
    if (problem->extra.len > 0) {
        buf_char(out, ',');
        buf_slice(out, problem->extra);
    }
    buf_char(out, '}');
}

__attribute__((weak)) void problem_answer(
    struct http_exchange *exchange, const struct problem *problem)
{
    struct buf out;
    buf_init(&out, &mem_libc, DRIVE_BYTES_MAX);
    problem_put(&out, problem, exchange->request_id);
    http_answer_begin(exchange, problem->status);
    if (problem->retry_after_ms > 0) {
        char text[24];
        (void)snprintf(text, sizeof text, "%d", (int)(problem->retry_after_ms + 999) / 1000);
        http_answer_field(exchange, SLICE_LIT("Retry-After"), slice_str(text));
    }
    http_answer_end(exchange, SLICE_LIT("application/problem+json"), buf_view(&out), false);
    buf_release(&out);
}

/* ---- asking -------------------------------------------------------------------------------- */

static void play_head(struct play *play, const char *method, const char *target,
    const char *headers, struct slice body)
{
    struct http_limits limits = HTTP_LIMITS_DEFAULT;
    struct http_refusal refusal;
    char *text = NULL;
    int len = asprintf(&text, "%s %s HTTP/1.1\r\nHost: once\r\n%sContent-Length: %zu\r\n\r\n",
        method, target, headers == NULL ? "" : headers, body.len);
    ASSERT(len > 0);
    struct slice head;
    ASSERT(arena_copy(&play->arena, slice_of(text, (size_t)len), &head) == OK);
    free(text);
    http_head_init(&play->head);
    if (http_request_head(head, &limits, &play->head, &refusal) != HTTP_DONE) {
        (void)fprintf(stderr, "the test's own request is refused: %s\n", refusal.reason);
        abort();
    }
}

static void play_run(struct play *play, struct house *house)
{
    api_handle(house->api, &play->exchange);
    door_turn(house->door, 0);
    while (!play->is_answered) {
        (void)pthread_mutex_lock(&play->lock);
        while (play->wakes == 0) {
            (void)pthread_cond_wait(&play->changed, &play->lock);
        }
        play->wakes--;
        (void)pthread_mutex_unlock(&play->lock);
        play->exchange.resume(house->api, &play->exchange);
    }
    ASSERT(play->wakes == 0);
    door_turn(house->door, 0);
}

void house_ask(struct house *house, const char *method, const char *target, const char *headers,
    struct slice body, struct reply *ret_reply)
{
    struct play play = {.reply = ret_reply};
    struct arena exchange_arena;
    *ret_reply = (struct reply){.status = 0};
    arena_init(&ret_reply->arena, &mem_libc, DRIVE_BYTES_MAX);
    arena_init(&play.arena, &mem_libc, DRIVE_BYTES_MAX);
    arena_init(&exchange_arena, house->mem, DRIVE_BYTES_MAX);
    (void)pthread_mutex_init(&play.lock, NULL);
    (void)pthread_cond_init(&play.changed, NULL);
    play.fields_file = open_memstream(&play.fields, &play.fields_len);
    play_head(&play, method, target, headers, body);
    struct slice request_id = SLICE_LIT("req-1");
    (void)!http_find_single(&play.head, SLICE_LIT("Request-Id"), &request_id);
    play.exchange = (struct http_exchange){.head = &play.head,
        .body = body,
        .request_id = request_id,
        .peer = SLICE_LIT("unix"),
        .started_nanos = clock_nanos(),
        .arena = &exchange_arena};
    play_run(&play, house);
    (void)fclose(play.fields_file);
    ret_reply->fields = play.fields;
    arena_release(&exchange_arena);
    arena_release(&play.arena);
    (void)pthread_cond_destroy(&play.changed);
    (void)pthread_mutex_destroy(&play.lock);
    if (json_read(slice_str(ret_reply->text), &ret_reply->arena, &ret_reply->json, NULL) != OK) {
        ret_reply->json = NULL;
    }
}

void reply_release(struct reply *reply)
{
    free(reply->fields);
    free(reply->text);
    arena_release(&reply->arena);
}

/* ---- looking at an answer ------------------------------------------------------------------ */

static const struct json_value *step(const struct json_value *value, struct slice name)
{
    if (json_is(value, JSON_ARRAY)) {
        if (name.data[0] < '0' || name.data[0] > '9') {
            return NULL;
        }
        size_t at = (size_t)strtoul(name.data, NULL, 10);
        return at < value->count ? &value->items[at] : NULL;
    }
    return json_find(value, name);
}

const char *reply_get(struct reply *reply, const char *path)
{
    const struct json_value *value = reply->json;
    while (value != NULL && *path != '\0') {
        size_t len = strcspn(path, "/");
        value = step(value, slice_of(path, len));
        path += len + (path[len] == '/');
    }
    if (value == NULL) {
        return "(none)";
    }
    switch (value->type) {
    case JSON_NULL: return "null";
    case JSON_TRUE: return "true";
    case JSON_FALSE: return "false";
    case JSON_ARRAY: return "[";
    case JSON_OBJECT: return "{";
    case JSON_NUMBER:
    case JSON_STRING: break;
    }
    struct slice text = json_text(value);
    char *copy = arena_alloc(&reply->arena, text.len + 1);
    ASSERT(copy != NULL);
    memcpy(copy, text.data, text.len);
    copy[text.len] = '\0';
    return copy;
}

const char *reply_field(struct reply *reply, const char *name)
{
    const char *at = reply->fields;
    size_t len = strlen(name);
    while (at != NULL && *at != '\0') {
        const char *end = strchr(at, '\n');
        if (strncmp(at, name, len) == 0 && at[len] == ':') {
            struct slice value;
            ASSERT(arena_copy(&reply->arena,
                       slice_of(at + len + 2, (size_t)(end - at) - len - 2 + 1), &value) == OK);
            char *copy = arena_alloc(&reply->arena, value.len);
            memcpy(copy, value.data, value.len - 1);
            copy[value.len - 1] = '\0';
            return copy;
        }
        at = end + 1;
    }
    return "(none)";
}

/* ---- a door -------------------------------------------------------------------------------- */

struct api_policy house_policy(void)
{
    return (struct api_policy){.body_bytes_max = 10 << 20,
        .outcome_bytes_max = 16 << 20,
        .duplicate_rate = 0,
        .logs_decisions = true};
}

enum status house_open(struct house *house, const struct mem *mem, const struct api_policy *policy)
{
    return house_open_with(house, mem, policy, NULL);
}

enum status house_open_with(struct house *house, const struct mem *mem,
    const struct api_policy *policy, struct api_routes (*routes)(struct house *house))
{
    struct store *store = NULL;
    struct store_options store_options = {.mem = mem};
    struct engine_options engine_options = {.mem = mem};
    *house = (struct house){.mem = mem};
    enum status status = store_open("mem:", &store_options, &store, NULL);
    status = status == OK ? engine_new(store, &engine_options, &house->engine, NULL) : status;
    struct door_options door_options = {.mem = mem, .engine = house->engine, .slots = 1};
    status = status == OK ? door_new(&door_options, &house->door, NULL) : status;
    struct api_routes more;
    if (status == OK && routes != NULL) {
        more = routes(house);
    }
    struct api_options options = {.mem = mem,
        .routes = &more,
        .routes_count = routes != NULL,
        .door = house->door,
        .own_listener = UINT32_MAX,
        .store = "mem:",
        .policy = *policy};
    status = status == OK ? api_new(&options, &house->api, NULL) : status;
    if (status != OK) {
        house_close(house);
    }
    return status;
}

void house_close(struct house *house)
{
    api_free(house->api);
    door_free(house->door);
    (void)engine_free(house->engine, NULL);
    *house = (struct house){0};
}

/* Nobody looks at the figures of a server that is not there. */
__attribute__((weak)) void http_server_stats(
    struct http_server *server, struct http_server_stats *ret_stats)
{
    (void)server;
    *ret_stats = (struct http_server_stats){0};
}
