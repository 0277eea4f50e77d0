/* Data sources: samples, read by number.
 *
 * A sample is a list of named fields: an image and its class, or an image, a mask and a
 * vector. A source only reads. Decoding, sharding, shuffling, transforms and
 * prefetching are done by the core, in the same way for every source.
 *
 *     dlc_data_ops  needed        thread  may block
 *     open          required      one     yes, on files
 *     close         required      one     yes, on files
 *     describe      required      one     no
 *     read          see below     one *   yes, on files
 *     read_sample   see below     one *   yes, on files
 *     name          optional      any     no
 *
 * Two forms. A source whose samples are one image of a fixed size and one class each
 * says so in describe and has `read`. Any other source describes its fields and has
 * `read_sample`.
 *
 * Threads. The calls on one source come from one thread at a time, but not always from
 * the same one. (*) A feature with the capability DLC_DATA_CONCURRENT is read by
 * several threads at once, which is faster; set it wherever reading changes nothing in
 * the source.
 *
 * Memory. A source need not hold its samples in memory, and should not where they may
 * be many.
 *
 * Processes. A source is opened once, before the ranks are started, and may be read to
 * check it; then the process forks, and every rank goes on with its copy: reads from it
 * and closes it. So open and read must not start threads that later calls need, and the
 * ranks share what a fork shares: read files with pread or mmap, which move no common
 * file offset, and connect to a database in the first read of a process (compare
 * getpid()), not in open. */
#ifndef DLCORE_DATA_H
#define DLCORE_DATA_H

#include <dlcore/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dlc_source dlc_source; /* defined by the plugin */

/* Capability bits of a data source, for dlc_feature.caps. */
enum {
    /* Several threads may call read, or read_sample, of one source at once. */
    DLC_DATA_CONCURRENT = 1u << 0,
};

/* What the values of a field are, and what they may be used for. */
typedef enum dlc_role {
    DLC_ROLE_IMAGE = 1,   /* an image: C, H, W; DLC_U8 or DLC_F32 */
    DLC_ROLE_CLASS = 2,   /* one class, or DLC_LABEL_NONE: DLC_I32, of shape 1 */
    DLC_ROLE_CLASSES = 3, /* several classes: DLC_U8, `classes` of them, 1 or 0 each, or
                             (uint8_t)DLC_LABEL_NONE where that is not known */
    DLC_ROLE_VECTOR = 4,  /* numbers: DLC_F32 */
    DLC_ROLE_MASK = 5,    /* the class of each pixel of the image: H, W; DLC_U8 */
    DLC_ROLE_TOKENS = 6,  /* a sequence of numbers of words: DLC_I32 */
    DLC_ROLE_BOXES = 7,   /* boxes around objects of the image: K, 5; DLC_F32 */
} dlc_role;

/* The numbers of a box, which are a row of DLC_ROLE_BOXES. The box is x0 <= x < x1,
 * y0 <= y < y1, in pixels from the upper left corner of the image.
 *
 * A source gives boxes in pixels of the image as it gives that; they are clipped to it,
 * but may neither be empty nor outside. With
 * DLC_FIELD_BOUNDED a sample has as many rows as it has boxes, also none. A layer reads
 * boxes of the transformed image, K rows of which those in use come first. Samples that
 * do not count have NaN in all rows, so a row is used if its class is at least 0. */
enum {
    DLC_BOX_CLASS, /* of the object; -1: the row is not used */
    DLC_BOX_X0,    /* the left edge */
    DLC_BOX_Y0,    /* the upper edge */
    DLC_BOX_X1,    /* the right edge */
    DLC_BOX_Y1,    /* the lower edge */
    DLC_BOX_VALUES /* how many numbers there are */
};

/* Flags of dlc_field. */
enum {
    /* The value is the file of a picture, which a decoder (<dlcore/decoder.h>) turns
     * into pixels. `dtype` is DLC_U8. In `shape` the number of channels that are wanted
     * is set, and height and width are 0, since they are in each file. */
    DLC_FIELD_ENCODED = 1u << 0,

    /* Each value has a shape of its own; `shape` is the largest. */
    DLC_FIELD_BOUNDED = 1u << 1,
};

enum { DLC_FIELDS_MAX = 16 };

/* One field of the samples. Strings are the source's and valid until close. */
typedef struct dlc_field {
    uint32_t size;
    uint32_t role;    /* dlc_role */
    uint32_t flags;   /* DLC_FIELD_ */
    uint32_t dtype;   /* dlc_dtype */
    const char *name; /* 1 to 63 of a-z, 0-9 and '_': "image", "label" */
    dlc_shape shape;  /* of one value */

    /* Of DLC_ROLE_CLASS, DLC_ROLE_CLASSES, DLC_ROLE_MASK and DLC_ROLE_BOXES: numbers
     * are 0 .. classes-1; 0: not known. */
    int32_t classes;
    const char *const *class_names; /* in the order of their numbers; NULL: no names */
} dlc_field;

