/*
 * intake: effects that applications wrote in their own transactions (once_effect of PostgreSQL).
 *
 *     function: record waiting, payload in clear > taken > sealed and checked against its type
 *         > woken with its sealed body, its place in its lane, and the clear text gone, in one
 *         commit > offered
 *
 * Effects of one lane are woken in the order in which they were written, one after another: the
 * store gives those of a type with `order` to one process at a time (store.h), and here the next
 * one of a lane is submitted when the one before it is decided. If that is not known, the rest is
 * taken again later, with it.
 *
 * An effect that its type does not accept (a template names a value that is absent) is cancelled
 * with the reason. Crash points: before the commit the row is taken again by any process, some
 * seconds later; after it the effect is like any other.
 *
 * Promises:  nothing is sent from here. The tenant is the row's (P9).
 * Threads:   the engine's calls it; new, types and free on one thread at a time.
 */
#ifndef ONCE_EFFECT_INTAKE_H
#define ONCE_EFFECT_INTAKE_H

#include "config/config.h"
#include "envelope/envelope.h"

struct effect_intake;

struct intake_options {
    const struct mem *mem;
    struct engine *engine;
    const struct vault *vault;
    /* Called with a record that may be sent now. */
    void (*offer)(void *context, const struct record *record);
    void *offer_context;
};

/* It does nothing before the first intake_use. E_NOMEM. */
enum status intake_new(const struct intake_options *options, struct effect_intake **ret_intake,
    struct err *err) MUST_CHECK;
/* Use these types from now on; held. Any thread but the engine's. E_NOMEM: the earlier types
 * stay. */
enum status intake_use(
    struct effect_intake *intake, struct config *config, struct err *err) MUST_CHECK;
/* Takes nothing more. */
void intake_stop(struct effect_intake *intake);
/* After intake_stop: no call of it is left. */
bool intake_is_idle(const struct effect_intake *intake);
/* NULL is fine. It must be idle. */
void intake_free(struct effect_intake *intake);

#endif
