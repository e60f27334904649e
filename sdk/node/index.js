// Once: exactly-once effects over at-least-once delivery.
//
// Two halves. *Call* an API that honours keys: Client. *Fence* your own work: Fences, and the
// middleware in once-sdk/express and once-sdk/fastify. No dependencies.
export { canonical, commandKey, effectKey, parse, sourceKey } from "./canon.js";
export { Answer, Client, VERSION } from "./client.js";
export { AlreadySealed, Conflict, Failed, InProgress, NoAnswer, NotSealed, NotStarted, OnceError,
  OutcomeUnknown, Problem, StaleFence, Unavailable } from "./errors.js";
export { Fences, Grant, Replay } from "./fences.js";
