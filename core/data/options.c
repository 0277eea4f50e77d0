/* The feed's own keys of [data] and [data.test], and how they become arguments. */
#include <string.h>

#include "data/feed.h"

#define PREFETCH_MAX 64
#define SIDE_MAX 65536
#define THREADS_MAX 256

const dlc_option dlc_feed_options[] = {
    DLC_STRING(
        "transforms", NULL,
        "what happens to an image, in order: random_resized_crop(224), mirror, "
        "normalize(mean=(124,116,104)); instead of scale, mean, mirror, crop and "
        "pad"),
    DLC_BOOL("shuffle", "true", "new order of the samples every epoch (training only)"),
    DLC_FLOAT("scale", "1", -1e30, 1e30, "factor on every input value"),
    DLC_FLOATS("mean", NULL, -1e30, 1e30,
               "subtracted before scaling: one value, or one per channel"),
    DLC_BOOL("mirror", "false", "swap left and right at random (training only)"),
    DLC_INT("crop", "0", 0, SIDE_MAX,
            "side of the square that is cropped: at a random position in training, the "
            "center in a test; 0: none"),
    DLC_INT("pad", "0", 0, SIDE_MAX, "width of a border of zeros, before the crop"),
    DLC_INT(
        "prefetch", "0", 0, PREFETCH_MAX,
        "batches kept ready in the background; 0: up to three that fit in 32 MB, or none "
        "with [train] recompute = yes"),
    DLC_INT("threads", "0", 0, THREADS_MAX,
            "threads that read, decode and transform samples; 0: one if the CPU "
            "computes, up to four if a GPU does"),
    DLC_INT("max_pixels", "100000000", 1, 1e12,
            "an image file with more pixels is refused before it is decoded"),
    DLC_CHOICE("on_error", "fail", "fail|skip",
               "a sample that cannot be read or decoded ends the job, or is skipped: "
               "another one is trained on, and none is tested"),
    DLC_INT("max_skipped", "1000", 1, 1e7,
            "with on_error = skip: more samples than this end the job all the same"),
    DLC_OPTIONS_END,
};

void dlc_feed_configure(const dlc_host *host, const dlc_settings *settings,
                        dlc_feed_args *args) {
    args->augment = (dlc_augment){
        .scale = (float)host->get_float(settings, "scale"),
        .mirror = host->get_bool(settings, "mirror"),
        .crop = (int32_t)host->get_int(settings, "crop"),
        .pad = (int32_t)host->get_int(settings, "pad"),
    };
    args->augment.means = host->get_floats(settings, "mean", &args->augment.mean);
    args->shuffle = host->get_bool(settings, "shuffle");
    args->max_pixels = host->get_int(settings, "max_pixels");
    int skip = strcmp(host->get_string(settings, "on_error"), "skip") == 0;
    args->max_skipped = skip ? host->get_int(settings, "max_skipped") : 0;
    args->prefetch = (int32_t)host->get_int(settings, "prefetch");
    args->threads = (int32_t)host->get_int(settings, "threads");
}
