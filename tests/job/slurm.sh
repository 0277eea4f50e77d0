#!/bin/sh
# slurm.sh PROGRAM [ARGUMENT...]: runs PROGRAM with a temporary Slurm on this machine, which
# srun then uses. All its files are in a temporary folder; an installed Slurm or MUNGE is not
# touched. Exits with PROGRAM's exit code, or with 77 without root, which slurmd needs, or
# where a distribution other than Debian has no Slurm.
set -eu
PATH=$PATH:/usr/sbin:/sbin
[ $# -gt 0 ] || { echo "usage: $0 PROGRAM [ARGUMENT...]" >&2; exit 2; }

skip() {
    echo "skipped: $*"
    exit 77
}
[ "$(id -u)" -eq 0 ] || skip "slurmd needs root"
for tool in munged slurmctld slurmd srun scontrol; do
    command -v $tool >/dev/null 2>&1 && continue
    command -v dpkg-query >/dev/null 2>&1 || skip "this is not Debian, and has no $tool"
    echo "there is no $tool: run packaging/deps.sh" >&2
    exit 1
done

work=$(mktemp -d)
pids=
# shellcheck disable=SC2317 # the trap calls it
clean_up() {
    trap '' INT TERM HUP
    for pid in $pids; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

chmod 711 "$work" # munged requires that all users can reach its socket
mkdir "$work/state" "$work/spool"
head -c 128 /dev/urandom >"$work/key"
chmod 600 "$work/key"

free_ports() {
    python3 -c 'import socket
all = [socket.socket() for _ in range(2)]
for s in all:
    s.bind(("127.0.0.1", 0))
print(*(s.getsockname()[1] for s in all))'
}
ports=$(free_ports)
host=$(hostname -s)
export SLURM_CONF="$work/slurm.conf"
cat >"$SLURM_CONF" <<END
ClusterName=dlcore
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=${ports% *}
SlurmdPort=${ports#* }
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$work/munge.socket
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=8
PartitionName=all Nodes=$host Default=YES
END

munged --foreground --force --key-file="$work/key" --socket="$work/munge.socket" \
    --pid-file="$work/munged.pid" --log-file="$work/munged.log" \
    --seed-file="$work/munged.seed" >"$work/munged.out" 2>&1 &
pids=$!
slurmctld -D -i >/dev/null 2>&1 &
pids="$! $pids"
slurmd -D -N "$host" >/dev/null 2>&1 &
pids="$! $pids"

# It takes a second or two until the node has registered.
tries=0
until scontrol show node "$host" 2>/dev/null | grep -q 'State=IDLE'; do
    tries=$((tries + 1))
    if [ $tries -gt 150 ]; then
        tail -n 5 "$work"/*.log
        echo "Slurm does not start here" >&2
        exit 1
    fi
    sleep 0.2
done
"$@" &
pids="$! $pids"
code=0
wait $! || code=$?
exit $code
