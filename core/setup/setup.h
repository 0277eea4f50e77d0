/* A setup is a job as `net.ini` and the command line describe it: every section
 * checked against the plugins that it names, all mistakes reported at once, data
 * sources opened.
 *
 * It is made once, before the ranks are started, and every rank inherits it across
 * the fork.
 */
#ifndef DLC_SETUP_SETUP_H
#define DLC_SETUP_SETUP_H

#include <dlcore/consistency.h>
#include <dlcore/data.h>
#include <dlcore/transport.h>

#include "config/config.h"
#include "data/feed.h"
#include "net/graph.h"
#include "plugin/registry.h"
#include "setup/batch_split.h"
#include "setup/mesh.h"
#include "solver/solver.h"

/* One of [data] and [data.test]. */
typedef struct dlc_data_setup {
    int present;
    const dlc_feature *feature;
    dlc_settings *settings;     /* the source's, the feed's and the core's together */
    dlc_transforms *transforms; /* own */
    int64_t batch;
    int broken;         /* the section has mistakes, or its data cannot be read */
    dlc_source *source; /* open; NULL: not needed */
    dlc_samples samples;
    dlc_batch_fields fields; /* of the samples that layers read */
    int64_t first, count;    /* of samples that a test goes through; count 0: all */
    int needs_all;           /* no sample is skipped, whatever on_error says */
    dlc_data_info info;      /* of samples */
    const dlc_decoders *decoders; /* the setup's, if the samples are image files */
    int32_t largest_label;        /* among the labels that were checked */
    uint64_t digest; /* of some samples; 0 until dlc_data_source_identify */
} dlc_data_setup;

typedef struct dlc_setup {
    char *path;  /* own; of net.ini, kept so that it can be read again */
    char **sets; /* own; the --set texts of the command line */
    size_t set_count;
    dlc_config *config;
    dlc_registry *registry;
    dlc_graph *graph;
    const char *name;       /* of the net */
    dlc_decoders *decoders; /* own; NULL: no image files are read */

    const dlc_feature *device;
    const dlc_feature *solver;
    const dlc_feature *consistency; /* a plugin's, or dlc_synchronous_feature */
    const char *transport;          /* a feature's name, or "auto" */
    dlc_settings *net_settings, *solver_settings, *consistency_settings,
        *train_settings, *parallel_settings, *transport_settings;
    int solver_broken;         /* [solver] has mistakes */
    dlc_solver checked_solver; /* to train; without a schedule */
    int consistency_broken;
    dlc_settings **old_settings; /* own; of [consistency], before it was read again */
    size_t old_settings_count;
    dlc_data_setup train, test;
    const dlc_data_info *trained; /* of the arguments; NULL: not known, or open */

    int32_t ranks;
    dlc_mesh_sizes mesh_sizes;
    int32_t *stage_ranks; /* own; of mesh_sizes */
    int32_t servers;      /* the last ranks, which hold weights and compute nothing */
    /* Own; indices of the devices that the ranks of a machine take in turn. NULL: all
     * devices of the machine. */
    int32_t *device_index;
    int32_t device_indices;
    int64_t iterations; /* to train; -1: `epochs` epochs instead */
    int64_t epochs;
    int strong;             /* strong scaling: all ranks split the batch of [data] */
    int data_parallel_only; /* treat every layer as parallel = data */
    dlc_batch_split batch_split; /* samples of each rank, as [parallel] batch_split
                          says, until throughput is measured */
    uint64_t seed;
    uint64_t resident_bytes; /* of this process, once the setup was complete */
    double train_bytes; /* of the trained parameters, and of what the layers output for
                           the batch of [data]; 0: not known */
} dlc_setup;

/* The core's own keys of the reserved sections. */
extern const dlc_option dlc_net_section_options[];
extern const dlc_option dlc_data_section_options[];
extern const dlc_option dlc_test_section_options[];
extern const dlc_option dlc_solver_section_options[];
extern const dlc_option dlc_consistency_section_options[];
extern const dlc_option dlc_transport_section_options[];
extern const dlc_option dlc_train_section_options[];
extern const dlc_option dlc_parallel_section_options[];
/* Names of the sections that are not layers, NULL-terminated. */
extern const char *const dlc_reserved_sections[];

