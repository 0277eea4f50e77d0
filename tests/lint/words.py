#!/usr/bin/env python3
"""Finds words that dlcore does not use (see words.txt) in sources, tests, documents and file
names; in --help of all commands and man pages of a build; and in strings of its binaries.

words.py             checks the sources
words.py BUILD       checks the texts of this build; of the sources it reads only those that words.txt
                     has exceptions for, each of which must be needed
"""

import fnmatch
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("include", "core", "plugins", "tools", "tests", "docs", "models", "packaging", "examples", "bench", "cmake",
           "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "Makefile", "CMakeLists.txt")
# Quotes the words; results, which keep the names of their time.
LEFT_OUT = ("tests/lint/words.", "docs/results/")
BINARY = (".png", ".gz", ".caffemodel", ".f32")


class Rule:
    """One row of words.txt."""

    def __init__(self, number, pattern, instead):
        self.number, self.instead = number, instead
        self.pattern = re.compile(pattern, 0 if pattern.startswith("(?-i:") else re.IGNORECASE)
        self.allowed = []  # (line of words.txt, glob, pattern)
        self.used = set()

    def finds(self, place, line):
        """The match in the line, or None if there is none or a row allows it."""
        found = self.pattern.search(line)
        if not found:
            return None
        for number, glob, pattern in self.allowed:
            if fnmatch.fnmatch(place, glob) and pattern.search(line):
                self.used.add(number)
                return None
        return found.group()

    def has_exception_for(self, place):
        return any(fnmatch.fnmatch(place, glob) for _, glob, _ in self.allowed)


def read_rules(path):
    rules = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if line.startswith("    allow "):
            glob, pattern = line[len("    allow "):].split(" : ", 1)
            rules[-1].allowed.append((number, glob, re.compile(pattern)))
        else:
            pattern, instead = line.rsplit(" => ", 1)
            rules.append(Rule(number, pattern, instead))
    return rules


def suspects(rules):
    """Names of the files that some rule may find something in, from git's fast search; None where it cannot tell."""
    union = "|".join(f"(?:{rule.pattern.pattern})" for rule in rules)
    found = subprocess.run(["git", "-C", ROOT, "grep", "-lziP", union, "--", *FOLDERS], capture_output=True, text=True, check=False)
    return set(found.stdout.split("\0")) if found.returncode in (0, 1) else None


def sources(rules):
    """(place, [(line number, line)]) of every file; line 0 is the file name. Other lines only where a rule may
    find something."""
    found = suspects(rules)
    # Without a repository (sources of a package) all files are checked.
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "--", *FOLDERS], capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        names = listed.stdout.split("\0")
    else:
        names = [str(path.relative_to(ROOT)) for folder in FOLDERS for path in [ROOT / folder, *(ROOT / folder).rglob("*")]]
    for name in filter(None, names):
        path = ROOT / name
        if name.startswith(LEFT_OUT) or name.endswith(BINARY) or not path.is_file():
            continue
        text = path.read_bytes().decode("utf-8", "replace") if found is None or name in found else ""
        yield name, [(0, "/" + name), *enumerate(text.splitlines(), 1)]


def printed(command):
    done = subprocess.run(command, capture_output=True, text=True, check=True, errors="replace")
    return list(enumerate(done.stdout.splitlines(), 1))


def built(build):
    """(place, [(line number, line)]) of a build: help, man pages, strings of binaries."""
    command = build / "bin/dlcore"
    names = re.findall(r"^  ([a-z]+)  ", subprocess.run([command, "--help"], capture_output=True, text=True, check=True).stdout, re.M)
    if len(names) < 5:
        sys.exit("words.py: `dlcore --help` names no commands")
    for name in ["", *names]:
        yield f"help {name}", printed([command, *filter(None, [name]), "--help"])
    for page in sorted(build.glob("packaging/man/man*/*.[1357]")):
        yield f"man {page.name}", list(enumerate(page.read_text(encoding="utf-8").splitlines(), 1))
    for binary in [command, *sorted(build.glob("lib/**/*.so"))]:
        # Only strings with a space: names of other libraries are theirs.
        lines = [(n, line) for n, line in printed(["strings", "-n", "8", str(binary)]) if " " in line]
        yield f"strings {os.path.basename(binary)}", lines


def main():
    rules = read_rules(pathlib.Path(__file__).with_name("words.txt"))
    findings = places = 0
    everything = [(place, lines, rules) for place, lines in sources(rules)]
    if len(sys.argv) > 1:
        everything = [(place, lines, [rule for rule in rules if rule.has_exception_for(place)])
                      for place, lines, _ in everything]
        everything += [(place, lines, rules) for place, lines in built(pathlib.Path(sys.argv[1]))]
    for place, lines, wanted in everything:
        places += 1
        for number, line in lines:
            for rule in wanted:
                word = rule.finds(place, line)
                if word:
                    findings += 1
                    print(f"{place}:{number}: error: '{word.strip()}': write {rule.instead}")
    if len(sys.argv) > 1:
        for rule in rules:
            for number, glob, _ in rule.allowed:
                if number not in rule.used:
                    findings += 1
                    print(f"tests/lint/words.txt:{number}: error: no line of {glob} needs this exception")
    print(f"words: {places} files and texts, {len(rules)} rules, {findings} findings")
    return 1 if findings or places < 100 else 0


if __name__ == "__main__":
    sys.exit(main())
