/*
 * mcp_serve: once mcp --serve.
 */
#ifndef ONCE_CLI_MCP_SERVE_H
#define ONCE_CLI_MCP_SERVE_H

#include "cli/cli.h"

/* Answers on standard input and output until the client goes. An exit code. */
int mcp_serve(struct cli *cli);

#endif
