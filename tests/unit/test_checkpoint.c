/*
 * Checkpoints: the note's exact text, what tampering does to it, and whether a stranger with the
 * openssl command agrees with us.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/text.h"
#include "check_c.h"
#include "evidence/checkpoint.h"

/* RFC 8032 section 7.1, test 1: a seed whose public key is printed in the standard. */
static const char seed_hex[] = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
static const char public_hex[] = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
static const char chain_text[] = "01920000-0000-7000-8000-000000000001";
static const int64_t signed_ms = 1794770607123; /* 2026-11-15T19:23:27.123Z */

struct world {
    struct store_identity identity;
    struct chain chain;
    struct checkpoint_key key;
    struct buf note; /* one note about the chain, signed with the identity */
    struct entry entry;
};

static int set_up(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    assert_true(text_hex(slice_str(seed_hex), world->identity.signing_seed, 32));
    const unsigned char id[16] = {1, 0x92, 0, 0, 0, 0, 0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, 1};
    memcpy(world->identity.chain_id, id, sizeof id);
    memcpy(world->chain.chain_id, chain_text, sizeof chain_text);
    world->chain.seq = 128;
    digest_sha256("a head", 6, &world->chain.hash);
    buf_init(&world->note, &mem_libc, 4096);
    assert_int_equal(checkpoint_key_of(&world->identity, &world->key, NULL), OK);
    assert_int_equal(checkpoint_compose(&world->chain, &world->identity, signed_ms, &world->note,
                         &world->entry, NULL),
        OK);
    *state = world;
    return 0;
}

static int tear_down(void **state)
{
    struct world *world = *state;
    buf_release(&world->note);
    free(world);
    return 0;
}

static void the_public_key_is_the_one_of_the_standard(void **state)
{
    struct world *world = *state;
    char hex[65];
    char text[CHECKPOINT_KEY_BYTES_MAX];
    assert_string_equal(text_put_hex(hex, world->key.ed25519, 32), public_hex);
    (void)checkpoint_key_put(text, &world->key);
    /* The id was computed with sha256sum over the bytes that C2SP signed-note prescribes. */
    assert_string_equal(text, "once/01920000-0000-7000-8000-000000000001+71487d50+"
                              "AddamAGCsQq31Uv+08lkBzoO4XLz2qYjJa8CGmj3B1Ea");
}

static void a_public_key_survives_its_text_and_no_other_text_is_taken(void **state)
{
    struct world *world = *state;
    char text[CHECKPOINT_KEY_BYTES_MAX];
    struct checkpoint_key key;
    (void)checkpoint_key_put(text, &world->key);
    assert_int_equal(checkpoint_key_read(slice_str(text), &key, NULL), OK);
    assert_memory_equal(key.ed25519, world->key.ed25519, 32);
    assert_memory_equal(key.key_id, world->key.key_id, 4);
    assert_string_equal(key.chain_id, world->key.chain_id);
    size_t length = strlen(text);
    for (size_t i = 0; i < length; i++) {
        for (int bit = 0; bit < 8; bit++) {
            text[i] = (char)(text[i] ^ (1 << bit));
            assert_int_equal(checkpoint_key_read(slice_of(text, length), &key, NULL), E_INVALID);
            text[i] = (char)(text[i] ^ (1 << bit));
        }
        assert_int_equal(checkpoint_key_read(slice_of(text, i), &key, NULL), E_INVALID);
    }
}

static void a_note_reads_as_a_signed_note_and_verifies(void **state)
{
    struct world *world = *state;
    struct checkpoint checkpoint;
    struct err err = {0};
    char text[CHECKPOINT_BYTES_MAX + 1] = {0};
    memcpy(text, world->note.data, world->note.len);
    static const char head[] = "once/01920000-0000-7000-8000-000000000001\n128\n";
    static const char foot[] = "=\ntime 2026-11-15T19:23:27.123Z\n\n"
                               "\xe2\x80\x94 once/01920000-0000-7000-8000-000000000001 ";
    assert_memory_equal(text, head, sizeof head - 1);
    assert_non_null(strstr(text, foot));
    assert_int_equal(text[world->note.len - 1], '\n');
    assert_int_equal(checkpoint_verify(buf_view(&world->note), &world->key, &checkpoint, &err), OK);
    assert_int_equal(checkpoint.seq, 128);
    assert_int_equal(checkpoint.time_ms, signed_ms);
    assert_memory_equal(checkpoint.hash.bytes, world->chain.hash.bytes, 32);
    assert_string_equal(checkpoint.chain_id, chain_text);
    assert_int_equal(world->entry.kind, ENTRY_CHECKPOINT);
    assert_int_equal(world->entry.seq, 128);
    assert_true(slice_equal(world->entry.bytes, buf_view(&world->note)));
}

static bool refused(struct slice text, const struct world *world)
{
    struct checkpoint untouched = {.seq = 7};
    enum status status = checkpoint_verify(text, &world->key, &untouched, NULL);
    return (status == E_INVALID || status == E_CORRUPT) && untouched.seq == 7;
}

static void every_flipped_bit_of_a_note_is_refused(void **state)
{
    struct world *world = *state;
    char *text = world->note.data;
    for (size_t i = 0; i < world->note.len; i++) {
        for (int bit = 0; bit < 8; bit++) {
            text[i] = (char)(text[i] ^ (1 << bit));
            assert_true(refused(buf_view(&world->note), world));
            text[i] = (char)(text[i] ^ (1 << bit));
        }
    }
}

