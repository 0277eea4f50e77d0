/* A small net on synthetic samples that it can learn, and comparisons of checkpoints;
 * for the tests of this folder. */
#ifndef TEST_TRAIN_NET_H
#define TEST_TRAIN_NET_H

/* Writes the net.ini to the scratch folder; `more` is added to [train]. Returns the
 * path. */
const char *net_write(const char *more);

/* The path of the scratch folder. */
const char *net_folder(void);

/* Are the tensors of two checkpoints bitwise identical? Their metadata may differ. */
int net_same_tensors(const char *one, const char *other);
/* Are two files identical? */

/* The number after "key": in a JSON text; fails the test if it is not there. */
double net_number(const char *json, const char *key);

#endif
