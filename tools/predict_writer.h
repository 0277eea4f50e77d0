/* Writes what a net predicts: a table, CSV, JSON lines, or an array of features or
 * masks. To stdout or to a file, which is complete or does not exist. Used by `dlcore
 * predict`.
 */
#ifndef DLC_TOOLS_PREDICT_WRITER_H
#define DLC_TOOLS_PREDICT_WRITER_H

#include <stdio.h>

#include <dlcore/tensor.h>

#include "base/status.h"
#include "class_names.h"

typedef enum dlc_predict_format {
    DLC_PREDICT_TABLE,
    DLC_PREDICT_CSV,
    DLC_PREDICT_JSON, /* one document per line */
    DLC_PREDICT_NPY,
} dlc_predict_format;

/* One sample; the best class first. Of several classes there may be none. */
typedef struct dlc_prediction {
    const char *name;
    int32_t label; /* DLC_LABEL_NONE: it has none */
    int32_t count;
    const int32_t *class;
    const double *probability;
} dlc_prediction;

typedef struct dlc_predict_writer {
    dlc_predict_format format;
    dlc_dtype dtype;              /* of an array: DLC_F32 or DLC_U8 */
    const dlc_class_names *names; /* NULL for arrays */
    int has_labels;
    const char *path; /* NULL: stdout */
    char *part;       /* own; the file while it is written */
    FILE *file;
    int first, each_line; /* of a table: where classes begin; on a line, 0: all */
} dlc_predict_writer;

/* Opens the file and begins it. `shape`: of the array, with all samples. */
dlc_status dlc_predict_writer_open(dlc_predict_writer *writer, const dlc_shape *shape);
dlc_status dlc_predict_write(dlc_predict_writer *writer,
                             const dlc_prediction *prediction);
dlc_status dlc_predict_write_array(dlc_predict_writer *writer, const void *values,
                                   size_t count);
/* Flushes what is buffered, so that a reader of a pipe sees each batch. */
dlc_status dlc_predict_writer_flush(dlc_predict_writer *writer);
/* Completes the file if `status` is DLC_OK, removes it otherwise. Returns `status`, or
 * that of completing it. */
dlc_status dlc_predict_writer_close(dlc_predict_writer *writer, dlc_status status);

#endif
