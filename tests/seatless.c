/*
 * An engine without seats, for simulations that run it on a scheduler of their own: no thread leads
 * and no flush flies. engine_submit_lead is the simulation's.
 */
#include "engine/engine.h"

enum status engine_submit_seated(struct engine *engine, struct engine_seat *seat,
    struct engine_call *const *calls, size_t count, size_t *ret_taken, struct err *err)
{
    (void)seat;
    return engine_submit_lead(engine, calls, count, ret_taken, err);
}

bool engine_land(struct engine *engine, struct engine_seat *seat)
{
    (void)engine;
    (void)seat;
    return true; /* nothing is ever under way */
}

void engine_unseat(struct engine *engine, struct engine_seat *seat)
{
    (void)engine;
    (void)seat;
}
