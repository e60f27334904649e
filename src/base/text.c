#include "base/text.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/macros.h"
#include "base/scan.h"

struct unit {
    const char *name;
    uint64_t factor;
};

/* Longest factor first, so that text_put_duration finds the shortest exact form. Days are read but
 * not written: the source documents state windows in hours, as in "24h". */
static const struct unit durations[] = {
    {"d", 86400000}, {"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}};
static const struct unit sizes[] = {
    {"GiB", 1u << 30}, {"MiB", 1u << 20}, {"KiB", 1u << 10}, {"B", 1}, {"", 1}};

bool text_u64(struct slice text, uint64_t *ret_value)
{
    uint64_t value = 0;
    if (text.len == 0) {
        return false;
    }
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] < '0' || text.data[i] > '9') {
            return false;
        }
        uint64_t digit = (uint64_t)(text.data[i] - '0');
        if (value > (UINT64_MAX - digit) / 10) {
            return false;
        }
        value = value * 10 + digit;
    }
    *ret_value = value;
    return true;
}

static bool read_with_unit(
    struct slice text, const struct unit *units, size_t count, uint64_t *ret_value)
{
    size_t digits = 0;
    while (digits < text.len && text.data[digits] >= '0' && text.data[digits] <= '9') {
        digits++;
    }
    uint64_t value;
    if (!text_u64(slice_of(text.data, digits), &value)) {
        return false;
    }
    struct slice name = slice_of(text.data + digits, text.len - digits);
    for (size_t i = 0; i < count; i++) {
        if (slice_is(name, units[i].name)) {
            if (value > INT64_MAX / units[i].factor) {
                return false;
            }
            *ret_value = value * units[i].factor;
            return true;
        }
    }
    return false;
}

bool text_duration(struct slice text, int64_t *ret_ms)
{
    uint64_t value;
    if (!read_with_unit(text, durations, COUNT(durations), &value)) {
        return false;
    }
    *ret_ms = (int64_t)value;
    return true;
}

bool text_size(struct slice text, uint64_t *ret_bytes)
{
    return read_with_unit(text, sizes, COUNT(sizes), ret_bytes);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    if (c >= 'A' && c <= 'F') {
        return c - 'A' + 10;
    }
    return -1;
}

bool text_hex(struct slice text, void *ret_bytes, size_t size)
{
    if (text.len != size * 2) {
        return false;
    }
    for (size_t i = 0; i < text.len; i++) {
        if (hex_digit(text.data[i]) < 0) {
            return false;
        }
    }
    unsigned char *bytes = ret_bytes;
    for (size_t i = 0; i < size; i++) {
        bytes[i] =
            (unsigned char)(hex_digit(text.data[2 * i]) * 16 + hex_digit(text.data[2 * i + 1]));
    }
    return true;
}

char *text_put_duration(char ret_text[32], int64_t ms)
{
    ASSERT(ms >= 0);
    for (size_t i = 1; i < COUNT(durations); i++) {
        int64_t factor = (int64_t)durations[i].factor;
        if (ms % factor == 0 && (ms > 0 || factor == 1000)) {
            (void)snprintf(ret_text, 32, "%lld%s", (long long)(ms / factor), durations[i].name);
            return ret_text;
        }
    }
    return ret_text;
}

/* Days since 1970 of a date in the proleptic Gregorian calendar, and back. The year is taken to
 * begin in March, so that the leap day comes last and month lengths follow one formula. */
static int64_t days_of_date(int64_t year, int64_t month, int64_t day)
{
    year -= month <= 2;
    int64_t era = (year >= 0 ? year : year - 399) / 400;
    int64_t year_of_era = year - era * 400;
    int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    return era * 146097 + day_of_era - 719468;
}

static void date_of_days(int64_t days, int64_t *ret_year, int64_t *ret_month, int64_t *ret_day)
{
    days += 719468;
    int64_t era = (days >= 0 ? days : days - 146096) / 146097;
    int64_t day_of_era = days - era * 146097;
    int64_t year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t month_from_march = (5 * day_of_year + 2) / 153;
    *ret_day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    *ret_month = month_from_march + (month_from_march < 10 ? 3 : -9);
    *ret_year = year_of_era + era * 400 + (*ret_month <= 2);
}

static char *put_digits(char *at, int64_t value, int count)
{
    for (int i = count - 1; i >= 0; i--) {
        at[i] = (char)('0' + value % 10);
        value /= 10;
    }
    return at + count;
}

