// A tour of an MCP server with the official SDK: node everything.mjs COMMAND ARGS..., or URL
// Prints what the server answered, as JSON, so that two ways to the same server can be compared.
import {Client} from "@modelcontextprotocol/sdk/client/index.js";
import {StdioClientTransport} from "@modelcontextprotocol/sdk/client/stdio.js";
import {StreamableHTTPClientTransport} from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import {CreateMessageRequestSchema, ElicitRequestSchema, ListRootsRequestSchema,
  ResourceUpdatedNotificationSchema} from "@modelcontextprotocol/sdk/types.js";

const client = new Client({name: "tour", version: "1"},
  {capabilities: {sampling: {}, roots: {listChanged: true}, elicitation: {}}});
const asked = [];
client.setRequestHandler(CreateMessageRequestSchema, async (request) => {
  asked.push(["sampling", request.params.maxTokens]);
  return {role: "assistant", model: "none", content: {type: "text", text: "a thought"}};
});
client.setRequestHandler(ElicitRequestSchema, async () => {
  asked.push(["elicitation"]);
  return {action: "accept", content: {name: "Ann"}};
});
client.setRequestHandler(ListRootsRequestSchema, async () => ({roots: [{uri: "file:///r"}]}));
client.setNotificationHandler(ResourceUpdatedNotificationSchema, async () => {});

const [command, ...args] = process.argv.slice(2);
await client.connect(/^https?:/.test(command) ? new StreamableHTTPClientTransport(new URL(command))
  : new StdioClientTransport({command, args, stderr: "inherit"}));
const tour = {server: client.getServerVersion(), capabilities: client.getServerCapabilities()};
tour.tools = (await client.listTools()).tools;
const call = async (name, args, options) =>
  client.callTool({name, arguments: args}, undefined, options);
tour.echo = await call("echo", {message: "h\u00e4\u2028llo"});
tour.sum = await call("get-sum", {a: 1, b: 2.5});
tour.image = await call("get-tiny-image", {});
tour.structured = await call("get-structured-content", {location: "Chicago"});
tour.links = await call("get-resource-links", {count: 2});
tour.wrong = await call("get-sum", {a: "x"});
let steps = 0;
tour.long = await call("trigger-long-running-operation", {duration: 0.2, steps: 2},
  {onprogress: () => { steps++; }});
tour.steps = steps;
tour.sampled = await call("trigger-sampling-request", {prompt: "p", maxTokens: 7});
tour.elicited = await call("trigger-elicitation-request", {});
tour.resources = await client.listResources();
tour.resource = await client.readResource({uri: tour.resources.resources[0].uri});
tour.templates = await client.listResourceTemplates();
tour.prompts = await client.listPrompts();
tour.prompt = await client.getPrompt({name: "args-prompt", arguments: {city: "Rome", state: "I"}});
tour.completion = await client.complete({ref: {type: "ref/prompt", name: "completable-prompt"},
  argument: {name: "department", value: "E"}});
await client.setLoggingLevel("error");
await client.subscribeResource({uri: tour.resources.resources[0].uri});
tour.ping = await client.ping();
try {
  await client.request({method: "no/such"}, CreateMessageRequestSchema);
} catch (error) {
  tour.unknown = error.code;
}
tour.asked = asked;
console.log(JSON.stringify(tour));
await client.close();
