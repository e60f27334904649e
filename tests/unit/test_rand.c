/* Random bytes: RA1 of base/rand.h. */
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rand.h"
#include "check_c.h"

enum { TAKEN = 500, BYTES = 16 };

struct rand_taken {
    unsigned char bytes[TAKEN][BYTES];
    size_t count; /* of them */
};

static void *take_all(void *context)
{
    struct rand_taken *taken = context;
    for (size_t i = 0; i < TAKEN; i++) {
        taken->count += rand_names(taken->bytes[i], BYTES, NULL) == OK;
    }
    return NULL;
}

static size_t equal_count(const struct rand_taken *one, const struct rand_taken *other)
{
    size_t count = 0;
    for (size_t i = 0; i < TAKEN; i++) {
        for (size_t j = 0; j < TAKEN; j++) {
            count += memcmp(one->bytes[i], other->bytes[j], BYTES) == 0;
        }
    }
    return count;
}

static void nothing_is_given_out_twice(void **state)
{
    static struct rand_taken here, there;
    pthread_t thread;
    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, take_all, &there), 0);
    (void)take_all(&here);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(here.count + there.count, 2 * TAKEN);
    assert_int_equal(equal_count(&here, &here), TAKEN); /* each equals only itself */
    assert_int_equal(equal_count(&here, &there), 0);
}

static void every_length_is_filled(void **state)
{
    (void)state;
    for (size_t size = 0; size < 100; size++) {
        unsigned char seen[100] = {0};
        for (unsigned turn = 0; turn < 20; turn++) {
            unsigned char bytes[101] = {0};
            assert_int_equal(rand_names(bytes, size, NULL), OK);
            for (size_t i = 0; i < size; i++) {
                seen[i] |= bytes[i];
            }
            assert_int_equal(bytes[size], 0);
        }
        for (size_t i = 0; i < size; i++) {
            assert_int_not_equal(seen[i], 0); /* 0 in 20 turns: once in 2^160 */
        }
    }
}

/* Both have the same memory. */
static void a_child_does_not_repeat_its_parent(void **state)
{
    static struct rand_taken here, there;
    unsigned char first[BYTES];
    int ends[2];
    (void)state;
    assert_int_equal(rand_names(first, sizeof first, NULL), OK); /* there is something in stock */
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)take_all(&there);
        bool is_whole = write(ends[1], &there, sizeof there) == (ssize_t)sizeof there;
        _exit(is_whole ? 0 : 1);
    }
    (void)take_all(&here);
    assert_int_equal(read(ends[0], &there, sizeof there), sizeof there);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(here.count + there.count, 2 * TAKEN);
    assert_int_equal(equal_count(&here, &there), 0);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing_is_given_out_twice),
        TEST(every_length_is_filled),
        TEST(a_child_does_not_repeat_its_parent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
