#include "cli/confirm_many.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/filter.h"

/* Whether a person types y. */
static bool says_yes(const struct many *many, size_t count)
{
    char line[8] = "";
    (void)fprintf(stderr, "once: %s %zu %s(s)%s%s? [y/N] ", many->verb, count, many->noun,
        many->as == NULL ? "" : " as ", many->as == NULL ? "" : many->as);
    (void)fflush(stderr);
    return fgets(line, sizeof line, stdin) != NULL &&
           (strcmp(line, "y\n") == 0 || strcmp(line, "yes\n") == 0);
}

int many_agree(const struct many *many, size_t count, bool *ret_agreed)
{
    *ret_agreed = cli_flag(many->cli, "yes");
    if (*ret_agreed) {
        return CLI_OK;
    }
    if (isatty(STDIN_FILENO) != 1 || isatty(STDERR_FILENO) != 1) {
        cli_say("%s: %zu %s(s) would be %s; nothing changed", many->command, count, many->noun,
            many->done);
        cli_hint("--dry-run lists them; --yes %s them", many->verbs);
        return CLI_USAGE;
    }
    *ret_agreed = says_yes(many, count);
    if (!*ret_agreed) {
        cli_say("nothing changed");
    }
    return CLI_OK;
}

void many_none(const struct many *many)
{
    cli_say("no %s matches; nothing changed", many->which);
}

void many_stopped(const struct many *many, size_t done, size_t count)
{
    cli_say("%zu of %zu %ss were %s", done, count, many->noun, many->done);
    cli_hint("the same line again goes on with those that are still %s", many->still);
}

int many_check(const struct cli *cli, const char *command, const char *noun, bool *ret_is_many)
{
    bool is_all = cli->operand_count > 0 && strcmp(cli->operands[0], "effects") == 0;
    bool is_one = cli->operand_count > 0 && !is_all;
    bool is_filtered = filter_given(cli);
    *ret_is_many = !is_one;
    if (!is_all && is_filtered == is_one) {
        return cli_usage(cli, "%s: give an %s id, or filters such as --scope", command, noun);
    }
    if (is_one && (cli_flag(cli, "dry-run") || cli_flag(cli, "yes"))) {
        return cli_usage(cli, "%s: --dry-run and --yes go with filters such as --scope", command);
    }
    return CLI_OK;
}
