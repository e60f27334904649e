/*
 * The store's time: the server's wall clock, held to the boot clock of this machine (P8).
 *
 * store/clock.h has the rule. Its wall clock is the server's last answer, advanced by this
 * machine's boot clock. The time that other processes have committed is a lower bound.
 */
#include "base/check.h"
#include "store/postgres/impl.h"

int64_t pg_boot_ms(const struct pg_store *self)
{
    return clock_read(self->given == NULL ? &self->system : self->given).boot_ms;
}

/* Reads the server's clock, or the clock given for tests. */
static struct clock_reading server_read(void *context)
{
    const struct pg_store *self = context;
    if (self->given != NULL) {
        return clock_read(self->given);
    }
    int64_t boot_ms = pg_boot_ms(self);
    return (struct clock_reading){
        .wall_ms = self->server_ms + (boot_ms - self->server_boot_ms), .boot_ms = boot_ms};
}

void pg_time_init(struct pg_store *self, const struct store_moment *last)
{
    self->server = (struct clock){.read = server_read,
        .boot_id = self->given == NULL ? self->system.boot_id : self->given->boot_id,
        .context = self};
    store_clock_init(&self->clock, &self->server, last);
    self->mark_ms = last->time_ms;
    ASSERT(self->clock.time_ms >= last->time_ms); /* P8 */
}

void pg_time_heard(struct pg_store *self, int64_t server_ms, int64_t mark_ms)
{
    self->server_ms = server_ms;
    self->server_boot_ms = pg_boot_ms(self);
    self->mark_ms = mark_ms > self->mark_ms ? mark_ms : self->mark_ms;
}

struct store_moment pg_time_now(struct pg_store *self)
{
    struct store_moment now = store_clock_now(&self->clock);
    now.time_ms = now.time_ms > self->mark_ms ? now.time_ms : self->mark_ms;
    ASSERT(now.time_ms >= self->head.moment.time_ms); /* S8 */
    return now;
}
