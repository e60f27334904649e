// Fences your own work: begin, do it, seal.
//
//     const fences = new Fences("http://127.0.0.1:7411");
//     const done = await fences.do("charge", "order-7", { cents: 1200 }, () => charge(1200));
//
// The function runs at most once for a key, through processes, machines and crashes. What it
// returns (JSON) is the outcome of every duplicate. If it throws NotStarted the key is free again;
// if it throws Failed, that is final; after any other error nobody knows, and the operation is held
// as unknown until somebody has checked.
import { Client, Request } from "./client.js";
import { AlreadySealed, Conflict, Failed, InProgress, NotSealed, NotStarted, OnceError,
  OutcomeUnknown, Problem, StaleFence, Unavailable } from "./errors.js";
import { judgeOnce } from "./retry.js";

const PROBLEMS = { idempotency_conflict: Conflict, outcome_unknown: OutcomeUnknown,
  stale_fence: StaleFence, already_sealed: AlreadySealed };
const REASON_CHARACTERS_MAX = 200;
const LEASE = "30s"; // of work that is renewed while it runs, unless the caller says otherwise
const RENEWALS = 3; // in each lease: two may fail
const UNIT_MS = { ms: 1, s: 1000, m: 60000, h: 3600000, d: 86400000 };

/** The right to execute now. End it with seal, release or unknown. */
export class Grant {
  isFirst = true;
  #ask;

  constructor(begun, ask) {
    this.operationId = begun.operation_id;
    this.fence = begun.fence;
    this.attempt = begun.attempt;
    this.leaseExpiresAt = begun.lease_expires_at;
    this.#ask = ask;
  }

  /** Record the outcome; every duplicate then gets it. status: executed, failed, rejected. */
  async seal(outcome, { status = "executed", effectId, ttl } = {}) {
    await this.#end("seal", { status, outcome, effect_id: effectId, ttl });
  }

  /** The effect certainly did not start: the key is free again. */
  async release(reason) {
    await this.#end("release", { reason: short(reason) });
  }

  /** Nobody knows whether the effect happened: it is held until it is settled. */
  async unknown(reason) {
    await this.#end("unknown", { reason: short(reason) });
  }

  /** Extend the lease, for work that takes longer. */
  async renew(lease) {
    await this.#end("renew", { lease });
  }

  /** Renews the lease until the function it returns is called. `lost` is called when somebody else
   * has taken over: nothing that this work reports will be recorded. */
  hold(lease, lost = () => {}) {
    const every = millisecondsOf(lease) / RENEWALS;
    if (!(every > 0)) return () => {};
    let isOver = false;
    let isAsking = false;
    const timer = setInterval(async () => {
      if (isAsking) return;
      isAsking = true;
      try {
        await this.#end("renew", { lease }, { deadlineMs: every });
      } catch (error) {
        if (!(error instanceof OnceError)) throw error;
        if (!isOver && (error instanceof StaleFence || error instanceof AlreadySealed)) {
          clearInterval(timer);
          lost();
        }
      } finally {
        isAsking = false;
      }
    }, every);
    return () => {
      isOver = true;
      clearInterval(timer);
    };
  }

  async #end(verb, members, options) {
    await this.#ask(`/v1/fences/${this.operationId}/${verb}`, { fence: this.fence, ...members },
      options);
  }
}

/** It was done before, and this is its outcome. */
export class Replay {
  isFirst = false;

  constructor(begun) {
    this.operationId = begun.operation_id;
    this.status = begun.status;
    this.outcome = begun.outcome;
    this.effectId = begun.effect_id;
    this.firstSeenAt = begun.first_seen_at;
    this.sealedAt = begun.sealed_at;
  }
}

/** The fences of one Once server. */
export class Fences {
  #client;
  #headers;

  /** url: ONCE_URL, else http://127.0.0.1:7411. token: ONCE_TOKEN, else none. */
  constructor(url, { token = process.env.ONCE_TOKEN, client = new Client() } = {}) {
    this.url = (url ?? process.env.ONCE_URL ?? "http://127.0.0.1:7411").replace(/\/+$/, "");
    this.#client = client;
    this.#headers = token ? { Authorization: `Bearer ${token}` } : {};
  }

  /** Closes the idle connections. */
  close() {
    this.#client.close();
  }

