#!/usr/bin/env python3
"""Counts the results in ctest's JUnit files, prints "N passed, N failed", and checks that
each step ran the tests that tests/list.txt names for it.

count.py [--whole STEP]... FILE.xml...
    prints skipped, failed and missing tests by name, then the line; fails if anything
    failed or nothing passed. The step is the stem of the file name. --whole: the step was
    to run all of its tests, so a test that the list names and that did not run, or that
    ran and is not in the list, is a failure. So is a skipped test, unless the list says
    that it may skip, and with which words in its output. STEP.again.xml has another run of
    tests that failed, without others beside them: those that pass then are printed as
    unstable, and count as passed if they are few.
count.py --fail WHAT FILE
    writes a file with one failure named WHAT
count.py --write STEP=JSON...
    rewrites tests/list.txt from the output of `ctest --show-only=json-v1` for these
    steps; keeps the conditions
--list FILE, --features FILE: other files than tests/list.txt and build/tests/features.txt

A line of the list:  NAME: STEP...[; needs FEATURE][; may skip: WORDS [| WORDS]...]
A test may skip if its output contains one of the WORDS. The same goes for parts of a test,
[; may skip parts: WORDS [| WORDS]...], and the reason given for a part. A part is a test
case of a Python program, which prints "OK (skipped=N)" at its end, and the reasons if it
runs with verbosity=2.
"""

import argparse
import json
import pathlib
import re
import sys
import xml.etree.ElementTree as xml

HERE = pathlib.Path(__file__).resolve().parent
HEAD = """\
# The tests that each step of `make check` must run (tests/count.py); a missing test is a
# failure. After a test was added or removed, `tests/run.sh list` rewrites this file. The
# conditions, "needs cuda", "may skip: WORDS [| WORDS]..." (the whole test) and "may skip
# parts: WORDS [| WORDS]..." (cases in it), are written by hand.
"""
MOST_UNSTABLE = 2  # of all steps: more are a failure each
CONDITIONS = ("needs ", "may skip: ", "may skip parts: ")
PARTS_SKIPPED = re.compile(r"^OK \(.*?\bskipped=(\d+)", re.MULTILINE)
PART_SKIPPED = re.compile(r"\bskipped (['\"])(.*)\1$", re.MULTILINE)


def read_list(path):
    """{name: (steps, {condition: value})}"""
    tests = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        name, _, rest = line.partition(": ")
        steps, *conditions = rest.split("; ")
        tests[name] = (steps.split(), {})
        for condition in conditions:
            for key in CONDITIONS:
                if condition.startswith(key):
                    tests[name][1][key.strip(" :")] = condition[len(key):]
    return tests


def write_list(path, steps, features):
    """Rewrites the list, keeping the conditions of each test, and the tests that need what
    this build does not have."""
    old = read_list(path) if path.exists() else {}
    tests = {name: list(ran_by) for name, (ran_by, conditions) in old.items()
             if conditions.get("needs", "") not in ("", *features)}
    for step, file in steps:
        for test in json.loads(pathlib.Path(file).read_text(encoding="utf-8"))["tests"]:
            tests.setdefault(test["name"], []).append(step)
    with open(path, "w", encoding="utf-8") as out:
        out.write(HEAD)
        for name in sorted(tests):
            line = f"{name}: {' '.join(tests[name])}"
            for key, value in old.get(name, ([], {}))[1].items():
                line += f"; {key}{'' if key == 'needs' else ':'} {value}"
            out.write(line + "\n")


def passed(case):
    return case.get("status") == "run" and case.find("failure") is None


