/* Blocks: layers that are said once and used often.
 *
 *     [block conv_relu]
 *     # What a use has to give, and what it may, with the default.
 *     needs = width
 *     kernel = 3
 *
 *     # Its layers stand right behind it.
 *     [conv_relu.conv]
 *     type = convolution
 *     num_output = $width
 *     kernel_size = $kernel
 *
 *     [conv_relu.relu]
 *     type = relu
 *
 *     # Becomes [stem.conv] and [stem.relu].
 *     [stem]
 *     block = conv_relu
 *     width = 64
 *
 *     # Becomes [body.1.conv], [body.1.relu], [body.2.conv], ...
 *     [body]
 *     block = conv_relu
 *     width = 64
 *     repeat = 4
 *
 * In `input`, a use's name is its last layer. In a block, names are those of its own
 * layers above, and `in` is what the use was given as input. A block may use blocks
 * that stand above it. block.c reads blocks and checks them, each once; expand.c puts
 * their layers where they are used. */
#ifndef DLC_CONFIG_BLOCK_H
#define DLC_CONFIG_BLOCK_H

#include "config/internal.h"

/* The most copies of a use. */
#define DLC_REPEAT_MOST 1000

typedef struct dlc_parameter {
    char *name;
    const char *value; /* the default; NULL: a use has to give one */
    int line;
    int used;
} dlc_parameter;

typedef struct dlc_block {
    const char *name;    /* without "block " */
    dlc_section *head;   /* this and all below: in the file's sections */
    dlc_section *member; /* so many of them, one after another */
    size_t members;
    dlc_parameter *parameter;
    size_t parameters;
    int used;
} dlc_block;

/* What is known while a file's sections are gone through. */
typedef struct dlc_blocks {
    const dlc_config *config; /* for messages */
    dlc_problems *problems;
    dlc_section *section; /* all of the file */
    size_t sections;
    dlc_block *block; /* those above */
    size_t count, room;
} dlc_blocks;

/* Reads the block whose [block x] is section `at`, its layers with it, and adds it to
 * the others. Mistakes are told; an entry that has one is marked broken. */
dlc_status dlc_block_declare(dlc_blocks *blocks, size_t at);
void dlc_blocks_free(dlc_blocks *blocks);

/* Tells whatever is wrong with a section that has the key `block`. `inside`: the
 * block that it is part of, or NULL. */
dlc_status dlc_block_check_use(dlc_blocks *blocks, dlc_section *section,
                               dlc_block *inside);

/* Tells a section that has no place where it stands: another block's, or its name. */
void dlc_block_check_place(const dlc_blocks *blocks, const dlc_section *section);

/* NULL: there is none of that name above. */
dlc_block *dlc_block_find(const dlc_blocks *blocks, const char *name);

/* The name of a block's layer within it. */
const char *dlc_member_name(const dlc_block *block, const dlc_section *member);

/* The index of the parameter, or block->parameters. */
size_t dlc_block_parameter(const dlc_block *block, const char *name, size_t length);

/* Bytes of the parameter's name behind a '$'. */
size_t dlc_parameter_length(const char *text);

/* The next of the names in an `input`, blanks left out; `*at` moves behind its comma,
 * to NULL behind the last. */
const char *dlc_input_next(const char **at, size_t *length);

/* The number of copies. 0: the text is none, and `why` says so. */
int dlc_repeat_parse(const char *text, char *why, size_t room);

#endif
