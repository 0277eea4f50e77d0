/* The options of all layer types. */
#include "types.h"
#include "window.h"

#define WINDOW_OPTIONS \
    DLC_INT("kernel_size", NULL, 1, WINDOW_MAX, "height and width of the window"), \
        DLC_INT("kernel_h", NULL, 1, WINDOW_MAX, \
                "its height, instead of kernel_size"), \
        DLC_INT("kernel_w", NULL, 1, WINDOW_MAX, "its width, instead of kernel_size"), \
        DLC_INT("stride", "1", 1, WINDOW_MAX, "step from one window to the next"), \
        DLC_INT("stride_h", NULL, 1, WINDOW_MAX, "vertical step, instead of stride"), \
        DLC_INT("stride_w", NULL, 1, WINDOW_MAX, \
                "horizontal step, instead of stride"), \
        DLC_INT("pad", "0", 0, WINDOW_MAX, "rows and columns added on each side"), \
        DLC_INT("pad_h", NULL, 0, WINDOW_MAX, \
                "rows added above and below, instead of pad"), \
        DLC_INT("pad_w", NULL, 0, WINDOW_MAX, \
                "columns added left and right, instead of pad")

/* The two factors of a trained parameter; `whose` is a genitive. */
#define FACTORS(name, whose, decay) \
    DLC_FLOAT(name "_lr_mult", "1", 0, 1e6, \
              whose " learning rate is the solver's times this"), \
        DLC_FLOAT(name "_decay_mult", "1", 0, 1e6, \
                  whose " " decay " is the solver's times this")

#define LINEAR_OPTIONS \
    DLC_BOOL("bias", "yes", "add a trained constant to each output"), \
        DLC_FILLER("weight_filler", "xavier", "how the weights start"), \
        DLC_FILLER("bias_filler", "constant(0)", "how the bias starts"), \
        FACTORS("weight", "the weights'", "decay"), \
        FACTORS("bias", "the bias'", "decay")

#define LABEL_OPTIONS \
    DLC_INT("ignore_label", NULL, INT32_MIN, INT32_MAX, \
            "samples with this label don't count")

#define AXIS(help) DLC_INT("axis", "1", 0, DLC_MAX_DIMS - 1, help)

const dlc_option convolution_options[] = {
    DLC_INT_REQUIRED("num_output", 1, 1 << 20,
                     "number of filters: channels that come out"),
    WINDOW_OPTIONS,
    DLC_INT("dilation", "1", 1, WINDOW_MAX,
            "distance between neighbouring points of the window; 1: none left out"),
    DLC_INT("dilation_h", NULL, 1, WINDOW_MAX,
            "vertical distance, instead of dilation"),
    DLC_INT("dilation_w", NULL, 1, WINDOW_MAX,
            "horizontal distance, instead of dilation"),
    DLC_INT("group", "1", 1, 1 << 20,
            "split channels and filters into this many groups that don't mix"),
    LINEAR_OPTIONS,
    DLC_CHOICE("layout", "auto", "auto|channels_last|batch_blocked|library",
               "memory layout of images; batch_blocked: vectors of images, where the "
               "batch size allows it; library: what oneDNN proposes"),
    DLC_CHOICE(
        "algorithm", "auto", "auto|direct",
        "auto: where it is likely faster, windows of 3x3, on a CPU also of 5x5, by "
        "Winograd's transform, which rounds a little more"),
    DLC_OPTIONS_END,
};

const dlc_option deconvolution_options[] = {
    DLC_INT_REQUIRED("num_output", 1, 1 << 20, "channels that come out"),
    WINDOW_OPTIONS,
    DLC_INT("group", "1", 1, 1 << 20,
            "split channels into this many groups that don't mix"),
    LINEAR_OPTIONS,
    DLC_OPTIONS_END,
};

const dlc_option upsample_options[] = {
    DLC_INT("factor", "2", 1, WINDOW_MAX, "how many times as high and wide"),
    DLC_CHOICE("method", "nearest", "nearest|bilinear",
               "each pixel repeated, or interpolated between the centers of pixels"),
    DLC_OPTIONS_END,
};

const dlc_option inner_product_options[] = {
    DLC_INT_REQUIRED("num_output", 1, 1 << 24, "number of outputs of a sample"),
    LINEAR_OPTIONS,
    DLC_OPTIONS_END,
};

const dlc_option pooling_options[] = {
    DLC_CHOICE("method", "max", "max|average", "what is computed of a window"),
    WINDOW_OPTIONS,
    DLC_BOOL("global", "no", "one window, as large as the image"),
    DLC_CHOICE(
        "round", "ceil", "ceil|floor",
        "ceil: the last windows may overhang the image; floor: they are left out"),
    DLC_CHOICE("average_over", "padded", "padded|image",
               "an average counts the padding as zeros, or the image alone"),
    DLC_OPTIONS_END,
};

const dlc_option relu_options[] = {
    DLC_FLOAT("negative_slope", "0", 0, 1e6, "slope below zero (leaky relu)"),
    DLC_OPTIONS_END,
};

