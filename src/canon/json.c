#include "canon/json.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/text.h"
#include "canon/json_scan.h"

enum {
    ENTRIES_FIRST = 64,          /* waiting values held on the stack before memory is asked for */
    SORT_INSERTION_MAX = 24,     /* members; above, insertion costs more than merging */
    QUOTE_BYTES_MAX = 64,        /* of a name shown in an error text */
    NUMBER_VERBATIM_DIGITS = 15, /* an integer this long is its own canonical form */
};

/* A value whose container is not closed yet, so its place among its siblings is not known. */
struct entry {
    struct json_member member; /* items of arrays use the value only */
    uint64_t prefix;           /* first bytes of the name, see name_prefix */
};

struct reader {
    const char *start;                 /* the text */
    const char *at;                    /* next byte */
    const char *end;                   /* end of the text */
    struct arena *arena;               /* where containers and decoded strings go */
    struct err *err;                   /* for the text of a failure */
    const char *fault;                 /* where it failed */
    unsigned depth;                    /* open containers */
    struct entry *entries;             /* values of all open containers, outermost first */
    size_t used;                       /* entries in use */
    size_t room;                       /* entries allocated */
    struct entry first[ENTRIES_FIRST]; /* what entries is before it grows */
};

static void set_fault(struct reader *r, enum status status, const char *where, const char *format,
    ...) __attribute__((format(printf, 4, 5), noinline, cold));

static void set_fault(
    struct reader *r, enum status status, const char *where, const char *format, ...)
{
    char what[ERR_TEXT_BYTES_MAX];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(what, sizeof what, format, args);
    va_end(args);
    r->fault = where;
    struct json_place place =
        json_place(slice_of(r->start, (size_t)(r->end - r->start)), (size_t)(where - r->start));
    (void)err_set(r->err, status, "line %zu, column %zu: %s", place.line, place.column, what);
}

/* Macros, so that the compiler sees the status and knows which values are set. */
#define fail_with(r, status, where, ...) (set_fault((r), (status), (where), __VA_ARGS__), (status))
#define fail(r, where, ...)              fail_with(r, E_INVALID, where, __VA_ARGS__)

static enum status fail_memory(struct reader *r, size_t size)
{
    /* The arena rounds up, by less than this. */
    if (size > SIZE_MAX - 16 || size + 16 > r->arena->max - r->arena->held) {
        return fail_with(
            r, E_LIMIT, r->at, "needs more memory than the %zu bytes it may have", r->arena->max);
    }
    return err_set(r->err, E_NOMEM, "out of memory");
}

static enum status fail_unexpected(struct reader *r, const char *expected)
{
    if (r->at == r->end) {
        return fail(r, r->at, "the text ends where %s is expected", expected);
    }
    unsigned char c = (unsigned char)*r->at;
    if (c > 0x20 && c < 0x7f) {
        return fail(r, r->at, "'%c' where %s is expected", c, expected);
    }
    return fail(r, r->at, "byte 0x%02x where %s is expected", c, expected);
}

static inline void skip_space(struct reader *r)
{
    while (r->at < r->end && scan_is_space(*r->at)) {
        r->at++;
    }
}

/* Strings. */

static enum status fail_in_string(struct reader *r, const char *where)
{
    if (where == r->end) {
        return fail(r, where, "the text ends inside a string");
    }
    unsigned char c = (unsigned char)*where;
    if (c < 0x20) {
        return fail(r, where, "control character 0x%02x inside a string, it must be escaped", c);
    }
    return fail(r, where, "invalid UTF-8 (byte 0x%02x)", c);
}

static bool read_hex4(const char *at, const char *end, uint32_t *ret)
{
    unsigned char bytes[2];
    if (end - at < 4 || !text_hex(slice_of(at, 4), bytes, sizeof bytes)) {
        return false;
    }
    *ret = (uint32_t)bytes[0] << 8 | bytes[1];
    return true;
}

/* The code point of a \u escape at *at, which is moved behind it. */
static enum status read_unicode_escape(struct reader *r, const char **at, uint32_t *ret)
{
    const char *from = *at;
    uint32_t high, low;
    if (!read_hex4(from + 2, r->end, &high)) {
        return fail(r, from, "\\u needs four hexadecimal digits");
    }
    *at = from + 6;
    *ret = high;
    if (high < 0xD800 || high > 0xDFFF) {
        return OK;
    }
    if (high > 0xDBFF || r->end - *at < 6 || (*at)[0] != '\\' || (*at)[1] != 'u' ||
        !read_hex4(*at + 2, r->end, &low) || low < 0xDC00 || low > 0xDFFF) {
        return fail(r, from, "lone surrogate \\u%04x", (unsigned)high);
    }
    *at += 6;
    *ret = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    return OK;
}

