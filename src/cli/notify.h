/*
 * notify: what is reported to the supervisor of the process (sd_notify(3)), if there is one.
 *
 * By hand: one datagram a message to the socket that NOTIFY_SOCKET names. A supervisor that cannot
 * be reached finds out by itself, so nothing here fails.
 */
#ifndef ONCE_CLI_NOTIFY_H
#define ONCE_CLI_NOTIFY_H

#include <stdint.h>

/* "READY=1". */
void notify_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "RELOADING=1", with the time it wants to know. */
void notify_reloading(void);
/* How often it wants to hear WATCHDOG=1, in milliseconds; 0: it does not. */
int64_t notify_watchdog_ms(void);

#endif
