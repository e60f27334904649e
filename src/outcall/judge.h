/*
 * judge: what one call to somebody's server means for the operation it was made for. Pure.
 *
 *     how far it got + what was answered + rules → executed, failed, released, unknown, later
 *
 * Promises:  the third answer is never folded into the others (P5): a request that may have left
 *            and was not answered whole is unknown, or, where the rules declare that it may be sent
 *            again, later. It is never released. Every pair of point and status has a verdict.
 */
#ifndef ONCE_OUTCALL_JUDGE_H
#define ONCE_OUTCALL_JUDGE_H

#include <stdbool.h>
#include <stddef.h>

/* How far a call got. */
enum outcall_point {
    OUTCALL_NOT_SENT, /* no byte left: it did not happen */
    OUTCALL_SENT,     /* bytes left, or may have, and the head of an answer did not come */
    OUTCALL_HEAD,     /* the head came and the body did not, or could not be kept */
    OUTCALL_ANSWERED, /* all of the answer that is needed came */
};

/* What a status, or the lack of an answer, is declared to mean. */
enum judge_rule {
    JUDGE_UNKNOWN,  /* nobody knows; 0, so that what is not declared is */
    JUDGE_SEAL,     /* it is the outcome: executed below 400, failed from there on */
    JUDGE_EXECUTED, /* it is the outcome of what was executed, whatever its number */
    JUDGE_RELEASE,  /* it did not happen, and the key is free */
    JUDGE_LATER,    /* it is to be tried again */
};

struct judge_status {
    unsigned status;
    enum judge_rule rule;
};

enum { JUDGE_CLASSES = 6 }; /* 2xx to 5xx at 2 to 5; what is above 599 counts as 5xx */

struct judge_rules {
    const struct judge_status *statuses; /* the first that matches goes before its class */
    size_t status_count;
    enum judge_rule classes[JUDGE_CLASSES];
    enum judge_rule not_sent;  /* release, later or unknown */
    enum judge_rule no_answer; /* sent, and not answered whole: unknown, or later */
};

enum outcall_verdict {
    VERDICT_UNKNOWN,
    VERDICT_EXECUTED,
    VERDICT_FAILED,
    VERDICT_RELEASED,
    VERDICT_LATER
};

/* status: of an answer; not read otherwise. */
enum outcall_verdict judge(
    const struct judge_rules *rules, enum outcall_point point, unsigned status);
/* Whether the answer is an outcome, to be kept. */
bool judge_is_outcome(enum outcall_verdict verdict);

#endif
