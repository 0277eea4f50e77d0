/* CUDA_VISIBLE_DEVICES, read as CUDA reads it. */
#ifndef VISIBLE_H
#define VISIBLE_H

/* Which of `count` GPUs a process sees, and in which order: fills in chosen[0 ..
 * returned-1] with their numbers. `text` is the variable, NULL where it isn't set;
 * uuids[i] begins with "GPU-". *problem, if set, says what is wrong from `at` on, a
 * part of text: CUDA takes no notice of that and of what follows; NULL: nothing. */
int visible_choose(const char *text, const char *const *uuids, int count, int *chosen,
                   const char **problem, const char **at);

#endif
