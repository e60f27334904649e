#include "model.h"

#include <string.h>

/* What can be true of a record, a request and a moment. */
#define FACT(n) (UINT64_C(1) << (n))

#define THERE          FACT(0)
#define OVER           FACT(1) /* the window is */
#define RUNNING        FACT(2)
#define ALIVE          FACT(3) /* running, and the lease is not over */
#define UNKNOWN        FACT(4) /* whether it happened */
#define RELEASED       FACT(5)
#define SEALED         FACT(6) /* and settled */
#define RETRIABLE      FACT(7) /* failed or rejected, and the policy lets it be tried again */
#define SAME_PRINT     FACT(8)
#define SAME_OPERATION FACT(9)
#define SAME_FENCE     FACT(10)
#define SAME_OUTCOME   FACT(11) /* and the same status */
#define MAY_TAKE_OVER  FACT(12)
#define ASKS_RELEASED  FACT(13)
#define NAMES_FENCE    FACT(14)
#define OUTDATED       FACT(15) /* a newer version of its source was sealed */
#define PENDING        FACT(16)
#define WAITING        FACT(17)
#define DEAD           FACT(18)
#define COMPENSATING   FACT(19)
#define IN_DOUBT       FACT(20) /* unknown whether it was compensated */
#define DUE            FACT(21) /* it has a due, and that is now or past */
#define USED_UP        FACT(22) /* attempts or deadline */
#define IN_LIFE        FACT(23) /* the kind's table has a word for where the request leads */
#define HELD           FACT(24) /* by an incarnation of ours that is not the living one */
#define ASKS_PENDING   FACT(25)
#define ASKS_GRANT     FACT(26)
#define ASKS_OUTCOME   FACT(27) /* executed or failed */
#define ASKS_UNDONE    FACT(28) /* compensated */
#define REJECTED       FACT(29)
#define UNDONE         FACT(30) /* compensated */
#define UNDOABLE       FACT(31)
#define LOST           FACT(32) /* nothing, another operation, or window over */

#define GRANTED      FACT(33) /* at least once */
#define HAS_EFFECTS  FACT(34) /* a command whose handler has run */
#define ASKS_WAITING FACT(35)
#define ASKED_LATER  FACT(36) /* its provider is, and the request says when */

#define OF(kind) (1u << REQUEST_##kind)
#define HOLDER                                                                                     \
    (OF(SEAL) | OF(RELEASE) | OF(UNKNOWN) | OF(RENEW) | OF(RETRY) | OF(GIVE_UP) | OF(WAIT))
#define JANITOR (OF(LEASE_OVER) | OF(HOLDER_GONE))
#define UNDOING (OF(COMPENSATE) | OF(COMPENSATION_SETTLE))
#define BY_ID   (~(OF(BEGIN) | OF(ENQUEUE)))

enum doing {
    DO_NOTHING, /* and show the record */
    DO_HIDE,    /* nothing, and there is no record to show */
    DO_COUNT,   /* one more duplicate */
    DO_START,   /* a new operation */
    DO_AGAIN,   /* another attempt of the same operation */
    DO_SEAL,
    DO_RELEASE,
    DO_RENEW,
    DO_GIVE_UP,       /* unknown, because the holder said so */
    DO_RUN_OUT,       /* unknown, because the lease ran out */
    DO_RUN_OUT_COUNT, /* the same, found by a duplicate */
    DO_LOSE_HOLDER,   /* unknown, because its process is gone */
    DO_QUEUE,         /* a new operation that is claimed, or woken, later */
    DO_QUEUE_AGAIN,   /* the same operation, once more from its start */
    DO_CLAIM,
    DO_LATER,   /* pending, with a due */
    DO_WAIT,    /* waiting, perhaps with a due */
    DO_BURY,    /* dead */
    DO_REJECT,  /* settled without a grant */
    DO_PUT_OFF, /* ask the provider again, perhaps never */
    DO_UNDO,    /* compensating */
    DO_UNDONE,  /* compensated */
    DO_DOUBT,   /* nobody knows whether it was compensated */
    DO_TRUST,   /* it was not: as it was sealed */
};

struct row {
    const char *rule;
    unsigned kinds;              /* the row is for these requests */
    uint64_t need;               /* all of these hold */
    uint64_t lack;               /* none of these holds */
    enum decision_kind decision; /* what is said */
    enum doing doing;            /* what is done */
    bool repeated;
};

