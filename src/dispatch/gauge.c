/* The state of a target, whichever plan is in use: its breaker, its places and its rates. */
#include "base/check.h"
#include "base/macros.h"
#include "dispatch/impl.h"

struct dispatch_gauge *gauge_of(
    struct dispatch *dispatch, const struct dispatch_kind *kind, const char *name)
{
    for (struct dispatch_gauge *at = dispatch->gauges; at != NULL; at = at->next) {
        if (at->kind == kind && strcmp(at->name, name) == 0) {
            return at;
        }
    }
    struct dispatch_gauge *gauge = mem_zalloc(dispatch->mem, 1, sizeof *gauge);
    char *copy = mem_copy_text(dispatch->mem, slice_str(name));
    if (gauge == NULL || copy == NULL) {
        mem_free(dispatch->mem, gauge);
        mem_free(dispatch->mem, copy);
        return NULL;
    }
    gauge->dispatch = dispatch;
    gauge->kind = kind;
    gauge->name = copy;
    gauge->concurrency = CONCURRENCY_USUAL;
    turns_init(&gauge->turns, dispatch->mem);
    gauge->next = dispatch->gauges;
    dispatch->gauges = gauge;
    return gauge;
}

void gauge_free(struct dispatch_gauge *gauge)
{
    const struct mem *mem = gauge->dispatch->mem;
    ASSERT(gauge->in_flight == 0); /* DJ4 */
    for (size_t i = 0; i < TENANT_BUCKETS; i++) {
        for (struct gauge_tenant *at = gauge->tenants[i], *next; at != NULL; at = next) {
            next = at->next;
            mem_free(mem, at);
        }
    }
    turns_release(&gauge->turns);
    mem_free(mem, gauge->name);
    mem_free(mem, gauge);
}

struct gauge_tenant *gauge_tenant(struct dispatch_gauge *gauge, struct slice tenant)
{
    struct digest key;
    digest_sha256(tenant.data, tenant.len, &key);
    struct gauge_tenant **bucket = &gauge->tenants[key.bytes[0] % TENANT_BUCKETS];
    for (struct gauge_tenant *at = *bucket; at != NULL; at = at->next) {
        if (digest_equal(&at->key, &key)) {
            return at;
        }
    }
    struct gauge_tenant *made = mem_zalloc(gauge->dispatch->mem, 1, sizeof *made);
    if (made != NULL) {
        made->key = key;
        made->next = *bucket;
        *bucket = made;
    }
    return made;
}

bool gauge_admits(struct dispatch_gauge *gauge, int64_t now_ms, int64_t *ret_wait_ms)
{
    *ret_wait_ms = 0;
    if (gauge->in_flight >= gauge->concurrency) {
        return false;
    }
    if (!breaker_admits(&gauge->breaker, now_ms)) {
        if (gauge->breaker.state == BREAKER_OPEN) {
            *ret_wait_ms = gauge->breaker.until_ms - now_ms;
        }
        return false;
    }
    return true;
}

uint64_t gauge_enter(struct dispatch_gauge *gauge, int64_t now_ms)
{
    uint64_t ticket = breaker_begin(&gauge->breaker, now_ms);
    gauge->in_flight++;
    return ticket;
}

void gauge_leave(struct dispatch_gauge *gauge, uint64_t ticket, enum gauge_end end, int64_t now_ms)
{
    ASSERT(gauge->in_flight > 0); /* DJ4 */
    gauge->in_flight--;
    if (end == GAUGE_NOTHING) {
        breaker_abandon(&gauge->breaker, ticket, now_ms);
    } else {
        breaker_report(&gauge->breaker, &gauge->rule, ticket, end == GAUGE_WELL, now_ms);
    }
}

static_assert(METRICS_VERDICTS == VERDICT_LATER + 1, "a figure for each verdict");
static_assert(METRICS_BREAKERS == BREAKER_HALF_OPEN + 1, "and for each state");

