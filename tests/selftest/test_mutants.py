#!/usr/bin/env python3
"""Tests tests/mutants.py on a project of two functions and three tests."""
import json
import pathlib
import subprocess
import sys
import tempfile

TOOL = pathlib.Path(__file__).resolve().parents[1] / "mutants.py"

PROJECT = {
    "CMakeLists.txt": """
cmake_minimum_required(VERSION 3.20)
project(small C)
enable_testing()
add_library(small SHARED small.c)
foreach(name add wait both)
  add_executable(test_${name} test_${name}.c)
  target_link_libraries(test_${name} small)
  set_target_properties(test_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/bin)
  add_test(NAME test_${name} COMMAND test_${name})
endforeach()
""",
    "CMakePresets.json": json.dumps({"version": 3, "configurePresets": [
        {"name": "check", "generator": "Ninja", "binaryDir": "${sourceDir}/build"}]}),
    "small.c": """
int add(int a, int b);
int turns(int most);
int add(int a, int b) {
    return a + b;
}
int turns(int most) {
    volatile int i = 0;
    while (i < most)
        i = i + 1;
    return i;
}
""",
    "test_add.c": "int add(int, int);\nint main(void) { return add(2, 3) != 5; }\n",
    "test_wait.c": "int turns(int);\nint main(void) { return turns(3) != 3; }\n",
    "test_both.c": "int add(int, int);\nint main(void) { return add(1, 1) != 2; }\n",
    "tests/mutants.txt": """# some
= sums
first: test_add
wider: test_both

@ sums.minus small.c
-return a + b;
+return a - b;

@ sums.same small.c
-    return a + b;
+    return b + a;

@ sums.product small.c
-a + b
+a * b

@ sums.broken small.c
-return a + b;
+return a + ;

= turns
first: test_w*

@ turns.endless small.c
-        i = i + 1;
+        i = i + 0;
""",
}
failures = 0


def expect(what, found):
    global failures
    if not found:
        failures += 1
        print(f"test_mutants: {what}", file=sys.stderr)


def run(folder, *words):
    done = subprocess.run([sys.executable, TOOL, "--source", folder, "--list", folder / "tests/mutants.txt",
                           "--patience", "2", *words],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    return done.returncode, done.stdout


def test_results(folder):
    code, said = run(folder, "--check")
    expect(f"the list fits: {code} {said}", code == 0 and "5 in 2 areas" in said)
    code, said = run(folder)
    results = json.loads((folder / "build/mutants/results.json").read_text())
    state = {name: found["state"] for name, found in results.items()}
    expect(f"states: {state}", state == {
        "sums.minus": "noticed", "sums.same": "survived", "sums.product": "noticed",
        "sums.broken": "does not build", "turns.endless": "noticed"})
    # test_add noticed all mutants of the area, so the other test was run as well.
    expect(f"a second opinion: {results}", results["sums.minus"]["by"] == ["test_add", "test_both"])
    expect(f"a hang is noticed: {results}", results["turns.endless"]["by"] == ["test_wait"])
    expect(f"what is wrong with it: {said}", code == 1 and "75% noticed" in said and "sums.broken" in said)
    expect("the sources are as they were", (folder / "small.c").read_text() == PROJECT["small.c"] and
           (folder / "build/mutants/tree-0/small.c").read_text() == PROJECT["small.c"])
    code, said = run(folder, "--report", "--write", folder / "table.md")
    table = (folder / "table.md").read_text()
    expect(f"the table: {table}", "| sums | 4 | 3 | 2 | test_add 2, test_both 1 |" in table and "- sums.same" in table)


def test_goes_on(folder):
    """Only mutants without a result, or changed ones, are tried."""
    code, said = run(folder, "--area", "turns")
    expect(f"nothing is tried twice: {said}", "turns.endless:" not in said)
    path = folder / "tests/mutants.txt"
    path.write_text(path.read_text().replace("i = i + 0;", "i = i + 2;"))
    code, said = run(folder, "--area", "turns")
    expect(f"a changed one is: {said}", "turns.endless: noticed test_wait" in said)
    code, said = run(folder, "sums.same")
    expect(f"one by name: {said}", "sums.same: survived" in said and "sums.minus:" not in said)
    expect("a name that is not there", run(folder, "sums.none")[0] == 2)


def test_stale(folder):
    """Entries that no longer fit the sources are named."""
    path = folder / "tests/mutants.txt"
    for old, new, says in ((" a + b;", " a+b;", "occurs 0 times"), ("-a + b\n", "-int\n", "times in small.c, not once"),
                           ("+    return b + a;", "+    return a + b;", "changes nothing"),
                           ("@ sums.same", "@ sums.minus", "is not unique"),
                           ("@ sums.same small.c", "@ sums.same gone.c", "No such file"),
                           ("first: test_add", "first: test_none", "which does not exist"),
                           ("# some", "some", "neither an area")):
        whole = path.read_text()
        path.write_text(whole.replace(old, new))
        code, said = run(folder, "--check", "--tests", folder / "build/mutants/tree-0/build")
        expect(f"{says}: {code} {said}", code == 2 and says in said)
        path.write_text(whole)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name).resolve()
        for file, text in PROJECT.items():
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).write_text(text)
        test_results(folder)
        test_goes_on(folder)
        test_stale(folder)
    return failures != 0


if __name__ == "__main__":
    sys.exit(main())
