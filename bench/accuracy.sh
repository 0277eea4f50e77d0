#!/bin/bash
# Trains a net to its end and writes its accuracy curve:
#   bench/accuracy.sh models/cifar10-quick.ini docs/results/cifar10-quick [ARGUMENT...]
# writes docs/results/cifar10-quick.md, and .svg if gnuplot is installed. Further
# arguments are passed to dlcore train.
set -euo pipefail
cd "$(dirname "$0")/.."

net=$1 target=$2
shift 2
dlcore=${DLCORE:-build/bin/dlcore}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$dlcore" train "$net" --run-dir "$work" --log-file "$work/log" --json "$@" >"$work/json"

python3 - "$work" "$net" "$*" >"$target.md" <<'PYTHON'
import json, pathlib, platform, sys

work, net, arguments = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
events = [json.loads(line) for line in (work / "log").read_text().splitlines()]
tests = [event for event in events if event["event"] == "test"]
trained = [event for event in events if event["event"] == "train"]
result = json.loads((work / "json").read_text())
cpu = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
print(f"# {result['net']}: accuracy by iteration\n")
print(f"    dlcore train {net} {arguments}\n")
print(f"{cpu}, Linux {platform.release()}, {result['ranks']} rank(s), transport {result['transport']}, effective batch "
      f"{result['effective_batch']}, seed {result['seed']}: {result['iterations']:,} iterations in "
      f"{result['seconds']:.0f} s, {result['images_per_s']:,.0f} images/s. **Final test accuracy "
      f"{result['accuracy']:.2%}**, loss {result['test_loss']:.4f}.\n")
print("| iteration | epoch | training loss | test loss | test accuracy |\n| ---: | ---: | ---: | ---: | ---: |")
for test in tests:
    before = [event for event in trained if event["iteration"] <= test["iteration"]]
    loss = f"{before[-1]['training_loss']:.4f}" if before else ""
    print(f"| {test['iteration']:,} | {test['epoch']:.1f} | {loss} | {test['test_loss']:.4f} | {test['accuracy']:.2%} |")
with open(work / "curve", "w") as curve:
    for test in tests:
        print(test["iteration"], 100 * test["accuracy"], file=curve)
PYTHON

if command -v gnuplot >/dev/null; then
	gnuplot <<GNUPLOT
set terminal svg size 720,420 font "sans,12" background "#ffffff"
set output "$target.svg"
set title "$(basename "$net" .ini): test accuracy"
set xlabel "iteration"
set ylabel "accuracy (%)"
set grid
set key off
plot "$work/curve" with linespoints lw 2 pt 7 ps 0.4
GNUPLOT
	printf '\n![test accuracy](%s.svg)\n' "$(basename "$target")" >>"$target.md"
fi