static enum status read_escape(struct reader *r, const char **at, uint32_t *ret)
{
    static const char names[] = "\"\\/bfnrt";
    static const char codes[] = "\"\\/\b\f\n\r\t";
    char c = *at + 1 < r->end ? (*at)[1] : '\0';
    if (c == 'u') {
        return read_unicode_escape(r, at, ret);
    }
    const char *name = c == '\0' ? NULL : strchr(names, c);
    if (name == NULL) {
        return fail(r, *at, "invalid escape in a string");
    }
    *ret = (unsigned char)codes[name - names];
    *at += 2;
    return OK;
}

/* The rest of a string from its first escape on, decoded; closing is where its quote is. */
static enum status decode_string(
    struct reader *r, const char *closing, char *to, struct json_value *ret)
{
    const char *at = r->at + (to - ret->text);
    while (at < closing) {
        const char *run = scan_string_run(at, closing);
        memcpy(to, at, (size_t)(run - at));
        to += run - at;
        at = run;
        if (at < closing) {
            uint32_t code;
            enum status status = read_escape(r, &at, &code);
            if (status != OK) {
                return status;
            }
            ret->verbatim &= code >= 0x20 && code != '"' && code != '\\';
            to = scan_put_utf8(to, code);
        }
    }
    ret->count = (uint32_t)(to - ret->text);
    r->at = closing + 1;
    return OK;
}

/* The closing quote of a string with escapes, everything up to it being valid. */
static enum status find_closing(struct reader *r, const char *at, const char **ret)
{
    for (;;) {
        at = scan_string_run(at, r->end);
        if (at < r->end && *at == '"') {
            *ret = at;
            return OK;
        }
        if (at == r->end || *at != '\\') {
            return fail_in_string(r, at);
        }
        if (r->end - at < 2) {
            return fail_in_string(r, r->end);
        }
        at += 2; /* what is escaped is looked at when decoding, but it cannot close the string */
    }
}

static enum status read_escaped_string(struct reader *r, const char *escape, struct json_value *ret)
{
    const char *closing = NULL;
    enum status status = find_closing(r, escape, &closing);
    if (status != OK) {
        return status;
    }
    /* No escape is shorter than what it stands for, so the room of the source is enough. */
    size_t size = (size_t)(closing - r->at);
    char *text = arena_alloc(r->arena, size);
    if (text == NULL) {
        return fail_memory(r, size);
    }
    size_t plain = (size_t)(escape - r->at);
    memcpy(text, r->at, plain);
    ret->text = text;
    return decode_string(r, closing, text + plain, ret);
}

/* At the opening quote. */
static inline enum status read_string(struct reader *r, struct json_value *ret)
{
    ret->type = JSON_STRING;
    ret->verbatim = true;
    ret->offset = (uint32_t)(r->at - r->start);
    r->at++;
    const char *run = scan_string_run(r->at, r->end);
    if (run < r->end && *run == '"') {
        ret->text = r->at;
        ret->count = (uint32_t)(run - r->at);
        r->at = run + 1;
        return OK;
    }
    if (run < r->end && *run == '\\') {
        return read_escaped_string(r, run, ret);
    }
    return fail_in_string(r, run);
}

/* Numbers and words. */

static inline enum status read_digits(struct reader *r)
{
    const char *from = r->at;
    while (r->at < r->end && scan_is_digit(*r->at)) {
        r->at++;
    }
    return r->at > from ? OK : fail_unexpected(r, "a digit");
}

static enum status read_fraction_and_exponent(struct reader *r)
{
    enum status status = OK;
    if (r->at < r->end && *r->at == '.') {
        r->at++;
        status = read_digits(r);
    }
    if (status == OK && r->at < r->end && (*r->at == 'e' || *r->at == 'E')) {
        r->at++;
        r->at += r->at < r->end && (*r->at == '+' || *r->at == '-');
        status = read_digits(r);
    }
    return status;
}

