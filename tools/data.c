/* dlcore data: dispatches to the command on data that is named. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "command.h"
#include "config/suggest.h"
#include "data_commands.h"

static const struct subject {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} subjects[] = {
    {"stats", dlc_command_data_stats, "counts, classes, sizes, mean and deviation"},
    {"verify", dlc_command_data_verify,
     "read and decode every sample; list the bad ones"},
    {"preview", dlc_command_data_preview,
     "draw what the net is shown, with its labels"},
    {"convert", dlc_command_data_convert,
     "write the samples as tar files that are read fast"},
    {"split", dlc_command_data_split, "split a list of files in two, class by class"},
};

enum { SUBJECTS = sizeof subjects / sizeof *subjects };

static void print_help(FILE *out) {
    fputs("Usage: dlcore data COMMAND [OPTION...] NET.INI\n"
          "Inspects, splits and converts the samples of a net.\n\n",
          out);
    for (int i = 0; i < SUBJECTS; i++)
        fprintf(out, "  %-8s %s\n", subjects[i].name, subjects[i].help);
    fputs("\nSee `dlcore data COMMAND --help`.\n", out);
}

static int unknown(const char *name) {
    const char *names[SUBJECTS];
    for (int i = 0; i < SUBJECTS; i++)
        names[i] = subjects[i].name;
    const char *nearest = dlc_nearest(name, names, SUBJECTS);
    dlc_error("dlcore data: there is no command '%s' (see dlcore data --help)%s%s%s",
              name, nearest ? "; did you mean '" : "", nearest ? nearest : "",
              nearest ? "'?" : "");
    return 2;
}

int dlc_command_data(int argc, char **argv) {
    static char name[64]; /* argv keeps pointing to it */
    if (argc < 2) {
        print_help(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help(stdout);
        return 0;
    }
    for (int i = 0; i < SUBJECTS; i++) {
        if (strcmp(argv[1], subjects[i].name) != 0)
            continue;
        (void)snprintf(name, sizeof name, "dlcore data %s", subjects[i].name);
        argv[1] = name;
        return subjects[i].run(argc - 1, argv + 1);
    }
    return unknown(argv[1]);
}
