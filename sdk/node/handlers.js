// Fences HTTP handlers: what the middleware for Express and Fastify shares.
//
// A request with a key is begun before the handler runs and sealed before its answer leaves. The
// answers are those of the gateway's profile. Under `ietf` a conflict is 422, an operation that is
// running 409 with Retry-After, an unknown one 409, a replay the first answer with
// Idempotent-Replayed. If Once cannot be reached nothing runs: 503.
//
// A request is {method, path, query, headers, body, id}; an answer {status, headers, body}. Headers
// are [name, value] pairs.
import { isUtf8 } from "node:buffer";
import { randomUUID } from "node:crypto";
import { canonical, parse, sha256 } from "./canon.js";
import { find, uuid7 } from "./client.js";
import { Conflict, InProgress, NoAnswer, OnceError, OutcomeUnknown, Problem, Unavailable }
  from "./errors.js";
import { Fences, Grant, leaveUnknown, millisecondsOf } from "./fences.js";
import { FORMS, PROFILES, keyOf, profileKeyOf, refusalOf } from "./profiles.js";

export { keyOf };

const RELEASED = [408, 425, 429, 503]; // these say that nothing was done
const UNKEPT = ["connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade",
  "idempotency-key", "request-id", "idempotent-replayed", "original-request-id",
  "upstream-request-id", "set-cookie", "set-cookie2", "last-modified", "content-length", "date",
  "age", "server-timing"];
const UNKEPT_PREFIXES = ["proxy-", "once-", "ratelimit", "x-ratelimit", "x-rate-limit"];
export class Handlers {
  #fences;
  #options;
  #profile;
  #stops = new WeakMap(); // of each grant: what ends its renewals

  constructor(fences = new Fences(), { profile = "ietf", ...options } = {}) {
    this.#fences = fences;
    this.#profile = PROFILES[profile];
    if (!this.#profile) throw new TypeError(`there is no profile '${profile}'`);
    const { methods, ttlMs, ttlMinMs, ttlMaxMs } = this.#profile;
    this.#options = { methods, wait: "10s", lease: "60s",
      ttl: ttlMs === null ? undefined : `${ttlMs}ms`, principal: principalOf, onStatus: {},
      bodyBytesMax: 10 << 20, answerBytesMax: 10 << 20, ...options };
    const ttl = millisecondsOf(this.#options.ttl);
    if (ttlMaxMs !== null && !(ttl >= ttlMinMs && ttl <= ttlMaxMs)) {
      throw new TypeError(
        `a ttl of ${this.#options.ttl} is not within what the profile ${profile} demands`);
    }
  }

  get bodyBytesMax() {
    return this.#options.bodyBytesMax;
  }

  get answerBytesMax() {
    return this.#options.answerBytesMax;
  }

  isFenced({ method, headers }) {
    return this.#options.methods.includes(method) &&
      (headers["idempotency-key"] !== undefined || this.#profile.missing !== "pass");
  }

  /** Renews the lease until `end` or `crashed`, or until the response is closed before that. */
  hold(grant, response) {
    const stop = grant.hold(this.#options.lease);
    this.#stops.set(grant, stop);
    response.once("close", stop);
  }

  #stop(grant) {
    this.#stops.get(grant)?.();
  }

  /** A Grant, or the answer that the request gets instead of the handler's. */
  async begin(request) {
    let fields = request.headers.filter(([name]) => name.toLowerCase() === "idempotency-key");
    if (fields.length === 0 && this.#profile.missing === "generate") {
      fields = [["Idempotency-Key", randomUUID()]];
      request.headers.push(...fields);
    }
    if (fields.length === 0) return this.refuse(request, "idempotency_key_missing");
    const key = profileKeyOf(this.#profile, fields.map(([, value]) => value));
    if (key === undefined) return this.refuse(request, "idempotency_key_invalid");
    const { lease, ttl, onUnknown, principal } = this.#options;
    // RFC 7240: such a client does not wait for a first request that still runs.
    const isHasty = /(^|[,; ])wait=0+($|[,; ])/.test(find(request.headers, "Prefer"));
    const wait = isHasty ? "0s" : this.#options.wait;
    try {
      const begun = await this.#fences.begin(`${request.method} ${request.path}`, key, undefined, {
        wait, lease, ttl, onUnknown, principal: principal(request), isPatient: false,
        fingerprint: fingerprint(request), trace: { request_id: request.id } });
      return begun.isFirst ? begun : this.#replay(request, begun);
    } catch (error) {
      if (error instanceof Problem) return this.#refused(request, error);
      if (error instanceof Unavailable || error instanceof NoAnswer) {
        return this.refuse(request, "unavailable");
      }
      throw error;
    }
  }

  isGrant(begun) {
    return begun instanceof Grant;
  }

  /** Records the handler's answer. What this returns may be sent. */
  async end(grant, request, answer) {
    const isKept = answer.body.length <= this.answerBytesMax;
    let effect;
    try {
      effect = await this.#record(grant, answer.status,
        isKept ? outcomeOf(answer, request.id) : undefined);
    } catch (error) {
      if (!(error instanceof OnceError)) throw error;
      return this.refuse(request, "outcome_not_sealed", grant.operationId);
    }
    return { ...answer, headers: said(grant, request, answer, effect) };
  }