static void every_dropped_or_doubled_byte_of_a_note_is_refused(void **state)
{
    struct world *world = *state;
    char text[CHECKPOINT_BYTES_MAX + 1];
    size_t length = world->note.len;
    for (size_t i = 0; i < length; i++) {
        memcpy(text, world->note.data, i);
        memcpy(text + i, world->note.data + i + 1, length - i - 1);
        assert_true(refused(slice_of(text, length - 1), world));
        memcpy(text, world->note.data, i + 1);
        memcpy(text + i + 1, world->note.data + i, length - i);
        assert_true(refused(slice_of(text, length + 1), world));
        assert_true(refused(slice_of(world->note.data, i), world));
    }
}

static void a_note_of_another_key_or_chain_is_refused_by_name(void **state)
{
    struct world *world = *state;
    struct checkpoint checkpoint;
    struct checkpoint_key key;
    struct err err = {0};
    struct store_identity other = world->identity;
    other.signing_seed[0] ^= 1;
    assert_int_equal(checkpoint_key_of(&other, &key, NULL), OK);
    assert_int_equal(checkpoint_verify(buf_view(&world->note), &key, &checkpoint, &err), E_CORRUPT);
    assert_non_null(strstr(err.text, "a different key"));
    /* The id in front of the signature is only a hint: a wrong key with the right id fails too. */
    memcpy(key.key_id, world->key.key_id, sizeof key.key_id);
    assert_int_equal(checkpoint_verify(buf_view(&world->note), &key, &checkpoint, &err), E_CORRUPT);
    assert_non_null(strstr(err.text, "signature is invalid"));
    other = world->identity;
    other.chain_id[15] ^= 1;
    assert_int_equal(checkpoint_key_of(&other, &key, NULL), OK);
    assert_int_equal(checkpoint_verify(buf_view(&world->note), &key, &checkpoint, &err), E_CORRUPT);
    assert_non_null(strstr(err.text, "a different chain"));
}

static void a_full_buffer_is_a_limit_and_leaves_no_half_note(void **state)
{
    struct world *world = *state;
    struct buf small;
    struct entry entry = {.seq = 7};
    buf_init(&small, &mem_libc, 100);
    assert_int_equal(
        checkpoint_compose(&world->chain, &world->identity, signed_ms, &small, &entry, NULL),
        E_LIMIT);
    assert_int_equal(small.len, 0);
    assert_int_equal(entry.seq, 7);
    buf_release(&small);
}

static void write_file(const char *directory, const char *name, const void *data, size_t size)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* The commands that docs/formats/evidence.md tells a stranger to use. $1: where the files are. */
static const char stranger[] =
    "cd \"$1\" && head -n 4 note > body &&"
    " tail -n 1 note | cut -d' ' -f3 | openssl base64 -d -A | tail -c 64 > signature &&"
    " { printf '\\060\\052\\060\\005\\006\\003\\053\\145\\160\\003\\041\\000';"
    " cut -d+ -f3- key | openssl base64 -d -A | tail -c 32; } > key.der &&"
    " openssl pkeyutl -verify -pubin -keyform DER -inkey key.der -rawin -in body"
    " -sigfile signature > /dev/null 2>&1";

static void the_openssl_command_agrees_with_us(void **state)
{
    struct world *world = *state;
    char directory[] = "/tmp/once-checkpoint-XXXXXX";
    char command[1024];
    char key[CHECKPOINT_KEY_BYTES_MAX];
    if (system("openssl version > /dev/null 2>&1") != 0) {
        skip();
    }
    assert_non_null(mkdtemp(directory));
    (void)checkpoint_key_put(key, &world->key);
    write_file(directory, "key", key, strlen(key));
    write_file(directory, "note", world->note.data, world->note.len);
    (void)snprintf(command, sizeof command, "set -- %s; %s", directory, stranger);
    int fine = system(command);
    world->note.data[44] ^= 1; /* in the size: 128 becomes 129 or so */
    write_file(directory, "note", world->note.data, world->note.len);
    int tampered = system(command);
    char cleaning[64];
    (void)snprintf(cleaning, sizeof cleaning, "rm -r %s", directory);
    assert_int_equal(system(cleaning), 0);
    assert_int_equal(fine, 0);
    assert_int_not_equal(tampered, 0);
}

#define CHECKPOINT_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKPOINT_TEST(the_public_key_is_the_one_of_the_standard),
        CHECKPOINT_TEST(a_public_key_survives_its_text_and_no_other_text_is_taken),
        CHECKPOINT_TEST(a_note_reads_as_a_signed_note_and_verifies),
        CHECKPOINT_TEST(every_flipped_bit_of_a_note_is_refused),
        CHECKPOINT_TEST(every_dropped_or_doubled_byte_of_a_note_is_refused),
        CHECKPOINT_TEST(a_note_of_another_key_or_chain_is_refused_by_name),
        CHECKPOINT_TEST(a_full_buffer_is_a_limit_and_leaves_no_half_note),
        CHECKPOINT_TEST(the_openssl_command_agrees_with_us),
    };
    return cmocka_run_group_tests_name("checkpoint", tests, NULL, NULL);
}
