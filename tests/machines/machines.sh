#!/bin/sh
# machines.sh: emulates several machines by network namespaces connected to a switch.
#
#   machines.sh [-n MACHINES] [-r RANKS] [-b RATE[,RATE...]] [-a ADAPTERS]
#               [-k MACHINES:RATE] [-s A:B:RATE] [-d ADDRESS[,ADDRESS...]] [-c COMMAND]
#               -- PROGRAM [ARGUMENT...]
#
# Starts PROGRAM once per rank, RANKS on each of MACHINES machines (-n 2 -r 1), with the
# variables that torchrun sets. Every machine has a link of RATE (1gbit, 100mbit; none:
# as fast as it goes) to the switch, in both directions; of several rates the first is
# the first machine's, and the last that of all others. With -a it has several adapters
# (eth0, eth1 ...), each in a network of its own. With -k racks of MACHINES machines have
# a switch of their own, and a link of RATE to the other racks. With -s what machines A
# and B send each other goes at RATE. With -d every machine has a bridge docker0, as that of
# a container that runs there, of ADDRESS (172.17.0.1/16). COMMAND, if given, is run by sh meanwhile, with the
# machines' namespaces in $MACHINE_1, $MACHINE_2 ...: for example to cut a link (ip -n
# $MACHINE_2 link set eth0 down). Exits with the exit code of rank 0 and leaves nothing
# behind. Needs root, ip and tc (iproute2).
#
# Processes in different namespaces could still share memory: tell libraries that would
# use it not to (UCX_TLS=tcp,self), or the network is not measured.
set -eu

machines=2 ranks=1 rates='' adapters=1 rack='' slow='' bridges='' beside=''
while getopts n:r:b:a:k:s:d:c: option; do
    case $option in
    n) machines=$OPTARG ;;
    r) ranks=$OPTARG ;;
    b) rates=$OPTARG ;;
    a) adapters=$OPTARG ;;
    k) rack=$OPTARG ;;
    s) slow=$OPTARG ;;
    d) bridges=$OPTARG ;;
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

limit() { # NAMESPACE DEVICE RATE [QUEUE]: as an adapter does, which sends slowly but drops nothing
    [ -z "$3" ] || ip netns exec "$1" tc qdisc add dev "$2" root tbf rate "$3" burst 128k limit "${4:-4m}"
}

limit_to() { # NAMESPACE DEVICE RATE ADDRESS SLOW: another rate for what goes to ADDRESS
    tc="ip netns exec $1 tc"
    $tc qdisc add dev "$2" root handle 1: htb default 1
    $tc class add dev "$2" parent 1: classid 1:1 htb rate "${3:-100gbit}" burst 128k quantum 60000
    $tc class add dev "$2" parent 1: classid 1:2 htb rate "$5" burst 128k quantum 60000
    $tc filter add dev "$2" parent 1: protocol ip u32 match ip dst "$4" flowid 1:2
}

add_switch() { # NAME
    ip -n $switch link show "$1" >/dev/null 2>&1 && return
    ip -n $switch link add "$1" type bridge
    ip -n $switch link set "$1" up
}

join_racks() { # RACK ADAPTER
    ip -n $switch link show "up$1$2" >/dev/null 2>&1 && return
    add_switch "core$2"
    add_switch "rack$1$2"
    ip -n $switch link add "up$1$2" type veth peer name "down$1$2"
    ip -n $switch link set "up$1$2" master "rack$1$2" up
    ip -n $switch link set "down$1$2" master "core$2" up
    limit $switch "up$1$2" "${rack#*:}" 16m
    limit $switch "down$1$2" "${rack#*:}" 16m
}

# The other machine of the slow pair; empty: this one is not in it.
slow_peer() { # MACHINE
    pair=${slow%:*}
    if [ "$1" = "${pair%:*}" ]; then
        echo "${pair#*:}"
    elif [ "$1" = "${pair#*:}" ]; then
        echo "${pair%:*}"
    fi
}

plug_in() { # MACHINE ADAPTER RATE
    name=$prefix-$1 in=core$2 port=port$1.$2
    if [ -n "$rack" ]; then
        in=rack$((($1 - 1) / ${rack%:*}))$2
        join_racks $((($1 - 1) / ${rack%:*})) "$2"
    fi
    add_switch "$in"
    ip link add "eth$2" netns "$name" type veth peer name "$port" netns "$switch"
    ip -n "$name" addr add "10.77.$2.$1/24" dev "eth$2"
    ip -n "$name" link set "eth$2" up
    ip -n "$switch" link set "$port" master "$in" up
    peer=$(slow_peer "$1")
    if [ -n "$peer" ]; then
        limit_to "$name" "eth$2" "$3" "10.77.$2.$peer" "${slow##*:}"
    else
        limit "$name" "eth$2" "$3"
    fi
    limit "$switch" "$port" "$3"
}

add_bridge() { # MACHINE ADDRESS
    [ -n "$2" ] || return 0
    ip -n "$prefix-$1" link add docker0 type bridge
    ip -n "$prefix-$1" link add veth0 type veth peer name inside0
    ip -n "$prefix-$1" link set veth0 master docker0 up
    ip -n "$prefix-$1" link set inside0 up
    ip -n "$prefix-$1" addr add "$2" dev docker0
    ip -n "$prefix-$1" link set docker0 up
    # The kernel tells a bridge a moment later that a link in it is up.
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        ! ip -n "$prefix-$1" link show docker0 | grep -q LOWER_UP || return 0
        sleep 0.1
    done
    echo "machines.sh: docker0 of machine $1 does not come up" >&2
    return 1
}

ip netns add $switch
i=1
while [ "$i" -le "$machines" ]; do
    ip netns add "$prefix-$i"
    ip -n "$prefix-$i" link set lo up
    k=0
    while [ "$k" -lt "$adapters" ]; do
        plug_in "$i" "$k" "${rates%%,*}"
        k=$((k + 1))
    done
    rates=${rates#*,}
    add_bridge "$i" "${bridges%%,*}"
    bridges=${bridges#*,}
    export "MACHINE_$i=$prefix-$i"
    i=$((i + 1))
done

DLCORE_SECRET=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
WORLD_SIZE=$((machines * ranks)) LOCAL_WORLD_SIZE=$ranks
MASTER_ADDR=10.77.0.1 MASTER_PORT=$((20000 + $$ % 12000))
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
