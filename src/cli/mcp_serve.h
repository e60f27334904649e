/*
 * mcp_serve: once mcp --serve.
 */
#ifndef ONCE_CLI_MCP_SERVE_H
#define ONCE_CLI_MCP_SERVE_H

#include "cli/mcp_tools.h"
#include "mcp/endpoint.h"

/* Answers on standard input and output until the client goes. An exit code. */
int mcp_serve(struct cli *cli);

/* The same for a session of --listen, until its channel is closed. A bearer token of the client is
 * used instead of --token. submitted is shared by all sessions. */
void mcp_serve_session(const struct cli *cli, const struct mcp_session_facts *facts,
    struct mcp_own_commands *submitted);

#endif
