/* dlcore data convert: writes the samples of a section as shards, tar archives with an
 * image, a class and the other fields of each sample, in the order of the source.
 *
 * The name of a shard has the numbers of its first and last sample, and a shard is
 * complete or does not exist. So a conversion that was killed goes on after the last
 * shard, and makes the same files as one that was not. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "bench_table.h"
#include "data/loader.h"
#include "data/thread_pool.h"
#include "data_convert.h"
#include "file.h"
#include "setup/data_source.h"
#include "tar_writer.h"

enum { KEY_TEST = 0x300, KEY_SHARD, KEY_RESIZE, KEY_QUALITY };
enum { QUALITY = 90, QUALITY_MOST = 100, SIDE_MOST = 65500 };
enum { BLOCK = 256 }; /* samples that are in memory at once */

typedef struct convert_command {
    data_command data; /* first */
    const char *folder;
    uint64_t shard_bytes;
    convert_format format;
} convert_command;

static const struct argp_option options[] = {
    {"output", 'o', "FOLDER", 0,
     "folder of the shards; an interrupted conversion in it is continued", 0},
    {"shard-size", KEY_SHARD, "BYTES", 0, "minimum size of a shard (256M)", 0},
    {"resize", KEY_RESIZE, "N", 0,
     "shrink images whose shorter side is longer than N pixels to N", 0},
    {"quality", KEY_QUALITY, "Q", 0, "quality of images that are shrunk, 1 to 100 (90)",
     0},
    {"test", KEY_TEST, NULL, 0, "the samples of [data.test]", 0},
    {0}};

static error_t parse(int key, char *argument, struct argp_state *state) {
    convert_command *command = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        dlc_tool_share_input(state, &command->data.tool);
        return 0;
    case KEY_TEST:
        command->data.test = 1;
        return 0;
    case KEY_SHARD:
        command->shard_bytes = dlc_bench_parse_size(argument);
        if (!command->shard_bytes)
            argp_error(state, "--shard-size=%s: give a size such as 256M", argument);
        return 0;
    case KEY_RESIZE:
        command->format.resize = dlc_tool_parse_count("resize", argument, SIDE_MOST,
                                                      state);
        return 0;
    case KEY_QUALITY:
        command->format.quality = dlc_tool_parse_count("quality", argument,
                                                       QUALITY_MOST, state);
        return 0;
    case 'o':
        command->folder = argument;
        return 0;
    case ARGP_KEY_END:
        if (!command->folder)
            argp_error(state, "where are the shards to go? Give -o FOLDER");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "NET.INI",
    .doc =
        "Writes the samples of [data], in their order and before any transforms, as tar "
        "files, which the data source tar reads, as do WebDataset and others. Image files "
        "are copied as they are, unless they are shrunk; other images become PNG files, and "
        "other fields become arrays (.npy). A "
        "conversion that was stopped or killed is continued where it was.",
    .children = dlc_tool_children};

/* ---- The folder -------------------------------------------------------------- */

/* A conversion on its way. */
typedef struct conversion {
    const convert_command *command;
    int64_t samples, next; /* that is written next */
    int64_t first;         /* of the shard that is being written */
    int64_t shards, skipped;
    dlc_skips skips;
    pthread_mutex_t lock;
    int is_concurrent;
    convert_worker *worker; /* own; one per thread */
    convert_files *made;    /* own; of a block */
    dlc_tar_writer writer;
} conversion;

static dlc_status path_of(const conversion *c, const char *name, char path[PATH_MAX]) {
    if (snprintf(path, PATH_MAX, "%s/%s", c->command->folder, name) < PATH_MAX)
        return DLC_OK;
    return dlc_fail(DLC_ERR_IO, "cannot write to %s: the path is too long",
                    c->command->folder);
}

static dlc_status shard_path(const conversion *c, char path[PATH_MAX]) {
    char name[64];
    (void)snprintf(name, sizeof name, "samples-%09" PRId64 "-%09" PRId64 ".tar",
                   c->first, c->next - 1);
    return path_of(c, name, path);
}

/* Writes a small file if it is not there; otherwise it must have the same text. */
static dlc_status settle_file(const conversion *c, const char *name,
                              const dlc_text *text, const char *what) {
    char path[PATH_MAX];
    DLC_TRY(dlc_text_status(text));
    DLC_TRY(path_of(c, name, path));
    FILE *there = fopen(path, "re");
    if (!there && errno == ENOENT)
        return dlc_tool_file_write(path, dlc_text_string(text), text->length);
    if (!there)
        return dlc_fail(DLC_ERR_IO, "%s: %s", path, strerror(errno));
    char *known = dlc_alloc(text->length + 2, 1);
    dlc_status status = known ? DLC_OK : DLC_ERR_NOMEM;
    if (known && (fread(known, 1, text->length + 1, there) != text->length ||
                  memcmp(known, dlc_text_string(text), text->length) != 0))
        status = dlc_fail(
            DLC_ERR_CONFIG,
            "%s: what is there was converted from other samples or with other options "
            "(%s); choose another folder",
            path, what);
    dlc_free(known);
    (void)fclose(there);
    return status;
}

