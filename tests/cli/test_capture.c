/* What once run records, read back: bounds, order, and hostile bytes. */
#include <string.h>

#include "base/limits.h"
#include "check_c.h"
#include "cli/capture.h"

/* A capture as the store would give it back. */
static struct once_operation stored(const struct capture *capture, struct buf *meta)
{
    capture_meta(capture, meta);
    struct once_operation operation = {.operation_id = "op_test", .outcome_retained = 1};
    operation.outcome.meta = (struct once_bytes){meta->data, meta->len};
    operation.outcome.body = (struct once_bytes){capture->pieces.data, capture->pieces.len};
    return operation;
}

static void add(struct capture *capture, int stream, const char *text)
{
    capture_add(capture, stream, slice_str(text));
}

struct fixture {
    struct capture capture;
    struct arena arena;
    struct buf meta;
    struct buf out;
};

static int setup(void **state)
{
    static struct fixture fixture;
    capture_init(&fixture.capture, 10);
    arena_init(&fixture.arena, &mem_libc, 64 << 20);
    buf_init(&fixture.meta, &mem_libc, 4096);
    buf_init(&fixture.out, &mem_libc, 1 << 20);
    *state = &fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    capture_release(&fixture->capture);
    arena_release(&fixture->arena);
    buf_release(&fixture->meta);
    buf_release(&fixture->out);
    return 0;
}

static bool spell(void *context, int stream, struct slice bytes)
{
    struct buf *out = context;
    buf_printf(out, "%d:%.*s ", stream + 1, SLICE_ARGS(bytes));
    return true;
}

static void keeps_the_order_of_both_streams(void **state)
{
    struct fixture *f = *state;
    struct recording recording;
    add(&f->capture, CAPTURE_STDOUT, "a");
    add(&f->capture, CAPTURE_STDOUT, "b");
    add(&f->capture, CAPTURE_STDERR, "x");
    add(&f->capture, CAPTURE_STDOUT, "c");
    struct once_operation operation = stored(&f->capture, &f->meta);
    assert_int_equal(recording_read(&operation, &f->arena, &recording, NULL), OK);
    assert_true(recording.framed);
    recording_each(&recording, spell, &f->out);
    assert_true(slice_is(buf_view(&f->out), "1:ab 2:x 1:c "));
}

static void keeps_a_beginning_and_counts_the_rest(void **state)
{
    struct fixture *f = *state;
    struct recording recording;
    add(&f->capture, CAPTURE_STDOUT, "12345678");
    add(&f->capture, CAPTURE_STDERR, "abcd");
    add(&f->capture, CAPTURE_STDOUT, "9");
    struct once_operation operation = stored(&f->capture, &f->meta);
    assert_int_equal(recording_read(&operation, &f->arena, &recording, NULL), OK);
    recording_each(&recording, spell, &f->out);
    assert_true(slice_is(buf_view(&f->out), "1:12345678 2:ab "));
    assert_int_equal(recording.dropped[CAPTURE_STDOUT], 1);
    assert_int_equal(recording.dropped[CAPTURE_STDERR], 2);
}

static void never_passes_the_limit_of_an_outcome(void **state)
{
    struct fixture *f = *state;
    capture_release(&f->capture);
    capture_init(&f->capture, CAPTURE_BYTES_MAX);
    for (int i = 0; i < 4 << 20; i++) { /* one byte a piece: heads take most of the room */
        capture_add(&f->capture, i & 1, SLICE_LIT("x"));
    }
    assert_true(f->capture.pieces.len <= LIMIT_OUTCOME_BYTES_MAX);
    assert_int_equal(buf_status(&f->capture.pieces), OK);
    uint64_t all = f->capture.kept[0] + f->capture.kept[1] + f->capture.dropped[0];
    assert_int_equal(all + f->capture.dropped[1], 4 << 20);
    assert_true(f->capture.dropped[0] > 0);
}

static void takes_a_body_of_another_making_as_standard_output(void **state)
{
    struct fixture *f = *state;
    struct recording recording;
    struct once_operation operation = {
        .outcome_retained = 1, .outcome = {.meta = {"{\"a\":1}", 7}, .body = {"hello", 5}}};
    assert_int_equal(recording_read(&operation, &f->arena, &recording, NULL), OK);
    assert_false(recording.framed);
    recording_stream(&recording, CAPTURE_STDOUT, &f->out);
    assert_true(slice_is(buf_view(&f->out), "hello"));
}

static void says_when_the_body_is_gone(void **state)
{
    struct fixture *f = *state;
    struct recording recording;
    add(&f->capture, CAPTURE_STDOUT, "a");
    struct once_operation operation = stored(&f->capture, &f->meta);
    operation.outcome_retained = 0;
    operation.outcome.body.data = NULL;
    assert_int_equal(recording_read(&operation, &f->arena, &recording, NULL), OK);
    assert_true(recording.gone);
}

/* Every byte of the body changed in every bit, and every shorter body: refused or whole, never a
 * read past its end. */
static void refuses_pieces_that_do_not_add_up(void **state)
{
    struct fixture *f = *state;
    struct recording recording;
    char bytes[64];
    add(&f->capture, CAPTURE_STDOUT, "ab");
    add(&f->capture, CAPTURE_STDERR, "c");
    struct once_operation operation = stored(&f->capture, &f->meta);
    size_t size = operation.outcome.body.size;
    assert_int_equal(size, 13);
    for (size_t len = 0; len < size; len++) {
        operation.outcome.body.size = len;
        assert_int_equal(recording_read(&operation, &f->arena, &recording, NULL), E_CORRUPT);
    }
    operation.outcome.body = (struct once_bytes){bytes, size};
    for (size_t bit = 0; bit < 8 * size; bit++) {
        memcpy(bytes, f->capture.pieces.data, size);
        bytes[bit / 8] = (char)(bytes[bit / 8] ^ 1 << bit % 8);
        bool head = bit / 8 < 5 || (bit / 8 >= 7 && bit / 8 < 12);
        enum status status = recording_read(&operation, &f->arena, &recording, NULL);
        assert_int_equal(status, head ? E_CORRUPT : OK);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(keeps_the_order_of_both_streams),
        CASE(keeps_a_beginning_and_counts_the_rest),
        CASE(never_passes_the_limit_of_an_outcome),
        CASE(takes_a_body_of_another_making_as_standard_output),
        CASE(says_when_the_body_is_gone),
        CASE(refuses_pieces_that_do_not_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
