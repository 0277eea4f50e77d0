#!/bin/bash
# Training side by side with PyTorch: images/s of LeNet and cifar10-full (forward,
# backward, update; synthetic data), and the time LeNet needs from process start to
# 90 % test accuracy on Fashion-MNIST. One process, two threads, everywhere.
#
#   bench/train.sh [rounds]      a Markdown table on stdout, progress on stderr
#
# The contestants take turns within a round, so that a machine that slows down for
# minutes slows all of them; medians over the rounds are compared.
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=${1:-${ROUNDS:-5}}
seconds=${SECONDS_EACH:-8}           # of measuring, a run
goal=${GOAL:-0.9}                    # test accuracy of the second table
accuracy_rounds=${ACCURACY_ROUNDS:-3} # 0 leaves it out
threads=${THREADS:-2}
dlcore=${DLCORE:-build/bin/dlcore}
python=${PYTHON:-/usr/bin/python3}   # the one that sees Debian's packages
jemalloc=${JEMALLOC:-$(ldconfig -p | awk '/libjemalloc\.so\.2/ && !n++ {print $NF}')}
# How many iterations of dlcore last about as long as a run of the peers.
declare -A iterations=([lenet]="${LENET_ITERATIONS:-1500}" [cifar10-full]="${CIFAR_ITERATIONS:-300}")
declare -A shape=([lenet]="1,28,28" [cifar10-full]="3,32,32")
accuracy_model=${ACCURACY_MODEL:-models/lenet-fashion.ini}
# The solver's settings decide how many epochs it takes: the peers get the same ones as
# the model above, so that speed alone is compared. PEER_ARGS="" gives them Caffe's.
read -ra peer <<<"${PEER_ARGS---lr 0.06 --linear --epochs 3}"
read -ra more <<<"${DLCORE_ARGS:-}"  # further arguments of dlcore train

# Left in the environment they halve OpenBLAS's speed: not the peers' fault.
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE OMP_NUM_THREADS

results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT

say() { printf '%s\n' "$*" >&2; }

# Jobs of this script only: the thread count is all that the default form is told.
run_default() { OMP_NUM_THREADS=$threads "$@"; }

# Freed memory stays with the process (the kernel would hand it back zeroed, page
# by page), and threads stay on their cores.
run_tuned() {
	LD_PRELOAD=$jemalloc OMP_NUM_THREADS=$threads OMP_PROC_BIND=true OMP_PLACES=cores \
		MALLOC_CONF=background_thread:true,dirty_decay_ms:-1,muzzy_decay_ms:-1 "$@"
}

speed() { # contestant net -> one JSON document
	case $1 in
	dlcore) "$dlcore" train "$results/$2.ini" --ranks=1 --iterations "${iterations[$2]}" \
		--set run.snapshot_last=no --json "${more[@]}" ;;
	default) run_default "$python" bench/torch_train.py "$2" --seconds "$seconds" --threads "$threads" ;;
	tuned) run_tuned "$python" bench/torch_train.py "$2" --seconds "$seconds" --threads "$threads" --tuned ;;
	esac
}

reach() { # contestant -> {"seconds": from process start, ...}
	case $1 in
	dlcore) "$dlcore" train "$accuracy_model" --set run.target_accuracy="$goal" \
		--set run.snapshot_last=no --json "${more[@]}" | sed 's/"seconds"/"all_seconds"/; s/"target_seconds"/"seconds"/' ;;
	default) run_default "$python" bench/torch_train.py lenet --to-accuracy "$goal" --threads "$threads" "${peer[@]}" ;;
	tuned) run_tuned "$python" bench/torch_train.py lenet --to-accuracy "$goal" --threads "$threads" "${peer[@]}" --tuned ;;
	esac
}

contestants=(default tuned)
if [[ -x $dlcore ]]; then contestants=(dlcore default tuned); else say "$dlcore is not built: peers only"; fi

for net in lenet cifar10-full; do
	awk -v shape="${shape[$net]}" -f bench/synthetic.awk "models/$net.ini" >"$results/$net.ini"
done

