/*
 * TLS under a link, by OpenSSL. Debian's hiredis has none, and its sockets are not used anyway.
 *
 * The server's certificate must be trusted and name the host that we connected to; no option
 * disables that. The bytes go through our own BIO: OpenSSL's would raise SIGPIPE in the program
 * that this library is a part of.
 */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/check.h"
#include "base/tls_name.h"
#include "store/redis/impl.h"

const char *tls_reason(void)
{
    unsigned long first = ERR_peek_error();
    unsigned long last = ERR_peek_last_error();
    const char *reason = last == 0 ? NULL : ERR_reason_error_string(last);
    if (ERR_SYSTEM_ERROR(first)) { /* what follows it only says that there was one */
        reason = strerror(ERR_GET_REASON(first));
    }
    ERR_clear_error();
    return last != 0 && reason == NULL ? "refused" : reason;
}

/* ---- the socket as a BIO -------------------------------------------------------------------- */

static int fd_of(BIO *bio)
{
    const struct redis_link *link = BIO_get_data(bio);
    return link->fd;
}

static bool is_passing(int errno_value)
{
    return errno_value == EAGAIN || errno_value == EWOULDBLOCK || errno_value == EINTR;
}

static int socket_write(BIO *bio, const char *bytes, int size)
{
    BIO_clear_retry_flags(bio);
    ssize_t sent = send(fd_of(bio), bytes, (size_t)size, MSG_NOSIGNAL);
    if (sent < 0 && is_passing(errno)) {
        BIO_set_retry_write(bio);
    }
    return (int)sent;
}

static int socket_read(BIO *bio, char *ret_bytes, int size)
{
    BIO_clear_retry_flags(bio);
    ssize_t got = recv(fd_of(bio), ret_bytes, (size_t)size, 0);
    if (got < 0 && is_passing(errno)) {
        BIO_set_retry_read(bio);
    }
    return (int)got;
}

static long socket_control(BIO *bio, int command, long number, void *argument)
{
    (void)bio, (void)number, (void)argument;
    return command == BIO_CTRL_FLUSH; /* nothing is buffered here */
}

static BIO_METHOD *method_new(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "redis link");
    if (method != NULL && (BIO_meth_set_write(method, socket_write) != 1 ||
                              BIO_meth_set_read(method, socket_read) != 1 ||
                              BIO_meth_set_ctrl(method, socket_control) != 1)) {
        BIO_meth_free(method);
        return NULL;
    }
    return method;
}

/* ---- what all links of a handle share ------------------------------------------------------- */

static enum status cannot_load(struct err *err, const char *what, const char *file)
{
    const char *reason = tls_reason();
    return err_set(err, E_INVALID, "cannot load %s '%s': %s", what, file,
        reason == NULL ? "no such file, or not PEM" : reason);
}

static enum status files_load(SSL_CTX *context, const struct redis_url *url, struct err *err)
{
    if (url->ca_file[0] != '\0') {
        if (SSL_CTX_load_verify_file(context, url->ca_file) != 1) {
            return cannot_load(err, "the certificates of", url->ca_file);
        }
    } else if (SSL_CTX_set_default_verify_paths(context) != 1) {
        return err_set(err, E_NOMEM, "cannot load the system's certificates");
    }
    if (url->cert_file[0] == '\0') {
        return OK;
    }
    if (SSL_CTX_use_certificate_chain_file(context, url->cert_file) != 1) {
        return cannot_load(err, "certificate", url->cert_file);
    }
    return SSL_CTX_use_PrivateKey_file(context, url->key_file, SSL_FILETYPE_PEM) == 1 &&
                   SSL_CTX_check_private_key(context) == 1
               ? OK
               : cannot_load(err, "key", url->key_file);
}

static int no_passphrase(char *ret_text, int size, int is_writing, void *context)
{
    (void)ret_text, (void)size, (void)is_writing, (void)context;
    return 0; /* there is nobody to ask for a passphrase */
}

