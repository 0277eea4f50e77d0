/* Data sources: labelled samples, read by number.
 *
 * A source only reads samples. Sharding, shuffling, augmentation and prefetching are
 * done by the core, in the same way for every source.
 *
 *     dlc_data_ops  needed    thread  may block
 *     open          required  one     yes, on files
 *     close         required  one     yes, on files
 *     describe      required  one     no
 *     read          required  one     yes, on files
 *
 * Threads. The calls on one source come from one thread at a time, but not always from
 * the same one.
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
} dlc_data_args;

/* What a source contains. */
typedef struct dlc_data_info {
    uint32_t size;
    int64_t samples; /* at least 1 */
    dlc_shape shape; /* of one sample: C, H, W */
    dlc_dtype dtype; /* DLC_U8 or DLC_F32 */
    int32_t classes; /* labels are 0 .. classes-1; 0: not known */

    /* The names of the classes in the order of their labels, owned by the source and
     * valid until close. NULL: the classes have no names. */
    const char *const *class_names;
} dlc_data_info;

/* The table of calls of a data source. */
typedef struct dlc_data_ops {
    uint32_t size;

    /* Required. Opens the source and checks its files. Report damage here and not
     * during training: DLC_ERR_DATA with the file, what is wrong, and where in the
     * file. The caller owns *source and releases it with close. */
    dlc_status (*open)(const dlc_data_args *args, dlc_source **source);

    /* Required. Releases the source; does nothing if `source` is NULL. */
    void (*close)(dlc_source *source);

    /* Required. Fills in `info`, whose size the caller has set. */
    dlc_status (*describe)(dlc_source *source, dlc_data_info *info);

    /* Required. Reads the samples index[0 .. n-1], each in 0 .. samples-1; a number may
     * occur more than once. Writes the samples one after the other in plain layout to
     * `data`, and their n labels to `labels`. A number must stand for the same sample
     * on every rank and in every run. */
    dlc_status (*read)(dlc_source *source, int32_t n, const int64_t *index, void *data,
                       int32_t *labels);
} dlc_data_ops;

#ifdef __cplusplus
}
#endif
#endif
