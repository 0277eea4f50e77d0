/* Reference implementations of the layers: plain loops in double precision. */
#include "reference.h"

#include <check.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "config/config.h"

static int64_t get(const fixture *r, const char *name) {
    return dlc_settings_get_int(r->settings, name);
}

static double number(const fixture *r, const char *name) {
    return dlc_settings_get_float(r->settings, name);
}

static int is(const fixture *r, const char *name, const char *text) {
    return strcmp(dlc_settings_get_string(r->settings, name), text) == 0;
}

/* The value of "<name>_h" if given, else of <name>. */
static int64_t side(const fixture *r, const char *name, const char *suffix,
                    const char *whole) {
    char key[64];
    (void)snprintf(key, sizeof key, "%s_%s", name, suffix);
    return get(r, dlc_settings_is_set(r->settings, key) ? key : whole);
}

typedef struct window {
    int64_t k[2], s[2], p[2], d[2];
} window;

static window window_of(const fixture *r, int dilated) {
    static const char *const suffix[2] = {"h", "w"};
    window w;
    for (int i = 0; i < 2; i++) {
        w.k[i] = side(r, "kernel", suffix[i], "kernel_size");
        w.s[i] = side(r, "stride", suffix[i], "stride");
        w.p[i] = side(r, "pad", suffix[i], "pad");
        w.d[i] = dilated ? side(r, "dilation", suffix[i], "dilation") : 1;
    }
    return w;
}

static const int64_t *in_dims(const fixture *r) {
    return r->in[0].shape.dims;
}

static const int64_t *out_dims(const fixture *r) {
    return r->out[0].shape.dims;
}

static int64_t at4(const int64_t *dims, int64_t n, int64_t c, int64_t y, int64_t x) {
    return ((n * dims[1] + c) * dims[2] + y) * dims[3] + x;
}

/* Elements of one channel of one sample. */
static int64_t spatial_of(const fixture *r) {
    return fixture_in_count(r, 0) / in_dims(r)[0] / in_dims(r)[1];
}

/* ---- Weighted layers --------------------------------------------------------- */

/* A window of one plane whose corner is at (top, left), which may be outside. Arguments
 * are passed by value, which is faster under sanitizers in this innermost loop. */
static double conv_plane(const double *plane, int64_t rows, int64_t columns,
                         const double *weight, window w, int64_t top, int64_t left) {
    double sum = 0;
    for (int64_t i = 0; i < w.k[0]; i++) {
        int64_t y = top + i * w.d[0];
        if (y < 0 || y >= rows)
            continue;
        for (int64_t j = 0; j < w.k[1]; j++) {
            int64_t x = left + j * w.d[1];
            if (x >= 0 && x < columns)
                sum += plane[y * columns + x] * weight[i * w.k[1] + j];
        }
    }
    return sum;
}

static double conv_point(const fixture *r, const ref_values *v, const window *w,
                         int64_t groups, int64_t n, int64_t f, int64_t y, int64_t x) {
    const int64_t *in = in_dims(r), *wd = r->param[0].shape.dims;
    int64_t per_group = in[1] / groups;
    int64_t first = f / (wd[0] / groups) * per_group;
    double sum = r->memory.params > 1 ? v->param[1][f] : 0;
    for (int64_t c = 0; c < per_group; c++)
        sum += conv_plane(v->in[0] + at4(in, n, first + c, 0, 0), in[2], in[3],
                          v->param[0] + at4(wd, f, c, 0, 0), *w, y * w->s[0] - w->p[0],
                          x * w->s[1] - w->p[1]);
    return sum;
}

static void ref_convolution(const fixture *r, const ref_values *v) {
    window w = window_of(r, 1);
    const int64_t *out = out_dims(r), groups = get(r, "group");
    for (int64_t n = 0; n < out[0]; n++)
        for (int64_t f = 0; f < out[1]; f++)
            for (int64_t y = 0; y < out[2]; y++)
                for (int64_t x = 0; x < out[3]; x++)
                    v->out[at4(out, n, f, y, x)] = conv_point(r, v, &w, groups, n, f, y,
                                                              x);
}

