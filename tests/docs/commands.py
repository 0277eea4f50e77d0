#!/usr/bin/env python3
"""Runs every command of a page in a fresh folder with this build.

commands.py PAGE       README.md or docs/*.md: its blocks ```sh, in order, each command by
                       a shell that stops at the first error
commands.py Makefile   what `make demo` trains, then each command of its final hints

The folder has links to parts of a clone (models/, tools/, ...), `net.ini` (from README.md),
`photos/`, `holiday/` and `photos.ini` (from docs/your-own-images.md) and `machine.xml`, a
recorded machine. Commands that are not run, or changed, are in the tables below with the
reason; a row that applies to no page is an error.
"""

import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

SOURCE = pathlib.Path(os.environ["DLCORE_SOURCE_DIR"])
BUILD = pathlib.Path(os.environ["DLCORE_BUILD_DIR"])
HERE = pathlib.Path(__file__).resolve().parent
PATIENCE = 240  # seconds per command

# Not run: beginning of the command -> reason.
SKIPPED = {
    "make demo": "installs packages; docs.demo runs its training and its hints",
    "make check": "runs this very test",
    "packaging/bundle/make.sh": "the test `bundle` runs it",
    "tools/fetch/": "downloads a data set",
    "srun ": "needs a Slurm cluster; the test launch_srun starts one",
    "torchrun --nnodes": "needs two machines",
}

# Changed: pattern, replacement, reason.
CHANGED = [
    (r"^mpirun -n 16", "mpirun --allow-run-as-root --oversubscribe -n 2",
     "two ranks on a test machine, possibly as root"),
    (r"^mpiexec -n 16", "mpiexec.hydra -n 2", "two ranks, by MPICH's where there are two"),
    (r"--hosts=gpu1:8,gpu2:8", "--hosts=localhost:2", "one machine"),
    (r"10\.0\.0\.1", "127.0.0.1", "one machine"),
    (r"(RANK=0 WORLD_SIZE=2 .*)", r"\1 &", "in the background"),
    (r"(RANK=1 WORLD_SIZE=2 .*)", r"\1 && wait $!", "waits for both"),
]

# Functions for the shell that runs the commands.
PRELUDE = r"""
# Without a GPU, that must be the only mistake of a command that wants one; a build without
# NCCL has no such transport either.
no_gpu() {
    code=0 lacking='no accelerator can be used here'
    "$@" >gpu.log 2>&1 || code=$?
    cat gpu.log
    [ $code = 2 ] && grep -q "$lacking" gpu.log || return 1
    [ -e build/lib/dlcore/0/transport-nccl.so ] ||
        lacking="$lacking|there is no transport \"nccl\""
    ! grep '^error: ' gpu.log | grep -vqE "$lacking|^error: [12] mistakes? in "
}
# A replacement for torchrun if there is none that works (torch 1.13 with Python 3.11 does
# not), with these two options only.
if ! torchrun --no_python --nproc_per_node=1 true >/dev/null 2>&1; then
    torchrun() (
        [ "$1 $2" = '--no_python --nproc_per_node=2' ] || { echo "torchrun: $*"; exit 2; }
        shift 2
        export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 10000))
        RANK=1 "$@" &
        RANK=0 "$@" && wait $!
    )
fi
"""

