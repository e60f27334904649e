#include "cli/out.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

void out_text(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vfprintf(stdout, format, args); /* out_finish notices */
    va_end(args);
}

void out_bytes(struct slice bytes)
{
    (void)fwrite(bytes.data == NULL ? "" : bytes.data, 1, bytes.len, stdout);
}

bool out_broken(void)
{
    return ferror(stdout) != 0;
}

/* Whether standard output is a pipe or socket without a reader. */
static bool is_closed(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
}

static int finish(bool is_listing)
{
    bool failed = out_broken();
    errno = 0;
    if (fflush(stdout) == 0 && !failed) {
        return CLI_OK;
    }
    int reason = errno;
    if (is_listing && is_closed()) {
        return CLI_OK;
    }
    cli_say("cannot write to standard output: %s", reason == 0 ? "write failed" : strerror(reason));
    return CLI_IO;
}

int out_finish(void)
{
    return finish(false);
}

int out_finish_listing(void)
{
    return finish(true);
}

bool out_colour(void)
{
    const char *no = getenv("NO_COLOR");
    const char *terminal = getenv("TERM");
    return (no == NULL || no[0] == '\0') && (terminal == NULL || strcmp(terminal, "dumb") != 0) &&
           isatty(STDOUT_FILENO) == 1;
}

const char *out_tint(enum tint tint)
{
    static const char *const escapes[] = {
        [TINT_GOOD] = "\033[32m",
        [TINT_WARN] = "\033[33m",
        [TINT_BAD] = "\033[31m",
        [TINT_FAINT] = "\033[2m",
        [TINT_BOLD] = "\033[1m",
    };
    return out_colour() ? escapes[tint] : "";
}

const char *out_counted(
    char ret_text[OUT_COUNT_BYTES], uint64_t count, const char *one, const char *many)
{
    (void)snprintf(
        ret_text, OUT_COUNT_BYTES, "%llu %s", (unsigned long long)count, count == 1 ? one : many);
    return ret_text;
}

const char *out_plain(void)
{
    return out_colour() ? "\033[0m" : "";
}

int jsonw_print(struct jsonw *json)
{
    buf_char(json->out, '\n');
    if (buf_status(json->out) != OK) {
        cli_say("the answer does not fit into memory");
        return CLI_INTERNAL;
    }
    out_bytes(buf_view(json->out));
    return out_finish();
}

struct jsonw *out_json_begin(struct out_json *whole, size_t bytes_max)
{
    buf_init(&whole->bytes, &mem_libc, bytes_max);
    whole->json = (struct jsonw){.out = &whole->bytes};
    jsonw_open(&whole->json, NULL, '{');
    return &whole->json;
}

int out_json_end(struct out_json *whole)
{
    jsonw_close(&whole->json, '}');
    int code = jsonw_print(&whole->json);
    if (whole->bytes.data != NULL) {
        mem_wipe(whole->bytes.data, whole->bytes.cap); /* it may hold a token */
    }
    buf_release(&whole->bytes);
    return code;
}
