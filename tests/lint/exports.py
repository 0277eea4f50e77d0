#!/usr/bin/env python3
"""Checks that libdlcore exports exactly what cmake/core.map lists, that a header of core/
declares each name, and that all are under the private version node.

Usage: exports.py LIBRARY
"""

import fnmatch
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAP = "cmake/core.map"
NODE = "DLCORE_PRIVATE"


def declared(text):
    """The functions and variables that a header declares for others to link."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)
    text = re.sub(r"^\s*#(?:[^\n\\]|\\.)*", "", text, flags=re.MULTILINE | re.DOTALL)
    text = text.replace('extern "C" {', "")
    while re.search(r"{[^{}]*}", text):  # the bodies of structs and inline functions
        text = re.sub(r"{[^{}]*}", "@", text)
    # An inline function ends at its body, without a semicolon.
    text = re.sub(r"\)\s*@", ") @;", text)
    names = set()
    for statement in text.split(";"):
        words = statement.split()
        if words and words[0] not in ("typedef", "static"):
            # After a type, before its parameters, its size or the end.
            match = re.search(r"(?!struct|enum|union)\b\w+[\s*]+(dlc_\w+)\s*(?:[(\[]|$)",
                              statement.strip())
            if match:
                names.add(match[1])
    return names


def exported(library):
    said = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", library],
                          check=True, capture_output=True, text=True).stdout
    return {line.split()[-1] for line in said.splitlines()}


def listed():
    """The names and patterns of the map."""
    text = re.sub(r"/\*.*?\*/", " ", (ROOT / MAP).read_text(encoding="utf-8"),
                  flags=re.DOTALL)
    part = re.search(r"global:(.*?)local:", text, re.DOTALL)[1]
    return re.findall(r"[\w*]+", part)


def main():
    wanted = set()
    for header in sorted((ROOT / "core").rglob("*.h")):
        wanted |= declared(header.read_text(encoding="utf-8"))
    shown = exported(sys.argv[1]) - {NODE, f"{NODE}@@{NODE}"}
    right = {name.removesuffix(f"@@{NODE}") for name in shown
             if name.endswith(f"@@{NODE}")}
    patterns = listed()
    chosen = {name for name in wanted if any(fnmatch.fnmatchcase(name, p) for p in patterns)}
    findings = [f"{name}: not under the version node {NODE}"
                for name in sorted(shown) if not name.endswith(f"@@{NODE}")]
    findings += [f"{name}: exported, but no header of core/ declares it: make it static, "
                 "or declare it" for name in sorted(right - wanted)]
    findings += [f"{name}: a header of core/ declares it and {MAP} shows it, but the "
                 "library does not have it" for name in sorted(chosen - right)]
    findings += [f"{MAP} lists {pattern}, which the library does not have"
                 for pattern in patterns if not fnmatch.filter(right, pattern)]
    if len(chosen) < 50:
        findings.append(f"only {len(chosen)} names found in the headers; exports.py must be wrong")
    for finding in findings:
        print(f"{sys.argv[1]}: error: {finding}")
    if findings:
        sys.exit(1)
    print(f"exports: {len(right)} names, each declared by a header of core/")


if __name__ == "__main__":
    main()
