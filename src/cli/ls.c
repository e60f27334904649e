/* once ls: operations, one a line. */
#include <string.h>

#include "base/text.h"
#include "cli/operation.h"

struct listing {
    struct cli *cli;
    struct buf bytes; /* JSON of the one at hand */
    struct jsonw json;
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

static void print_line(const struct listing *listing, const struct once_operation *operation)
{
    char time[TEXT_TIME_BYTES];
    if (listing->count == 0) {
        out_text("%s%-39s  %-11s  %-24s  %4s  %4s  %s%s\n", out_tint(TINT_FAINT), "OPERATION",
            "STATUS", "UPDATED", "TRY", "DUP", "SCOPE KEY", out_plain());
    }
    out_text("%-39s  %s%-11s%s  %-24s  %4u  %4u  ", operation->operation_id,
        out_tint(operation_tint(operation->status)), once_status_name(operation->status),
        out_plain(), text_put_time(time, operation->updated_ms), operation->attempt,
        operation->duplicates);
    out_safe(slice_str(operation->scope));
    out_text(" ");
    out_safe(slice_str(operation->key));
    out_text("\n");
}

static int visit(void *context, const struct once_operation *operation)
{
    struct listing *listing = context;
    if (listing->cli->json) {
        buf_clear(&listing->bytes);
        jsonw_open(&listing->json, NULL, '{');
        operation_json(&listing->json, listing->cli, operation, false);
        jsonw_close(&listing->json, '}');
        out_bytes(buf_view(&listing->bytes));
    } else {
        print_line(listing, operation);
    }
    listing->count++;
    return out_broken() ? 1 : 0;
}

int cmd_ls(struct cli *cli)
{
    struct origin origin;
    struct listing listing = {.cli = cli};
    int code = origin_open(cli, &origin);
    if (code != CLI_OK) {
        return code;
    }
    struct once_filter filter = {
        .scope = cli_text(cli, "scope"),
        .key = cli_text(cli, "key"),
        .status = status_read(cli_text(cli, "status")),
        .limit = (size_t)cli_count(cli, "limit"),
    };
    buf_init(&listing.bytes, &mem_libc, 1 << 20);
    listing.json.out = &listing.bytes;
    out_text(cli->json ? "[" : "");
    code = origin.ops->iterate(&origin, &filter, visit, &listing);
    out_text(cli->json ? "]\n" : "");
    int written = out_finish();
    code = code != CLI_OK ? code : written;
    buf_release(&listing.bytes);
    origin_close(&origin);
    return code;
}
