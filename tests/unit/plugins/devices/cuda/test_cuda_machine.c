/* What the cuda device reports about machines, read from fake NVML libraries
 * (fakes/nvml.c), before CUDA is started. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "machine.h"
#include "plugin/object.h"
#include "support/test.h"

const dlc_host *host; /* defined by the plugin, here by the test */

static dlc_status read_machine(const char *fake, const char *visible) {
    host = dlc_host_services();
    ck_assert_int_eq(setenv("FAKE_MACHINE", fake, 1), 0);
    if (visible)
        ck_assert_int_eq(setenv("CUDA_VISIBLE_DEVICES", visible, 1), 0);
    else
        ck_assert_int_eq(unsetenv("CUDA_VISIBLE_DEVICES"), 0);
    return machine_read();
}

static int32_t count(void) {
    int32_t found = -1;
    ck_assert_int_eq(machine_count(&found), DLC_OK);
    return found;
}

static void has_address(int32_t index, const char *address) {
    dlc_device_info info = {.size = sizeof info};
    ck_assert_int_eq(machine_describe(index, &info), DLC_OK);
    ck_assert_str_eq(info.address, address);
}

TEST(lists_gpus) {
    dlc_device_info info = {.size = sizeof info};
    const machine_gpu *gpu = NULL;
    ck_assert_int_eq(read_machine("plain", NULL), DLC_OK);
    ck_assert_int_eq(count(), 2);
    ck_assert_int_eq(machine_describe(1, &info), DLC_OK);
    ck_assert_str_eq(info.name, "NVIDIA Fake");
    ck_assert_str_eq(info.address, "0000:c3:00.0");
    ck_assert_uint_eq(info.memory_bytes, 143771ull << 20);
    ck_assert_int_eq(info.compute_units, 132);
    ck_assert_int_ge(info.numa, -1);
    ck_assert_msg(
        strncmp(info.software, "driver 999.1, CUDA 13.0; built with CUDA 1", 42) == 0,
        "%s", info.software);
    ck_assert_int_eq(machine_find(0, &gpu), DLC_OK);
    ck_assert_str_eq(gpu->address, "0000:1b:00.0");
    /* A caller that knows only the name. */
    memset(&info, 0x55, sizeof info);
    info.size = offsetof(dlc_device_info, memory_bytes);
    ck_assert_int_eq(machine_describe(0, &info), DLC_OK);
    ck_assert_uint_eq(info.memory_bytes, 0x5555555555555555u);
}

TEST(no_such_gpu) {
    dlc_device_info info = {.size = sizeof info};
    const machine_gpu *gpu = NULL;
    int32_t links = -1;
    ck_assert_int_eq(read_machine("plain", "1,0"), DLC_OK);
    ck_assert_int_eq(machine_describe(2, &info), DLC_ERR_CONFIG);
    ck_assert_str_eq(dlc_detail(), "there is no GPU 2 here, only 0 to 1 "
                                   "(CUDA_VISIBLE_DEVICES = 1,0)");
    ck_assert_int_eq(machine_find(-1, &gpu), DLC_ERR_CONFIG);
    ck_assert_int_eq(machine_links(2, NULL, 0, &links), DLC_ERR_CONFIG);
    ck_assert_int_eq(read_machine("lost", NULL), DLC_OK);
    ck_assert_int_eq(machine_find(1, &gpu), DLC_ERR_CONFIG);
    ck_assert_str_eq(
        dlc_detail(),
        "there is no GPU 1 here, only 0 (CUDA_VISIBLE_DEVICES is not set)");
}

/* As nvidia-smi and CUDA_DEVICE_ORDER=PCI_BUS_ID count, whatever NVML's order. */
TEST(counts_by_address) {
    ck_assert_int_eq(read_machine("turned", NULL), DLC_OK);
    ck_assert_int_eq(count(), 3);
    has_address(0, "0000:1b:00.0");
    has_address(1, "0000:c3:00.0");
    has_address(2, "10000:05:00.0");
}

TEST(shows_what_the_user_lets_it_see) {
    ck_assert_int_eq(read_machine("turned", "2,GPU-8932f"), DLC_OK);
    ck_assert_int_eq(count(), 2);
    has_address(0, "10000:05:00.0");
    has_address(1, "0000:1b:00.0");
    /* The rest is ignored, with a warning and no error. */
    ck_assert_int_eq(read_machine("turned", "1,7,0"), DLC_OK);
    ck_assert_int_eq(count(), 1);
    has_address(0, "0000:c3:00.0");
}

TEST_EACH(shows_none, 8) {
    static const struct {
        const char *fake, *visible, *sentence;
    } rows[] = {
        {"plain", "", "CUDA_VISIBLE_DEVICES is empty: it hides every GPU"},
        {"plain", "5",
         "CUDA_VISIBLE_DEVICES = '5' shows no GPU: '5': there is no such "},
        {"plain", "MIG-1", "'MIG-1': parts of a GPU (MIG) are not supported"},
        {"plain", "1,1", "'1': that GPU is named twice"},
        {"none", NULL, "no GPU that this process may use"},
        {"unloaded", NULL, "NVML error 9: the kernel has no nvidia module loaded"},
        {"mismatch", NULL, "NVML error 18: kernel module and libraries have"},
        {"blocked", NULL, "NVML error 17: this process may not open /dev/nvidia*"},
    };
    ck_assert_int_eq(read_machine(rows[_i].fake, rows[_i].visible),
                     DLC_ERR_UNAVAILABLE);
    ck_assert_msg(strstr(dlc_detail(), rows[_i].sentence) != NULL, "%s", dlc_detail());
}