/* What all runs of a conversion must have alike. */
static dlc_status settle_options(const conversion *c) {
    const convert_command *command = c->command;
    dlc_data_setup *data = command->data.data;
    dlc_text text = {0};
    DLC_TRY(dlc_data_source_identify(data));
    dlc_text_add(&text, "samples = %" PRId64 "\ndigest = %016" PRIx64 "\n", c->samples,
                 data->digest);
    dlc_text_add(&text, "shard_size = %" PRIu64 "\nresize = %d\nquality = %d\n",
                 command->shard_bytes, command->format.resize, command->format.quality);
    dlc_status status = settle_file(c, "conversion.txt", &text,
                                    "it says which: samples, shard_size, resize, "
                                    "quality");
    dlc_text_free(&text);
    return status;
}

static dlc_status settle_classes(const conversion *c) {
    const dlc_samples *samples = &c->command->data.data->samples;
    const dlc_field *field = NULL;
    dlc_text text = {0};
    for (int32_t f = samples->info.field_count - 1; f >= 0; f--)
        if (dlc_samples_field(samples, f)->class_names)
            field = dlc_samples_field(samples, f);
    for (int32_t i = 0; field && i < field->classes; i++)
        dlc_text_add(&text, "%s\n", field->class_names[i]);
    if (!field)
        return DLC_OK;
    dlc_status status = settle_file(c, "classes.txt", &text, "the names of classes");
    dlc_text_free(&text);
    return status;
}

/* Goes on after the shards that are there: that which begins with the next sample,
 * until there is none. */
static dlc_status find_shards(conversion *c) {
    struct dirent **names = NULL;
    int count = scandir(c->command->folder, &names, NULL, alphasort);
    if (count < 0)
        return dlc_fail(DLC_ERR_IO, "cannot read %s: %s", c->command->folder,
                        strerror(errno));
    for (int i = 0; i < count; i++) {
        int64_t first, last;
        int end = 0;
        int found = sscanf(names[i]->d_name, "samples-%" SCNd64 "-%" SCNd64 ".tar%n",
                           &first, &last, &end);
        if (found == 2 && end && !names[i]->d_name[end] && first == c->next &&
            last >= first) {
            c->next = last + 1;
            c->shards++;
        }
        free(names[i]);
    }
    free(names);
    return DLC_OK;
}

static dlc_status open_folder(conversion *c) {
    const char *folder = c->command->folder;
    if (mkdir(folder, 0777) && errno != EEXIST)
        return dlc_fail(DLC_ERR_IO, "cannot make the folder %s: %s", folder,
                        strerror(errno));
    DLC_TRY(settle_options(c));
    DLC_TRY(settle_classes(c));
    DLC_TRY(find_shards(c));
    if (c->next)
        dlc_info("%s has %" PRId64 " of %" PRId64 " samples already", folder, c->next,
                 c->samples);
    return DLC_OK;
}

/* ---- Writing ----------------------------------------------------------------- */

static void make_file(void *context, int32_t i, int32_t thread) {
    conversion *c = context;
    convert_files *made = &c->made[i];
    *made = (convert_files){.files = 0};
    made->status = convert_sample(&c->command->data, &c->command->format, c->next + i,
                                  c->is_concurrent ? NULL : &c->lock,
                                  &c->worker[thread], made);
    if (made->status != DLC_OK)
        (void)snprintf(made->detail, sizeof made->detail, "%s", dlc_detail());
}

/* Ends the shard, whose last sample is c->next - 1. */
static dlc_status end_shard(conversion *c) {
    char path[PATH_MAX];
    if (!c->writer.file)
        return DLC_OK;
    DLC_TRY(shard_path(c, path));
    c->shards++;
    return dlc_tar_writer_finish(&c->writer, path);
}

static dlc_status begin_shard(conversion *c) {
    char path[PATH_MAX];
    DLC_TRY(path_of(c, "samples" DLC_TAR_PART, path));
    c->first = c->next;
    return dlc_tar_writer_open(&c->writer, path);
}

static dlc_status put_files(conversion *c, const convert_files *made) {
    char name[100];
    for (int32_t i = 0; i < made->files; i++) {
        const convert_file *file = &made->file[i];
        (void)snprintf(name, sizeof name, "%09" PRId64 ".%s", c->next, file->ending);
        DLC_TRY(dlc_tar_writer_add(&c->writer, name, file->bytes, file->count));
    }
    return DLC_OK;
}

