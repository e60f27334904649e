/*
 * peer: another HTTP parser reading the same message, as an oracle.
 *
 * Each peer is in a file of its own, because their headers define the same names. A peer is new for
 * each message and gets exactly the bytes that ours used, the last one apart, so that it is seen to
 * end with that byte and not before.
 */
#ifndef ONCE_TESTS_FUZZ_PEER_H
#define ONCE_TESTS_FUZZ_PEER_H

#include <stdbool.h>

#include "base/buf.h"

struct peer_input {
    struct slice bytes; /* one whole message */
    bool is_response;   /* otherwise a request */
    bool has_no_body; /* of a response: told by HEAD or 304, which the peers leave to their user */
    bool is_closed;   /* the connection ends behind it */
};

struct peer {
    const char *error;  /* why it refused, or NULL */
    unsigned completed; /* messages that it saw end */
    bool is_early;      /* before the last byte, or before the connection ended */
    bool keep_alive;    /* the connection persists */
    bool is_head_over;  /* what fields follow are trailers, which we drop */
    bool is_value;      /* the last callback was about a value */
    bool has_no_body;   /* as in the input */
    struct buf start;   /* "METHOD target" or "status" */
    struct buf fields;  /* "name: value\n" each */
    struct buf body;    /* decoded */
};

void peer_http_parser(struct peer *peer, const struct peer_input *input);
void peer_llhttp(struct peer *peer, const struct peer_input *input);

/* A parser, and how it takes bytes and the end of the connection; what it refuses is in the peer's
 * error. */
struct peer_parser {
    void *self;
    void (*feed)(struct peer *peer, void *self, const char *data, size_t len);
    void (*end)(struct peer *peer, void *self);
};

/* Give it the message, the last byte apart, and then the end of the connection if there is one. */
void peer_feed(struct peer *peer, const struct peer_input *input, const struct peer_parser *parser);
/* What the message begins with: the status, or the method before the target that was read. */
void peer_start(
    struct peer *peer, const struct peer_input *input, unsigned status, const char *method);

/* For the callbacks of both. */
void peer_name(struct peer *peer, const char *data, size_t len);
void peer_value(struct peer *peer, const char *data, size_t len);
void peer_head_over(struct peer *peer);

#endif
