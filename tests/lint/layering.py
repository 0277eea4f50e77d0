#!/usr/bin/env python3
"""Checks the direction of dependencies: tools -> core -> include/dlcore <- plugins.

Reads the #include lines, looks for names of plugins where they are not allowed, for static
functions of one name in several files of the core, and at the core's size; prints each
finding with file, line and a remedy.
"""

import collections
import fnmatch
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Which folders of the core each folder may include. Its own files and the public headers
# are always allowed. There must be no cycles (checked below).
CORE = {
    "base": [],
    "config": ["base"],
    "plugin": ["base", "config"],
    "topology": ["base"],
    "job": ["base", "topology"],
    "solver": ["base", "config", "plugin"],
    "comm": ["base", "plugin", "topology"],
    "net": ["base", "config", "plugin", "solver", "comm"],
    "data": ["base", "config", "plugin", "net"],
    "plan": ["base", "config", "plugin", "topology", "net"],
    "setup": ["base", "config", "plugin", "solver", "net", "data"],
    "session": ["base", "config", "plugin", "topology", "job", "solver", "net", "comm",
                "data", "plan", "setup"],
    "checkpoint": ["base", "config", "plugin", "job", "solver", "net", "comm", "setup",
                   "session"],
    "parallel": ["base", "config", "plugin", "topology", "job", "solver", "net", "comm",
                 "data", "plan", "setup", "session", "checkpoint"],
    "run": ["base", "config", "plugin", "topology", "job", "solver", "net", "comm",
            "data", "plan", "setup", "session", "checkpoint", "parallel"],
    "train": ["base", "config", "plugin", "job", "solver", "net", "comm", "data", "setup",
              "session", "checkpoint", "parallel", "run"],
}

# Floors of a folder, the lowest first, as patterns of file names without their suffix: a
# file may include those of its own floor and of lower ones.
FLOORS = {
    "net": ["graph graph_search",
            "net placement ir",                 # a net, as data
            "layer_calls op_* ops",             # kinds of operations
            "pass_*",
            "build",
            "run run_chunks describe"],         # the executor
}

# Folders whose subfolders are rooms: these may include the files beside them, and of the
# other rooms those that are listed.
ROOMS = {"parallel": {},
         "job": {"launch": ["hub", "rank"]}}

# What the public headers may include besides each other: freestanding C, so that they
# compile anywhere and pull in nothing else.
SDK_SYSTEM = {"stddef.h", "stdint.h", "stdbool.h", "stdarg.h", "limits.h", "float.h",
              "math.h"}

# Libraries that only plugins may know, whether or not such a plugin exists.
LIBRARIES = ["onednn", "dnnl", "mkldnn", "cudnn", "cublas", "nccl", "rccl", "ucx",
             "libmpi", "openmpi", "mpich", "gloo"]

# Such names that are not libraries: a file format, another project's benchmark.
FORMATS = re.compile(r"NCCL('s)? XML|nccl-tests")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
# A string (kept, since // inside it starts no comment) or a comment (blanked).
COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)

findings = []


def found(path, line, what, todo):
    findings.append(f"{path}:{line}: error: {what}\n    {todo}")


def files():
    out = subprocess.run([ROOT / "tests/lint/files.sh"], check=True,
                         capture_output=True, text=True).stdout
    return [pathlib.PurePosixPath(line) for line in out.splitlines()]


def check_cycles():
    def visit(folder, trail):
        if folder in trail:
            cycle = " -> ".join(trail[trail.index(folder):] + [folder])
            found("tests/lint/layering.py", 1, f"the table CORE has a cycle: {cycle}",
                  "Remove one of these dependencies.")
            return
        for other in CORE[folder]:
            visit(other, trail + [folder])

    for folder in CORE:
        visit(folder, [])


def floor_of(folder, stem):
    for number, patterns in enumerate(FLOORS[folder]):
        if any(fnmatch.fnmatch(stem, pattern) for pattern in patterns.split()):
            return number
    return None


def check_floor(path, line, name):
    folder, stem = path.parts[1], path.stem
    target = pathlib.PurePosixPath(name)
    if folder not in FLOORS or target.parts[0] != folder:
        return
    floor, other = floor_of(folder, stem), floor_of(folder, target.stem)
    if floor is None:
        found(path, line, f"core/{folder}/{stem} is on no floor",
              "Add it to FLOORS in tests/lint/layering.py.")
    elif other is not None and other > floor:
        found(path, line, f'includes "{name}", which is on a higher floor',
              "FLOORS in tests/lint/layering.py has the order. Move the code, or take a "
              "callback.")


def check_room(path, line, name):
    """A room's files are core/FOLDER/ROOM/FILE."""
    target = pathlib.PurePosixPath(name)
    own, other = path.parts[1:-1], target.parts[:-1]
    if own[0] in ROOMS and len(own) > 1 and len(other) > 1 and other[0] == own[0] \
            and other != own and other[1] not in ROOMS[own[0]].get(own[1], []):
        found(path, line, f'core/{"/".join(own)} includes "{name}"',
              f"Rooms of core/{own[0]} know nothing of each other, except for what ROOMS "
              "in tests/lint/layering.py lists: move the code up, or let core/run call "
              "each.")