/* The arguments of open, valid during the call; `settings` is valid until close. */
typedef struct dlc_data_args {
    uint32_t size;

    /* Of the feature's option table; relative paths are already resolved. */
    const dlc_settings *settings;

    uint64_t seed; /* of the job, for sources that generate their samples */

    /* For [data.test]: the names of the classes of [data], in the order of their
     * labels. NULL: not known. A source with named classes must use these labels,
     * whether or not it has samples of every class, and must fail with DLC_ERR_DATA for
     * a class that is not in the list. */
    const char *const *class_names;
    int32_t classes; /* length of class_names */

    /* How the names of image files end, in lower case and joined by commas, as in
     * "jpg,jpeg,png,webp,tif": in the usual formats, and as installed decoders say. A
     * source that looks for images in folders or archives takes the files with these
     * endings, in upper case too. Never NULL. */
    const char *image_endings;
} dlc_data_args;

/* What a source contains. */
typedef struct dlc_data_info {
    uint32_t size;
    int64_t samples; /* at least 1 */

    /* The fields of a sample, at most DLC_FIELDS_MAX, owned by the source and valid
     * until close. NULL: a sample is one image and one class, as what follows says. */
    const dlc_field *fields;
    int32_t field_count;

    /* Without fields: */

    int32_t classes; /* labels are 0 .. classes-1, or DLC_LABEL_NONE; 0: not known */
    dlc_shape shape; /* of the image of one sample: C, H, W */
    dlc_dtype dtype; /* DLC_U8 or DLC_F32 */

    /* The names of the classes in the order of their labels, owned by the source and
     * valid until close. NULL: the classes have no names. */
    const char *const *class_names;
} dlc_data_info;

/* The value of one field. */
typedef struct dlc_value {
    const void *data; /* in plain layout */
    uint64_t bytes;
    dlc_shape shape; /* of a field with DLC_FIELD_BOUNDED; else unused */
} dlc_value;

/* The sample that read_sample is asked for. */
typedef struct dlc_sample dlc_sample;
struct dlc_sample {
    uint32_t size;
    uint32_t wanted; /* bit f: the value of field f is asked for */
    int64_t index;   /* number of the sample, 0 .. samples-1 */

    /* The values, one for each field, set by the source. Data may be the source's own
     * memory, if it stays as it is until close, or memory from this struct. */
    dlc_value *value;

    /* Gives memory for the value of a field, and sets data and bytes of the value to
     * it. It is the caller's, and not freed by the source. NULL: out of memory; the
     * detail sentence is set. */
    void *(*memory)(dlc_sample *sample, int32_t field, uint64_t bytes);
};

/* The table of calls of a data source. */
typedef struct dlc_data_ops {
    uint32_t size;

    /* Required. Opens the source and checks its files. Report damage here and not
     * during training, as far as it can be seen quickly: DLC_ERR_DATA with the file,
     * what is wrong, and where in the file. The caller owns *source, which is not
     * NULL, and releases it with close. */
    dlc_status (*open)(const dlc_data_args *args, dlc_source **source);

    /* Required. Releases the source; does nothing if `source` is NULL. */
    void (*close)(dlc_source *source);

    /* Required. Fills in `info`, whose size the caller has set. */
    dlc_status (*describe)(dlc_source *source, dlc_data_info *info);

    /* Required without fields, otherwise NULL. Reads the samples index[0 .. n-1], each
     * in 0 .. samples-1; a number may occur more than once. Writes the samples one
     * after the other in plain layout to `data`, and their n labels to `labels`. A
     * number must stand for the same sample on every rank and in every run. */
    dlc_status (*read)(dlc_source *source, int32_t n, const int64_t *index, void *data,
                       int32_t *labels);

    /* Required with fields, otherwise NULL. Reads the fields of one sample that are
     * wanted. A number must stand for the same sample on every rank and in every run.
     * DLC_ERR_DATA for a sample that cannot be read, which the user may have skipped
     * (`on_error`); any other error ends the job. */
    dlc_status (*read_sample)(dlc_source *source, dlc_sample *sample);

    /* Optional. Writes what a user calls a sample, such as the path of its file, to
     * `text`, as a string of at most `room` bytes, cut if need be. */
    void (*name)(dlc_source *source, int64_t index, char *text, size_t room);
} dlc_data_ops;

#ifdef __cplusplus
}
#endif
#endif
