/* Makes what the net reads of the values of each role. */
#include "data/load_fields.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

/* ---- Pictures ---------------------------------------------------------------- */

static dlc_status reserve_pixels(dlc_load_scratch *scratch, size_t bytes) {
    if (scratch->room >= bytes)
        return DLC_OK;
    dlc_free(scratch->pixels);
    bytes += bytes / 4; /* the next picture may be a little larger */
    scratch->pixels = dlc_alloc(bytes, 1);
    scratch->room = scratch->pixels ? bytes : 0;
    return scratch->pixels ? DLC_OK : DLC_ERR_NOMEM;
}

/* How much smaller the picture may be decoded: the largest power of two that the
 * decoder can do and that leaves at least the scale that the plan asks for. */
static int32_t choose_shrink(const dlc_encoded *file, double scale) {
    int32_t shrink = 1;
    while (shrink * 2 <= file->info.shrink_max && 1.0 / (shrink * 2) >= scale)
        shrink *= 2;
    return shrink;
}

/* A span of the picture at full size, in pixels of the shrunk one. */
static void shrink_span(int64_t begin, int64_t size, int32_t all, int32_t shrink,
                        int32_t *at, int32_t *count) {
    int64_t end = (begin + size + shrink - 1) / shrink;
    int32_t most = dlc_shrunk(all, shrink);
    *at = (int32_t)(begin / shrink);
    *count = (int32_t)(end < most ? end : most) - *at;
}

/* Decodes the part of the picture that the plan needs. */
static dlc_status decode_part(const dlc_encoded *file, int32_t channels, double scale,
                              dlc_load_scratch *scratch, dlc_image *image) {
    const dlc_transform_plan *plan = &scratch->plan;
    int32_t shrink = choose_shrink(file, scale), region[4];
    shrink_span(plan->region.x, plan->region.width, file->info.width, shrink,
                &region[0], &region[2]);
    shrink_span(plan->region.y, plan->region.height, file->info.height, shrink,
                &region[1], &region[3]);
    DLC_TRY(reserve_pixels(scratch,
                           (size_t)region[2] * (size_t)region[3] * (size_t)channels));
    DLC_TRY(dlc_decoders_decode(file, channels, shrink, region, scratch->pixels));
    *image = dlc_image_interleaved(scratch->pixels, channels, region[3], region[2]);
    image->x = region[0];
    image->y = region[1];
    image->scale = 1.0 / shrink;
    return DLC_OK;
}

/* Draws what happens to the sample, whose picture has this size; to all fields of a
 * sample the same. */
static dlc_status plan_sample(const dlc_loader *loader, dlc_load_scratch *scratch,
                              const dlc_loaded_field *field, uint64_t position,
                              int64_t height, int64_t width) {
    if (scratch->height == height && scratch->width == width)
        return DLC_OK;
    if (scratch->height && field->kind->role == DLC_ROLE_MASK)
        return dlc_fail(DLC_ERR_DATA,
                        "field %s is %lld x %lld, but its image is %lld x %lld: a mask "
                        "has one class for each pixel",
                        field->field->name, (long long)height, (long long)width,
                        (long long)scratch->height, (long long)scratch->width);
    DLC_TRY(dlc_transforms_plan(loader->args.transforms, loader->args.seed, position,
                                height, width, &scratch->plan));
    scratch->height = height;
    scratch->width = width;
    return DLC_OK;
}

/* The picture of a file, as far as the plan needs it; at full size for `exact`. */
static dlc_status open_encoded(const dlc_loader *loader, dlc_load_scratch *scratch,
                               const dlc_loaded_field *field, uint64_t position,
                               int exact, dlc_image *image) {
    const dlc_value *value = &scratch->read.value[field->source];
    dlc_encoded file;
    DLC_TRY(dlc_decoders_inspect(loader->args.decoders, value->data, value->bytes,
                                 loader->args.max_pixels, &file));
    DLC_TRY(plan_sample(loader, scratch, field, position, file.info.height,
                        file.info.width));
    return decode_part(&file, (int32_t)field->field->shape.dims[0],
                       exact ? 1 : scratch->plan.scale, scratch, image);
}