/* Each pixel adds its filter to the output. */
static void ref_deconvolution(const fixture *r, const ref_values *v) {
    window w = window_of(r, 0);
    const int64_t *in = in_dims(r), *out = out_dims(r), *wd = r->param[0].shape.dims;
    int64_t groups = get(r, "group"), area = out[2] * out[3];
    for (int64_t i = 0; i < fixture_out_count(r); i++)
        v->out[i] = r->memory.params > 1 ? v->param[1][i / area % out[1]] : 0;
    for (int64_t i = 0; i < fixture_in_count(r, 0) * wd[1]; i++) {
        int64_t f = i % wd[1], at = i / wd[1], x = at % in[3], y = at / in[3] % in[2];
        int64_t c = at / in[3] / in[2] % in[1], n = at / in[3] / in[2] / in[1];
        int64_t to = c / (in[1] / groups) * wd[1] + f;
        for (int64_t tap = 0; tap < w.k[0] * w.k[1]; tap++) {
            int64_t row = y * w.s[0] - w.p[0] + tap / w.k[1];
            int64_t column = x * w.s[1] - w.p[1] + tap % w.k[1];
            if (row >= 0 && row < out[2] && column >= 0 && column < out[3])
                v->out[at4(out, n, to, row, column)] +=
                    v->in[0][at] * v->param[0][(c * wd[1] + f) * w.k[0] * w.k[1] + tap];
        }
    }
}

static void ref_inner_product(const fixture *r, const ref_values *v) {
    int64_t outputs = out_dims(r)[1], features = r->param[0].shape.dims[1];
    for (int64_t n = 0; n < out_dims(r)[0]; n++)
        for (int64_t o = 0; o < outputs; o++) {
            double sum = r->memory.params > 1 ? v->param[1][o] : 0;
            for (int64_t i = 0; i < features; i++)
                sum += v->in[0][n * features + i] * v->param[0][o * features + i];
            v->out[n * outputs + o] = sum;
        }
}

/* ---- Pooling ----------------------------------------------------------------- */

static double pool_point(const fixture *r, const double *plane, const window *w,
                         int average, int inside, int64_t y, int64_t x) {
    const int64_t *in = in_dims(r);
    int64_t y0 = y * w->s[0] - w->p[0], x0 = x * w->s[1] - w->p[1];
    int64_t y1 = y0 + w->k[0], x1 = x0 + w->k[1];
    int64_t y2 = y1 < in[2] + w->p[0] ? y1 : in[2] + w->p[0];
    int64_t x2 = x1 < in[3] + w->p[1] ? x1 : in[3] + w->p[1];
    double most = -DBL_MAX, sum = 0;
    int64_t seen = 0;
    for (int64_t i = y0; i < y2; i++)
        for (int64_t j = x0; j < x2; j++) {
            if (i < 0 || j < 0 || i >= in[2] || j >= in[3])
                continue;
            double value = plane[i * in[3] + j];
            most = value > most ? value : most;
            sum += value;
            seen++;
        }
    if (!seen)
        ck_abort_msg("a window of padding alone");
    if (!average)
        return most;
    return sum / (double)(inside ? seen : (y2 - y0) * (x2 - x0));
}

static void ref_pooling(const fixture *r, const ref_values *v) {
    window w;
    const int64_t *in = in_dims(r), *out = out_dims(r);
    int average = is(r, "method", "average"), inside = is(r, "average_over", "image");
    if (dlc_settings_get_bool(r->settings, "global"))
        w = (window){{in[2], in[3]}, {1, 1}, {0, 0}, {1, 1}};
    else
        w = window_of(r, 0);
    for (int64_t plane = 0; plane < in[0] * in[1]; plane++)
        for (int64_t y = 0; y < out[2]; y++)
            for (int64_t x = 0; x < out[3]; x++)
                v->out[(plane * out[2] + y) * out[3] + x] = pool_point(
                    r, v->in[0] + plane * in[2] * in[3], &w, average, inside, y, x);
}

/* ---- Upsampling -------------------------------------------------------------- */

/* The pixels on both sides of a place between centers, and the share of the second. */
static double between(int64_t at, int64_t factor, int64_t size, int64_t side[2]) {
    double place = ((double)at + 0.5) / (double)factor - 0.5;
    double left = floor(place);
    side[0] = left < 0 ? 0 : (int64_t)left;
    side[1] = (int64_t)left + 1 < size ? (int64_t)left + 1 : size - 1;
    return place - left;
}

static void ref_upsample(const fixture *r, const ref_values *v) {
    const int64_t *in = in_dims(r), *out = out_dims(r), factor = get(r, "factor");
    int nearest = is(r, "method", "nearest");
    for (int64_t i = 0; i < fixture_out_count(r); i++) {
        int64_t x = i % out[3], y = i / out[3] % out[2], rows[2], columns[2];
        const double *plane = v->in[0] + i / out[3] / out[2] * in[2] * in[3];
        double down = between(y, factor, in[2], rows);
        double right = between(x, factor, in[3], columns);
        double top = (1 - right) * plane[rows[0] * in[3] + columns[0]] +
                     right * plane[rows[0] * in[3] + columns[1]];
        double bottom = (1 - right) * plane[rows[1] * in[3] + columns[0]] +
                        right * plane[rows[1] * in[3] + columns[1]];
        v->out[i] = nearest ? plane[y / factor * in[3] + x / factor]
                            : (1 - down) * top + down * bottom;
    }
}

