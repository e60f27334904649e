/*
 * mcp_tools: the tools of once mcp --serve, by which an agent uses Once directly.
 *
 * One table has each tool's name, its description for a model, its arguments and its function. They
 * work on a store or through a server (backend.h), with the rights of the caller's token; commands
 * need a server.
 */
#ifndef ONCE_CLI_MCP_TOOLS_H
#define ONCE_CLI_MCP_TOOLS_H

#include <pthread.h>

#include "canon/json.h"
#include "canon/jsonw.h"
#include "cli/cli.h"

enum {
    MCP_OWN_COMMANDS_MAX = 1024, /* submitted through this process, and remembered */
    MCP_COMMAND_ID_BYTES = 41,
    MCP_AGENT_BYTES = 96,
};

/* The commands that agents submitted through this process; the last ones. */
struct mcp_own_commands {
    pthread_mutex_t mutex;
    struct {
        char id[MCP_COMMAND_ID_BYTES];
        char agent[MCP_AGENT_BYTES];
    } items[MCP_OWN_COMMANDS_MAX];
    size_t count;
};

/* What outlives one call. */
struct mcp_own {
    struct cli cli; /* a copy with its own arena, for one call */
    const char *principal;
    const char *agent; /* the client: two with the same credentials are one; "": this process's */
    unsigned rights;   /* of enum config_right; the server checks rights too */
    struct mcp_own_commands *submitted;
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
    const char *says;        /* to a model */
    const char *annotations; /* a JSON object */
    unsigned rights;         /* of enum config_right: one of them is needed; 0: any */
    struct mcp_own_argument arguments[MCP_OWN_ARGUMENTS_MAX]; /* ends with a zeroed row */
    void (*run)(struct mcp_ask *ask);
};
/* Ends with a zeroed row. */
extern const struct mcp_own_tool mcp_own_tools[];

#endif
