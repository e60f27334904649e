// What can go wrong, by what the caller should do about it.

/** Any error of this package. */
export class OnceError extends Error {
  get name() {
    return this.constructor.name;
  }
}

/** A call that ended without an answer. */
class CallError extends OnceError {
  constructor(text, { idempotencyKey = "", requestId = "", attempts = 0 } = {}) {
    super(text);
    Object.assign(this, { idempotencyKey, requestId, attempts });
  }
}

/** No attempt reached the server, and nothing happened. */
export class Unavailable extends CallError {
  effect = "no";
}

/** There is no answer, and it may have happened. The same key continues the operation. */
export class NoAnswer extends CallError {
  effect = "unknown";
}

/** Once refused. `code` is stable; `effect` says whether anything happened. */
export class Problem extends OnceError {
  constructor(status, document, retryAfterMs) {
    super(document.detail ?? document.code ?? String(status));
    this.status = status;
    this.document = document;
    this.retryAfterMs = retryAfterMs;
    this.code = document.code ?? "";
    this.effect = document.effect ?? "unknown";
    this.operationId = document.operation_id;
  }
}

/** The key was used with a different payload. `document.diff` shows the difference. */
export class Conflict extends Problem {}

/** Somebody else holds the grant. Ask again after `retryAfterMs`, with the same key. */
export class InProgress extends Problem {}

/** It may have happened, and nobody knows. Check, then settle it; do not repeat it. */
export class OutcomeUnknown extends Problem {}

/** Somebody took over, or settled it: this changed nothing. */
export class StaleFence extends Problem {}

/** It was settled differently before: this changed nothing. */
export class AlreadySealed extends Problem {}

/** The work was done, and Once could not record it. The operation becomes unknown. */
export class NotSealed extends OnceError {
  constructor(outcome, operationId, cause) {
    super(`the outcome of ${operationId} could not be recorded`, { cause });
    this.outcome = outcome;
    this.operationId = operationId;
  }
}

/** Throw it in fenced work: the effect certainly did not start. The key is free again. */
export class NotStarted extends OnceError {}

/** Throw it in fenced work that is known to have failed for good. Every duplicate throws it. */
export class Failed extends OnceError {
  constructor(outcome = null) {
    super("the work failed, finally");
    this.outcome = outcome;
  }
}
