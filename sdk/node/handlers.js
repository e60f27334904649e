// Fences HTTP handlers: what the middleware for Express and Fastify shares.
//
// A request with a key is begun before the handler runs and sealed before its answer leaves. The
// answers are those of the gateway's profile `ietf`: a conflict is 422, an operation that runs is
// 409 with Retry-After, an unknown one is 409, a replay is the first answer with
// Idempotent-Replayed. If Once cannot be reached nothing runs: 503.
//
// A request is {method, path, query, headers, body, id}; an answer {status, headers, body}. Headers
// are [name, value] pairs.
import { STATUS_CODES } from "node:http";
import { isUtf8 } from "node:buffer";
import { canonical, parse, sha256 } from "./canon.js";
import { find, uuid7 } from "./client.js";
import { Conflict, InProgress, NoAnswer, OnceError, OutcomeUnknown, Problem, Unavailable }
  from "./errors.js";
import { Fences, Grant, leaveUnknown } from "./fences.js";

const RELEASED = [408, 425, 429, 503]; // these say that nothing was done
const UNKEPT = ["connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade",
  "idempotency-key", "request-id", "idempotent-replayed", "original-request-id",
  "upstream-request-id", "set-cookie", "set-cookie2", "last-modified", "content-length", "date",
  "age", "server-timing"];
const UNKEPT_PREFIXES = ["proxy-", "once-", "ratelimit", "x-ratelimit", "x-rate-limit"];
const DETAILS = { // code: [status, effect, retry, type of the error member, text]
  idempotency_key_missing: [400, "no", "no", "invalid_request_error",
    "the Idempotency-Key field is missing; nothing was done"],
  idempotency_key_invalid: [400, "no", "no", "invalid_request_error",
    "the Idempotency-Key field is not well formed; nothing was done"],
  body_too_large: [413, "no", "no", "invalid_request_error",
    "the body is too long to be fenced; nothing was done"],
  idempotency_conflict: [422, "no", "no", "idempotency_error",
    "the idempotency key was used with a different request; nothing was done"],
  in_progress: [409, "unknown", "after", "invalid_request_error",
    "the first request with this idempotency key is still running; ask again with the same key"],
  outcome_unknown: [409, "unknown", "no", "api_error",
    "nobody knows whether the effect happened; the operation is held until it is settled"],
  outcome_not_retained: [410, "yes", "no", "api_error",
    "it was executed, and its answer was too large to be kept"],
  too_many_duplicates: [429, "no", "after", "invalid_request_error",
    "duplicates of this key come faster than limits.duplicate_rate"],
  unavailable: [503, "no", "safe", "api_error",
    "Once does not take anything at the moment; nothing was done"],
  outcome_not_sealed: [503, "unknown", "after", "api_error",
    "the handler answered, and Once could not record its answer"],
};
const DECISIONS = { idempotency_conflict: "conflict_rejected", in_progress: "in_progress",
  outcome_unknown: "held_unknown" };

export class Handlers {
  #fences;
  #options;

  constructor(fences = new Fences(), options = {}) {
    this.#fences = fences;
    this.#options = { methods: ["POST", "PUT", "PATCH", "DELETE"], wait: "10s", lease: "60s",
      principal: principalOf, onStatus: {}, bodyBytesMax: 10 << 20, ...options };
  }

  get bodyBytesMax() {
    return this.#options.bodyBytesMax;
  }

  isFenced(method) {
    return this.#options.methods.includes(method);
  }

  /** A Grant, or the answer that the request gets instead of the handler's. */
  async begin(request) {
    const fields = request.headers.filter(([name]) => name.toLowerCase() === "idempotency-key");
    if (fields.length === 0) return this.refuse(request, "idempotency_key_missing");
    const key = keyOf(fields.map(([, value]) => value));
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

  /** Records the handler's answer. What it returns may leave. */
  async end(grant, request, answer) {
    const end = endOf(answer.status, this.#options.onStatus);
    let effect;
    try {
      if (end === "release") {
        await grant.release(`the handler answered ${answer.status}`);
        effect = "no";
      } else if (end === "unknown") {
        await grant.unknown(`the handler answered ${answer.status}`);
        effect = "unknown";
      } else {
        await seal(grant, end, outcomeOf(answer, request.id));
      }
    } catch (error) {
      if (!(error instanceof OnceError)) throw error;
      return this.refuse(request, "outcome_not_sealed", grant.operationId);
    }
    const mine = ours(request, grant.operationId, "first_seen", effect);
    const said = mine.map(([name]) => name.toLowerCase());
    const kept = answer.headers.filter(([name]) => !said.includes(name.toLowerCase()));
    return { ...answer, headers: [...kept, ...mine] };
  }

  /** The handler threw, or its client saw no whole answer: nobody knows what it did. */
  async crashed(grant, error) {
    await leaveUnknown(grant, `the handler failed: ${error?.name ?? error}`);
  }

  refuse(request, code, operationId, retryAfterMs) {
    const [status, effect, retry, type, detail] = DETAILS[code];
    const document = { type: `/docs/problems.md#${code}`, title: STATUS_CODES[status], status,
      detail, code, effect, retry, request_id: request.id, operation_id: operationId,
      error: { type, code, message: detail } };
    const headers = [...ours(request, operationId, DECISIONS[code], effect),
      ["Content-Type", "application/problem+json"]];
    if (retryAfterMs !== undefined) {
      headers.push(["Retry-After", String(Math.max(1, Math.round(retryAfterMs / 1000)))]);
    }
    return { status, headers, body: Buffer.from(JSON.stringify(document)) };
  }

  #refused(request, problem) {
    const code = problem instanceof Conflict ? "idempotency_conflict"
      : problem instanceof InProgress ? "in_progress"
      : problem instanceof OutcomeUnknown ? "outcome_unknown"
      : problem.code in DETAILS ? problem.code : "unavailable";
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

async function seal(grant, status, outcome) {
  try {
    await grant.seal(outcome, { status });
  } catch (error) {
    if (!(error instanceof Problem) || error.status !== 413) throw error;
    await grant.seal({ http: { status: outcome.http.status, is_body_lost: true } }, { status });
  }
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

/** The key that an Idempotency-Key field names: an RFC 9651 string, or bare. undefined: invalid. */
export function keyOf(fields) {
  if (fields.length !== 1) return undefined;
  let text = fields[0].replace(/^[ \t]+|[ \t]+$/g, "");
  if (text.startsWith('"')) {
    if (!/^"(?:[ !#-[\]-~]|\\["\\])*"$/.test(text)) return undefined;
    text = text.slice(1, -1).replace(/\\(.)/g, "$1");
  } else if (!/^[!#-+\--[\]-~]*$/.test(text)) {
    return undefined;
  }
  return text.length > 0 && text.length <= 255 ? text : undefined;
}

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
export function endOf(status, onStatus = {}) {
  const end = onStatus[status] ??
    (RELEASED.includes(status) ? "release" : status >= 500 ? "unknown" : "seal");
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
