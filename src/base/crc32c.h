/*
 * crc32c: the Castagnoli checksum of RFC 3720, by the CPU's instruction if it has one.
 */
#ifndef ONCE_BASE_CRC32C_H
#define ONCE_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Continue a checksum; start with 0. crc32c(crc32c(0, a), b) equals crc32c(0, ab). */
uint32_t crc32c(uint32_t crc, const void *data, size_t size);

#endif
