/*
 * exchange: one message on its way to an MCP server over HTTP, with its answer: a POST, and the
 * GETs that resume its stream. Also the other requests of a session (http.h).
 */
#ifndef ONCE_MCP_EXCHANGE_H
#define ONCE_MCP_EXCHANGE_H

#include "client/attempt.h"
#include "mcp/proxy.h"
#include "mcp/sse.h"

enum mcp_exchange_kind {
    MCP_EXCHANGE_MESSAGE, /* of the client, or of the proxy */
    MCP_EXCHANGE_LISTEN,  /* the server's own messages */
    MCP_EXCHANGE_REOPEN,  /* initialize, again */
    MCP_EXCHANGE_OPENED,  /* notifications/initialized, after that */
    MCP_EXCHANGE_CLOSE,   /* the end of the session */
};

/*
 *   PARKED --start--> RUNNING --answered, lost--> OVER
 *     ^                | |  ^
 *     +- no session ---+ |  +--- resume ---+       PAUSED and PARKED also end, when given up:
 *                        +-- broken --> PAUSED     --lost--> OVER
 *
 * Only RUNNING has a transfer; mcp_exchange_move makes every change.
 */
enum mcp_exchange_state {
    MCP_EXCHANGE_RUNNING, /* with libcurl */
    MCP_EXCHANGE_PAUSED,  /* will be resumed at due_ms */
    MCP_EXCHANGE_PARKED,  /* not started, or waits for a new session */
    MCP_EXCHANGE_OVER,    /* to be freed */
};

struct mcp_http;

struct mcp_exchange {
    struct mcp_exchange *next; /* in the order of their start */
    struct mcp_http *http;
    enum mcp_exchange_kind kind;
    enum mcp_exchange_state state;
    struct buf line;           /* the message; empty: a GET or DELETE */
    bool is_request;           /* it has, or is a batch of, requests */
    bool is_initialize;        /* it opens a session */
    bool is_stateless;         /* of protocol 2026-07-28 */
    bool is_barrier;           /* later messages wait for it (MH3) */
    bool is_standing;          /* its stream normally stays open: nobody waits for its end */
    bool is_resuming;          /* a GET: the message itself was sent before */
    bool is_reopened;          /* sent a second time, in a new session */
    bool is_answered;          /* a batch: its array came */
    bool has_head;             /* the status and the fields below are known */
    bool is_events;            /* the answer is a stream of events */
    bool is_held;              /* libcurl stopped reading (MH4) */
    bool is_given_up;          /* by us */
    bool has_session;          /* it was sent with the id of a session */
    size_t resumes;            /* in a row that brought nothing */
    int64_t due_ms;            /* PAUSED; or a limit of the whole, INT64_MAX: none */
    enum status failed;        /* the answer is too large, or memory is short */
    struct buf body;           /* of an answer that is no stream */
    struct sse sse;            /* of one that is */
    struct curl_slist *fields; /* the parts of the message that header fields repeat */
    struct curl_slist *lines;  /* all header fields of the running request */
    struct client_request request;
    struct client_response *response;
    struct client_transfer transfer;
    CURL *curl; /* RUNNING */
};

/* What header fields say about a message. */
struct mcp_message {
    struct slice text;
    const struct json_value *root;
    struct slice method;  /* empty: an answer, or a batch */
    struct slice version; /* of protocol 2026-07-28 on; else empty */
    bool is_request;
};
void mcp_message_read(
    struct mcp_message *message, struct slice text, const struct json_value *root);

/* Names and values of the header fields that repeat a message (2026-07-28): add is called for each,
 * with a value that can stand in a header. */
void mcp_message_fields(const struct mcp_message *message, const struct mcp_tools *tools,
    void (*add)(void *context, const char *name, struct slice value), void *context);

/* Each id of a request in the line. */
void mcp_line_ids(struct slice line, void (*visit)(void *context, struct slice id), void *context);

#endif
