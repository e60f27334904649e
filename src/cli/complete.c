/* Completions for bash, zsh and fish. */
#include <string.h>

#include "cli/cli.h"
#include "cli/document.h"
#include "cli/out.h"

/* Text inside single quotes of a shell. */
static void quoted(const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'') {
            out_text("'\\''");
        } else {
            out_text("%c", *text);
        }
    }
}

static void words(const char *const *list)
{
    for (size_t i = 0; i < OPTION_CHOICES_MAX && list[i] != NULL; i++) {
        out_text("%s%s", i == 0 ? "" : " ", list[i]);
    }
}

static void command_names(void)
{
    for (const struct command_def *c = commands; c->name != NULL; c++) {
        out_text("%s%s", c == commands ? "" : " ", c->name);
    }
}

static void bash_values(const struct command_def *command)
{
    for (const struct option_def *o = command->options; o->name != NULL; o++) {
        if (o->kind == OPTION_CHOICE) {
            out_text(
                "        %s:--%s) mapfile -t COMPREPLY < <(compgen -W '", command->name, o->name);
            words(o->choices);
            out_text("' -- \"$cur\"); return ;;\n");
        } else if (o->kind == OPTION_FILE) {
            out_text(
                "        %s:--%s) mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"); return ;;\n",
                command->name, o->name);
        } else if (o->kind != OPTION_FLAG) {
            out_text("        %s:--%s) return ;;\n", command->name, o->name);
        }
    }
}

static void bash_names(const struct command_def *command)
{
    out_text("        %s) words='", command->name);
    words(command->operand_choices);
    for (const struct option_def *o = command->options; o->name != NULL; o++) {
        out_text(" --%s", o->name);
    }
    out_text(" --help' ;;\n");
}

static void bash(void)
{
    out_text("# bash completion for once; made by once completion bash\n");
    out_text("_once() {\n    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} "
             "words='' i\n");
    out_text("    COMPREPLY=()\n    if [ \"$COMP_CWORD\" -eq 1 ]; then\n");
    out_text("        mapfile -t COMPREPLY < <(compgen -W '");
    command_names();
    out_text("' -- \"$cur\")\n        return\n    fi\n");
    out_text("    for ((i = 2; i < COMP_CWORD; i++)); do\n");
    out_text("        if [ \"${COMP_WORDS[i]}\" = -- ]; then\n");
    out_text(
        "            mapfile -t COMPREPLY < <(compgen -c -f -- \"$cur\")\n            return\n");
    out_text("        fi\n    done\n");
    out_text("    case \"${COMP_WORDS[1]}:$prev\" in\n");
    for (const struct command_def *c = commands; c->name != NULL; c++) {
        bash_values(c);
    }
    out_text("    esac\n    case \"${COMP_WORDS[1]}\" in\n        help) words='");
    command_names();
    out_text("' ;;\n");
    for (const struct command_def *c = commands; c->name != NULL; c++) {
        if (strcmp(c->name, "help") != 0) {
            bash_names(c);
        }
    }
    out_text("    esac\n    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n}\n");
    out_text("complete -F _once once\n");
}

/* Brackets and colons have a meaning in a zsh specification. */
static void zsh_text(const char *text)
{
    for (; *text != '\0'; text++) {
        if (strchr("[]:", *text) != NULL) {
            out_text("\\%c", *text);
        } else if (*text == '\'') {
            out_text("'\\''");
        } else {
            out_text("%c", *text);
        }
    }
}

static void zsh_command(const struct command_def *command)
{
    out_text("        %s)\n            _arguments -s", command->name);
    for (const struct option_def *o = command->options; o->name != NULL; o++) {
        out_text(" \\\n                '%s--%s%s[", o->repeated ? "*" : "", o->name,
            o->kind == OPTION_FLAG ? "" : "=");
        zsh_text(o->help);
        out_text("]");
        if (o->kind == OPTION_CHOICE) {
            out_text(":%s:(", o->argument);
            words(o->choices);
            out_text(")");
        } else if (o->kind != OPTION_FLAG) {
            out_text(":%s:%s", o->argument, o->kind == OPTION_FILE ? "_files" : "");
        }
        out_text("'");
    }
    if (command->rest_is_operands) {
        out_text(" \\\n                '*::command:_normal'");
    } else if (command->operand_choices[0] != NULL) {
        out_text(" \\\n                '1:what:(");
        words(command->operand_choices);
        out_text(")'");
    } else if (strcmp(command->name, "help") == 0) {
        out_text(" \\\n                '1:command:(");
        command_names();
        out_text(")'");
    }
    out_text("\n            ;;\n");
}

static void zsh(void)
{
    out_text("#compdef once\n# zsh completion for once; made by once completion zsh\n");
    out_text("_once() {\n    local -a names\n    names=(\n");
    for (const struct command_def *c = commands; c->name != NULL; c++) {
        out_text("        '%s:", c->name);
        zsh_text(c->summary);
        out_text("'\n");
    }
    out_text("    )\n    if (( CURRENT == 2 )); then\n        _describe command names\n"
             "        return\n    fi\n    local name=$words[2]\n    shift words\n"
             "    (( CURRENT-- ))\n    case $name in\n");
    for (const struct command_def *c = commands; c->name != NULL; c++) {
        zsh_command(c);
    }
    out_text("    esac\n}\n_once \"$@\"\n");
}

static void fish_option(const struct command_def *command, const struct option_def *option)
{
    out_text(
        "complete -c once -n '__fish_seen_subcommand_from %s' -l %s", command->name, option->name);
    if (option->letter != '\0') {
        out_text(" -s %c", option->letter);
    }
    if (option->kind == OPTION_CHOICE) {
        out_text(" -x -a '");
        words(option->choices);
        out_text("'");
    } else if (option->kind != OPTION_FLAG) {
        out_text(option->kind == OPTION_FILE ? " -r -F" : " -x");
    }
    out_text(" -d '");
    quoted(option->help);
    out_text("'\n");
}

static void fish(void)
{
    out_text("# fish completion for once; made by once completion fish\n");
    out_text("complete -c once -f\n");
    for (const struct command_def *c = commands; c->name != NULL; c++) {
        out_text("complete -c once -n __fish_use_subcommand -a %s -d '", c->name);
        quoted(c->summary);
        out_text("'\n");
        if (c->operand_choices[0] != NULL) {
            out_text("complete -c once -n '__fish_seen_subcommand_from %s' -a '", c->name);
            words(c->operand_choices);
            out_text("'\n");
        }
        for (const struct option_def *o = c->options; o->name != NULL; o++) {
            fish_option(c, o);
        }
    }
}

bool document_completion(const char *shell)
{
    if (strcmp(shell, "bash") == 0) {
        bash();
    } else if (strcmp(shell, "zsh") == 0) {
        zsh();
    } else if (strcmp(shell, "fish") == 0) {
        fish();
    } else {
        return false;
    }
    return true;
}

int cmd_completion(struct cli *cli)
{
    if (!document_completion(cli->operands[0])) {
        return cli_usage(cli, "completion: '%s' is not bash, zsh or fish", cli->operands[0]);
    }
    return out_finish_listing();
}
