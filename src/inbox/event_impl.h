/*
 * event_impl: shared by the readers of events.
 *
 * event.c has the common parts and reads requests that are one event; event_meta.c splits the
 * webhooks of Meta, event_cloud.c reads CloudEvents.
 */
#ifndef ONCE_INBOX_EVENT_IMPL_H
#define ONCE_INBOX_EVENT_IMPL_H

#include "canon/json.h"
#include "inbox/event.h"

/* A request being read. */
struct event_reader {
    const struct event_rule *rule;
    const struct http_head *head;
    struct slice body;
    struct slice type;             /* Content-Type; may be empty */
    const struct json_value *root; /* of the body; NULL: it is not JSON */
    struct arena *arena;
    struct events *events;
    size_t room;  /* items that were allocated */
    size_t bytes; /* of the events so far */
    struct err *err;
};

/* Add an event, zeroed. NULL: too many, or no memory; err says which. */
struct event *event_add(struct event_reader *reader) MUST_CHECK;
/* Finish an event. Its bytes count against the limit. Its key comes from its id, or from the digest
 * of `named_by` if it has none. Its fingerprint comes from `value` (NULL: from its bytes), without
 * what the preset ignores. Its source and version are also read from value. */
enum status event_finish(struct event_reader *reader, struct event *event, struct slice named_by,
    const struct json_value *value) MUST_CHECK;
/* Read its source and version from a different value. */
enum status event_order(
    struct event_reader *reader, struct event *event, const struct json_value *value) MUST_CHECK;
/* A name as a key: unchanged, or its digest if it is not a valid key. */
enum status event_key_of(
    struct event_reader *reader, struct slice name, struct slice *ret_key) MUST_CHECK;
/* "sha256:" and the digest of a text. */
enum status event_digest_of(
    struct event_reader *reader, struct slice text, struct slice *ret_text) MUST_CHECK;
/* As json_find; NULL is fine. */
static inline const struct json_value *event_find(const struct json_value *object, const char *name)
{
    return object == NULL ? NULL : json_find(object, slice_str(name));
}
/* A string or a number as text; empty for other types. */
struct slice event_text(const struct json_value *value);
/* A buffer in the arena. */
void event_buf(struct event_reader *reader, struct buf *ret_out);
enum status event_no_memory(struct event_reader *reader);

enum status event_read_meta(struct event_reader *reader) MUST_CHECK;
enum status event_read_cloud(struct event_reader *reader) MUST_CHECK;

#endif
