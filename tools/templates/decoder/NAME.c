/* The decoder "@NAME@": PGM and PPM, the simplest formats there are (man 5 pgm). A file
 * is a header of text, "P5 WIDTH HEIGHT 255" (grey) or "P6 ..." (colour), one space,
 * and the pixels.
 *
 * The bytes may be anything: nothing is read beyond them, and no size in them is
 * believed before it has been compared with what is there. */
#include <dlcore/decoder.h>

#include <stdio.h>
#include <string.h>

static const dlc_host *host;

static dlc_status pnm_load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

/* A file: what its header says, and where its pixels are. */
typedef struct pnm {
    int32_t width, height, channels;
    const unsigned char *pixels;
} pnm;

/* The part of a file that is still to be read. */
typedef struct rest {
    const unsigned char *at, *end;
} rest;

static int is_space(unsigned char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Reads a number of the header, after spaces and comments; 0: there is none in 1 ..
 * 99999. */
static int32_t next_number(rest *r) {
    int32_t number = 0;
    while (r->at < r->end && (is_space(*r->at) || *r->at == '#')) {
        if (*r->at == '#')
            while (r->at < r->end && *r->at != '\n')
                r->at++;
        else
            r->at++;
    }
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9' && number < 10000)
        number = 10 * number + (*r->at++ - '0');
    return number;
}

static int pnm_matches(const unsigned char *bytes, size_t count) {
    return count >= 3 && bytes[0] == 'P' && (bytes[1] == '5' || bytes[1] == '6') &&
           is_space(bytes[2]);
}

static dlc_status read_header(const unsigned char *bytes, size_t count, pnm *picture) {
    if (!pnm_matches(bytes, count))
        return host->fail(DLC_ERR_DATA, "this is not a PGM or PPM file");
    rest r = {bytes + 2, bytes + count};
    picture->channels = bytes[1] == '5' ? 1 : 3;
    picture->width = next_number(&r);
    picture->height = next_number(&r);
    int32_t most = next_number(&r);
    if (!picture->width || !picture->height || !most || r.at == r.end)
        return host->fail(DLC_ERR_DATA, "the header ends early, or has a number that "
                                        "is not in 1 to 99999");
    if (most != 255)
        return host->fail(DLC_ERR_DATA,
                          "its largest value is %d; only 255 is supported", (int)most);
    picture->pixels = r.at + 1;
    int64_t bytes_needed = (int64_t)picture->width * picture->height *
                           picture->channels;
    if (r.end - picture->pixels < bytes_needed)
        return host->fail(DLC_ERR_DATA,
                          "it has %lld bytes of pixels, but %d x %d need "
                          "%lld",
                          (long long)(r.end - picture->pixels), (int)picture->width,
                          (int)picture->height, (long long)bytes_needed);
    return DLC_OK;
}

static dlc_status pnm_inspect(const unsigned char *bytes, size_t count,
                              dlc_image_info *info) {
    pnm read;
    dlc_status status = read_header(bytes, count, &read);
    if (status != DLC_OK)
        return status;
    info->width = read.width;
    info->height = read.height;
    info->channels = read.channels;
    info->shrink_max = 1;
    return DLC_OK;
}

/* Copies one pixel of `have` channels to one of `want`. */
static void copy_pixel(const unsigned char *from, int32_t have, unsigned char *to,
                       int32_t want) {
    if (have == 3 && want == 1) { /* ITU-R BT.601, in units of 1 / 65536 */
        to[0] = (unsigned char)((19595 * from[0] + 38470 * from[1] + 7471 * from[2] +
                                 32768) >>
                                16);
        return;
    }
    for (int32_t c = 0; c < want; c++)
        to[c] = from[have == 1 ? 0 : c];
}

static dlc_status pnm_decode(const dlc_decode_args *args, unsigned char *pixels) {
    pnm read;
    dlc_status status = read_header(args->bytes, args->count, &read);
    if (status != DLC_OK)
        return status;
    for (int32_t y = args->y; y < args->y + args->height; y++)
        for (int32_t x = args->x; x < args->x + args->width; x++) {
            int64_t pixel = (int64_t)y * read.width + x;
            copy_pixel(read.pixels + pixel * read.channels, read.channels, pixels,
                       args->channels);
            pixels += args->channels;
        }
    return DLC_OK;
}

static dlc_status pnm_encode(const dlc_encode_args *args, unsigned char **bytes,
                             uint64_t *count) {
    char header[32];
    int begin = snprintf(header, sizeof header, "P%d %d %d 255\n",
                         args->channels == 1 ? 5 : 6, (int)args->width,
                         (int)args->height);
    size_t pixels = (size_t)args->width * (size_t)args->height * (size_t)args->channels;
    unsigned char *made = host->alloc((size_t)begin + pixels);
    if (!made)
        return DLC_ERR_NOMEM;
    memcpy(made, header, (size_t)begin);
    memcpy(made + begin, args->pixels, pixels);
    *bytes = made;
    *count = (size_t)begin + pixels;
    return DLC_OK;
}

/* 16 x 16 pixels, all of them values of text. */
#define ROW "abcdefghijklmnop"
#define ROWS ROW ROW ROW ROW
static const unsigned char example[] = "P5\n16 16\n255\n" ROWS ROWS ROWS ROWS;

/* Files of a folder with these endings are images. */
static const char *const endings[] = {"pgm", "ppm", NULL};

static const dlc_decoder_ops ops = {
    .size = sizeof ops,
    .endings = endings,
    .matches = pnm_matches,
    .inspect = pnm_inspect,
    .decode = pnm_decode,
    .encode = pnm_encode,
    .example = example,
    .example_bytes = sizeof example - 1,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_DECODER,
     .name = "@NAME@",
     .help = "PGM and PPM images",
     .caps = DLC_DECODER_LOSSLESS,
     .ops = &ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("@NAME@", PLUGIN_VERSION, "BSD-2-Clause", features, pnm_load);
