/*
 * Derived keys: the vectors in tests/vectors/keys, which do not come from this code.
 */
#include "canon/key.h"
#include "check_c.h"
#include "files.h"

enum { MEMORY_MAX = 16 << 20 };

static struct slice field(const struct json_value *object, const char *name)
{
    const struct json_value *value = json_find(object, slice_str(name));
    return value == NULL ? SLICE_EMPTY : json_text(value);
}

static void check_case(enum key_kind kind, const struct json_value *test, struct arena *arena)
{
    struct err err = {.status = OK};
    struct buf out;
    buf_init(&out, &mem_libc, MEMORY_MAX);
    const struct json_value *envelope = NULL;
    struct digest digest;
    enum status status = json_read(field(test, "input"), arena, &envelope, &err);
    if (status == OK) {
        status = key_derive(kind, envelope, &out, &digest, &err);
    }
    struct slice expected = field(test, "canonical");
    if (expected.len > 0) {
        char hex[DIGEST_HEX_BYTES];
        if (status != OK || !slice_equal(buf_view(&out), expected) ||
            !slice_is(field(test, "sha256"), digest_put_hex(hex, &digest))) {
            fail_msg("%.*s: %s, %.*s", SLICE_ARGS(field(test, "name")), err.text,
                SLICE_ARGS(buf_view(&out)));
        }
    } else {
        char wanted[128];
        (void)snprintf(wanted, sizeof wanted, "%.*s", SLICE_ARGS(field(test, "error")));
        if (status != E_INVALID || wanted[0] == '\0' || strstr(err.text, wanted) == NULL) {
            fail_msg("%.*s: %s", SLICE_ARGS(field(test, "name")), err.text);
        }
    }
    buf_release(&out);
}

static void check_file(enum key_kind kind, const char *path, uint32_t count_min)
{
    struct buf file;
    struct arena arena;
    buf_init(&file, &mem_libc, FILE_BYTES_MAX);
    arena_init(&arena, &mem_libc, MEMORY_MAX);
    file_read(path, &file);
    const struct json_value *root = NULL;
    assert_int_equal(json_read(buf_view(&file), &arena, &root, NULL), OK);
    const struct json_value *cases = json_find(root, SLICE_LIT("cases"));
    assert_true(json_is(cases, JSON_ARRAY));
    assert_true(cases->count >= count_min);
    for (uint32_t i = 0; i < cases->count; i++) {
        check_case(kind, &cases->items[i], &arena);
    }
    arena_release(&arena);
    buf_release(&file);
}

static void command_keys_are_as_the_vectors_say(void **state)
{
    (void)state;
    check_file(KEY_COMMAND, "vectors/keys/command.json", 20);
}

static void effect_keys_are_as_the_vectors_say(void **state)
{
    (void)state;
    check_file(KEY_EFFECT, "vectors/keys/effect.json", 10);
}

static void source_keys_are_as_the_vectors_say(void **state)
{
    (void)state;
    check_file(KEY_SOURCE, "vectors/keys/source.json", 10);
}

/* P13: whatever is changed in what is hashed changes the key; nothing else does. */
static void each_hashed_member_changes_the_key(void **state)
{
    (void)state;
    static const struct {
        const char *tenant, *actor, *entity, *action, *target, *args, *kind;
    } variants[] = {
        {"a", "b", "c", "d", "\"e\"", "{\"f\":1}", ""},
        {"A", "b", "c", "d", "\"e\"", "{\"f\":1}", ""},
        {"a", "B", "c", "d", "\"e\"", "{\"f\":1}", ""},
        {"a", "b", "C", "d", "\"e\"", "{\"f\":1}", ""},
        {"a", "b", "c", "D", "\"e\"", "{\"f\":1}", ""},
        {"a", "b", "c", "d", "\"E\"", "{\"f\":1}", ""},
        {"a", "b", "c", "d", "null", "{\"f\":1}", ""},
        {"a", "b", "c", "d", "\"e\"", "{\"f\":2}", ""},
        {"a", "b", "c", "d", "\"e\"", "{\"f\":\"1\"}", ""},
        {"a", "b", "c", "d", "\"e\"", "{}", ""},
        {"a", "b", "c", "d", "\"e\"", "{\"f\":1}", ",\"command_kind\":\"k\""},
    };
    enum { COUNT = sizeof variants / sizeof *variants };
    struct digest digests[COUNT];
    struct arena arena;
    struct buf out;
    arena_init(&arena, &mem_libc, MEMORY_MAX);
    buf_init(&out, &mem_libc, MEMORY_MAX);
    for (size_t i = 0; i < COUNT; i++) {
        char text[512];
        (void)snprintf(text, sizeof text,
            "{\"tenant_id\":\"%s\",\"actor_id\":\"%s\",\"intent\":{\"entity\":\"%s\","
            "\"action\":\"%s\",\"target\":%s},\"args\":%s%s}",
            variants[i].tenant, variants[i].actor, variants[i].entity, variants[i].action,
            variants[i].target, variants[i].args, variants[i].kind);
        const struct json_value *envelope;
        assert_int_equal(json_read(slice_str(text), &arena, &envelope, NULL), OK);
        assert_int_equal(key_derive(KEY_COMMAND, envelope, &out, &digests[i], NULL), OK);
        for (size_t j = 0; j < i; j++) {
            assert_false(digest_equal(&digests[i], &digests[j]));
        }
    }
    buf_release(&out);
    arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(command_keys_are_as_the_vectors_say),
        TEST(effect_keys_are_as_the_vectors_say),
        TEST(source_keys_are_as_the_vectors_say),
        TEST(each_hashed_member_changes_the_key),
    };
    return cmocka_run_group_tests_name("key", tests, NULL, NULL);
}
