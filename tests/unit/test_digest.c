/*
 * SHA-256 and HMAC-SHA256 against published vectors.
 */
#include "base/text.h"
#include "canon/digest.h"
#include "canon/json.h"
#include "check_c.h"
#include "files.h"

static void assert_digest(const struct digest *digest, const char *expected)
{
    char text[DIGEST_HEX_BYTES];
    assert_string_equal(digest_put_hex(text, digest), expected);
}

static void sha_256_gives_the_digests_of_fips_180(void **state)
{
    (void)state;
    static const char two_blocks[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    struct digest digest;
    digest_sha256("", 0, &digest);
    assert_digest(&digest, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    digest_sha256(NULL, 0, &digest);
    assert_digest(&digest, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    digest_sha256("abc", 3, &digest);
    assert_digest(&digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    for (size_t cut = 0; cut < sizeof two_blocks; cut++) {
        digest_sha256_2(two_blocks, cut, two_blocks + cut, sizeof two_blocks - 1 - cut, &digest);
        assert_digest(&digest, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    }
}

static void read_hex(struct slice text, unsigned char *ret_bytes, size_t room, size_t *ret_size)
{
    *ret_size = text.len / 2;
    assert_true(*ret_size <= room);
    assert_true(text_hex(text, ret_bytes, *ret_size));
}

static struct slice field(const struct json_value *test, const char *name)
{
    const struct json_value *value = json_find(test, slice_str(name));
    assert_true(json_is(value, JSON_STRING));
    return json_text(value);
}

/* One case; its tag may be a cut one, and is wrong where the result is "invalid". */
static void check_case(const struct json_value *test)
{
    unsigned char key[1024], message[1024], tag[DIGEST_BYTES];
    size_t key_size, message_size, tag_size;
    read_hex(field(test, "key"), key, sizeof key, &key_size);
    read_hex(field(test, "msg"), message, sizeof message, &message_size);
    read_hex(field(test, "tag"), tag, sizeof tag, &tag_size);
    struct digest digest;
    digest_hmac(key, key_size, message, message_size, &digest);
    struct digest_hmac_key made;
    struct digest again;
    digest_hmac_key_make(slice_of(key, key_size), &made);
    digest_hmac_keyed(&made, message, message_size, &again);
    assert_true(digest_equal(&digest, &again));
    bool valid = slice_is(field(test, "result"), "valid");
    assert_int_equal(memcmp(digest.bytes, tag, tag_size) == 0, valid);
    if (tag_size == DIGEST_BYTES) {
        struct digest given;
        memcpy(given.bytes, tag, sizeof given.bytes);
        assert_int_equal(digest_equal_secret(&digest, &given), valid);
        assert_int_equal(digest_equal(&digest, &given), valid);
    }
}

static void hmac_agrees_with_every_wycheproof_case(void **state)
{
    (void)state;
    struct buf file;
    struct arena arena;
    buf_init(&file, &mem_libc, FILE_BYTES_MAX);
    arena_init(&arena, &mem_libc, FILE_BYTES_MAX);
    file_read("vectors/hmac-sha256/hmac_sha256_test.json", &file);
    const struct json_value *root = NULL;
    assert_int_equal(json_read(buf_view(&file), &arena, &root, NULL), OK);
    const struct json_value *groups = json_find(root, SLICE_LIT("testGroups"));
    uint32_t count = 0;
    for (uint32_t i = 0; i < groups->count; i++) {
        const struct json_value *tests = json_find(&groups->items[i], SLICE_LIT("tests"));
        for (uint32_t j = 0; j < tests->count; j++, count++) {
            check_case(&tests->items[j]);
        }
    }
    assert_int_equal(count, 174);
    arena_release(&arena);
    buf_release(&file);
}

static void a_long_hmac_key_is_hashed_first(void **state)
{
    (void)state;
    /* RFC 4231 test cases 6 and 1, and the empty key. */
    unsigned char key[131];
    memset(key, 0xaa, sizeof key);
    static const char message[] = "Test Using Larger Than Block-Size Key - Hash Key First";
    struct digest digest;
    digest_hmac(key, sizeof key, message, sizeof message - 1, &digest);
    assert_digest(&digest, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    memset(key, 0x0b, 20);
    digest_hmac(key, 20, "Hi There", 8, &digest);
    assert_digest(&digest, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    digest_hmac(NULL, 0, NULL, 0, &digest);
    assert_digest(&digest, "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(sha_256_gives_the_digests_of_fips_180),
        TEST(hmac_agrees_with_every_wycheproof_case),
        TEST(a_long_hmac_key_is_hashed_first),
    };
    return cmocka_run_group_tests_name("digest", tests, NULL, NULL);
}
