/*
 * http_peers: hold what our reader took against what the peers make of the same bytes.
 */
#ifndef ONCE_TESTS_FUZZ_HTTP_PEERS_H
#define ONCE_TESTS_FUZZ_HTTP_PEERS_H

#include "http_drive.h"

/*
 * For a message that is done: each peer has to take it, to see it end with the same byte, and to
 * read the same start, fields and body. Aborts with both readings when one does not.
 */
void http_peers_check(const struct drive *drive, const struct drive_input *input);

#endif
