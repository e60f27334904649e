#!/usr/bin/env python3
"""Check a journal without Once, from its bytes: Python's standard library alone.

docs/formats has the formats and the rules. Checked are files, batches and frames, the chain and its
checkpoints, bodies, records against their entries; every decision about an operation is made again.
Believed: signatures (verify_evidence.py), the rules of queued work, `sealed_version`, `type`,
`dedupe`, `inherited`. Prints "ok", "ok, torn tail" (0), "damaged: …" (1) or "cannot check: …" (2).
"""
import base64, hashlib, json, pathlib, re, struct, sys, time

BLOCK, SECTOR, HEADER, FRAME = 4096, 512, 64, 12
RECORD, TOUCH, ENTRY, REQUEST, OUTCOME, MOVED, ERASED = range(1, 8)
STATUS = ("- in_progress unknown released executed failed rejected compensated "
          "pending waiting dead compensating").split()
NUMBERS = ("version fence attempt duplicates created updated sealed lease_expires window_expires "
           "window").split()
PREFIX = {1: "op_", 2: "op_", 3: "cmd_", 4: "eff_", 5: "dlv_"}
DOORS = ["", *"fences gateway run commands effects inbox".split()]
KEY, SOURCE = ("tenant_id", "scope", "principal", "idempotency_key"), ("type", "id", "version")
JANITOR, NEW = {"lease_over": "J2", "holder_gone": "J4"}, dict(status="", fence=0, version=0)
SEALED, OPEN, CRC_OF_ALL = STATUS[4:8], STATUS[1:3], 0x48674BC7  # of data with its CRC after it
STATES = dict(dict.fromkeys(("first_seen", "claimed", "in_progress", "renewed"), "in_progress"),
              unknown="unknown", held_unknown="unknown", released="released",
              duplicate_replayed="executed", not_found="absent")  # after such a decision
TABLE = list(range(256))
for _ in range(8): TABLE = [crc >> 1 ^ (0x82F63B78 if crc & 1 else 0) for crc in TABLE]
class Damage(Exception): pass
def need(condition, what):
    if not condition: raise Damage(what)
def crc32c(data, before=0):
    value, table = before ^ 0xFFFFFFFF, TABLE
    for byte in data: value = table[(value ^ byte) & 255] ^ value >> 8
    return value ^ 0xFFFFFFFF
