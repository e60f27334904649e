#include "canon/json.h"

#include <endian.h>
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
struct json_entry {
    struct json_member member; /* items of arrays use the value only */
    uint64_t prefix;           /* first bytes of the name, see name_prefix */
};

/*
 * Every function below takes the place to read from and returns the place after what it read, or
 * NULL on failure, so that the place stays in a register. Values are read into entries, which are
 * referred to by number because growing moves them. Copying an entry just written stalls the
 * processor, because its narrow stores cannot be forwarded to wide loads: that cost a tenth of the
 * total time.
 */
struct json_reader {
    const char *start;                      /* the text */
    const char *end;                        /* its end */
    struct arena *arena;                    /* where containers and decoded strings go */
    struct err *err;                        /* for the text of a failure */
    enum status status;                     /* why it failed */
    const char *fault;                      /* where it failed; NULL: not at a place of the text */
    unsigned depth;                         /* open containers */
    size_t used;                            /* entries in use */
    size_t room;                            /* entries allocated */
    struct json_entry *entries;             /* values of all open containers, outermost first */
    struct json_entry first[ENTRIES_FIRST]; /* what entries is before it grows */
};

static const char *fail_as(struct json_reader *r, enum status status, const char *where,
    const char *format, ...) __attribute__((format(printf, 4, 5), noinline, cold));

static const char *fail_as(
    struct json_reader *r, enum status status, const char *where, const char *format, ...)
{
    char what[ERR_TEXT_BYTES_MAX];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(what, sizeof what, format, args);
    va_end(args);
    struct json_place place =
        json_place(slice_of(r->start, (size_t)(r->end - r->start)), (size_t)(where - r->start));
    r->fault = where;
    r->status = err_set(r->err, status, "line %zu, column %zu: %s", place.line, place.column, what);
    return NULL;
}

#define fail(r, where, ...) fail_as((r), E_INVALID, (where), __VA_ARGS__)

/* After an allocation of size bytes was refused. */
static const char *fail_memory(struct json_reader *r, const char *at, size_t size)
{
    /* The arena rounds up, by less than 16. */
    if (size > SIZE_MAX - 16 || size + 16 > r->arena->max - r->arena->held) {
        return fail_as(
            r, E_LIMIT, at, "needs more memory than the %zu bytes it may have", r->arena->max);
    }
    r->status = err_set(r->err, E_NOMEM, "out of memory");
    return NULL;
}

static const char *fail_unexpected(struct json_reader *r, const char *at, const char *expected)
{
    if (at == r->end) {
        return fail(r, at, "the text ends where %s is expected", expected);
    }
    unsigned char c = (unsigned char)*at;
    if (c > 0x20 && c < 0x7f) {
        return fail(r, at, "'%c' where %s is expected", c, expected);
    }
    return fail(r, at, "byte 0x%02x where %s is expected", c, expected);
}

/* The byte at a place, or zero at the end. JSON allows no zero byte anywhere. */
static inline char peek(const struct json_reader *r, const char *at)
{
    return at < r->end ? *at : '\0';
}

/* The first byte from *at that is not white space, or zero at the end; *at moves there. */
static inline char next_token(const struct json_reader *r, const char **at)
{
    char c = peek(r, *at);
    /* One space, as after a colon, is common enough to guess. */
    if (c == ' ') {
        *at += 1;
        c = peek(r, *at);
    }
    if ((unsigned char)c <= ' ') {
        *at = scan_space(*at, r->end);
        c = peek(r, *at);
    }
    return c;
}

/* Strings. */

