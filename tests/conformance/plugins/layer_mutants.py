"""Layers for `dlcore plugin check` (see mutants.py), made of the template for layers: sound ones,
which claim what the template does not, and mutants of them.

Each list of changes is (text of the template, replacement)..."""
CAPS = ".caps = DLC_LAYER_RECOMPUTABLE"
FORWARD = "    for (int64_t i = 0; i < layer->count; i++)\n        y[i] ="
X = "        y[i] = x[i] /"
INFERS = "    shapes->out[0].dtype = DLC_F32;\n"
FIELDS = ("    int64_t count;\n};", "    int64_t count, begin, end, rows, features, frozen;\n    const dlc_layer_group *group;\n"
          "    dlc_phase phase;\n    dlc_dtype dtype;\n};")
CREATES = "    made->name = args->name;\n"
KEEPS = (CREATES, CREATES + "    made->begin = args->channel_begin;\n    made->end = args->channel_end ? args->channel_end : 8;\n"
         "    made->group = args->group;\n    made->phase = args->phase;\n    made->frozen = args->frozen;\n"
         "    made->rows = args->plain_params;\n")


def caps(bits):
    return (CAPS, f".caps = {bits}")


def body(call, arguments, text):
    """Replaces a call of the template."""
    head = f"static dlc_status layer_{call}(dlc_layer *layer, {arguments}) {{"
    return (head, head + text + "}\n" + head.replace(f"layer_{call}(", f"unused_{call}("))


def infer(text):
    return body("infer", "dlc_layer_shapes *shapes", text)


def prepare(text):
    return body("prepare", "dlc_layer_memory *memory", text)


def forward(text):
    return body("forward", "const dlc_layer_run *run", text)


def backward(text):
    return body("backward", "const dlc_layer_run *run", text)


# y = W x, which splits channels and backward.
CHANNELS = (FIELDS, KEEPS, caps("DLC_LAYER_CHANNEL_PARALLEL | DLC_LAYER_SPLIT_BACKWARD"), infer("""
    if (shapes->inputs != 1 || shapes->in[0].shape.rank < 2)
        return host->fail(DLC_ERR_CONFIG, "one input");
    layer->rows = shapes->in[0].shape.dims[0];
    layer->features = dlc_shape_count(&shapes->in[0].shape) / layer->rows;
    int64_t channels = layer->end - layer->begin;
    shapes->out[0].shape = (dlc_shape){2, {layer->rows, channels}};
    shapes->out[0].dtype = DLC_F32;
    shapes->params = 1;
    shapes->param[0].name = "weight";
    shapes->param[0].shape = (dlc_shape){2, {channels, layer->features}};
    shapes->param[0].filler = "xavier";
    shapes->param[0].fan_in = layer->features;
    return DLC_OK;
"""), prepare("""
    memory->in[0].layout = memory->out[0].layout = NULL;
    memory->reads_in = 1;
    return DLC_OK;
"""), forward("""
    const float *x = run->in[0], *w = run->param[0];
    float *y = run->out[0];
    int64_t channels = layer->end - layer->begin, k = layer->features;
    for (int64_t n = 0; n < layer->rows; n++)
        for (int64_t c = 0; c < channels; c++) {
            float sum = 0;
            for (int64_t i = 0; i < k; i++)
                sum += w[c * k + i] * x[n * k + i];
            y[n * channels + c] = sum;
        }
    return DLC_OK;
"""), backward("""
    uint32_t parts = run->backward ? run->backward : 3;
    const float *x = run->in[0], *w = run->param[0], *dy = run->out_diff[0];
    float *dx = run->in_diff[0], *dw = run->param_diff[0];
    int64_t channels = layer->end - layer->begin, k = layer->features;
    for (int64_t i = 0; parts & DLC_BACKWARD_WEIGHTS && i < channels * k; i++) {
        float sum = 0;
        for (int64_t n = 0; n < layer->rows; n++)
            sum += dy[n * channels + i / k] * x[n * k + i % k];
        dw[i] = sum;
    }
    for (int64_t i = 0; dx && parts & DLC_BACKWARD_DATA && i < layer->rows * k; i++) {
        float sum = 0;
        for (int64_t c = 0; c < channels; c++)
            sum += dy[i / k * channels + c] * w[c * k + i % k];
        dx[i] = sum;
    }
    return DLC_OK;
"""))

