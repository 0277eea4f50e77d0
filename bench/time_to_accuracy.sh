#!/bin/bash
# Seconds from the start of the process to 90 % test accuracy on Fashion-MNIST with
# LeNet, dlcore and PyTorch alternating, two threads each:
#   bench/time_to_accuracy.sh [rounds]
# The number of epochs depends on the solver's settings: the peer uses those of
# models/lenet-fashion.ini, so that only the speed is compared.
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=${1:-2}
goal=${GOAL:-0.9}
threads=${THREADS:-2}
dlcore=${DLCORE:-build/bin/dlcore}
python=${PYTHON:-/usr/bin/python3} # the one that sees Debian's packages
jemalloc=${JEMALLOC:-$(ldconfig -p | awk '/libjemalloc\.so\.2/ && !n++ {print $NF}')}
openblas=$(dirname "$jemalloc")/openblas-openmp # on the convolutions' threads; may be absent

# Removed because they halve the speed of the peer's OpenBLAS.
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE OMP_NUM_THREADS

peer() {
	OMP_NUM_THREADS=$threads "$python" bench/torch_accuracy.py --goal "$goal" \
		--threads "$threads" --lr 0.03 --linear --epochs 3 "$@"
}

for ((round = 1; round <= rounds; round++)); do
	echo "round $round, load $(cut -d' ' -f1 /proc/loadavg)"
	"$dlcore" train models/lenet-fashion.ini --set train.target_accuracy="$goal" \
		--set train.threads="$threads" --set train.checkpoint_last=no --set train.checkpoint_minutes=0 --json 2>/dev/null |
		python3 -c 'import json, sys; print("dlcore", json.load(sys.stdin)["target_seconds"])'
	LD_PRELOAD=$jemalloc LD_LIBRARY_PATH=$openblas OMP_PROC_BIND=true OMP_PLACES=cores \
		MALLOC_CONF=background_thread:true,dirty_decay_ms:-1,muzzy_decay_ms:-1 peer --tuned
	if ((round == 1)); then peer; fi # slow, so only once
done
