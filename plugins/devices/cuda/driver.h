/* The driver's library, opened when it is needed and never linked: what is asked of it
 * before CUDA is started, and its calls for memory that other processes may map. */
#ifndef DRIVER_H
#define DRIVER_H

#include <cuda.h>

#include <dlcore/plugin.h>

/* NULL all, where the driver is too old to have them. */
typedef struct driver_calls {
    void *library;
    CUresult (*attribute)(int *, CUdevice_attribute, CUdevice);
    CUresult (*granularity)(size_t *, const CUmemAllocationProp *,
                            CUmemAllocationGranularity_flags);
    CUresult (*create)(CUmemGenericAllocationHandle *, size_t,
                       const CUmemAllocationProp *, unsigned long long);
    CUresult (*release)(CUmemGenericAllocationHandle);
    CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
    CUresult (*unreserve)(CUdeviceptr, size_t);
    CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
                    unsigned long long);
    CUresult (*unmap)(CUdeviceptr, size_t);
    CUresult (*access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
    CUresult (*export_handle)(void *, CUmemGenericAllocationHandle,
                              CUmemAllocationHandleType, unsigned long long);
    CUresult (*import_handle)(CUmemGenericAllocationHandle *, void *,
                              CUmemAllocationHandleType);
    CUresult (*words)(CUstream, unsigned, CUstreamBatchMemOpParams *,
                      unsigned); /* NULL: CUDA 11.6 or older */
} driver_calls;

/* Is there a driver, new enough for the runtime in here? Starts nothing: it asks for
 * the version only, which may come before cuInit. */
dlc_status driver_check(void);

/* 1: all calls are there, to be closed in the end; 0: they are not. */
int driver_open(driver_calls *calls);
void driver_close(driver_calls *calls);

#endif
