/* A data source as the core reads it: samples of fields, whichever of the two forms of
 * <dlcore/data.h> the source has. The core believes no answer of a source: wrong ones
 * are a DLC_ERR_PLUGIN. Called by the feed and the setup. */
#ifndef DLC_DATA_SAMPLES_H
#define DLC_DATA_SAMPLES_H

#include <dlcore/data.h>

#include "base/status.h"

/* An open source and its fields; a value that may be copied. */
typedef struct dlc_samples {
    const dlc_data_ops *ops;
    dlc_source *source;

    /* As the source describes itself. If it has fields, what a source without fields
     * says (shape, dtype, classes, class_names) is that of `image` and `label`. */
    dlc_data_info info;
    dlc_field simple[2]; /* the fields of a source that describes none */

    /* image: what a net reads as `data`, the first image; without images the first
     * field of numbers. label: the first class; -1: there is none. target: what a net
     * reads as `label`: the first class, or the first field but `data`. A field that
     * is called data, or label, comes first. */
    int32_t image, label, target;
    int32_t classes; /* the label, or else the first of several classes; -1: none */
} dlc_samples;

/* Describes the fields of an open source. DLC_ERR_PLUGIN for a description that is
 * wrong; DLC_ERR_DATA for samples that have nothing that a net can begin with, and for
 * names of classes with control characters. */
dlc_status dlc_samples_describe(const dlc_data_ops *ops, dlc_source *source,
                                dlc_samples *samples);

/* Field 0 .. info.field_count - 1. */
const dlc_field *dlc_samples_field(const dlc_samples *samples, int32_t field);
/* The field of this name; -1: there is none. */
int32_t dlc_samples_find(const dlc_samples *samples, const char *name);
/* The first field with a role; -1: there is none. */
int32_t dlc_samples_find_role(const dlc_samples *samples, dlc_role role);
/* Does a decoder have to make pixels of the images? */
int dlc_samples_are_encoded(const dlc_samples *samples);

/* One sample, and the memory that it was read into. Start with {0}; may be used again
 * for any sample of the same source. */
typedef struct dlc_read_sample {
    dlc_sample sample;
    dlc_value value[DLC_FIELDS_MAX]; /* of what was read, valid until the next read */
    int32_t label;                   /* DLC_LABEL_NONE: there is no such field */

    const dlc_samples *samples;
    void
        *into; /* where the image goes, unless it is encoded; NULL: memory of its own */
    void *memory[DLC_FIELDS_MAX];
    uint64_t room[DLC_FIELDS_MAX];
} dlc_read_sample;
void dlc_read_sample_free(dlc_read_sample *read);

/* Reads the label of a sample, and its image unless `label_only`. The image is written
 * to `into` if that is not NULL and the image is plain and of a fixed shape. Several
 * threads may call this if the source allows it, each with a `read` of its own.
 * DLC_ERR_DATA for a label that is none of the classes. */
dlc_status dlc_samples_read(const dlc_samples *samples, int64_t index, int label_only,
                            void *into, dlc_read_sample *read);

/* Reads the fields `wanted`, bit f for field f, in the same way. A value that is not
 * encoded has a shape, also where all samples have the field's. DLC_ERR_DATA for
 * numbers that are not finite, but for NaN in vectors that the net does not begin with:
 * that they are not known. */
dlc_status dlc_samples_read_fields(const dlc_samples *samples, int64_t index,
                                   uint32_t wanted, void *into, dlc_read_sample *read);

/* Reads the samples index[0 .. count-1] of a source without fields at once: their
 * images, one after the other, and their labels. */
dlc_status dlc_samples_read_several(const dlc_samples *samples, int32_t count,
                                    const int64_t *index, void *images,
                                    int32_t *labels);

/* The place of the first number that is infinite or, unless it may be, NaN; -1: none.
 */
int64_t dlc_find_nonfinite(const float *value, int64_t count, int may_be_nan);
/* Checks the numbers of a field that was read. */
dlc_status dlc_samples_check_numbers(const dlc_samples *samples,
                                     const dlc_read_sample *read, int32_t field,
                                     int may_be_nan);

/* Writes what the user calls a sample: the source's name for it, or its number. */
void dlc_samples_name(const dlc_samples *samples, int64_t index, char *text,
                      size_t room);
/* Puts the name of the sample before the sentence of a DLC_ERR_DATA, unless it begins
 * with it; returns the status. */
dlc_status dlc_samples_name_failure(const dlc_samples *samples, int64_t index,
                                    dlc_status status);

/* ---- Roles ----------------------------------------------------------------------- */

/* What a source may give as a field of a role, and the type that a net reads. What
 * becomes of the values is in load_fields.c. */
typedef struct dlc_role_kind {
    dlc_role role;
    const char *name;
    uint32_t dtypes; /* of a source's values: bit d: dlc_dtype d is allowed */
    int32_t rank;    /* of their shape; 0: any */
    int64_t columns; /* its last dimension; 0: any */
    dlc_dtype dtype; /* in a batch */
} dlc_role_kind;

/* NULL: there is no such role. */
const dlc_role_kind *dlc_role_find(uint32_t role);

#endif
