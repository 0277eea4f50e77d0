/* dlcore predict: what a net sees in samples, or the features that one of its layers
 * computes of them. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bar.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/weights.h"
#include "command.h"
#include "data/decoders.h"
#include "image_files.h"
#include "net/graph.h"
#include "npy.h"
#include "options.h"
#include "predict_inputs.h"
#include "predict_top.h"
#include "predict_writer.h"
#include "run/run.h"
#include "streams.h"
#include "train/evaluate.h"

typedef struct predict_command {
    dlc_tool_options tool; /* first: the child parsers get a pointer to it */
    dlc_tool_words words;  /* that name inputs */
    const char *data;      /* "train" or "test": samples of that section instead */
    const char *features, *output;
    int masks;
    int64_t begin, end; /* --range; end 0: all */
    int top;
    double threshold; /* below 0: not given */
    int several;      /* the net gives a probability to each class */
    int csv;
    dlc_inputs inputs;
    dlc_setup *setup;
} predict_command;

/* The state of the rank that predicts. */
typedef struct prediction {
    const predict_command *command;
    const dlc_session *session;
    dlc_predict_writer writer;
    dlc_class_names names;
    int32_t classes, top; /* 0: features are written */
    double threshold;     /* of several classes, which are shown from this one on */
    int32_t *class;       /* own; `top` of them, like `probability` */
    double *probability;
    uint8_t *mask; /* own; the best class of each position of a sample */
    size_t positions;
    int64_t samples, done, skipped;
    uint64_t start, last_draw;
} prediction;

enum {
    KEY_DATA = 0x300,
    KEY_RANGE,
    KEY_TOP,
    KEY_THRESHOLD,
    KEY_FEATURES,
    KEY_OUTPUT,
    KEY_CSV,
    KEY_MASKS
};
enum { TOP_USUAL = 5 };
#define THRESHOLD_USUAL 0.5

static const struct argp_option options[] = {
    {"data", KEY_DATA, "test|train", 0, "predict the samples of [data.test] or [data]",
     0},
    {"range", KEY_RANGE, "A:B", 0, "only samples A to B - 1, counted from 0", 0},
    {"top", KEY_TOP, "K", 0, "show the K best classes (5)", 0},
    {"threshold", KEY_THRESHOLD, "P", 0,
     "of a multi-label net, show all classes with a probability of at least P (0.5)",
     0},
    {"features", KEY_FEATURES, "LAYER", 0,
     "write the output of this layer as a .npy file, and compute no further", 0},
    {"masks", KEY_MASKS, NULL, 0,
     "write the best class of each pixel as a .npy file of bytes, N x H x W", 0},
    {"output", KEY_OUTPUT, "FILE", 0,
     "write to FILE instead of stdout, features.npy or masks.npy", 0},
    {"csv", // "csv" is the form of the output
     KEY_CSV, NULL, 0, "print comma-separated values, a line for each class", 0},
    {0}};

/* ---- The command line ------------------------------------------------------------ */

static void parse_range(const char *text, struct argp_state *state,
                        predict_command *command) {
    char *colon = NULL, *end = NULL;
    errno = 0;
    long long from = strtoll(text, &colon, 10);
    long long to = *colon == ':' ? strtoll(colon + 1, &end, 10) : 0;
    if (colon == text || !end || end == colon + 1 || *end || errno || from < 0 ||
        to <= from)
        argp_error(state, "--range=%s: write A:B for samples A to B - 1, as in 0:100",
                   text);
    command->begin = from;
    command->end = to;
}

static double parse_threshold(const char *text, struct argp_state *state) {
    char *end = NULL;
    double least = strtod(text, &end);
    if (end == text || *end || !(least >= 0 && least <= 1))
        argp_error(state, "--threshold=%s: give a probability, such as 0.5", text);
    return least;
}