const dlc_option elu_options[] = {
    DLC_FLOAT("alpha", "1", 0, 1e6, "limit far below zero, negated"),
    DLC_OPTIONS_END,
};

const dlc_option gelu_options[] = {
    DLC_CHOICE("form", "erf", "erf|tanh", "exact, or by the tanh approximation"),
    DLC_OPTIONS_END,
};

const dlc_option swish_options[] = {
    DLC_FLOAT("beta", "1", -1e6, 1e6, "factor of x inside the sigmoid"),
    DLC_OPTIONS_END,
};

const dlc_option clip_options[] = {
    DLC_FLOAT("min", "0", -1e30, 1e30, "smallest output"),
    DLC_FLOAT("max", "6", -1e30, 1e30, "largest output"),
    DLC_OPTIONS_END,
};

const dlc_option lrn_options[] = {
    DLC_CHOICE(
        "norm_region", "across_channels", "across_channels|within_channel",
        "neighbours: other channels at the same position, or positions around it"),
    DLC_INT("local_size", "5", 1, 1001,
            "channels, or rows and columns, of the neighbourhood; odd"),
    DLC_FLOAT("alpha", "1", -1e6, 1e6, "factor of the mean square"),
    DLC_FLOAT("beta", "0.75", -100, 100, "exponent"),
    DLC_FLOAT("k", "1", -1e6, 1e6, "constant that is added to the mean square"),
    DLC_OPTIONS_END,
};

const dlc_option dropout_options[] = {
    DLC_FLOAT("ratio", "0.5", 0, 0.999999, "fraction of the elements that is zeroed"),
    DLC_OPTIONS_END,
};

const dlc_option softmax_options[] = {
    AXIS("dimension along which the outputs add up to 1"),
    DLC_OPTIONS_END,
};

const dlc_option softmax_loss_options[] = {
    DLC_FLOAT("label_smoothing", "0", 0, 1,
              "fraction of a label's weight that is spread over all classes"),
    LABEL_OPTIONS,
    DLC_OPTIONS_END,
};

#define PAIR_LOSS_OPTIONS \
    DLC_CHOICE("normalize", "sample", "sample|element", \
               "the mean is taken over samples, of each of which the elements are " \
               "added up, or over elements"), \
        DLC_INT("ignore_label", NULL, INT32_MIN, INT32_MAX, \
                "elements with this target don't count")

const dlc_option sigmoid_cross_entropy_loss_options[] = {
    PAIR_LOSS_OPTIONS,
    DLC_OPTIONS_END,
};

const dlc_option euclidean_loss_options[] = {
    PAIR_LOSS_OPTIONS,
    DLC_OPTIONS_END,
};

const dlc_option accuracy_options[] = {
    DLC_INT("top_k", "1", 1, 1 << 20, "right if the label is among this many best"),
    LABEL_OPTIONS,
    DLC_OPTIONS_END,
};

const dlc_option concat_options[] = {
    AXIS("dimension that adds up; 1: channels"),
    DLC_OPTIONS_END,
};

const dlc_option eltwise_options[] = {
    DLC_CHOICE("operation", "sum", "sum|product|max", "what is done with the inputs"),
    DLC_FLOATS("coeff", NULL, -1e30, 1e30,
               "factors of the inputs in a sum, one each; 1 unless given"),
    DLC_OPTIONS_END,
};

const dlc_option batch_norm_options[] = {
    DLC_FLOAT("eps", "1e-5", 0, 1, "added to the variance before its root is taken"),
    DLC_FLOAT("momentum", "0.9", 0, 1,
              "weight of the old value when a running average is updated"),
    DLC_BOOL("scale_bias", "yes", "scale and shift each channel by trained numbers"),
    DLC_CHOICE("statistics", "local", "local|global",
               "in training, mean and variance of this rank's samples, or of those of "
               "all data-parallel ranks, which then make the same loss curve as one"),
    DLC_BOOL("use_global_stats", "no",
             "normalize by the running averages in training too, without updating "
             "them"),
    DLC_FILLER("scale_filler", "constant(1)", "how the scale starts"),
    DLC_FILLER("bias_filler", "constant(0)", "how the bias starts"),
    FACTORS("scale", "the scale's", "weight decay"),
    FACTORS("bias", "the bias'", "weight decay"),
    DLC_OPTIONS_END,
};

const dlc_option scale_options[] = {
    DLC_BOOL("bias", "no", "add a trained constant to each channel"),
    DLC_FILLER("scale_filler", "constant(1)", "how the factors start"),
    DLC_FILLER("bias_filler", "constant(0)", "how the bias starts"),
    FACTORS("scale", "the factors'", "weight decay"),
    FACTORS("bias", "the bias'", "weight decay"),
    DLC_OPTIONS_END,
};

const dlc_option flatten_options[] = {
    AXIS("first of the dimensions that are merged; all after it are merged too"),
    DLC_OPTIONS_END,
};
