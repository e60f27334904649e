/*
 * http_vectors: the cases of tests/vectors/http, which say in their first lines how they are
 * written. One is read at a time.
 */
#ifndef ONCE_TESTS_HTTP_VECTORS_H
#define ONCE_TESTS_HTTP_VECTORS_H

#include "base/buf.h"

struct vector {
    char verdict[8];     /* "ok", "more" or a status */
    struct slice name;   /* of the case */
    struct slice given;  /* after '?': the request's method, and "closed" */
    struct buf bytes;    /* of the message */
    struct buf expected; /* after '>' */
    struct buf body;     /* decoded */
};

void vector_init(struct vector *vector);
void vector_release(struct vector *vector);

/* The next case of a file's text; false at its end. A line of a different form stops the test. */
bool vector_next(struct slice *text, struct vector *ret_vector);

#endif