static void check(struct argp_state *state, const predict_command *command) {
    if (!command->tool.weights.file.count)
        argp_error(state, "which weights? Give --weights FILE");
    if (!command->words.count && !command->data)
        argp_error(state,
                   "predict what? Give files, a folder or a list, or --data=test");
    if (command->words.count && command->data)
        argp_error(state,
                   "--data predicts the samples of a section: give no files as well");
    if ((command->features || command->masks) &&
        (command->csv || command->tool.json || command->top || command->threshold >= 0))
        argp_error(state, "--features and --masks write a .npy file, without a list of "
                          "classes: leave out --top, --threshold, --csv and --json");
    if (command->features && command->masks)
        argp_error(state, "give one of --features and --masks");
    if (command->csv && command->tool.json)
        argp_error(state, "give one of --csv and --json");
}

static error_t parse(int key, char *argument, struct argp_state *state) {
    predict_command *command = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        dlc_tool_share_input_with_weights(state, &command->tool);
        return 0;
    case ARGP_KEY_ARG: /* the first is net.ini, which the shared parser takes */
        if (!command->tool.path)
            return ARGP_ERR_UNKNOWN;
        return dlc_tool_words_add(&command->words, argument) == DLC_OK ? 0 : ENOMEM;
    case KEY_DATA:
        if (strcmp(argument, "test") != 0 && strcmp(argument, "train") != 0)
            argp_error(state, "--data=%s: it is test or train", argument);
        command->data = argument;
        return 0;
    case KEY_RANGE:
        parse_range(argument, state, command);
        return 0;
    case KEY_TOP:
        command->top = dlc_tool_parse_count("top", argument, INT_MAX, state);
        return 0;
    case KEY_THRESHOLD:
        command->threshold = parse_threshold(argument, state);
        return 0;
    case KEY_FEATURES:
        command->features = argument;
        return 0;
    case KEY_MASKS:
        command->masks = 1;
        return 0;
    case KEY_OUTPUT:
        command->output = argument;
        return 0;
    case KEY_CSV:
        command->csv = 1;
        return 0;
    case ARGP_KEY_END:
        check(state, command);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "NET.INI [IMAGE|FOLDER|LIST.txt|-]...",
    .doc =
        "Predicts the classes of images with saved weights: the K best of a net that "
        "gives an image one class, all likely ones of a multi-label net.\vImages are files (JPEG, "
        "PNG, WebP and what other decoders read) or arrays (.npy: N, C, H, W or C, H, W; bytes or float32), all "
        "in a folder, or those in a list (a file per line; -: on stdin); or the samples of "
        "a data section. They are transformed as [data.test] says, or [data] if there is "
        "none. Class names are those of the checkpoint. With --json there is one JSON document per line.",
    .children = dlc_tool_children_with_weights};

/* ---- Writing --------------------------------------------------------------------- */

/* What the source calls it, or its number alone. */
static void name_sample(const dlc_data_setup *data, int64_t sample, char *text,
                        size_t room) {
    if (DLC_CAN(data->samples.ops, name))
        dlc_samples_name(&data->samples, sample, text, room);
    else
        (void)snprintf(text, room, "%" PRId64, sample);
}

static dlc_status write_sample(prediction *p, int64_t sample, int32_t label,
                               const float *score) {
    char name[PATH_MAX];
    int32_t count = p->top;
    if (p->command->several)
        count = dlc_predict_several(score, p->classes, p->threshold, p->top, p->class,
                                    p->probability);
    else
        dlc_predict_top(score, p->classes, p->top, p->class, p->probability);
    name_sample(&p->session->setup->test, sample, name, sizeof name);
    return dlc_predict_write(&p->writer,
                             &(dlc_prediction){.name = name,
                                               .label = label,
                                               .count = count,
                                               .class = p->class,
                                               .probability = p->probability});
}

static void draw_bar(prediction *p) {
    const uint64_t interval = 100000000;
    double seconds = dlc_since(p->start);
    double speed = seconds > 0 ? (double)p->done / seconds : 0;
    if (dlc_now_ns() - p->last_draw < interval)
        return;
    p->last_draw = dlc_now_ns();
    dlc_bar_draw((double)p->done / (double)p->samples,
                 speed > 0 ? (double)(p->samples - p->done) / speed : 0,
                 "%.0f images/s", speed);
}

