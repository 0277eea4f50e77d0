/* Binds arrays to fields and converts their numbers. */
#include "fields.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS_AT_ONCE = 4096, DESCRIPTION = 128 };

/* What can be made of an array; `option` names the field, too. */
typedef struct use {
    const char *option;
    dlc_role role;
    dlc_dtype dtype; /* of the field */
    double most;     /* of its numbers, which are whole ones from 0; 0: any number */
    int has_several; /* the option is a list */
    int has_none;    /* -1 is what does not count; 255 of bytes, and NaN, too */
} use;

static const use uses[] = {
    {"image", DLC_ROLE_IMAGE, DLC_F32, 0, 0, 0},
    {"label", DLC_ROLE_CLASS, DLC_I32, LABEL_MOST, 0, 1},
    {"labels", DLC_ROLE_CLASSES, DLC_U8, 1, 0, 1},
    {"vector", DLC_ROLE_VECTOR, DLC_F32, 0, 1, 0},
    {"mask", DLC_ROLE_MASK, DLC_U8, UINT8_MAX, 0, 0},
    {"tokens", DLC_ROLE_TOKENS, DLC_I32, INT32_MAX, 0, 1},
    {"boxes", DLC_ROLE_BOXES, DLC_F32, 0, 0, 0},
};
enum { USES = sizeof uses / sizeof *uses };

static const use *use_of(const dlc_field *field) {
    for (size_t i = 0; i < USES; i++)
        if ((uint32_t)uses[i].role == field->role)
            return &uses[i];
    return NULL;
}

/* ---- Shapes ------------------------------------------------------------------ */

static dlc_status refuse(const fields *of, int32_t f, const char *what) {
    char text[DESCRIPTION];
    array_describe(&of->of[f], text, sizeof text);
    return host->fail(DLC_ERR_DATA, "%s: the array %s (%s) cannot be the field %s: %s",
                      of->path, of->name[f], text, of->title[f], what);
}

static int is_few(int64_t channels) {
    return channels == 1 || channels == 3 || channels == 4;
}

/* Rows of an image are H, W or C, H, W or H, W, C. */
static dlc_status shape_image(const fields *of, int32_t f, dlc_shape *shape) {
    const array *a = &of->of[f];
    const int64_t *dims = a->dims + 1;
    if (a->rank == 2 && !of->is_channels_last)
        *shape = (dlc_shape){3, {dims[0], 1, 1}};
    else if (a->rank == 3)
        *shape = (dlc_shape){3, {1, dims[0], dims[1]}};
    else if (a->rank == 4 && of->is_channels_last)
        *shape = (dlc_shape){3, {dims[2], dims[0], dims[1]}};
    else if (a->rank == 4)
        *shape = (dlc_shape){3, {dims[0], dims[1], dims[2]}};
    else
        return refuse(of, f, "that of images has three or four dimensions");
    if (a->rank == 4 && !of->is_channels_last && is_few(dims[2]) && !is_few(dims[0]))
        host->log(DLC_LOG_WARN,
                  "%s: the images of %s have %lld channels, unless `layout = hwc`",
                  of->path, of->name[f], (long long)dims[0]);
    return DLC_OK;
}

static dlc_status shape_field(const fields *of, int32_t f, dlc_shape *shape) {
    const array *a = &of->of[f];
    uint32_t role = of->field[f].role;
    if (role == DLC_ROLE_IMAGE)
        return shape_image(of, f, shape);
    *shape = (dlc_shape){.rank = a->rank > 1 ? a->rank - 1 : 1, .dims = {1}};
    for (int32_t i = 1; i < a->rank; i++)
        shape->dims[i - 1] = a->dims[i];
    if (role == DLC_ROLE_CLASS) {
        if (array_row_count(a) != 1)
            return refuse(of, f, "a sample has one number there; see `labels`");
        *shape = (dlc_shape){1, {1}};
    }
    if (role == DLC_ROLE_CLASSES && a->rank != 2)
        return refuse(of, f, "it needs two dimensions, samples and classes");
    if (role == DLC_ROLE_MASK) {
        if (a->rank == 4 && a->dims[1] == 1)
            *shape = (dlc_shape){2, {a->dims[2], a->dims[3]}};
        if (shape->rank != 2)
            return refuse(of, f, "it needs three dimensions: samples, rows, columns");
    }
    if (role == DLC_ROLE_BOXES) {
        if (a->rank == 2) /* one of each sample */
            *shape = (dlc_shape){2, {1, a->dims[1]}};
        if (shape->rank != 2 || shape->dims[1] != DLC_BOX_VALUES)
            return refuse(of, f,
                          "it needs three dimensions: samples, boxes, and the five "
                          "numbers of a box");
    }
    if (shape->rank == 1 && shape->dims[0] > INT32_MAX)
        return refuse(of, f, "it is too long");
    return DLC_OK;
}

