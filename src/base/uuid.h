/*
 * uuid: the two UUID versions that we generate (RFC 9562), and their text.
 */
#ifndef ONCE_BASE_UUID_H
#define ONCE_BASE_UUID_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"

enum {
    UUID_BYTES = 16,
    UUID_TEXT_BYTES = 37, /* 8-4-4-4-12 digits and a terminator */
};

/* Turn random bytes into a UUID of version 4. */
void uuid_v4(unsigned char bytes[UUID_BYTES]);
/* Turn random bytes into a UUID of version 7: the first 48 bits become the time. */
void uuid_v7(unsigned char bytes[UUID_BYTES], int64_t wall_ms);
/* A new UUID of version 4, as text. E_UNAVAILABLE if the kernel provides no random bytes. */
enum status uuid_new(char ret_text[UUID_TEXT_BYTES], struct err *err) MUST_CHECK;
/* The same, to name a request and nothing else (rand_names). */
enum status uuid_new_name(char ret_text[UUID_TEXT_BYTES], struct err *err) MUST_CHECK;

/* Lower-case hex digits. Returns its argument. */
char *uuid_put(char ret_text[UUID_TEXT_BYTES], const unsigned char bytes[UUID_BYTES]);
/* Reads any version, in either case. False: the text is not a UUID. */
bool uuid_read(struct slice text, unsigned char ret_bytes[UUID_BYTES]);

#endif
