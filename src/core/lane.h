/*
 * lane: effects with the same value of `order` go one after another (DESIGN section 11).
 *
 * Each effect of a lane remembers the one that joined before it, and may be claimed once that one
 * needs no further attempt. The last effect of a lane is remembered in a record of the kind
 * `source`, which each one that joins replaces in its own commit: processes over one store make one
 * queue, and a restart forgets nothing. An effect joins when it is enqueued, or, if it was made
 * waiting by an application's transaction (effect/intake.h), when it becomes pending.
 *
 * The lane is in the effect's source: `id` names it, `type` is the id of the effect before it, or
 * LANE_FIRST. There is no version, so nothing compares one (core/source.h).
 *
 *   L1  of all effects of a lane that are not forgotten, each but the first names a different one.
 *   L2  a lane is remembered for at least as long as its last effect may be attempted.
 *
 * Promises:  pure, like decide().
 * Ownership: slices are shared with the arguments.
 */
#ifndef ONCE_CORE_LANE_H
#define ONCE_CORE_LANE_H

#include "core/decide.h"

#define LANE_FIRST "order"

/* The source is a place in a lane. */
bool lane_is(const struct source *source);

/* The request asks for a place in a lane: an enqueue of an effect, or a wake to pending. */
bool lane_joins(const struct request *request);
/* Its decision gave the effect its place; found: as decide() was given it. */
bool lane_joined(
    const struct record *found, const struct request *request, const struct decision *decision);
/* The key of the record that remembers the lane's last effect. No request can name it: its
 * principal has a control character. E_INVALID as in record_key_seal. */
enum status lane_key_seal(const struct record_key *effect, const struct source *source,
    struct record_key *ret_key, struct err *err) MUST_CHECK;
/* The source's type for an effect that joins now: the lane's last effect. One that is enqueued
 * again (self) keeps its place, or two could wait for each other. lane and self may be NULL. */
struct slice lane_before(const struct record *lane, const struct record *self, int64_t now_ms,
    char buffer[KIND_ID_TEXT_BYTES]);
/* The lane's record after an effect has joined with a request. lane may be NULL. */
void lane_remember(const struct record *lane, const struct record *joined,
    const struct request *request, const struct record_key *key, struct record *ret_next);

/* Whether the effect is the lane's last one. Both may come from a damaged journal. */
bool lane_ends_with(const struct record *lane, const struct record *effect);

/* The effect that goes before this one. False: there is none. */
bool lane_after(const struct record *record, struct op_id *ret_id);

/* What an effect means for the one that comes after it. */
enum lane_turn {
    LANE_PASSED,  /* it needs no further attempt, or only a person can have it attempted: it is
                     unknown, and without a due */
    LANE_BLOCKED, /* it is not over yet */
    LANE_LOOK,    /* it was never attempted, and never will be: ask about the one before it */
};
/* before NULL: forgotten. */
enum lane_turn lane_turn(const struct record *before);

#endif
