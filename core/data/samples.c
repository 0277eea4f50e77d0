/* Makes one form of the two that sources have, and checks what they answer. */
#include "data/samples.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/process.h"
#include "plugin/answers.h"

/* ---- Roles ------------------------------------------------------------------------
 */

#define U8 (1u << DLC_U8)
#define F32 (1u << DLC_F32)
#define I32 (1u << DLC_I32)

static const dlc_role_kind role_kinds[] = {
    {DLC_ROLE_IMAGE, "an image", U8 | F32, 3, 0, DLC_F32},
    {DLC_ROLE_CLASS, "a class", I32, 0, 0, DLC_I32},
    {DLC_ROLE_CLASSES, "several classes", U8, 1, 0, DLC_F32},
    {DLC_ROLE_VECTOR, "numbers", F32, 0, 0, DLC_F32},
    {DLC_ROLE_MASK, "a mask", U8, 2, 0, DLC_I32},
    {DLC_ROLE_TOKENS, "tokens", I32, 0, 0, DLC_I32},
    {DLC_ROLE_BOXES, "boxes", F32, 2, DLC_BOX_VALUES, DLC_F32},
};

const dlc_role_kind *dlc_role_find(uint32_t role) {
    for (size_t i = 0; i < sizeof role_kinds / sizeof *role_kinds; i++)
        if (role_kinds[i].role == role)
            return &role_kinds[i];
    return NULL;
}

/* The most bytes of one value; a larger one is a mistake. */
#define VALUE_BYTES_MOST ((uint64_t)1 << 40)

/* ---- Fields ------------------------------------------------------------------ */

static void describe_simple(dlc_samples *samples) {
    const dlc_data_info *info = &samples->info;
    samples->simple[0] = (dlc_field){.size = sizeof(dlc_field),
                                     .role = DLC_ROLE_IMAGE,
                                     .dtype = info->dtype,
                                     .name = "image",
                                     .shape = info->shape};
    samples->simple[1] = (dlc_field){.size = sizeof(dlc_field),
                                     .role = DLC_ROLE_CLASS,
                                     .dtype = DLC_I32,
                                     .name = "label",
                                     .shape = {1, {1}},
                                     .classes = info->classes,
                                     .class_names = info->class_names};
    samples->info.field_count = 2;
}

const dlc_field *dlc_samples_field(const dlc_samples *samples, int32_t field) {
    const dlc_field *at = samples->info.fields;
    if (!at)
        return &samples->simple[field];
    while (field-- > 0)
        at = DLC_NEXT(at);
    return at;
}

int dlc_samples_are_encoded(const dlc_samples *samples) {
    return (dlc_samples_field(samples, samples->image)->flags & DLC_FIELD_ENCODED) != 0;
}

int32_t dlc_samples_find(const dlc_samples *samples, const char *name) {
    for (int32_t f = 0; f < samples->info.field_count; f++)
        if (strcmp(dlc_samples_field(samples, f)->name, name) == 0)
            return f;
    return -1;
}

/* Bit r of `roles`: the first field with role r, but not `except`; -1: none. */
static int32_t find_role(const dlc_samples *samples, uint32_t roles, int32_t except) {
    for (int32_t f = 0; f < samples->info.field_count; f++)
        if (roles >> dlc_samples_field(samples, f)->role & 1 && f != except)
            return f;
    return -1;
}

int32_t dlc_samples_find_role(const dlc_samples *samples, dlc_role role) {
    return find_role(samples, 1u << role, -1);
}

#define ROLE(name) (1u << DLC_ROLE_##name)

static int32_t find_image(const dlc_samples *samples) {
    int32_t named = dlc_samples_find(samples, "data");
    if (named < 0)
        named = find_role(samples, ROLE(IMAGE), -1);
    return named < 0 ? find_role(samples, ROLE(VECTOR) | ROLE(TOKENS), -1) : named;
}

static int32_t find_target(const dlc_samples *samples) {
    int32_t named = dlc_samples_find(samples, "label");
    if (named < 0)
        named = samples->label;
    return named < 0 ? find_role(samples, ~0u, samples->image) : named;
}

