/* Data sources: labelled samples, read by number.
 *
 * A source only reads. Which samples a rank sees and in what order (sharding,
 * shuffling), augmentation, and reading ahead are the core's work, the same for
 * every source.
 *
 * Threads: after open, calls on one source come from one thread at a time, not
 * always the same one.
 */
#ifndef DLCORE_DATA_H
#define DLCORE_DATA_H

#include <dlcore/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dlc_source dlc_source; /* the plugin's own */

typedef struct dlc_data_args {
    uint32_t size;
    const dlc_settings *settings; /* of the feature's option table; paths in it
                                     are ready to open */
    uint64_t seed;                /* of the job, for sources that make things up */
    /* For [data.test]: the classes of [data], in the order of their labels; NULL: not
     * known. A source whose own classes have names gives these labels, whether it has
     * samples of each or not, and fails for a name that is not among them. */
    const char *const *class_names;
    int32_t classes;
} dlc_data_args;

typedef struct dlc_data_info {
    uint32_t size;
    int64_t samples; /* at least 1 */
    dlc_shape shape; /* of one sample, C, H, W */
    dlc_dtype dtype; /* DLC_U8 or DLC_F32 */
    int32_t classes; /* labels are 0 .. classes-1; 0: not known */
    /* One a class, in the order of labels; of the source, until it is closed. NULL:
     * they have no names. */
    const char *const *class_names;
} dlc_data_info;

typedef struct dlc_data_ops {
    uint32_t size;

    /* Opens and checks: what is wrong with the files is said here
     * (DLC_ERR_DATA: which file, what, where in it), not in the middle of a run. */
    dlc_status (*open)(const dlc_data_args *args, dlc_source **source);
    void (*close)(dlc_source *source); /* NULL allowed */

    /* `info` comes with its size set. */
    dlc_status (*describe)(dlc_source *source, dlc_data_info *info);

    /* Samples index[0 .. n-1] (each 0 .. samples-1, repeats allowed), one behind
     * the other in plain layout into `data`, their labels into `labels`. */
    dlc_status (*read)(dlc_source *source, int32_t n, const int64_t *index, void *data,
                       int32_t *labels);
} dlc_data_ops;

#ifdef __cplusplus
}
#endif
#endif