static const char *fail_in_string(struct json_reader *r, const char *at)
{
    if (at == r->end) {
        return fail(r, at, "the text ends inside a string");
    }
    unsigned char c = (unsigned char)*at;
    if (c < 0x20) {
        return fail(r, at, "control character 0x%02x inside a string, it must be escaped", c);
    }
    return fail(r, at, "invalid UTF-8 (byte 0x%02x)", c);
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

/* At the backslash of a \u escape, or of the two that make a surrogate pair. */
static const char *read_unicode_escape(struct json_reader *r, const char *at, uint32_t *ret)
{
    uint32_t high, low;
    if (!read_hex4(at + 2, r->end, &high)) {
        return fail(r, at, "\\u needs four hexadecimal digits");
    }
    if (high < 0xD800 || high > 0xDFFF) {
        *ret = high;
        return at + 6;
    }
    if (high > 0xDBFF || r->end - at < 12 || at[6] != '\\' || at[7] != 'u' ||
        !read_hex4(at + 8, r->end, &low) || low < 0xDC00 || low > 0xDFFF) {
        return fail(r, at, "lone surrogate \\u%04x", (unsigned)high);
    }
    *ret = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    return at + 12;
}

/* At a backslash. */
static const char *read_escape(struct json_reader *r, const char *at, uint32_t *ret)
{
    static const char names[] = "\"\\/bfnrt";
    static const char codes[] = "\"\\/\b\f\n\r\t";
    char c = peek(r, at + 1);
    if (c == 'u') {
        return read_unicode_escape(r, at, ret);
    }
    const char *name = c == '\0' ? NULL : strchr(names, c);
    if (name == NULL) {
        return fail(r, at, "invalid escape in a string");
    }
    *ret = (unsigned char)codes[name - names];
    return at + 2;
}

/* Decode from `at` to the closing quote, where everything but the escapes is known to be valid. */
static const char *decode_string(
    struct json_reader *r, const char *at, const char *closing, char *to, struct json_value *ret)
{
    while (at < closing) {
        const char *run = scan_string_run(at, closing);
        memcpy(to, at, (size_t)(run - at));
        to += run - at;
        at = run;
        if (at < closing) {
            uint32_t code = 0;
            at = read_escape(r, at, &code);
            if (at == NULL) {
                return NULL;
            }
            ret->verbatim &= code >= 0x20 && code != '"' && code != '\\';
            to = scan_put_utf8(to, code);
        }
    }
    ret->count = (uint32_t)(to - ret->text);
    return closing + 1;
}

/* The closing quote of a string with escapes, everything else up to it being valid. */
static const char *find_closing(struct json_reader *r, const char *at)
{
    for (;;) {
        at = scan_string_run(at, r->end);
        if (at < r->end && *at == '"') {
            return at;
        }
        if (at == r->end || *at != '\\') {
            return fail_in_string(r, at);
        }
        if (r->end - at < 2) {
            return fail_in_string(r, r->end);
        }
        at += 2; /* the escaped byte cannot close the string; decoding checks it */
    }
}

/* After the opening quote, with the first escape found. */
static const char *read_escaped_string(
    struct json_reader *r, const char *at, const char *escape, struct json_value *ret)
{
    const char *closing = find_closing(r, escape);
    if (closing == NULL) {
        return NULL;
    }
    /* No escape is shorter than what it stands for, so the room of the source is enough. */
    size_t size = (size_t)(closing - at);
    char *text = arena_alloc(r->arena, size);
    if (text == NULL) {
        return fail_memory(r, at, size);
    }
    size_t plain = (size_t)(escape - at);
    memcpy(text, at, plain);
    ret->text = text;
    return decode_string(r, escape, closing, text + plain, ret);
}

/* After the opening quote of a string that is not all plain ASCII; plain ends its plain part. */
static __attribute__((noinline)) const char *read_other_string(
    struct json_reader *r, const char *at, const char *plain, struct json_value *ret)
{
    const char *run = scan_string_run(plain, r->end);
    char stop = peek(r, run);
    if (stop == '"') {
        ret->text = at;
        ret->count = (uint32_t)(run - at);
        return run + 1;
    }
    return stop == '\\' ? read_escaped_string(r, at, run, ret) : fail_in_string(r, run);
}

/* At the opening quote. */
static inline const char *read_string(struct json_reader *r, const char *at, struct json_value *ret)
{
    ret->type = JSON_STRING;
    ret->verbatim = true;
    ret->offset = (uint32_t)(at - r->start);
    at++;
    const char *run = scan_ascii_run(at, r->end);
    if (peek(r, run) != '"') {
        return read_other_string(r, at, run, ret);
    }
    ret->text = at;
    ret->count = (uint32_t)(run - at);
    return run + 1;
}

/* Numbers and words. */

static inline const char *read_digits(struct json_reader *r, const char *at)
{
    const char *from = at;
    while (at < r->end && scan_is_digit(*at)) {
        at++;
    }
    return at > from ? at : fail_unexpected(r, at, "a digit");
}

/* After the integer part. */
static const char *read_fraction_and_exponent(struct json_reader *r, const char *at)
{
    if (peek(r, at) == '.') {
        at = read_digits(r, at + 1);
    }
    if (at != NULL && (peek(r, at) == 'e' || peek(r, at) == 'E')) {
        at++;
        at += peek(r, at) == '+' || peek(r, at) == '-';
        at = read_digits(r, at);
    }
    return at;
}

static const char *read_number(struct json_reader *r, const char *at, struct json_value *ret)
{
    const char *from = at;
    bool negative = *from == '-';
    const char *digits = from + negative;
    at = read_digits(r, digits);
    if (at == NULL) {
        return NULL;
    }
    if (*digits == '0' && at - digits > 1) {
        return fail(r, digits, "a number may not begin with zero");
    }
    /* A short integer is its own canonical form; minus zero is the exception, it becomes "0". */
    ret->verbatim = at - digits <= NUMBER_VERBATIM_DIGITS && !(negative && *digits == '0');
    char next = peek(r, at);
    if (next == '.' || next == 'e' || next == 'E') {
        ret->verbatim = false;
        at = read_fraction_and_exponent(r, at);
    }
    ret->type = JSON_NUMBER;
    ret->offset = (uint32_t)(from - r->start);
    ret->count = at == NULL ? 0 : (uint32_t)(at - from);
    ret->text = from;
    return at;
}

static const char *read_word(struct json_reader *r, const char *at, struct slice word,
    enum json_type type, struct json_value *ret)
{
    if ((size_t)(r->end - at) < word.len || memcmp(at, word.data, word.len) != 0) {
        return fail_unexpected(r, at, "a value");
    }
    *ret = (struct json_value){.type = type, .offset = (uint32_t)(at - r->start)};
    return at + word.len;
}

/* Containers. */

static bool entries_grow(struct json_reader *r, const char *at)
{
    size_t room = r->room * 2;
    bool first = r->entries == r->first;
    if (room * sizeof *r->entries > r->arena->max) {
        return fail_memory(r, at, SIZE_MAX) != NULL;
    }
    struct json_entry *entries =
        mem_resize(r->arena->mem, first ? NULL : r->entries, room * sizeof *entries);
    if (entries == NULL) {
        return fail_memory(r, at, 0) != NULL;
    }
    if (first) {
        memcpy(entries, r->first, sizeof r->first);
    }
    r->entries = entries;
    r->room = room;
    return true;
}

/* Make sure that there is a next entry. */
static inline bool entries_room(struct json_reader *r, const char *at)
{
    return r->used < r->room || entries_grow(r, at);
}

static const char *read_container(struct json_reader *r, const char *at, size_t index);

static inline struct json_value *value_at(struct json_reader *r, size_t index)
{
    return &r->entries[index].member.value;
}

/* A value and the white space before it. */
static inline const char *read_value(struct json_reader *r, const char *at, size_t index)
{
    switch (next_token(r, &at)) {
    case '"': return read_string(r, at, value_at(r, index));
    case '{':
    case '[': return read_container(r, at, index);
    case 't': return read_word(r, at, SLICE_LIT("true"), JSON_TRUE, value_at(r, index));
    case 'f': return read_word(r, at, SLICE_LIT("false"), JSON_FALSE, value_at(r, index));
    case 'n': return read_word(r, at, SLICE_LIT("null"), JSON_NULL, value_at(r, index));
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
    case '9': return read_number(r, at, value_at(r, index));
    default: return fail_unexpected(r, at, "a value");
    }
}

/* Move the entries from base on into the arena. Like the next, this returns `at` or NULL. */
static const char *close_array(
    struct json_reader *r, const char *at, size_t base, struct json_value *ret)
{
    size_t count = r->used - base;
    ret->count = (uint32_t)count;
    ret->items = NULL;
    if (count == 0) {
        return at;
    }
    struct json_value *items = arena_alloc(r->arena, count * sizeof *items);
    if (items == NULL) {
        return fail_memory(r, at, count * sizeof *items);
    }
    for (size_t i = 0; i < count; i++) {
        items[i] = r->entries[base + i].member.value;
    }
    ret->items = items;
    r->used = base;
    return at;
}

/* After the opening bracket. */
static const char *read_items(struct json_reader *r, const char *at, struct json_value *ret)
{
    size_t base = r->used;
    if (next_token(r, &at) == ']') {
        return close_array(r, at + 1, base, ret);
    }
    while (entries_room(r, at)) {
        at = read_value(r, at, r->used++);
        if (at == NULL) {
            return NULL;
        }
        char c = next_token(r, &at);
        if (c == ']') {
            return close_array(r, at + 1, base, ret);
        }
        if (c != ',') {
            return fail_unexpected(r, at, "',' or ']'");
        }
        at++;
    }
    return NULL;
}

/* The first eight bytes of a name, the first one highest, padded with zeros. */
static inline uint64_t first_bytes(const char *text, uint32_t count)
{
    if (count >= 8) {
        uint64_t bytes;
        memcpy(&bytes, text, sizeof bytes);
        return be64toh(bytes);
    }
    if (count >= 4) {
        uint32_t high, low;
        memcpy(&high, text, sizeof high);
        memcpy(&low, text + count - 4, sizeof low);
        /* The two loads overlap; shifting drops from the second what the first has. */
        low = (uint32_t)((uint64_t)be32toh(low) << (8 * (8 - count)));
        return (uint64_t)be32toh(high) << 32 | low;
    }
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        bytes |= (uint64_t)(unsigned char)text[i] << (56 - 8 * i);
    }
    return bytes;
}

