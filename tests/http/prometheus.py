"""A strict reader of Prometheus' text format 0.0.4: it refuses whatever Prometheus' lexer and
parser refuse (model/textparse/promlex.l and promparse.go), and what its checker warns of.

    page = read(bytes)         ->  {family name: Family}
    prometheus.py < page           exits with 1 and the fault when the page is refused

https://prometheus.io/docs/instrumenting/exposition_formats/
"""
import re
import sys

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(,|$)')
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? ([-+]?(?:[0-9.eE+-]+|Inf|NaN))")
HEAD = re.compile(rf"# (HELP|TYPE) ({NAME}) (.+)")
TYPES = ("counter", "gauge", "histogram")
SUFFIXES = ("_bucket", "_sum", "_count")
UNESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


class Refused(Exception):
    """Prometheus would not take this page, or its checker would complain."""


class Family:
    def __init__(self, name, help_text):
        self.name, self.help, self.type = name, help_text, None
        self.samples = {}  # (name, ((label, value), …)) -> number

    def label_names(self):
        return {label for _, labels in self.samples for label, _ in labels if label != "le"}


def read_labels(text):
    labels, at = {}, 0
    while at < len(text):
        found = LABEL.match(text, at)
        if found is None:
            raise Refused(f"bad label: {text[at:]!r}")
        name, value, end = found.groups()
        if name in labels or (end and found.end() == len(text)):
            raise Refused(f"label {name} twice, or nothing after its comma: {text!r}")
        labels[name] = re.sub(r"\\.", lambda escape: UNESCAPED[escape[0]], value)
        if any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in labels[name]):
            raise Refused(f"label {name} has a control character: {value!r}")
        at = found.end()
    return tuple(sorted(labels.items()))


def family_of(families, name):
    """The family that a sample of this name belongs to."""
    for suffix in SUFFIXES:
        base = families.get(name.removesuffix(suffix)) if name.endswith(suffix) else None
        if base is not None and base.type == "histogram":
            return base
    found = families.get(name)
    if found is None or found.type is None or found.type == "histogram":
        raise Refused(f"sample {name} without its HELP and TYPE before it")
    return found


def check_histogram(family):
    series = {}
    for (name, labels), number in family.samples.items():
        rest = tuple(pair for pair in labels if pair[0] != "le")
        one = series.setdefault(rest, {"bounds": []})
        if name.endswith("_bucket"):
            one["bounds"].append((float(dict(labels)["le"].replace("+Inf", "inf")), number))
        else:
            one[name.rsplit("_", 1)[1]] = number
    for labels, one in series.items():
        counts = [number for _, number in one["bounds"]]
        if one["bounds"] != sorted(one["bounds"]) or counts != sorted(counts):
            raise Refused(f"{family.name}{labels}: buckets not in order")
        if one["bounds"][-1:] != [(float("inf"), one.get("count"))] or "sum" not in one:
            raise Refused(f"{family.name}{labels}: +Inf is not the count, or no sum")


def check_family(family):
    if family.type is None:
        raise Refused(f"{family.name} has no TYPE")
    if (family.type == "counter") != family.name.endswith("_total"):
        raise Refused(f"{family.name} is a {family.type}")
    if family.type == "counter" and any(number < 0 for number in family.samples.values()):
        raise Refused(f"{family.name} is negative")
    if family.type == "histogram":
        check_histogram(family)


def add_sample(families, current, line):
    found = SAMPLE.fullmatch(line)
    if found is None:
        raise Refused(f"not a sample: {line!r}")
    family = family_of(families, found[1])
    if family is not current:
        raise Refused(f"{found[1]} apart from the rest of its family")
    key = (found[1], read_labels(found[2] or ""))
    if key in family.samples:
        raise Refused(f"twice: {line!r}")
    family.samples[key] = float(found[3])


def read(page):
    if b"\0" in page or not page.endswith(b"\n"):
        raise Refused("a NUL, or no line feed at the end")
    try:
        lines = page.decode("utf-8").split("\n")[:-1]
    except UnicodeDecodeError as error:
        raise Refused(str(error)) from error
    families, current = {}, None
    for line in lines:
        head = HEAD.fullmatch(line)
        if head is None:
            add_sample(families, current, line)
        elif head[1] == "HELP":
            if head[2] in families:
                raise Refused(f"HELP of {head[2]} twice")
            current = families[head[2]] = Family(head[2], head[3])
        else:
            if current is None or current.name != head[2] or current.type or head[3] not in TYPES:
                raise Refused(f"bad TYPE: {line!r}")
            current.type = head[3]
    for family in families.values():
        check_family(family)
    return families


if __name__ == "__main__":
    try:
        read(sys.stdin.buffer.read())
    except Refused as refused:
        sys.exit(f"refused: {refused}")
