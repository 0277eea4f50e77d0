/* dlcore data stats: counts, classes, boxes, sizes, and mean and deviation of the
 * values, as `normalize` takes them. */
#include <limits.h>
#include <math.h>
#include <stdio.h>

#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "data_commands.h"

static const struct argp argp = {
    .options = data_command_options,
    .parser = data_command_parse,
    .args_doc = "NET.INI",
    .doc =
        "Reads every sample of [data], and shows how many samples and boxes each class has, "
        "how large the images are, and mean and standard deviation of each channel, as "
        "`normalize` takes them. All of it is before transforms.",
    .children = dlc_tool_children};

/* ---- Counting ---------------------------------------------------------------- */

/* What one thread has seen. */
typedef struct totals {
    int64_t samples, bad, unlabelled;
    double pixels, *sum, *squares;  /* own; of each channel */
    dlc_rect least, most;           /* sizes by area; x and y are unused */
    double height, width;           /* sums */
    int64_t *classes, *box_classes; /* own; samples and boxes of each */
    size_t room;                    /* of `classes` */
    int failed;                     /* memory ran out */
    int64_t boxes, clipped;
} totals;

typedef struct counting {
    const data_command *command;
    int is_image;           /* or numbers; then `channels` is how many */
    int64_t channels;       /* length of totals.sum; 0: of tokens, which have no mean */
    const dlc_field *boxes; /* NULL: there are none */
    int has_classes;
    int32_t classes, box_classes; /* in the end; classes that are seen may be more */
    const char *const *names;     /* of the samples' classes; or NULL */
    totals *of;                   /* own; one per thread */
} counting;

static void count_size(totals *t, const dlc_image *image) {
    dlc_rect size = {.width = image->width, .height = image->height};
    int64_t area = size.width * size.height;
    if (t->samples == t->bad || area < t->least.width * t->least.height)
        t->least = size;
    if (area > t->most.width * t->most.height)
        t->most = size;
    t->height += (double)image->height;
    t->width += (double)image->width;
    t->pixels += (double)area;
}

/* Whole numbers, which are exact up to the size of any image. */
static void count_bytes(totals *t, const dlc_image *image, int64_t channel) {
    uint64_t sum = 0, squares = 0;
    for (int64_t y = 0; y < image->height; y++) {
        const uint8_t *at = (const uint8_t *)image->pixels + y * image->row +
                            channel * image->channel;
        for (int64_t x = 0; x < image->width; x++) {
            uint64_t value = at[x * image->column];
            sum += value;
            squares += value * value;
        }
    }
    t->sum[channel] += (double)sum;
    t->squares[channel] += (double)squares;
}

static void count_floats(totals *t, const dlc_image *image, int64_t channel) {
    for (int64_t y = 0; y < image->height; y++) {
        const float *at = (const float *)image->pixels + y * image->row +
                          channel * image->channel;
        for (int64_t x = 0; x < image->width; x++) {
            double value = (double)at[x * image->column];
            t->sum[channel] += value;
            t->squares[channel] += value * value;
        }
    }
}

/* Makes room for a class of a source that does not know how many there are. */
static int reserve_class(totals *t, size_t label) {
    if (label < t->room)
        return 1;
    size_t room = label + label / 2 + 1;
    int64_t *grown = dlc_grow(t->classes, t->room, room, sizeof *grown);
    t->failed |= !grown;
    if (!grown)
        return 0;
    t->classes = grown;
    t->room = room;
    return 1;
}

static void count_label(const counting *c, totals *t, const data_sample *sample) {
    int labelled = sample->label >= 0;
    if (labelled && reserve_class(t, (size_t)sample->label))
        t->classes[sample->label]++;
    for (int32_t i = 0; sample->labels && i < c->classes; i++) {
        t->classes[i] += sample->labels[i] == 1;
        labelled |= sample->labels[i] == 1;
    }
    t->unlabelled += !labelled;
}

static void count_boxes(const counting *c, totals *t, const dlc_value *boxes) {
    const float *row = boxes->data;
    for (int64_t i = 0; row && i < boxes->shape.dims[0]; i++, row += DLC_BOX_VALUES) {
        if (row[DLC_BOX_CLASS] < 0)
            continue;
        t->boxes++;
        if (c->box_classes)
            t->box_classes[(int32_t)row[DLC_BOX_CLASS]]++;
    }
}

static void count(void *context, int32_t thread, const data_sample *sample) {
    const counting *c = context;
    totals *t = &c->of[thread];
    const dlc_image *image = &sample->image;
    if (sample->status == DLC_OK) {
        count_size(t, image);
        count_label(c, t, sample);
        count_boxes(c, t, &sample->boxes);
        t->clipped += sample->clipped;
    } else {
        t->bad++;
    }
    t->samples++;
    for (int64_t i = 0; i < image->channels && i < c->channels; i++)
        if (image->type == DLC_U8)
            count_bytes(t, image, i);
        else
            count_floats(t, image, i);
}

