/* Leak check of a process, in builds with AddressSanitizer; no effect in others. */
#ifndef TEST_LEAKS_H
#define TEST_LEAKS_H

/* Checks for leaks now, for a process that ends by _exit(). Non-zero if there are any.
 */
int leaks_found(void) __attribute__((weak));

#endif
