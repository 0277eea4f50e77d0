/* What an eltwise computes. Read by kernels too. */
#ifndef LAYERS_SHARED_ELTWISE_KIND_H
#define LAYERS_SHARED_ELTWISE_KIND_H

typedef enum eltwise_kind { ELTWISE_SUM, ELTWISE_PRODUCT, ELTWISE_MAX } eltwise_kind;

#endif
