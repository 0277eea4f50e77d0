#!/usr/bin/env python3
"""Makes docs/sdk.md, the tables of the SDK, from the public headers and sdk.md.in.

Usage: sdk.py INCLUDE FILE

A header's opening comment has a table for each of its tables of calls: its first column
names the calls, the others say what is required of them ("needed", "thread", "may block").
Every call must be in one, and every name must be a call.
"""

import dataclasses
import pathlib
import re
import sys

import headers

HERE = pathlib.Path(__file__).resolve().parent
# In the order of the page, with the headings.
PAGES = {"plugin": "Plugins and host services", "device": "Devices", "transport": "Transports",
         "layer": "Layers", "solver": "Solvers", "rule": "Update rules", "consistency": "Consistency models",
         "data": "Data sources", "decoder": "Decoders"}
COLUMNS = ("needed", "thread", "may block")
CALLS = re.compile(r"dlc_(\w+_ops|family|host)")  # structs that are tables of calls


@dataclasses.dataclass
class Struct:
    """A struct or enum: its name, comment, and [(name of a member, comment, is a call)]."""
    name: str
    text: str
    members: list
    is_enum: bool


def sentence(text):
    """The first sentence of a comment, without the word that the table says anyway."""
    text = re.sub(r"^(Required|Optional)(, [\w .]+?)?\.\s+(?=[A-Z`*])", "", text)
    text = re.sub(r":\n {4}.*", ".", text, flags=re.DOTALL)  # up to a formula
    text = re.sub(r"\s+", " ", text).strip()
    text = re.split(r"(?<=\.)\s+(?=[A-Z`*])", text, maxsplit=1)[0]
    return text if not text or text.endswith(".") else text + "."


def cell(text):
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "\\<")


def member_name(declaration):
    call = re.search(r"\(\*(\w+)\)\s*\(", declaration)
    if call:
        return [call[1]], True
    bare = re.sub(r"\[[^]]*\]|\s*=.*", "", declaration, flags=re.DOTALL)
    return [re.search(r"(\w+)\s*$", part)[1] for part in bare.split(",") if part.strip()], False


def structs(path):
    """Every struct and enum with members, in the order of the header."""
    found = []
    for comment, code in headers.items(path.read_text(encoding="utf-8")):
        if "{" not in code or not code.startswith(("typedef", "struct", "enum")):
            continue
        is_enum = re.match(r"(typedef )?enum", code) is not None
        inside = code[code.index("{") + 1:code.rindex("}")]
        members, group = [], ""
        for comments, declaration in headers.members(inside, "," if is_enum else ";"):
            text = "\n".join(comments)
            if not declaration:
                group = text
                continue
            names, is_call = member_name(declaration)
            members += [(name, text or (group if is_call else ""), is_call) for name in names]
        found.append(Struct(headers.title_of(code), headers.plain(comment) if comment else "",
                            members, is_enum))
    return found


def tables(path):
    """{(struct or "", call): {column: text}} of the opening comment."""
    opening = headers.plain(next(headers.items(path.read_text(encoding="utf-8")))[0])
    found, heads, names = {}, [], []
    for line in opening.splitlines():
        if not line.startswith("    "):
            heads, names = [], []
        elif re.match(r" +\w+( \w+)* +needed\b", line):
            heads = [(m.start(), m[0]) for m in re.finditer(r"\w+( \w+)*", line)]
        elif heads:
            ends = [start for start, _ in heads[1:]] + [None]
            cells = [line[start:end].strip() for (start, _), end in zip(heads, ends)]
            names += cells[0].split()
            if cells[1]:
                struct = heads[0][1] if heads[0][1].startswith("dlc_") else ""
                told = {head: text for (_, head), text in zip(heads[1:], cells[1:])}
                found.update({(struct, name): told for name in names})
                names = []
    return found


def calls(path, struct, rows, used):
    told = [row for key, row in rows.items() if key[0] in (struct.name, "")]
    columns = [column for column in COLUMNS if any(column in row for row in told)]
    out = [f"### `{struct.name}`", "", sentence(struct.text), "",
           f"| call | {' | '.join(columns)} | what it does |", f"| --- |{' --- |' * (len(columns) + 1)}"]
    for name, text, is_call in struct.members:
        if not is_call:
            continue
        key = next((key for key in ((struct.name, name), ("", name)) if key in rows), None)
        if key is None:
            raise ValueError(f"{path.name}: {struct.name}.{name} is in no table of the opening comment")
        used.add(key)
        cells = " | ".join(cell(rows[key].get(column, "")) for column in columns)
        out.append(f"| `{name}` | {cells} | {cell(sentence(text))} |")
    return out + [""]


def types(path, found):
    """Structs and named enums, with their members; the bits of unnamed enums."""
    out, rest = [], []
    for struct in found:
        names = ", ".join(f"`{name}`" for name, _, _ in struct.members)
        if struct.name:
            rest.append(f"| `{struct.name}` | {cell(sentence(struct.text))} | {names} |")
            continue
        out += [f"### {re.split('[;.]', sentence(struct.text))[0] or 'Constants'}", "", "| constant | what it says |",
                "| --- | --- |"]
        out += [f"| `{name}` | {cell(sentence(text))} |" for name, text, _ in struct.members] + [""]
    if rest:
        out += [f"### Types of `<dlcore/{path.name}>`", "", "| type | what it is | members |",
                "| --- | --- | --- |", *rest, ""]
    return out


def section(path, heading):
    found, rows, used = structs(path), tables(path), set()
    opening = headers.plain(next(headers.items(path.read_text(encoding="utf-8")))[0])
    summary = re.split(r"\.(?:\s|$)", opening.replace("\n", " "))[0].partition(": ")[2]
    out = [f"## {heading}", "", f"`<dlcore/{path.name}>`: {summary}.", ""]
    with_calls = [s for s in found if CALLS.fullmatch(s.name) or any((s.name, m[0]) in rows for m in s.members)]
    for struct in with_calls:
        out += calls(path, struct, rows, used)
    if set(rows) - used:
        raise ValueError(f"{path.name}: its tables name what is no call: {sorted(set(rows) - used)}")
    return out + types(path, [s for s in found if s not in with_calls or not CALLS.fullmatch(s.name)])


def page(include):
    out = []
    for name, heading in PAGES.items():
        out += section(include / f"dlcore/{name}.h", heading)
    text = (HERE / "sdk.md.in").read_text(encoding="utf-8")
    return text.replace("@SECTIONS@", "\n".join(out).strip("\n"))


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    pathlib.Path(sys.argv[2]).write_text(page(pathlib.Path(sys.argv[1])), encoding="utf-8")


if __name__ == "__main__":
    main()
