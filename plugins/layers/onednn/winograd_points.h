/* Winograd's transforms along one axis, for the points 0, 1, -1, 2, -2 and infinity:
 * vectors are `step` apart. A side of r taps gives m = 7 - r outputs; r is a
 * compile-time constant in every use. Each has its adjoint, which transforms gradients.
 */
#ifndef ONEDNN_WINOGRAD_POINTS_H
#define ONEDNN_WINOGRAD_POINTS_H

#include "vectors.h"

enum { POINTS = 6, ALL = POINTS * POINTS, MOST_SIDE = 5, MOST_OUTPUTS = 4 };

/* Six numbers of the image to six points, the same for every r. */
ALWAYS void points_of_image(const vec *d, vec *to, size_t step) {
    vec a = d[4 * step] - 4 * d[2 * step], b = d[3 * step] - 4 * d[step];
    vec c = d[4 * step] - d[2 * step], e = 2 * (d[3 * step] - d[step]);
    to[0] = 4 * d[0] - 5 * d[2 * step] + d[4 * step];
    to[step] = a + b;
    to[2 * step] = a - b;
    to[3 * step] = c + e;
    to[4 * step] = c - e;
    to[5 * step] = 4 * d[step] - 5 * d[3 * step] + d[5 * step];
}

/* r taps of a filter to six points. */
ALWAYS void points_of_taps(size_t r, const vec *g, size_t g_step, vec *to,
                           size_t step) {
    vec even = g[0] + g[2 * g_step], odd = g[g_step];
    vec even2 = g[0] + 4 * g[2 * g_step], odd2 = 2 * g[g_step];
    if (r == 5) {
        even += g[4 * g_step];
        even2 += 16 * g[4 * g_step];
        odd += g[3 * g_step];
        odd2 += 8 * g[3 * g_step];
    }
    to[0] = g[0] * (1.0f / 4);
    to[step] = (even + odd) * (-1.0f / 6);
    to[2 * step] = (even - odd) * (-1.0f / 6);
    to[3 * step] = (even2 + odd2) * (1.0f / 24);
    to[4 * step] = (even2 - odd2) * (1.0f / 24);
    to[5 * step] = g[(r - 1) * g_step];
}

/* The adjoint: six points to the gradients of r taps. */
ALWAYS void taps_of_points(size_t r, const vec *v, size_t step, vec *g, size_t g_step) {
    vec s = (v[step] + v[2 * step]) * (-1.0f / 6);
    vec d = (v[step] - v[2 * step]) * (-1.0f / 6);
    vec s2 = (v[3 * step] + v[4 * step]) * (1.0f / 24);
    vec d2 = (v[3 * step] - v[4 * step]) * (1.0f / 24);
    g[0] = v[0] * (1.0f / 4) + s + s2;
    g[g_step] = d + 2 * d2;
    g[2 * g_step] = s + 4 * s2;
    if (r == 5) {
        g[3 * g_step] = d + 8 * d2;
        g[4 * g_step] = s + 16 * s2;
    }
    g[(r - 1) * g_step] += v[5 * step];
}

/* Six points to m = 7 - r outputs. */
ALWAYS void outputs_of_points(size_t r, const vec *v, size_t step, vec *y,
                              size_t y_step) {
    vec s = v[step] + v[2 * step], d = v[step] - v[2 * step];
    vec s2 = v[3 * step] + v[4 * step], d2 = v[3 * step] - v[4 * step];
    y[0] = v[0] + s + s2;
    if (r == 5) {
        y[y_step] = d + 2 * d2 + v[5 * step];
        return;
    }
    y[y_step] = d + 2 * d2;
    y[2 * y_step] = s + 4 * s2;
    y[3 * y_step] = d + 8 * d2 + v[5 * step];
}

/* The adjoint: gradients of outputs to six points. */
ALWAYS void points_of_outputs(size_t r, const vec *y, size_t y_step, vec *to,
                              size_t step) {
    vec even = y[0], odd = y[y_step], even2 = y[0], odd2 = 2 * y[y_step];
    if (r == 3) {
        even += y[2 * y_step];
        even2 += 4 * y[2 * y_step];
        odd += y[3 * y_step];
        odd2 += 8 * y[3 * y_step];
    }
    to[0] = y[0];
    to[step] = even + odd;
    to[2 * step] = even - odd;
    to[3 * step] = even2 + odd2;
    to[4 * step] = even2 - odd2;
    to[5 * step] = y[(6 - r) * y_step];
}

#endif