enum status redis_tls_init(struct redis_tls *tls, const struct redis_url *url, struct err *err)
{
    *tls = (struct redis_tls){.context = NULL};
    if (!url->tls) {
        return OK;
    }
    ERR_clear_error();
    tls->method = method_new();
    tls->context = SSL_CTX_new(TLS_client_method());
    if (tls->method == NULL || tls->context == NULL ||
        SSL_CTX_set_min_proto_version(tls->context, TLS1_2_VERSION) != 1) {
        redis_tls_release(tls);
        return err_set(err, E_NOMEM, "cannot make a TLS context");
    }
    SSL_CTX_set_default_passwd_cb(tls->context, no_passphrase);
    SSL_CTX_set_verify(tls->context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_mode(
        tls->context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_options(tls->context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_session_cache_mode(tls->context, SSL_SESS_CACHE_OFF);
    enum status status = files_load(tls->context, url, err);
    if (status != OK) {
        redis_tls_release(tls);
    }
    return status;
}

void redis_tls_release(struct redis_tls *tls)
{
    SSL_CTX_free(tls->context);
    BIO_meth_free(tls->method);
    *tls = (struct redis_tls){.context = NULL};
}

/* ---- one link ------------------------------------------------------------------------------- */

/* What OpenSSL waits for after a call without progress: 0 and the events, or -1 and errno. */
static ssize_t wants(const struct redis_link *link, int result, short *ret_events)
{
    int reason = SSL_get_error(link->ssl, result);
    int errno_value = errno;
    *ret_events = reason == SSL_ERROR_WANT_WRITE ? POLLOUT : POLLIN;
    if (reason == SSL_ERROR_WANT_READ || reason == SSL_ERROR_WANT_WRITE) {
        return 0;
    }
    errno = reason == SSL_ERROR_SYSCALL && errno_value != 0 ? errno_value : ECONNRESET;
    return -1;
}

static enum status handshake_failed(const struct redis_link *link, int cause, struct err *err)
{
    long verdict = SSL_get_verify_result(link->ssl);
    const char *reason = tls_reason();
    if (verdict != X509_V_OK) {
        (void)err_set(err, E_UNAVAILABLE, "the certificate of the Redis server at '%s': %s",
            link->where, X509_verify_cert_error_string(verdict));
        bool is_name =
            verdict == X509_V_ERR_HOSTNAME_MISMATCH || verdict == X509_V_ERR_IP_ADDRESS_MISMATCH;
        err_hint(err, "%s",
            is_name ? "the certificate must name the host that Once connects to"
                    : "cacert=FILE in the store's URL names the certificates to trust");
    } else if (reason != NULL) {
        (void)err_set(
            err, E_UNAVAILABLE, "no TLS with the Redis server at '%s': %s", link->where, reason);
    } else {
        (void)err_errno(
            err, E_UNAVAILABLE, cause, "no TLS with the Redis server at '%s'", link->where);
    }
    return E_UNAVAILABLE;
}

enum status tls_start(
    struct redis_link *link, const char *host, uint64_t deadline_ns, struct err *err)
{
    ASSERT(link->fd >= 0);
    ASSERT(link->ssl == NULL);
    ERR_clear_error();
    link->ssl = SSL_new(link->tls->context);
    BIO *bio = link->ssl == NULL ? NULL : BIO_new(link->tls->method);
    if (bio == NULL) {
        return err_set(err, E_NOMEM, "out of memory for a connection");
    }
    BIO_set_data(bio, link);
    BIO_set_init(bio, 1);
    SSL_set_bio(link->ssl, bio, bio);
    if (!tls_expect_name(link->ssl, host)) {
        return err_set(err, E_NOMEM, "out of memory for a connection");
    }
    for (;;) {
        short events = 0;
        int done = SSL_connect(link->ssl);
        if (done == 1) {
            return OK;
        }
        int cause = wants(link, done, &events) == 0 ? link_wait_ready(link->fd, events, deadline_ns)
                                                    : errno;
        if (cause != 0) {
            return handshake_failed(link, cause, err);
        }
    }
}

ssize_t tls_read(struct redis_link *link, char *ret_bytes, size_t size, short *ret_events)
{
    size_t got = 0;
    ASSERT(link->ssl != NULL);
    ASSERT(size > 0);
    ERR_clear_error();
    int result = SSL_read_ex(link->ssl, ret_bytes, size, &got);
    return result == 1 ? (ssize_t)got : wants(link, result, ret_events);
}

ssize_t tls_write(struct redis_link *link, struct slice bytes, short *ret_events)
{
    size_t sent = 0;
    ASSERT(link->ssl != NULL);
    ASSERT(bytes.len > 0); /* OpenSSL does not define a write of 0 bytes */
    ERR_clear_error();
    int result = SSL_write_ex(link->ssl, bytes.data, bytes.len, &sent);
    return result == 1 ? (ssize_t)sent : wants(link, result, ret_events);
}
