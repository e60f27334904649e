#include "cli/headers.h"

#include <string.h>

enum { HEADER_FILE_BYTES_MAX = 64 << 10 }; /* the SDK's limit for all headers */

static int add_header(struct cli *cli, struct headers *headers, struct slice line)
{
    char *copy = headers->count < HEADERS_MAX ? arena_zalloc(&cli->arena, line.len + 1) : NULL;
    if (copy == NULL) {
        return cli_usage(cli, "%s: more than %d headers", cli->command->name, HEADERS_MAX);
    }
    if (line.len > 0) {
        memcpy(copy, line.data, line.len);
    }
    headers->lines[headers->count++] = copy;
    return CLI_OK;
}

/* One header per line: every user of a machine can see command lines, and some headers are
 * secret. */
static int add_header_file(struct cli *cli, struct headers *headers, const char *path)
{
    struct slice text = SLICE_EMPTY;
    int code = cli_read_file(cli, path, HEADER_FILE_BYTES_MAX, &text);
    while (code == CLI_OK && text.len > 0) {
        const char *end = memchr(text.data, '\n', text.len);
        struct slice line = slice_of(text.data, end == NULL ? text.len : (size_t)(end - text.data));
        size_t used = line.len + (end != NULL);
        text = slice_of(text.data + used, text.len - used);
        line.len -= line.len > 0 && line.data[line.len - 1] == '\r';
        code = line.len == 0 ? CLI_OK : add_header(cli, headers, line);
    }
    return code;
}

int headers_read(struct cli *cli, struct headers *ret_headers)
{
    int code = CLI_OK;
    const char *given = cli_nth(cli, "header", 0);
    for (size_t i = 0; code == CLI_OK && given != NULL; given = cli_nth(cli, "header", ++i)) {
        code = given[0] == '@' ? add_header_file(cli, ret_headers, given + 1)
                               : add_header(cli, ret_headers, slice_str(given));
    }
    return code;
}
