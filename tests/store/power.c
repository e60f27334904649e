#include "store/power.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "store/fake_ring.h"
#include "store/kit.h"

enum call_kind {
    CALL_CREATE,
    CALL_WRITE,
    CALL_LANDED, /* a write to a file opened with O_DSYNC is on the disk */
    CALL_SYNC,
    CALL_RENAME,
    CALL_UNLINK,
    CALL_MKDIR,
    CALL_RMDIR,
    CALL_SYNC_DIR,
    CALL_MARK
};

enum { POWER_FDS = 1024, SECTOR = 512, PATH_BYTES = 300 };

struct call {
    enum call_kind kind;
    unsigned file;         /* create, write, sync: which one */
    uint64_t offset;       /* write; the value of a mark */
    size_t size;           /* write */
    char *bytes;           /* write */
    size_t landed;         /* write: the call by which it alone is on the disk; 0: by a sync */
    char path[PATH_BYTES]; /* relative to the root */
    char to[PATH_BYTES];   /* rename */
};

struct power {
    struct io io;
    char root[PATH_BYTES];
    struct call *calls;
    size_t count;
    size_t cap;
    unsigned files;                       /* made so far */
    unsigned of_fd[POWER_FDS];            /* file of an open descriptor, + 1 */
    bool dsync_fd[POWER_FDS];             /* it was opened with O_DSYNC */
    bool dir_fd[POWER_FDS];               /* it is a directory … */
    char dir_path[POWER_FDS][PATH_BYTES]; /* … of this name */
    struct name *names;                   /* as they are now */
    size_t names_count;
};

struct name {
    char path[PATH_BYTES];
    unsigned file; /* 0: a directory */
};

static struct call *call_add(struct power *power, enum call_kind kind)
{
    if (power->count == power->cap) {
        power->cap = power->cap == 0 ? 1024 : power->cap * 2;
        power->calls = realloc(power->calls, power->cap * sizeof *power->calls);
        ASSERT(power->calls != NULL);
    }
    struct call *call = &power->calls[power->count++];
    *call = (struct call){.kind = kind};
    return call;
}

static void path_set(const struct power *power, char *to, const char *path)
{
    size_t root = strlen(power->root);
    ASSERT(strncmp(path, power->root, root) == 0);
    (void)snprintf(to, PATH_BYTES, "%s", path[root] == '/' ? path + root + 1 : path + root);
}

/* Names, as a table that calls are played into. */
struct power_names {
    struct name *list;
    size_t count;
};

static struct name *name_find(struct power_names *names, const char *path)
{
    for (size_t i = 0; i < names->count; i++) {
        if (strcmp(names->list[i].path, path) == 0) {
            return &names->list[i];
        }
    }
    return NULL;
}

static void name_drop(struct power_names *names, const char *path)
{
    struct name *name = name_find(names, path);
    if (name != NULL) {
        *name = names->list[--names->count];
    }
}

static void name_put(struct power_names *names, const char *path, unsigned file)
{
    name_drop(names, path);
    names->list = realloc(names->list, (names->count + 1) * sizeof *names->list);
    ASSERT(names->list != NULL);
    struct name *name = &names->list[names->count++];
    (void)snprintf(name->path, sizeof name->path, "%s", path);
    name->file = file;
}

static void name_rename(struct power_names *names, const char *from, const char *to)
{
    size_t len = strlen(from);
    if (name_find(names, from) == NULL) {
        return; /* its making is not on the disk either */
    }
    name_drop(names, to);
    for (size_t i = 0; i < names->count; i++) {
        struct name *name = &names->list[i];
        if (strncmp(name->path, from, len) == 0 &&
            (name->path[len] == '\0' || name->path[len] == '/')) {
            char rest[PATH_BYTES];
            char whole[2 * PATH_BYTES];
            (void)snprintf(rest, sizeof rest, "%s", name->path + len);
            (void)snprintf(whole, sizeof whole, "%s%s", to, rest);
            ASSERT(strlen(whole) < PATH_BYTES);
            memcpy(name->path, whole, strlen(whole) + 1);
        }
    }
}

