#include "envelope/body_vault.h"

#include <limits.h>
#include <string.h>

#include "store/store.h"

enum { DIR_BYTES_MAX = 64 << 10 }; /* more than a path can have */

enum status body_vault_new(const struct config *config, const char *store_url,
    const struct mem *mem, struct vault **ret_vault, struct err *err)
{
    struct arena arena;
    char path[PATH_MAX];
    arena_init(&arena, &mem_libc, DIR_BYTES_MAX);
    const char *dir = store_url_dir(store_url, &arena);
    bool is_embedded = dir != NULL;
    bool fits = !is_embedded || vault_path(dir, path, sizeof path);
    arena_release(&arena);
    if (!fits) {
        return err_set(err, E_INVALID, "the path of the store is too long");
    }
    struct vault_options options = {.mem = mem,
        .key_files = config->key_files,
        .key_file_count = config->key_file_count,
        .own_path = is_embedded ? path : NULL,
        .is_ephemeral = strncmp(store_url, "mem:", 4) == 0};
    return vault_new(&options, ret_vault, err);
}
