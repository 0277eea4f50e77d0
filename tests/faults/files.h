/* Data files, good and damaged, for the table of bad inputs. */
#ifndef TEST_FAULTS_FILES_H
#define TEST_FAULTS_FILES_H

/* Writes into the scratch folder: images, labels (IDX), batch.bin (CIFAR), damaged
 * variants of them, and invalid checkpoints. */
void files_write(void);

#endif
