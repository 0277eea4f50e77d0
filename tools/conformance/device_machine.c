/* The checks of the machine's devices: what they are, which can be opened, links and
 * access between them, and memory shared between processes. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "device_checks.h"
#include "process.h"

static int32_t count_devices(suite_run *run) {
    const dlc_device_ops *ops = run->feature->ops;
    int32_t count = -1;
    suite_must(run, ops->count(&count), "count");
    if (count < 0)
        suite_fail(run, "count is %d", count);
    return count;
}

/* ---- Description ------------------------------------------------------------ */

static int ends(const char *text, size_t room) {
    return memchr(text, '\0', room) != NULL;
}

/* "0000:1b:00.0" */
static int is_pci_address(const char *text) {
    unsigned domain, bus, slot, function;
    char rest;
    return sscanf(text, "%x:%2x:%2x.%1x%c", &domain, &bus, &slot, &function, &rest) ==
           4;
}

static void check_info(suite_run *run, int32_t i, const dlc_device_info *info) {
    if (info->size != sizeof *info)
        suite_fail(run, "describe changes the size of the struct");
    if (!info->name[0] || !ends(info->name, sizeof info->name))
        suite_fail(run, "device %d has no name", i);
    if (!ends(info->address, sizeof info->address) ||
        !ends(info->software, sizeof info->software))
        suite_fail(run, "the address or software of device %d does not end", i);
    if (info->address[0] && !is_pci_address(info->address))
        suite_fail(run,
                   "the address of device %d is '%s', neither \"\" nor as in "
                   "0000:1b:00.0",
                   i, info->address);
    if (!info->memory_bytes || info->compute_units < 1)
        suite_fail(run, "device %d has %llu bytes of memory and %d compute units", i,
                   (unsigned long long)info->memory_bytes, info->compute_units);
    if (info->numa < -1)
        suite_fail(run, "device %d is on NUMA node %d", i, info->numa);
}

/* Describes device i, with room for the struct and no more. */
static dlc_device_info describe(suite_run *run, int32_t i) {
    const dlc_device_ops *ops = run->feature->ops;
    dlc_device_info info = {.size = sizeof info};
    suite_must(run, ops->describe(i, &info), "describe");
    check_info(run, i, &info);
    return info;
}

static void describes_devices(suite_run *run) {
    const dlc_device_ops *ops = run->feature->ops;
    int32_t count = count_devices(run);
    for (int32_t i = 0; i < count; i++) {
        dlc_device_info info = describe(run, i);
        for (int32_t k = 0; k < i && info.address[0]; k++) {
            dlc_device_info other = describe(run, k);
            if (strcmp(info.address, other.address) == 0)
                suite_fail(run, "devices %d and %d have the same address, %s", k, i,
                           info.address);
        }
    }
    dlc_device_info info = {.size = sizeof info};
    if (ops->describe(count, &info) == DLC_OK || ops->describe(-1, &info) == DLC_OK)
        suite_fail(run, "describe accepts an index outside 0 .. count-1");
}

/* ---- Opening ---------------------------------------------------------------- */

static dlc_status open_index(suite_run *run, int32_t index, dlc_device **device) {
    const dlc_device_ops *ops = run->feature->ops;
    dlc_device_args args = {
        .size = sizeof args, .settings = run->settings, .index = index, .threads = 1};
    *device = NULL;
    (void)dlc_fail(DLC_OK, "%s", "");
    return ops->open(&args, device);
}

static void opens_what_it_counts(suite_run *run) {
    const dlc_device_ops *ops = run->feature->ops;
    int32_t count = count_devices(run);
    dlc_device *device;
    for (int32_t i = 0; i < count; i++) {
        suite_must(run, open_index(run, i, &device), "open");
        if (!device)
            suite_fail(run, "open of device %d succeeds, but opens nothing", i);
        ops->close(device);
    }
    const int32_t outside[] = {-1, count};
    for (int i = 0; i < 2; i++)
        if (open_index(run, outside[i], &device) == DLC_OK)
            suite_fail(run, "open accepts device %d, but count is %d", outside[i],
                       count);
        else if (!*dlc_detail())
            suite_fail(run, "open of device %d fails without a detail sentence",
                       outside[i]);
}

/* ---- Links ------------------------------------------------------------------ */

static void check_link(suite_run *run, int32_t index, const dlc_link *link) {
    if (link->size != sizeof *link)
        suite_fail(run, "links changes the size of an element");
    if (link->width < 1 || !isfinite(link->gbs) || link->gbs < 0)
        suite_fail(run, "a link of device %d has width %d and %g GB/s", index,
                   link->width, (double)link->gbs);
    if (link->end < DLC_LINK_TO_DEVICE || link->end > DLC_LINK_TO_CPU || !link->kind)
        suite_fail(run, "a link of device %d has kind %u and end %u", index, link->kind,
                   link->end);
    if (!ends(link->peer, sizeof link->peer))
        suite_fail(run, "the peer of a link of device %d does not end", index);
    if (link->end == DLC_LINK_TO_DEVICE && !is_pci_address(link->peer))
        suite_fail(run,
                   "a link of device %d leads to '%s', not to an address as in "
                   "0000:1b:00.0",
                   index, link->peer);
    if (link->peer[0] && strcmp(link->peer, describe(run, index).address) == 0)
        suite_fail(run, "a link of device %d leads to itself", index);
}

