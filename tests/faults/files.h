/* Data files, good and damaged, in the scratch folder. */
#ifndef TEST_FAULTS_FILES_H
#define TEST_FAULTS_FILES_H

/* images, labels (IDX), their damaged variants, batch.bin (CIFAR) and its, and
 * files that are no checkpoints. */
void files_write(void);

#endif
