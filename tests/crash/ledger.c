#include "ledger.h"

#include <inttypes.h>
#include <stdarg.h>

#include "base/check.h"

struct ledger *ledger_new(void)
{
    struct ledger *ledger = mem_zalloc(&mem_libc, 1, sizeof *ledger);
    ASSERT(ledger != NULL);
    buf_init(&ledger->scratch, &mem_libc, CRASH_OUTCOME_MAX);
    ledger_restart(ledger);
    return ledger;
}

void ledger_free(struct ledger *ledger)
{
    buf_release(&ledger->scratch);
    mem_free(&mem_libc, ledger);
}

void ledger_restart(struct ledger *ledger)
{
    memset(ledger->newest, 0, sizeof ledger->newest);
    memset(ledger->effects, 0, sizeof ledger->effects);
    memset(ledger->seen, 0, sizeof ledger->seen);
    ledger->grants_count = 1;
    ledger->fence_highest = 0;
    ledger->fence_before = 0;
}

void ledger_fault(struct ledger *ledger, const char *format, ...)
{
    if (ledger->faults++ == 0) {
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(ledger->fault, sizeof ledger->fault, format, arguments);
        va_end(arguments);
    }
}

void ledger_killed(struct ledger *ledger)
{
    ledger->fence_before = ledger->fence_highest;
}

static struct ledger_grant *grant_find(struct ledger *ledger, uint32_t key, uint64_t fence)
{
    for (uint32_t at = ledger->newest[key]; at != 0; at = ledger->grants[at].next) {
        if (ledger->grants[at].fence == fence) {
            return &ledger->grants[at];
        }
    }
    return NULL;
}

/* Keep a key's grants in the order of their fences: threads tell of them out of order. */
static void grant_insert(struct ledger *ledger, uint32_t key, uint64_t fence)
{
    ASSERT(ledger->grants_count < LEDGER_GRANTS_MAX);
    uint32_t number = ledger->grants_count++;
    uint32_t *link = &ledger->newest[key];
    while (*link != 0 && ledger->grants[*link].fence > fence) {
        link = &ledger->grants[*link].next;
    }
    ledger->grants[number] = (struct ledger_grant){.next = *link, .fence = fence};
    *link = number;
}

static void grant_told(struct ledger *ledger, const struct crash_event *event)
{
    if (event->fence == 0 || event->fence >= LEDGER_FENCES_MAX || ledger->seen[event->fence]) {
        ledger_fault(ledger, "L4: fence %" PRIu64 " of key %u was given out before", event->fence,
            event->key);
        return;
    }
    if (event->fence <= ledger->fence_before) {
        ledger_fault(ledger,
            "L4: fence %" PRIu64 " of key %u is not beyond %" PRIu64 " from before the kill",
            event->fence, event->key, ledger->fence_before);
    }
    ledger->seen[event->fence] = true;
    if (event->fence > ledger->fence_highest) {
        ledger->fence_highest = event->fence;
    }
    grant_insert(ledger, event->key, event->fence);
}

static void replay_told(struct ledger *ledger, const struct crash_event *event)
{
    const struct ledger_grant *grant = grant_find(ledger, event->key, event->fence);
    if (grant == NULL || !grant->tried[EVENT_SEAL_TRY]) {
        ledger_fault(ledger, "L2: key %u replays fence %" PRIu64 ", which nobody sealed",
            event->key, event->fence);
    } else if (grant->bytes != event->bytes || !digest_equal(&grant->digest, &event->digest)) {
        ledger_fault(ledger, "L2: key %u replays other bytes than fence %" PRIu64 " sealed",
            event->key, event->fence);
    }
}

static void settle_told(struct ledger *ledger, const struct crash_event *event)
{
    struct ledger_grant *grant = grant_find(ledger, event->key, event->fence);
    if (grant == NULL) {
        ledger_fault(ledger, "key %u: event %u about fence %" PRIu64 ", which was never granted",
            event->key, event->kind, event->fence);
        return;
    }
    grant->tried[event->kind] = true;
    if (event->kind == EVENT_SEAL_TRY) {
        grant->bytes = event->bytes;
        grant->digest = event->digest;
    }
}

