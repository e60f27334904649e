/*
 * proxy: an MCP client on one side, a server on the other, and the calls of tools between them,
 * each of which takes effect once. It has no descriptors, threads or clock: lines, answers of the
 * ledger and times go in, and lines and jobs for the ledger come out (pump.h moves them).
 *
 * The life of a call (of a tool that is guarded; every other message passes unchanged):
 *
 *                                +---- it is not sent -----+
 *                                |                         v
 *     LISTING ---> ASKING ---> READY ---> SENT ------> SETTLING ---> (gone)
 *                   |  ^                                   |
 *                   v  |                                   +---> LATE ---> SETTLING
 *                  WAITING
 *
 *   LISTING   The tool was not listed yet: our own tools/list is under way.       call_read
 *   ASKING    A begin is with the ledger. Its answer leads on, or ends the call.  call_ask
 *   WAITING   Somebody else makes the same call.                                  call_begun
 *   READY     The grant is durable; no byte went to the server.                   call_begun
 *   SENT      The line is in the queue to the server.                             proxy_send
 *   SETTLING  Its end is with the ledger; the client's answer waits for it (P2).  call_settle
 *   LATE      It is unknown, and the client knows. A late answer is still sealed. call_settled
 *
 * Invariants:
 *   M1  No line of a guarded call is in the queue to the server before its grant is durable (P6).
 *   M2  A line is put there only while the queue is empty and the grant is fresh, so that no grant
 *       grows old between the two.
 *   M3  A call whose line was begun and that has no usable answer becomes unknown, never free (P5).
 *   M4  A client's request gets one answer at most; a guarded call's comes after its settlement.
 *   M5  A job is with the ledger at most once; a request lives until its jobs are back.
 *
 * Threads: one. A job belongs to the ledger from submit until proxy_done.
 */
#ifndef ONCE_MCP_PROXY_H
#define ONCE_MCP_PROXY_H

#include <once/once.h>

#include "base/arena.h"
#include "base/buf.h"
#include "canon/digest.h"
#include "mcp/arguments.h"
#include "mcp/tools.h"

enum {
    MCP_MESSAGE_BYTES_MAX = 64 << 20, /* a line of the server; results are kept up to 16 MiB */
    MCP_QUEUE_BYTES_MAX = 512 << 20,  /* lines that one side has not read: some of the largest */
    MCP_REQUESTS_MAX = 1024,          /* of the client, in flight */
    MCP_PAGES_MAX = 64,               /* of our own tools/list */
    MCP_LIST_MS = 10000,              /* how long a call waits for it */
    MCP_LEASE_MS = 30000,             /* of a grant; renewed while the server works */
    MCP_SETTLE_MS = 60000,            /* how long it tries to record the end of a call */
    MCP_CANCEL_MS = 5000,             /* a cancelled call's answer may still come */
    MCP_WINDOW_DERIVED_MS = 120000,   /* of a derived key */
};

struct mcp_request;

enum mcp_job_kind { MCP_BEGIN, MCP_PEEK, MCP_SEAL, MCP_RELEASE, MCP_UNKNOWN, MCP_RENEW };

/* Something for the ledger, and its answer. */
struct mcp_job {
    struct mcp_job *next;
    struct mcp_request *request;
    void *port; /* the ledger's: where it comes back */
    enum mcp_job_kind kind;
    bool is_busy; /* with the ledger */
    /* What is asked: the member of its kind; pointers are the request's. */
    struct once_begin begin;
    struct once_seal seal;
    struct once_hold hold; /* the others; a peek uses operation_id */
    /* What was answered. */
    int result;       /* of once.h */
    char error[1040]; /* unless ONCE_OK: why, and what to do */
    enum once_decision decision;
    char operation_id[40];
    uint64_t fence;
    enum once_status status; /* of a replay */
    bool has_moved;          /* a peek: asking again is useful */
    bool is_kept;            /* a replay: the outcome is still there */
    struct buf outcome;      /* of a replay: the JSON that was sealed */
    struct buf words;        /* a conflict: what differs, RFC 6902; else the reason that the
                                operation has, terminated */
};

enum mcp_request_kind { MCP_PLAIN, MCP_LIST, MCP_CALL };
enum mcp_call_state {
    CALL_LISTING,
    CALL_ASKING,
    CALL_WAITING,
    CALL_READY,
    CALL_SENT,
    CALL_SETTLING,
    CALL_LATE,
};

struct mcp_batch;

