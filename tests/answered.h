/*
 * answered: an exchange whose answer is written down, in place of a server's.
 */
#ifndef ONCE_TESTS_ANSWERED_H
#define ONCE_TESTS_ANSWERED_H

#include "http/serve.h"
#include "http/write.h"

struct answered {
    struct http_exchange exchange; /* first, so that the exchange's pointer is ours */
    struct arena arena;            /* the exchange's */
    struct buf head;               /* the head so far, as a server would send it */
    struct http_put put;           /* what writes it */
};

/* An answer that has begun, with a status of 200. */
void answered_init(struct answered *answered);
void answered_release(struct answered *answered);
/* "Name: value\r\n…" of the fields given, until the release. Fails where a server would answer 500:
 * when one of them cannot be sent. */
struct slice answered_fields(struct answered *answered);

#endif
