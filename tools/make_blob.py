#!/usr/bin/python3
"""make_blob: the OpenAPI document as C, without its white space and with the version filled in.

    tools/make_blob.py openapi.json VERSION openapi.c
"""
import json
import sys


def main():
    source, version, target = sys.argv[1:]
    with open(source, encoding="utf-8") as file:
        document = json.load(file)
    document["info"]["version"] = version
    data = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    rows = [", ".join(str(byte if byte < 128 else byte - 256) for byte in data[at:at + 16])
            for at in range(0, len(data), 16)]
    with open(target, "w", encoding="ascii") as file:
        file.write('#include "api/openapi.h"\n\nconst char api_openapi_json[] = {\n    ')
        file.write(",\n    ".join(rows))
        file.write("\n};\nconst size_t api_openapi_json_bytes = sizeof api_openapi_json;\n")


if __name__ == "__main__":
    main()
