#include "base/name.h"

#include "base/scan.h"
#include "base/text.h"

/* What a name has at some byte. */
struct character {
    size_t size; /* 0: this byte does not begin a character of UTF-8 */
    bool is_control;
};

static struct character character_at(struct slice text, size_t at)
{
    const unsigned char *s = (const unsigned char *)text.data + at;
    if (s[0] < 0x80) {
        return (struct character){.size = 1, .is_control = s[0] < 0x20 || s[0] == 0x7f};
    }
    size_t size = scan_utf8(text.data + at, text.data + text.len);
    /* U+0080 to U+009F are the two-byte sequences 0xC2 0x80 to 0xC2 0x9F. */
    return (struct character){.size = size, .is_control = size == 2 && s[0] == 0xc2 && s[1] < 0xa0};
}

/* The offset of the first byte that a name must not have; the text's length if there is none. */
static size_t fault_at(struct slice text, bool may_have_controls)
{
    size_t at = 0;
    if (scan_printable(text.data, text.len)) {
        return text.len;
    }
    while (at < text.len) {
        struct character character = character_at(text, at);
        if (character.size == 0 || (character.is_control && !may_have_controls)) {
            break;
        }
        at += character.size;
    }
    return at;
}

bool name_valid(struct slice name)
{
    return fault_at(name, false) == name.len;
}

static enum status refuse(const char *member, struct slice text, size_t at, struct err *err)
{
    const unsigned char *s = (const unsigned char *)text.data + at;
    size_t size = character_at(text, at).size;
    if (size == 0) {
        return err_set(
            err, E_INVALID, "%s is not valid UTF-8: 0x%02x at byte %zu", member, s[0], at);
    }
    return err_set(err, E_INVALID, "%s has the control character U+%04X at byte %zu", member,
        size == 1 ? s[0] : s[1], at);
}

enum status name_check(const char *member, struct slice name, struct err *err)
{
    size_t at = fault_at(name, false);
    return at == name.len ? OK : refuse(member, name, at, err);
}

enum status name_check_utf8(const char *member, struct slice text, struct err *err)
{
    if (scan_printable(text.data, text.len) || text_utf8(text)) {
        return OK;
    }
    return refuse(member, text, fault_at(text, true), err);
}
