/*
 * document: writes the table of commands as help, manual page, Markdown and completions.
 *
 * Everything is written to standard output; nothing here depends on a particular command.
 */
#ifndef ONCE_CLI_DOCUMENT_H
#define ONCE_CLI_DOCUMENT_H

#include <stdbool.h>

#include "cli/commands.h"

void document_overview(void);
void document_help(const struct command_def *command);
void document_man(void);
void document_markdown(void);
/* Report that there is no such command, and suggest the nearest. Returns the exit code. */
int document_unknown(const char *typed);
/* False: no such shell. */
bool document_completion(const char *shell);

/* "--store URL", "-n, --lines N", … in a buffer of this size. Returns its argument. */
enum { DOCUMENT_OPTION_BYTES_MAX = 96 };
char *document_option(char ret_text[DOCUMENT_OPTION_BYTES_MAX], const struct option_def *option);
/* "once ls [OPTIONS]"; the same way. */
char *document_usage(char ret_text[DOCUMENT_OPTION_BYTES_MAX], const struct command_def *command);
/* What holds if the option is not given: "default 30s, or ONCE_LEASE"; may be "". */
char *document_default(char ret_text[DOCUMENT_OPTION_BYTES_MAX], const struct option_def *option);

#endif
