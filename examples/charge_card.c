/*
 * charge_card: charge the card for an order once, however often and by whomever this is run.
 *
 *     charge_card ORDER CENTS [STORE]
 *
 * Run it twice: the second run shows the first charge and does not charge again. Run it with a
 * different amount: it is refused, with the difference. Kill it midway: the next run reports that
 * the outcome is unknown.
 */
#include <once/once.h>
#include <stdio.h>

/* The payment provider. A real one would be called over the network. */
static void provider_charge(const char *order, const char *cents, char *ret_charge, size_t size)
{
    printf("provider: charging %s cents for %s\n", cents, order);
    snprintf(ret_charge, size, "ch_%s", order);
}

static int charge(struct once *once, const struct once_answer *grant, const char *order,
    const char *cents, struct once_error *error)
{
    char charge_id[64];
    provider_charge(order, cents, charge_id, sizeof charge_id);
    struct once_seal seal = {
        .operation_id = grant->operation_id,
        .fence = grant->fence,
        .status = ONCE_EXECUTED,
        .effect_id = charge_id,
    };
    return once_seal(once, &seal, NULL, error);
}

/* Act on each decision. Returns the exit code. */
static int act(struct once *once, const struct once_answer *answer, const char *order,
    const char *cents, struct once_error *error)
{
    switch (answer->decision) {
    case ONCE_FIRST_SEEN:
        if (charge(once, answer, order, cents, error) != ONCE_OK) {
            fprintf(stderr, "charged, but not sealed: %s\n", error->text);
            return 75; /* the next run finds it unknown and does not charge again */
        }
        printf("charged\n");
        return 0;
    case ONCE_DUPLICATE_REPLAYED:
        printf("was charged: %s\n", answer->operation->effect_id);
        return 0;
    case ONCE_CONFLICT_REJECTED:
        fprintf(stderr, "a different amount: %s\n", answer->diff);
        return 65;
    default:
        fprintf(stderr, "%s: %s\n", once_decision_name(answer->decision), answer->operation_id);
        return 75;
    }
}

int main(int argc, char **argv)
{
    struct once *once;
    struct once_error error;
    struct once_answer *answer;
    struct once_options options = {.store = argc > 3 ? argv[3] : NULL};
    if (argc < 3) {
        return fprintf(stderr, "usage: charge_card ORDER CENTS [STORE]\n"), 64;
    }
    if (once_open(&options, &once, &error) != ONCE_OK) {
        fprintf(stderr, "cannot open the store: %s\n", error.text);
        return 69;
    }
    char payload[64];
    int size = snprintf(payload, sizeof payload, "{\"cents\":%s}", argv[2]);
    struct once_begin begin = {
        .scope = "charge", .key = argv[1], .payload = {payload, (size_t)size}};
    int code = 69;
    if (once_begin(once, &begin, &answer, &error) == ONCE_OK) {
        code = act(once, answer, argv[1], argv[2], &error);
        once_answer_free(once, answer);
    } else {
        fprintf(stderr, "cannot begin: %s\n", error.text);
    }
    return once_close(once, &error) == ONCE_OK ? code : 69;
}
