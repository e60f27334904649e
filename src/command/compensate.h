/*
 * compensate: undoes a command. Its acknowledged effects are undone in the reverse of the order in
 * which the handler returned them, one after another, each by the effect that its type declares
 * (docs/commands.md). recovery.h has what happens to each effect.
 *
 *     asked for         every effect is read; if one does not allow it, nothing is changed
 *     (or a required  > compensating, durable > the last effect that is not undone: it is
 *     effect failed)    compensating, and the effect that undoes it exists, in one commit >
 *                       acknowledged: the next one > … > compensated
 *
 * Promises:  each effect is undone once: the effect that undoes it has its own key. Nothing is
 *            undone before the command is durably compensating, and a command is compensated only
 *            when all of its effects are undone or certainly never happened.
 * Crash:     every step is one commit and may be repeated: any process that finds the command due
 *            continues where it stopped. A command whose compensation is stuck is not due; it
 *            continues when a person asks again or settles the effect.
 * Does not:  undo effects that somebody made with POST /v1/effects and this command's id.
 * Threads:   any; the callbacks run on the engine's threads.
 */
#ifndef ONCE_COMMAND_COMPENSATE_H
#define ONCE_COMMAND_COMPENSATE_H

#include "command/impl.h"

/* It is being undone, or nobody knows whether it was. */
bool compensation_is_open(const struct record *command);

/* Set the request by which a command that has ended begins to be undone: a required effect
 * failed. detail: of the record when that is decided. */
void compensation_begin(const struct commands *commands, const struct record *command,
    struct slice detail, struct engine_call *call);

/* The trace of what a recovery does: the command's own, with the recovery's id. Empty: it has none,
 * it is too long, or out of memory. */
struct slice recovery_trace(
    const struct record *command, struct slice recovery_id, struct arena *arena);

enum compensate_why {
    COMPENSATE_DRIVE,  /* continue a compensation that has begun */
    COMPENSATE_FAILED, /* a required effect failed: begin one, or fail if nothing happened */
};
/* If it is not possible now, it follows when the command is next due. */
void command_compensate(struct commands *commands, const struct op_id *id, enum compensate_why why);

/* The result of an operator's request about a command's effects. */
struct effects_recovery {
    enum {
        EFFECTS_RECOVERED, /* record is the command */
        EFFECTS_NOT_FOUND,
        EFFECTS_REFUSED, /* code and err say why; record is the command */
        EFFECTS_ERROR,   /* err says why */
    } end;
    const char *code;
    struct err err;
    struct record record; /* in the arena that was given */
};

/* An operator's compensate, or retry of the effects that were given up. */
struct effects_recover {
    struct op_id id;
    struct slice tenant;
    struct slice actor;
    struct slice reason;
    struct detail_recovery recovery; /* noted in the command's record */
    struct slice trace;              /* of its entries: canonical JSON */
    bool retries;                    /* else it compensates */
    struct arena *arena;             /* for the result; nobody else uses it meanwhile */
    /* On any thread, exactly once. */
    void (*done)(void *context, const struct effects_recovery *recovery);
    void *context;
};
/* The texts must live until done. Done is not called after E_NOMEM and E_UNAVAILABLE (the server
 * was started without commands). */
enum status command_effects_recover(
    struct commands *commands, const struct effects_recover *options) MUST_CHECK;

#endif
