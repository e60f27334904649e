/*
 * limits: every bound of the HTTP layer with its name and its reason (P14).
 *
 * The first enum fixes what is built into structures; struct http_limits holds what a server or a
 * route may set lower or higher. Each bound has its own answer: 414 for a target, 431 for a head or
 * its fields, 413 for a body and what frames it.
 */
#ifndef ONCE_HTTP_LIMITS_H
#define ONCE_HTTP_LIMITS_H

#include <stdint.h>

enum {
    HTTP_FIELDS_MAX = 100,            /* field lines of a head: Apache's bound, four times usual */
    HTTP_LINE_EXTRA_BYTES = 32,       /* of a request line without its target: method, version */
    HTTP_LENGTH_DIGITS_MAX = 19,      /* of Content-Length: what cannot overflow 64 bits */
    HTTP_CHUNK_DIGITS_MAX = 16,       /* of a chunk size: 64 bits in hex, leading zeros included */
    HTTP_CHUNK_EXT_BYTES_MAX = 256,   /* of one chunk's extensions: a signature takes 85 */
    HTTP_TRAILER_NAME_BYTES_MAX = 64, /* a longer name is refused, so that no name escapes the
                                         list */
};

struct http_limits {
    uint32_t head_bytes_max;      /* of a whole head, including its end; above it 431 */
    uint32_t target_bytes_max;    /* of a request target; above it 414 */
    uint32_t fields_max;          /* field lines, at most HTTP_FIELDS_MAX; above it 431 */
    uint32_t trailer_bytes_max;   /* of all trailer fields together; above it 431 */
    uint32_t chunk_ext_bytes_max; /* of all chunk extensions of one body; above it 413 */
    uint64_t body_bytes_max;      /* of a decoded body; above it 413 */
};

/*
 * 16 KiB of head is what Node allows and half of nginx's; 8,000 bytes of target is the least that
 * RFC 9112 section 3 recommends. Extensions and trailers carry nothing that we use.
 */
#define HTTP_LIMITS_DEFAULT                                                                        \
    ((struct http_limits){.head_bytes_max = 16 << 10,                                              \
        .target_bytes_max = 8000,                                                                  \
        .fields_max = HTTP_FIELDS_MAX,                                                             \
        .trailer_bytes_max = 4 << 10,                                                              \
        .chunk_ext_bytes_max = 64 << 10,                                                           \
        .body_bytes_max = 16 << 20})

#endif
