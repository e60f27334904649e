#include "net/wheel.h"

#include "base/check.h"

static void list_init(struct net_deadline *head)
{
    head->prev = head;
    head->next = head;
}

void net_wheel_init(struct net_wheel *wheel, uint64_t now_ms)
{
    for (size_t i = 0; i < NET_WHEEL_SLOTS; i++) {
        list_init(&wheel->slots[i]);
    }
    wheel->done_tick = now_ms / NET_TICK_MS;
    wheel->count = 0;
}

static uint64_t tick_of(const struct net_wheel *wheel, uint64_t at_ms)
{
    uint64_t tick = (at_ms + NET_TICK_MS - 1) / NET_TICK_MS;
    uint64_t last = wheel->done_tick + NET_WHEEL_SLOTS - 1;
    tick = tick > last ? last : tick;
    return tick <= wheel->done_tick ? wheel->done_tick + 1 : tick;
}

static void link_in(struct net_wheel *wheel, struct net_deadline *deadline)
{
    uint64_t tick = tick_of(wheel, deadline->at_ms);
    struct net_deadline *head = &wheel->slots[tick % NET_WHEEL_SLOTS];
    deadline->slot_tick = tick;
    deadline->prev = head->prev;
    deadline->next = head;
    head->prev->next = deadline;
    head->prev = deadline;
    wheel->count++;
}

void net_wheel_remove(struct net_wheel *wheel, struct net_deadline *deadline)
{
    if (deadline->prev != NULL) {
        ASSERT(wheel->count > 0);
        wheel->count--;
        deadline->prev->next = deadline->next;
        deadline->next->prev = deadline->prev;
        deadline->prev = NULL;
        deadline->next = NULL;
    }
    deadline->at_ms = 0;
}

void net_wheel_set(
    struct net_wheel *wheel, struct net_deadline *deadline, uint64_t now_ms, uint64_t at_ms)
{
    ASSERT(at_ms > 0);
    ASSERT(deadline->due != NULL);
    if (wheel->count == 0) {
        wheel->done_tick = now_ms / NET_TICK_MS; /* an empty wheel is not run */
    }
    if (deadline->prev != NULL && deadline->slot_tick <= tick_of(wheel, at_ms)) {
        deadline->at_ms = at_ms; /* its slot comes up before; it is sorted again then */
        return;
    }
    net_wheel_remove(wheel, deadline);
    deadline->at_ms = at_ms;
    link_in(wheel, deadline);
}

static void run_slot(struct net_wheel *wheel, uint64_t tick, uint64_t now_ms)
{
    struct net_deadline *head = &wheel->slots[tick % NET_WHEEL_SLOTS];
    struct net_deadline taken;
    list_init(&taken);
    if (head->next != head) {
        taken = *head;
        taken.next->prev = &taken;
        taken.prev->next = &taken;
        list_init(head);
    }
    /* From the front, one by one: due may remove any other. */
    while (taken.next != &taken) {
        struct net_deadline *deadline = taken.next;
        uint64_t at_ms = deadline->at_ms;
        net_wheel_remove(wheel, deadline);
        if (at_ms > now_ms) {
            deadline->at_ms = at_ms;
            link_in(wheel, deadline);
        } else if (at_ms > 0) {
            deadline->due(deadline, now_ms);
        }
    }
}

void net_wheel_run(struct net_wheel *wheel, uint64_t now_ms)
{
    uint64_t now_tick = now_ms / NET_TICK_MS;
    uint64_t from = wheel->done_tick + 1;
    if (now_tick >= from + NET_WHEEL_SLOTS) {
        from = now_tick - NET_WHEEL_SLOTS + 1; /* after a long sleep each slot comes up once */
    }
    for (uint64_t tick = from; tick <= now_tick; tick++) {
        wheel->done_tick = tick;
        run_slot(wheel, tick, now_ms);
    }
}

void net_wheel_check(const struct net_wheel *wheel)
{
    size_t count = 0;
    for (size_t i = 0; i < NET_WHEEL_SLOTS; i++) {
        const struct net_deadline *head = &wheel->slots[i];
        for (const struct net_deadline *at = head->next; at != head; at = at->next) {
            ASSERT(at->next->prev == at);
            ASSERT(at->slot_tick % NET_WHEEL_SLOTS == i); /* WH1 */
            ASSERT(at->slot_tick > wheel->done_tick);     /* WH1 */
            ASSERT(at->at_ms == 0 || at->slot_tick <= (at->at_ms + NET_TICK_MS - 1) / NET_TICK_MS ||
                   at->slot_tick == wheel->done_tick + 1); /* WH2 */
            count++;
        }
    }
    ASSERT(count == wheel->count);
}