/* The first row that fits decides. */
static const struct row rows[] = {
    {"B9", OF(BEGIN), OUTDATED, THERE, DECISION_STALE_VERSION, DO_HIDE, false},
    {"B9", OF(BEGIN), OUTDATED | OVER, 0, DECISION_STALE_VERSION, DO_HIDE, false},
    {"B1", OF(BEGIN), 0, THERE, DECISION_FIRST_SEEN, DO_START, false},
    {"B1", OF(BEGIN), OVER, 0, DECISION_FIRST_SEEN, DO_START, false},
    {"B2", OF(BEGIN), 0, SAME_PRINT, DECISION_CONFLICT_REJECTED, DO_COUNT, false},
    {"B3", OF(BEGIN), RUNNING | ALIVE, 0, DECISION_IN_PROGRESS, DO_COUNT, false},
    {"B9", OF(BEGIN), OUTDATED | RUNNING | MAY_TAKE_OVER, 0, DECISION_STALE_VERSION, DO_NOTHING,
        false},
    {"B9", OF(BEGIN), OUTDATED | UNKNOWN | MAY_TAKE_OVER, 0, DECISION_STALE_VERSION, DO_NOTHING,
        false},
    {"B9", OF(BEGIN), OUTDATED | RELEASED, 0, DECISION_STALE_VERSION, DO_NOTHING, false},
    {"B9", OF(BEGIN), OUTDATED | RETRIABLE, 0, DECISION_STALE_VERSION, DO_NOTHING, false},
    {"B4", OF(BEGIN), RUNNING | MAY_TAKE_OVER, 0, DECISION_FIRST_SEEN, DO_AGAIN, false},
    {"B4", OF(BEGIN), UNKNOWN | MAY_TAKE_OVER, 0, DECISION_FIRST_SEEN, DO_AGAIN, false},
    {"B5", OF(BEGIN), RUNNING, 0, DECISION_HELD_UNKNOWN, DO_RUN_OUT_COUNT, false},
    {"B5", OF(BEGIN), UNKNOWN, 0, DECISION_HELD_UNKNOWN, DO_COUNT, false},
    {"B6", OF(BEGIN), RELEASED, 0, DECISION_FIRST_SEEN, DO_AGAIN, false},
    {"B7", OF(BEGIN), RETRIABLE, 0, DECISION_FIRST_SEEN, DO_AGAIN, false},
    {"B8", OF(BEGIN), SEALED, 0, DECISION_DUPLICATE_REPLAYED, DO_COUNT, false},
    {"B11", OF(BEGIN), COMPENSATING, 0, DECISION_DUPLICATE_REPLAYED, DO_COUNT, false},
    {"B11", OF(BEGIN), IN_DOUBT, 0, DECISION_DUPLICATE_REPLAYED, DO_COUNT, false},
    {"B10", OF(BEGIN), 0, 0, DECISION_IN_PROGRESS, DO_COUNT, false},

    {"E7", OF(ENQUEUE), OUTDATED, THERE, DECISION_STALE_VERSION, DO_HIDE, false},
    {"E7", OF(ENQUEUE), OUTDATED | OVER, 0, DECISION_STALE_VERSION, DO_HIDE, false},
    {"E1", OF(ENQUEUE), 0, THERE, DECISION_ENQUEUED, DO_QUEUE, false},
    {"E1", OF(ENQUEUE), OVER, 0, DECISION_ENQUEUED, DO_QUEUE, false},
    {"E2", OF(ENQUEUE), 0, SAME_PRINT, DECISION_CONFLICT_REJECTED, DO_COUNT, false},
    {"E7", OF(ENQUEUE), OUTDATED | RETRIABLE, 0, DECISION_STALE_VERSION, DO_NOTHING, false},
    {"E6", OF(ENQUEUE), RETRIABLE, 0, DECISION_ENQUEUED, DO_QUEUE_AGAIN, false},
    {"E3", OF(ENQUEUE), SEALED, 0, DECISION_DUPLICATE_REPLAYED, DO_COUNT, false},
    {"E3", OF(ENQUEUE), COMPENSATING, 0, DECISION_DUPLICATE_REPLAYED, DO_COUNT, false},
    {"E3", OF(ENQUEUE), IN_DOUBT, 0, DECISION_DUPLICATE_REPLAYED, DO_COUNT, false},
    {"E5", OF(ENQUEUE), UNKNOWN, 0, DECISION_HELD_UNKNOWN, DO_COUNT, false},
    {"E5", OF(ENQUEUE), RUNNING, ALIVE, DECISION_HELD_UNKNOWN, DO_RUN_OUT_COUNT, false},
    {"E4", OF(ENQUEUE), 0, 0, DECISION_IN_PROGRESS, DO_COUNT, false},

    {"H1", HOLDER, LOST, 0, DECISION_NOT_FOUND, DO_HIDE, false},
    {"N1", OF(RESOLVE), LOST, 0, DECISION_NOT_FOUND, DO_HIDE, false},
    {"J1", JANITOR, LOST, 0, DECISION_NOTHING, DO_HIDE, false},
    {"C1", OF(CLAIM), LOST, 0, DECISION_NOT_FOUND, DO_HIDE, false},
    {"W1", OF(WAKE), LOST, 0, DECISION_NOT_FOUND, DO_HIDE, false},
    {"X1", OF(CANCEL), LOST, 0, DECISION_NOT_FOUND, DO_HIDE, false},
    {"U1", OF(TAKE_UP), LOST, 0, DECISION_NOT_FOUND, DO_HIDE, false},
    {"Q1", OF(POSTPONE), LOST, 0, DECISION_NOT_FOUND, DO_HIDE, false},
    {"K1", UNDOING, LOST, 0, DECISION_NOT_FOUND, DO_HIDE, false},
    {"A1", BY_ID, 0, IN_LIFE, DECISION_WRONG_STATUS, DO_NOTHING, false},

    {"T4", OF(GIVE_UP), PENDING | USED_UP, NAMES_FENCE, DECISION_DONE, DO_BURY, false},
    {"T5", OF(GIVE_UP), PENDING, NAMES_FENCE, DECISION_NOT_DUE, DO_NOTHING, false},
    {"H2", HOLDER, 0, SAME_FENCE, DECISION_STALE_FENCE, DO_NOTHING, false},
    {"H2", HOLDER, 0, NAMES_FENCE, DECISION_STALE_FENCE, DO_NOTHING, false},
    {"H3", OF(SEAL), SEALED | SAME_OUTCOME, 0, DECISION_SEALED, DO_NOTHING, true},
    {"H3", HOLDER, SEALED, 0, DECISION_ALREADY_SEALED, DO_NOTHING, false},
    {"H3", HOLDER, COMPENSATING, 0, DECISION_ALREADY_SEALED, DO_NOTHING, false},
    {"H3", HOLDER, IN_DOUBT, 0, DECISION_ALREADY_SEALED, DO_NOTHING, false},
    {"H4", OF(RELEASE), RELEASED, 0, DECISION_RELEASED, DO_NOTHING, true},
    {"H4", HOLDER, RELEASED, 0, DECISION_STALE_FENCE, DO_NOTHING, false},
    {"H6", OF(RETRY), PENDING, 0, DECISION_DONE, DO_NOTHING, true},
    {"H6", OF(RETRY) | OF(GIVE_UP), DEAD, 0, DECISION_DONE, DO_NOTHING, true},
    {"H6", OF(WAIT), WAITING, 0, DECISION_DONE, DO_NOTHING, true},
    {"H6", HOLDER, 0, RUNNING | UNKNOWN, DECISION_STALE_FENCE, DO_NOTHING, false},
    {"H5", OF(UNKNOWN), UNKNOWN, 0, DECISION_UNKNOWN, DO_NOTHING, true},
    {"H7", OF(UNKNOWN), RUNNING | ASKED_LATER, 0, DECISION_UNKNOWN, DO_GIVE_UP, false},
    {"H5", OF(UNKNOWN), RUNNING, 0, DECISION_UNKNOWN, DO_GIVE_UP, false},
    {"H5", OF(SEAL), 0, 0, DECISION_SEALED, DO_SEAL, false},
    {"H5", OF(RELEASE), 0, 0, DECISION_RELEASED, DO_RELEASE, false},
    {"H5", OF(RENEW), 0, 0, DECISION_RENEWED, DO_RENEW, false},
    {"T2", OF(RETRY), USED_UP, 0, DECISION_DONE, DO_BURY, false},
    {"T1", OF(RETRY), 0, 0, DECISION_DONE, DO_LATER, false},
    {"T3", OF(WAIT), 0, 0, DECISION_DONE, DO_WAIT, false},
    {"T4", OF(GIVE_UP), USED_UP, 0, DECISION_DONE, DO_BURY, false},
    {"T5", OF(GIVE_UP), 0, 0, DECISION_NOT_DUE, DO_NOTHING, false},

    {"N6", OF(RESOLVE), NAMES_FENCE, SAME_FENCE, DECISION_STALE_FENCE, DO_NOTHING, false},
    {"N8", OF(RESOLVE), IN_DOUBT | ASKS_OUTCOME, 0, DECISION_RESOLVED, DO_TRUST, false},
    {"N8", OF(RESOLVE), IN_DOUBT, 0, DECISION_ALREADY_SEALED, DO_NOTHING, false},
    {"N2", OF(RESOLVE), SEALED | SAME_OUTCOME, 0, DECISION_RESOLVED, DO_NOTHING, true},
    {"N2", OF(RESOLVE), SEALED, 0, DECISION_ALREADY_SEALED, DO_NOTHING, false},
    {"N2", OF(RESOLVE), COMPENSATING, 0, DECISION_ALREADY_SEALED, DO_NOTHING, false},
    {"N3", OF(RESOLVE), RELEASED | ASKS_RELEASED, 0, DECISION_RESOLVED, DO_NOTHING, true},
    {"N3", OF(RESOLVE), RELEASED, 0, DECISION_ALREADY_SEALED, DO_NOTHING, false},
    {"N7", OF(RESOLVE), PENDING | ASKS_PENDING, 0, DECISION_RESOLVED, DO_NOTHING, true},
    {"N7", OF(RESOLVE), 0, RUNNING | UNKNOWN, DECISION_WRONG_STATUS, DO_NOTHING, false},
    {"N4", OF(RESOLVE), ALIVE, 0, DECISION_STILL_RUNNING, DO_NOTHING, false},
    {"N5", OF(RESOLVE), ASKS_RELEASED, 0, DECISION_RESOLVED, DO_RELEASE, false},
    {"N5", OF(RESOLVE), ASKS_PENDING, 0, DECISION_RESOLVED, DO_LATER, false},
    {"N5", OF(RESOLVE), 0, 0, DECISION_RESOLVED, DO_SEAL, false},

    {"J2", OF(LEASE_OVER), RUNNING, ALIVE, DECISION_UNKNOWN, DO_RUN_OUT, false},
    {"J3", OF(LEASE_OVER), 0, 0, DECISION_NOTHING, DO_NOTHING, false},
    {"J5", OF(HOLDER_GONE), NAMES_FENCE, SAME_FENCE, DECISION_NOTHING, DO_NOTHING, false},
    {"J4", OF(HOLDER_GONE), RUNNING | HELD, 0, DECISION_UNKNOWN, DO_LOSE_HOLDER, false},
    {"J5", OF(HOLDER_GONE), 0, 0, DECISION_NOTHING, DO_NOTHING, false},

    {"C3", OF(CLAIM), PENDING, DUE, DECISION_NOT_DUE, DO_NOTHING, false},
    {"C4", OF(CLAIM), PENDING | OUTDATED, 0, DECISION_STALE_VERSION, DO_NOTHING, false},
    {"C2", OF(CLAIM), PENDING, 0, DECISION_CLAIMED, DO_CLAIM, false},
    {"C5", OF(CLAIM), 0, 0, DECISION_WRONG_STATUS, DO_NOTHING, false},

    {"W5", OF(WAKE), WAITING | ASKS_OUTCOME, GRANTED, DECISION_WRONG_STATUS, DO_NOTHING, false},
    {"W5", OF(WAKE), WAITING | ASKS_WAITING, GRANTED, DECISION_WRONG_STATUS, DO_NOTHING, false},
    {"W7", OF(WAKE), WAITING | ASKS_WAITING, 0, DECISION_DONE, DO_WAIT, false},
    {"W3", OF(WAKE), WAITING | DUE | ASKS_PENDING, 0, DECISION_TOO_LATE, DO_NOTHING, false},
    {"W3", OF(WAKE), WAITING | DUE | ASKS_GRANT, 0, DECISION_TOO_LATE, DO_NOTHING, false},
    {"W2", OF(WAKE), WAITING | ASKS_PENDING, 0, DECISION_DONE, DO_LATER, false},
    {"W2", OF(WAKE), WAITING | ASKS_GRANT, 0, DECISION_CLAIMED, DO_CLAIM, false},
    {"W2", OF(WAKE), WAITING, 0, DECISION_DONE, DO_SEAL, false},
    {"W4", OF(WAKE), 0, 0, DECISION_WRONG_STATUS, DO_NOTHING, false},

    {"X5", OF(CANCEL), WAITING | HAS_EFFECTS, 0, DECISION_WRONG_STATUS, DO_NOTHING, false},
    {"X3", OF(CANCEL), REJECTED, 0, DECISION_DONE, DO_NOTHING, true},
    {"X2", OF(CANCEL), PENDING, 0, DECISION_DONE, DO_REJECT, false},
    {"X2", OF(CANCEL), WAITING, 0, DECISION_DONE, DO_REJECT, false},
    {"X2", OF(CANCEL), DEAD, 0, DECISION_DONE, DO_REJECT, false},
    {"X4", OF(CANCEL), 0, 0, DECISION_WRONG_STATUS, DO_NOTHING, false},

    {"U2", OF(TAKE_UP), DEAD, 0, DECISION_DONE, DO_LATER, false},
    {"U2", OF(TAKE_UP), PENDING, 0, DECISION_DONE, DO_LATER, false},
    {"U3", OF(TAKE_UP), 0, 0, DECISION_WRONG_STATUS, DO_NOTHING, false},

    {"Q2", OF(POSTPONE), NAMES_FENCE, SAME_FENCE, DECISION_STALE_FENCE, DO_NOTHING, false},
    {"Q3", OF(POSTPONE), UNKNOWN, 0, DECISION_DONE, DO_PUT_OFF, false},
    {"Q3", OF(POSTPONE), IN_DOUBT, 0, DECISION_DONE, DO_PUT_OFF, false},
    {"Q4", OF(POSTPONE), 0, 0, DECISION_WRONG_STATUS, DO_NOTHING, false},

    {"K3", OF(COMPENSATE), COMPENSATING, 0, DECISION_DONE, DO_NOTHING, true},
    {"K3", OF(COMPENSATE), UNDONE, 0, DECISION_DONE, DO_NOTHING, true},
    {"K2", OF(COMPENSATE), UNDOABLE, 0, DECISION_DONE, DO_UNDO, false},
    {"K4", OF(COMPENSATE), 0, 0, DECISION_WRONG_STATUS, DO_NOTHING, false},
    {"K7", OF(COMPENSATION_SETTLE), UNDONE | ASKS_UNDONE, 0, DECISION_DONE, DO_NOTHING, true},
    {"K7", OF(COMPENSATION_SETTLE), IN_DOUBT, ASKS_UNDONE, DECISION_DONE, DO_NOTHING, true},
    {"K5", OF(COMPENSATION_SETTLE), IN_DOUBT, 0, DECISION_DONE, DO_UNDONE, false},
    {"K5", OF(COMPENSATION_SETTLE), COMPENSATING | ASKS_UNDONE, 0, DECISION_DONE, DO_UNDONE, false},
    {"K6", OF(COMPENSATION_SETTLE), COMPENSATING, 0, DECISION_DONE, DO_DOUBT, false},
    {"K8", OF(COMPENSATION_SETTLE), 0, 0, DECISION_WRONG_STATUS, DO_NOTHING, false},
};

