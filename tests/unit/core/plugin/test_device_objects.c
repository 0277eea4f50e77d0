/* Tests that what a device gives is checked: memory, queues and events that are none,
 * and a status that is none, end with the name of the call. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "plugin/device_objects.h"
#include "support/test.h"

enum { BYTES = 1000 };

static dlc_memory its_memory;
static dlc_status its_status;
static void *its_object;
static int freed;

static dlc_status give_memory(dlc_device *device, size_t bytes, uint32_t flags,
                              dlc_memory *memory) {
    (void)device, (void)bytes, (void)flags;
    *memory = its_memory;
    return its_status;
}

static void free_memory(dlc_device *device, dlc_memory *memory) {
    (void)device, (void)memory;
    freed++;
}

static dlc_status describe(int32_t index, dlc_device_info *info) {
    (void)index;
    memset(info->name, 'n', sizeof info->name);
    memset(info->address, 'a', sizeof info->address);
    memset(info->software, 's', sizeof info->software);
    return its_status;
}

static dlc_status give_queue(dlc_device *device, dlc_queue **queue) {
    (void)device;
    *queue = its_object;
    return its_status;
}

static dlc_status give_event(dlc_device *device, dlc_event **event) {
    (void)device;
    *event = its_object;
    return its_status;
}

static const dlc_device_queue_ops queues = {
    .size = sizeof queues, .queue_open = give_queue, .event_open = give_event};
static const dlc_device_ops ops = {.size = sizeof ops,
                                   .describe = describe,
                                   .alloc = give_memory,
                                   .free = free_memory,
                                   .queues = &queues};

static void setup(void) {
    static _Alignas(64) char memory[BYTES];
    its_memory = (dlc_memory){
        .size = sizeof its_memory, .base = memory, .bytes = BYTES};
    its_status = DLC_OK;
    its_object = memory;
    freed = 0;
}

static void refused(dlc_status status, dlc_status wanted, const char *says) {
    ck_assert_int_eq(status, wanted);
    ck_assert_msg(strstr(dlc_detail(), says) != NULL, "'%s' lacks '%s'", dlc_detail(),
                  says);
}

static dlc_status ask(dlc_memory *memory) {
    return dlc_device_alloc(&ops, NULL, BYTES, 0, memory);
}

TEST_SETTINGS(.setup = setup);

TEST(memory) {
    dlc_memory got;
    ck_assert_int_eq(ask(&got), DLC_OK);
    ck_assert_ptr_eq(got.base, its_memory.base);
    dlc_device_free(&ops, NULL, &got);
    dlc_device_free(&ops, NULL, &got);
    ck_assert_int_eq(freed, 1);
}

TEST(wrong_memory) {
    dlc_memory got;
    void *base = its_memory.base;
    its_memory.bytes = BYTES - 1;
    refused(ask(&got), DLC_ERR_PLUGIN, "alloc of 1000 bytes gives 999");
    ck_assert_ptr_null(got.base);
    its_memory.bytes = BYTES;
    its_memory.base = (char *)base + 32;
    refused(ask(&got), DLC_ERR_PLUGIN, "not as many at a multiple of 64");
    its_memory.base = NULL;
    refused(ask(&got), DLC_ERR_PLUGIN, "alloc of 1000 bytes gives 1000 at (nil)");
}

TEST(texts_end) {
    dlc_device_info info;
    ck_assert_int_eq(dlc_device_describe(&ops, 0, &info), DLC_OK);
    ck_assert_uint_eq(strlen(info.name), sizeof info.name - 1);
    ck_assert_uint_eq(strlen(info.address), sizeof info.address - 1);
    ck_assert_uint_eq(strlen(info.software), sizeof info.software - 1);
    its_status = DLC_ERR_IO;
    refused(dlc_device_describe(&ops, 0, &info), DLC_ERR_IO, "describe failed without");
}

TEST(silence) {
    dlc_memory got;
    dlc_queue *queue = NULL;
    dlc_event *event = NULL;
    its_status = DLC_ERR_NOMEM;
    refused(ask(&got), DLC_ERR_NOMEM, "alloc failed without a reason");
    refused(dlc_device_open_queue(&ops, NULL, &queue), DLC_ERR_NOMEM,
            "queue_open failed");
    refused(dlc_device_open_event(&ops, NULL, &event), DLC_ERR_NOMEM,
            "event_open failed");
    its_status = 7;
    refused(ask(&got), DLC_ERR_PLUGIN, "alloc returns 7, which is no status");
}

TEST(nothing) {
    dlc_queue *queue = NULL;
    dlc_event *event = NULL;
    ck_assert_int_eq(dlc_device_open_queue(&ops, NULL, &queue), DLC_OK);
    ck_assert_int_eq(dlc_device_open_event(&ops, NULL, &event), DLC_OK);
    its_object = NULL;
    refused(dlc_device_open_queue(&ops, NULL, &queue), DLC_ERR_PLUGIN,
            "queue_open succeeds, but opens nothing");
    refused(dlc_device_open_event(&ops, NULL, &event), DLC_ERR_PLUGIN,
            "event_open succeeds, but opens nothing");
}
