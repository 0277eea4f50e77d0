#!/bin/sh
# Installs what dlcore needs to be built and checked, as packaging/debian/control
# lists it. Instant, and without any rights, when everything is there.
#
#   packaging/deps.sh             everything: build, demo and `make check`
#   packaging/deps.sh --nocheck   without what only the tests need
#   packaging/deps.sh --list      prints what is missing, installs nothing
set -eu

here=$(cd "$(dirname "$0")" && pwd)
control=$here/debian/control
profiles=
action=install
for arg in "$@"; do
    case $arg in
    --nocheck) profiles=nocheck ;;
    --list) action=list ;;
    *)
        echo "usage: packaging/deps.sh [--nocheck] [--list]" >&2
        exit 2
        ;;
    esac
done

say() { printf 'deps: %s\n' "$*" >&2; }

# Build-Depends, one dependency a line: "name (>= version) | name <profile>".
wanted() {
    awk '/^#/ {next}
         /^[^ ]/ {on = /^Build-Depends:/; sub(/^[^:]*:/, "")}
         on {print}' "$control" | tr ',' '\n' |
        sed -e 's/^ *//' -e 's/ *$//' -e '/^$/d'
}

# Those of them whose package, by name or as provided by another, isn't
# installed. Versions are left to apt, which is asked when something is missing.
missing() {
    installed=$(dpkg-query -W -f='${db:Status-Abbrev}|${Package}, ${Provides}\n' |
        sed -n 's/^.i |//p' | tr ',' '\n' | sed -e 's/([^)]*)//g' -e 's/ //g')
    # A compiler is taken for granted in Build-Depends, not by a fresh machine.
    { wanted; echo build-essential; } | while IFS= read -r clause; do
        case $profiles:$clause in
        nocheck:*'<!nocheck>'*) continue ;;
        *:debhelper-compat*) continue ;; # for `make deb` only; comes along
        esac
        clause=$(printf '%s' "$clause" | sed -e 's/<[^>]*>//g' -e 's/([^)]*)//g')
        found=no
        for name in $(printf '%s' "$clause" | tr '|' ' '); do
            if printf '%s\n' "$installed" | grep -qxF "$name"; then
                found=yes
            fi
        done
        [ $found = yes ] || printf '%s\n' "$clause" | sed 's/ *$//'
    done
}

# Where apt can't be asked: look for the things themselves; prints what isn't there.
absent() {
    lacking=
    for tool in cc cmake ninja pkg-config python3; do
        command -v "$tool" >/dev/null 2>&1 || lacking="$lacking $tool"
    done
    for module in hwloc expat jansson libcrypto zlib libdeflate; do
        pkg-config --exists "$module" 2>/dev/null || lacking="$lacking $module"
    done
    header() {
        for path in "$@"; do
            if printf '#include <%s>\n' "$path" | cc -E - >/dev/null 2>&1; then
                return 0
            fi
        done
        return 1
    }
    header iniparser.h iniparser/iniparser.h || lacking="$lacking iniparser"
    header xxhash.h || lacking="$lacking xxhash"
    header dnnl.h oneapi/dnnl/dnnl.h || lacking="$lacking oneDNN"
    if [ -z "$profiles" ]; then
        pkg-config --exists check 2>/dev/null || lacking="$lacking check"
        for tool in clang-format clang-tidy cppcheck shellcheck valgrind; do
            command -v "$tool" >/dev/null 2>&1 || lacking="$lacking $tool"
        done
    fi
    printf '%s' "$lacking"
}

elsewhere() {
    lacking=$(absent)
    if [ -z "$lacking" ]; then
        return 0
    fi
    say "this is not Debian or Ubuntu, so nothing is installed for you. Missing:"
    say " $lacking"
    say "Install these with their headers (-devel packages) and run this again."
    say "On Fedora: dnf builddep packaging/rpm/dlcore.spec"
    say "The demo's data (Fashion-MNIST) is Debian's dataset-fashion-mnist package;"
    say "elsewhere put its four .gz files into /usr/share/datasets/fashion-mnist."
    return 1
}

# The packages aren't all there and can't be had; the things may be, all the same.
go_on_or_fail() {
    if [ -z "$(absent)" ]; then
        say "going on: what they are for is here in another way"
        exit 0
    fi
    exit 1
}

if ! command -v apt-get >/dev/null 2>&1 || ! command -v dpkg-query >/dev/null 2>&1; then
    elsewhere
    exit
fi

lacking=$(missing)
if [ -z "$lacking" ]; then
    exit 0
fi
names=$(printf '%s' "$lacking" | tr '\n' ' ')
if [ $action = list ]; then
    printf '%s\n' "$lacking"
    exit 1
fi

say "missing: $names"
root=
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        say "to install them, run as root:"
        say "  apt-get update && apt-get build-dep '$here'"
        go_on_or_fail
    fi
    root=sudo
fi

apt() {
    $root env DEBIAN_FRONTEND=noninteractive apt-get -y -q \
        -o DPkg::Lock::Timeout=300 -o APT::Install-Recommends=false "$@"
}
build_dep() {
    # shellcheck disable=SC2086
    apt "$@" ${profiles:+--build-profiles $profiles} build-dep "$here"
}

# Package lists that are absent or too old to resolve everything are fetched.
if ! build_dep --simulate >/dev/null 2>&1; then
    say "fetching the package lists"
    apt update || say "not every list could be fetched"
fi
say "installing"
if ! build_dep; then
    say "could not install everything. Missing still:" "$(missing | tr '\n' ' ')"
    say "Install these by hand and run this again."
    go_on_or_fail
fi
