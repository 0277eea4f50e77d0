#!/usr/bin/env python3
"""Tests docs/net-ini.md and dlcore-net.ini(5): up to date with the option tables, and complete.

Usage: manual.py SOURCE BUILD
"""

import difflib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE, BUILD = (pathlib.Path(path) for path in (sys.argv.pop(1), sys.argv.pop(1)))
BIN = os.environ["DLCORE_BIN"]
PAGE = SOURCE / "docs/net-ini.md"
sys.path.insert(0, str(SOURCE / "packaging/man"))
import net_ini  # noqa: E402 (packaging/man is where it is)

# Without their libraries these are not built (cmake/testing.cmake allows nothing else).
GPU = {"cuda", "cudnn", "nccl"}


def run(*command, **more):
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=200, check=False, **more)


def stale(committed, made, whole):
    """What differs. Where plugins were not built, their lines stand in the committed page alone."""
    lines = difflib.unified_diff(committed.splitlines(), made.splitlines(), "docs/net-ini.md",
                                 "the tables", lineterm="", n=0)
    found = [line for line in lines if not line.startswith(("@@", "---", "+++"))]
    return [line for line in found if whole or not line.startswith("-")]


class Manual(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.committed = PAGE.read_text(encoding="utf-8")
        cls.made, cls.plugins = net_ini.manual(BIN)
        cls.document = net_ini.inspect(BIN)
        every = {path.parent.name for path in SOURCE.glob("plugins/*/*/CMakeLists.txt")
                 if "dlc_add_plugin(" in path.read_text()}
        cls.missing = every - cls.plugins

    def test_is_of_today(self):
        self.assertLessEqual(self.missing, GPU)
        found = stale(self.committed, self.made, not self.missing)
        self.assertFalse(found, "docs/net-ini.md is not what the option tables say: run `make docs`\n"
                         + "\n".join(found))

    def test_staleness_is_noticed(self):
        """Also where some plugins are missing: every line that was made must be there."""
        lines = self.made.splitlines()
        rows = [i for i, line in enumerate(lines) if line.startswith("| `")]
        self.assertGreater(len(rows), 150)
        for i in (rows[0], rows[len(rows) // 2], rows[-1]):
            for changed in ([], [lines[i] + " more"]):
                page = "\n".join(lines[:i] + changed + lines[i + 1:])
                for whole in (True, False):
                    self.assertTrue(stale(page, self.made, whole), lines[i])
        self.assertTrue(stale(self.made + "| `old` | text | - | gone |\n", self.made, True))

    def test_families_must_agree(self):
        """One net.ini goes for every device, so that a page can have one table of a layer."""
        relu = next(f for p in self.document["plugins"] for f in p["features"] if f["name"] == "relu")
        other = json.loads(json.dumps(relu))
        other["options"][0]["default"] = "9"
        with self.assertRaisesRegex(ValueError, "relu: plugins one and two differ in options"):
            net_ini.one_feature("relu", [("one", relu), ("two", other)])

    def test_every_key_is_there(self):
        """With its default and its help, under its own heading."""
        parts = {part.partition("\n")[0]: part for part in re.split(r"(?m)^##+ ", self.committed)}
        tables = [(s["title"], s["options"]) for s in self.document["sections"]]
        tables += [(f["name"], f["options"]) for p in self.document["plugins"] for f in p["features"]]
        for where, options in tables:
            for option in options:
                row = [line for line in parts[where].splitlines() if line.startswith(f"| `{option['name']}` |")]
                self.assertEqual(len(row), 1, f"{where} {option['name']}")
                self.assertIn(option["help"].replace("|", "\\|"), row[0])
                if option["default"]:
                    self.assertIn(f"| `{option['default']}` |", row[0])

    def test_examples_are_sound(self):
        examples = re.findall(r"^```ini\n(.*?)^```$", self.committed, re.M | re.S)
        self.assertGreaterEqual(len(examples), 2)
        with tempfile.TemporaryDirectory() as folder:
            for i, text in enumerate(examples):
                net = pathlib.Path(folder) / f"{i}.ini"
                net.write_text(text)
                done = run(BIN, "check", net, "--set=train.device=cpu")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertNotIn("warning", done.stderr)

    def test_links_lead_somewhere(self):
        headings = re.findall(r"(?m)^##+ (.*)$", self.committed)
        for name in re.findall(r"see ([A-Z][\w ]*)\.", self.committed):
            self.assertIn(name, headings)


class Page(unittest.TestCase):
    """dlcore-net.ini(5), made from the committed page."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        done = run(sys.executable, SOURCE / "packaging/man/pages.py", PAGE, "1.2.3", cls.folder.name)
        assert done.returncode == 0, done.stderr
        cls.page = pathlib.Path(cls.folder.name) / "dlcore-net.ini.5"

    def test_is_sound(self):
        done = run("mandoc", "-Tlint", "-Wwarning", self.page)
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        if shutil.which("man"):
            done = run("man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", self.page,
                       env=dict(os.environ, LC_ALL="C.UTF-8", MANWIDTH="80"))
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_has_every_key(self):
        text = re.sub(".\b", "", run("mandoc", "-Tutf8", "-Owidth=200", self.page).stdout)
        self.assertRegex(text, r"DLCORE-NET\.INI\(5\)")
        for line in PAGE.read_text(encoding="utf-8").splitlines():
            if line.startswith("| `"):
                term = line.split("`")[1]
                self.assertTrue(re.search(rf"(?m)^ +{re.escape(term)}(?!\w)", text), line)
        for phrase in ("\n[data.test]\n", "size   bytes: 65536", "test_interval", "--set section.key=value",
                       "whole number, 0 .. 65536; default 0"):
            self.assertIn(phrase, text)
        self.assertFalse(re.findall(r"\\|\| ?---|\*\*", text))

    def test_is_installed(self):
        built = BUILD / "packaging/man/man5/dlcore-net.ini.5"
        self.assertEqual(built.read_text().split("\n", 1)[1], self.page.read_text().split("\n", 1)[1])
        for file in ("packaging/debian/dlcore.install", "packaging/rpm/dlcore.spec"):
            self.assertIn("man5", (SOURCE / file).read_text())


if __name__ == "__main__":
    unittest.main(verbosity=2)
