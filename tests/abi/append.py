#!/usr/bin/env python3
"""Holds the public headers to their promise: since 1.0 things were only appended.

Both versions are compiled with debug information, which abidw (libabigail) turns into
XML. Every struct, member and enumerator of the frozen headers must be in today's, where it
was and of the same type; a new member must lie behind all of the old struct, also behind
its padding, or DLC_HAS would see it in old ones.

Usage: append.py FROZEN TODAY (two include folders)
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

# Members that may lie in what a struct of 1.0 covered.
KNOWN = set()


def read(include, work):
    """The XML of one object that shows every type of the headers."""
    names = sorted(path.name for path in include.glob("dlcore/*.h"))
    source = work / "sdk.c"
    source.write_text("".join(f"#include <dlcore/{name}>\n" for name in names)
                      + "const dlc_plugin dlc_plugin_v1 = {0};\n")
    library = work / "sdk.so"
    subprocess.run([os.environ.get("CC", "cc"), "-g", "-O0", "-shared", "-fPIC",
                    "-fno-eliminate-unused-debug-types", "-I", include, source, "-o",
                    library], check=True)
    text = subprocess.run(["abidw", "--load-all-types", library], check=True,
                          capture_output=True, text=True).stdout
    return xml.fromstring(text)


def type_names(root):
    """Of each id a text that says what type it is, as far as it matters here."""
    byid = {node.get("id"): node for node in root.iter() if node.get("id")}

    def name(key, depth=0):
        node = byid.get(key)
        if node is None or depth > 8:
            return "?"
        if node.get("name"):
            return node.get("name")
        if node.tag == "function-type":
            taken = ", ".join(name(p.get("type-id"), depth + 1)
                              for p in node.findall("parameter"))
            return f"{name(node.find('return').get('type-id'), depth + 1)} ({taken})"
        inner = name(node.get("type-id"), depth + 1)
        sign = {"pointer-type-def": "*", "qualified-type-def": " const",
                "array-type-def": f"[{node.get('size-in-bits')}]"}
        return inner + sign.get(node.tag, f" {node.tag}")

    return name


def structs(root):
    """{name: (bits, {member: (offset, type)})}"""
    name = type_names(root)
    found = {}
    for node in root.iter("class-decl"):
        members = {}
        for member in node.findall("data-member"):
            variable = member.find("var-decl")
            members[variable.get("name")] = (int(member.get("layout-offset-in-bits")),
                                             name(variable.get("type-id")))
        if node.get("name", "").startswith("dlc_") and members:
            found[node.get("name")] = (int(node.get("size-in-bits")), members)
    return found


def enumerators(root):
    return {node.get("name"): node.get("value") for node in root.iter("enumerator")
            if node.get("name").startswith("DLC_")}


def compare(old, new):
    for name, (bits, members) in sorted(structs(old).items()):
        if name not in structs(new):
            yield f"struct {name} is gone"
            continue
        now_bits, now = structs(new)[name]
        for member, place in members.items():
            if member not in now:
                yield f"{name}.{member} is gone"
            elif now[member] != place:
                yield (f"{name}.{member} was at bit {place[0]}, {place[1]}; it is at "
                       f"{now[member][0]}, {now[member][1]}")
        for member in sorted(set(now) - set(members)):
            if now[member][0] < bits and (name, member) not in KNOWN:
                yield f"{name}.{member} lies in what the struct of 1.0 covered"
        if "size" not in members and now_bits != bits:
            yield f"{name} carries no size, and grew from {bits} to {now_bits} bits"
    now = enumerators(new)
    for name, value in sorted(enumerators(old).items()):
        if now.get(name) != value:
            yield f"{name} was {value}, it is {now.get(name, 'gone')}"


def main():
    with tempfile.TemporaryDirectory() as folder:
        old, new = (read(pathlib.Path(path), pathlib.Path(folder))
                    for path in sys.argv[1:3])
    if len(structs(old)) < 30 or len(enumerators(old)) < 50:
        print("abidw shows too little:", sorted(structs(old)), len(enumerators(old)))
        return 1
    broken = list(compare(old, new))
    print("\n".join(broken) or f"{len(structs(old))} structs, "
          f"{len(enumerators(old))} enumerators: nothing but appended")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
