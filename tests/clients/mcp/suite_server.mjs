// The server that the conformance suite asks for, on standard input and output, with the official
// SDK: its tools, prompts and resources have the names and contents that the scenarios require.
import {setTimeout as sleep} from "node:timers/promises";
import {Server} from "@modelcontextprotocol/sdk/server/index.js";
import {StdioServerTransport} from "@modelcontextprotocol/sdk/server/stdio.js";
import * as types from "@modelcontextprotocol/sdk/types.js";

const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9"
  + "HQAAAABJRU5ErkJggg==";
const SILENCE = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";
const STEP_MS = 50;

const server = new Server({name: "suite", version: "1"}, {capabilities: {completions: {},
  logging: {}, prompts: {}, resources: {subscribe: true}, tools: {}}});

const text = (words) => ({type: "text", text: words});
const image = {type: "image", data: PIXEL, mimeType: "image/png"};
const embedded = (uri, mimeType, words) => ({type: "resource", resource: {uri, mimeType,
  text: words}});

// Ask the user of the client; what came of it, in the words that the scenarios want.
async function elicit(said, message, properties, required) {
  const {action, content} = await server.elicitInput({message,
    requestedSchema: {type: "object", properties, required}});
  return [text(`${said}: action=${action}, content=${JSON.stringify(content ?? {})}`)];
}

const choices = (...values) => values.map((value) => ({const: value, title: `The ${value}`}));
const OPTIONS = ["option1", "option2", "option3"];

const TOOLS = {
  test_simple_text: () => [text("This is a simple text response for testing.")],
  test_image_content: () => [image],
  test_audio_content: () => [{type: "audio", data: SILENCE, mimeType: "audio/wav"}],
  test_embedded_resource: () =>
    [embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")],
  test_multiple_content_types: () => [text("Multiple content types test:"), image,
    embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}')],
  test_tool_with_logging: async () => {
    for (const data of ["started", "processing", "completed"]) {
      await server.sendLoggingMessage({level: "info", data: `Tool execution ${data}`});
      await sleep(STEP_MS);
    }
    return [text("logged")];
  },
  test_error_handling: () => { throw new Error("This tool intentionally returns an error"); },
  test_tool_with_progress: async (_, extra) => {
    const progressToken = extra._meta?.progressToken;
    for (const progress of [0, 50, 100]) {
      if (progressToken !== undefined) {
        await extra.sendNotification({method: "notifications/progress",
          params: {progressToken, progress, total: 100}});
      }
      await sleep(STEP_MS);
    }
    return [text("progressed")];
  },
  test_sampling: async ({prompt}) => {
    const {content} = await server.createMessage({maxTokens: 100,
      messages: [{role: "user", content: text(prompt)}]});
    return [text(`LLM response: ${content.text}`)];
  },
  test_elicitation: ({message}) => elicit("User response", message, {
    username: {type: "string", description: "User's response"},
    email: {type: "string", description: "User's email address"}}, ["username", "email"]),
  test_elicitation_sep1034_defaults: () => elicit("Elicitation completed", "Who?", {
    name: {type: "string", default: "John Doe"},
    age: {type: "integer", default: 30},
    score: {type: "number", default: 95.5},
    status: {type: "string", enum: ["active", "inactive", "pending"], default: "active"},
    verified: {type: "boolean", default: true}}, []),
  test_elicitation_sep1330_enums: () => elicit("Elicitation completed", "Which?", {
    untitledSingle: {type: "string", enum: OPTIONS},
    titledSingle: {type: "string", oneOf: choices("value1", "value2", "value3")},
    legacyEnum: {type: "string", enum: ["opt1", "opt2", "opt3"],
      enumNames: ["Option One", "Option Two", "Option Three"]},
    untitledMulti: {type: "array", items: {type: "string", enum: OPTIONS}},
    titledMulti: {type: "array", items: {anyOf: choices("value1", "value2", "value3")}}}, []),
  json_schema_2020_12_tool: () => [text("fine")],
};
const words = (...names) => ({type: "object", required: names,
  properties: Object.fromEntries(names.map((name) => [name, {type: "string"}]))});
const SCHEMAS = {test_sampling: words("prompt"), test_elicitation: words("message"),
  json_schema_2020_12_tool: {$schema: "https://json-schema.org/draft/2020-12/schema",
    type: "object", $defs: {address: words("street", "city")},
    properties: {name: {type: "string"}, address: {$ref: "#/$defs/address"}},
    additionalProperties: false}};

server.setRequestHandler(types.ListToolsRequestSchema, () => ({
  tools: Object.keys(TOOLS).map((name) => ({name, description: `The suite's ${name}`,
    inputSchema: SCHEMAS[name] ?? {type: "object"}}))}));
server.setRequestHandler(types.CallToolRequestSchema, async ({params}, extra) => {
  try {
    return {content: await TOOLS[params.name](params.arguments ?? {}, extra)};
  } catch (error) {
    return {content: [text(error.message)], isError: true};
  }
});

const asked = (...contents) => ({messages: contents.map((content) => ({role: "user", content}))});
const PROMPTS = {
  test_simple_prompt: [[], () => asked(text("This is a simple prompt for testing."))],
  test_prompt_with_arguments: [["arg1", "arg2"], ({arg1, arg2}) =>
    asked(text(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`))],
  test_prompt_with_embedded_resource: [["resourceUri"], ({resourceUri}) =>
    asked(embedded(resourceUri, "text/plain", "Embedded resource content for testing."),
      text("Please process the embedded resource above."))],
  test_prompt_with_image: [[], () => asked(image, text("Please analyze the image above."))],
};

server.setRequestHandler(types.ListPromptsRequestSchema, () => ({
  prompts: Object.entries(PROMPTS).map(([name, [names]]) => ({name,
    description: `The suite's ${name}`,
    arguments: names.map((one) => ({name: one, required: true}))}))}));
server.setRequestHandler(types.GetPromptRequestSchema, ({params}) =>
  PROMPTS[params.name][1](params.arguments ?? {}));
server.setRequestHandler(types.CompleteRequestSchema, ({params}) => ({completion: {
  values: ["paris", "park", "party"].filter((one) => one.startsWith(params.argument.value)),
  hasMore: false}}));

const RESOURCES = {
  "test://static-text": {mimeType: "text/plain",
    text: "This is the content of the static text resource."},
  "test://static-binary": {mimeType: "image/png", blob: PIXEL},
};
const TEMPLATE = /^test:\/\/template\/([^/]+)\/data$/;

server.setRequestHandler(types.ListResourcesRequestSchema, () => ({
  resources: Object.entries(RESOURCES).map(([uri, {mimeType}]) => ({uri, name: uri, mimeType,
    description: `The suite's ${uri}`}))}));
server.setRequestHandler(types.ListResourceTemplatesRequestSchema, () => ({resourceTemplates: [
  {uriTemplate: "test://template/{id}/data", name: "template", mimeType: "application/json"}]}));
server.setRequestHandler(types.ReadResourceRequestSchema, ({params: {uri}}) => {
  const [, id] = TEMPLATE.exec(uri) ?? [];
  const made = {mimeType: "application/json",
    text: JSON.stringify({id, templateTest: true, data: `Data for ID: ${id}`})};
  const found = id === undefined ? RESOURCES[uri] : made;
  if (found === undefined) throw new types.McpError(-32602, "Resource not found", {uri});
  return {contents: [{uri, ...found}]};
});
server.setRequestHandler(types.SubscribeRequestSchema, () => ({}));
server.setRequestHandler(types.UnsubscribeRequestSchema, () => ({}));

await server.connect(new StdioServerTransport());
