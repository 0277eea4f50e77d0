/* dlcore data preview: draws the first samples of training, or of a test, as the net is
 * shown them after all transforms, with their labels and the boxes around objects. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/feed.h"
#include "data_commands.h"
#include "file.h"
#include "png.h"
#include "setup/data_source.h"

enum { KEY_COUNT = 0x300 };
enum { COUNT = 64, COUNT_MOST = 4096, SMALLEST = 96, GAP = 4 };

typedef struct preview_command {
    data_command data; /* first */
    const char *path;
    int count;
} preview_command;

static const struct argp_option options[] = {
    {"output", 'o', "FILE.png", 0, "the picture", 0},
    {"count", KEY_COUNT, "N", 0, "samples that are drawn (64)", 0},
    {"test", DATA_KEY_TEST, NULL, 0, "the samples of [data.test]", 0},
    {0}};

static error_t parse(int key, char *argument, struct argp_state *state) {
    preview_command *command = state->input;
    const char *ending;
    switch (key) {
    case KEY_COUNT:
        command->count = dlc_tool_parse_count("count", argument, COUNT_MOST, state);
        return 0;
    case 'o':
        ending = strrchr(argument, '.');
        if (!ending || strcasecmp(ending, ".png") != 0)
            argp_error(state,
                       "--output=%s: the picture is a PNG, so its name must end in "
                       ".png",
                       argument);
        command->path = argument;
        return 0;
    case ARGP_KEY_END:
        if (!command->path)
            argp_error(state, "which file is to be written? Give -o FILE.png");
        return 0;
    default:
        return data_command_parse(key, argument, state);
    }
}

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "NET.INI",
    .doc =
        "Draws the first samples of training, in the order of the first epoch, as the net "
        "is shown them after all transforms, each with its label and boxes.",
    .children = dlc_tool_children};

/* ---- Samples ----------------------------------------------------------------- */

/* What is drawn: one batch of the feed. */
typedef struct sheet {
    const data_command *command;
    const dlc_feed *feed;
    dlc_batch batch;
    dlc_shape shape;        /* of a sample */
    int32_t boxes, several; /* which fields of the batch; -1: there are none */
    float least, most; /* of floats that are no images: these become black and white */
} sheet;

/* The field of a batch that has a field of the source: what a net compares with, or one
 * more; -1: there is none. */
static int32_t choose_field(const dlc_samples *samples, int32_t field,
                            dlc_batch_fields *fields) {
    if (field < 0)
        return -1;
    if (field == samples->target)
        return DLC_FIELD_LABEL;
    if (!fields->count)
        *fields = (dlc_batch_fields){.count = 2,
                                     .source = {samples->image, samples->target},
                                     .labels = 1u << DLC_FIELD_LABEL};
    fields->source[fields->count] = field;
    return fields->count++;
}

static dlc_status open_feed(const preview_command *command, int64_t count, sheet *s,
                            dlc_feed **feed) {
    const data_command *data = &command->data;
    const dlc_samples *samples = &data->data->samples;
    dlc_feed_args args;
    dlc_data_source_feed(data->data, &args);
    args.fields = (dlc_batch_fields){.count = 0};
    s->boxes = choose_field(samples, data_boxes(samples), &args.fields);
    s->several = choose_field(samples, samples->label < 0 ? samples->classes : -1,
                              &args.fields);
    args.seed = data->setup->seed;
    args.keep_bytes = 1;
    args.count = (int32_t)count;
    args.batch = count;
    args.test = data->test;
    args.ranks = 1;
    args.prefetch = 1;
    args.threads = command->data.threads;
    return dlc_feed_open(&args, feed);
}

/* The range of floats, before `normalize`, of all samples. */
static void find_range(sheet *s) {
    int64_t plane = s->shape.dims[1] * s->shape.dims[2];
    int64_t values = s->batch.samples * dlc_shape_count(&s->shape);
    const dlc_transforms *list = s->command->data->transforms;
    const float *at = s->batch.data;
    s->least = INFINITY;
    s->most = -INFINITY;
    for (int64_t i = 0; i < values; i++) {
        int64_t channel = i / plane % s->shape.dims[0];
        float value = at[i] / dlc_transforms_scale(list, channel) +
                      dlc_transforms_mean(list, channel);
        s->least = fminf(s->least, value);
        s->most = fmaxf(s->most, value);
    }
}