READS_TARGETS = """
    memory->in[0].layout = memory->in[1].layout = memory->out[0].layout = NULL;
    memory->reads_in = 3;
    memory->reads_out = 1;
    return DLC_OK;
"""

# Half of the squared distance of values and targets.
LOSS = (FIELDS, KEEPS, caps("DLC_LAYER_METRIC | DLC_LAYER_LOSS"), infer("""
    if (shapes->inputs != 2 || shapes->in[1].dtype != DLC_F32 ||
        !dlc_shape_equal(&shapes->in[0].shape, &shapes->in[1].shape))
        return host->fail(DLC_ERR_CONFIG, "values and targets of one shape");
    layer->rows = shapes->in[0].shape.dims[0];
    layer->count = dlc_shape_count(&shapes->in[0].shape);
    shapes->out[0].shape = (dlc_shape){1, {2}};
    shapes->out[0].dtype = DLC_F32;
    shapes->no_gradient = 2;
    return DLC_OK;
"""), prepare(READS_TARGETS), forward("""
    const float *x = run->in[0], *t = run->in[1];
    float *y = run->out[0];
    int64_t each = layer->count / layer->rows;
    double sum = 0, samples = 0;
    for (int64_t n = 0; n < layer->rows; n++) {
        if (isnan(t[n * each]))
            continue;
        samples++;
        for (int64_t i = n * each; i < (n + 1) * each; i++)
            sum += (x[i] - t[i]) * (x[i] - t[i]) / 2;
    }
    y[0] = (float)sum;
    y[1] = (float)samples;
    return DLC_OK;
"""), backward("""
    const float *x = run->in[0], *t = run->in[1], *y = run->out[0];
    float *dx = run->in_diff[0];
    for (int64_t i = 0; dx && i < layer->count; i++)
        dx[i] = isnan(t[i]) ? 0 : run->loss_scale * (x[i] - t[i]) / y[1];
    return DLC_OK;
"""))

# The template, with activations of the type of the input.
CONVERT = """
struct dlc_reorder {
    dlc_dtype from, to;
    int64_t count;
};
static float load(const void *x, dlc_dtype type, int64_t i) {
    if (type == DLC_F32)
        return ((const float *)x)[i];
    union { uint32_t bits; float value; } u = {(uint32_t)((const uint16_t *)x)[i] << 16};
    return u.value;
}
static void store(void *x, dlc_dtype type, int64_t i, float value) {
    union { float value; uint32_t bits; } u = {value};
    if (type == DLC_F32)
        ((float *)x)[i] = value;
    else
        ((uint16_t *)x)[i] = (uint16_t)((u.bits + 0x7fff + (u.bits >> 16 & 1)) >> 16);
}
"""
REORDER = '    return host->fail(DLC_ERR_UNSUPPORTED, "sample supports the plain layout only");'
RUN = '    return host->fail(DLC_ERR_INTERNAL, "sample supports the plain layout only");'
BFLOAT = (FIELDS, KEEPS, caps("DLC_LAYER_BF16"), ("/* ---- Building", CONVERT + "/* ---- Building"),
          (INFERS, "    shapes->out[0].dtype = layer->dtype = shapes->in[0].dtype;\n"),
          ("    tensor->dtype = DLC_F32;\n", ""), forward("""
    for (int64_t i = 0; i < layer->count; i++) {
        float x = load(run->in[0], layer->dtype, i);
        store(run->out[0], layer->dtype, i, x / (1 + layer->slope * fabsf(x)));
    }
    return DLC_OK;
"""), backward("""
    for (int64_t i = 0; run->in_diff[0] && i < layer->count; i++) {
        float root = 1 - layer->slope * fabsf(load(run->out[0], layer->dtype, i));
        store(run->in_diff[0], layer->dtype, i, load(run->out_diff[0], layer->dtype, i) * root * root);
    }
    return DLC_OK;
"""), (REORDER, """
    *reorder = host->alloc(sizeof **reorder);
    **reorder = (dlc_reorder){from->dtype, to->dtype, dlc_shape_count(&from->shape)};
    return DLC_OK;"""), (RUN, """
    for (int64_t i = 0; i < reorder->count; i++)
        store(dst, reorder->to, i, load(src, reorder->from, i));
    return DLC_OK;"""), ("family_reorder_destroy(dlc_reorder *reorder) {\n    (void)reorder;",
                         "family_reorder_destroy(dlc_reorder *reorder) {\n    host->free(reorder);"))