char *text_put_time(char ret_text[TEXT_TIME_BYTES], int64_t ms)
{
    const int64_t first = -62167219200000; /* 0000-01-01 */
    const int64_t last = 253402300799999;  /* 9999-12-31T23:59:59.999Z */
    ms = ms < first ? first : ms > last ? last : ms;

    int64_t days = ms / 86400000 - (ms % 86400000 < 0);
    int64_t in_day = ms - days * 86400000;
    int64_t year, month, day;
    date_of_days(days, &year, &month, &day);

    char *at = put_digits(ret_text, year, 4);
    *at++ = '-';
    at = put_digits(at, month, 2);
    *at++ = '-';
    at = put_digits(at, day, 2);
    *at++ = 'T';
    at = put_digits(at, in_day / 3600000, 2);
    *at++ = ':';
    at = put_digits(at, in_day / 60000 % 60, 2);
    *at++ = ':';
    at = put_digits(at, in_day / 1000 % 60, 2);
    *at++ = '.';
    at = put_digits(at, in_day % 1000, 3);
    *at++ = 'Z';
    *at = '\0';
    ASSERT(at == ret_text + TEXT_TIME_BYTES - 1);
    return ret_text;
}

static bool read_digits(struct slice text, size_t from, size_t count, int64_t *ret_value)
{
    uint64_t value;
    if (!text_u64(slice_of(text.data + from, count), &value)) {
        return false;
    }
    *ret_value = (int64_t)value;
    return true;
}

bool text_time(struct slice text, int64_t *ret_ms)
{
    int64_t year, month, day, hour, minute, second, milli;
    if (text.len != TEXT_TIME_BYTES - 1 || text.data[4] != '-' || text.data[7] != '-' ||
        text.data[10] != 'T' || text.data[13] != ':' || text.data[16] != ':' ||
        text.data[19] != '.' || text.data[23] != 'Z') {
        return false;
    }
    if (!read_digits(text, 0, 4, &year) || !read_digits(text, 5, 2, &month) ||
        !read_digits(text, 8, 2, &day) || !read_digits(text, 11, 2, &hour) ||
        !read_digits(text, 14, 2, &minute) || !read_digits(text, 17, 2, &second) ||
        !read_digits(text, 20, 3, &milli)) {
        return false;
    }
    if (month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 || second > 59) {
        return false;
    }
    int64_t ms = days_of_date(year, month, day) * 86400000 + hour * 3600000 + minute * 60000 +
                 second * 1000 + milli;
    /* Refuse the 31st of a short month: written back it would be a different day. */
    char again[TEXT_TIME_BYTES];
    if (memcmp(text_put_time(again, ms), text.data, text.len) != 0) {
        return false;
    }
    *ret_ms = ms;
    return true;
}

enum {
    SECOND_BYTES = sizeof "2026-11-15T19:23:27" - 1,
    OFFSET_BYTES = sizeof "+02:00" - 1,
    MINUTE_MS = 60000,
};

/* "Z", "+02:00": how far ahead of UTC. */
static bool read_offset(struct slice text, int64_t *ret_ms)
{
    int64_t hours, minutes;
    if (text.len == 1 && (text.data[0] == 'Z' || text.data[0] == 'z')) {
        *ret_ms = 0;
        return true;
    }
    if (text.len != OFFSET_BYTES || (text.data[0] != '+' && text.data[0] != '-') ||
        text.data[3] != ':' || !read_digits(text, 1, 2, &hours) ||
        !read_digits(text, 4, 2, &minutes) || hours > 23 || minutes > 59) {
        return false;
    }
    *ret_ms = (hours * 60 + minutes) * (text.data[0] == '-' ? -MINUTE_MS : MINUTE_MS);
    return true;
}

bool text_instant(struct slice text, int64_t *ret_ms, struct slice *ret_fraction)
{
    char plain[TEXT_TIME_BYTES];
    int64_t ms, offset_ms;
    if (text.len <= SECOND_BYTES) {
        return false;
    }
    memcpy(plain, text.data, SECOND_BYTES);
    memcpy(plain + SECOND_BYTES, ".000Z", sizeof ".000Z");
    if (plain[10] == 't' || plain[10] == ' ') { /* RFC 3339 section 5.6 */
        plain[10] = 'T';
    }
    size_t at = SECOND_BYTES;
    size_t digits = 0;
    if (text.data[at] == '.') {
        at++;
        while (at + digits < text.len && text.data[at + digits] >= '0' &&
               text.data[at + digits] <= '9') {
            digits++;
        }
        if (digits == 0) {
            return false;
        }
    }
    struct slice rest = slice_of(text.data + at + digits, text.len - at - digits);
    if (!text_time(slice_of(plain, TEXT_TIME_BYTES - 1), &ms) || !read_offset(rest, &offset_ms)) {
        return false;
    }
    *ret_ms = ms - offset_ms;
    *ret_fraction = slice_of(text.data + at, digits);
    return true;
}