static dlc_status take_batch(void *context, const dlc_evaluation_batch *batch) {
    prediction *p = context;
    int64_t begin = p->session->setup->test.first + batch->first;
    if (!p->classes && !p->mask)
        DLC_TRY(dlc_predict_write_array(&p->writer, batch->values,
                                        (size_t)batch->samples * batch->each));
    for (int32_t i = 0; p->mask && i < batch->samples; i++) {
        dlc_predict_mask(batch->values + (size_t)i * batch->each,
                         batch->each / p->positions, p->positions, p->mask);
        DLC_TRY(dlc_predict_write_array(&p->writer, p->mask, p->positions));
    }
    for (int32_t i = 0; p->classes && i < batch->samples; i++)
        if (dlc_feed_skipped(p->session->test_feed, begin + i))
            p->skipped++;
        else
            DLC_TRY(write_sample(p, begin + i, batch->labels[i],
                                 batch->values + (size_t)i * batch->each));
    p->done += batch->samples;
    draw_bar(p);
    return p->writer.path ? DLC_OK : dlc_predict_writer_flush(&p->writer);
}

/* ---- The rank -------------------------------------------------------------------- */

/* How many classes are shown, and from which probability on. */
static void choose_shown(prediction *p) {
    const predict_command *command = p->command;
    p->top = command->top ? command->top : command->several ? p->classes : TOP_USUAL;
    if (p->top > p->classes)
        p->top = p->classes;
    p->threshold = command->threshold >= 0 ? command->threshold
                   : command->top          ? 0
                                           : THRESHOLD_USUAL;
}

static dlc_status prepare_classes(prediction *p) {
    const dlc_session *session = p->session;
    p->classes = (int32_t)session->output.boundary.shape.dims[1];
    if ((size_t)p->classes != session->output.values)
        return dlc_fail(DLC_ERR_CONFIG,
                        "the net has scores of each class for each pixel; --masks "
                        "writes the best classes, --features=LAYER all scores");
    choose_shown(p);
    p->class = dlc_alloc((size_t)p->top, sizeof *p->class);
    p->probability = dlc_alloc((size_t)p->top, sizeof *p->probability);
    if (!p->class || !p->probability)
        return DLC_ERR_NOMEM;
    p->writer.names = &p->names;
    return dlc_class_names_open(session->setup, p->command->tool.weights.file.list[0],
                                p->classes, &p->names);
}

static dlc_status prepare_masks(prediction *p) {
    const dlc_session *session = p->session;
    int64_t classes = session->output.boundary.shape.dims[1];
    p->positions = session->output.values / (size_t)classes;
    if (session->output.boundary.shape.rank != 4 || classes > UINT8_MAX + 1)
        return dlc_fail(DLC_ERR_CONFIG,
                        "--masks is for nets with scores of at most 256 classes for "
                        "each pixel");
    p->mask = dlc_alloc(p->positions, 1);
    return p->mask ? DLC_OK : DLC_ERR_NOMEM;
}

/* Of the array that is written. */
static dlc_shape shape_of(const prediction *p) {
    dlc_shape shape = p->session->output.boundary.shape;
    if (p->mask)
        shape = (dlc_shape){3, {0, shape.dims[2], shape.dims[3]}};
    shape.dims[0] = p->samples;
    return shape;
}

static dlc_status run(prediction *p) {
    dlc_evaluation evaluation;
    const dlc_evaluation_reader reader = {take_batch, p};
    dlc_shape shape = shape_of(p);
    p->start = dlc_now_ns();
    dlc_status status = dlc_predict_writer_open(&p->writer, &shape);
    if (status == DLC_OK)
        status = dlc_evaluate((dlc_session *)p->session, &reader, &evaluation);
    status = dlc_predict_writer_close(&p->writer, status);
    dlc_log_status("%s", "");
    return status;
}