const char *const model_rules[] = {"B1", "B2", "B3", "B4", "B5", "B6", "B7", "B8", "B9", "B10",
    "B11", "E1", "E2", "E3", "E4", "E5", "E6", "E7", "C1", "C2", "C3", "C4", "C5", "H1", "H2", "H3",
    "H4", "H5", "H6", "H7", "T1", "T2", "T3", "T4", "T5", "N1", "N2", "N3", "N4", "N5", "N6", "N7",
    "N8", "J1", "J2", "J3", "J4", "J5", "W1", "W2", "W3", "W4", "W5", "W7", "X1", "X2", "X3", "X4",
    "X5", "U1", "U2", "U3", "Q1", "Q2", "Q3", "Q4", "K1", "K2", "K3", "K4", "K5", "K6", "K7", "K8",
    "A1", NULL};

/* Where a field's new value comes from. */
enum from {
    STAYS = 0,
    GOES,            /* becomes nothing */
    ASKED,           /* from the request */
    NOW,             /* from the moment */
    NOW_PLUS,        /* the moment and the length that belongs to it */
    IF_ASKED,        /* from the request when it says so, else as it was, or nothing for a due */
    FIXED,           /* the reason "lease_expired" */
    FIXED_GONE,      /* the reason "holder_gone" */
    IF_RECONCILED,   /* a due: now when its door asks the provider, else nothing */
    WHEN_RECONCILED, /* likewise, but when the request says */
};

