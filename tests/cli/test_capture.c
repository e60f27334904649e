/* What once run records, read back: bounds, order, and hostile bytes. */
#include <string.h>

#include "base/limits.h"
#include "check_c.h"
#include "cli/capture.h"

/* A capture in the framed form, as the store would give it back. */
static struct operation stored(const struct capture *capture, struct buf *meta)
{
    capture_meta(capture, meta);
    return (struct operation){.id = SLICE_LIT("op_test"),
        .outcome = {.form = OUTCOME_PARTS,
            .is_retained = true,
            .meta = buf_view(meta),
            .body = buf_view(&capture->pieces)}};
}

/* The same as JSON. */
static struct operation stored_json(const struct capture *capture, struct buf *json)
{
    capture_json(capture, 7, true, json);
    return (struct operation){.id = SLICE_LIT("op_test"),
        .outcome = {.form = OUTCOME_JSON, .is_retained = true, .body = buf_view(json)}};
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
    struct operation operation = stored(&f->capture, &f->meta);
    assert_int_equal(recording_read(&operation, &f->arena, &recording, NULL), OK);
    assert_true(recording.is_run);
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
    struct operation operation = stored(&f->capture, &f->meta);
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
    struct operation operation = {.outcome = {.form = OUTCOME_PARTS,
                                      .is_retained = true,
                                      .meta = SLICE_LIT("{\"a\":1}"),
                                      .body = SLICE_LIT("hello")}};
    assert_int_equal(recording_read(&operation, &f->arena, &recording, NULL), OK);
    assert_false(recording.is_run);
    recording_stream(&recording, CAPTURE_STDOUT, &f->out);
    assert_true(slice_is(buf_view(&f->out), "hello"));
}

static void says_when_the_body_is_gone(void **state)
{
    struct fixture *f = *state;
    struct recording recording;
    add(&f->capture, CAPTURE_STDOUT, "a");
    struct operation operation = stored(&f->capture, &f->meta);
    operation.outcome.is_retained = false;
    operation.outcome.body = SLICE_EMPTY;
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
    struct operation operation = stored(&f->capture, &f->meta);
    size_t size = operation.outcome.body.len;
    assert_int_equal(size, 13);
    for (size_t len = 0; len < size; len++) {
        operation.outcome.body.len = len;
        assert_int_equal(recording_read(&operation, &f->arena, &recording, NULL), E_CORRUPT);
    }
    operation.outcome.body = slice_of(bytes, size);
    for (size_t bit = 0; bit < 8 * size; bit++) {
        memcpy(bytes, f->capture.pieces.data, size);
        bytes[bit / 8] = (char)(bytes[bit / 8] ^ 1 << bit % 8);
        bool head = bit / 8 < 5 || (bit / 8 >= 7 && bit / 8 < 12);
        enum status status = recording_read(&operation, &f->arena, &recording, NULL);
        assert_int_equal(status, head ? E_CORRUPT : OK);
    }
}

static void as_json_it_is_the_same_and_readable(void **state)
{
    struct fixture *f = *state;
    struct recording recording;
    add(&f->capture, CAPTURE_STDOUT, "ab");
    capture_add(&f->capture, CAPTURE_STDERR, slice_of("\xff\0", 2));
    add(&f->capture, CAPTURE_STDOUT, "cdefghij");
    struct operation operation = stored_json(&f->capture, &f->meta);
    assert_true(slice_is(operation.outcome.body,
        "{\"format\":\"once-run/2\",\"exit_code\":7,\"output\":[{\"stdout\":\"ab\"},"
        "{\"stderr_base64\":\"/wA=\"},{\"stdout\":\"cdefgh\"}],\"stdout_dropped\":2,"
        "\"stderr_dropped\":0}"));
    assert_int_equal(recording_read(&operation, &f->arena, &recording, NULL), OK);
    assert_true(recording.is_run && recording.has_code && !recording.gone);
    assert_int_equal(recording.exit_code, 7);
    recording_stream(&recording, CAPTURE_STDOUT, &f->out);
    recording_stream(&recording, CAPTURE_STDERR, &f->out);
    assert_true(slice_equal(buf_view(&f->out), slice_of("abcdefgh\xff\0", 10)));
    assert_int_equal(recording.dropped[CAPTURE_STDOUT], 2);
}

static void without_its_output_everything_counts_as_dropped(void **state)
{
    struct fixture *f = *state;
    struct recording recording;
    add(&f->capture, CAPTURE_STDOUT, "abc");
    capture_json(&f->capture, 0, false, &f->meta);
    struct operation operation = {
        .outcome = {.form = OUTCOME_JSON, .is_retained = true, .body = buf_view(&f->meta)}};
    assert_int_equal(recording_read(&operation, &f->arena, &recording, NULL), OK);
    assert_int_equal(recording.dropped[CAPTURE_STDOUT], 3);
    assert_int_equal(recording.body.len, 0);
}

/* It calls itself one of ours and is none. */
static void json_that_does_not_add_up_is_refused(void **state)
{
    static const char *const wrongs[] = {"{\"format\":\"once-run/2\"}",
        "{\"format\":\"once-run/2\",\"exit_code\":256,\"output\":[],\"stdout_dropped\":0,"
        "\"stderr_dropped\":0}",
        "{\"format\":\"once-run/2\",\"exit_code\":0,\"output\":[1],\"stdout_dropped\":0,"
        "\"stderr_dropped\":0}",
        "{\"format\":\"once-run/2\",\"exit_code\":0,\"output\":[{\"stdout_base64\":\"/w\"}],"
        "\"stdout_dropped\":0,\"stderr_dropped\":0}",
        "{\"format\":\"once-run/2\",\"exit_code\":0,\"output\":[],\"stdout_dropped\":-1,"
        "\"stderr_dropped\":0}"};
    struct fixture *f = *state;
    struct recording recording;
    for (size_t i = 0; i < sizeof wrongs / sizeof wrongs[0]; i++) {
        struct operation operation = {
            .outcome = {.form = OUTCOME_JSON, .is_retained = true, .body = slice_str(wrongs[i])}};
        assert_int_equal(recording_read(&operation, &f->arena, &recording, NULL), E_CORRUPT);
    }
}

static void an_exit_code_that_is_gone_is_not_made_up(void **state)
{
    struct fixture *f = *state;
    struct recording recording;
    struct operation operation = {.status = ONCE_FAILED};
    assert_int_equal(recording_read(&operation, &f->arena, &recording, NULL), OK);
    assert_true(recording.gone && !recording.has_code);
    operation.status = ONCE_EXECUTED;
    assert_int_equal(recording_read(&operation, &f->arena, &recording, NULL), OK);
    assert_true(recording.gone && recording.has_code);
    assert_int_equal(recording.exit_code, 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(keeps_the_order_of_both_streams),
        CASE(keeps_a_beginning_and_counts_the_rest),
        CASE(never_passes_the_limit_of_an_outcome),
        CASE(as_json_it_is_the_same_and_readable),
        CASE(without_its_output_everything_counts_as_dropped),
        CASE(json_that_does_not_add_up_is_refused),
        CASE(an_exit_code_that_is_gone_is_not_made_up),
        CASE(takes_a_body_of_another_making_as_standard_output),
        CASE(says_when_the_body_is_gone),
        CASE(refuses_pieces_that_do_not_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
