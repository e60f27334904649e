/*
 * event: splits a verified request into events, each with its key, its fingerprint and the bytes
 * for its handler.
 *
 * Promises:  pure. The same event has the same key and fingerprint however it was sent: alone or in
 *            a batch, as a structured or a binary CloudEvent, with a new signature. If the
 *            signature does not cover the id, the key also contains the body's digest. An event
 *            without an id is named by its digest, so none is lost for lack of an id. Everything is
 *            bounded: events by LIMIT_GROUP_REQUESTS_MAX, their bytes by EVENT_BYTES_MAX.
 * Does not:  verify; remember.
 * Ownership: in the arena, and in the request's head and body.
 */
#ifndef ONCE_INBOX_EVENT_H
#define ONCE_INBOX_EVENT_H

#include "canon/payload.h"
#include "core/record.h"
#include "inbox/preset.h"

enum {
    EVENT_BYTES_MAX = 32 << 20,    /* of all events of one request, after splitting */
    EVENT_FIELDS_BYTES_MAX = 8192, /* of the fields passed to the handler */
};

/* A source's rules for its events. */
struct event_rule {
    const struct preset *preset;
    struct slice name;          /* of the source: the source type of ordered events */
    struct slice id_field;      /* `key: {header: …}`; empty: as the preset says */
    struct slice id_pointer;    /* `key: {json: …}`; likewise */
    struct slice order_source;  /* `order: {source_id: …}`, a pointer; empty: not ordered */
    struct slice order_version; /* `order: {version: …}` */
};

struct event {
    struct slice key;       /* of its record */
    struct slice id;        /* as the sender names it; empty: absent */
    struct slice bytes;     /* for the handler */
    struct slice type;      /* media type of bytes; may be empty */
    struct payload payload; /* its fingerprint, before it is keyed */
    struct source source;   /* the source that it is a version of; empty: none or absent */
};

struct events {
    struct event *items;
    size_t count;
    struct slice fields; /* passed to the handler with every event: "Name: value\r\n" for each */
};

/* E_INVALID: the request is signed but is not such an event; the text says why. E_LIMIT: too many,
 * or too long. E_NOMEM. */
enum status events_read(const struct event_rule *rule, const struct http_head *head,
    struct slice body, struct arena *arena, struct events *ret_events, struct err *err) MUST_CHECK;

#endif
