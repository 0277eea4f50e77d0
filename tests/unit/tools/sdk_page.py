#!/usr/bin/env python3
"""Tests docs/sdk.md: up to date with the headers, complete, and made with errors for headers
whose tables do not fit.

Usage: sdk_page.py SOURCE
"""

import pathlib
import re
import shutil
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(sys.argv.pop(1))
sys.path.insert(0, str(SOURCE / "packaging/man"))
import sdk  # noqa: E402 (packaging/man is where it is)


class Page(unittest.TestCase):
    def setUp(self):
        self.committed = (SOURCE / "docs/sdk.md").read_text(encoding="utf-8")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.include = pathlib.Path(folder.name)
        shutil.copytree(SOURCE / "include", self.include, dirs_exist_ok=True)

    def change(self, header, before, after):
        path = self.include / "dlcore" / header
        text = path.read_text(encoding="utf-8")
        self.assertIn(before, text)
        path.write_text(text.replace(before, after, 1), encoding="utf-8")

    def test_is_of_today(self):
        self.assertEqual(self.committed.splitlines(), sdk.page(SOURCE / "include").splitlines(),
                         "docs/sdk.md is not what the headers say: run `make docs`")

    def test_has_every_call(self):
        calls = [name for path in SOURCE.glob("include/dlcore/*.h") for struct in
                 re.findall(r"typedef struct \w+_ops \{(.*?)\n\}", path.read_text(), re.S)
                 for name in re.findall(r"\(\*(\w+)\)\(", struct)]
        self.assertGreater(len(calls), 60)
        for name in calls:
            self.assertRegex(self.committed, rf"(?m)^\| `{name}` \| \w")

    def test_every_call_has_a_sentence(self):
        for line in self.committed.splitlines():
            if re.match(r"\| `\w+` \| (required|optional)", line):
                self.assertRegex(line, r"\.+ \|$")

    def test_a_changed_sentence_is_noticed(self):
        self.change("device.h", "Creates a queue,", "Makes a queue,")
        self.assertIn("| Makes a queue, which", sdk.page(self.include))

    def test_a_changed_table_is_noticed(self):
        self.change("data.h", "describe      required", "describe      optional")
        self.assertIn("| `describe` | optional |", sdk.page(self.include))

    def test_every_call_must_be_in_a_table(self):
        self.change("transport.h", "     wakeup   ", "            ")
        with self.assertRaisesRegex(ValueError, "transport.h: dlc_transport_ops.wakeup is in no table"):
            sdk.page(self.include)

    def test_every_name_in_a_table_must_be_a_call(self):
        self.change("data.h", "     close  ", "     closet ")
        self.change("data.h", "     open   ", "     open close ")
        with self.assertRaisesRegex(ValueError, "closet"):
            sdk.page(self.include)

    def test_links_lead_somewhere(self):
        for link in re.findall(r"\]\(([\w.-]+)\)", self.committed):
            self.assertTrue((SOURCE / "docs" / link).exists(), link)


if __name__ == "__main__":
    unittest.main(verbosity=2)
