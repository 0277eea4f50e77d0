#!/bin/sh
# machines.sh: emulates several machines by network namespaces connected to a switch.
#
#   machines.sh [-n MACHINES] [-r RANKS] [-b RATE] [-c COMMAND] -- PROGRAM [ARGUMENT...]
#
# Starts PROGRAM once per rank, RANKS on each of MACHINES machines (-n 2 -r 1), with the
# variables that torchrun sets. Every machine has a link of RATE (1gbit, 100mbit; none:
# as fast as it goes) to the switch, in both directions. COMMAND, if given, is run by sh
# meanwhile, with the machines' namespaces in $MACHINE_1, $MACHINE_2 ...: for example to
# cut a link (ip -n $MACHINE_2 link set eth0 down). Exits with the exit code of rank 0 and
# leaves nothing behind. Needs root, ip and tc (iproute2).
#
# Processes in different namespaces could still share memory: tell libraries that would
# use it not to (UCX_TLS=tcp,self), or the network is not measured.
set -eu

machines=2 ranks=1 rate='' beside=''
while getopts n:r:b:c: option; do
    case $option in
    n) machines=$OPTARG ;;
    r) ranks=$OPTARG ;;
    b) rate=$OPTARG ;;
    c) beside=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || { echo "usage: $0 [-n MACHINES] [-r RANKS] [-b RATE] [-c COMMAND] -- PROGRAM..." >&2; exit 2; }

prefix=dlm$$
switch=$prefix-switch
pids=''
others=''

# shellcheck disable=SC2317 # the trap calls it
clean_up() {
    trap '' INT TERM HUP
    # shellcheck disable=SC2086 # a list; COMMAND with all that it has started
    kill -9 $pids ${others:+-$others} 2>/dev/null || true
    i=1
    while [ "$i" -le "$machines" ]; do
        # shellcheck disable=SC2046 # what those have started, too
        kill -9 $(ip netns pids "$prefix-$i" 2>/dev/null) 2>/dev/null || true
        i=$((i + 1))
    done
    wait 2>/dev/null || true
    i=1
    while [ "$i" -le "$machines" ]; do
        ip netns del "$prefix-$i" 2>/dev/null || true
        i=$((i + 1))
    done
    ip netns del "$switch" 2>/dev/null || true
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

limit() { # NAMESPACE DEVICE: as an adapter does, which sends slowly but drops nothing
    [ -z "$rate" ] || ip netns exec "$1" tc qdisc add dev "$2" root tbf rate "$rate" burst 128k latency 200ms
}

plug_in() { # MACHINE
    name=$prefix-$1
    ip netns add "$name"
    ip -n "$name" link set lo up
    ip link add "eth0" netns "$name" type veth peer name "port$1" netns "$switch"
    ip -n "$name" addr add "10.77.0.$1/24" dev eth0
    ip -n "$name" link set eth0 up
    ip -n "$switch" link set "port$1" master br0 up
    limit "$name" eth0
    limit "$switch" "port$1"
}

ip netns add $switch
ip -n $switch link add br0 type bridge
ip -n $switch link set br0 up
i=1
while [ "$i" -le "$machines" ]; do
    plug_in $i
    export "MACHINE_$i=$prefix-$i"
    i=$((i + 1))
done

DLCORE_SECRET=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
WORLD_SIZE=$((machines * ranks)) LOCAL_WORLD_SIZE=$ranks
MASTER_ADDR=10.77.0.1 MASTER_PORT=$((20000 + $$ % 20000))
export DLCORE_SECRET WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
rank=0
first=''
while [ $rank -lt $WORLD_SIZE ]; do
    machine=$((rank / ranks + 1))
    RANK=$rank LOCAL_RANK=$((rank % ranks)) ip netns exec $prefix-$machine "$@" &
    pids="$pids $!"
    [ -n "$first" ] || first=$!
    rank=$((rank + 1))
done
if [ -n "$beside" ]; then
    setsid sh -c "$beside" &
    others=$!
fi
code=0
wait "$first" || code=$?
for pid in $pids; do
    its=0
    wait "$pid" || its=$?
    [ $its -eq 0 ] || [ $its -eq $code ] || echo "machines.sh: a rank ended with exit code $its, rank 0 with $code" >&2
done
pids=''
exit $code
