/*
 * verdict: what one attempt means for the whole operation.
 *
 * Pure. Three answers exist (yes, no, unknown), and unknown is never folded into the others (P5):
 * an attempt that was sent and not answered may have happened, and only an answer about the
 * operation itself settles that.
 */
#ifndef ONCE_CLIENT_VERDICT_H
#define ONCE_CLIENT_VERDICT_H

#include <stdbool.h>

#include "base/arena.h"
#include "once/client.h"

/* How an attempt ended. */
enum attempt_end {
    ATTEMPT_ANSWERED,   /* there is a whole answer */
    ATTEMPT_NOT_SENT,   /* no connection: no byte of the request left */
    ATTEMPT_HOPELESS,   /* the same, and a retry would not help: a certificate, a URL */
    ATTEMPT_LOST,       /* sent, and no whole answer */
    ATTEMPT_UNREADABLE, /* sent, and the answer is more than we take */
    ATTEMPT_NO_MEMORY,  /* out of memory; attempt_facts.was_sent says whether it was sent */
};

/* What the body of a refusal says, in any profile of the gateway. */
struct client_marks {
    bool in_progress;     /* the first request still runs */
    bool outcome_unknown; /* the outcome is unknown */
    bool no_retry;        /* a problem document with "retry": "no" */
    bool has_effect;      /* from a problem document: */
    enum once_effect effect;
    char operation_id[64]; /* "" if absent */
};

struct attempt_facts {
    enum attempt_end end;
    bool was_sent;             /* a byte of the request may have left */
    bool is_read;              /* GET and the like: changes nothing */
    int status;                /* of HTTP; 0: no answer */
    bool is_replayed;          /* Idempotent-Replayed: true */
    const char *decision;      /* Once-Decision; "" */
    struct client_marks marks; /* zeroed without an answer */
    bool marks_unread;         /* there was no memory to read the body of a refusal */
};

struct verdict {
    bool retry;              /* a further attempt is safe and may end differently */
    bool settles;            /* it speaks for the operation, whatever happened to earlier
                                attempts */
    enum once_effect effect; /* of this attempt alone */
};

struct verdict client_judge(const struct attempt_facts *facts);

/* Reads the marks of a JSON body. Fails with E_NOMEM only; any other body has no marks. */
enum status client_marks_read(
    struct slice body, struct arena *arena, struct client_marks *ret_marks) MUST_CHECK;

#endif
