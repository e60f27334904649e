/*
 * deliver: one delivery to its handler: what is sent, and what the answer means (docs/inbox.md).
 * The dispatcher does the rest.
 *
 *   2xx                       executed; the answer, or Once-Effect-Id, is the receipt
 *   4xx                       failed, for good
 *   429, 5xx, 3xx, and        tried again later, with the same key and a higher fence; attempts
 *   Once-Effect: no             used up: a dead letter
 *   no answer, and            unknown: held; or called again, where the source says redeliver; or
 *   Once-Effect: unknown        asked about, where it says reconcile
 */
#ifndef ONCE_INBOX_DELIVER_H
#define ONCE_INBOX_DELIVER_H

#include "config/inbox.h"
#include "dispatch/dispatch.h"

extern const struct dispatch_kind deliver_kind;

/* The time until its next attempt. */
int64_t deliver_pause_ms(const struct dispatch_call *call, const struct config_source *config);

#endif
