/* Leaks of a process, in builds with the address sanitizer; nothing is there in others.
 */
#ifndef TEST_LEAKS_H
#define TEST_LEAKS_H

/* Looks for them now, for a process that ends by _exit(): not 0 if there are any. */
int leaks_found(void) __attribute__((weak));

#endif
