// The client of the conformance suite's scenarios: the SDK, with once mcp between it and the
// scenario's server. node conformance_client.mjs ONCE STORE URL
import {Client} from "@modelcontextprotocol/sdk/client/index.js";
import {StdioClientTransport} from "@modelcontextprotocol/sdk/client/stdio.js";
import {ElicitRequestSchema} from "@modelcontextprotocol/sdk/types.js";

const [once, store, url] = process.argv.slice(2);
const client = new Client({name: "conformance", version: "1"},
  {capabilities: {elicitation: {form: {applyDefaults: true}}}});
client.setRequestHandler(ElicitRequestSchema, () => ({action: "accept", content: {}}));
await client.connect(new StdioClientTransport({command: once,
  args: ["mcp", "--store", store, "--upstream", url], stderr: "inherit"}));
for (const tool of (await client.listTools()).tools) {
  const args = tool.name === "add_numbers" ? {a: 5, b: 3} : {};
  await client.callTool({name: tool.name, arguments: args});
}
await client.close();
