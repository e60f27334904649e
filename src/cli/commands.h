/*
 * commands: every command and option of the program, as data.
 *
 * The only source for parsing, `once help`, the manual page, docs/cli.md and the completions of
 * three shells: an option that is not in this table does not exist, and every option in it is
 * documented.
 */
#ifndef ONCE_CLI_COMMANDS_H
#define ONCE_CLI_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>

struct cli;

/* What an option's value must look like. */
enum option_kind {
    OPTION_FLAG = 0,
    OPTION_TEXT,
    OPTION_FILE,     /* a path, for completion */
    OPTION_DURATION, /* "30s" */
    OPTION_SIZE,     /* "8MiB" */
    OPTION_COUNT,    /* a decimal number */
    OPTION_CHOICE,   /* one of choices */
};

enum { OPTION_CHOICES_MAX = 8 };

/* Arrays of these end with a zeroed element. */
struct option_def {
    const char *name; /* without the dashes */
    char letter;      /* short form; 0: absent */
    enum option_kind kind;
    bool required;
    bool repeated;        /* may be given more than once; otherwise the last one counts */
    const char *argument; /* its name in texts, such as "URL" */
    const char *fallback; /* the value if it is not given, as text; NULL: none */
    const char *env;      /* the environment variable used instead; may be NULL */
    const char *choices[OPTION_CHOICES_MAX]; /* of a choice; ends with NULL */
    const char *help;                        /* whole phrases, lower case, no full stop */
};

struct exit_def {
    int code;
    const char *meaning; /* NULL ends an array */
};

struct example_def {
    const char *line; /* the command line; NULL ends an array */
    const char *says; /* what it does */
};

struct command_def {
    const char *name;
    const char *summary;                             /* one line */
    const char *operands;                            /* "-- COMMAND [ARGUMENT…]"; may be "" */
    const char *operand_choices[OPTION_CHOICES_MAX]; /* for completion of the first operand */
    size_t operands_min;
    size_t operands_max;
    bool rest_is_operands;   /* the first operand ends the options */
    const char *const *text; /* paragraphs, ended by NULL */
    const struct option_def *options;
    const struct exit_def *exits;
    const struct example_def *examples;
    int (*run)(struct cli *cli);
};

/* Ends with a zeroed row. */
extern const struct command_def commands[];

/* NULL: no such command. */
const struct command_def *command_find(const char *name);
/* NULL: the command has no such option. */
const struct option_def *option_find(const struct command_def *command, const char *name);

/* One file each. */
int cmd_backup(struct cli *cli);
int cmd_copy(struct cli *cli);
int cmd_bench(struct cli *cli);
int cmd_canon(struct cli *cli);
int cmd_check(struct cli *cli);
int cmd_completion(struct cli *cli);
int cmd_cancel(struct cli *cli);
int cmd_compensate(struct cli *cli);
int cmd_confirm(struct cli *cli);
int cmd_retry(struct cli *cli);
int cmd_conformance(struct cli *cli);
int cmd_demo(struct cli *cli);
int cmd_deny(struct cli *cli);
int cmd_doctor(struct cli *cli);
int cmd_help(struct cli *cli);
int cmd_inbox(struct cli *cli);
int cmd_key(struct cli *cli);
int cmd_ls(struct cli *cli);
int cmd_mcp(struct cli *cli);
int cmd_migrate(struct cli *cli);
int cmd_policy(struct cli *cli);
int cmd_redeliver(struct cli *cli);
int cmd_registry(struct cli *cli);
int cmd_resolve(struct cli *cli);
int cmd_run(struct cli *cli);
int cmd_gateway(struct cli *cli);
int cmd_send(struct cli *cli);
int cmd_serve(struct cli *cli);
int cmd_show(struct cli *cli);
int cmd_skip(struct cli *cli);
int cmd_tail(struct cli *cli);
int cmd_token(struct cli *cli);
int cmd_verify(struct cli *cli);
int cmd_version(struct cli *cli);
int cmd_why(struct cli *cli);

#endif
