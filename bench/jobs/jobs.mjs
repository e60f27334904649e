// The job of B11 on graphile-worker and on pg-boss, over PostgreSQL; and how long it takes from the
// creation of a job to its first byte at the provider, there and for effects of Once.
//
//     node jobs.mjs worker WHO HOST PROVIDER_PORT             until it is ended
//     node jobs.mjs load WHO HOST SECONDS                   prints {"jobs", "created_s", "seconds"}
//     node jobs.mjs delay WHO HOST PROVIDER_PORT RATE COUNT   prints {"p50_us", "p99_us"}
//
// WHO: graphile, pgboss, or (delay alone) once. HOST: the directory of PostgreSQL's socket, or the
// port of Once. The payload of a job is a line of standard input. A job is one POST to the
// provider, done when a 2xx was read.
import { readFileSync } from "node:fs";
import http from "node:http";
import { Pool as HttpPool } from "undici";
import { Logger, makeWorkerUtils, parseCronItems, run } from "graphile-worker";
import pg from "pg";
import PgBoss from "pg-boss";

const QUEUE = "charge"; // of pg-boss, and the task of graphile-worker
const IN_FLIGHT = 64; // creations, and calls to the provider: as many as wrk has connections
const BATCH = 500; // jobs that are fetched, and acknowledged, together
const IDLE_MS = 500; // the shortest pollingIntervalSeconds that pg-boss takes
const POOL = 20; // connections to PostgreSQL of one process
const SETTLE_MS = 120_000;
const [role, who, host, ...rest] = process.argv.slice(2);
const payload = JSON.parse(readFileSync(0, "utf8").split("\n")[0] || "{}");

const pool = () => new pg.Pool({ host, user: "bench", database: "postgres", max: POOL });
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// ---- The provider's side of a job ---------------------------------------------------------------

function caller(port) {
  const provider = new HttpPool(`http://127.0.0.1:${port}`, { connections: IN_FLIGHT });
  return async ({ number, payload: body }) => {
    const answer = await provider.request({ method: "POST", path: `/v1/charges/${number}`,
      headers: { "content-type": "application/json", "idempotency-key": String(number) },
      body: JSON.stringify(body) });
    await answer.body.dump();
    if (answer.statusCode >= 300) throw new Error(`the provider answered ${answer.statusCode}`);
  };
}

// Each job that is done would be a line otherwise; Once writes none here either.
const logger = new Logger(() => (level, message) => {
  if (level === "error") console.error(message);
});

// ---- The peers ----------------------------------------------------------------------------------

const graphile = {
  // https://worker.graphile.org/docs/performance: a local queue, and completions in batches.
  async work(call) {
    await run({ pgPool: pool(), parsedCronItems: parseCronItems([]), taskList: { [QUEUE]: call },
      preset: { worker: { logger, concurrentJobs: IN_FLIGHT, localQueue: { size: BATCH },
        completeJobBatchDelay: 0, failJobBatchDelay: 0, maxPoolSize: POOL } } });
  },
  async creator() {
    const database = pool();
    const utils = await makeWorkerUtils({ logger, pgPool: database });
    return {
      create: (job) => utils.addJob(QUEUE, job, { maxAttempts: 8 }),
      left: async () => Number((await database.query(
        "SELECT count(*) FROM graphile_worker.jobs")).rows[0].count),
    };
  },
};

async function boss(settings) {
  const made = new PgBoss({ host, user: "bench", database: "postgres", max: POOL, ...settings });
  made.on("error", (fault) => console.error(String(fault)));
  await made.start();
  await made.createQueue(QUEUE, { name: QUEUE, retryLimit: 8 });
  return made;
}

