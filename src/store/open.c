/*
 * Which store a URL means.
 */
#include <string.h>

#include "store/journal/journal.h"
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

enum status store_open(
    const char *url, const struct store_options *options, struct store **ret_store, struct err *err)
{
    static const struct store_options none = {0};
    options = options == NULL ? &none : options;
    const char *rest = behind_scheme(url, "mem");
    if (rest != NULL) {
        return *rest == '\0' ? store_mem_new(options->mem == NULL ? &mem_libc : options->mem, NULL,
                                   ret_store, err)
                             : err_set(err, E_INVALID,
                                   "the store URL 'mem:' takes no path, but got '%s'", rest);
    }
    rest = behind_scheme(url, "journal");
    if (rest == NULL && has_scheme(url)) {
        (void)err_set(err, E_INVALID, "the store URL '%s' is of a kind that is not known", url);
        err_hint(err, "there are journal:PATH and mem:");
        return E_INVALID;
    }
    return journal_open(rest == NULL ? url : rest, options, ret_store, err);
}