/* One more than the room that is offered must stay as it is. */
static void list_links(suite_run *run, int32_t index, int32_t capacity, int32_t all) {
    const dlc_device_ops *ops = run->feature->ops;
    const dlc_link empty = {.size = sizeof empty};
    dlc_link *links = dlc_alloc((size_t)capacity + 1, sizeof *links);
    int32_t count = -1;
    if (!links)
        suite_skip(run, "out of memory");
    for (int32_t i = 0; i <= capacity; i++)
        links[i] = empty;
    suite_must(run, ops->links(index, links, capacity, &count), "links");
    if (count != all)
        suite_fail(run, "device %d has %d links, and %d if there is room for %d", index,
                   all, count, capacity);
    for (int32_t i = 0; i < capacity && i < count; i++)
        check_link(run, index, &links[i]);
    const dlc_link *beyond = &links[capacity];
    if (beyond->kind || beyond->end || beyond->width || beyond->peer[0])
        suite_fail(run, "links writes element %d of an array that has %d", capacity,
                   capacity);
    dlc_free(links);
}

static void lists_links(suite_run *run) {
    enum { LINKS_MOST = 4096 };
    const dlc_device_ops *ops = run->feature->ops;
    if (!DLC_CAN(ops, links))
        suite_skip(run, "it has no links");
    int32_t devices = count_devices(run);
    for (int32_t i = 0; i < devices; i++) {
        int32_t count = -1;
        suite_must(run, ops->links(i, NULL, 0, &count), "links without an array");
        if (count < 0 || count > LINKS_MOST)
            suite_fail(run, "device %d has %d links", i, count);
        list_links(run, i, count, count);
        list_links(run, i, count / 2, count);
    }
}

/* ---- Other processes -------------------------------------------------------- */

/* count and describe must not start anything that a child process cannot use. */
static void works_after_a_fork(suite_run *run) {
    const dlc_device_ops *ops = run->feature->ops;
    int32_t count = 0;
    dlc_device_info info = {.size = sizeof info};
    suite_must(run, ops->count(&count), "count");
    if (count > 0)
        suite_must(run, ops->describe(0, &info), "describe");
    pid_t child = suite_fork(run);
    if (child < 0)
        suite_skip(run, "fork: %s", strerror(errno));
    if (child > 0)
        _exit(0); /* the child continues and reports the result */
    int32_t again = -1;
    suite_must(run, ops->count(&again), "count after a fork");
    if (again != count)
        suite_fail(run, "count is %d, and %d after a fork", count, again);
    device_check b;
    float *here;
    device_check_open(run, &b);
    float *there = device_check_upload(&b, 100, 1, &here);
    suite_must(run, b.ops->scale(b.device, b.queue, 100, 2.0f, there), "scale");
    for (int i = 0; i < 100; i++)
        here[i] *= 2.0f;
    device_check_compare(&b, "scale", there, here, 100, 0);
}

static void use_imported_memory(const device_check *b, const dlc_ipc_handle *handle,
                                size_t count) {
    dlc_memory memory = {.size = sizeof memory};
    float *wanted = device_check_floats(b, count);
    suite_must(b->run, b->ops->ipc_import(b->device, handle, &memory), "ipc_import");
    if (memory.bytes < (count + 1) * sizeof(float))
        suite_fail(b->run, "ipc_import of %zu bytes gives %zu",
                   (count + 1) * sizeof(float), memory.bytes);
    suite_random(wanted, count, 3);
    wanted[count] = 12345.0f;
    device_check_compare(b, "imported memory", memory.base, wanted, count, 0);
    suite_must(b->run, b->ops->scale(b->device, b->queue, count, 2.0f, memory.base),
               "scale");
    device_check_finish(b);
    b->ops->free(b->device, &memory);
}

