/*
 * main: find the command in the table, check its command line, run it.
 *
 * The program's life: main > cli_parse > cmd_<name> > the exit code.
 */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/document.h"
#include "cli/out.h"

enum { ARENA_BYTES_MAX = 512 << 20 }; /* stops a runaway; a journal's data fits */

/* For the build: print what is made from the table. -1: not such a command line. */
static int dump(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--dump-man") == 0) {
        document_man();
    } else if (argc == 2 && strcmp(argv[1], "--dump-markdown") == 0) {
        document_markdown();
    } else if (argc != 3 || strcmp(argv[1], "--dump-completion") != 0 ||
               !document_completion(argv[2])) {
        return -1;
    }
    return out_finish_listing();
}

/* The word that names the command, including spellings that people try first. */
static const char *command_word(int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        return "help";
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0 ||
        strcmp(argv[1], "-v") == 0) {
        return "version";
    }
    return argv[1];
}

static int run_command(struct cli *cli, int argc, char **argv)
{
    int skip = argc < 2 ? 1 : 2;
    int code = cli_parse(cli, argc - skip, argv + skip);
    if (code != CLI_OK) {
        return code;
    }
    if (cli->help) {
        document_help(cli->command);
        return out_finish_listing();
    }
    return cli->command->run(cli);
}

/* A stream that was closed at the start is opened in the wrong direction: writing to it remains an
 * error, and no file of the store gets its number. */
static void fill_closed_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0) {
            (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
        }
    }
}

int main(int argc, char **argv)
{
    fill_closed_streams();
    /* Writing to a closed pipe must be an error, which out_finish reports, not a silent death. */
    (void)signal(SIGPIPE, SIG_IGN);
    int dumped = dump(argc, argv);
    if (dumped >= 0) {
        return dumped;
    }
    if (argc < 2) {
        document_overview();
        int code = out_finish_listing();
        return code == CLI_OK ? CLI_USAGE : code;
    }
    struct cli cli = {.command = command_find(command_word(argc, argv))};
    if (cli.command == NULL) {
        return document_unknown(argv[1]);
    }
    arena_init(&cli.arena, &mem_libc, ARENA_BYTES_MAX);
    int code = run_command(&cli, argc, argv);
    arena_release(&cli.arena);
    return code;
}
