/*
 * submission: the command that a delivery becomes, where its source has one instead of a handler.
 *
 *     claimed > envelope from the template > one commit: the delivery sealed, the command enqueued
 *
 * Promises:  IS1 a delivery is sealed if and only if its command exists: both are in one commit. A
 *                crash before it leaves neither, so submitting again is always safe.
 *            IS2 the command has a key that is derived from the delivery's, unless the template
 *                has one: an event that arrives again submits nothing new, even if the delivery
 *                itself was forgotten.
 *            IS3 the trace of the command, and the envelope that its handler gets, name the event
 *                and the delivery.
 *            IS4 an event that cannot become its command is a dead letter with the reason.
 * Threads:   the loops of the server.
 */
#ifndef ONCE_INBOX_SUBMISSION_H
#define ONCE_INBOX_SUBMISSION_H

#include "inbox/inbox.h"
#include "inbox/plan.h"

/* The sender of such sources' targets: nothing leaves the process, so the result is set at once. */
extern struct dispatch_sender submission_sender;

/* An event, as a template sees it. */
struct submission_event {
    const struct record_key *key; /* of its delivery, sealed */
    const char *delivery_id;
    struct slice id; /* as the sender names it; empty: absent */
    struct slice type;
    struct slice bytes;
};
/* The envelope of the source's command, in the arena. E_INVALID: the event lacks a value that the
 * template names. E_NOMEM. */
enum status submission_envelope(const struct submission_event *of,
    const struct config_source *config, struct arena *arena, struct slice *ret_envelope,
    struct err *err) MUST_CHECK;

/* Compose the envelope of a delivery. E_INVALID: the event lacks a value that the template names.
 * E_NOMEM, E_CORRUPT. */
enum status submission_compose(
    struct dispatch_call *call, const struct inbox_source *source, struct err *err) MUST_CHECK;
/* Set the calls of the commit; the first is made already. E_NOMEM. */
enum status submission_settle(struct dispatch_call *call, const struct inbox_plan *plan,
    struct engine_call *first, struct err *err) MUST_CHECK;
/* They are durable: start the command. */
void submission_settled(struct dispatch_call *call);

#endif
