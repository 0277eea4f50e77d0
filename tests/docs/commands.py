#!/usr/bin/env python3
"""Runs every command of a page, in a fresh folder, against this build.

commands.py PAGE       README.md or docs/*.md: its blocks ```sh, in order, each command by
                       a shell that stops at the first mistake
commands.py Makefile   what `make demo` trains, and then each command that it tells at its end

The folder has links to what a clone has (models/, tools/, ...), `net.ini` (README.md's own),
and `machine.xml`, a recorded machine. What is not run, or not as it stands, is in the
tables below with its reason; a row that no page has any use for is a mistake, too.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ["DLCORE_SOURCE_DIR"])
BUILD = pathlib.Path(os.environ["DLCORE_BUILD_DIR"])
HERE = pathlib.Path(__file__).resolve().parent
PATIENCE = 240  # seconds a command

# Not run: how the command begins -> why.
SKIPPED = {
    "make demo": "installs packages; docs.demo runs what it trains, and its hints",
    "make check": "is what runs this test",
    "packaging/bundle/make.sh": "the test `bundle` makes one",
    "tools/fetch/": "downloads a data set",
    "srun ": "needs a Slurm cluster; the test launch_srun starts one",
}

# Run otherwise: pattern, what stands in for it -> why.
CHANGED = [
    (r"^mpirun -n 16", "mpirun --allow-run-as-root --oversubscribe -n 2",
     "two ranks of a machine for tests, where this may be root"),
    (r"10\.0\.0\.1", "127.0.0.1", "one machine"),
    (r"(RANK=0 WORLD_SIZE=2 .*)", r"\1 &", "beside the next command"),
    (r"(RANK=1 WORLD_SIZE=2 .*)", r"\1 && wait $!", "the same"),
]

# Every command of a shell begins with these.
PRELUDE = r"""
# Without a GPU, a command that wants one must have no other mistake.
no_gpu() {
    code=0
    "$@" >gpu.log 2>&1 || code=$?
    cat gpu.log
    [ $code = 2 ] && grep -q 'no accelerator can be used here' gpu.log &&
        grep -q '^error: 1 mistake in ' gpu.log
}
# Stands in for torchrun where there is none: these two options, nothing else.
if ! command -v torchrun >/dev/null; then
    torchrun() (
        [ "$1 $2" = '--no_python --nproc_per_node=2' ] || { echo "torchrun: $*"; exit 2; }
        shift 2
        export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 10000))
        RANK=1 "$@" &
        RANK=0 "$@" && wait $!
    )
fi
"""

# `dlcore` of the pages: trains for some iterations in place of epochs, on large nets with
# small batches, measures a pass in place of seconds, and writes no large checkpoints.
# Everything else goes through as it stands, so a wrong option is found.
SHORTER = r"""#!/bin/bash
words=() length=1 begin=$1 large=0
while [ $# -gt 0 ]; do
    case $1 in
    --epochs) length=$2; shift ;;
    --epochs=*) length=${1#*=} ;;
    *) words+=("$1") ;;
    esac
    case $1 in
    *caffenet.ini | *resnet50.ini | *alexnet.ini | *vgg16.ini) large=1 ;;
    esac
    shift
done
case $begin:$large in
train:1) words+=(--iterations=1 --set data.batch=2 --set train.checkpoint_last=no
                 --set train.checkpoint_minutes=0 --set train.checkpoint_interval=0) ;;