  /**
   * Asks for the right to execute: a Grant or a Replay. Throws Conflict, InProgress or
   * OutcomeUnknown. Durations are texts: "30s", "24h". If the answer to a begin is lost, its grant
   * has no holder: the retry throws InProgress until the lease ends, and OutcomeUnknown then.
   */
  async begin(scope, key, payload, options = {}) {
    const { keyFrom, fingerprint, principal, ttl, lease, onUnknown, wait, source, trace,
      isPatient = true } = options;
    const { status, document: begun } = await this.#ask("/v1/fences", {
      scope, key, key_from: keyFrom, fingerprint,
      payload: fingerprint === undefined ? payload ?? null : undefined,
      principal, ttl, lease, on_unknown: onUnknown, wait, source, trace,
    }, isPatient);
    switch (begun.decision) {
      case "first_seen":
        return new Grant(begun, (path, body, how) => this.#ask(path, body, true, how));
      case "duplicate_replayed":
        return new Replay(begun);
      case "in_progress":
        throw new InProgress(status, { detail: "somebody else holds the grant", ...begun },
          begun.retry_after_ms);
      default:
        throw new Unavailable(`${this.url} does not answer as Once does`);
    }
  }

  /** Runs the function once for this key: {outcome, isReplayed, operationId}. The options are those
   * of begin. The work gets the grant, and a signal that is aborted when the grant is lost; the
   * lease is renewed while it runs. */
  async do(scope, key, payload, work, options = {}) {
    const lease = options.lease ?? LEASE;
    const begun = await this.begin(scope, key, payload, { ...options, lease });
    const { operationId } = begun;
    if (begun.isFirst) {
      return { outcome: await perform(begun, work, lease), isReplayed: false, operationId };
    }
    if (begun.status === "failed" || begun.status === "rejected") throw new Failed(begun.outcome);
    return { outcome: begun.outcome, isReplayed: true, operationId };
  }

  /** A function whose every call runs once for its key, which `key` makes of the arguments. The
   * arguments are the payload, so they must be JSON. */
  once(scope, { key, ...options }, work) {
    return async (...args) => {
      const done = await this.do(scope, key(...args), args, () => work(...args), options);
      return done.outcome;
    };
  }

  /** Settles an unknown operation after a check. status: executed, failed, not_executed. */
  async resolve(operationId, status, reason, { outcome, effectId } = {}) {
    await this.#ask(`/v1/operations/${operationId}/resolve`,
      { status, reason, outcome, effect_id: effectId });
  }

  /** {status, document} of a request to Once. Repeating one is always safe. */
  async #ask(path, body, isPatient = true, how = {}) {
    const request = new Request("POST", this.url + path, { body, headers: this.#headers });
    const answer = await this.#client.sendJudged(request, isPatient ? judgeOnce : judgeBriefly,
      how);
    let document;
    try {
      document = answer.json();
    } catch {
      document = undefined;
    }
    if (typeof document !== "object" || document === null) {
      throw new Unavailable(`${this.url} answered ${answer.status}, and not as Once does`);
    }
    if (answer.status < 300) return { status: answer.status, document };
    const after = Number(answer.header("Retry-After") || NaN) * 1000;
    const Kind = PROBLEMS[document.code] ?? Problem;
    throw new Kind(answer.status, document, Number.isNaN(after) ? undefined : after);
  }
}

/** For a caller whose own client waits: a flood of duplicates is an answer. */
function judgeBriefly(facts) {
  const verdict = judgeOnce(facts);
  return { ...verdict, retry: verdict.retry && facts.status !== 429 };
}

/** The milliseconds of "30s", "1500ms", "24h"; NaN if it is not one, which Once refuses by name. */
export function millisecondsOf(duration) {
  const [, count, unit] = /^([0-9]{1,12})(ms|s|m|h|d)$/.exec(duration) ?? [];
  return Number(count) * UNIT_MS[unit];
}

async function perform(grant, work, lease) {
  let outcome;
  const lost = new AbortController();
  const stop = grant.hold(lease, () => lost.abort());
  try {
    outcome = await work(grant, lost.signal);
    // The first call and every duplicate get the same.
    outcome = outcome === undefined ? null : JSON.parse(JSON.stringify(outcome));
    stop();
  } catch (error) {
    stop();
    if (error instanceof NotStarted) await grant.release(error.message || "it did not start");
    else if (error instanceof Failed) await record(grant, error.outcome, "failed");
    else await leaveUnknown(grant, String(error));
    throw error;
  }
  await record(grant, outcome, "executed");
  return outcome;
}

async function record(grant, outcome, status) {
  try {
    await grant.seal(outcome, { status });
  } catch (error) {
    if (!(error instanceof OnceError)) throw error;
    throw new NotSealed(outcome, grant.operationId, error);
  }
}

export async function leaveUnknown(grant, reason) {
  try {
    await grant.unknown(reason);
  } catch (error) {
    // It becomes unknown when its lease ends; the caller's own error matters more.
    if (!(error instanceof OnceError)) throw error;
  }
}

function short(reason) {
  return reason?.replace(/[^ -~]/g, " ").slice(0, REASON_CHARACTERS_MAX);
}
