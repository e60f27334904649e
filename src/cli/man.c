/* The manual page once(1), and docs/cli.md. */
#include <string.h>

#include "cli/document.h"
#include "cli/out.h"

/* Text for roff: a minus is not a hyphen, and a line must not begin with a request. */
static void roff(const char *text)
{
    for (size_t i = 0; text[i] != '\0'; i++) {
        bool start = i == 0;
        if (strncmp(text + i, "…", 3) == 0) {
            out_text("\\[u2026]");
            i += 2;
        } else if (text[i] == '\\') {
            out_text("\\e");
        } else if (text[i] == '-') {
            out_text("\\-");
        } else if (text[i] == '\'') {
            out_text("\\(aq");
        } else if (start && text[i] == '.') {
            out_text("\\&.");
        } else {
            out_text("%c", text[i]);
        }
    }
}

static void roff_option(const struct option_def *option)
{
    char text[DOCUMENT_OPTION_BYTES_MAX];
    out_text(".TP\n.B ");
    roff(document_option(text, option));
    out_text("\n");
    roff(option->help);
    for (size_t i = 0; option->kind == OPTION_CHOICE && option->choices[i] != NULL; i++) {
        out_text("%s", i == 0 ? ": " : ", ");
        roff(option->choices[i]);
    }
    document_default(text, option);
    if (text[0] != '\0') {
        out_text(" (");
        roff(text);
        out_text(")");
    }
    out_text(".\n");
}

static void roff_command(const struct command_def *command)
{
    char text[DOCUMENT_OPTION_BYTES_MAX];
    out_text(".SS ");
    roff(document_usage(text, command));
    out_text("\n");
    roff(command->summary);
    out_text(".\n");
    for (size_t i = 0; command->text[i] != NULL; i++) {
        out_text(".PP\n");
        roff(command->text[i]);
        out_text("\n");
    }
    for (const struct option_def *o = command->options; o->name != NULL; o++) {
        roff_option(o);
    }
    out_text(".PP\nExit codes:\n");
    for (const struct exit_def *e = command->exits; e->meaning != NULL; e++) {
        out_text(".TP\n%d\n", e->code);
        roff(e->meaning);
        out_text("\n");
    }
    for (const struct example_def *e = command->examples; e->line != NULL; e++) {
        out_text(".PP\nExample: ");
        roff(e->says);
        out_text("\n.PP\n.nf\n.RS 4\n");
        roff(e->line);
        out_text("\n.RE\n.fi\n");
    }
}

void document_man(void)
{
    out_text(".TH ONCE 1 \"\" \"once %s\" \"User Commands\"\n", ONCE_VERSION);
    out_text(".SH NAME\nonce \\- exactly\\-once effects over at\\-least\\-once delivery\n");
    out_text(".SH SYNOPSIS\n.B once\n.I COMMAND\n[\\fIOPTIONS\\fR]\n");
    out_text(".SH DESCRIPTION\nMessages, jobs and calls arrive more than once. Once makes each of "
             "them take effect once. It answers every duplicate with the first answer, refuses a "
             "key that comes back with a different payload, never guesses an outcome that nobody "
             "can know, and can prove later what it decided.\n");
    out_text(".PP\nOptions are written \\fB\\-\\-name value\\fR or \\fB\\-\\-name=value\\fR. An "
             "absent option takes its value from its variable, if it has one, else from its "
             "default. Data goes to standard output, messages to standard error. Colour is used "
             "only on terminals, and not if NO_COLOR is set.\n");
    out_text(".SH COMMANDS\n");
    for (const struct command_def *c = commands; c->name != NULL; c++) {
        roff_command(c);
    }
    out_text(".SH ENVIRONMENT\n");
    out_text("ONCE_STORE and the other variables named with the options above; NO_COLOR.\n");
    out_text(".SH FILES\n.TP\n.I ./once\\-data\nthe journal, unless a different store is named\n");
}

/* Cells of a Markdown table must not contain a bar. */
static void cell(const char *text)
{
    for (; *text != '\0'; text++) {
        out_text(*text == '|' ? "\\%c" : "%c", *text);
    }
}

static void markdown_command(const struct command_def *command)
{
    char text[DOCUMENT_OPTION_BYTES_MAX];
    out_text("\n## once %s\n\n`%s`: %s.\n", command->name, document_usage(text, command),
        command->summary);
    for (size_t i = 0; command->text[i] != NULL; i++) {
        out_text("\n%s\n", command->text[i]);
    }
    if (command->options[0].name != NULL) {
        out_text("\n| option | meaning | if absent |\n| --- | --- | --- |\n");
    }
    for (const struct option_def *o = command->options; o->name != NULL; o++) {
        out_text("| `%s` | ", document_option(text, o));
        cell(o->help);
        for (size_t i = 0; o->kind == OPTION_CHOICE && o->choices[i] != NULL; i++) {
            out_text("%s`%s`", i == 0 ? ": " : ", ", o->choices[i]);
        }
        out_text(" | ");
        cell(document_default(text, o));
        out_text(" |\n");
    }
    out_text("\n| exit code | meaning |\n| --- | --- |\n");
    for (const struct exit_def *e = command->exits; e->meaning != NULL; e++) {
        out_text("| %d | ", e->code);
        cell(e->meaning);
        out_text(" |\n");
    }
    out_text("\n```sh\n");
    for (const struct example_def *e = command->examples; e->line != NULL; e++) {
        out_text("%s   # %s\n", e->line, e->says);
    }
    out_text("```\n");
}

void document_markdown(void)
{
    out_text(
        "# Commands\n\nGenerated by `once --dump-markdown`. `once help COMMAND` and the manual "
        "page once(1) say the same.\n\nOptions are written `--name value` or `--name=value`. An "
        "absent option takes its value from its variable, if it has one, else from its default. "
        "Data goes to standard output, messages to standard error.\n");
    for (const struct command_def *c = commands; c->name != NULL; c++) {
        markdown_command(c);
    }
}
