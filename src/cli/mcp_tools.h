/*
 * mcp_tools: the tools of once mcp --serve: what an agent may ask Once itself.
 *
 * One table has each tool's name, its words for a model, its arguments and what it does. They work
 * on a store or through a server (backend.h), with the rights of the caller's token; commands need
 * a server.
 */
#ifndef ONCE_CLI_MCP_TOOLS_H
#define ONCE_CLI_MCP_TOOLS_H

#include "canon/json.h"
#include "canon/jsonw.h"
#include "cli/cli.h"

enum {
    MCP_OWN_COMMANDS_MAX = 1024, /* submitted by this process, and remembered */
    MCP_COMMAND_ID_BYTES = 41,
};

/* What outlives one call. */
struct mcp_own {
    struct cli cli; /* a copy with an arena of its own, for one call */
    const char *principal;
    char commands[MCP_OWN_COMMANDS_MAX][MCP_COMMAND_ID_BYTES]; /* the last ones */
    size_t command_count;
};

/* A call of a tool, and its answer. */
struct mcp_ask {
    struct mcp_own *own;
    struct slice text;                  /* that arguments were read from */
    const struct json_value *arguments; /* an object */
    struct buf *out;                    /* a JSON object, or words if it failed */
    bool has_failed;
};

enum { MCP_OWN_ARGUMENTS_MAX = 8 };

/* An argument of a tool. */
struct mcp_own_argument {
    const char *name;
    const char *says;   /* to a model */
    const char *schema; /* members of its JSON schema; NULL: a string */
    bool is_required;
};

struct mcp_own_tool {
    const char *name;
    const char *says;                                         /* to a model */
    const char *annotations;                                  /* a JSON object */
    struct mcp_own_argument arguments[MCP_OWN_ARGUMENTS_MAX]; /* ends with a zeroed row */
    void (*run)(struct mcp_ask *ask);
};
/* Ends with a zeroed row. */
extern const struct mcp_own_tool mcp_own_tools[];

#endif