static void effect_told(struct ledger *ledger, const struct crash_event *event)
{
    ledger->effects[event->key]++;
    if (ledger->effects[event->key] > 1 && !crash_transient(event->key)) {
        ledger_fault(ledger, "L5: the effect of key %u happened %u times", event->key,
            ledger->effects[event->key]);
    }
}

void ledger_event(struct ledger *ledger, const struct crash_event *event)
{
    ASSERT(event->key < LEDGER_KEYS_MAX && event->kind < EVENT_KINDS);
    ledger->told[event->kind]++;
    switch ((enum event_kind)event->kind) {
    case EVENT_GRANT: grant_told(ledger, event); break;
    case EVENT_EFFECT: effect_told(ledger, event); break;
    case EVENT_REPLAY: replay_told(ledger, event); break;
    case EVENT_WRONG: ledger_fault(ledger, "key %u: %s", event->key, event->text); break;
    case EVENT_SEAL_TRY:
    case EVENT_SEALED:
    case EVENT_RELEASE_TRY:
    case EVENT_RELEASED:
    case EVENT_UNKNOWN_TRY:
    case EVENT_UNKNOWN:
    case EVENT_RENEWED: settle_told(ledger, event); break;
    case EVENT_BUSY:
    case EVENT_HELD:
    case EVENT_CONFLICT: break;
    }
}

/* ---- looking ------------------------------------------------------------------------------- */

static bool status_open(enum once_status status)
{
    return status == ONCE_STATUS_IN_PROGRESS || status == ONCE_STATUS_UNKNOWN;
}

static bool status_sealed(enum once_status status)
{
    return status == ONCE_EXECUTED || status == ONCE_FAILED;
}

static bool settled(const struct ledger_grant *grant)
{
    return grant->tried[EVENT_SEAL_TRY] || grant->tried[EVENT_RELEASE_TRY];
}

static void outcome_check(struct ledger *ledger, uint32_t key, const struct ledger_grant *grant,
    const struct once_operation *operation)
{
    const struct once_bytes *body = &operation->outcome.body;
    struct digest digest = {{0}};
    if (body->data != NULL) {
        digest_sha256(body->data, body->size, &digest);
    }
    if (body->size != grant->bytes || !digest_equal(&digest, &grant->digest)) {
        ledger_fault(ledger, "L2: key %u has another outcome than fence %" PRIu64 " sealed", key,
            grant->fence);
        return;
    }
    /* The very bytes, made again: a digest of ours could hide a mistake of ours. */
    crash_outcome(key, grant->fence, &ledger->scratch);
    if (memcmp(ledger->scratch.data, body->data, body->size) != 0) {
        ledger_fault(ledger, "L2: key %u: the digest is right and the bytes are not", key);
    }
}

/* The record is of the newest grant that was acknowledged. */
static void same_grant(struct ledger *ledger, uint32_t key, const struct ledger_grant *grant,
    const struct once_operation *operation)
{
    enum once_status status = operation->status;
    const bool *tried = grant->tried;
    bool right = status_open(status);
    if (tried[EVENT_SEALED]) {
        right = status_sealed(status);
    } else if (tried[EVENT_SEAL_TRY]) {
        right = right || status_sealed(status);
    } else if (tried[EVENT_RELEASED]) {
        right = status == ONCE_STATUS_RELEASED;
    } else if (tried[EVENT_RELEASE_TRY]) {
        right = right || status == ONCE_STATUS_RELEASED;
    } else if (tried[EVENT_UNKNOWN]) {
        right = status == ONCE_STATUS_UNKNOWN;
    }
    if (!right) {
        ledger_fault(ledger, "%s: key %u at fence %" PRIu64 " is %s; it was %s",
            tried[EVENT_SEALED] ? "L2" : "L6", key, grant->fence, once_status_name(status),
            tried[EVENT_SEALED]     ? "sealed"
            : tried[EVENT_RELEASED] ? "released"
            : tried[EVENT_UNKNOWN]  ? "unknown"
                                    : "granted");
    } else if (status_sealed(status)) {
        outcome_check(ledger, key, grant, operation);
    }
}