static enum status read_number(struct reader *r, struct json_value *ret)
{
    const char *from = r->at;
    bool negative = *from == '-';
    r->at += negative;
    const char *digits = r->at;
    enum status status = read_digits(r);
    if (status != OK) {
        return status;
    }
    if (*digits == '0' && r->at - digits > 1) {
        return fail(r, digits, "a number may not begin with zero");
    }
    /* A short integer is its own canonical form; minus zero is the exception, it becomes "0". */
    bool verbatim = r->at - digits <= NUMBER_VERBATIM_DIGITS && !(negative && *digits == '0');
    if (r->at < r->end && (*r->at == '.' || *r->at == 'e' || *r->at == 'E')) {
        verbatim = false;
        status = read_fraction_and_exponent(r);
    }
    *ret = (struct json_value){.type = JSON_NUMBER,
        .verbatim = verbatim,
        .offset = (uint32_t)(from - r->start),
        .count = (uint32_t)(r->at - from),
        .text = from};
    return status;
}

static enum status read_word(
    struct reader *r, struct slice word, enum json_type type, struct json_value *ret)
{
    if ((size_t)(r->end - r->at) < word.len || memcmp(r->at, word.data, word.len) != 0) {
        return fail_unexpected(r, "a value");
    }
    *ret = (struct json_value){.type = type, .offset = (uint32_t)(r->at - r->start)};
    r->at += word.len;
    return OK;
}

/* Containers. */

static enum status entries_grow(struct reader *r)
{
    size_t room = r->room * 2;
    bool first = r->entries == r->first;
    if (room * sizeof *r->entries > r->arena->max) {
        return fail_memory(r, SIZE_MAX);
    }
    struct entry *entries =
        mem_resize(r->arena->mem, first ? NULL : r->entries, room * sizeof *entries);
    if (entries == NULL) {
        return fail_memory(r, 0);
    }
    if (first) {
        memcpy(entries, r->first, sizeof r->first);
    }
    r->entries = entries;
    r->room = room;
    return OK;
}

static inline enum status entries_push(struct reader *r, const struct entry *entry)
{
    if (r->used == r->room) {
        enum status status = entries_grow(r);
        if (status != OK) {
            return status;
        }
    }
    r->entries[r->used++] = *entry;
    return OK;
}

static enum status read_value(struct reader *r, struct json_value *ret);

static enum status close_array(struct reader *r, size_t base, struct json_value *ret)
{
    size_t count = r->used - base;
    ret->count = (uint32_t)count;
    ret->items = NULL;
    if (count == 0) {
        return OK;
    }
    struct json_value *items = arena_alloc(r->arena, count * sizeof *items);
    if (items == NULL) {
        return fail_memory(r, count * sizeof *items);
    }
    for (size_t i = 0; i < count; i++) {
        items[i] = r->entries[base + i].member.value;
    }
    ret->items = items;
    r->used = base;
    return OK;
}

/* Behind the opening bracket. */
static enum status read_items(struct reader *r, struct json_value *ret)
{
    size_t base = r->used;
    skip_space(r);
    if (r->at < r->end && *r->at == ']') {
        r->at++;
        return close_array(r, base, ret);
    }
    for (;;) {
        struct entry entry = {.prefix = 0};
        skip_space(r);
        enum status status = read_value(r, &entry.member.value);
        if (status == OK) {
            status = entries_push(r, &entry);
        }
        if (status != OK) {
            return status;
        }
        skip_space(r);
        if (r->at == r->end || (*r->at != ',' && *r->at != ']')) {
            return fail_unexpected(r, "',' or ']'");
        }
        if (*r->at++ == ']') {
            return close_array(r, base, ret);
        }
    }
}

/* The first eight bytes of a name as a number that sorts as they do, padded with zeros. */
static inline uint64_t name_prefix(const struct json_value *name)
{
    uint32_t high, low;
    if (name->count >= 8) {
        uint64_t bytes;
        memcpy(&bytes, name->text, sizeof bytes);
        return __builtin_bswap64(bytes);
    }
    if (name->count >= 4) {
        memcpy(&high, name->text, sizeof high);
        memcpy(&low, name->text + name->count - 4, sizeof low);
        /* The two loads overlap; shifting drops from the second what the first has. */
        low = (uint32_t)((uint64_t)__builtin_bswap32(low) << (8 * (8 - name->count)));
        return (uint64_t)__builtin_bswap32(high) << 32 | low;
    }
    uint64_t prefix = 0;
    for (uint32_t i = 0; i < name->count; i++) {
        prefix |= (uint64_t)(unsigned char)name->text[i] << (56 - 8 * i);
    }
    return prefix;
}

struct sort_key {
    uint64_t prefix; /* of the name */
    uint32_t index;  /* of the entry */
};

static inline int key_order(
    const struct entry *entries, const struct sort_key *a, const struct sort_key *b)
{
    const uint64_t non_ascii = UINT64_C(0x8080808080808080);
    if (a->prefix != b->prefix && ((a->prefix | b->prefix) & non_ascii) == 0) {
        return a->prefix < b->prefix ? -1 : 1;
    }
    return json_order(
        json_text(&entries[a->index].member.name), json_text(&entries[b->index].member.name));
}

