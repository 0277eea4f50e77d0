#!/usr/bin/env python3
"""Mutation testing: makes small mistakes, one at a time, and checks that a test fails.

tests/mutants.txt lists the mistakes (mutants) by area; its header explains the format. Each
is applied in a copy of the sources with its own build folder, under build/mutants. What
changed is built, and the tests of the area run, the fastest first, until one fails: those
of `first`, then those of `wider`. A test must fail twice to count; a hang counts too, if the
test hangs for twice as long the second time. Results are kept in
build/mutants/results.json, and another run continues from there.

    mutants.py                        runs every mutant without a result
    mutants.py --area job,topology    those of some areas
    mutants.py NAME...                these mutants, whether they have a result or not
    mutants.py --survivors            runs those again that no test noticed
    mutants.py --every-test NAME...   continues after the first test that fails
    mutants.py --report [--write F]   prints the table of results, or writes it to F
    mutants.py --check [--tests B]    only checks that every original text occurs exactly
                                      once, and that the build folder B has the tests

Exits with 1 if less than 90 % were noticed, if a single test accounts for everything that
is noticed in an area, or if a mutant could not be tried; with 2 if the list is wrong.
"""
import argparse
import concurrent.futures
import fcntl
import fnmatch
import hashlib
import json
import os
import pathlib
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree

SHARE = 0.9
OPINIONS = 3
GROUP_SECONDS = 3.0  # tests that take less than this together share one call of ctest


class Area:
    def __init__(self, name):
        self.name, self.first, self.wider, self.mutants = name, [], [], []


class Mutant:
    def __init__(self, name, area, file, line):
        self.name, self.area, self.file, self.line = name, area, file, line
        self.old, self.new = [], []

    def texts(self):
        return "\n".join(self.old), "\n".join(self.new)

    def key(self):
        text = "\0".join((self.file,) + self.texts())
        return hashlib.sha256(text.encode()).hexdigest()[:16]


# ---- The list ----------------------------------------------------------------------


def read_list(path):
    """-> areas, mistakes in the list."""
    areas, wrong, mutant = [], [], None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        where = f"{path}:{number}"
        if line.startswith("= "):
            areas.append(Area(line[2:].strip()))
            mutant = None
        elif line.startswith(("first:", "wider:")) and areas:
            setattr(areas[-1], line[:5], line[6:].split())
        elif line.startswith("@ ") and areas and len(line.split()) == 3:
            _, name, file = line.split()
            mutant = Mutant(name, areas[-1], file, number)
            areas[-1].mutants.append(mutant)
        elif line.startswith("-") and mutant:
            mutant.old.append(line[1:])
        elif line.startswith("+") and mutant:
            mutant.new.append(line[1:])
        elif line.strip() and not line.startswith("#"):
            wrong.append(f"{where}: neither an area nor a mutant nor a part of one: {line}")
    return areas, wrong


def check_list(source, path, areas, tests):
    """Mistakes in the list: it must fit the sources, and the tests if they are known."""
    wrong, names = [], set()
    for area in areas:
        if not area.first or not area.mutants:
            wrong.append(f"{path}: area {area.name} has no tests, or no mutants")
        for pattern in area.first + area.wider:
            if tests is not None and not fnmatch.filter(tests, pattern):
                wrong.append(f"{path}: area {area.name} names the test {pattern}, which does not exist")
        for mutant in area.mutants:
            where = f"{path}:{mutant.line}: {mutant.name}"
            old, new = mutant.texts()
            if mutant.name in names:
                wrong.append(f"{where}: the name is not unique")
            names.add(mutant.name)
            if not old or old == new:
                wrong.append(f"{where}: changes nothing")
                continue
            try:
                times = (source / mutant.file).read_text().count(old)
            except OSError as error:
                wrong.append(f"{where}: {mutant.file}: {error.strerror}")
                continue
            if times != 1:
                wrong.append(f"{where}: the original text occurs {times} times in {mutant.file}, not once")
    return wrong