static void names_play(struct power_names *names, const struct call *call)
{
    switch (call->kind) {
    case CALL_CREATE: name_put(names, call->path, call->file); break;
    case CALL_MKDIR: name_put(names, call->path, 0); break;
    case CALL_RENAME: name_rename(names, call->path, call->to); break;
    case CALL_UNLINK:
    case CALL_RMDIR: name_drop(names, call->path); break;
    case CALL_WRITE:
    case CALL_LANDED:
    case CALL_SYNC:
    case CALL_SYNC_DIR:
    case CALL_MARK: break;
    }
}

static void call_play(struct power *power, const struct call *call)
{
    struct power_names names = {.list = power->names, .count = power->names_count};
    names_play(&names, call);
    power->names = names.list;
    power->names_count = names.count;
}

/* The table -------------------------------------------------------------------------------- */

static int power_open(void *context, const char *path, int flags, mode_t mode)
{
    struct power *power = context;
    char relative[PATH_BYTES];
    path_set(power, relative, path);
    int fd = io_system.open(NULL, path, flags & ~(O_DIRECT | O_DSYNC), mode);
    if (fd < 0) {
        return fd;
    }
    ASSERT(fd < POWER_FDS);
    power->dir_fd[fd] = (flags & O_DIRECTORY) != 0;
    power->dsync_fd[fd] = (flags & O_DSYNC) != 0;
    (void)snprintf(power->dir_path[fd], PATH_BYTES, "%s", relative);
    struct power_names names = {.list = power->names, .count = power->names_count};
    struct name *name = name_find(&names, relative);
    if (!power->dir_fd[fd] && (name == NULL || (flags & O_TRUNC) != 0)) {
        struct call *call = call_add(power, CALL_CREATE);
        call->file = ++power->files;
        (void)snprintf(call->path, sizeof call->path, "%s", relative);
        call_play(power, call);
        power->of_fd[fd] = call->file;
    } else {
        power->of_fd[fd] = name == NULL ? 0 : name->file;
    }
    return fd;
}

static int power_close(void *context, int fd)
{
    (void)context;
    return io_system.close(NULL, fd);
}

static ssize_t power_pread(void *context, int fd, void *bytes, size_t size, uint64_t offset)
{
    (void)context;
    return io_system.pread(NULL, fd, bytes, size, offset);
}

static ssize_t power_pwrite(void *context, int fd, const void *bytes, size_t size, uint64_t offset)
{
    struct power *power = context;
    ssize_t put = io_system.pwrite(NULL, fd, bytes, size, offset);
    if (put > 0) {
        struct call *call = call_add(power, CALL_WRITE);
        call->file = power->of_fd[fd];
        call->offset = offset;
        call->size = (size_t)put;
        call->bytes = malloc(call->size);
        ASSERT(call->bytes != NULL);
        memcpy(call->bytes, bytes, call->size);
        if (power->dsync_fd[fd]) {
            call->landed = power->count; /* the next one, which may move this one */
            (void)call_add(power, CALL_LANDED);
        }
    }
    return put;
}

static int power_sync(void *context, int fd)
{
    struct power *power = context;
    if (power->dir_fd[fd]) {
        struct call *call = call_add(power, CALL_SYNC_DIR);
        (void)snprintf(call->path, sizeof call->path, "%s", power->dir_path[fd]);
    } else {
        call_add(power, CALL_SYNC)->file = power->of_fd[fd];
    }
    return 0;
}

static int power_ftruncate(void *context, int fd, uint64_t size)
{
    (void)context;
    return io_system.ftruncate(NULL, fd, size); /* only the lock file, which holds nothing */
}

static int64_t power_size(void *context, int fd)
{
    (void)context;
    return io_system.size(NULL, fd);
}

static int power_rename(void *context, const char *from, const char *to)
{
    struct power *power = context;
    int failed = io_system.rename(NULL, from, to);
    if (failed == 0) {
        struct call *call = call_add(power, CALL_RENAME);
        path_set(power, call->path, from);
        path_set(power, call->to, to);
        call_play(power, call);
    }
    return failed;
}

static int power_one_path(struct power *power, enum call_kind kind, const char *path, int failed)
{
    if (failed == 0) {
        struct call *call = call_add(power, kind);
        path_set(power, call->path, path);
        call_play(power, call);
    }
    return failed;
}

