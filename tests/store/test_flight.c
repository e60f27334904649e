/*
 * A flush that no thread waits for: begun, landed later, landed by a call that needs it, failed.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "store/fake_ring.h"
#include "store/faulty.h"
#include "store/journal/journal.h"
#include "store/kit.h"
#include "store/power.h"

/* A ring whose write has not ended before the test says so, unless somebody waits for it. */
static bool held;

static bool held_ended(void *context, struct io_ring *ring, bool wait, ssize_t *ret_put)
{
    return (wait || !held) && fake_ring_ended(context, ring, wait, ret_put);
}

struct place {
    struct kit_dir dir;
    char data[300];
    struct faulty faulty;
    struct store *store;
    struct arena arena;
    unsigned count; /* of records */
};

static void place_open(struct place *place, const struct io *io, const char *way)
{
    char url[400];
    struct err err = {0};
    struct store_options options = {.io = io, .clock = &kit_clock};
    (void)snprintf(
        url, sizeof url, "journal:%s?segment=64KiB&background=off&write=%s", place->data, way);
    enum status status = store_open(url, &options, &place->store, &err);
    if (status != OK) {
        print_error("open: %s\n", err.text);
    }
    assert_int_equal(status, OK);
    assert_non_null(place->store->ops->flight);
}

static int setup(void **state)
{
    struct place *place = calloc(1, sizeof *place);
    assert_non_null(place);
    kit_set_time(KIT_NOW);
    place->dir = kit_dir_make();
    (void)snprintf(place->data, sizeof place->data, "%s/data", place->dir.path);
    faulty_init(&place->faulty);
    place->faulty.io.ring_ended = held_ended;
    arena_init(&place->arena, &mem_libc, 64 << 20);
    held = true;
    *state = place;
    return 0;
}

static int teardown(void **state)
{
    struct place *place = *state;
    assert_int_equal(kit_damages(place->data, NULL), 0);
    kit_dir_remove(&place->dir);
    arena_release(&place->arena);
    free(place);
    return 0;
}

static void put(struct place *place)
{
    struct record record = kit_record(place->count, place->count + 1);
    assert_int_equal(kit_put(place->store, &record, 0), OK);
    place->count++;
}

static bool start(struct place *place)
{
    struct err err = {0};
    bool landed = false;
    assert_int_equal(place->store->ops->flight->start(place->store, &landed, &err), OK);
    return landed;
}

static bool land(struct place *place)
{
    struct err err = {0};
    bool landed = false;
    assert_int_equal(place->store->ops->flight->land(place->store, &landed, &err), OK);
    return landed;
}

static int event(struct place *place)
{
    return place->store->ops->flight->event(place->store);
}

/* Everything is there after a restart. */
static void look(struct place *place)
{
    assert_int_equal(kit_close(place->store), OK);
    place_open(place, &power_io_fast, "buffered");
    for (unsigned i = 0; i < place->count; i++) {
        assert_non_null(kit_load(place->store, i, &place->arena));
    }
    assert_int_equal(kit_close(place->store), OK);
}

static void work_goes_on_while_a_batch_is_in_flight(void **state)
{
    struct place *place = *state;
    place_open(place, &place->faulty.io, "uring");
    assert_true(start(place)); /* there is nothing */
    assert_int_equal(event(place), -1);
    for (unsigned i = 0; i < 8; i++) {
        held = true;
        put(place);
        assert_false(start(place));
        assert_false(land(place));
        assert_true(event(place) >= 0);
        put(place);
        assert_non_null(kit_load(place->store, place->count - 2, &place->arena));
        assert_false(land(place));
        held = false;
        struct pollfd waits = {.fd = event(place), .events = POLLIN};
        assert_int_equal(poll(&waits, 1, 0), 1);
        assert_true(land(place));
        assert_true(land(place));
        assert_int_equal(event(place), -1);
    }
    look(place);
}

/* A flush, a full segment and closing need the batch on the disk, and do not wait for a caller. */
static void whoever_needs_the_batch_lands_it(void **state)
{
    struct place *place = *state;
    struct err err = {0};
    place_open(place, &place->faulty.io, "uring");
    put(place);
    assert_false(start(place));
    assert_int_equal(place->store->ops->flush(place->store, &err), OK);
    assert_true(land(place));
    put(place);
    assert_false(start(place));
    put(place);
    assert_false(start(place));          /* waits for the one before */
    for (unsigned i = 0; i < 100; i++) { /* several segments */
        put(place);
        assert_false(start(place));
        assert_int_equal(kit_maintain(place->store, KIT_NOW, &err), OK);
    }
    assert_false(land(place));
    look(place); /* closes while it is in flight */
}