/* Is it what its role says? */
static int has_valid_role(const dlc_field *field) {
    const dlc_role_kind *kind = dlc_role_find(field->role);
    int encoded = (field->flags & DLC_FIELD_ENCODED) != 0;
    if (!kind || !(kind->dtypes >> field->dtype & 1))
        return 0;
    if (encoded)
        return field->role == DLC_ROLE_IMAGE || field->role == DLC_ROLE_MASK;
    const dlc_shape *shape = &field->shape;
    return (!kind->rank || kind->rank == shape->rank) &&
           (!kind->columns || kind->columns == shape->dims[shape->rank - 1]);
}

static int has_valid_shape(const dlc_field *field) {
    int encoded = (field->flags & DLC_FIELD_ENCODED) != 0;
    uint64_t bytes = dlc_dtype_bytes((dlc_dtype)field->dtype);
    if (field->shape.rank < 0 || field->shape.rank > DLC_MAX_DIMS || !bytes)
        return 0;
    if (encoded)
        return field->dtype == DLC_U8 && field->shape.rank == 3 &&
               (field->shape.dims[0] == 1 || field->shape.dims[0] == 3);
    for (int32_t i = 0; i < field->shape.rank; i++)
        if (field->shape.dims[i] < 1 ||
            __builtin_mul_overflow(bytes, (uint64_t)field->shape.dims[i], &bytes) ||
            bytes > VALUE_BYTES_MOST)
            return 0;
    return 1;
}

/* Refuses an answer, in the name of the source. */
#define REFUSE(samples, ...) dlc_answer_refuse((samples)->ops, __VA_ARGS__)

static int is_field_name(const char *name) {
    enum { NAME_LENGTH_MAX = 63 };
    size_t length = name ? strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") : 0;
    return length >= 1 && length <= NAME_LENGTH_MAX && name[length] == '\0';
}

static dlc_status check_fields(const dlc_samples *samples) {
    const size_t least = offsetof(dlc_field, class_names) +
                         sizeof(((dlc_field *)0)->class_names);
    const dlc_data_info *info = &samples->info;
    if (info->field_count < 1 || info->field_count > DLC_FIELDS_MAX)
        return REFUSE(samples, "it describes %d fields, not 1 to %d",
                      (int)info->field_count, DLC_FIELDS_MAX);
    for (int32_t f = 0; f < info->field_count; f++) {
        const dlc_field *field = dlc_samples_field(samples, f);
        if (field->size < least)
            return REFUSE(samples,
                          "field %d has a size of %u bytes, too small for its required "
                          "fields",
                          (int)f, (unsigned)field->size);
        if (!is_field_name(field->name))
            return REFUSE(samples,
                          "the name of field %d is '%.63s': use 1 to 63 of a-z, 0-9 "
                          "and '_'",
                          (int)f, field->name ? field->name : "");
        if (dlc_samples_find(samples, field->name) != f)
            return REFUSE(samples, "it has two fields %s", field->name);
        if (field->dtype > DLC_U8 || !has_valid_shape(field) || !has_valid_role(field))
            return REFUSE(samples, "field %s has an invalid type or shape",
                          field->name);
        if (field->role == DLC_ROLE_CLASS &&
            (field->dtype != DLC_I32 || dlc_shape_count(&field->shape) != 1 ||
             field->flags))
            return REFUSE(samples, "field %s is a class, but is not one int32",
                          field->name);
    }
    return DLC_OK;
}

/* Names are printed in tables and kept one a line, in checkpoints and elsewhere. */
static dlc_status check_class_names(const dlc_samples *samples) {
    for (int32_t f = 0; f < samples->info.field_count; f++) {
        const dlc_field *field = dlc_samples_field(samples, f);
        for (int32_t c = 0; field->class_names && c < field->classes; c++)
            for (const char *at = field->class_names[c]; *at; at++)
                if ((unsigned char)*at < ' ' || *at == '\x7f')
                    return dlc_fail(
                        DLC_ERR_DATA,
                        "the name of class %d, \"%.200s\", has a line break "
                        "or another control character in it: rename it",
                        (int)c, field->class_names[c]);
    }
    return DLC_OK;
}

