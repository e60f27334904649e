/*
 * message: reads the event in a message of a queue (docs/inbox.md), by the same rules as an
 * event in a request.
 *
 *   cloudevents   a structured event as the body; or "ce-" fields with the data as the body
 *   raw           any bytes, named by the field or the member that `key` names
 *
 * Promises:  pure. One message is one event. Fields are never taken for framing: only the fields
 *            that can be part of an event reach its reader.
 * Ownership: in the arena, and in the message.
 */
#ifndef ONCE_INBOX_MESSAGE_H
#define ONCE_INBOX_MESSAGE_H

#include "broker/broker.h"
#include "inbox/event.h"

/* E_INVALID: it is not such an event, or has no name; the text says why. E_LIMIT: it is too long.
 * E_NOMEM. */
enum status message_read(const struct event_rule *rule, const struct broker_message *message,
    struct arena *arena, struct events *ret_events, struct err *err) MUST_CHECK;

#endif
