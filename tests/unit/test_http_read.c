/*
 * The HTTP reader over tests/vectors/http: each case whole, cut at every byte, byte by byte, and
 * with the next request right behind it.
 */
#include "check_c.h"
#include "files.h"
#include "http_drive.h"
#include "http_vectors.h"

static const char probe[] = "GET /probe HTTP/1.1\r\nHost: probe\r\n\r\n";

struct bench {
    struct vector vector;     /* the case */
    struct drive whole;       /* read at once */
    struct drive other;       /* read in another way */
    struct drive_input input; /* of the case */
};

static void bench_init(struct bench *bench)
{
    vector_init(&bench->vector);
    drive_init(&bench->whole);
    drive_init(&bench->other);
}

static void bench_release(struct bench *bench)
{
    vector_release(&bench->vector);
    drive_release(&bench->whole);
    drive_release(&bench->other);
}

static const char *verdict_text(const struct drive *drive, char text[8])
{
    switch (drive->verdict) {
    case HTTP_MORE:
    case HTTP_DATA: return "more";
    case HTTP_DONE: return "ok";
    case HTTP_REFUSED: (void)snprintf(text, 8, "%u", drive->refusal.status); return text;
    }
    return "?";
}

/* As a vector's line '>' has it. */
static void expected_text(const struct drive *drive, struct buf *out)
{
    const struct http_head *head = &drive->head;
    buf_clear(out);
    if (head->is_response) {
        buf_u64(out, head->status);
    } else {
        buf_slice(out, http_text(head, head->method_text));
        buf_char(out, ' ');
        buf_slice(out, http_text(head, head->target));
    }
    buf_str(out, head->keep_alive ? " keep" : " close");
    buf_str(out, head->expect_continue ? " continue" : "");
}

static void check_verdict(struct bench *bench)
{
    const struct vector *vector = &bench->vector;
    const struct drive *drive = &bench->whole;
    char text[8];
    struct buf found;
    buf_init(&found, &mem_libc, 1 << 20);
    if (strcmp(vector->verdict, verdict_text(drive, text)) != 0) {
        fail_msg("%.*s: %s and not %s (%s)", SLICE_ARGS(vector->name), verdict_text(drive, text),
            vector->verdict, drive->refusal.reason == NULL ? "" : drive->refusal.reason);
    }
    if (drive->verdict == HTTP_DONE) {
        expected_text(drive, &found);
        if (!slice_equal(buf_view(&found), buf_view(&vector->expected)) ||
            !slice_equal(buf_view(&drive->body), buf_view(&vector->body)) ||
            drive->used != vector->bytes.len) {
            fail_msg("%.*s: read as %.*s with a body of %zu and %zu bytes used",
                SLICE_ARGS(vector->name), SLICE_ARGS(buf_view(&found)), drive->body.len,
                drive->used);
        }
    }
    if (drive->verdict == HTTP_REFUSED) {
        assert_non_null(drive->refusal.reason);
    }
    buf_release(&found);
}

static void check_same(struct bench *bench, const struct drive_input *input)
{
    drive_run(&bench->other, input);
    if (!drive_same(&bench->whole, &bench->other)) {
        fail_msg("%.*s: cut at %zu, step %zu: read otherwise (%d, %u %s)",
            SLICE_ARGS(bench->vector.name), input->cut, input->step, (int)bench->other.verdict,
            bench->other.refusal.status,
            bench->other.refusal.reason == NULL ? "" : bench->other.refusal.reason);
    }
}

/* Every cut, then every byte on its own, then a few steps between. What is long is one byte many
 * times over, so there a cut in 97 will do. */
static void check_splits(struct bench *bench)
{
    struct drive_input input = bench->input;
    size_t stride = input.bytes.len > 4096 ? 97 : 1;
    for (input.cut = 1; input.cut < input.bytes.len; input.cut += stride) {
        check_same(bench, &input);
    }
    static const size_t steps[] = {1, 2, 3, 7, 64};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        input = bench->input;
        input.step = steps[i];
        check_same(bench, &input);
        input.cut = input.bytes.len / 2;
        check_same(bench, &input);
    }
}

/* With another request behind it: the verdict stands, and the other one begins where it ends. */
static void check_probe(struct bench *bench)
{
    struct drive_input input = bench->input;
    buf_append(&bench->vector.bytes, probe, sizeof probe - 1);
    input.bytes = buf_view(&bench->vector.bytes);
    check_same(bench, &input);
    input.step = 1;
    check_same(bench, &input);
    if (bench->whole.verdict == HTTP_DONE) {
        size_t used = bench->whole.used;
        struct drive_input next = {
            .bytes = slice_of(input.bytes.data + used, input.bytes.len - used),
            .limits = HTTP_LIMITS_DEFAULT};
        drive_run(&bench->other, &next);
        assert_int_equal(bench->other.verdict, HTTP_DONE);
        assert_int_equal(bench->other.used, sizeof probe - 1);
        assert_true(slice_is(http_path(&bench->other.head), "/probe"));
    }
}

