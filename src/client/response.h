/*
 * response: the definition of struct once_response: the last answer, and what else is known.
 *
 * Promises:  all memory except that of the answer itself is allocated before anything is sent, so
 *            that the result of an operation can always be reported.
 * Ownership: the caller's, from the end of once_client_send to once_response_free.
 */
#ifndef ONCE_CLIENT_RESPONSE_H
#define ONCE_CLIENT_RESPONSE_H

#include <stdint.h>

#include "base/buf.h"
#include "client/request.h"
#include "client/verdict.h"

enum { RESPONSE_FIELDS_MAX = 128 }; /* documented at once_response.headers */

struct client_response {
    struct once_response shown; /* first: it is what the caller holds */
    struct buf head;            /* name, zero, value, zero, of every field */
    struct buf body;            /* zero-terminated once it is whole */
    uint32_t field_count;
    bool head_is_over;   /* an empty line came: what follows are trailers */
    bool head_too_large; /* more fields, or more bytes, than we take */
    bool body_too_large; /* more than body_bytes_max */
    struct once_header fields[RESPONSE_FIELDS_MAX];
    char request_id[REQUEST_ID_SIZE];
    char key[LIMIT_KEY_BYTES_MAX + 1];
    char operation_id[64];
    char why[CURL_ERROR_SIZE]; /* why the last attempt has no answer; "" when it has one */
};

/* NULL without memory. */
struct client_response *client_response_new(const struct once_client *client) MUST_CHECK;
/* Forget the answer of the last attempt. */
void client_response_clear(struct client_response *response);
/* Take a line of a head, with its line end. False: stop, it is too much. */
bool client_response_line(struct client_response *response, struct slice line);
/* Take a piece of the body. False: stop, it is too much. */
bool client_response_piece(struct client_response *response, struct slice piece);
/* The answer is whole: make it visible in shown. False without memory. */
bool client_response_end(struct client_response *response, int status) MUST_CHECK;

#endif