static void a_batch_that_fails_in_flight_stops_everything(void **state)
{
    struct place *place = *state;
    static const int errors[] = {-EIO, -ENOSPC, -ECANCELED, -EAGAIN};
    for (unsigned i = 0; i < sizeof errors / sizeof *errors; i++) {
        faulty_init(&place->faulty);
        place->faulty.io.ring_ended = held_ended;
        place_open(place, &place->faulty.io, "uring");
        struct err err = {0};
        bool landed = false;
        held = false;
        struct record record = kit_record(50 + i, 100 + i);
        place->faulty.what = FAULTY_PWRITE;
        place->faulty.calls = 0;
        place->faulty.fail_at = 1;
        place->faulty.error = errors[i];
        assert_int_equal(kit_put(place->store, &record, 0), OK);
        held = true;
        assert_false(start(place));
        held = false;
        const struct store_flight *flight = place->store->ops->flight;
        for (unsigned again = 0; again < 2; again++) { /* and it stays so */
            assert_int_equal(flight->land(place->store, &landed, &err), E_UNKNOWN);
            assert_true(landed);
            assert_non_null(strstr(err.text, strerror(-errors[i])));
        }
        assert_int_equal(flight->start(place->store, &landed, &err), E_UNKNOWN);
        assert_int_equal(place->store->ops->flush(place->store, &err), E_UNKNOWN);
        assert_int_equal(kit_put(place->store, &record, 0), E_UNKNOWN);
        assert_int_equal(kit_close(place->store), E_UNKNOWN);
    }
}

/* The part that is missing is begun when the first one has landed. */
static void a_part_that_landed_is_not_the_whole(void **state)
{
    struct place *place = *state;
    place_open(place, &place->faulty.io, "uring");
    put(place);
    place->faulty.what = FAULTY_PWRITE;
    place->faulty.calls = 0;
    place->faulty.fail_at = 1;
    assert_false(start(place));
    held = false;
    assert_true(land(place));
    assert_int_equal(place->faulty.calls, 2);
    look(place);
}

static void without_a_ring_a_flush_lands_at_once(void **state)
{
    struct place *place = *state;
    static const char *const ways[] = {"buffered", "direct"};
    for (unsigned i = 0; i < 2; i++) {
        place_open(place, &place->faulty.io, ways[i]);
        put(place);
        assert_true(start(place));
        assert_int_equal(event(place), -1);
        assert_true(land(place));
        assert_int_equal(kit_close(place->store), OK);
    }
    place_open(place, &place->faulty.io, "uring");
    place->faulty.what = FAULTY_RING;
    place->faulty.calls = 0;
    place->faulty.fail_at = 1;
    place->faulty.error = -EAGAIN;
    put(place);
    assert_true(start(place)); /* the ring refuses: written in this thread */
    put(place);
    assert_true(start(place));
    look(place);
}

static void the_kernel_tells_when_it_has_landed(void **state)
{
    struct place *place = *state;
    if (strcmp(kit_way(KIT_WAYS - 1, place->dir.path), "uring") != 0) {
        print_message("skipped: io_uring is not possible here\n");
        return;
    }
    place_open(place, &io_system, "uring");
    for (unsigned i = 0; i < 60; i++) {
        put(place);
        bool landed = start(place);
        while (!landed) {
            struct pollfd waits = {.fd = event(place), .events = POLLIN};
            assert_int_equal(poll(&waits, 1, -1), 1);
            landed = land(place);
        }
    }
    look(place);
}

#define ON(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON(work_goes_on_while_a_batch_is_in_flight),
        ON(whoever_needs_the_batch_lands_it),
        ON(a_batch_that_fails_in_flight_stops_everything),
        ON(a_part_that_landed_is_not_the_whole),
        ON(without_a_ring_a_flush_lands_at_once),
        ON(the_kernel_tells_when_it_has_landed),
    };
    return cmocka_run_group_tests_name("flight", tests, NULL, NULL);
}
