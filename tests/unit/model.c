#include "model.h"

#include <string.h>

/* What can be true of a record, a request and a moment. */
enum fact {
    THERE = 1 << 0,
    OVER = 1 << 1, /* the window is */
    RUNNING = 1 << 2,
    ALIVE = 1 << 3, /* running, and the lease is not over */
    UNKNOWN = 1 << 4,
    RELEASED = 1 << 5,
    SEALED = 1 << 6,
    RETRIABLE = 1 << 7, /* failed or rejected, and the policy lets just that be tried again */
    SAME_PRINT = 1 << 8,
    SAME_OPERATION = 1 << 9,
    SAME_FENCE = 1 << 10,
    SAME_OUTCOME = 1 << 11, /* and the same status */
    MAY_TAKE_OVER = 1 << 12,
    ASKS_RELEASED = 1 << 13,
    NAMES_FENCE = 1 << 14,
    OUTDATED = 1 << 15, /* a newer version of its source was sealed */
};

enum kinds {
    BEGIN = 1 << REQUEST_BEGIN,
    SEAL = 1 << REQUEST_SEAL,
    RELEASE = 1 << REQUEST_RELEASE,
    SAY_UNKNOWN = 1 << REQUEST_UNKNOWN,
    RENEW = 1 << REQUEST_RENEW,
    RESOLVE = 1 << REQUEST_RESOLVE,
    JANITOR = 1 << REQUEST_LEASE_OVER,
    HOLDER = SEAL | RELEASE | SAY_UNKNOWN | RENEW,
};

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
};

struct row {
    const char *rule;
    int kinds;                   /* the row is for these requests */
    int need;                    /* all of these hold */
    int lack;                    /* none of these holds */
    enum decision_kind decision; /* what is said */
    enum doing doing;            /* what is done */
    bool repeated;
};

/* The first row that fits decides. */
static const struct row rows[] = {
    {"B9", BEGIN, OUTDATED, THERE, DECISION_STALE_VERSION, DO_HIDE, false},
    {"B9", BEGIN, OUTDATED | OVER, 0, DECISION_STALE_VERSION, DO_HIDE, false},
    {"B1", BEGIN, 0, THERE, DECISION_FIRST_SEEN, DO_START, false},
    {"B1", BEGIN, OVER, 0, DECISION_FIRST_SEEN, DO_START, false},
    {"B2", BEGIN, 0, SAME_PRINT, DECISION_CONFLICT_REJECTED, DO_COUNT, false},
    {"B3", BEGIN, RUNNING | ALIVE, 0, DECISION_IN_PROGRESS, DO_COUNT, false},
    {"B9", BEGIN, OUTDATED | RUNNING | MAY_TAKE_OVER, 0, DECISION_STALE_VERSION, DO_NOTHING, false},
    {"B9", BEGIN, OUTDATED | UNKNOWN | MAY_TAKE_OVER, 0, DECISION_STALE_VERSION, DO_NOTHING, false},
    {"B9", BEGIN, OUTDATED | RELEASED, 0, DECISION_STALE_VERSION, DO_NOTHING, false},
    {"B9", BEGIN, OUTDATED | RETRIABLE, 0, DECISION_STALE_VERSION, DO_NOTHING, false},
    {"B4", BEGIN, RUNNING | MAY_TAKE_OVER, 0, DECISION_FIRST_SEEN, DO_AGAIN, false},
    {"B4", BEGIN, UNKNOWN | MAY_TAKE_OVER, 0, DECISION_FIRST_SEEN, DO_AGAIN, false},
    {"B5", BEGIN, RUNNING, 0, DECISION_HELD_UNKNOWN, DO_RUN_OUT_COUNT, false},
    {"B5", BEGIN, UNKNOWN, 0, DECISION_HELD_UNKNOWN, DO_COUNT, false},
    {"B6", BEGIN, RELEASED, 0, DECISION_FIRST_SEEN, DO_AGAIN, false},
    {"B7", BEGIN, RETRIABLE, 0, DECISION_FIRST_SEEN, DO_AGAIN, false},
    {"B8", BEGIN, SEALED, 0, DECISION_DUPLICATE_REPLAYED, DO_COUNT, false},

    {"H1", HOLDER, 0, THERE, DECISION_NOT_FOUND, DO_HIDE, false},
    {"H1", HOLDER, 0, SAME_OPERATION, DECISION_NOT_FOUND, DO_HIDE, false},
    {"H1", HOLDER, OVER, 0, DECISION_NOT_FOUND, DO_HIDE, false},
    {"H2", HOLDER, 0, SAME_FENCE, DECISION_STALE_FENCE, DO_NOTHING, false},
    {"H3", SEAL, SEALED | SAME_OUTCOME, 0, DECISION_SEALED, DO_NOTHING, true},
    {"H3", HOLDER, SEALED, 0, DECISION_ALREADY_SEALED, DO_NOTHING, false},
    {"H4", RELEASE, RELEASED, 0, DECISION_RELEASED, DO_NOTHING, true},
    {"H4", HOLDER, RELEASED, 0, DECISION_STALE_FENCE, DO_NOTHING, false},
    {"H5", SAY_UNKNOWN, UNKNOWN, 0, DECISION_UNKNOWN, DO_NOTHING, true},
    {"H5", SAY_UNKNOWN, RUNNING, 0, DECISION_UNKNOWN, DO_GIVE_UP, false},
    {"H5", SEAL, 0, 0, DECISION_SEALED, DO_SEAL, false},
    {"H5", RELEASE, 0, 0, DECISION_RELEASED, DO_RELEASE, false},
    {"H5", RENEW, 0, 0, DECISION_RENEWED, DO_RENEW, false},

    {"N1", RESOLVE, 0, THERE, DECISION_NOT_FOUND, DO_HIDE, false},
    {"N1", RESOLVE, 0, SAME_OPERATION, DECISION_NOT_FOUND, DO_HIDE, false},
    {"N1", RESOLVE, OVER, 0, DECISION_NOT_FOUND, DO_HIDE, false},
    {"N6", RESOLVE, NAMES_FENCE, SAME_FENCE, DECISION_STALE_FENCE, DO_NOTHING, false},
    {"N2", RESOLVE, SEALED | SAME_OUTCOME, 0, DECISION_RESOLVED, DO_NOTHING, true},
    {"N2", RESOLVE, SEALED, 0, DECISION_ALREADY_SEALED, DO_NOTHING, false},
    {"N3", RESOLVE, RELEASED | ASKS_RELEASED, 0, DECISION_RESOLVED, DO_NOTHING, true},
    {"N3", RESOLVE, RELEASED, 0, DECISION_ALREADY_SEALED, DO_NOTHING, false},
    {"N4", RESOLVE, ALIVE, 0, DECISION_STILL_RUNNING, DO_NOTHING, false},
    {"N5", RESOLVE, ASKS_RELEASED, 0, DECISION_RESOLVED, DO_RELEASE, false},
    {"N5", RESOLVE, 0, 0, DECISION_RESOLVED, DO_SEAL, false},

    {"J1", JANITOR, 0, THERE, DECISION_NOTHING, DO_HIDE, false},
    {"J1", JANITOR, 0, SAME_OPERATION, DECISION_NOTHING, DO_HIDE, false},
    {"J1", JANITOR, OVER, 0, DECISION_NOTHING, DO_HIDE, false},
    {"J2", JANITOR, RUNNING, ALIVE, DECISION_UNKNOWN, DO_RUN_OUT, false},
    {"J3", JANITOR, 0, 0, DECISION_NOTHING, DO_NOTHING, false},
};

