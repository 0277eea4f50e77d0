#!/usr/bin/env python3
"""Makes a page for each public header from its comments, and one for each type in it
that leads there.

Usage: headers.py VERSION FOLDER HEADER...

A header is its head comment ("Title: summary.", then paragraphs), then declarations,
each with the comment right above it, under headings like /* ---- Options ---- */. In
structs and enums each member has the comment above or beside it.
"""

import pathlib
import re
import sys

import roff

SKIPPED = re.compile(r'#\s*(ifn?def|endif|else|if|include)\b|extern "C"|^}$')
HEADING = re.compile(r"/\* ---- (.+?) -*\s*\*/$")


def plain(comment):
    """The text of a comment, without its stars; paragraphs stay apart."""
    text = re.sub(r"^/\*+ ?|\s*\*/$", "", comment.strip())
    first, *rest = text.splitlines() or [""]
    lines = [first, *(re.sub(r"^\s*\* ?", "", line) for line in rest)]
    return "\n".join(lines).strip("\n")


def paragraphs(text, request=".PP"):
    """Indented lines stay as they are: they are code, or formulas."""
    out = []
    for block in re.split(r"\n\s*\n", text):
        code = False
        out.append(request)
        for line in block.splitlines():
            if line.startswith("    ") != code:
                out.append(".fi" if code else ".nf")
                code = not code
            if line.startswith("- "):
                out += [".br"] if out[-1] != request else []
            out.append(roff.escape(line if code else line.strip()))
        if code:
            out.append(".fi")
    return out


