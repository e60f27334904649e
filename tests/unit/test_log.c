/* The log: what a line looks like, and that nobody waits for who reads it. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/log_line.h"
#include "base/text.h"
#include "canon/json.h"
#include "check_c.h"
#include "prng.h"

static const struct json_value *read_line(struct slice line, struct arena *arena)
{
    const struct json_value *value = NULL;
    struct err err;
    assert_int_equal(json_read(line, arena, &value, &err), OK);
    assert_true(json_is(value, JSON_OBJECT));
    return value;
}

static void assert_text(const struct json_value *object, const char *name, const char *text)
{
    const struct json_value *value = json_find(object, slice_str(name));
    assert_true(json_is(value, JSON_STRING));
    assert_true(slice_is(json_text(value), text));
}

static struct log *open_log(int fd)
{
    struct log *log = NULL;
    struct err err;
    struct log_options options = {.fd = fd, .level = LOG_INFO};
    assert_int_equal(log_new(&options, &log, &err), OK);
    return log;
}

static void a_json_line_has_time_level_event_and_fields(void **state)
{
    (void)state;
    struct log_field fields[] = {LOG_TEXT("tenant", SLICE_LIT("acme")), LOG_NUMBER("fence", -7),
        LOG_TEXT("effect_id", SLICE_EMPTY), LOG_NUMBER("least", INT64_MIN)};
    struct log_parts said = {LOG_WARN, "decision", fields, 4, 1763245407123};
    char line[LOG_LINE_BYTES_MAX];
    size_t size = log_line_json(line, &said);
    assert_true(slice_is(slice_of(line, size),
        "{\"time\":\"2025-11-15T22:23:27.123Z\",\"level\":\"warn\",\"event\":\"decision\","
        "\"tenant\":\"acme\",\"fence\":-7,\"least\":-9223372036854775808}\n"));
}

static void a_human_line_is_short_and_quotes_what_has_spaces(void **state)
{
    (void)state;
    struct log_field fields[] = {
        LOG_TEXT("why", SLICE_LIT("no room")), LOG_NUMBER("n", 3), LOG_TEXT("key", SLICE_LIT("k"))};
    struct log_parts said = {LOG_INFO, "ready", fields, 3, 1763245407123};
    char line[LOG_LINE_BYTES_MAX];
    size_t size = log_line_human(line, &said, false);
    assert_true(slice_is(
        slice_of(line, size), "2025-11-15T22:23:27.123Z info  ready why=\"no room\" n=3 key=k\n"));
    size = log_line_human(line, &said, true);
    assert_true(slice_is(slice_of(line, size),
        "2025-11-15T22:23:27.123Z \033[32minfo\033[0m  ready why=\"no room\" n=3 key=k\n"));
}

/* Bytes of every kind, with those that hurt more often. */
static size_t hostile(struct prng *prng, char *ret_bytes, size_t max)
{
    static const char sharp[] = "\"\\\n\r\0\033\x7f\x80\xc2\x9b\xed\xa0\x80\xf4\x90\xe2\x80\xa8";
    size_t size = prng_below(prng, max);
    for (size_t i = 0; i < size; i++) {
        ret_bytes[i] = prng_below(prng, 2) == 0 ? sharp[prng_below(prng, sizeof sharp - 1)]
                                                : (char)prng_below(prng, 256);
    }
    return size;
}

static void check_human(struct slice line)
{
    assert_true(text_utf8(line));
    for (size_t i = 0; i < line.len; i++) {
        unsigned char c = (unsigned char)line.data[i];
        assert_true(c >= 0x20 || i + 1 == line.len);
        assert_int_not_equal(c, 0x7f);
        assert_false(c == 0xc2 && (unsigned char)line.data[i + 1] < 0xa0);
    }
}

static void hostile_bytes_make_a_valid_line_all_the_same(void **state)
{
    (void)state;
    struct prng prng = {.state = 7};
    struct arena arena;
    arena_init(&arena, &mem_libc, 1 << 20);
    for (int round = 0; round < 4000; round++) {
        char bytes[2][9000], line[LOG_LINE_BYTES_MAX];
        size_t max = round % 10 == 0 ? sizeof bytes[0] : 60;
        struct log_field fields[] = {
            LOG_TEXT("one", slice_of(bytes[0], hostile(&prng, bytes[0], max))),
            LOG_TEXT("two", slice_of(bytes[1], hostile(&prng, bytes[1], max)))};
        struct log_parts said = {LOG_INFO, "event", fields, 2, 1};
        size_t size = log_line_json(line, &said);
        assert_true(size <= sizeof line);
        assert_ptr_equal(memchr(line, '\n', size), line + size - 1);
        (void)read_line(slice_of(line, size), &arena);
        size = log_line_human(line, &said, false);
        assert_ptr_equal(memchr(line, '\n', size), line + size - 1);
        check_human(slice_of(line, size));
        arena_clear(&arena);
    }
    arena_release(&arena);
}

