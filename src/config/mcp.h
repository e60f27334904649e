/*
 * mcp: the `mcp:` section as plain data: how `once mcp` treats calls of tools.
 *
 * Promises:  every value is set: by the file, else by its default.
 * Ownership: in the config's memory, until config_free.
 */
#ifndef ONCE_CONFIG_MCP_H
#define ONCE_CONFIG_MCP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"

enum {
    CONFIG_MCP_TOOLS_MAX = 256,     /* keys of one map */
    CONFIG_MCP_POINTERS_MAX = 64,   /* of redact */
    CONFIG_MCP_TIMEOUT_MS = 600000, /* the defaults of a tool that no entry matches: those of … */
    CONFIG_MCP_WAIT_MS = 10000,     /* … the table, which a test compares */
};

/* What names a call that has no key. In the order of the setting's choices. */
enum config_mcp_key { CONFIG_MCP_DERIVE, CONFIG_MCP_REQUIRE, CONFIG_MCP_PASS };
enum config_mcp_unknown { CONFIG_MCP_HOLD, CONFIG_MCP_TAKEOVER };

/* The settings of the tools whose names match. */
struct config_mcp_tool {
    const char *name;    /* of a tool, or a glob in which a star is any run of characters */
    unsigned line;       /* in the file */
    unsigned key;        /* enum config_mcp_key */
    int64_t window_ms;   /* 0: by where the key came from */
    unsigned on_unknown; /* enum config_mcp_unknown */
    bool retry_errors;
    int64_t timeout_ms; /* how long a server may be silent about a call */
    int64_t wait_ms;    /* how long a duplicate waits for the first call's result */
    const char *redact[CONFIG_MCP_POINTERS_MAX]; /* into the arguments */
    size_t redact_count;
};

struct config_mcp {
    const struct config_mcp_tool *tools; /* in the order of the file: the first match applies */
    size_t tool_count;
};

/* The settings of a tool: the first that match, else the defaults. */
const struct config_mcp_tool *config_mcp_find(const struct config_mcp *mcp, struct slice tool);

#endif
