#!/usr/bin/env python3
"""Check a journal without Once, from its bytes: Python's standard library alone.

docs/formats has the formats and the rules. Checked are files, batches and frames, the chain and its
checkpoints, bodies, records against their entries, and every decision about an operation is made
again. Not checked: signatures (verify_evidence.py), the rules of queued work (its records are
compared with their entries), and sources: `sealed_version` is believed. Chains taken over from a
different store are checked as chains; what rests on them is believed. Prints "ok", "ok, torn tail"
or "damaged: …". Exit: 0 ok, 1 damaged, 2 usage or no journal.
"""
import base64, hashlib, json, pathlib, re, struct, sys

BLOCK, SECTOR, HEADER, FRAME = 4096, 512, 64, 12
RECORD, TOUCH, ENTRY, REQUEST, OUTCOME, MOVED, ERASED = range(1, 8)
STATUS = ("- in_progress unknown released executed failed rejected compensated "
          "pending waiting dead compensating").split()
PREFIX = {1: "op_", 2: "op_", 3: "cmd_", 4: "eff_", 5: "dlv_"}
DOORS = ["", *"fences gateway run commands effects inbox".split()]
SEALED, OPEN, CRC_OF_ALL = STATUS[4:8], STATUS[1:3], 0x48674BC7  # of data with its CRC after it
TABLE = list(range(256))
for _ in range(8):
    TABLE = [crc >> 1 ^ (0x82F63B78 if crc & 1 else 0) for crc in TABLE]

class Damage(Exception): pass
def need(condition, what):
    if not condition:
        raise Damage(what)
def crc32c(data, before=0):
    value, table = before ^ 0xFFFFFFFF, TABLE
    for byte in data:
        value = table[(value ^ byte) & 255] ^ value >> 8
    return value ^ 0xFFFFFFFF
def sha256(*parts): return hashlib.sha256(b"".join(parts)).digest()
def uuid(raw): return re.sub("(.{8})(.{4})(.{4})(.{4})(.{12})", r"\1-\2-\3-\4-\5", raw.hex())
def key_hash(key, kind=1):
    framed = b"".join(struct.pack(">H", len(part)) + part for part in key)
    return sha256(framed if kind == 1 else bytes([kind]) + framed)

def read_frame(data, at, end, seed):
    """(kind, payload, where the next one begins)"""
    size, kind, crc = struct.unpack("<III", data[at:at + FRAME].ljust(FRAME, b"\0"))
    payload, next_at = data[at + FRAME:at + FRAME + size], at + FRAME + size
    need(next_at <= end and 1 <= kind <= 7 and crc == crc32c(
        data[at:at + 8] + payload, seed ^ at & 0xFFFFFFFF), "a frame")
    return kind, payload, next_at

class Record:
    """Reads one field after the other; `fields` is what a decision is about."""
    def __init__(self, data):
        self.data, self.at = data, 4
        form, self.kind, status, fingerprint_version = data[:4]
        need(form in (1, 2) and 1 <= self.kind <= 5, "a record of a form that is not known")
        own_hash, self.bodies = self.raw(32), {}
        self.fields = {"status": STATUS[status],
                       "operation_id": PREFIX[self.kind] + uuid(self.raw(16)),
                       "fingerprint": (fingerprint_version, self.raw(32).hex())}
        for name in ("version fence attempt duplicates created updated sealed lease_expires "
                     "window_expires window").split():
            self.fields[name] = self.number()
        del self.fields["duplicates"]  # touches count too
        self.fields["key"] = tuple(self.raw(self.number()) for _ in range(4))
        self.fields["effect_id"] = self.raw(self.number()).decode()
        code, meta = int.from_bytes(self.raw(4), "little", signed=True), self.raw(self.number())
        for name in (OUTCOME, REQUEST):  # each: digest, size, place, and whether it is kept
            flags = self.raw(1)[0]
            there = (self.raw(32), self.number(), self.number()) if flags & 1 else (bytes(32), 0, 0)
            self.bodies[name] = *there, flags & 2 != 0
        digest, size, *_ = self.bodies[OUTCOME]
        self.fields["outcome"] = {"digest": digest.hex(), "bytes": size, "code": code, **(
            {"meta_digest": sha256(meta).hex()} if meta else {})}
        need(key_hash(self.fields["key"], self.kind) == own_hash, "a record's key hash")
        need(self.fields["sealed"] or not (size or meta or code or self.fields["effect_id"]),
             "an outcome without a seal")
        for _ in range(5):  # the source, the trace and the reason
            self.raw(self.number())
        door, flags = self.raw(2) if form == 2 else (0, 0)
        self.fields.update(
            door=DOORS[door], reconciles=flags & 16 != 0, holder=self.number() if flags & 1 else 0,
            parent=uuid(self.raw(16)) if flags & 2 else "", due=self.number() if flags & 4 else 0)
        self.detail = self.raw(self.number()) if flags & 8 else b""
        self.fields["detail"] = sha256(self.detail).hex() if flags & 8 else ""
        need(self.at == len(data) and flags < 32, "a record's flags or its end")
    def raw(self, size):
        self.at += size
        need(self.at <= len(self.data), "a record is cut short")
        return self.data[self.at - size:self.at]
    def number(self):
        byte = self.raw(1)[0]
        return byte if byte < 128 else byte & 127 | self.number() << 7

