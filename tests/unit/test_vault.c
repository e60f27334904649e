/* Bodies at rest: VT1 to VT4 of base/vault.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/text.h"
#include "base/vault.h"
#include "check_c.h"

static char dir[64];

static const char *in_dir(const char *name)
{
    static char paths[4][128];
    static unsigned at;
    char *path = paths[at++ % 4];
    (void)snprintf(path, sizeof paths[0], "%s/%s", dir, name);
    return path;
}

static const char *write_file(const char *name, const void *bytes, size_t size, mode_t mode)
{
    const char *path = in_dir(name);
    (void)unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, size), size);
    assert_int_equal(fchmod(fd, mode), 0);
    (void)close(fd);
    return path;
}

/* The key whose every byte is its place plus first. */
static const char *write_key(const char *name, unsigned char first)
{
    unsigned char key[VAULT_KEY_BYTES];
    for (unsigned i = 0; i < sizeof key; i++) {
        key[i] = (unsigned char)(first + i);
    }
    return write_file(name, key, sizeof key, 0600);
}

static struct vault *vault_of(const char *const *files, size_t count)
{
    struct vault *vault = NULL;
    struct err err;
    assert_int_equal(vault_new(&(struct vault_options){.key_files = files, .key_file_count = count},
                         &vault, &err),
        OK);
    return vault;
}

static unsigned char hash[32]; /* 0x11 each */
static struct vault_name name_of(const char *tenant, unsigned kind)
{
    return (struct vault_name){slice_str(tenant), slice_of((const char *)hash, sizeof hash), kind};
}

static struct buf sealed_of(const struct vault *vault, const char *plain)
{
    struct buf out;
    struct err err;
    struct vault_name name = name_of("acme", 4);
    buf_init(&out, &mem_libc, 1 << 20);
    assert_int_equal(vault_seal(vault, &name, slice_str(plain), &out, &err), OK);
    assert_int_equal(out.len, strlen(plain) + VAULT_OVERHEAD_BYTES);
    return out;
}

static enum status open_as(
    const struct vault *vault, struct vault_name name, struct slice sealed, const char *expected)
{
    struct buf out;
    struct err err;
    buf_init(&out, &mem_libc, 1 << 20);
    enum status status = vault_open(vault, &name, sealed, &out, &err);
    if (status == OK) {
        assert_true(slice_is(buf_view(&out), expected));
    } else {
        assert_int_equal(out.len, 0); /* VT1 */
    }
    buf_release(&out);
    return status;
}

/* Made with a different implementation, which gives NIST's own test case 14 for its key. */
static void a_body_sealed_elsewhere_opens(void **state)
{
    static const char hex[] = "01630dcd29cafebabefacedbaddecaf888f181c347d81e6d21643f6fe9493ff4f1bc"
                              "2586156e797f6cc9f3c762c5ad88";
    unsigned char sealed[(sizeof hex - 1) / 2];
    const char *files[] = {write_key("one", 0)};
    struct vault *vault = vault_of(files, 1);
    (void)state;
    assert_true(text_hex(slice_str(hex), sealed, sizeof sealed));
    assert_int_equal(open_as(vault, name_of("acme", 4),
                         slice_of((const char *)sealed, sizeof sealed), "{\"card\":\"4242\"}"),
        OK);
    vault_free(vault);
}

static void what_was_sealed_opens_and_is_not_readable(void **state)
{
    static const char *const plains[] = {"", "x", "{\"card\":\"4242424242424242\"}"};
    const char *files[] = {write_key("one", 0)};
    struct vault *vault = vault_of(files, 1);
    (void)state;
    for (size_t i = 0; i < COUNT(plains); i++) {
        struct buf sealed = sealed_of(vault, plains[i]);
        struct buf again = sealed_of(vault, plains[i]);
        assert_true(sealed.len != again.len || memcmp(sealed.data, again.data, sealed.len) != 0);
        if (i == 2) {
            assert_null(memmem(sealed.data, sealed.len, "4242", 4));
        }
        assert_int_equal(open_as(vault, name_of("acme", 4), buf_view(&sealed), plains[i]), OK);
        buf_release(&sealed);
        buf_release(&again);
    }
    vault_free(vault);
}

