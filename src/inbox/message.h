/*
 * message: the event in a message of a queue (DESIGN section 12), read by the same rules as one
 * that comes in a request.
 *
 *   cloudevents   a structured event as the body; or "ce-" fields with the data as the body
 *   raw           any bytes, named by the field or the member that `key` says
 *
 * Promises:  pure. One message is one event. Fields are never taken for framing: of a message only
 *            those reach the event's reader that can be a part of it.
 * Ownership: in the arena, and in the message.
 */
#ifndef ONCE_INBOX_MESSAGE_H
#define ONCE_INBOX_MESSAGE_H

#include "broker/broker.h"
#include "inbox/event.h"

/* E_INVALID: it is no such event, or nothing names it; the text says why. E_LIMIT: it is too long.
 * E_NOMEM. */
enum status message_read(const struct event_rule *rule, const struct broker_message *message,
    struct arena *arena, struct events *ret_events, struct err *err) MUST_CHECK;

#endif
