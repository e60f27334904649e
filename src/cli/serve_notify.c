/* The supervisor's protocol (sd_notify(3)) by hand: one datagram a message. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/serve.h"

enum { PROBE_ARENA_BYTES = 64 << 10 };

/* A supervisor that cannot be reached finds out by itself. */
static void notify_send(const char *text)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t len = path == NULL ? 0 : strlen(path);
    if (len < 2 || len >= sizeof to.sun_path || (path[0] != '/' && path[0] != '@')) {
        return;
    }
    memcpy(to.sun_path, path, len);
    if (path[0] == '@') {
        to.sun_path[0] = '\0'; /* the abstract namespace */
    }
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
        (void)sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&to, size);
        (void)close(fd); /* a datagram is gone or it is not */
    }
}

void notify_say(const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    notify_send(text);
}

void notify_reloading(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* systemd tells reloads apart by it */
    notify_say(
        "RELOADING=1\nMONOTONIC_USEC=%lld", (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000);
}

int64_t notify_watchdog_ms(void)
{
    uint64_t micros = 0;
    uint64_t pid = 0;
    const char *whose = getenv("WATCHDOG_PID");
    if (!text_u64(slice_str(getenv("WATCHDOG_USEC")), &micros) || micros > INT64_MAX) {
        return 0;
    }
    if (whose != NULL && (!text_u64(slice_str(whose), &pid) || pid != (uint64_t)getpid())) {
        return 0; /* meant for a process that started us */
    }
    return (int64_t)(micros / 1000);
}

/* ---- does the engine answer? ------------------------------------------------------------- */

/* Nothing to look at: that it comes back, behind everything that waits for the disk, is all. */
static enum status probe_read(struct store *store, struct engine_call *call, struct err *err)
{
    (void)store;
    (void)call;
    (void)err;
    return OK;
}

static void probe_done(struct engine_call *call)
{
    struct probe *probe = call->context;
    atomic_store(&probe->state, call->err.status == OK ? PROBE_ANSWERED : PROBE_IDLE);
}

void probe_init(struct probe *probe)
{
    arena_init(&probe->arena, &mem_libc, PROBE_ARENA_BYTES);
    atomic_init(&probe->state, PROBE_IDLE);
}

void probe_release(struct probe *probe)
{
    arena_release(&probe->arena);
}

bool probe_turn(struct probe *probe, struct engine *engine)
{
    int state = atomic_load(&probe->state);
    if (state == PROBE_ASKED) {
        return false;
    }
    arena_clear(&probe->arena);
    probe->call = (struct engine_call){
        .read = probe_read, .done = probe_done, .arena = &probe->arena, .context = probe};
    atomic_store(&probe->state, PROBE_ASKED);
    if (engine_submit(engine, &probe->call, &probe->call.err) != OK) {
        atomic_store(&probe->state, PROBE_IDLE);
    }
    return state == PROBE_ANSWERED;
}
