#!/bin/sh
# Checks that the core stays small: libdlcore, stripped, must be under 740 KB.
# Usage: size.sh LIBRARY
# The core's size went beyond 400 KB for what protects users' work and cannot be in a plugin,
# since it concerns all of them: run folders, comparing checkpoints with the run that resumes
# them, and reporting all mistakes in a net, its shapes and its data before a job starts.
# Another 20 KB are for other frameworks' words in suggestions (config/synonyms.c), for
# escaping of names, and for comparing memory needs with what the machine has. Another 50 KB
# came from plugins, or replace what each of them did for itself: learning-rate schedules,
# updates and everything around a rule (core/solver), and checks of plugins' answers. Another 10 KB
# match weights by name and hand out what a test computes, for any layer family; another
# 70 KB load and transform samples for any source, where the loops over pixels are optimized for
# speed, 20 KB lay the ranks of a job on a mesh, and 20 KB give nets any fields of samples. 15 KB
# group ranks in domains and choose the levels of a communicator from the graph of all machines;
# 10 KB start ranks on other hosts, and 10 KB try links before training, send through levels in
# parts, and exchange split layers' rows like all other parameters. 30 KB compare what ranks must hold
# alike, weigh losses by what counts in the whole batch, and notice what plugins leave changed.
# 5 KB check who could exchange a folder above a plugin, and end commands where memory runs out.
set -eu
most=740000
stripped=$(mktemp)
trap 'rm -f "$stripped"' EXIT
strip -o "$stripped" "$1"
size=$(wc -c <"$stripped")
if [ "$size" -gt "$most" ]; then
    echo "$1: $size bytes stripped, more than $most: move something into a plugin" >&2
    exit 1
fi
echo "size: $size bytes stripped, of $most"
