/* dlcore data split: draws a part of the samples of each class for validation, and
 * writes two lists of files, as the data source for images reads them, or two tables
 * with the rows of one. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "data_commands.h"
#include "file.h"

enum { KEY_SHARE = 0x300 };

/* The random stream of the draw ("splt"). */
#define STREAM_SPLIT UINT64_C(0x73706c7400000000)

typedef struct split_command {
    data_command data; /* first */
    const char *prefix;
    double share; /* of each class, for validation */
} split_command;

static const struct argp_option options[] = {
    {"output", 'o', "PREFIX", 0,
     "write PREFIX-train.txt and PREFIX-validation.txt; tables keep their ending", 0},
    {"validation", KEY_SHARE, "SHARE", 0, "share of each class for validation (0.1)",
     0},
    {0}};

static double parse_share(const char *argument, struct argp_state *state) {
    char *end = NULL;
    double share = strtod(argument, &end);
    if (end == argument || *end || !(share > 0 && share < 1))
        argp_error(state, "--validation=%s: give a number between 0 and 1, such as 0.1",
                   argument);
    return share;
}

static error_t parse(int key, char *argument, struct argp_state *state) {
    split_command *command = state->input;
    switch (key) {
    case KEY_SHARE:
        command->share = parse_share(argument, state);
        return 0;
    case 'o':
        command->prefix = argument;
        return 0;
    case ARGP_KEY_END:
        if (!command->prefix)
            argp_error(state, "where are the lists to go? Give -o PREFIX");
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
        "Draws a part of each class of [data] for validation, by [train] seed, and writes "
        "two lists with a line \"path label\" for each file; or, if files may have several "
        "labels, draws a part of all and writes \"path label...\". The paths are absolute. "
        "A table is split into two tables, each with its header. Prints the sections of net.ini "
        "that read them.",
    .children = dlc_tool_children};

/* ---- Drawing ----------------------------------------------------------------- */

typedef struct drawn {
    int64_t index;
    uint64_t key; /* random; the smallest of a class are for validation */
    int64_t line; /* in the table */
    int32_t label;
    int is_validation;
    dlc_text labels; /* own; where it may have several, " 0 4 7" */
} drawn;

typedef struct splitting {
    const split_command *command;
    int32_t classes; /* how many labels a sample may have; 0: it has one */
    char *table;     /* own; whose rows the samples are; NULL: they are files */
    drawn *all;      /* own */
    int64_t count;
} splitting;

static void note_label(void *context, int32_t thread, const data_sample *sample) {
    const splitting *s = context;
    drawn *one = &s->all[sample->index];
    (void)thread;
    one->label = sample->label;
    for (int32_t c = 0; sample->labels && c < s->classes; c++)
        if (sample->labels[c] == 1)
            dlc_text_add(&one->labels, " %d", (int)c);
}

static int by_class(const void *a, const void *b) {
    const drawn *x = a, *y = b;
    if (x->label != y->label)
        return (x->label > y->label) - (x->label < y->label);
    if (x->key != y->key)
        return (x->key > y->key) - (x->key < y->key);
    return (x->index > y->index) - (x->index < y->index);
}

static int by_index(const void *a, const void *b) {
    const drawn *x = a, *y = b;
    return (x->index > y->index) - (x->index < y->index);
}

/* Returns how many samples are for validation; a class keeps at least one for training.
 */
static int64_t draw(const split_command *command, drawn *all, int64_t count) {
    int64_t chosen = 0;
    for (int64_t i = 0; i < count; i++) {
        dlc_random random = dlc_random_make(command->data.setup->seed,
                                            STREAM_SPLIT + (uint64_t)i);
        all[i].index = i;
        all[i].key = dlc_random_below(&random, UINT64_MAX);
    }
    qsort(all, (size_t)count, sizeof *all, by_class);
    for (int64_t first = 0, next; first < count; first = next) {
        for (next = first; next < count && all[next].label == all[first].label;)
            next++;
        int64_t wanted = (int64_t)lrint((double)(next - first) * command->share);
        if (wanted == next - first)
            wanted--;
        for (int64_t i = 0; i < wanted; i++)
            all[first + i].is_validation = 1;
        chosen += wanted;
    }
    qsort(all, (size_t)count, sizeof *all, by_index);
    return chosen;
}

/* ---- Lists ------------------------------------------------------------------- */

/* Appends the line of a sample. */
static dlc_status add_line(const splitting *s, const drawn *one, dlc_text *list) {
    char name[PATH_MAX], path[PATH_MAX];
    dlc_samples_name(&s->command->data.data->samples, one->index, name, sizeof name);
    if (!realpath(name, path))
        return dlc_fail(DLC_ERR_DATA, "%s: %s", name, strerror(errno));
    if (strchr(path, '\n') || strchr(" \t\r", path[strlen(path) - 1]))
        return dlc_fail(DLC_ERR_DATA,
                        "%s: a name with a line break, or with a blank at its end, "
                        "cannot be listed",
                        path);
    if (s->classes)
        dlc_text_add(list, "%s%s\n", path, dlc_text_string(&one->labels));
    else
        dlc_text_add(list, "%s %d\n", path, (int)one->label);
    DLC_TRY(dlc_text_status(&one->labels));
    return dlc_text_status(list);
}

/* Appends the rows of a table that go to a list, below what is above its first row. */
static dlc_status add_rows(const splitting *s, int is_validation, dlc_text *list) {
    FILE *table = fopen(s->table, "re");
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    int64_t next = 0;
    int taken = 1;
    if (!table)
        return dlc_fail(DLC_ERR_DATA, "cannot read %s: %s", s->table, strerror(errno));
    for (int64_t number = 1; (length = getline(&line, &room, table)) > 0; number++) {
        if (next < s->count && s->all[next].line == number)
            taken = s->all[next++].is_validation == is_validation;
        if (taken)
            dlc_text_append(list, line, (size_t)length);
    }
    int complete = feof(table) && next == s->count;
    free(line);
    (void)fclose(table);
    return complete ? dlc_text_status(list)
                    : dlc_fail(DLC_ERR_DATA,
                               "%s: its rows cannot be read in their order", s->table);
}

static dlc_status add_lines(const splitting *s, int is_validation, dlc_text *list) {
    dlc_status status = DLC_OK;
    for (int64_t i = 0; status == DLC_OK && i < s->count; i++)
        if (s->all[i].is_validation == is_validation)
            status = add_line(s, &s->all[i], list);
    return status;
}

static const char *ending_of(const splitting *s) {
    const char *name = s->table ? strrchr(s->table, '/') : NULL;
    const char *ending = name ? strrchr(name, '.') : NULL;
    return ending ? ending : ".txt";
}

/* The caller's. */
static char *list_path(const splitting *s, int is_validation) {
    return dlc_format("%s-%s%s", s->command->prefix,
                      is_validation ? "validation" : "train", ending_of(s));
}

static dlc_status write_list(const splitting *s, int is_validation, dlc_json *json) {
    dlc_text list = {0};
    int64_t lines = 0;
    const char *part = is_validation ? "validation" : "train";
    char *path = list_path(s, is_validation);
    for (int64_t i = 0; i < s->count; i++)
        lines += s->all[i].is_validation == is_validation;
    dlc_status status = s->table ? add_rows(s, is_validation, &list)
                                 : add_lines(s, is_validation, &list);
    if (status == DLC_OK)
        status = path ? dlc_tool_file_write(path, dlc_text_string(&list), list.length)
                      : DLC_ERR_NOMEM;
    if (status == DLC_OK && !s->command->data.tool.json)
        printf("%s  %lld\n", path, (long long)lines);
    dlc_json_object(json, part);
    dlc_json_string(json, "path", path);
    dlc_json_int(json, "samples", lines);
    dlc_json_end_object(json);
    dlc_text_free(&list);
    dlc_free(path);
    return status;
}

/* ---- Sections ---------------------------------------------------------------- */

static int is_one_of(const char *key, const char *const *list) {
    for (; *list; list++)
        if (strcmp(key, *list) == 0)
            return 1;
    return 0;
}

/* The field with the names of the samples' classes; NULL: they have none. */
static const dlc_field *find_names(const splitting *s) {
    const dlc_samples *samples = &s->command->data.data->samples;
    const dlc_field *field = samples->classes < 0
                                 ? NULL
                                 : dlc_samples_field(samples, samples->classes);
    return field && field->class_names ? field : NULL;
}

/* Adds the setting `classes`, which a list needs for the names that folders had. */
static void add_classes(const splitting *s, int is_validation, dlc_text *text) {
    const dlc_field *field = find_names(s);
    dlc_text line = {0};
    for (int32_t i = 0; field && i < field->classes; i++) {
        const char *name = field->class_names[i];
        if (!*name || strpbrk(name, ",;#\"") || *name == ' ' ||
            name[strlen(name) - 1] == ' ') {
            if (!is_validation) /* once */
                dlc_warn(
                    "the setting `classes` cannot have the name \"%s\"; classes of "
                    "the lists have numbers unless it is renamed",
                    name);
            dlc_text_free(&line);
            return;
        }
        dlc_text_add(&line, "%s%s", i ? ", " : "classes = ", name);
    }
    dlc_text_append_text(text, &line);
    if (field)
        dlc_text_add(text, "\n");
    dlc_text_free(&line);
}

/* Adds the section with a list or table instead of what was split. */
static void add_section(const splitting *s, int is_validation, dlc_text *text) {
    static const char *const replaced[] = {"source", "list", "file", "classes", NULL};
    static const char *const of_training[] = {"batch",   "shuffle", "shuffle_window",
                                              "mixup",   "cutmix",  "prefetch",
                                              "threads", NULL};
    const dlc_section *from = dlc_config_find(s->command->data.setup->config, "data");
    char path[PATH_MAX], *name = list_path(s, is_validation);
    const char *key;
    if (!name)
        dlc_text_fail(text);
    dlc_text_add(text, "[%s]\nsource = %s\n%s = %s\n",
                 is_validation ? "data.test" : "data",
                 dlc_section_value(from, "source"), s->table ? "file" : "list",
                 name && realpath(name, path) ? path : "");
    add_classes(s, is_validation, text);
    for (size_t i = 0; (key = dlc_section_key(from, i)); i++)
        if (!is_one_of(key, replaced) &&
            !(is_validation && is_one_of(key, of_training)) &&
            !(!s->table && strcmp(key, "folder") == 0))
            dlc_text_add(text, "%s = %s\n", key, dlc_section_value(from, key));
    dlc_free(name);
}

/* What to write in net.ini. */
static dlc_status print_sections(const splitting *s) {
    dlc_text text = {0};
    dlc_text_add(&text, "\n");
    add_section(s, 0, &text);
    dlc_text_add(&text, "\n");
    add_section(s, 1, &text);
    return dlc_tool_print_text(&text);
}

static void add_names(const splitting *s, dlc_json *json) {
    const dlc_field *field = find_names(s);
    if (!field)
        return;
    dlc_json_array(json, "classes");
    for (int32_t i = 0; i < field->classes; i++)
        dlc_json_string(json, NULL, field->class_names[i]);
    dlc_json_end_array(json);
}

static dlc_status write_lists(const splitting *s) {
    dlc_json json = {0};
    dlc_json_object(&json, NULL);
    dlc_status status = write_list(s, 0, &json);
    if (status == DLC_OK)
        status = write_list(s, 1, &json);
    add_names(s, &json);
    dlc_json_end_object(&json);
    if (status == DLC_OK)
        status = s->command->data.tool.json ? dlc_tool_print_json(&json)
                                            : print_sections(s);
    dlc_text_free(&json.text);
    return status;
}

/* The line that ends the name of a sample, as in "table.csv:17", which is cut off; 0:
 * there is none. */
static int64_t take_line(char *name) {
    char *colon = strrchr(name, ':'), *end = NULL;
    long long line = colon ? strtoll(colon + 1, &end, 10) : 0;
    if (!end || *end || line < 1)
        return 0;
    *colon = '\0';
    return line;
}

/* Are the samples files, or rows of a table? */
static dlc_status find_samples(splitting *s) {
    char name[PATH_MAX], path[PATH_MAX];
    const dlc_samples *samples = &s->command->data.data->samples;
    for (int64_t i = 0; i < s->count; i++) {
        dlc_samples_name(samples, i, name, sizeof name);
        if (i == 0 && access(name, F_OK) == 0)
            return DLC_OK;
        s->all[i].line = take_line(name);
        int is_table = s->all[i].line && realpath(name, path);
        if (i == 0 && is_table && !(s->table = dlc_strdup(path)))
            return DLC_ERR_NOMEM;
        if (i == 0 && !is_table)
            return dlc_fail(
                DLC_ERR_DATA,
                "the samples are neither files nor rows of a table, so they "
                "cannot be listed (\"%s\"); split what they were made of",
                name);
    }
    return DLC_OK;
}

/* Paths in a table begin where it is, unless that is set. */
static void warn_of_paths(const splitting *s) {
    char folder[PATH_MAX], path[PATH_MAX];
    const char *slash = strrchr(s->command->prefix, '/');
    (void)snprintf(folder, sizeof folder, "%.*s.",
                   slash ? (int)(slash + 1 - s->command->prefix) : 0,
                   s->command->prefix);
    size_t length = (size_t)(strrchr(s->table, '/') - s->table);
    if (realpath(folder, path) &&
        (strlen(path) != length || strncmp(path, s->table, length) != 0))
        dlc_info("the tables are not beside %s: if paths in them are relative, set "
                 "`folder = %.*s`",
                 s->table, (int)length, s->table);
}

static dlc_status open_splitting(const split_command *command, splitting *s) {
    const dlc_samples *samples = &command->data.data->samples;
    int32_t classes = samples->classes;
    *s = (splitting){.command = command, .count = samples->info.samples};
    s->all = dlc_alloc((size_t)s->count, sizeof *s->all);
    if (!s->all)
        return DLC_ERR_NOMEM;
    DLC_TRY(find_samples(s));
    if (s->table && dlc_samples_are_encoded(samples))
        warn_of_paths(s);
    if (classes < 0 && !s->table)
        return dlc_fail(DLC_ERR_DATA,
                        "the samples have no classes, so they cannot be listed");
    if (classes != samples->label)
        s->classes = dlc_samples_field(samples, classes)->classes;
    return DLC_OK;
}

static void close_splitting(splitting *s) {
    for (int64_t i = 0; s->all && i < s->count; i++)
        dlc_text_free(&s->all[i].labels);
    dlc_free(s->all);
    dlc_free(s->table);
}

static dlc_status split(const split_command *command) {
    splitting s;
    dlc_status status = open_splitting(command, &s);
    data_scan scan = {.command = &command->data,
                      .labels_only = 1,
                      .visit = note_label,
                      .context = &s};
    if (status == DLC_OK && command->data.data->samples.classes >= 0)
        status = data_scan_run(&scan);
    if (status == DLC_OK && !draw(command, s.all, s.count))
        status = dlc_fail(DLC_ERR_CONFIG,
                          "no class has enough samples: a share of %g of each is none "
                          "for validation; give a larger --validation",
                          command->share);
    if (status == DLC_OK)
        status = write_lists(&s);
    close_splitting(&s);
    return status;
}

int dlc_command_data_split(int argc, char **argv) {
    split_command command = {.share = 0.1};
    dlc_tool_parse(&argp, argc, argv, &command);
    dlc_status status = data_command_open(&command.data);
    if (status == DLC_OK)
        status = split(&command);
    return data_command_close(&command.data, status);
}
