#include "lib/backup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/text.h"
#include "base/vault.h"
#include "lib/inspect.h"
#include "store/journal/journal.h"

enum { NAME_BYTES_MAX = 64 }; /* of the parts after the target's name, and before it in a URL */
#define FRESH_MARK ".new-"    /* after the target's name, before the process and a number */

struct backup {
    const struct backup_options *options;
    char to[PATH_MAX];                   /* without slashes at the end */
    char parent[PATH_MAX];               /* the directory that it is made in */
    char fresh[PATH_MAX];                /* where the copy is until it is verified */
    int lock;                            /* lock on it, held while this process lives; or -1 */
    char url[PATH_MAX + NAME_BYTES_MAX]; /* of that */
    bool no_room;                        /* the copy was stopped because it would not fit */
};

/* ---- the target --------------------------------------------------------------------------- */

static enum status read_target(struct backup *self, struct err *err)
{
    size_t len = strlen(self->options->to);
    while (len > 1 && self->options->to[len - 1] == '/') {
        len--;
    }
    if (len == 0 || len >= sizeof self->to - NAME_BYTES_MAX ||
        memchr(self->options->to, '?', len) != NULL) {
        return err_set(err, E_INVALID, "'%s' cannot be the directory of a store: it is %s",
            self->options->to, len == 0 ? "empty" : "too long or has a '?'");
    }
    (void)snprintf(self->to, sizeof self->to, "%.*s", (int)len, self->options->to);
    const char *slash = strrchr(self->to, '/');
    size_t parent = slash == NULL ? 0 : slash == self->to ? 1 : (size_t)(slash - self->to);
    (void)snprintf(self->parent, sizeof self->parent, "%.*s", parent == 0 ? 1 : (int)parent,
        parent == 0 ? "." : self->to);
    (void)snprintf(self->fresh, sizeof self->fresh, "%.*s" FRESH_MARK "%ld-%llx",
        (int)(sizeof self->fresh - NAME_BYTES_MAX), self->to, (long)getpid(),
        (unsigned long long)clock_nanos());
    (void)snprintf(self->url, sizeof self->url, "journal:%s", self->fresh);
    return OK;
}

