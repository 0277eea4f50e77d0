/* Starts a command's ranks on several hosts. */
#include "hosts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "command.h"
#include "job/job.h"
#include "job/launch/remote.h"
#include "options.h"

enum { KEY_HOSTS = 0x500, KEY_HOSTFILE, KEY_LAUNCHER };

static const struct argp_option options[] = {
    {"hosts", KEY_HOSTS, "HOST:RANKS,...", 0,
     "start that many ranks on each of these hosts, by ssh", 1},
    {"hostfile", KEY_HOSTFILE, "FILE", 0,
     "read the hosts from FILE, one per line: HOST:RANKS, HOST RANKS or HOST slots=RANKS; "
     "names may repeat, as in PBS_NODEFILE",
     1},
    {"launcher", KEY_LAUNCHER, "COMMAND", 0,
     "start ranks by COMMAND instead of ssh; its arguments are a host and the program to "
     "run there",
     1},
    {0}};

static void take(dlc_status status, struct argp_state *state) {
    if (status != DLC_OK)
        argp_error(state, "%s", dlc_detail());
}

static error_t parse(int key, char *argument, struct argp_state *state) {
    dlc_tool_hosts *hosts = state->input;
    if ((key == KEY_HOSTS || key == KEY_HOSTFILE) && hosts->hosts.count)
        argp_error(state, "the hosts are given twice: by --hosts and --hostfile");
    switch (key) {
    case KEY_HOSTS:
        take(dlc_hosts_parse(argument, &hosts->hosts), state);
        return 0;
    case KEY_HOSTFILE:
        take(dlc_hosts_read(argument, &hosts->hosts), state);
        return 0;
    case KEY_LAUNCHER:
        hosts->launcher = argument;
        return 0;
    case ARGP_KEY_END:
        if (hosts->launcher && !hosts->hosts.count)
            argp_error(state, "--launcher needs --hosts or --hostfile");
        if (hosts->launcher && !hosts->launcher[strspn(hosts->launcher, " ")])
            argp_error(state, "--launcher is empty");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp dlc_tool_hosts_argp = {.options = options, .parser = parse};

int dlc_tool_hosts_given(const dlc_tool_hosts *hosts) {
    return hosts->hosts.count > 0 && !getenv("DLCORE_NODE");
}

/* ---- The command line that every rank gets -----------------------------------------
 */

static char **command_line; /* main's, unchanged */

dlc_status dlc_tool_hosts_keep(char **argv) {
    int count = 0;
    while (argv[count])
        count++;
    command_line = dlc_alloc((size_t)count + 1, sizeof *command_line);
    if (!command_line)
        return DLC_ERR_NOMEM;
    memcpy(command_line, argv, (size_t)count * sizeof *command_line);
    return DLC_OK;
}

static dlc_status run(const dlc_tool_hosts *hosts, int *exit_code) {
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length < 0)
        return dlc_fail(DLC_ERR_IO, "the path of this command is unknown: %s",
                        strerror(errno));
    path[length] = '\0';
    if (dlc_job_is_external())
        return dlc_fail(DLC_ERR_CONFIG,
                        "--hosts starts the ranks, but another launcher has started "
                        "this process as one already: use only one of them");
    command_line[0] = path;
    const dlc_remote_launch_args args = {
        .hosts = &hosts->hosts, .launcher = hosts->launcher, .arguments = command_line};
    return dlc_remote_launch(&args, exit_code);
}

int dlc_tool_hosts_run(const dlc_tool_hosts *hosts) {
    int exit_code = 0;
    dlc_status status = run(hosts, &exit_code);
    return status == DLC_OK ? exit_code : dlc_tool_end(status);
}

/* ---- dlcore node: the far end -------------------------------------------------------
 */

int dlc_command_node(int argc, char **argv) {
    int exit_code = 0;
    (void)argv;
    dlc_status status = argc == 1 ? dlc_remote_node_run(&exit_code)
                                  : dlc_fail(DLC_ERR_CONFIG,
                                             "dlcore node takes no arguments: "
                                             "`dlcore train --hosts` starts it");
    return status == DLC_OK ? exit_code : dlc_tool_end(status);
}