/* What is done to each field. A lease, a window, a due and a holder belong to a status: they go
 * unless the deed says otherwise. */
struct deed {
    enum decision_change change;
    enum record_status status; /* 0: what the request says */
    bool grants;               /* new fence, attempt + 1, a lease */
    bool counts;               /* duplicates + 1 */
    bool asks;                 /* window length, source and door are the request's */
    bool windows;              /* it has a window from now on */
    enum from lease;           /* NOW_PLUS, or GOES */
    enum from length;          /* of the window */
    enum from sealed;
    enum from outcome; /* and the effect's id */
    enum from reason;
    enum from due;
    enum from holder;
    bool keeps_time; /* its last change is as before */
};

static const struct deed deeds[] = {
    [DO_NOTHING] = {.change = CHANGE_NONE},
    [DO_HIDE] = {.change = CHANGE_NONE},
    [DO_COUNT] = {.change = CHANGE_TOUCH, .counts = true},
    [DO_START] = {CHANGE_PUT, RECORD_IN_PROGRESS, .grants = true, .asks = true, .lease = NOW_PLUS,
        .sealed = GOES, .outcome = GOES, .reason = GOES, .holder = ASKED},
    [DO_AGAIN] = {CHANGE_PUT, RECORD_IN_PROGRESS, .grants = true, .asks = true, .lease = NOW_PLUS,
        .sealed = GOES, .outcome = GOES, .reason = GOES, .holder = ASKED},
    [DO_CLAIM] = {CHANGE_PUT, RECORD_IN_PROGRESS, .grants = true, .lease = NOW_PLUS, .reason = GOES,
        .holder = ASKED},
    [DO_SEAL] = {CHANGE_PUT, 0, .windows = true, .length = IF_ASKED, .sealed = NOW,
        .outcome = ASKED, .reason = ASKED},
    [DO_REJECT] = {CHANGE_PUT, RECORD_REJECTED, .windows = true, .length = IF_ASKED, .sealed = NOW,
        .outcome = ASKED, .reason = ASKED},
    [DO_RELEASE] = {CHANGE_PUT, RECORD_RELEASED, .windows = true, .reason = ASKED},
    [DO_RENEW] = {CHANGE_PUT, RECORD_IN_PROGRESS, .lease = NOW_PLUS, .reason = GOES,
        .holder = IF_ASKED},
    [DO_GIVE_UP] = {CHANGE_PUT, RECORD_UNKNOWN, .reason = ASKED, .due = WHEN_RECONCILED},
    [DO_RUN_OUT] = {CHANGE_PUT, RECORD_UNKNOWN, .reason = FIXED, .due = IF_RECONCILED},
    [DO_RUN_OUT_COUNT] = {CHANGE_PUT, RECORD_UNKNOWN, .counts = true, .reason = FIXED,
        .due = IF_RECONCILED},
    [DO_LOSE_HOLDER] = {CHANGE_PUT, RECORD_UNKNOWN, .reason = FIXED_GONE, .due = IF_RECONCILED},
    [DO_QUEUE] = {CHANGE_PUT, 0, .asks = true, .reason = ASKED, .due = NOW_PLUS},
    [DO_QUEUE_AGAIN] = {CHANGE_PUT, 0, .asks = true, .sealed = GOES, .outcome = GOES,
        .reason = ASKED, .due = NOW_PLUS},
    [DO_LATER] = {CHANGE_PUT, RECORD_PENDING, .reason = ASKED, .due = NOW_PLUS},
    [DO_WAIT] = {CHANGE_PUT, RECORD_WAITING, .reason = ASKED, .due = IF_ASKED},
    [DO_BURY] = {CHANGE_PUT, RECORD_DEAD, .reason = ASKED},
    [DO_PUT_OFF] = {CHANGE_PUT, RECORD_UNKNOWN, .due = IF_ASKED, .keeps_time = true},
    [DO_UNDO] = {CHANGE_PUT, RECORD_COMPENSATING, .reason = ASKED, .due = IF_ASKED},
    [DO_UNDONE] = {CHANGE_PUT, RECORD_COMPENSATED, .windows = true, .reason = ASKED},
    [DO_DOUBT] = {CHANGE_PUT, RECORD_UNKNOWN, .reason = ASKED},
    [DO_TRUST] = {CHANGE_PUT, 0, .windows = true, .reason = ASKED},
};