TEST(mig_is_refused) {
    dlc_device_info info = {.size = sizeof info};
    const machine_gpu *gpu = NULL;
    ck_assert_int_eq(read_machine("parts", NULL), DLC_OK);
    ck_assert_int_eq(count(), 2);
    has_address(0, "0000:1b:00.0");
    ck_assert_int_eq(machine_describe(1, &info), DLC_ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(
        strstr(dlc_detail(), "the GPU at 0000:c3:00.0 is partitioned (MIG)"));
    ck_assert_int_eq(machine_find(1, &gpu), DLC_ERR_UNSUPPORTED);
}

/* ---- Links ------------------------------------------------------------------- */

enum { ROOM = 8 };
static dlc_link found[ROOM];

static int32_t links_of(int32_t index) {
    int32_t there = -1;
    for (int i = 0; i < ROOM; i++)
        found[i] = (dlc_link){.size = sizeof(dlc_link)};
    ck_assert_int_eq(machine_links(index, found, ROOM, &there), DLC_OK);
    return there;
}

static void is_link(int at, uint32_t end, int32_t lanes, const char *peer, float gbs) {
    ck_assert_uint_eq(found[at].size, sizeof(dlc_link));
    ck_assert_uint_eq(found[at].kind, DLC_LINK_NVLINK);
    ck_assert_uint_eq(found[at].end, end);
    ck_assert_int_eq(found[at].width, lanes);
    ck_assert_str_eq(found[at].peer, peer);
    ck_assert_float_eq_tol(found[at].gbs, gbs, 0.01f);
}

TEST(no_links) {
    int32_t there = -1;
    ck_assert_int_eq(read_machine("plain", NULL), DLC_OK);
    ck_assert_int_eq(links_of(0), 0);
    ck_assert_int_eq(machine_links(1, NULL, 0, &there), DLC_OK);
    ck_assert_int_eq(there, 0);
}

TEST(links_to_each_other) {
    ck_assert_int_eq(read_machine("bridge", NULL), DLC_OK);
    ck_assert_int_eq(links_of(0), 2);
    is_link(0, DLC_LINK_TO_DEVICE, 4, "0000:c3:00.0", 4 * 25.781f);
    is_link(1, DLC_LINK_TO_CPU, 1, "", 25.781f);
    ck_assert_int_eq(links_of(1), 2);
    is_link(0, DLC_LINK_TO_DEVICE, 4, "0000:1b:00.0", 4 * 25.781f);
    /* An A100: its cores make 108 multiprocessors. */
    dlc_device_info info = {.size = sizeof info};
    ck_assert_int_eq(machine_describe(0, &info), DLC_OK);
    ck_assert_int_eq(info.compute_units, 108);
}

TEST(links_of_an_old_driver) {
    ck_assert_int_eq(read_machine("old", NULL), DLC_OK);
    ck_assert_int_eq(links_of(0), 1);
    is_link(0, DLC_LINK_TO_DEVICE, 5, "0000:c3:00.0", 0);
}

TEST(links_to_switches) {
    ck_assert_int_eq(read_machine("switch", NULL), DLC_OK);
    ck_assert_int_eq(links_of(1), 4);
    is_link(0, DLC_LINK_TO_SWITCH, 5, "0000:07:00.0", 5 * 26.562f);
    is_link(1, DLC_LINK_TO_SWITCH, 5, "0000:08:00.0", 5 * 26.562f);
    is_link(2, DLC_LINK_TO_SWITCH, 4, "0000:09:00.0", 4 * 26.562f);
    is_link(3, DLC_LINK_TO_SWITCH, 4, "0000:0a:00.0", 4 * 26.562f);
}

TEST(links_to_switches_unseen) {
    ck_assert_int_eq(read_machine("hidden", NULL), DLC_OK);
    ck_assert_int_eq(links_of(0), 1);
    is_link(0, DLC_LINK_TO_SWITCH, 18, "", 18 * 26.562f);
}

/* Room for fewer links than there are, in structs of another size than the plugin's. */
TEST(links_of_other_sizes) {
    struct {
        dlc_link link;
        char more[24];
    } longer[2];
    int32_t there = -1;
    ck_assert_int_eq(read_machine("switch", NULL), DLC_OK);
    memset(longer, 0x55, sizeof longer);
    longer[0].link.size = longer[1].link.size = sizeof longer[0];
    ck_assert_int_eq(machine_links(0, &longer[0].link, 2, &there), DLC_OK);
    ck_assert_int_eq(there, 4);
    ck_assert_uint_eq(longer[1].link.size, sizeof longer[0]);
    ck_assert_str_eq(longer[1].link.peer, "0000:08:00.0");
    ck_assert_int_eq(longer[0].more[0], 0x55);

    dlc_link shorter = {.size = offsetof(dlc_link, gbs), .gbs = -7};
    ck_assert_int_eq(machine_links(0, &shorter, 1, &there), DLC_OK);
    ck_assert_int_eq(shorter.width, 5);
    ck_assert(shorter.gbs == -7);
}

/* The library is closed at once, also after an error: a child may open it again. */
TEST(nothing_stays_started) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    int (*started)(void) = NULL;
    ck_assert_ptr_nonnull(library);
    void *symbol = dlsym(library, "fakeStarted");
    memcpy(&started, &symbol, sizeof started);
    ck_assert_ptr_nonnull(symbol);
    ck_assert_int_eq(read_machine("switch", NULL), DLC_OK);
    ck_assert_int_eq(started(), 0);
    ck_assert_int_eq(read_machine("none", NULL), DLC_ERR_UNAVAILABLE);
    ck_assert_int_eq(started(), 0);
    dlclose(library);
}
