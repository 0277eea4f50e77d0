/* The decoder "raster", for tests of image files with endings that only a plugin knows:
 * .grd and .grid. A file is "GRD", the width and the height, each a byte, and a grey
 * byte for each pixel. Built with RASTER_ABSENT it says that it cannot work here. */
#include <string.h>

#include <dlcore/decoder.h>

static const dlc_host *host;

enum { HEADER = 5 };

static dlc_status load(const dlc_host *services) {
    host = services;
#ifdef RASTER_ABSENT
    return host->fail(DLC_ERR_UNAVAILABLE, "no raster was found");
#else
    return DLC_OK;
#endif
}

static int matches(const unsigned char *bytes, size_t count) {
    return count >= HEADER && memcmp(bytes, "GRD", 3) == 0;
}

static dlc_status inspect(const unsigned char *bytes, size_t count,
                          dlc_image_info *info) {
    if (count < HEADER || !bytes[3] || !bytes[4] ||
        count < HEADER + (size_t)bytes[3] * bytes[4])
        return host->fail(DLC_ERR_DATA, "it ends early");
    info->width = bytes[3];
    info->height = bytes[4];
    info->channels = 1;
    info->shrink_max = 1;
    return DLC_OK;
}

static dlc_status decode(const dlc_decode_args *args, unsigned char *pixels) {
    dlc_image_info info = {.size = sizeof info};
    dlc_status status = inspect(args->bytes, args->count, &info);
    for (int32_t y = args->y; status == DLC_OK && y < args->y + args->height; y++)
        for (int32_t x = args->x; x < args->x + args->width; x++)
            for (int32_t c = 0; c < args->channels; c++)
                *pixels++ = args->bytes[HEADER + y * info.width + x];
    return status;
}

static const unsigned char example[HEADER + 16 * 16] = {'G', 'R', 'D', 16, 16};
static const char *const endings[] = {"grd", "grid", NULL};

static const dlc_decoder_ops ops = {
    .size = sizeof ops,
    .endings = endings,
    .matches = matches,
    .inspect = inspect,
    .decode = decode,
    .example = example,
    .example_bytes = sizeof example,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_DECODER,
     .name = "raster",
     .help = "grey pixels",
     .ops = &ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("raster", "1.0", "BSD-2-Clause", features, load);
