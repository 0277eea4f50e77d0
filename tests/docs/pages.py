#!/usr/bin/env python3
"""Checks README.md and docs/: README.md has at most 80 lines, ARCHITECTURE.md 300; every
link leads to an existing file (and heading); files of this tree that are named exist;
README.md links to every page; and every command is in a block ```sh, which commands.py runs.

pages.py [FOLDER]    FOLDER: check another tree
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
ROOT = ROOT if len(sys.argv) > 1 else ROOT.parents[2]
# Lines of a page, and where what is too much goes.
MOST = {"README.md": (80, "docs/"), "ARCHITECTURE.md": (300, "docs/design/")}
COMMAND = re.compile(r"\s*(\$ )?(sudo )?(dlcore|make|mpirun|srun|torchrun|cmake|ninja|apt|"
                     r"[A-Z_]+=\S+ dlcore|packaging/|tools/|\./|build/bin/)")
# A file of this tree. (docs/ and what follows it may be another project's.)
NAMED = re.compile(r"`((?:bench|cmake|core|examples|include|models|packaging|plugins|tests|tools)"
                   r"/[\w./-]*\w)`")
# Pages whose commands another test runs: which one.
ELSEWHERE = {"docs/writing-plugins.md": "tests/sdk/sdk.py docs"}

findings = []


def found(path, line, what):
    findings.append(f"{path.relative_to(ROOT)}:{line}: error: {what}")


def anchors(path):
    """The anchors that GitHub makes for headings."""
    heads = re.findall(r"^#+ +(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def check_link(path, line, target):
    if re.match(r"[a-z]+:", target):
        return None
    name, _, anchor = target.partition("#")
    leads = (path.parent / name).resolve() if name else path
    if not leads.exists():
        found(path, line, f"the link {target} is broken")
    elif anchor and leads.suffix == ".md" and anchor not in anchors(leads):
        found(path, line, f"{name or path.name} has no heading #{anchor}")
    elif path.parent == ROOT / "docs" and (ROOT / "docs") not in leads.parents:
        found(path, line, f"the link {target} is broken where docs/ is installed")
    return leads


def check_names(path, number, line):
    for name in NAMED.findall(line):
        if not (ROOT / name).exists():
            found(path, number, f"there is no {name}")


def check_length(path):
    lines = len(path.read_text(encoding="utf-8").splitlines())
    most, elsewhere = MOST.get(path.name, (lines, ""))
    if lines > most:
        found(path, lines, f"{lines} lines, more than {most}: move something to {elsewhere}")
    return lines


def check_page(path):
    """Checks a page and returns the targets of its links."""
    leads, fence = set(), None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```"):
            fence = None if fence is not None else line[3:].strip()
            continue
        known = str(path.relative_to(ROOT)) in ELSEWHERE
        if fence is None:
            check_names(path, number, line)
            for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
                leads.add(check_link(path, number, target))
            if line.startswith("    ") and COMMAND.match(line) and not known:
                found(path, number, "a command outside a block ```sh is not tested")
        elif fence in ("", "shell", "bash", "console") and COMMAND.match(line) and not known:
            found(path, number, f"commands belong in a block ```sh, not ```{fence}")
    if fence is not None:
        found(path, 1, "a block ``` is not closed")
    return leads


def main():
    readme = ROOT / "README.md"
    lines = check_length(readme)
    leads = check_page(readme)
    pages = sorted((ROOT / "docs").glob("*.md"))
    if len(pages) < 10:
        found(readme, 1, f"only {len(pages)} pages in docs/")
    for page in pages:
        check_page(page)
        if page not in leads:
            found(page, 1, "README.md does not link to this page")
    for page in [*ROOT.glob("docs/results/*.md"), *ROOT.glob("docs/design/*.md")]:
        check_page_links(page)
    for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"):
        if (ROOT / name).is_file():
            check_page_links(ROOT / name)
            check_length(ROOT / name)
    print("\n".join(findings))
    print(f"pages: README.md has {lines} lines; {len(pages)} pages, "
          f"{len(findings)} findings")
    return 1 if findings else 0


def check_page_links(path):
    """Checks links and names of files: for results, and for pages for developers."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        check_names(path, number, line)
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
            check_link(path, number, target)


if __name__ == "__main__":
    sys.exit(main())
