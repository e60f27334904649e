#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/text.h"
#include "canon/json.h"
#include "lib/brief.h"
#include "server/server.h"

static const struct option_def *must_find(const struct cli *cli, const char *name)
{
    const struct option_def *option = option_find(cli->command, name);
    ASSERT(option != NULL);
    return option;
}

bool cli_flag(const struct cli *cli, const char *name)
{
    const struct option_def *option = must_find(cli, name);
    for (size_t i = 0; i < cli->given_count; i++) {
        if (cli->given[i].option == option) {
            return true;
        }
    }
    return false;
}

const char *cli_text(const struct cli *cli, const char *name)
{
    const struct option_def *option = must_find(cli, name);
    for (size_t i = cli->given_count; i-- > 0;) {
        if (cli->given[i].option == option) {
            return cli->given[i].value;
        }
    }
    const char *variable = option->env == NULL ? NULL : getenv(option->env);
    return variable != NULL && variable[0] != '\0' ? variable : option->fallback;
}

const char *cli_nth(const struct cli *cli, const char *name, size_t n)
{
    const struct option_def *option = must_find(cli, name);
    for (size_t i = 0; i < cli->given_count; i++) {
        if (cli->given[i].option == option && n-- == 0) {
            return cli->given[i].value;
        }
    }
    return NULL;
}

int64_t cli_ms(const struct cli *cli, const char *name)
{
    int64_t ms = 0;
    ASSERT(text_duration(slice_str(cli_text(cli, name)), &ms));
    return ms;
}

uint64_t cli_bytes(const struct cli *cli, const char *name)
{
    uint64_t bytes = 0;
    ASSERT(text_size(slice_str(cli_text(cli, name)), &bytes));
    return bytes;
}

uint64_t cli_count(const struct cli *cli, const char *name)
{
    uint64_t count = 0;
    ASSERT(text_u64(slice_str(cli_text(cli, name)), &count));
    return count;
}

/* One write, so that lines of several processes do not mix on a terminal. */
static void say(const char *prefix, const char *format, va_list args)
{
    char line[2 * ERR_TEXT_BYTES_MAX + 64];
    int used = snprintf(line, sizeof line - 1, "%s", prefix);
    int more = vsnprintf(line + used, sizeof line - 1 - (size_t)used, format, args);
    size_t len = more < 0 ? (size_t)used : (size_t)used + (size_t)more;
    len = len < sizeof line - 2 ? len : sizeof line - 2;
    line[len] = '\n';
    (void)!write(STDERR_FILENO, line, len + 1); /* there is nowhere to report a failure */
}

void cli_say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say("once: ", format, args);
    va_end(args);
}

void cli_hint(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say("hint: ", format, args);
    va_end(args);
}

int cli_usage(const struct cli *cli, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say("once: ", format, args);
    va_end(args);
    cli_hint("once help %s", cli->command->name);
    return CLI_USAGE;
}

int cli_exit_of(int result)
{
    switch ((enum once_result)result) {
    case ONCE_OK: return CLI_OK;
    case ONCE_E_UNKNOWN: return CLI_AGAIN;
    case ONCE_E_UNAVAILABLE: return CLI_UNAVAILABLE;
    case ONCE_E_STALE: return CLI_AGAIN;
    case ONCE_E_INVALID: return CLI_USAGE;
    case ONCE_E_LIMIT: return CLI_UNAVAILABLE;
    case ONCE_E_CORRUPT: return CLI_DATA;
    case ONCE_E_NOMEM: return CLI_UNAVAILABLE;
    case ONCE_E_MISUSE: return CLI_INTERNAL;
    }
    return CLI_INTERNAL;
}

int cli_fail(const struct once_error *error)
{
    cli_say("%s", error->text);
    if (error->hint[0] != '\0') {
        cli_hint("%s", error->hint);
    }
    return cli_exit_of(error->result);
}

int cli_fail_err(const struct err *err)
{
    cli_say("%s", err->text);
    if (err->hint[0] != '\0') {
        cli_hint("%s", err->hint);
    }
    return cli_exit_of((int)err->status);
}

const char *cli_store_dir(struct cli *cli, const char *url)
{
    return server_store_dir(url, &cli->arena);
}

const char *cli_url_shown(struct cli *cli, const char *url)
{
    return server_store_shown(url, &cli->arena);
}

const char *cli_store_shown(struct cli *cli)
{
    return cli_url_shown(cli, cli_text(cli, "store"));
}