static int power_unlink(void *context, const char *path)
{
    return power_one_path(context, CALL_UNLINK, path, io_system.unlink(NULL, path));
}

static int power_mkdir(void *context, const char *path, mode_t mode)
{
    return power_one_path(context, CALL_MKDIR, path, io_system.mkdir(NULL, path, mode));
}

static int power_rmdir(void *context, const char *path)
{
    return power_one_path(context, CALL_RMDIR, path, io_system.rmdir(NULL, path));
}

static int power_lock(void *context, int fd)
{
    (void)context;
    return io_system.lock(NULL, fd);
}

struct power *power_new(const char *root)
{
    struct power *power = calloc(1, sizeof *power);
    ASSERT(power != NULL);
    (void)snprintf(power->root, sizeof power->root, "%s", root);
    power->io = (struct io){.open = power_open,
        .close = power_close,
        .pread = power_pread,
        .pwrite = power_pwrite,
        .fdatasync = power_sync,
        .fsync = power_sync,
        .ftruncate = power_ftruncate,
        .size = power_size,
        .rename = power_rename,
        .unlink = power_unlink,
        .mkdir = power_mkdir,
        .rmdir = power_rmdir,
        .lock = power_lock,
        FAKE_RING,
        .context = power};
    return power;
}

void power_free(struct power *power)
{
    for (size_t i = 0; i < power->count; i++) {
        free(power->calls[i].bytes);
    }
    free(power->calls);
    free(power->names);
    free(power);
}

const struct io *power_io(struct power *power)
{
    return &power->io;
}

void power_mark(struct power *power, uint64_t value)
{
    call_add(power, CALL_MARK)->offset = value;
}

uint64_t power_calls(const struct power *power)
{
    return power->count;
}

/* Images ----------------------------------------------------------------------------------- */

struct content {
    char *bytes;
    size_t size;
    uint64_t synced; /* calls before this one are on the disk */
};

