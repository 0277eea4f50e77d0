/* A test bench for one layer of the plugin under test (machine.h), through the public
 * contract only: settings, infer, absorb, prepare, forward and backward, with the
 * family's reorders between plain arrays in host memory and whatever layout the layer
 * wants.
 *
 * All memory that the layer writes starts as NaN and is fenced, so that reading what
 * was never written, or writing beyond, shows. */
#ifndef RIG_H
#define RIG_H

#include <dlcore/layer.h>

/* What to build. Zeroed fields are fine. */
typedef struct rig_spec {
    const char *type;        /* "convolution" */
    const char *settings;    /* "num_output=3 kernel_size=3" */
    const char *absorb;      /* settings of a relu to take over; NULL: none */
    const char *absorb_type; /* another type than relu */
    int join;                /* first a sum to take over: one input more, like in[0] */
    dlc_phase phase;         /* 0: train */
    int32_t inputs;          /* 0: 1 */
    dlc_shape in[DLC_MAX_INPUTS];
    uint32_t labels;    /* bit i: input i is whole numbers */
    dlc_dtype floats;   /* of inputs that are not labels; 0: float32 */
    const char *layout; /* how in[0] comes: NULL plain, "last", "blocked", "batch_blocked" */
    int32_t threads;    /* 0: 2 */
    int in_place;       /* out[0] over in[in_place - 1] where the layer allows it */
    uint64_t seed;
    uint32_t index;
    int64_t slice_begin, slice_end; /* of the output's channels; both 0: all */
    int64_t iteration, sample;
    uint64_t adds; /* bit i: backward adds to what is in in_diff[i], where it can */
    struct rig *twin;
} rig_spec;

typedef struct rig {
    rig_spec spec;
    const dlc_feature *feature;
    const dlc_layer_ops *ops;
    dlc_settings *settings;
    void *context;
    dlc_layer *layer;
    dlc_layer_plan plan;
    dlc_tensor in[DLC_MAX_INPUTS], out[DLC_MAX_OUTPUTS];
    dlc_param param[DLC_MAX_PARAMS];
    int absorbed; /* what is to be taken over was */

    /* Plain values: fill in in_data and param_data, read the others. Labels are
     * int32_t in in_data's memory. */
    float *in_data[DLC_MAX_INPUTS], *in_diff[DLC_MAX_INPUTS];
    float *out_data, *out_diff;
    float *param_data[DLC_MAX_PARAMS], *param_diff[DLC_MAX_PARAMS];
    uint64_t unwanted; /* bit i: in_diff[i] is not asked for */
    float loss_scale;

    struct rig_memory *memory;
} rig;

/* What the plugin offers. */
const dlc_plugin *rig_plugin(void);
const dlc_feature *rig_feature(const char *type);
/* Has it that type? A family under test may be a part of one. */
int rig_knows(const char *type);
/* Does the family take this 16-bit type here? And the layer type in its family? */
int rig_has(dlc_dtype precision);
int rig_takes(const char *type, dlc_dtype precision);

/* Builds up to prepare; the status of the call that failed. rig_close always. */
dlc_status rig_open(rig *r, const rig_spec *spec);
void rig_close(rig *r);

/* From in_data and param_data to out_data. Buffers (running averages) come back into
 * param_data. */
dlc_status rig_forward(rig *r);
/* After it: what it wrote is lost and made again (dlc_layer_run.again). */
dlc_status rig_forward_again(rig *r);
/* After it: from out_diff to in_diff and param_diff. With spec.adds, of what the layer
 * says it can add to (plan.adds_gradient), from in_diff, too. */
dlc_status rig_backward(rig *r);

/* A parameter between plain order and the layer's own, both in host memory; and its
 * gradient as the layer wrote it. `own` has param[i].count elements. */
void rig_param_import(rig *r, int32_t i, float *plain, float *own);
void rig_param_export(rig *r, int32_t i, const float *own, float *plain);
void rig_param_gradient(const rig *r, int32_t i, float *own);

int64_t rig_in_count(const rig *r, int32_t i);
int64_t rig_out_count(const rig *r);
int64_t rig_param_count(const rig *r, int32_t i);

/* A shape of up to six dimensions: SHAPE(2, 3, 5, 5). */
#define SHAPE(...) \
    ((dlc_shape){ \
        .rank = (int32_t)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
        .dims = {__VA_ARGS__}})

#endif
