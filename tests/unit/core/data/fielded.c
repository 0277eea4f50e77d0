/* A fake data source with a field of each role. */
#include "fielded.h"

#include <check.h>
#include <string.h>

#include "base/status.h"
#include "listed.h"

uint8_t fielded_pixel(int64_t sample, int64_t y, int64_t x) {
    return (uint8_t)((sample * 7 + y * 3 + x) % FIELDED_CLASSES);
}

int64_t fielded_count(int64_t sample) {
    return sample % FIELDED_MOST + 1;
}

static dlc_field field(const char *name, dlc_role role, uint32_t flags, dlc_dtype dtype,
                       dlc_shape shape) {
    return (dlc_field){.size = sizeof(dlc_field),
                       .role = role,
                       .flags = flags,
                       .dtype = dtype,
                       .name = name,
                       .shape = shape,
                       .classes = FIELDED_CLASSES};
}

static void describe_fields(dlc_source *source) {
    dlc_field *fields = source->field;
    fields[FIELDED_IMAGE] = field("image", DLC_ROLE_IMAGE, 0, DLC_U8,
                                  (dlc_shape){3, {1, FIELDED_HEIGHT, FIELDED_WIDTH}});
    fields[FIELDED_LABEL] = field("label", DLC_ROLE_CLASS, 0, DLC_I32,
                                  (dlc_shape){1, {1}});
    fields[FIELDED_MASK] = field("mask", DLC_ROLE_MASK,
                                 source->broken_mask ? DLC_FIELD_BOUNDED : 0, DLC_U8,
                                 (dlc_shape){2, {FIELDED_HEIGHT, FIELDED_WIDTH}});
    fields[FIELDED_NUMBERS] = field("numbers", DLC_ROLE_VECTOR, DLC_FIELD_BOUNDED,
                                    DLC_F32, (dlc_shape){1, {FIELDED_MOST}});
    fields[FIELDED_CLASSES_OF] = field("classes", DLC_ROLE_CLASSES, 0, DLC_U8,
                                       (dlc_shape){1, {FIELDED_CLASSES}});
    fields[FIELDED_TOKENS] = field("tokens", DLC_ROLE_TOKENS, DLC_FIELD_BOUNDED,
                                   DLC_I32, (dlc_shape){1, {FIELDED_MOST}});
}

/* Once, since two feeds may have the source. */
static dlc_status describe(dlc_source *source, dlc_data_info *info) {
    if (!source->field[0].size)
        describe_fields(source);
    *info = (dlc_data_info){.size = sizeof *info,
                            .samples = source->samples,
                            .fields = source->field,
                            .field_count = FIELDED_FIELDS};
    return DLC_OK;
}

static void fill(int32_t f, int64_t i, int64_t rows, int64_t count, void *memory) {
    uint8_t *bytes = memory;
    for (int64_t k = 0; f <= FIELDED_MASK && k < rows * FIELDED_WIDTH; k++)
        if (f != FIELDED_LABEL)
            bytes[k] = fielded_pixel(i, k / FIELDED_WIDTH, k % FIELDED_WIDTH);
    if (f == FIELDED_LABEL)
        *(int32_t *)memory = (int32_t)(i % FIELDED_CLASSES);
    for (int64_t k = 0; f == FIELDED_NUMBERS && k < count; k++)
        ((float *)memory)[k] = (float)(i * 10 + k);
    for (int64_t k = 0; f == FIELDED_CLASSES_OF && k < FIELDED_CLASSES; k++)
        bytes[k] = (i >> k & 1) != 0;
    for (int64_t k = 0; f == FIELDED_TOKENS && k < count; k++)
        ((int32_t *)memory)[k] = (int32_t)(i * 10 + k);
}

static dlc_status read_sample(dlc_source *source, dlc_sample *sample) {
    int64_t count = fielded_count(sample->index);
    int64_t rows = FIELDED_HEIGHT;
    for (int32_t f = 0; f < FIELDED_FIELDS; f++) {
        if (!(sample->wanted >> f & 1))
            continue;
        int64_t mine = f == FIELDED_MASK && source->broken_mask ? rows - 1 : rows;
        const int64_t bytes[] = {rows * FIELDED_WIDTH, 4,
                                 mine * FIELDED_WIDTH, 4 * count,
                                 FIELDED_CLASSES,      4 * count};
        void *memory = sample->memory(sample, f, (uint64_t)bytes[f]);
        if (!memory)
            return DLC_ERR_NOMEM;
        fill(f, sample->index, mine, count, memory);
        if (source->unlabelled && (f == FIELDED_LABEL || f == FIELDED_CLASSES_OF))
            memset(memory, 0xff, (size_t)bytes[f]);
        sample->value[f].shape = f == FIELDED_MASK
                                     ? (dlc_shape){2, {mine, FIELDED_WIDTH}}
                                     : (dlc_shape){1, {count}};
    }
    return DLC_OK;
}

const dlc_data_ops fielded_ops = {
    .size = sizeof(dlc_data_ops), .describe = describe, .read_sample = read_sample};

dlc_feed_args fielded_args(struct dlc_source *source, int32_t batch) {
    dlc_feed_args args = {.ops = &fielded_ops,
                          .source = source,
                          .concurrent = 1,
                          .transforms = listed_for_good(""),
                          .seed = 11,
                          .shuffle = 1,
                          .prefetch = 2,
                          .count = batch,
                          .fields = {.count = FIELDED_FIELDS},
                          .batch = batch,
                          .ranks = 1};
    for (int32_t f = 0; f < FIELDED_FIELDS; f++)
        args.fields.source[f] = f;
    args.fields.labels = (1u << FIELDED_FIELDS) - 2;
    return args;
}
