#!/bin/bash
# Compares messages of the ucx transport with UCX's own benchmark, alternating:
#
#     bench/ucx.sh [ROUNDS [SIZES...]]       (5 rounds; 8 B .. 16 MiB)
#
# Mean one-way latency (minimum of the rounds) compared with ucx_perftest's tag_lat and
# ucp_am_lat; bandwidth (maximum of the rounds) with tag_bw and ucp_am_bw. The last column
# is the ratio to tag_lat or tag_bw, which copy each message to its destination like the
# transport; UCX's am tests leave eager messages where they arrived.
#
# All are bound to CPUs 0 and 1, send from one buffer and receive in another, both in
# shared memory of small pages (as in ucx_perftest), keep 32 messages in flight for the
# bandwidth, and warm up with a tenth as many. UCX_* variables apply to both sides. Needs
# Debian's ucx-utils and, in BUILD (build/release), the target ucx_messages. On virtual
# machines whose CPUs move, the target ucx_in_turns is more reliable: BUILD/bench/ucx_in_turns, with BUILD/lib/dlcore/0 as DLCORE_PLUGIN_PATH.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build/release}
ours=$build/bench/ucx_messages
DLCORE_PLUGIN_PATH=$(realpath "$build")/lib/dlcore/0
export DLCORE_PLUGIN_PATH
rounds=${1:-5}
shift || true
sizes=("$@")
((${#sizes[@]})) || sizes=(8 64 512 4096 16384 65536 262144 1048576 16777216)

for tool in ucx_perftest "$ours"; do
    command -v "$tool" >/dev/null || {
        echo "$tool: not found" >&2
        exit 1
    }
done
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT

# perf TEST SIZE ITERATIONS: "latency_us GB/s". Its line: iterations, median, average
# and overall latency, average and overall MB/s (of 2^20 bytes), messages twice.
perf() {
    local port=$((20000 + RANDOM % 12000))
    timeout 60 ucx_perftest -c 0 -p "$port" >"$work/server" 2>&1 &
    server=$!
    sleep 0.3
    timeout 30 ucx_perftest -f -c 1 -p "$port" 127.0.0.1 -t "$1" -s "$2" -n "$3" \
        -w $(($3 / 10 + 1)) 2>"$work/errors" | tail -1 |
        awk 'NF >= 8 { print $(NF - 4), $(NF - 2) * 1048576 / 1e9 }'
    kill "$server" 2>/dev/null || true # it has ended, unless the two never met
    wait "$server" || true
    server=
}

measure() {
    local size few round test figure
    for ((round = 0; round < rounds; round++)); do
        for size in "${sizes[@]}"; do
            few=$((size < 8192 ? 100000 : size < 1048576 ? 3000 : size < 8388608 ? 500 : 50))
            for test in tag_lat ucp_am_lat; do
                echo "$test $size $(perf "$test" "$size" "$few" | cut -d' ' -f1)"
            done
            figure=$(timeout 60 "$ours" ucx lat "$size" "$few")
            echo "lat $size $figure"
            for test in tag_bw ucp_am_bw; do
                echo "$test $size $(perf "$test" "$size" "$few" | cut -d' ' -f2)"
            done
            figure=$(timeout 60 "$ours" ucx bw "$size" "$few")
            echo "bw $size $figure"
        done
    done
}

# table TITLE OURS PEER PEER least|most
table() {
    printf '\n%s\n%10s %10s %12s %12s %8s\n' "$1" bytes dlcore "$3" "$4" ratio
    awk -v ours="$2" -v one="$3" -v two="$4" -v want="$5" '
        function better(a, b) { return want == "least" ? a < b : a > b }
        !(($1, $2) in best) || better($3, best[$1, $2]) { best[$1, $2] = $3 + 0 }
        !seen[$2]++ { sizes[++count] = $2 }
        END {
            for (i = 1; i <= count; i++) {
                s = sizes[i]
                a = best[one, s]; b = best[two, s]
                printf "%10d %10.3f %12.3f %12.3f %8.2f\n", s, best[ours, s], a, b,
                    best[ours, s] / a
            }
        }' "$work/lines"
}

echo "$(ucx_info -v | head -1), load: $(cut -d' ' -f1-3 /proc/loadavg)"
measure >"$work/lines"
table "one way, us" lat tag_lat ucp_am_lat least
table "GB/s" bw tag_bw ucp_am_bw most
echo
echo "load: $(cut -d' ' -f1-3 /proc/loadavg)"