dlc_status dlc_samples_describe(const dlc_data_ops *ops, dlc_source *source,
                                dlc_samples *samples) {
    dlc_samples made = {.ops = ops, .source = source};
    made.info.size = sizeof made.info;
    DLC_TRY(DLC_ASK(ops, "describe", ops->describe(source, &made.info)));
    if (made.info.fields ? !DLC_CAN(ops, read_sample) : !DLC_CAN(ops, read))
        return REFUSE(&made, "it has no %s, which a source %s fields needs",
                      made.info.fields ? "read_sample" : "read",
                      made.info.fields ? "with" : "without");
    if (made.info.fields)
        DLC_TRY(check_fields(&made));
    else
        describe_simple(&made);
    DLC_TRY(check_class_names(&made));
    made.image = find_image(&made);
    made.label = find_role(&made, ROLE(CLASS), -1);
    made.classes = made.label >= 0 ? made.label : find_role(&made, ROLE(CLASSES), -1);
    made.target = find_target(&made);
    if (made.image < 0)
        return dlc_fail(DLC_ERR_DATA,
                        "the samples have no image, nor anything else that a net can "
                        "begin with");
    if (made.info.fields) {
        const dlc_field *image = dlc_samples_field(&made, made.image);
        made.info.shape = image->shape;
        made.info.dtype = (dlc_dtype)image->dtype;
        made.info.classes = 0;
        made.info.class_names = NULL;
    }
    if (made.info.fields && made.classes >= 0) {
        const dlc_field *classes = dlc_samples_field(&made, made.classes);
        made.info.classes = classes->classes;
        made.info.class_names = classes->class_names;
    }
    *samples = made;
    return DLC_OK;
}

void dlc_samples_name(const dlc_samples *samples, int64_t index, char *text,
                      size_t room) {
    if (DLC_CAN(samples->ops, name))
        samples->ops->name(samples->source, index, text, room);
    else
        (void)snprintf(text, room, "sample %" PRId64, index);
    text[room - 1] = '\0';
}

dlc_status dlc_samples_name_failure(const dlc_samples *samples, int64_t index,
                                    dlc_status status) {
    enum { NAME_BYTES = 512 };
    char name[NAME_BYTES];
    if (status != DLC_ERR_DATA)
        return status;
    dlc_samples_name(samples, index, name, sizeof name);
    return strncmp(dlc_detail(), name, strlen(name)) == 0
               ? status
               : dlc_fail(status, "%s: %s", name, dlc_detail());
}

/* ---- Numbers ----------------------------------------------------------------- */

int64_t dlc_find_nonfinite(const float *value, int64_t count, int may_be_nan) {
    enum { BLOCK = 1024 };
    const uint32_t infinite = 0x7f800000, all_but_sign = 0x7fffffff;
    for (int64_t first = 0, end; first < count; first = end) {
        uint32_t wrong = 0, bits;
        end = count - first < BLOCK ? count : first + BLOCK;
        for (int64_t i = first; i < end; i++) {
            memcpy(&bits, value + i, sizeof bits);
            bits &= all_but_sign;
            wrong |= may_be_nan ? bits == infinite : bits >= infinite;
        }
        for (int64_t i = first; wrong && i < end; i++)
            if (isinf(value[i]) || (isnan(value[i]) && !may_be_nan))
                return i;
    }
    return -1;
}

/* Writes where a number is, as in "0, 3, 5". */
static void write_place(const dlc_shape *shape, int64_t at, char *text, size_t room) {
    int64_t after = dlc_shape_count(shape);
    size_t used = 0;
    text[0] = '\0';
    for (int32_t i = 0; i < shape->rank && used < room; i++) {
        after /= shape->dims[i];
        used += (size_t)snprintf(text + used, room - used, "%s%" PRId64, i ? ", " : "",
                                 at / after);
        at %= after;
    }
}

