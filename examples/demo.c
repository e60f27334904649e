/*
 * A flaky payment provider, unreliable clients, and Once between them: what `once demo` plays.
 *
 * Every order arrives at least twice, in any order and at the same time; some arrive a third time
 * with a different amount under the same key. Clients charge, then crash; the provider charges,
 * then loses its answer. All of them begin before they charge, and that is all that keeps an order
 * from being charged twice. The provider's ledger counts; only the end of the demo and the clients
 * that settle an unknown operation read it.
 *
 * It uses the public header alone, as a program of yours would.
 */
#include "demo.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    CLIENTS = 12,
    LEASE_MS = 250,       /* how long a crashed client's order stays in progress */
    DELIVERIES_MAX = 200, /* of one message: one that takes more is stuck, and the demo fails */
    PROGRESS_MS = 80,
};

static void sleep_ms(uint64_t ms)
{
    struct timespec pause = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    (void)nanosleep(&pause, NULL);
}

/* ---- the provider ------------------------------------------------------------------------ */

struct provider {
    pthread_mutex_t mutex;
    uint32_t *charges; /* for each order: how often the card was charged; under mutex */
};

enum reply {
    REPLY_CHARGED,
    REPLY_REFUSED, /* certainly not charged */
    REPLY_SILENCE, /* the connection broke after the request was sent */
};