void gauge_judged(struct dispatch_gauge *gauge, bool is_question, enum outcall_verdict verdict)
{
    ASSERT((unsigned)verdict < METRICS_VERDICTS);
    gauge->questions += is_question ? 1 : 0;
    gauge->attempts[verdict] += is_question ? 0 : 1;
}

void gauge_begun(struct dispatch_gauge *gauge, int64_t delay_ms)
{
    gauge->delays[metrics_delay(delay_ms)]++;
    gauge->delay_ms_sum += delay_ms > 0 ? (uint64_t)delay_ms : 0;
}

void gauge_ended(struct dispatch_gauge *gauge, int64_t took_ms)
{
    gauge->calls[metrics_delay(took_ms)]++;
    gauge->call_ms_sum += (uint64_t)took_ms;
    gauge->call_ms_mean += took_ms - gauge->call_ms_mean / CALL_MEAN_OF;
}

static int64_t older(int64_t a_ms, int64_t b_ms)
{
    return a_ms == 0 || (b_ms != 0 && b_ms < a_ms) ? b_ms : a_ms;
}

static void see_head(void *context, const struct turns_item *head)
{
    int64_t *oldest_ms = context;
    const struct job *job =
        (const struct job *)(const void *)head; /* the item is its first member */
    *oldest_ms = older(*oldest_ms, job->due_ms);
}

void gauges_measure(struct dispatch *dispatch)
{
    for (struct dispatch_gauge *at = dispatch->gauges; at != NULL; at = at->next) {
        at->oldest_due_ms = 0;
        if (at->turns.waiting > 0) {
            turns_heads(&at->turns, see_head, &at->oldest_due_ms);
        }
    }
}

static void figures_add(struct metrics_target *sum, const struct dispatch_gauge *gauge)
{
    sum->breakers[gauge->breaker.state]++;
    sum->opened += gauge->breaker.opened;
    sum->in_flight += gauge->in_flight;
    sum->queued += gauge->turns.waiting;
    sum->questions += gauge->questions;
    sum->oldest_due_ms =
        older(sum->oldest_due_ms, gauge->turns.waiting > 0 ? gauge->oldest_due_ms : 0);
    sum->delay_ms_sum += gauge->delay_ms_sum;
    sum->call_ms_sum += gauge->call_ms_sum;
    for (size_t i = 0; i < METRICS_DELAYS; i++) {
        sum->delays[i] += gauge->delays[i];
        sum->calls[i] += gauge->calls[i];
    }
    for (size_t i = 0; i < METRICS_VERDICTS; i++) {
        sum->attempts[i] += gauge->attempts[i];
    }
}

/* By plan, not by gauge: a target that is no longer configured would be shown in its last state,
 * perhaps with its breaker open forever. Commands come last, because they are many: connectors keep
 * their names. */
size_t dispatch_figures(void *context, struct metrics_target *ret_targets, size_t max)
{
    struct dispatch *dispatch = context;
    size_t count = 0, all = 0;
    dispatch_lock(dispatch);
    for (size_t kind = 0; kind < COUNT(dispatch->plans); kind++) {
        all += dispatch->plans[kind] == NULL ? 0 : dispatch->plans[kind]->target_count;
    }
    for (size_t kind = COUNT(dispatch->plans); kind-- > 0;) {
        const struct dispatch_plan *plan = dispatch->plans[kind];
        for (size_t i = 0; plan != NULL && i < plan->target_count; i++) {
            bool is_named = count + 1 < max || all <= max;
            size_t at = is_named ? count : max - 1;
            if (at == count) {
                ret_targets[count++] =
                    (struct metrics_target){.kind = is_named ? plan->kind->name : NULL,
                        .name = is_named ? plan->targets[i].gauge->name : NULL};
            }
            figures_add(&ret_targets[at], plan->targets[i].gauge);
        }
    }
    dispatch_unlock(dispatch);
    return count;
}