/* The picture that a source gives as planes, whose pixels are only read. */
static dlc_status open_planes(const dlc_loader *loader, dlc_load_scratch *scratch,
                              const dlc_loaded_field *field, uint64_t position,
                              dlc_image *image) {
    const dlc_value *value = &scratch->read.value[field->source];
    dlc_shape shape = value->shape;
    if (shape.rank == 2)
        shape = (dlc_shape){3, {1, shape.dims[0], shape.dims[1]}};
    *image = dlc_image_planes((void *)value->data, (dlc_dtype)field->field->dtype,
                              &shape);
    return plan_sample(loader, scratch, field, position, image->height, image->width);
}

static dlc_status open_picture(const dlc_loader *loader, dlc_load_scratch *scratch,
                               const dlc_loaded_field *field, uint64_t position,
                               int exact, dlc_image *image) {
    return field->field->flags & DLC_FIELD_ENCODED
               ? open_encoded(loader, scratch, field, position, exact, image)
               : open_planes(loader, scratch, field, position, image);
}

static dlc_status image_shape(const dlc_loader *loader, const dlc_field *field,
                              dlc_shape *shape) {
    return dlc_transforms_shape(loader->args.transforms, &field->shape,
                                (dlc_dtype)field->dtype, shape);
}

static dlc_status load_image(dlc_loader *loader, dlc_load_scratch *scratch,
                             const dlc_loaded_field *field, uint64_t position,
                             void *to) {
    dlc_image image;
    DLC_TRY(open_picture(loader, scratch, field, position, 0, &image));
    return dlc_transforms_apply(loader->args.transforms, &scratch->plan, &image,
                                &scratch->transform, field->dtype, to);
}

/* ---- Masks ------------------------------------------------------------------- */

/* Transforms give a mask the size that they give its image. */
static dlc_status mask_shape(const dlc_loader *loader, const dlc_field *field,
                             dlc_shape *shape) {
    const dlc_shape *in = &field->shape;
    dlc_shape whole = {3, {1, in->dims[in->rank - 2], in->dims[in->rank - 1]}}, out;
    if (field->flags & DLC_FIELD_BOUNDED)
        whole.dims[1] = whole.dims[2] = 0;
    DLC_TRY(dlc_transforms_mask_shape(loader->args.transforms, &whole, &out));
    *shape = (dlc_shape){2, {out.dims[1], out.dims[2]}};
    return DLC_OK;
}

static dlc_status load_mask(dlc_loader *loader, dlc_load_scratch *scratch,
                            const dlc_loaded_field *field, uint64_t position,
                            void *to) {
    dlc_image image;
    DLC_TRY(open_picture(loader, scratch, field, position, 1, &image));
    return dlc_transforms_apply_mask(loader->args.transforms, &scratch->plan, &image,
                                     &scratch->transform, to);
}

/* ---- Boxes ------------------------------------------------------------------- */

/* Returns what is wrong with a box; NULL: nothing. */
static const char *find_mistake(const float *row, float height, float width) {
    for (int i = DLC_BOX_X0; i < DLC_BOX_VALUES; i++)
        if (!isfinite(row[i]))
            return "its numbers have to be finite";
    if (row[DLC_BOX_X0] >= row[DLC_BOX_X1] || row[DLC_BOX_Y0] >= row[DLC_BOX_Y1])
        return "x1 has to be greater than x0, and y1 than y0";
    if (!(row[DLC_BOX_X0] < width && row[DLC_BOX_Y0] < height && row[DLC_BOX_X1] > 0 &&
          row[DLC_BOX_Y1] > 0))
        return "it is outside the image";
    return NULL;
}

/* How many classes there may be; float32 counts no further. */
static int32_t classes_of(const dlc_field *field) {
    return field->classes ? field->classes : 1 << 24;
}

static int is_class(const dlc_field *field, float number) {
    return number >= 0 && number < (float)classes_of(field) && number == floorf(number);
}