static uint64_t dice(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void content_put(struct content *content, uint64_t offset, const char *bytes, size_t size)
{
    if (offset + size > content->size) {
        content->bytes = realloc(content->bytes, offset + size);
        ASSERT(content->bytes != NULL);
        memset(content->bytes + content->size, 0, offset + size - content->size);
        content->size = offset + size;
    }
    memcpy(content->bytes + offset, bytes, size);
}

/* A write that was not flushed: nothing, all, a first part, or any sectors of it. */
static void content_tear(struct content *content, const struct call *call, uint64_t *state)
{
    uint64_t manner = dice(state) % 4;
    size_t first = (size_t)(dice(state) % (call->size + 1)) / SECTOR * SECTOR;
    for (size_t at = 0; at < call->size; at += SECTOR) {
        size_t size = call->size - at < SECTOR ? call->size - at : SECTOR;
        bool there = manner == 1 || (manner == 2 && at < first) || (manner == 3 && dice(state) % 2);
        if (there) {
            content_put(content, call->offset + at, call->bytes + at, size);
        }
    }
}

static bool parent_is(const char *path, const char *directory)
{
    const char *slash = strrchr(path, '/');
    size_t len = slash == NULL ? 0 : (size_t)(slash - path);
    return strlen(directory) == len && strncmp(path, directory, len) == 0;
}

/* Whether the directory of this name was flushed behind the call. */
static bool name_synced(const struct power *power, size_t at, uint64_t calls)
{
    const struct call *call = &power->calls[at];
    const char *path = call->kind == CALL_RENAME ? call->to : call->path;
    for (size_t i = at + 1; i < calls; i++) {
        if (power->calls[i].kind == CALL_SYNC_DIR && parent_is(path, power->calls[i].path)) {
            return true;
        }
    }
    return false;
}

static void image_contents(const struct power *power, const struct power_image *image,
    struct content *contents, uint64_t *state)
{
    for (size_t i = 0; i < image->calls; i++) {
        if (power->calls[i].kind == CALL_SYNC && image->honest) {
            contents[power->calls[i].file].synced = i;
        }
    }
    for (size_t i = 0; i < image->calls; i++) {
        const struct call *call = &power->calls[i];
        if (call->kind != CALL_WRITE) {
            continue;
        }
        struct content *content = &contents[call->file];
        bool landed = call->landed != 0 && call->landed < image->calls && image->honest;
        if (i < content->synced || landed) {
            content_put(content, call->offset, call->bytes, call->size);
        } else {
            content_tear(content, call, state);
        }
    }
}

static struct power_names image_names(
    const struct power *power, const struct power_image *image, uint64_t *state)
{
    struct power_names names = {0};
    uint64_t cut = image->calls == 0 ? 0 : dice(state) % (image->calls + 1);
    cut = dice(state) % 2 ? image->calls : cut;
    for (size_t i = 0; i < image->calls; i++) {
        if (i < cut || name_synced(power, i, image->calls)) {
            names_play(&names, &power->calls[i]);
        }
    }
    return names;
}

static void image_write(
    const struct power_names *names, const struct content *contents, const char *to)
{
    for (int pass = 0; pass < 2; pass++) { /* directories first */
        for (size_t i = 0; i < names->count; i++) {
            char path[2 * PATH_BYTES];
            const struct name *name = &names->list[i];
            (void)snprintf(path, sizeof path, "%s/%s", to, name->path);
            if (name->file == 0 && pass == 0) {
                (void)mkdir(path, 0700);
            }
            if (name->file != 0 && pass == 1) {
                int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
                if (fd < 0) {
                    continue; /* its directory is not there */
                }
                const struct content *content = &contents[name->file];
                if (content->size > 0) {
                    ssize_t put = write(fd, content->bytes, content->size);
                    ASSERT(put == (ssize_t)content->size);
                }
                (void)close(fd);
            }
        }
    }
}

uint64_t power_make(struct power *power, const struct power_image *image, const char *to)
{
    ASSERT(image->calls <= power->count);
    uint64_t state = image->seed * 2654435761u + image->calls + 88172645463325252u;
    struct kit_dir old;
    (void)snprintf(old.path, sizeof old.path, "%s", to);
    kit_dir_remove(&old);
    (void)mkdir(to, 0700);
    struct content *contents = calloc(power->files + 1, sizeof *contents);
    ASSERT(contents != NULL);
    image_contents(power, image, contents, &state);
    struct power_names names = image_names(power, image, &state);
    image_write(&names, contents, to);
    free(names.list);
    for (unsigned i = 0; i <= power->files; i++) {
        free(contents[i].bytes);
    }
    free(contents);
    uint64_t mark = 0;
    for (size_t i = 0; i < image->calls; i++) {
        mark = power->calls[i].kind == CALL_MARK ? power->calls[i].offset : mark;
    }
    return mark;
}

/* Without flushes -------------------------------------------------------------------------- */

static int fast_open(void *context, const char *path, int flags, mode_t mode)
{
    return io_system.open(context, path, flags & ~(O_DIRECT | O_DSYNC), mode);
}

static int fast_sync(void *context, int fd)
{
    (void)context;
    (void)fd;
    return 0;
}

static ssize_t fast_pwrite(void *context, int fd, const void *bytes, size_t size, uint64_t offset)
{
    return io_system.pwrite(context, fd, bytes, size, offset);
}

static int fast_rename(void *context, const char *from, const char *to)
{
    return io_system.rename(context, from, to);
}

static int fast_unlink(void *context, const char *path)
{
    return io_system.unlink(context, path);
}

static int fast_mkdir(void *context, const char *path, mode_t mode)
{
    return io_system.mkdir(context, path, mode);
}

static int fast_rmdir(void *context, const char *path)
{
    return io_system.rmdir(context, path);
}

const struct io power_io_fast = {
    .open = fast_open,
    .close = power_close,
    .pread = power_pread,
    .pwrite = fast_pwrite,
    .fdatasync = fast_sync,
    .fsync = fast_sync,
    .ftruncate = power_ftruncate,
    .size = power_size,
    .rename = fast_rename,
    .unlink = fast_unlink,
    .mkdir = fast_mkdir,
    .rmdir = fast_rmdir,
    .lock = power_lock,
    FAKE_RING,
};
