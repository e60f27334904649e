#include "client/libcurl.h"

#include <stdarg.h>

#include "base/check.h"

struct libcurl libcurl;

enum status libcurl_load(struct err *err)
{
    static const char *const names[] = {LIBCURL_FUNCTIONS(LIBRARY_NAME)};
    static struct library library = {.file = "libcurl.so.4",
        .package = "libcurl4",
        .names = names,
        .count = COUNT(names),
        .table = &libcurl,
        .lock = PTHREAD_MUTEX_INITIALIZER};
    static_assert(sizeof libcurl == COUNT(names) * sizeof(void *), "one pointer for each name");
    return library_load(&library, err);
}

#undef curl_easy_setopt
#undef curl_easy_getinfo

/* The range in which an option's number is says the type of its argument (curl_easy_setopt(3)). */
CURLcode curl_easy_setopt(CURL *handle, CURLoption option, ...)
{
    CURLcode failed;
    va_list list;
    va_start(list, option);
    if (option < (int)CURLOPTTYPE_OBJECTPOINT) {
        failed = libcurl.curl_easy_setopt(handle, option, va_arg(list, long));
    } else if (option >= (int)CURLOPTTYPE_OFF_T && option < (int)CURLOPTTYPE_BLOB) {
        failed = libcurl.curl_easy_setopt(handle, option, va_arg(list, curl_off_t));
    } else {
        failed = libcurl.curl_easy_setopt(handle, option, va_arg(list, void *));
    }
    va_end(list);
    return failed;
}

CURLcode curl_easy_getinfo(CURL *handle, CURLINFO info, ...)
{
    va_list list;
    va_start(list, info);
    CURLcode failed = libcurl.curl_easy_getinfo(handle, info, va_arg(list, void *));
    va_end(list);
    return failed;
}
