/* Moves the boxes around objects with the pixels of their image. */
#include <math.h>

#include <dlcore/data.h>

#include "data/transform_kinds.h"

/* The least side of a box that is left, in pixels: the min_size that torchvision's
 * SanitizeBoundingBoxes has unless it is told otherwise. */
#define MIN_SIDE 1.0

/* A box on its way through a list. */
typedef struct moving_box {
    double x0, y0, x1, y1;
    double visible; /* the share of its area that is left */
} moving_box;

static double area_of(const moving_box *box) {
    return fmax(0, box->x1 - box->x0) * fmax(0, box->y1 - box->y0);
}

/* Moves the box to the one around its corners, which the map, as it says where pixels
 * come from, is inverted for. */
static void move(const dlc_step_plan *plan, const dlc_affine *map, moving_box *box) {
    double determinant = map->a * map->e - map->b * map->d;
    moving_box made = {INFINITY, INFINITY, -INFINITY, -INFINITY, box->visible};
    for (int corner = 0; corner < 4; corner++) {
        double x = (corner & 1 ? box->x1 : box->x0) - (double)plan->in_width / 2;
        double y = (corner & 2 ? box->y1 : box->y0) - (double)plan->in_height / 2;
        double right = (map->e * (x - map->c) - map->b * (y - map->f)) / determinant;
        double down = (map->a * (y - map->f) - map->d * (x - map->c)) / determinant;
        made.x0 = fmin(made.x0, right + (double)plan->out_width / 2);
        made.x1 = fmax(made.x1, right + (double)plan->out_width / 2);
        made.y0 = fmin(made.y0, down + (double)plan->out_height / 2);
        made.y1 = fmax(made.y1, down + (double)plan->out_height / 2);
    }
    *box = made;
}

static void clip(int64_t height, int64_t width, moving_box *box) {
    double whole = area_of(box);
    box->x0 = fmax(box->x0, 0);
    box->y0 = fmax(box->y0, 0);
    box->x1 = fmin(box->x1, (double)width);
    box->y1 = fmin(box->y1, (double)height);
    box->visible *= whole > 0 ? area_of(box) / whole : 0;
}

static moving_box follow(const dlc_transforms *list, const dlc_transform_plan *plan,
                         const float *row) {
    moving_box box = {(double)row[DLC_BOX_X0], (double)row[DLC_BOX_Y0],
                      (double)row[DLC_BOX_X1], (double)row[DLC_BOX_Y1], 1};
    clip(plan->height, plan->width, &box);
    box.visible = 1; /* what was never in the image does not count as lost */
    for (int32_t i = 0; i < list->count; i++) {
        const dlc_transform_step *step = &list->step[i];
        dlc_affine map[DLC_TRANSFORM_MAPS];
        int32_t maps = step->kind->maps ? step->kind->maps(step, &plan->step[i], map)
                                        : 0;
        for (int32_t k = 0; k < maps; k++) {
            move(&plan->step[i], &map[k], &box);
            clip(plan->step[i].out_height, plan->step[i].out_width, &box);
        }
    }
    return box;
}

static int is_left(const moving_box *box, double min_visibility) {
    return box->visible > 0 && box->visible >= min_visibility &&
           box->x1 - box->x0 >= MIN_SIDE && box->y1 - box->y0 >= MIN_SIDE;
}

int64_t dlc_transforms_apply_boxes(const dlc_transforms *list,
                                   const dlc_transform_plan *plan,
                                   double min_visibility, const float *from,
                                   int64_t rows, float *to) {
    int64_t kept = 0;
    for (int64_t i = 0; i < rows; i++, from += DLC_BOX_VALUES) {
        if (from[DLC_BOX_CLASS] < 0)
            continue;
        moving_box box = follow(list, plan, from);
        if (!is_left(&box, min_visibility))
            continue;
        to[DLC_BOX_CLASS] = from[DLC_BOX_CLASS];
        to[DLC_BOX_X0] = (float)box.x0;
        to[DLC_BOX_Y0] = (float)box.y0;
        to[DLC_BOX_X1] = (float)box.x1;
        to[DLC_BOX_Y1] = (float)box.y1;
        to += DLC_BOX_VALUES;
        kept++;
    }
    return kept;
}