/* Insertion, for the small objects nearly all are: nothing moves when the order is right already. */
static void sort_few(const struct entry *entries, struct sort_key *keys, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        struct sort_key key = keys[i];
        size_t j = i;
        while (j > 0 && key_order(entries, &keys[j - 1], &key) > 0) {
            keys[j] = keys[j - 1];
            j--;
        }
        keys[j] = key;
    }
}

static void merge_runs(const struct entry *entries, const struct sort_key *from, size_t left,
    size_t right, struct sort_key *to)
{
    size_t i = 0;
    size_t j = left;
    while (i < left || j < left + right) {
        bool take_left =
            j == left + right || (i < left && key_order(entries, &from[i], &from[j]) <= 0);
        *to++ = take_left ? from[i++] : from[j++];
    }
}

/* Merging, so that no document makes sorting quadratic. Needs as much room again; returns the half
 * of the room that the sorted keys ended up in. */
static struct sort_key *sort_many(
    const struct entry *entries, struct sort_key *keys, struct sort_key *spare, size_t count)
{
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t from = 0; from < count; from += 2 * width) {
            size_t left = count - from < width ? count - from : width;
            size_t right = count - from - left < width ? count - from - left : width;
            merge_runs(entries, keys + from, left, right, spare + from);
        }
        struct sort_key *sorted = spare;
        spare = keys;
        keys = sorted;
    }
    return keys;
}

/* A name as it is shown in an error text: short, and nothing a terminal would act on. */
static void quote_name(char ret_text[QUOTE_BYTES_MAX], struct slice name)
{
    size_t used = 0;
    for (size_t i = 0; i < name.len && used < QUOTE_BYTES_MAX - 5; i++) {
        unsigned char c = (unsigned char)name.data[i];
        ret_text[used++] = c < 0x20 || c == 0x7f ? '?' : (char)c;
    }
    (void)snprintf(ret_text + used, QUOTE_BYTES_MAX - used, used < name.len ? "..." : "");
}

static enum status fail_duplicate(struct reader *r, const struct json_value *name)
{
    char shown[QUOTE_BYTES_MAX];
    quote_name(shown, json_text(name));
    return fail(r, r->start + name->offset, "duplicate member \"%s\"", shown);
}

/* Copy the entries from base on into the arena in the order of the keys, which are sorted. */
static enum status place_members(
    struct reader *r, size_t base, const struct sort_key *keys, struct json_value *ret)
{
    size_t count = r->used - base;
    const struct entry *entries = r->entries + base;
    struct json_member *members = arena_alloc(r->arena, count * sizeof *members);
    if (members == NULL) {
        return fail_memory(r, count * sizeof *members);
    }
    for (size_t i = 0; i < count; i++) {
        members[i] = entries[keys[i].index].member;
        if (i > 0 && keys[i].prefix == keys[i - 1].prefix &&
            slice_equal(json_text(&members[i].name), json_text(&members[i - 1].name))) {
            return fail_duplicate(r, &members[i].name);
        }
    }
    ret->members = members;
    r->used = base;
    return OK;
}

static enum status close_large_object(struct reader *r, size_t base, struct json_value *ret)
{
    size_t count = r->used - base;
    const struct mem *mem = r->arena->mem;
    struct sort_key *keys = mem_alloc(mem, 2 * count * sizeof *keys);
    if (keys == NULL) {
        return fail_memory(r, 0);
    }
    for (size_t i = 0; i < count; i++) {
        keys[i] = (struct sort_key){r->entries[base + i].prefix, (uint32_t)i};
    }
    const struct sort_key *sorted = sort_many(r->entries + base, keys, keys + count, count);
    enum status status = place_members(r, base, sorted, ret);
    mem_free(mem, keys);
    return status;
}

static enum status close_object(struct reader *r, size_t base, struct json_value *ret)
{
    size_t count = r->used - base;
    ret->count = (uint32_t)count;
    ret->members = NULL;
    if (count == 0) {
        return OK;
    }
    if (count > SORT_INSERTION_MAX) {
        return close_large_object(r, base, ret);
    }
    struct sort_key keys[SORT_INSERTION_MAX];
    for (size_t i = 0; i < count; i++) {
        keys[i] = (struct sort_key){r->entries[base + i].prefix, (uint32_t)i};
    }
    sort_few(r->entries + base, keys, count);
    return place_members(r, base, keys, ret);
}

