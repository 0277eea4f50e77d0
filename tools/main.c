/* The dlcore command: finds the subcommand, prepares the process, and calls it. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/exit.h"
#include "base/log.h"
#include "base/process.h"
#include "command.h"
#include "config/suggest.h"
#include "hosts.h"
#include "spinning.h"
#include "streams.h"
#include "topology/cores.h"

typedef struct subcommand {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help; /* NULL: not for people */
} subcommand;

static const subcommand subcommands[] = {
    {"train", dlc_command_train, "train a net"},
    {"test", dlc_command_test, "accuracy and loss of saved weights on [data.test]"},
    {"predict", dlc_command_predict,
     "classes or features of samples, with saved weights"},
    {"time", dlc_command_time, "profile a net, layer by layer"},
    {"check", dlc_command_check, "check a net: mistakes, shapes, parameters, memory"},
    {"bench", dlc_command_bench, "measure communication between ranks"},
    {"topo", dlc_command_topo,
     "show the interconnect and the route between each pair of ranks"},
    {"data", dlc_command_data, "inspect, split and convert the samples of a net"},
    {"plan", dlc_command_plan, "predict how fast a net trains on other machines"},
    {"plugin", dlc_command_plugin, "list, inspect, check and create plugins"},
    {"doctor", dlc_command_doctor, "show what works here, what does not, and why"},
    {"node", dlc_command_node, NULL},
};

enum { SUBCOMMANDS = sizeof subcommands / sizeof *subcommands };

static void print_help(FILE *out) {
    fprintf(out, "Usage: dlcore COMMAND [OPTION...]\n"
                 "Trains neural networks over any interconnect.\n\n");
    for (int i = 0; i < SUBCOMMANDS && subcommands[i].help; i++)
        fprintf(out, "  %-8s %s\n", subcommands[i].name, subcommands[i].help);
    fputs(
        "\n`dlcore COMMAND --help` shows its options, `dlcore --version` the version.\n"
        "Exit codes: 0 done, 1 failure, 2 usage or configuration, 3 plugin missing or\n"
        "refused, 4 bad data or checkpoint, 5 a peer was lost, 128+n stopped by signal n.\n",
        out);
}

static int unknown(const char *name) {
    const char *names[SUBCOMMANDS];
    for (int i = 0; i < SUBCOMMANDS; i++)
        names[i] = subcommands[i].name;
    const char *nearest = dlc_nearest(name, names, SUBCOMMANDS);
    dlc_error("dlcore has no command '%s' (see dlcore --help)%s%s%s", name,
              nearest ? "; did you mean '" : "", nearest ? nearest : "",
              nearest ? "'?" : "");
    return 2;
}

int main(int argc, char **argv) {
    /* Exceeding the limit on file sizes is an error to report, not a reason to die. */
    signal(SIGXFSZ, SIG_IGN);
    dlc_process_begin();
    dlc_tool_limit_spinning();
    if (dlc_tool_guard_streams() != DLC_OK || dlc_tool_hosts_keep(argv) != DLC_OK) {
        dlc_error("%s", dlc_detail());
        return 1;
    }
    dlc_cores_save_affinity();
    if (argc < 2) {
        print_help(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("dlcore %s\n", DLC_VERSION);
        return 0;
    }
    for (int i = 0; i < SUBCOMMANDS; i++) {
        if (strcmp(argv[1], subcommands[i].name) != 0)
            continue;
        static char name[64]; /* argv keeps pointing to it */
        snprintf(name, sizeof name, "dlcore %s", subcommands[i].name);
        argv[1] = name;
        dlc_exit(subcommands[i].run(argc - 1, argv + 1));
    }
    return unknown(argv[1]);
}
