/* Finds clusters: where the sorted bandwidths of all pairs have their largest gap, near
 * pairs begin. */
#include "topology/clusters.h"

#include <stdlib.h>

#include "base/memory.h"

#define GAP_LEAST 2.0

typedef struct links {
    const double *bandwidth;
    int32_t machines;
    double far; /* the bandwidth of the fastest far pair */
} links;

static double between(const links *l, int32_t a, int32_t b) {
    return l->bandwidth[(size_t)a * (size_t)l->machines + (size_t)b];
}

static int are_near(const links *l, int32_t a, int32_t b) {
    return between(l, a, b) > l->far;
}

static int compare(const void *a_, const void *b_) {
    const double *a = a_, *b = b_;
    return (*a > *b) - (*a < *b);
}

/* Whether there is a gap. */
static dlc_status find_gap(links *l, int *found) {
    size_t pairs = 0, count = (size_t)l->machines;
    double gap = 0, *sorted = dlc_alloc(count * count, sizeof *sorted);
    if (!sorted)
        return DLC_ERR_NOMEM;
    for (int32_t b = 1; b < l->machines; b++)
        for (int32_t a = 0; a < b; a++)
            sorted[pairs++] = between(l, a, b);
    qsort(sorted, pairs, sizeof *sorted, compare);
    for (size_t i = 0; i + 1 < pairs; i++)
        if (sorted[i + 1] > gap * sorted[i]) {
            gap = sorted[i + 1] / sorted[i];
            l->far = sorted[i];
        }
    dlc_free(sorted);
    *found = gap >= GAP_LEAST;
    return DLC_OK;
}

/* Puts each machine to the first one that is near. */
static int32_t number(const links *l, int32_t *cluster) {
    int32_t clusters = 0;
    for (int32_t b = 0; b < l->machines; b++) {
        int32_t a = 0;
        while (a < b && !are_near(l, a, b))
            a++;
        cluster[b] = a < b ? cluster[a] : clusters++;
    }
    return clusters;
}

/* Whether the near pairs are those within clusters, and no machine is alone. */
static int are_clear(const links *l, const int32_t *cluster) {
    for (int32_t b = 0; b < l->machines; b++) {
        int alone = 1;
        for (int32_t a = 0; a < l->machines; a++) {
            if (a == b)
                continue;
            if (are_near(l, a, b) != (cluster[a] == cluster[b]))
                return 0;
            alone &= cluster[a] != cluster[b];
        }
        if (alone)
            return 0;
    }
    return 1;
}

dlc_status dlc_clusters_find(const double *bandwidth, int32_t machines,
                             int32_t *cluster, int32_t *clusters) {
    links l = {.bandwidth = bandwidth, .machines = machines};
    int found = 0;
    *clusters = 0;
    DLC_TRY(find_gap(&l, &found));
    if (!found)
        return DLC_OK;
    int32_t count = number(&l, cluster);
    if (count > 1 && are_clear(&l, cluster))
        *clusters = count;
    return DLC_OK;
}
