#include "lib/lib_help.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char *store_kind = "mem";

void place_init(struct place *where)
{
    memset(where, 0, sizeof *where);
    if (strcmp(store_kind, "mem") == 0) {
        (void)snprintf(where->url, sizeof where->url, "mem:");
        return;
    }
    (void)snprintf(where->directory, sizeof where->directory, "/tmp/once-lib-XXXXXX");
    assert_non_null(mkdtemp(where->directory));
    (void)snprintf(where->url, sizeof where->url, "journal:%s/data", where->directory);
}

static int remove_one(const char *path, const struct stat *stat, int type, struct FTW *walk)
{
    (void)stat;
    (void)type;
    (void)walk;
    return remove(path);
}

void place_release(struct place *where)
{
    if (where->directory[0] != '\0') {
        assert_int_equal(nftw(where->directory, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
    }
}

struct once *open_url(const char *url, const char *tenant)
{
    struct once *handle;
    struct once_error error;
    struct once_options options = {.store = url, .tenant = tenant};
    if (once_open(&options, &handle, &error) != ONCE_OK) {
        fail_msg("open %s: %s", url, error.text);
    }
    return handle;
}

void close_once(struct once *handle)
{
    struct once_error error;
    if (once_close(handle, &error) != ONCE_OK) {
        fail_msg("close: %s", error.text);
    }
}

struct once_answer *begin_with(struct once *handle, const struct once_begin *begin)
{
    struct once_answer *answer;
    struct once_error error;
    if (once_begin(handle, begin, &answer, &error) != ONCE_OK) {
        fail_msg("begin '%s': %s", begin->key, error.text);
    }
    return answer;
}

struct once_answer *begin_key(struct once *handle, const char *key, const char *payload)
{
    return begin_with(handle,
        &(struct once_begin){.scope = "test", .key = key, .payload = {payload, strlen(payload)}});
}

struct once_answer *seal_text(
    struct once *handle, const struct once_answer *grant, const char *body)
{
    struct once_answer *answer;
    struct once_error error;
    struct once_seal seal = {
        .operation_id = grant->operation_id,
        .fence = grant->fence,
        .status = ONCE_EXECUTED,
        .outcome = {.code = 200, .body = {body, strlen(body)}},
    };
    if (once_seal(handle, &seal, &answer, &error) != ONCE_OK) {
        fail_msg("seal: %s", error.text);
    }
    return answer;
}

struct once_operation *get_one(struct once *handle, const char *operation_id)
{
    struct once_operation *operation;
    struct once_error error;
    if (once_get(handle, operation_id, &operation, &error) != ONCE_OK) {
        fail_msg("get: %s", error.text);
    }
    return operation;
}

struct place place;
struct once *once;

int open_place(void **state)
{
    (void)state;
    place_init(&place);
    once = open_url(place.url, NULL);
    return 0;
}

int close_place(void **state)
{
    (void)state;
    close_once(once);
    place_release(&place);
    return 0;
}

void reopen_place(const char *tenant)
{
    close_once(once);
    once = open_url(place.url, tenant);
}

void free_answers(struct once_answer *a, struct once_answer *b, struct once_answer *c)
{
    once_answer_free(once, a);
    once_answer_free(once, b);
    once_answer_free(once, c);
}

int count_entry(void *context, const struct once_entry *entry)
{
    (void)entry;
    ++*(size_t *)context;
    return 0;
}

int count_operation(void *context, const struct once_operation *operation)
{
    (void)operation;
    ++*(size_t *)context;
    return 0;
}

void sleep_ms(int ms)
{
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    while (nanosleep(&left, &left) != 0) {
    }
}