/* ---- Activations ------------------------------------------------------------- */

static double softplus(double x) {
    return log1p(exp(x));
}

static double activate(const fixture *r, const char *type, double x) {
    if (strcmp(type, "relu") == 0)
        return x > 0 ? x : number(r, "negative_slope") * x;
    if (strcmp(type, "sigmoid") == 0)
        return 1 / (1 + exp(-x));
    if (strcmp(type, "tanh") == 0)
        return tanh(x);
    if (strcmp(type, "elu") == 0)
        return x > 0 ? x : number(r, "alpha") * expm1(x);
    if (strcmp(type, "gelu") == 0)
        return is(r, "form", "erf")
                   ? 0.5 * x * (1 + erf(x / sqrt(2)))
                   : 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    if (strcmp(type, "swish") == 0)
        return x / (1 + exp(-number(r, "beta") * x));
    if (strcmp(type, "softplus") == 0)
        return softplus(x);
    if (strcmp(type, "mish") == 0)
        return x * tanh(softplus(x));
    if (strcmp(type, "hardswish") == 0)
        return x * fmin(fmax(x + 3, 0), 6) / 6;
    if (strcmp(type, "clip") == 0)
        return fmin(fmax(x, number(r, "min")), number(r, "max"));
    return fabs(x); /* abs */
}

static void ref_activation(const fixture *r, const ref_values *v) {
    for (int64_t i = 0; i < fixture_out_count(r); i++)
        v->out[i] = activate(r, r->spec.type, v->in[0][i]);
}

/* ---- Losses and metrics ------------------------------------------------------ */

static int counts(const fixture *r, int32_t label) {
    return label != DLC_LABEL_NONE &&
           !(dlc_settings_is_set(r->settings, "ignore_label") &&
             label == get(r, "ignore_label"));
}

/* Score of class c at position i. */
static double score(const fixture *r, const ref_values *v, int64_t i, int64_t c) {
    const int64_t classes = in_dims(r)[1], spatial = spatial_of(r);
    return v->in[0][(i / spatial * classes + c) * spatial + i % spatial];
}

/* With a probability of each class instead of a label; NaN does not count. */
static void ref_soft_loss(const fixture *r, const ref_values *v) {
    int64_t classes = in_dims(r)[1], spatial = spatial_of(r);
    double smooth = number(r, "label_smoothing");
    v->out[0] = v->out[1] = 0;
    for (int64_t i = 0; i < fixture_in_count(r, 0) / classes; i++) {
        const double *want = &v->in[1][i / spatial * classes * spatial + i % spatial];
        double sum = 0;
        if (isnan(want[0]))
            continue;
        for (int64_t c = 0; c < classes; c++)
            sum += exp(score(r, v, i, c));
        for (int64_t c = 0; c < classes; c++)
            v->out[0] -= ((1 - smooth) * want[c * spatial] + smooth / (double)classes) *
                         (score(r, v, i, c) - log(sum));
        v->out[1] += 1;
    }
}

static void ref_softmax_loss(const fixture *r, const ref_values *v) {
    int64_t classes = in_dims(r)[1];
    double smooth = number(r, "label_smoothing");
    if (!v->labels) {
        ref_soft_loss(r, v);
        return;
    }
    v->out[0] = v->out[1] = 0;
    for (int64_t i = 0; i < fixture_in_count(r, 1); i++) {
        if (!counts(r, v->labels[i]))
            continue;
        double top = -DBL_MAX, sum = 0;
        for (int64_t c = 0; c < classes; c++)
            top = fmax(top, score(r, v, i, c));
        for (int64_t c = 0; c < classes; c++)
            sum += exp(score(r, v, i, c) - top);
        for (int64_t c = 0; c < classes; c++) {
            double want = smooth / (double)classes +
                          (c == v->labels[i] ? 1 - smooth : 0);
            v->out[0] -= want * (score(r, v, i, c) - top - log(sum));
        }
        v->out[1] += 1;
    }
}

/* Sums what `loss` says of each value and its target; the mean is over samples, or
 * over elements. */
