/*
 * notify: reports to the supervisor of the process (sd_notify(3)), if there is one.
 *
 * Without a library: one datagram per message to the socket in NOTIFY_SOCKET. A supervisor that
 * cannot be reached notices by itself, so no function here fails.
 */
#ifndef ONCE_CLI_NOTIFY_H
#define ONCE_CLI_NOTIFY_H

#include <stdint.h>

/* "READY=1". */
void notify_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "RELOADING=1", with the time that systemd requires. */
void notify_reloading(void);
/* How often the supervisor expects WATCHDOG=1, in milliseconds; 0: never. */
int64_t notify_watchdog_ms(void);

#endif
