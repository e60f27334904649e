/*
 * text: small readers and writers of the formats that people type and read.
 *
 * Durations ("300ms", "30s", "5m", "24h", "14d"), sizes ("64KiB", "10MiB"), RFC 3339 times with
 * milliseconds in UTC, hex, and unsigned decimals. A reader accepts the whole slice or refuses it.
 */
#ifndef ONCE_BASE_TEXT_H
#define ONCE_BASE_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

enum { TEXT_TIME_BYTES = 25 }; /* "2026-11-15T19:23:27.123Z" and its terminator */

/* All return false and leave *ret untouched if the text is not exactly of that form. */
bool text_duration(struct slice text, int64_t *ret_ms);
bool text_size(struct slice text, uint64_t *ret_bytes);
bool text_u64(struct slice text, uint64_t *ret_value);
bool text_hex(struct slice text, void *ret_bytes, size_t size);
bool text_time(struct slice text, int64_t *ret_ms);
/* Any date and time of RFC 3339, as others write it: with or without a fraction of any length, and
 * "Z" or an offset. ret_ms is the whole second; the fraction's digits may be empty. */
bool text_instant(struct slice text, int64_t *ret_ms, struct slice *ret_fraction);

/* "2001:db8::1": without brackets; zones and future versions are refused. */
bool text_ipv6(struct slice text, unsigned char ret_address[16]);
/* How long the scheme, host and port of a URL are: its path begins there, if it has one. */
size_t text_url_origin(const char *url);

/* Valid UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing past U+10FFFF. */
bool text_utf8(struct slice text);

/* The shortest exact form: 86400000 is "24h", 90000 is "90s". Returns its argument. */
char *text_put_duration(char ret_text[32], int64_t ms);
/* "2026-11-15T19:23:27.123Z"; years 0 to 9999, others are clamped. Returns its argument. */
char *text_put_time(char ret_text[TEXT_TIME_BYTES], int64_t ms);
/* Lower-case hex of size bytes: 2 * size characters, no terminator. */
void text_put_hex_digits(char *ret_digits, const void *bytes, size_t size);
/* The same with a terminator. Returns its argument. */
char *text_put_hex(char *ret_text, const void *bytes, size_t size);
/* "1.5 GiB", for people only. Returns its argument. */
char *text_put_size(char ret_text[32], uint64_t bytes);

/* Whether a glob matches all of a text: '*' is any run of characters, possibly empty. */
bool text_glob(struct slice glob, struct slice text);

/* The name nearest to what was typed, or NULL if none is near. */
const char *text_nearest(const char *typed, const char *const *names, size_t count);

#endif