static void ref_pair_loss(const fixture *r, const ref_values *v,
                          double (*loss)(double value, double target)) {
    int64_t samples = in_dims(r)[0], each = fixture_in_count(r, 0) / samples;
    v->out[0] = v->out[1] = 0;
    for (int64_t n = 0; n < samples; n++) {
        double elements = 0;
        for (int64_t i = n * each; i < (n + 1) * each; i++) {
            double target = v->labels ? v->labels[i] : v->in[1][i];
            if (isnan(target) || (v->labels && !counts(r, v->labels[i])))
                continue;
            v->out[0] += loss(v->in[0][i], target);
            elements++;
        }
        v->out[1] += is(r, "normalize", "element") ? elements : elements > 0;
    }
}

static double cross_entropy(double value, double target) {
    double p = 1 / (1 + exp(-value));
    return -target * log(p) - (1 - target) * log(1 - p);
}

static double half_square(double value, double target) {
    return (value - target) * (value - target) / 2;
}

static void ref_sigmoid_cross_entropy_loss(const fixture *r, const ref_values *v) {
    ref_pair_loss(r, v, cross_entropy);
}

static void ref_euclidean_loss(const fixture *r, const ref_values *v) {
    ref_pair_loss(r, v, half_square);
}

static void ref_accuracy(const fixture *r, const ref_values *v) {
    v->out[0] = v->out[1] = 0;
    for (int64_t i = 0; i < fixture_in_count(r, 1); i++) {
        int64_t better = 0;
        if (!counts(r, v->labels[i]))
            continue;
        for (int64_t c = 0; c < in_dims(r)[1]; c++)
            better += c != v->labels[i] &&
                      score(r, v, i, c) >= score(r, v, i, v->labels[i]);
        v->out[0] += better < get(r, "top_k");
        v->out[1] += 1;
    }
}

/* ---- Normalisation ----------------------------------------------------------- */

typedef struct lrn {
    int64_t size;
    int across;
    double k, alpha, beta;
} lrn;

static double square(double x) {
    return x * x;
}

static double lrn_point(const lrn *l, const int64_t *d, const ref_values *v, int64_t n,
                        int64_t c, int64_t y, int64_t x) {
    int64_t half = l->size / 2, count = l->size;
    double sum = 0;
    if (l->across) {
        for (int64_t k = c - half; k <= c + half; k++)
            if (k >= 0 && k < d[1])
                sum += square(v->in[0][at4(d, n, k, y, x)]);
    } else {
        count *= count;
        for (int64_t i = y - half; i <= y + half; i++)
            for (int64_t j = x - half; j <= x + half; j++)
                if (i >= 0 && j >= 0 && i < d[2] && j < d[3])
                    sum += square(v->in[0][at4(d, n, c, i, j)]);
    }
    double base = l->k + l->alpha / (double)count * sum;
    return v->in[0][at4(d, n, c, y, x)] * pow(base, -l->beta);
}

static void ref_lrn(const fixture *r, const ref_values *v) {
    const int64_t *d = in_dims(r);
    const lrn l = {.size = get(r, "local_size"),
                   .across = is(r, "norm_region", "across_channels"),
                   .k = number(r, "k"),
                   .alpha = number(r, "alpha"),
                   .beta = number(r, "beta")};
    for (int64_t n = 0; n < d[0]; n++)
        for (int64_t c = 0; c < d[1]; c++)
            for (int64_t y = 0; y < d[2]; y++)
                for (int64_t x = 0; x < d[3]; x++)
                    v->out[at4(d, n, c, y, x)] = lrn_point(&l, d, v, n, c, y, x);
}

/* Mean and variance of channel c over the batch. */
static void moments(const fixture *r, const ref_values *v, int64_t c, double *mean,
                    double *variance) {
    int64_t batch = in_dims(r)[0], channels = in_dims(r)[1], size = spatial_of(r);
    double count = (double)(batch * size);
    *mean = *variance = 0;
    for (int64_t n = 0; n < batch; n++)
        for (int64_t i = 0; i < size; i++)
            *mean += v->in[0][(n * channels + c) * size + i] / count;
    for (int64_t n = 0; n < batch; n++)
        for (int64_t i = 0; i < size; i++)
            *variance += square(v->in[0][(n * channels + c) * size + i] - *mean) /
                         count;
}

static void ref_batch_norm(const fixture *r, const ref_values *v) {
    int64_t batch = in_dims(r)[0], channels = in_dims(r)[1], size = spatial_of(r);
    int first = r->memory.params == 4 ? 2 : 0;
    int own = r->spec.phase == DLC_PHASE_TRAIN &&
              !dlc_settings_get_bool(r->settings, "use_global_stats");
    double eps = number(r, "eps");
    for (int64_t c = 0; c < channels; c++) {
        double mean = v->param[first][c], variance = v->param[first + 1][c];
        if (own)
            moments(r, v, c, &mean, &variance);
        double factor = first ? v->param[0][c] : 1, add = first ? v->param[1][c] : 0;
        factor /= sqrt(variance + eps);
        for (int64_t n = 0; n < batch; n++)
            for (int64_t i = 0; i < size; i++) {
                int64_t at = (n * channels + c) * size + i;
                v->out[at] = (v->in[0][at] - mean) * factor + add;
            }
    }
}

