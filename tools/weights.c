/* Parses --weights and its kin, each of which may be given several times. */
#include "weights.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/listing.h"
#include "checkpoint/weights.h"
#include "known_files.h"

enum { KEY_WEIGHTS = 0x180, KEY_SKIP, KEY_MAP };

static const struct argp_option options[] = {
    {"weights", KEY_WEIGHTS, "FILE|FOLDER", 0,
     "take the weights of a checkpoint, of any safetensors file, or of a run folder's "
     "newest checkpoint (FOLDER/best: its best); may be repeated",
     1},
    {"weights-skip", KEY_SKIP, "PATTERN", 0,
     "leave out parameters and tensors with such a name, as in 'ip2.*'", 1},
    {"weights-map", KEY_MAP, "FROM=TO|@FILE", 0,
     "rename tensors, as in 'fc.*=ip2.*', or by the rules in FILE, a line each; applied "
     "before --weights-skip",
     1},
    {0}};

dlc_status dlc_tool_words_add(dlc_tool_words *words, const char *word) {
    const char **grown = dlc_grow_by_one(words->list, words->count, sizeof *grown);
    if (!grown)
        return DLC_ERR_NOMEM;
    words->list = grown;
    words->list[words->count++] = word;
    return DLC_OK;
}

static error_t add(dlc_tool_words *words, const char *word) {
    return dlc_tool_words_add(words, word) == DLC_OK ? 0 : ENOMEM;
}

/* Adds a word that is not argv's, and owns it. */
static dlc_status add_made(dlc_tool_weights *weights, char *word) {
    dlc_status status = word ? dlc_tool_words_add(&weights->made, word) : DLC_ERR_NOMEM;
    if (status != DLC_OK)
        dlc_free(word);
    return status;
}

/* ---- Rules in files -------------------------------------------------------------- */

/* Removes blanks, which no name has, and a comment. */
static void strip(char *line) {
    char *to = line;
    for (const char *from = line; *from && *from != '#'; from++)
        if (!strchr(" \t\r\n", *from))
            *to++ = *from;
    *to = '\0';
}

static dlc_status add_rule(dlc_tool_weights *weights, const char *path, int line,
                           const char *rule) {
    if (dlc_weights_check_map(rule) != DLC_OK) {
        char *why = dlc_strdup(dlc_detail());
        dlc_status status = dlc_fail(DLC_ERR_CONFIG, "%s:%d: %s", path, line,
                                     why ? why : rule);
        dlc_free(why);
        return status;
    }
    char *copy = dlc_strdup(rule);
    DLC_TRY(add_made(weights, copy));
    return dlc_tool_words_add(&weights->map, copy);
}

static dlc_status add_rules(dlc_tool_weights *weights, const char *path) {
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t room = 0;
    if (!file)
        return dlc_fail(DLC_ERR_CONFIG, "cannot open %s: %s", path, strerror(errno));
    dlc_status status = DLC_OK;
    for (int i = 1; status == DLC_OK && getline(&line, &room, file) >= 0; i++) {
        strip(line);
        if (*line)
            status = add_rule(weights, path, i, line);
    }
    if (status == DLC_OK && ferror(file))
        status = dlc_fail(DLC_ERR_CONFIG, "cannot read %s: %s", path, strerror(errno));
    free(line);
    (void)fclose(file);
    return status;
}

static error_t parse_map(dlc_tool_weights *weights, const char *argument,
                         struct argp_state *state) {
    dlc_status status;
    if (*argument == '@')
        status = add_rules(weights, argument + 1);
    else if ((status = dlc_weights_check_map(argument)) == DLC_OK)
        status = dlc_tool_words_add(&weights->map, argument);
    if (status == DLC_ERR_NOMEM)
        return ENOMEM;
    if (status != DLC_OK)
        argp_error(state, "--weights-map: %s", dlc_detail());
    return 0;
}

static error_t parse(int key, char *argument, struct argp_state *state) {
    dlc_tool_weights *weights = state->input;
    switch (key) {
    case KEY_WEIGHTS:
        return add(&weights->file, argument);
    case KEY_SKIP:
        return add(&weights->skip, argument);
    case KEY_MAP:
        return parse_map(weights, argument, state);
    case ARGP_KEY_END:
        if (!weights->file.count && (weights->skip.count || weights->map.count))
            argp_error(state, "--weights-skip and --weights-map need --weights FILE");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp dlc_tool_weights_argp = {.options = options, .parser = parse};

/* ---- Files ----------------------------------------------------------------------- */

/* The newest checkpoint of a run folder takes the folder's place. */
static dlc_status find_newest(dlc_tool_weights *weights, const char **path) {
    dlc_checkpoints listing;
    DLC_TRY(dlc_checkpoints_read(*path, NULL, &listing));
    dlc_status status = DLC_OK;
    const char *newest = listing.count ? listing.file[listing.count - 1].path : NULL;
    for (size_t i = 1; i < listing.count && status == DLC_OK; i++)
        if (strcmp(listing.file[i].net, listing.file[0].net) != 0)
            status = dlc_fail(DLC_ERR_DATA,
                              "%s holds checkpoints of several nets ('%s' and '%s'): "
                              "give one of its files",
                              *path, listing.file[0].net, listing.file[i].net);
    if (!newest)
        status = dlc_fail(DLC_ERR_DATA,
                          "--weights %s: the folder holds no checkpoint "
                          "(NET-ITERATION.safetensors); give a run folder or a file",
                          *path);
    char *copy = status == DLC_OK ? dlc_strdup(newest) : NULL;
    if (status == DLC_OK)
        status = add_made(weights, copy);
    dlc_checkpoints_free(&listing);
    DLC_TRY(status);
    dlc_info("weights: %s, the newest in %s", copy, *path);
    *path = copy;
    return DLC_OK;
}

dlc_status dlc_tool_weights_find(dlc_tool_weights *weights) {
    for (size_t i = 0; i < weights->file.count; i++) {
        struct stat info;
        const char **path = &weights->file.list[i];
        if (stat(*path, &info) == 0 && S_ISDIR(info.st_mode))
            DLC_TRY(find_newest(weights, path));
        DLC_TRY(dlc_known_file_check_weights(*path));
    }
    return DLC_OK;
}

dlc_weights dlc_tool_weights_of(const dlc_tool_weights *weights) {
    return (dlc_weights){.file = weights->file.list,
                         .files = weights->file.count,
                         .skip = weights->skip.list,
                         .skips = weights->skip.count,
                         .map = weights->map.list,
                         .maps = weights->map.count};
}

void dlc_tool_weights_free(dlc_tool_weights *weights) {
    dlc_free(weights->file.list);
    dlc_free(weights->skip.list);
    dlc_free(weights->map.list);
    for (size_t i = 0; i < weights->made.count; i++)
        dlc_free((char *)weights->made.list[i]);
    dlc_free(weights->made.list);
    *weights = (dlc_tool_weights){0};
}
