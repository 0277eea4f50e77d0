/* Digests of what features compute, to compare processes: one function for each kind,
 * which opens the feature, uses it and adds up what it gives. */
#ifndef DLC_TOOLS_CONFORMANCE_DIGEST_H
#define DLC_TOOLS_CONFORMANCE_DIGEST_H

#include "suite.h"

/* Adds bytes to a digest, which begins with 0. */
void suite_digest_add(uint64_t *digest, const void *bytes, size_t count);

void suite_digest_device(suite_run *run, uint64_t *digest);
void suite_digest_layer(suite_run *run, uint64_t *digest);
void suite_digest_training(suite_run *run, uint64_t *digest); /* solvers and models */
void suite_digest_data(suite_run *run, uint64_t *digest);
void suite_digest_decoder(suite_run *run, uint64_t *digest);

#endif
