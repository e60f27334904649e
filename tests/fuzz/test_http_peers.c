/*
 * The cases of tests/vectors/http before http-parser and llhttp: each that we take they take, with
 * the same reading. The exceptions are what they leave to their user, named in peer.h.
 */
#include "check_c.h"
#include "files.h"
#include "http_peers.h"
#include "http_vectors.h"

static size_t check_file(const char *name, bool is_response)
{
    struct buf file;
    struct vector vector;
    struct drive drive;
    size_t taken = 0;
    buf_init(&file, &mem_libc, FILE_BYTES_MAX);
    file_read(name, &file);
    struct slice text = buf_view(&file);
    vector_init(&vector);
    drive_init(&drive);
    while (vector_next(&text, &vector)) {
        struct slice given = vector.given;
        struct drive_input input = {.bytes = buf_view(&vector.bytes),
            .is_response = is_response,
            .method = given.len > 0 && given.data[0] == 'H' ? HTTP_METHOD_HEAD : HTTP_METHOD_GET,
            .is_closed = given.len > 0 && memchr(given.data, ' ', given.len) != NULL,
            .limits = HTTP_LIMITS_DEFAULT};
        drive_run(&drive, &input);
        if (drive.verdict == HTTP_DONE) {
            (void)fprintf(stderr, "%.*s\n", SLICE_ARGS(vector.name)); /* for when it aborts */
            http_peers_check(&drive, &input);
            taken++;
        }
    }
    drive_release(&drive);
    vector_release(&vector);
    buf_release(&file);
    return taken;
}

static void requests_that_we_take_are_taken_by_the_peers(void **state)
{
    (void)state;
    assert_true(check_file("vectors/http/requests.txt", false) >= 60);
}

static void responses_that_we_take_are_taken_by_the_peers(void **state)
{
    (void)state;
    assert_true(check_file("vectors/http/responses.txt", true) >= 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(requests_that_we_take_are_taken_by_the_peers),
        TEST(responses_that_we_take_are_taken_by_the_peers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