def sha256(*parts): return hashlib.sha256(b"".join(parts)).digest()
def stamp(ms): return time.strftime("%FT%T", time.gmtime(ms // 1000)) + f".{ms % 1000:03}Z"
def uuid(raw): return re.sub("(.{8})(.{4})(.{4})(.{4})(.{12})", r"\1-\2-\3-\4-\5", raw.hex())
def key_hash(key, kind=1):
    framed = b"".join(struct.pack(">H", len(part)) + part for part in key)
    return sha256(framed if kind == 1 else bytes([kind]) + framed)
def read_frames(data, at, end, seed):  # each as (kind, where it begins, payload)
    while at < end:
        size, kind, crc = struct.unpack("<III", data[at:at + FRAME].ljust(FRAME, b"\0"))
        payload, start = data[at + FRAME:at + FRAME + size], seed ^ at & 0xFFFFFFFF
        need(at + FRAME + size <= end and 1 <= kind <= 7 and
             crc == crc32c(data[at:at + 8] + payload, start), "a frame")
        yield kind, at, payload
        at += FRAME + size
def fill(stored, usual):  # what follows from the rest is left out, or else it is different
    need(all(stored.get(name) != value for name, value in usual.items()), "it is stored twice")
    return {**usual, **stored}
def expand(entry, place):  # of version 2
    if "decided" not in entry: return fill(entry, {n: place[n] for n in place if n[0] != "o"})
    usual = dict(attempt=1, version=0, fence=(d := entry["decided"]).get("fence_next", 0))
    if "fingerprint" in d: usual["fingerprint_version"] = 1
    if "lease_ms" in d and d["request"] != "renew": usual["on_unknown"] = "hold"
    state = STATES.get(d["decision"], d.get("status"))
    return {**fill(entry, {**place, "lifecycle_state": state}), "decided": fill(d, usual)}
class Record:  # reads one field after the other; `fields` is what a decision is about
    def __init__(self, data):
        self.data, self.at = data, 4
        form, self.kind, status, way = data[:4]
        own_hash, own_id, fingerprint = self.raw(32), self.raw(16), self.raw(32)
        numbers = {name: self.number() for name in NUMBERS}
        key, effect_id = tuple(self.text() for _ in range(4)), self.text().decode()
        code, meta = int.from_bytes(self.raw(4), "little", signed=True), self.text()
        self.bodies = {slot: self.body() for slot in (OUTCOME, REQUEST)}
        parts = [self.text().decode() for _ in range(5)]  # the source, the trace and the reason
        door, flags = self.raw(2) if form == 2 else (0, 0)
        holder, parent = self.number() if flags & 1 else 0, self.raw(16) if flags & 2 else b""
        due, detail = self.number() if flags & 4 else 0, self.text() if flags & 8 else b""
        digest, size, *_ = self.bodies[OUTCOME]
        need(form in (1, 2) and self.at == len(data) and flags < 32, "a record's form or its end")
        need(key_hash(key, self.kind) == own_hash, "a record's key hash")
        need(numbers["sealed"] or not (size or meta or code or effect_id), "an unsealed outcome")
        meta = {"meta_digest": sha256(meta).hex()} if meta else {}
        self.fields = dict(
            numbers, status=STATUS[status], operation_id=PREFIX[self.kind] + uuid(own_id), key=key,
            fingerprint=(way, fingerprint.hex()), effect_id=effect_id, source=parts[:3],
            door=DOORS[door], reconciles=flags & 16 != 0, holder=holder, parent=uuid(parent),
            due=due, detail=detail, outcome=dict(meta, digest=digest.hex(), bytes=size, code=code))
        del self.fields["duplicates"]  # touches count too
    def raw(self, size):
        self.at += size
        need(self.at <= len(self.data), "a record is cut short")
        return self.data[self.at - size:self.at]
    def number(self):
        byte = self.raw(1)[0]
        return byte if byte < 128 else byte & 127 | self.number() << 7
    def text(self): return self.raw(self.number())
    def body(self):  # digest, size, place, and whether it is kept
        flags = self.raw(1)[0]
        there = flags & 1 and (self.raw(32), self.number(), self.number()) or (bytes(32), 0, 0)
        return *there, flags & 2 != 0
def natural(version):  # in natural order: runs of digits as numbers, and by their zeros at last
    parts = re.findall(rb"[0-9]+|[^0-9]", version.encode(), re.S)
    return [(48, len(part.lstrip(b"0")), part.lstrip(b"0")) if part.isdigit() else (part[0],)
            for part in parts], [len(part) for part in parts]
def is_over(record, now): return record["status"] not in OPEN and now >= record["window_expires"]
def decide(found, key, d, came):  # (rule, decision, change, the record from now on)
    now, request, seals, old = d["now_ms"], d["request"], d["request"] == "seal", found or NEW
    gone, status, version = not found or is_over(found, now), old["status"], old["version"]
    alive = status == "in_progress" and now < found["lease_expires"]
    outcome = d.get("outcome") and {n: v for n, v in d["outcome"].items() if n != "retained"}
    seal = {"outcome": outcome, "effect_id": d.get("effect_id", "")}
    same = status == d.get("status", status) and (
        status == "released" or seal.items() <= old.items())
    fingerprint, fence = (d.get("fingerprint_version"), d.get("fingerprint")), int(d["fence"])
    def touch(*row): return *row, "touch", found
    def leave(*row): return *row, None, None if gone else found
    def put(rule, decision, becomes, **new):
        new = {"holder": 0, "due": 0, **new, "status": becomes, "updated": now}
        return rule, decision, "put", {**old, **new, "version": d.get("version", version) + 1}
    def doubt(*row): return put(*row, "unknown", lease_expires=0, due=now * old["reconciles"])
    def renew(*row):
        return put(*row, "in_progress", lease_expires=now + d["lease_ms"],
                   holder=int(d.get("holder", old["holder"])))
    def settle(*row):
        becomes = d.get("status", "released")
        window = old["window"] if becomes == "released" else d.get("window_ms", old["window"])
        sealed = {} if becomes == "released" else {"sealed": now, "window": window, **seal}
        return put(*row, becomes, **sealed, lease_expires=0, window_expires=now + window)
    def grant(*row):
        if "sealed_version" in d and natural(d["source"]["version"]) < natural(d["sealed_version"]):
            return leave("B9", "stale_version")
        f, door = int(d["fence_next"]), d.get("door", "" if gone else old["door"])
        mixed = 0x70 | f >> 22 & 15, f >> 14 & 255, 0x80 | f >> 8 & 63, f & 255
        own_id = uuid(now.to_bytes(6, "big") + bytes(mixed) + key_hash(key)[:6])
        fresh = {"attempt": old["attempt"] + 1} if not gone else {
            "attempt": 1, "created": now, "key": key, "parent": d.get("parent", ""),
            "fingerprint": fingerprint, "operation_id": "op_" + own_id}
        fresh["source"] = came if gone or "source" in d else old["source"]
        return put(*row, "in_progress", **fresh, fence=f, effect_id="", sealed=0,
                   lease_expires=now + d["lease_ms"], window=d["window_ms"], window_expires=0,
                   outcome=None, holder=int(d.get("holder", 0)), door=door,
                   reconciles=d.get("on_unknown") == "reconcile" and door != "")
    rules = {"begin": (  # of each request the first that holds
        (gone, grant, "B1", "first_seen"),
        (old.get("fingerprint") != fingerprint, touch, "B2", "conflict_rejected"),
        (alive, touch, "B3", "in_progress"),
        (status in OPEN and d.get("on_unknown") == "takeover", grant, "B4", "first_seen"),
        (status in OPEN, touch if status == "unknown" else doubt, "B5", "held_unknown"),
        (status == "released", grant, "B6", "first_seen"),
        (d.get(f"retry_{status}"), grant, "B7", "first_seen"),
        (True, touch, "B8", "duplicate_replayed"),
    ), "resolve": (
        (gone, leave, "N1", "not_found"),
        (fence not in (0, old["fence"]), leave, "N6", "stale_fence"),
        (alive, leave, "N4", "still_running"),
        (status in OPEN, settle, "N5", "resolved"),
        (same, leave, "N3" if status == "released" else "N2", "resolved"),
        (True, leave, "N3" if status == "released" else "N2", "already_sealed"))}
    held = (
        (gone, leave, "H1", "not_found"),
        (request in JANITOR, doubt, JANITOR.get(request), "unknown"),
        (fence != old["fence"], leave, "H2", "stale_fence"),
        (status in SEALED, leave, "H3", "sealed" if seals and same else "already_sealed"),
        (status == "released", leave, "H4", status if request == "release" else "stale_fence"),
        (request == "renew", renew, "H5", "renewed"),
        (request == "unknown", leave if status == request else doubt, "H5", "unknown"),
        (True, settle, "H5", "sealed" if seals else "released"))
    return next(act(*row) for holds, act, *row in rules.get(request, held) if holds)

class Journal:  # one pass; `torn` says whether something unacknowledged is at the end
    def __init__(self, path):
        self.change, self.known, self.at, self.start, self.archived = {}, {}, None, None, False
        self.time, self.granted, self.fence, data = 0, 0, 0, (path / "identity").read_bytes()
        end = (file := path / "reached").exists() and (file.read_bytes()[:128] or b"empty")
        need((data[:12], crc32c(data)) == (b"ONCEid01\1\0\0\0", CRC_OF_ALL), "the identity")
        self.chain, self.inherits = data[16:32], any(data[112:144])
        need(not self.inherits or (path / "inherited").exists(), "what it inherited is missing")
        need(not end or end[:24] == b"ONCEwit1" + self.chain and crc32c(end) == CRC_OF_ALL, "end")
        batch, seq, digest = struct.unpack("<QQ32s", end[32:80]) if end else (0, 0, b"")
        self.end = {seq: digest}  # when it was closed last
        files = sorted(path.glob("segment-" + "[0-9a-f]" * 16))
        numbers = [int(file.name[8:], 16) for file in files]
        need(numbers and len(numbers) == numbers[-1] - numbers[0] + 1, "a segment is missing")
        for self.number, file in zip(numbers, files):
            self.torn = self.segment(file.read_bytes(), self.number == numbers[-1])
        need(self.archived or not self.start[0], "entries are missing and were not archived")
        need(self.at[0] >= batch and self.at[1] >= seq, "the end is missing")
    def segment(self, data, last):
        need(len(data) >= BLOCK and crc32c(data[:BLOCK]) == CRC_OF_ALL, "a segment's header")
        magic, form, flags, number, chain, place, batch, seq, digest = struct.unpack(
            "<8sIIQ8x16sQQQ32s", data[:104])
        known = b"ONCEseg1", 1, flags & 1, self.number, self.chain, number << 32 | BLOCK
        need((magic, form, flags, number, chain, place) == known, "a segment")
        self.start, self.at = self.start or (seq, digest), self.at or (batch, seq, digest)
        need((batch, seq, digest) == self.at, "a segment does not follow the one before it")
        self.squeezed, self.seed, at = flags & 1, crc32c(chain + struct.pack("<Q", number)), BLOCK
        while at < len(data) and (self.squeezed or any(data[at:at + SECTOR])):
            head = self.header(data, at)
            need(head and at + head[1] <= len(data), "a batch's header")
            try: frames = self.batch(data, at, *head)
            except Damage:  # unless sectors of the very last batch never reached the disk
                content, zeros = data[at:at + head[2]], head[4]
                if not last or self.squeezed or self.later(data, at + BLOCK) or zeros >= sum(
                        not any(content[i:i + SECTOR]) for i in range(SECTOR, head[2], SECTOR)):
                    raise
                return True
            for frame in frames: self.frame(*frame)
            need(not self.change, "a change has no entry")
            at += head[1]
        need(not any(data[at:]) or last and not self.later(data, at), "something after the end")
        return any(data[at:])
    def header(self, data, at):  # number, length, content, frames, zero sectors, time, fence
        head = data[at:at + HEADER]
        crc = struct.pack("<I", crc32c(head[8:], self.seed ^ at))
        return struct.unpack("<QIIIIQ16xQ", head[8:]) if head[:8] == b"ONCB" + crc else None
    def later(self, data, at): return any(self.header(data, i) for i in range(at, len(data), BLOCK))
    def batch(self, data, at, number, length, content, count, _, time, fence):
        need(HEADER <= content <= length and not any(data[at + content:at + length]), "its length")
        frames = list(read_frames(data, at + HEADER, at + content, self.seed))
        need(len(frames) == count, "the number of frames of a batch")
        need(number == self.at[0] and fence >= self.fence and time >= self.time, "a batch's number")
        self.at, self.fence = (number + 1, *self.at[1:]), fence
        return frames
    def frame(self, kind, at, payload):
        if kind == ENTRY: return self.entry(payload)
        change, place, slot, value = self.change, self.number << 32 | at, kind, payload
        if kind in (REQUEST, OUTCOME, ERASED):  # erased: of a request, and zeros in its place
            digest, body, slot = payload[:32], payload[32:], REQUEST if kind == ERASED else kind
            need(not any(body) if kind == ERASED else sha256(body) == digest, "a body's digest")
            value = digest, len(body), place, True
        elif kind in (RECORD, MOVED):
            value = Record(payload)
            slot = "source" if value.kind == 2 else RECORD
            need(value.fields["fence"] <= self.fence, "a fence that was never given out")
            need(all(change[name] == body if name in change else not body[1] or body[2] < place
                     for name, body in value.bodies.items() if body[3] or name in change), "body")
        ends = () if slot in (REQUEST, OUTCOME) else (RECORD, TOUCH)
        need(not {slot, *ends} & set(change), "two records or bodies in one change")
        self.change = {} if kind == MOVED else {**change, slot: value}
    def entry(self, payload):
        form, known, size, seq, time, digest, raw_id = struct.unpack("<BBB5xQQ32s16s", payload[:72])
        tenant, data = payload[72:72 + size], payload[72 + size:]
        own, where = uuid(self.chain), f"entry {seq}: "
        need(not any(payload[3 if (form, known) == (1, 1) else 1:8]), where + "its kind")
        place, is_new = self.chain + struct.pack(">Q", seq), data[-7:] == b',"v":2}'
        link = sha256(self.at[2], place + sha256(data) if is_new else data)
        after = (self.at[1] + 1, link) if form == 1 else self.at[1:]
        need(form in (1, 2) and (seq, digest) == after, where + "the chain is broken")
        need(form == 2 or self.end.get(seq, digest) == digest, where + "it was a different one")
        if form == 2:  # a checkpoint
            note = f"once/{own}\n{seq}\n{base64.b64encode(digest).decode()}\ntime ".encode()
            return need(not self.change and data.startswith(note), where + "its checkpoint")
        entry = json.loads(data)
        canonical = json.dumps(entry, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        need(canonical.encode() == data and is_new == ("v" in entry), where + "its form")
        said = dict(seq=seq, chain_id=own, entry_id=f"ent_{own[:8]}_{seq}", occurred_at=stamp(time))
        entry = expand(entry, said) if "v" in entry else entry
        d, own_id = entry.get("decided"), entry["operation_id"]
        need(said.items() <= entry.items() and own_id[-36:] == uuid(raw_id) and time >= self.time
             and own_id[:-36] in PREFIX.values() and (d["now_ms"] == time if d else not self.change)
             and (not known or entry.get("tenant_id", "").encode() == tenant), where + "its frame")
        self.at, self.time = (self.at[0], seq, digest), time
        self.archived |= entry.get("archived") == dict(seq=self.start[0], hash=self.start[1].hex())
        need(RECORD in self.change or self.squeezed or not {REQUEST, OUTCOME} & set(self.change),
             where + "a body without a record that names it")
        key = tuple(entry.get(name, "").encode() for name in KEY)
        if d and own_id.startswith("op_"):
            self.decided(entry, d, key, where)
        elif d and RECORD in self.change:  # work that Once performs itself
            stored = self.change[RECORD].fields
            said = dict(operation_id=own_id, status=entry["lifecycle_state"], key=key,
                        attempt=d["attempt"], version=d["version"] + 1)
            its_name = entry.get("provider_ref", ""), entry.get("effect_id", "")
            need(said.items() <= stored.items() and stored["effect_id"] in its_name and
                 d.get("detail_digest") in (None, sha256(stored["detail"]).hex()), where + "record")
        self.change = {}
    def decided(self, entry, d, key, where):
        own_id, came = entry["operation_id"], [entry.get("source", {}).get(n, "") for n in SOURCE]
        found = self.known.get(key if d["request"] == "begin" else own_id)
        found = None if found and key[0] and found["key"][0] != key[0] else found
        rule, decision, change, after = decide(found, key, d, came)
        stored = self.change[RECORD].fields if RECORD in self.change else None
        its = after or {"status": "absent", "attempt": 0, "operation_id": own_id}
        made = rule, decision, its["status"], its["attempt"], its["operation_id"]
        said = d["rule"], d["decision"], entry["lifecycle_state"], d["attempt"], own_id
        if said != made and (self.start[0] or self.inherits) and not found:  # it rests on others
            after = stored
        else:
            need(said == made, f"{where}decided again, it is {made} and not {said}")
            need(not found or is_over(found, d["now_ms"]) or found["version"] == d.get(
                "version", found["version"]), where + "it was decided on a different version")
            need(self.squeezed or (stored is not None, self.change.get(TOUCH)) == (
                change == "put", key_hash(key) if change == "touch" else None), where + "storing")
            need(not stored or all(after[n] in (None, stored[n]) for n in after), where + "record")
            need(not after or after["source"] == came, where + "its source")
            need(decision != "first_seen" or self.granted < after["fence"] <= self.fence, "fence")
            if decision == "first_seen": self.granted = after["fence"]
        if after and (change or stored):
            self.known.pop(found and found["operation_id"], None)
            self.known[after["key"]] = self.known[after["operation_id"]] = after
def verdict(path):
    try: return "ok, torn tail" if Journal(pathlib.Path(path)).torn else "ok"
    except OSError as error: return f"cannot check: {error}"
    except (Damage, ValueError, LookupError, TypeError, struct.error) as e: return f"damaged: {e}"
if __name__ == "__main__":
    said = verdict(sys.argv[1]) if len(sys.argv) == 2 else "cannot check: name one directory"
    sys.exit(print(said) or ("ok", "damaged", "cannot check").index(re.split("[,:]", said)[0]))