/* A value of a sample as a byte, without what `normalize` did to it. */
static uint8_t byte_at(const sheet *s, int64_t sample, int64_t channel, int64_t y,
                       int64_t x) {
    const int64_t *dims = s->shape.dims;
    int64_t i = ((sample * dims[0] + channel) * dims[1] + y) * dims[2] + x;
    if (dlc_feed_dtype(s->feed) == DLC_U8)
        return ((const uint8_t *)s->batch.data)[i];
    const dlc_transforms *list = s->command->data->transforms;
    float value = ((const float *)s->batch.data)[i] /
                      dlc_transforms_scale(list, channel) +
                  dlc_transforms_mean(list, channel);
    float range = s->most > s->least ? s->most - s->least : 1;
    return (uint8_t)((value - s->least) / range * 255 + 0.5f);
}

static void add_class(const sheet *s, int32_t label, dlc_text *text) {
    const dlc_data_info *info = &s->command->data->info;
    const char *comma = text->length ? ", " : "";
    if (info->class_names && label >= 0 && label < info->classes)
        dlc_text_add(text, "%s%s", comma, info->class_names[label]);
    else
        dlc_text_add(text, "%s%d", comma, (int)label);
}

/* The class of a sample, or all of several, also of those that are mixed. */
static void add_classes(const sheet *s, int64_t sample, dlc_text *text) {
    if (s->several < 0) {
        if (s->batch.labels[sample] != DLC_LABEL_NONE)
            add_class(s, s->batch.labels[sample], text);
        return;
    }
    int64_t classes = dlc_feed_field(s->feed, s->several)->shape.dims[0];
    const float *is_of = (const float *)s->batch.field[s->several] + sample * classes;
    for (int32_t c = 0; c < classes; c++)
        if (is_of[c] > 0)
            add_class(s, c, text);
}

/* ---- Drawing ----------------------------------------------------------------- */

/* Draws a sample with its upper left corner at x, y, each pixel `zoom` wide. */
static void draw_sample(const sheet *s, int64_t sample, int64_t zoom, int64_t left,
                        int64_t top, const dlc_canvas *canvas) {
    int is_color = s->shape.dims[0] == 3;
    for (int64_t y = 0; y < s->shape.dims[1] * zoom; y++)
        for (int64_t x = 0; x < s->shape.dims[2] * zoom; x++) {
            uint8_t *pixel = dlc_canvas_at(canvas, left + x, top + y);
            for (int64_t c = 0; c < 3; c++)
                pixel[c] = byte_at(s, sample, is_color ? c : 0, y / zoom, x / zoom);
        }
}

/* Bright and unlike each other for the first classes: hues a golden section apart. */
static void color_of(float label, uint8_t color[3]) {
    double hue = fmod((double)label * 0.6180339887, 1) * 6;
    for (int c = 0; c < 3; c++) {
        double away = fabs(fmod(hue - 2 * c + 9, 6) - 3); /* from the channel's hue */
        color[c] = (uint8_t)(255 * fmin(1, fmax(0, 2 - away)));
    }
}

/* A span of pixels as pixels of the canvas, first and last. */
static void find_span(float begin, float end, int64_t zoom, int64_t side,
                      int64_t span[2]) {
    double most = (double)(side * zoom - 1);
    span[0] = (int64_t)fmin(most, floor((double)begin * (double)zoom));
    span[1] = (int64_t)fmin(
        most, fmax((double)span[0], ceil((double)end * (double)zoom) - 1));
}

/* Draws the outline of a box, a pixel wide. */
static void draw_box(const sheet *s, const float *row, int64_t zoom, int64_t left,
                     int64_t top, const dlc_canvas *canvas) {
    uint8_t color[3];
    int64_t x[2], y[2];
    color_of(row[DLC_BOX_CLASS], color);
    find_span(row[DLC_BOX_X0], row[DLC_BOX_X1], zoom, s->shape.dims[2], x);
    find_span(row[DLC_BOX_Y0], row[DLC_BOX_Y1], zoom, s->shape.dims[1], y);
    for (int side = 0; side < 2; side++) {
        for (int64_t i = x[0]; i <= x[1]; i++)
            memcpy(dlc_canvas_at(canvas, left + i, top + y[side]), color, 3);
        for (int64_t i = y[0]; i <= y[1]; i++)
            memcpy(dlc_canvas_at(canvas, left + x[side], top + i), color, 3);
    }
}