static dlc_status predict(dlc_session *session, const predict_command *command) {
    const dlc_weights weights = dlc_tool_weights_of(&command->tool.weights);
    prediction p = {.command = command,
                    .session = session,
                    .writer = {.path = command->output,
                               .has_labels = command->data && !command->several},
                    .samples = dlc_feed_test_samples(session->test_feed)};
    int array = command->features || command->masks;
    p.writer.format = array                ? DLC_PREDICT_NPY
                      : command->csv       ? DLC_PREDICT_CSV
                      : command->tool.json ? DLC_PREDICT_JSON
                                           : DLC_PREDICT_TABLE;
    p.writer.dtype = command->masks ? DLC_U8 : DLC_F32;
    if (array && !command->output)
        p.writer.path = command->masks ? "masks.npy" : "features.npy";
    dlc_status status = dlc_checkpoint_load_weights(session, session->test_net,
                                                    &weights);
    if (status == DLC_OK && command->masks)
        status = prepare_masks(&p);
    else if (status == DLC_OK && !command->features)
        status = prepare_classes(&p);
    if (status == DLC_OK)
        status = run(&p);
    char skipped[64] = "";
    if (p.skipped)
        (void)snprintf(skipped, sizeof skipped, "; %" PRId64 " could not be read",
                       p.skipped);
    if (status == DLC_OK)
        dlc_info(
            "%" PRId64 " samples in %.2f s: %.0f images/s%s%s%s", p.done - p.skipped,
            dlc_since(p.start), (double)p.done / dlc_since(p.start), skipped,
            p.writer.path ? ", written to " : "", p.writer.path ? p.writer.path : "");
    dlc_class_names_close(&p.names);
    dlc_free(p.class);
    dlc_free(p.probability);
    dlc_free(p.mask);
    return status;
}

static dlc_status find_output(predict_command *command, dlc_graph_input *from) {
    const dlc_graph *graph = command->setup->graph;
    if (command->features)
        return dlc_graph_find_layer(graph, command->features, from);
    dlc_status status = dlc_graph_find_scores(graph, DLC_LAYER_CLASSIFIES, from);
    if (status == DLC_OK && command->threshold >= 0)
        return dlc_fail(DLC_ERR_CONFIG, "--threshold is for multi-label nets; "
                                        "--top=K shows the K best");
    if (status == DLC_OK || command->masks)
        return status;
    command->several = dlc_graph_find_scores(graph, DLC_LAYER_MULTI_LABEL, from) ==
                       DLC_OK;
    return command->several
               ? DLC_OK
               : dlc_fail(status, "%s; --features=LAYER writes the output of any layer",
                          dlc_detail());
}

static int predict_as_rank(dlc_job *job, void *argument) {
    predict_command *command = argument;
    dlc_session session;
    dlc_session_output output = {.is_wanted = 1, .alone = 1};
    if (dlc_job_ranks(job) > 1)
        return dlc_tool_end_rank(
            job,
            dlc_fail(DLC_ERR_CONFIG, "predict runs as one process, with all threads "
                                     "of a device; start it without a launcher"));
    dlc_job_stop_at_once(job, 1);
    dlc_status status = find_output(command, &output.from);
    if (status == DLC_OK)
        status = dlc_session_open_test(command->setup, job, &output, &session);
    if (status != DLC_OK)
        return dlc_tool_end_rank(job, status);
    status = predict(&session, command);
    dlc_session_close(&session);
    return dlc_tool_end_rank(job, status);
}

/* ---- What is predicted ----------------------------------------------------------- */

/* Most sources of image files have this setting. */
static int is_grey(const dlc_setup *setup) {
    const dlc_data_setup *data = setup->test.present ? &setup->test : &setup->train;
    size_t count = dlc_settings_count(data->settings);
    for (size_t i = 0; i < count; i++)
        if (strcmp(dlc_settings_at(data->settings, i).name, "grey") == 0)
            return dlc_settings_get_bool(data->settings, "grey");
    return 0;
}

