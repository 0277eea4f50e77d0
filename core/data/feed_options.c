/* The feed's own keys of [data] and [data.test], and how they become arguments. */
#include <string.h>

#include "data/feed.h"
#include "data/order.h"

#define PREFETCH_MAX 64
#define THREADS_MAX 256

const dlc_option dlc_feed_options[] = {
    DLC_STRING("transforms", NULL,
               "what happens to a sample before the net reads it, in order, as in "
               "random_crop(32, padding=4), mirror, normalize(mean=120)"),
    DLC_BOOL("shuffle", "true", "new order of the samples every epoch (training only)"),
    DLC_INT("shuffle_window", "0", 0, DLC_ORDER_WINDOW_MAX,
            "samples that are shuffled together, in blocks of a sixteenth that follow "
            "each other in the source, so that slow disks read more than one sample at "
            "a time; 0: all samples"),
    DLC_FLOAT("mixup", "0", 0, 1000,
              "mixes pairs of samples and their labels, with shares of the Beta "
              "distribution with this alpha, such as 0.2 (training only); 0: no"),
    DLC_FLOAT("cutmix", "0", 0, 1000,
              "exchanges boxes of pairs of images, and mixes their labels accordingly; "
              "alpha of the boxes' areas, such as 1 (training only); 0: no"),
    DLC_FLOAT(
        "min_visibility", "0", 0, 1,
        "the share of a box around an object that must still be in the image after "
        "the transforms; other boxes are left out, as in albumentations"),
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
    args->shuffle = host->get_bool(settings, "shuffle");
    args->shuffle_window = host->get_int(settings, "shuffle_window");
    args->mix.mixup = host->get_float(settings, "mixup");
    args->mix.cutmix = host->get_float(settings, "cutmix");
    args->min_visibility = host->get_float(settings, "min_visibility");
    args->max_pixels = host->get_int(settings, "max_pixels");
    int skip = strcmp(host->get_string(settings, "on_error"), "skip") == 0;
    args->max_skipped = skip ? host->get_int(settings, "max_skipped") : 0;
    args->prefetch = (int32_t)host->get_int(settings, "prefetch");
    args->threads = (int32_t)host->get_int(settings, "threads");
}
