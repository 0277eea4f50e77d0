/* Reads /proc, /dev/shm and the limits of this process, and prints them. */
#include "machine.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/read.h"
#include "topology/cores.h"
#include "topology/quota.h"

/* ---- Reading ------------------------------------------------------------------ */

/* The value in a line "key : value"; NULL if the line has another key. */
static const char *value_of(const char *line, const char *key) {
    size_t length = strlen(key);
    if (strncmp(line, key, length) != 0)
        return NULL;
    const char *colon = line + length + strspn(line + length, " \t");
    return *colon == ':' ? colon + 1 + strspn(colon + 1, " \t") : NULL;
}

/* Copies the instruction sets in `line` that matter for speed. */
static void pick_features(const char *line, char *text, size_t bytes) {
    static const char *const wanted[] = {
        "sse4_2",      "avx",      "avx2",     "fma",   "avx512f", "avx512_vnni",
        "avx512_bf16", "amx_bf16", "amx_int8", "asimd", "sve",     "bf16"};
    size_t used = 0;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        size_t length = strlen(wanted[i]);
        for (const char *at = line; (at = strstr(at, wanted[i])); at += length) {
            if ((at != line && at[-1] != ' ') || !strchr(" ", at[length]))
                continue; /* part of a longer word */
            if (used + length + 2 > bytes)
                return;
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? " " : "",
                                     wanted[i]);
            break;
        }
    }
}

static void read_cpu(dlc_machine *machine) {
    dlc_read_lines lines;
    if (!dlc_read_lines_open("/proc/cpuinfo", &lines))
        return;
    for (char *line; (line = dlc_read_lines_next(&lines)) && *line;) { /* one CPU */
        const char *value = value_of(line, "model name");
        if (value)
            snprintf(machine->cpu, sizeof machine->cpu, "%s", value);
        if ((value = value_of(line, "flags")) || (value = value_of(line, "Features")))
            pick_features(value, machine->features, sizeof machine->features);
    }
    dlc_read_lines_close(&lines);
}

static void read_shared_memory(dlc_machine *machine) {
    struct statvfs shm;
    struct rlimit locked;
    if (statvfs("/dev/shm", &shm) == 0) {
        machine->shm = (uint64_t)shm.f_blocks * shm.f_frsize;
        machine->shm_free = (uint64_t)shm.f_bavail * shm.f_frsize;
    }
    int fd = memfd_create("dlcore-doctor", MFD_CLOEXEC);
    machine->memfd = fd >= 0;
    if (fd >= 0)
        close(fd);
    if (getrlimit(RLIMIT_MEMLOCK, &locked) == 0)
        machine->locked = locked.rlim_cur == RLIM_INFINITY ? MACHINE_UNLIMITED
                                                           : locked.rlim_cur;
}

dlc_status dlc_machine_read(dlc_machine *machine) {
    dlc_cores *cores = NULL;
    *machine = (dlc_machine){0};
    read_cpu(machine);
    dlc_status status = dlc_cores_open(NULL, &cores);
    if (status == DLC_ERR_NOMEM)
        return status;
    if (status == DLC_OK)
        machine->cores = dlc_cores_count(cores);
    dlc_cores_close(cores);
    machine->quota = dlc_quota_cores("");
    machine->memory = (uint64_t)dlc_quota_memory("");
    machine->memory_free = (uint64_t)dlc_quota_memory_free("");
    machine->memory_whole = dlc_read_kilobytes("/proc/meminfo", "MemTotal");
    read_shared_memory(machine);
    return DLC_OK;
}

/* ---- Printing ------------------------------------------------------------------- */

static void print_memory(const dlc_machine *machine) {
    char all[DLC_AMOUNT_TEXT], left[DLC_AMOUNT_TEXT], whole[DLC_AMOUNT_TEXT];
    printf("  memory         %s, %s free",
           dlc_text_amount((double)machine->memory, all),
           dlc_text_amount((double)machine->memory_free, left));
    if (machine->memory < machine->memory_whole)
        printf(" (cgroup; the machine has %s)",
               dlc_text_amount((double)machine->memory_whole, whole));
    putchar('\n');
}

void dlc_machine_print(const dlc_machine *machine) {
    char shm[32], left[32];
    printf("  CPU            %s\n", machine->cpu[0] ? machine->cpu : "unknown");
    if (machine->features[0])
        printf("  instructions   %s\n", machine->features);
    printf("  cores          %d may be used", machine->cores);
    if (machine->quota > 0)
        printf(", with the CPU time of %.2f cores (cgroup)", machine->quota);
    putchar('\n');
    print_memory(machine);
    if (machine->shm)
        printf("  shared memory  /dev/shm %s, %s free; ",
               dlc_text_amount((double)machine->shm, shm),
               dlc_text_amount((double)machine->shm_free, left));
    else
        printf("  shared memory  no /dev/shm; ");
    printf("memfd %s\n", machine->memfd ? "works" : "is refused");
    if (machine->locked == MACHINE_UNLIMITED)
        printf("  locked memory  unlimited\n");
    else
        printf("  locked memory  %.1f MB (ulimit -l)\n", (double)machine->locked / 1e6);
}

void dlc_machine_json(const dlc_machine *machine, dlc_json *json) {
    dlc_json_object(json, "machine");
    dlc_json_string(json, "cpu", machine->cpu); // "cpu" is a key of the JSON
    dlc_json_string(json, "instructions", machine->features);
    dlc_json_int(json, "cores", machine->cores);
    dlc_json_number(json, "quota", machine->quota);
    dlc_json_int(json, "memory", (int64_t)machine->memory);
    dlc_json_int(json, "memory_free", (int64_t)machine->memory_free);
    dlc_json_int(json, "shm", (int64_t)machine->shm);
    dlc_json_int(json, "shm_free", (int64_t)machine->shm_free);
    dlc_json_bool(json, "memfd", machine->memfd);
    if (machine->locked == MACHINE_UNLIMITED)
        dlc_json_string(json, "locked", NULL);
    else
        dlc_json_int(json, "locked", (int64_t)machine->locked);
    dlc_json_end_object(json);
}
