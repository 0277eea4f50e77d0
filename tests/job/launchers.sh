#!/bin/sh
# Trains the same net with ranks that dlcore forks, and with ranks that a launcher starts:
# with the variables of torchrun, with mpirun through PMIx, with MPICH's mpiexec through PMI,
# and with srun through PMIx, through PMI-2 and without either. The weights must be bitwise
# identical. Usage: launchers.sh variables|mpirun|mpiexec, slurm.sh launchers.sh srun, or
# sshd.sh launchers.sh hosts
set -eu
launcher=$1
dlcore=${DLCORE_BIN:?the command}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Ten iterations of synthetic samples are enough: reading real ones and evaluating the net
# would take longer.
net=$work/net.ini
sed -e '/^\[data.test\]/,/^$/d' -e '/^images =/d' \
    -e 's/^labels = .*/shape = 1,28,28\nclasses = 10\nsamples = 6000/' \
    -e 's/^source = .*/source = synthetic/' "$DLCORE_SOURCE_DIR/models/lenet-fashion.ini" >"$net"

fail() {
    echo "launchers.sh: $*" >&2
    cat "$work"/log.* >&2 2>/dev/null || true
    exit 1
}

# train FOLDER [LAUNCHER...]: trains into that folder, started by that launcher
transport=host-staged
train() {
    folder=$1
    shift
    "$@" "$dlcore" train "$net" --iterations 10 --threads 1 --transport $transport \
        --run-dir "$work/$folder"
}

# The offset of the tensors in a file: they follow the header, whose size the first 8 bytes are.
begin() { echo $(($(od -An -t u8 -N 8 "$1") + 8)); }
# same_tensors FILE FILE: bitwise identical tensors; the headers may differ
same_tensors() { cmp -i "$(begin "$1"):$(begin "$2")" "$1" "$2"; }

same() {
    same_tensors "$work/$1/lenet-fashion-00000010.safetensors" \
        "$work/$2/lenet-fashion-00000010.safetensors" ||
        fail "$1 and $2 have different weights"
}

port() {
    python3 -c 'import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])'
}

by_variables() {
    ranks=$1
    at=$(port)
    pids=
    rank=0
    while [ $rank -lt "$ranks" ]; do
        train "variables$ranks" env RANK=$rank WORLD_SIZE="$ranks" LOCAL_RANK=$rank \
            LOCAL_WORLD_SIZE="$ranks" MASTER_ADDR=localhost MASTER_PORT="$at" \
            >"$work/log.$rank" 2>&1 &
        pids="$pids $!"
        rank=$((rank + 1))
    done
    for pid in $pids; do
        wait "$pid" || fail "a rank of $ranks ended with $?"
    done
    # Rank 0 reports, the others are quiet.
    grep -q "net 'lenet-fashion' on cpu, $ranks ranks" "$work/log.0" || fail "no report"
    [ ! -s "$work/log.1" ] || fail "rank 1 prints something"
}

# torchrun's agent may listen at MASTER_PORT itself.
by_agent() {
    ranks=$1
    python3 -c 'import socket, time
while True:
    agent, behind = socket.socket(), socket.socket()
    agent.bind(("127.0.0.1", 0))
    port = agent.getsockname()[1]
    try:
        behind.bind(("127.0.0.1", port + 1))
    except (OSError, OverflowError):
        continue
    behind.close()
    agent.listen()
    print(port, flush=True)
    time.sleep(600)' >"$work/agent" &
    agent=$!
    while [ ! -s "$work/agent" ]; do sleep 0.1; done
    at=$(cat "$work/agent")
    pids=
    rank=0
    while [ $rank -lt "$ranks" ]; do
        train "agent$ranks" env TORCHELASTIC_USE_AGENT_STORE=True RANK=$rank \
            WORLD_SIZE="$ranks" LOCAL_RANK=$rank LOCAL_WORLD_SIZE="$ranks" \
            MASTER_ADDR=localhost MASTER_PORT="$at" >"$work/log.$rank" 2>&1 &
        pids="$pids $!"
        rank=$((rank + 1))
    done
    code=0
    for pid in $pids; do
        wait "$pid" || code=$?
    done
    kill "$agent"
    [ $code -eq 0 ] || fail "a rank beside torchrun's agent ended with $code"
}