static void every_changed_bit_is_found(void **state)
{
    const char *files[] = {write_key("one", 0)};
    struct vault *vault = vault_of(files, 1);
    struct buf sealed = sealed_of(vault, "secret");
    (void)state;
    for (size_t bit = 0; bit < 8 * sealed.len; bit++) {
        sealed.data[bit / 8] = (char)(sealed.data[bit / 8] ^ (1 << bit % 8));
        enum status status = open_as(vault, name_of("acme", 4), buf_view(&sealed), "");
        bool in_id = bit / 8 >= 1 && bit / 8 < 5;
        assert_int_equal(status, in_id ? E_INVALID : E_CORRUPT);
        sealed.data[bit / 8] = (char)(sealed.data[bit / 8] ^ (1 << bit % 8));
    }
    for (size_t len = 0; len < sealed.len; len++) {
        assert_int_not_equal(
            open_as(vault, name_of("acme", 4), slice_of(sealed.data, len), ""), OK);
    }
    buf_release(&sealed);
    vault_free(vault);
}

static void a_body_belongs_to_one_record(void **state)
{
    static const unsigned char other[32] = {0};
    const char *files[] = {write_key("one", 0)};
    struct vault *vault = vault_of(files, 1);
    struct buf sealed = sealed_of(vault, "secret");
    struct vault_name moved = name_of("acme", 4);
    moved.key_hash = slice_of((const char *)other, sizeof other);
    (void)state;
    assert_int_equal(open_as(vault, name_of("acme", 4), buf_view(&sealed), "secret"), OK);
    assert_int_equal(open_as(vault, name_of("acmf", 4), buf_view(&sealed), ""), E_CORRUPT); /* P9 */
    assert_int_equal(open_as(vault, name_of("acme", 3), buf_view(&sealed), ""), E_CORRUPT);
    assert_int_equal(open_as(vault, moved, buf_view(&sealed), ""), E_CORRUPT);
    buf_release(&sealed);
    vault_free(vault);
}

/* VT2 */
static void the_first_key_seals_and_all_keys_open(void **state)
{
    const char *old_only[] = {write_key("old", 0)};
    const char *both[] = {write_key("new", 100), old_only[0]};
    struct vault *before = vault_of(old_only, 1);
    struct vault *during = vault_of(both, 2);
    struct vault *after = vault_of(both, 1);
    struct buf old = sealed_of(before, "old");
    struct buf new = sealed_of(during, "new");
    (void)state;
    assert_int_equal(open_as(during, name_of("acme", 4), buf_view(&old), "old"), OK);
    assert_int_equal(open_as(after, name_of("acme", 4), buf_view(&new), "new"), OK);
    assert_int_equal(open_as(after, name_of("acme", 4), buf_view(&old), ""), E_INVALID);
    assert_int_equal(open_as(before, name_of("acme", 4), buf_view(&new), ""), E_INVALID);
    buf_release(&old);
    buf_release(&new);
    vault_free(before);
    vault_free(during);
    vault_free(after);
}

static void a_key_file_is_bytes_or_hex(void **state)
{
    static const char hex[] = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";
    const char *hexed[] = {write_file("hex", hex, sizeof hex - 1, 0400)};
    const char *bytes[] = {write_key("bytes", 0)};
    struct vault *one = vault_of(hexed, 1);
    struct vault *two = vault_of(bytes, 1);
    struct buf sealed = sealed_of(one, "same");
    (void)state;
    assert_int_equal(open_as(two, name_of("acme", 4), buf_view(&sealed), "same"), OK);
    buf_release(&sealed);
    vault_free(one);
    vault_free(two);
}

