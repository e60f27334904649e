/* Checks the command line against the table of commands. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/text.h"
#include "cli/cli.h"

enum { NAME_BYTES_MAX = 32, NAMES_MAX = 64 }; /* of a command or option, far longer than ours */

static int unknown_option(const struct cli *cli, const char *typed)
{
    const char *names[NAMES_MAX];
    size_t count = 0;
    for (const struct option_def *o = cli->command->options; o->name != NULL; o++) {
        ASSERT(count < NAMES_MAX);
        names[count++] = o->name;
    }
    const char *near = text_nearest(typed, names, count);
    cli_say("%s: unknown option '--%s'", cli->command->name, typed);
    if (near != NULL) {
        cli_hint("did you mean '--%s'?", near);
    } else {
        cli_hint("once help %s", cli->command->name);
    }
    return CLI_USAGE;
}

/* What is wrong with a value, or NULL. */
static const char *value_fault(const struct option_def *option, const char *value)
{
    struct slice text = slice_str(value);
    int64_t ms = 0;
    uint64_t number = 0;
    switch (option->kind) {
    case OPTION_FLAG:
    case OPTION_TEXT:
    case OPTION_FILE: return NULL;
    case OPTION_DURATION:
        return text_duration(text, &ms) ? NULL : "is not a duration such as 300ms, 30s, 5m or 24h";
    case OPTION_SIZE:
        return text_size(text, &number) ? NULL : "is not a size such as 64KiB or 8MiB";
    case OPTION_COUNT: return text_u64(text, &number) ? NULL : "is not a whole number";
    case OPTION_CHOICE:
        for (size_t i = 0; i < OPTION_CHOICES_MAX && option->choices[i] != NULL; i++) {
            if (strcmp(option->choices[i], value) == 0) {
                return NULL;
            }
        }
        return "is not one of its values";
    }
    return NULL;
}

static void hint_values(const struct option_def *option)
{
    char list[256];
    size_t used = 0;
    for (size_t i = 0; i < OPTION_CHOICES_MAX && option->choices[i] != NULL; i++) {
        int more = snprintf(
            list + used, sizeof list - used, "%s%s", i == 0 ? "" : ", ", option->choices[i]);
        used += more > 0 ? (size_t)more : 0;
        ASSERT(used < sizeof list);
    }
    if (option->kind != OPTION_CHOICE) {
        cli_hint("--%s %s: %s", option->name, option->argument, option->help);
    } else {
        cli_hint("the values of --%s are %s", option->name, list);
    }
}

static int take(struct cli *cli, const struct option_def *option, const char *value)
{
    const char *fault = value == NULL ? NULL : value_fault(option, value);
    if (fault != NULL) {
        cli_say("%s: --%s: '%s' %s", cli->command->name, option->name, value, fault);
        hint_values(option);
        return CLI_USAGE;
    }
    if (cli->given_count == CLI_OPTIONS_GIVEN_MAX) {
        return cli_usage(cli, "more than %d options", CLI_OPTIONS_GIVEN_MAX);
    }
    cli->given[cli->given_count++] = (struct cli_given){option, value};
    return CLI_OK;
}

/* One "--name", "--name=value" or "--name value"; *at moves past the used arguments. */
static int take_long(struct cli *cli, int argc, char **argv, int *at)
{
    char name[NAME_BYTES_MAX + 1];
    const char *typed = argv[*at] + 2;
    const char *equals = strchr(typed, '=');
    size_t len = equals == NULL ? strlen(typed) : (size_t)(equals - typed);
    int shown = (int)(len < NAME_BYTES_MAX ? len : NAME_BYTES_MAX);
    (void)snprintf(name, sizeof name, "%.*s", shown, typed);
    const struct option_def *option = option_find(cli->command, name);
    if (option == NULL || len > NAME_BYTES_MAX) {
        return unknown_option(cli, name);
    }
    *at += 1;
    if (option->kind == OPTION_FLAG) {
        return equals == NULL ? take(cli, option, NULL)
                              : cli_usage(cli, "%s: --%s takes no value", cli->command->name, name);
    }
    if (equals != NULL) {
        return take(cli, option, equals + 1);
    }
    if (*at >= argc) {
        return cli_usage(
            cli, "%s: --%s needs a value (%s)", cli->command->name, name, option->argument);
    }
    return take(cli, option, argv[(*at)++]);
}