int cli_try_open(
    const struct cli *cli, struct cli_open how, struct once **ret_once, struct once_error *error)
{
    bool has_tenant = option_find(cli->command, "tenant") != NULL;
    struct once_options options = {
        .store = cli_text(cli, "store"),
        .tenant = has_tenant ? cli_text(cli, "tenant") : NULL,
        .lock_wait_ms = how.lock_wait_ms,
        .read_only = how.read_only,
        .must_exist = how.must_exist,
    };
    return brief_open(&options, ret_once, error);
}

int cli_open(const struct cli *cli, struct cli_open how, struct once **ret_once)
{
    struct once_error error = {0};
    int result = cli_try_open(cli, how, ret_once, &error);
    return result == ONCE_OK ? CLI_OK : cli_fail(&error);
}

bool cli_store_denied(const struct cli *cli, unsigned *ret_owner)
{
    struct arena arena;
    struct stat facts;
    arena_init(&arena, &mem_libc, 64 << 10);
    const char *dir = server_store_dir(cli_text(cli, "store"), &arena);
    /* For the effective user, which the kernel checks when the store is opened. */
    bool is_denied = dir != NULL && stat(dir, &facts) == 0 &&
                     faccessat(AT_FDCWD, dir, R_OK | X_OK, AT_EACCESS) != 0 && errno == EACCES;
    if (is_denied) {
        *ret_owner = (unsigned)facts.st_uid;
    }
    arena_release(&arena);
    return is_denied;
}

/* A hint for a store that is absent or belongs to a different user, if there is no better one. */
static void hint_other_store(const struct cli *cli, int result, const char *hint)
{
    unsigned owner = 0;
    const char *store = cli_text(cli, "store");
    if (result != ONCE_E_UNAVAILABLE || hint[0] != '\0') {
        return;
    }
    if (cli_store_denied(cli, &owner)) {
        cli_hint("it belongs to user %u: run once as that user, or use --server", owner);
    } else if (strstr(store, "://") != NULL) {
        cli_hint("start that server, or name a different store with --store URL or ONCE_STORE");
    } else {
        cli_hint("name a different store with --store URL or ONCE_STORE; the first once run "
                 "creates one");
    }
}

int cli_open_to_read(const struct cli *cli, struct once **ret_once)
{
    struct once_error error = {0};
    struct cli_open how = {.read_only = true, .must_exist = true};
    int result = cli_try_open(cli, how, ret_once, &error);
    if (result == ONCE_OK) {
        return CLI_OK;
    }
    int code = cli_fail(&error);
    hint_other_store(cli, result, error.hint);
    return code;
}

int cli_fail_store(const struct cli *cli, const struct err *err)
{
    int code = cli_fail_err(err);
    hint_other_store(cli, (int)err->status, err->hint);
    return code;
}

static int read_all(struct cli *cli, int fd, const char *name, size_t bytes_max, struct slice *ret)
{
    struct buf bytes;
    char chunk[65536];
    buf_init(&bytes, &mem_libc, bytes_max);
    ssize_t got = 0;
    while ((got = read(fd, chunk, sizeof chunk)) != 0) {
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            break;
        }
        buf_append(&bytes, chunk, (size_t)got);
    }
    int code = CLI_OK;
    if (got < 0) {
        cli_say("cannot read %s: %s", name, strerror(errno));
        code = CLI_IO;
    } else if (buf_status(&bytes) == E_LIMIT) {
        cli_say("%s is longer than %zu bytes", name, bytes_max);
        code = CLI_DATA;
    } else if (buf_status(&bytes) != OK || arena_copy(&cli->arena, buf_view(&bytes), ret) != OK) {
        cli_say("cannot read %s: out of memory", name);
        code = CLI_UNAVAILABLE;
    }
    buf_release(&bytes);
    return code;
}

int cli_read_stdin(struct cli *cli, size_t bytes_max, struct slice *ret_bytes)
{
    return read_all(cli, STDIN_FILENO, "standard input", bytes_max, ret_bytes);
}

int cli_read_file(struct cli *cli, const char *path, size_t bytes_max, struct slice *ret_bytes)
{
    if (strcmp(path, "-") == 0) {
        return cli_read_stdin(cli, bytes_max, ret_bytes);
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        cli_say("cannot open '%s': %s", path, strerror(errno));
        return CLI_IO;
    }
    int code = read_all(cli, fd, path, bytes_max, ret_bytes);
    (void)close(fd); /* only read */
    return code;
}

struct slice cli_member(const struct json_value *object, struct slice name)
{
    const struct json_value *value = json_find(object, name);
    return value == NULL ? SLICE_EMPTY : json_text(value);
}

static struct clock_reading read_clocks(void)
{
    struct clock clock;
    clock_system(&clock);
    return clock_read(&clock);
}

int64_t cli_now_ms(void)
{
    return read_clocks().wall_ms;
}

int64_t cli_boot_ms(void)
{
    return read_clocks().boot_ms;
}
