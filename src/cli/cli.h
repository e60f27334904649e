/*
 * cli: what every command of the program is given, and the few things all of them do.
 *
 * A command is a row in commands.c and a function int cmd_<name>(struct cli *) in a file of its own
 * that returns the exit code. Options were checked against the row before it runs, so reading one
 * cannot fail. Data goes to standard output through out.h, messages to standard error.
 *
 * Ownership: everything a struct cli points at lives until the program ends.
 */
#ifndef ONCE_CLI_CLI_H
#define ONCE_CLI_CLI_H

#include <once/once.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/slice.h"
#include "cli/commands.h"

/* sysexits(3), and what env(1), nohup(1) and timeout(1) use for a command they could not run. */
enum cli_exit {
    CLI_OK = 0,
    CLI_DAMAGE = 1,       /* verify: damage; doctor: a FAIL; demo: a double charge */
    CLI_UNCHECKED = 2,    /* verify: could not check */
    CLI_USAGE = 64,       /* EX_USAGE */
    CLI_DATA = 65,        /* EX_DATAERR: a conflict, or bad data */
    CLI_UNAVAILABLE = 69, /* EX_UNAVAILABLE: the store cannot be used now */
    CLI_INTERNAL = 70,    /* EX_SOFTWARE */
    CLI_IO = 74,          /* EX_IOERR: standard output or input */
    CLI_AGAIN = 75,       /* EX_TEMPFAIL: in progress, or not known */
    CLI_NOT_ALLOWED = 77, /* EX_NOPERM: the server wants a token, or one with more rights */
    CLI_CONFIG = 78,      /* EX_CONFIG: an ONCE_* variable */
    CLI_RUN_FAILED = 125, /* run: once itself failed */
    CLI_RUN_NOT_EXECUTABLE = 126,
    CLI_RUN_NOT_FOUND = 127,
};

enum { CLI_OPTIONS_GIVEN_MAX = 128 }; /* on one command line; beyond is a runaway script */

/* One option as it was given. */
struct cli_given {
    const struct option_def *option;
    const char *value; /* NULL for a flag */
};

struct cli {
    const struct command_def *command;
    struct cli_given given[CLI_OPTIONS_GIVEN_MAX]; /* in the order of the command line */
    size_t given_count;
    char **operands;      /* what is left, terminated by NULL */
    size_t operand_count; /* of these */
    bool json;            /* --json */
    bool help;            /* --help: nothing else was checked */
    struct arena arena;   /* for the whole run of the program */
};

/* The flag was given. */
bool cli_flag(const struct cli *cli, const char *name);
/* The last one given, else its variable, else its default; NULL when there is neither. */
const char *cli_text(const struct cli *cli, const char *name);
/* The nth one given of an option that may be repeated; NULL past the last. */
const char *cli_nth(const struct cli *cli, const char *name, size_t n);
/* Of an option of that kind, which has a value. */
int64_t cli_ms(const struct cli *cli, const char *name);
uint64_t cli_bytes(const struct cli *cli, const char *name);
uint64_t cli_count(const struct cli *cli, const char *name);

/* Fill cli from the command line after the command's name. 0, or an exit code with the message
 * written. */
int cli_parse(struct cli *cli, int argc, char **argv) MUST_CHECK;

/* "once: text" on standard error. */
void cli_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "hint: text" on standard error. */
void cli_hint(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Say that the command line is wrong and how to see what is right. Returns CLI_USAGE. */
int cli_usage(const struct cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Say what the library said, and return the exit code that fits. */
int cli_fail(const struct once_error *error);
/* The same for the inner modules. */
int cli_fail_err(const struct err *err);
/* The same for a store that could not be opened to be read. */
int cli_fail_store(const struct cli *cli, const struct err *err);
/* The exit code for a result of the library or a status of the inner modules: same numbers. */
int cli_exit_of(int result);

/* How to open the store of --store. */
struct cli_open {
    bool read_only;
    bool must_exist;
    int64_t lock_wait_ms;
};
/* 0, or an exit code with the message written. */
int cli_open(const struct cli *cli, struct cli_open how, struct once **ret_once) MUST_CHECK;
/* The same without a word: the result, and error says why. */
int cli_try_open(const struct cli *cli, struct cli_open how, struct once **ret_once,
    struct once_error *error) MUST_CHECK;
/* For the commands that only look: beside a running writer, never creating anything. */
int cli_open_to_look(const struct cli *cli, struct once **ret_once) MUST_CHECK;
/* Whether the store of --store is there and this user may not open it. *ret_owner: whose it is. */
bool cli_store_denied(const struct cli *cli, unsigned *ret_owner);
/* The directory of a journal's URL, in the arena; NULL when the store is no journal. */
const char *cli_store_dir(struct cli *cli, const char *url);
/* The URL of the store as it may be shown: passwords are masked. */
const char *cli_store_shown(struct cli *cli);
const char *cli_url_shown(struct cli *cli, const char *url);

/* All of standard input, in the arena. 0, or an exit code with the message written. */
int cli_read_stdin(struct cli *cli, size_t bytes_max, struct slice *ret_bytes) MUST_CHECK;
/* All of a file, in the arena. */
int cli_read_file(
    struct cli *cli, const char *path, size_t bytes_max, struct slice *ret_bytes) MUST_CHECK;

struct json_value;
/* The text of a string or number member; empty when it is absent. */
struct slice cli_member(const struct json_value *object, struct slice name);

/* The wall clock, to show to people: it may jump at any time, so nothing may wait by it. */
int64_t cli_now_ms(void);
/* The boot clock, which every wait counts by. */
int64_t cli_boot_ms(void);
void cli_sleep_ms(int64_t ms);

#endif