/* ---- Numbers ----------------------------------------------------------------- */

/* Writes a number as the field has it; 0 if it does not fit. */
static int put_number(const use *as, dlc_dtype dtype, double number, void *to,
                      int64_t at) {
    if (dtype == DLC_F32) {
        ((float *)to)[at] = (float)number;
        return 1;
    }
    int is_whole = number >= 0 && number <= as->most && number == floor(number);
    int is_none = as->has_none && (number == DLC_LABEL_NONE || isnan(number) ||
                                   (dtype == DLC_U8 && number == UINT8_MAX));
    if (is_none)
        number = DLC_LABEL_NONE;
    else if (as->most > 0 && !is_whole) /* bytes of images are any */
        return 0;
    if (dtype == DLC_U8)
        ((uint8_t *)to)[at] = (uint8_t)(int)number;
    else
        ((int32_t *)to)[at] = (int32_t)number;
    return 1;
}

static dlc_status refuse_number(const fields *of, int32_t f, int64_t sample,
                                double number) {
    return host->fail(DLC_ERR_DATA,
                      "%s: %s of sample %lld has %g, which is no whole number from 0 "
                      "to %g%s",
                      of->path, of->name[f], (long long)sample, number,
                      use_of(&of->field[f])->most,
                      use_of(&of->field[f])->has_none ? ", nor -1" : "");
}

/* Where the number at place `at` of a row stands in the field: channels come first. */
static int64_t place_of(const fields *of, int32_t f, int64_t at) {
    const dlc_field *field = &of->field[f];
    if (field->role != DLC_ROLE_IMAGE || !of->is_channels_last)
        return at;
    int64_t channels = field->shape.dims[0];
    return at % channels * field->shape.dims[1] * field->shape.dims[2] + at / channels;
}

/* How many numbers a sample has in its row. */
static int64_t count_of(const fields *of, int32_t f, int64_t sample) {
    if (of->field[f].flags & DLC_FIELD_BOUNDED)
        return of->reader->boxes(of->source, f, sample) * DLC_BOX_VALUES;
    return array_row_count(&of->of[f]);
}

static dlc_status convert_row(const fields *of, int32_t f, int64_t sample,
                              const unsigned char *row, void *to) {
    const array *a = &of->of[f];
    const use *as = use_of(&of->field[f]);
    dlc_dtype dtype = (dlc_dtype)of->field[f].dtype;
    int64_t count = count_of(of, f, sample);
    for (int64_t i = 0; i < count; i++) {
        double number = array_number(a, row + i * a->bytes);
        if (!put_number(as, dtype, number, to, place_of(of, f, i)))
            return refuse_number(of, f, sample, number);
    }
    return DLC_OK;
}

/* Is the row as it is stored the value of the field? */
static int is_same(const fields *of, int32_t f) {
    const array *a = &of->of[f];
    const dlc_field *field = &of->field[f];
    if (field->role == DLC_ROLE_IMAGE && of->is_channels_last &&
        field->shape.dims[0] > 1)
        return 0;
    if (field->dtype == DLC_F32)
        return a->kind == NUMBER_FLOAT && a->bytes == 4 && array_is_native(a);
    return field->dtype == DLC_U8 && a->kind == NUMBER_UNSIGNED && a->bytes == 1 &&
           field->role != DLC_ROLE_CLASSES;
}

