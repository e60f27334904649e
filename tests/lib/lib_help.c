#include "lib/lib_help.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char *store_kind = "mem";

void place_init(struct place *place)
{
    memset(place, 0, sizeof *place);
    if (strcmp(store_kind, "mem") == 0) {
        (void)snprintf(place->url, sizeof place->url, "mem:");
        return;
    }
    (void)snprintf(place->directory, sizeof place->directory, "/tmp/once-lib-XXXXXX");
    assert_non_null(mkdtemp(place->directory));
    (void)snprintf(place->url, sizeof place->url, "journal:%s/data", place->directory);
}

static int remove_one(const char *path, const struct stat *stat, int type, struct FTW *walk)
{
    (void)stat;
    (void)type;
    (void)walk;
    return remove(path);
}

void place_release(struct place *place)
{
    if (place->directory[0] != '\0') {
        assert_int_equal(nftw(place->directory, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
    }
}

struct once *open_url(const char *url, const char *tenant)
{
    struct once *once;
    struct once_error error;
    struct once_options options = {.store = url, .tenant = tenant};
    if (once_open(&options, &once, &error) != ONCE_OK) {
        fail_msg("open %s: %s", url, error.text);
    }
    return once;
}

void close_once(struct once *once)
{
    struct once_error error;
    if (once_close(once, &error) != ONCE_OK) {
        fail_msg("close: %s", error.text);
    }
}

struct once_answer *begin_with(struct once *once, const struct once_begin *begin)
{
    struct once_answer *answer;
    struct once_error error;
    if (once_begin(once, begin, &answer, &error) != ONCE_OK) {
        fail_msg("begin '%s': %s", begin->key, error.text);
    }
    return answer;
}

struct once_answer *begin_key(struct once *once, const char *key, const char *payload)
{
    return begin_with(once,
        &(struct once_begin){.scope = "test", .key = key, .payload = {payload, strlen(payload)}});
}

struct once_answer *seal_text(struct once *once, const struct once_answer *grant, const char *body)
{
    struct once_answer *answer;
    struct once_error error;
    struct once_seal seal = {
        .operation_id = grant->operation_id,
        .fence = grant->fence,
        .status = ONCE_EXECUTED,
        .outcome = {.code = 200, .body = {body, strlen(body)}},
    };
    if (once_seal(once, &seal, &answer, &error) != ONCE_OK) {
        fail_msg("seal: %s", error.text);
    }
    return answer;
}

struct once_operation *get_one(struct once *once, const char *operation_id)
{
    struct once_operation *operation;
    struct once_error error;
    if (once_get(once, operation_id, &operation, &error) != ONCE_OK) {
        fail_msg("get: %s", error.text);
    }
    return operation;
}

void sleep_ms(int ms)
{
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    while (nanosleep(&left, &left) != 0) {
    }
}
