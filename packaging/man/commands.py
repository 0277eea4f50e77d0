#!/usr/bin/env python3
"""Makes dlcore(1) and a page for each subcommand, from what --help says.

Usage: commands.py DLCORE VERSION FOLDER
"""

import os
import pathlib
import re
import subprocess
import sys

import roff

HERE = pathlib.Path(__file__).resolve().parent


def help_of(dlcore, *words):
    """Each option in one line, with its description behind the longest of them."""
    environment = dict(os.environ, LC_ALL="C",
                       ARGP_HELP_FMT="rmargin=2000,opt-doc-col=60,no-dup-args-note")
    return subprocess.run([dlcore, *words, "--help"], env=environment, check=True,
                          capture_output=True, text=True, timeout=60).stdout


def commands(dlcore):
    """[(name, what it does)] as `dlcore --help` lists them."""
    return re.findall(r"^  ([a-z]+) +(.+)$", help_of(dlcore), re.MULTILINE)


def synopsis(usage):
    """`Usage: dlcore plugin [OPTION...] list` -> a roff line."""
    words = re.sub(r"^(Usage:|  or:) *", "", usage)
    name, _, rest = words.partition(" [OPTION...]")
    return f".B {roff.escape(name)}\n[\\fIoption\\fR...]{roff.escape(rest)}\n.br"


def option(line):
    """`  -q, --quiet    only say ...` -> .TP, the options bold, what they do."""
    match = re.match(r"\s+(-\S.*?)\s{2,}(\S.*)$", line)
    assert match, f"no description: {line}"
    return [".TP", f"\\fB{roff.escape(match[1])}\\fR", roff.escape(match[2])]


def paragraph(text):
    return [".PP", roff.escape(text)]


def body(lines):
    """Everything behind the usage: paragraphs, groups of options, paragraphs."""
    out, notes, seen = [], [], False
    for line in lines:
        if not line.strip():
            continue
        if re.match(r"\s+-", line):
            if not seen:
                out.append(".SH OPTIONS")
            seen = True
            if line.startswith("  -?,"):  # behind the last group
                out.append(".SS Help")
            out += option(line)
        elif re.match(r" [A-Z].*:$", line) and seen:
            out.append(f".SS {roff.quote(line.strip().rstrip(':'))}")
        elif seen:
            notes += paragraph(line.strip())
        else:
            out += paragraph(line.strip())
    return out + ([".SH NOTES"] + notes if notes else [])


def page(dlcore, version, name, what):
    text = help_of(dlcore, name)
    texts, own = [text], []
    if "[OPTION...]" in text and not re.search(r"^ +-", text, re.MULTILINE):
        # It has subjects of its own: `dlcore bench comm`, `dlcore data stats`.
        own = re.findall(r"^  ([a-z]+)  +\S", text, re.MULTILINE)
        texts = [help_of(dlcore, name, word) for word in own]
    usages, rests = [], []
    for lines in (text.splitlines() for text in texts):
        usages += [l for l in lines if re.match(r"(Usage:|  or:) ", l)]
        rests.append([l for l in lines if l not in usages])
    out = roff.head(f"dlcore-{name}", 1, version, what)
    out += [".SH SYNOPSIS", *map(synopsis, usages)]
    for word, rest in zip(own or [""], rests):
        several = len(rests) > 1
        out += [f".SH {name.upper()} {word.upper()}" if several else ".SH DESCRIPTION"]
        out += [re.sub(r"^\.SH ", ".SS ", line) if several else line for line in body(rest)]
    also = [".BR dlcore (1)"]
    if "net.ini" in "".join(texts).lower():
        also = [".BR dlcore (1),", ".BR dlcore\\-net.ini (5)"]
    return out + [".SH SEE ALSO", *also]


def main_page(version, listed):
    text = (HERE / "dlcore.1.in").read_text(encoding="utf-8")
    table = "\n".join(f".TP\n.BR dlcore\\-{name} (1)\n{roff.escape(what)}"
                      for name, what in listed)
    for key, value in {"VERSION": version, "DATE": roff.date(),
                       "COMMANDS": table}.items():
        text = text.replace(f"@{key}@", value)
    return text.splitlines()


def main():
    dlcore, version, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    listed = commands(dlcore)
    if not listed:
        sys.exit("commands.py: `dlcore --help` lists no commands")
    roff.write(folder, "dlcore", 1, main_page(version, listed))
    for name, what in listed:
        roff.write(folder, f"dlcore-{name}", 1, page(dlcore, version, name, what))


if __name__ == "__main__":
    main()
