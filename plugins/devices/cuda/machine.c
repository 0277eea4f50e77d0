/* The GPUs of this machine: read once from NVML, when the plugin is loaded, and kept as
 * plain data, which a forked child can use as well. */
#include "machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "links.h"
#include "nvml.h"
#include "visible.h"

static struct {
    int gpus;
    char software[64];
    machine_gpu gpu[MACHINE_GPUS];
} machine;

/* ---- One GPU ----------------------------------------------------------------- */

/* Number of multiprocessors, from the cores that NVML counts. */
static int32_t count_units(const nvml_calls *n, nvml_gpu *handle) {
    int major = 0, minor = 0;
    unsigned cores = 0;
    if (!n->capability || !n->cores ||
        n->capability(handle, &major, &minor) != NVML_OK ||
        n->cores(handle, &cores) != NVML_OK)
        return 0;
    int each = major == 7 || (major == 8 && minor == 0) ? 64 : 128;
    return (int32_t)(cores / (unsigned)each);
}

static int32_t read_numa(const char *address) {
    char path[96];
    int node = -1;
    (void)snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", address);
    FILE *file = fopen(path, "re");
    if (!file)
        return -1;
    if (fscanf(file, "%d", &node) != 1) // NOLINT(cert-err34-c): -1 then
        node = -1;
    (void)fclose(file);
    return node;
}

static int read_gpu(const nvml_calls *n, unsigned index, machine_gpu *gpu) {
    nvml_gpu *handle = NULL;
    nvml_memory memory = {0};
    nvml_pci pci = {.domain = 0};
    unsigned mig = 0, pending = 0;
    memset(gpu, 0, sizeof *gpu);
    int result = n->handle(index, &handle);
    if (result == NVML_OK)
        result = n->pci(handle, &pci);
    if (result == NVML_OK)
        result = n->uuid(handle, gpu->uuid, sizeof gpu->uuid);
    if (result != NVML_OK)
        return result;
    if (n->name(handle, gpu->name, sizeof gpu->name) != NVML_OK)
        (void)snprintf(gpu->name, sizeof gpu->name, "NVIDIA GPU");
    if (n->memory(handle, &memory) == NVML_OK)
        gpu->memory = memory.total;
    if (n->mig && n->mig(handle, &mig, &pending) == NVML_OK)
        gpu->is_mig = mig != 0;
    links_address(&pci, gpu->address, sizeof gpu->address);
    gpu->units = count_units(n, handle);
    gpu->numa = read_numa(gpu->address);
    gpu->links = links_read(n, handle, gpu->link, MACHINE_LINKS);
    return NVML_OK;
}

/* ---- All GPUs ---------------------------------------------------------------- */

static int compare_addresses(const void *a, const void *b) {
    const machine_gpu *left = a, *right = b;
    size_t longer = strlen(left->address), shorter = strlen(right->address);
    if (longer != shorter) /* a PCI domain of more than 4 digits */
        return longer < shorter ? -1 : 1;
    return strcmp(left->address, right->address);
}

