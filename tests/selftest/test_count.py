"""Tests tests/count.py: a missing, unknown or unexpectedly skipped test is a failure, and so
is an unexpectedly skipped part of a test."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from xml.sax.saxutils import escape

COUNT = pathlib.Path(os.environ["DLCORE_SOURCE_DIR"]) / "tests/count.py"
LIST = """\
# names
alpha: release asan valgrind
beta: release; needs cuda
gamma: release; may skip: no GPU | no root
"""
PASSED = '<testcase name="{}" status="run"/>'
PASSED_SAYING = ('<testcase name="{}" status="run"><system-out>{}</system-out>'
                 "</testcase>")
FAILED = '<testcase name="{}" status="fail"><failure message="x"/></testcase>'
SKIPPED = ('<testcase name="{}" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/>'
           "<system-out>skipped: {}</system-out></testcase>")
NOT_FOUND = ('<testcase name="{}" status="notrun"><skipped message="Unable to find '
             'executable"/></testcase>')
DISABLED = '<testcase name="{}" status="disabled"><skipped message="Disabled"/></testcase>'


class Counting(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.list = self.folder / "list.txt"
        self.list.write_text(LIST)
        self.features = self.folder / "features.txt"
        self.features.write_text("")

    def count(self, results, whole=("release",)):
        """results: {step: cases}. Returns the exit code and the output."""
        words = []
        for step, cases in results.items():
            file = self.folder / f"{step}.xml"
            file.write_text(f"<testsuite>{''.join(cases)}</testsuite>")
            words.append(file)
        for step in whole:
            words += ["--whole", step]
        done = subprocess.run(
            [sys.executable, COUNT, "--list", self.list, "--features", self.features,
             *words], capture_output=True, text=True, check=False)
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout

    def expect(self, results, code, *said, **more):
        found, output = self.count(results, **more)
        self.assertEqual(found, code, output)
        for words in said:
            self.assertIn(words, output)

    def test_all_required_tests_ran(self):
        self.expect({"release": [PASSED.format("alpha"), PASSED.format("gamma")]}, 0,
                    "left out release: 1 test", "2 passed, 0 failed")

    def test_passed_alone(self):
        names = ("alpha", "gamma", "delta")
        self.list.write_text("".join(f"{name}: release\n" for name in names))
        for failed, code, said in ((2, 0, "3 passed, 0 failed"), (3, 1, "0 passed, 3 failed")):
            first = [(FAILED if i < failed else PASSED).format(name)
                     for i, name in enumerate(names)]
            again = [PASSED.format(name) for name in names[:failed]]
            self.expect({"release": first, "release.again": again}, code, said,
                        *(f"UNSTABLE release: {name}" for name in names[:failed]))

    def test_failed_again(self):
        cases = [FAILED.format("alpha"), PASSED.format("gamma")]
        self.expect({"release": cases, "release.again": [FAILED.format("alpha")]}, 1,
                    "FAILED   release: alpha", "1 passed, 1 failed")

    def test_missing(self):
        self.expect({"release": [PASSED.format("alpha")]}, 1,
                    "FAILED   release: gamma: it did not run", "1 passed, 1 failed")

    def test_missing_test_of_a_present_feature(self):
        self.features.write_text("cuda\n")
        self.expect({"release": [PASSED.format("alpha"), PASSED.format("gamma")]}, 1,
                    "FAILED   release: beta: it did not run")

    def test_a_new_list_keeps_what_this_build_lacks(self):
        made = self.folder / "release.json"
        made.write_text('{"tests": [{"name": "delta"}, {"name": "gamma"}]}')
        subprocess.run([sys.executable, COUNT, "--list", self.list, "--features", self.features,
                        "--write", f"release={made}"], check=True)
        lines = [line for line in self.list.read_text().splitlines() if not line.startswith("#")]
        self.assertEqual([line.split(":")[0] for line in lines], ["beta", "delta", "gamma"])
        self.assertIn("needs cuda", lines[0])

    def test_a_step_without_tests(self):
        self.expect({"release": [PASSED.format("alpha"), PASSED.format("gamma")],
                     "valgrind": []}, 1, "FAILED   valgrind: alpha: it did not run",
                    whole=("release", "valgrind"))

    def test_a_step_without_results(self):
        self.expect({"release": [PASSED.format("alpha"), PASSED.format("gamma")]}, 1,
                    "FAILED   asan: alpha: it did not run", whole=("release", "asan"))

    def test_a_partial_run_misses_nothing(self):
        self.expect({"release": [PASSED.format("alpha")]}, 0, "1 passed, 0 failed",
                    whole=())

    def test_nothing_at_all(self):
        self.expect({}, 1, "0 passed, 0 failed", whole=())

    def test_unknown(self):
        self.expect({"release": [PASSED.format(name) for name in ("alpha", "gamma", "new")]},
                    1, "FAILED   release: new: not in tests/list.txt")

    def test_skips(self):
        for words, code in (("no GPU", 0), ("no root here", 0), ("no mpirun", 1)):
            self.expect({"release": [PASSED.format("alpha"),
                                     SKIPPED.format("gamma", words)]}, code, words)
        self.expect({"release": [SKIPPED.format("alpha", "no GPU"),
                                 PASSED.format("gamma")]}, 1, "does not allow that: skipped: no GPU")

    def test_parts_that_are_skipped(self):
        """Test cases of a program that passes as a whole."""
        self.list.write_text("alpha: release\n"
                             "beta: release; may skip parts: no root | it's late\n"
                             "gamma: release; may skip: no root\n")
        one = "test_x (__main__.A.test_x) ... skipped 'no root here'\n\nOK (skipped=1)\n"
        late = 'test_y (__main__.A) ... noise\nskipped "it\'s late"\n'
        two = late + one.replace("=1", "=2")
        for name, output, said in (
                ("beta", one, "skipped  release: beta, a part: no root here"),
                ("beta", two, "a part: it's late"),
                ("beta", one.replace("(skipped=1)", "(expected failures=1, skipped=1)"),
                 "a part: no root here"),
                ("alpha", "skipped 'of another program'\nOK\n", "")):
            others = [PASSED.format(other) for other in ("alpha", "beta", "gamma")
                      if other != name]
            self.expect({"release": [*others, PASSED_SAYING.format(name, escape(output))]},
                        0, said, "3 passed, 0 failed")
        for name, output, said in (
                ("alpha", one, "no root here"), ("gamma", one, "no root here"),
                ("beta", two.replace("=2", "=3"), "it doesn't say why"),
                ("beta", one.replace("no root", "no mount"), "no mount here"),
                ("beta", "OK (skipped=1)\n", "it doesn't say why")):
            self.expect({"release": [PASSED_SAYING.format(name, escape(output))]},
                        1, f"FAILED   release: {name}: parts of it were skipped", said,
                        whole=())

    def test_failures(self):
        for case in (FAILED, NOT_FOUND, DISABLED):
            self.expect({"release": [case.format("alpha"), PASSED.format("gamma")]}, 1,
                        "FAILED   release: alpha", "1 passed, 1 failed")

    def test_writing_keeps_conditions(self):
        shown = self.folder / "release.json"
        shown.write_text(json.dumps(
            {"tests": [{"name": name} for name in ("gamma", "new", "alpha", "beta",
                                                   "delta")]}))
        with open(self.list, "a", encoding="utf-8") as tests:
            tests.write("delta: release; may skip parts: no network\n")
        subprocess.run([sys.executable, COUNT, "--list", self.list, "--write",
                        f"release={shown}"], check=True)
        lines = [line for line in self.list.read_text().splitlines() if line[0] != "#"]
        self.assertEqual(lines, ["alpha: release", "beta: release; needs cuda",
                                 "delta: release; may skip parts: no network",
                                 "gamma: release; may skip: no GPU | no root",
                                 "new: release"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