bool text_ipv6(struct slice text, unsigned char ret_address[16])
{
    char copy[INET6_ADDRSTRLEN];
    struct in6_addr address;
    if (text.len >= sizeof copy || memchr(text.data, '\0', text.len) != NULL) {
        return false;
    }
    memcpy(copy, text.data, text.len);
    copy[text.len] = '\0';
    if (inet_pton(AF_INET6, copy, &address) != 1) {
        return false;
    }
    memcpy(ret_address, address.s6_addr, sizeof address.s6_addr);
    return true;
}

size_t text_url_origin(const char *url)
{
    const char *host = strstr(url, "://");
    const char *path = host == NULL ? NULL : strchr(host + 3, '/');
    return path == NULL ? strlen(url) : (size_t)(path - url);
}

/* Computed and not looked up in a table, so that the compiler handles 16 bytes at a time. */
static inline unsigned char hex_of(unsigned char nibble)
{
    return (unsigned char)(nibble + '0' + (nibble > 9 ? 'a' - '9' - 1 : 0));
}

void text_put_hex_digits(char *ret_digits, const void *bytes, size_t size)
{
    const unsigned char *from = bytes;
    unsigned char *to = (unsigned char *)ret_digits;
    for (size_t i = 0; i < size; i++) {
        to[2 * i] = hex_of((unsigned char)(from[i] >> 4));
        to[2 * i + 1] = hex_of(from[i] & 15);
    }
}

char *text_put_hex(char *ret_text, const void *bytes, size_t size)
{
    text_put_hex_digits(ret_text, bytes, size);
    ret_text[2 * size] = '\0';
    return ret_text;
}

char *text_put_size(char ret_text[32], uint64_t bytes)
{
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    double value = (double)bytes;
    while (value >= 1024 && unit + 1 < COUNT(names)) {
        value /= 1024;
        unit++;
    }
    (void)snprintf(ret_text, 32, unit == 0 ? "%.0f %s" : "%.1f %s", value, names[unit]);
    return ret_text;
}

/* Whether eight bytes are all ASCII, as in most names. */
static bool ascii8(const char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return (word & UINT64_C(0x8080808080808080)) == 0;
}

bool text_utf8(struct slice text)
{
    size_t at = 0;
    while (at < text.len) {
        if (text.len - at >= 8 && ascii8(text.data + at)) {
            at += 8;
            continue;
        }
        if (text.len - at < 8 && text.len >= 8 && ascii8(text.data + text.len - 8)) {
            return true; /* the last eight, of which some are known to be valid */
        }
        bool is_ascii = (unsigned char)text.data[at] < 0x80;
        size_t size = is_ascii ? 1 : scan_utf8(text.data + at, text.data + text.len);
        if (size == 0) {
            return false;
        }
        at += size;
    }
    return true;
}

/* ---- near names ------------------------------------------------------------------------- */

enum { NAME_BYTES_MAX = 32 }; /* of a command, an option or a setting */

/* Levenshtein distance of two short names. */
static size_t distance(const char *a, const char *b)
{
    size_t row[NAME_BYTES_MAX + 1];
    size_t b_len = strlen(b);
    if (strlen(a) > NAME_BYTES_MAX || b_len > NAME_BYTES_MAX) {
        return NAME_BYTES_MAX;
    }
    for (size_t k = 0; k <= b_len; k++) {
        row[k] = k;
    }
    for (size_t i = 0; a[i] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t k = 1; k <= b_len; k++) {
            size_t change = diagonal + (a[i] != b[k - 1]);
            size_t shorter = row[k] < row[k - 1] ? row[k] + 1 : row[k - 1] + 1;
            diagonal = row[k];
            row[k] = change < shorter ? change : shorter;
        }
    }
    return row[b_len];
}

const char *text_nearest(const char *typed, const char *const *names, size_t count)
{
    const char *best = NULL;
    size_t best_distance = strlen(typed) / 3 + 2; /* one typo in three letters is still near */
    for (size_t i = 0; i < count; i++) {
        bool begins = strlen(typed) >= 2 && strncmp(names[i], typed, strlen(typed)) == 0;
        size_t far = begins ? 0 : distance(typed, names[i]);
        if (far < best_distance) {
            best_distance = far;
            best = names[i];
        }
    }
    return best;
}

/* Only the last star is ever retried: whatever an earlier one could match, the last can too. */
bool text_glob(struct slice glob, struct slice text)
{
    size_t g = 0;
    size_t t = 0;
    size_t star = SIZE_MAX; /* after the last star, once there has been one */
    size_t star_t = 0;      /* where the rest was last tried */
    while (t < text.len) {
        if (g < glob.len && glob.data[g] == '*') {
            star = ++g;
            star_t = t;
        } else if (g < glob.len && glob.data[g] == text.data[t]) {
            g++;
            t++;
        } else if (star != SIZE_MAX) {
            g = star;
            t = ++star_t;
        } else {
            return false;
        }
    }
    while (g < glob.len && glob.data[g] == '*') {
        g++;
    }
    return g == glob.len;
}