/* The parent exports and the child imports, each with a device of its own. */
static void share_with_a_child(suite_run *run, int32_t from, int32_t to) {
    enum { COUNT = 5000 };
    int pipes[2][2];
    char byte = 0;
    device_check b;
    dlc_ipc_handle handle = {.size = sizeof handle};
    if (pipe(pipes[0]) != 0 || pipe(pipes[1]) != 0)
        suite_skip(run, "pipe: %s", strerror(errno));
    pid_t child = suite_fork(run);
    if (child < 0)
        suite_skip(run, "fork: %s", strerror(errno));
    device_check_open_index(run, &b, child ? from : to);
    if (child == 0) {
        (void)close(pipes[0][1]); /* so that the parent's end ends the read */
        if (read(pipes[0][0], &handle, sizeof handle) != (ssize_t)sizeof handle)
            _exit(1);
        use_imported_memory(&b, &handle, COUNT);
        (void)!write(pipes[1][1], &byte, 1);
        _exit(0);
    }
    dlc_memory memory = {.size = sizeof memory};
    float *numbers = device_check_floats(&b, COUNT);
    suite_random(numbers, COUNT, 3);
    numbers[COUNT] = 12345.0f;
    suite_must(
        run,
        b.ops->alloc(b.device, (COUNT + 1) * sizeof(float), DLC_MEM_SHARED, &memory),
        "alloc");
    device_check_copy(&b, memory.base, numbers, (COUNT + 1) * sizeof *numbers);
    suite_must(run, b.ops->ipc_export(b.device, &memory, &handle), "ipc_export");
    if (handle.size != sizeof handle || handle.pid != (uint32_t)getpid())
        suite_fail(run, "ipc_export sets size %u and pid %u, not %zu and %ld",
                   handle.size, handle.pid, sizeof handle, (long)getpid());
    if (write(pipes[0][1], &handle, sizeof handle) != (ssize_t)sizeof handle)
        suite_skip(run, "write: %s", strerror(errno));
    (void)close(pipes[1][1]);
    if (read(pipes[1][0], &byte, 1) != 1)
        suite_fail(run, "the process that imported the memory died");
    (void)waitpid(child, NULL, 0);
    for (int i = 0; i < COUNT; i++)
        numbers[i] *= 2.0f;
    device_check_compare(&b, "memory that another process changed", memory.base,
                         numbers, COUNT, 0);
}

static void shares_with_a_child(suite_run *run) {
    const dlc_device_ops *ops = run->feature->ops;
    if (!DLC_CAN(ops, ipc_export))
        suite_skip(run, "it has no ipc_export");
    share_with_a_child(run, 0, 0);
}

/* Asks in a child: some drivers do not survive a fork, and the check forks later. */
static int can_access(suite_run *run, int32_t from, int32_t to) {
    enum { NO = 10, YES = 11 };
    const dlc_device_ops *ops = run->feature->ops;
    device_check b;
    int can = -1, status = 0;
    if (!DLC_CAN(ops, can_access_peer))
        return 1;
    pid_t child = suite_fork(run);
    if (child < 0)
        suite_skip(run, "fork: %s", strerror(errno));
    if (child > 0) {
        (void)waitpid(child, &status, 0);
        int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
        if (code != NO && code != YES)
            suite_fail(run, "can_access_peer(%d, %d) does not answer", from, to);
        return code == YES;
    }
    device_check_open_index(run, &b, from);
    suite_must(run, ops->can_access_peer(b.device, from, to, &can), "can_access_peer");
    if (can != 0 && can != 1)
        suite_fail(run, "can_access_peer(%d, %d) answers %d, neither 0 nor 1", from, to,
                   can);
    _exit(can ? YES : NO);
}

/* What can_access_peer promises is true of imported memory. */
static void reaches_peers(suite_run *run) {
    const dlc_device_ops *ops = run->feature->ops;
    int32_t count = count_devices(run);
    int peers = 0;
    if (count < 2)
        suite_skip(run, "this machine has one such device");
    if (!DLC_CAN(ops, ipc_export))
        suite_skip(run, "it has no ipc_export");
    for (int32_t i = 1; i < count; i++) {
        int there = can_access(run, i, 0);
        if (there)
            share_with_a_child(run, 0, i);
        peers += there;
    }
    if (!peers)
        suite_skip(run, "no device can access another one");
}

static void exports_shared_memory_only(suite_run *run) {
    device_check b;
    dlc_memory memory = {.size = sizeof memory};
    dlc_ipc_handle handle = {.size = sizeof handle};
    const dlc_device_ops *ops = run->feature->ops;
    if (!DLC_CAN(ops, ipc_export))
        suite_skip(run, "it has no ipc_export");
    device_check_open(run, &b);
    suite_must(run, b.ops->alloc(b.device, 4096, 0, &memory), "alloc");
    if (b.ops->ipc_export(b.device, &memory, &handle) == DLC_OK)
        suite_fail(run, "it exports memory that was not allocated with DLC_MEM_SHARED");
}

#define CHECK(name, promise, run) \
    { name, promise, DLC_KIND_DEVICE, 0, SUITE_LOADED, 60, run }

const suite_check suite_device_machine_checks[] = {
    CHECK("device.describe", "every device has a name, memory and compute units",
          describes_devices),
    CHECK("device.open", "every device that count names can be opened, and no other",
          opens_what_it_counts),
    CHECK("device.links", "links are valid, whatever room there is for them",
          lists_links),
    CHECK("device.fork", "it works in a child after count and describe in the parent",
          works_after_a_fork),
    CHECK("device.ipc", "another process can read and write shared memory",
          shares_with_a_child),
    CHECK("device.peers", "a device can use the memory of those that it can access",
          reaches_peers),
    CHECK("device.ipc_flag", "memory without DLC_MEM_SHARED is not exported",
          exports_shared_memory_only),
    {.name = NULL},
};