/* A sample that cannot be read ends the conversion, or is left out (`on_error`). */
static dlc_status note_failure(conversion *c, const convert_files *made) {
    char name[512];
    dlc_samples_name(&c->command->data.data->samples, c->next, name, sizeof name);
    dlc_status status = dlc_fail(made->status, "%s: %s", name, made->detail);
    if (made->status != DLC_ERR_DATA)
        return status;
    c->skipped++;
    return dlc_skips_add(&c->skips, c->next);
}

static dlc_status write_sample(conversion *c, const convert_files *made) {
    if (!c->writer.file)
        DLC_TRY(begin_shard(c));
    DLC_TRY(made->status == DLC_OK ? put_files(c, made) : note_failure(c, made));
    c->next++;
    return c->writer.bytes >= c->command->shard_bytes ? end_shard(c) : DLC_OK;
}

static dlc_status write_block(conversion *c, int32_t count) {
    dlc_status status = DLC_OK;
    for (int32_t i = 0; i < count; i++) {
        if (status == DLC_OK)
            status = write_sample(c, &c->made[i]);
        convert_files_free(&c->made[i]);
    }
    return status;
}

static dlc_status run_blocks(conversion *c, dlc_thread_pool *pool) {
    int64_t before = c->next;
    uint64_t begin = dlc_now_ns();
    dlc_status status = DLC_OK;
    while (status == DLC_OK && c->next < c->samples) {
        int64_t left = c->samples - c->next;
        int32_t count = (int32_t)(left < BLOCK ? left : BLOCK);
        dlc_thread_pool_run(pool, count, make_file, c);
        status = write_block(c, count);
        data_draw_bar(c->next, c->samples, before, begin);
    }
    dlc_log_status("%s", "");
    return status == DLC_OK ? end_shard(c) : status;
}

static dlc_status run(conversion *c) {
    const dlc_data_setup *data = c->command->data.data;
    int32_t threads = c->command->data.threads;
    dlc_feed_args feed;
    dlc_thread_pool *pool = NULL;
    dlc_data_source_feed(data, &feed);
    c->worker = dlc_alloc((size_t)threads, sizeof *c->worker);
    c->made = dlc_alloc(BLOCK, sizeof *c->made);
    if (!c->worker || !c->made)
        return DLC_ERR_NOMEM;
    DLC_TRY(dlc_skips_open(feed.max_skipped, &c->skips));
    dlc_status status = dlc_thread_pool_open(threads, &pool);
    if (status == DLC_OK)
        status = run_blocks(c, pool);
    dlc_thread_pool_close(pool);
    for (int32_t i = 0; i < threads; i++)
        convert_worker_free(&c->worker[i]);
    return status;
}

/* ---- The command ----------------------------------------------------------------- */

/* How a role is called in the settings of the source tar. */
static const char *const option_of[] = {
    [DLC_ROLE_IMAGE] = "image",    [DLC_ROLE_CLASS] = "label",
    [DLC_ROLE_CLASSES] = "labels", [DLC_ROLE_VECTOR] = "vector",
    [DLC_ROLE_MASK] = "mask",      [DLC_ROLE_TOKENS] = "tokens",
    [DLC_ROLE_BOXES] = "boxes"};

/* The names of the arrays with a role, joined by commas; returns how many there are. */
static int add_arrays(const dlc_samples *samples, uint32_t role, dlc_text *text) {
    int count = 0;
    for (int32_t f = 0; f < samples->info.field_count; f++) {
        const dlc_field *field = dlc_samples_field(samples, f);
        if (field->role == role && convert_form_of(samples, f) == CONVERT_ARRAY)
            dlc_text_add(text, "%s%s", count++ ? ", " : "", field->name);
    }
    return count;
}

/* Shards have one array of each role, but any number of vectors. */
static dlc_status check_fields(const dlc_samples *samples, int resizes) {
    for (int32_t f = 0; f < samples->info.field_count; f++) {
        const dlc_field *field = dlc_samples_field(samples, f);
        dlc_text names = {0};
        int alike = add_arrays(samples, field->role, &names);
        dlc_text_free(&names);
        if (convert_form_of(samples, f) == CONVERT_NOT)
            return dlc_fail(
                DLC_ERR_DATA,
                "field %s: shards hold files of images, and arrays that have "
                "the same shape in each sample",
                field->name);
        if (alike > 1 && field->role != DLC_ROLE_VECTOR)
            return dlc_fail(DLC_ERR_DATA, "field %s: shards hold one field `%s`",
                            field->name, option_of[field->role]);
        if (resizes && (field->role == DLC_ROLE_MASK || field->role == DLC_ROLE_BOXES))
            return dlc_fail(DLC_ERR_CONFIG,
                            "--resize shrinks images alone, and not the %s %s",
                            option_of[field->role], field->name);
    }
    if (samples->info.field_count < 2)
        return dlc_fail(DLC_ERR_DATA,
                        "the samples have nothing but %s; shards need a "
                        "class or another field",
                        dlc_samples_field(samples, 0)->name);
    return DLC_OK;
}