/* Of arrays, or of image files; not of both at once. */
static dlc_status open_source(predict_command *command, const dlc_feature **feature,
                              dlc_source **source) {
    static const dlc_feature arrays = {.size = sizeof arrays,
                                       .name = "arrays",
                                       .caps = DLC_DATA_CONCURRENT,
                                       .ops = &dlc_npy_ops};
    static const dlc_feature images = {.size = sizeof images,
                                       .name = "image files",
                                       .caps = DLC_DATA_CONCURRENT,
                                       .ops = &dlc_image_files_ops};
    enum { COLORS = 3 };
    const dlc_inputs *inputs = &command->inputs;
    const char *const *path = (const char *const *)inputs->path;
    size_t count = dlc_inputs_arrays(inputs);
    *feature = count ? &arrays : &images;
    if (count == inputs->count)
        return dlc_npy_open(path, count, source);
    if (count)
        return dlc_fail(DLC_ERR_CONFIG,
                        "%zu files are arrays (.npy) and %zu are not: "
                        "predict them one kind at a time",
                        count, inputs->count - count);
    int32_t channels = 0;
    DLC_TRY(dlc_trained_channels(command->tool.weights.file.list[0], &channels));
    if (!channels) /* weights of another program */
        channels = is_grey(command->setup) ? 1 : COLORS;
    if (channels != 1 && channels != COLORS)
        return dlc_fail(DLC_ERR_CONFIG,
                        "the net was not trained on images that such files have; "
                        "--data predicts the samples of a section");
    return dlc_image_files_open(path, inputs->count, channels, source);
}

static dlc_status open_given(predict_command *command) {
    const dlc_feature *feature = NULL;
    dlc_source *source = NULL;
    char *endings = NULL;
    DLC_TRY(dlc_decoders_endings(command->setup->registry, &endings));
    dlc_status status = DLC_OK;
    for (size_t i = 0; status == DLC_OK && i < command->words.count; i++)
        status = dlc_inputs_add(&command->inputs, endings, command->words.list[i]);
    dlc_free(endings);
    DLC_TRY(status);
    DLC_TRY(open_source(command, &feature, &source));
    return dlc_setup_test_source(command->setup, feature, source);
}

static dlc_status choose_range(const predict_command *command) {
    dlc_data_setup *test = &command->setup->test;
    int64_t all = test->info.samples, end = command->end ? command->end : all;
    if (end > all)
        return dlc_fail(DLC_ERR_CONFIG,
                        "--range=%" PRId64 ":%" PRId64 ": there are only %" PRId64
                        " samples",
                        command->begin, end, all);
    test->first = command->begin;
    test->count = end - command->begin;
    test->needs_all = command->features || command->masks; /* a row for each */
    if (test->batch > test->count)
        test->batch = test->count;
    return DLC_OK;
}

/* Opens the samples. One process predicts, on one device and with all its threads. */
static dlc_status open_samples(predict_command *command) {
    unsigned phase = !command->data                       ? 0
                     : strcmp(command->data, "test") == 0 ? DLC_PHASE_TEST
                                                          : DLC_PHASE_TRAIN;
    DLC_TRY(dlc_tool_setup(&command->tool, phase, &command->setup));
    command->setup->ranks = 1;
    if (!command->data)
        DLC_TRY(open_given(command));
    else if (phase == DLC_PHASE_TRAIN)
        dlc_setup_test_train_data(command->setup);
    else if (!command->setup->test.present)
        return dlc_fail(DLC_ERR_CONFIG, "%s has no [data.test]", command->tool.path);
    return choose_range(command);
}

int dlc_command_predict(int argc, char **argv) {
    predict_command command = {.threshold = -1};
    int exit_code = 0;
    dlc_tool_parse(&argp, argc, argv, &command);
    dlc_status status = dlc_tool_reserve_stdout();
    if (status == DLC_OK)
        status = open_samples(&command);
    if (status == DLC_OK)
        status = dlc_tool_run(command.setup, predict_as_rank, &command, &exit_code);
    exit_code = dlc_tool_close(&command.tool, command.setup, status, exit_code);
    dlc_inputs_free(&command.inputs); /* the source reads them until it is closed */
    dlc_free(command.words.list);
    return exit_code;
}
