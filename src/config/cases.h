/*
 * cases: the contents of a file for `once policy test` (docs/gateway-policy.md), as plain data.
 *
 *     - name: a retry gets the first answer
 *       steps:
 *         - request: {method: POST, path: /pay, headers: {Idempotency-Key: k1}, json: {amount: 1}}
 *           upstream: {status: 201}
 *           expect: {status: 201, decision: first_seen, effects: 1}
 *         - expect: {status: 201, decision: duplicate_replayed, effects: 1}
 *
 * Promises:  an unknown name is an error with its place, never ignored: a misspelt expectation
 *            would always hold.
 * Ownership: in the config's memory, until config_free.
 */
#ifndef ONCE_CONFIG_CASES_H
#define ONCE_CONFIG_CASES_H

#include "config/config.h"

enum {
    CASES_MAX = 1000,
    CASE_STEPS_MAX = 64,
    CASE_REPEAT_MAX = 1000,
    CASE_HEADERS_MAX = 32, /* of a message */
};

/* How the fake upstream fails. */
enum case_fail {
    CASE_FAIL_NONE,
    CASE_FAIL_REFUSE,  /* no connection: certainly nothing was sent */
    CASE_FAIL_RESET,   /* the request is read, then the connection is reset without an answer */
    CASE_FAIL_TIMEOUT, /* the request is read, and no answer ever comes */
    CASE_FAIL_HALF,    /* half of an answer, then the end of the connection */
};

struct case_header {
    const char *name;
    const char *value; /* NULL: expected to be absent */
};

struct case_headers {
    struct case_header items[CASE_HEADERS_MAX];
    size_t count;
};

/* The parts that every message has. */
struct case_content {
    struct case_headers headers;
    struct slice body;
    bool has_body; /* false: the upstream answers with a small JSON */
    bool is_json;  /* given as json:, which sets the Content-Type unless the case gives a different
                      one */
};

struct case_request {
    const char *method;
    const char *path; /* with its query */
    struct case_content content;
};

struct case_upstream {
    uint64_t status;
    struct case_content content;
    bool waits; /* answers when the case is over: later requests find it in progress */
    enum case_fail fail;
    const struct case_upstream *reconcile; /* to the gateway's own question about an operation;
                                              NULL: 503, which settles nothing */
};

enum case_replayed { CASE_REPLAYED_ANY, CASE_REPLAYED, CASE_NOT_REPLAYED };
#define CASE_EFFECTS_ANY UINT64_MAX

struct case_expect {
    uint64_t status;   /* 0: any */
    unsigned decision; /* see case_decision */
    enum case_replayed replayed;
    uint64_t effects;  /* calls that the upstream has received in this case so far */
    const char *code;  /* of a refusal; NULL: any */
    const char *route; /* its match; NULL: any */
    const char *body_contains;
    struct case_headers headers;
};

struct case_step {
    unsigned line;
    const struct case_request *request; /* the previous step's, unless the step has its own */
    struct case_upstream upstream;
    uint64_t repeat; /* times; the expectation applies to each */
    struct case_expect expect;
};

struct config_case {
    const char *name;
    unsigned line;
    const struct case_step *steps;
    size_t step_count;
};

struct config_cases {
    const struct config_case *items;
    size_t count;
};

/* Whether there is a field of that name. */
bool case_headers_have(const struct case_headers *headers, const char *name);
/* The name of an expected decision; NULL: any. */
const char *case_decision(unsigned decision);

/* E_INVALID: at least one fault was added, in the order of the file. E_NOMEM. */
enum status config_cases_read(struct config *config, struct slice text,
    struct config_cases *ret_cases, struct config_faults *faults) MUST_CHECK;

#endif