def natural(version):
    """Its place in natural order: runs of digits as numbers, and by their zeros at last."""
    parts = re.findall(rb"[0-9]+|[^0-9]", version.encode(), re.S)
    return [(48, len(part.lstrip(b"0")), part.lstrip(b"0")) if part.isdigit() else (part[0],)
            for part in parts], [len(part) for part in parts]
def is_over(record, now):
    return record["status"] not in OPEN and now >= record["window_expires"]
def decide(found, key, d):
    """(rule, decision, change, the record from now on) for what `decided` of an entry says."""
    now, request, status = d["now_ms"], d["request"], found and found["status"]
    alive = status == "in_progress" and now < found["lease_expires"]
    hold, asks = d.get("on_unknown") != "takeover", found and found["reconciles"]
    unknown = {"status": "unknown", "lease_expires": 0, "due": now if asks else 0}
    outcome = d.get("outcome") and {n: v for n, v in d["outcome"].items() if n != "retained"}
    def put(rule, decision, **new):
        version = d.get("version", found["version"] if found else 0) + 1
        new = {"holder": 0, "due": 0, **new, "updated": now, "version": version}
        return rule, decision, "put", {**(found or {}), **new}
    def grant(rule):
        if "sealed_version" in d and natural(
                d["source"]["version"]) < natural(d["sealed_version"]):
            return "B9", "stale_version", None, None if rule == "B1" else found
        fence, fresh = int(d["fence_next"]), {"attempt": found and found["attempt"] + 1}
        door = d.get("door", found["door"] if rule != "B1" else "")
        if rule == "B1":
            mixed = 0x70 | fence >> 22 & 15, fence >> 14 & 255, 0x80 | fence >> 8 & 63, fence & 255
            fresh = {"attempt": 1, "created": now, "key": key, "parent": d.get("parent", ""),
                     "fingerprint": (d["fingerprint_version"], d["fingerprint"]), "operation_id":
                     "op_" + uuid(now.to_bytes(6, "big") + bytes(mixed) + key_hash(key)[:6])}
        return put(rule, "first_seen", **fresh, status="in_progress", fence=fence, effect_id="",
                   lease_expires=now + d["lease_ms"], window=d["window_ms"], window_expires=0,
                   sealed=0, outcome=None, holder=int(d.get("holder", 0)), door=door,
                   reconciles=d.get("on_unknown") == "reconcile" and door != "")
    def settle(rule, decision, becomes):
        window = found["window"] if becomes == "released" else d.get("window_ms", found["window"])
        sealed = {} if becomes == "released" else {"sealed": now, "window": window, "outcome":
                                                  outcome, "effect_id": d.get("effect_id", "")}
        return put(rule, decision, **sealed, status=becomes, lease_expires=0,
                   window_expires=now + window)
    gone = not found or is_over(found, now)
    same = found and status == d.get("status", status) and (status == "released" or (
        found["effect_id"], found["outcome"]) == (d.get("effect_id", ""), outcome))
    if request == "begin":
        if gone:
            return grant("B1")
        if found["fingerprint"] != (d["fingerprint_version"], d["fingerprint"]):
            return "B2", "conflict_rejected", "touch", found
        if alive or status == "unknown" and hold:
            return *(("B3", status) if alive else ("B5", "held_unknown")), "touch", found
        if status == "in_progress" and hold:
            return put("B5", "held_unknown", **unknown)
        if status in OPEN or status == "released" or d.get("retry_" + status):
            return grant("B4" if status in OPEN else "B6" if status == "released" else "B7")
        return "B8", "duplicate_replayed", "touch", found
    if gone:
        return "N1" if request == "resolve" else "H1", "not_found", None, None
    if request == "resolve":
        if int(d["fence"]) not in (0, found["fence"]):
            return "N6", "stale_fence", None, found
        if alive or status not in OPEN:
            kind = "still_running" if alive else "resolved" if same else "already_sealed"
            return "N4" if alive else "N3" if status == "released" else "N2", kind, None, found
        return settle("N5", "resolved", d["status"])
    if request in ("lease_over", "holder_gone"):
        return put("J2" if request == "lease_over" else "J4", "unknown", **unknown)
    if int(d["fence"]) != found["fence"]:
        return "H2", "stale_fence", None, found
    if status in SEALED:
        return "H3", "sealed" if request == "seal" and same else "already_sealed", None, found
    if status == "released":
        return "H4", status if request == "release" else "stale_fence", None, found
    if request == "renew":
        return put("H5", "renewed", status="in_progress", lease_expires=now + d["lease_ms"],
                   holder=int(d.get("holder", found["holder"])))
    if request == "unknown":
        return ("H5", request, None, found) if status == request else put("H5", request, **unknown)
    return settle("H5", "sealed" if request == "seal" else "released", d.get("status", "released"))

