/* A job as `net.ini` and the command line describe it: every section checked
 * against the plugins that it names, all mistakes told at once, data opened.
 *
 * It is made once, before the ranks are started, and inherited by all of them.
 */
#ifndef DLC_TRAIN_SETUP_H
#define DLC_TRAIN_SETUP_H

#include <dlcore/data.h>
#include <dlcore/solver.h>
#include <dlcore/transport.h>

#include "config/config.h"
#include "net/graph.h"
#include "plugin/registry.h"
#include "train/shares/shares.h"

/* One of [data] and [data.test]. */
typedef struct dlc_data_setup {
    int present;
    const dlc_feature *feature;
    dlc_settings *settings; /* the source's, the feed's and the core's together */
    int64_t batch;
    int broken;         /* the section has mistakes, or cannot be read */
    dlc_source *source; /* open; NULL: not asked for */
    dlc_data_info info;
    int32_t largest_label; /* of those that were looked at */
    uint64_t digest;       /* of some samples; 0 until dlc_data_source_identify */
} dlc_data_setup;

typedef struct dlc_setup {
    char *path;  /* own; of net.ini, and what the command line sets, to read it again */
    char **sets; /* own */
    size_t set_count;
    dlc_config *config;
    dlc_registry *registry;
    dlc_graph *graph;
    const char *name; /* of the net */

    const dlc_feature *device;
    const dlc_feature *solver;
    const char *transport; /* a feature's name, or "auto" */
    dlc_settings *net_settings, *solver_settings, *train_settings, *parallel_settings,
        *transport_settings;
    int solver_broken;   /* [solver] has mistakes */
    dlc_settings **more; /* own; what [solver] was before it was read again */
    size_t more_count;
    dlc_data_setup train, test;

    int32_t ranks;
    int32_t servers; /* of them, the last ones: hold weights and compute nothing */
    int32_t *units;  /* own; of the device, that the ranks of a machine take in turn; */
    int32_t unit_count; /* NULL: as many as there are */
    int64_t iterations; /* to train; -1: `epochs` of them */
    int64_t epochs;
    int strong;        /* scaling: the batch of [data] is shared out among the ranks */
    int unsplit;       /* every layer is taken as parallel = data */
    dlc_shares shares; /* of each rank; as [parallel] batch_split says until speeds are measured */
    uint64_t seed;
    uint64_t resident_bytes; /* of this process, when the setup was done */
} dlc_setup;

/* The core's own keys of the standing sections. */
extern const dlc_option dlc_net_section_options[];
extern const dlc_option dlc_data_section_options[];
extern const dlc_option dlc_test_section_options[];
extern const dlc_option dlc_solver_section_options[];
extern const dlc_option dlc_transport_section_options[];
extern const dlc_option dlc_train_section_options[];
extern const dlc_option dlc_parallel_section_options[];
/* Sections that are no layers, NULL-terminated. */
extern const char *const dlc_standing_sections[];

typedef struct dlc_setup_args {
    const char *path;        /* of net.ini; NULL: there is none, */
    const char *const *sets; /* but only this: "section.key=value" */
    size_t nsets;
    /* DLC_PHASE_ bits: whose data is opened ([data.test] only where it is there), and
     * whose layers are looked at. 0: net.ini alone is. */
    unsigned phases;
    /* Optional: told each mistake, besides the log. */
    void (*tell)(void *context, const dlc_mistake *mistake);
    void *tell_context;
} dlc_setup_args;

/* Reads net.ini, checks it, opens the data and looks at the net with it. On failure
 * every mistake has been logged. */
dlc_status dlc_setup_open(const dlc_setup_args *args, dlc_setup **setup);
void dlc_setup_close(dlc_setup *setup); /* NULL allowed */
/* [solver], read again: from now on the setup's own, also where this fails; and, if the
 * solver has taken it, what counts. The one before stays until close: so it was
 * promised.
 */
dlc_status dlc_setup_keep(dlc_setup *setup, dlc_settings *settings);
void dlc_setup_take_kept(dlc_setup *setup);

/* How many ranks the job has, where others have started them: [parallel] ranks doesn't
 * count then. */
dlc_status dlc_setup_set_ranks(dlc_setup *setup, int32_t ranks);
/* Shares the batch out anew, with `servers` as it is now. */
dlc_status dlc_setup_deal(dlc_setup *setup);
/* Equal for all ranks of a job: what was read and must not differ among them. */
uint64_t dlc_setup_digest(const dlc_setup *setup);

/* C, H, W of a sample as the net reads it (cropped). */
dlc_status dlc_setup_sample_shape(const dlc_data_setup *data, dlc_shape *shape);

/* Samples of one iteration over all ranks (one micro-batch), and rank r's stretch
 * of them; a server's is empty. The stretches are known from dlc_setup_set_ranks on. */
int64_t dlc_setup_global_batch(const dlc_setup *setup);
void dlc_setup_share(const dlc_setup *setup, int32_t rank, int64_t *offset,
                     int64_t *count);

#endif
