/* Translates CUDA's errors to a status and a message. */
#include <stdarg.h>
#include <stdio.h>

#include "gpu.h"

/* After these errors every further call of the process fails. */
static int is_lost(cudaError_t error) {
    switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorExternalDevice:
    case cudaErrorMpsClientTerminated:
    case cudaErrorCudartUnloading:
        return 1;
    default:
        return 0;
    }
}

static dlc_status status_of(cudaError_t error) {
    if (is_lost(error))
        return DLC_ERR_DEVICE;
    switch (error) {
    case cudaErrorMemoryAllocation:
        return DLC_ERR_NOMEM;
    case cudaErrorInitializationError:
    case cudaErrorStubLibrary:
    case cudaErrorInsufficientDriver:
    case cudaErrorDevicesUnavailable:
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorDeviceNotLicensed:
    case cudaErrorStartupFailure:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorMpsConnectionFailed:
    case cudaErrorMpsServerNotReady:
    case cudaErrorMpsMaxClientsReached:
    case cudaErrorMpsMaxConnectionsReached:
        return DLC_ERR_UNAVAILABLE;
    case cudaErrorNotSupported:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorJitCompilerNotFound:
    case cudaErrorJitCompilationDisabled:
    case cudaErrorPeerAccessUnsupported:
    case cudaErrorTooManyPeers:
    case cudaErrorCallRequiresNewerDriver:
        return DLC_ERR_UNSUPPORTED;
    case cudaErrorInvalidValue:
    case cudaErrorInvalidDevicePointer:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureMerge:
    case cudaErrorStreamCaptureUnmatched:
    case cudaErrorStreamCaptureUnjoined:
    case cudaErrorStreamCaptureIsolation:
    case cudaErrorStreamCaptureImplicit:
    case cudaErrorStreamCaptureWrongThread:
    case cudaErrorCapturedEvent:
        return DLC_ERR_CONFIG;
    default:
        return DLC_ERR_IO;
    }
}

/* What to do about it, where CUDA's own message does not say. */
static const char *advice(cudaError_t error) {
    if (is_lost(error))
        return "; this process can no longer use the device and must exit";
    switch (error) {
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
        return "; this build has no code for this GPU: build with "
               "CMAKE_CUDA_ARCHITECTURES for it";
    case cudaErrorDevicesUnavailable:
        return "; another process uses it exclusively (compute mode, see nvidia-smi)";
    case cudaErrorSystemNotReady:
        return "; is the fabric manager running?";
    case cudaErrorInitializationError:
        return "; was CUDA started before this process was forked?";
    default:
        return "";
    }
}

dlc_status gpu_failed(const dlc_device *device, cudaError_t error, const char *what,
                      ...) {
    char tried[160], where[48] = "";
    va_list arguments;
    va_start(arguments, what);
    (void)vsnprintf(tried, sizeof tried, what, arguments);
    va_end(arguments);
    if (device)
        (void)snprintf(where, sizeof where, " on GPU %d at %s", device->number,
                       device->address);
    (void)cudaGetLastError();
    return host->fail(status_of(error), "%s%s: %s (%s)%s", tried, where,
                      cudaGetErrorString(error), cudaGetErrorName(error),
                      advice(error));
}
