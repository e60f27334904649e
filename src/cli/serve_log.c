/*
 * The log of `once serve` and `once gateway`, and how it is reopened after a rotation.
 *
 * The log goes to standard error. If that is a file, its path is noted at the start: after a
 * rotation has renamed the file, the descriptor would show only the new name.
 */
#include "cli/serve_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(
    (int)CONFIG_LEVEL_DEBUG == (int)LOG_DEBUG && (int)CONFIG_LEVEL_ERROR == (int)LOG_ERROR,
    "levels have the same numbers in the file and in the log");

/* Leave it empty unless standard error writes to a file with this name. */
static void note_path(struct serve_log *self)
{
    struct stat opened;
    struct stat named;
    ssize_t got = readlink("/proc/self/fd/2", self->path, sizeof self->path - 1);
    self->path[got < 0 ? 0 : got] = '\0';
    if (got <= 0 || fstat(STDERR_FILENO, &opened) != 0 || !S_ISREG(opened.st_mode) ||
        stat(self->path, &named) != 0 || named.st_dev != opened.st_dev ||
        named.st_ino != opened.st_ino) {
        self->path[0] = '\0';
    }
}

enum status serve_log_open(struct serve_log *self, const struct config *config, struct err *err)
{
    bool is_terminal = isatty(STDERR_FILENO) != 0;
    struct log_options options = {.fd = STDERR_FILENO,
        .level = (enum log_level)config->log_level,
        .is_human = config->log_format == CONFIG_FORMAT_HUMAN ||
                    (config->log_format == CONFIG_FORMAT_AUTO && is_terminal),
        .is_coloured = is_terminal && getenv("NO_COLOR") == NULL};
    note_path(self);
    return log_new(&options, &self->log, err);
}

void serve_log_close(struct serve_log *self)
{
    log_free(self->log);
    self->log = NULL;
}

/* 0 or -errno. dup2 swaps the file in one step, so that the log's thread needs no lock: each line
 * goes whole to one of the two. */
static int swap_file(const char *path)
{
    struct stat old;
    mode_t mode = fstat(STDERR_FILENO, &old) == 0 ? old.st_mode & 0666 : 0600;
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, mode);
    if (fd < 0) {
        return -errno;
    }
    int failed = dup2(fd, STDERR_FILENO) < 0 ? -errno : 0;
    (void)close(fd);
    return failed;
}

void serve_log_reopen(struct serve_log *self)
{
    if (self->path[0] == '\0') {
        struct log_field why = LOG_TEXT("message",
            SLICE_LIT("standard error is not a file that has a name; SIGUSR1 changed nothing"));
        log_event(self->log, LOG_INFO, "log_not_reopened", &why, 1);
        return;
    }
    int failed = swap_file(self->path);
    struct log_field fields[] = {LOG_TEXT("file", slice_str(self->path)),
        LOG_TEXT("message", slice_str(failed == 0 ? "" : strerror(-failed)))};
    log_event(self->log, failed == 0 ? LOG_INFO : LOG_ERROR,
        failed == 0 ? "log_reopened" : "log_reopen_failed", fields, 2);
}