# The `dlcore` that the commands find: trains a few iterations instead of epochs, large nets
# with small batches and few of the weights that most of them are, times a single pass,
# compares no prediction for them with training, and writes no large checkpoints. All other
# arguments are passed on, so that a wrong option is found.
SHORTER = r"""#!/bin/bash
words=() length=1 begin=$1 large=0 small=()
while [ $# -gt 0 ]; do
    case $1 in
    --epochs) length=$2; shift ;;
    --epochs=*) length=${1#*=} ;;
    *) words+=("$1") ;;
    esac
    case $1 in
    *caffenet.ini | *alexnet.ini | *vgg16.ini)
        large=1 small=(--set fc6.ip.num_output=256 --set fc7.ip.num_output=256) ;;
    *resnet50.ini) large=1 ;;
    esac
    shift
done
case $begin:$large in
train:1) words+=("${small[@]}" --iterations=1 --set data.batch=2
                 --set train.checkpoint_last=no --set train.checkpoint_minutes=0
                 --set train.checkpoint_interval=0) ;;
train:0) words+=(--iterations=$((length * 20))) ;;
time:1) words+=("${small[@]}" --passes=1 --set data.batch=1) ;;
time:0) words+=(--passes=2) ;;
plan:1) words+=("${small[@]}" --passes=1 --set data.batch=1 --no-check) ;;
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
    assert len(blocks) == 1, "README.md must have exactly one block ```ini"
    return blocks[0]


def photograph(path, seed):
    """A small PNG file with stripes."""
    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))
    width, height = 40 + seed, 30 + 2 * seed
    rows = b"".join(b"\0" + bytes((x * seed + c * y) % 256 for x in range(width) for c in range(3))
                    for y in range(height))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" +
                     chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
                     chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def prepare_photographs(work):
    """photos/ with two classes, holiday/, and `photos.ini`: the net of README.md with the first two
    data sections of docs/your-own-images.md."""
    for i in range(1, 9):
        for part in ("train/cat", "train/dog/below", "test/cat", "test/dog"):
            photograph(work / "photos" / part / f"{i}.png", i + len(part))
        photograph(work / "holiday" / f"{i}.png", i)
    text = (SOURCE / "docs/your-own-images.md").read_text(encoding="utf-8")
    data = re.findall(r"^    (\[data.*\n(?:    .*\n)+)", text, re.MULTILINE)[:2]
    assert [section.split("\n")[0] for section in data] == ["[data]", "[data.test]"], data
    net = re.sub(r"(?s)^\[data\].*?(?=\[solver\])", "", own_net())
    data = "".join(data).replace("    ", "").replace("batch = 32", "batch = 4")
    (work / "photos.ini").write_text(data + net, encoding="utf-8")


def prepare(work):
    prepare_photographs(work)
    for name in ("models", "tools", "packaging", "examples"):
        (work / name).symlink_to(SOURCE / name)
    # README.md sets PATH to build/bin.
    (work / "build/bin").mkdir(parents=True)
    for path in BUILD.iterdir():
        if path.name != "bin":
            (work / "build" / path.name).symlink_to(path)
    (work / "build/bin/dlcore").write_text(SHORTER, encoding="utf-8")
    (work / "build/bin/dlcore").chmod(0o755)
    (work / "net.ini").write_text(own_net(), encoding="utf-8")
    shutil.copy(SOURCE / "tests/topology/machines/dual-socket.xml", work / "machine.xml")


def has_gpu():
    listed = subprocess.run([os.environ["DLCORE_BIN"], "plugin", "list"], text=True,
                          stdout=subprocess.PIPE, check=True).stdout
    return bool(re.search(r"^device +(?!cpu\b)\S+ .* usable\b", listed, re.MULTILINE))


def adapt(command, used):
    """The command as it is run here, or None, and the reasons for changes."""
    for start, why in SKIPPED.items():
        if command.startswith(start):
            used.add(start)
            return None, f"not run: {why}"
    reasons = []
    for pattern, instead, why in CHANGED:
        changed = re.sub(pattern, instead, command)
        if changed != command:
            used.add(pattern)
            reasons.append(why)
            command = changed
    if "--gpu" in command and not has_gpu():
        command = f"no_gpu {command}"
        reasons.append("no GPU: that must be the only mistake")
    return command, "; ".join(reasons)


def script(commands, work, used):
    """A script that runs the commands in order in one shell, as a reader would."""
    lines = ["set -eu", PRELUDE]
    for command in commands:
        runs, reasons = adapt(command, used)
        note = f"== {command}" + (f"    [{reasons}]" if reasons else "")
        quoted = note.replace("'", "'\\''")
        lines.append(f"printf '%s\\n' '{quoted}'")
        if runs:
            lines += [f"at='{quoted}'", runs]
    lines.append("echo 'all of them'")
    path = work / "commands.sh"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def run(page, commands, work, used):
    environment = dict(os.environ, PATH=f"{work / 'build/bin'}:{os.environ['PATH']}",
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
    """Runs the training of `make demo`, then the commands of its hints."""
    make = ["make", "-s", "-f", str(SOURCE / "Makefile")]
    said = subprocess.run([*make, "-n", "demo-train"], cwd=work, text=True, check=True,
                          stdout=subprocess.PIPE).stdout
    trains = [line for line in said.splitlines() if re.match(r"\S*dlcore train ", line)]
    assert len(trains) == 1, said
    if run("make demo", trains, work, set()):
        return 1
    said = subprocess.run([*make, "demo-hints"], cwd=work, text=True, check=True,
                          stdout=subprocess.PIPE).stdout
    print(said)
    hints = re.findall(r"^  \S.*?  +(\S.*)$", re.sub(r" \\\n\s*", " ", said), re.MULTILINE)
    hints = [hint for hint in hints if hint.startswith(("build/bin/dlcore ", "make "))]
    assert len(hints) >= 5, hints
    further = [hint for hint in hints if " train " in hint and "runs/" in hint]
    assert further, "no hint goes on from the demo's checkpoint"
    # "A, then B": only A is a command.
    hints = [hint.split(", then ")[0] for hint in hints]
    if run("make demo's hints", hints, work, set()):
        return 1
    # The hint that trains further has made a second run.
    runs = sorted((work / "runs").iterdir(), key=lambda path: path.stat().st_mtime)
    assert len(runs) >= 2, runs
    return 0


def check_tables():
    """Each row of the tables applies to some page."""
    used = set()
    for page in [SOURCE / "README.md", *SOURCE.glob("docs/*.md")]:
        for command in commands_of(page.read_text(encoding="utf-8")):
            adapt(command, used)
    used.add("make check")  # the demo's last hint
    for row in [*SKIPPED, *(pattern for pattern, _, _ in CHANGED)]:
        if row not in used:
            print(f"commands.py: the row \"{row}\" applies to no page")
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
