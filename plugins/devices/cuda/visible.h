/* CUDA_VISIBLE_DEVICES, interpreted as CUDA does. */
#ifndef VISIBLE_H
#define VISIBLE_H

/* Which of `count` GPUs a process sees, and in which order: fills in chosen[0 ..
 * returned-1] with their indices. `text` is the variable, NULL if it is not set;
 * uuids[i] begins with "GPU-". *problem, if set, says what is wrong from `at` on, a
 * part of text, which CUDA ignores with all that follows; NULL: nothing. */
int visible_choose(const char *text, const char *const *uuids, int count, int *chosen,
                   const char **problem, const char **at);

#endif