/* splitmix64: enough for mishaps. */
static uint64_t roll(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static enum reply provider_charge(struct provider *provider, size_t order, uint64_t *dice)
{
    uint64_t luck = roll(dice) % 100;
    sleep_ms(3 + roll(dice) % 15);
    if (luck < 15) {
        return REPLY_REFUSED;
    }
    if (luck < 20) {
        return REPLY_SILENCE; /* the request never arrived, but who can tell */
    }
    (void)pthread_mutex_lock(&provider->mutex);
    provider->charges[order]++;
    (void)pthread_mutex_unlock(&provider->mutex);
    return luck < 30 ? REPLY_SILENCE : REPLY_CHARGED;
}

static bool provider_has_charged(struct provider *provider, size_t order)
{
    (void)pthread_mutex_lock(&provider->mutex);
    bool charged = provider->charges[order] > 0;
    (void)pthread_mutex_unlock(&provider->mutex);
    return charged;
}

/* ---- the clients ------------------------------------------------------------------------- */

struct message {
    uint32_t order;
    uint32_t amount;
};

/* What happened, counted by all clients. */
struct tally {
    atomic_ulong sent; /* arrivals at Once */
    atomic_ulong replayed;
    atomic_ulong waited; /* in progress elsewhere */
    atomic_ulong conflicts;
    atomic_ulong refused;  /* by the provider, and released */
    atomic_ulong silences; /* no answer from the provider */
    atomic_ulong crashes;  /* of clients, after charging */
    atomic_ulong settled;  /* unknowns, after somebody looked */
    atomic_ulong stuck;    /* messages that never got an answer */
    atomic_ulong finished; /* messages done with */
};

struct demo {
    struct once *once;
    struct provider provider;
    struct tally tally;
    struct message *messages;
    size_t message_count;
    size_t order_count;
    uint64_t seed;
    atomic_size_t next; /* message */
    pthread_mutex_t mutex;
    struct once_error error; /* the first; under mutex */
};

static void note_error(struct demo *demo, const struct once_error *error)
{
    (void)pthread_mutex_lock(&demo->mutex);
    if (demo->error.result == ONCE_OK) {
        demo->error = *error;
    }
    (void)pthread_mutex_unlock(&demo->mutex);
}

static void seal(struct demo *demo, const struct message *message, const struct once_answer *grant)
{
    struct once_error error;
    char receipt[96];
    char charge[32];
    (void)snprintf(charge, sizeof charge, "ch_%u", message->order);
    int len = snprintf(
        receipt, sizeof receipt, "{\"charge\":\"%s\",\"amount\":%u}", charge, message->amount);
    struct once_seal request = {.operation_id = grant->operation_id,
        .fence = grant->fence,
        .status = ONCE_EXECUTED,
        .effect_id = charge,
        .outcome = {.code = 200, .body = {receipt, (size_t)len}}};
    struct once_answer *answer = NULL;
    if (once_seal(demo->once, &request, &answer, &error) != ONCE_OK) {
        note_error(demo, &error);
    }
    once_answer_free(demo->once, answer); /* a stale fence is fine: somebody else settled it */
}

/* The grant is ours: charge. True when the message is done with. */
static bool charge(struct demo *demo, const struct message *message,
    const struct once_answer *grant, uint64_t *dice)
{
    struct once_error error;
    struct once_answer *answer = NULL;
    struct once_hold hold = {.operation_id = grant->operation_id, .fence = grant->fence};
    enum reply reply = provider_charge(&demo->provider, message->order, dice);
    int result = ONCE_OK;
    if (reply == REPLY_CHARGED && roll(dice) % 100 < 8) {
        atomic_fetch_add(&demo->tally.crashes, 1); /* forget everything; the queue delivers again */
    } else if (reply == REPLY_CHARGED) {
        seal(demo, message, grant);
        return true;
    } else if (reply == REPLY_REFUSED) {
        hold.reason = "the provider refused the connection";
        atomic_fetch_add(&demo->tally.refused, 1);
        result = once_release(demo->once, &hold, &answer, &error);
    } else {
        hold.reason = "no answer from the provider";
        atomic_fetch_add(&demo->tally.silences, 1);
        result = once_unknown(demo->once, &hold, &answer, &error);
    }
    if (result != ONCE_OK) {
        note_error(demo, &error);
    }
    once_answer_free(demo->once, answer);
    return false;
}

/* Nobody knows: look at the provider's ledger, and say what it says. The fence goes with it: while
 * we looked, somebody may have settled it and begun another attempt, of which we know nothing. */
static void settle(
    struct demo *demo, const struct message *message, const struct once_operation *unknown)
{
    struct once_error error;
    struct once_answer *answer = NULL;
    char charge_id[32];
    bool charged = provider_has_charged(&demo->provider, message->order);
    (void)snprintf(charge_id, sizeof charge_id, "ch_%u", message->order);
    struct once_resolve resolve = {
        .operation_id = unknown->operation_id,
        .fence = unknown->fence,
        .status = charged ? ONCE_EXECUTED : ONCE_STATUS_RELEASED,
        .effect_id = charged ? charge_id : NULL,
        .reason = charged ? "the provider's ledger has the charge"
                          : "the provider's ledger has no charge",
        .actor = "demo",
    };
    if (once_resolve(demo->once, &resolve, &answer, &error) != ONCE_OK) {
        note_error(demo, &error);
        return;
    }
    if (answer->decision == ONCE_RESOLVED && !answer->repeated) {
        atomic_fetch_add(&demo->tally.settled, 1);
    }
    once_answer_free(demo->once, answer);
}

/* One delivery. True when the message is done with. */
static bool act_on(struct demo *demo, const struct message *message,
    const struct once_answer *answer, uint64_t *dice)
{
    bool done = false;
    switch (answer->decision) {
    case ONCE_FIRST_SEEN: return charge(demo, message, answer, dice);
    case ONCE_DUPLICATE_REPLAYED:
        atomic_fetch_add(&demo->tally.replayed, 1);
        done = true;
        break;
    case ONCE_CONFLICT_REJECTED:
        atomic_fetch_add(&demo->tally.conflicts, 1);
        done = true;
        break;
    case ONCE_HELD_UNKNOWN: settle(demo, message, answer->operation); break;
    case ONCE_IN_PROGRESS:
        atomic_fetch_add(&demo->tally.waited, 1);
        sleep_ms(10 + roll(dice) % 40);
        break;
    case ONCE_SEALED:
    case ONCE_RELEASED_NOW:
    case ONCE_MARKED_UNKNOWN:
    case ONCE_RENEWED:
    case ONCE_RESOLVED:
    case ONCE_NOT_FOUND:
    case ONCE_STALE_FENCE:
    case ONCE_ALREADY_SEALED:
    case ONCE_STILL_RUNNING:
    case ONCE_STALE_VERSION: break;
    }
    return done;
}

/* Until somebody got an answer: at least once, as queues promise. */
static void deliver(struct demo *demo, const struct message *message, uint64_t *dice)
{
    char key[32];
    char payload[64];
    (void)snprintf(key, sizeof key, "order-%u", message->order);
    int len = snprintf(
        payload, sizeof payload, "{\"order\":%u,\"amount\":%u}", message->order, message->amount);
    struct once_begin begin = {
        .scope = "charge", .key = key, .lease_ms = LEASE_MS, .payload = {payload, (size_t)len}};
    for (int i = 0; i < DELIVERIES_MAX; i++) {
        struct once_error error;
        struct once_answer *answer = NULL;
        atomic_fetch_add(&demo->tally.sent, 1);
        if (once_begin(demo->once, &begin, &answer, &error) != ONCE_OK) {
            note_error(demo, &error);
            break;
        }
        bool done = act_on(demo, message, answer, dice);
        once_answer_free(demo->once, answer);
        if (done) {
            return;
        }
    }
    atomic_fetch_add(&demo->tally.stuck, 1);
}

static void *client_main(void *context)
{
    struct demo *demo = context;
    for (;;) {
        size_t index = atomic_fetch_add(&demo->next, 1);
        if (index >= demo->message_count) {
            return NULL;
        }
        uint64_t dice = demo->seed ^ (index + 1) * UINT64_C(0xd1342543de82ef95);
        deliver(demo, &demo->messages[index], &dice);
        atomic_fetch_add(&demo->tally.finished, 1);
    }
}

/* ---- the show ---------------------------------------------------------------------------- */

/* Every order twice, every tenth a third time with a different amount, shuffled over a short
 * distance so that duplicates meet. Whichever amount of an order comes first is the one. */
static bool write_messages(struct demo *demo)
{
    uint64_t dice = demo->seed;
    size_t count = 0;
    demo->messages = calloc(3 * demo->order_count, sizeof(struct message));
    if (demo->messages == NULL) {
        return false;
    }
    for (uint32_t order = 0; order < demo->order_count; order++) {
        struct message message = {.order = order, .amount = 100 + order % 900};
        demo->messages[count++] = message;
        demo->messages[count++] = message;
        if (order % 10 == 9) {
            message.amount++;
            demo->messages[count++] = message;
        }
    }
    for (size_t i = 0; i + 1 < count; i++) {
        size_t other = i + roll(&dice) % (count - i < 16 ? count - i : 16);
        struct message held = demo->messages[i];
        demo->messages[i] = demo->messages[other];
        demo->messages[other] = held;
    }
    demo->message_count = count;
    return true;
}

static void set_figures(const struct demo *demo, struct demo_result *result)
{
    const struct tally *tally = &demo->tally;
    unsigned long charged = 0;
    unsigned long doubles = 0;
    unsigned long missing = 0;
    for (size_t i = 0; i < demo->order_count; i++) {
        unsigned long charges = demo->provider.charges[i];
        charged += charges;
        doubles += charges > 1 ? charges - 1 : 0;
        missing += charges == 0;
    }
    const struct demo_figure figures[DEMO_FIGURES] = {
        {"orders", "orders", demo->order_count},
        {"sent", "sent", atomic_load(&tally->sent)},
        {"effects", "effects", charged},
        {"duplicates replayed", "duplicates_replayed", atomic_load(&tally->replayed)},
        {"found in progress", "in_progress", atomic_load(&tally->waited)},
        {"conflicts refused", "conflicts", atomic_load(&tally->conflicts)},
        {"refused by the provider", "provider_refusals", atomic_load(&tally->refused)},
        {"answers lost", "answers_lost", atomic_load(&tally->silences)},
        {"clients crashed", "clients_crashed", atomic_load(&tally->crashes)},
        {"unknowns settled", "unknowns_settled", atomic_load(&tally->settled)},
        {"orders not charged", "not_charged", missing},
        {"double charges", "double_charges", doubles},
    };
    memcpy(result->figures, figures, sizeof figures);
    result->is_right = doubles == 0 && missing == 0 && atomic_load(&tally->stuck) == 0;
}

static void show_progress(const struct demo *demo, FILE *progress)
{
    (void)fprintf(progress,
        "\r%5lu of %zu messages | sent %lu | replayed %lu | crashes %lu | no answer %lu | settled "
        "%lu \033[K",
        atomic_load(&demo->tally.finished), demo->message_count, atomic_load(&demo->tally.sent),
        atomic_load(&demo->tally.replayed), atomic_load(&demo->tally.crashes),
        atomic_load(&demo->tally.silences), atomic_load(&demo->tally.settled));
}

/* A client that cannot be started is one fewer; without any, every order is missing. */
static void run_clients(struct demo *demo, FILE *progress)
{
    pthread_t clients[CLIENTS];
    int count = 0;
    while (count < CLIENTS && pthread_create(&clients[count], NULL, client_main, demo) == 0) {
        count++;
    }
    while (
        progress != NULL && count > 0 && atomic_load(&demo->tally.finished) < demo->message_count) {
        show_progress(demo, progress);
        sleep_ms(PROGRESS_MS);
    }
    for (int i = 0; i < count; i++) {
        (void)pthread_join(clients[i], NULL);
    }
    if (progress != NULL) {
        (void)fprintf(progress, "\r\033[K");
    }
}

static int play(struct demo *demo, const struct demo_options *options, struct once_error *error)
{
    int result = once_open(&(struct once_options){.store = options->store}, &demo->once, error);
    if (result != ONCE_OK) {
        return result;
    }
    run_clients(demo, options->progress);
    result = once_close(demo->once, error);
    if (demo->error.result != ONCE_OK) {
        *error = demo->error;
    }
    return demo->error.result != ONCE_OK ? demo->error.result : result;
}

int demo_play(
    const struct demo_options *options, struct demo_result *ret_result, struct once_error *error)
{
    struct demo *demo = calloc(1, sizeof *demo);
    uint32_t *charges = calloc(options->orders, sizeof *charges);
    int result = ONCE_E_NOMEM;
    if (demo != NULL && charges != NULL) {
        demo->provider.charges = charges;
        demo->order_count = options->orders;
        demo->seed = options->seed;
        (void)pthread_mutex_init(&demo->mutex, NULL);
        (void)pthread_mutex_init(&demo->provider.mutex, NULL);
        result = write_messages(demo) ? play(demo, options, error) : ONCE_E_NOMEM;
    }
    if (result == ONCE_OK) {
        set_figures(demo, ret_result);
    } else if (result == ONCE_E_NOMEM) {
        *error = (struct once_error){.result = ONCE_E_NOMEM, .text = "out of memory"};
    }
    free(demo == NULL ? NULL : demo->messages);
    free(demo);
    free(charges);
    return result;
}
