/* The table of all settings of a tool of `once mcp`. The example file is made from these words. */
#include <stddef.h>

#include "base/limits.h"
#include "config/impl.h"

#define AT(member)      .in = CONFIG_IN_ENTRY, .offset = offsetof(struct config_mcp_tool, member)
#define COUNTED(member) .count = offsetof(struct config_mcp_tool, member)

enum { SECOND_MS = 1000, HOUR_MS = 3600 * SECOND_MS };
#define DAY_MS (UINT64_C(24) * HOUR_MS)

const struct config_option config_mcp_tool_options[] = {
    ROW("key", CHOICE, AT(key), .fallback = "derive", .choices = {"derive", "require", "pass"},
        .help =
            "What names a call without an idempotency_key. derive: the tool and its "
            "arguments, so that an equal call within the window gets the first result. require: "
            "nothing; the call is refused. pass: the tool is not guarded; its calls are neither "
            "changed nor recorded.",
        .unsure = "derive; require if two equal calls in a row may both be intended."),
    ROW("window", DURATION, AT(window_ms), .min = 1, .max = LIMIT_WINDOW_MS_MAX,
        .absent = "2m for a derived key and 24h for a given one", .example = "24h",
        .help = "How long a repeated call is recognised, from the end of the first one.",
        .unsure = "Leave it out."),
    ROW("on_unknown", CHOICE, AT(on_unknown), .fallback = "hold", .choices = {"hold", "takeover"},
        .help = "What happens to a repeated call when nobody knows whether the first one took "
                "effect. hold: it is refused until a person decides. takeover: it is made again; "
                "only for tools that are idempotent themselves.",
        .unsure = "hold."),
    ROW("retry_errors", BOOL, AT(retry_errors), .fallback = "false",
        .help = "true: a result with isError, or an error of the protocol, means that nothing was "
                "done, so that the same call is made again. false: a result with isError is kept "
                "and given to duplicates.",
        .unsure = "false, unless the tool changes nothing before it reports an error."),
    ROW("timeout", DURATION, AT(timeout_ms), .fallback = "10m", .min = 10, .max = 7 * DAY_MS,
        .help = "How long the server may be silent about a call. After that nobody knows whether "
                "it took effect. Each notification of progress starts it again.",
        .unsure = "Longer than the tool ever takes."),
    ROW("wait", DURATION, AT(wait_ms), .fallback = "10s", .max = LIMIT_WAIT_MS_MAX,
        .help = "How long a duplicate waits for the result of a running call, before it is told "
                "to ask again.",
        .unsure = "Less than the client's own timeout."),
    ROW("redact", LIST, AT(redact), COUNTED(redact_count), .form = CONFIG_FORM_POINTER,
        .max = CONFIG_MCP_POINTERS_MAX, .example = "[/card/number]",
        .help = "JSON Pointers into the arguments. When one of them leads to a value, no argument "
                "of the call is stored, only a fingerprint of all of them, and a conflict does not "
                "say what differs. Results are stored as they are.",
        .unsure = "Name every secret, and use it with key: require."),
    {0},
};