static inline enum status read_member(struct reader *r, struct entry *ret)
{
    if (r->at == r->end || *r->at != '"') {
        return fail_unexpected(r, "a member name");
    }
    enum status status = read_string(r, &ret->member.name);
    if (status != OK) {
        return status;
    }
    ret->prefix = name_prefix(&ret->member.name);
    skip_space(r);
    if (r->at == r->end || *r->at != ':') {
        return fail_unexpected(r, "':'");
    }
    r->at++;
    skip_space(r);
    return read_value(r, &ret->member.value);
}

/* Behind the opening brace. */
static enum status read_members(struct reader *r, struct json_value *ret)
{
    size_t base = r->used;
    skip_space(r);
    if (r->at < r->end && *r->at == '}') {
        r->at++;
        return close_object(r, base, ret);
    }
    for (;;) {
        struct entry entry;
        skip_space(r);
        enum status status = read_member(r, &entry);
        if (status == OK) {
            status = entries_push(r, &entry);
        }
        if (status != OK) {
            return status;
        }
        skip_space(r);
        if (r->at == r->end || (*r->at != ',' && *r->at != '}')) {
            return fail_unexpected(r, "',' or '}'");
        }
        if (*r->at++ == '}') {
            return close_object(r, base, ret);
        }
    }
}

static enum status read_container(struct reader *r, struct json_value *ret)
{
    if (r->depth == LIMIT_JSON_DEPTH_MAX) {
        return fail_with(
            r, E_LIMIT, r->at, "nested deeper than json_depth_max (%d)", LIMIT_JSON_DEPTH_MAX);
    }
    bool object = *r->at == '{';
    *ret = (struct json_value){
        .type = object ? JSON_OBJECT : JSON_ARRAY, .offset = (uint32_t)(r->at - r->start)};
    r->at++;
    r->depth++;
    enum status status = object ? read_members(r, ret) : read_items(r, ret);
    r->depth--;
    return status;
}

/* At the first byte of the value. */
static enum status read_value(struct reader *r, struct json_value *ret)
{
    switch (r->at < r->end ? *r->at : '\0') {
    case '"': return read_string(r, ret);
    case '{':
    case '[': return read_container(r, ret);
    case 't': return read_word(r, SLICE_LIT("true"), JSON_TRUE, ret);
    case 'f': return read_word(r, SLICE_LIT("false"), JSON_FALSE, ret);
    case 'n': return read_word(r, SLICE_LIT("null"), JSON_NULL, ret);
    case '-':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9': return read_number(r, ret);
    default: return fail_unexpected(r, "a value");
    }
}

static enum status read_document(struct reader *r, const struct json_value **ret)
{
    size_t size = (size_t)(r->end - r->start);
    if (size > LIMIT_JSON_BYTES_MAX) {
        return fail_with(
            r, E_LIMIT, r->start, "longer than json_bytes_max (%d)", LIMIT_JSON_BYTES_MAX);
    }
    if (size >= 3 && memcmp(r->start, "\xEF\xBB\xBF", 3) == 0) {
        return fail(r, r->start, "a byte order mark is not part of JSON");
    }
    struct json_value *root = arena_alloc(r->arena, sizeof *root);
    if (root == NULL) {
        return fail_memory(r, sizeof *root);
    }
    skip_space(r);
    enum status status = read_value(r, root);
    if (status != OK) {
        return status;
    }
    skip_space(r);
    if (r->at < r->end) {
        return fail_unexpected(r, "the end of the text");
    }
    *ret = root;
    return OK;
}

enum status json_read_placed(struct slice text, struct arena *arena, const struct json_value **ret,
    struct json_place *ret_place, struct err *err)
{
    struct reader r;
    r.start = text.len == 0 ? "" : text.data;
    r.at = r.start;
    r.end = r.start + text.len;
    r.arena = arena;
    r.err = err;
    r.fault = NULL;
    r.depth = 0;
    r.entries =
        r.first; /* not cleared: it is most of this struct, and only used entries are read */
    r.used = 0;
    r.room = ENTRIES_FIRST;
    enum status status = read_document(&r, ret);
    if (r.entries != r.first) {
        mem_free(arena->mem, r.entries);
    }
    if (r.fault != NULL && ret_place != NULL) {
        *ret_place = json_place(text, (size_t)(r.fault - r.start));
    }
    return status;
}

enum status json_read(
    struct slice text, struct arena *arena, const struct json_value **ret, struct err *err)
{
    return json_read_placed(text, arena, ret, NULL, err);
}
