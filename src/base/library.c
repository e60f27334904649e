#include "base/library.h"

#include <dlfcn.h>
#include <string.h>

static enum status fill(struct library *library, void *handle, struct err *err)
{
    for (size_t i = 0; i < library->count; i++) {
        if (dlsym(handle, library->names[i]) == NULL) {
            (void)err_set(err, E_UNAVAILABLE, "%s is too old: it has no %s", library->file,
                library->names[i]);
            err_hint(err, "apt-get install %s", library->package);
            return E_UNAVAILABLE;
        }
    }
    for (size_t i = 0; i < library->count; i++) {
        void *function = dlsym(handle, library->names[i]);
        memcpy((char *)library->table + i * sizeof function, &function, sizeof function);
    }
    return OK;
}

static enum status load(struct library *library, struct err *err)
{
    void *handle = dlopen(library->file, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        const char *why = dlerror();
        (void)err_set(err, E_UNAVAILABLE, "cannot load %s", why == NULL ? library->file : why);
        err_hint(err, "apt-get install %s", library->package);
        return E_UNAVAILABLE;
    }
    enum status status = fill(library, handle, err);
    if (status != OK) {
        (void)dlclose(handle);
    }
    return status;
}

enum status library_load(struct library *library, struct err *err)
{
    (void)pthread_mutex_lock(&library->lock);
    enum status status = library->is_loaded ? OK : load(library, err);
    library->is_loaded = status == OK;
    (void)pthread_mutex_unlock(&library->lock);
    return status;
}
