/*
 * command: the door for agents and chat systems that turn messages into business actions
 * (docs/commands.md). It has no listener: the API serves its routes.
 *
 *     submit.c      POST /v1/commands: from the envelope to the answer
 *     inbound.c     commands that events submit
 *     admission.c   for both: from the envelope to the call to the engine
 *     confirm.c     POST …/confirm and …/deny
 *     execute.c     the handler: what is sent, and what its answer means (a kind of dispatch.h)
 *     effects.c     the effects of a command, and what their ends mean for it
 *     recover.c     POST …/recover and …/resolve: an operator's decisions
 *     compensate.c  undoing a command
 *     read.c        GET /v1/commands, …/{command_id}, /v1/registry
 *     door.c        loading, reloading, and expiry of confirmations
 *
 * Promises:  CM1 one execution for each key in its window, however often it is delivered (P1). The
 *            grant is durable before the handler is called (P6), the outcome before it is answered
 *            (P2).
 *            CM2 a confirmation token starts its command once: it is compared in constant time, and
 *                the start consumes it in its own commit. Only its hash is kept.
 *            CM3 every refused token gets the same answer, whatever is wrong with it.
 *            CM4 a value that the registry redacts is in no document, prompt, entry or log line.
 * Threads:   the routes run on the server's loops; the other functions as stated.
 */
#ifndef ONCE_COMMAND_COMMAND_H
#define ONCE_COMMAND_COMMAND_H

#include "api/routes.h"
#include "config/config.h"
#include "dispatch/dispatch.h"

struct effect_command_calls; /* envelope.h */

struct commands;
struct registry; /* a configuration's commands, and where their handlers are; impl.h */

struct commands_options {
    const struct mem *mem; /* NULL: the C library's */
    struct door *door;
    struct dispatch *dispatch; /* outlives the door */
    const struct vault *vault; /* likewise */
    struct config *config;     /* held */
};

/* E_INVALID, E_UNAVAILABLE: a handler's URL or CA file is invalid. E_NOMEM. */
enum status commands_new(const struct commands_options *options, struct commands **ret_commands,
    struct err *err) MUST_CHECK;
/* Call it after the server has been freed. NULL is fine. */
void commands_free(struct commands *commands);

/* For the API: its state is the commands. */
struct api_routes commands_routes(struct commands *commands);

/* Prepare a different registry; commands_reload_end must follow. */
enum status commands_reload_prepare(struct commands *commands, struct config *config,
    struct registry **ret_registry, struct err *err) MUST_CHECK;
/* Use it for requests that begin from now on, or drop it. */
void commands_reload_end(struct commands *commands, struct registry *registry, bool is_used);

/* As struct outbox_parent's ends: the end of a command that waits, or one effect less to wait for.
 * If the effect has failed, the registry says what happens to the command. Any thread. */
enum status commands_effect_ends(struct commands *commands, const struct record *command,
    const struct record *effect, bool has_failed, struct effect_command_calls *calls,
    struct err *err) MUST_CHECK;
/* An effect of a command is settled or given up: check now whether the command can end, not at its
 * next due. Any thread. */
void commands_effect_settled(struct commands *commands, const struct record *effect);

/* An event that is to become a command. */
struct commands_event {
    struct slice tenant;
    struct slice envelope; /* JSON */
    struct slice request_id;
};
/* Make the call that enqueues it; call is zeroed except for its arena and actor. E_INVALID: it can
 * never be submitted; the text says why. E_UNAVAILABLE: not with the registry that is used now.
 * E_LIMIT: not before *ret_after_ms. E_NOMEM. Any thread. */
enum status commands_inbound(struct commands *commands, const struct commands_event *event,
    struct engine_call *call, int64_t *ret_after_ms, struct err *err) MUST_CHECK;

/* Whether the registry of a configuration would accept it, and the key it would have; nothing is
 * made. E_INVALID: the text says why not. E_NOMEM. */
enum status commands_inbound_check(struct config *config, const struct commands_event *event,
    struct arena *arena, struct slice *ret_key, struct err *err) MUST_CHECK;

/* Stop expiring confirmations: the server is about to end. */
void commands_cut(struct commands *commands);
/* No call of the door is in the engine. */
bool commands_is_idle(const struct commands *commands);

#endif
