/*
 * place_order: place an order once, and leave the payment to a server, in one commit.
 *
 *     place_order ORDER CENTS CONFIG [STORE]
 *
 * CONFIG is the configuration of the server that sends the effect `payment.capture`. Afterwards
 * `once serve --config CONFIG` over the same store sends it. Run it twice: the order is placed
 * once, and there is one payment.
 */
#include <once/once.h>
#include <stdio.h>
#include <string.h>

/* The order is placed when this has returned: here it would be written to the shop's database. */
static void place(const char *order)
{
    printf("placing %s\n", order);
}

/* The order is placed. Seal that, with the payment that must follow. Returns the exit code. */
static int seal_with_payment(struct once *once, const struct once_answer *grant, const char *order,
    const char *cents, struct once_error *error)
{
    char effects[512];
    struct once_answer *sealed;
    struct once_seal seal = {0};
    struct once_bytes list = {effects, 0};
    snprintf(effects, sizeof effects,
        "[{\"effect_type\":\"payment.capture\",\"target\":{\"order_id\":\"%s\"},"
        "\"payload\":{\"amount\":%s}}]",
        order, cents);
    list.size = strlen(effects);
    seal.operation_id = grant->operation_id;
    seal.fence = grant->fence;
    seal.status = ONCE_EXECUTED;
    if (once_seal_effects(once, &seal, list, &sealed, error) != ONCE_OK) {
        fprintf(stderr, "not sealed: %s\n", error->text);
        return error->result == ONCE_E_INVALID ? 65 : 75;
    }
    printf("to be paid: %s\n", sealed->effects == NULL ? "" : sealed->effects);
    once_answer_free(once, sealed);
    return 0;
}

static int order_once(struct once *once, char **arguments, struct once_error *error)
{
    struct once_begin begin = {0};
    struct once_answer *answer;
    int code = 75;
    begin.scope = "orders";
    begin.key = arguments[1];
    begin.payload.data = arguments[2];
    begin.payload.size = strlen(arguments[2]);
    if (once_begin(once, &begin, &answer, error) != ONCE_OK) {
        fprintf(stderr, "%s\n", error->text);
        return 75;
    }
    if (answer->decision == ONCE_FIRST_SEEN) {
        place(arguments[1]);
        code = seal_with_payment(once, answer, arguments[1], arguments[2], error);
    } else if (answer->decision == ONCE_DUPLICATE_REPLAYED) {
        printf("was placed\n");
        code = 0;
    } else {
        fprintf(stderr, "%s\n", once_decision_name(answer->decision));
    }
    once_answer_free(once, answer);
    return code;
}

int main(int argc, char **argv)
{
    struct once *once;
    struct once_error error;
    struct once_options options = {0};
    if (argc < 4) {
        fprintf(stderr, "usage: place_order ORDER CENTS CONFIG [STORE]\n");
        return 64;
    }
    options.store = argc > 4 ? argv[4] : NULL;
    if (once_open(&options, &once, &error) != ONCE_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 69;
    }
    int code = 78;
    if (once_effect_types(once, argv[3], &error) != ONCE_OK) {
        fprintf(stderr, "%s\n", error.text);
    } else {
        code = order_once(once, argv, &error);
    }
    return once_close(once, &error) == ONCE_OK ? code : 75;
}
