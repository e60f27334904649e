/*
 * uuid: the two kinds of UUID that a client makes (RFC 9562), from random bytes given to it.
 */
#ifndef ONCE_CLIENT_UUID_H
#define ONCE_CLIENT_UUID_H

#include <stdint.h>

enum { CLIENT_UUID_BYTES = 16, CLIENT_UUID_SIZE = 37 }; /* random ones; text and its terminator */

/* Version 4: nothing but random bits. For keys, which tell nobody anything. */
void client_uuid4(char ret_text[CLIENT_UUID_SIZE], const unsigned char random[CLIENT_UUID_BYTES]);
/* Version 7: the time in front, so that the attempts of a log sort by themselves. */
void client_uuid7(char ret_text[CLIENT_UUID_SIZE], const unsigned char random[CLIENT_UUID_BYTES],
    int64_t wall_ms);

#endif