def close_of(text, at):
    """Behind the } that closes the first { after `at`."""
    depth = 0
    for i in range(text.index("{", at), len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return i + 1
    raise ValueError("a brace is not closed")


def end_of(text, at):
    """Where the declaration that begins at `at` ends."""
    if text.startswith("#", at):
        match = re.compile(r"(?:[^\\\n]|\\.|\\\n)*\n").match(text, at)
        return match.end()
    semicolon, brace = text.find(";", at), text.find("{", at)
    if brace < 0 or semicolon < brace:
        end = semicolon + 1
    elif text.startswith("static inline", at):
        end = close_of(text, at)
    else:
        end = text.index(";", close_of(text, at)) + 1
    beside = re.compile(r"[ \t]*/\*.*?\*/[ \t]*(?=\n)", re.DOTALL).match(text, end)
    return beside.end() if beside and "\n" not in text[end:beside.start()] else end


def items(text):
    """(comment, declaration) one after the other; one of them may be empty."""
    at, comment = 0, ""
    while at < len(text):
        if text[at].isspace():
            # A blank line: the comment above stands for itself.
            blank = re.compile(r"\s+").match(text, at)
            if comment and blank[0].count("\n") > 1:
                yield comment, ""
                comment = ""
            at = blank.end()
        elif text.startswith("/*", at):
            if comment:
                yield comment, ""
            end = text.index("*/", at) + 2
            comment, at = text[at:end], end
        elif SKIPPED.match(text[at:].partition("\n")[0]):
            at = text.find("\n", at)
            at = len(text) if at < 0 else at
        else:
            end = end_of(text, at)
            yield comment, text[at:end].strip()
            comment, at = "", end


def member_end(inside, at, closing):
    """Behind the `closing` sign that ends the member, out of parentheses."""
    depth = 0
    for i in range(at, len(inside)):
        depth += {"(": 1, ")": -1, "{": 1, "}": -1}.get(inside[i], 0)
        if depth == 0 and (inside[i] == closing or inside.startswith("/*", i)):
            return i + (inside[i] == closing)
    return len(inside)


def members(inside, closing):
    """[comments, declaration] of what stands between the braces of a struct (each ends
    with `closing`, a semicolon) or of an enum (a comma). A comment that a blank line
    follows stands for itself, with an empty declaration."""
    at, above, found = 0, [], []
    while inside[at:].strip():
        start = at
        at += len(inside[at:]) - len(inside[at:].lstrip())
        if inside.startswith("/*", at):
            end = inside.index("*/", at) + 2
            beside = found and "\n" not in inside[start:at]
            text = plain(inside[at:end])
            if beside:  # its lines are indented for looks
                text = re.sub(r"\n[ \t]+", "\n", text)
            (found[-1][0] if beside else above).append(text)
            if not beside and re.match(r"[ \t]*\n\s*\n", inside[end:]):
                found.append([above, ""])
                above = []
        else:
            end = member_end(inside, at, closing)
            found.append([above, inside[at:end].strip().rstrip(closing)])
            above = []
        at = end
    return found


def one_line(code):
    return re.sub(r"\s+", " ", code).strip()


def show_members(code):
    opening = code.index("{")
    inside = code[opening + 1:code.rindex("}")]
    out = []
    closing = "," if re.match(r"(typedef )?enum", code) else ";"
    for comments, declaration in members(inside, closing):
        text = "\n".join(comments)
        if not declaration:
            out += paragraphs(text)
            continue
        out += [".TP", f"\\fB{roff.escape(one_line(declaration))}\\fR"]
        out += paragraphs(text, ".br")[1:] if text else ["\\&"]
    return out


def title_of(code):
    match = (re.match(r"#\s*define\s+(\w+(?:\([^)]*\))?)", code)
             or re.match(r"typedef\s+(?:struct|enum)\s+(\w+)", code)
             or re.match(r"struct\s+(\w+)", code)
             or re.match(r"static inline[^(]*?(\w+)\(", code)
             or re.match(r"typedef\s.*?(\w+);", code, re.DOTALL))
    return match[1] if match else ""


def show(comment, code):
    """One declaration: its own heading where it is something with members."""
    out = []
    text = paragraphs(plain(comment)) if comment else []
    name = title_of(code)
    body = code.startswith(("typedef", "struct", "enum")) and "{" in code
    if body and name:
        out += [f".SS {roff.quote(name)}"]
    out += text
    if body:
        return out + show_members(code)
    if code.startswith("static inline"):
        code = code[:code.index("{")].strip() + ";"
    if code.startswith("#define"):
        code = re.sub(r"\\\n(.|\n)*", "...", code) if "\\\n" in code else code
    return out + [".PP", ".nf", f"\\fB{roff.escape(code)}\\fR", ".fi"]


def page(version, path):
    text = path.read_text(encoding="utf-8")
    # The guard's second line has no meaning to a reader.
    text = re.sub(r"#ifndef (\w+_H)\n#define \1\n", "", text)
    found = list(items(text))
    opening = plain(found[0][0])
    sentence = re.split(r"\.(?:\s|$)", opening.replace("\n", " "))[0]
    title, _, rest = sentence.partition(": ")
    what = rest if rest and " " not in title else sentence
    name = f"dlcore_{path.stem}"
    out = roff.head(name, 3, version, what)
    out += [".SH SYNOPSIS", ".nf", f"\\fB#include <dlcore/{path.name}>\\fR", ".fi",
            ".SH DESCRIPTION", *paragraphs(opening)]
    if any(code for _, code in found):
        out.append(".SH DECLARATIONS")
    names = []
    first = found[0][1]
    for comment, code in ([("", first)] if first else []) + found[1:]:
        heading = HEADING.match(comment)
        if heading:
            out.append(f".SH {roff.quote(heading[1].upper())}")
            comment = ""
        if code:
            out += show(comment, code)
            names.append(title_of(code))
        elif comment:
            out += paragraphs(plain(comment))
    others = [p for p in ("data", "device", "layer", "plugin", "solver", "status",
                          "tensor", "transport") if p != path.stem]
    out += [".SH SEE ALSO", ".BR dlcore (1),",
            ",\n".join(f".BR dlcore_{p} (3)" for p in others)]
    return name, out, [n for n in names if re.fullmatch(r"dlc_\w+", n)]


def main():
    version, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    for header in map(pathlib.Path, sys.argv[3:]):
        name, lines, names = page(version, header)
        roff.write(folder, name, 3, lines)
        for other in names:
            roff.write(folder, other, 3, [f".so man3/{name}.3"])


if __name__ == "__main__":
    main()
