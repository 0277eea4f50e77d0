#!/bin/sh
# Installs the packages that building and testing dlcore need, from the list in
# packaging/debian/control. If all are installed it returns at once and needs no privileges.
#
#   packaging/deps.sh             everything: build, demo and `make check`
#   packaging/deps.sh --nocheck   without packages that only tests need
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

# Prints Build-Depends, one dependency per line: "name (>= version) | name <profile>".
wanted() {
    awk '/^#/ {next}
         /^[^ ]/ {on = /^Build-Depends:/; sub(/^[^:]*:/, "")}
         on {print}' "$control" | tr ',' '\n' |
        sed -e 's/^ *//' -e 's/ *$//' -e '/^$/d'
}

# Prints those dependencies whose package is not installed, by name or provided by another.
# Versions are checked by apt, which is only called if something is missing.
missing() {
    installed=$(dpkg-query -W -f='${db:Status-Abbrev}|${Package}, ${Provides}\n' |
        sed -n 's/^.i |//p' | tr ',' '\n' | sed -e 's/([^)]*)//g' -e 's/ //g')
    # Build-Depends implies a compiler, which a fresh machine may lack.
    { wanted; echo build-essential; } | while IFS= read -r clause; do
        case $profiles:$clause in
        nocheck:*'<!nocheck>'*) continue ;;
        *:debhelper-compat*) continue ;; # only for `make deb`
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

# Without apt: looks for the programs, libraries and headers; prints those that are missing.
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
    say "this is not Debian or Ubuntu, so nothing is installed automatically. Missing:"
    say " $lacking"
    say "Install these with their headers (-devel packages), then run this again."
    say "On Fedora: dnf builddep packaging/rpm/dlcore.spec"
    say "The demo's data (Fashion-MNIST) is Debian's dataset-fashion-mnist package;"
    say "elsewhere put its four .gz files in /usr/share/datasets/fashion-mnist."
    return 1
}

# Packages are missing and cannot be installed, but their contents may be here anyway.
continue_or_fail() {
    if [ -z "$(absent)" ]; then
        say "continuing: what these packages provide is installed in another way"
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
        continue_or_fail
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

# Fetches package lists that are missing or too old to resolve all dependencies.
if ! build_dep --simulate >/dev/null 2>&1; then
    say "fetching the package lists"
    apt update || say "some package lists could not be fetched"
fi
say "installing"
if ! build_dep; then
    say "could not install everything. Still missing:" "$(missing | tr '\n' ' ')"
    say "Install these by hand, then run this again."
    continue_or_fail
fi