static void ref_scale(const fixture *r, const ref_values *v) {
    int64_t size = spatial_of(r), channels = in_dims(r)[1],
            count = fixture_out_count(r);
    for (int64_t i = 0; i < count; i++) {
        int64_t c = i / size % channels;
        v->out[i] = v->in[0][i] * v->param[0][c];
        if (r->memory.params > 1)
            v->out[i] += v->param[1][c];
    }
}

/* ---- Shapes and element-wise layers -------------------------------------------- */

static void ref_flatten(const fixture *r, const ref_values *v) {
    memcpy(v->out, v->in[0], (size_t)fixture_out_count(r) * sizeof(double));
}

static void ref_concat(const fixture *r, const ref_values *v) {
    int64_t axis = get(r, "axis"), inner = 1, outer = 1, at = 0;
    for (int64_t d = 0; d < r->out[0].shape.rank; d++) {
        outer *= d < axis ? out_dims(r)[d] : 1;
        inner *= d > axis ? out_dims(r)[d] : 1;
    }
    for (int64_t o = 0; o < outer; o++)
        for (int32_t i = 0; i < r->memory.inputs; i++) {
            int64_t run = r->in[i].shape.dims[axis] * inner;
            for (int64_t k = 0; k < run; k++)
                v->out[at++] = v->in[i][o * run + k];
        }
}

static void ref_eltwise(const fixture *r, const ref_values *v) {
    const double *factors = NULL;
    size_t given = dlc_settings_get_floats(r->settings, "coeff", &factors);
    const int sum = is(r, "operation", "sum"), product = is(r, "operation", "product");
    const int64_t count = fixture_out_count(r);
    for (int64_t k = 0; k < count; k++) {
        double out = v->in[0][k] * (given ? factors[0] : 1);
        for (int32_t i = 1; i < r->memory.inputs; i++) {
            double in = v->in[i][k];
            if (sum)
                out += in * (given ? factors[i] : 1);
            else if (product)
                out *= in;
            else
                out = fmax(out, in);
        }
        v->out[k] = out;
    }
}

static void ref_softmax(const fixture *r, const ref_values *v) {
    int64_t axis = get(r, "axis"), inner = 1, along = in_dims(r)[axis];
    for (int64_t d = axis + 1; d < r->in[0].shape.rank; d++)
        inner *= in_dims(r)[d];
    for (int64_t i = 0; i < fixture_out_count(r) / along; i++) {
        int64_t at = i / inner * along * inner + i % inner;
        double sum = 0;
        for (int64_t c = 0; c < along; c++)
            sum += exp(v->in[0][at + c * inner]);
        for (int64_t c = 0; c < along; c++)
            v->out[at + c * inner] = exp(v->in[0][at + c * inner]) / sum;
    }
}

/* ---- Lookup ------------------------------------------------------------------- */

ref_forward ref_find(const char *type) {
    static const struct {
        const char *type;
        ref_forward forward;
    } table[] = {
        {"convolution", ref_convolution},
        {"deconvolution", ref_deconvolution},
        {"inner_product", ref_inner_product},
        {"pooling", ref_pooling},
        {"upsample", ref_upsample},
        {"relu", ref_activation},
        {"sigmoid", ref_activation},
        {"tanh", ref_activation},
        {"elu", ref_activation},
        {"gelu", ref_activation},
        {"swish", ref_activation},
        {"softplus", ref_activation},
        {"mish", ref_activation},
        {"hardswish", ref_activation},
        {"clip", ref_activation},
        {"abs", ref_activation},
        {"softmax_loss", ref_softmax_loss},
        {"sigmoid_cross_entropy_loss", ref_sigmoid_cross_entropy_loss},
        {"euclidean_loss", ref_euclidean_loss},
        {"accuracy", ref_accuracy},
        {"lrn", ref_lrn},
        {"batch_norm", ref_batch_norm},
        {"scale", ref_scale},
        {"flatten", ref_flatten},
        {"concat", ref_concat},
        {"eltwise", ref_eltwise},
        {"softmax", ref_softmax},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].type, type) == 0)
            return table[i].forward;
    ck_abort_msg("no reference for %s", type);
    return NULL;
}
