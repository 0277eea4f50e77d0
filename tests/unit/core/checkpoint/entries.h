/* Folders whose entries a test lists itself: readdir() of the first folder that is read
 * returns these names in this order, and then fails if it shall. Others are read as
 * they are. */
#ifndef TEST_ENTRIES_H
#define TEST_ENTRIES_H

/* `names` ends with NULL and must outlive the reading. `error`: errno at the end, or 0.
 * NULL: all folders are read as they are. */
void entries_set(const char *const *names, int error);

#endif