by_mpirun() {
    # mpirun wants to be told of root and of more ranks than cores.
    train mpirun2 mpirun --allow-run-as-root --oversubscribe -n 2 >"$work/log.0" 2>&1 ||
        fail "mpirun ended with $?"
    grep -q "net 'lenet-fashion' on cpu, 2 ranks" "$work/log.0" || fail "no report"

    # A contradiction with PMIx is refused by every rank before it trains.
    code=0
    train refused mpirun --allow-run-as-root --oversubscribe -n 2 env RANK=7 \
        >"$work/log.0" 2>&1 || code=$?
    [ $code -eq 2 ] || fail "a contradiction ended with $code"
    grep -q "PMIX_RANK=. and RANK=7 in the environment contradict" "$work/log.0" ||
        fail "a contradiction is not reported"
    [ ! -e "$work/refused" ] || fail "it trained in spite of the contradiction"

    # Killed, it ends no rank; they notice it, and stop with a checkpoint.
    mpirun --allow-run-as-root --oversubscribe -n 2 "$dlcore" train "$net" \
        --iterations 1000000 --threads 1 --transport $transport --run-dir "$work/killed" >"$work/log.0" 2>&1 &
    tries=0
    until grep -q "^training for" "$work/log.0" || [ $tries -gt 300 ]; do
        tries=$((tries + 1))
        sleep 0.1
    done
    kill -KILL $!
    tries=0
    while grep -qsa -e "${work}[/]killed" /proc/[0-9]*/cmdline; do
        tries=$((tries + 1))
        [ $tries -lt 100 ] || fail "ranks are left after mpirun was killed"
        sleep 0.1
    done
    ls "$work"/killed/*.safetensors >/dev/null || fail "no checkpoint after mpirun was killed"
}

by_mpiexec() {
    train mpiexec2 mpiexec.hydra -n 2 >"$work/log.0" 2>&1 || fail "mpiexec ended with $?"
    grep -q "net 'lenet-fashion' on cpu, 2 ranks" "$work/log.0" || fail "no report"

    # Every process ends with the exit code of the job.
    code=0
    train refused mpiexec.hydra -n 2 sh -c "$(cat <<'END'
[ "$PMI_RANK" = 0 ] || set -- "$@" --set solver.momentum=0.5
exec "$@"
END
)" rank >"$work/log.0" 2>&1 || code=$?
    [ $code -eq 2 ] || fail "two settings ended with $code"
    grep -q "rank 1 .* different net.ini .* momentum = 0.5 there, 0.9 on rank 0" "$work/log.0" ||
        fail "two settings are not reported"
}

by_srun() {
    for transport in host-staged p2p-tree ucx; do
        "$dlcore" plugin list | grep -q "^transport *$transport " || continue
        rm -rf "$work/srun2"
        train srun2 srun --mpi=pmix -n 2 >"$work/log.0" 2>&1 || fail "srun ended with $?"
        grep -q "^transport: $transport" "$work/log.0" || fail "not $transport"
        ! grep -q "learning rate 0 " "$work/log.0" || fail "it learns nothing"
        same ranks2 srun2
    done
    for mpi in pmi2 none; do
        rm -rf "$work/srun2"
        train srun2 srun --mpi=$mpi -n 2 >"$work/log.0" 2>&1 ||
            fail "srun --mpi=$mpi ended with $?"
        same ranks2 srun2
    done
}

# ssh, or whatever stands for it: DLCORE_TEST_LAUNCHER is given a host and a command.
by_hosts() {
    : "${DLCORE_TEST_LAUNCHER:?}"
    printf '# two hosts\n127.0.0.1:1\n127.0.0.2 slots=1 # one rank\n' >"$work/hostfile"
    "$dlcore" train "$net" --iterations 10 --threads 1 --transport $transport \
        --run-dir "$work/hosts2" --hostfile "$work/hostfile" \
        --launcher "$DLCORE_TEST_LAUNCHER" >"$work/log.0" 2>&1 ||
        fail "--hostfile ended with $?"
    grep -q "net 'lenet-fashion' on cpu, 2 ranks" "$work/log.0" || fail "no report"
}

case $launcher in
variables) if [ -n "${DLCORE_SANITIZE:-}" ]; then counts=2; else counts="2 4"; fi ;;
mpirun | mpiexec | srun | hosts) counts=2 ;;
*) fail "which launcher? variables, mpirun, mpiexec, srun or hosts" ;;
esac
for ranks in $counts; do
    "$dlcore" train "$net" --iterations 10 --threads 1 --transport host-staged \
        --run-dir "$work/ranks$ranks" --ranks "$ranks" >"$work/log.0" 2>&1 ||
        fail "--ranks=$ranks ended with $?"
    "by_$launcher" "$ranks"
    same "ranks$ranks" "$launcher$ranks"
done
if [ "$launcher" = variables ]; then
    by_agent 2
    same ranks2 agent2
fi
