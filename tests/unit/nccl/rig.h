/* A rank with the device "later", the transport and the made-up NCCL. */
#ifndef NCCL_RIG_H
#define NCCL_RIG_H

#include <check.h>
#include <string.h>

#include <dlcore/transport.h>

#include "base/status.h"
#include "fake_nccl.h"
#include "support/ranks.h"

enum { RIG_FLOATS = 8192 };

typedef struct rig {
    test_rank *rank;
    const dlc_device_ops *device_ops;
    dlc_device *device;
    const dlc_transport_ops *ops;
    dlc_settings *settings;
    dlc_place place[FAKE_RANKS];
    dlc_transport_args args;
    dlc_endpoint *endpoint;
    dlc_memory memory;
    float *buffer; /* device memory */
} rig;

/* Shared by all ranks; cleared by rig_run. */
extern fake_board *board;

/* Runs the body in each rank; all must end well. */
void rig_run(int ranks, rank_body *body);

/* What comes before the transport's open. */
void rig_begin(rig *r, test_rank *rank);
/* The same and open, which must succeed. */
void rig_open(rig *r, test_rank *rank);
void rig_close(rig *r);

void rig_put(const rig *r, const float *values, size_t count);
void rig_get(const rig *r, float *values, size_t count);

/* It fails so, with these words in its sentence. */
#define RANK_FAILS(rank, call, status_, words) \
    do { \
        dlc_status got_ = (call); \
        if (got_ != (status_) || !strstr(dlc_detail(), (words))) \
            rank_failed_status(rank, __FILE__, __LINE__, #call, got_); \
    } while (0)

#endif
