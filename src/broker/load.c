/* Finds the module for a URL. */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "broker/broker.h"

static const struct broker_kind kinds[] = {
    {"redis", "redis rediss redis+sentinel rediss+sentinel", "libhiredis0.14", "libhiredis-dev"},
    {"amqp", "amqp amqps", "librabbitmq4", "librabbitmq-dev"},
    {"nats", "nats nats+tls", "libnats3.4", "libnats-dev"},
    {"kafka", "kafka kafkas", "librdkafka1", "librdkafka-dev"},
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct broker_module *loaded[COUNT(kinds)]; /* guarded by lock */

const struct broker_kind *broker_kind(size_t number)
{
    return number < COUNT(kinds) ? &kinds[number] : NULL;
}

static bool has_scheme(const struct broker_kind *kind, struct slice scheme)
{
    for (const char *at = kind->schemes; *at != '\0';) {
        size_t len = strcspn(at, " ");
        if (slice_equal(scheme, slice_of(at, len))) {
            return true;
        }
        at += len + (at[len] == ' ');
    }
    return false;
}

/* Next to the program, as in the build tree; else where the library is installed. */
static bool path_of(const char *name, char ret_path[PATH_MAX])
{
    char program[PATH_MAX];
    const char *given = getenv("ONCE_BROKER_DIR");
    ssize_t len = readlink("/proc/self/exe", program, sizeof program - 1);
    program[len < 0 ? 0 : len] = '\0';
    char *slash = strrchr(program, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
    const char *const places[] = {given, program, ONCE_LIB_DIR};
    for (size_t i = given == NULL ? 1 : 0; i < (given == NULL ? COUNT(places) : 1); i++) {
        int size = snprintf(ret_path, PATH_MAX, "%s/once-broker-%s.so", places[i], name);
        if (size > 0 && size < PATH_MAX && access(ret_path, R_OK) == 0) {
            return true;
        }
    }
    return false;
}

static enum status load(
    const struct broker_kind *kind, const struct broker_module **ret_module, struct err *err)
{
    char path[PATH_MAX];
    if (!path_of(kind->name, path)) {
        (void)err_set(err, E_UNAVAILABLE,
            "the module for %s: queues, once-broker-%s.so, is not beside the program and not in "
            "%s",
            kind->name, kind->name, ONCE_LIB_DIR);
        err_hint(err, "apt-get install %s %s, and build Once again", kind->package, kind->headers);
        return E_UNAVAILABLE;
    }
    void *file = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct broker_module *module = file == NULL ? NULL : dlsym(file, "once_broker");
    if (module == NULL) {
        const char *why = dlerror();
        (void)err_set(err, E_UNAVAILABLE, "cannot load the module for %s: queues: %s", kind->name,
            why == NULL ? "it is not one" : why);
        err_hint(err, "apt-get install %s", kind->package);
        return E_UNAVAILABLE;
    }
    if (module->interface != BROKER_INTERFACE) {
        return err_set(
            err, E_UNAVAILABLE, "'%s' belongs to a different version of this program", path);
    }
    *ret_module = module;
    return OK;
}

enum status broker_load(const char *url, const struct broker_module **ret_module, struct err *err)
{
    const char *colon = strstr(url, "://");
    struct slice scheme = colon == NULL ? SLICE_EMPTY : slice_of(url, (size_t)(colon - url));
    size_t which = 0;
    while (which < COUNT(kinds) && !has_scheme(&kinds[which], scheme)) {
        which++;
    }
    if (which == COUNT(kinds)) {
        (void)err_set(
            err, E_INVALID, "no broker is known for a URL of '%.*s:'", SLICE_ARGS(scheme));
        err_hint(err, "such as redis://127.0.0.1:6379/orders?group=once");
        return E_INVALID;
    }
    (void)pthread_mutex_lock(&lock);
    enum status status = loaded[which] == NULL ? load(&kinds[which], &loaded[which], err) : OK;
    *ret_module = status == OK ? loaded[which] : *ret_module;
    (void)pthread_mutex_unlock(&lock);
    return status;
}
