/* Tests that a net believes no number of a layer: each wrong answer of infer or prepare
 * is refused as the plugin's fault, with the names of the layer and its type, before
 * anything is computed from it; and that a layer without backward ends the gradients.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/status.h"
#include "fake_layers.h"
#include "support/plugins.h"
#include "support/test.h"

enum { BATCH = 2, SAMPLE = 6, COUNT = BATCH * SAMPLE };

/* ---- The layers -------------------------------------------------------------- */

static void (*infer_fault)(dlc_layer_shapes *shapes);
static void (*prepare_fault)(dlc_layer_memory *memory);

static dlc_status infer_plain(dlc_layer *layer, dlc_layer_shapes *shapes) {
    (void)layer;
    shapes->out[0] = shapes->in[0];
    return DLC_OK;
}

static dlc_status infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    shapes->params = 2;
    shapes->param[0].name = "weight";
    shapes->param[0].shape = (dlc_shape){.rank = 1, .dims = {SAMPLE}};
    shapes->param[1].name = "bias";
    shapes->param[1].shape = (dlc_shape){.rank = 1, .dims = {SAMPLE}};
    dlc_status status = infer_plain(layer, shapes);
    if (infer_fault)
        infer_fault(shapes);
    return status;
}

static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    (void)layer;
    memory->reads_in = 1;
    if (prepare_fault)
        prepare_fault(memory);
    return DLC_OK;
}

static int backwards; /* calls of copy_backward */

static dlc_status copy_forward(dlc_layer *layer, const dlc_layer_run *run) {
    (void)layer;
    memcpy(run->out[0], run->in[0], COUNT * sizeof(float));
    return DLC_OK;
}

static dlc_status copy_backward(dlc_layer *layer, const dlc_layer_run *run) {
    (void)layer;
    (void)run;
    backwards++;
    return DLC_OK;
}

static dlc_status loss_forward(dlc_layer *layer, const dlc_layer_run *run) {
    (void)layer;
    return fake_loss(run);
}

static dlc_status loss_backward(dlc_layer *layer, const dlc_layer_run *run) {
    (void)layer;
    if (run->in_diff[0])
        memset(run->in_diff[0], 0, COUNT * sizeof(float));
    return DLC_OK;
}

static dlc_layer_ops copy_ops = FAKE_OPS(infer, prepare, copy);
static const dlc_layer_ops loss_ops = FAKE_OPS(fake_infer_loss, prepare, loss);
static const dlc_feature odd = FAKE_FEATURE("odd", 0, &copy_ops);
static const dlc_feature loss = FAKE_FEATURE("loss", DLC_LAYER_METRIC | DLC_LAYER_LOSS,
                                             &loss_ops);

/* ---- Faults ------------------------------------------------------------------ */

#define INFER_FAULT(name, ...) \
    static void name(dlc_layer_shapes *shapes) { \
        __VA_ARGS__; \
    }
#define PREPARE_FAULT(name, ...) \
    static void name(dlc_layer_memory *memory) { \
        __VA_ARGS__; \
    }

INFER_FAULT(no_output, shapes->outputs = 0)
INFER_FAULT(many_outputs, shapes->outputs = DLC_MAX_OUTPUTS + 1)
INFER_FAULT(negative_params, shapes->params = -1)
INFER_FAULT(many_params, shapes->params = INT32_MAX)
INFER_FAULT(no_type, shapes->out[0].dtype = (dlc_dtype)77)
INFER_FAULT(negative_rank, shapes->out[0].shape.rank = -1)
INFER_FAULT(high_rank, shapes->out[0].shape.rank = DLC_MAX_DIMS + 1)
INFER_FAULT(empty_output, shapes->out[0].shape.dims[1] = 0)
INFER_FAULT(negative_output, shapes->out[0].shape.dims[1] = INT64_MIN)
INFER_FAULT(huge_output, shapes->out[0].shape.dims[1] = INT64_MAX / 8)
INFER_FAULT(wrapping_output,
            shapes->out[0].shape = ((dlc_shape){2, {1LL << 40, 1LL << 40}}))
INFER_FAULT(negative_work, shapes->multiply_adds = -1)
INFER_FAULT(no_name, shapes->param[1].name = NULL)
INFER_FAULT(empty_name, shapes->param[1].name = "")
INFER_FAULT(odd_name, shapes->param[1].name = "a\nb")
INFER_FAULT(same_name, shapes->param[1].name = "weight")
INFER_FAULT(empty_param, shapes->param[0].shape.dims[0] = 0)
INFER_FAULT(huge_param, shapes->param[0].shape.dims[0] = INT64_MAX)
INFER_FAULT(nan_factor, shapes->param[0].lr_mult = (double)NAN)
INFER_FAULT(negative_factor, shapes->param[0].decay_mult = -1)
INFER_FAULT(odd_filler, shapes->param[1].filler = "normal(0.1)")
INFER_FAULT(wild_filler, shapes->param[0].filler = "gaussian(0.1")
PREPARE_FAULT(few_elements, memory->param_count[0] = SAMPLE - 1)
PREPARE_FAULT(most_elements, memory->param_count[0] = INT64_MAX)
PREPARE_FAULT(negative_elements, memory->param_count[0] = INT64_MIN)
PREPARE_FAULT(huge_workspace, memory->workspace_bytes = SIZE_MAX)
PREPARE_FAULT(huge_scratch, memory->scratch_bytes = SIZE_MAX - 63)
PREPARE_FAULT(huge_tensor, memory->out[0].bytes = SIZE_MAX)
PREPARE_FAULT(small_tensor, memory->out[0].bytes = 4)
PREPARE_FAULT(no_input_type, memory->in[0].dtype = (dlc_dtype)0)
PREPARE_FAULT(reads_unknown_input, memory->reads_in = 1u << 1)
PREPARE_FAULT(writes_unknown_input, memory->in_place = 1ull << 63)
PREPARE_FAULT(reads_unknown_output, memory->reads_out = 2)
PREPARE_FAULT(accumulates_alone, memory->accumulates_gradient = 1)

