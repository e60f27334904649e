/*
 * cli: the data that every command of the program gets, and the few functions that all of them use.
 *
 * A command is a row in commands.c and a function int cmd_<name>(struct cli *) in its own file that
 * returns the exit code. Options are checked against the row before the function runs, so reading
 * one cannot fail. Data goes to standard output through out.h, messages to standard error.
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

/* sysexits(3), and the codes of env(1), nohup(1) and timeout(1) for a command they could not
 * run. */
enum cli_exit {
    CLI_OK = 0,
    CLI_DAMAGE = 1,       /* verify: damage; doctor: a FAIL; demo: a double charge */
    CLI_UNCHECKED = 2,    /* verify: could not check */
    CLI_USAGE = 64,       /* EX_USAGE */
    CLI_DATA = 65,        /* EX_DATAERR: a conflict, or bad data */
    CLI_UNAVAILABLE = 69, /* EX_UNAVAILABLE: the store cannot be used now */
    CLI_INTERNAL = 70,    /* EX_SOFTWARE */
    CLI_IO = 74,          /* EX_IOERR: standard output or input */
    CLI_AGAIN = 75,       /* EX_TEMPFAIL: in progress, or unknown */
    CLI_NOT_ALLOWED = 77, /* EX_NOPERM: the server requires a token, or one with more rights */
    CLI_CONFIG = 78,      /* EX_CONFIG: an ONCE_* variable */
    CLI_RUN_FAILED = 125, /* run: once itself failed */
    CLI_RUN_NOT_EXECUTABLE = 126,
    CLI_RUN_NOT_FOUND = 127,
};

enum { CLI_OPTIONS_GIVEN_MAX = 128 }; /* on one command line; more come from a runaway script */

/* One option as it was given. */
struct cli_given {
    const struct option_def *option;
    const char *value; /* NULL for a flag */
};

struct cli {
    const struct command_def *command;
    struct cli_given given[CLI_OPTIONS_GIVEN_MAX]; /* in the order of the command line */
    size_t given_count;
    char **operands;      /* the remaining arguments, terminated by NULL */
    size_t operand_count; /* of these */
    bool json;            /* --json */
    bool help;            /* --help: nothing else was checked */
    struct arena arena;   /* for the whole run of the program */
};

/* Whether the flag was given. */
bool cli_flag(const struct cli *cli, const char *name);
/* The last value given, else its variable, else its default; NULL: none of these. */
const char *cli_text(const struct cli *cli, const char *name);
/* The nth value of a repeatable option; NULL past the last. */
const char *cli_nth(const struct cli *cli, const char *name, size_t n);
/* The value of an option of that kind, which must have one. */
int64_t cli_ms(const struct cli *cli, const char *name);
uint64_t cli_bytes(const struct cli *cli, const char *name);
uint64_t cli_count(const struct cli *cli, const char *name);

/* Fill cli from the command line after the command's name. 0, or an exit code after writing the
 * message. */
int cli_parse(struct cli *cli, int argc, char **argv) MUST_CHECK;

/* "once: text" on standard error. */
void cli_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "hint: text" on standard error. */
void cli_hint(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Report that the command line is invalid, and how to get help. Returns CLI_USAGE. */
int cli_usage(const struct cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Report the library's error, and return its exit code. */
int cli_fail(const struct once_error *error);
/* The same for the inner modules. */
int cli_fail_err(const struct err *err);
/* The same for a store that could not be opened for reading. */
int cli_fail_store(const struct cli *cli, const struct err *err);
/* The exit code for a result of the library or a status of the inner modules: they have the same
 * numbers. */
int cli_exit_of(int result);

/* How to open the store of --store. */
struct cli_open {
    bool read_only;
    bool must_exist;
    int64_t lock_wait_ms;
};
/* 0, or an exit code after writing the message. */
int cli_open(const struct cli *cli, struct cli_open how, struct once **ret_once) MUST_CHECK;
/* The same without a message: returns the result, and error says why. */
int cli_try_open(const struct cli *cli, struct cli_open how, struct once **ret_once,
    struct once_error *error) MUST_CHECK;
/* For commands that only read: works beside a running writer, and never creates anything. */
int cli_open_to_read(const struct cli *cli, struct once **ret_once) MUST_CHECK;
/* Whether the store of --store exists but this user may not open it. *ret_owner: its owner. */
bool cli_store_denied(const struct cli *cli, unsigned *ret_owner);
/* The directory of a journal's URL, in the arena; NULL if the store is not a journal. */
const char *cli_store_dir(struct cli *cli, const char *url);
/* The URL of the store for display: passwords are masked. */
const char *cli_store_shown(struct cli *cli);
const char *cli_url_shown(struct cli *cli, const char *url);

/* All of standard input, in the arena. 0, or an exit code after writing the message. */
int cli_read_stdin(struct cli *cli, size_t bytes_max, struct slice *ret_bytes) MUST_CHECK;
/* All of a file, in the arena. */
int cli_read_file(
    struct cli *cli, const char *path, size_t bytes_max, struct slice *ret_bytes) MUST_CHECK;

struct json_value;
/* The text of a string or number member; empty if it is absent. */
struct slice cli_member(const struct json_value *object, struct slice name);

/* The wall clock, for display: it may jump at any time, so no wait may use it. */
int64_t cli_now_ms(void);
/* The boot clock, which every wait uses. */
int64_t cli_boot_ms(void);

#endif
