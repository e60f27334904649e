/*
 * redis: a store on a Redis or Valkey server, shared by many processes.
 *
 * One server-side script prepares a batch, a second one commits it. The server runs each script
 * alone, so a batch takes two round trips and is all or nothing. Nothing is locked between the two:
 * the commit compares every version and reports the changes that lost a race (E_STALE). While all
 * keys are new, a batch takes one round trip: it is presumed that nothing is there (presume.c).
 *
 * URL: redis://[USER[:PASSWORD]@]HOST[:PORT],…[/DB][?name=once&wait=0&wait_timeout=5s&socket=PATH],
 * rediss:// with TLS, redis+sentinel://HOST[:PORT],…/SERVICE[/DB]. All keys begin with "{name}:",
 * so one store is in one slot of a cluster. docs/redis.md says what the server's settings mean for
 * the promises, docs/formats/redis.md describes the keys.
 *
 * Promises besides those of store.h: the password is in no error text. A commit whose answer was
 * lost is looked up by its number. If it did not happen, it never will (E_UNAVAILABLE); it is
 * E_UNKNOWN only if the server cannot be asked in time. Redirects of a cluster are followed; while
 * the store's slot is being moved, nothing is decided (nodes.c). A server that has lost
 * acknowledged data (a failover to a replica that lagged, a restart without its file) is E_CORRUPT.
 * Does not:  use the server's own expiry. Its clock may jump ahead, and a live record would be lost
 *            (P8). Housekeeping forgets expired records by the store's time, in bounded pieces.
 */
#ifndef ONCE_STORE_REDIS_REDIS_H
#define ONCE_STORE_REDIS_REDIS_H

#include "store/store.h"

/* Fails as store_open does. url is the whole URL. */
enum status redis_open(const char *url, const struct store_options *options,
    struct store **ret_store, struct err *err) MUST_CHECK;
/* Checks the URL; connects to nothing. E_INVALID. */
enum status redis_url_check(const char *url, struct err *err) MUST_CHECK;

#endif
