// Fences the handlers of an Express application, or of plain node:http, without a gateway.
//
//     app.use(once(new Fences("http://127.0.0.1:7411")));
//
// Mount it before the body parsers: it reads the body, and puts it back for them. Answers to fenced
// requests are read whole before they are sent. Reads pass through untouched.
import { find } from "./client.js";
import { Handlers, requestOf } from "./handlers.js";

export function once(fences, options) {
  const handlers = new Handlers(fences, options);
  return (req, res, next) => {
    if (!handlers.isFenced(req)) return next();
    fence(handlers, req, res, next).catch(next);
    return undefined;
  };
}

async function fence(handlers, req, res, next) {
  const body = await readAndPutBack(req, handlers.bodyBytesMax);
  const request = requestOf(req, req.originalUrl ?? req.url, body ?? Buffer.alloc(0));
  if (body === undefined) return say(res, handlers.refuse(request, "body_too_large"));
  const begun = await handlers.begin(request);
  if (!handlers.isGrant(begun)) return say(res, begun);
  req.onceGrant = begun;
  req.headers["idempotency-key"] ??= find(request.headers, "Idempotency-Key"); // a new one
  handlers.hold(begun, res);
  keep(res, (answer) => handlers.end(begun, request, answer));
  return next();
}

/** The whole body; undefined: it is too long. The next reader of req gets it too. */
function readAndPutBack(req, bytesMax) {
  return new Promise((resolve, reject) => {
    const pieces = [];
    let size = 0;
    const done = (body) => {
      req.off("readable", take).off("end", take).off("error", reject).off("close", left);
      resolve(body);
    };
    const left = () => reject(new Error("the client left before the end of its request"));
    const take = () => {
      for (let piece = req.read(); piece !== null; piece = req.read()) {
        size += piece.length;
        if (size > bytesMax) return done(undefined);
        pieces.push(piece);
      }
      if (!req.complete) return undefined;
      const body = Buffer.concat(pieces);
      if (size > 0) req.unshift(body); // before "end" is emitted: then it is not
      return done(body);
    };
    req.on("readable", take).on("end", take).on("error", reject).on("close", left);
  });
}

function say(res, { status, headers, body }) {
  res.statusCode = status;
  put(res, headers);
  res.removeHeader("Transfer-Encoding");
  if (![204, 304].includes(status)) res.setHeader("Content-Length", body.length);
  res.end(body);
}

function put(res, headers) {
  const values = new Map();
  for (const [name, value] of headers) values.set(name, [...(values.get(name) ?? []), value]);
  for (const [name, all] of values) res.setHeader(name, all.length === 1 ? all[0] : all);
}

function headersOf(res) {
  return res.getRawHeaderNames().flatMap((name) => [res.getHeader(name)].flat()
    .map((value) => [name, String(value)]));
}

/** Holds the handler's answer back until `end` has turned it into the one that leaves. */
function keep(res, end) {
  const pieces = [];
  const own = { write: res.write, end: res.end, writeHead: res.writeHead,
    flushHeaders: res.flushHeaders };
  const add = (piece, encoding) => {
    if (piece === undefined || piece === null || typeof piece === "function") return;
    pieces.push(Buffer.from(piece, typeof encoding === "string" ? encoding : undefined));
  };
  const called = (...args) => {
    const callback = args.find((each) => typeof each === "function");
    if (callback) process.nextTick(callback);
  };
  res.flushHeaders = () => {};
  res.writeHead = (status, ...rest) => {
    res.statusCode = status;
    const headers = rest.find((each) => typeof each === "object" && each !== null) ?? {};
    const pairs = Array.isArray(headers)
      ? headers.flatMap((name, i) => (i % 2 === 0 ? [[name, headers[i + 1]]] : []))
      : Object.entries(headers);
    for (const [name, value] of pairs) res.setHeader(name, value);
    return res;
  };
  res.write = (piece, encoding, callback) => {
    add(piece, encoding);
    called(encoding, callback);
    return true;
  };
  res.end = (piece, encoding, callback) => {
    add(piece, encoding);
    Object.assign(res, own);
    const answer = { status: res.statusCode, headers: headersOf(res), body: Buffer.concat(pieces) };
    end(answer).then((last) => {
      for (const name of res.getHeaderNames()) res.removeHeader(name);
      say(res, last);
      called(piece, encoding, callback);
    }).catch((error) => res.destroy(error));
    return res;
  };
}
