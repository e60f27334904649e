// What one attempt means for the whole operation, and how long to pause before the next.
//
// Pure. Three answers exist (yes, no, unknown), and unknown is never folded into the others: an
// attempt that was sent and not answered may have happened, and only an answer that speaks for the
// operation itself takes that back. The cases are in tests/vectors/sdk.

export const READS = ["GET", "HEAD", "OPTIONS", "TRACE"];
const AFTER_SECONDS_MAX = 365 * 86400; // longer values of Retry-After are cut to this
const DATE_CHARACTERS_MAX = 63; // the longest of the three forms has 33
const U64_MAX = 2n ** 64n;

/**
 * facts: {end, isRead, status, isReplayed, decision, document}, where end is answered, not_sent,
 * hopeless (and no better next time), lost or unreadable. Returns {retry, settles, effect}: whether
 * a further attempt is safe and may end differently; whether this one speaks for the operation,
 * whatever came of earlier ones; and its effect: yes, no, unknown.
 */
export function judge(facts) {
  const { end, isRead } = facts;
  if (end === "answered") return judgeAnswer(facts);
  const isUnsent = end === "not_sent" || end === "hopeless";
  const retry = end === "not_sent" || end === "lost";
  return { retry, settles: false, effect: isUnsent || isRead ? "no" : "unknown" };
}

/** Of a request to Once itself: repeating one is always safe, and its answers about an operation
 * are answers. */
export function judgeOnce(facts) {
  if (facts.end !== "answered") return judge(facts);
  const retry = facts.status === 408 || facts.status === 429 || facts.status >= 500;
  return { retry, settles: true, effect: "no" };
}

function judgeAnswer(facts) {
  const { status, decision } = facts;
  const said = read(facts.document);
  const isRunning = status === 409 && (decision === "in_progress" || said.isInProgress);
  const isHeld = status >= 400 && (decision === "held_unknown" || said.code === "outcome_unknown");
  const isOpen = isRunning || isHeld;
  const isReplayed = facts.isReplayed || decision === "duplicate_replayed";
  const effect = effectOf(facts, said, isOpen);
  let settles = isReplayed || decision === "first_seen";
  if (decision === "conflict_rejected") return { retry: false, settles, effect };
  if (isOpen) return { retry: true, settles: false, effect }; // it may be settled by then
  const isFinal = isReplayed || (said.retry === "no" && ["yes", "no"].includes(said.effect));
  const mayPass = status >= 500 || status === 429 || status === 408;
  if (mayPass && !isReplayed) settles = false; // "not now" is not an outcome
  return { retry: mayPass && !isFinal, settles, effect };
}

function effectOf({ isRead, status }, said, isOpen) {
  if (isRead) return "no";
  if (status >= 200 && status < 300) return "yes";
  if (isOpen) return "unknown";
  if (said.effect) return said.effect;
  if (status === 303) return "yes"; // RFC 9110 section 15.4.4: done, and the result is elsewhere
  const isRefusal = status >= 400 && status < 500 && status !== 408;
  return isRefusal || status === 307 || status === 308 ? "no" : "unknown";
}

/** What the body of a refusal says, in any profile of the gateway. */
function read(document) {
  const members = typeof document === "object" && document !== null ? document : {};
  const text = (value) => (typeof value === "string" ? value : "");
  const code = text(members.code);
  const effect = code ? text(members.effect) : "";
  return {
    code,
    retry: code ? text(members.retry) : "",
    effect: ["yes", "no", "unknown"].includes(effect) ? effect : "",
    isInProgress: code === "in_progress" || members.error === "idempotency_in_progress" ||
      members.errors?.[0]?.reason === "IDEMPOTENT_REQUEST_IN_PROGRESS",
  };
}

/**
 * Milliseconds to pause, fewer than are left; -1 when the next attempt would come too late. Full
 * jitter: between nothing and a ceiling that doubles. Retry-After is a lower bound. random: 64 bits
 * as a BigInt.
 */
export function waitMs({ baseMs, maxMs, retry, random, afterMs, leftMs }) {
  const spare = leftMs - afterMs;
  if (spare <= 0) return -1;
  const ceiling = Math.min(baseMs * 2 ** Math.min(retry, 40), maxMs);
  let jitter = Number(random % (BigInt(ceiling) + 1n));
  if (jitter >= spare) jitter = Math.floor(spare / 2); // the other half is for the attempt
  return afterMs + jitter;
}

/** The milliseconds of a Retry-After (RFC 9110 section 10.2.3); 0 if there are none. */
export function retryAfterMs(text, nowMs) {
  if (!text || text.length > DATE_CHARACTERS_MAX) return 0;
  if (/^\d+$/.test(text)) {
    return BigInt(text) < U64_MAX ? Math.min(Number(text), AFTER_SECONDS_MAX) * 1000 : 0;
  }
  if (!/^[A-Z][a-z]+(, \d\d| [A-Z])/.test(text)) return 0;
  const date = Date.parse(text.endsWith("GMT") ? text : `${text} GMT`); // asctime has no zone
  return Number.isNaN(date) ? 0 : Math.max(0, Math.min(date - nowMs, AFTER_SECONDS_MAX * 1000));
}