def list_tests(build):
    """The tests of a build folder, each with its command."""
    shown = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"],
                           stdout=subprocess.PIPE, text=True, check=True).stdout
    return {test["name"]: test.get("command", []) for test in json.loads(shown)["tests"]}


# ---- One copy of the sources -------------------------------------------------------


def list_files(source):
    """The project's files, tracked or not; without git, all except build folders."""
    def git(*words):
        return subprocess.run(("git",) + words, cwd=source, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL).stdout.decode()
    if git("rev-parse", "--show-toplevel").strip() == str(source):
        names = git("ls-files", "-co", "--exclude-standard", "-z").split("\0")
    else:
        names = (str(path.relative_to(source)) for path in source.rglob("*"))
    return {name for name in names
            if name and not name.startswith(("build/", ".git/")) and (source / name).is_file()}


class Tree:
    """A copy of the sources that is built and mutated."""

    def __init__(self, source, folder, options):
        self.source, self.folder, self.options = source, folder, options
        self.build = folder / "build"
        self.commands, self.libraries, self.times = {}, [], {}
        self.hung = set()  # tests that ran into their time limit since the last mutant

    def prepare(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        self.copy()
        self.call(["cmake", "--preset", self.options.preset], "configure")
        self.call(["cmake", "--build", str(self.build)], "build")
        self.commands = list_tests(self.build)
        rules = subprocess.run(["ninja", "-C", str(self.build), "-t", "targets", "all"],
                               stdout=subprocess.PIPE, text=True, check=True).stdout
        for line in rules.splitlines():
            target, _, rule = line.rpartition(": ")
            if "_LINKER_" in rule and not target.startswith("tests/bin/"):
                self.libraries.append(target)

    def call(self, command, what):
        done = subprocess.run(command, cwd=self.folder, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            sys.exit(f"mutants: cannot {what} the unchanged sources:\n{done.stdout[-3000:]}")

    def copy(self):
        """Writes only files that differ, so that little is rebuilt."""
        wanted = list_files(self.source)
        for name in sorted(wanted):
            here, there = self.source / name, self.folder / name
            if there.is_file() and there.read_bytes() == here.read_bytes():
                continue
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(here, there)
        for folder, folders, files in os.walk(self.folder):
            if folder == str(self.folder) and "build" in folders:
                folders.remove("build")
            for file in files:
                there = pathlib.Path(folder, file)
                if str(there.relative_to(self.folder)) not in wanted:
                    there.unlink()

    def select(self, patterns):
        """The tests that match the patterns, the fastest first."""
        names = {name for pattern in patterns for name in fnmatch.filter(self.commands, pattern)}
        return sorted(names, key=lambda name: (self.times.get(name, 0.0), name))

    def make(self, tests):
        """Builds what the tests run; -> the compiler's output if that fails."""
        programs = {word for name in tests for word in self.commands[name]
                    if word.startswith(f"{self.build}/tests/bin/")}
        targets = self.libraries + sorted(os.path.relpath(program, self.build) for program in programs)
        done = subprocess.run(["ninja", "-C", str(self.build), "-j", str(self.options.build_jobs)] + targets,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.stdout if done.returncode else None

    def run(self, tests, stop, patience=1):
        """Runs tests in one call; -> {test: (failed, seconds)} of those that ran."""
        report = self.folder / "build" / "mutant.xml"
        report.unlink(missing_ok=True)
        limit = patience * max(self.options.patience + 8 * self.times.get(name, 5.0) for name in tests)
        command = ["ctest", "--test-dir", str(self.build), "--output-junit", str(report), "--timeout",
                   f"{limit:.0f}", "-R", "^(" + "|".join(re.escape(name) for name in tests) + ")$"]
        subprocess.run(command + (["--stop-on-failure"] if stop else []), stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.end_strays()
        ran = {}
        if report.exists():
            for case in xml.etree.ElementTree.parse(report).getroot().iter("testcase"):
                if case.get("status") in ("run", "fail"):
                    seconds = float(case.get("time", 0))
                    ran[case.get("name")] = (case.get("status") == "fail", seconds)
                    if seconds >= limit:
                        self.hung.add(case.get("name"))
        return ran

    def end_strays(self):
        """Kills what a hung test left behind: processes that run a program of this tree."""
        for process in pathlib.Path("/proc").iterdir():
            try:
                program = os.readlink(process / "exe") if process.name.isdigit() else ""
                if program.startswith(f"{self.build}/"):
                    os.kill(int(process.name), signal.SIGKILL)
            except OSError:
                pass

    def measure(self, tests, path):
        """Times the tests on unchanged sources, where all must pass; cached in a file."""
        if path.exists():
            self.times.update(json.loads(path.read_text()))
        for name in tests:
            if name in self.times:
                continue
            failed, seconds = self.run([name], True).get(name, (False, 0.0))
            if failed:
                failed, seconds = self.run([name], True).get(name, (False, 0.0))
            if failed:
                print(f"mutants: {name} fails on unchanged sources and is left out", file=sys.stderr)
                self.commands.pop(name)
                continue
            self.times[name] = seconds
            path.write_text(json.dumps(self.times, indent=1, sort_keys=True))

    def groups(self, tests):
        group, seconds = [], 0.0
        for name in tests:
            if group and seconds + self.times.get(name, 0.0) > GROUP_SECONDS:
                yield group
                group, seconds = [], 0.0
            group.append(name)
            seconds += self.times.get(name, 0.0)
        if group:
            yield group

    def noticed_by(self, tests, stop):
        """The tests that fail twice."""
        noticed = []
        for group in self.groups(tests):
            while group:
                ran = self.run(group, stop)
                failed = [name for name, (fails, _) in ran.items() if fails]
                # A test that hung gets twice the time, lest a busy machine looks like a mutant.
                sure = [name for name in failed if self.run([name], True, 2).get(name, (False, 0))[0]]
                noticed += sure
                if sure and stop:
                    return noticed
                # A test that failed only once stopped the others of its group.
                group = [name for name in group if failed and stop and name not in ran]
        return noticed

    def attempt(self, mutant, without=()):
        """Applies the mutant, builds, runs the tests; -> its result."""
        path, start = self.folder / mutant.file, time.time()
        whole = path.read_text()
        old, new = mutant.texts()
        result = {"key": mutant.key(), "area": mutant.area.name, "state": "survived", "by": []}
        path.write_text(whole.replace(old, new))
        seen = set(without)
        self.hung.clear()
        try:
            for patterns in (mutant.area.first, mutant.area.wider):
                tests = [name for name in self.select(patterns) if name not in seen]
                seen.update(tests)
                said = self.make(tests)
                if said:
                    return dict(result, state="does not build", said=said[-2000:])
                result["by"] += self.noticed_by(tests, not self.options.every_test)
                if result["by"]:
                    hung = sorted(self.hung & set(result["by"]))
                    return dict(result, state="noticed", hung=hung, seconds=round(time.time() - start))
            return dict(result, seconds=round(time.time() - start))
        finally:
            path.write_text(whole)


# ---- All of them -------------------------------------------------------------------


class Results:
    def __init__(self, path):
        self.path, self.lock = path, threading.Lock()
        self.of = json.loads(path.read_text()) if path.exists() else {}

    def get(self, mutant):
        found = self.of.get(mutant.name)
        return found if found and found["key"] == mutant.key() else None

    def put(self, mutant, result):
        with self.lock:
            known = self.get(mutant)
            if known and known["state"] == result["state"]:
                result["by"] = sorted(set(known["by"]) | set(result["by"]))
            self.of[mutant.name] = result
            fresh = self.path.with_suffix(".new")
            fresh.write_text(json.dumps(self.of, indent=1, sort_keys=True))
            fresh.replace(self.path)


def only_witness(area, results):
    """The only test that notices any mutant of the area, or None."""
    sets = [set(found["by"]) for found in map(results.get, area.mutants)
            if found and found["state"] == "noticed"]
    every = set().union(*sets) if sets else set()
    return every.pop() if len(every) == 1 and len(sets) > 1 else None


def run_all(trees, jobs, results, options):
    free = queue.Queue()
    for tree in trees:
        free.put(tree)
    lock = threading.Lock()

    def one(mutant, without):
        tree = free.get()
        try:
            result = tree.attempt(mutant, without)
        finally:
            free.put(tree)
        if not without or result["state"] == "noticed":
            results.put(mutant, result)
        with lock:
            print(f"{mutant.name}: {result['state']} {' '.join(result['by'])} "
                  f"({result.get('seconds', 0)} s)", flush=True)
            if options.verbose and "said" in result:
                print(result["said"])

    with concurrent.futures.ThreadPoolExecutor(len(trees)) as pool:
        for done in [pool.submit(one, mutant, without) for mutant, without in jobs]:
            done.result()


def second_opinions(trees, areas, results, options):
    """If a single test noticed all mutants of an area, runs the others for a few."""
    for area in areas:
        noticed = [m for m in area.mutants if (results.get(m) or {}).get("state") == "noticed"]
        for mutant in noticed[:OPINIONS]:
            witness = only_witness(area, results)
            if witness:
                run_all(trees[:1], [(mutant, (witness,))], results, options)


def summarize(areas, results):
    """-> the table as lines of Markdown, problems."""
    lines = ["| area | mutants | tried | noticed | by |", "| --- | ---: | ---: | ---: | --- |"]
    wrong, survivors, tried, noticed = [], [], 0, 0
    for area in areas:
        counts, hits, ran = {}, 0, 0
        for mutant in area.mutants:
            found = results.get(mutant)
            if not found or found["state"] == "does not build":
                wrong += [f"{mutant.name}: does not build"] if found else []
                continue
            ran += 1
            hits += found["state"] == "noticed"
            if found["state"] == "survived":
                survivors.append(mutant)
            for name in found["by"]:
                counts[name] = counts.get(name, 0) + 1
        by = ", ".join(f"{name} {n}" for name, n in sorted(counts.items(), key=lambda x: (-x[1], x[0])))
        lines.append(f"| {area.name} | {len(area.mutants)} | {ran} | {hits} | {by} |")
        tried, noticed = tried + ran, noticed + hits
        witness = only_witness(area, results)
        if witness:
            wrong.append(f"only {witness} notices mutants of area {area.name}")
    total = sum(len(area.mutants) for area in areas)
    share = noticed / tried if tried else 1
    lines += [f"| all | {total} | {tried} | {noticed} ({share:.0%} of those tried) | |", ""]
    if share < SHARE:
        wrong.append(f"{share:.0%} noticed, less than {SHARE:.0%}")
    lines += ["Not noticed:", ""] + ([f"- {m.name}: `{m.file}`" for m in survivors] or ["- none"])
    return lines, wrong


def detail(areas, results):
    lines = ["", "| mutant | file | noticed by |", "| --- | --- | --- |"]
    for area in areas:
        for mutant in area.mutants:
            found = results.get(mutant) or {"state": "not tried", "by": []}
            hung = set(found.get("hung", ()))
            by = ", ".join(name + " (hung)" * (name in hung) for name in found["by"])
            lines.append(f"| {mutant.name} | {mutant.file} | {by or found['state']} |")
    return lines


def report(areas, results, options):
    lines, wrong = summarize(areas, results)
    untried = [m for area in areas for m in area.mutants if not results.get(m)]
    if untried:
        wrong.append(f"{len(untried)} mutants have not been tried")
    if options.write:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=options.source,
                                stdout=subprocess.PIPE, text=True).stdout.strip()
        head = ["# Which test notices which mistake", "",
                "Small realistic mistakes, made one at a time in a copy of the sources, and the tests",
                "that fail because of each. Tests run until one fails, so a test that is not named might",
                "have noticed as well. The list is `tests/mutants.txt`. The share is of those that were",
                "tried; about the others nothing is known.", "",
                f"Command: `tests/mutants.py`, then `tests/mutants.py --report --write {options.write}`;",
                f"commit {commit}.", ""]
        pathlib.Path(options.write).write_text("\n".join(head + lines + detail(areas, results)) + "\n")
    else:
        print("\n".join(lines))
    for text in wrong:
        print(f"mutants: {text}", file=sys.stderr)
    return 1 if wrong else 0


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = pathlib.Path(__file__).resolve().parent
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--area", default="", help="only these, separated by commas")
    parser.add_argument("--survivors", action="store_true")
    parser.add_argument("--every-test", action="store_true")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--write", metavar="FILE")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--tests", metavar="BUILD", help="with --check: look for the tests here")
    parser.add_argument("--source", type=pathlib.Path, default=here.parent)
    parser.add_argument("--list", type=pathlib.Path, default=here / "mutants.txt")
    parser.add_argument("--work", type=pathlib.Path, help="instead of build/mutants")
    parser.add_argument("--preset", default="check")
    parser.add_argument("-j", dest="jobs", type=int, default=1, help="as many copies of the sources")
    parser.add_argument("--build-jobs", type=int, default=2)
    parser.add_argument("--patience", type=float, default=10, metavar="SECONDS",
                        help="beside eight times its usual time, before a test counts as hanging")
    parser.add_argument("-v", dest="verbose", action="store_true")
    return parser.parse_args()


def choose(areas, results, options):
    wanted = set(filter(None, options.area.split(",")))
    unknown = wanted - {area.name for area in areas}
    known = [mutant for area in areas for mutant in area.mutants]
    unknown |= set(options.names) - {mutant.name for mutant in known}
    if unknown:
        print(f"mutants: the list has no {', '.join(sorted(unknown))}", file=sys.stderr)
        sys.exit(2)
    chosen = [mutant for mutant in known if not wanted or mutant.area.name in wanted]
    if options.names:
        return [mutant for mutant in known if mutant.name in options.names]
    if options.survivors:
        return [m for m in chosen if (results.get(m) or {}).get("state") == "survived"]
    return [m for m in chosen if (results.get(m) or {}).get("state") in (None, "does not build")]


def main():
    options = parse()
    options.source = options.source.resolve()
    areas, wrong = read_list(options.list)
    tests = list_tests(options.tests) if options.tests else None
    wrong += check_list(options.source, options.list, areas, tests)
    for text in wrong:
        print(f"mutants: {text}", file=sys.stderr)
    if wrong:
        return 2
    if options.check:
        print(f"mutants: {sum(len(area.mutants) for area in areas)} in {len(areas)} areas, all fit the sources")
        return 0
    work = (options.work or options.source / "build" / "mutants").resolve()
    work.mkdir(parents=True, exist_ok=True)
    results = Results(work / "results.json")
    if options.report:
        return report(areas, results, options)
    chosen = choose(areas, results, options)
    if options.area or options.names:  # what was asked for is what is judged
        asked = set(options.area.split(",")) | {m.area.name for m in chosen}
        areas = [area for area in areas if area.name in asked]
    trees = [Tree(options.source, work / f"tree-{i}", options) for i in range(options.jobs)]
    if chosen:
        lock = open(work / "lock", "w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"mutants: another run works in {work}", file=sys.stderr)
            return 2
        for tree in trees:
            tree.prepare()
        needed = {m.area.name: m.area for m in chosen}.values()
        for area in needed:
            trees[0].measure(trees[0].select(area.first + area.wider), work / "times.json")
        for tree in trees[1:]:
            tree.times = dict(trees[0].times)
            tree.commands = {k: v for k, v in tree.commands.items() if k in trees[0].commands}
        run_all(trees, [(mutant, ()) for mutant in chosen], results, options)
        second_opinions(trees, needed, results, options)
    return report(areas, results, options)


if __name__ == "__main__":
    sys.exit(main())
