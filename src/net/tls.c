#include "net/tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/tls_name.h"

enum {
    RECORD_BYTES = 16 << 10,    /* RFC 8446 section 5.1: the most plain text in one record */
    CIPHER_BYTES_MAX = 1 << 20, /* waiting to be sent: a record, and a handshake's flight */
};

struct net_tls_context {
    const struct mem *mem;
    char *cert_file;
    char *key_file;
    pthread_mutex_t lock; /* over in_use */
    SSL_CTX *in_use;      /* for connections to come */
    SSL_CTX *loaded;      /* read, not yet in use; the loader's */
};

struct net_tls {
    const struct mem *mem;
    SSL *ssl;           /* owns both BIOs */
    BIO *in;            /* from the wire, not decrypted yet */
    BIO *out;           /* encrypted, not sent yet */
    bool is_ready;      /* the handshake is done */
    bool is_writing;    /* cipher is with libuv */
    uv_write_t request; /* of cipher */
    struct buf cipher;  /* what the kernel did not take at once */
};

/* ------------------------------------------------------------------------------ certificates -- */

static int no_passphrase(char *ret_text, int size, int is_writing, void *context)
{
    (void)ret_text, (void)size, (void)is_writing, (void)context;
    return 0; /* a server cannot ask anybody for it */
}

static int choose_protocol(SSL *ssl, const unsigned char **ret_chosen, unsigned char *ret_len,
    const unsigned char *offered, unsigned offered_len, void *context)
{
    static const unsigned char ours[] = "\x08http/1.1";
    (void)ssl, (void)context;
    for (unsigned at = 0; at < offered_len; at += 1u + offered[at]) {
        if (offered_len - at >= sizeof ours - 1 &&
            memcmp(offered + at, ours, sizeof ours - 1) == 0) {
            *ret_chosen = offered + at + 1;
            *ret_len = offered[at];
            return SSL_TLSEXT_ERR_OK;
        }
    }
    return SSL_TLSEXT_ERR_ALERT_FATAL; /* RFC 7301 section 3.2: no protocol in common */
}

