/*
 * body: decodes the body that follows a head, as its bytes arrive.
 *
 * Promises:  the same bytes give the same concatenated pieces and the same verdict, however they
 *            were split; nothing after the end of the body is decoded.
 * Does not:  allocate or copy: each piece is a slice of the bytes given. Chunk extensions and
 *            trailers are checked strictly, bounded, and dropped (RFC 9112 sections 7.1.1, 7.1.2).
 * Ownership: a plain value.
 *
 *   LENGTH, CLOSE:  DATA → END
 *   CHUNKED:        SIZE → [EXT …] → SIZE_LF → DATA → DATA_CR → DATA_LF → SIZE, and after size 0
 *                   SIZE_LF → LINE → [NAME → VALUE → VALUE_LF → LINE …] → END_LF → END
 *
 * Each transition is in the step function named after the states it leaves (body.c), and move_to
 * refuses any other.
 */
#ifndef ONCE_HTTP_BODY_H
#define ONCE_HTTP_BODY_H

#include "http/head.h"

enum http_body_state {
    HTTP_STATE_END,        /* complete; nothing more is taken */
    HTTP_STATE_DATA,       /* remaining bytes of a chunk, of the length, or until the end */
    HTTP_STATE_SIZE,       /* the digits of a chunk size */
    HTTP_STATE_EXT_START,  /* after the semicolon of a chunk extension */
    HTTP_STATE_EXT_NAME,   /* its name, which is a token */
    HTTP_STATE_EXT_VALUE,  /* the first byte of its value */
    HTTP_STATE_EXT_TOKEN,  /* a value that is a token */
    HTTP_STATE_EXT_QUOTED, /* inside a quoted value */
    HTTP_STATE_EXT_CLOSED, /* after the closing quote */
    HTTP_STATE_SIZE_LF,    /* the line feed of a size line */
    HTTP_STATE_DATA_CR,    /* the carriage return after a chunk's data */
    HTTP_STATE_DATA_LF,    /* and its line feed */
    HTTP_STATE_LINE,       /* the beginning of a trailer line, or of the last one */
    HTTP_STATE_NAME,       /* a trailer's name */
    HTTP_STATE_VALUE,      /* its value */
    HTTP_STATE_VALUE_LF,   /* its line feed */
    HTTP_STATE_END_LF,     /* the very last line feed */
};

struct http_body {
    struct http_limits limits;              /* of this body */
    enum http_framing framing;              /* how it ends */
    enum http_body_state state;             /* where we are */
    bool is_response;                       /* refusals are 502 */
    uint64_t remaining;                     /* bytes of the length or of this chunk still to come */
    uint64_t total;                         /* bytes of all pieces so far */
    uint64_t size;                          /* the chunk size being read */
    unsigned digits;                        /* of it */
    uint32_t ext_bytes;                     /* of this chunk's extensions */
    uint32_t ext_total;                     /* of all */
    uint32_t trailer_bytes;                 /* of all trailer lines */
    uint32_t name_len;                      /* of the trailer name being read */
    char name[HTTP_TRAILER_NAME_BYTES_MAX]; /* its bytes */
};

/*
 * Begin the body of a head that is done. HTTP_MORE, or HTTP_REFUSED with 413 if its length
 * exceeds limits->body_bytes_max, which is known before any byte of it is read.
 */
enum http_verdict http_body_init(struct http_body *body, const struct http_head *head,
    const struct http_limits *limits, struct http_refusal *ret_refusal) MUST_CHECK;

/*
 * Take bytes. *ret_used says how many were consumed, whatever the verdict.
 *   HTTP_DATA     *ret_data is the next piece, never empty; call again with the rest
 *   HTTP_MORE     all were consumed
 *   HTTP_DONE     the body is over; the bytes after *ret_used belong to the next message
 *   HTTP_REFUSED  as for a head
 * An empty body is done before any byte: call with an empty slice.
 */
enum http_verdict http_body_next(struct http_body *body, struct slice bytes, size_t *ret_used,
    struct slice *ret_data, struct http_refusal *ret_refusal) MUST_CHECK;

/* The other side closed: HTTP_DONE if the body was over or ends that way, else HTTP_REFUSED. */
enum http_verdict http_body_close(
    struct http_body *body, struct http_refusal *ret_refusal) MUST_CHECK;

#endif
