/* Reads and decodes all samples of a section, many at a time. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/bar.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/load_fields.h"
#include "data/thread_pool.h"
#include "data_commands.h"
#include "machine.h"
#include "setup/classes.h"
#include "setup/data_source.h"

/* Samples between two looks at the clock. */
enum { BLOCK = 256 };

/* ---- Opening ----------------------------------------------------------------- */

const struct argp_option data_command_options[] = {
    {"test", DATA_KEY_TEST, NULL, 0, "the samples of [data.test]", 0}, {0}};

error_t data_command_parse(int key, char *argument, struct argp_state *state) {
    data_command *command = state->input;
    (void)argument;
    switch (key) {
    case ARGP_KEY_INIT:
        dlc_tool_share_input(state, &command->tool);
        return 0;
    case DATA_KEY_TEST:
        command->test = 1;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Once for each command: the cores that it may use can change while it runs. */
static dlc_status count_threads(data_command *command) {
    dlc_machine machine;
    DLC_TRY(dlc_machine_read(&machine));
    command->threads = machine.cores > 1 ? machine.cores : 1;
    return DLC_OK;
}

dlc_status data_command_open(data_command *command) {
    command->tool.data_only = 1;
    DLC_TRY(count_threads(command));
    DLC_TRY(dlc_tool_setup(&command->tool, 0, &command->setup));
    dlc_setup *setup = command->setup;
    command->data = command->test ? &setup->test : &setup->train;
    if (!command->data->present)
        return dlc_fail(DLC_ERR_CONFIG, "%s: there is no section [%s]",
                        command->tool.path, command->test ? "data.test" : "data");
    return command->test ? dlc_classes_open_test(setup)
                         : dlc_data_source_open(setup, command->data, NULL);
}

int data_command_close(data_command *command, dlc_status status) {
    return dlc_tool_close(&command->tool, command->setup, status, 0);
}

/* ---- One sample -------------------------------------------------------------- */

/* The memory of one thread. */
typedef struct reader {
    dlc_read_sample read;
    uint8_t *pixels;
    size_t room;
} reader;

typedef struct scanning {
    data_scan *scan;
    reader *reader;  /* one per thread */
    int64_t first;   /* of the block */
    uint32_t wanted; /* the fields that are read of each sample */
    int32_t boxes;   /* as data_boxes says */
    pthread_mutex_t lock;
    int is_concurrent;
    dlc_status status; /* of the first failure that ends the scan */
    char detail[1024];
} scanning;

static dlc_status decode(const data_command *command, reader *by, dlc_image *image) {
    const dlc_samples *samples = &command->data->samples;
    const dlc_value *value = &by->read.value[samples->image];
    dlc_encoded encoded;
    DLC_TRY(dlc_decoders_inspect(
        command->data->decoders, value->data, value->bytes,
        dlc_settings_get_int(command->data->settings, "max_pixels"), &encoded));
    int32_t channels = (int32_t)samples->info.shape.dims[0];
    const int32_t whole[4] = {0, 0, encoded.info.width, encoded.info.height};
    size_t bytes = (size_t)channels * (size_t)whole[2] * (size_t)whole[3];
    if (by->room < bytes) {
        dlc_free(by->pixels);
        by->pixels = dlc_alloc(bytes, 1);
        by->room = by->pixels ? bytes : 0;
    }
    if (!by->pixels)
        return DLC_ERR_NOMEM;
    DLC_TRY(dlc_decoders_decode(&encoded, channels, 1, whole, by->pixels));
    *image = dlc_image_interleaved(by->pixels, channels, whole[3], whole[2]);
    return DLC_OK;
}

int32_t data_boxes(const dlc_samples *samples) {
    const dlc_field *image = dlc_samples_field(samples, samples->image);
    return image->role == DLC_ROLE_IMAGE
               ? dlc_samples_find_role(samples, DLC_ROLE_BOXES)
               : -1;
}

/* Numbers become an image of one pixel, each of them a channel of it. */
static dlc_image view(const dlc_samples *samples, const dlc_value *value) {
    const dlc_field *field = dlc_samples_field(samples, samples->image);
    const dlc_shape numbers = {3, {dlc_shape_count(&value->shape), 1, 1}};
    return dlc_image_planes((void *)value->data, samples->info.dtype,
                            field->role == DLC_ROLE_IMAGE ? &value->shape : &numbers);
}

static uint32_t bit_of(int32_t field) {
    return field < 0 ? 0 : 1u << field;
}

static uint32_t wanted_fields(const data_scan *scan) {
    const dlc_samples *samples = &scan->command->data->samples;
    uint32_t classes = bit_of(samples->classes);
    if (scan->all_fields)
        return (1u << samples->info.field_count) - 1;
    return scan->labels_only
               ? classes
               : classes | bit_of(samples->image) | bit_of(data_boxes(samples));
}

static dlc_status open_image(const data_scan *scan, reader *by, dlc_image *image) {
    const dlc_samples *samples = &scan->command->data->samples;
    if (dlc_samples_are_encoded(samples))
        return decode(scan->command, by, image);
    *image = view(samples, &by->read.value[samples->image]);
    return DLC_OK;
}

static int64_t count_clipped(const dlc_value *boxes, const dlc_image *image) {
    const float *row = boxes->data;
    int64_t count = 0;
    for (int64_t i = 0; i < boxes->shape.dims[0]; i++, row += DLC_BOX_VALUES)
        count += row[DLC_BOX_CLASS] >= 0 &&
                 (row[DLC_BOX_X0] < 0 || row[DLC_BOX_Y0] < 0 ||
                  row[DLC_BOX_X1] > (float)image->width ||
                  row[DLC_BOX_Y1] > (float)image->height);
    return count;
}

static dlc_status read_image(scanning *s, reader *by, data_sample *sample) {
    const data_scan *scan = s->scan;
    const dlc_samples *samples = &scan->command->data->samples;
    if (!s->is_concurrent)
        pthread_mutex_lock(&s->lock);
    dlc_status status = dlc_samples_read_fields(samples, sample->index, s->wanted, NULL,
                                                &by->read);
    if (!s->is_concurrent)
        pthread_mutex_unlock(&s->lock);
    DLC_TRY(status);
    sample->label = by->read.label;
    if (samples->classes != samples->label)
        sample->labels = by->read.value[samples->classes].data;
    if (scan->labels_only)
        return DLC_OK;
    DLC_TRY(open_image(scan, by, &sample->image));
    if (s->boxes < 0)
        return DLC_OK;
    sample->boxes = by->read.value[s->boxes];
    sample->clipped = count_clipped(&sample->boxes, &sample->image);
    return dlc_boxes_check(dlc_samples_field(samples, s->boxes), &sample->boxes,
                           sample->image.height, sample->image.width);
}

static void visit(void *context, int32_t i, int32_t thread) {
    scanning *s = context;
    data_sample sample = {.index = s->first + i, .label = DLC_LABEL_NONE};
    sample.status = read_image(s, &s->reader[thread], &sample);
    if (sample.status != DLC_OK)
        sample.image = (dlc_image){0};
    if (sample.status == DLC_OK || sample.status == DLC_ERR_DATA) {
        s->scan->visit(s->scan->context, thread, &sample);
        return;
    }
    pthread_mutex_lock(&s->lock);
    if (s->status == DLC_OK) {
        s->status = sample.status;
        (void)snprintf(s->detail, sizeof s->detail, "%s", dlc_detail());
    }
    pthread_mutex_unlock(&s->lock);
}

/* ---- All samples ------------------------------------------------------------- */

void data_draw_bar(int64_t done, int64_t all, int64_t before, uint64_t begin) {
    double rate = (double)(done - before) / dlc_since(begin);
    double left = rate > 0 ? (double)(all - done) / rate : 0;
    dlc_bar_draw((double)done / (double)all, left, "%lld of %lld samples  %.0f/s",
                 (long long)done, (long long)all, rate);
}

static dlc_status run_blocks(scanning *s, dlc_thread_pool *pool) {
    int64_t samples = s->scan->command->data->info.samples;
    uint64_t begin = dlc_now_ns();
    while (s->first < samples && s->status == DLC_OK) {
        int64_t left = samples - s->first;
        int32_t count = (int32_t)(left < BLOCK ? left : BLOCK);
        dlc_thread_pool_run(pool, count, visit, s);
        s->first += count;
        data_draw_bar(s->first, samples, 0, begin);
    }
    dlc_log_status("%s", "");
    return s->status == DLC_OK ? DLC_OK : dlc_fail(s->status, "%s", s->detail);
}

dlc_status data_scan_run(data_scan *scan) {
    dlc_thread_pool *pool = NULL;
    int32_t threads = scan->command->threads;
    scanning s = {.scan = scan,
                  .wanted = wanted_fields(scan),
                  .boxes = data_boxes(&scan->command->data->samples),
                  .is_concurrent = (scan->command->data->feature->caps &
                                    DLC_DATA_CONCURRENT) != 0};
    s.reader = dlc_alloc((size_t)threads, sizeof *s.reader);
    if (!s.reader)
        return DLC_ERR_NOMEM;
    pthread_mutex_init(&s.lock, NULL);
    dlc_status status = dlc_thread_pool_open(threads, &pool);
    if (status == DLC_OK)
        status = run_blocks(&s, pool);
    dlc_thread_pool_close(pool);
    pthread_mutex_destroy(&s.lock);
    for (int32_t i = 0; i < threads; i++) {
        dlc_read_sample_free(&s.reader[i].read);
        dlc_free(s.reader[i].pixels);
    }
    dlc_free(s.reader);
    return status;
}
