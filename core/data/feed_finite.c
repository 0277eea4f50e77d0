/* Looks for values of a batch that are not finite, for the report on a loss that is
 * not. */
#include <inttypes.h>
#include <stdio.h>

#include "base/text.h"
#include "data/feed_internal.h"

enum { NAME_BYTES = 512 };

/* An order of its own: the feed's belongs to the reading thread. */
static dlc_status name_sample(const dlc_feed *feed, int64_t position, char *name,
                              size_t room) {
    const dlc_feed_args *args = &feed->args;
    dlc_order order = {0};
    dlc_status status = dlc_order_open(dlc_feed_samples(feed), args->seed,
                                       args->shuffle, args->shuffle_window, &order);
    if (status == DLC_OK)
        dlc_samples_name(&feed->loader.samples, dlc_order_at(&order, position), name,
                         room);
    dlc_order_close(&order);
    return status;
}

static dlc_status describe(const dlc_feed *feed, int64_t position, int32_t i,
                           int64_t at, float value, dlc_text *text) {
    const dlc_loaded_field *field = &feed->loader.field[i];
    char name[NAME_BYTES];
    DLC_TRY(name_sample(feed, position, name, sizeof name));
    dlc_text_add(text, "%s: value %" PRId64 " of field %s is %g as the net reads it",
                 name, at, field->field->name, (double)value);
    if (dlc_mix_is_on(&feed->args.mix))
        dlc_text_add(text, ", mixed with its neighbour");
    return dlc_text_status(text);
}

dlc_status dlc_feed_find_nonfinite(dlc_feed *feed, int64_t iteration, dlc_text *text) {
    dlc_batch batch;
    DLC_TRY(dlc_feed_seek(feed, iteration));
    DLC_TRY(dlc_feed_next(feed, &batch));
    for (int32_t s = 0; s < batch.samples; s++)
        for (int32_t i = 0; i < feed->loader.fields; i++) {
            const dlc_loaded_field *field = &feed->loader.field[i];
            if (field->dtype != DLC_F32 || !field->field)
                continue;
            int64_t count = dlc_shape_count(&field->shape);
            const float *value = (const float *)batch.field[i] + s * count;
            /* NaN of what layers compare with is a value that does not count. */
            int64_t at = dlc_find_nonfinite(value, count, field->is_label);
            if (at >= 0)
                return describe(feed, dlc_feed_position(&feed->args, iteration, s), i,
                                at, value[at], text);
        }
    return DLC_OK;
}