/* The same, made to sort as json_order does: it puts the lead bytes EE and EF above all others. */
static inline uint64_t name_prefix(const struct json_value *name)
{
    uint64_t bytes = first_bytes(name->text, name->count);
    if ((bytes & UINT64_C(0x8080808080808080)) != 0) {
        for (int shift = 0; shift < 64; shift += 8) {
            uint64_t byte = bytes >> shift & 0xFF;
            bytes += byte == 0xEE || byte == 0xEF ? UINT64_C(0x10) << shift : 0;
        }
    }
    return bytes;
}

/* The order of two entries by name. */
static inline int entry_order(const struct json_entry *a, const struct json_entry *b)
{
    if (a->prefix != b->prefix) {
        return a->prefix < b->prefix ? -1 : 1;
    }
    return json_order(json_text(&a->member.name), json_text(&b->member.name));
}

/* Insertion sort, for small objects, which nearly all are. Members already in order do not move. */
static void sort_few(const struct json_entry *entries, uint32_t *order, uint32_t count)
{
    uint64_t sorted[SORT_INSERTION_MAX]; /* the prefixes, side by side */
    for (uint32_t i = 0; i < count; i++) {
        uint64_t prefix = entries[i].prefix;
        uint32_t j = i;
        while (j > 0 && (sorted[j - 1] > prefix ||
                            (sorted[j - 1] == prefix &&
                                entry_order(&entries[order[j - 1]], &entries[i]) > 0))) {
            sorted[j] = sorted[j - 1];
            order[j] = order[j - 1];
            j--;
        }
        sorted[j] = prefix;
        order[j] = i;
    }
}