static dlc_status read_field(const fields *of, int32_t f, dlc_sample *sample) {
    const dlc_field *field = &of->field[f];
    int64_t count = count_of(of, f, sample->index);
    void *to = sample->memory(sample, of->first + f,
                              (uint64_t)count *
                                  dlc_dtype_bytes((dlc_dtype)field->dtype));
    if (!to)
        return DLC_ERR_NOMEM;
    if (field->flags & DLC_FIELD_BOUNDED)
        sample->value[of->first + f].shape = (dlc_shape){
            2, {count / DLC_BOX_VALUES, DLC_BOX_VALUES}};
    if (is_same(of, f))
        return of->reader->read(of->source, f, sample->index, 1, to);
    unsigned char few[512], *row = few;
    size_t row_bytes = (size_t)array_row_bytes(&of->of[f]);
    if (row_bytes > sizeof few)
        row = host->alloc(row_bytes);
    if (!row)
        return DLC_ERR_NOMEM;
    dlc_status status = of->reader->read(of->source, f, sample->index, 1, row);
    if (status == DLC_OK)
        status = convert_row(of, f, sample->index, row, to);
    if (row != few)
        host->free(row);
    return status;
}

dlc_status fields_read(const fields *of, dlc_sample *sample) {
    dlc_status status = DLC_OK;
    for (int32_t f = 0; status == DLC_OK && f < of->count; f++)
        if (sample->wanted >> (of->first + f) & 1)
            status = read_field(of, f, sample);
    return status;
}

/* ---- Classes ----------------------------------------------------------------- */

/* The largest number of a block of labels. */
static dlc_status largest_of(const fields *of, int32_t f, const unsigned char *rows,
                             int64_t first, int64_t count, int32_t *largest) {
    for (int64_t i = 0; i < count; i++) {
        int32_t label = 0;
        dlc_status status = convert_row(of, f, first + i,
                                        rows + i * array_row_bytes(&of->of[f]), &label);
        if (status != DLC_OK)
            return status;
        *largest = label > *largest ? label : *largest;
    }
    return DLC_OK;
}

/* Reads all labels, which are small. */
static dlc_status count_classes(const fields *of, int32_t f, int32_t *labels) {
    unsigned char *rows = host->alloc((size_t)ROWS_AT_ONCE * 8);
    int32_t largest = 0;
    dlc_status status = rows ? DLC_OK : DLC_ERR_NOMEM;
    for (int64_t at = 0; status == DLC_OK && at < of->samples; at += ROWS_AT_ONCE) {
        int64_t left = of->samples - at,
                count = left < ROWS_AT_ONCE ? left : ROWS_AT_ONCE;
        status = of->reader->read(of->source, f, at, count, rows);
        if (status == DLC_OK)
            status = largest_of(of, f, rows, at, count, &largest);
    }
    host->free(rows);
    *labels = largest + 1;
    return status;
}

static dlc_status name_classes(fields *of, int32_t f) {
    dlc_field *field = &of->field[f];
    int32_t labels = 0;
    dlc_status status = DLC_OK;
    if (field->role == DLC_ROLE_CLASS)
        status = count_classes(of, f, &labels);
    else if (field->role == DLC_ROLE_CLASSES)
        labels = (int32_t)field->shape.dims[0];
    else if (field->role != DLC_ROLE_BOXES)
        return DLC_OK;
    if (status == DLC_OK)
        status = classes_check(&of->known, labels, of->samples, of->path);
    if (status == DLC_OK && field->role == DLC_ROLE_CLASSES && of->known.count &&
        of->known.count != labels)
        return refuse(of, f, "its second dimension is not the number of classes");
    field->classes = of->known.count ? of->known.count : labels;
    field->class_names = of->known.count ? (const char *const *)of->known.name : NULL;
    return status;
}

/* ---- Opening ----------------------------------------------------------------- */

static dlc_status fill_field(fields *of, int32_t f, const use *as) {
    const array *a = &of->of[f];
    if (!array_is_valid(a))
        return refuse(of, f, "it is empty, too large or has too many dimensions");
    if (of->samples && a->dims[0] != of->samples)
        return host->fail(DLC_ERR_DATA, "%s: %s has %lld rows, but %s has %lld",
                          of->path, of->name[f], (long long)a->dims[0], of->name[0],
                          (long long)of->samples);
    of->samples = a->dims[0];
    if (as->role == DLC_ROLE_IMAGE && a->kind == NUMBER_UNSIGNED && a->bytes == 1)
        of->field[f].dtype = DLC_U8;
    if (as->role == DLC_ROLE_BOXES && of->reader->boxes)
        of->field[f].flags = DLC_FIELD_BOUNDED;
    return shape_field(of, f, &of->field[f].shape);
}

