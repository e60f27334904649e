#include "cli/holder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "canon/json.h"

enum { HOLDER_ARENA_BYTES = 64 << 10 }; /* a trace is at most 2 KiB */

/* What distinguishes a process from all others on this machine since it started. */
struct holder {
    uint64_t boot; /* this boot of the machine */
    uint64_t pids; /* the PID namespace: containers number their own processes */
    int64_t pid;
    int64_t start; /* clock ticks after boot; a reused id has a different start */
};

enum presence { PRESENT, ABSENT, UNDETERMINED };

/* Fields 3 and 22 of /proc/PID/stat: a zombie counts as gone. The name in field 2 may contain
 * anything, so the fields are counted from its last ")". */
static enum presence read_start(int64_t pid, int64_t *ret_start)
{
    char path[64];
    char text[1024];
    (void)snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT ? ABSENT : UNDETERMINED;
    }
    ssize_t got = read(fd, text, sizeof text - 1);
    int error = errno;
    (void)close(fd); /* read only: nothing can be lost */
    if (got <= 0) {
        return got < 0 && error == ESRCH ? ABSENT : UNDETERMINED;
    }
    text[got] = '\0';
    const char *at = strrchr(text, ')');
    char state = at != NULL && at[1] == ' ' ? at[2] : '?';
    for (int field = 2; at != NULL && field < 22; field++) {
        at = strchr(at + 1, ' ');
    }
    long long start = 0;
    if (at == NULL || sscanf(at, " %lld", &start) != 1) {
        return UNDETERMINED;
    }
    *ret_start = start;
    return state == 'Z' || state == 'X' ? ABSENT : PRESENT;
}

/* The boot and the PID namespace of this process. False: not available on this machine. */
static bool read_here(struct holder *ret_holder)
{
    struct clock clock;
    char link[64];
    unsigned long long pids = 0;
    clock_system(&clock);
    ssize_t got = readlink("/proc/self/ns/pid", link, sizeof link - 1);
    if (clock.boot_id == 0 || got <= 0) {
        return false;
    }
    link[got] = '\0';
    if (sscanf(link, "pid:[%llu]", &pids) != 1) {
        return false;
    }
    ret_holder->boot = clock.boot_id;
    ret_holder->pids = pids;
    return true;
}

void holder_put(struct buf *out)
{
    struct holder self = {.pid = getpid()};
    if (read_here(&self) && read_start(self.pid, &self.start) == PRESENT) {
        /* The boot is text, because not every JSON reader keeps such a number exactly. */
        buf_printf(out,
            "{\"holder\":{\"boot\":\"%llu\",\"pid\":%lld,\"pids\":%llu,\"start\":%lld}}",
            (unsigned long long)self.boot, (long long)self.pid, (unsigned long long)self.pids,
            (long long)self.start);
    }
}

static bool read_member(const struct json_value *object, const char *name, int64_t *ret_value)
{
    const struct json_value *value = json_find(object, slice_str(name));
    return value != NULL && json_int(value, ret_value);
}

static bool read_holder(const char *trace, struct arena *arena, struct holder *ret_holder)
{
    const struct json_value *value = NULL;
    if (json_read(slice_str(trace), arena, &value, NULL) != OK || !json_is(value, JSON_OBJECT)) {
        return false;
    }
    const struct json_value *holder = json_find(value, SLICE_LIT("holder"));
    int64_t pids = 0;
    if (!json_is(holder, JSON_OBJECT) || !read_member(holder, "pids", &pids) ||
        !read_member(holder, "pid", &ret_holder->pid) ||
        !read_member(holder, "start", &ret_holder->start)) {
        return false;
    }
    const struct json_value *boot = json_find(holder, SLICE_LIT("boot"));
    ret_holder->pids = (uint64_t)pids;
    return json_is(boot, JSON_STRING) && text_u64(json_text(boot), &ret_holder->boot);
}

bool holder_gone(const char *trace, int64_t *ret_pid)
{
    struct arena arena;
    struct holder holder = {0};
    struct holder here = {0};
    int64_t start = 0;
    arena_init(&arena, &mem_libc, HOLDER_ARENA_BYTES);
    bool known = trace[0] != '\0' && read_holder(trace, &arena, &holder);
    arena_release(&arena);
    if (!known || !read_here(&here) || here.boot != holder.boot || here.pids != holder.pids) {
        return false;
    }
    enum presence presence = read_start(holder.pid, &start);
    if (presence == UNDETERMINED || (presence == PRESENT && start == holder.start)) {
        return false;
    }
    *ret_pid = holder.pid;
    return true;
}
