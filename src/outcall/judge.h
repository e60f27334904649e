/*
 * judge: what one call to a remote server means for the operation it was made for. Pure.
 *
 *     how far it got + what was answered + rules → executed, failed, released, unknown, later
 *
 * Promises:  the third answer is never folded into the others (P5): a request that may have been
 *            sent and was not answered completely is unknown, or later if the rules say that it may
 *            be sent again. It is never released. Every pair of point and status has a verdict.
 */
#ifndef ONCE_OUTCALL_JUDGE_H
#define ONCE_OUTCALL_JUDGE_H

#include <stdbool.h>
#include <stddef.h>

/* How far a call got. */
enum outcall_point {
    OUTCALL_NOT_SENT, /* no byte was sent: it did not happen */
    OUTCALL_SENT,     /* bytes were or may have been sent, and no head of an answer came */
    OUTCALL_HEAD,     /* the head came, but the body did not or could not be kept */
    OUTCALL_ANSWERED, /* everything needed of the answer came */
};

/* The configured meaning of a status, or of no answer. */
enum judge_rule {
    JUDGE_UNKNOWN,  /* nobody knows; 0, so that it is the default */
    JUDGE_SEAL,     /* it is the outcome: executed below 400, failed from there on */
    JUDGE_EXECUTED, /* it is the outcome, and executed whatever its number */
    JUDGE_RELEASE,  /* it did not happen, and the key is free */
    JUDGE_LATER,    /* try again later */
};

struct judge_status {
    unsigned status;
    enum judge_rule rule;
};

enum { JUDGE_CLASSES = 6 }; /* 2xx to 5xx at 2 to 5; a status above 599 counts as 5xx */

struct judge_rules {
    const struct judge_status *statuses; /* the first that matches overrides its class */
    size_t status_count;
    enum judge_rule classes[JUDGE_CLASSES];
    enum judge_rule not_sent;  /* release, later or unknown */
    enum judge_rule no_answer; /* sent, and not answered completely: unknown, or later */
};

enum outcall_verdict {
    VERDICT_UNKNOWN,
    VERDICT_EXECUTED,
    VERDICT_FAILED,
    VERDICT_RELEASED,
    VERDICT_LATER
};

/* status is read only if there was an answer. */
enum outcall_verdict judge(
    const struct judge_rules *rules, enum outcall_point point, unsigned status);
/* Whether the answer is an outcome and must be kept. */
bool judge_is_outcome(enum outcall_verdict verdict);

#endif
