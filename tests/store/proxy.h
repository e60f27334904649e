/*
 * proxy: stands between a store and its server, and cuts their connection where a test says.
 *
 * Each connection has a thread of its own; the bytes of all of them are counted together. A cut
 * closes both sides of one; what comes next passes whole, until the next cut is armed.
 */
#ifndef ONCE_TESTS_STORE_PROXY_H
#define ONCE_TESTS_STORE_PROXY_H

#include <stdbool.h>
#include <stddef.h>

struct proxy;

/* To that port of this machine. */
struct proxy *proxy_new(unsigned short port);
void proxy_free(struct proxy *proxy);
/* Where it listens. */
unsigned short proxy_port(const struct proxy *proxy);

/* Cut after this many more bytes to the server, or from it. */
void proxy_cut_request(struct proxy *proxy, long bytes);
void proxy_cut_answer(struct proxy *proxy, long bytes);
/* As proxy_cut_answer, at the end of a whole message of PostgreSQL's; the client then gets these
 * bytes instead of the rest. They stay the caller's. */
void proxy_end_answer(struct proxy *proxy, long bytes, const char *words, size_t size);
/* After the next cut, cut again: the same of the connection that follows (-1: do not). */
void proxy_cut_again(struct proxy *proxy, long request_bytes, long answer_bytes);
/* After the next cut, take no connection, as proxy_block. */
void proxy_block_after_cut(struct proxy *proxy);
/* Close the client's side at its next request, but keep what it sent; proxy_deliver gives it to the
 * server, and returns the beginning of what that says. */
void proxy_hold(struct proxy *proxy);
void proxy_deliver(struct proxy *proxy, char *ret_answer, size_t size);
/* Throw away what the server says (or hand it on again). */
void proxy_mute(struct proxy *proxy, bool is_muted);
/* Close every connection at once, and take none (or take them again). */
void proxy_block(struct proxy *proxy, bool is_blocked);
/* Whether a cut is still to come. */
bool proxy_is_armed(struct proxy *proxy);
/* Whether an armed cut has happened. */
bool proxy_has_cut(struct proxy *proxy);

#endif