# y = w x, whose weight is the second of two elements unless parameters must be plain.
LAID_OUT = """
static dlc_status to_own(dlc_layer *layer, int32_t index, const float *plain, float *own) {
    (void)index;
    own[0] = 0;
    own[!layer->rows] = plain[0];
    return DLC_OK;
}
static dlc_status to_plain(dlc_layer *layer, int32_t index, const float *own, float *plain) {
    (void)index;
    plain[0] = own[!layer->rows];
    return DLC_OK;
}
static const dlc_layer_ops ops = {
    .param_import = to_own,
    .param_export = to_plain,"""
PADDED = (FIELDS, KEEPS, ("static const dlc_layer_ops ops = {", LAID_OUT),
          (INFERS, INFERS + '    shapes->params = 1;\n    shapes->param[0].name = "weight";\n'
           "    shapes->param[0].shape = (dlc_shape){1, {1}};\n"), prepare("""
    memory->in[0].layout = memory->out[0].layout = NULL;
    memory->reads_in = 1;
    memory->param_count[0] = 1 + !layer->rows;
    layer->count = dlc_shape_count(&memory->in[0].shape);
    return DLC_OK;
"""), forward("""
    const float *x = run->in[0], *w = run->param[0];
    for (int64_t i = 0; i < layer->count; i++)
        ((float *)run->out[0])[i] = w[!layer->rows] * x[i];
    return DLC_OK;
"""), backward("""
    const float *x = run->in[0], *w = run->param[0], *dy = run->out_diff[0];
    float *dx = run->in_diff[0], *dw = run->param_diff[0], sum = 0;
    for (int64_t i = 0; i < layer->count; i++)
        sum += x[i] * dy[i];
    dw[0] = 0;
    dw[!layer->rows] = sum;
    for (int64_t i = 0; dx && i < layer->count; i++)
        dx[i] = w[!layer->rows] * dy[i];
    return DLC_OK;
"""))

# y = x - mean, of the samples of all ranks.
GATHER = """
    float sum[2] = {0}, mean;
    for (int64_t i = 0; !run->empty && i < layer->count; i++)
        sum[0] += v[i] / (float)layer->count;
    if (layer->group)
        layer->group->all_gather(layer->group->context, sum, sizeof *sum);
    mean = layer->group ? (sum[0] + sum[1]) / 2 : sum[0];
    if (run->empty)
        return DLC_OK;
"""
COLLECTIVE = (FIELDS, KEEPS, (INFERS, INFERS + "    shapes->collective = 1;\n"),
              prepare("""
    memory->in[0].layout = memory->out[0].layout = NULL;
    layer->count = dlc_shape_count(&memory->in[0].shape);
    return DLC_OK;
"""), forward("    const float *v = run->in[0];\n" + GATHER + """
    for (int64_t i = 0; i < layer->count; i++)
        ((float *)run->out[0])[i] = v[i] - mean;
    return DLC_OK;
"""), backward("    const float *v = run->out_diff[0];\n" + GATHER + """
    for (int64_t i = 0; run->in_diff[0] && i < layer->count; i++)
        ((float *)run->in_diff[0])[i] = v[i] - mean;
    return DLC_OK;
"""))

