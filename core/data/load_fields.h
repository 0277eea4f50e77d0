/* What the loader works with, and how the values of each role become what the net
 * reads. A new role is one row of the table there, one in samples.c, and a function. */
#ifndef DLC_DATA_LOAD_FIELDS_H
#define DLC_DATA_LOAD_FIELDS_H

#include <pthread.h>

#include <dlcore/data.h>

#include "base/status.h"
#include "data/decoders.h"
#include "data/samples.h"
#include "data/transform.h"
#include "net/net.h"

/* The fields of a batch. */
typedef struct dlc_batch_fields {
    int32_t count; /* 0: what dlc_samples calls the image and the target */
    int32_t source[DLC_NET_FIELDS]; /* the field of the samples; -1: none, so that all
                                       bits are set */
    uint32_t labels;                /* bit i: layers compare with field i */
    uint32_t inputs;                /* bit i: layers compute with field i */
    uint32_t unread;                /* bit i: field i is neither read nor made */
} dlc_batch_fields;

typedef struct dlc_loader_args {
    const dlc_data_ops *ops;
    dlc_source *source;               /* open; outlives the loader */
    int concurrent;                   /* DLC_DATA_CONCURRENT is set */
    const dlc_decoders *decoders;     /* for files of pictures; NULL: there are none */
    int64_t max_pixels;               /* of a picture that is decoded */
    const dlc_transforms *transforms; /* outlive the loader */
    uint64_t seed;
    int test;              /* transforms draw by the index, not by the position */
    int soft_labels;       /* a class becomes a probability of each class */
    int keep_bytes;        /* images that are bytes stay bytes, if they are the data */
    double min_visibility; /* of a box: the share of it that is left */
    dlc_batch_fields fields;
} dlc_loader_args;

/* A field of the batch, as it is loaded. */
typedef struct dlc_loaded_field {
    int32_t source; /* -1: none */
    const dlc_field *field;
    const dlc_role_kind *kind;
    int is_label;    /* all bits of a sample that does not count are set */
    dlc_shape shape; /* of a sample */
    dlc_dtype dtype; /* DLC_F32 or DLC_I32; of the data also DLC_U8, which the caller
                        still normalizes */
    size_t bytes;
} dlc_loaded_field;

/* Initialize with {0}. */
typedef struct dlc_loader {
    dlc_loader_args args;
    dlc_samples samples;
    int32_t fields;
    dlc_loaded_field field[DLC_NET_FIELDS];
    uint32_t wanted;      /* bit f: field f of the samples is read */
    int as_read;          /* the data is what the source gives, unchanged */
    int in_runs;          /* several samples of a batch may be read at once */
    size_t in_bytes;      /* of the data of the source; 0: they differ */
    size_t bytes;         /* of a sample of the batch, all fields */
    pthread_mutex_t lock; /* held by who reads, unless the source is concurrent */
    int has_lock;
} dlc_loader;

/* The memory of one thread. Start with {0}. */
typedef struct dlc_load_scratch {
    dlc_read_sample read;
    dlc_transform_scratch transform;
    dlc_transform_plan plan;
    int64_t height, width; /* of the picture that was planned last; 0: none yet */
    unsigned char *pixels; /* as they are decoded */
    size_t room;
} dlc_load_scratch;

/* The shape that a sample of the field has in a batch. */
dlc_status dlc_load_shape(const dlc_loader *loader, const dlc_field *field,
                          dlc_shape *shape);
/* The fields of the source that are read for a field; bit f: field f. */
uint32_t dlc_load_needs(const dlc_loader *loader, int32_t field);
/* Writes one field of the sample that was read to `scratch`. */
dlc_status dlc_load_field(dlc_loader *loader, dlc_load_scratch *scratch,
                          const dlc_loaded_field *field, uint64_t position, void *to);

/* ---- Boxes around objects -------------------------------------------------------- */

/* Checks the boxes of a sample, whose image has this size. DLC_ERR_DATA with the row of
 * a box whose class is none, that is empty, or that is outside the image. One that
 * reaches beyond it is clipped, by transforms. */
dlc_status dlc_boxes_check(const dlc_field *field, const dlc_value *value,
                           int64_t height, int64_t width);

/* Makes rows first .. end - 1 unused. */
void dlc_boxes_clear(float *rows, int64_t first, int64_t end);

#endif
