/* once ls: operations, one a line. */
#include <string.h>

#include "base/text.h"
#include "cli/backend.h"
#include "cli/ls_unknown.h"

struct listing {
    struct cli *cli;
    struct buf bytes; /* the document at hand */
    size_t count;
};

static enum once_status status_read(const char *name)
{
    for (int i = ONCE_STATUS_IN_PROGRESS; name != NULL && i <= ONCE_COMPENSATED; i++) {
        if (strcmp(once_status_name((enum once_status)i), name) == 0) {
            return (enum once_status)i;
        }
    }
    return (enum once_status)0; /* any */
}

static void print_line(const struct listing *listing, const struct operation *operation)
{
    char time[TEXT_TIME_BYTES];
    if (listing->count == 0) {
        out_text("%s%-39s  %-11s  %-24s  %4s  %4s  %s%s\n", out_tint(TINT_FAINT), "OPERATION",
            "STATUS", "UPDATED", "TRY", "DUP", "SCOPE KEY", out_plain());
    }
    out_text("%-39.*s  %s%-11s%s  %-24s  %4llu  %4llu  ", SLICE_ARGS(operation->id),
        out_tint(operation_tint(operation->status)), once_status_name(operation->status),
        out_plain(), text_put_time(time, operation->updated_ms),
        (unsigned long long)operation->attempt, (unsigned long long)operation->duplicates);
    out_safe(operation->scope);
    out_text(" ");
    out_safe(operation->key);
    out_text("\n");
}

static int visit(void *context, const struct operation *operation)
{
    struct listing *listing = context;
    if (listing->cli->json) {
        out_text(listing->count == 0 ? "" : ",");
        ls_put_document(&listing->bytes, operation, -1);
        out_bytes(buf_view(&listing->bytes));
    } else {
        print_line(listing, operation);
    }
    listing->count++;
    return out_broken() ? 1 : 0;
}

static int list_any(struct cli *cli, struct backend *backend, const struct once_filter *filter)
{
    struct listing listing = {.cli = cli};
    buf_init(&listing.bytes, &mem_libc, LS_DOCUMENT_BYTES_MAX);
    int code = backend->ops->iterate(backend, filter, visit, &listing);
    buf_release(&listing.bytes);
    return code;
}

struct waiting {
    struct ls_unknown list;
    bool no_memory;
};

static int visit_unknown(void *context, const struct operation *operation)
{
    struct waiting *waiting = context;
    waiting->no_memory = !ls_unknown_add(&waiting->list, operation);
    return waiting->no_memory || waiting->list.left == 0 || out_broken() ? 1 : 0;
}

/* All of them are read, whatever the limit: the oldest may come last. */
static int list_unknown(struct cli *cli, struct backend *backend, const struct once_filter *filter)
{
    struct waiting waiting = {0};
    struct once_filter all = *filter;
    all.limit = 0;
    ls_unknown_init(&waiting.list, cli, filter->limit);
    int code = backend->ops->iterate(backend, &all, visit_unknown, &waiting);
    if (waiting.no_memory || !ls_unknown_print(&waiting.list)) {
        cli_say("cannot list the operations: out of memory");
        code = CLI_UNAVAILABLE;
    }
    ls_unknown_release(&waiting.list);
    return code;
}

int cmd_ls(struct cli *cli)
{
    struct backend backend;
    int code = backend_open(cli, &backend);
    if (code != CLI_OK) {
        return code;
    }
    struct once_filter filter = {
        .scope = cli_text(cli, "scope"),
        .key = cli_text(cli, "key"),
        .status = status_read(cli_text(cli, "status")),
        .limit = (size_t)cli_count(cli, "limit"),
    };
    out_text(cli->json ? "[" : "");
    code = filter.status == ONCE_STATUS_UNKNOWN ? list_unknown(cli, &backend, &filter)
                                                : list_any(cli, &backend, &filter);
    out_text(cli->json ? "]\n" : "");
    int written = out_finish();
    code = code != CLI_OK ? code : written;
    backend_close(&backend);
    return code;
}
