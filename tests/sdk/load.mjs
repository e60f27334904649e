// Many operations through the Node SDK, against a way that fails: load.py, with tasks for threads.
//
//     load.mjs gateway URL operations tasks prefix deadline_ms answers
//     load.mjs fences ONCE_URL PROVIDER_URL operations tasks answers
import assert from "node:assert/strict";
import { createWriteStream } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Client, Fences, InProgress, NoAnswer, NotSealed, NotStarted, OutcomeUnknown, Problem,
  Unavailable } from "../../sdk/node/index.js";

const AGAIN_EVERY = 20;
const FAILING = 0.1; // the share of the works that do not start, and of those that die afterwards
const DEADLINE_MS = 300000; // of one operation: none may need all of it
const figures = { done: 0, replayed: 0, attempts: 0, failures: 0, checked: 0 };

class Died extends Error {}

async function run(operations, tasks, answers, operate) {
  const file = createWriteStream(answers);
  let next = 0;
  const work = async () => {
    while (next < operations) {
      const number = next++;
      try {
        const { key, status, body } = await operate(number);
        file.write(`${key} ${status} ${body}\n`);
        figures.done++;
      } catch (error) {
        console.error(error);
        figures.failures++;
      }
    }
  };
  await Promise.all(Array.from({ length: tasks }, work));
  await new Promise((resolve) => { file.end(resolve); });
  console.log(JSON.stringify(figures));
  process.exit(figures.failures === 0 ? 0 : 1);
}

function loadGateway(url, operations, tasks, prefix, deadlineMs, answers) {
  const client = new Client({ retries: 1000, deadlineMs: Number(deadlineMs),
    attemptTimeoutMs: 5000, idleMax: Number(tasks) });
  return run(Number(operations), Number(tasks), answers, async (n) => {
    const key = `${prefix}-${n}`;
    const send = () => client.send("POST", url, { body: { n }, idempotencyKey: key });
    const answer = await send();
    assert(answer.status >= 200 && answer.status < 300 && answer.effect === "yes", key);
    figures.replayed += Number(answer.isReplayed);
    figures.attempts += answer.attempts;
    if (n % AGAIN_EVERY === 0) {
      const again = await send();
      assert(again.isReplayed && again.body.equals(answer.body), key);
    }
    return { key, status: answer.status, body: answer.text() };
  });
}

function loadFences(url, provider, operations, tasks, answers) {
  const fences = new Fences(url, { client: new Client({ retries: 1000, deadlineMs: 60000,
    attemptTimeoutMs: 10000 }) });
  const plain = new Client({ retries: 0 });

  const charge = async (key, n) => {
    const chance = Math.random();
    if (chance < FAILING) throw new NotStarted("not now");
    const answer = await plain.send("POST", `${provider}/charges`,
      { body: { n }, idempotencyKey: key });
    if (chance > 1 - FAILING) throw new Died("after the effect");
    return answer.json();
  };
  // What a person would do: look, and say what happened.
  const settle = async (key, operationId) => {
    figures.checked++;
    const answer = await plain.send("GET", `${provider}/by-key/${key}`);
    assert([200, 404].includes(answer.status));
    if (answer.status === 404) await fences.resolve(operationId, "not_executed", "not there");
    else await fences.resolve(operationId, "executed", "there", { outcome: answer.json() });
  };
  const retried = [InProgress, NotStarted, NotSealed, Unavailable, NoAnswer, Died];
  const act = async (key, n) => {
    const ends = performance.now() + DEADLINE_MS;
    while (performance.now() < ends) {
      figures.attempts++;
      try {
        return await fences.do("charge", key, { n }, () => charge(key, n),
          { lease: "1s", wait: "1s" });
      } catch (error) {
        if (error instanceof OutcomeUnknown) {
          await settle(key, error.operationId).catch((fault) => {
            // An earlier try settled it, or the next begin tells.
            if (![Problem, ...retried].some((kind) => fault instanceof kind)) throw fault;
          });
        } else if (!retried.some((kind) => error instanceof kind)) {
          throw error;
        }
        await sleep(10);
      }
    }
    throw new Error(`${key} does not end`);
  };
  return run(Number(operations), Number(tasks), answers, async (n) => {
    const key = `load-${n}`;
    const done = await act(key, n);
    figures.replayed += Number(done.isReplayed);
    if (n % AGAIN_EVERY === 0) {
      const again = await act(key, n);
      assert(again.isReplayed);
      assert.deepEqual(again.outcome, done.outcome);
    }
    return { key, status: 200, body: JSON.stringify(done.outcome) };
  });
}

const [kind, ...words] = process.argv.slice(2);
await { gateway: loadGateway, fences: loadFences }[kind](...words);
