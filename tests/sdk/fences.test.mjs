// Fences from Node, against the server at ONCE_TEST_URL.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import http from "node:http";
import { json } from "node:stream/consumers";
import { after, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { AlreadySealed, Client, Conflict, Failed, Fences, Grant, InProgress, NotStarted,
  NotSealed, OutcomeUnknown, Replay, StaleFence, Unavailable } from "../../sdk/node/index.js";

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

/** Grants, notes renewals, and answers them with the status it is told. */
async function fake() {
  const renewals = [];
  const state = { renew: 200, renewals };
  const server = http.createServer(async (req, res) => {
    const body = await json(req);
    if (req.url.endsWith("/renew")) {
      renewals.push(body);
      res.statusCode = state.renew;
      res.end('{"code":"stale_fence","effect":"no"}');
    } else {
      res.end('{"decision":"first_seen","operation_id":"op","fence":7,"attempt":1}');
    }
  }).listen(0, "127.0.0.1");
  await new Promise((resolve) => { server.once("listening", resolve); });
  after(() => server.close());
  return { ...state, state, fences: new Fences(`http://127.0.0.1:${server.address().port}`) };
}

test("the lease is renewed while the work runs", async () => {
  const { state, renewals, fences: faked } = await fake();
  await faked.do("charge", "k", 1, async (grant, lost) => {
    while (renewals.length < 3) await sleep(5);
    assert.deepEqual(renewals[0], { fence: 7, lease: "60ms" });
    assert(!lost.aborted);
    state.renew = 409;
    await new Promise((resolve) => { lost.addEventListener("abort", resolve); });
  }, { lease: "60ms" });
  const before = renewals.length;
  await sleep(100);
  assert.equal(renewals.length, before); // and not after its end
  faked.close();
});

test("work may take many leases", async () => {
  for (let number = 0; number < 5; number++) { // a machine that stalls for a lease is no fault
    try {
      const done = await fences.do("charge", randomUUID(), 1, async () => {
        await sleep(1500);
        return "done";
      }, { lease: "500ms" });
      assert.equal(done.outcome, "done");
      return;
    } catch (error) {
      if (!(error instanceof NotSealed)) throw error;
    }
  }
  assert.fail("no lease was held");
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
