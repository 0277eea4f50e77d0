#!/bin/sh
# sshd.sh PROGRAM [ARGUMENT...]: runs PROGRAM with a temporary sshd on this machine's
# loopback addresses. DLCORE_TEST_LAUNCHER is the ssh command that reaches it without a
# password. All its files are in a temporary folder. Exits with PROGRAM's exit code.
set -eu
PATH=$PATH:/usr/sbin:/sbin
[ $# -gt 0 ] || { echo "usage: $0 PROGRAM [ARGUMENT...]" >&2; exit 2; }
for tool in sshd ssh ssh-keygen; do
    command -v $tool >/dev/null 2>&1 && continue
    echo "there is no $tool: run packaging/deps.sh" >&2
    exit 1
done

work=$(mktemp -d)
daemon=
# shellcheck disable=SC2317 # the trap calls it
clean_up() {
    trap '' INT TERM HUP
    if [ -n "$daemon" ]; then kill "$daemon" 2>/dev/null || true; fi
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

port=$(python3 -c 'import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])')
ssh-keygen -q -t ed25519 -N '' -f "$work/host"
ssh-keygen -q -t ed25519 -N '' -f "$work/user"
cp "$work/user.pub" "$work/authorized"
cat >"$work/config" <<END
Port $port
ListenAddress 127.0.0.1
ListenAddress 127.0.0.2
HostKey $work/host
AuthorizedKeysFile $work/authorized
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
END
[ "$(id -u)" -ne 0 ] || mkdir -p /run/sshd # where sshd as root wants to chroot to
"$(command -v sshd)" -D -e -f "$work/config" 2>"$work/log" &
daemon=$!
export DLCORE_TEST_LAUNCHER="ssh -q -p $port -i $work/user -o BatchMode=yes\
 -o IdentitiesOnly=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"

tries=0
until $DLCORE_TEST_LAUNCHER 127.0.0.2 true 2>/dev/null; do
    tries=$((tries + 1))
    if [ $tries -gt 100 ]; then
        cat "$work/log"
        echo "sshd does not start here" >&2
        exit 1
    fi
    sleep 0.1
done
code=0
"$@" || code=$?
exit $code