dlc_status dlc_boxes_check(const dlc_field *field, const dlc_value *value,
                           int64_t height, int64_t width) {
    const float *row = value->data;
    for (int64_t i = 0; i < value->shape.dims[0]; i++, row += DLC_BOX_VALUES) {
        if (row[DLC_BOX_CLASS] == -1)
            continue;
        if (!is_class(field, row[DLC_BOX_CLASS]))
            return dlc_fail(DLC_ERR_DATA,
                            "field %s, row %lld: the class %g is no whole number from "
                            "0 to %d; -1 is a row that is not used",
                            field->name, (long long)i, (double)row[DLC_BOX_CLASS],
                            (int)classes_of(field) - 1);
        const char *mistake = find_mistake(row, (float)height, (float)width);
        if (mistake)
            return dlc_fail(
                DLC_ERR_DATA,
                "field %s, row %lld: the box x %g to %g, y %g to %g, of an image of "
                "%lld x %lld pixels (width x height): %s",
                field->name, (long long)i, (double)row[DLC_BOX_X0],
                (double)row[DLC_BOX_X1], (double)row[DLC_BOX_Y0],
                (double)row[DLC_BOX_Y1], (long long)width, (long long)height, mistake);
    }
    return DLC_OK;
}

void dlc_boxes_clear(float *rows, int64_t first, int64_t end) {
    for (float *row = rows + first * DLC_BOX_VALUES; first < end;
         first++, row += DLC_BOX_VALUES) {
        memset(row, 0, DLC_BOX_VALUES * sizeof *row);
        row[DLC_BOX_CLASS] = -1;
    }
}

/* The image whose size the boxes of a sample are drawn in. */
static const dlc_field *image_of(const dlc_loader *loader) {
    return dlc_samples_field(&loader->samples, loader->samples.image);
}

static dlc_status boxes_shape(const dlc_loader *loader, const dlc_field *field,
                              dlc_shape *shape) {
    *shape = field->shape;
    if (image_of(loader)->role == DLC_ROLE_IMAGE)
        return DLC_OK;
    return dlc_fail(DLC_ERR_CONFIG,
                    "field %s has boxes of an image, but the samples have no image",
                    field->name);
}

/* The size of the image of a sample, which need not be loaded. */
static dlc_status find_size(const dlc_loader *loader, const dlc_load_scratch *scratch,
                            int64_t *height, int64_t *width) {
    const dlc_field *image = image_of(loader);
    const dlc_value *value = &scratch->read.value[loader->samples.image];
    if (image->flags & DLC_FIELD_ENCODED) {
        dlc_encoded file;
        DLC_TRY(dlc_decoders_inspect(loader->args.decoders, value->data, value->bytes,
                                     loader->args.max_pixels, &file));
        *height = file.info.height;
        *width = file.info.width;
        return DLC_OK;
    }
    const dlc_shape *shape = image->flags ? &value->shape : &image->shape;
    *height = shape->dims[1];
    *width = shape->dims[2];
    return DLC_OK;
}

static dlc_status load_boxes(dlc_loader *loader, dlc_load_scratch *scratch,
                             const dlc_loaded_field *field, uint64_t position,
                             void *to) {
    const dlc_value *value = &scratch->read.value[field->source];
    int64_t height, width, rows = value->shape.dims[0];
    DLC_TRY(find_size(loader, scratch, &height, &width));
    DLC_TRY(dlc_boxes_check(field->field, value, height, width));
    DLC_TRY(plan_sample(loader, scratch, field, position, height, width));
    rows = dlc_transforms_apply_boxes(loader->args.transforms, &scratch->plan,
                                      loader->args.min_visibility, value->data, rows,
                                      to);
    dlc_boxes_clear(to, rows, field->shape.dims[0]);
    return DLC_OK;
}

/* ---- Classes ----------------------------------------------------------------- */

static dlc_status class_shape(const dlc_loader *loader, const dlc_field *field,
                              dlc_shape *shape) {
    *shape = (dlc_shape){.rank = 0};
    if (!loader->args.soft_labels)
        return DLC_OK;
    if (field->classes < 1)
        return dlc_fail(DLC_ERR_CONFIG,
                        "mixup and cutmix make probabilities of classes, but the "
                        "source does not say how many classes field %s has",
                        field->name);
    *shape = (dlc_shape){1, {field->classes}};
    return DLC_OK;
}

static dlc_status load_class(dlc_loader *loader, dlc_load_scratch *scratch,
                             const dlc_loaded_field *field, uint64_t position,
                             void *to) {
    int32_t label;
    (void)loader;
    (void)position;
    memcpy(&label, scratch->read.value[field->source].data, sizeof label);
    if (field->dtype == DLC_I32) {
        memcpy(to, &label, sizeof label);
        return DLC_OK;
    }
    float *probability = to;
    for (int64_t c = 0; c < field->shape.dims[0]; c++)
        probability[c] = label == DLC_LABEL_NONE ? NAN : c == label;
    return DLC_OK;
}

