// The application of applications.py for Node: app.mjs KIND ONCE_URL PROFILE prints its port.
//
// What the test in another process asks goes by reads, which pass through the middleware:
// GET /calls, /reset, /hold, /let-go, /entered.
import http from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setTimeout as sleep } from "node:timers/promises";

const [kind, onceUrl, profile] = process.argv.slice(2);
const sdk = process.env.ONCE_SDK;
const { Client, Fences } = await import(`${sdk}/index.js`);
const fences = new Fences(onceUrl, { client: new Client({ retries: 1, idleMax: 64,
  deadlineMs: 110000, attemptTimeoutMs: 100000, connectTimeoutMs: 60000 }) });
const FIELDS = { "Content-Type": "application/json", "Set-Cookie": "session=1", "X-Kept": "yes" };
const ANSWER_MAX = 1000; // as applications.py has it
const SLOW_MS = 500; // long enough for duplicates to come while it runs; nothing depends on it

let calls = {};
let isInside = false;
let isInsideLarge = false;
let letGo = () => {};
let gate = Promise.resolve();

/** [status, fields, body] */
async function answer(method, path) {
  const name = path.replace(/^\//, "").split("/")[0];
  const json = (document) => JSON.stringify(document);
  if (method === "GET") {
    if (name === "reset") [calls, isInside, isInsideLarge] = [{}, false, false];
    if (name === "hold") gate = new Promise((resolve) => { letGo = resolve; });
    if (name === "let-go") letGo();
    return [200, FIELDS, json({ charges: calls.charges ?? 0, calls, isInside, isInsideLarge })];
  }
  calls[name] = (calls[name] ?? 0) + 1;
  if (name === "crash") throw new Error("crashed");
  if (name === "end") return [Number(path.split("/")[2]), FIELDS, '{"end":true}'];
  if (name === "bytes") {
    return [200, { "Content-Type": "application/octet-stream" }, Buffer.from([0xff, 0, 0xfe])];
  }
  if (["pieces", "whole", "large"].includes(name)) {
    const size = Number(path.split("/")[2]);
    return [201, { ...FIELDS, "Content-Length": size },
      name === "whole" ? "a".repeat(size) : Readable.from(piecewise(name, size))];
  }
  if (name === "slow") await sleep(SLOW_MS);
  if (name === "held") {
    isInside = true;
    await gate;
  }
  return [201, FIELDS, json({ charge: calls[name] })];
}

/** Of a large one the last piece waits. */
async function* piecewise(name, size) {
  for (let i = 1; i < size; i += 1) yield "a";
  if (name === "large") {
    isInsideLarge = true;
    await gate;
  }
  yield "a";
}

async function plain() {
  const { once } = await import(`${sdk}/express.js`);
  const middleware = once(fences, { profile, answerBytesMax: ANSWER_MAX });
  return http.createServer((req, res) => {
    const fail = (error) => {
      if (!res.headersSent) res.writeHead(500).end(String(error));
    };
    middleware(req, res, (error) => {
      if (error) return fail(error);
      return answer(req.method, req.url.split("?")[0]).then(([status, fields, body]) => {
        res.writeHead(status, fields);
        if (body instanceof Readable) return pipeline(body, res);
        res.write(body.slice(0, 1)); // in two pieces, as some handlers do
        return res.end(body.slice(1));
      }).catch(fail);
    });
  }).listen(0, "127.0.0.1");
}

async function express() {
  const [{ default: make }, { once }] = await Promise.all([import("express"),
    import(`${sdk}/express.js`)]);
  const app = make();
  app.use(once(fences, { profile, answerBytesMax: ANSWER_MAX }));
  app.use(make.json());
  app.all(/.*/, async (req, res) => {
    const [status, fields, body] = await answer(req.method, req.path);
    if (req.method === "POST" && req.body.cents === undefined) throw new Error("no body");
    res.status(status).set(fields);
    if (body instanceof Readable) await pipeline(body, res);
    else res.send(body);
  });
  app.use((error, req, res, next) => {
    res.status(500).json({ error: error.message });
  });
  return app.listen(0, "127.0.0.1");
}

async function fastify() {
  const [{ default: make }, { default: once }] = await Promise.all([import("fastify"),
    import(`${sdk}/fastify.js`)]);
  const app = make();
  await app.register(once, { fences, profile, answerBytesMax: ANSWER_MAX });
  app.all("/*", async (request, reply) => {
    const [status, fields, body] = await answer(request.method, request.url.split("?")[0]);
    if (request.method === "POST" && request.body.cents === undefined) throw new Error("no body");
    return reply.code(status).headers(fields).send(body);
  });
  await app.listen({ port: 0, host: "127.0.0.1" });
  return app.server;
}

const server = await { node: plain, express, fastify }[kind]();
if (!server.listening) await new Promise((resolve) => { server.once("listening", resolve); });
console.log(server.address().port);
