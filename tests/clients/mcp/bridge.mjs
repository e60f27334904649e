// A server of standard input and output, such as once mcp, at an HTTP address: each session has a
// process of its own. The conformance suite only knows addresses. node bridge.mjs COMMAND ARGS...
import http from "node:http";
import {randomUUID} from "node:crypto";
import {StdioClientTransport} from "@modelcontextprotocol/sdk/client/stdio.js";
import {StreamableHTTPServerTransport} from "@modelcontextprotocol/sdk/server/streamableHttp.js";

const [command, ...args] = process.argv.slice(2);
const sessions = new Map();

async function open() {
  const child = new StdioClientTransport({command, args, stderr: "inherit"});
  const front = new StreamableHTTPServerTransport({sessionIdGenerator: () => randomUUID(),
    onsessioninitialized: (id) => sessions.set(id, front)});
  front.onmessage = (message) => child.send(message);
  front.onclose = () => child.close();
  child.onmessage = (message) => front.send(message).catch(() => {});
  await child.start();
  await front.start();
  return front;
}

const server = http.createServer(async (request, response) => {
  const known = sessions.get(request.headers["mcp-session-id"]);
  await (known ?? await open()).handleRequest(request, response);
});
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}/mcp`));