static void what_is_too_long_is_cut_between_characters_and_says_so(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena, &mem_libc, 1 << 20);
    char text[2 * LOG_LINE_BYTES_MAX], line[LOG_LINE_BYTES_MAX];
    for (size_t i = 0; i + 1 < sizeof text; i += 2) {
        memcpy(text + i, "\xc3\xa9", 2);
    }
    for (size_t shift = 0; shift < 4; shift++) {
        struct log_field fields[] = {LOG_TEXT("pad", slice_of("xxxx", shift)),
            LOG_TEXT("long", slice_of(text, sizeof text)), LOG_NUMBER("behind", 1)};
        struct log_parts said = {LOG_INFO, "event", fields, 3, 1};
        size_t size = log_line_json(line, &said);
        const struct json_value *value = read_line(slice_of(line, size), &arena);
        assert_true(json_is(json_find(value, SLICE_LIT("truncated")), JSON_TRUE));
        assert_true(json_text(json_find(value, SLICE_LIT("long"))).len > LOG_LINE_BYTES_MAX - 300);
        assert_null(json_find(value, SLICE_LIT("behind")));
        size = log_line_human(line, &said, false);
        assert_true(text_utf8(slice_of(line, size)));
        assert_memory_equal(line + size - 5, " ...\n", 5);
    }
    arena_release(&arena);
}

/* What a reader of the other end found. */
struct log_found {
    uint64_t lines;   /* of event "line" */
    uint64_t dropped; /* that the log told of */
    uint64_t numbers; /* sum of their member n */
};

/* A thread that reads the other end, and how it says that it has caught up. */
struct log_reader {
    pthread_t thread;
    int fd;
    struct log_found found;
    atomic_bool saw_last; /* a line with n = -1 came */
};

/* Read to the end of the file; every line must be whole. */
static struct log_found read_all(int fd, atomic_bool *saw_last)
{
    struct log_found found = {0};
    struct arena arena;
    arena_init(&arena, &mem_libc, 1 << 20);
    FILE *file = fdopen(fd, "r");
    char *line = NULL;
    size_t room = 0;
    ssize_t size;
    while ((size = getline(&line, &room, file)) > 0) {
        assert_int_equal(line[size - 1], '\n');
        const struct json_value *value = read_line(slice_of(line, (size_t)size), &arena);
        int64_t number = 0;
        if (json_int(json_find(value, SLICE_LIT("lines")), &number)) {
            assert_text(value, "event", "log_dropped");
            found.dropped += (uint64_t)number;
        } else {
            assert_text(value, "event", "line");
            assert_true(json_int(json_find(value, SLICE_LIT("n")), &number));
            found.lines++;
            found.numbers += number < 0 ? 0 : (uint64_t)number;
            if (number < 0) {
                atomic_store(saw_last, true);
            }
        }
        arena_clear(&arena);
    }
    free(line);
    (void)fclose(file);
    arena_release(&arena);
    return found;
}

static void say(struct log *log, int64_t number)
{
    struct log_field fields[] = {
        LOG_NUMBER("n", number), LOG_TEXT("text", SLICE_LIT("a text of usual length, more or so"))};
    log_event(log, LOG_INFO, "line", fields, 2);
}

static void *read_in_thread(void *context)
{
    struct log_reader *reader = context;
    reader->found = read_all(reader->fd, &reader->saw_last);
    return NULL;
}

static void reader_start(struct log_reader *reader, int fd)
{
    *reader = (struct log_reader){.fd = fd};
    assert_int_equal(pthread_create(&reader->thread, NULL, read_in_thread, reader), 0);
}

/* Say last lines until one was read: then all before it were, and freeing has nothing to wait for.
 * Returns how many it took. */
static uint64_t reader_catch_up(struct log_reader *reader, struct log *log)
{
    uint64_t said = 0;
    for (; !atomic_load(&reader->saw_last); said++) {
        say(log, -1);
        (void)usleep(10000);
    }
    return said;
}

static void unimportant_lines_are_not_written(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    struct log *log = open_log(ends[1]);
    assert_false(log_wants(log, LOG_DEBUG));
    assert_true(log_wants(log, LOG_ERROR));
    assert_false(log_wants(NULL, LOG_ERROR));
    log_event(log, LOG_DEBUG, "line", NULL, 0);
    log_event(NULL, LOG_ERROR, "line", NULL, 0);
    say(log, 41);
    log_free(log);
    (void)close(ends[1]);
    atomic_bool saw_last = false;
    struct log_found found = read_all(ends[0], &saw_last);
    assert_int_equal(found.lines, 1);
    assert_int_equal(found.numbers, 41);
    log_free(NULL);
}

