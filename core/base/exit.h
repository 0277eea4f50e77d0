/* The end of the process: in order, whatever a plugin, or a library that it uses, does
 * then; and reports of one that ends it in the middle of its work. */
#ifndef DLC_BASE_EXIT_H
#define DLC_BASE_EXIT_H

/* From now on exit() is an error in this process and in those forked from it, which
 * is logged and ends them with another exit code than 0, until dlc_exit_allow. Crashes
 * are logged, too. Both name the file that is to blame. */
void dlc_exit_forbid(void);
/* Called by whoever watches how the process ends. */
void dlc_exit_allow(void);

/* Ends the process by exit(), with this code also if an exit handler or a destructor
 * crashes or does not return, which is logged. */
void dlc_exit(int code) __attribute__((noreturn));

#endif
