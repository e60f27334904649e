#include "client/client.h"

#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/rand.h"
#include "base/slice.h"
#include "base/uuid.h"

static_assert((int)ONCE_OK == (int)OK, "public numbers are our own");
static_assert((int)ONCE_E_UNKNOWN == (int)E_UNKNOWN, "public numbers");
static_assert((int)ONCE_E_MISUSE == (int)E_MISUSE, "public numbers");
static_assert(sizeof((struct once_error *)0)->text == ERR_TEXT_BYTES_MAX, "texts are copied whole");
static_assert((int)ONCE_CLIENT_KEY_SIZE == (int)UUID_TEXT_BYTES, "a key is a UUID");

int client_error(struct once_error *error, enum status status, const struct err *err)
{
    if (error == NULL) {
        return (int)status;
    }
    memset(error, 0, sizeof *error);
    error->result = (int)status;
    if (status == OK) {
        return ONCE_OK;
    }
    if (err->text[0] != '\0') {
        memcpy(error->text, err->text, sizeof error->text);
        memcpy(error->hint, err->hint, sizeof error->hint);
    } else {
        const char *text = status == E_NOMEM ? "out of memory" : status_name(status);
        memcpy(error->text, text, strlen(text) + 1);
    }
    return (int)status;
}

/* ---- the world --------------------------------------------------------------------------- */

static int world_random(void *context, void *bytes, size_t size)
{
    struct err err = {0};
    (void)context;
    return rand_bytes(bytes, size, &err) == OK ? 0 : -1;
}

static int world_sleep(void *context, int64_t ms)
{
    (void)context;
    clock_sleep_ms(ms);
    return 0;
}

static int64_t world_steady_ms(void *context)
{
    (void)context;
    return (int64_t)(clock_nanos() / 1000000);
}

int64_t client_wall_ms(const struct once_client *client)
{
    const struct once_client_options *options = &client->options;
    return options->wall_ms == NULL ? clock_read(&client->clock).wall_ms
                                    : options->wall_ms(options->world_context);
}

enum status client_random(
    const struct once_client *client, void *ret_bytes, size_t size, struct err *err)
{
    const struct once_client_options *options = &client->options;
    return options->random(options->world_context, ret_bytes, size) == 0
               ? OK
               : err_set(err, E_UNAVAILABLE, "cannot get random bytes");
}

/* ---- options ----------------------------------------------------------------------------- */

static int64_t or_ms(int64_t given, int64_t fallback)
{
    return given == 0 ? fallback : given;
}

static void fill_defaults(struct once_client_options *options)
{
    options->connect_timeout_ms = or_ms(options->connect_timeout_ms, CLIENT_CONNECT_MS);
    options->backoff_base_ms = or_ms(options->backoff_base_ms, CLIENT_BACKOFF_BASE_MS);
    options->backoff_max_ms = or_ms(options->backoff_max_ms, CLIENT_BACKOFF_MAX_MS);
    if (options->body_bytes_max == 0) {
        options->body_bytes_max = CLIENT_BODY_BYTES_MAX;
    }
    if (options->headers_bytes_max == 0) {
        options->headers_bytes_max = CLIENT_HEADERS_BYTES_MAX;
    }
    options->idle_max = options->idle_max == 0 ? CLIENT_IDLE_MAX : options->idle_max;
    options->random = options->random == NULL ? world_random : options->random;
    options->sleep = options->sleep == NULL ? world_sleep : options->sleep;
    options->steady_ms = options->steady_ms == NULL ? world_steady_ms : options->steady_ms;
    options->user_agent =
        options->user_agent == NULL ? "once-client/" ONCE_VERSION : options->user_agent;
}

static enum status check_ms(const char *name, int64_t ms, struct err *err)
{
    return ms > 0 && ms <= CLIENT_MS_LIMIT
               ? OK
               : err_set(err, E_INVALID, "%s is not between 1 and %d", name, CLIENT_MS_LIMIT);
}

/* A user agent is sent in a header, so it must have no control characters. */
static enum status check_text(const char *name, const char *text, struct err *err)
{
    size_t len = text == NULL ? 0 : strlen(text);
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f) {
            return err_set(err, E_INVALID, "%s has a control character", name);
        }
    }
    return len < CLIENT_TEXT_BYTES_MAX
               ? OK
               : err_set(err, E_INVALID, "%s is longer than %d bytes", name, CLIENT_TEXT_BYTES_MAX);
}

static enum status check_options(const struct once_client_options *options, struct err *err)
{
    enum status status = check_ms("connect_timeout_ms", options->connect_timeout_ms, err);
    status = status == OK ? check_ms("backoff_base_ms", options->backoff_base_ms, err) : status;
    status = status == OK ? check_ms("backoff_max_ms", options->backoff_max_ms, err) : status;
    status = status == OK ? check_text("ca_file", options->ca_file, err) : status;
    status = status == OK ? check_text("user_agent", options->user_agent, err) : status;
    if (status == OK && (options->idle_max < 1 || options->idle_max > CLIENT_IDLE_LIMIT)) {
        status = err_set(err, E_INVALID, "idle_max is not between 1 and %d", CLIENT_IDLE_LIMIT);
    }
    return status;
}

/* ---- making and ending ------------------------------------------------------------------- */

/* Copies a text to *at and moves *at after it. NULL stays NULL. */
static const char *keep_text(char **at, const char *text)
{
    char *kept = *at;
    if (text == NULL) {
        return NULL;
    }
    memcpy(kept, text, strlen(text) + 1);
    *at += strlen(text) + 1;
    return kept;
}