/* Adds what a thread has seen to the first one's, in the order of threads. */
static void add(const counting *c, totals *all, const totals *more) {
    int is_first = all->samples == all->bad, is_any = more->samples > more->bad;
    if (is_any && (is_first || more->least.width * more->least.height <
                                   all->least.width * all->least.height))
        all->least = more->least;
    if (more->most.width * more->most.height > all->most.width * all->most.height)
        all->most = more->most;
    all->samples += more->samples;
    all->bad += more->bad;
    all->unlabelled += more->unlabelled;
    all->boxes += more->boxes;
    all->clipped += more->clipped;
    all->pixels += more->pixels;
    all->height += more->height;
    all->width += more->width;
    for (int64_t i = 0; i < c->channels; i++) {
        all->sum[i] += more->sum[i];
        all->squares[i] += more->squares[i];
    }
    for (size_t i = 0; i < more->room; i++)
        if (more->classes[i] && reserve_class(all, i))
            all->classes[i] += more->classes[i];
    for (int32_t i = 0; i < c->box_classes; i++)
        all->box_classes[i] += more->box_classes[i];
    all->failed |= more->failed;
}

/* Adds all up, and counts the classes that were seen. */
static dlc_status add_all(counting *c) {
    totals *all = &c->of[0];
    for (int32_t i = 1; i < c->command->threads; i++)
        add(c, all, &c->of[i]);
    for (size_t i = (size_t)c->classes; i < all->room; i++)
        if (all->classes[i])
            c->classes = (int32_t)i + 1;
    return all->failed ? DLC_ERR_NOMEM : DLC_OK;
}

static dlc_status open_totals(const counting *c, totals *t) {
    t->classes = dlc_alloc((size_t)c->classes, sizeof *t->classes);
    t->room = (size_t)c->classes;
    t->box_classes = dlc_alloc((size_t)c->box_classes, sizeof *t->box_classes);
    t->sum = dlc_alloc((size_t)c->channels, sizeof *t->sum);
    t->squares = dlc_alloc((size_t)c->channels, sizeof *t->squares);
    return t->classes && t->box_classes && t->sum && t->squares ? DLC_OK
                                                                : DLC_ERR_NOMEM;
}

static int64_t count_channels(const dlc_field *of) {
    return of->role == DLC_ROLE_IMAGE    ? of->shape.dims[0]
           : of->role == DLC_ROLE_TOKENS ? 0
                                         : dlc_shape_count(&of->shape);
}

static dlc_status open_counting(const data_command *command, counting *c) {
    const dlc_samples *samples = &command->data->samples;
    const dlc_field *image = dlc_samples_field(samples, samples->image);
    *c = (counting){.command = command,
                    .is_image = image->role == DLC_ROLE_IMAGE,
                    .channels = count_channels(image)};
    int32_t field = samples->classes, boxes = data_boxes(samples);
    if (field >= 0) {
        c->has_classes = 1;
        const dlc_field *classes = dlc_samples_field(samples, field);
        c->classes = classes->classes;
        c->names = classes->class_names;
    }
    if (boxes >= 0) {
        c->boxes = dlc_samples_field(samples, boxes);
        c->box_classes = c->boxes->classes;
    }
    c->of = dlc_alloc((size_t)c->command->threads, sizeof *c->of);
    for (int32_t i = 0; c->of && i < c->command->threads; i++)
        DLC_TRY(open_totals(c, &c->of[i]));
    return c->of ? DLC_OK : DLC_ERR_NOMEM;
}

static void close_counting(counting *c) {
    for (int32_t i = 0; c->of && i < c->command->threads; i++) {
        dlc_free(c->of[i].classes);
        dlc_free(c->of[i].box_classes);
        dlc_free(c->of[i].sum);
        dlc_free(c->of[i].squares);
    }
    dlc_free(c->of);
}

/* ---- Results ----------------------------------------------------------------- */

static double mean_of(const totals *t, int64_t channel) {
    return t->pixels > 0 ? t->sum[channel] / t->pixels : 0;
}

static double deviation_of(const totals *t, int64_t channel) {
    double mean = mean_of(t, channel);
    double variance = t->pixels > 0 ? t->squares[channel] / t->pixels - mean * mean : 0;
    return variance > 0 ? sqrt(variance) : 0;
}

static void add_numbers(const counting *c, double (*value)(const totals *, int64_t),
                        dlc_text *text) {
    for (int64_t i = 0; i < c->channels; i++)
        dlc_text_add(text, "%s%.4g", i ? ", " : "", value(c->of, i));
}

static const char *class_name(const char *const *names, int32_t i, char number[16]) {
    (void)snprintf(number, 16, "%d", (int)i);
    return names ? names[i] : number;
}

static void add_images(const counting *c, dlc_text *text) {
    const totals *t = c->of;
    double good = (double)(t->samples - t->bad);
    dlc_text_add(text, "channels    %lld, %s\n", (long long)c->channels,
                 c->command->data->info.dtype == DLC_U8 ? "bytes" : "float32");
    if (good > 0)
        dlc_text_add(
            text,
            "smallest    %lld x %lld (width x height)\nlargest     %lld x %lld\n"
            "average     %.0f x %.0f\n",
            (long long)t->least.width, (long long)t->least.height,
            (long long)t->most.width, (long long)t->most.height, t->width / good,
            t->height / good);
    dlc_text_add(text, "normalize   normalize(mean=(");
    add_numbers(c, mean_of, text);
    dlc_text_add(text, "), std=(");
    add_numbers(c, deviation_of, text);
    dlc_text_add(text, "))\n");
}

