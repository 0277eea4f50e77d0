/* Parses --weights and its kin, each of which may be given several times. */
#include "weights.h"

#include "base/memory.h"
#include "checkpoint/weights_name.h"

enum { KEY_WEIGHTS = 0x180, KEY_SKIP, KEY_MAP };

static const struct argp_option options[] = {
    {"weights", KEY_WEIGHTS, "FILE", 0,
     "take the weights of a checkpoint, or of any safetensors file; may be repeated",
     1},
    {"weights-skip", KEY_SKIP, "PATTERN", 0,
     "leave out parameters and tensors with such a name, as in 'ip2.*'", 1},
    {"weights-map", KEY_MAP, "FROM=TO", 0,
     "rename tensors, as in 'fc.*=ip2.*'; applied before --weights-skip", 1},
    {0}};

dlc_status dlc_tool_words_add(dlc_tool_words *words, const char *word) {
    const char **grown = dlc_grow(words->list, words->count, words->count + 1,
                                  sizeof *grown);
    if (!grown)
        return DLC_ERR_NOMEM;
    words->list = grown;
    words->list[words->count++] = word;
    return DLC_OK;
}

static error_t add(dlc_tool_words *words, const char *word) {
    return dlc_tool_words_add(words, word) == DLC_OK ? 0 : ENOMEM;
}

static error_t parse(int key, char *argument, struct argp_state *state) {
    dlc_tool_weights *weights = state->input;
    switch (key) {
    case KEY_WEIGHTS:
        return add(&weights->file, argument);
    case KEY_SKIP:
        return add(&weights->skip, argument);
    case KEY_MAP:
        if (dlc_weights_check_map(argument) != DLC_OK)
            argp_error(state, "--weights-map: %s", dlc_detail());
        return add(&weights->map, argument);
    case ARGP_KEY_END:
        if (!weights->file.count && (weights->skip.count || weights->map.count))
            argp_error(state, "--weights-skip and --weights-map need --weights FILE");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp dlc_tool_weights_argp = {.options = options, .parser = parse};

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
    *weights = (dlc_tool_weights){0};
}