typedef struct dlc_setup_args {
    const char *path;        /* of net.ini; NULL: `sets` is all there is */
    const char *const *sets; /* texts "section.key=value" */
    size_t nsets;
    /* DLC_PHASE_ bits: the phases whose data is opened ([data.test] only if it is
     * present) and whose layers are checked. 0: only net.ini is checked. */
    unsigned phases;
    int data_only; /* look at the data sections and at [train] alone */
    /* Optional: the classes that the weights of a test know; valid during the call. */
    const dlc_data_info *trained;
    /* Optional: called for each mistake, in addition to the log. */
    void (*tell)(void *context, const dlc_mistake *mistake);
    void *tell_context;
} dlc_setup_args;

/* Reads net.ini, checks it, opens the data and checks the net against the data. On
 * failure every mistake has been logged and *setup is not set. */
dlc_status dlc_setup_open(const dlc_setup_args *args, dlc_setup **setup);
void dlc_setup_close(dlc_setup *setup); /* NULL allowed */
/* Takes ownership of newly read [consistency] settings, even on failure
 * (DLC_ERR_NOMEM). */
dlc_status dlc_setup_add_consistency_settings(dlc_setup *setup, dlc_settings *settings);
/* Makes the settings added last the current ones, after the consistency model has
 * accepted them. The previous ones stay valid until dlc_setup_close, as the SDK
 * promises. */
void dlc_setup_use_added_settings(dlc_setup *setup);

/* Sets the number of ranks, which overrides [parallel] ranks when another launcher has
 * started them, and splits the batch. */
dlc_status dlc_setup_set_ranks(dlc_setup *setup, int32_t ranks);
/* Splits the batch among the ranks again, with the current value of `servers`. */
dlc_status dlc_setup_split_batch(dlc_setup *setup);
/* The mesh of so many ranks; a rank alone has the whole net. DLC_ERR_CONFIG with a
 * sentence that says where. */
dlc_status dlc_setup_make_mesh(const dlc_setup *setup, int32_t ranks, dlc_mesh *mesh);
/* Is the consistency model not the core's own, synchronous one? */
int dlc_setup_has_consistency_plugin(const dlc_setup *setup);
/* Do ranks have different parts of the net? */
int dlc_setup_divides_net(const dlc_setup *setup);
/* Lists all settings that must agree on the ranks of a job, for dlc_job_options. */
void dlc_setup_list_settings(const dlc_setup *setup, dlc_text *text);

/* The shape of the data of a sample as the net reads it, C, H, W for an image. */
dlc_status dlc_setup_sample_shape(const dlc_data_setup *data, dlc_shape *shape);

/* All fields of a sample as the net of a phase reads them. The source must be open. */
dlc_status dlc_setup_sample_fields(const dlc_setup *setup, const dlc_data_setup *data,
                                   dlc_phase phase, dlc_net_fields *fields);

/* Lets a test go through the samples of [data] instead of those of [data.test]. */
void dlc_setup_test_train_data(dlc_setup *setup);
/* Lets a test go through the samples of an open source, read by the calls of `feature`,
 * with the settings of [data.test], or of [data] if there is none. The setup owns the
 * source from now on, even on failure. */
dlc_status dlc_setup_test_source(dlc_setup *setup, const dlc_feature *feature,
                                 dlc_source *source);

/* The type of activations, from [train] precision. */
dlc_dtype dlc_setup_precision(const dlc_setup *setup);

/* Samples of one pass (an iteration, or one of its accumulation steps) over all ranks,
 * and the range of them that a rank has; a server has none. The ranges are known once
 * dlc_setup_set_ranks was called. */
int64_t dlc_setup_global_batch(const dlc_setup *setup);
void dlc_setup_rank_samples(const dlc_setup *setup, int32_t rank, int64_t *offset,
                            int64_t *count);

#endif