const char *const model_rules[] = {"B1", "B2", "B3", "B4", "B5", "B6", "B7", "B8", "B9", "H1", "H2",
    "H3", "H4", "H5", "N1", "N2", "N3", "N4", "N5", "N6", "J1", "J2", "J3", NULL};

/* Where a field's new value comes from. */
enum from {
    STAYS = 0,
    GOES,     /* becomes nothing */
    ASKED,    /* from the request */
    NOW,      /* from the moment */
    NOW_PLUS, /* the moment and the length that belongs to it */
    IF_ASKED, /* from the request when it says so */
    FIXED,    /* the reason "lease_expired" */
};

struct deed {
    enum decision_change change;
    enum record_status status; /* 0: what the request says */
    bool grants;               /* new fence, attempt + 1 */
    bool counts;               /* duplicates + 1 */
    enum from lease;
    enum from length; /* of the window */
    enum from window; /* its end */
    enum from sealed;
    enum from outcome; /* and the effect's id */
    enum from reason;
};

static const struct deed deeds[] = {
    [DO_NOTHING] = {.change = CHANGE_NONE},
    [DO_HIDE] = {.change = CHANGE_NONE},
    [DO_COUNT] = {.change = CHANGE_TOUCH, .counts = true},
    [DO_START] = {CHANGE_PUT, RECORD_IN_PROGRESS, true, false, NOW_PLUS, ASKED, GOES, GOES, GOES,
        GOES},
    [DO_AGAIN] = {CHANGE_PUT, RECORD_IN_PROGRESS, true, false, NOW_PLUS, ASKED, GOES, GOES, GOES,
        GOES},
    [DO_SEAL] = {CHANGE_PUT, 0, false, false, GOES, IF_ASKED, NOW_PLUS, NOW, ASKED, ASKED},
    [DO_RELEASE] = {CHANGE_PUT, RECORD_RELEASED, false, false, GOES, STAYS, NOW_PLUS, GOES, STAYS,
        ASKED},
    [DO_RENEW] = {CHANGE_PUT, RECORD_IN_PROGRESS, false, false, NOW_PLUS, STAYS, GOES, GOES, STAYS,
        GOES},
    [DO_GIVE_UP] = {CHANGE_PUT, RECORD_UNKNOWN, false, false, GOES, STAYS, GOES, GOES, STAYS,
        ASKED},
    [DO_RUN_OUT] = {CHANGE_PUT, RECORD_UNKNOWN, false, false, GOES, STAYS, GOES, GOES, STAYS,
        FIXED},
    [DO_RUN_OUT_COUNT] = {CHANGE_PUT, RECORD_UNKNOWN, false, true, GOES, STAYS, GOES, GOES, STAYS,
        FIXED},
};

