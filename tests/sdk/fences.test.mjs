// Fences from Node, against the server at ONCE_TEST_URL.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, test } from "node:test";
import { AlreadySealed, Client, Conflict, Failed, Fences, Grant, InProgress, NotStarted,
  OutcomeUnknown, Replay, StaleFence, Unavailable } from "../../sdk/node/index.js";

const fences = new Fences(process.env.ONCE_TEST_URL);
const never = () => assert.fail("it ran");
after(() => fences.close());

test("work is done once and every duplicate gets its outcome", async () => {
  const key = randomUUID();
  let calls = 0;
  const work = async () => ({ id: ++calls, gone: undefined });
  const first = await fences.do("charge", key, { cents: 1 }, work);
  const again = await fences.do("charge", key, { cents: 1 }, never);
  assert.deepEqual([first.isReplayed, again.isReplayed, calls], [false, true, 1]);
  assert.deepEqual(first.outcome, { id: 1 });
  assert.deepEqual(again.outcome, first.outcome);
});

test("another payload is a conflict", async () => {
  const key = randomUUID();
  await fences.do("charge", key, { cents: 1 }, () => null);
  await assert.rejects(fences.do("charge", key, { cents: 2 }, never), (error) => {
    assert(error instanceof Conflict);
    assert.deepEqual(error.document.diff, [{ op: "replace", path: "/cents", value: 2 }]);
    return error.effect === "no";
  });
});

test("what did not start may be tried again", async () => {
  const key = randomUUID();
  const work = () => { throw new NotStarted("no connection"); };
  await assert.rejects(fences.do("charge", key, 1, work), NotStarted);
  assert.equal((await fences.do("charge", key, 1, () => "done")).outcome, "done");
});

test("a failure is final", async () => {
  const key = randomUUID();
  const work = async () => { throw new Failed({ why: "no money" }); };
  const same = (error) => error instanceof Failed && error.outcome.why === "no money";
  await assert.rejects(fences.do("charge", key, 1, work), same);
  await assert.rejects(fences.do("charge", key, 1, never), same);
});

test("after any other error nobody knows until somebody looked", async () => {
  const key = randomUUID();
  const work = async () => { throw new RangeError("timed out\n"); };
  await assert.rejects(fences.do("charge", key, 1, work), RangeError);
  let operationId;
  await assert.rejects(fences.do("charge", key, 1, never), (error) => {
    operationId = error.operationId;
    return error instanceof OutcomeUnknown;
  });
  await fences.resolve(operationId, "executed", "it is there", { outcome: { id: 7 } });
  const done = await fences.do("charge", key, 1, never);
  assert.deepEqual([done.isReplayed, done.outcome], [true, { id: 7 }]);
});

test("a fenced function", async () => {
  const key = randomUUID();
  let calls = 0;
  const charge = fences.once("charge", { key: (order) => order }, (order, cents) => {
    calls++;
    return { cents };
  });
  assert.deepEqual(await charge(key, 5), { cents: 5 });
  assert.deepEqual(await charge(key, 5), { cents: 5 });
  assert.equal(calls, 1);
  await assert.rejects(charge(key, 6), Conflict);
});

test("begin, renew and seal by hand; a stale fence changes nothing", async () => {
  const key = randomUUID();
  const first = await fences.begin("mail", key, 1);
  assert(first instanceof Grant && first.isFirst);
  await assert.rejects(fences.begin("mail", key, 1),
    (error) => error instanceof InProgress && error.retryAfterMs > 0);
  await first.release("not yet");
  const second = await fences.begin("mail", key, 1);
  assert(second.fence > first.fence);
  await assert.rejects(first.seal("late"), StaleFence);
  await second.renew("60s");
  await second.seal("in time", { effectId: "m-1" });
  await second.seal("in time", { effectId: "m-1" });
  await assert.rejects(second.seal("different"), AlreadySealed);
  const replay = await fences.begin("mail", key, 1);
  assert(replay instanceof Replay);
  assert.deepEqual([replay.status, replay.outcome, replay.effectId],
    ["executed", "in time", "m-1"]);
});

test("many at once do it once", async () => {
  const key = randomUUID();
  let calls = 0;
  const runs = Array.from({ length: 16 }, () => fences.do("charge", key, 1, () => ++calls,
    { wait: "30s" }));
  assert.deepEqual((await Promise.all(runs)).map((done) => done.outcome), Array(16).fill(1));
  assert.equal(calls, 1);
});

test("nobody listens", async () => {
  const lost = new Fences("http://127.0.0.1:1", { client: new Client({ retries: 1 }) });
  await assert.rejects(lost.do("charge", "k", 1, never),
    (error) => error instanceof Unavailable && error.attempts === 2);
});
