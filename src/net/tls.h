/*
 * tls: TLS 1.2 and 1.3 for both sides of a stream, by OpenSSL over memory.
 *
 * Promises:  only TLS 1.2 and later; ALPN offers only http/1.1. A reload swaps the certificate for
 *            new connections, all or nothing; open ones keep theirs. At most one record waits here
 *            for a peer that does not read. A client reports connected only after it has verified
 *            the certificate and that it names the server.
 * Does not:  ask for client certificates or show one, resume with tickets across a restart, or read
 *            files after the load.
 * Threads:   a context may be loaded again on any thread, while the loops take from it; the rest on
 *            the stream's loop.
 */
#ifndef ONCE_NET_TLS_H
#define ONCE_NET_TLS_H

#include "base/err.h"
#include "net/stream.h"

/* A certificate and its key, and the files they came from; the paths are copied. */
enum status net_tls_context_new(const struct mem *mem, const char *cert_file, const char *key_file,
    struct net_tls_context **ret_context, struct err *err) MUST_CHECK;
/* A client's: whom to trust, from a PEM file, or NULL for the system's. E_INVALID, E_NOMEM. */
enum status net_tls_client_context_new(const struct mem *mem, const char *ca_file,
    struct net_tls_context **ret_context, struct err *err) MUST_CHECK;
void net_tls_context_free(struct net_tls_context *context);
/* Reads the files again into the context, without using them yet; then all contexts are switched,
 * or none. E_INVALID: the files do not load, or certificate and key do not match. */
enum status net_tls_context_load(struct net_tls_context *context, struct err *err) MUST_CHECK;
/* The end of the certificate that new connections are shown, in seconds since 1970; 0: of a client,
 * or not readable. Any thread. */
int64_t net_tls_context_expiry(struct net_tls_context *context);
/* Use what was loaded, or drop it. */
void net_tls_context_switch(struct net_tls_context *context, bool is_good);

/* One connection's; NULL is fine for free. */
enum status net_tls_new(
    struct net_tls_context *context, struct net_loop *loop, struct net_tls **ret_tls) MUST_CHECK;
enum status net_tls_new_client(struct net_tls_context *context, struct net_loop *loop,
    const char *server_name, struct net_tls **ret_tls) MUST_CHECK;
void net_tls_free(struct net_tls *tls);
/* Bytes from the wire; leads to events of the stream. */
void net_tls_take(struct net_stream *stream, struct slice bytes);
/* Hand on what was decrypted and had no room. */
void net_tls_pump(struct net_stream *stream);
enum net_sent net_tls_send(struct net_stream *stream, struct net_write *write,
    const struct slice *pieces, size_t count) MUST_CHECK;
size_t net_tls_unsent(const struct net_stream *stream);
/* Send close_notify, if it can be sent now. */
void net_tls_finish(struct net_stream *stream);
bool net_tls_is_ready(const struct net_tls *tls);
/* The handshake is done, and nothing waits here to be sent: then its loop may change. */
bool net_tls_is_quiet(const struct net_tls *tls);
/* The peer's close_notify has come. */
bool net_tls_has_ended(const struct net_tls *tls);

#endif