static void requests_are_read_the_same_however_they_are_split(void **state)
{
    (void)state;
    struct bench bench;
    struct buf file;
    buf_init(&file, &mem_libc, FILE_BYTES_MAX);
    file_read("vectors/http/requests.txt", &file);
    struct slice text = buf_view(&file);
    size_t count = 0;
    bench_init(&bench);
    while (vector_next(&text, &bench.vector)) {
        bench.input = (struct drive_input){
            .bytes = buf_view(&bench.vector.bytes), .limits = HTTP_LIMITS_DEFAULT};
        drive_run(&bench.whole, &bench.input);
        check_verdict(&bench);
        check_splits(&bench);
        if (bench.whole.verdict != HTTP_MORE) {
            check_probe(&bench);
        }
        count++;
    }
    assert_true(count >= 180);
    bench_release(&bench);
    buf_release(&file);
}

static void responses_are_read_the_same_however_they_are_split(void **state)
{
    (void)state;
    struct bench bench;
    struct buf file;
    buf_init(&file, &mem_libc, FILE_BYTES_MAX);
    file_read("vectors/http/responses.txt", &file);
    struct slice text = buf_view(&file);
    size_t count = 0;
    bench_init(&bench);
    while (vector_next(&text, &bench.vector)) {
        struct slice given = bench.vector.given;
        bench.input = (struct drive_input){.bytes = buf_view(&bench.vector.bytes),
            .is_response = true,
            .method = given.data[0] == 'H' ? HTTP_METHOD_HEAD : HTTP_METHOD_GET,
            .is_closed = memchr(given.data, ' ', given.len) != NULL,
            .limits = HTTP_LIMITS_DEFAULT};
        drive_run(&bench.whole, &bench.input);
        check_verdict(&bench);
        check_splits(&bench);
        if (bench.whole.verdict != HTTP_MORE && !bench.input.is_closed) {
            check_probe(&bench);
        }
        count++;
    }
    assert_true(count >= 50);
    bench_release(&bench);
    buf_release(&file);
}

static void bytes_of_an_unfinished_line_are_looked_at_once(void **state)
{
    (void)state;
    struct http_limits limits = HTTP_LIMITS_DEFAULT;
    struct http_refusal refusal;
    struct http_head head;
    struct buf bytes;
    buf_init(&bytes, &mem_libc, 1 << 20);
    buf_str(&bytes, "GET / HTTP/1.1\r\nX: ");
    http_head_init(&head);
    while (bytes.len < limits.head_bytes_max - 1) {
        buf_char(&bytes, 'y');
        assert_int_equal(http_request_head(buf_view(&bytes), &limits, &head, &refusal), HTTP_MORE);
        assert_int_equal(head.scanned, bytes.len); /* where the next call goes on */
    }
    buf_release(&bytes);
}

static void read_whole(const char *bytes, struct http_head *head)
{
    struct http_limits limits = HTTP_LIMITS_DEFAULT;
    struct http_refusal refusal = {.status = 0};
    http_head_init(head);
    assert_int_equal(http_request_head(slice_str(bytes), &limits, head, &refusal), HTTP_DONE);
}

