/*
 * http_drive: read one message as a connection would, its bytes arriving in pieces, and write down
 * what was read, so that two ways of splitting the same bytes can be compared.
 */
#ifndef ONCE_TESTS_HTTP_DRIVE_H
#define ONCE_TESTS_HTTP_DRIVE_H

#include "base/buf.h"
#include "http/body.h"

struct drive_input {
    struct slice bytes;        /* all that will ever arrive */
    bool is_response;          /* otherwise a request */
    enum http_method method;   /* of the request that a response answers */
    bool is_closed;            /* the connection ends after the bytes */
    struct http_limits limits; /* in force */
    size_t cut;                /* bytes of the first piece, which has its own memory */
    size_t step;               /* bytes of each piece after that; 0 is all */
};

struct drive {
    enum http_verdict verdict;   /* of the head, and if that is done, of the body */
    struct http_refusal refusal; /* when refused */
    size_t used;                 /* bytes of the message, when done */
    struct http_head head;       /* its places are in the input's bytes when the head is done */
    bool has_head;               /* the head was done */
    struct buf body;             /* decoded */
};

void drive_init(struct drive *drive);
void drive_release(struct drive *drive);

/* Read one message. Forgets what was read before. */
void drive_run(struct drive *drive, const struct drive_input *input);

/* Whether both read the same: verdict, refusal, head and body. */
bool drive_same(const struct drive *a, const struct drive *b);

#endif