static void merge_runs(const struct json_entry *entries, const uint32_t *from, uint32_t left,
    uint32_t right, uint32_t *to)
{
    uint32_t i = 0;
    uint32_t j = left;
    while (i < left || j < left + right) {
        bool take_left = j == left + right ||
                         (i < left && entry_order(&entries[from[i]], &entries[from[j]]) <= 0);
        *to++ = take_left ? from[i++] : from[j++];
    }
}

/* Merging, so that no document makes sorting quadratic. Needs as much room again; returns the half
 * of the room that the sorted order ended up in. */
static uint32_t *sort_many(
    const struct json_entry *entries, uint32_t *order, uint32_t *spare, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        order[i] = i;
    }
    for (uint32_t width = 1; width < count; width *= 2) {
        for (uint32_t from = 0; from < count; from += 2 * width) {
            uint32_t left = count - from < width ? count - from : width;
            uint32_t right = count - from - left < width ? count - from - left : width;
            merge_runs(entries, order + from, left, right, spare + from);
        }
        uint32_t *sorted = spare;
        spare = order;
        order = sorted;
    }
    return order;
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

/* Copy the entries from base on into the arena in their sorted order. */
static const char *place_members(struct json_reader *r, const char *at, size_t base,
    const uint32_t *order, struct json_value *ret)
{
    const struct json_entry *entries = r->entries + base;
    struct json_member *members = arena_alloc(r->arena, ret->count * sizeof *members);
    if (members == NULL) {
        return fail_memory(r, at, ret->count * sizeof *members);
    }
    for (uint32_t i = 0; i < ret->count; i++) {
        const struct json_entry *entry = &entries[order[i]];
        members[i] = entry->member;
        if (i > 0 && entry->prefix == entries[order[i - 1]].prefix &&
            entry_order(&entries[order[i - 1]], entry) == 0) {
            char shown[QUOTE_BYTES_MAX];
            quote_name(shown, json_text(&entry->member.name));
            return fail(r, r->start + entry->member.name.offset, "duplicate member \"%s\"", shown);
        }
    }
    ret->members = members;
    r->used = base;
    return at;
}

static const char *close_large_object(
    struct json_reader *r, const char *at, size_t base, struct json_value *ret)
{
    const struct mem *mem = r->arena->mem;
    uint32_t *order = mem_alloc(mem, 2 * ret->count * sizeof *order);
    if (order == NULL) {
        return fail_memory(r, at, 0);
    }
    const uint32_t *sorted = sort_many(r->entries + base, order, order + ret->count, ret->count);
    at = place_members(r, at, base, sorted, ret);
    mem_free(mem, order);
    return at;
}

