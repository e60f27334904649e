/*
 * redis: a store on a Redis or Valkey server, shared by many processes.
 *
 * One server-side script prepares a batch, a second one commits it: both run alone on the server,
 * so that a batch is two round trips and all or nothing. Nothing is locked between the two; the
 * commit compares every version and the changes that lost a race are named (E_STALE).
 *
 * URL: redis://[USER[:PASSWORD]@]HOST[:PORT],…[/DB][?name=once&wait=0&wait_timeout=5s&socket=PATH],
 * rediss:// with TLS, redis+sentinel://HOST[:PORT],…/SERVICE[/DB]. All keys begin with "{name}:":
 * one store is in one slot of a cluster. docs/redis.md says what the settings of the server mean
 * for the promises, docs/formats/redis.md what the keys are.
 *
 * Promises besides those of store.h: the password is in no error text. A commit whose answer was
 * lost is looked up by its number, and where it did not happen it never will (E_UNAVAILABLE); only
 * when the server cannot be asked in time is it E_UNKNOWN. Redirects of a cluster are followed;
 * while the slot of the store is being moved, nothing is decided (nodes.c). A server that has lost
 * what it acknowledged (a failover to a replica that lagged, a restart without its file) is
 * E_CORRUPT.
 * Does not:  use the server's own expiry. Its clock may jump ahead, and a live record would be gone
 *            (P8). Housekeeping forgets what is over by the store's time, in bounded pieces.
 */
#ifndef ONCE_STORE_REDIS_REDIS_H
#define ONCE_STORE_REDIS_REDIS_H

#include "store/store.h"

/* Statuses: store_open's. url is all of it. */
enum status redis_open(const char *url, const struct store_options *options,
    struct store **ret_store, struct err *err) MUST_CHECK;
/* Whether the URL is right; connects to nothing. E_INVALID. */
enum status redis_url_check(const char *url, struct err *err) MUST_CHECK;

#endif
