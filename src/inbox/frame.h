/*
 * frame: the form in which an event is kept until it is handled, as the body of its record: the
 * type and fields for the handler, and the event's own bytes. The vault seals it before it is
 * stored.
 *
 *     version (1) ‖ bytes of type (4, little-endian) ‖ bytes of fields (4) ‖ type ‖ fields ‖ event
 */
#ifndef ONCE_INBOX_FRAME_H
#define ONCE_INBOX_FRAME_H

#include "base/buf.h"
#include "base/err.h"

struct kept_event {
    struct slice type;   /* of the bytes; may be empty */
    struct slice fields; /* "Name: value\r\n" for each */
    struct slice bytes;
};

enum { FRAME_HEAD_BYTES = 9 };

/* Errors are sticky in buf. */
void frame_put(struct buf *out, const struct kept_event *frame);
/* Slices point into the text. E_CORRUPT: it is not a frame. */
enum status frame_read(struct slice text, struct kept_event *ret_frame, struct err *err) MUST_CHECK;
/* Take the next field off the front; false at the end. */
bool frame_field(struct slice *fields, struct slice *ret_name, struct slice *ret_value);

#endif
