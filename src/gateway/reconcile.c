#include "gateway/reconcile.h"

bool reconcile_now(struct gateway *gateway, unsigned loop, struct gate *gate,
    const struct config_route *route, struct origin *origin, const struct record *record,
    void (*done)(void *context), void *context)
{
    (void)gateway;
    (void)loop;
    (void)gate;
    (void)route;
    (void)origin;
    (void)record;
    (void)done;
    (void)context;
    return false;
}