/* The table of docs/formats/evidence.md (lifecycle_state): where a column has no word, the kind is
 * never there. Released is an operation's alone, as nobody would come again for what Once performs
 * itself. */
static bool has(enum record_kind kind, enum record_status status)
{
    static const struct {
        enum record_status status;
        const char *kinds; /* o operation, c command, e effect, d delivery */
    } table[] = {
        {RECORD_PENDING, "ced"},
        {RECORD_WAITING, "ced"},
        {RECORD_IN_PROGRESS, "oced"},
        {RECORD_UNKNOWN, "oced"},
        {RECORD_RELEASED, "o"},
        {RECORD_EXECUTED, "oced"},
        {RECORD_FAILED, "oced"},
        {RECORD_REJECTED, "oced"},
        {RECORD_DEAD, "ced"},
        {RECORD_COMPENSATING, "ce"},
        {RECORD_COMPENSATED, "oce"},
    };
    char letter = kind == RECORD_OPERATION ? 'o'
                  : kind == RECORD_COMMAND ? 'c'
                  : kind == RECORD_EFFECT  ? 'e'
                                           : 'd';
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (table[i].status == status) {
            return strchr(table[i].kinds, letter) != NULL;
        }
    }
    return false;
}

/* A kind is asked only for what leads to, or away from, a status that it has. */
static bool in_life(enum record_kind kind, const struct request *request)
{
    unsigned request_bit = 1u << request->kind;
    if (request_bit & OF(RELEASE)) {
        return has(kind, RECORD_RELEASED);
    }
    if (request_bit & (OF(WAIT) | OF(WAKE))) {
        return has(kind, RECORD_WAITING) &&
               (request->kind != REQUEST_WAKE || has(kind, request->status));
    }
    if (request_bit & UNDOING) {
        return has(kind, RECORD_COMPENSATING);
    }
    if (request_bit & (OF(CLAIM) | OF(RETRY) | OF(GIVE_UP) | OF(CANCEL) | OF(TAKE_UP))) {
        return has(kind, RECORD_PENDING);
    }
    return request->kind != REQUEST_RESOLVE || has(kind, request->status);
}