/* "driver 580.65.06, CUDA 13.0; built with CUDA 13.0" */
static void read_versions(const nvml_calls *n) {
    char driver[20] = "?";
    int cuda = 0;
    if (n->driver && n->driver(driver, sizeof driver) != NVML_OK)
        (void)snprintf(driver, sizeof driver, "?");
    if (n->cuda && n->cuda(&cuda) != NVML_OK)
        cuda = 0;
    uint8_t major = (uint8_t)(cuda / 1000), minor = (uint8_t)(cuda % 1000 / 10);
    (void)snprintf(machine.software, sizeof machine.software,
                   "driver %s, CUDA %u.%u; built with CUDA %d.%d", driver, major, minor,
                   CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
}

static dlc_status read_all(const nvml_calls *n) {
    unsigned count = 0;
    read_versions(n);
    int result = n->count(&count);
    if (result != NVML_OK)
        return host->fail(DLC_ERR_UNAVAILABLE, "GPUs can't be listed: %s",
                          n->error(result));
    machine.gpus = 0;
    for (unsigned i = 0; i < count && machine.gpus < MACHINE_GPUS; i++) {
        result = read_gpu(n, i, &machine.gpu[machine.gpus]);
        if (result == NVML_OK)
            machine.gpus++;
        else
            host->log(DLC_LOG_WARN, "GPU %u is passed over: %s", i, n->error(result));
    }
    /* The order of CUDA_DEVICE_ORDER=PCI_BUS_ID. */
    qsort(machine.gpu, (size_t)machine.gpus, sizeof *machine.gpu, compare_addresses);
    return DLC_OK;
}

/* Keeps the GPUs in CUDA_VISIBLE_DEVICES, in the user's order. */
static dlc_status choose(const char *text) {
    static machine_gpu kept[MACHINE_GPUS];
    const char *uuids[MACHINE_GPUS], *problem = NULL, *at = NULL;
    int chosen[MACHINE_GPUS];
    for (int i = 0; i < machine.gpus; i++)
        uuids[i] = machine.gpu[i].uuid;
    int visible = visible_choose(text, uuids, machine.gpus, chosen, &problem, &at);
    if (visible == 0 && problem)
        return host->fail(DLC_ERR_UNAVAILABLE,
                          "CUDA_VISIBLE_DEVICES = '%s' shows no GPU: '%.40s': %s", text,
                          at, problem);
    if (visible == 0)
        return host->fail(DLC_ERR_UNAVAILABLE,
                          "CUDA_VISIBLE_DEVICES is empty: it hides every GPU");
    if (problem)
        host->log(DLC_LOG_WARN,
                  "CUDA_VISIBLE_DEVICES = '%s': from '%.40s' on it is not heeded: %s",
                  text, at, problem);
    for (int i = 0; i < visible; i++)
        kept[i] = machine.gpu[chosen[i]];
    memcpy(machine.gpu, kept, (size_t)visible * sizeof *kept);
    machine.gpus = visible;
    return DLC_OK;
}

dlc_status machine_read(void) {
    nvml_calls nvml;
    dlc_status status = nvml_open(&nvml);
    if (status != DLC_OK)
        return status;
    status = read_all(&nvml);
    nvml_close(&nvml);
    if (status == DLC_OK && machine.gpus == 0)
        return host->fail(DLC_ERR_UNAVAILABLE,
                          "the driver is there, but no GPU that this process may use");
    return status == DLC_OK ? choose(getenv("CUDA_VISIBLE_DEVICES")) : status;
}

/* ---- Device operations --------------------------------------------------------- */

/* Returns NULL, with an error set, if there is no such GPU. */
static const machine_gpu *find(int32_t index) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (index >= 0 && index < machine.gpus)
        return &machine.gpu[index];
    (void)host->fail(DLC_ERR_CONFIG,
                     "there is no GPU %d here, only %s%d (CUDA_VISIBLE_DEVICES %s%s)",
                     index, machine.gpus > 1 ? "0 to " : "", machine.gpus - 1,
                     visible ? "= " : "is not set", visible ? visible : "");
    return NULL;
}

dlc_status machine_find(int32_t index, const machine_gpu **gpu) {
    const machine_gpu *found = find(index);
    if (!found)
        return DLC_ERR_CONFIG;
    if (found->is_mig)
        return host->fail(DLC_ERR_UNSUPPORTED,
                          "the GPU at %s is partitioned (MIG), which is not "
                          "supported: leave it out with CUDA_VISIBLE_DEVICES, or have "
                          "its administrator disable MIG",
                          found->address);
    *gpu = found;
    return DLC_OK;
}

dlc_status machine_count(int32_t *count) {
    *count = machine.gpus;
    return DLC_OK;
}

dlc_status machine_describe(int32_t index, dlc_device_info *info) {
    const machine_gpu *gpu = NULL;
    dlc_status status = machine_find(index, &gpu);
    if (status != DLC_OK || !gpu)
        return status;
    if (DLC_HAS(info, name))
        memcpy(info->name, gpu->name, sizeof info->name);
    if (DLC_HAS(info, memory_bytes))
        info->memory_bytes = gpu->memory;
    if (DLC_HAS(info, compute_units))
        info->compute_units = gpu->units;
    if (DLC_HAS(info, address))
        (void)snprintf(info->address, sizeof info->address, "%s", gpu->address);
    if (DLC_HAS(info, numa))
        info->numa = gpu->numa;
    if (DLC_HAS(info, software))
        memcpy(info->software, machine.software, sizeof info->software);
    return DLC_OK;
}

static void copy_link(dlc_link *to, const dlc_link *from) {
    uint32_t size = to->size;
    memcpy(to, from, size < sizeof *from ? size : sizeof *from);
    to->size = size;
}

dlc_status machine_links(int32_t index, dlc_link *links, int32_t room, int32_t *count) {
    const machine_gpu *gpu = find(index);
    if (!gpu)
        return DLC_ERR_CONFIG;
    for (int32_t i = 0; i < room && i < gpu->links; i++) {
        copy_link(links, &gpu->link[i]);
        links = DLC_NEXT(links);
    }
    *count = gpu->links;
    return DLC_OK;
}
