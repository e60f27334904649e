// The Node SDK runs the cases that every SDK runs (tests/vectors). node --test counts them.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import test from "node:test";
import { canonical, commandKey, effectKey, parse, sourceKey } from "../../sdk/node/canon.js";
import { Request } from "../../sdk/node/client.js";
import { Fences } from "../../sdk/node/fences.js";
import { Handlers, canonicalPath, endOf, fingerprint, keyOf, outcomeOf }
  from "../../sdk/node/handlers.js";
import { PROFILES, profileKeyOf } from "../../sdk/node/profiles.js";
import { READS, judge, retryAfterMs, waitMs } from "../../sdk/node/retry.js";

const VECTORS = new URL("../vectors/", import.meta.url);
const text = (name) => readFileSync(new URL(name, VECTORS), "utf8");
const each = (file, list, check) => {
  const cases = JSON.parse(text(`sdk/${file}.json`))[list];
  assert(cases.length > 2);
  for (const one of cases) {
    const name = one.name ?? one.text ?? one.field ?? one.raw ?? one.status;
    test(`${file}: ${name}`, () => check(one));
  }
};

each("verdicts", "cases", (one) => {
  const verdict = judge({ end: one.end, isRead: READS.includes(one.method), status: one.status ?? 0,
    isReplayed: one.replayed ?? false, decision: one.decision ?? "", document: one.body });
  assert.deepEqual(verdict, { retry: one.retry, settles: one.settles, effect: one.effect });
});

each("waits", "waits", (one) => {
  assert.equal(waitMs({ baseMs: one.base_ms, maxMs: one.max_ms, retry: one.retry,
    random: BigInt(one.random), afterMs: one.after_ms, leftMs: one.left_ms }), one.wait_ms);
});

each("waits", "retry_after", (one) => {
  assert.equal(retryAfterMs(one.text, one.now_ms), one.ms);
});

each("requests", "cases", (one) => {
  const make = () => new Request(one.method, one.url,
    { headers: one.headers, idempotencyKey: one.key, requestId: one.request_id });
  if (one.error) {
    assert.throws(make, (error) => error.message.includes(one.error));
    return;
  }
  const request = make();
  const sent = Object.fromEntries(Object.entries(request.headers)
    .map(([name, value]) => [name.toLowerCase(), value]));
  for (const [name, value] of Object.entries(one.sent ?? {})) {
    assert.equal(sent[name] ?? null, value);
  }
  (one.ids ?? []).forEach((id, index) => assert.equal(request.idOf(index + 1), id));
});

each("canonical", "cases", (one) => {
  if (one.error) assert.throws(() => canonical(parse(one.input)));
  else assert.equal(canonical(parse(one.input)), one.canonical);
});

for (const name of readdirSync(new URL("jcs/input", VECTORS))) {
  test(`canonical form of ${name}`, () => {
    const wanted = text(`jcs/output/${name}`).replace(/\n+$/, "");
    assert.equal(canonical(JSON.parse(text(`jcs/input/${name}`))), wanted);
  });
}

test("numbers are written as ECMAScript does", () => {
  const lines = text("numbers/es.txt").trim().split("\n");
  assert(lines.length > 10000);
  for (const line of lines) {
    const [bits, wanted] = line.split(",");
    const value = Buffer.from(bits.padStart(16, "0"), "hex").readDoubleBE();
    assert.equal(canonical(value), wanted);
  }
});

for (const [kind, derive] of Object.entries({ command: commandKey, effect: effectKey,
  source: sourceKey })) {
  for (const one of JSON.parse(text(`keys/${kind}.json`)).cases) {
    test(`key of a ${kind}: ${one.name}`, () => {
      if (one.error) {
        assert.throws(() => derive(parse(one.input)), (error) => error.message.includes(one.error));
      } else {
        assert.equal(derive(parse(one.input)), one.sha256);
      }
    });
  }
}

each("handlers", "keys", (one) => assert.equal(keyOf([one.field]), one.key));
each("handlers", "paths", (one) => assert.equal(canonicalPath(Buffer.from(one.raw)), one.path));
each("handlers", "ends", (one) => assert.equal(endOf(one.status), one.end));
each("handlers", "fingerprints", (one) => {
  assert.equal(fingerprint({ method: one.method, path: one.path, query: one.query,
    headers: [["Content-Type", one.content_type]], body: Buffer.from(one.body) }), one.sha256);
});
each("handlers", "outcomes", (one) => {
  assert.deepEqual(outcomeOf({ status: one.status, headers: one.headers,
    body: Buffer.from(one.body_base64, "base64") }, one.request_id), one.outcome);
});
each("profiles", "profiles", (one) => {
  const { methods, missing, ttlMs, ttlMinMs, ttlMaxMs } = PROFILES[one.profile];
  assert.deepEqual([methods, missing, ttlMs, ttlMinMs, ttlMaxMs],
    [one.methods, one.missing, one.ttl_ms, one.ttl_min_ms, one.ttl_max_ms]);
});
each("profiles", "keys", (one) => {
  assert.equal(profileKeyOf(PROFILES[one.profile], [one.field]), one.key);
});
each("profiles", "ends", (one) => {
  assert.equal(endOf(one.status, {}, PROFILES[one.profile].isSealed5xx), one.end);
});
each("profiles", "refusals", (one) => {
  const { status, headers, body } = new Handlers(new Fences("http://127.0.0.1:1"),
    { profile: one.profile }).refuse({ headers: [["Idempotency-Key", "k"]], id: "r-1" }, one.code,
    one.operation_id, one.retry_after_ms);
  const { title, ...document } = JSON.parse(body);
  assert.equal(Boolean(title), one.headers["Content-Type"] === "application/problem+json");
  assert.deepEqual([status, document], [one.status, one.body]);
  const { "Idempotency-Key": key, "Request-Id": id, "Once-Operation-Id": operationId, ...others } =
    Object.fromEntries(headers);
  assert.deepEqual([key, id, operationId], ["k", "r-1", one.operation_id]);
  assert.deepEqual(others, one.headers);
});
test("a profile that is none, and a window that it forbids", () => {
  const fences = new Fences("http://127.0.0.1:1");
  assert.throws(() => new Handlers(fences, { profile: "odd" }), TypeError);
  assert.throws(() => new Handlers(fences, { profile: "guardia", ttl: "25h" }), TypeError);
  new Handlers(fences, { profile: "guardia", ttl: "2h" });
});
test("two key fields are none", () => assert.equal(keyOf(["a", "a"]), undefined));