# Zeroes elements at random.
RANDOM = (FIELDS, KEEPS, (CREATES, CREATES + "    made->begin = (int64_t)args->seed;\n    made->end = args->index;\n"),
          ("    made->end = args->channel_end ? args->channel_end : 8;\n", ""), ("    made->begin = args->channel_begin;\n", ""),
          ("/* ---- Building", """
static float keeps(const dlc_layer *layer, const dlc_layer_run *run, int64_t i) {
    const int64_t at[] = {layer->begin, layer->end, run->iteration, run->sample + i / layer->features,
                          i % layer->features};
    uint64_t hash = 1;
    for (int k = 0; k < 5; k++) {
        hash = (hash ^ (uint64_t)at[k]) * 0x9e3779b97f4a7c15;
        hash ^= hash >> 29;
    }
    return (float)(hash >> 20 & 1);
}
/* ---- Building"""), prepare("""
    memory->in[0].layout = memory->out[0].layout = NULL;
    layer->count = dlc_shape_count(&memory->in[0].shape);
    layer->features = layer->count / memory->in[0].shape.dims[0];
    return DLC_OK;
"""), forward("""
    for (int64_t i = 0; i < layer->count; i++)
        ((float *)run->out[0])[i] = keeps(layer, run, i) * ((const float *)run->in[0])[i];
    return DLC_OK;
"""), backward("""
    for (int64_t i = 0; run->in_diff[0] && i < layer->count; i++)
        ((float *)run->in_diff[0])[i] = keeps(layer, run, i) * ((float *)run->out_diff[0])[i];
    return DLC_OK;
"""), caps("DLC_LAYER_SAMPLEWISE"))

# Cross entropy of softmax(scores) and labels.
ENTROPY = (FIELDS, KEEPS, caps("DLC_LAYER_METRIC | DLC_LAYER_LOSS | DLC_LAYER_CLASSIFIES"), infer("""
    if (shapes->inputs != 2 || shapes->in[1].dtype != DLC_I32 || shapes->in[0].shape.rank != 2)
        return host->fail(DLC_ERR_CONFIG, "scores and labels");
    layer->rows = shapes->in[0].shape.dims[0];
    layer->features = shapes->in[0].shape.dims[1];
    shapes->out[0].shape = (dlc_shape){1, {2}};
    shapes->out[0].dtype = DLC_F32;
    shapes->no_gradient = 2;
    return DLC_OK;
"""), prepare(READS_TARGETS), ("/* ---- Running", """
static float logarithm(const float *x, int64_t n) {
    float top = x[0], sum = 0;
    for (int64_t c = 1; c < n; c++)
        top = fmaxf(top, x[c]);
    for (int64_t c = 0; c < n; c++)
        sum += expf(x[c] - top);
    return logf(sum) + top;
}
/* ---- Running"""), forward("""
    const float *x = run->in[0];
    const int32_t *label = run->in[1];
    float *y = run->out[0];
    y[0] = y[1] = 0;
    for (int64_t n = 0; n < layer->rows; n++, x += layer->features)
        if (label[n] >= 0) {
            y[0] += logarithm(x, layer->features) - x[label[n]];
            y[1]++;
        }
    return DLC_OK;
"""), backward("""
    const float *x = run->in[0], *y = run->out[0];
    const int32_t *label = run->in[1];
    float *dx = run->in_diff[0];
    for (int64_t i = 0; dx && i < layer->rows * layer->features; i++) {
        int64_t n = i / layer->features, c = i % layer->features;
        float p = expf(x[i] - logarithm(x + n * layer->features, layer->features));
        dx[i] = label[n] < 0 ? 0 : run->loss_scale / y[1] * (p - (c == label[n]));
    }
    return DLC_OK;
"""))