def check_inherited(data, origin):
    """The file `inherited`: its table, every frame, and each chain up to the end it must have."""
    magic, form, count, told = struct.unpack("<8sI4xQ32s", data[:56])
    end, at = 344 + 152 * count, 344 + 152 * count
    need((magic, form, told) == (b"ONCEINHR", 1, origin) and struct.pack("<I", crc32c(
        data[:64] + bytes(4) + data[68:end])) == data[64:68], "the table of what was inherited")
    rows = [data[i:i + 152] for i in range(344, end, 152)]
    heads = [(int.from_bytes(row[104:112], "little"), row[112:144]) for row in rows]
    while at < len(data):
        kind, body, at = read_frame(data, at, len(data), crc32c(origin))
        need(len(body) >= 108 and kind == ENTRY, "a frame that was inherited")
        chain, previous, form, tenant, seq, digest = struct.unpack("<I32sBxB5xQ8x32s", body[:92])
        if form == 1:
            need(previous == heads[chain][1] and seq == heads[chain][0] + 1 and digest == sha256(
                previous, body[108 + tenant:]), "a chain that was inherited is broken")
            heads[chain] = seq, digest
        need((seq, digest) == heads[chain], "a checkpoint is not about the chain")
    need(all(seq == int.from_bytes(row[64:72], "little") and (digest == row[72:104] or not seq)
             for row, (seq, digest) in zip(rows, heads)), "a chain that was inherited is cut")

