/* Learning-rate policies. Those without a source are defined as in Caffe (Jia et al.,
 * "Caffe: Convolutional Architecture for Fast Feature Embedding", 2014;
 * SolverParameter.lr_policy in its caffe.proto). */
#include "solver/policies.h"

#include <math.h>
#include <string.h>

/* From 0 at the start to 1 at the end and after it. */
static double progress(const dlc_lr_policy *p, double i) {
    return i < p->end ? i / p->end : 1;
}

/* From `from` to `to` along half a period of the cosine. */
static double half_cosine(double from, double to, double done) {
    return to + (from - to) * (1 + cos(M_PI * done)) / 2;
}

static double fixed(const dlc_lr_policy *p, double i) {
    (void)i;
    return p->base_rate;
}

static double step(const dlc_lr_policy *p, double i) {
    return p->base_rate * pow(p->gamma, floor(i / p->step));
}

static double multistep(const dlc_lr_policy *p, double i) {
    size_t done = 0;
    while (done < p->nvalues && i >= (double)p->values[done])
        done++;
    return p->base_rate * pow(p->gamma, (double)done);
}

static double exponential(const dlc_lr_policy *p, double i) {
    return p->base_rate * pow(p->gamma, i);
}

static double inverse(const dlc_lr_policy *p, double i) {
    return p->base_rate * pow(1 + p->gamma * i, -p->power);
}

static double polynomial(const dlc_lr_policy *p, double i) {
    return p->base_rate * pow(1 - progress(p, i), p->power);
}

static double sigmoid(const dlc_lr_policy *p, double i) {
    return p->base_rate / (1 + exp(-p->gamma * (i - p->step)));
}

/* Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", 2017,
 * equation 5: one period. */
static double cosine(const dlc_lr_policy *p, double i) {
    return half_cosine(p->base_rate, p->min_rate, progress(p, i));
}

/* The period that iteration i is in: where it begins, and its length. */
static double find_period(const dlc_lr_policy *p, double i, double *length) {
    double begin = 0;
    *length = p->step;
    if (p->period_mult <= 1)
        return floor(i / p->step) * p->step;
    while (i >= begin + *length) {
        begin += *length;
        *length *= p->period_mult;
    }
    return begin;
}

/* The same paper, with restarts. */
static double cosine_restarts(const dlc_lr_policy *p, double i) {
    double length, begin = find_period(p, i, &length);
    return half_cosine(p->base_rate, p->min_rate, (i - begin) / length);
}

static double next_restart(const dlc_lr_policy *p, double from) {
    double length, begin = find_period(p, from, &length);
    return begin < from ? begin + length : begin;
}

/* Smith and Topin, "Super-Convergence: Very Fast Training of Neural Networks Using
 * Large Learning Rates", 2018. As in PyTorch both sides are cosines, the second one
 * goes down to the smallest rate, and both end one step before cycle_rise and 1 of the
 * iterations. */
static double end_of_rise(const dlc_lr_policy *p) {
    return p->cycle_rise * p->end - 1;
}

double dlc_lr_cycle(const dlc_lr_policy *p, double i, double begin, double top,
                    double end) {
    double rise = end_of_rise(p), last = p->end - 1;
    if (i < rise)
        return half_cosine(begin, top, i / rise);
    return half_cosine(top, end, i < last ? (i - rise) / (last - rise) : 1);
}

static double one_cycle(const dlc_lr_policy *p, double i) {
    return dlc_lr_cycle(p, i, p->base_rate / p->cycle_divisor, p->base_rate,
                        p->min_rate);
}

static double top_of_cycle(const dlc_lr_policy *p, double from) {
    return fmax(from, ceil(end_of_rise(p)));
}

static const dlc_lr_form forms[] = {
    {"fixed", 0, fixed, NULL},
    {"step", DLC_LR_STEP_SIZE, step, NULL},
    {"multistep", DLC_LR_STEP_VALUES, multistep, NULL},
    {"exp", 0, exponential, NULL},
    {"inv", 0, inverse, NULL},
    {"poly", DLC_LR_END, polynomial, NULL},
    {"sigmoid", DLC_LR_STEP_SIZE | DLC_LR_NEGATIVE_GAMMA, sigmoid, NULL},
    {"cosine", DLC_LR_END, cosine, NULL},
    {"cosine_restarts", DLC_LR_STEP_SIZE, cosine_restarts, next_restart},
    {"one_cycle", DLC_LR_END | DLC_LR_OWN_WARMUP | DLC_LR_CYCLE, one_cycle,
     top_of_cycle},
    {"plateau", DLC_LR_FALLS, fixed, NULL}, /* plateau.h multiplies it */
};

const dlc_lr_form *dlc_lr_form_find(const char *name) {
    for (size_t i = 0; name && i < sizeof forms / sizeof *forms; i++)
        if (!strcmp(name, forms[i].name))
            return &forms[i];
    return NULL;
}
