/* The driver's library, loaded when needed and never linked: the version check before
 * CUDA is started, and its calls for memory that other processes may map. */
#ifndef DRIVER_H
#define DRIVER_H

#include <cuda.h>

#include <dlcore/plugin.h>

/* All NULL where the driver is too old. */
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
    CUresult (*stream_batch)(CUstream, unsigned, CUstreamBatchMemOpParams *,
                             unsigned); /* NULL: CUDA 11.6 or older */
} driver_calls;

/* Is there a driver, new enough for this plugin's runtime? Starts nothing: it only asks
 * for the version, which is allowed before cuInit. */
dlc_status driver_check(void);

/* Returns 1 if all calls were found; then close it at the end. Else 0. */
int driver_open(driver_calls *calls);
void driver_close(driver_calls *calls);

#endif
