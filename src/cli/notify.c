#include "cli/notify.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"

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
        (void)close(fd); /* a datagram is sent or it is not */
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
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* systemd distinguishes reloads by it */
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
