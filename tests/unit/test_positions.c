#include <stdio.h>

#include "broker/positions.h"
#include "check_c.h"

static int64_t next_of(const struct positions *positions, int32_t partition)
{
    for (size_t i = 0; i < positions->count; i++) {
        if (positions->items[i].partition == partition) {
            return positions->items[i].next;
        }
    }
    return -2;
}

static void done(struct positions *positions, const char *id)
{
    positions_done(positions, slice_str(id));
}

static void a_position_is_never_behind_what_is_not_done(void **state)
{
    struct positions positions = {.count = 0};
    (void)state;
    for (int64_t offset = 4; offset < 8; offset++) {
        assert_true(positions_take(&positions, 3, offset));
    }
    done(&positions, "3-5");
    done(&positions, "3-7");
    assert_int_equal(next_of(&positions, 3), -1);
    done(&positions, "3-4");
    assert_int_equal(next_of(&positions, 3), 6);
    done(&positions, "3-6");
    assert_int_equal(next_of(&positions, 3), 8);
    positions_clear(&positions);
}

static void partitions_move_by_themselves_and_gaps_are_no_messages(void **state)
{
    struct positions positions = {.count = 0};
    (void)state;
    assert_true(positions_take(&positions, 0, 10));
    assert_true(positions_take(&positions, 1, 10));
    assert_true(positions_take(&positions, 0, 17)); /* compacted, or marks of transactions */
    done(&positions, "0-10");
    assert_int_equal(next_of(&positions, 0), 11);
    assert_int_equal(next_of(&positions, 1), -1);
    done(&positions, "0-17");
    assert_int_equal(next_of(&positions, 0), 18);
    positions_clear(&positions);
}

static void what_was_not_taken_changes_nothing(void **state)
{
    struct positions positions = {.count = 0};
    (void)state;
    done(&positions, "0-1");
    assert_true(positions_take(&positions, 0, 2));
    const char *const others[] = {"0-1", "0-3", "1-2", "", "-", "0-", "-2", "0-2x", "x-2",
        "99999999999-2", "0-99999999999999999999"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        done(&positions, others[i]);
    }
    assert_int_equal(next_of(&positions, 0), -1);
    positions_clear(&positions);
    done(&positions, "0-2");
    assert_int_equal(positions.count, 0);
}

static void a_message_taken_again_is_one_and_a_group_set_back_begins_anew(void **state)
{
    struct positions positions = {.count = 0};
    (void)state;
    assert_true(positions_take(&positions, 0, 5));
    assert_true(positions_take(&positions, 0, 6));
    assert_true(positions_take(&positions, 0, 5));
    done(&positions, "0-5");
    assert_int_equal(next_of(&positions, 0), 6);
    assert_true(positions_take(&positions, 0, 2)); /* before everything that was taken */
    done(&positions, "0-6");
    assert_int_equal(next_of(&positions, 0), -1);
    done(&positions, "0-2");
    assert_int_equal(next_of(&positions, 0), 3);
    assert_true(positions_take(&positions, 0, 1)); /* when everything is done, too */
    assert_int_equal(next_of(&positions, 0), -1);
    positions_clear(&positions);
}

static void a_long_wait_pauses_a_partition_and_is_bounded(void **state)
{
    struct positions positions = {.count = 0};
    char id[32];
    (void)state;
    for (int64_t offset = 0; offset < POSITION_SPAN_MAX; offset++) {
        assert_true(positions.count == 0 || !position_is_long(&positions.items[0], false));
        assert_true(positions_take(&positions, 0, offset));
    }
    assert_true(position_is_long(&positions.items[0], false));
    for (int64_t offset = POSITION_SPAN_MAX - 1; offset >= 0; offset--) {
        assert_int_equal(next_of(&positions, 0), -1);
        (void)snprintf(id, sizeof id, "0-%lld", (long long)offset);
        done(&positions, id);
    }
    assert_int_equal(next_of(&positions, 0), POSITION_SPAN_MAX);
    assert_false(position_is_long(&positions.items[0], true));
    positions_clear(&positions);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_position_is_never_behind_what_is_not_done),
        TEST(partitions_move_by_themselves_and_gaps_are_no_messages),
        TEST(what_was_not_taken_changes_nothing),
        TEST(a_message_taken_again_is_one_and_a_group_set_back_begins_anew),
        TEST(a_long_wait_pauses_a_partition_and_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
