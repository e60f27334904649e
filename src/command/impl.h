/*
 * impl: shared by the files of the door.
 */
#ifndef ONCE_COMMAND_IMPL_H
#define ONCE_COMMAND_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "command/admission.h"
#include "command/command.h"
#include "command/detail.h"
#include "command/document.h"
#include "command/envelope.h"

enum {
    COMMAND_LEASE_SPARE_MS = 35000,       /* by which a lease outlasts its call: waiting for a turn,
                                             and settling */
    COMMAND_RETRY_SOON_MS = 1000,         /* Retry-After for a client that should come back */
    COMMAND_READ_WINDOW_MS = 60000,       /* how long an I0 command can be read */
    COMMAND_TOKEN_BYTES = 32,             /* 256 random bits */
    COMMAND_TOKEN_TEXT_BYTES = 44,        /* in base64url, and a terminator */
    COMMAND_ANSWER_BYTES_MAX = 512 << 20, /* never reached: outcomes have their own limit */
};

/* Nothing happens to a command whose key is missing. */
#define COMMAND_NO_KEY                                                                             \
    "the command was kept with a key that is not in secrets.key_file; nothing was changed"

/* Why a command whose outcome is unknown is called again. */
#define COMMAND_AGAIN_REASON                                                                       \
    SLICE_LIT("unknown; called again with the same idempotency key (on_unknown: takeover)")

/* All commands have one scope, so that a key names one command of its tenant, whatever the command
 * does: the same key with a different action is a conflict (IDS-8). */
#define COMMAND_SCOPE SLICE_LIT("commands")

/* One configuration's commands. Held by the door, by the dispatcher's plan and by requests. */
struct registry {
    struct dispatch_plan plan; /* first: execute.c casts a constant one */
    const struct mem *mem;
    struct commands *commands; /* the door it belongs to */
    struct config *config;     /* held */
    struct dispatch_target *targets;
    atomic_uint holders;
};

struct commands {
    const struct mem *mem;
    struct door *door;
    struct dispatch *dispatch;
    const struct vault *vault;
    pthread_mutex_t lock;      /* guards registry */
    struct registry *registry; /* for requests that begin now */
    struct due_subscription expiry;
    atomic_uint expiring; /* commands whose due is being handled */
    int64_t checked_ms;   /* when effects were last checked; only for the engine's thread */
    atomic_bool is_cut;
};

/* door.c: the current registry, held. */
struct registry *registry_take(struct commands *commands);
void registry_drop(struct registry *registry);
const struct config_command *registry_find(const struct registry *registry, struct slice name);

/* Reject a command whose confirmation is over, unless the record has changed since it was read: it
 * may have been confirmed, or denied and submitted again, with a confirmation that is not over.
 * False: not possible now. Any thread. */
bool command_expire(struct commands *commands, const struct record *read);
/* The request for that. */
struct request command_expiry(const struct record *read);

/* execute.c */
extern const struct dispatch_kind command_kind;
/* Whether Once calls the handler again by itself while nobody knows whether it happened. command
 * NULL: it is no longer in the registry. */
bool command_takes_over(const struct config_command *command, const struct record *record);

/*
 * The life of a request that may execute a command: a submission, or a confirmation.
 *
 *     decided by the engine > granted: dispatch_run > (handler) > settled, durably > answered
 */
struct execution {
    struct door_call call; /* first, so that the door's pointer is the execution's */
    struct commands *commands;
    struct api_request *request;
    struct registry *registry;          /* held until it is answered */
    struct envelope envelope;           /* of a submission */
    struct command_admission admission; /* likewise */
    struct slice body;                  /* sent to the handler, decrypted */
    /* The record that the answer is about. */
    struct record record;
    struct slice outcome;
    const char *decision; /* "first_seen", … */
    struct slice prompt;
    char token[COMMAND_TOKEN_TEXT_BYTES]; /* empty: none to show */
    bool is_read;                         /* I0 */
    bool is_settled;                      /* the handler's answer is durable */
    bool is_lost;                         /* there was no memory to keep the answer */
    bool has_expired; /* its expired confirmation was rejected, and it is asked once more */
    void (*decided)(struct execution *execution);
};

/* The execution is zeroed memory in the exchange's arena. */
void execution_init(struct execution *execution, struct api_request *request);
/* In the exchange's arena. NULL: out of memory; the request has been answered. */
struct execution *execution_new(struct api_request *request) MUST_CHECK;
/* Call decided on the exchange's loop when somebody has woken the exchange. */
void execution_wait(struct execution *execution, void (*decided)(struct execution *execution));
/* Submit the call to the engine; decided is called on the exchange's loop. */
void execution_submit(struct execution *execution, void (*decided)(struct execution *execution));
/* Call the handler of the record that the engine just granted, with body, and answer. */
void execution_run(struct execution *execution);
/* Answer with the document about record, or with its problem. */
void execution_answer(struct execution *execution, unsigned status);
/* Refuse, and release. */
void execution_refuse(struct execution *execution, const struct problem *problem);
void execution_fail(struct execution *execution, const struct err *err);
/* Its record is unknown: have the handler called again, and record that an earlier attempt may have
 * happened (P5). reason: empty for the usual one. decided is called on the exchange's loop. False:
 * the record cannot be read, or there is no memory; nothing was submitted. */
bool execution_take_over(struct execution *execution, struct slice reason,
    void (*decided)(struct execution *execution)) MUST_CHECK;
/* How long a command's lease must be. */
int64_t execution_lease_ms(const struct config_command *command);
/* The hash of a token, bound to its actor and command. E_NOMEM. */
enum status confirmation_hash(const struct record_key *key, struct slice actor_id,
    struct slice token, struct arena *arena, struct digest *ret_hash) MUST_CHECK;
/* The keyed hash of the request's credential; zero: it has none. */
void confirmation_credential(const struct api_request *request, struct digest *ret_digest);

/* Handlers. */
void command_submit(struct api_request *request);
void command_confirm(struct api_request *request);
void command_deny(struct api_request *request);
void command_recover(struct api_request *request);
void command_resolve(struct api_request *request);
void command_get(struct api_request *request);
/* Whether its submitter gave the command this id. */
bool command_is_named(const struct record *record, struct slice name, struct arena *arena);
void command_list(struct api_request *request);
void command_registry(struct api_request *request);

#endif