# File of the core without its suffix -> the files that it includes.
includes = collections.defaultdict(set)


def reaches(start):
    """All files that `start` includes, directly or not."""
    seen, todo = set(), list(includes[start])
    while todo:
        file = todo.pop()
        if file not in seen:
            seen.add(file)
            todo += includes.get(file, ())
    return seen


def check_circles():
    """A header and its .c file count as one, since neither is used without the other."""
    reached = {file: reaches(file) for file in list(includes)}
    circles = collections.defaultdict(list)
    for file in sorted(reached):
        if file in reached[file]:
            circles[file.split("/")[0]].append(file)
    for folder, files_of in circles.items():
        found(f"core/{folder}", 1, "files include each other: " + ", ".join(files_of),
              "Split a header, or take a callback.")


def check_core(path, line, kind, name):
    part = path.parts[1]
    target = name.split("/")[0]
    if kind == "<":
        return
    if part not in CORE:
        found(path, line, f"core/{part} is not in the table of folders",
              "Add it to CORE in tests/lint/layering.py, or move the file.")
    elif target in CORE and "/" in name:
        file = str(pathlib.PurePosixPath(*path.parts[1:]).with_suffix(""))
        if str(pathlib.PurePosixPath(name).with_suffix("")) != file:
            includes[file].add(str(pathlib.PurePosixPath(name).with_suffix("")))
        check_floor(path, line, name)
        check_room(path, line, name)
        if target != part and target not in CORE[part]:
            allowed = ", ".join(CORE[part]) or "nothing else"
            found(path, line, f'core/{part} includes "{name}"',
                  f"core/{part} may include: {allowed}. Pass what it needs as an "
                  "argument or a callback, or move the code.")
    elif ".." in name or not (ROOT / path.parent / name).is_file():
        found(path, line, f'"{name}" is not a file of the core',
              'Write "folder/file.h" for the core, <dlcore/file.h> for the SDK.')


def is_library(folder):
    """A folder with common code of the plugins of one kind."""
    made = ROOT / folder / "CMakeLists.txt"
    return made.is_file() and "dlc_add_plugin(" not in made.read_text(encoding="utf-8")


def check_plugin(path, line, kind, name):
    if kind == "<":
        return
    own = pathlib.Path(*path.parts[:3])
    target = (ROOT / path.parent / name).resolve()
    near = [own] if is_library(own) else [own] + [
        own.parent / d.name for d in (ROOT / own.parent).iterdir()
        if is_library(own.parent / d.name)]
    if not target.is_file() or not any(target.is_relative_to(ROOT / n) for n in near):
        found(path, line, f'{own} includes "{name}"',
              "A plugin may include its own files, those of a shared folder beside it, "
              "<dlcore/...> and system headers. It reaches the core only through the "
              "table of host services.")


def check_sdk(path, line, kind, name):
    inside = name.startswith("dlcore/") or (
        kind == '"' and (ROOT / path.parent / name).is_file())
    if not inside and name not in SDK_SYSTEM:
        found(path, line, f"a public header includes {name}",
              "Include other public headers or one of: "
              + ", ".join(sorted(SDK_SYSTEM)) + ".")


def check_tools(path, line, kind, name):
    if kind == "<":
        return
    target = name.split("/")[0]
    if not (ROOT / path.parent / name).is_file() and target not in CORE:
        found(path, line, f'tools include "{name}"',
              "The command may include its own files, the core's and <dlcore/...>.")


def check_includes(path, text):
    check = {"core": check_core, "plugins": check_plugin, "include": check_sdk,
             "tools": check_tools}[path.parts[0]]
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        kind, name = match.groups()
        if name.startswith("dlcore/") and not (ROOT / "include" / name).is_file():
            found(path, number, f"there is no public header <{name}>",
                  "See include/dlcore/.")
        elif name.split("/")[0] in ("plugins", "tools", "tests"):
            found(path, number, f"includes {name}",
                  "Nothing may include plugins/, tools/ or tests/.")
        else:
            check(path, number, kind, name)


def plugin_names():
    return sorted({p.name for p in ROOT.glob("plugins/*/*") if p.is_dir()
                   and not is_library(p.relative_to(ROOT))})


def blank(match):
    text = match[0]
    return text if text.startswith('"') else re.sub(r"[^\n]", " ", text)


