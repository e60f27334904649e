/* The rule for names: which are refused, and in which words. */
#include "base/name.h"
#include "check_c.h"

#define TEXT(literal)                                                                              \
    {                                                                                              \
        literal, sizeof(literal) - 1                                                               \
    }

static void what_a_name_may_not_have_is_refused_with_its_place(void **state)
{
    (void)state;
    const struct {
        struct slice name;
        const char *text;
    } cases[] = {
        {TEXT("\0"), "key has the control character U+0000 at byte 0"},
        {TEXT("a\0b"), "key has the control character U+0000 at byte 1"},
        {TEXT("line\n"), "key has the control character U+000A at byte 4"},
        {TEXT("\x1b[31m"), "key has the control character U+001B at byte 0"},
        {TEXT("\x1f"), "key has the control character U+001F at byte 0"},
        {TEXT("caf\xc3\xa9\x7f"), "key has the control character U+007F at byte 5"},
        {TEXT("\xc2\x80"), "key has the control character U+0080 at byte 0"},
        {TEXT("\xc2\x9f"), "key has the control character U+009F at byte 0"},
        {TEXT("\xff"), "key is not valid UTF-8: 0xff at byte 0"},
        {TEXT("ab\xc3"), "key is not valid UTF-8: 0xc3 at byte 2"},
        {TEXT("\xed\xa0\x80"), "key is not valid UTF-8: 0xed at byte 0"},
        {TEXT("12345678\xc0\x80"), "key is not valid UTF-8: 0xc0 at byte 8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        assert_int_equal(name_check("key", cases[i].name, &err), E_INVALID);
        assert_string_equal(err.text, cases[i].text);
        assert_false(name_valid(cases[i].name));
    }
}

static void any_other_text_is_a_name(void **state)
{
    (void)state;
    const struct slice names[] = {TEXT(""), TEXT(" "), TEXT("~"), TEXT("a\"b\\c"),
        TEXT("caf\xc3\xa9"), TEXT("\xc2\xa0"), TEXT("\xe2\x80\xa8"), TEXT("\xf0\x9f\x92\xb6"),
        TEXT("\xf4\x8f\xbf\xbf"), TEXT("\xc3\x80")};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct err err = {0};
        assert_int_equal(name_check("key", names[i], &err), OK);
        assert_true(name_valid(names[i]));
    }
}

/* Names are read many bytes at a time: each byte at each place of each length has the one rule. */
static void every_byte_has_its_rule_at_every_place(void **state)
{
    (void)state;
    enum { LEN_MAX = 34 };
    for (size_t len = 1; len <= LEN_MAX; len++) {
        for (size_t at = 0; at < len; at++) {
            for (int byte = 0; byte < 256; byte++) {
                char text[LEN_MAX];
                memset(text, '~', sizeof text);
                text[at] = (char)byte;
                bool is_good = byte >= 0x20 && byte < 0x7f;
                assert_int_equal(name_valid(slice_of(text, len)), is_good);
                bool is_utf8 = name_check_utf8("key", slice_of(text, len), NULL) == OK;
                assert_int_equal(is_utf8, byte < 0x80);
            }
        }
    }
}

static void other_texts_only_have_to_be_utf8(void **state)
{
    (void)state;
    struct err err = {0};
    const struct slice lines = TEXT("one\ntwo\x7f"), broken = TEXT("one\ntwo\xfe");
    assert_int_equal(name_check_utf8("reason", lines, &err), OK);
    assert_int_equal(name_check_utf8("reason", broken, &err), E_INVALID);
    assert_string_equal(err.text, "reason is not valid UTF-8: 0xfe at byte 7");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_a_name_may_not_have_is_refused_with_its_place),
        TEST(any_other_text_is_a_name),
        TEST(every_byte_has_its_rule_at_every_place),
        TEST(other_texts_only_have_to_be_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