typedef struct infer_mistake {
    void (*fault)(dlc_layer_shapes *shapes);
    const char *says;
} infer_mistake;
typedef struct prepare_mistake {
    void (*fault)(dlc_layer_memory *memory);
    const char *says;
} prepare_mistake;

static const infer_mistake infers[] = {
    {no_output, "0 outputs"},
    {many_outputs, "9 outputs"},
    {negative_params, "-1 parameters"},
    {many_params, "2147483647 parameters"},
    {no_type, "output 0"},
    {negative_rank, "output 0"},
    {high_rank, "output 0"},
    {empty_output, "output 0"},
    {negative_output, "output 0"},
    {negative_work, "multiply_adds is -1"},
    {no_name, "parameter 1 has no valid name"},
    {empty_name, "parameter 1 has no valid name"},
    {odd_name, "parameter 1 has no valid name"},
    {same_name, "parameter 1 has no valid name"},
    {empty_param, "parameter weight"},
    {nan_factor, "lr_mult"},
    {negative_factor, "decay_mult"},
    {odd_filler, "the filler of parameter bias: \"normal(0.1)\" is not a filler"},
    {wild_filler, "the filler of parameter weight"},
};
/* They may be what net.ini asks for. */
static const infer_mistake excesses[] = {
    {huge_output, "output 0 is too large"},
    {wrapping_output, "output 0 is too large"},
    {huge_param, "parameter weight is too large"},
};
static const prepare_mistake prepares[] = {
    {few_elements, "of 6 elements, in 5"},
    {most_elements, "in 9223372036854775807"},
    {negative_elements, "in -9223372036854775808"},
    {huge_workspace, "18446744073709551615 bytes of workspace"},
    {huge_scratch, "18446744073709551552 of scratch"},
    {huge_tensor, "output 0"},
    {small_tensor, "output 0"},
    {no_input_type, "input 0"},
    {reads_unknown_input, "reads_in"},
    {writes_unknown_input, "in_place"},
    {reads_unknown_output, "reads_out"},
    {accumulates_alone, "accumulates_gradient"},
};
enum {
    INFERS = sizeof infers / sizeof *infers,
    EXCESSES = sizeof excesses / sizeof *excesses,
    PREPARES = sizeof prepares / sizeof *prepares
};

/* ---- Tests ------------------------------------------------------------------- */

/* Before each test: what another one has set, in case they share a process. */
static void reset(void) {
    infer_fault = NULL;
    prepare_fault = NULL;
    backwards = 0;
    copy_ops.backward = copy_backward;
}

static void begin(fake_net *f) {
    const fake_layer layers[] = {{&odd, "-"}, {&loss, "a"}, {NULL, NULL}};
    fake_begin(f, layers);
    f->args.batch = BATCH;
    f->args.sample = (dlc_shape){.rank = 1, .dims = {SAMPLE}};
}

static void expect_failure(dlc_status status, const char *says) {
    fake_net f;
    begin(&f);
    ck_assert_int_eq(dlc_net_build(&f.args, &f.net), status);
    ck_assert_msg(strstr(dlc_detail(), says) != NULL, "'%s' lacks '%s'", dlc_detail(),
                  says);
    ck_assert_ptr_nonnull(strstr(dlc_detail(), "layer 'a'"));
    ck_assert_ptr_null(f.net);
    fake_close(&f);
}

static void expect_refusal(const char *says) {
    expect_failure(DLC_ERR_PLUGIN, says);
    ck_assert_ptr_nonnull(strstr(dlc_detail(), "a plugin: ")); /* not a loaded one */
}

TEST_SETTINGS(.setup = reset, .setup_once = plugins_open);

TEST_EACH(inferred, INFERS) {
    infer_fault = infers[_i].fault;
    expect_refusal(infers[_i].says);
}

TEST_EACH(too_large, EXCESSES) {
    infer_fault = excesses[_i].fault;
    expect_failure(DLC_ERR_CONFIG, excesses[_i].says);
}

TEST_EACH(prepared, PREPARES) {
    prepare_fault = prepares[_i].fault;
    expect_refusal(prepares[_i].says);
}

TEST(sound) {
    fake_net f;
    begin(&f);
    fake_build(&f);
    fake_close(&f);
}

TEST(params_without_backward) {
    copy_ops.backward = NULL;
    expect_refusal("no backward");
}

/* The layer between does not pass on gradients, so nothing before it is trained, and
 * its backward, which does not exist, is not called. */
TEST(no_backward_between) {
    dlc_layer_ops silent = FAKE_OPS(infer_plain, prepare, copy);
    silent.backward = NULL;
    const dlc_feature plug = FAKE_FEATURE("plug", 0, &silent);
    const fake_layer layers[] = {
        {&odd, "-"}, {&plug, "a"}, {&odd, "b"}, {&loss, "c"}, {NULL, NULL}};
    const float data[COUNT] = {0};
    const int32_t labels[BATCH] = {0};
    fake_net f;
    fake_begin(&f, layers);
    f.args.batch = BATCH;
    f.args.sample = (dlc_shape){.rank = 1, .dims = {SAMPLE}};
    fake_build(&f);
    fake_ok(dlc_net_set_input(f.net, data, labels));
    fake_ok(dlc_net_forward(f.net, 0, 0));
    fake_ok(dlc_net_backward(f.net, 1, NULL, NULL));
    ck_assert_int_eq(backwards, 1);
    fake_close(&f);
}