/* Every grant but the newest must have been let go of before the next one. */
static void grants_check(struct ledger *ledger, uint32_t key, uint64_t fence_now)
{
    for (uint32_t at = ledger->newest[key]; at != 0; at = ledger->grants[at].next) {
        const struct ledger_grant *grant = &ledger->grants[at];
        if (grant->fence < fence_now && !grant->tried[EVENT_RELEASE_TRY]) {
            ledger_fault(ledger,
                "L3: key %u was granted again (fence %" PRIu64 ") though fence %" PRIu64
                " was never released",
                key, fence_now, grant->fence);
        }
    }
}

static void key_check(struct ledger *ledger, uint32_t key, const struct once_operation *operation)
{
    const struct ledger_grant *grant =
        ledger->newest[key] == 0 ? NULL : &ledger->grants[ledger->newest[key]];
    if (grant == NULL) {
        /* Nobody was told of a grant. One that the kill cut off is open; nothing else may be. */
        if (operation != NULL && !status_open(operation->status)) {
            ledger_fault(ledger, "L6: key %u is %s, and nobody was granted it", key,
                once_status_name(operation->status));
        }
        return;
    }
    if (crash_transient(key) && settled(grant)) {
        return;
    }
    if (operation == NULL || operation->fence < grant->fence) {
        ledger_fault(
            ledger, "L1: the grant of key %u at fence %" PRIu64 " is lost", key, grant->fence);
        return;
    }
    if (!crash_transient(key)) {
        grants_check(ledger, key, operation->fence);
    }
    if (operation->fence == grant->fence) {
        same_grant(ledger, key, grant, operation);
    } else if (!status_open(operation->status)) {
        ledger_fault(ledger, "L6: key %u at fence %" PRIu64 ", which nobody was told of, is %s",
            key, operation->fence, once_status_name(operation->status));
    }
}

void ledger_look(struct ledger *ledger, struct once *once, uint32_t from, uint32_t until)
{
    for (uint32_t key = from; key < until; key++) {
        char text[24];
        struct once_error error;
        struct once_operation *operation;
        (void)crash_key_text(text, key);
        if (once_lookup(once, "crash", "", text, &operation, &error) != ONCE_OK) {
            ledger_fault(ledger, "key %u cannot be looked at: %s", key, error.text);
            return;
        }
        ledger->looked += operation != NULL;
        key_check(ledger, key, operation);
        once_operation_free(once, operation);
    }
}

static void key_ask(
    struct ledger *ledger, struct once *once, uint32_t key, const struct ledger_grant *grant)
{
    char text[24];
    char payload[48];
    struct once_error error;
    struct once_answer *answer;
    (void)crash_key_text(text, key);
    int size = snprintf(payload, sizeof payload, "{\"key\":%u}", key);
    struct once_begin begin = {
        .scope = "crash", .key = text, .payload = {payload, (size_t)size}, .lease_ms = 20};
    if (once_begin(once, &begin, &answer, &error) != ONCE_OK) {
        ledger_fault(ledger, "key %u cannot be asked for: %s", key, error.text);
        return;
    }
    if (answer->decision == ONCE_FIRST_SEEN) {
        ledger_fault(ledger, "L3: key %u was granted twice, at fences %" PRIu64 " and %" PRIu64,
            key, grant->fence, answer->fence);
    } else if (grant->tried[EVENT_SEALED] && answer->decision != ONCE_DUPLICATE_REPLAYED) {
        ledger_fault(ledger, "L2: key %u was sealed, and a duplicate gets %s", key,
            once_decision_name(answer->decision));
    } else if (answer->decision == ONCE_DUPLICATE_REPLAYED) {
        outcome_check(ledger, key, grant, answer->operation);
    }
    once_answer_free(once, answer);
}

void ledger_ask(struct ledger *ledger, struct once *once, uint32_t from, uint32_t until)
{
    for (uint32_t key = from; key < until; key++) {
        const struct ledger_grant *grant = &ledger->grants[ledger->newest[key]];
        bool free = ledger->newest[key] == 0 || crash_transient(key);
        if (!free && !grant->tried[EVENT_RELEASE_TRY]) {
            key_ask(ledger, once, key, grant);
        }
    }
}