for ((round = 1; round <= rounds; round++)); do
	for net in lenet cifar10-full; do
		for who in "${contestants[@]}"; do
			speed "$who" "$net" 2>>"$results/log" | tail -n 1 >>"$results/speed.$net.$who" ||
				{ say "$who failed on $net:"; tail -n 5 "$results/log" >&2; exit 1; }
			say "round $round/$rounds $net $who: $(tail -n 1 "$results/speed.$net.$who")"
		done
	done
done
for ((round = 1; round <= accuracy_rounds; round++)); do
	for who in "${contestants[@]}"; do
		[[ $who == default && $round -gt 1 ]] && continue # slow, and nobody's bar
		reach "$who" 2>>"$results/log" | tail -n 1 >>"$results/reach.lenet.$who" ||
			{ say "$who failed to reach $goal:"; tail -n 5 "$results/log" >&2; exit 1; }
		say "round $round/$accuracy_rounds to $goal $who: $(tail -n 1 "$results/reach.lenet.$who")"
	done
done

cpu=$(awk -F': *' '/^model name/ {print $2; exit}' /proc/cpuinfo)
# The limit: what the cores could do if they did nothing but multiply and add.
cc -O3 -march=native -fopenmp bench/peak.c -o "$results/peak"
peak=$(OMP_PROC_BIND=true "$results/peak" "$threads")
for net in lenet cifar10-full; do
	[[ -x $dlcore ]] && "$dlcore" check "$results/$net.ini" --json >"$results/check.$net"
done
say ""
echo "$(date -u +%F), $cpu, $threads threads, $rounds rounds;" \
	"$("$dlcore" --version 2>/dev/null | head -n 1 || true) PyTorch $("$python" -c 'import torch; print(torch.__version__)')," \
	"oneDNN $(dpkg-query -W -f '${Version}' libdnnl2 2>/dev/null || echo '?')," \
	"jemalloc $(dpkg-query -W -f '${Version}' libjemalloc2 2>/dev/null || echo '?')"
echo
"$python" - "$results" "$goal" "$peak" <<'PYTHON'
import json, pathlib, statistics, sys

folder, goal, peak = pathlib.Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
NAMES = {"dlcore": "dlcore", "tuned": "PyTorch tuned", "default": "PyTorch default"}


def values(kind, net, who, key):
    path = folder / f"{kind}.{net}.{who}"
    lines = path.read_text().splitlines() if path.exists() else []
    return [value for value in (json.loads(line).get(key) for line in lines) if value is not None]


def table(kind, key, net, title, digits, better):
    """better(dlcore, peer) is how many times dlcore is better."""
    found = {who: values(kind, net, who, key) for who in NAMES}
    own = statistics.median(found["dlcore"]) if found["dlcore"] else None
    for who, name in NAMES.items():
        if not found[who]:
            continue
        middle = statistics.median(found[who])
        ratio = f"{better(own, middle):.2f}" if own and who != "dlcore" else ""
        print(f"| {title} | {name} | {middle:,.{digits}f} | {min(found[who]):,.{digits}f} - "
              f"{max(found[who]):,.{digits}f} | {ratio} |")


print("| what | who | median | range | dlcore is better by |\n| --- | --- | ---: | ---: | ---: |")
for net, batch in (("lenet", 64), ("cifar10-full", 100)):
    table("speed", "images_per_s", net, f"{net}, batch {batch}, images/s", 0, lambda a, b: a / b)
table("reach", "seconds", "lenet", f"LeNet, Fashion-MNIST, s to {goal:.0%}", 1, lambda a, b: b / a)

print(f"\nThe limit: {peak:.0f} GFLOP/s (bench/peak.c). A step multiplies and adds three times what forward does, "
      "but for the first layer, whose input needs no gradient.\n")
for net in ("lenet", "cifar10-full"):
    check = folder / f"check.{net}"
    if not check.exists():
        continue
    layers = json.loads(check.read_text())["layers"]
    steps = 3 * sum(layer["multiply_adds"] for layer in layers) - layers[0]["multiply_adds"]
    speed = statistics.median(values("speed", net, "dlcore", "images_per_s"))
    print(f"- {net}: {2e-6 * steps:.1f} MFLOP an image, so at most {peak * 1e9 / (2 * steps):,.0f} images/s; "
          f"dlcore reaches {2 * steps * speed / (peak * 1e9):.0%} of that.")
PYTHON