static bool same_hash(const struct digest *a, const struct digest *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static uint64_t facts_of_status(
    const struct record *record, const struct policy *policy, int64_t now)
{
    static const uint64_t plain[] = {
        [RECORD_IN_PROGRESS] = RUNNING,
        [RECORD_UNKNOWN] = UNKNOWN,
        [RECORD_RELEASED] = RELEASED,
        [RECORD_EXECUTED] = SEALED,
        [RECORD_FAILED] = SEALED,
        [RECORD_REJECTED] = SEALED | REJECTED,
        [RECORD_COMPENSATED] = SEALED | UNDONE,
        [RECORD_PENDING] = PENDING,
        [RECORD_WAITING] = WAITING,
        [RECORD_DEAD] = DEAD,
        [RECORD_COMPENSATING] = COMPENSATING,
    };
    uint64_t facts = plain[record->status];
    if (facts == UNKNOWN && record->sealed_ms != 0) {
        facts = IN_DOUBT;
    }
    if (facts == RUNNING && now < record->lease_expires_ms) {
        facts |= ALIVE;
    }
    /* Only what ended has a window; what somebody still has to act on stays for ever (P8). */
    if ((facts & (RELEASED | SEALED)) && now >= record->window_expires_ms) {
        facts |= OVER;
    }
    if ((record->status == RECORD_FAILED && policy->retry_failed) ||
        (record->status == RECORD_REJECTED && policy->retry_rejected)) {
        facts |= RETRIABLE;
    }
    /* A failed effect did nothing; a failed command may have. */
    if (record->status == RECORD_EXECUTED ||
        (record->status == RECORD_FAILED && record->kind == RECORD_COMMAND)) {
        facts |= UNDOABLE;
    }
    if ((facts & (PENDING | WAITING)) && record->due_ms != 0 && record->due_ms <= now) {
        facts |= DUE;
    }
    return facts;
}

/* The cases have versions of one digit, or ten: the model need not know how they are compared. */
static bool outdated(const struct source *source, struct slice sealed)
{
    static const char *const order[] = {"8", "9", "10"};
    int asked = -1;
    int last = -1;
    for (int i = 0; i < 3; i++) {
        asked = slice_is(source->version, order[i]) ? i : asked;
        last = slice_is(sealed, order[i]) ? i : last;
    }
    return asked >= 0 && asked < last && source->type.len > 0 && source->id.len > 0;
}

static uint64_t facts_of_request(const struct request *request)
{
    bool is_operation = request_record_kind(request) == RECORD_OPERATION;
    uint64_t facts =
        request->policy.on_unknown == ON_UNKNOWN_TAKEOVER && is_operation ? MAY_TAKE_OVER : 0;
    facts |= request->fence != 0 ? NAMES_FENCE : 0;
    switch (request->status) {
    case RECORD_RELEASED: return facts | ASKS_RELEASED;
    case RECORD_PENDING: return facts | ASKS_PENDING;
    case RECORD_IN_PROGRESS: return facts | ASKS_GRANT;
    case RECORD_EXECUTED:
    case RECORD_FAILED: return facts | ASKS_OUTCOME;
    case RECORD_COMPENSATED: return facts | ASKS_UNDONE;
    case RECORD_WAITING: return facts | ASKS_WAITING;
    case RECORD_UNKNOWN:
    case RECORD_REJECTED:
    case RECORD_DEAD:
    case RECORD_COMPENSATING: break;
    }
    return facts;
}

/* The time at which the request wants somebody to act. */
static int64_t wanted_ms(const struct request *request, int64_t now)
{
    int64_t earliest = now + request->delay_ms;
    return request->not_before_ms > earliest ? request->not_before_ms : earliest;
}

/* Attempts are counted; the next one must not begin after the deadline. */
static bool is_used_up(const struct record *found, const struct request *request, int64_t now)
{
    int64_t next = request->kind == REQUEST_RETRY ? wanted_ms(request, now)
                   : found->due_ms > now          ? found->due_ms
                                                  : now;
    bool attempts =
        request->policy.attempts_max != 0 && found->attempt >= request->policy.attempts_max;
    bool deadline =
        request->policy.deadline_ms != 0 && next > found->created_ms + request->policy.deadline_ms;
    return attempts || deadline;
}

static uint64_t facts_of(
    const struct record *found, const struct request *request, struct decide_moment moment)
{
    uint64_t facts = facts_of_request(request);
    /* A claim is for what was enqueued, so that is what may be outdated. */
    const struct source *source =
        request->kind == REQUEST_CLAIM && found != NULL ? &found->source : &request->source;
    facts |= outdated(source, moment.version_sealed) ? OUTDATED : 0;
    if (found == NULL) {
        return facts | LOST;
    }
    facts |= THERE | facts_of_status(found, &request->policy, moment.now_ms);
    if (found->fingerprint_version == request->fingerprint_version &&
        same_hash(&found->fingerprint, &request->fingerprint)) {
        facts |= SAME_PRINT;
    }
    if (memcmp(&found->operation_id, &request->operation_id, sizeof found->operation_id) == 0) {
        facts |= SAME_OPERATION;
    }
    if (!(facts & SAME_OPERATION) || (facts & OVER)) {
        facts |= LOST;
    }
    if (found->fence == request->fence) {
        facts |= SAME_FENCE;
    }
    if (found->status == request->status && slice_equal(found->effect_id, request->effect_id) &&
        model_same_outcome(&found->outcome, &request->outcome)) {
        facts |= SAME_OUTCOME;
    }
    facts |= found->attempt > 0 ? GRANTED : 0;
    facts |= found->attempt > 0 && found->kind == RECORD_COMMAND ? HAS_EFFECTS : 0;
    facts |= is_used_up(found, request, moment.now_ms) ? USED_UP : 0;
    facts |=
        found->reconciles && wanted_ms(request, moment.now_ms) > moment.now_ms ? ASKED_LATER : 0;
    facts |= in_life(found->kind, request) ? IN_LIFE : 0;
    facts |= found->holder != 0 && found->holder != request->holder ? HELD : 0;
    return facts;
}

static const struct row *row_for(int kind, uint64_t facts)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if ((rows[i].kinds & 1u << kind) && (facts & rows[i].need) == rows[i].need &&
            (facts & rows[i].lack) == 0) {
            return &rows[i];
        }
    }
    return NULL;
}

