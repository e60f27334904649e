#!/usr/bin/python3
"""make_scripts: the scripts that run on a Redis server as C, each behind the common part.

    tools/make_scripts.py common.lua open.lua ... scripts.c

The SHA-1 of the text is beside it: that is how a server names a script that it knows.
"""
import hashlib
import os
import sys


def rows(data):
    """As numbers: a C compiler need not take a string literal of more than 4095 characters."""
    return [", ".join(str(byte) for byte in data[at:at + 20]) for at in range(0, len(data), 20)]


def squeezed(text):
    """Without comments and blank lines: the text goes over the wire to every new server."""
    lines = (line.rstrip() for line in text.splitlines())
    return [line for line in lines if line and not line.lstrip().startswith("--")]


def main():
    common, *sources, target = sys.argv[1:]
    with open(common, encoding="ascii") as file:
        head = squeezed(file.read())
    out = ['#include "store/redis/impl.h"\n']
    for source in sources:
        name = os.path.splitext(os.path.basename(source))[0]
        with open(source, encoding="ascii") as file:
            lines = head + squeezed(file.read())
        data = "".join(line + "\n" for line in lines).encode()
        out.append(f"static const char {name}_text[] = {{\n    " + ",\n    ".join(rows(data)) +
                   "};\n")
        out.append(f"const struct redis_script redis_script_{name} = {{\n"
                   f'    .name = "{name}", .text = {name}_text, .bytes = sizeof {name}_text,\n'
                   f'    .sha1 = "{hashlib.sha1(data).hexdigest()}"}};\n')
    with open(target, "w", encoding="ascii") as file:
        file.write("\n".join(out))


if __name__ == "__main__":
    main()
