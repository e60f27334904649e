/*
 * event: the single events of a verified request, each with what names it, what it is compared by
 * and what its handler gets.
 *
 * Promises:  pure. The same event has the same key and fingerprint however it was sent: alone or in
 *            a batch, as a structured or a binary CloudEvent, with a new signature. An id that the
 *            signature does not cover is a part of the key only beside the body's digest. An event
 *            without an id is named by its digest, so none is lost for want of one. Everything is
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
    EVENT_BYTES_MAX = 32 << 20,    /* of all events of one request, wrapped again */
    EVENT_FIELDS_BYTES_MAX = 8192, /* of the fields that go on to the handler */
};

/* What a source says of its events. */
struct event_rule {
    const struct preset *preset;
    struct slice name;          /* of the source: the type of what is ordered */
    struct slice id_field;      /* `key: {header: …}`; empty: as the preset says */
    struct slice id_pointer;    /* `key: {json: …}`; likewise */
    struct slice order_source;  /* `order: {source_id: …}`, a pointer; empty: not ordered */
    struct slice order_version; /* `order: {version: …}` */
};

struct event {
    struct slice key;       /* of its record */
    struct slice id;        /* as the sender names it; empty: it does not */
    struct slice bytes;     /* for the handler */
    struct slice type;      /* of these; may be empty */
    struct payload payload; /* its fingerprint, before it is keyed */
    struct source source;   /* what it is a version of; empty: nothing, or not said */
};

struct events {
    struct event *items;
    size_t count;
    struct slice fields; /* for the handler, of all: "Name: value\r\n" for each */
};

/* E_INVALID: the request is signed and is no such event; the text says why. E_LIMIT: too many, or
 * too long. E_NOMEM. */
enum status events_read(const struct event_rule *rule, const struct http_head *head,
    struct slice body, struct arena *arena, struct events *ret_events, struct err *err) MUST_CHECK;

#endif