static dlc_status check(convert_command *command) {
    dlc_setup *setup = command->data.setup;
    DLC_TRY(check_fields(&command->data.data->samples, command->format.resize));
    if (!setup->decoders)
        DLC_TRY(dlc_decoders_open(setup->registry, &setup->decoders));
    if (!command->format.resize)
        return DLC_OK;
    char text[64];
    dlc_problems problems = {0};
    (void)snprintf(text, sizeof text, "resize(%d)", command->format.resize);
    dlc_status status = dlc_transforms_parse(text, NULL, "data", &problems,
                                             &command->format.list);
    dlc_problems_free(&problems);
    return status;
}

static int is_grey(const dlc_samples *samples) {
    return convert_form_of(samples, samples->image) == CONVERT_PICTURE &&
           samples->info.shape.dims[0] == 1;
}

/* Files have sizes of their own. So images that all have one size need a transform that
 * says so, before those of the section, unless one of these does. */
static void add_transforms(const convert_command *command, dlc_text *text) {
    const dlc_data_setup *data = command->data.data;
    const dlc_samples *samples = &data->samples;
    const char *list = dlc_settings_get_string(data->settings, "transforms");
    dlc_shape size = samples->info.shape, any = {3, {size.dims[0], 0, 0}}, made;
    if (convert_form_of(samples, samples->image) != CONVERT_PICTURE ||
        dlc_samples_field(samples, samples->image)->flags ||
        dlc_transforms_shape(data->transforms, &any, DLC_U8, &made) == DLC_OK)
        return;
    if (convert_is_resized(&command->format, size.dims[1], size.dims[2]) &&
        dlc_transforms_shape(command->format.list, &size, DLC_U8, &made) == DLC_OK)
        size = made;
    dlc_text_add(
        text, "transforms = center_crop(height=%" PRId64 ", width=%" PRId64 ")%s%s\n",
        size.dims[1], size.dims[2], list ? ", " : "", list ? list : "");
}

static dlc_status report(const conversion *c) {
    const convert_command *command = c->command;
    if (command->data.tool.json) {
        dlc_json json = {0};
        dlc_json_object(&json, NULL);
        dlc_json_int(&json, "samples", c->samples);
        dlc_json_int(&json, "skipped", c->skipped);
        dlc_json_int(&json, "shards", c->shards);
        dlc_json_end_object(&json);
        return dlc_tool_print_json(&json);
    }
    dlc_text text = {0};
    dlc_text_add(&text, "[%s]\nsource = tar\nshards = %s/*.tar\n",
                 command->data.test ? "data.test" : "data", command->folder);
    if (is_grey(&command->data.data->samples))
        dlc_text_add(&text, "grey = yes\n");
    for (uint32_t role = 1; role < sizeof option_of / sizeof *option_of; role++) {
        dlc_text names = {0};
        if (add_arrays(&command->data.data->samples, role, &names))
            dlc_text_add(&text, "%s = %s\n", option_of[role], dlc_text_string(&names));
        dlc_text_fail_with(&text, &names);
        dlc_text_free(&names);
    }
    add_transforms(command, &text);
    dlc_status status = dlc_text_status(&text);
    if (status == DLC_OK)
        (void)fputs(dlc_text_string(&text), stdout);
    dlc_text_free(&text);
    return status;
}

static dlc_status convert(convert_command *command) {
    conversion c = {.command = command,
                    .samples = command->data.data->info.samples,
                    .is_concurrent = (command->data.data->feature->caps &
                                      DLC_DATA_CONCURRENT) != 0};
    DLC_TRY(check(command));
    pthread_mutex_init(&c.lock, NULL);
    dlc_status status = open_folder(&c);
    if (status == DLC_OK)
        status = run(&c);
    if (status == DLC_OK)
        status = report(&c);
    dlc_tar_writer_close(&c.writer);
    dlc_skips_close(&c.skips);
    dlc_free(c.worker);
    dlc_free(c.made);
    pthread_mutex_destroy(&c.lock);
    return status;
}

int dlc_command_data_convert(int argc, char **argv) {
    convert_command command = {.shard_bytes = UINT64_C(256) << 20,
                               .format = {.quality = QUALITY}};
    dlc_tool_parse(&argp, argc, argv, &command);
    dlc_status status = data_command_open(&command.data);
    if (status == DLC_OK)
        status = convert(&command);
    dlc_transforms_free(command.format.list);
    return data_command_close(&command.data, status);
}