/* Of samples without an image. */
static void add_vectors(const counting *c, dlc_text *text) {
    dlc_text_add(text, "numbers     %lld\n",
                 (long long)dlc_shape_count(&c->command->data->info.shape));
    if (!c->channels)
        return;
    dlc_text_add(text, "mean        ");
    add_numbers(c, mean_of, text);
    dlc_text_add(text, "\nstd         ");
    add_numbers(c, deviation_of, text);
    dlc_text_add(text, "\n");
}

static void add_counts(const char *const *names, int32_t count, const int64_t *of,
                       dlc_text *text) {
    char number[16];
    for (int32_t i = 0; i < count; i++) {
        dlc_text_add(text, "  ");
        dlc_text_add_cell(text, -24, INT_MAX, class_name(names, i, number));
        dlc_text_add(text, "  %lld\n", (long long)of[i]);
    }
}

static dlc_status print_text(const counting *c) {
    const totals *t = c->of;
    dlc_text text = {0};
    dlc_text_add(&text, "samples     %lld\n", (long long)t->samples);
    if (t->bad)
        dlc_text_add(&text, "bad         %lld; dlcore data verify lists them\n",
                     (long long)t->bad);
    if (c->is_image)
        add_images(c, &text);
    else
        add_vectors(c, &text);
    if (t->unlabelled && c->has_classes)
        dlc_text_add(&text, "no class    %lld\n", (long long)t->unlabelled);
    if (c->has_classes)
        dlc_text_add(&text, "classes     %d\n", (int)c->classes);
    add_counts(c->names, c->classes, t->classes, &text);
    if (c->boxes) {
        dlc_text_add(&text, "boxes       %lld\n", (long long)t->boxes);
        if (t->clipped)
            dlc_text_add(&text, "clipped     %lld; they reach beyond their images\n",
                         (long long)t->clipped);
        add_counts(c->boxes->class_names, c->box_classes, t->box_classes, &text);
    }
    return dlc_tool_print_text(&text);
}

static void json_size(dlc_json *json, const char *name, const dlc_rect *size) {
    dlc_json_object(json, name);
    dlc_json_int(json, "width", size->width);
    dlc_json_int(json, "height", size->height);
    dlc_json_end_object(json);
}

static void json_numbers(dlc_json *json, const char *name, const counting *c,
                         double (*value)(const totals *, int64_t)) {
    dlc_json_array(json, name);
    for (int64_t i = 0; i < c->channels; i++)
        dlc_json_number(json, NULL, value(c->of, i));
    dlc_json_end_array(json);
}

static void json_counts(dlc_json *json, const char *key, const char *what,
                        const char *const *names, int32_t count, const int64_t *of) {
    char number[16];
    dlc_json_array(json, key);
    for (int32_t i = 0; i < count; i++) {
        dlc_json_object(json, NULL);
        dlc_json_string(json, "name", class_name(names, i, number));
        dlc_json_int(json, what, of[i]);
        dlc_json_end_object(json);
    }
    dlc_json_end_array(json);
}

static dlc_status print_json(const counting *c) {
    const totals *t = c->of;
    dlc_json json = {0};
    dlc_json_object(&json, NULL);
    dlc_json_int(&json, "samples", t->samples);
    dlc_json_int(&json, "bad", t->bad);
    dlc_json_int(&json, "unlabelled", t->unlabelled);
    dlc_json_int(&json, "channels", c->channels);
    if (c->is_image) {
        json_size(&json, "smallest", &t->least);
        json_size(&json, "largest", &t->most);
    }
    json_numbers(&json, "mean", c, mean_of);
    json_numbers(&json, "std", c, deviation_of);
    json_counts(&json, "classes", "samples", c->names, c->classes, t->classes);
    if (c->boxes) {
        dlc_json_int(&json, "boxes", t->boxes);
        dlc_json_int(&json, "clipped_boxes", t->clipped);
        json_counts(&json, "box_classes", "boxes", c->boxes->class_names,
                    c->box_classes, t->box_classes);
    }
    dlc_json_end_object(&json);
    return dlc_tool_print_json(&json);
}

int dlc_command_data_stats(int argc, char **argv) {
    data_command command = {0};
    counting c = {0};
    dlc_tool_parse(&argp, argc, argv, &command);
    dlc_status status = data_command_open(&command);
    if (status == DLC_OK)
        status = open_counting(&command, &c);
    data_scan scan = {.command = &command, .visit = count, .context = &c};
    if (status == DLC_OK)
        status = data_scan_run(&scan);
    if (status == DLC_OK)
        status = add_all(&c);
    if (status == DLC_OK)
        status = command.tool.json ? print_json(&c) : print_text(&c);
    close_counting(&c);
    return data_command_close(&command, status);
}
