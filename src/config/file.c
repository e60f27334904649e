#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "config/config.h"

static enum status read_fault(
    struct config *config, struct config_faults *faults, const char *what, const char *path)
{
    bool is_absent = errno == ENOENT && strcmp(what, "configuration") == 0;
    struct config_fault fault = {
        .line = 0, .hint = is_absent ? "once check --example prints one with every setting" : NULL};
    config_fault_add(
        config, faults, &fault, "cannot read the %s '%s': %s", what, path, strerror(errno));
    return E_INVALID;
}

enum status config_file_text(struct config *config, const char *what, const char *path,
    struct slice *ret_text, struct config_faults *faults)
{
    char *bytes = arena_alloc(&config->arena, CONFIG_BYTES_MAX + 1);
    size_t used = 0;
    ssize_t got = 1;
    if (bytes == NULL) {
        return E_NOMEM;
    }
    int fd = strcmp(path, "-") == 0 ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return read_fault(config, faults, what, path);
    }
    while (got > 0 && used <= CONFIG_BYTES_MAX) {
        do {
            got = read(fd, bytes + used, CONFIG_BYTES_MAX + 1 - used);
        } while (got < 0 && errno == EINTR);
        used += got > 0 ? (size_t)got : 0;
    }
    enum status status = got < 0 ? read_fault(config, faults, what, path) : OK;
    if (fd != STDIN_FILENO) {
        (void)close(fd); /* only read */
    }
    *ret_text = slice_of(bytes, used);
    return status;
}
