#!/usr/bin/python3
"""make_blob: a file as C: NAME[] and NAME_bytes, which HEADER declares.

    tools/make_blob.py FILE TARGET.c HEADER NAME [VERSION]

JSON (the OpenAPI document) loses its white space and gets the version filled in.
"""
import json
import sys
from pathlib import Path


def contents(source, version):
    if source.suffix != ".json":
        return source.read_bytes()
    document = json.loads(source.read_text(encoding="utf-8"))
    document["info"]["version"] = version
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def main():
    source, target, header, name, *version = sys.argv[1:]
    data = contents(Path(source), *(version or [None]))
    rows = [", ".join(str(byte if byte < 128 else byte - 256) for byte in data[at:at + 16])
            for at in range(0, len(data), 16)]
    with open(target, "w", encoding="ascii") as file:
        file.write(f'#include "{header}"\n\nconst char {name}[] = {{\n    ')
        file.write(",\n    ".join(rows))
        file.write(f"\n}};\nconst size_t {name}_bytes = sizeof {name};\n")


if __name__ == "__main__":
    main()
