// The gateway's profiles (docs/gateway.md), as far as an application's own server can have them:
// which requests need a key, what a key looks like, how refusals are written. The cases are in
// tests/vectors/sdk/profiles.json.
import { STATUS_CODES } from "node:http";

const WRITES = ["POST", "PUT", "PATCH", "DELETE"];
const UUID = /^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$/;
const HOUR_MS = 3600000;
const PLAIN = { methods: WRITES, missing: "refuse", isUuid: false, isLoose: false,
  isSealed5xx: false, ttlMs: null, ttlMinMs: null, ttlMaxMs: null };

/** missing: a request without a key: refuse, generate, pass. isLoose: any printable text is a key.
 * isSealed5xx: 503 is released all the same. ttlMs: null: as long as Once keeps keys. */
export const PROFILES = {
  ietf: { ...PLAIN, name: "ietf", conflictStatus: 422 },
  guardia: { ...PLAIN, name: "guardia", conflictStatus: 409, methods: ["POST", "PUT", "PATCH"],
    isUuid: true, ttlMs: 24 * HOUR_MS, ttlMinMs: 2 * HOUR_MS, ttlMaxMs: 24 * HOUR_MS },
  adr007: { ...PLAIN, name: "adr007", conflictStatus: 409, missing: "generate" },
  ops: { ...PLAIN, name: "ops", conflictStatus: 409, ttlMs: 48 * HOUR_MS, ttlMinMs: 24 * HOUR_MS,
    ttlMaxMs: 72 * HOUR_MS },
  stripe: { ...PLAIN, name: "stripe", conflictStatus: 400, methods: ["POST"], missing: "pass",
    isLoose: true, isSealed5xx: true },
};

/** The key that an Idempotency-Key field names: an RFC 9651 string, or bare. undefined: invalid. */
export function keyOf(fields) {
  if (fields.length !== 1) return undefined;
  let text = trimmed(fields[0]);
  if (text.startsWith('"')) {
    if (!/^"(?:[ !#-[\]-~]|\\["\\])*"$/.test(text)) return undefined;
    text = text.slice(1, -1).replace(/\\(.)/g, "$1");
  } else if (!/^[!#-+\--[\]-~]*$/.test(text)) {
    return undefined;
  }
  return text.length > 0 && text.length <= 255 ? text : undefined;
}

/** The same, as a profile has it. */
export function profileKeyOf(profile, fields) {
  let key = keyOf(fields);
  if (key === undefined && profile.isLoose && fields.length === 1) {
    const text = trimmed(fields[0]);
    if (/^[ -~]{1,255}$/.test(text)) key = text;
  }
  return key === undefined || (profile.isUuid && !UUID.test(key)) ? undefined : key;
}

function trimmed(text) {
  return text.replace(/^[ \t]+|[ \t]+$/g, "");
}

// --- Refusals ------------------------------------------------------------------------------------

// code: [status, effect, retry, type of the error member, guardia's code and reason, text]
export const FORMS = {
  idempotency_key_missing: [400, "no", "no", "invalid_request_error",
    "ERR400_INVALID_ARGUMENT", "IDEMPOTENCY_KEY_REQUIRED",
    "the Idempotency-Key field is missing; nothing was done"],
  idempotency_key_invalid: [400, "no", "no", "invalid_request_error",
    "ERR400_INVALID_ARGUMENT", "IDEMPOTENCY_KEY_INVALID",
    "the Idempotency-Key field is not well formed; nothing was done"],
  body_too_large: [413, "no", "no", "invalid_request_error",
    "ERR413_CONTENT_TOO_LARGE", "BODY_TOO_LARGE",
    "the body is too long to be fenced; nothing was done"],
  idempotency_conflict: [422, "no", "no", "idempotency_error",
    "ERR409_CONFLICT", "CONFLICTING_IDEMPOTENT_REQUEST",
    "the idempotency key was used with a different request; nothing was done"],
  in_progress: [409, "unknown", "after", "invalid_request_error",
    "ERR409_CONFLICT", "IDEMPOTENT_REQUEST_IN_PROGRESS",
    "the first request with this idempotency key is still running; ask again with the same key"],
  outcome_unknown: [409, "unknown", "no", "api_error",
    "ERR409_CONFLICT", "OUTCOME_UNKNOWN",
    "nobody knows whether the effect happened; the operation is held until it is settled"],
  outcome_not_retained: [410, "yes", "no", "api_error",
    "ERR410_GONE", "OUTCOME_NOT_RETAINED",
    "it was executed, and its answer was too large to be kept"],
  too_many_duplicates: [429, "no", "after", "invalid_request_error",
    "ERR429_TOO_MANY_REQUESTS", "TOO_MANY_DUPLICATES",
    "duplicates of this key come faster than limits.duplicate_rate"],
  unavailable: [503, "no", "safe", "api_error",
    "ERR503_SERVICE_UNAVAILABLE", "STORE_UNAVAILABLE",
    "Once does not take anything at the moment; nothing was done"],
  outcome_not_sealed: [503, "unknown", "after", "api_error",
    "ERR503_SERVICE_UNAVAILABLE", "OUTCOME_NOT_SEALED",
    "the handler answered, and Once could not record its answer"],
};
const DECISIONS = { idempotency_conflict: "conflict_rejected", in_progress: "in_progress",
  outcome_unknown: "held_unknown" };
const ADR007_ERRORS = { idempotency_conflict: "idempotency_mismatch",
  in_progress: "idempotency_in_progress" };
const SHOULD_RETRY = { outcome_unknown: "false", in_progress: "true" }; // Stripe's clients obey it

/** One refusal in the form of a profile: {status, effect, decision, headers, document}. */
export function refusalOf(profile, code, requestId, operationId, retryAfterMs = 0) {
  const [formStatus, effect, retry, type, guardiaCode, reason, message] = FORMS[code];
  const status = code === "idempotency_conflict" ? profile.conflictStatus : formStatus;
  const ms = Math.ceil(retryAfterMs);
  const beside = { effect, retry, request_id: requestId, operation_id: operationId,
    retry_after_ms: ms > 0 ? ms : undefined };
  const isProblem = ["ietf", "ops"].includes(profile.name);
  const headers = [["Content-Type", isProblem ? "application/problem+json" : "application/json"]];
  if (profile.name === "stripe" && SHOULD_RETRY[code]) {
    headers.push(["Stripe-Should-Retry", SHOULD_RETRY[code]]);
  }
  if (ms > 0) headers.push(["Retry-After", String(Math.ceil(ms / 1000))]);
  const said = { status, code, type, message, guardiaCode, reason, beside };
  return { status, effect, decision: DECISIONS[code], headers,
    document: DOCUMENTS[profile.name](said) };
}

const DOCUMENTS = {
  ietf: problem,
  ops: (said) => ({ ...problem(said),
    // Only a fingerprint of the first request is kept.
    ...(said.code === "idempotency_conflict" ? { diff: null } : {}) }),
  guardia: ({ code, type, message, guardiaCode, reason, beside }) => ({
    errors: [{ code: guardiaCode, reason, message, ...beside }], error: { type, code, message } }),
  adr007: ({ code, message, beside }) => ({ error: ADR007_ERRORS[code] ?? code, message,
    ...beside }),
  stripe: ({ code, type, message, beside }) => ({ error: { type,
    code: code === "in_progress" ? "idempotency_key_in_use" : code, message, ...beside } }),
};

function problem({ status, code, type, message, beside }) {
  return { type: `/docs/problems.md#${code}`, title: STATUS_CODES[status], status, detail: message,
    code, ...beside, error: { type, code, message } };
}