dlc_status dlc_samples_check_numbers(const dlc_samples *samples,
                                     const dlc_read_sample *read, int32_t f,
                                     int may_be_nan) {
    const dlc_field *field = dlc_samples_field(samples, f);
    const dlc_value *value = &read->value[f];
    char place[256];
    int is_number = field->role == DLC_ROLE_IMAGE || field->role == DLC_ROLE_VECTOR;
    int64_t wrong = is_number && field->dtype == DLC_F32
                        ? dlc_find_nonfinite(value->data,
                                             dlc_shape_count(&value->shape), may_be_nan)
                        : -1;
    if (wrong < 0)
        return DLC_OK;
    float number = ((const float *)value->data)[wrong];
    write_place(&value->shape, wrong, place, sizeof place);
    return dlc_fail(DLC_ERR_DATA,
                    "field %s has %s at %s; numbers must be finite as float32%s",
                    field->name,
                    isnan(number) ? "nan"
                    : number > 0  ? "inf"
                                  : "-inf",
                    place,
                    may_be_nan ? ", or nan where they are not known"
                               : ", and may be nan only in what a loss compares with");
}

/* What a net begins with is known; of anything else NaN says that it is not. */
static dlc_status check_numbers(const dlc_samples *samples, const dlc_read_sample *read,
                                int32_t f) {
    int may_be_nan = f != samples->image &&
                     dlc_samples_field(samples, f)->role == DLC_ROLE_VECTOR;
    return dlc_samples_check_numbers(samples, read, f, may_be_nan);
}

/* ---- Reading ----------------------------------------------------------------- */

void dlc_read_sample_free(dlc_read_sample *read) {
    for (int32_t f = 0; f < DLC_FIELDS_MAX; f++)
        dlc_free(read->memory[f]);
    *read = (dlc_read_sample){0};
}

/* Gives memory for a value: dlc_sample.memory. `sample` is the first member. */
static void *give_memory(dlc_sample *sample, int32_t field, uint64_t bytes) {
    dlc_read_sample *read = (dlc_read_sample *)sample;
    if (field < 0 || field >= read->samples->info.field_count ||
        bytes > VALUE_BYTES_MOST) {
        (void)REFUSE(read->samples, "it wants %" PRIu64 " bytes for field %d", bytes,
                     (int)field);
        return NULL;
    }
    void *memory = field == read->samples->image ? read->into : NULL;
    if (!memory) {
        if (bytes > read->room[field] || !read->memory[field]) {
            dlc_free(read->memory[field]);
            read->room[field] = 0;
            read->memory[field] = dlc_alloc(bytes + bytes / 4 + 1, 1);
            if (!read->memory[field])
                return NULL;
            read->room[field] = bytes + bytes / 4 + 1;
        }
        memory = read->memory[field];
    }
    read->value[field].data = memory;
    read->value[field].bytes = bytes;
    return memory;
}

static uint64_t value_bytes(const dlc_shape *shape, uint32_t dtype) {
    return (uint64_t)dlc_shape_count(shape) * dlc_dtype_bytes((dlc_dtype)dtype);
}

/* The least of a dimension of a value: a sample may have no boxes, but each box has all
 * of its numbers. */
static int64_t least_of(const dlc_field *field, int32_t i) {
    if (field->role != DLC_ROLE_BOXES)
        return 1;
    return i == 0 ? 0 : field->shape.dims[i];
}

/* Is it a shape that a value of the field may have? */
static int is_within(const dlc_shape *shape, const dlc_field *field) {
    int within = shape->rank == field->shape.rank;
    for (int32_t i = 0; within && i < shape->rank; i++)
        within = shape->dims[i] >= least_of(field, i) &&
                 shape->dims[i] <= field->shape.dims[i];
    return within;
}

/* Checks what the source has set; fixed values are of the one shape. */
static dlc_status check_given(const dlc_samples *samples, dlc_read_sample *read,
                              int32_t f) {
    const dlc_field *field = dlc_samples_field(samples, f);
    dlc_value *value = &read->value[f];
    int ok = value->data &&
             (value->data != read->memory[f] || value->bytes <= read->room[f]);
    if (ok && !(field->flags & DLC_FIELD_ENCODED)) {
        if (!(field->flags & DLC_FIELD_BOUNDED))
            value->shape = field->shape;
        ok = is_within(&value->shape, field) &&
             value->bytes == value_bytes(&value->shape, field->dtype);
    }
    if (ok)
        return DLC_OK;
    return REFUSE(samples,
                  "it gives %" PRIu64 " bytes for field %s of sample %" PRId64
                  ", which do not fit its shape or memory",
                  value->data ? value->bytes : 0, field->name, read->sample.index);
}

