// Calls an HTTP API so that each call takes effect once.
//
//     const client = new Client();
//     const answer = await client.send("POST", "http://127.0.0.1:8080/charges",
//       { body: { cents: 1200 }, idempotencyKey: "order-7" });
//
// One call is one logical operation: the key stays the same over its automatic retries, and a later
// call with the same key, even after a crash, continues the operation. node:http and not fetch,
// because fetch does not say whether it failed before or after the first byte was sent.
import { randomBytes, randomUUID } from "node:crypto";
import http from "node:http";
import https from "node:https";
import { setTimeout as sleep } from "node:timers/promises";
import { NoAnswer, Unavailable } from "./errors.js";
import { READS, judge, retryAfterMs, waitMs } from "./retry.js";

export const VERSION = "0.1.0";
const BODIED = ["POST", "PUT", "PATCH"]; // a body is sent even when it is empty
const RESERVED = ["idempotency-key", "request-id", "content-length", "transfer-encoding",
  "connection", "expect"]; // what the client decides itself
const DOCUMENT_BYTES_MAX = 64 << 10; // of a refusal that is read for what it says
const HOPELESS = /^(CERT_|UNABLE_TO_|SELF_SIGNED|DEPTH_ZERO|ERR_TLS_CERT)/;

export class Client {
  #agents;
  #options;

