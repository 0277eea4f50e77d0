/* dlcore data verify: reads and decodes every sample, and lists those that are bad. */
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "data_commands.h"

static const struct argp argp = {
    .options = data_command_options,
    .parser = data_command_parse,
    .args_doc = "NET.INI",
    .doc =
        "Reads and decodes every sample of [data], and lists the bad ones, each with the "
        "reason. The exit code is 4 if there are any.",
    .children = dlc_tool_children};

/* A sample that cannot be used. */
typedef struct bad_sample {
    int64_t index;
    char *name, *why; /* own */
} bad_sample;

typedef struct findings {
    const data_command *command;
    pthread_mutex_t lock;
    bad_sample *bad; /* own */
    size_t count, room;
    int failed;      /* memory ran out */
    int64_t clipped; /* boxes */
} findings;

static void keep(findings *found, const data_sample *sample) {
    enum { MORE = 64 };
    char name[1024];
    if (found->count == found->room) {
        bad_sample *grown = dlc_grow(found->bad, found->room, found->room + MORE,
                                     sizeof *grown);
        found->failed |= !grown;
        if (!grown)
            return;
        found->bad = grown;
        found->room += MORE;
    }
    dlc_samples_name(&found->command->data->samples, sample->index, name, sizeof name);
    bad_sample *made = &found->bad[found->count++];
    made->index = sample->index;
    made->name = dlc_strdup(name);
    made->why = dlc_strdup(dlc_detail());
    found->failed |= !made->name || !made->why;
}

static void look_at(void *context, int32_t thread, const data_sample *sample) {
    findings *found = context;
    (void)thread;
    if (sample->status == DLC_OK && !sample->clipped)
        return;
    pthread_mutex_lock(&found->lock);
    if (sample->status == DLC_OK)
        found->clipped += sample->clipped;
    else
        keep(found, sample);
    pthread_mutex_unlock(&found->lock);
}

static int by_index(const void *a, const void *b) {
    const bad_sample *x = a, *y = b;
    return (x->index > y->index) - (x->index < y->index);
}

static dlc_status print_json(const findings *found) {
    dlc_json json = {0};
    dlc_json_object(&json, NULL);
    dlc_json_int(&json, "samples", found->command->data->info.samples);
    dlc_json_int(&json, "clipped_boxes", found->clipped);
    dlc_json_array(&json, "bad");
    for (size_t i = 0; i < found->count; i++) {
        dlc_json_object(&json, NULL);
        dlc_json_int(&json, "index", found->bad[i].index);
        dlc_json_string(&json, "name", found->bad[i].name);
        dlc_json_string(&json, "reason", found->bad[i].why);
        dlc_json_end_object(&json);
    }
    dlc_json_end_array(&json);
    dlc_json_end_object(&json);
    return dlc_tool_print_json(&json);
}

static dlc_status report(const findings *found) {
    long long samples = (long long)found->command->data->info.samples;
    if (found->failed)
        return dlc_fail(DLC_ERR_NOMEM, "out of memory");
    if (found->command->tool.json)
        DLC_TRY(print_json(found));
    dlc_text text = {0};
    for (size_t i = 0; !found->command->tool.json && i < found->count; i++) {
        dlc_text_add_escaped(&text, found->bad[i].name, INT_MAX);
        dlc_text_add(&text, ": ");
        dlc_text_add_escaped(&text, found->bad[i].why, INT_MAX);
        dlc_text_add(&text, "\n");
    }
    DLC_TRY(dlc_tool_print_text(&text));
    if (found->clipped)
        dlc_info("%lld boxes reach beyond their images and are clipped to them",
                 (long long)found->clipped);
    if (found->count)
        return dlc_fail(DLC_ERR_DATA, "%zu of %lld samples are bad", found->count,
                        samples);
    if (!found->command->tool.json)
        printf("all %lld samples are good\n", samples);
    return DLC_OK;
}

int dlc_command_data_verify(int argc, char **argv) {
    data_command command = {0};
    dlc_tool_parse(&argp, argc, argv, &command);
    findings found = {.command = &command};
    pthread_mutex_init(&found.lock, NULL);
    dlc_status status = data_command_open(&command);
    data_scan scan = {
        .command = &command, .all_fields = 1, .visit = look_at, .context = &found};
    if (status == DLC_OK)
        status = data_scan_run(&scan);
    if (found.count)
        qsort(found.bad, found.count, sizeof *found.bad, by_index);
    if (status == DLC_OK)
        status = report(&found);
    for (size_t i = 0; i < found.count; i++) {
        dlc_free(found.bad[i].name);
        dlc_free(found.bad[i].why);
    }
    dlc_free(found.bad);
    pthread_mutex_destroy(&found.lock);
    return data_command_close(&command, status);
}
