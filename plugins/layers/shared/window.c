/* Reads the options of a sliding window, and computes how many windows fit an image. */
#include "window.h"

#include <stdio.h>
#include <string.h>

#include "layer.h"

static const char *const side_name[2] = {"h", "w"};

/* The value of "<name>_h" or "<name>_w" if given, else of `whole`; 0 if neither is. */
static int64_t side(const dlc_settings *settings, const char *name, const char *whole,
                    int i) {
    char key[32];
    (void)snprintf(key, sizeof key, "%s_%s", name, side_name[i]);
    if (host->is_set(settings, key))
        return host->get_int(settings, key);
    if (strcmp(whole, "kernel_size") == 0 && !host->is_set(settings, whole))
        return 0; /* it has no default */
    return host->get_int(settings, whole);
}

dlc_status window_read(const char *layer, const dlc_settings *settings, int global,
                       sliding_window *w) {
    for (int i = 0; i < 2; i++) {
        w->kernel[i] = side(settings, "kernel", "kernel_size", i);
        w->stride[i] = side(settings, "stride", "stride", i);
        w->pad_begin[i] = w->pad_end[i] = side(settings, "pad", "pad", i);
        w->dilation[i] = 0;
        if (global && w->kernel[i])
            return host->fail(
                DLC_ERR_CONFIG,
                "layer '%s': global takes the whole image, so that kernel_%s "
                "or kernel_size may not be given with it",
                layer, side_name[i]);
        if (global && (w->stride[i] != 1 || w->pad_begin[i] != 0))
            return host->fail(
                DLC_ERR_CONFIG,
                "layer '%s': global takes the whole image, so that stride "
                "must be 1 and pad 0",
                layer);
        if (!global && !w->kernel[i])
            return host->fail(DLC_ERR_CONFIG,
                              "layer '%s': the size of the window is missing; give "
                              "kernel_size, or kernel_h and kernel_w",
                              layer);
    }
    return DLC_OK;
}

void window_global(const dlc_shape *in, sliding_window *w) {
    w->kernel[0] = in->dims[2];
    w->kernel[1] = in->dims[3];
}

dlc_status window_slide(const char *layer, const dlc_shape *in, int ceil,
                        sliding_window *w, int64_t out[2]) {
    int64_t made[2];
    for (int i = 0; i < 2; i++) {
        int64_t size = in->dims[2 + i], pad = w->pad_begin[i];
        int64_t reach = (w->kernel[i] - 1) * (w->dilation[i] + 1) + 1;
        int64_t padded = size + 2 * pad;
        int64_t room = padded - reach, stride = w->stride[i];
        if (room < 0)
            return host->fail(
                DLC_ERR_CONFIG,
                "layer '%s': its window reaches over %lld %s, but its input "
                "%s has %lld, with pad %lld; take a smaller kernel or a "
                "larger pad",
                layer, (long long)reach, i ? "columns" : "rows", shape_print(in).text,
                (long long)padded, (long long)pad);
        made[i] = room / stride + 1;
        w->pad_end[i] = pad;
        if (ceil && room % stride && made[i] * stride < size + pad) {
            w->pad_end[i] = made[i] * stride + reach - size - pad;
            made[i]++;
        }
    }
    out[0] = made[0];
    out[1] = made[1];
    return DLC_OK;
}

dlc_status window_spread(const char *layer, const dlc_shape *in, sliding_window *w,
                         int64_t out[2]) {
    int64_t made[2];
    for (int i = 0; i < 2; i++) {
        made[i] = (in->dims[2 + i] - 1) * w->stride[i] + w->kernel[i] -
                  2 * w->pad_begin[i];
        w->pad_end[i] = w->pad_begin[i];
        if (made[i] < 1)
            return host->fail(
                DLC_ERR_CONFIG,
                "layer '%s': pad %lld leaves no %s of its output, for the "
                "input %s; take a smaller pad",
                layer, (long long)w->pad_begin[i], i ? "column" : "row",
                shape_print(in).text);
    }
    out[0] = made[0];
    out[1] = made[1];
    return DLC_OK;
}
