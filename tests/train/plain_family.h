/* What a layer family needs that has plain float32 alone: for plugins of tests. */
#ifndef DLC_TESTS_PLAIN_FAMILY_H
#define DLC_TESTS_PLAIN_FAMILY_H

#include <dlcore/layer.h>

/* The services of the core. */
static const dlc_host *host;

static void family_close(void *context) {
    (void)context;
}

static int same_layout(const dlc_tensor *a, const dlc_tensor *b) {
    return a->layout == b->layout;
}

static dlc_status reorder_create(void *context, const dlc_tensor *from,
                                 const dlc_tensor *to, dlc_reorder **reorder) {
    (void)context;
    (void)from;
    (void)to;
    (void)reorder;
    return host->fail(DLC_ERR_UNSUPPORTED, "only plain float32");
}

static dlc_status reorder_run(dlc_reorder *reorder, const void *src, void *dst) {
    (void)reorder;
    (void)src;
    (void)dst;
    return DLC_ERR_INTERNAL;
}

static void reorder_destroy(dlc_reorder *reorder) {
    (void)reorder;
}

#endif