class Journal:
    """One pass over the files; `torn` says whether something unacknowledged is at the end."""
    def __init__(self, path):
        self.change, self.records, self.operations, self.at, self.start = {}, {}, {}, None, None
        self.time, self.granted, self.fence, self.archived = 0, 0, 0, False
        data = (path / "identity").read_bytes()
        need(len(data) == 256 and data[:8] == b"ONCEid01" and crc32c(data) == CRC_OF_ALL,
             "the identity")
        self.inherits = any(data[112:144])
        if self.inherits:
            check_inherited((path / "inherited").read_bytes(), data[112:144])
        self.chain, files = data[16:32], sorted(path.glob("segment-" + "[0-9a-f]" * 16))
        numbers = [int(file.name[8:], 16) for file in files]
        need(numbers and len(numbers) == numbers[-1] - numbers[0] + 1, "a segment is missing")
        for self.number, file in zip(numbers, files):
            self.torn = self.segment(file.read_bytes(), self.number == numbers[-1])
        need(self.archived or not self.start[0], "entries are missing and were not archived")
    def segment(self, data, last):
        need(len(data) >= BLOCK and crc32c(data[:BLOCK]) == CRC_OF_ALL, "a segment's header")
        magic, form, flags, number, chain, batch, seq, digest = struct.unpack(
            "<8sIIQ8x16s8xQQ32s", data[:104])
        need((magic, form, number, chain) == (b"ONCEseg1", 1, self.number, self.chain), "a segment")
        self.start, self.at = self.start or (seq, digest), self.at or (batch, seq, digest)
        need((batch, seq, digest) == self.at, "a segment does not follow the one before it")
        self.squeezed, self.seed, at = flags & 1, crc32c(chain + struct.pack("<Q", number)), BLOCK
        while at < len(data) and (self.squeezed or any(data[at:at + SECTOR])):
            try:
                frames, end = self.batch(data, at)
            except Damage:  # unless sectors of the very last batch never reached the disk
                head, later = self.header(data, at), self.later(data, at + BLOCK)
                zeros = sum(not any(data[at + i:at + min(i + SECTOR, head[2])])
                            for i in range(SECTOR, head[2], SECTOR)) if head else 0
                if (later or not last or self.squeezed or not head or zeros <= head[4]
                        or at + head[1] > len(data)):
                    raise
                return True
            for frame in frames:
                self.frame(*frame)
            need(not self.change, "a change has no entry")
            at = end
        need((self.squeezed or not self.later(data, at)) and (last or not any(data[at:])),
             "something follows the last batch")
        return any(data[at:])
    def header(self, data, at):
        """(number, length, content, frames, zero sectors, time, fence); None: no batch begins."""
        head = data[at:at + HEADER]
        crc = struct.pack("<I", crc32c(head[8:], self.seed ^ at))
        return struct.unpack("<QIIIIQ16xQ", head[8:]) if head[:8] == b"ONCB" + crc else None
    def later(self, data, at):
        return any(self.header(data, place) for place in range(at, len(data), BLOCK))
    def batch(self, data, at):
        need(self.header(data, at), "a batch's header")
        number, length, content, count, _, time, fence = self.header(data, at)
        need(HEADER <= content <= length <= len(data) - at and not any(
            data[at + content:at + length]), "a batch's length")
        frames, place = [], at + HEADER
        while place < at + content:
            kind, payload, end = read_frame(data, place, at + content, self.seed)
            frames.append((kind, self.number << 32 | place, payload))
            place = end
        need(len(frames) == count, "the number of frames of a batch")
        need(number == self.at[0] and fence >= self.fence and time >= self.time, "a batch's number")
        self.at, self.fence = (number + 1, *self.at[1:]), fence
        return frames, at + length
    def frame(self, kind, place, payload):
        change = self.change
        if kind in (REQUEST, OUTCOME, ERASED):  # erased: of a request, and zeros in its place
            digest, body, slot = payload[:32], payload[32:], REQUEST if kind == ERASED else kind
            need(slot not in change and (not any(body) if kind == ERASED else
                                         sha256(body) == digest), "a body's digest")
            change[slot] = digest, len(body), place, True
        elif kind in (RECORD, MOVED):
            record = Record(payload)
            slot = "source" if record.kind == 2 else RECORD
            need(record.fields["fence"] <= self.fence, "a fence that was never given out")
            need(all(change[name] == body if name in change else not body[1] or body[2] < place
                     for name, body in record.bodies.items() if body[3] or name in change), "body")
            need(not {slot, RECORD, TOUCH} & set(change), "two records in one change")
            self.change = {} if kind == MOVED else {**change, slot: record}
        elif kind == TOUCH:
            need(not {RECORD, TOUCH} & set(change), "two records in one change")
            change[kind] = payload
        else:
            self.entry(payload)
    def entry(self, payload):
        form, known, size, seq, time, digest, raw_id = struct.unpack("<BBB5xQQ32s16s", payload[:72])
        tenant, data = payload[72:72 + size], payload[72 + size:]
        chain_id, where = uuid(self.chain), f"entry {seq}: "
        need(not any(payload[3 if (form, known) == (1, 1) else 1:8]), where + "its kind")
        if form == 2:  # a checkpoint
            note = f"once/{chain_id}\n{seq}\n{base64.b64encode(digest).decode()}\ntime ".encode()
            return need(not self.change and (seq, digest) == self.at[1:] and data.startswith(note),
                        "a checkpoint is not about the chain")
        need(form == 1 and seq == self.at[1] + 1 and digest == sha256(self.at[2], data),
             where + "the chain is broken")
        entry = json.loads(data)
        d = entry.get("decided")
        need(json.dumps(entry, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()
             == data, where + "not in canonical form")
        need((entry["seq"], entry["operation_id"], entry["chain_id"]) == (
            seq, entry["operation_id"][:-36] + uuid(raw_id), chain_id) and time >= self.time and (
            not known or entry.get("tenant_id", "").encode() == tenant) and (
            d["now_ms"] == time if d else not self.change), where + "not what its frame says")
        self.at, self.time = (self.at[0], seq, digest), time
        self.archived |= entry.get("archived") == dict(seq=self.start[0], hash=self.start[1].hex())
        need(entry["operation_id"][:-36] in PREFIX.values(), where + "an id of no kind")
        need(RECORD in self.change or self.squeezed or not {REQUEST, OUTCOME} & set(self.change),
             where + "a body without a record that names it")
        key = tuple(entry.get(name, "").encode() for name in (
            "tenant_id", "scope", "principal", "idempotency_key"))
        if d and entry["operation_id"].startswith("op_"):
            self.decided(entry, d, key, where)
        elif d and RECORD in self.change:
            self.queued(entry, d, key, where)
        self.change = {}
    def queued(self, entry, d, key, where):
        """Work that Once performs itself: the record that was stored is the one of the entry."""
        record, effect = self.change[RECORD], entry["operation_id"].startswith("eff_")
        stored = record.fields
        said = entry["operation_id"], entry["lifecycle_state"], d["attempt"], d["version"] + 1, key
        need(said == tuple(stored[name] for name in (
            "operation_id", "status", "attempt", "version", "key")), where + "a different record")
        old = "provider_ref" not in entry and entry.get("effect_id", "") == stored["effect_id"]
        if not effect or old:  # the first releases wrote it so
            return need(entry.get("effect_id", "") == stored["effect_id"], where + "its effect_id")
        names = {"effect_id": entry["operation_id"], **json.loads(record.detail or b"{}")}
        need((entry["effect_id"], entry.get("command_id"), entry.get("provider_ref", "")) == (
            names["effect_id"], names.get("command_id"), stored["effect_id"]), where + "its names")
    def decided(self, entry, d, key, where):
        found = self.records.get(key) if d["request"] == "begin" else self.operations.get(
            entry["operation_id"])
        found = None if found and key[0] and found["key"][0] != key[0] else found
        rule, decision, change, after = decide(found, key, d)
        stored = self.change[RECORD].fields if RECORD in self.change else None
        told = entry["lifecycle_state"], d["attempt"], entry["operation_id"]
        then = tuple(map(after.get, ("status", "attempt", "operation_id"))) if after else (
            "absent", 0, told[2])
        said, made = (d["rule"], d["decision"], *told), (rule, decision, *then)
        if said != made and (self.start[0] or self.inherits) and not found:  # it rests on others
            after = stored
        else:
            need(said == made, f"{where}decided again it is {made} and not {said}")
            need(not found or is_over(found, d["now_ms"]) or found["version"] == d.get(
                "version", found["version"]), where + "it was decided on a different version")
            need(self.squeezed or (stored is not None, self.change.get(TOUCH)) == (
                change == "put", key_hash(key) if change == "touch" else None), where + "storing")
            need(not stored or all(after[name] in (None, stored[name])
                                   for name in after), where + "a different record was stored")
            if decision == "first_seen":
                need(self.granted < after["fence"] <= self.fence, where + "the fence goes back")
                self.granted = after["fence"]
        if after and (change or stored):
            self.operations.pop(found and found["operation_id"], None)
            self.records[after["key"]] = self.operations[after["operation_id"]] = after

def verdict(path):
    try:
        return "ok, torn tail" if Journal(pathlib.Path(path)).torn else "ok"
    except (Damage, ValueError, LookupError, TypeError, struct.error) as error:
        return f"damaged: {error}"

if __name__ == "__main__":
    try:
        said = verdict(sys.argv[1])
        sys.exit(print(said) or said.startswith("damaged"))
    except (OSError, LookupError) as error:
        sys.exit(print(f"cannot check: {error}") or 2)
