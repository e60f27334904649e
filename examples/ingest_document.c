/*
 * ingest_document: split a document into snippets, and give every duplicate the same snippet ids.
 *
 *     ingest_document ID REVISION TEXT [STORE]
 *
 * Each ingestion makes new ids. A duplicate must not get new ones, because other systems may
 * refer to the first ones. So the ids are the outcome, and a duplicate is answered with it.
 */
#include <once/once.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Index each word of the text and write the snippet ids. */
static void ingest(const char *text, char *ret_ids, size_t size)
{
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    size_t at = 0;
    for (int n = 1; *text != '\0' && at < size; n++) {
        at += (size_t)snprintf(ret_ids + at, size - at, "%ssnip_%lx_%d", n > 1 ? "," : "",
            (unsigned long)now.tv_nsec, n);
        text += strcspn(text, " ");
        text += strspn(text, " ");
    }
}

static int seal_ids(
    struct once *once, const struct once_answer *grant, const char *ids, struct once_error *error)
{
    struct once_seal seal = {
        .operation_id = grant->operation_id,
        .fence = grant->fence,
        .status = ONCE_EXECUTED,
        .outcome = {.body = {ids, strlen(ids)}},
        .ttl_ms = 48 * 3600 * 1000,
    };
    return once_seal(once, &seal, NULL, error);
}

int main(int argc, char **argv)
{
    struct once *once;
    struct once_error error;
    struct once_answer *answer;
    char ids[1024] = "";
    if (argc < 4) {
        fprintf(stderr, "usage: ingest_document ID REVISION TEXT [STORE]\n");
        return 64;
    }
    struct once_options options = {.store = argc > 4 ? argv[4] : NULL};
    if (once_open(&options, &once, &error) != ONCE_OK) {
        fprintf(stderr, "cannot open the store: %s\n", error.text);
        return 69;
    }
    /* A new revision is a new operation. The same revision with a different text is a conflict. */
    char key[256];
    snprintf(key, sizeof key, "%s@%s", argv[1], argv[2]);
    struct once_begin begin = {.scope = "ingest",
        .key = key,
        .payload = {argv[3], strlen(argv[3])},
        .source = {.type = "document", .id = argv[1], .version = argv[2]},
        .wait_ms = 10000}; /* if it is in progress elsewhere, wait for the same ids */
    int result = once_begin(once, &begin, &answer, &error);
    if (result == ONCE_OK && answer->decision == ONCE_FIRST_SEEN) {
        ingest(argv[3], ids, sizeof ids);
        result = seal_ids(once, answer, ids, &error);
        printf("%s\n", result == ONCE_OK ? ids : error.text);
    } else if (result == ONCE_OK && answer->decision == ONCE_DUPLICATE_REPLAYED) {
        const struct once_bytes *body = &answer->operation->outcome.body;
        printf("%.*s\n", (int)body->size, (const char *)body->data);
    } else if (result == ONCE_OK) {
        fprintf(stderr, "%s\n", once_decision_name(answer->decision));
        result = answer->decision == ONCE_CONFLICT_REJECTED ? 65 : 75;
    }
    once_answer_free(once, answer);
    return once_close(once, &error) == ONCE_OK && result >= 0 ? result : 69;
}
