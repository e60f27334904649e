/*
 * sse: reads a stream of server-sent events (WHATWG HTML, "Server-sent events").
 *
 * Promises:  an event is handed on when its blank line has come, and never before: an unfinished
 *            event at the end of a stream is dropped. Pieces may be cut anywhere. Lines end with CR
 *            LF, LF or CR.
 * Does not:  know what is in an event. An event that is not of the type "message" is skipped.
 */
#ifndef ONCE_MCP_SSE_H
#define ONCE_MCP_SSE_H

#include "base/buf.h"

enum {
    SSE_ID_BYTES_MAX = 1024, /* it goes into a header; a longer one counts as absent */
    SSE_RETRY_MS_MAX = 60000 /* a server that asks for more would seem dead */
};

struct sse {
    struct buf line; /* one that has not ended yet */
    struct buf data; /* of the event, its lines joined with newlines */
    size_t data_lines;
    bool is_other;                      /* the event is of a different type */
    bool is_begun;                      /* the first line was read, with its byte order mark */
    bool was_cr;                        /* the last byte was a CR: an LF after it ends nothing */
    bool has_id;                        /* the event has an id */
    size_t id_len;                      /* of next_id */
    char next_id[SSE_ID_BYTES_MAX + 1]; /* of the event that is being read */
    char last_id[SSE_ID_BYTES_MAX + 1]; /* of the last event that came whole; "": none */
    int64_t retry_ms;                   /* what the server asked for; -1: nothing */
    void (*event)(void *context, struct slice data); /* never empty */
    void *context;
};

/* bytes_max: of the data of an event. */
void sse_init(struct sse *sse, const struct mem *mem, size_t bytes_max);
void sse_release(struct sse *sse);
/* A new stream. What was asked for, and the last id, stay: they are for its resumption. */
void sse_restart(struct sse *sse);
/* E_LIMIT: an event is larger than bytes_max; E_NOMEM. Both stick. */
enum status sse_read(struct sse *sse, struct slice piece) MUST_CHECK;

#endif
