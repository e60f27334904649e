/*
 * docs/formats/evidence.md: a stranger follows it and comes to the same result as we do. The
 * commands are taken from the page itself and run as they stand there.
 */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check_c.h"
#include "evidence/entry_form.h"
#include "files.h"
#include "store/mem.h"
#include "workload.h"

struct world {
    char directory[64];
    struct buf doc;
    struct buf lines; /* all entries, one a line */
    struct buf note;
    struct buf path;
};

static bool add_line(void *context, const struct entry *entry)
{
    struct world *world = context;
    if (entry->kind == ENTRY_EVIDENCE) {
        assert_int_equal(entry_expand(entry, &world->lines), OK);
        buf_char(&world->lines, '\n');
    }
    return true;
}

static void write_file(struct world *world, const char *name, struct slice text)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", world->directory, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text.data, 1, text.len, file), text.len);
    assert_int_equal(fclose(file), 0);
}

static const struct store_options store_options = {.clock = &workload_clock};

static void make_evidence(struct world *world)
{
    struct store *store;
    struct workload workload;
    struct checkpoint_key key;
    char text[CHECKPOINT_KEY_BYTES_MAX];
    assert_int_equal(store_mem_new(&store_options, NULL, &store, NULL), OK);
    workload_init(&workload, store, 7);
    for (int i = 0; i < 30; i++) {
        workload_step(&workload);
    }
    workload_checkpoint(&workload, &world->note);
    struct entry_range all = {0};
    assert_int_equal(store->ops->entries(store, &all, add_line, world, NULL), OK);
    assert_int_equal(checkpoint_key_of(&workload.identity, &key, NULL), OK);
    write_file(world, "entries.jsonl", buf_view(&world->lines));
    write_file(world, "checkpoint.txt", buf_view(&world->note));
    write_file(world, "key.txt", slice_str(checkpoint_key_put(text, &key)));
    workload_release(&workload);
    assert_int_equal(store->ops->close(store, NULL), OK);
}

static int set_up(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    (void)snprintf(world->directory, sizeof world->directory, "/tmp/once-evidence-XXXXXX");
    assert_non_null(mkdtemp(world->directory));
    buf_init(&world->doc, &mem_libc, 1 << 20);
    buf_init(&world->lines, &mem_libc, 16 << 20);
    buf_init(&world->note, &mem_libc, 4096);
    buf_init(&world->path, &mem_libc, 1 << 20);
    file_read("../docs/formats/evidence.md", &world->doc);
    buf_char(&world->doc, '\0');
    file_read("../tools/verify_evidence.py", &world->path);
    make_evidence(world);
    write_file(world, "verify_evidence.py", buf_view(&world->path));
    *state = world;
    return 0;
}

static int tear_down(void **state)
{
    struct world *world = *state;
    char command[128];
    (void)snprintf(command, sizeof command, "rm -r %s", world->directory);
    assert_int_equal(system(command), 0);
    buf_release(&world->doc);
    buf_release(&world->lines);
    buf_release(&world->note);
    buf_release(&world->path);
    free(world);
    return 0;
}

/* Run the example of that name from the page. Returns its exit status. */
static int run_example(struct world *world, const char *name)
{
    char mark[64];
    char command[256];
    (void)snprintf(mark, sizeof mark, "<!-- example: %s -->\n```sh\n", name);
    const char *from = strstr(world->doc.data, mark);
    assert_non_null(from);
    from += strlen(mark);
    const char *end = strstr(from, "```\n");
    assert_non_null(end);
    write_file(world, "example.sh", slice_of(from, (size_t)(end - from)));
    (void)snprintf(
        command, sizeof command, "cd %s && sh -e example.sh > out 2>&1", world->directory);
    int status = system(command);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void need(const char *command)
{
    char text[128];
    (void)snprintf(text, sizeof text, "%s > /dev/null 2>&1", command);
    if (system(text) != 0) {
        skip();
    }
}

static void a_stranger_with_python_and_openssl_agrees(void **state)
{
    struct world *world = *state;
    need("python3 --version");
    need("openssl version");
    assert_int_equal(run_example(world, "python"), 0);
    assert_int_equal(run_example(world, "openssl"), 0);
    assert_int_equal(run_example(world, "chain"), 0);
}

static void a_stranger_finds_what_was_changed(void **state)
{
    struct world *world = *state;
    need("python3 --version");
    need("openssl version");
    char *lines = world->lines.data;
    size_t length = world->lines.len;
    for (size_t at = 3; at < length; at += length / 8) {
        lines[at] ^= 1;
        write_file(world, "entries.jsonl", slice_of(lines, length));
        assert_int_equal(run_example(world, "python"), 1);
        assert_int_equal(run_example(world, "chain"), 1);
        lines[at] ^= 1;
    }
    /* Without the first line, without the last one, and with the last one twice. */
    const char *second = memchr(lines, '\n', length);
    assert_non_null(second);
    const char *last = memrchr(lines, '\n', length - 1);
    assert_non_null(last);
    size_t first_bytes = (size_t)(second + 1 - lines);
    size_t last_at = (size_t)(last + 1 - lines);
    write_file(world, "entries.jsonl", slice_of(lines + first_bytes, length - first_bytes));
    assert_int_equal(run_example(world, "python"), 1);
    write_file(world, "entries.jsonl", slice_of(lines, last_at));
    assert_int_equal(run_example(world, "python"), 1);
    buf_append(&world->lines, lines + last_at, length - last_at);
    write_file(world, "entries.jsonl", buf_view(&world->lines));
    assert_int_equal(run_example(world, "python"), 1);
}

static void a_stranger_finds_a_note_that_was_changed(void **state)
{
    struct world *world = *state;
    need("python3 --version");
    need("openssl version");
    for (size_t at = 1; at < world->note.len - 1; at += 29) {
        world->note.data[at] ^= 4;
        write_file(world, "checkpoint.txt", buf_view(&world->note));
        assert_int_not_equal(run_example(world, "python"), 0);
        world->note.data[at] ^= 4;
    }
}

#define DOC_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        DOC_TEST(a_stranger_with_python_and_openssl_agrees),
        DOC_TEST(a_stranger_finds_what_was_changed),
        DOC_TEST(a_stranger_finds_a_note_that_was_changed),
    };
    return cmocka_run_group_tests_name("evidence_doc", tests, NULL, NULL);
}
