"""A small validator of JSON Schema, for the part of it that openapi.json uses.

A keyword that it does not know is a fault of the schema, so that nothing in the document is left
unchecked.
"""
import re

ANNOTATIONS = {"description", "default", "example", "examples", "title", "format"}
TYPES = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
}


class BadSchema(Exception):
    pass


def same(a, b):
    """Equal as JSON: true is not 1."""
    return a == b and isinstance(a, bool) == isinstance(b, bool)


class Validator:
    """Schemas of one document; references are looked up in it."""

    def __init__(self, document):
        self.document = document

    def resolve(self, reference):
        if not reference.startswith("#/"):
            raise BadSchema(f"reference {reference}")
        node = self.document
        for part in reference[2:].split("/"):
            if part not in node:
                raise BadSchema(f"reference {reference} leads nowhere")
            node = node[part]
        return node

    def faults(self, schema, value, at="$"):
        """What is wrong with the value, as a list of texts."""
        if schema is True:
            return []
        if not isinstance(schema, dict):
            raise BadSchema(f"{at}: {schema!r} is no schema")
        found = []
        for keyword, rule in schema.items():
            if keyword in ANNOTATIONS:
                continue
            check = getattr(self, "check_" + keyword.replace("$", ""), None)
            if check is None:
                raise BadSchema(f"{at}: keyword {keyword} is not known")
            found += check(rule, value, at, schema)
        return found

    def check_ref(self, rule, value, at, _):
        return self.faults(self.resolve(rule), value, at)

    def check_type(self, rule, value, at, _):
        kinds = rule if isinstance(rule, list) else [rule]
        return [] if any(TYPES[kind](value) for kind in kinds) else [f"{at}: not {rule}: {value!r}"]

    def check_const(self, rule, value, at, _):
        return [] if same(rule, value) else [f"{at}: not {rule!r}: {value!r}"]

    def check_enum(self, rule, value, at, _):
        return [] if any(same(one, value) for one in rule) else [f"{at}: none of {rule}: {value!r}"]

    def check_pattern(self, rule, value, at, _):
        bad = isinstance(value, str) and not re.search(rule, value)
        return [f"{at}: not like {rule}: {value!r}"] if bad else []

    def check_minLength(self, rule, value, at, _):
        return [f"{at}: too short"] if isinstance(value, str) and len(value) < rule else []

    def check_maxLength(self, rule, value, at, _):
        return [f"{at}: too long"] if isinstance(value, str) and len(value) > rule else []

    def check_minimum(self, rule, value, at, _):
        return [f"{at}: {value} < {rule}"] if TYPES["number"](value) and value < rule else []

    def check_maximum(self, rule, value, at, _):
        return [f"{at}: {value} > {rule}"] if TYPES["number"](value) and value > rule else []

    def check_minItems(self, rule, value, at, _):
        return [f"{at}: too few"] if isinstance(value, list) and len(value) < rule else []

    def check_maxItems(self, rule, value, at, _):
        return [f"{at}: too many"] if isinstance(value, list) and len(value) > rule else []

    def check_minProperties(self, rule, value, at, _):
        return [f"{at}: too few members"] if isinstance(value, dict) and len(value) < rule else []

    def check_items(self, rule, value, at, _):
        items = value if isinstance(value, list) else []
        return [fault for i, item in enumerate(items)
                for fault in self.faults(rule, item, f"{at}[{i}]")]

    def check_required(self, rule, value, at, _):
        return [f"{at}: {name} is missing" for name in rule
                if isinstance(value, dict) and name not in value]

    def check_properties(self, rule, value, at, _):
        members = value if isinstance(value, dict) else {}
        return [fault for name, inner in rule.items() if name in members
                for fault in self.faults(inner, members[name], f"{at}.{name}")]

    def check_patternProperties(self, rule, value, at, _):
        members = value if isinstance(value, dict) else {}
        return [fault for pattern, inner in rule.items() for name in members
                if re.search(pattern, name)
                for fault in self.faults(inner, members[name], f"{at}.{name}")]

    def check_additionalProperties(self, rule, value, at, schema):
        if rule is not False:
            raise BadSchema(f"{at}: additionalProperties can only be false")
        members = value if isinstance(value, dict) else {}
        patterns = schema.get("patternProperties", {})
        return [f"{at}: {name} is not known" for name in members
                if name not in schema.get("properties", {})
                and not any(re.search(pattern, name) for pattern in patterns)]

    def check_allOf(self, rule, value, at, _):
        return [fault for inner in rule for fault in self.faults(inner, value, at)]

    def count(self, rule, value, at):
        tries = [self.faults(inner, value, at) for inner in rule]
        return sum(not faults for faults in tries), tries

    def check_anyOf(self, rule, value, at, _):
        fits, tries = self.count(rule, value, at)
        return [] if fits else [f"{at}: fits none of: {tries}"]

    def check_oneOf(self, rule, value, at, _):
        fits, tries = self.count(rule, value, at)
        return [] if fits == 1 else [f"{at}: fits {fits} of: {tries}"]
