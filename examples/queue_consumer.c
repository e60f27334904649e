/*
 * queue_consumer: handle each message of an at-least-once queue once, even if the consumer crashes.
 *
 *     queue_consumer LEDGER [STORE]
 *
 * Three messages arrive on every run. Handling one adds a line to the ledger, which must never hold
 * that line twice. The first run dies between the effect and the seal of m2, the worst moment. Run
 * it again.
 */
#include <once/once.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *ledger; /* of effects: the only source of truth after a crash */

static int in_ledger(const char *message)
{
    char line[64];
    rewind(ledger);
    while (fgets(line, sizeof line, ledger) != NULL && strncmp(line, message, 2) != 0) {
    }
    return !feof(ledger);
}

static int handle(struct once *once, const struct once_answer *grant, const char *message)
{
    rewind(ledger); /* required between reading and writing; writes always append */
    fprintf(ledger, "%s\n", message);
    fflush(ledger);
    if (strcmp(message, "m2") == 0) {
        abort(); /* the effect happened, but it is neither sealed nor acknowledged */
    }
    struct once_seal seal = {
        .operation_id = grant->operation_id, .fence = grant->fence, .status = ONCE_EXECUTED};
    return once_seal(once, &seal, NULL, NULL);
}

/* Unknown: check whether the effect happened, then resolve the operation. Never guess. */
static int settle(struct once *once, const char *operation_id, const char *message)
{
    int happened = in_ledger(message);
    struct once_resolve resolve = {.operation_id = operation_id,
        .status = happened ? ONCE_EXECUTED : ONCE_STATUS_RELEASED,
        .reason = happened ? "found in the ledger" : "not in the ledger"};
    printf("%s: unknown, %s\n", message, resolve.reason);
    return once_resolve(once, &resolve, NULL, NULL);
}

/* 1: acknowledge. 0: it will be delivered again. */
static int consume(struct once *once, const char *message)
{
    struct once_begin begin = {.scope = "queue", .key = message, .lease_ms = 200, .wait_ms = 10000};
    struct once_answer *answer;
    if (once_begin(once, &begin, &answer, NULL) != ONCE_OK) {
        return 0;
    }
    int done = answer->decision == ONCE_DUPLICATE_REPLAYED;
    printf("%s: %s\n", message, once_decision_name(answer->decision));
    if (answer->decision == ONCE_FIRST_SEEN) {
        done = handle(once, answer, message) == ONCE_OK;
    } else if (answer->decision == ONCE_HELD_UNKNOWN) {
        done = settle(once, answer->operation_id, message) == ONCE_OK && consume(once, message);
    }
    once_answer_free(once, answer);
    return done;
}

int main(int argc, char **argv)
{
    struct once *once;
    struct once_options options = {.store = argc > 2 ? argv[2] : NULL};
    ledger = argc > 1 ? fopen(argv[1], "a+") : NULL;
    if (ledger == NULL || once_open(&options, &once, NULL) != ONCE_OK) {
        return fprintf(stderr, "usage: queue_consumer LEDGER [STORE]\n"), 64;
    }
    for (char message[] = "m1"; message[1] <= '3'; message[1]++) {
        printf("%s: %s\n", message, consume(once, message) ? "ack" : "later");
        fflush(stdout);
    }
    return once_close(once, NULL) == ONCE_OK ? 0 : 69;
}
