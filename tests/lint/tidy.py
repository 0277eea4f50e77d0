#!/usr/bin/env python3
"""Runs clang-tidy in parallel on every C file in a build's compile_commands.json.

Files that passed are skipped until they, a header, the flags or .clang-tidy change; passes
are recorded under <build>/tidy. Usage: tidy.py [build]
"""

import concurrent.futures
import hashlib
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("core", "plugins", "tools")
# The analyzer's limit of steps per function. Few functions reach it, but they take most of
# the time: 1.5 times as long with 75000, several times with clang's default of 225000.
NODES = 25000
# The compiler finds reserved identifiers for a tenth of what clang-tidy's own check takes.
WARNINGS = ("-Wno-unknown-warning-option", "-Wreserved-identifier", "-Wreserved-macro-identifier")
BATCH = 8  # files that one process checks: starting it takes as long as parsing a file


def output(*command):
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def common_key(tidy):
    """What invalidates the results of all files: the tool, its settings, the headers."""
    digest = hashlib.sha256(output(tidy, "--version").encode())
    listed = output(ROOT / "tests/lint/files.sh", "h", "clang-tidy").splitlines()
    for name in sorted(listed):
        digest.update(name.encode() + (ROOT / name).read_bytes())
    return digest.hexdigest()


def commands(build):
    """{file: entry} of the project's sources, each file once."""
    seen = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["directory"], entry["file"]).resolve()
        if path.suffix != ".c":
            continue  # CUDA: clang would need another toolkit
        if path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in FOLDERS:
            seen.setdefault(path, entry)
    return seen


def arguments(cache):
    """Additional flags: options of the analyzer, and gcc's omp.h without its other headers."""
    extra = [f"--extra-arg={flag}" for flag in WARNINGS]
    for word in ("-analyzer-config", f"max-nodes={NODES}"):
        extra += ["--extra-arg=-Xclang", f"--extra-arg={word}"]
    header = output("gcc", "-print-file-name=include/omp.h")
    if header.startswith("/"):
        folder = cache / "include"
        folder.mkdir(exist_ok=True)
        text = pathlib.Path(header).read_text()
        # gcc's malloc attribute has arguments that clang does not accept.
        text = re.sub(r"__malloc__ \(\w+(, \w+)?\)", "__malloc__", text)
        (folder / "omp.h").write_text(text)
        extra += ["--extra-arg=-idirafter", f"--extra-arg={folder}"]
    return extra


def main():
    tidy = shutil.which("clang-tidy")
    if not tidy:
        print("tidy: clang-tidy is not installed (packaging/deps.sh)")
        return 1
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve()
    if not (build / "compile_commands.json").is_file():
        print(f"tidy: {build} is not configured: run 'make' first")
        return 1
    cache = build / "tidy"
    cache.mkdir(exist_ok=True)
    entries = commands(build)
    # clang-tidy checks a file once per entry, so files compiled several times get one.
    (cache / "compile_commands.json").write_text(json.dumps(list(entries.values())))
    extra = arguments(cache)
    key = common_key(tidy) + " ".join(extra)

    def mark(path):
        command = entries[path]["command"]
        digest = hashlib.sha256(key.encode() + command.encode() + path.read_bytes())
        return cache / digest.hexdigest()

    def check(paths):
        """[(file, text)] of the files with findings."""
        paths = [path for path in paths if not mark(path).exists()]
        if not paths:
            return []
        run = subprocess.run([tidy, "-p", cache, "--quiet", *extra, *paths],
                             capture_output=True, text=True)
        if run.returncode == 0:
            for path in paths:
                mark(path).touch()
            return []
        if len(paths) > 1:  # which of them?
            return [found for path in paths for found in check([path])]
        text = run.stdout.strip() or run.stderr.strip()
        return [(paths[0], re.sub(re.escape(f"{ROOT}/"), "", text))]

    # Largest first, so that no large file is started last.
    jobs = sorted(entries, key=lambda path: -path.stat().st_size)
    batches = [jobs[i:i + BATCH] for i in range(0, len(jobs), BATCH)]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, text in itertools.chain.from_iterable(pool.map(check, batches)):
            failed += 1
            print(f"{path.relative_to(ROOT)}:\n{text}")
    print(f"tidy: {len(jobs)} files, {failed} with findings")
    if failed:
        print("tidy: fix the findings; suppress a false positive on its line with "
              "'// NOLINT(check-name): why'")
    return 1 if failed or not jobs else 0


if __name__ == "__main__":
    sys.exit(main())