static void a_line_is_out_soon_without_another_one(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    struct log *log = open_log(ends[1]);
    for (int i = 0; i < 3; i++) {
        say(log, i);
        struct pollfd ready = {.fd = ends[0], .events = POLLIN};
        assert_int_equal(poll(&ready, 1, 10000), 1);
        char line[LOG_LINE_BYTES_MAX];
        ssize_t size = read(ends[0], line, sizeof line);
        assert_true(size > 0 && line[size - 1] == '\n');
    }
    log_free(log);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

/* Enough lines to fill the pipe and the ring: each has more than 100 bytes. */
enum { TOO_MANY = (LOG_RING_BYTES + (1 << 20)) / 100 };

static void nobody_waits_for_a_full_pipe_and_what_was_dropped_is_told(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    struct log *log = open_log(ends[1]);
    uint64_t said = 0;
    for (; said < TOO_MANY; said++) {
        say(log, 1);
    }
    uint64_t dropped = log_dropped(log);
    assert_true(dropped > 0);
    assert_true(dropped < TOO_MANY);

    struct log_reader reader;
    reader_start(&reader, ends[0]);
    said += reader_catch_up(&reader, log);
    dropped = log_dropped(log);
    log_free(log);
    (void)close(ends[1]);
    assert_int_equal(pthread_join(reader.thread, NULL), 0);
    assert_int_equal(reader.found.dropped, dropped);
    assert_int_equal(reader.found.lines + reader.found.dropped, said);
}

static void freeing_ends_though_nobody_reads(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    struct log *log = open_log(ends[1]);
    for (int i = 0; i < TOO_MANY; i++) {
        say(log, 1);
    }
    log_free(log);
    (void)close(ends[1]);
    atomic_bool saw_last = false;
    (void)read_all(ends[0], &saw_last); /* whole lines only */
}

static void a_closed_pipe_ends_neither_the_process_nor_the_log(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    struct log *log = open_log(ends[1]);
    (void)close(ends[0]);
    for (int i = 0; i < 1000; i++) {
        say(log, 1);
    }
    while (log_dropped(log) < 1000) {
        (void)usleep(1000);
    }
    log_free(log);
    (void)close(ends[1]);
}

enum { THREADS = 8, LINES_EACH = 3000 };

static void *say_many(void *log)
{
    for (int i = 0; i < LINES_EACH; i++) {
        say(log, i);
    }
    return NULL;
}

static void lines_of_many_threads_are_whole_and_all_there(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    struct log *log = open_log(ends[1]);
    struct log_reader reader;
    pthread_t threads[THREADS];
    reader_start(&reader, ends[0]);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, say_many, log), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    uint64_t said = THREADS * LINES_EACH + reader_catch_up(&reader, log);
    uint64_t dropped = log_dropped(log);
    log_free(log);
    (void)close(ends[1]);
    assert_int_equal(pthread_join(reader.thread, NULL), 0);
    assert_int_equal(reader.found.dropped, dropped);
    assert_int_equal(reader.found.lines + dropped, said);
    if (dropped == 0) {
        uint64_t each = (uint64_t)LINES_EACH * (LINES_EACH - 1) / 2;
        assert_int_equal(reader.found.numbers, THREADS * each);
    }
}

/* An allocator that has room for so many pieces. */
/* A file gets large pieces instead of what a pipe takes at once: more than one of them here. */
static void lines_in_a_file_are_whole_and_all_there(void **state)
{
    (void)state;
    FILE *file = tmpfile();
    assert_non_null(file);
    struct log *log = open_log(fileno(file));
    (void)say_many(log);
    log_free(log);
    assert_int_equal(lseek(fileno(file), 0, SEEK_SET), 0);
    atomic_bool saw_last = false;
    struct log_found found = read_all(dup(fileno(file)), &saw_last);
    assert_int_equal(found.lines, LINES_EACH);
    assert_int_equal(found.dropped, 0);
    assert_int_equal(found.numbers, (uint64_t)LINES_EACH * (LINES_EACH - 1) / 2);
    (void)fclose(file);
}

static void *resize_few(void *context, void *pointer, size_t size)
{
    int *left = context;
    if (size > 0 && (*left)-- <= 0) {
        return NULL;
    }
    return mem_libc.resize(mem_libc.context, pointer, size);
}

static void without_memory_there_is_no_log_and_no_leak(void **state)
{
    (void)state;
    for (int room = 0; room < 2; room++) {
        int left = room;
        struct mem few = {resize_few, &left};
        struct log *log = NULL;
        struct err err;
        struct log_options options = {.mem = &few, .fd = 2};
        assert_int_equal(log_new(&options, &log, &err), E_NOMEM);
        assert_null(log);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_json_line_has_time_level_event_and_fields),
        TEST(a_human_line_is_short_and_quotes_what_has_spaces),
        TEST(hostile_bytes_make_a_valid_line_all_the_same),
        TEST(what_is_too_long_is_cut_between_characters_and_says_so),
        TEST(unimportant_lines_are_not_written),
        TEST(a_line_is_out_soon_without_another_one),
        TEST(nobody_waits_for_a_full_pipe_and_what_was_dropped_is_told),
        TEST(freeing_ends_though_nobody_reads),
        TEST(a_closed_pipe_ends_neither_the_process_nor_the_log),
        TEST(lines_of_many_threads_are_whole_and_all_there),
        TEST(lines_in_a_file_are_whole_and_all_there),
        TEST(without_memory_there_is_no_log_and_no_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