/* What a new operation starts from: who and what, before anything was granted. */
static struct record blank(
    const struct record *found, const struct request *request, struct decide_moment moment)
{
    struct record record = {.kind = RECORD_OPERATION, .version = found ? found->version : 0};
    if (request->record_kind != 0) {
        record.kind = request->record_kind;
    }
    record.key = request->key;
    record.operation_id = op_id_make(moment.now_ms, &request->key.hash, moment.fence_next);
    record.fingerprint = request->fingerprint;
    record.fingerprint_version = request->fingerprint_version;
    record.created_ms = moment.now_ms;
    record.request = request->request;
    record.source = request->source;
    record.trace = request->trace;
    record.parent = request->parent;
    return record;
}

static void apply_names(const struct deed *deed, const struct request *request, struct record *to)
{
    if (deed->outcome == GOES) {
        to->outcome = (struct outcome){0};
        to->effect_id = SLICE_EMPTY;
    } else if (deed->outcome == ASKED) {
        to->outcome = request->outcome;
        to->effect_id = request->effect_id;
    }
    if (deed->reason == GOES) {
        to->reason = SLICE_EMPTY;
    } else if (deed->reason == ASKED) {
        to->reason = request->reason;
    } else if (deed->reason == FIXED) {
        to->reason = SLICE_LIT("lease_expired");
    } else if (deed->reason == FIXED_GONE) {
        to->reason = SLICE_LIT("holder_gone");
    }
    /* A duplicate's bytes are nobody's business. */
    if (request->detail.len > 0 && !deed->counts) {
        to->detail = request->detail;
    }
}

static void apply_asked(const struct deed *deed, const struct request *request, struct record *to)
{
    const struct source *source = &request->source;
    if (deed->asks) {
        to->window_ms = request->policy.window_ms;
        to->door = request->door == 0 ? to->door : request->door;
        if (source->type.len > 0 && source->id.len > 0 && source->version.len > 0) {
            to->source = *source;
        }
    } else if (deed->length == IF_ASKED && request->policy.window_ms != 0) {
        to->window_ms = request->policy.window_ms;
    }
}

static void apply_times(
    const struct deed *deed, const struct request *request, int64_t now, struct record *to)
{
    bool wants = request->delay_ms != 0 || request->not_before_ms != 0;
    bool may_lack = to->status == RECORD_WAITING || deed->due == IF_ASKED;
    to->lease_expires_ms = deed->lease == NOW_PLUS ? now + request->policy.lease_ms : 0;
    to->window_expires_ms = deed->windows ? now + to->window_ms : 0;
    to->due_ms = 0;
    if (deed->due == IF_RECONCILED && to->reconciles) {
        to->due_ms = now;
    } else if (deed->due == WHEN_RECONCILED && to->reconciles) {
        to->due_ms = wanted_ms(request, now);
    } else if ((deed->due == NOW_PLUS || deed->due == IF_ASKED) && (wants || !may_lack)) {
        to->due_ms = wanted_ms(request, now);
    }
    if (deed->sealed != STAYS) {
        to->sealed_ms = deed->sealed == NOW ? now : 0;
    }
    if (deed->holder == ASKED || (deed->holder == IF_ASKED && request->holder != 0)) {
        to->holder = request->holder;
    } else if (deed->holder != IF_ASKED) {
        to->holder = 0;
    }
}