static dlc_status load_classes(dlc_loader *loader, dlc_load_scratch *scratch,
                               const dlc_loaded_field *field, uint64_t position,
                               void *to) {
    const uint8_t *from = scratch->read.value[field->source].data;
    float *value = to;
    (void)loader;
    (void)position;
    for (int64_t c = 0; c < field->shape.dims[0]; c++)
        value[c] = from[c] == (uint8_t)DLC_LABEL_NONE ? NAN : from[c] != 0;
    return DLC_OK;
}

/* ---- Numbers ----------------------------------------------------------------- */

/* Copies a value that may be smaller than the field in any direction. What is left is
 * zeros, or for labels what does not count. */
static void copy_padded(const dlc_loaded_field *field, const dlc_value *value,
                        char *to) {
    const dlc_shape *in = &value->shape, *out = &field->shape;
    int32_t last = out->rank - 1;
    size_t row = (size_t)in->dims[last] * dlc_dtype_bytes(field->dtype);
    int64_t rows = dlc_shape_count(in) / in->dims[last];
    const char *from = value->data;
    memset(to, field->is_label ? 0xff : 0, field->bytes);
    for (int64_t r = 0; r < rows; r++, from += row) {
        int64_t left = r, at = 0, stride = out->dims[last];
        for (int32_t i = last - 1; i >= 0; i--) {
            at += left % in->dims[i] * stride;
            left /= in->dims[i];
            stride *= out->dims[i];
        }
        memcpy(to + (size_t)at * dlc_dtype_bytes(field->dtype), from, row);
    }
}

static void copy_value(const dlc_loaded_field *field, const dlc_value *value,
                       void *to) {
    if (value->bytes == field->bytes || field->shape.rank == 0)
        memcpy(to, value->data, field->bytes);
    else
        copy_padded(field, value, to);
}

/* ---- The table --------------------------------------------------------------- */

static const struct loading {
    dlc_role role;
    /* Sets the shape that the net reads; NULL: that of the field. */
    dlc_status (*shape)(const dlc_loader *loader, const dlc_field *field,
                        dlc_shape *shape);
    dlc_status (*load)(dlc_loader *loader, dlc_load_scratch *scratch,
                       const dlc_loaded_field *field, uint64_t position, void *to);
    int needs_size; /* of the sample's image, which is read where images differ */
} table[] = {
    {DLC_ROLE_IMAGE, image_shape, load_image, 0},
    {DLC_ROLE_CLASS, class_shape, load_class, 0},
    {DLC_ROLE_CLASSES, NULL, load_classes, 0},
    {DLC_ROLE_MASK, mask_shape, load_mask, 0},
    {DLC_ROLE_BOXES, boxes_shape, load_boxes, 1},
};

/* NULL: a role whose values are copied. */
static const struct loading *find_loading(uint32_t role) {
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].role == role)
            return &table[i];
    return NULL;
}

dlc_status dlc_load_shape(const dlc_loader *loader, const dlc_field *field,
                          dlc_shape *shape) {
    const struct loading *loading = find_loading(field->role);
    *shape = field->shape;
    return loading && loading->shape ? loading->shape(loader, field, shape) : DLC_OK;
}

uint32_t dlc_load_needs(const dlc_loader *loader, int32_t field) {
    const struct loading *loading = find_loading(
        dlc_samples_field(&loader->samples, field)->role);
    int needs_image = loading && loading->needs_size && image_of(loader)->flags;
    return 1u << field | (needs_image ? 1u << loader->samples.image : 0);
}

dlc_status dlc_load_field(dlc_loader *loader, dlc_load_scratch *scratch,
                          const dlc_loaded_field *field, uint64_t position, void *to) {
    const struct loading *loading = field->kind ? find_loading(field->kind->role)
                                                : NULL;
    if (!field->kind) {
        memset(to, 0xff, field->bytes);
        return DLC_OK;
    }
    if (loading)
        return loading->load(loader, scratch, field, position, to);
    copy_value(field, &scratch->read.value[field->source], to);
    return DLC_OK;
}
