/*
 * libcurl: loaded when the first client is made (base/library.h).
 *
 * It replaces <curl/curl.h> in our own code. A function that the list does not have cannot be
 * called: the program does not link. curl_easy_setopt and curl_easy_getinfo keep the macros of
 * <curl/curl.h>, which check the types of their arguments; they are defined in libcurl.c.
 */
#ifndef ONCE_CLIENT_LIBCURL_H
#define ONCE_CLIENT_LIBCURL_H

#include <curl/curl.h>

#include "base/library.h"

/* clang-format off */
#define LIBCURL_FUNCTIONS(F) \
    F(curl_easy_cleanup) F(curl_easy_getinfo) F(curl_easy_header) F(curl_easy_init) \
    F(curl_easy_pause) F(curl_easy_perform) F(curl_easy_reset) F(curl_easy_setopt) \
    F(curl_easy_strerror) F(curl_getdate) F(curl_global_cleanup) F(curl_global_init) \
    F(curl_multi_add_handle) F(curl_multi_cleanup) F(curl_multi_info_read) F(curl_multi_init) \
    F(curl_multi_perform) F(curl_multi_poll) F(curl_multi_remove_handle) F(curl_slist_append) \
    F(curl_slist_free_all) F(curl_url) F(curl_url_cleanup) F(curl_url_set) F(curl_url_strerror)
/* clang-format on */

struct libcurl {
    LIBCURL_FUNCTIONS(LIBRARY_MEMBER)
};
extern struct libcurl libcurl;

/* Before anything else of it is called: once_client_new does it. E_UNAVAILABLE. */
enum status libcurl_load(struct err *err) MUST_CHECK;

#define curl_easy_cleanup        libcurl.curl_easy_cleanup
#define curl_easy_header         libcurl.curl_easy_header
#define curl_easy_init           libcurl.curl_easy_init
#define curl_easy_pause          libcurl.curl_easy_pause
#define curl_easy_perform        libcurl.curl_easy_perform
#define curl_easy_reset          libcurl.curl_easy_reset
#define curl_easy_strerror       libcurl.curl_easy_strerror
#define curl_getdate             libcurl.curl_getdate
#define curl_global_cleanup      libcurl.curl_global_cleanup
#define curl_global_init         libcurl.curl_global_init
#define curl_multi_add_handle    libcurl.curl_multi_add_handle
#define curl_multi_cleanup       libcurl.curl_multi_cleanup
#define curl_multi_info_read     libcurl.curl_multi_info_read
#define curl_multi_init          libcurl.curl_multi_init
#define curl_multi_perform       libcurl.curl_multi_perform
#define curl_multi_poll          libcurl.curl_multi_poll
#define curl_multi_remove_handle libcurl.curl_multi_remove_handle
#define curl_slist_append        libcurl.curl_slist_append
#define curl_slist_free_all      libcurl.curl_slist_free_all
#define curl_url                 libcurl.curl_url
#define curl_url_cleanup         libcurl.curl_url_cleanup
#define curl_url_set             libcurl.curl_url_set
#define curl_url_strerror        libcurl.curl_url_strerror

#endif
