/* Calls of exit() that end a job in its middle, with the exit code of a success: a
 * plugin, or a library that it uses, may make one. */
#ifndef DLC_BASE_EXIT_H
#define DLC_BASE_EXIT_H

/* From now on exit() is an error in this process and in those forked from it, which
 * is logged and ends them with another exit code than 0, until dlc_exit_allow. */
void dlc_exit_forbid(void);
/* Called before main returns, and by whoever calls exit() in order. */
void dlc_exit_allow(void);

#endif