static dlc_status read_simple(const dlc_samples *samples, int64_t index,
                              dlc_read_sample *read) {
    void *memory = give_memory(&read->sample, samples->image,
                               value_bytes(&samples->info.shape, samples->info.dtype));
    if (!memory)
        return DLC_ERR_NOMEM;
    read->value[samples->image].shape = samples->info.shape;
    read->value[samples->label] = (dlc_value){.data = &read->label,
                                              .bytes = sizeof read->label};
    DLC_TRY(
        DLC_ASK(samples->ops, "read",
                samples->ops->read(samples->source, 1, &index, memory, &read->label)));
    return check_numbers(samples, read, samples->image);
}

static dlc_status read_fields(const dlc_samples *samples, dlc_read_sample *read) {
    uint32_t wanted = read->sample.wanted;
    memset(read->value, 0, sizeof read->value);
    if (samples->image >= 0 && dlc_samples_are_encoded(samples))
        dlc_process_return(); /* it may open a file by a relative path */
    DLC_TRY(DLC_ASK(samples->ops, "read_sample",
                    samples->ops->read_sample(samples->source, &read->sample)));
    for (int32_t f = 0; f < samples->info.field_count; f++)
        if (wanted >> f & 1) {
            DLC_TRY(check_given(samples, read, f));
            DLC_TRY(check_numbers(samples, read, f));
        }
    read->label = DLC_LABEL_NONE;
    if (samples->label >= 0 && wanted >> samples->label & 1)
        memcpy(&read->label, read->value[samples->label].data, sizeof read->label);
    return DLC_OK;
}

static dlc_status check_label(const dlc_samples *samples, int64_t index,
                              int32_t label) {
    int32_t classes = samples->info.classes;
    if (!classes || (label >= DLC_LABEL_NONE && label < classes))
        return DLC_OK;
    return dlc_fail(DLC_ERR_DATA,
                    "sample %" PRId64 " has label %d, but the source has classes 0 to "
                    "%d",
                    index, (int)label, (int)classes - 1);
}

dlc_status dlc_samples_read(const dlc_samples *samples, int64_t index, int label_only,
                            void *into, dlc_read_sample *read) {
    uint32_t label = samples->label >= 0 ? 1u << samples->label : 0;
    uint32_t wanted = label | (label_only ? 0 : 1u << samples->image);
    return dlc_samples_read_fields(samples, index, wanted, into, read);
}

dlc_status dlc_samples_read_fields(const dlc_samples *samples, int64_t index,
                                   uint32_t wanted, void *into, dlc_read_sample *read) {
    const dlc_field *image = dlc_samples_field(samples, samples->image);
    dlc_value *value = &read->value[samples->image];
    read->sample.size = sizeof read->sample;
    read->sample.index = index;
    read->sample.wanted = wanted;
    read->sample.value = read->value;
    read->sample.memory = give_memory;
    read->samples = samples;
    read->into = image->flags ? NULL : into;
    DLC_TRY(samples->info.fields ? read_fields(samples, read)
                                 : read_simple(samples, index, read));
    if (samples->label >= 0 && wanted >> samples->label & 1)
        DLC_TRY(check_label(samples, index, read->label));
    if (read->into && value->data && value->data != read->into) {
        memcpy(read->into, value->data, value->bytes);
        value->data = read->into;
    }
    return DLC_OK;
}

dlc_status dlc_samples_read_several(const dlc_samples *samples, int32_t count,
                                    const int64_t *index, void *images,
                                    int32_t *labels) {
    DLC_TRY(samples->ops->read(samples->source, count, index, images, labels));
    for (int32_t i = 0; i < count; i++)
        DLC_TRY(check_label(samples, index[i], labels[i]));
    return DLC_OK;
}
