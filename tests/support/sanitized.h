/* Is this one of the sanitizers' builds? There a process takes a second to begin and to
 * end, and what matters is that all code is run, not how often: loops over numbers of
 * ranks, kinds of machines and random moments, which the release build runs whole, are
 * cut short. */
#ifndef TEST_SANITIZED_H
#define TEST_SANITIZED_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

#endif