static SSL_CTX *context_make(const SSL_METHOD *method)
{
    SSL_CTX *made = SSL_CTX_new(method);
    if (made == NULL) {
        return NULL;
    }
    SSL_CTX_set_default_passwd_cb(made, no_passphrase);
    SSL_CTX_set_alpn_select_cb(made, choose_protocol, NULL); /* of a client never asked */
    /* An idle connection holds no record buffers; a retried write may come from a different
     * address. */
    SSL_CTX_set_mode(made, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                               SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_options(
        made, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_session_cache_mode(made, SSL_SESS_CACHE_OFF);
    if (SSL_CTX_set_min_proto_version(made, TLS1_2_VERSION) != 1) {
        SSL_CTX_free(made);
        return NULL;
    }
    return made;
}

static enum status cannot_load(struct err *err, const char *what, const char *file)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    enum status status = err_set(err, E_INVALID, "cannot load %s '%s': %s", what, file,
        reason == NULL ? "no such file, or not PEM" : reason);
    ERR_clear_error();
    return status;
}

enum status net_tls_context_load(struct net_tls_context *context, struct err *err)
{
    ERR_clear_error();
    SSL_CTX *made = context_make(TLS_server_method());
    if (made == NULL) {
        return err_set(err, E_NOMEM, "cannot make a TLS context");
    }
    enum status status = OK;
    if (SSL_CTX_use_certificate_chain_file(made, context->cert_file) != 1) {
        status = cannot_load(err, "certificate", context->cert_file);
    } else if (SSL_CTX_use_PrivateKey_file(made, context->key_file, SSL_FILETYPE_PEM) != 1) {
        status = cannot_load(err, "key", context->key_file);
    } else if (SSL_CTX_check_private_key(made) != 1) {
        status = cannot_load(err, "key", context->key_file);
    }
    if (status != OK) {
        SSL_CTX_free(made);
        return status;
    }
    SSL_CTX_free(context->loaded);
    context->loaded = made;
    return OK;
}

static int64_t certificate_expiry(const X509 *certificate)
{
    int days = 0, seconds = 0;
    ASN1_TIME *epoch = ASN1_TIME_set(NULL, 0);
    bool is_read = certificate != NULL && epoch != NULL &&
                   ASN1_TIME_diff(&days, &seconds, epoch, X509_get0_notAfter(certificate)) == 1;
    ASN1_TIME_free(epoch);
    return is_read ? (int64_t)days * 86400 + seconds : 0;
}

int64_t net_tls_context_expiry(struct net_tls_context *context)
{
    pthread_mutex_lock(&context->lock);
    int64_t expiry =
        context->in_use == NULL ? 0 : certificate_expiry(SSL_CTX_get0_certificate(context->in_use));
    pthread_mutex_unlock(&context->lock);
    return expiry;
}

void net_tls_context_switch(struct net_tls_context *context, bool is_good)
{
    SSL_CTX *old = context->loaded;
    if (is_good && old != NULL) {
        pthread_mutex_lock(&context->lock);
        old = context->in_use; /* lives on while a connection has it */
        context->in_use = context->loaded;
        pthread_mutex_unlock(&context->lock);
    }
    SSL_CTX_free(old);
    context->loaded = NULL;
}

/* NULL: E_NOMEM. */
static struct net_tls_context *context_new(const struct mem *mem, struct err *err)
{
    struct net_tls_context *context = mem_zalloc(mem, 1, sizeof *context);
    if (context == NULL) {
        (void)err_set(err, E_NOMEM, "out of memory");
        return NULL;
    }
    context->mem = mem;
    pthread_mutex_init(&context->lock, NULL);
    return context;
}

enum status net_tls_context_new(const struct mem *mem, const char *cert_file, const char *key_file,
    struct net_tls_context **ret_context, struct err *err)
{
    struct net_tls_context *context = context_new(mem, err);
    if (context == NULL) {
        return E_NOMEM;
    }
    context->cert_file = mem_copy_text(mem, slice_str(cert_file));
    context->key_file = mem_copy_text(mem, slice_str(key_file));
    enum status status = context->cert_file == NULL || context->key_file == NULL
                             ? err_set(err, E_NOMEM, "out of memory")
                             : net_tls_context_load(context, err);
    if (status != OK) {
        net_tls_context_free(context);
        return status;
    }
    net_tls_context_switch(context, true);
    *ret_context = context;
    return OK;
}

static enum status client_load(SSL_CTX *made, const char *ca_file, struct err *err)
{
    static const unsigned char offered[] = "\x08http/1.1";
    int rc = ca_file == NULL ? SSL_CTX_set_default_verify_paths(made)
                             : SSL_CTX_load_verify_locations(made, ca_file, NULL);
    if (rc != 1) {
        return cannot_load(err, "CA certificates", ca_file == NULL ? "of the system" : ca_file);
    }
    SSL_CTX_set_verify(made, SSL_VERIFY_PEER, NULL);
    if (SSL_CTX_set_alpn_protos(made, offered, sizeof offered - 1) != 0) { /* 0 is success here */
        return err_set(err, E_NOMEM, "cannot make a TLS context");
    }
    return OK;
}

enum status net_tls_client_context_new(const struct mem *mem, const char *ca_file,
    struct net_tls_context **ret_context, struct err *err)
{
    struct net_tls_context *context = context_new(mem, err);
    if (context == NULL) {
        return E_NOMEM;
    }
    ERR_clear_error();
    context->in_use = context_make(TLS_client_method());
    enum status status = context->in_use == NULL
                             ? err_set(err, E_NOMEM, "cannot make a TLS context")
                             : client_load(context->in_use, ca_file, err);
    if (status != OK) {
        net_tls_context_free(context);
        return status;
    }
    *ret_context = context;
    return OK;
}

void net_tls_context_free(struct net_tls_context *context)
{
    if (context == NULL) {
        return;
    }
    SSL_CTX_free(context->in_use);
    SSL_CTX_free(context->loaded);
    pthread_mutex_destroy(&context->lock);
    mem_free(context->mem, context->cert_file);
    mem_free(context->mem, context->key_file);
    mem_free(context->mem, context);
}

/* ------------------------------------------------------------------------------ a connection -- */

static enum status tls_make(
    struct net_tls_context *context, struct net_loop *loop, struct net_tls **ret_tls)
{
    struct net_tls *tls = mem_zalloc(loop->mem, 1, sizeof *tls);
    if (tls == NULL) {
        return E_NOMEM;
    }
    tls->mem = loop->mem;
    buf_init(&tls->cipher, loop->mem, CIPHER_BYTES_MAX);
    pthread_mutex_lock(&context->lock);
    tls->ssl = SSL_new(context->in_use);
    pthread_mutex_unlock(&context->lock);
    tls->in = BIO_new(BIO_s_mem());
    tls->out = BIO_new(BIO_s_mem());
    if (tls->ssl == NULL || tls->in == NULL || tls->out == NULL) {
        BIO_free(tls->in);
        BIO_free(tls->out);
        SSL_free(tls->ssl);
        mem_free(tls->mem, tls);
        return E_NOMEM;
    }
    SSL_set_bio(tls->ssl, tls->in, tls->out);
    *ret_tls = tls;
    return OK;
}

enum status net_tls_new(
    struct net_tls_context *context, struct net_loop *loop, struct net_tls **ret_tls)
{
    enum status status = tls_make(context, loop, ret_tls);
    if (status == OK) {
        SSL_set_accept_state((*ret_tls)->ssl);
    }
    return status;
}

enum status net_tls_new_client(struct net_tls_context *context, struct net_loop *loop,
    const char *server_name, struct net_tls **ret_tls)
{
    struct net_tls *tls = NULL;
    enum status status = tls_make(context, loop, &tls);
    if (status != OK) {
        return status;
    }
    ERR_clear_error();
    if (!tls_expect_name(tls->ssl, server_name)) {
        net_tls_free(tls);
        return E_NOMEM;
    }
    SSL_set_connect_state(tls->ssl);
    *ret_tls = tls;
    return OK;
}

void net_tls_free(struct net_tls *tls)
{
    if (tls != NULL) {
        SSL_free(tls->ssl);
        buf_release(&tls->cipher);
        mem_free(tls->mem, tls);
    }
}

bool net_tls_is_ready(const struct net_tls *tls)
{
    return tls->is_ready;
}

bool net_tls_is_quiet(const struct net_tls *tls)
{
    return tls->is_ready && !tls->is_writing && BIO_pending(tls->out) == 0;
}

bool net_tls_has_ended(const struct net_tls *tls)
{
    return (SSL_get_shutdown(tls->ssl) & SSL_RECEIVED_SHUTDOWN) != 0;
}

static enum net_sent push(struct net_stream *stream);
static void on_cipher_wrote(uv_write_t *request, int rc);

static bool write_rest(struct net_stream *stream, const char *data, size_t len)
{
    struct net_tls *tls = stream->tls;
    buf_clear(&tls->cipher);
    buf_append(&tls->cipher, data, len);
    if (buf_status(&tls->cipher) != OK) {
        return false;
    }
    uv_buf_t rest = uv_buf_init(tls->cipher.data, (unsigned)len);
    tls->request.data = stream;
    if (uv_write(&tls->request, &stream->uv.stream, &rest, 1, on_cipher_wrote) != 0) {
        return false;
    }
    tls->is_writing = true;
    return true;
}

/* Give the kernel what is encrypted. False: the other side is gone. */
static bool flush_cipher(struct net_stream *stream)
{
    struct net_tls *tls = stream->tls;
    char *data = NULL;
    long len = BIO_get_mem_data(tls->out, &data);
    if (tls->is_writing || len <= 0) {
        return true;
    }
    uv_buf_t all = uv_buf_init(data, (unsigned)len);
    int taken = uv_try_write(&stream->uv.stream, &all, 1);
    if (taken < 0 && taken != UV_EAGAIN) {
        return false;
    }
    long sent = taken > 0 ? taken : 0;
    bool is_well = sent == len || write_rest(stream, data + sent, (size_t)(len - sent));
    (void)BIO_reset(tls->out); /* of a memory BIO it cannot fail */
    return is_well;
}

static void on_cipher_wrote(uv_write_t *request, int rc)
{
    struct net_stream *stream = request->data;
    stream->tls->is_writing = false;
    if (stream->is_closing) {
        return;
    }
    bool is_well = rc == 0 && flush_cipher(stream);
    enum net_sent sent = NET_SENDING;
    if (stream->write != NULL) {
        sent = is_well ? push(stream) : NET_BROKEN;
    }
    stream->is_broken = stream->is_broken || !is_well || sent == NET_BROKEN;
    if (sent != NET_SENDING) {
        stream->write = NULL;
        stream->events->wrote(stream, sent == NET_SENT);
    }
}

/* One record from what is left of the send. */
static bool push_record(struct net_stream *stream, struct slice *piece)
{
    int want = piece->len > RECORD_BYTES ? RECORD_BYTES : (int)piece->len;
    ERR_clear_error();
    stream->given += (size_t)want; /* set before, because a failure does not tell how far it got */
    int taken = SSL_write(stream->tls->ssl, piece->data, want);
    if (taken <= 0) {
        return false; /* memory is always writable, so this never waits */
    }
    *piece = slice_of(piece->data + taken, piece->len - (size_t)taken);
    return flush_cipher(stream);
}

static enum net_sent push(struct net_stream *stream)
{
    for (size_t i = 0; i < NET_SEND_PIECES_MAX; i++) {
        while (stream->write->pieces[i].len > 0) {
            if (stream->tls->is_writing) {
                return NET_SENDING;
            }
            if (!push_record(stream, &stream->write->pieces[i])) {
                return NET_BROKEN;
            }
        }
    }
    return stream->tls->is_writing ? NET_SENDING : NET_SENT;
}

enum net_sent net_tls_send(
    struct net_stream *stream, struct net_write *write, const struct slice *pieces, size_t count)
{
    for (size_t i = 0; i < NET_SEND_PIECES_MAX; i++) {
        write->pieces[i] = i < count ? pieces[i] : SLICE_EMPTY;
    }
    stream->write = write;
    enum net_sent sent = stream->tls->is_ready ? push(stream) : NET_BROKEN;
    stream->is_broken = stream->is_broken || sent == NET_BROKEN;
    if (sent != NET_SENDING) {
        stream->write = NULL;
    }
    return sent;
}

size_t net_tls_unsent(const struct net_stream *stream)
{
    size_t unsent = 0;
    for (size_t i = 0; stream->write != NULL && i < NET_SEND_PIECES_MAX; i++) {
        unsent += stream->write->pieces[i].len;
    }
    return unsent;
}

void net_tls_finish(struct net_stream *stream)
{
    struct net_tls *tls = stream->tls;
    if (tls->is_ready && !tls->is_writing && !stream->is_broken) {
        ERR_clear_error();
        (void)SSL_shutdown(tls->ssl); /* 0: sent, and the other side's is not awaited */
        stream->is_broken = !flush_cipher(stream);
    }
}

/* Why there was no handshake, in OpenSSL's words; the text is static. */
static const char *why_broken(const struct net_tls *tls)
{
    long verified = SSL_get_verify_result(tls->ssl);
    const char *reason = ERR_reason_error_string(ERR_peek_error());
    if (verified != X509_V_OK) {
        return X509_verify_cert_error_string(verified);
    }
    return reason == NULL ? "the TLS handshake failed" : reason;
}

static void broken(struct net_stream *stream)
{
    const char *why = why_broken(stream->tls);
    (void)flush_cipher(stream); /* the alert, if it can be sent */
    ERR_clear_error();
    stream->is_broken = true;
    if (stream->is_closing) {
        return;
    }
    if (stream->is_connecting) {
        net_stream_connected(stream, why);
    } else {
        stream->events->read(stream, NET_GOT_BROKEN, 0);
    }
}

/* True when the handshake is done. */
static bool do_handshake(struct net_stream *stream)
{
    struct net_tls *tls = stream->tls;
    ERR_clear_error();
    int rc = SSL_do_handshake(tls->ssl);
    if (rc == 1) {
        tls->is_ready = true;
    } else if (SSL_get_error(tls->ssl, rc) != SSL_ERROR_WANT_READ) {
        broken(stream);
        return false;
    }
    if (!flush_cipher(stream)) {
        broken(stream);
        return false;
    }
    if (tls->is_ready && stream->is_connecting) {
        net_stream_connected(stream, NULL);
    }
    return tls->is_ready;
}

/* True when there may be more. */
static bool pump_once(struct net_stream *stream)
{
    struct net_room room = stream->events->room(stream);
    if (room.len == 0) {
        stream->is_reading = false;
        uv_read_stop(&stream->uv.stream);
        stream->events->read(stream, NET_GOT_NO_ROOM, 0);
        return false;
    }
    ERR_clear_error();
    int want = room.len > INT32_MAX ? INT32_MAX : (int)room.len;
    int got = SSL_read(stream->tls->ssl, room.data, want);
    if (got > 0) {
        stream->events->read(stream, NET_GOT_BYTES, (size_t)got);
        return !stream->is_closing && stream->is_reading;
    }
    int why = SSL_get_error(stream->tls->ssl, got);
    stream->events->read(stream, NET_GOT_NOTHING, 0);
    if (stream->is_closing || why == SSL_ERROR_WANT_READ) {
        return false;
    }
    if (why == SSL_ERROR_ZERO_RETURN) {
        stream->is_reading = false;
        uv_read_stop(&stream->uv.stream);
        stream->events->read(stream, NET_GOT_END, 0);
    } else {
        broken(stream);
    }
    return false;
}

void net_tls_pump(struct net_stream *stream)
{
    if (!stream->tls->is_ready && !do_handshake(stream)) {
        return;
    }
    while (!stream->is_closing && stream->is_reading && pump_once(stream)) {
    }
    if (!stream->is_closing && !stream->is_broken && !flush_cipher(stream)) {
        broken(stream);
    }
}

void net_tls_take(struct net_stream *stream, struct slice bytes)
{
    int taken = BIO_write(stream->tls->in, bytes.data, (int)bytes.len);
    if (taken != (int)bytes.len) {
        broken(stream); /* out of memory */
        return;
    }
    net_tls_pump(stream);
}
