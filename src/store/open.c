/*
 * Which store a URL means.
 */
#include <string.h>

#include "store/journal/journal.h"
#include "store/journal/verify.h"
#include "store/mem.h"
#include "store/store.h"

/* The text behind "scheme:", or NULL. */
static const char *behind_scheme(const char *url, const char *scheme)
{
    size_t len = strlen(scheme);
    return strncmp(url, scheme, len) == 0 && url[len] == ':' ? url + len + 1 : NULL;
}

/* "word:" in front, as in "postgres://…" or "jornal:…". A path may hold a colon later. */
static bool has_scheme(const char *url)
{
    size_t len = strspn(url, "abcdefghijklmnopqrstuvwxyz0123456789+-");
    return len > 1 && url[len] == ':';
}

/* A URL taken apart. */
struct named {
    bool is_mem;
    const char *journal; /* its path and options, when it is one */
};

static enum status read_url(const char *url, struct named *ret_named, struct err *err)
{
    const char *rest = behind_scheme(url, "mem");
    if (rest != NULL && *rest != '\0') {
        return err_set(err, E_INVALID, "the store URL 'mem:' takes no path, but got '%s'", rest);
    }
    if (rest != NULL) {
        *ret_named = (struct named){.is_mem = true};
        return OK;
    }
    rest = behind_scheme(url, "journal");
    if (rest == NULL && has_scheme(url)) {
        (void)err_set(err, E_INVALID, "the store URL '%s' is of a kind that is not known", url);
        err_hint(err, "there are journal:PATH and mem:");
        return E_INVALID;
    }
    *ret_named = (struct named){.journal = rest == NULL ? url : rest};
    return OK;
}

enum status store_url_check(const char *url, struct err *err)
{
    struct named named = {.journal = NULL};
    enum status status = read_url(url, &named, err);
    return status == OK && !named.is_mem ? journal_url_check(named.journal, err) : status;
}

enum status store_open(
    const char *url, const struct store_options *options, struct store **ret_store, struct err *err)
{
    static const struct store_options none = {0};
    options = options == NULL ? &none : options;
    struct named named = {.journal = NULL};
    enum status status = read_url(url, &named, err);
    if (status != OK) {
        return status;
    }
    return named.is_mem ? store_mem_new(
                              options->mem == NULL ? &mem_libc : options->mem, NULL, ret_store, err)
                        : journal_open(named.journal, options, ret_store, err);
}

enum status store_replay(const char *url, const struct store_options *options, replay_visit visit,
    void *context, struct err *err)
{
    struct named named = {.journal = NULL};
    enum status status = read_url(url == NULL ? "" : url, &named, err);
    if (status == OK && named.is_mem) {
        return err_set(err, E_INVALID, "a store in memory has nothing to verify");
    }
    return status == OK ? journal_verify(named.journal, options, visit, context, err) : status;
}
