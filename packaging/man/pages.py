#!/usr/bin/env python3
"""Makes dlcore-net.ini(5) from docs/net-ini.md, which stands for all plugins, also for those
that this build or this machine lacks.

Usage: pages.py PAGE.md VERSION FOLDER

Of Markdown it knows what that page has: headings, paragraphs, `code`, ```blocks```, lists
and tables. Of a table the first column is the term; one with four columns has keys.
"""

import pathlib
import re
import sys

import roff


def inline(text):
    """Plain text with `code` in bold."""
    parts = re.split(r"`([^`]*)`", text.replace("\\|", "|"))
    # A line must not begin with a request's sign, whatever stands before it.
    return "".join(f"\\fB{roff.escape(part)}\\fR" if i % 2 else
                   (roff.escape(part) if i == 0 else part.replace("\\", "\\e").replace("-", "\\-"))
                   for i, part in enumerate(parts))


def cells(line):
    return [part.strip() for part in re.split(r"(?<!\\)\|", line)[1:-1]]


def table(lines):
    out = []
    for line in lines[2:]:
        term, *rest = cells(line)
        out += [".TP", inline(term)]
        if len(rest) == 3:
            what, default, text = rest
            default = {"required": "; required", "-": ""}.get(default, f"; default {default}")
            out += [inline(what + default), ".br", inline(text)]
        else:
            out.append(inline(" ".join(rest)))
    return out


def heading(line):
    level, text = re.match(r"(#+) (.*)", line).groups()
    text = text.replace("`", "")
    if level == "##":  # what net.ini has stays as it is written there
        return [f".SH {roff.quote(text if '[' in text else text.upper())}"]
    return [f".SS {roff.quote(text)}"]


def block(lines):
    """One piece of the page, whose lines belong together."""
    if lines[0].startswith("```"):
        return [".PP", ".RS 4", ".nf", *(roff.escape(line) or "\\&" for line in lines[1:-1]), ".fi", ".RE"]
    if lines[0].startswith("#"):
        return heading(lines[0])
    if lines[0].startswith("|"):
        return table(lines)
    if lines[0].startswith("- "):
        items = re.split(r"\n- ", "\n" + "\n".join(lines))[1:]
        return [line for item in items
                for line in (".IP \\(bu 2", inline(re.sub(r"\s*\n\s*", " ", item)))]
    return [".PP", inline(" ".join(lines))]


def blocks(text):
    piece, fenced = [], False
    for line in text.splitlines() + [""]:
        fence = line.startswith("```")
        if line.strip() or fenced:
            piece.append(line)
        elif piece:
            yield piece
            piece = []
        if fence:
            fenced = not fenced


def page(path, version):
    pieces = list(blocks(path.read_text(encoding="utf-8")))
    assert pieces[0][0].startswith("# "), f"{path}: begins without a title"
    out = roff.head("dlcore-net.ini", 5, version, "what dlcore trains, and how")
    out.append(".SH DESCRIPTION")
    for piece in pieces[1:]:
        out += block(piece)
    return out + [".SH SEE ALSO", ".BR dlcore (1),", ".BR dlcore\\-check (1),", ".BR dlcore\\-plugin (1)"]


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    roff.write(folder, "dlcore-net.ini", 5, page(pathlib.Path(sys.argv[1]), sys.argv[2]))


if __name__ == "__main__":
    main()
