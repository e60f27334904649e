/*
 * Prepares a batch without asking the server: its keys are presumed to be absent.
 *
 * Most begins are for keys that do not exist. The commit script compares every version anyway, so
 * it finds out, and the batch is one round trip instead of two. If something presumed does not
 * hold, nothing was written, the changes concerned are stale, and the caller prepares their calls
 * again, which asks. So a presumption that fails costs one round trip.
 *
 *   idle --presume--> presumed --commit--> OK: all of it held
 *                              \--commit--> E_STALE --prepare, which asks--> as ever
 *
 *   PB1  Only wants by key of calls that make their record if it is absent (they compare a
 *        fingerprint). Each of them ends in a change that names version 0, and the script compares
 *        it: of two processes that presume the same key absent, one makes it (P1, S3). A want
 *        without a change of its own (a source, a lane, a note, an id) is never presumed: nothing
 *        would compare it.
 *   PB2  The fences are those set aside, and the script writes only if the server's counter is
 *        still at their end, as a prepare that asks would have to find it (P4). Nothing was read,
 *        so that they are later than those of all records returned (S9) needs no more than that.
 *   PB3  The time is the server's last answer, moved on by our boot clock (time.c). The script
 *        writes only if it is neither ahead of the server's clock nor far behind it, and not before
 *        the latest commit of any process: a record that others have forgotten must not be made
 *        anew before the end of its window (P8).
 *   PB4  After a commit that did not return OK, after an abort of a presumed batch, and on a new
 *        connection, the next prepare asks. So a lost race is never decided on a presumption again,
 *        and a server that was replaced is asked first.
 *   PB5  No later than REDIS_PRESUME_MS_MAX after a prepare that asked, and not when a beat is due
 *        (S12). The counts are those of that prepare and what we have committed since (P12).
 *   PB6  Only after `after` batches in a row that made a record for every key they wanted. A
 *        presumption that fails is followed by a pause of some batches, twice as long each time;
 *        one that holds halves it. A failure costs as much as a success gains, so presuming goes on
 *        as long as more than half of them hold.
 *   PB7  Not if the batch could reach the caller's limit of records: a begin that the limit refuses
 *        changes nothing, so nothing would find out that its key exists and has to be replayed
 *        (P12).
 *
 * Crash points: none of its own. A presumed batch is in memory until its commit, which is looked up
 * by its number like any other (fate.c).
 */
#include <limits.h>

#include "base/check.h"
#include "store/redis/impl.h"

/* PB1 */
static bool batch_fits(const struct store_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        const struct store_want *want = &batch->wants[i];
        if (want->key == NULL || want->source || want->bodies != WANT_BY_FINGERPRINT) {
            return false;
        }
    }
    return batch->count > 0;
}

static size_t keys_count(const struct store_batch *batch)
{
    size_t count = 0;
    for (size_t i = 0; i < batch->count; i++) {
        count += batch->wants[i].same == NULL;
    }
    return count;
}

/* PB7 */
static bool has_room(const struct redis_presuming *presuming, const struct store_batch *batch)
{
    uint64_t records = presuming->counts.records;
    return batch->records_max == 0 ||
           (records < batch->records_max && batch->records_max - records >= presuming->keys);
}

/* The connection is open, and the server has not closed it: then there would be its end to read. */
static bool link_is_alive(struct redis_link *link)
{
    return link_is_open(link) && !link_wait(link, -1, 0);
}

static bool can_presume(struct redis *self, const struct store_batch *batch)
{
    const struct redis_presuming *presuming = &self->presuming;
    int64_t age_ms = clock_read(&self->system).boot_ms - presuming->asked_ms;
    return presuming->run >= presuming->after && presuming->left == 0 &&           /* PB6 */
           !presuming->must_ask && age_ms >= 0 && age_ms < REDIS_PRESUME_MS_MAX && /* PB4, PB5 */
           self->failed == OK && !self->fate.is_open &&                            /* P11 */
           reserve_serves(self, batch, batch->fences) &&                           /* PB2 */
           has_room(presuming, batch) &&                                           /* PB7 */
           !beat_is_due(self, batch) && link_is_alive(&self->link);
}

