#!/usr/bin/python3
"""make_api_page.py [--check]: write docs/api.md from src/api/openapi.json.

--check writes nothing; exit 1 when the page is not what the document says.
"""
import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "src/api/openapi.json"
PAGE = ROOT / "docs/api.md"
METHODS = ("get", "post")
ENUM_SHOWN_MAX = 12  # a longer list is no help in a row of a table
HEAD = """# The HTTP API

Made from [src/api/openapi.json](../src/api/openapi.json) by `tools/make_api_page.py`; a server has
the same document at `/openapi.json`. {description}

By default the server listens on `{server}`. If `auth` is configured, send
`Authorization: Bearer TOKEN`; each request below names the right that the token needs. The requests
that most programs need are [begin](#beginfence), [seal](#sealfence), [release](#releasefence) and
[unknown](#unknownfence). [clients/curl.md](clients/curl.md) shows them in use, and
[problems.md](problems.md) explains every refusal.
"""


def cell(text):
    """Text in a row of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def link(name):
    return f"[{name}](#{name.lower()})"


class Page:
    """The document, and the lines of the page so far."""

    def __init__(self, document):
        self.document, self.lines = document, []
        self.schemas = document["components"]["schemas"]

    def put(self, *lines):
        self.lines += lines

    def table(self, head, rows):
        self.put("", "| " + " | ".join(head) + " |", "|" + " --- |" * len(head))
        self.put(*("| " + " | ".join(row) + " |" for row in rows))

    def follow(self, node):
        """What a reference leads to; schemas stay references, because each has a section."""
        reference = node.get("$ref", "")
        if not reference or reference.startswith("#/components/schemas/"):
            return node
        found = self.document
        for part in reference[2:].split("/"):
            found = found[part]
        return found

    def kind(self, schema):
        """The type of a value in a few words."""
        if "$ref" in schema:
            return link(schema["$ref"].rsplit("/", 1)[1])
        if "const" in schema:
            return f"`{json.dumps(schema['const'])}`"
        if len(schema.get("enum", [])) > ENUM_SHOWN_MAX:
            return f"one of {len(schema['enum'])} words"
        if "enum" in schema:
            return ", ".join(f"`{value}`" for value in schema["enum"])
        for several in ("oneOf", "anyOf"):
            if several in schema:
                return " or ".join(self.kind(one) for one in schema[several])
        kind = schema.get("type", "any JSON")
        kind = " or ".join(kind) if isinstance(kind, list) else kind
        if kind == "array":
            return f"array of {self.kind(schema.get('items', {}))}"
        return kind + self.limits(schema)

    @staticmethod
    def limits(schema):
        if "maxLength" in schema:
            return f", {schema.get('minLength', 0)} to {schema['maxLength']} characters"
        if schema.get("maximum", 2**63) < 2**53:
            return f", {schema.get('minimum', 0)} to {schema['maximum']}"
        return f" like `{schema['pattern']}`" if "pattern" in schema else ""

    # --- Requests ---

    def request(self, method, path, operation):
        self.put("", f"### {operation['operationId']}", "", f"`{method.upper()} {path}`", "",
            operation["summary"] + (" " + operation.get("description", "")).rstrip())
        rights = operation["x-once-rights"]
        if operation.get("security") == []:
            self.put("Needs no token.")
        elif rights:
            self.put("Right: " + " or ".join(f"`{right}`" for right in rights) + ".")
        parameters = [p for p in map(self.follow, operation["parameters"]) if p["in"] != "header"]
        if parameters:
            self.table(("parameter", "value", "meaning"), [(f"`{p['name']}` in the {p['in']}",
                self.kind(p["schema"]), cell(p.get("description", ""))) for p in parameters])
        if "requestBody" in operation:
            self.body(operation["requestBody"]["content"]["application/json"])
        self.answers(operation["responses"])

    def body(self, content):
        example = next(iter(content["examples"].values()))["value"]
        self.put("", f"Body: {self.kind(content['schema'])}, for example", "", "```json",
            json.dumps(example, indent=2, ensure_ascii=False), "```")

    def answers(self, responses):
        rows = []
        for status, response in sorted(responses.items()):
            response = self.follow(response)
            kinds = [self.kind(one["schema"]) for one in response.get("content", {}).values()]
            rows.append((status, cell(response["description"]), ", ".join(kinds)))
        self.table(("answer", "meaning", "document"), rows)

    # --- Documents ---

    def members(self, schema):
        """(name, schema, is required) of an object, in order; those of its parts after its own."""
        required = schema.get("required", [])
        found = [(name, one, name in required) for name, one in
                 schema.get("properties", {}).items()]
        for part in schema.get("allOf", []):
            if "$ref" in part:
                part = self.schemas[part["$ref"].rsplit("/", 1)[1]]
            found += self.members(part)
        return found

    @staticmethod
    def meaning(schema):
        text = schema.get("description", "")
        return "See [problems](problems.md)." if text.startswith("- ") else cell(text)

    def schema(self, name, schema):
        self.put("", f"### {name}", "")
        self.put(schema.get("description", f"{self.kind(schema)}."))
        members = self.members(schema)
        if members:
            rows = [(f"`{member}`" + (" (required)" if is_required else ""), self.kind(one),
                self.meaning(one)) for member, one, is_required in members]
            self.table(("member", "value", "meaning"), rows)

    def text(self):
        info = self.document["info"]
        self.put(HEAD.format(description=info["description"],
            server=self.document["servers"][0]["url"].removeprefix("http://")).rstrip())
        for tag in self.document["tags"]:
            self.put("", f"## {tag['name'].capitalize()}", "", tag.get("description", ""))
            for path, item in self.document["paths"].items():
                for method in METHODS:
                    if tag["name"] in item.get(method, {}).get("tags", []):
                        self.request(method, path, item[method])
        self.put("", "## Documents")
        for name, schema in self.schemas.items():
            self.schema(name, schema)
        return "\n".join(self.lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only compare")
    is_check = parser.parse_args().check
    text = Page(json.loads(DOCUMENT.read_text())).text()
    if is_check:
        is_same = PAGE.exists() and PAGE.read_text() == text
        print("docs/api.md is up to date" if is_same else
              "docs/api.md is not what openapi.json says: run tools/make_api_page.py",
              file=sys.stdout if is_same else sys.stderr)
        return 0 if is_same else 1
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