def check_names(path, text, names):
    """Plugins are known at run time only, so no file of core/ or tools/ may name one.

    Distinctive names (onednn, host-staged) are not allowed anywhere, not even in a
    comment. Ordinary words (cpu, synthetic) are not allowed as a string, unless a comment
    on the line says what it means: // "cpu" is a control group
    """
    words = LIBRARIES + [n for n in names if "-" in n]
    words += [w.replace("-", "_") for w in words]
    word = re.compile(r"(?i)(?<![a-z0-9])(" + "|".join(map(re.escape, words))
                      + r")(?![a-z0-9])")
    todo = ("Ask the registry for what the settings name, or choose by capability: "
            "the core must not know any plugin.")
    code = COMMENT.sub(blank, text).splitlines()
    for number, line in enumerate(text.splitlines(), 1):
        match = word.search(FORMATS.sub("", line))
        if match:
            found(path, number, f"names a plugin or its library: {match[1]}", todo)
            continue
        if path.suffix not in (".c", ".h") or INCLUDE.match(line):
            continue
        for literal in STRING.findall(code[number - 1]):
            if literal in names and f'// "{literal}" is ' not in line:
                found(path, number, f'names a plugin: "{literal}"', todo + " If the "
                      f'word means something else, end the line with // "{literal}" is '
                      "...")


# Nobody but solvers knows a rule: devices, transports, the exchange and all else run what
# they are given.
RULE_FREE = ("plugins/devices/", "plugins/transport/", "plugins/consistency/", "core/comm/", "core/net/",
             "core/parallel/", "core/plan/", "core/run/", "core/session/", "core/train/")
RULE_WORDS = re.compile(r"(?i)(?<![a-z])(momentum|velocity|nesterov|dampening|beta_?[12]"
                        r"|second_moment)(?![a-z])")


def check_rules(path, text):
    if not str(path).startswith(RULE_FREE):
        return
    for number, line in enumerate(text.splitlines(), 1):
        match = RULE_WORDS.search(line)
        if match:
            found(path, number, f"knows a solver's rule: {match[1]}",
                  "Run dlc_update.rule, whatever it is: the arithmetic of an update "
                  "belongs to plugins/solvers.")


# core/run opens what divides the work, and core/train runs it: both name the modes. Who is
# below them asks what the session allows. Predictions about a mode (dlc_plan_*) are no
# question to a session.
MODES = r"(?:pipeline|tensor_parallel|asynchronous|staleness)"
MODE_FREE = {
    "core/checkpoint/": re.compile(rf"\b\w*{MODES}\w*"),
    "tools/": re.compile(rf"\bdlc_(?!plan_)\w*{MODES}\w*|\bsession(?:->|\.){MODES}\w*"),
}


def check_modes(path, text):
    """Looks at code alone: words in comments and strings are for people."""
    for folder, word in MODE_FREE.items():
        if not str(path).startswith(folder) or path.suffix not in (".c", ".h"):
            continue
        code = STRING.sub('""', COMMENT.sub(blank, text))
        for number, line in enumerate(code.splitlines(), 1):
            for match in word.finditer(line):
                found(path, number, f"asks for a parallel mode: {match[0]}",
                      "Ask dlc_session_allows, or a field of the session that core/run "
                      "has set.")


# The core's budget: what is added, look first for what it makes unnecessary. Lower these as
# the core shrinks; the aim is 50,000 lines in 350 files.
CORE_LINES, CORE_FILES = 65000, 425

STATIC = re.compile(r"^static [^;{=]*?(\w+)\([^;{]*\) \{", re.MULTILINE)
# Names of libc's calls on files and sockets, which a reader takes for these.
LIBC = {"accept", "bind", "close", "connect", "fill", "kill", "listen", "open", "pipe", "poll",
        "read", "recv", "remove", "send", "signal", "stat", "wait", "write"}
statics = {}
core_size = collections.Counter()


def check_statics(path, text):
    """A function's name says what it does, so that a search for it finds one place."""
    for match in STATIC.finditer(text):
        name, line = match[1], text.count("\n", 0, match.start()) + 1
        if name in LIBC:
            found(path, line, f"{name}() is libc's", "Say what is meant: a longer name.")
        other = statics.setdefault(name, path)
        if other != path:
            found(path, line, f"{other} has a static {name}(), too",
                  "Give each a name of its own, or have one of them for both.")


def check_budget():
    for what, most in (("lines", CORE_LINES), ("files", CORE_FILES)):
        if core_size[what] > most:
            found("core", 1, f"{core_size[what]} {what}, more than {most}",
                  "Look for what your change makes unnecessary, or move it to a plugin.")


def main():
    check_cycles()
    names = plugin_names()
    count = 0
    for path in files():
        if len(path.parts) < 2 or path.parts[0] not in ("core", "include", "plugins",
                                                        "tools"):
            continue
        try:
            text = (ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            found(path, 1, "is not UTF-8 text", "Keep binaries out of these folders.")
            continue
        count += 1
        if path.suffix in (".c", ".h", ".cu", ".cuh"):
            check_includes(path, text)
        check_rules(path, text)
        check_modes(path, text)
        if path.parts[0] in ("core", "tools"):
            check_names(path, text, names)
        if path.parts[0] == "core" and path.suffix in (".c", ".h"):
            check_statics(path, text)
            core_size.update(files=1, lines=text.count("\n"))
    check_circles()
    check_budget()
    for finding in findings:
        print(finding)
    if count == 0:
        print("layering: found no files to read")
        return 1
    print(f"layering: {count} files, {len(names)} plugins, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
