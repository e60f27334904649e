/*
 * peer_jansson: jansson behind two functions, as its names and ours cannot be in one file.
 */
#ifndef ONCE_BENCH_PEER_JANSSON_H
#define ONCE_BENCH_PEER_JANSSON_H

#include <stddef.h>

/* json_loadb without flags; NULL when the text is refused. */
void *peer_jansson_parse(const char *text, size_t size);
void peer_jansson_free(void *root);

#endif