static bool same_hash(const struct digest *a, const struct digest *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static int facts_of_status(const struct record *record, const struct policy *policy, int64_t now)
{
    static const int plain[] = {
        [RECORD_IN_PROGRESS] = RUNNING,
        [RECORD_UNKNOWN] = UNKNOWN,
        [RECORD_RELEASED] = RELEASED,
        [RECORD_EXECUTED] = SEALED,
        [RECORD_FAILED] = SEALED,
        [RECORD_REJECTED] = SEALED,
        [RECORD_COMPENSATED] = SEALED,
    };
    int facts = plain[record->status];
    if (facts == RUNNING && now < record->lease_expires_ms) {
        facts |= ALIVE;
    }
    /* Only what ended has a window; what runs or is unknown stays for ever (P8). */
    if ((facts & (RELEASED | SEALED)) && now >= record->window_expires_ms) {
        facts |= OVER;
    }
    if ((record->status == RECORD_FAILED && policy->retry_failed) ||
        (record->status == RECORD_REJECTED && policy->retry_rejected)) {
        facts |= RETRIABLE;
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

static int facts_of(
    const struct record *found, const struct request *request, struct decide_moment moment)
{
    int64_t now = moment.now_ms;
    int facts = request->policy.on_unknown == ON_UNKNOWN_TAKEOVER ? MAY_TAKE_OVER : 0;
    facts |= request->status == RECORD_RELEASED ? ASKS_RELEASED : 0;
    facts |= request->fence != 0 ? NAMES_FENCE : 0;
    facts |= outdated(&request->source, moment.version_sealed) ? OUTDATED : 0;
    if (found == NULL) {
        return facts;
    }
    facts |= THERE | facts_of_status(found, &request->policy, now);
    if (found->fingerprint_version == request->fingerprint_version &&
        same_hash(&found->fingerprint, &request->fingerprint)) {
        facts |= SAME_PRINT;
    }
    if (memcmp(&found->operation_id, &request->operation_id, sizeof found->operation_id) == 0) {
        facts |= SAME_OPERATION;
    }
    if (found->fence == request->fence) {
        facts |= SAME_FENCE;
    }
    if (found->status == request->status && slice_equal(found->effect_id, request->effect_id) &&
        model_same_outcome(&found->outcome, &request->outcome)) {
        facts |= SAME_OUTCOME;
    }
    return facts;
}

static const struct row *row_for(int kind, int facts)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if ((rows[i].kinds & 1 << kind) && (facts & rows[i].need) == rows[i].need &&
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
    record.key = request->key;
    record.operation_id = op_id_make(moment.now_ms, &request->key.hash, moment.fence_next);
    record.fingerprint = request->fingerprint;
    record.fingerprint_version = request->fingerprint_version;
    record.created_ms = moment.now_ms;
    record.request = request->request;
    record.source = request->source;
    record.trace = request->trace;
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
    to->updated_ms = moment.now_ms;
    to->status = deed->status == 0 ? request->status : deed->status;
    if (deed->grants) {
        to->fence = moment.fence_next;
        to->attempt += 1;
        const struct source *source = &request->source;
        if (source->type.len > 0 && source->id.len > 0 && source->version.len > 0) {
            to->source = *source;
        }
    }
    if (deed->length == ASKED || (deed->length == IF_ASKED && request->policy.window_ms != 0)) {
        to->window_ms = request->policy.window_ms;
    }
    to->lease_expires_ms = deed->lease == GOES ? 0 : moment.now_ms + request->policy.lease_ms;
    to->window_expires_ms = deed->window == GOES ? 0 : moment.now_ms + to->window_ms;
    to->sealed_ms = deed->sealed == GOES ? 0 : moment.now_ms;
    apply_names(deed, request, to);
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
    if (row->doing == DO_START) {
        said.next = blank(found, request, moment);
    } else if (row->doing != DO_HIDE) {
        said.next = *found;
    }
    apply(deed, request, moment, &said.next);
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
           slice_equal(a->source.version, b->source.version);
}

bool model_same_record(const struct record *a, const struct record *b)
{
    return a->version == b->version && a->kind == b->kind && a->status == b->status &&
           a->fence == b->fence && a->attempt == b->attempt && a->duplicates == b->duplicates &&
           a->created_ms == b->created_ms && a->updated_ms == b->updated_ms &&
           a->sealed_ms == b->sealed_ms && a->lease_expires_ms == b->lease_expires_ms &&
           a->window_expires_ms == b->window_expires_ms && a->window_ms == b->window_ms &&
           a->fingerprint_version == b->fingerprint_version &&
           same_hash(&a->fingerprint, &b->fingerprint) && same_hash(&a->key.hash, &b->key.hash) &&
           memcmp(&a->operation_id, &b->operation_id, sizeof a->operation_id) == 0 &&
           model_same_outcome(&a->outcome, &b->outcome) &&
           same_body_ref(&a->outcome.body, &b->outcome.body) &&
           same_body_ref(&a->request, &b->request) && same_slices(a, b);
}
