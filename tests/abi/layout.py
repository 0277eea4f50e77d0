#!/usr/bin/env python3
"""Compares the public headers with the copy of them in tests/abi.

While the interface is a draft (DLC_ABI_MAJOR 0) the headers may change in any way, but not
unnoticed: a struct, constant or call that differs from the copy fails this check until the
number of the draft is raised and the copy is refreshed. From 1.0 on, things may only be
appended.

Both versions are compiled with debug information, which abidw (libabigail) turns into XML;
constants that are macros are read from the text.

Usage: layout.py COPY TODAY (two include folders). Exits with 0 if nothing changed, 1 if
something changed, 2 if it changed together with the number.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

VERSION = ("DLC_ABI_MAJOR", "DLC_ABI_MINOR")


def read(include, work):
    """The XML of an object that uses every type of the headers."""
    names = sorted(path.name for path in include.glob("dlcore/*.h"))
    source = work / "sdk.c"
    source.write_text("".join(f"#include <dlcore/{name}>\n" for name in names)
                      + "const dlc_plugin exported = {0};\n")
    library = work / "sdk.so"
    subprocess.run([os.environ.get("CC", "cc"), "-g", "-O0", "-shared", "-fPIC",
                    "-fno-eliminate-unused-debug-types", "-I", include, source, "-o",
                    library], check=True)
    text = subprocess.run(["abidw", "--load-all-types", library], check=True,
                          capture_output=True, text=True).stdout
    return xml.fromstring(text)


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
            taken = ", ".join(name(p.get("type-id"), depth + 1)
                              for p in node.findall("parameter"))
            return f"{name(node.find('return').get('type-id'), depth + 1)} ({taken})"
        inner = name(node.get("type-id"), depth + 1)
        sign = {"pointer-type-def": "*", "qualified-type-def": " const",
                "array-type-def": f"[{node.get('size-in-bits')}]"}
        return inner + sign.get(node.tag, f" {node.tag}")

    return name


def structs(root):
    """{name: (bits, {member: (offset in bits, type)})}"""
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


def constants(root, include):
    """{name: value} of enumerators and of macros that are a number or a string."""
    found = {node.get("name"): node.get("value") for node in root.iter("enumerator")
             if node.get("name").startswith("DLC_")}
    for path in include.glob("dlcore/*.h"):
        text = path.read_text(encoding="utf-8")
        found.update(re.findall(r'^#define (DLC_\w+) (\(?-?\d+\)?|"[^"]*")', text, re.MULTILINE))
    return found


def changes(what, old, new):
    """Differences between two dictionaries of things that have a name."""
    for name in sorted(old.keys() - new.keys()):
        yield f"{what} {name} is gone"
    for name in sorted(new.keys() - old.keys()):
        yield f"{what} {name} is new"


def struct_changes(name, old, new):
    """Differences between two versions of a struct."""
    (old_bits, old_members), (new_bits, new_members) = old, new
    yield from changes("member", {f"{name}.{m}": 0 for m in old_members},
                       {f"{name}.{m}": 0 for m in new_members})
    for member in sorted(old_members.keys() & new_members.keys()):
        was, now = old_members[member], new_members[member]
        if was != now:
            yield (f"member {name}.{member} was at bit {was[0]}, of type {was[1]}; it is at "
                   f"bit {now[0]}, of type {now[1]}")
    if old_bits != new_bits:
        yield f"struct {name} had {old_bits} bits, it has {new_bits}"


def draft_changes(old, new):
    """Every difference; each is allowed in a new draft."""
    yield from changes("struct", old["structs"], new["structs"])
    for name in sorted(old["structs"].keys() & new["structs"].keys()):
        yield from struct_changes(name, old["structs"][name], new["structs"][name])
    yield from changes("constant", old["constants"], new["constants"])
    for name in sorted(old["constants"].keys() & new["constants"].keys()):
        was, now = old["constants"][name], new["constants"][name]
        if was != now:
            yield f"constant {name} was {was}, it is {now}"


def breaking_changes(old, new):
    """The differences that break plugins built with the old headers. A new member must be
    after all of the old struct, its padding included, or DLC_HAS would find it in old
    structs."""
    for name, (bits, members) in sorted(old["structs"].items()):
        if name not in new["structs"]:
            yield f"struct {name} is gone"
            continue
        now_bits, now = new["structs"][name]
        kept = {member: place for member, place in now.items() if member in members}
        yield from struct_changes(name, (0, members), (0, kept))
        for member in sorted(now.keys() - members.keys()):
            if now[member][0] < bits:
                yield f"member {name}.{member} is within the old struct; append it instead"
        if "size" not in members and now_bits != bits:
            yield f"struct {name} has no size field, and grew from {bits} to {now_bits} bits"
    for name, value in sorted(old["constants"].items()):
        if new["constants"].get(name) != value:
            yield f"constant {name} was {value}, it is {new['constants'].get(name, 'gone')}"


def load(folder, work):
    include = pathlib.Path(folder)
    root = read(include, work)
    seen = {"structs": structs(root), "constants": constants(root, include)}
    seen["version"] = tuple(int(seen["constants"].pop(name)) for name in VERSION)
    if len(seen["structs"]) < 30 or len(seen["constants"]) < 50:
        sys.exit(f"{folder}: abidw shows too little: {sorted(seen['structs'])}")
    return seen


def main():
    with tempfile.TemporaryDirectory() as folder:
        old, new = (load(path, pathlib.Path(folder)) for path in sys.argv[1:3])
    draft = new["version"][0] == 0 or old["version"][0] == 0
    found = list((draft_changes if draft else breaking_changes)(old, new))
    print("\n".join(found) or f"{len(old['structs'])} structs and {len(old['constants'])} "
          f"constants: {'nothing changed' if draft else 'nothing but appended'}")
    was, now = ("{}.{}".format(*version) for version in (old["version"], new["version"]))
    if was != now:
        print(f"\nThe interface is version {now}, and the copy in tests/abi is of {was}: run "
              "tests/abi/refresh.sh.")
        return 2
    if found and draft:
        print(f"\nThe public headers changed, but they still say version {now}. Plugins built "
              "with the old headers would\nbe read wrongly. Raise DLC_ABI_MINOR in "
              "include/dlcore/plugin.h, then run tests/abi/refresh.sh.")
    elif found:
        print("\nPlugins built with the old headers break. Put back what changed, and append "
              "instead.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
