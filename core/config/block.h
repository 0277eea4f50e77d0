/* Blocks: groups of layers that are declared once and used often. Called by config.c.
 *
 *     [block conv_relu]
 *     # The parameters that a use must give, and those that it may, with defaults.
 *     params = width
 *     kernel = 3
 *
 *     # Its layers follow directly.
 *     [conv_relu.conv]
 *     type = convolution
 *     num_output = $width
 *     kernel_size = $kernel
 *
 *     [conv_relu.relu]
 *     type = relu
 *
 *     # Expands to [stem.conv] and [stem.relu].
 *     [stem]
 *     block = conv_relu
 *     width = 64
 *
 *     # Expands to [body.1.conv], [body.1.relu], [body.2.conv], ...
 *     [body]
 *     block = conv_relu
 *     width = 64
 *     repeat = 4
 *
 * In `input`, the name of a use means its last layer. Inside a block, names are those
 * of its own earlier layers, and `in` is the input given to the use. A block may use
 * blocks that are declared above it. block.c reads blocks and checks each once;
 * expand.c inserts their layers where they are used. */
#ifndef DLC_CONFIG_BLOCK_H
#define DLC_CONFIG_BLOCK_H

#include "config/internal.h"

/* The most copies of one use. */
#define DLC_REPEAT_MAX 1000

typedef struct dlc_parameter {
    char *name;
    const char *value; /* the default; NULL: every use must give a value */
    int line;
    int used;
} dlc_parameter;

typedef struct dlc_block {
    const char *name;    /* without "block " */
    dlc_section *head;   /* this and all below point into the sections of the file */
    dlc_section *member; /* its layers, `members` sections in a row */
    size_t members;
    dlc_parameter *parameter;
    size_t parameters;
    int used;
} dlc_block;

/* The state while going through the sections of a file. */
typedef struct dlc_blocks {
    const dlc_config *config; /* for messages */
    dlc_problems *problems;
    dlc_section *section; /* all sections of the file */
    size_t sections;
    dlc_names heads;  /* of all blocks: where they are in `section` */
    dlc_block *block; /* the blocks declared so far */
    size_t count;
    dlc_names names; /* of those */
} dlc_blocks;

/* Finds the blocks among the sections. */
dlc_status dlc_blocks_open(dlc_blocks *blocks);
/* Reads the block whose [block x] is section `at`, with its layers, and adds it to the
 * others. Mistakes are reported; an entry that has one is marked broken. */
dlc_status dlc_block_declare(dlc_blocks *blocks, size_t at);
void dlc_blocks_free(dlc_blocks *blocks);

/* Reports mistakes in a section that has the key `block`. `inside`: the block that it
 * is part of, or NULL. */
dlc_status dlc_block_check_use(dlc_blocks *blocks, dlc_section *section,
                               dlc_block *inside);

/* Reports a section whose name is that of a block, or that of a block's layer without
 * following the block. */
void dlc_block_check_place(const dlc_blocks *blocks, const dlc_section *section);

/* The block of that name declared above; NULL: none. */
dlc_block *dlc_block_find(const dlc_blocks *blocks, const char *name);

/* The name of a block's layer, without the block's. */
const char *dlc_member_name(const dlc_block *block, const dlc_section *member);

/* The index of a parameter; block->parameters if there is none. */
size_t dlc_block_parameter(const dlc_block *block, const char *name, size_t length);

/* The length of the parameter name at the beginning of `text`, which follows a '$'. */
size_t dlc_parameter_length(const char *text);

/* The next name in an `input`, without blanks; `*at` moves after its comma, or becomes
 * NULL after the last. */
const char *dlc_input_next(const char **at, size_t *length);

/* The number of copies; 0 with `why` if the text is invalid. */
int dlc_repeat_parse(const char *text, char *why, size_t room);

#endif