  /** The head of an answer that is too large to be held back, before it is recorded. */
  head(grant, request, answer) {
    return { status: answer.status, headers: said(grant, request, answer)
      .filter(([name]) => name.toLowerCase() !== "content-length") };
  }

  /** Records such an answer, without its body. Its end is sent after that; if this throws, it
   *  must not be sent at all, so that the answer does not look complete. */
  async endThrough(grant, status) {
    await this.#record(grant, status);
  }

  /** The effect that is certain; undefined: it was sealed. Without an outcome the body is lost. */
  async #record(grant, status, outcome) {
    this.#stop(grant);
    const end = endOf(status, this.#options.onStatus, this.#profile.isSealed5xx);
    if (end === "release") {
      await grant.release(`the handler answered ${status}`);
      return "no";
    }
    if (end === "unknown") {
      await grant.unknown(`the handler answered ${status}`);
      return "unknown";
    }
    if (outcome !== undefined) {
      try {
        await grant.seal(outcome, { status: end });
        return undefined;
      } catch (error) {
        if (!(error instanceof Problem) || error.status !== 413) throw error;
      }
    }
    await grant.seal({ http: { status, is_body_lost: true } }, { status: end });
    return undefined;
  }

  /** The handler threw, or its client got no complete answer: nobody knows what it did. */
  async crashed(grant, error) {
    this.#stop(grant);
    await leaveUnknown(grant, `the handler failed: ${error?.name ?? error}`);
  }

  refuse(request, code, operationId, retryAfterMs) {
    const refusal = refusalOf(this.#profile, code, request.id, operationId, retryAfterMs);
    const headers = [...ours(request, operationId, refusal.decision, refusal.effect),
      ...refusal.headers];
    return { status: refusal.status, headers,
      body: Buffer.from(JSON.stringify(refusal.document)) };
  }

  #refused(request, problem) {
    const code = problem instanceof Conflict ? "idempotency_conflict"
      : problem instanceof InProgress ? "in_progress"
      : problem instanceof OutcomeUnknown ? "outcome_unknown"
      : problem.code in FORMS ? problem.code : "unavailable";
    return this.refuse(request, code, problem.operationId, problem.retryAfterMs);
  }

  #replay(request, replay) {
    const kept = replay.outcome?.http ?? { // settled by a person, with an outcome of another form
      status: replay.status === "executed" ? 200 : 422,
      headers: [["Content-Type", "application/json"]],
      body: replay.outcome === null || replay.outcome === undefined
        ? "" : JSON.stringify(replay.outcome),
    };
    if (kept.is_body_lost) return this.refuse(request, "outcome_not_retained", replay.operationId);
    const headers = [...(kept.headers ?? []),
      ...ours(request, replay.operationId, "duplicate_replayed"),
      ["Idempotent-Replayed", "true"], ["Last-Modified", new Date(replay.sealedAt).toUTCString()]];
    if (kept.request_id) headers.push(["Original-Request-Id", kept.request_id]);
    const body = kept.body_base64 === undefined ? Buffer.from(kept.body ?? "")
      : Buffer.from(kept.body_base64, "base64");
    return { status: kept.status, headers, body };
  }
}