static void apply(const struct deed *deed, const struct request *request,
    struct decide_moment moment, struct record *to)
{
    if (deed->counts && to->duplicates != UINT32_MAX) {
        to->duplicates += 1;
    }
    if (deed->change != CHANGE_PUT) {
        return;
    }
    to->version += 1;
    to->updated_ms = deed->keeps_time ? to->updated_ms : moment.now_ms;
    to->status = deed->status != 0      ? deed->status
                 : request->status != 0 ? request->status
                                        : RECORD_PENDING;
    apply_asked(deed, request, to);
    if (deed == &deeds[DO_QUEUE_AGAIN] && to->kind == RECORD_COMMAND) {
        to->attempt = 0; /* a fresh submission */
    }
    if (deed->grants) {
        to->fence = moment.fence_next;
        to->attempt += 1;
        to->reconciles =
            to->door != 0 && request->policy.on_unknown != ON_UNKNOWN_HOLD &&
            (to->kind != RECORD_OPERATION || request->policy.on_unknown != ON_UNKNOWN_TAKEOVER);
    }
    apply_times(deed, request, moment.now_ms, to);
    apply_names(deed, request, to);
}

/* A begin that grants the same operation again, or what a record waited for. */
static bool brings_body(const struct request *request, const struct deed *deed)
{
    return (request->kind == REQUEST_BEGIN && deed->grants) || request->kind == REQUEST_WAKE;
}

struct decision model_decide(
    const struct record *found, const struct request *request, struct decide_moment moment)
{
    const struct row *row = row_for((int)request->kind, facts_of(found, request, moment));
    if (row == NULL) {
        return (struct decision){.rule = "none"};
    }
    const struct deed *deed = &deeds[row->doing];
    struct decision said = {.kind = row->decision,
        .change = deed->change,
        .repeated = row->repeated,
        .rule = row->rule};
    if (row->doing == DO_START || row->doing == DO_QUEUE) {
        said.next = blank(found, request, moment);
    } else if (row->doing != DO_HIDE) {
        said.next = *found;
    }
    if (row->doing == DO_QUEUE_AGAIN) {
        said.next.request = request->request; /* what is to be sent */
    } else if (deed->change == CHANGE_PUT && found != NULL && brings_body(request, deed) &&
               (request->kind == REQUEST_WAKE ? request->request.bytes > 0
                                              : !found->request.retained)) {
        said.next.request = request->request; /* it has none, or no longer */
    }
    apply(deed, request, moment, &said.next);
    /* What was kept to be sent is erased with the end (R10). */
    if (deed->sealed == NOW && said.next.kind != RECORD_OPERATION) {
        said.next.request.retained = false;
    }
    return said;
}

static bool same_body(const struct body_ref *a, const struct body_ref *b)
{
    return a->bytes == b->bytes && same_hash(&a->digest, &b->digest);
}

bool model_same_outcome(const struct outcome *a, const struct outcome *b)
{
    return a->code == b->code && slice_equal(a->meta, b->meta) && same_body(&a->body, &b->body);
}

static bool same_body_ref(const struct body_ref *a, const struct body_ref *b)
{
    return same_body(a, b) && a->retained == b->retained && a->place == b->place;
}

static bool same_slices(const struct record *a, const struct record *b)
{
    return slice_equal(a->key.tenant, b->key.tenant) && slice_equal(a->key.scope, b->key.scope) &&
           slice_equal(a->key.principal, b->key.principal) && slice_equal(a->key.key, b->key.key) &&
           slice_equal(a->effect_id, b->effect_id) && slice_equal(a->trace, b->trace) &&
           slice_equal(a->reason, b->reason) && slice_equal(a->source.type, b->source.type) &&
           slice_equal(a->source.id, b->source.id) &&
           slice_equal(a->source.version, b->source.version) && slice_equal(a->detail, b->detail);
}

static bool same_times(const struct record *a, const struct record *b)
{
    return a->created_ms == b->created_ms && a->updated_ms == b->updated_ms &&
           a->sealed_ms == b->sealed_ms && a->lease_expires_ms == b->lease_expires_ms &&
           a->window_expires_ms == b->window_expires_ms && a->window_ms == b->window_ms &&
           a->due_ms == b->due_ms;
}

bool model_same_record(const struct record *a, const struct record *b)
{
    return a->version == b->version && a->kind == b->kind && a->status == b->status &&
           a->fence == b->fence && a->attempt == b->attempt && a->duplicates == b->duplicates &&
           a->door == b->door && a->reconciles == b->reconciles && a->holder == b->holder &&
           same_times(a, b) && a->fingerprint_version == b->fingerprint_version &&
           same_hash(&a->fingerprint, &b->fingerprint) && same_hash(&a->key.hash, &b->key.hash) &&
           memcmp(&a->operation_id, &b->operation_id, sizeof a->operation_id) == 0 &&
           memcmp(&a->parent, &b->parent, sizeof a->parent) == 0 &&
           model_same_outcome(&a->outcome, &b->outcome) &&
           same_body_ref(&a->outcome.body, &b->outcome.body) &&
           same_body_ref(&a->request, &b->request) && same_slices(a, b);
}
