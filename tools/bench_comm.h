/* dlcore bench comm. */
#ifndef DLC_TOOLS_BENCH_COMM_H
#define DLC_TOOLS_BENCH_COMM_H

int dlc_command_bench_comm(int argc, char **argv);

#endif