# Two outputs, x and 2 x.
TWO = (FIELDS, KEEPS, (INFERS, INFERS + "    shapes->outputs = 2;\n    shapes->out[1] = shapes->out[0];\n"), prepare("""
    memory->in[0].layout = memory->out[0].layout = memory->out[1].layout = NULL;
    layer->count = dlc_shape_count(&memory->in[0].shape);
    return DLC_OK;
"""), forward("""
    for (int64_t i = 0; i < layer->count; i++) {
        float x = ((const float *)run->in[0])[i];
        ((float *)run->out[0])[i] = x;
        ((float *)run->out[1])[i] = 2 * x;
    }
    return DLC_OK;
"""), backward("""
    const float *a = run->out_diff[0], *b = run->out_diff[1];
    for (int64_t i = 0; run->in_diff[0] && i < layer->count; i++)
        ((float *)run->in_diff[0])[i] = a[i] + 2 * b[i];
    return DLC_OK;
"""))

# x + 2 y.
SUM = (FIELDS, KEEPS, infer("""
    if (shapes->inputs != 2 || !dlc_shape_equal(&shapes->in[0].shape, &shapes->in[1].shape))
        return host->fail(DLC_ERR_CONFIG, "two inputs of one shape");
    shapes->out[0] = shapes->in[0];
    return DLC_OK;
"""), prepare("""
    memory->in[0].layout = memory->in[1].layout = memory->out[0].layout = NULL;
    layer->count = dlc_shape_count(&memory->in[0].shape);
    return DLC_OK;
"""), forward("""
    const float *a = run->in[0], *b = run->in[1];
    for (int64_t i = 0; i < layer->count; i++)
        ((float *)run->out[0])[i] = a[i] + 2 * b[i];
    return DLC_OK;
"""), backward("""
    const float *dy = run->out_diff[0];
    float *da = run->in_diff[0], *db = run->in_diff[1];
    for (int64_t i = 0; i < layer->count; i++) {
        if (da)
            da[i] = dy[i];
        if (db)
            db[i] = 2 * dy[i];
    }
    return DLC_OK;
"""))

# Keeps a piece of memory each of the first times that it is opened, as a cache does.
POOL = (("    made->name = args->name;\n", """    made->name = args->name;
    static void *volatile pool[40];
    static int filled;
    if (filled < 40)
        pool[filled++] = __builtin_malloc(5000);
"""),)
SOUND = (CHANNELS, POOL, LOSS, BFLOAT, PADDED, COLLECTIVE, RANDOM, ENTROPY, TWO, SUM, (caps("DLC_LAYER_POINTWISE | DLC_LAYER_RECOMPUTABLE"),))
GETS = 'host->get_float(args->settings, "slope")'
FUSES = ("static const dlc_layer_ops ops = {", """
static dlc_status layer_fuse(dlc_layer *layer, const dlc_feature *next, const dlc_settings *settings) {
    return DLC_OK;
}
static const dlc_layer_ops ops = {
    .fuse = layer_fuse,""")
# Refuses everything that the check tries.
PICKY = (("    if (shapes->inputs != 1)\n", "    if (shapes->inputs != 1 || shapes->in[0].shape.dims[0] != 7)\n"),)
HANGS = ((FORWARD, "    for (volatile int on = 1; on;)\n        ;\n" + FORWARD),)


