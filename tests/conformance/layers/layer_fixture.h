/* Builds and runs one layer of the plugin under test (target.h), through the public
 * contract only: settings, infer, fuse, prepare, forward and backward, with the
 * family's reorders between plain arrays in host memory and the layer's own layouts.
 *
 * All memory that the layer writes starts as NaN and has guards around it, so that
 * reading unwritten memory, or writing outside, is detected.
 */
#ifndef LAYER_FIXTURE_H
#define LAYER_FIXTURE_H

#include <dlcore/layer.h>

/* What to build. Zeroed fields are valid. */
typedef struct layer_spec {
    const char *type;       /* "convolution" */
    const char *settings;   /* "num_output=3 kernel_size=3" */
    const char *fused;      /* settings of a relu to fuse; NULL: none */
    const char *fused_type; /* another type than relu */
    int residual;           /* first fuse a sum with one more input, like in[0] */
    dlc_phase phase;        /* 0: train */
    int32_t inputs;         /* 0: 1 */
    dlc_shape in[DLC_MAX_INPUTS];
    uint32_t labels;  /* bit i: input i is integer labels */
    dlc_dtype floats; /* type of inputs that are not labels; 0: float32 */
    uint32_t math;    /* DLC_MATH_ bits */
    const char
        *layout; /* layout of in[0]: NULL plain, "last", "blocked", "batch_blocked" */
    int32_t threads;  /* 0: 2 */
    int frozen;       /* its parameters are not trained */
    int plain_params; /* its own layout of parameters is plain, as ranks share them */
    int in_place;     /* out[0] overwrites in[in_place - 1] if the layer allows it */
    uint64_t seed;
    uint32_t index;
    int64_t channel_begin, channel_end; /* channels to compute; both 0: all */
    int64_t iteration, sample;
    const dlc_layer_group *group; /* the ranks that split the samples; NULL: none */
    int empty;                    /* this one has no samples */
    uint64_t no_gradient;         /* bit i: nobody wants in_diff[i] */
    uint64_t accumulate;          /* bit i: backward adds to in_diff[i], if it can */
    struct fixture *train_layer;
} layer_spec;

typedef struct fixture {
    layer_spec spec;
    const dlc_feature *feature;
    const dlc_layer_ops *ops;
    dlc_settings *settings;
    void *context;
    dlc_layer *layer;
    dlc_layer_shapes shapes;
    dlc_layer_memory memory;
    dlc_tensor in[DLC_MAX_INPUTS], out[DLC_MAX_OUTPUTS];
    dlc_param param[DLC_MAX_PARAMS];
    int64_t param_count[DLC_MAX_PARAMS]; /* in the layer's own layout */
    int is_fused;                        /* the layer has fused what it should */

    /* Plain values: the test fills in_data and param_data, and reads the others. Labels
     * are int32_t in in_data's memory. */
    float *in_data[DLC_MAX_INPUTS], *in_diff[DLC_MAX_INPUTS];
    float *out_data, *out_diff;
    float *param_data[DLC_MAX_PARAMS], *param_diff[DLC_MAX_PARAMS];
    uint64_t unwanted; /* bit i: in_diff[i] is not requested */
    float loss_scale;

    struct fixture_memory *buffers;
} fixture;

/* Layers of the plugin. */
const dlc_plugin *fixture_plugin(void);
const dlc_feature *fixture_feature(const char *type);
/* Does the plugin have this type? A family under test may be incomplete. */
int fixture_knows(const char *type);
/* Does the family support this 16-bit type here? And the layer type in its family? */
int fixture_has(dlc_dtype precision);
int fixture_takes(const char *type, dlc_dtype precision);

/* Builds a layer up to prepare; returns the status of the call that failed. Always call
 * the close function. */
dlc_status fixture_open(fixture *r, const layer_spec *spec);
void fixture_close(fixture *r);

/* Computes out_data from in_data and param_data. Buffers (running averages) are copied
 * back into param_data. */
dlc_status fixture_forward(fixture *r);
/* After forward: its output is lost and recomputed (dlc_layer_run.recompute). */
dlc_status fixture_recompute(fixture *r);
/* After forward: computes in_diff and param_diff from out_diff. With spec.accumulate it
 * also reads in_diff, where the layer can add to it (memory.accumulates_gradient). */
dlc_status fixture_backward(fixture *r);

/* Converts a parameter between plain order and the layer's own, both in host memory;
 * and reads its gradient as the layer wrote it. `own` has param_count[i] elements. */
void fixture_param_import(fixture *r, int32_t i, float *plain, float *own);
void fixture_param_export(fixture *r, int32_t i, const float *own, float *plain);
void fixture_param_gradient(const fixture *r, int32_t i, float *own);

int64_t fixture_in_count(const fixture *r, int32_t i);
int64_t fixture_out_count(const fixture *r);
int64_t fixture_param_count(const fixture *r, int32_t i);

/* A shape of up to six dimensions: SHAPE(2, 3, 5, 5). */
#define SHAPE(...) \
    ((dlc_shape){ \
        .rank = (int32_t)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
        .dims = {__VA_ARGS__}})

#endif