/** The handler's fields, and those that say what Once did. */
function said(grant, request, answer, effect) {
  const mine = ours(request, grant.operationId, "first_seen", effect);
  const names = mine.map(([name]) => name.toLowerCase());
  return [...answer.headers.filter(([name]) => !names.includes(name.toLowerCase())), ...mine];
}

/** The fields that say what Once did. */
function ours(request, operationId, decision, effect) {
  return [["Idempotency-Key", find(request.headers, "Idempotency-Key")], ["Request-Id", request.id],
    ["Once-Decision", decision], ["Once-Operation-Id", operationId], ["Once-Effect", effect]]
    .filter(([, value]) => value);
}

/** A request of node:http whose body was read. */
export function requestOf(raw, url, body) {
  const headers = [];
  for (let i = 0; i < raw.rawHeaders.length; i += 2) {
    headers.push([raw.rawHeaders[i], raw.rawHeaders[i + 1]]);
  }
  const [target] = url.split("#");
  const at = target.indexOf("?");
  const given = find(headers, "Request-Id");
  return { method: raw.method, headers, body,
    path: canonicalPath(Buffer.from(at < 0 ? target : target.slice(0, at), "latin1")),
    query: at < 0 ? "" : target.slice(at + 1),
    id: /^[!-~]{1,200}$/.test(given) ? given : uuid7() };
}

// --- Pure parts: the cases are in tests/vectors/sdk/handlers.json --------------------------------

/** Of the path's bytes as they were sent: one spelling for each path. */
export function canonicalPath(raw) {
  if (raw.length === 0) return "/";
  return raw.toString("latin1").replace(/%([0-9A-Fa-f]{2})|[^]/g, (text, hex) => {
    const byte = hex ? parseInt(hex, 16) : text.charCodeAt(0);
    const isPlain = byte > 0x20 && byte < 0x7f && byte !== 0x25 && !(hex && byte === 0x2f);
    return isPlain ? String.fromCharCode(byte)
      : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  });
}

/** SHA-256 of what was asked. */
export function fingerprint({ method, path, query, headers, body }) {
  const type = find(headers, "Content-Type").trim();
  const essence = type.split(";")[0].trim().toLowerCase();
  if ((essence === "application/json" || essence.endsWith("+json")) && isUtf8(body)) {
    try {
      const json = parse(body.toString());
      return sha256(canonical({ method, path, query, content_type: essence, json }));
    } catch (error) {
      // Invalid or lossy: the bytes count.
      if (!(error instanceof SyntaxError || error instanceof TypeError ||
          error instanceof RangeError)) throw error;
    }
  }
  return sha256(canonical({ method, path, query, content_type: type, sha256: sha256(body) }));
}

/** executed and failed are sealed; release: nothing was done; unknown: it does not say. */
export function endOf(status, onStatus = {}, isSealed5xx = false) {
  const end = onStatus[status] ??
    (RELEASED.includes(status) ? "release" : status >= 500 && !isSealed5xx ? "unknown" : "seal");
  return end !== "seal" ? end : status < 400 ? "executed" : "failed";
}

/** What is sealed of an answer. */
export function outcomeOf({ status, headers, body }, requestId) {
  const kept = headers.filter(([name]) => !UNKEPT.includes(name.toLowerCase()) &&
    !UNKEPT_PREFIXES.some((prefix) => name.toLowerCase().startsWith(prefix)));
  const text = isUtf8(body) ? { body: body.toString() } : { body_base64: body.toString("base64") };
  return { http: { status, headers: kept, ...text, request_id: requestId } };
}

/** SHA-256 of Authorization, else of an API key; undefined: everybody is one principal. */
export function principalOf({ headers }) {
  const value = find(headers, "Authorization") || find(headers, "X-Api-Key") ||
    find(headers, "Api-Key");
  return value ? sha256(Buffer.from(value, "latin1")) : undefined;
}
