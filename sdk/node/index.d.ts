/** JSON, as it is sealed and replayed. */
export type Json = null | boolean | number | string | Json[] | { [name: string]: Json | undefined };
export type Effect = "yes" | "no" | "unknown";
export const VERSION: string;

/** The canonical text (RFC 8785) of a JSON value; `parse` reads a text without losing digits. */
export function canonical(value: unknown): string;
export function parse(text: string): unknown;
export function commandKey(envelope: unknown): string;
export function effectKey(envelope: unknown): string;
export function sourceKey(envelope: unknown): string;

export interface Attempt {
  number: number;
  requestId: string;
  /** 0: there was no answer. */
  status: number;
  why: string;
  /** Before the next attempt; undefined: this was the last. */
  sleepMs: number | undefined;
}

export interface ClientOptions {
  retries?: number;
  deadlineMs?: number;
  attemptTimeoutMs?: number;
  connectTimeoutMs?: number;
  backoffBaseMs?: number;
  backoffMaxMs?: number;
  bodyBytesMax?: number;
  idleMax?: number;
  userAgent?: string;
  /** PEM text of the trusted authorities. */
  ca?: string | Uint8Array;
  onAttempt?: (attempt: Attempt) => void;
}

export interface SendOptions {
  /** Text and bytes as they are, anything else as JSON. */
  body?: unknown;
  headers?: Record<string, string>;
  /** Made once per call when it is not given: a UUIDv4. */
  idempotencyKey?: string;
  /** Of the first attempt; later ones append ".2", ".3". */
  requestId?: string;
  retries?: number;
  deadlineMs?: number;
  attemptTimeoutMs?: number;
}

export class Answer {
  readonly status: number;
  readonly headers: [name: string, value: string][];
  readonly body: Buffer;
  readonly isBodyLost: boolean;
  readonly idempotencyKey: string;
  readonly requestId: string;
  readonly attempts: number;
  readonly effect: Effect;
  readonly isReplayed: boolean;
  readonly decision: string;
  readonly operationId: string;
  header(name: string): string;
  text(): string;
  json(): any;
}

export class Client {
  constructor(options?: ClientOptions);
  send(method: string, url: string, options?: SendOptions): Promise<Answer>;
  fetch(url: string | URL,
    options?: SendOptions & { method?: string }): Promise<Response & { once: Answer }>;
  close(): void;
}

export class OnceError extends Error {}
declare class CallError extends OnceError {
  readonly idempotencyKey: string;
  readonly requestId: string;
  readonly attempts: number;
  readonly effect: Effect;
}
export class Unavailable extends CallError {}
export class NoAnswer extends CallError {}
export class Problem extends OnceError {
  readonly status: number;
  readonly code: string;
  readonly effect: Effect;
  readonly operationId: string | undefined;
  readonly retryAfterMs: number | undefined;
  readonly document: Record<string, any>;
}
export class Conflict extends Problem {}
export class InProgress extends Problem {}
export class OutcomeUnknown extends Problem {}
export class StaleFence extends Problem {}
export class AlreadySealed extends Problem {}
export class NotSealed extends OnceError {
  readonly outcome: any;
  readonly operationId: string;
}
export class NotStarted extends OnceError {}
export class Failed extends OnceError {
  constructor(outcome?: unknown);
  readonly outcome: any;
}

export interface BeginOptions {
  keyFrom?: Record<string, string | number>;
  fingerprint?: string;
  principal?: string;
  ttl?: string;
  lease?: string;
  onUnknown?: "hold" | "takeover";
  wait?: string;
  source?: { type: string; id: string; version?: number };
  trace?: Record<string, unknown>;
}

export class Grant {
  readonly isFirst: true;
  readonly operationId: string;
  readonly fence: number;
  readonly attempt: number;
  readonly leaseExpiresAt: string;
  seal(outcome?: unknown, options?: { status?: "executed" | "failed" | "rejected";
    effectId?: string; ttl?: string }): Promise<void>;
  release(reason?: string): Promise<void>;
  unknown(reason?: string): Promise<void>;
  renew(lease: string): Promise<void>;
  /** Renews the lease until the function it returns is called. */
  hold(lease: string, lost?: () => void): () => void;
}

export class Replay {
  readonly isFirst: false;
  readonly operationId: string;
  readonly status: "executed" | "failed" | "rejected" | "compensated";
  readonly outcome: any;
  readonly effectId: string | null;
  readonly firstSeenAt: string;
  readonly sealedAt: string;
}

export interface Done<T> {
  outcome: T;
  isReplayed: boolean;
  operationId: string;
}

export class Fences {
  constructor(url?: string, options?: { token?: string; client?: Client });
  readonly url: string;
  begin(scope: string, key: string | undefined, payload?: unknown,
    options?: BeginOptions): Promise<Grant | Replay>;
  do<T>(scope: string, key: string, payload: unknown, work: (grant: Grant,
    lost: AbortSignal) => T | Promise<T>,
    options?: BeginOptions): Promise<Done<T>>;
  once<A extends unknown[], T>(scope: string,
    options: BeginOptions & { key: (...args: any[]) => string },
    work: (...args: A) => T | Promise<T>): (...args: A) => Promise<T>;
  resolve(operationId: string, status: "executed" | "failed" | "not_executed", reason: string,
    options?: { outcome?: unknown; effectId?: string }): Promise<void>;
  close(): void;
}

/** A request that middleware fences. */
export interface FencedRequest {
  method: string;
  path: string;
  query: string;
  headers: [name: string, value: string][];
  body: Buffer;
  id: string;
}

/** The options of the middleware for Express and Fastify. */
export interface HandlersOptions {
  /** One of the gateway's. */
  profile?: "ietf" | "guardia" | "adr007" | "ops" | "stripe";
  methods?: string[];
  wait?: string;
  lease?: string;
  ttl?: string;
  onUnknown?: "hold" | "takeover";
  principal?: (request: FencedRequest) => string | undefined;
  onStatus?: Record<number, "seal" | "release" | "unknown">;
  /** Of a request: 10 MiB. */
  bodyBytesMax?: number;
  /** Of an answer that is held back and kept: 10 MiB. A larger one goes through as it comes and is
   *  sealed without its body; duplicates get 410. */
  answerBytesMax?: number;
}