static void draw_boxes(const sheet *s, int64_t sample, int64_t zoom, int64_t left,
                       int64_t top, const dlc_canvas *canvas) {
    if (s->boxes < 0)
        return;
    int64_t rows = dlc_feed_field(s->feed, s->boxes)->shape.dims[0];
    const float *row = (const float *)s->batch.field[s->boxes] +
                       sample * rows * DLC_BOX_VALUES;
    for (int64_t i = 0; i < rows && row[DLC_BOX_CLASS] >= 0; i++, row += DLC_BOX_VALUES)
        draw_box(s, row, zoom, left, top, canvas);
}

static dlc_status draw(const sheet *s, const char *path) {
    int64_t height = s->shape.dims[1], width = s->shape.dims[2],
            count = s->batch.samples;
    int64_t zoom = width < SMALLEST ? (SMALLEST + width - 1) / width : 1;
    int64_t columns = (int64_t)ceil(sqrt((double)count));
    int64_t rows = (count + columns - 1) / columns;
    int64_t cell_width = width * zoom + GAP;
    int64_t cell_height = height * zoom + DLC_CANVAS_LINE + GAP;
    dlc_canvas canvas = {0};
    DLC_TRY(
        dlc_canvas_open(columns * cell_width + GAP, rows * cell_height + GAP, &canvas));
    dlc_status status = DLC_OK;
    for (int64_t i = 0; i < count && status == DLC_OK; i++) {
        dlc_text text = {0};
        int64_t x = GAP + i % columns * cell_width, y = GAP + i / columns * cell_height;
        draw_sample(s, i, zoom, x, y, &canvas);
        draw_boxes(s, i, zoom, x, y, &canvas);
        add_classes(s, i, &text);
        dlc_canvas_text(&canvas, x, y + height * zoom + 1, width * zoom,
                        dlc_text_string(&text));
        status = dlc_text_status(&text);
        dlc_text_free(&text);
    }
    if (status == DLC_OK)
        status = dlc_canvas_write(&canvas, path);
    dlc_canvas_close(&canvas);
    return status;
}

static dlc_status print_json(const char *path, int64_t samples) {
    dlc_json json = {0};
    dlc_json_object(&json, NULL);
    dlc_json_string(&json, "path", path);
    dlc_json_int(&json, "samples", samples);
    dlc_json_end_object(&json);
    return dlc_tool_print_json(&json);
}

static dlc_status preview(const preview_command *command) {
    int64_t samples = command->data.data->info.samples;
    int64_t count = command->count < samples ? command->count : samples;
    const dlc_samples *of = &command->data.data->samples;
    if (dlc_samples_field(of, of->image)->role != DLC_ROLE_IMAGE)
        return dlc_fail(DLC_ERR_DATA,
                        "the samples have no images, so they cannot be drawn");
    dlc_feed *feed = NULL;
    sheet s = {.command = &command->data};
    DLC_TRY(open_feed(command, count, &s, &feed));
    s.feed = feed;
    s.shape = dlc_feed_shape(feed);
    dlc_status status = dlc_feed_next(feed, &s.batch);
    if (status == DLC_OK && dlc_feed_dtype(feed) != DLC_U8)
        find_range(&s);
    if (status == DLC_OK)
        status = draw(&s, command->path);
    dlc_feed_close(feed);
    if (status == DLC_OK && command->data.tool.json)
        status = print_json(command->path, count);
    return status;
}

int dlc_command_data_preview(int argc, char **argv) {
    preview_command command = {.count = COUNT};
    dlc_tool_parse(&argp, argc, argv, &command);
    dlc_status status = dlc_tool_file_check(command.path);
    if (status == DLC_OK)
        status = data_command_open(&command.data);
    if (status == DLC_OK)
        status = preview(&command);
    return data_command_close(&command.data, status);
}
