/* once help, once version, and help as text. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/document.h"
#include "cli/out.h"

enum { COLUMNS = 80, INDENT = 4 }; /* help is read on terminals, including narrow ones */

char *document_option(char ret_text[DOCUMENT_OPTION_BYTES_MAX], const struct option_def *option)
{
    char letter[8] = "";
    if (option->letter != '\0') {
        (void)snprintf(letter, sizeof letter, "-%c, ", option->letter);
    }
    (void)snprintf(ret_text, DOCUMENT_OPTION_BYTES_MAX, "%s--%s%s%s", letter, option->name,
        option->kind == OPTION_FLAG ? "" : " ",
        option->kind == OPTION_FLAG ? "" : option->argument);
    return ret_text;
}

char *document_usage(char ret_text[DOCUMENT_OPTION_BYTES_MAX], const struct command_def *command)
{
    bool options = command->options[0].name != NULL;
    (void)snprintf(ret_text, DOCUMENT_OPTION_BYTES_MAX, "once %s%s%s%s", command->name,
        options ? " [OPTIONS]" : "", command->operands[0] == '\0' ? "" : " ", command->operands);
    return ret_text;
}

char *document_default(char ret_text[DOCUMENT_OPTION_BYTES_MAX], const struct option_def *option)
{
    size_t used = 0;
    ret_text[0] = '\0';
    if (option->required) {
        used += (size_t)snprintf(ret_text, DOCUMENT_OPTION_BYTES_MAX, "required");
    } else if (option->fallback != NULL && option->fallback[0] != '\0') {
        used +=
            (size_t)snprintf(ret_text, DOCUMENT_OPTION_BYTES_MAX, "default %s", option->fallback);
    }
    if (option->env != NULL) {
        (void)snprintf(ret_text + used, DOCUMENT_OPTION_BYTES_MAX - used, "%s$%s",
            used == 0 ? "default " : ", or ", option->env);
    }
    return ret_text;
}

/* Break a paragraph at spaces. */
static void wrap(const char *text, size_t indent)
{
    size_t column = 0;
    while (*text != '\0') {
        size_t word = strcspn(text, " ");
        if (column > indent && column + 1 + word > COLUMNS) {
            out_text("\n");
            column = 0;
        }
        if (column == 0) {
            out_text("%*s", (int)indent, "");
            column = indent;
        } else if (column > indent) {
            out_text(" ");
            column++;
        }
        out_bytes(slice_of(text, word));
        column += word;
        text += word + (text[word] == ' ');
    }
    out_text("\n");
}

void document_overview(void)
{
    out_text("once: exactly-once effects over at-least-once delivery\n\n");
    out_text("usage: once COMMAND [OPTIONS]\n\n");
    for (const struct command_def *c = commands; c->name != NULL; c++) {
        out_text("  %s%-11s%s  %s\n", out_tint(TINT_BOLD), c->name, out_plain(), c->summary);
    }
    out_text("\nonce help COMMAND explains one of them.\n");
}

static void help_option(const struct option_def *option)
{
    char text[DOCUMENT_OPTION_BYTES_MAX];
    char line[512];
    out_text("  %s%s%s\n", out_tint(TINT_BOLD), document_option(text, option), out_plain());
    size_t used = (size_t)snprintf(line, sizeof line, "%s", option->help);
    for (size_t i = 0; option->kind == OPTION_CHOICE && option->choices[i] != NULL; i++) {
        used += (size_t)snprintf(
            line + used, sizeof line - used, "%s%s", i == 0 ? ": " : ", ", option->choices[i]);
    }
    document_default(text, option);
    if (text[0] != '\0') {
        (void)snprintf(line + used, sizeof line - used, " (%s)", text);
    }
    wrap(line, 2 * INDENT);
}

void document_help(const struct command_def *command)
{
    char text[DOCUMENT_OPTION_BYTES_MAX];
    out_text("once %s: %s\n\nusage: %s\n", command->name, command->summary,
        document_usage(text, command));
    for (size_t i = 0; command->text[i] != NULL; i++) {
        out_text("\n");
        wrap(command->text[i], 0);
    }
    if (command->options[0].name != NULL) {
        out_text("\noptions:\n");
    }
    for (const struct option_def *o = command->options; o->name != NULL; o++) {
        help_option(o);
    }
    out_text("\nexit codes:\n");
    for (const struct exit_def *e = command->exits; e->meaning != NULL; e++) {
        out_text("  %3d  %s\n", e->code, e->meaning);
    }
    out_text("\nexamples:\n");
    for (const struct example_def *e = command->examples; e->line != NULL; e++) {
        out_text("  %s\n", e->line);
        wrap(e->says, 2 * INDENT);
    }
}

int document_unknown(const char *typed)
{
    enum { NAMES_MAX = 64 }; /* twice as many commands as there are */
    const char *names[NAMES_MAX];
    size_t count = 0;
    for (const struct command_def *c = commands; c->name != NULL; c++) {
        ASSERT(count < NAMES_MAX);
        names[count++] = c->name;
    }
    const char *near = text_nearest(typed, names, count);
    cli_say("unknown command '%s'", typed);
    if (near != NULL) {
        cli_hint("did you mean 'once %s'?", near);
    } else {
        cli_hint("once help lists the commands");
    }
    return CLI_USAGE;
}

int cmd_help(struct cli *cli)
{
    if (cli->operand_count == 0) {
        document_overview();
        return out_finish_listing();
    }
    const struct command_def *command = command_find(cli->operands[0]);
    if (command == NULL) {
        return document_unknown(cli->operands[0]);
    }
    document_help(command);
    return out_finish_listing();
}

int cmd_version(struct cli *cli)
{
    if (!cli->json) {
        out_text("once %s\n", once_version());
        return out_finish_listing();
    }
    struct out_json whole;
    struct jsonw *json = out_json_begin(&whole, 4096);
    jsonw_str(json, "version", once_version());
    return out_json_end(&whole);
}
