#!/usr/bin/env python3
"""Compares the public headers with tests/abi/interface.txt, a list of their structs, members
and constants.

While the interface is a draft (DLC_ABI_MAJOR 0) the headers may change in any way, but not
unnoticed: a struct, member or constant that differs from the list fails this check until the
number of the draft is raised and the list is written again:

    layout.py           exits with 1 if something changed, 2 if only the number did
    layout.py --write   writes the list; refuses if something changed and the number did not
    layout.py --write --same-number   does it all the same, for headers that nobody has built a
                        plugin with yet

The headers are compiled with debug information, which abidw (libabigail) turns into XML;
constants that are macros are read from the text. The list is not that XML, which has 3,000
lines, most of them about libc's types, and differs between versions of libabigail.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "include"
LIST = ROOT / "tests/abi/interface.txt"
HEAD = "# The plugin interface, as tests/abi/layout.py --write lists it: offsets and sizes in bits.\n"
VERSION = ("DLC_ABI_MAJOR", "DLC_ABI_MINOR")


def read_types(work):
    """The XML of an object that uses every type of the headers."""
    names = sorted(path.name for path in INCLUDE.glob("dlcore/*.h"))
    source, library = work / "sdk.c", work / "sdk.so"
    source.write_text("".join(f"#include <dlcore/{name}>\n" for name in names)
                      + "const dlc_plugin exported = {0};\n")
    subprocess.run([os.environ.get("CC", "cc"), "-g", "-O0", "-shared", "-fPIC",
                    "-fno-eliminate-unused-debug-types", "-I", INCLUDE, source, "-o", library],
                   check=True)
    return xml.fromstring(subprocess.run(["abidw", "--load-all-types", library], check=True,
                                         capture_output=True, text=True).stdout)


def type_names(root):
    """A function from the id of a type to a text that describes it."""
    byid = {node.get("id"): node for node in root.iter() if node.get("id")}

    def name(key, depth=0):
        node = byid.get(key)
        if node is None or depth > 8:
            return "?"
        if node.get("name"):
            return node.get("name")
        if node.tag == "function-type":
            taken = ", ".join("..." if p.get("is-variadic") else name(p.get("type-id"), depth + 1)
                              for p in node.findall("parameter"))
            return f"{name(node.find('return').get('type-id'), depth + 1)} ({taken})"
        inner = name(node.get("type-id"), depth + 1)
        sign = {"pointer-type-def": "*", "qualified-type-def": " const",
                "array-type-def": f"[{node.get('size-in-bits')}]"}
        return inner + sign.get(node.tag, f" {node.tag}")

    return name


def read_headers():
    """{"dlc_x": its size, "dlc_x.member": its offset and type, "DLC_X": its value}"""
    with tempfile.TemporaryDirectory() as folder:
        root = read_types(pathlib.Path(folder))
    name = type_names(root)
    found = {node.get("name"): node.get("value") for node in root.iter("enumerator")
             if node.get("name").startswith("DLC_")}
    for path in INCLUDE.glob("dlcore/*.h"):
        found.update(re.findall(r'^#define (DLC_\w+) (\(?-?\d+\)?|"[^"]*")',
                                path.read_text(encoding="utf-8"), re.MULTILINE))
    for node in root.iter("class-decl"):
        members = [(member.get("layout-offset-in-bits"), member.find("var-decl"))
                   for member in node.findall("data-member")]
        if node.get("name", "").startswith("dlc_") and members:
            found[node.get("name")] = node.get("size-in-bits")
            for offset, variable in members:
                found[f"{node.get('name')}.{variable.get('name')}"] = (
                    f"{offset} {name(variable.get('type-id'))}")
    if len(found) < 500:
        sys.exit(f"abidw shows too little: {sorted(found)}")
    return found


def place(name, value):
    """What the list is sorted by: members are below their struct, by offset."""
    struct, _, member = name.partition(".")
    return struct, int(value.split()[0]) if member else -1, member


def changes(old, new):
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield f"{name} is gone"
        elif name not in old:
            yield f"{name} is new"
        elif old[name] != new[name]:
            yield f"{name} was {old[name]}, it is {new[name]}"


def main():
    options = sys.argv[1:]
    new = read_headers()
    old = dict(line.split(": ", 1) for line in LIST.read_text(encoding="utf-8").splitlines()[1:])
    was, now = (".".join(facts[part] for part in VERSION) for facts in (old, new))
    found = [line for line in changes(old, new) if not line.startswith(VERSION)]
    if found:
        print("\n".join(found))
    if found and was == now and "--same-number" not in options:
        print(f"\nThe public headers changed, but they still say version {now}. Plugins built with "
              "the old headers would\nbe read wrongly. Raise DLC_ABI_MINOR in "
              "include/dlcore/plugin.h, then run tests/abi/layout.py --write.")
        return 1
    if "--write" in options:
        lines = [f"{name}: {new[name]}\n" for name in sorted(new, key=lambda name: place(name, new[name]))]
        LIST.write_text(HEAD + "".join(lines), encoding="utf-8")
    elif was != now:
        print(f"\nThe interface is version {now}, and tests/abi/interface.txt is of {was}: run "
              "tests/abi/layout.py --write.")
        return 2
    print(f"{len(new)} structs, members and constants: version {now}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
