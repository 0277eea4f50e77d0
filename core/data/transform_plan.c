/* Plans: what comes out of a list, what is drawn for a sample, and what part of its
 * image is needed for that. */
#include <math.h>

#include "base/status.h"
#include "data/transform_kinds.h"

/* The random streams that transforms draw from ("tran"); the number in the list is
 * added. */
#define STREAM UINT64_C(0x7472616e00000000)
/* Counters of a position, each four words; a transform that needs more (noise) draws
 * the seed of a stream of its own. */
#define COUNTERS 64

int dlc_transforms_keep(const dlc_transforms *list) {
    int keep = 1;
    for (int32_t i = 0; i < list->count; i++)
        keep = keep && !list->step[i].kind->apply;
    return keep;
}

/* ---- Help for transforms ----------------------------------------------------- */

dlc_status dlc_bounds_check(const dlc_transform_step *step, int option) {
    const double *bounds = step->value[option].list.memory;
    if (step->value[option].list.count == 2 && bounds[0] <= bounds[1] && bounds[1] > 0)
        return DLC_OK;
    return dlc_fail(DLC_ERR_CONFIG, "%s is two numbers, the smaller one first",
                    step->kind->options[option].name);
}

double dlc_draw_between(dlc_random *random, double least, double most) {
    return least + (most - least) * (double)dlc_random_uniform(random);
}

void dlc_draw_sides(dlc_random *random, const dlc_step_plan *plan, const double *scale,
                    const double *ratio, double *one, double *other) {
    double pixels = (double)plan->in_height * (double)plan->in_width;
    double area = pixels * dlc_draw_between(random, scale[0], scale[1]);
    double aspect = exp(dlc_draw_between(random, log(ratio[0]), log(ratio[1])));
    *one = rint(sqrt(area * aspect));
    *other = rint(sqrt(area / aspect));
}

dlc_rect dlc_draw_place(dlc_random *random, const dlc_step_plan *plan, double height,
                        double width) {
    dlc_rect box = {.width = (int64_t)width, .height = (int64_t)height};
    box.y = (int64_t)dlc_random_below(random,
                                      (uint64_t)(plan->in_height - box.height + 1));
    box.x = (int64_t)dlc_random_below(random,
                                      (uint64_t)(plan->in_width - box.width + 1));
    return box;
}

dlc_rect dlc_read_whole(const dlc_transform_step *step, const dlc_step_plan *plan) {
    (void)step;
    return (dlc_rect){0, 0, plan->in_width, plan->in_height};
}

/* ---- Shapes ------------------------------------------------------------------ */

/* Fails with `status`, with the place of a transform before the detail sentence. */
static dlc_status fail_at(dlc_status status, int32_t index,
                          const dlc_transform_step *step) {
    dlc_text place = {0};
    dlc_transform_place(&place, index, step->kind->name);
    status = dlc_fail(status, "transforms: %s: %s", dlc_text_string(&place),
                      dlc_detail());
    dlc_text_free(&place);
    return status;
}

/* Does a transform take samples of this kind? */
static dlc_status check_kind(const dlc_transform_step *step, int64_t channels,
                             dlc_dtype type) {
    unsigned flags = step->kind->flags;
    if (!(flags & DLC_TRANSFORM_ANY) && type != DLC_U8)
        return dlc_fail(DLC_ERR_CONFIG,
                        "takes images of bytes, but the samples are float32");
    if ((flags & DLC_TRANSFORM_COLOR) && channels != 1 && channels != 3)
        return dlc_fail(DLC_ERR_CONFIG,
                        "takes images of 1 or 3 channels, but the samples have %lld",
                        (long long)channels);
    for (size_t i = 0; (flags & DLC_TRANSFORM_LAST) && step->kind->options[i].name; i++)
        if (step->kind->options[i].type == DLC_OPT_FLOATS &&
            step->value[i].list.count > 1 &&
            (int64_t)step->value[i].list.count != channels)
            return dlc_fail(DLC_ERR_CONFIG,
                            "%s has %zu values, but the samples have %lld channels: "
                            "give one value, or one per channel",
                            step->kind->options[i].name, step->value[i].list.count,
                            (long long)channels);
    return DLC_OK;
}

