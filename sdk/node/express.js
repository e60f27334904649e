// Fences the handlers of an Express application, or of plain node:http, without a gateway.
//
//     app.use(once(new Fences("http://127.0.0.1:7411")));
//
// Mount it before the body parsers: it reads the body, and puts it back for them. Answers to fenced
// requests are held back until they are sealed; larger ones than answerBytesMax go through as they
// come. Reads pass through untouched.
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
  keep(res, {
    bytesMax: handlers.answerBytesMax,
    whole: (answer) => handlers.end(begun, request, answer),
    head: (answer) => handlers.head(begun, request, answer),
    through: (status) => handlers.endThrough(begun, status),
  });
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

/** Holds the handler's answer back until `whole` has turned it into the one that leaves. One that
 *  is larger than bytesMax leaves as it comes, after `head`; its end comes after `through`. */
function keep(res, { bytesMax, whole, head, through }) {
  let pieces = [];
  let size = 0;
  let isThrough = false;
  const own = { write: res.write, end: res.end, writeHead: res.writeHead,
    flushHeaders: res.flushHeaders };
  const bytesOf = (piece, encoding) =>
    piece === undefined || piece === null || typeof piece === "function" ? Buffer.alloc(0)
      : Buffer.from(piece, typeof encoding === "string" ? encoding : undefined);
  const add = (bytes) => {
    pieces.push(bytes);
    size += bytes.length;
  };
  const called = (...args) => {
    const callback = args.find((each) => typeof each === "function");
    if (callback) process.nextTick(callback);
  };
  const answerOf = (body) => ({ status: res.statusCode, headers: headersOf(res), body });
  const leave = () => {
    isThrough = true;
    const { headers } = head(answerOf());
    for (const name of res.getHeaderNames()) res.removeHeader(name);
    put(res, headers);
    Object.assign(res, { writeHead: own.writeHead, flushHeaders: own.flushHeaders });
    const held = Buffer.concat(pieces);
    pieces = [];
    if (held.length > 0) own.write.call(res, held);
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
    const bytes = bytesOf(piece, encoding);
    if (!isThrough && size + bytes.length > bytesMax) leave();
    if (isThrough) return own.write.call(res, piece, encoding, callback);
    add(bytes);
    called(encoding, callback);
    return true;
  };
  res.end = (piece, encoding, callback) => {
    const bytes = bytesOf(piece, encoding);
    res.end = () => res; // once is enough
    if (isThrough) {
      if (bytes.length > 0) own.write.call(res, bytes);
      through(res.statusCode).then(() => {
        Object.assign(res, own);
        res.end();
        called(piece, encoding, callback);
      }).catch((error) => res.destroy(error));
      return res;
    }
    add(bytes);
    whole(answerOf(Buffer.concat(pieces))).then((last) => {
      Object.assign(res, own);
      for (const name of res.getHeaderNames()) res.removeHeader(name);
      say(res, last);
      called(piece, encoding, callback);
    }).catch((error) => res.destroy(error));
    return res;
  };
}
