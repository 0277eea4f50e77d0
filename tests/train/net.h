/* A small net on made-up samples that it can learn, and weights compared. */
#ifndef TEST_TRAIN_NET_H
#define TEST_TRAIN_NET_H

/* Writes it to the scratch folder; `more` is added to [train]. Returns the path. */
const char *net_write(const char *more);

/* The scratch folder itself. */
const char *net_folder(void);

/* Are two checkpoints' tensors the same, to the bit? Their metadata may differ. */
int net_same_tensors(const char *one, const char *other);
/* Are two files the same bytes? */

/* The number behind "key": in a JSON text; ends the test where it isn't there. */
double net_number(const char *json, const char *key);

#endif