static void a_target_is_split_into_path_and_query(void **state)
{
    (void)state;
    static const struct {
        const char *target;
        enum http_form form;
        const char *path;
        const char *query;
    } cases[] = {
        {"/", HTTP_FORM_ORIGIN, "/", NULL},
        {"/a/b?c=d?e", HTTP_FORM_ORIGIN, "/a/b", "c=d?e"},
        {"/a?", HTTP_FORM_ORIGIN, "/a", ""},
        {"/?/", HTTP_FORM_ORIGIN, "/", "/"},
        {"*", HTTP_FORM_ASTERISK, "*", NULL},
        {"http://h", HTTP_FORM_ABSOLUTE, "/", NULL},
        {"http://h?q", HTTP_FORM_ABSOLUTE, "/", "q"},
        {"https://h/x?q", HTTP_FORM_ABSOLUTE, "/x", "q"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char bytes[128];
        struct http_head head;
        (void)snprintf(
            bytes, sizeof bytes, "OPTIONS %s HTTP/1.1\r\nHost: h\r\n\r\n", cases[i].target);
        read_whole(bytes, &head);
        assert_int_equal(head.form, cases[i].form);
        assert_true(slice_is(http_path(&head), cases[i].path));
        assert_int_equal(head.has_query, cases[i].query != NULL);
        assert_true(slice_is(http_text(&head, head.query), cases[i].query));
        assert_true(slice_is(http_text(&head, head.authority), "h"));
    }
}

static void fields_are_found_by_any_case_and_doubles_are_noticed(void **state)
{
    (void)state;
    struct http_head head;
    struct slice value = SLICE_LIT("untouched");
    read_whole("GET / HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nx-b:\r\nX-a: \t2 \r\n\r\n", &head);
    uint32_t first = http_find(&head, SLICE_LIT("x-A"), 0);
    assert_int_equal(first, 1);
    assert_int_equal(http_find(&head, SLICE_LIT("x-a"), first + 1), 3);
    assert_true(slice_is(http_text(&head, head.fields[3].value), "2"));
    assert_int_equal(http_find(&head, SLICE_LIT("x-a"), 4), head.field_count);
    assert_int_equal(http_find(&head, SLICE_LIT("x-"), 0), head.field_count);
    assert_false(http_find_single(&head, SLICE_LIT("X-A"), &value));
    assert_true(http_find_single(&head, SLICE_LIT("X-C"), &value));
    assert_true(slice_is(value, "untouched"));
    assert_true(http_find_single(&head, SLICE_LIT("X-B"), &value));
    assert_int_equal(value.len, 0);
}

/* Lengths of names are marked in 64 bits, so that most absent fields need no search. */
static void fields_are_found_whatever_the_length_of_their_name(void **state)
{
    (void)state;
    enum { LENGTHS = 200 };
    for (size_t length = 1; length <= LENGTHS; length++) {
        char bytes[LENGTHS + 64];
        char name[LENGTHS + 65];
        struct http_head head;
        memset(name, 'x', sizeof name);
        (void)snprintf(
            bytes, sizeof bytes, "GET / HTTP/1.1\r\nHost: h\r\n%.*s: 1\r\n\r\n", (int)length, name);
        read_whole(bytes, &head);
        for (size_t asked = 1; asked <= LENGTHS + 64; asked++) {
            uint32_t expected = asked == length ? 1 : head.field_count;
            assert_int_equal(http_find(&head, slice_of(name, asked), 0), expected);
        }
    }
}

static void lists_are_walked_without_their_empty_elements(void **state)
{
    (void)state;
    struct slice list = SLICE_LIT(" ,a ,\t, b c,,d, ");
    struct slice element;
    static const char *const expected[] = {"a", "b c", "d"};
    for (size_t i = 0; i < 3; i++) {
        assert_true(http_list_next(&list, &element));
        assert_true(slice_is(element, expected[i]));
    }
    assert_false(http_list_next(&list, &element));
}

static void each_limit_can_be_set_and_is_exact(void **state)
{
    (void)state;
    static const char bytes[] = "POST /ab HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
                                "3;ab\r\nxyz\r\n0\r\nT: u\r\n\r\n";
    struct drive drive;
    drive_init(&drive);
    struct drive_input exact = {.bytes = slice_of(bytes, sizeof bytes - 1),
        .limits = {.head_bytes_max = 58,
            .target_bytes_max = 3,
            .fields_max = 2,
            .trailer_bytes_max = 5,
            .chunk_ext_bytes_max = 3,
            .body_bytes_max = 3}};
    drive_run(&drive, &exact);
    assert_int_equal(drive.verdict, HTTP_DONE);
    static const unsigned statuses[] = {431, 414, 431, 431, 413, 413};
    for (size_t i = 0; i < 6; i++) {
        struct drive_input less = exact;
        less.limits.head_bytes_max -= i == 0;
        less.limits.target_bytes_max -= i == 1;
        less.limits.fields_max -= i == 2;
        less.limits.trailer_bytes_max -= i == 3;
        less.limits.chunk_ext_bytes_max -= i == 4;
        less.limits.body_bytes_max -= i == 5;
        drive_run(&drive, &less);
        assert_int_equal(drive.verdict, HTTP_REFUSED);
        assert_int_equal(drive.refusal.status, statuses[i]);
    }
    drive_release(&drive);
}

static void a_body_until_the_end_stops_at_its_limit(void **state)
{
    (void)state;
    struct drive drive;
    drive_init(&drive);
    struct drive_input input = {.bytes = SLICE_LIT("HTTP/1.1 200 OK\r\n\r\n12345"),
        .is_response = true,
        .method = HTTP_METHOD_GET,
        .is_closed = true,
        .limits = HTTP_LIMITS_DEFAULT};
    for (size_t step = 0; step < 3; step++) {
        input.step = step;
        input.limits.body_bytes_max = 5;
        drive_run(&drive, &input);
        assert_int_equal(drive.verdict, HTTP_DONE);
        input.limits.body_bytes_max = 4;
        drive_run(&drive, &input);
        assert_int_equal(drive.verdict, HTTP_REFUSED);
        assert_int_equal(drive.body.len, 4);
    }
    drive_release(&drive);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(requests_are_read_the_same_however_they_are_split),
        TEST(responses_are_read_the_same_however_they_are_split),
        TEST(bytes_of_an_unfinished_line_are_looked_at_once),
        TEST(a_target_is_split_into_path_and_query),
        TEST(fields_are_found_by_any_case_and_doubles_are_noticed),
        TEST(fields_are_found_whatever_the_length_of_their_name),
        TEST(lists_are_walked_without_their_empty_elements),
        TEST(each_limit_can_be_set_and_is_exact),
        TEST(a_body_until_the_end_stops_at_its_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
