// The Node SDK runs the cases that every SDK runs (tests/vectors). node --test counts them.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import test from "node:test";
import { canonical, commandKey, effectKey, parse, sourceKey } from "../../sdk/node/canon.js";
import { Request } from "../../sdk/node/client.js";
import { canonicalPath, endOf, fingerprint, keyOf, outcomeOf }
  from "../../sdk/node/handlers.js";
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
test("two key fields are none", () => assert.equal(keyOf(["a", "a"]), undefined));
