/* The entries of the dlcore command, one per subcommand, each in a file of its own.
 * main.c calls them with argv[0] = "dlcore train" etc.; they return the exit code (0
 * done, 1 failure, 2 usage or configuration, 3 plugin, 4 data or checkpoint, 5 a peer
 * was lost). */
#ifndef DLC_TOOLS_COMMAND_H
#define DLC_TOOLS_COMMAND_H

int dlc_command_train(int argc, char **argv);
int dlc_command_test(int argc, char **argv);
int dlc_command_predict(int argc, char **argv);
int dlc_command_check(int argc, char **argv);
int dlc_command_time(int argc, char **argv);
int dlc_command_topo(int argc, char **argv);
int dlc_command_plan(int argc, char **argv);
int dlc_command_bench(int argc, char **argv);
int dlc_command_plugin(int argc, char **argv);
int dlc_command_data(int argc, char **argv);
int dlc_command_doctor(int argc, char **argv);
/* Not for people: the far end of --hosts. */
int dlc_command_node(int argc, char **argv);

#endif
