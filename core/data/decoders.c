/* Loads decoders, and asks them about files. */
#include "data/decoders.h"

#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "base/text.h"
#include "plugin/answers.h"

/* The bytes by which the format of a file is found. */
enum { FIRST_BYTES = 64 };

struct dlc_decoders {
    size_t count;
    const dlc_feature *feature[];
};

static dlc_status load_decoders(const dlc_registry *registry, dlc_decoders *made) {
    const dlc_feature_entry *entry;
    for (size_t i = 0; (entry = dlc_registry_usable(registry, DLC_KIND_DECODER, i));
         i++) {
        const dlc_feature *feature = NULL;
        DLC_TRY(dlc_registry_use(registry, entry, &feature));
        made->feature[made->count++] = feature;
    }
    return DLC_OK;
}

dlc_status dlc_decoders_open(const dlc_registry *registry, dlc_decoders **decoders) {
    size_t count = 0;
    while (dlc_registry_usable(registry, DLC_KIND_DECODER, count))
        count++;
    if (count == 0)
        return dlc_fail(
            DLC_ERR_PLUGIN,
            "the samples are image files, but no plugin that decodes images "
            "is usable; see dlcore plugin list");
    dlc_decoders *made = dlc_alloc(1, sizeof *made + count * sizeof *made->feature);
    if (!made)
        return DLC_ERR_NOMEM;
    dlc_status status = load_decoders(registry, made);
    if (status == DLC_OK)
        *decoders = made;
    else
        dlc_decoders_close(made);
    return status;
}

void dlc_decoders_close(dlc_decoders *decoders) {
    dlc_free(decoders);
}

/* ---- Endings ----------------------------------------------------------------- */

static int is_listed_ending(const char *ending, size_t length, const char *endings) {
    for (const char *at = endings; *at;) {
        size_t own = strcspn(at, ",");
        if (own == length && strncasecmp(at, ending, length) == 0)
            return 1;
        at += own + (at[own] == ',');
    }
    return 0;
}

int dlc_ends_as(const char *name, const char *endings) {
    const char *ending = strrchr(name, '.');
    return ending && ending[1] &&
           is_listed_ending(ending + 1, strlen(ending + 1), endings);
}

/* Adds the endings of a list that `all` lacks. */
static void add_endings(dlc_text *all, const char *list) {
    while (*list) {
        size_t length = strcspn(list, ",");
        if (!is_listed_ending(list, length, dlc_text_string(all)))
            dlc_text_add(all, ",%.*s", (int)length, list);
        list += length + (list[length] == ',');
    }
}

dlc_status dlc_decoders_endings(const dlc_registry *registry, char **endings) {
    const dlc_feature_entry *entry;
    dlc_text all = {0};
    dlc_text_add(&all, "%s", DLC_USUAL_ENDINGS);
    for (size_t i = 0; (entry = dlc_registry_feature(registry, DLC_KIND_DECODER, i));
         i++)
        if (entry->endings)
            add_endings(&all, entry->endings);
    dlc_status status = dlc_text_status(&all);
    if (status == DLC_OK)
        *endings = all.bytes;
    else
        dlc_text_free(&all);
    return status;
}

/* ---- Files -------------------------------------------------------------------- */

/* Fails with the formats that are known. */
static dlc_status fail_unknown_format(const dlc_decoders *decoders, size_t count) {
    dlc_text names = {0};
    for (size_t i = 0; i < decoders->count; i++)
        dlc_text_add(&names, "%s%s", i ? ", " : "", decoders->feature[i]->name);
    DLC_TRY(dlc_text_status(&names));
    dlc_status status = dlc_fail(DLC_ERR_DATA, "%s; the decoders are %s",
                                 count ? "not an image of a format that is known"
                                       : "the file is empty",
                                 dlc_text_string(&names));
    dlc_text_free(&names);
    return status;
}

static const dlc_feature *find_decoder(const dlc_decoders *decoders, const void *bytes,
                                       size_t count) {
    size_t first = count < FIRST_BYTES ? count : FIRST_BYTES;
    for (size_t i = 0; i < decoders->count; i++) {
        const dlc_decoder_ops *ops = decoders->feature[i]->ops;
        if (ops->matches(bytes, first))
            return decoders->feature[i];
    }
    return NULL;
}

dlc_status dlc_decoders_inspect(const dlc_decoders *decoders, const void *bytes,
                                size_t count, int64_t max_pixels,
                                dlc_encoded *encoded) {
    dlc_image_info info = {.size = sizeof info};
    const dlc_feature *feature = find_decoder(decoders, bytes, count);
    if (!feature)
        return fail_unknown_format(decoders, count);
    const dlc_decoder_ops *ops = feature->ops;
    DLC_TRY(DLC_ASK(ops, "inspect", ops->inspect(bytes, count, &info)));
    if (info.width < 1 || info.height < 1 || info.shrink_max < 1 ||
        (info.channels != 1 && info.channels != 3))
        return dlc_fail(DLC_ERR_PLUGIN,
                        "decoder '%s' describes an image of %d x %d pixels and %d "
                        "channels",
                        feature->name, (int)info.width, (int)info.height,
                        (int)info.channels);
    if ((int64_t)info.width * info.height > max_pixels)
        return dlc_fail(DLC_ERR_DATA,
                        "the image has %d x %d pixels, more than max_pixels = %lld "
                        "allows",
                        (int)info.width, (int)info.height, (long long)max_pixels);
    *encoded = (dlc_encoded){bytes, count, ops, info};
    return DLC_OK;
}

int32_t dlc_shrunk(int32_t size, int32_t shrink) {
    return size / shrink + (size % shrink != 0);
}

dlc_status dlc_decoders_decode(const dlc_encoded *encoded, int32_t channels,
                               int32_t shrink, const int32_t region[4],
                               unsigned char *pixels) {
    dlc_decode_args args = {.size = sizeof args,
                            .channels = channels,
                            .bytes = encoded->bytes,
                            .count = encoded->count,
                            .shrink = shrink,
                            .x = region[0],
                            .y = region[1],
                            .width = region[2],
                            .height = region[3]};
    return DLC_ASK(encoded->ops, "decode", encoded->ops->decode(&args, pixels));
}

static int can_encode(const dlc_feature *feature, int lossless) {
    const dlc_decoder_ops *ops = feature->ops;
    return DLC_CAN(ops, encode) && !(feature->caps & DLC_DECODER_LOSSLESS) == !lossless;
}

dlc_status dlc_decoders_encode(const dlc_decoders *decoders, int lossless,
                               const dlc_encode_args *args, unsigned char **bytes,
                               uint64_t *count, const char **ending) {
    size_t i = 0;
    while (i < decoders->count && !can_encode(decoders->feature[i], lossless))
        i++;
    if (i == decoders->count)
        return dlc_fail(DLC_ERR_PLUGIN,
                        "no plugin that is usable writes %s image files; see dlcore "
                        "plugin list",
                        lossless ? "lossless" : "compressed");
    const dlc_decoder_ops *ops = decoders->feature[i]->ops;
    DLC_TRY(DLC_ASK(ops, "encode", ops->encode(args, bytes, count)));
    *ending = ops->endings[0];
    return DLC_OK;
}
