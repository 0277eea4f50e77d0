/* A fixture of the transport tests: a rank with the device "async", the transport nccl
 * and the fake NCCL library. */
#ifndef NCCL_FIXTURE_H
#define NCCL_FIXTURE_H

#include <check.h>
#include <string.h>

#include <dlcore/transport.h>

#include "base/status.h"
#include "fake_nccl.h"
#include "support/ranks.h"

enum { FIXTURE_FLOATS = 8192 };

typedef struct nccl_fixture {
    test_rank *rank;
    const dlc_device_ops *device_ops;
    dlc_device *device;
    const dlc_transport_ops *ops;
    dlc_settings *settings;
    dlc_rank_info place[FAKE_RANKS];
    dlc_transport_args args;
    dlc_endpoint *endpoint;
    dlc_memory memory;
    float *buffer; /* device memory */
} nccl_fixture;

/* Shared by all ranks; fixture_run clears it. */
extern fake_board *board;

/* Runs the body in each rank; all of them must succeed. */
void fixture_run(int ranks, rank_body *body);

/* Prepares everything but the endpoint. */
void fixture_begin(nccl_fixture *r, test_rank *rank);
/* Also opens the endpoint, which must succeed. */
void fixture_open(nccl_fixture *r, test_rank *rank);
void fixture_close(nccl_fixture *r);

void fixture_put(const nccl_fixture *r, const float *values, size_t count);
void fixture_get(const nccl_fixture *r, float *values, size_t count);

/* The call must fail with this status and these words in the detail sentence. */
#define RANK_FAILS(rank, call, status_, words) \
    do { \
        dlc_status got_ = (call); \
        if (got_ != (status_) || !strstr(dlc_detail(), (words))) \
            rank_failed_status(rank, __FILE__, __LINE__, #call, got_); \
    } while (0)

#endif