static bool is_below(const char *path, const char *directory)
{
    size_t len = strlen(directory);
    return strncmp(path, directory, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

static enum status check_target(const struct backup *self, struct err *err)
{
    struct stat facts;
    char store[PATH_MAX];
    char parent[PATH_MAX];
    if (lstat(self->to, &facts) == 0) {
        (void)err_set(err, E_INVALID, "'%s' exists already", self->to);
        err_hint(err, "a backup never overwrites anything; name a directory that does not exist");
        return E_INVALID;
    }
    if (realpath(self->options->from, store) == NULL) {
        (void)err_errno(err, E_UNAVAILABLE, errno, "cannot open store '%s'", self->options->from);
        err_hint(err, "name a different store with --store URL or ONCE_STORE");
        return E_UNAVAILABLE;
    }
    if (realpath(self->parent, parent) == NULL) {
        return err_errno(err, E_UNAVAILABLE, errno, "cannot open '%s'", self->parent);
    }
    return is_below(parent, store)
               ? err_set(err, E_INVALID, "'%s' is in the store itself", self->to)
               : OK;
}

/* Removes what a failure left. Nothing depends on it. */
static void discard(const char *directory)
{
    DIR *dir = opendir(directory);
    if (dir == NULL) {
        return;
    }
    for (struct dirent *item = readdir(dir); item != NULL; item = readdir(dir)) {
        if (strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0) {
            (void)unlinkat(dirfd(dir), item->d_name, 0);
        }
    }
    (void)closedir(dir);
    (void)rmdir(directory);
}

/* ---- what a killed one left --------------------------------------------------------------- */

/* The process id in "NAME.new-12-3f", where NAME is the target's; 0: not such a name. */
static pid_t process_of(const char *name, const char *target)
{
    static const char mark[] = FRESH_MARK;
    size_t len = strlen(target);
    char again[NAME_BYTES_MAX];
    long pid = 0;
    unsigned long long number = 0;
    if (strncmp(name, target, len) != 0 || strncmp(name + len, mark, sizeof mark - 1) != 0) {
        return 0;
    }
    const char *rest = name + len + sizeof mark - 1;
    if (sscanf(rest, "%ld-%llx", &pid, &number) != 2 || pid <= 0 || pid > INT_MAX) {
        return 0;
    }
    (void)snprintf(again, sizeof again, "%ld-%llx", pid, number);
    return strcmp(again, rest) == 0 ? (pid_t)pid : 0; /* as it is written, and nothing after it */
}

/* Locks a directory of ours that nobody else has locked. Returns its descriptor, which holds the
 * lock; or -1. On a file system without such locks nothing is removed. */
static int lock_abandoned(int parent, const char *name)
{
    struct stat facts;
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && (fstat(fd, &facts) != 0 || facts.st_uid != geteuid() ||
                       flock(fd, LOCK_EX | LOCK_NB) != 0)) {
        (void)close(fd); /* only tried */
        fd = -1;
    }
    return fd;
}

static void remove_abandoned(const struct backup *self, int parent, const char *name)
{
    char path[PATH_MAX + NAME_MAX + 2];
    int fd = lock_abandoned(parent, name);
    if (fd < 0) {
        return;
    }
    (void)snprintf(path, sizeof path, "%s/%s", self->parent, name);
    discard(path);
    (void)close(fd); /* it is removed, or somebody removes it by hand */
    if (access(path, F_OK) != 0 && self->options->removed != NULL) {
        self->options->removed(self->options->context, path);
    }
}

/* Called before the copy, because the remains are as large. What cannot be removed does no harm. */
static void remove_all_abandoned(const struct backup *self)
{
    const char *slash = strrchr(self->to, '/');
    const char *target = slash == NULL ? self->to : slash + 1;
    DIR *dir = opendir(self->parent);
    if (dir == NULL) {
        return;
    }
    for (struct dirent *item = readdir(dir); item != NULL; item = readdir(dir)) {
        pid_t pid = process_of(item->d_name, target);
        if (pid > 0 && kill(pid, 0) != 0 && errno == ESRCH) {
            remove_abandoned(self, dirfd(dir), item->d_name);
        }
    }
    (void)closedir(dir);
}

/* Makes the directory for the copy. The lock shows that it is in use, also where process ids
 * differ, such as in a container. */
static enum status make_fresh(struct backup *self, struct err *err)
{
    int failed = io_system.mkdir(io_system.context, self->fresh, 0700);
    if (failed != 0) {
        return err_errno(err, E_UNAVAILABLE, -failed, "cannot make '%s'", self->fresh);
    }
    self->lock = open(self->fresh, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (self->lock >= 0) {
        (void)flock(self->lock, LOCK_EX | LOCK_NB); /* without the lock, no backup removes it */
    }
    return OK;
}

/* ---- copy and check ----------------------------------------------------------------------- */

/* Room is checked before anything is written: a copy that fills the disk of a running server would
 * make it refuse grants. */
static bool has_room(const struct backup *self, uint64_t bytes)
{
    struct statvfs disk;
    return statvfs(self->parent, &disk) != 0 ||
           (uint64_t)disk.f_bavail * (uint64_t)disk.f_frsize > bytes;
}

static bool report(struct backup *self, enum backup_step step, uint64_t done, uint64_t total)
{
    return self->options->progress == NULL ||
           self->options->progress(self->options->context, step, done, total);
}

static bool on_copied(void *context, uint64_t done, uint64_t total)
{
    struct backup *self = context;
    self->no_room = done == 0 && !has_room(self, total);
    return !self->no_room && report(self, BACKUP_COPYING, done, total);
}

static bool on_verified(void *context, const struct verify_progress *now)
{
    return report(context, BACKUP_VERIFYING, now->bytes_done, now->bytes_total);
}

static enum status copy(struct backup *self, struct err *err)
{
    struct journal_copy how = {
        .from = self->options->from, .to = self->fresh, .progress = on_copied, .context = self};
    enum status status = journal_copy(&how, err);
    if (status == OK) { /* after the journal: the key of every body that it has is there by now */
        bool is_copied;
        status = vault_copy_key(self->options->from, self->fresh, &is_copied, err);
    }
    if (status == OK) {
        int failed = io_sync_dir(&io_system, self->fresh);
        return failed == 0 ? OK
                           : err_errno(err, E_UNAVAILABLE, -failed, "cannot flush '%s'", self->to);
    }
    if (self->no_room) {
        (void)err_errno(err, E_UNAVAILABLE, ENOSPC, "cannot copy to '%s'", self->to);
        err_hint(err, "nothing was written; make room, or name a directory on a different disk");
    }
    return status;
}

/* The copy ends after a whole batch, so a torn batch is damage here. */
static enum status verify(struct backup *self, struct verify_result *result, struct err *err)
{
    struct verify_options options = {.url = self->url, .progress = on_verified, .context = self};
    struct inspect_facts facts;
    enum status status = verify_run(&options, result, err);
    if (status != OK) {
        return status;
    }
    if (result->damage_count > 0 || result->torn_tail) {
        (void)err_set(err, E_CORRUPT, "the copy of '%s' does not check out: segment %llu: %s",
            self->options->from, (unsigned long long)result->damages[0].segment,
            result->damage_count > 0 ? result->damages[0].what : "it ends inside of a batch");
        err_hint(err, "run once verify: if the store itself is sound, the disk of '%s' is not",
            self->parent);
        return E_CORRUPT;
    }
    return inspect_store(self->url, &facts, err);
}

static enum status publish(const struct backup *self, struct err *err)
{
    struct stat facts;
    if (lstat(self->to, &facts) == 0) { /* rename would replace an empty directory */
        return err_set(err, E_INVALID, "'%s' was created by a different process", self->to);
    }
    int failed = io_system.rename(io_system.context, self->fresh, self->to);
    if (failed != 0) {
        return err_errno(err, E_UNAVAILABLE, -failed, "cannot make '%s'", self->to);
    }
    failed = io_sync_dir(&io_system, self->parent);
    return failed == 0 ? OK : err_errno(err, E_UNKNOWN, -failed, "cannot flush '%s'", self->parent);
}

enum status backup_make(
    const struct backup_options *options, struct verify_result *ret_result, struct err *err)
{
    struct backup self = {.options = options, .lock = -1};
    enum status status = read_target(&self, err);
    status = status == OK ? check_target(&self, err) : status;
    if (status != OK) {
        return status;
    }
    remove_all_abandoned(&self);
    status = make_fresh(&self, err);
    if (status != OK) {
        return status;
    }
    status = copy(&self, err);
    status = status == OK ? verify(&self, ret_result, err) : status;
    status = status == OK ? publish(&self, err) : status;
    if (status != OK) {
        discard(self.fresh); /* no longer there if it was renamed */
    }
    if (self.lock >= 0) {
        (void)close(self.lock); /* only held */
    }
    return status;
}