bool presume(struct redis *self, struct store_batch *batch)
{
    struct redis_presuming *presuming = &self->presuming;
    ASSERT(!self->prepared);
    presuming->fits = batch_fits(batch);
    presuming->keys = keys_count(batch);
    presuming->is_presumed = presuming->fits && can_presume(self, batch);
    if (!presuming->is_presumed) {
        presuming->left -= presuming->fits && presuming->left > 0;
        return false;
    }
    for (size_t i = 0; i < batch->count; i++) {
        want_absent(&batch->wants[i]);
    }
    reserve_draw(self, batch, batch->fences);
    buf_clear(&self->stamps); /* it found no operation */
    self->now = time_now(self);
    self->prepared_ms = time_of_server(self);
    self->prepared = true;
    batch->now_ms = self->now.time_ms;
    batch->clock_held = self->clock.held && self->mark_ms <= self->clock.time_ms;
    batch->counts = presuming->counts;
    return true;
}

void presume_asked(struct redis *self, const struct store_batch *batch)
{
    struct redis_presuming *presuming = &self->presuming;
    ASSERT(!presuming->is_presumed);
    presuming->found = false;
    for (size_t i = 0; i < batch->count; i++) {
        presuming->found = presuming->found || batch->wants[i].record != NULL;
    }
    presuming->must_ask = false;
    presuming->asked_ms = clock_read(&self->system).boot_ms;
    presuming->counts = batch->counts;
}

/* Counts the records that a commit made. Returns how many there are. */
static size_t made_count(struct store_counts *counts, const struct commit *commit)
{
    size_t made = 0;
    for (size_t i = 0; i < commit->count; i++) {
        const struct change *change = &commit->changes[i];
        bool makes = change->kind == CHANGE_PUT && change->version_expected == 0 &&
                     store_kind_in(STORE_KINDS_ASKED, change->record->kind);
        if (makes) {
            counts->records++;
            counts->by_status[change->record->status]++;
            made++;
        }
    }
    return made;
}

/* PB6 */
static void pause_set(struct redis_presuming *presuming, bool held)
{
    unsigned longer = presuming->pause > presuming->pause_max / 2   ? presuming->pause_max
                      : 2 * presuming->pause < presuming->pause_min ? presuming->pause_min
                                                                    : 2 * presuming->pause;
    presuming->pause = held ? presuming->pause / 2 : longer;
    presuming->left = held ? 0 : presuming->pause;
}

void presume_ended(struct redis *self, const struct commit *commit, enum status status)
{
    struct redis_presuming *presuming = &self->presuming;
    bool is_presumed = presuming->is_presumed;
    bool happened = commit != NULL && status == OK;
    size_t made = happened ? made_count(&presuming->counts, commit) : 0;
    bool found = !is_presumed && presuming->found;
    ASSERT(!is_presumed || presuming->fits);
    presuming->is_presumed = false;
    if (is_presumed && commit != NULL && (status == OK || status == E_STALE)) {
        pause_set(presuming, status == OK);
    }
    if (!happened && (is_presumed || commit != NULL)) {
        presuming->must_ask = true; /* PB4 */
    }
    if (presuming->fits) {
        bool is_new = happened && !found && made >= presuming->keys;
        presuming->run = !is_new ? 0 : presuming->run < UINT_MAX ? presuming->run + 1 : UINT_MAX;
    }
}

enum status presume_failed(const struct commit *commit, struct err *err)
{
    bool any = false;
    for (size_t i = 0; i < commit->count; i++) {
        bool is_stale = change_key(&commit->changes[i]) != NULL;
        any = any || is_stale;
        if (commit->ret_stale != NULL) {
            commit->ret_stale[i] = is_stale;
        }
    }
    /* Without a stale change the caller would have nothing to decide again. */
    return err_set(err, any ? E_STALE : E_UNAVAILABLE,
        "a different process has used the store since it was last asked");
}