/* A request of the client that has no answer yet. */
struct mcp_request {
    struct mcp_request *next; /* in the order of arrival */
    enum mcp_request_kind kind;
    struct buf id;           /* canonical: servers may write it differently */
    struct buf id_text;      /* as the client wrote it */
    struct mcp_batch *batch; /* that it came with; NULL: none */
    bool is_own;             /* ours, not the client's */
    bool is_first_page;      /* a list without a cursor */
    bool is_opening;         /* initialize or server/discover: its answer has the capabilities */
    bool is_over;            /* to be freed when its jobs are back */
    int64_t due_ms;          /* our list, or a sent call: when it is given up */
    /* A call. */
    enum mcp_call_state state;
    const struct config_mcp_tool *policy;
    struct buf line;  /* as received, then for the server */
    struct buf names; /* tool, key and request id, each terminated */
    const char *tool; /* these, once they are known */
    const char *key;
    const char *request_id;
    struct buf given;   /* a key that came with the message; empty: none */
    struct buf payload; /* the arguments */
    struct digest fingerprint;
    bool has_fingerprint; /* used instead of the payload */
    bool is_derived;      /* the key */
    struct buf token;     /* its progressToken, canonical; may be empty */
    char operation_id[40];
    uint64_t fence;
    int64_t asked_ms;   /* when the running begin or renewal was submitted */
    int64_t renewed_ms; /* the grant is as fresh as this */
    int64_t renew_at_ms;
    int64_t wait_until_ms; /* a duplicate */
    int64_t peek_at_ms;    /* the next peek */
    int64_t pause_ms;      /* before the one after it */
    int64_t settle_until_ms;
    int64_t settle_at_ms; /* when recording is tried again; 0: not waiting */
    uint64_t sent_from;   /* where its line begins in the stream to the server */
    bool is_cancelled;
    bool is_answered;   /* the client has its answer, or wants none */
    bool is_lost;       /* the grant is no longer ours */
    struct buf answer;  /* for the client, after the settlement */
    struct buf sealed;  /* the result as it is kept */
    struct buf stashed; /* the server's answer, when it came during the settlement */
    char reason[256];
    struct mcp_job job; /* begin, peek, and the end */
    struct mcp_job renewal;
};

/* Lines for one side; the pump takes them from the front. */
struct mcp_queue {
    struct buf bytes;
    size_t at;      /* taken */
    uint64_t total; /* taken since the start */
};

/* Where a message for the client goes, if not into the queue. */
struct mcp_client_side {
    /* One message, without a newline. about: the id of the client's request that the server sent it
     * for, as written there; empty: not known, or it is an answer. */
    void (*send_line)(void *context, struct slice line, struct slice about);
    /* Bytes that were sent and not read yet. */
    size_t (*waiting)(void *context);
    void *context;
};

struct mcp_proxy_options {
    const struct mem *mem;
    const struct config_mcp *policy;
    const char *principal; /* may be NULL */
    const char *prefix;    /* of every scope; "" */
    const char *resolve;   /* options that once resolve needs to find the store; "" */
    const char *trace;     /* of every begin; may be NULL */
    void (*submit)(void *context, struct mcp_job *job);
    void (*say)(void *context, const char *text); /* a line for the log */
    void *context;
    struct mcp_client_side client; /* zero: the queue to_client */
};

struct mcp_proxy {
    struct mcp_proxy_options options;
    struct arena arena; /* for one message */
    struct mcp_tools tools;
    struct mcp_request *requests;
    size_t request_count;
    struct mcp_queue to_client;
    struct mcp_queue to_server;
    struct mcp_batch *batch; /* being read; NULL: none */
    uint64_t own_count;      /* our own requests so far */
    size_t pages;            /* of our own running list */
    struct buf meta;    /* what our own list says about its protocol and client; may be empty */
    struct slice key;   /* a key that came with the message being read; empty: none */
    struct slice about; /* whose stream the server's message came on; empty: not known */
    bool is_server_gone;
    int64_t now_ms;
};

void proxy_init(struct mcp_proxy *proxy, const struct mcp_proxy_options *options);
/* No job may be with the ledger. */
void proxy_release(struct mcp_proxy *proxy);

/* A line without its newline. now_ms is the boot clock's everywhere. */
void proxy_client_line(struct mcp_proxy *proxy, struct slice line, int64_t now_ms);
void proxy_server_line(struct mcp_proxy *proxy, struct slice line, int64_t now_ms);
/* A line of the client that is too long to be read. */
void proxy_client_too_long(struct mcp_proxy *proxy);
/* The ledger has answered a job. */
void proxy_done(struct mcp_proxy *proxy, struct mcp_job *job, int64_t now_ms);
/* Bytes that the client has not read yet. */
size_t proxy_client_waits(const struct mcp_proxy *proxy);
/* What the client has waiting for the server's answer to the request with this id. */
enum mcp_awaited { MCP_AWAITED_NOTHING, MCP_AWAITED_PLAIN, MCP_AWAITED_CALL };
enum mcp_awaited proxy_awaited(struct mcp_proxy *proxy, struct slice id);
/* Whether the request may be sent to the server now. False: the grant of a call has grown old. */
bool proxy_may_send(struct mcp_proxy *proxy, struct slice id, int64_t now_ms);
/* The server will not answer the request with this id. was_sent: it may have got it. why: a clause,
 * such as "the connection broke". */
void proxy_server_lost(
    struct mcp_proxy *proxy, struct slice id, bool was_sent, const char *why, int64_t now_ms);
/* The server has ended or closed its output: nothing more comes from it. */
void proxy_server_gone(struct mcp_proxy *proxy, int64_t now_ms);
/* Do what is due. */
void proxy_tick(struct mcp_proxy *proxy, int64_t now_ms);
/* Put the line of a granted call into the queue to the server, which must be empty. */
void proxy_send(struct mcp_proxy *proxy, int64_t now_ms);
/* When something is due next; INT64_MAX: nothing. */
int64_t proxy_due(const struct mcp_proxy *proxy);
/* Whether a call is under way that the server has not received yet. */
bool proxy_has_unsent(const struct mcp_proxy *proxy);
/* Whether nothing is left to record. */
bool proxy_is_settled(const struct mcp_proxy *proxy);
/* Asserts M1 to M5. */
void proxy_check(const struct mcp_proxy *proxy);

/* The bytes at the front of a queue; and removing the first len of them. */
struct slice queue_front(const struct mcp_queue *queue);
void queue_take(struct mcp_queue *queue, size_t len);

#endif