class Count:
    """The results of all steps; prints problems as it goes."""

    def __init__(self, tests, features, whole):
        self.tests, self.features, self.whole = tests, features, whole
        self.passed = self.failed = 0
        self.unstable = []

    def fail(self, name, why=""):
        self.failed += 1
        print(f"FAILED   {name}{': ' if why else ''}{why}")

    def case(self, step, case):
        name = f"{step}: {case.get('name')}"
        skip = case.find("skipped")
        if passed(case):
            self.parts(name, case)
        elif case.get("status") == "disabled":
            self.fail(name, "the test is disabled")
        elif skip is not None and "SKIP" in skip.get("message", ""):
            self.skip(name, case)
        else:
            self.fail(name)

    def allows(self, case, condition, output):
        _, conditions = self.tests.get(case.get("name"), ([], {}))
        return any(words in output
                   for words in conditions.get(condition, "\0").split(" | "))

    def parts(self, name, case):
        """Counts a test that passed, unless cases of it were skipped that may not be."""
        output = case.findtext("system-out") or ""
        number = sum(int(count) for count in PARTS_SKIPPED.findall(output))
        reasons = [reason for _, reason in PART_SKIPPED.findall(output)]
        reasons += ["it doesn't say why"] * (number - len(reasons))
        refused = [reason for reason in reasons
                   if not self.allows(case, "may skip parts", reason)]
        if number and refused:
            self.fail(name, "parts of it were skipped, which tests/list.txt doesn't "
                      f"allow: {'; '.join(refused)}")
            return
        self.passed += 1
        for reason in reasons if number else []:
            print(f"skipped  {name}, a part: {reason}")

    def skip(self, name, case):
        output = (case.findtext("system-out") or "").strip()
        reason = output.splitlines()[-1] if output else "it doesn't say why"
        if self.allows(case, "may skip", output):
            print(f"skipped  {name}: {reason}")
        else:
            self.fail(name, f"skipped, but tests/list.txt does not allow that: {reason}")

    def step(self, step, cases, again):
        """again: the cases of the second run, by name."""
        for case in cases:
            second = again.get(case.get("name"))
            if case.find("failure") is not None and second is not None and passed(second):
                self.unstable.append((step, second))
            else:
                self.case(step, case)
        if step in self.whole:
            self.compare(step, {case.get("name") for case in cases})

    def compare(self, step, ran):
        left_out = 0
        for name, (steps, conditions) in sorted(self.tests.items()):
            if step not in steps or name in ran:
                continue
            if conditions.get("needs", "") in ("", *self.features):
                self.fail(f"{step}: {name}", "it did not run")
            else:
                left_out += 1
        if left_out:
            print(f"left out {step}: {left_out} tests that need features which this build "
                  "does not have ('needs' in tests/list.txt)")
        for name in sorted(ran):
            if step not in self.tests.get(name, ([],))[0]:
                self.fail(f"{step}: {name}", "not in tests/list.txt; update it with "
                          "`tests/run.sh list`")

    def judge_unstable(self):
        for step, case in self.unstable:
            name = f"{step}: {case.get('name')}"
            print(f"UNSTABLE {name}: failed beside other tests, passed alone")
            if len(self.unstable) > MOST_UNSTABLE:
                self.fail(name, "one of too many unstable tests")
            else:
                self.case(step, case)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--whole", action="append", default=[])
    parser.add_argument("--fail", nargs=2)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--list", type=pathlib.Path, default=HERE / "list.txt")
    parser.add_argument("--features", type=pathlib.Path,
                        default=HERE.parent / "build/tests/features.txt")
    parser.add_argument("files", nargs="*")
    given = parser.parse_args()
    if given.fail:
        suite = xml.Element("testsuite")
        case = xml.SubElement(suite, "testcase", name=given.fail[0], status="fail")
        xml.SubElement(case, "failure", message="did not succeed")
        xml.ElementTree(suite).write(given.fail[1])
        return 0
    features = given.features.read_text().split() if given.features.exists() else []
    if given.write:
        write_list(given.list, [word.split("=", 1) for word in given.files], features)
        return 0
    count = Count(read_list(given.list), features, given.whole)
    found = {pathlib.Path(file).stem: list(xml.parse(file).getroot().iter("testcase"))
             for file in given.files}
    again = {step: {case.get("name"): case for case in found.pop(f"{step}.again", [])}
             for step in list(found) if not step.endswith(".again")}
    for step in [*found, *(step for step in given.whole if step not in found)]:
        count.step(step, found.get(step, []), again.get(step, {}))
    count.judge_unstable()
    print(f"{count.passed} passed, {count.failed} failed")
    return 1 if count.failed or not count.passed else 0


if __name__ == "__main__":
    sys.exit(main())
