/* rotate: turns the image about its center; what comes into view is 0. */
#include <string.h>

#include "base/status.h"
#include "data/affine.h"
#include "data/transform_kinds.h"

enum { DEGREES, INTERPOLATION };

void dlc_rotate_draw(const dlc_transform_step *step, dlc_random *random,
                     dlc_step_plan *plan) {
    double most = step->value[DEGREES].f;
    plan->amount[0] = dlc_draw_between(random, -most, most);
}

dlc_status dlc_work_map(dlc_transform_work *work, const dlc_affine *affine,
                        int bilinear) {
    dlc_image made;
    DLC_TRY(dlc_work_interleave(work));
    DLC_TRY(dlc_work_make(work, work->image.height, work->image.width, 0, &made));
    dlc_affine_map(affine, bilinear && !work->is_mask, &work->image, &made);
    made.x = work->image.x;
    made.y = work->image.y;
    dlc_work_take(work, &made);
    return DLC_OK;
}

int32_t dlc_rotate_maps(const dlc_transform_step *step, const dlc_step_plan *plan,
                        dlc_affine *map) {
    (void)step;
    *map = dlc_affine_rotate(plan->amount[0]);
    return 1;
}

dlc_status dlc_rotate_apply(const dlc_transform_step *step, const dlc_step_plan *plan,
                            dlc_transform_work *work) {
    dlc_affine affine;
    (void)dlc_rotate_maps(step, plan, &affine);
    return dlc_work_map(work, &affine,
                        strcmp(step->value[INTERPOLATION].s, "bilinear") == 0);
}
