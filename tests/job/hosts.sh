#!/bin/sh
# Ends jobs of two hosts in every way: all ranks end, none is left behind, and the exit code
# is the job's. A script stands for ssh; sshd.sh launchers.sh uses the real one.
set -eu
dlcore=${DLCORE_BIN:?the command}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
net=$work/net.ini
sed -e '/^\[data.test\]/,/^$/d' "$DLCORE_SOURCE_DIR/models/lenet-fashion.ini" >"$net"

# "unreachable" and "bare" are hosts that ssh does not reach, and that have no dlcore; "deaf"
# and "greedy" run nothing and end with 0, one of them after it has read what it is sent;
# "stuck" runs nothing and does not end.
cat >"$work/ssh" <<'END'
#!/bin/sh
host=$1
shift
case $host in
unreachable) exit 255 ;;
deaf) echo welcome && exit 0 ;;
greedy) exec head -c 100 >/dev/null ;;
stuck) exec sleep 1000 ;;
bare) exec sh -c "/nonexistent$*" ;;
esac
exec sh -c "$*"
END
chmod +x "$work/ssh"

fail() {
    echo "hosts.sh: $*" >&2
    cat "$work/log" >&2
    exit 1
}

# start HOSTS [OPTION...]: trains for ever, in the background
start() {
    hosts=$1
    shift
    rm -rf "$work/run"
    "$dlcore" train "$net" --iterations 1000000 --threads 1 --transport host-staged \
        --run-dir "$work/run" --hosts="$hosts" --launcher="$work/ssh" "$@" \
        >"$work/log" 2>&1 &
    job=$!
}

# The process numbers, without grep's own.
ranks() { grep -lsa -e "${work}[/]run" /proc/[0-9]*/cmdline | cut -d / -f 3 | sort -n; }

# No process of the job may be there 8 s later.
none_left() {
    tries=0
    while [ -n "$(ranks)" ]; do
        tries=$((tries + 1))
        [ $tries -lt 80 ] || fail "$1: $(ranks | wc -l) processes are left"
        sleep 0.1
    done
}

# ends CODE WHAT: the job ends with that code
ends() {
    code=0
    wait "$job" || code=$?
    [ $code -eq "$1" ] || fail "$2: ended with $code, not with $1"
    none_left "$2"
}

# says TEXT
says() { grep -q -e "$1" "$work/log" || fail "it does not say: $1"; }

until_training() {
    tries=0
    until grep -q "^training for" "$work/log"; do
        tries=$((tries + 1))
        [ $tries -lt 300 ] || fail "it does not train"
        sleep 0.1
    done
    sleep 0.5
}

start 127.0.0.1:1,127.0.0.2:2
until_training
kill -TERM $job
ends 143 "SIGTERM"
ls "$work"/run/*.safetensors >/dev/null || fail "SIGTERM writes no checkpoint"

start 127.0.0.1:1,127.0.0.2:1
until_training
kill -KILL $job
wait $job || true
none_left "a killed launcher"

# Only SIGKILL ends a process that is stopped: the one that a host starts for a rank.
start 127.0.0.1:1,127.0.0.2:2
until_training
kill -STOP "$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$(ranks | tail -n 1)/status")"
kill -KILL $job
wait $job || true
none_left "a killed launcher, and a stopped rank"

start 127.0.0.1:1,127.0.0.2:1
until_training
kill -KILL "$(ranks | tail -n 1)"
ends 5 "a killed rank"
says "was killed by signal 9"

# The process that forked rank 0, and through which all others hear of each other.
start 127.0.0.1:1,127.0.0.2:1
until_training
for pid in $(ranks); do
    ! tr '\0' '\n' <"/proc/$pid/environ" | grep -qx RANK=0 || break
done
kill -KILL "$pid"
ends 5 "a killed process of rank 0"
says "the process of rank 0 was killed by signal 9"

start stuck:1,127.0.0.1:1
sleep 1
kill -TERM $job
sleep 0.5
kill -TERM $job
(sleep 20 && kill -KILL $job) 2>/dev/null &
ends 5 "two SIGTERMs"

start 127.0.0.1:1,unreachable:1
ends 5 "an unreachable host"
says "host unreachable was not reached"

start 127.0.0.1:1,bare:1
ends 5 "a host without dlcore"
says "host bare cannot run"

# Alone, first and last, and at once: not when the rendezvous times out.
for hosts in deaf greedy:2 deaf,127.0.0.1 127.0.0.1,greedy; do
    start $hosts --set parallel.rendezvous_timeout=1000
    ends 5 "$hosts"
    says "host [dg].*: .$work/ssh [dg].*dlcore node. ended with code 0 before its ranks joined"
done

start 127.0.0.1:1,127.0.0.2:1 --set solver.type=none
ends 2 "a wrong setting"
says 'no solver "none"'

# refused TEXT OPTION...: a command line that is wrong
refused() {
    text=$1
    shift
    code=0
    "$dlcore" train "$net" "$@" >"$work/log" 2>&1 || code=$?
    [ $code -eq 2 ] || fail "$*: ended with $code, not with 2"
    says "$text"
}

refused "'a:0': a job has" --hosts=a:0
refused "'b:1x'" --hosts=a:1,b:1x
refused "'': that is no host's name" --hosts=a,,b
refused "'-oX': that is no host's name" --hosts=-oX
refused "'a:1024': a job has" --hosts=a,a:1024
refused "bracket" --hosts='[::1'
refused "given twice" --hosts=a --hosts=b
refused "needs --hosts" --launcher=ssh
refused "cannot be opened" --hostfile="$work/none"
printf 'a slots=2\nb cores=3\n' >"$work/hostfile"
refused "hostfile, line 2: 'cores=3'" --hostfile="$work/hostfile"
printf '# nothing\n\n' >"$work/hostfile"
refused "names no host" --hostfile="$work/hostfile"
code=0
echo hello | "$dlcore" node >"$work/log" 2>&1 || code=$?
[ $code -eq 5 ] || fail "dlcore node: ended with $code"
says "standard input is not what"
