#!/usr/bin/env python3
"""Sums ctest's JUnit files into one line: "N passed, N failed".

count.py FILE.xml...          prints skips and failures by name, then the line;
                              fails if anything failed or nothing passed
count.py --fail WHAT FILE     writes a file that holds one failure named WHAT
"""

import pathlib
import sys
import xml.etree.ElementTree as xml


def main(arguments):
    if arguments[:1] == ["--fail"]:
        suite = xml.Element("testsuite")
        case = xml.SubElement(suite, "testcase", name=arguments[1], status="fail")
        xml.SubElement(case, "failure", message="did not succeed")
        xml.ElementTree(suite).write(arguments[2])
        return 0
    passed = failed = 0
    for file in arguments:
        step = pathlib.Path(file).stem
        for case in xml.parse(file).getroot().iter("testcase"):
            name = f"{step}: {case.get('name')}"
            skip = case.find("skipped")
            if case.get("status") == "run" and case.find("failure") is None:
                passed += 1
            elif skip is not None and "SKIP" in skip.get("message", ""):
                print(f"skipped  {name}")
            elif case.get("status") == "disabled":
                print(f"disabled {name}")
            else:
                failed += 1
                print(f"FAILED   {name}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