/* Adds the field of the array `name`. One that is only a default may be missing. */
static dlc_status add_field(fields *of, const use *as, const char *name, size_t length,
                            int32_t turn, int is_set) {
    int32_t f = of->count;
    int found = 0;
    if (of->first + f == DLC_FIELDS_MAX)
        return host->fail(DLC_ERR_CONFIG, "there are more than %d fields",
                          DLC_FIELDS_MAX);
    of->name[f] = host->alloc(length + 1);
    if (!of->name[f])
        return DLC_ERR_NOMEM;
    memcpy(of->name[f], name, length);
    if (of->keeps_names)
        (void)snprintf(of->title[f], sizeof of->title[f], "%s", of->name[f]);
    else
        (void)snprintf(of->title[f], sizeof of->title[f], turn ? "%s_%d" : "%s",
                       as->option, (int)turn + 1);
    of->field[f] = (dlc_field){.size = sizeof(dlc_field),
                               .role = (uint32_t)as->role,
                               .dtype = (uint32_t)as->dtype,
                               .name = of->title[f]};
    dlc_status status = of->reader->find(of->source, f, of->name[f], &of->of[f],
                                         &found);
    if (status == DLC_OK && !found && is_set)
        status = host->fail(DLC_ERR_DATA, "%s: there is no array %s", of->path,
                            of->name[f]);
    if (status == DLC_OK && found)
        status = fill_field(of, f, as);
    if (status == DLC_OK && found) {
        of->count++;
    } else {
        host->free(of->name[f]);
        of->name[f] = NULL;
    }
    return status;
}

/* Takes the next name of an option: the whole of it, or up to a comma. */
static const char *take_name(const use *as, const char *at, const char **name,
                             size_t *length) {
    at += strspn(at, " ");
    size_t all = as->has_several ? strcspn(at, ",") : strlen(at);
    *name = at;
    *length = all;
    while (*length && at[*length - 1] == ' ')
        --*length;
    return at[all] ? at + all + 1 : NULL;
}

/* Is a default what another option makes something else of? */
static int is_taken(const use *as, const char *name, const dlc_settings *settings) {
    for (size_t i = 0; i < USES; i++) {
        const char *at = &uses[i] != as && host->is_set(settings, uses[i].option)
                             ? host->get_string(settings, uses[i].option)
                             : NULL;
        while (at) {
            const char *other;
            size_t length;
            at = take_name(&uses[i], at, &other, &length);
            if (length == strlen(name) && memcmp(name, other, length) == 0)
                return 1;
        }
    }
    return 0;
}

static dlc_status add_fields(fields *of, const use *as, const dlc_settings *settings) {
    const char *at = host->get_string(settings, as->option);
    int is_set = host->is_set(settings, as->option);
    dlc_status status = DLC_OK;
    if (at && !is_set && is_taken(as, at, settings))
        return DLC_OK;
    for (int32_t turn = 0; status == DLC_OK && at; turn++) {
        const char *name;
        size_t length;
        at = take_name(as, at, &name, &length);
        if (!length)
            return host->fail(DLC_ERR_CONFIG, "%s: %s: a name is empty",
                              host->where(settings, as->option), as->option);
        status = add_field(of, as, name, length, turn, is_set);
    }
    return status;
}

int fields_are_asked(const dlc_settings *settings) {
    for (size_t i = 0; i < USES; i++)
        if (host->is_set(settings, uses[i].option))
            return 1;
    return 0;
}

dlc_status fields_open(const dlc_data_args *args, fields *made) {
    const dlc_settings *settings = args->settings;
    made->is_channels_last = strcmp(host->get_string(settings, "layout"), "hwc") == 0;
    dlc_status status = made->known.count ? DLC_OK : classes_know(args, &made->known);
    for (size_t i = 0; status == DLC_OK && i < USES; i++)
        status = add_fields(made, &uses[i], settings);
    if (status == DLC_OK && made->count == 0)
        status = host->fail(DLC_ERR_DATA,
                            "%s: it has neither %s nor %s; `image`, `label` and others "
                            "say which arrays are what",
                            made->path, host->get_string(settings, "image"),
                            host->get_string(settings, "label"));
    for (int32_t f = 0; status == DLC_OK && f < made->count; f++)
        status = name_classes(made, f);
    return status;
}

void fields_close(fields *of) {
    for (int32_t f = 0; f < of->count; f++)
        host->free(of->name[f]);
    classes_free(&of->known);
}
