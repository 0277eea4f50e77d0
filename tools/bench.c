/* dlcore bench: dispatches to the benchmark that is named. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "bench_comm.h"
#include "command.h"
#include "config/suggest.h"

static const char *const subjects[] = {"comm"};

static void print_help(FILE *out) {
    fprintf(out, "Usage: dlcore bench comm [OPTION...]\n"
                 "Benchmarks the communication of ranks.\n\n"
                 "  comm  time and bandwidth of collectives and messages\n\n"
                 "See `dlcore bench comm --help`.\n");
}

int dlc_command_bench(int argc, char **argv) {
    static char name[] = "dlcore bench comm"; /* argv keeps pointing to it */
    if (argc < 2) {
        print_help(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--help") == 0) {
        print_help(stdout);
        return 0;
    }
    if (strcmp(argv[1], "comm") != 0) {
        const char *nearest = dlc_nearest(argv[1], subjects, 1);
        dlc_error(
            "dlcore bench: there is no benchmark '%s' (see dlcore bench --help)%s%s%s",
            argv[1], nearest ? "; did you mean '" : "", nearest ? nearest : "",
            nearest ? "'?" : "");
        return 2;
    }
    argv[1] = name;
    return dlc_command_bench_comm(argc - 1, argv + 1);
}