static struct once_client *allocate(
    const struct mem *mem, const struct once_client_options *options)
{
    size_t ca_bytes = options->ca_file == NULL ? 0 : strlen(options->ca_file) + 1;
    size_t texts_bytes = ca_bytes + strlen(options->user_agent) + 1;
    struct once_client *client = mem_zalloc(mem, 1, sizeof *client + texts_bytes);
    if (client == NULL) {
        return NULL;
    }
    char *at = client->texts;
    client->mem = *mem;
    client->options = *options;
    clock_system(&client->clock);
    client->options.ca_file = keep_text(&at, options->ca_file);
    client->options.user_agent = keep_text(&at, options->user_agent);
    client->idle = mem_zalloc(mem, (size_t)options->idle_max, sizeof(CURL *));
    if (client->idle == NULL) {
        mem_free(mem, client);
        return NULL;
    }
    return client;
}

/* The last steps, which have to be taken back by once_client_free. */
static enum status start(struct once_client *client, struct err *err)
{
    enum status status = libcurl_load(err);
    if (status != OK) {
        return status;
    }
    int fault = pthread_mutex_init(&client->lock, NULL);
    if (fault != 0) {
        return err_errno(err, E_UNAVAILABLE, fault, "cannot make a lock");
    }
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        (void)pthread_mutex_destroy(&client->lock);
        return err_set(err, E_NOMEM, "cannot start libcurl: out of memory");
    }
    return OK;
}

static enum status make(
    const struct once_client_options *given, struct once_client **ret_client, struct err *err)
{
    struct once_client_options options = *given;
    struct mem mem = mem_libc;
    if (options.resize != NULL) {
        mem = (struct mem){.resize = options.resize, .context = options.resize_context};
    }
    fill_defaults(&options);
    enum status status = check_options(&options, err);
    if (status != OK) {
        return status;
    }
    struct once_client *client = allocate(&mem, &options);
    if (client == NULL) {
        return E_NOMEM;
    }
    status = start(client, err);
    if (status != OK) {
        mem_free(&mem, client->idle);
        mem_free(&mem, client);
        return status;
    }
    *ret_client = client;
    return OK;
}

int once_client_new(const struct once_client_options *options, struct once_client **ret_client,
    struct once_error *error)
{
    static const struct once_client_options options_default = {0};
    struct err err = {0};
    if (ret_client == NULL) {
        return client_error(error, err_set(&err, E_MISUSE, "ret_client is NULL"), &err);
    }
    *ret_client = NULL;
    return client_error(
        error, make(options == NULL ? &options_default : options, ret_client, &err), &err);
}

void once_client_free(struct once_client *client)
{
    if (client == NULL) {
        return;
    }
    struct mem mem = client->mem;
    struct client_quiet quiet;
    client_quiet_begin(&quiet);
    for (size_t i = 0; i < client->idle_count; i++) {
        curl_easy_cleanup(client->idle[i]);
    }
    client_quiet_end(&quiet);
    curl_global_cleanup();
    (void)pthread_mutex_destroy(&client->lock);
    mem_free(&mem, client->idle);
    mem_free(&mem, client);
}

int once_client_key(
    struct once_client *client, char ret_key[ONCE_CLIENT_KEY_SIZE], struct once_error *error)
{
    unsigned char random[UUID_BYTES];
    struct err err = {0};
    if (client == NULL || ret_key == NULL) {
        return client_error(error, err_set(&err, E_MISUSE, "client or ret_key is NULL"), &err);
    }
    enum status status = client_random(client, random, sizeof random, &err);
    if (status == OK) {
        uuid_v4(random);
        (void)uuid_put(ret_key, random);
    }
    return client_error(error, status, &err);
}

void client_quiet_begin(struct client_quiet *quiet)
{
    sigset_t pipe;
    sigset_t pending;
    (void)sigemptyset(&pipe);
    (void)sigaddset(&pipe, SIGPIPE);
    quiet->was_pending = sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
    (void)pthread_sigmask(SIG_BLOCK, &pipe, &quiet->before);
}

void client_quiet_end(const struct client_quiet *quiet)
{
    static const struct timespec at_once = {0};
    sigset_t pipe;
    (void)sigemptyset(&pipe);
    (void)sigaddset(&pipe, SIGPIPE);
    if (!quiet->was_pending) {
        (void)sigtimedwait(&pipe, NULL, &at_once);
    }
    (void)pthread_sigmask(SIG_SETMASK, &quiet->before, NULL);
}

/* ---- handles ----------------------------------------------------------------------------- */

CURL *client_handle_take(struct once_client *client)
{
    CURL *handle = NULL;
    (void)pthread_mutex_lock(&client->lock);
    if (client->idle_count > 0) {
        handle = client->idle[--client->idle_count]; /* the last one used: its connection is warm */
    }
    (void)pthread_mutex_unlock(&client->lock);
    return handle == NULL ? curl_easy_init() : handle;
}

void client_handle_return(struct once_client *client, CURL *handle)
{
    if (handle == NULL) {
        return;
    }
    curl_easy_reset(handle); /* keeps the connection, forgets every pointer of the attempt */
    (void)pthread_mutex_lock(&client->lock);
    bool has_room = client->idle_count < (size_t)client->options.idle_max;
    if (has_room) {
        client->idle[client->idle_count++] = handle;
    }
    (void)pthread_mutex_unlock(&client->lock);
    if (!has_room) {
        curl_easy_cleanup(handle);
    }
}