/* `type`: of an image; NULL for a mask, which a transform does not refuse. */
static dlc_status find_shape(const dlc_transforms *list, const dlc_shape *in,
                             const dlc_dtype *type, dlc_shape *out) {
    int64_t height = in->dims[1], width = in->dims[2];
    for (int32_t i = 0; i < list->count; i++) {
        const dlc_transform_step *step = &list->step[i];
        dlc_status status = type ? check_kind(step, in->dims[0], *type) : DLC_OK;
        if (status == DLC_OK && step->kind->size)
            status = step->kind->size(step, &height, &width);
        if (status != DLC_OK)
            return fail_at(DLC_ERR_CONFIG, i, step);
    }
    if (!height || !width)
        return dlc_fail(
            DLC_ERR_CONFIG,
            "transforms: images may have different sizes, and nothing in the "
            "list makes them equal: add random_resized_crop, center_crop, or "
            "resize with height and width");
    *out = (dlc_shape){3, {in->dims[0], height, width}};
    return DLC_OK;
}

dlc_status dlc_transforms_shape(const dlc_transforms *list, const dlc_shape *in,
                                dlc_dtype type, dlc_shape *out) {
    return find_shape(list, in, &type, out);
}

dlc_status dlc_transforms_mask_shape(const dlc_transforms *list, const dlc_shape *in,
                                     dlc_shape *out) {
    return find_shape(list, in, NULL, out);
}

/* ---- Samples ----------------------------------------------------------------- */

static dlc_status draw_steps(const dlc_transforms *list, uint64_t seed,
                             uint64_t position, int64_t height, int64_t width,
                             dlc_transform_plan *plan) {
    for (int32_t i = 0; i < list->count; i++) {
        const dlc_transform_step *step = &list->step[i];
        dlc_step_plan *made = &plan->step[i];
        *made = (dlc_step_plan){.in_height = height, .in_width = width};
        if (step->kind->size && step->kind->size(step, &height, &width) != DLC_OK)
            return fail_at(DLC_ERR_DATA, i, step);
        made->out_height = height;
        made->out_width = width;
        dlc_random random = {.seed = seed,
                             .stream = STREAM + (uint64_t)i,
                             .counter = position * COUNTERS};
        if (step->kind->draw)
            step->kind->draw(step, &random, made);
    }
    return DLC_OK;
}

static dlc_rect clip_to_input(dlc_rect part, int64_t height, int64_t width) {
    int64_t right = part.x + part.width, bottom = part.y + part.height;
    dlc_rect inside = {.x = part.x > 0 ? part.x : 0, .y = part.y > 0 ? part.y : 0};
    inside.width = (right < width ? right : width) - inside.x;
    inside.height = (bottom < height ? bottom : height) - inside.y;
    if (inside.width <= 0 || inside.height <= 0)
        return (dlc_rect){0, 0, 1, 1}; /* only border is seen */
    return inside;
}

/* From the last transform back to the source: the part that each has to make. */
static void find_needs(const dlc_transforms *list, int64_t height, int64_t width,
                       dlc_transform_plan *plan) {
    const dlc_step_plan *last = &plan->step[list->count > 0 ? list->count - 1 : 0];
    dlc_rect need = {0, 0, width, height};
    if (list->count)
        need = (dlc_rect){0, 0, last->out_width, last->out_height};
    for (int32_t i = list->count; i-- > 0;) {
        const dlc_transform_step *step = &list->step[i];
        dlc_step_plan *at = &plan->step[i];
        at->need = need;
        if (step->kind->reads)
            need = step->kind->reads(step, at);
        need = clip_to_input(need, at->in_height, at->in_width);
    }
    plan->region = need;
}

/* The smallest scale that leaves the first resampling as many pixels as it makes, if
 * everything before it does not mind. */
static double smallest_scale(const dlc_transforms *list,
                             const dlc_transform_plan *plan) {
    for (int32_t i = 0; i < list->count; i++) {
        const dlc_step_plan *at = &plan->step[i];
        unsigned flags = list->step[i].kind->flags;
        if (!(flags & DLC_TRANSFORM_SCALABLE))
            return 1;
        if (flags & DLC_TRANSFORM_RESAMPLE)
            return fmin(1, fmax((double)at->out_width / (double)at->box.width,
                                (double)at->out_height / (double)at->box.height));
    }
    return 1;
}

dlc_status dlc_transforms_plan(const dlc_transforms *list, uint64_t seed,
                               uint64_t position, int64_t height, int64_t width,
                               dlc_transform_plan *plan) {
    plan->height = height;
    plan->width = width;
    DLC_TRY(draw_steps(list, seed, position, height, width, plan));
    find_needs(list, height, width, plan);
    plan->scale = smallest_scale(list, plan);
    return DLC_OK;
}