static void a_bad_key_file_is_refused_by_name(void **state)
{
    static const struct {
        const char *name;
        const char *bytes;
        size_t size;
        mode_t mode;
        const char *says;
    } rows[] = {
        {"short", "0123456789", 10, 0600, "neither"},
        {"long", "0123456789012345678901234567890123456789012345678901234567890123456789", 70, 0600,
            "neither"},
        {"nohex", "zz0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", 64, 0600,
            "neither"},
        {"empty", "", 0, 0600, "neither"},
        {"group", "01234567890123456789012345678901", 32, 0640, "others"},
        {"world", "01234567890123456789012345678901", 32, 0604, "others"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        const char *files[] = {write_file(rows[i].name, rows[i].bytes, rows[i].size, rows[i].mode)};
        struct vault_options options = {.key_files = files, .key_file_count = 1};
        struct vault *vault = NULL;
        struct err err;
        assert_int_equal(vault_new(&options, &vault, &err), E_INVALID);
        assert_non_null(strstr(err.text, rows[i].says));
        assert_non_null(strstr(err.text, files[0]));
        if (rows[i].size > 0) {
            assert_null(strstr(err.text, "01234567")); /* VT4 */
        }
        assert_null(vault);
    }
    const char *absent[] = {in_dir("absent")};
    struct vault *vault = NULL;
    struct err err;
    struct vault_options options = {.key_files = absent, .key_file_count = 1};
    assert_int_equal(vault_new(&options, &vault, &err), E_UNAVAILABLE);
    assert_int_equal(access(absent[0], F_OK), -1); /* what somebody named is never made */
}

static void without_a_file_or_a_place_the_setting_is_named(void **state)
{
    struct vault *vault = NULL;
    struct err err;
    (void)state;
    assert_int_equal(vault_new(&(struct vault_options){.own_path = NULL}, &vault, &err), E_INVALID);
    assert_non_null(strstr(err.text, "secrets.key_file"));
}

static void a_key_of_our_own_is_made_once(void **state)
{
    struct vault_options options = {.own_path = in_dir("body.key")};
    struct vault *first = NULL;
    struct vault *second = NULL;
    struct err err;
    struct stat facts;
    (void)state;
    /* What a crash left of an earlier try. */
    (void)write_file("body.key.new", "half", 4, 0600);
    assert_int_equal(vault_new(&options, &first, &err), OK);
    assert_int_equal(stat(options.own_path, &facts), 0);
    assert_int_equal(facts.st_mode & 07777, 0600);
    assert_int_equal(facts.st_size, VAULT_KEY_BYTES);
    assert_int_equal(access(in_dir("body.key.new"), F_OK), -1);
    assert_int_equal(vault_new(&options, &second, &err), OK);
    struct buf sealed = sealed_of(first, "kept");
    assert_int_equal(open_as(second, name_of("acme", 4), buf_view(&sealed), "kept"), OK);
    buf_release(&sealed);
    vault_free(first);
    vault_free(second);
    assert_int_equal(chmod(options.own_path, 0644), 0);
    assert_int_equal(vault_new(&options, &first, &err), E_INVALID); /* VT3 */
}

/* VT4: the block is looked at when it is given back. */
static bool freed_clean;
static void *resize_watched(void *context, void *pointer, size_t size)
{
    (void)context;
    if (size == 0 && pointer != NULL) {
        const unsigned char *bytes = pointer;
        unsigned char key[VAULT_KEY_BYTES];
        for (unsigned i = 0; i < sizeof key; i++) {
            key[i] = (unsigned char)i;
        }
        freed_clean = memmem(bytes, 256, key, 8) == NULL;
    }
    return mem_libc.resize(mem_libc.context, pointer, size);
}

static void keys_are_wiped(void **state)
{
    const struct mem watched = {resize_watched, NULL};
    const char *files[] = {write_key("one", 0)};
    struct vault *vault = NULL;
    struct err err;
    (void)state;
    struct vault_options options = {.mem = &watched, .key_files = files, .key_file_count = 1};
    assert_int_equal(vault_new(&options, &vault, &err), OK);
    vault_free(vault);
    assert_true(freed_clean);
    vault_free(NULL);
}

static int setup(void **state)
{
    (void)state;
    memset(hash, 0x11, sizeof hash);
    (void)snprintf(dir, sizeof dir, "/tmp/once-vault-XXXXXX");
    return mkdtemp(dir) == NULL ? -1 : 0;
}

static int teardown(void **state)
{
    static const char *const names[] = {"one", "old", "new", "hex", "bytes", "short", "long",
        "nohex", "empty", "group", "world", "body.key"};
    (void)state;
    for (size_t i = 0; i < COUNT(names); i++) {
        (void)unlink(in_dir(names[i]));
    }
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_body_sealed_elsewhere_opens),
        TEST(what_was_sealed_opens_and_is_not_readable),
        TEST(every_changed_bit_is_found),
        TEST(a_body_belongs_to_one_record),
        TEST(the_first_key_seals_and_all_keys_open),
        TEST(a_key_file_is_bytes_or_hex),
        TEST(a_bad_key_file_is_refused_by_name),
        TEST(without_a_file_or_a_place_the_setting_is_named),
        TEST(a_key_of_our_own_is_made_once),
        TEST(keys_are_wiped),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