/* One "-n", "-n value" or "-nvalue". */
static int take_short(struct cli *cli, int argc, char **argv, int *at)
{
    const char *typed = argv[*at] + 1;
    for (const struct option_def *o = cli->command->options; o->name != NULL; o++) {
        if (o->letter == '\0' || o->letter != typed[0]) {
            continue;
        }
        *at += 1;
        if (o->kind == OPTION_FLAG && typed[1] == '\0') {
            return take(cli, o, NULL);
        }
        if (o->kind != OPTION_FLAG && typed[1] != '\0') {
            return take(cli, o, typed + 1);
        }
        if (o->kind != OPTION_FLAG && *at < argc) {
            return take(cli, o, argv[(*at)++]);
        }
        return cli_usage(cli, "%s: -%c needs %s", cli->command->name, o->letter,
            o->kind == OPTION_FLAG ? "to stand alone" : "a value");
    }
    return cli_usage(cli, "%s: unknown option '-%s'", cli->command->name, typed);
}

/* Variables are configuration: an invalid one is not a mistake in the command line. */
static int check_variables(const struct cli *cli)
{
    for (const struct option_def *o = cli->command->options; o->name != NULL; o++) {
        const char *value = o->env == NULL ? NULL : getenv(o->env);
        const char *fault = value == NULL || value[0] == '\0' ? NULL : value_fault(o, value);
        if (fault != NULL && !cli_flag(cli, o->name)) {
            cli_say("%s: '%s' %s", o->env, value, fault);
            hint_values(o);
            return CLI_CONFIG;
        }
    }
    return CLI_OK;
}

static int check_complete(const struct cli *cli)
{
    const struct command_def *command = cli->command;
    for (const struct option_def *o = command->options; o->name != NULL; o++) {
        if (o->required && cli_text(cli, o->name) == NULL) {
            return cli_usage(cli, "%s: --%s %s is missing", command->name, o->name, o->argument);
        }
    }
    if (cli->operand_count < command->operands_min) {
        return cli_usage(cli, "%s: %s is missing", command->name, command->operands);
    }
    if (cli->operand_count > command->operands_max) {
        return cli_usage(cli, "%s: '%s' is one argument too many", command->name,
            cli->operands[command->operands_max]);
    }
    return CLI_OK;
}

int cli_parse(struct cli *cli, int argc, char **argv)
{
    bool options_over = false;
    int at = 0;
    cli->operands = argv; /* moved to the front as they are found: never past the current one */
    while (at < argc) {
        const char *word = argv[at];
        int code = CLI_OK;
        if (!options_over && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)) {
            cli->help = true; /* whatever else is wrong with the command line */
            return CLI_OK;
        }
        if (options_over || word[0] != '-' || word[1] == '\0') {
            cli->operands[cli->operand_count++] = argv[at++];
            options_over = options_over || cli->command->rest_is_operands;
        } else if (strcmp(word, "--") == 0) {
            options_over = true;
            at++;
        } else if (word[1] == '-') {
            code = take_long(cli, argc, argv, &at);
        } else {
            code = take_short(cli, argc, argv, &at);
        }
        if (code != CLI_OK) {
            return code;
        }
    }
    cli->operands[cli->operand_count] = NULL;
    int code = check_variables(cli);
    code = code != CLI_OK ? code : check_complete(cli);
    cli->json = option_find(cli->command, "json") != NULL && cli_flag(cli, "json");
    return code;
}
