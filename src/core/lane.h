/*
 * lane: effects with the same value of `order`, and deliveries of the same source, are sent one
 * after another (docs/effects.md and docs/inbox.md).
 *
 * Each record of a lane remembers the one that joined before it, and may be claimed once that one
 * needs no further attempt. The last one of a lane is remembered in a record of the kind `source`,
 * which each one that joins replaces in its own commit: processes over one store make one queue,
 * and a restart forgets nothing. A record joins when it is enqueued, or, if it is an effect that
 * was made waiting by an application's transaction (effect/intake.h), when it becomes pending.
 *
 *   effect     its source's `id` names the lane, `type` is the id of the effect before it, or
 *              LANE_FIRST. There is no version, so nothing compares one (core/source.h).
 *   delivery   its source is ordered by versions as well, which are compared (core/source.h); the
 *              source's `id` names the lane, and `parent` is the delivery before it, if any.
 *
 *   LN1 of all records of a lane that are not forgotten, each but the first names a different one.
 *   LN2 a lane is remembered for at least as long as its last record may be attempted.
 *   LN3 a lane has records of one kind: its key has the kind's name.
 *
 * Promises:  pure, like decide().
 * Ownership: slices are shared with the arguments.
 */
#ifndef ONCE_CORE_LANE_H
#define ONCE_CORE_LANE_H

#include "core/decide.h"

#define LANE_FIRST "order"

/* Records of this kind may have a place in a lane. */
bool lane_kind(enum record_kind kind);
/* The source is an effect's place in a lane. */
bool lane_is(const struct source *source);

/* The request asks for a place in a lane: an enqueue of an effect or a delivery, or a wake of an
 * effect to pending. */
bool lane_joins(const struct request *request);
/* Its decision gave the record its place; found: as decide() was given it. */
bool lane_joined(
    const struct record *found, const struct request *request, const struct decision *decision);
/* The key of the record that remembers the last one of the lane that a request joins. No request
 * can name it: its principal has a control character. E_INVALID as in record_key_seal. */
enum status lane_key_seal(
    const struct request *request, struct record_key *ret_key, struct err *err) MUST_CHECK;
/* Put the place of a record that joins now into its request: after the lane's last one. A record
 * that is enqueued again (self) keeps its place, or two could wait for each other. lane and self
 * may be NULL. The request may refer to the buffer. */
void lane_place(const struct record *lane, const struct record *self, int64_t now_ms,
    char buffer[KIND_ID_TEXT_BYTES], struct request *request);
/* The lane's record after a record has joined with a request. lane may be NULL. */
void lane_remember(const struct record *lane, const struct record *joined,
    const struct request *request, const struct record_key *key, struct record *ret_next);

/* Whether the record is the lane's last one. Both may come from a damaged journal. */
bool lane_ends_with(const struct record *lane, const struct record *record);

/* The record before this one. False: there is none. */
bool lane_after(const struct record *record, struct op_id *ret_id);

/* What a record means for the one that comes after it. */
enum lane_turn {
    LANE_PASSED,     /* it needs no further attempt, or only a person can have it attempted: it is
                     unknown, and without a due */
    LANE_BLOCKED,    /* it is not over yet */
    LANE_ASK_BEFORE, /* it was never attempted, and never will be: ask about the one before it */
};
/* before NULL: forgotten. */
enum lane_turn lane_turn(const struct record *before);

#endif