train:0) words+=(--iterations=$((length * 20))) ;;
time:1) words+=(--passes=1 --set data.batch=1) ;;
time:0) words+=(--passes=2) ;;
plan:1) words+=(--passes=1 --set data.batch=1) ;;
plan:0) words+=(--passes=2) ;;
esac
exec "$DLCORE_BIN" "${words[@]}"
"""


def commands_of(text):
    """[(block, command)]: lines joined where one ends in a backslash or an open quote."""
    found = []
    for block in re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            line = re.sub(r"\s+#\s.*$", "", line).strip()
            if line and not line.startswith("#"):
                found.append(line)
    return found


def own_net():
    text = (SOURCE / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```ini\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1, "README.md has one net, which is net.ini"
    return blocks[0]


def prepare(work):
    for name in ("models", "tools", "packaging", "examples"):
        (work / name).symlink_to(SOURCE / name)
    (work / "build").symlink_to(BUILD)
    (work / "net.ini").write_text(own_net(), encoding="utf-8")
    shutil.copy(SOURCE / "tests/topo/machines/dual-socket.xml", work / "machine.xml")
    (work / "bin").mkdir()
    (work / "bin/dlcore").write_text(SHORTER, encoding="utf-8")
    (work / "bin/dlcore").chmod(0o755)


def has_gpu():
    told = subprocess.run([os.environ["DLCORE_BIN"], "plugin", "list"], text=True,
                          stdout=subprocess.PIPE, check=True).stdout
    return bool(re.search(r"^device +(?!cpu\b)\S+ .* usable$", told, re.MULTILINE))


def adapt(command, used):
    """The command as it is run here, or None, and what was changed why."""
    for start, why in SKIPPED.items():
        if command.startswith(start):
            used.add(start)
            return None, f"not run: {why}"
    told = []
    for pattern, instead, why in CHANGED:
        changed = re.sub(pattern, instead, command)
        if changed != command:
            used.add(pattern)
            told.append(why)
            command = changed
    if "--gpu" in command and not has_gpu():
        command = f"no_gpu {command}"
        told.append("no GPU here: it must be the only mistake")
    return command, "; ".join(told)


def script(commands, work, used):
    """One shell, one command behind the other, as a reader would."""
    lines = ["set -eu", PRELUDE]
    for command in commands:
        runs, told = adapt(command, used)
        note = f"== {command}" + (f"    [{told}]" if told else "")
        quoted = note.replace("'", "'\\''")
        lines.append(f"printf '%s\\n' '{quoted}'")
        if runs:
            lines += [f"at='{quoted}'", runs]
    lines.append("echo 'all of them'")
    path = work / "commands.sh"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def run(page, commands, work, used):
    environment = dict(os.environ, PATH=f"{work / 'bin'}:{os.environ['PATH']}",
                       LC_ALL="C.UTF-8")
    done = subprocess.run(["bash", script(commands, work, used)], cwd=work, text=True,
                          env=environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=PATIENCE * 2, check=False)
    print(done.stdout)
    if done.returncode or not done.stdout.endswith("all of them\n"):
        last = [line for line in done.stdout.splitlines() if line.startswith("== ")]
        print(f"{page}: ended with {done.returncode} in:\n    {(last or ['nothing'])[-1]}")
        return 1
    return 0


def demo(work):
    """What `make demo` runs behind the build, then what it tells."""
    make = ["make", "-s", "-f", str(SOURCE / "Makefile")]
    said = subprocess.run([*make, "-n", "demo-train"], cwd=work, text=True, check=True,
                          stdout=subprocess.PIPE).stdout
    trains = [line for line in said.splitlines() if re.match(r"\S*dlcore train ", line)]
    assert len(trains) == 1, said
    if run("make demo", [trains[0].replace("build/bin/dlcore", "dlcore")], work, set()):
        return 1
    said = subprocess.run([*make, "demo-hints"], cwd=work, text=True, check=True,
                          stdout=subprocess.PIPE).stdout
    print(said)
    hints = re.findall(r"^  \S.*?  +(\S.*)$", re.sub(r" \\\n\s*", " ", said), re.MULTILINE)
    hints = [hint for hint in hints if hint.startswith(("build/bin/dlcore ", "make "))]
    assert len(hints) >= 5, hints
    further = [hint for hint in hints if " train " in hint and "runs/" in hint]
    assert further, "no hint goes on from the demo's checkpoint"
    # `A, then B` is told to people.
    hints = [hint.split(", then ")[0].replace("build/bin/dlcore", "dlcore") for hint in hints]
    if run("make demo's hints", hints, work, set()):
        return 1
    # It goes on from what was learned: no worse than the checkpoint that it began with.
    runs = sorted((work / "runs").iterdir(), key=lambda path: path.stat().st_mtime)
    assert len(runs) >= 2, runs
    return 0


def check_tables():
    """Each row is of use to some page."""
    used = set()
    for page in [SOURCE / "README.md", *SOURCE.glob("docs/*.md")]:
        for command in commands_of(page.read_text(encoding="utf-8")):
            adapt(command, used)
    used.add("make check")  # the demo's last hint
    for row in [*SKIPPED, *(pattern for pattern, _, _ in CHANGED)]:
        if row not in used:
            print(f"commands.py: no page has a use for the row \"{row}\"")
            return 1
    return 0


def main():
    page = sys.argv[1]
    if page == "README.md" and check_tables():
        return 1
    with tempfile.TemporaryDirectory(prefix="dlcore-docs-") as folder:
        work = pathlib.Path(folder).resolve()
        prepare(work)
        if page == "Makefile":
            return demo(work)
        commands = commands_of((SOURCE / page).read_text(encoding="utf-8"))
        if not commands:
            print(f"{page}: has no commands")
            return 1
        return run(page, commands, work, set())


if __name__ == "__main__":
    sys.exit(main())
