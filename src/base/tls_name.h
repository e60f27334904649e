/*
 * tls_name: which certificate a client accepts. The same rule applies to every TLS connection we
 * open.
 *
 * It has its own header, so that programs without TLS need not link OpenSSL's libssl.
 */
#ifndef ONCE_BASE_TLS_NAME_H
#define ONCE_BASE_TLS_NAME_H

#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdbool.h>

/* The certificate must be for this host name or address. An address is not sent to the server: RFC
 * 6066 section 3. False: OpenSSL refused it, and the connection must not be opened. */
static inline bool tls_expect_name(SSL *ssl, const char *name)
{
    X509_VERIFY_PARAM *param = SSL_get0_param(ssl);
    if (X509_VERIFY_PARAM_set1_ip_asc(param, name) == 1) {
        return true;
    }
    union { /* OpenSSL copies it, but its prototype is older than const */
        const char *in;
        void *out;
    } sni = {.in = name};
    X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return X509_VERIFY_PARAM_set1_host(param, name, 0) == 1 &&
           SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, sni.out) == 1;
}

#endif
