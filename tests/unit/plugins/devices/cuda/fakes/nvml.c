/* A fake libnvidia-ml.so.1, for the machine that FAKE_MACHINE names:
 *
 *   plain   2 GPUs, no links                     none    no GPU
 *   bridge  2 GPUs, 4 links between them, and one of them to the CPU
 *   switch  2 GPUs, 18 links each to 4 switches  hidden  switch, but unseen switches
 *   old     bridge, with a driver that does not report what a link leads to
 *   turned  3 GPUs, listed in another order than their addresses'
 *   parts   2 GPUs, the second partitioned (MIG)  lost    2 GPUs, the first is lost
 *   unloaded, mismatch, blocked                  nvmlInit fails
 *
 * The types are declared again here, to test that the plugin's agree with NVML's
 * documentation.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct gpu {
    unsigned domain, bus;
    const char *uuid;
} gpu;

typedef struct pci_info { /* nvmlPciInfo_t */
    char busIdLegacy[16];
    unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} pci_info;

typedef struct field_value { /* nvmlFieldValue_t */
    unsigned int fieldId, scopeId;
    long long timestamp, latencyUsec;
    int valueType, nvmlReturn;
    union {
        double dVal;
        unsigned int uiVal;
        unsigned long long ullVal;
    } value;
} field_value;

static gpu gpus[] = {
    {0, 0x1b, "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"},
    {0, 0xc3, "GPU-8932aa11-0000-4106-c12f-20bd9faed9f7"},
    {0x10000, 0x05, "GPU-11111111-d72c-4106-c12f-20bd9faed9f8"},
};
static int started;

static int is(const char *name) {
    const char *machine = getenv("FAKE_MACHINE");
    return strcmp(machine ? machine : "plain", name) == 0;
}

/* How often it was initialised without being shut down. */
int fakeStarted(void);
int fakeStarted(void) {
    return started;
}

const char *nvmlErrorString(int result);
const char *nvmlErrorString(int result) {
    static char text[32];
    (void)snprintf(text, sizeof text, "NVML error %d", result);
    return text;
}

int nvmlInit_v2(void);
int nvmlInit_v2(void) {
    if (is("unloaded"))
        return 9;
    if (is("mismatch"))
        return 18;
    if (is("blocked"))
        return 17;
    started++;
    return 0;
}

int nvmlShutdown(void);
int nvmlShutdown(void) {
    started--;
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = is("none") ? 0 : is("turned") ? 3 : 2;
    return started ? 0 : 1;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, gpu **handle);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, gpu **handle) {
    *handle = &gpus[is("turned") ? 2 - index : index];
    return is("lost") && index == 0 ? 15 : 0;
}

int nvmlDeviceGetName(const gpu *g, char *name, unsigned length);
int nvmlDeviceGetName(const gpu *g, char *name, unsigned length) {
    (void)g;
    (void)snprintf(name, length, "NVIDIA Fake");
    return 0;
}

int nvmlDeviceGetUUID(const gpu *g, char *uuid, unsigned length);
int nvmlDeviceGetUUID(const gpu *g, char *uuid, unsigned length) {
    (void)snprintf(uuid, length, "%s", g->uuid);
    return 0;
}

int nvmlDeviceGetMemoryInfo(const gpu *g, unsigned long long memory[3]);
int nvmlDeviceGetMemoryInfo(const gpu *g, unsigned long long memory[3]) {
    (void)g;
    memory[0] = 143771ull << 20;
    memory[1] = 143000ull << 20;
    memory[2] = 771ull << 20;
    return 0;
}

static int set_pci(unsigned domain, unsigned bus, unsigned device, pci_info *pci) {
    memset(pci, 0, sizeof *pci);
    pci->domain = domain;
    pci->bus = bus;
    pci->device = device;
    pci->pciDeviceId = 0x233510de;
    (void)snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0",
                   domain & 0xffff, bus & 0xff, device & 0xff);
    (void)snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", domain,
                   bus & 0xff, device & 0xff);
    return 0;
}

int nvmlDeviceGetPciInfo_v3(const gpu *g, pci_info *pci);
int nvmlDeviceGetPciInfo_v3(const gpu *g, pci_info *pci) {
    return set_pci(g->domain, g->bus, 0, pci);
}

int nvmlDeviceGetCudaComputeCapability(const gpu *g, int *major, int *minor);
int nvmlDeviceGetCudaComputeCapability(const gpu *g, int *major, int *minor) {
    (void)g;
    *major = is("bridge") ? 8 : 9;
    *minor = 0;
    return 0;
}

int nvmlSystemGetDriverVersion(char *text, unsigned bytes);
int nvmlSystemGetDriverVersion(char *text, unsigned bytes) {
    (void)snprintf(text, bytes, "999.1");
    return 0;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version);
int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    *version = 13000;
    return 0;
}

int nvmlDeviceGetNumGpuCores(const gpu *g, unsigned *cores);
int nvmlDeviceGetNumGpuCores(const gpu *g, unsigned *cores) {
    (void)g;
    *cores = is("bridge") ? 6912 : 16896;
    return 0;
}

int nvmlDeviceGetMigMode(const gpu *g, unsigned *now, unsigned *then);
int nvmlDeviceGetMigMode(const gpu *g, unsigned *now, unsigned *then) {
    if (!is("parts"))
        return 3; /* not supported */
    *now = *then = g == &gpus[1];
    return 0;
}

static int links(void) {
    return is("bridge") || is("old") ? 6 : is("switch") || is("hidden") ? 18 : 0;
}

/* Of the six links of a bridge one is down and the last leads to the CPU. */
int nvmlDeviceGetNvLinkState(const gpu *g, unsigned link, unsigned *active);
int nvmlDeviceGetNvLinkState(const gpu *g, unsigned link, unsigned *active) {
    (void)g;
    if ((int)link >= links())
        return links() ? 2 : 3; /* invalid argument, not supported */
    *active = !(links() == 6 && link == 2);
    return 0;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(const gpu *g, unsigned link, unsigned *type);
int nvmlDeviceGetNvLinkRemoteDeviceType(const gpu *g, unsigned link, unsigned *type) {
    (void)g;
    if (is("old") || is("hidden"))
        return 3;
    *type = is("switch") ? 2 : link == 5 ? 1 : 0;
    return 0;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(const gpu *g, unsigned link, pci_info *pci);
int nvmlDeviceGetNvLinkRemotePciInfo_v2(const gpu *g, unsigned link, pci_info *pci) {
    const gpu *other = g == &gpus[0] ? &gpus[1] : &gpus[0];
    if (is("hidden")) /* what virtual machines see */
        return set_pci(0xfffffff, 0xffff, 0xff, pci);
    if (is("switch"))
        return set_pci(0, 0x07 + link % 4, 0, pci);
    return set_pci(other->domain, other->bus, 0, pci);
}

/* One field is per link, the other common to all links. */
int nvmlDeviceGetFieldValues(const gpu *g, int count, field_value *values);
int nvmlDeviceGetFieldValues(const gpu *g, int count, field_value *values) {
    (void)g;
    for (int i = 0; i < count; i++) {
        int each = values[i].fieldId == 164 && (is("switch") || is("hidden"));
        int common = values[i].fieldId == 90 && is("bridge");
        values[i].nvmlReturn = each || common ? 0 : 3;
        values[i].valueType = 1;
        values[i].value.uiVal = each ? 26562 : 25781;
    }
    return 0;
}
