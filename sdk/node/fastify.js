// Fences the handlers of a Fastify application without a gateway.
//
//     await app.register(once, { fences: new Fences("http://127.0.0.1:7411") });
//
// Answers to fenced requests are held back until they are sealed; larger ones than answerBytesMax
// go through as they come. Reads pass through untouched.
import { Readable } from "node:stream";
import { find } from "./client.js";
import { Handlers, requestOf } from "./handlers.js";

const FENCED = Symbol("once: the grant and the request");

export async function once(app, { fences, ...options }) {
  const handlers = new Handlers(fences, options);

  app.addHook("preParsing", async (request, reply, payload) => {
    if (!handlers.isFenced(request.raw)) return payload;
    const body = await readBody(payload, handlers.bodyBytesMax);
    const asked = requestOf(request.raw, request.raw.url, body ?? Buffer.alloc(0));
    const begun = body === undefined ? handlers.refuse(asked, "body_too_large")
      : await handlers.begin(asked);
    if (!handlers.isGrant(begun)) return say(reply, begun);
    request[FENCED] = { grant: begun, asked };
    request.headers["idempotency-key"] ??= find(asked.headers, "Idempotency-Key"); // a new one
    handlers.hold(begun, reply.raw);
    const again = Readable.from(body.length > 0 ? [body] : []);
    again.receivedEncodedLength = body.length;
    return again;
  });

  app.addHook("onSend", async (request, reply, payload) => {
    const fenced = request[FENCED];
    if (!fenced) return payload;
    request[FENCED] = undefined;
    const { grant, asked } = fenced;
    const headers = Object.entries(reply.getHeaders())
      .flatMap(([name, value]) => [value].flat().map((each) => [name, String(each)]));
    const { body, rest } = await hold(payload, handlers.answerBytesMax).catch(async (error) => {
      await handlers.crashed(grant, error);
      throw error;
    });
    const answer = { status: reply.statusCode, headers, body };
    const last = rest ? handlers.head(grant, asked, answer)
      : await handlers.end(grant, asked, answer);
    for (const [name] of headers) reply.removeHeader(name);
    put(reply, last);
    if (!rest) return last.body;
    return Readable.from(follow(body, rest, {
      end: () => handlers.endThrough(grant, answer.status),
      crashed: (error) => handlers.crashed(grant, error),
    }));
  });
}
once[Symbol.for("skip-override")] = true; // for the whole application, not a part of it
once[Symbol.for("fastify.display-name")] = "once";

export default once;

async function readBody(payload, bytesMax) {
  const pieces = [];
  let size = 0;
  for await (const piece of payload) {
    size += piece.length;
    if (size > bytesMax) return undefined;
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}

/** {body, rest}: rest is what comes after bytesMax bytes of a stream; undefined: nothing. */
async function hold(payload, bytesMax) {
  if (payload === undefined || payload === null) return { body: Buffer.alloc(0) };
  if (typeof payload === "string" || payload instanceof Uint8Array) {
    return { body: Buffer.from(payload) }; // it is in memory already
  }
  const rest = payload[Symbol.asyncIterator]();
  const pieces = [];
  let size = 0;
  for (let next = await rest.next(); !next.done; next = await rest.next()) {
    pieces.push(Buffer.from(next.value));
    size += pieces.at(-1).length;
    if (size > bytesMax) return { body: Buffer.concat(pieces), rest };
  }
  return { body: Buffer.concat(pieces) };
}

/** What was held back, what follows it, and its end when `end` has recorded it. */
async function* follow(body, rest, { end, crashed }) {
  try {
    yield body;
    for (let next = await rest.next(); !next.done; next = await rest.next()) yield next.value;
  } catch (error) {
    await crashed(error);
    throw error;
  } finally {
    await rest.return?.(); // the client may have left
  }
  await end();
}

function put(reply, { status, headers, body }) {
  reply.code(status);
  const values = new Map();
  for (const [name, value] of headers) values.set(name, [...(values.get(name) ?? []), value]);
  for (const [name, all] of values) reply.header(name, all.length === 1 ? all[0] : all);
  if (body && ![204, 304].includes(status)) reply.header("Content-Length", body.length);
}

function say(reply, answer) {
  put(reply, answer);
  reply.send(answer.body);
  return reply;
}