const pgboss = {
  // fetch() and complete() without the pause that work() makes between two batches.
  async work(call) {
    const made = await boss({});
    const loop = async () => {
      for (;;) {
        const jobs = await made.fetch(QUEUE, { batchSize: BATCH });
        const done = await Promise.allSettled(jobs.map((job) => call(job.data)));
        const good = jobs.filter((_, i) => done[i].status === "fulfilled").map((job) => job.id);
        const bad = jobs.filter((_, i) => done[i].status === "rejected").map((job) => job.id);
        if (good.length > 0) await made.complete(QUEUE, good);
        if (bad.length > 0) await made.fail(QUEUE, bad);
        if (jobs.length === 0) await sleep(IDLE_MS);
      }
    };
    void loop();
    void loop(); // one sends while the other fetches and acknowledges
  },
  async creator() {
    const made = await boss({ supervise: false, schedule: false });
    return {
      create: (job) => made.send(QUEUE, job),
      left: () => made.getQueueSize(QUEUE, { before: "completed" }),
    };
  },
};

const once = {
  async creator() {
    const server = new HttpPool(`http://127.0.0.1:${host}`, { connections: IN_FLIGHT });
    return {
      create: async ({ number, payload: body }) => {
        const answer = await server.request({ method: "POST", path: "/v1/effects",
          headers: { "content-type": "application/json" },
          body: JSON.stringify({ effect_type: "payment.capture", command_id: String(number),
            target: { order_id: String(number) }, payload: body }) });
        await answer.body.dump();
        if (answer.statusCode !== 202) throw new Error(`once answered ${answer.statusCode}`);
      },
    };
  },
};

const peer = { graphile, pgboss, once }[who];

// ---- Roles --------------------------------------------------------------------------------------

async function worker(port) {
  await peer.work(caller(port));
  console.log("ready");
}

async function load(seconds) {
  const { create, left } = await peer.creator();
  const begun = performance.now();
  const until = begun + 1000 * Number(seconds);
  let jobs = 0;
  const one = async () => {
    while (performance.now() < until) {
      jobs += 1;
      await create({ number: `${process.pid}-${jobs}`, payload });
    }
  };
  await Promise.all(Array.from({ length: IN_FLIGHT }, one));
  const created_s = (performance.now() - begun) / 1000;
  while ((await left()) > 0) {
    if (performance.now() > until + SETTLE_MS) throw new Error(`${await left()} jobs are left`);
    await sleep(5);
  }
  console.log(JSON.stringify({ jobs, created_s, seconds: (performance.now() - begun) / 1000 }));
}

// Creations come at even intervals, whatever becomes of those before them. The time of each counts
// from the call that creates it until the provider reads the head of its request.
async function delay(port, rate, count) {
  const { create } = await peer.creator();
  const created = new Map();
  const took = [];
  const provider = http.createServer((request, answer) => {
    const number = request.url.split("/").pop();
    if (created.has(number)) took.push(performance.now() - created.get(number));
    created.delete(number);
    request.resume();
    request.on("end", () => answer.end('{"id":"pay_7f3a9c21"}'));
  });
  provider.keepAliveTimeout = 60_000;
  await new Promise((done) => provider.listen(Number(port), "127.0.0.1", done));
  const begun = performance.now();
  const creations = [];
  for (let i = 0; i < Number(count); i++) {
    const due = begun + (i * 1000) / Number(rate);
    if (due > performance.now()) await sleep(due - performance.now());
    const number = `${process.pid}-${i}`;
    created.set(number, performance.now());
    creations.push(create({ number, payload }));
  }
  await Promise.all(creations);
  while (took.length < Number(count)) {
    if (performance.now() > begun + SETTLE_MS) throw new Error(`${took.length} of ${count} came`);
    await sleep(5);
  }
  took.sort((a, b) => a - b);
  const at = (part) => Math.round(1000 * took[Math.min(took.length - 1,
    Math.floor(took.length * part))]);
  console.log(JSON.stringify({ p50_us: at(0.5), p99_us: at(0.99) }));
}

await { worker, load, delay }[role](...rest);
if (role !== "worker") process.exit(0);