static const char *close_object(
    struct json_reader *r, const char *at, size_t base, struct json_value *ret)
{
    ret->count = (uint32_t)(r->used - base);
    ret->members = NULL;
    if (ret->count == 0) {
        return at;
    }
    if (ret->count > SORT_INSERTION_MAX) {
        return close_large_object(r, at, base, ret);
    }
    uint32_t order[SORT_INSERTION_MAX];
    sort_few(r->entries + base, order, ret->count);
    return place_members(r, at, base, order, ret);
}

/* A name, its colon, and the white space before each, into the entry. */
static inline const char *read_name(struct json_reader *r, const char *at, struct json_entry *ret)
{
    if (next_token(r, &at) != '"') {
        return fail_unexpected(r, at, "a member name");
    }
    at = read_string(r, at, &ret->member.name);
    if (at == NULL) {
        return NULL;
    }
    ret->prefix = name_prefix(&ret->member.name);
    return next_token(r, &at) == ':' ? at + 1 : fail_unexpected(r, at, "':'");
}

/* After the opening brace. */
static const char *read_members(struct json_reader *r, const char *at, struct json_value *ret)
{
    size_t base = r->used;
    if (next_token(r, &at) == '}') {
        return close_object(r, at + 1, base, ret);
    }
    while (entries_room(r, at)) {
        size_t index = r->used++;
        at = read_name(r, at, &r->entries[index]);
        at = at == NULL ? NULL : read_value(r, at, index);
        if (at == NULL) {
            return NULL;
        }
        char c = next_token(r, &at);
        if (c == '}') {
            return close_object(r, at + 1, base, ret);
        }
        if (c != ',') {
            return fail_unexpected(r, at, "',' or '}'");
        }
        at++;
    }
    return NULL;
}

static const char *read_container(struct json_reader *r, const char *at, size_t index)
{
    if (r->depth == LIMIT_JSON_DEPTH_MAX) {
        return fail_as(
            r, E_LIMIT, at, "nested deeper than json_depth_max (%d)", LIMIT_JSON_DEPTH_MAX);
    }
    const char *from = at;
    bool object = *from == '{';
    struct json_value value = {.type = object ? JSON_OBJECT : JSON_ARRAY};
    r->depth++;
    at = object ? read_members(r, from + 1, &value) : read_items(r, from + 1, &value);
    r->depth--;
    struct json_value *ret = value_at(r, index);
    ret->type = value.type;
    ret->verbatim = false;
    ret->offset = (uint32_t)(from - r->start);
    ret->count = value.count;
    ret->items = value.items;
    return at;
}

/* The whole text, into the first entry. */
static const char *read_document(struct json_reader *r)
{
    size_t size = (size_t)(r->end - r->start);
    if (size > LIMIT_JSON_BYTES_MAX) {
        return fail_as(
            r, E_LIMIT, r->start, "longer than json_bytes_max (%d)", LIMIT_JSON_BYTES_MAX);
    }
    if (size >= 3 && memcmp(r->start, "\xEF\xBB\xBF", 3) == 0) {
        return fail(r, r->start, "a byte order mark is not part of JSON");
    }
    const char *at = read_value(r, r->start, r->used++);
    if (at == NULL) {
        return NULL;
    }
    at = scan_space(at, r->end);
    return at == r->end ? at : fail_unexpected(r, at, "the end of the text");
}

enum status json_read_placed(struct slice text, struct arena *arena, const struct json_value **ret,
    struct json_place *ret_place, struct err *err)
{
    struct json_value *root = arena_alloc(arena, sizeof *root);
    if (root == NULL) {
        return err_set(err, E_NOMEM, "out of memory");
    }
    struct json_reader r;
    r.start = text.len == 0 ? "" : text.data;
    r.end = r.start + text.len;
    r.arena = arena;
    r.err = err;
    r.status = OK;
    r.fault = NULL;
    r.depth = 0;
    r.used = 0;
    r.room = ENTRIES_FIRST;
    r.entries = r.first; /* not cleared: it is most of the reader, and only used entries are read */
    const char *end = read_document(&r);
    *root = *value_at(&r, 0);
    if (r.entries != r.first) {
        mem_free(arena->mem, r.entries);
    }
    if (end == NULL) {
        ASSERT(r.status != OK);
        if (r.fault != NULL && ret_place != NULL) {
            *ret_place = json_place(text, (size_t)(r.fault - r.start));
        }
        return r.status;
    }
    *ret = root;
    return OK;
}

enum status json_read(
    struct slice text, struct arena *arena, const struct json_value **ret, struct err *err)
{
    return json_read_placed(text, arena, ret, NULL, err);
}