def add(mutant, weight):
    """Adds the mutants; `weight` makes of the template a layer with a weight."""
    def of(check, *changes):
        mutant(check, "layer", *changes)

    of("lifecycle.settings", (GETS, GETS.replace("get_float", "get_int")))
    of("lifecycle.settings", (GETS, GETS.replace("slope", "bend")))
    of("layer.runs", (FORWARD, '    if (!host->get_float)\n        return DLC_OK;\n' + FORWARD), (GETS, "1"),
       FIELDS, (CREATES, CREATES + "    made->begin = (int64_t)(uintptr_t)args->settings;\n"),
       (X, X.replace("x[i]", 'x[i] * (float)host->get_bool((const void *)(uintptr_t)layer->begin, "slope")')))

    of("layer.elementwise", caps("DLC_LAYER_POINTWISE"),
       ("    shapes->out[0].shape = shapes->in[0].shape;", "    shapes->out[0].shape = shapes->in[0].shape;\n"
        "    shapes->out[0].shape.dims[0] *= 2;"), (FORWARD, FORWARD.replace("y[i] =", "y[i] = y[i + layer->count] =")))
    of("layer.elementwise", *weight, caps("DLC_LAYER_POINTWISE"))
    of("layer.elementwise", caps("DLC_LAYER_POINTWISE"), ("    memory->in_place = 1;\n", ""),
       (X, "        y[i] = (i ? x[i - 1] / 9 : 0) + x[i] /"))
    of("layer.elementwise", caps("DLC_LAYER_POINTWISE"), (X, "        y[i] = (1 + i % 3) * x[i] /"))
    of("layer.elementwise", caps("DLC_LAYER_POINTWISE"), ("dx[i] = dy[i] *", "dx[i] = (i ? dy[i - 1] / 9 : 0) + dy[i] *"))
    of("layer.samplewise", *weight, caps("DLC_LAYER_SAMPLEWISE"))
    of("layer.samplewise", caps("DLC_LAYER_SAMPLEWISE"), (FORWARD, "    float first = x[0];\n" + FORWARD),
       (X, "        y[i] = first + x[i] /"))
    of("layer.samplewise", caps("DLC_LAYER_SAMPLEWISE"), (X, "        y[i] = (i * 2 < layer->count) * x[i] /"))
    of("layer.samplewise", caps("DLC_LAYER_SAMPLEWISE"),
       ("    shapes->out[0].shape = shapes->in[0].shape;", "    shapes->out[0].shape = (dlc_shape){1, {1}};"),
       (FORWARD, FORWARD.replace("y[i] =", "y[0] =")), ("dx[i] = dy[i]", "dx[i] = dy[0]"), ("fabsf(y[i])", "fabsf(y[0])"))

    of("layer.channel_parallel", *CHANNELS, ("= sum;\n        }", "= sum + 0.1f * (float)c;\n        }"))
    of("layer.channel_parallel", *CHANNELS, ("fan_in = layer->features", "fan_in = channels"))
    of("layer.channel_parallel", *CHANNELS, ("        dx[i] = sum;", "        dx[i] = sum / (float)channels;"))
    of("layer.channel_parallel", *CHANNELS, ("(dlc_shape){2, {channels, layer->features}}",
                                             "(dlc_shape){2, {layer->features, channels}}"))
    of("layer.channel_parallel", *CHANNELS, ("args->channel_end ? args->channel_end : 8", "8"))
    of("layer.channel_parallel", *CHANNELS, ("args->channel_begin", "0"), ("args->channel_end ? args->channel_end : 8", "8"))
    of("layer.split_backward", *CHANNELS, ("parts & DLC_BACKWARD_DATA", "parts == 3"))
    of("layer.split_backward", *CHANNELS, ("dx && parts & DLC_BACKWARD_DATA", "dx"))
    of("layer.split_backward", *CHANNELS, ("        dw[i] = sum;", "        dw[i] = sum / (parts == 3 ? 1 : 2);"))
    of("layer.frozen", *CHANNELS, ("parts & DLC_BACKWARD_WEIGHTS && ", ""))
    of("layer.frozen", *CHANNELS, ("        dx[i] = sum;", "        dx[i] = layer->frozen ? 0 : sum;"))

    of("layer.bf16", caps("DLC_LAYER_BF16"))
    of("layer.bf16", *BFLOAT, (">> 16);\n}", ">> 16) & 0xfff0;\n}"))
    of("layer.bf16", *BFLOAT, ("x / (1 + layer->slope", "x / (1 + (layer->dtype == DLC_F32) * layer->slope"))
    of("layer.bf16", *BFLOAT, ("layer->dtype, i) * root", "DLC_BF16, i) * root"))
    of("layer.fp16", caps("DLC_LAYER_F16"))

    of("layer.fillers", *weight, ("shapes->params = 1;", 'shapes->params = 1;\n    shapes->param[0].filler = "normal(0.1)";'))
    of("layer.fillers", *CHANNELS, ("    shapes->param[0].fan_in = layer->features;\n", ""))
    of("layer.loss_scale", *LOSS, ("run->loss_scale * ", ""))
    of("layer.labels", *LOSS, ("if (isnan(t[n * each]))", "if (0)"))
    of("layer.labels", *LOSS, ("y[0] = (float)sum;", "y[0] = (float)(sum / samples);"), ("y[1] = (float)samples", "y[1] = 1"),
       ("/ y[1];", "/ layer->rows;"))
    of("layer.labels", *LOSS, ("/ y[1];", "/ layer->rows;"))
    of("layer.labels", *LOSS, ("isnan(t[i]) ? 0 : ", ""))
    of("layer.gradients", *LOSS, ("/ y[1];", "/ layer->count;"))

    of("layer.scores", *ENTROPY, ("expf(x[c] - top)", "expf(x[c])"), ("logf(sum) + top", "logf(sum)"))
    of("layer.labels", *ENTROPY, ("        if (label[n] >= 0) {", "        {"), ("x[label[n]]", "x[label[n] < 0 ? 0 : label[n]]"))
    of("layer.random", *RANDOM, ("run->iteration,", "0,"))
    of("layer.random", *RANDOM, ("run->sample + i / layer->features", "i / layer->features"))
    of("layer.random", *RANDOM, ("layer->end, run", "1, run"))
    of("layer.samplewise", *RANDOM, ("run->sample + i / layer->features", "run->sample + run->sample * i / layer->features"))
    of("layer.gradients", *RANDOM, ("keeps(layer, run, i) * ((float *)", "keeps(layer, run, i + 1) * ((float *)"))
    of("layer.gradients", *TWO, ("a[i] + 2 * b[i]", "a[i]"))
    of("layer.unwanted", *SUM, ("        if (db)\n", ""))
    of("layer.gradients", (X, "        y[i] = i >= 8192 ? 0 : x[i] /"))
    of("layer.infer_again", (INFERS, INFERS + "    if (!layer->count)\n        layer->count = dlc_shape_count(&shapes->in[0].shape);\n"),
       ("    layer->count = dlc_shape_count(&memory->in[0].shape);\n", ""))
    of("layer.threads", FIELDS, KEEPS, ("    (void)args;\n    *context = NULL;", "    *context = (void *)(uintptr_t)args->threads;"),
       ("    (void)context;\n}", "}"), (CREATES, CREATES + "    made->features = (int64_t)(uintptr_t)args->context;\n"),
       (FORWARD, "    layer->count -= layer->count % layer->features;\n" + FORWARD))
    of("layer.plain_params", *PADDED, ("made->rows = args->plain_params", "made->rows = 0"))
    of("layer.test_params", *PADDED, ("made->rows = args->plain_params", "made->rows = args->phase == DLC_PHASE_TEST"))
    of("layer.empty", *COLLECTIVE, (GATHER, GATHER.replace("if (layer->group)", "if (layer->group && !run->empty)")))
    of("layer.empty", *COLLECTIVE, (GATHER, GATHER.replace("if (run->empty)", "if (0)")))
    of("layer.runs", *COLLECTIVE, ("    shapes->collective = 1;\n", ""))
    of("layer.fuse", caps("DLC_LAYER_POINTWISE"), FUSES)