  constructor(options = {}) {
    this.#options = {
      retries: 5, deadlineMs: 60000, attemptTimeoutMs: 30000, connectTimeoutMs: 5000,
      backoffBaseMs: 100, backoffMaxMs: 10000, bodyBytesMax: 16 << 20,
      userAgent: `once-node/${VERSION}`, onAttempt: undefined, ...options,
    };
    const kept = { keepAlive: true, maxFreeSockets: options.idleMax ?? 16 };
    this.#agents = {
      "http:": new http.Agent(kept),
      "https:": new https.Agent({ ...kept, ca: options.ca }),
    };
  }

  /** Closes the idle connections. */
  close() {
    for (const agent of Object.values(this.#agents)) agent.destroy();
  }

  /**
   * Sends, and retries while that is safe, useful and within the deadline. Throws Unavailable
   * (nothing happened) or NoAnswer (it may have happened); TypeError before anything is sent.
   */
  async send(method, url, options = {}) {
    return this.sendJudged(new Request(method, url, options), judge, options);
  }

  /** The same in the manner of fetch: (url, {method, headers, body, idempotencyKey}). */
  async fetch(url, { method = "GET", ...options } = {}) {
    const answer = await this.send(method, String(url), options);
    const isBodiless = [204, 205, 304].includes(answer.status);
    const response = new Response(isBodiless ? null : answer.body,
      { status: answer.status, headers: answer.headers });
    return Object.assign(response, { once: answer });
  }

  /** @internal */
  async sendJudged(request, judged, options = {}) {
    const settings = { ...this.#options, ...given(options, ["retries", "deadlineMs",
      "attemptTimeoutMs"]) };
    const ends = performance.now() + settings.deadlineMs;
    let isInDoubt = false;
    for (let number = 1; ; number++) {
      const requestId = request.idOf(number);
      const left = Math.max(1, ends - performance.now());
      const answer = await this.#attempt(request, requestId,
        Math.min(left, settings.attemptTimeoutMs));
      const verdict = judged(factsOf(answer, request.isRead));
      const pause = verdict.retry && number <= settings.retries
        ? this.#pause(answer, number - 1, ends) : -1;
      settings.onAttempt?.({ number, requestId, status: answer.status, why: answer.why,
        sleepMs: pause < 0 ? undefined : pause });
      if (pause < 0) {
        // "no" from the last attempt says nothing about earlier ones.
        const isOpen = isInDoubt && !verdict.settles && verdict.effect !== "yes";
        return conclude(request, answer, requestId, number, isOpen ? "unknown" : verdict.effect);
      }
      isInDoubt ||= verdict.effect !== "no";
      await sleep(pause);
    }
  }

  #pause(answer, retry, ends) {
    return waitMs({
      baseMs: this.#options.backoffBaseMs, maxMs: this.#options.backoffMaxMs, retry,
      random: randomBytes(8).readBigUInt64BE(),
      afterMs: retryAfterMs(find(answer.headers, "Retry-After"), Date.now()),
      leftMs: Math.floor(ends - performance.now()),
    });
  }

  /** The result of one attempt: {end, status, headers, body, isBodyLost, why}. Never rejects. */
  #attempt(request, requestId, timeoutMs) {
    const { url } = request;
    const isSecure = url.protocol === "https:";
    return new Promise((resolve) => {
      let isSent = false;
      const wire = (isSecure ? https : http).request(url, {
        method: request.method, agent: this.#agents[url.protocol],
        headers: { ...request.headers, "Request-Id": requestId,
          "User-Agent": this.#options.userAgent },
      });
      const late = (ms, text) => setTimeout(() => wire.destroy(new Error(text)), ms);
      const whole = late(timeoutMs, "timed out");
      const connecting = late(Math.min(timeoutMs, this.#options.connectTimeoutMs),
        "timed out while connecting");
      const end = (answer) => {
        clearTimeout(whole);
        clearTimeout(connecting);
        resolve({ status: 0, headers: [], body: Buffer.alloc(0), isBodyLost: false, why: "",
          ...answer });
      };
      const sent = () => {
        isSent = true;
        clearTimeout(connecting);
      };
      wire.on("socket", (socket) => {
        if (!socket.connecting) sent();
        else socket.once(isSecure ? "secureConnect" : "connect", sent);
      });
      wire.on("error", (error) => end({ end: endOf(error, isSent), why: error.message }));
      wire.on("response", (response) => {
        collect(response, this.#options.bodyBytesMax, end);
      });
      wire.end(request.body);
    });
  }
}

function endOf(error, isSent) {
  if (error.code === "HPE_HEADER_OVERFLOW") return "unreadable";
  if (isSent) return "lost";
  return HOPELESS.test(error.code ?? "") ? "hopeless" : "not_sent";
}

function collect(response, bytesMax, end) {
  const pieces = [];
  let size = 0;
  const headers = [];
  for (let i = 0; i < response.rawHeaders.length; i += 2) {
    headers.push([response.rawHeaders[i], response.rawHeaders[i + 1]]);
  }
  const answer = { end: "answered", status: response.statusCode, headers };
  response.on("data", (piece) => {
    size += piece.length;
    pieces.push(piece);
    if (size > bytesMax) {
      end({ ...answer, isBodyLost: true });
      response.destroy();
    }
  });
  response.on("error", (error) => end({ end: "lost", why: error.message }));
  response.on("close", () => {
    end(response.complete ? { ...answer, body: Buffer.concat(pieces) }
      : { end: "lost", why: "the answer broke off" });
  });
}

function factsOf(answer, isRead) {
  return {
    end: answer.end, isRead, status: answer.status,
    isReplayed: find(answer.headers, "Idempotent-Replayed").toLowerCase() === "true",
    decision: find(answer.headers, "Once-Decision"), document: documentOf(answer),
  };
}

/** A refusal may say in its body what it is. */
function documentOf({ status, headers, body }) {
  if (status < 400 || !find(headers, "Content-Type").includes("json") ||
      body.length > DOCUMENT_BYTES_MAX) {
    return undefined;
  }
  try {
    return JSON.parse(body.toString());
  } catch {
    return undefined;
  }
}

function conclude(request, answer, requestId, attempts, effect) {
  const { key: idempotencyKey, isRead } = request;
  if (answer.end === "answered") {
    return new Answer({ ...answer, idempotencyKey, requestId, attempts, effect });
  }
  const known = { idempotencyKey, requestId, attempts };
  const after = `after ${attempts} attempt${attempts === 1 ? "" : "s"}: ${answer.why}`;
  if (effect === "no") {
    const what = isRead ? "no answer" : "cannot reach the server";
    throw new Unavailable(`${what} ${after}; nothing happened`, known);
  }
  throw new NoAnswer(
    `no answer ${after}; it may have happened, and the same key continues it`, known);
}

/** The answer to a call, whatever its status. */
export class Answer {
  constructor({ status, headers, body, isBodyLost, idempotencyKey, requestId, attempts, effect }) {
    Object.assign(this, { status, headers, body, isBodyLost, idempotencyKey, requestId, attempts,
      effect });
  }

  /** The first header of that name, in any case; "" if absent. */
  header(name) {
    return find(this.headers, name);
  }

  /** This is the answer of an earlier attempt. */
  get isReplayed() {
    return this.header("Idempotent-Replayed").toLowerCase() === "true";
  }

  get decision() {
    return this.header("Once-Decision");
  }

  get operationId() {
    return this.header("Once-Operation-Id");
  }

  text() {
    return this.body.toString();
  }

  json() {
    return JSON.parse(this.text());
  }
}

export function find(headers, name) {
  return headers.find(([each]) => each.toLowerCase() === name.toLowerCase())?.[1] ?? "";
}

function given(options, names) {
  return Object.fromEntries(names.filter((name) => options[name] !== undefined)
    .map((name) => [name, options[name]]));
}

// --- Requests ------------------------------------------------------------------------------------

/** What is the same in every attempt of one call, checked. */
export class Request {
  constructor(method, url, { body, headers = {}, idempotencyKey, requestId } = {}) {
    check(method, url, idempotencyKey, requestId);
    this.method = method;
    this.url = new URL(url);
    this.givenId = requestId;
    this.isRead = READS.includes(method);
    this.key = this.isRead ? "" : idempotencyKey ?? randomUUID();
    this.body = bodyOf(body, method);
    this.headers = this.key ? { "Idempotency-Key": spelled(this.key) } : {};
    if (this.body !== undefined) {
      this.headers["Content-Length"] = String(this.body.length);
      const isTyped = Object.keys(headers).some((name) => name.toLowerCase() === "content-type");
      if (!isTyped) this.headers["Content-Type"] = "application/json";
    }
    for (const [name, value] of Object.entries(headers)) {
      checkHeader(name, String(value));
      this.headers[name] = String(value);
    }
  }

  /** The Request-Id of the nth attempt: never the same twice. */
  idOf(number) {
    if (this.givenId === undefined) return uuid7();
    return number === 1 ? this.givenId : `${this.givenId}.${number}`;
  }
}

function bodyOf(body, method) {
  if (body === undefined || body === null) {
    return BODIED.includes(method) ? Buffer.alloc(0) : undefined;
  }
  if (typeof body === "string" || body instanceof Uint8Array) return Buffer.from(body);
  return Buffer.from(JSON.stringify(body));
}

function check(method, url, key, requestId) {
  if (!/^[A-Z][A-Z-]{0,31}$/.test(method) || method === "CONNECT") {
    throw new TypeError(`method '${method}' cannot be sent; it is written in capital letters`);
  }
  if (!/^[!-~]+$/.test(url)) {
    throw new TypeError("url has a space or an odd character; escape it as %XX");
  }
  if (!/^https?:\/\/[^/]/i.test(url)) {
    throw new TypeError("url does not begin with http:// or https:// and a host");
  }
  if (key !== undefined && !/^[ -~]{1,255}$/.test(key)) {
    throw new TypeError("idempotency_key is not 1 to 255 printable characters");
  }
  if (requestId !== undefined && !/^[!-~]{1,200}$/.test(requestId)) {
    throw new TypeError("request_id is not 1 to 200 visible characters");
  }
}

function checkHeader(name, value) {
  if (!/^[0-9A-Za-z!#$%&'*+.^_`|~-]+$/.test(name)) {
    throw new TypeError(`header name '${name}' is not one`);
  }
  if (/[\x00-\x08\x0a-\x1f\x7f]/.test(value)) {
    throw new TypeError(`header '${name}' has a control character in its value`);
  }
  if (RESERVED.includes(name.toLowerCase())) {
    throw new TypeError(`header '${name}' is not the caller's to set; a key and a request id are ` +
      "options of their own");
  }
}

/** Bare if that is unambiguous, else as a string of RFC 9651: both name the same key. */
function spelled(key) {
  if (!/[ "\\,;]/.test(key)) return key;
  return `"${key.replace(/["\\]/g, "\\$&")}"`;
}

/** RFC 9562: sorted by time, so that attempts are in order in a log. */
export function uuid7() {
  const bytes = randomBytes(16);
  bytes.writeUIntBE(Date.now(), 0, 6);
  bytes[6] = (bytes[6] & 0x0f) | 0x70;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = bytes.toString("hex");
  return [0, 8, 12, 16, 20].map((at, i) => hex.slice(at, [8, 12, 16, 20, 32][i])).join("-");
}
