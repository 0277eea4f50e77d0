/* Lays out batches. */
#include "data/batch_layout.h"

#include <string.h>

#define LINE ((size_t)64) /* bytes of a cache line */

dlc_status dlc_batch_layout_make(const dlc_loader *loader, size_t samples,
                                 dlc_batch_layout *layout) {
    dlc_batch_layout made = {.loader = loader};
    for (int32_t i = 0; i < loader->fields; i++) {
        size_t bytes;
        made.offset[i] = made.bytes;
        if (__builtin_mul_overflow(samples, loader->field[i].bytes, &bytes) ||
            __builtin_add_overflow(made.bytes, bytes, &made.bytes) ||
            __builtin_add_overflow(made.bytes, LINE - 1, &made.bytes))
            return dlc_fail(DLC_ERR_NOMEM, "a batch of %zu samples is too large",
                            samples);
        made.bytes &= -LINE;
    }
    *layout = made;
    return DLC_OK;
}

void dlc_batch_find(const dlc_batch_layout *layout, void *base, int32_t sample,
                    void *to[DLC_NET_FIELDS]) {
    for (int32_t i = 0; i < layout->loader->fields; i++)
        to[i] = (char *)base + layout->offset[i] +
                (size_t)sample * layout->loader->field[i].bytes;
}

void dlc_batch_clear(const dlc_batch_layout *layout, void *const *to, int only_labels) {
    for (int32_t i = 0; i < layout->loader->fields; i++) {
        const dlc_loaded_field *field = &layout->loader->field[i];
        if (field->is_label || !only_labels)
            memset(to[i], field->is_label ? 0xff : 0, field->bytes);
    }
}

int dlc_batch_has_classes(const dlc_batch_layout *layout) {
    const dlc_loaded_field *label = &layout->loader->field[DLC_FIELD_LABEL];
    return layout->loader->fields > DLC_FIELD_LABEL && label->dtype == DLC_I32 &&
           label->shape.rank == 0;
}
