/* Tests which machines are put together by the bandwidth between them. */

#include "support/test.h"
#include "topology/domains.h"

enum { MOST = 9 };

/* Bandwidth by cluster: `inside`, and `between`, each a little different for each pair.
 */
static void fill(double *bandwidth, const int *of, int machines, double inside,
                 double between) {
    for (int a = 0; a < machines; a++)
        for (int b = 0; b < machines; b++)
            bandwidth[a * machines + b] = (of[a] == of[b] ? inside : between) *
                                          (1 + 0.05 * (a + b));
}

static void set(double *bandwidth, int machines, int a, int b, double to) {
    bandwidth[a * machines + b] = bandwidth[b * machines + a] = to;
}

TEST(clusters) {
    static const int of[MOST] = {0, 1, 0, 1, 2, 2, 0, 1, 2};
    double bandwidth[MOST * MOST];
    int32_t cluster[MOST], count = -1;
    fill(bandwidth, of, MOST, 10, 1);
    ck_assert_int_eq(dlc_clusters_find(bandwidth, MOST, cluster, &count), DLC_OK);
    ck_assert_int_eq(count, 3);
    for (int i = 0; i < MOST; i++)
        ck_assert_int_eq(cluster[i], of[i]);
    fill(bandwidth, of, 4, 10, 1);
    ck_assert_int_eq(dlc_clusters_find(bandwidth, 4, cluster, &count), DLC_OK);
    ck_assert_int_eq(count, 2);
    ck_assert_int_eq(cluster[3], 1);
}

static int32_t count_of(const double *bandwidth, int machines) {
    int32_t cluster[MOST], count = -1;
    ck_assert_int_eq(dlc_clusters_find(bandwidth, machines, cluster, &count), DLC_OK);
    return count;
}

TEST(nothing_clear) {
    static const int pairs[] = {0, 0, 1, 1}, one[] = {0, 0, 0, 0},
                     lone[] = {0, 0, 0, 1};
    static const int three[] = {0, 0, 0, 1, 1};
    double bandwidth[MOST * MOST];
    fill(bandwidth, one, 4, 10, 1); /* all alike */
    ck_assert_int_eq(count_of(bandwidth, 4), 0);
    fill(bandwidth, pairs, 4, 10, 6); /* hardly slower between them */
    ck_assert_int_eq(count_of(bandwidth, 4), 0);
    fill(bandwidth, lone, 4, 10, 1); /* one with a bad cable */
    ck_assert_int_eq(count_of(bandwidth, 4), 0);
    fill(bandwidth, one, 4, 10, 10); /* one bad pair */
    set(bandwidth, 4, 1, 2, 1);
    ck_assert_int_eq(count_of(bandwidth, 4), 0);
    fill(bandwidth, pairs, 4, 10, 1); /* a fast way between two */
    set(bandwidth, 4, 1, 2, 10);
    ck_assert_int_eq(count_of(bandwidth, 4), 0);
    fill(bandwidth, three, 5, 10, 1); /* a slow way inside one */
    set(bandwidth, 5, 1, 2, 1);
    ck_assert_int_eq(count_of(bandwidth, 5), 0);
    ck_assert_int_eq(count_of(bandwidth, 1), 0);
}
