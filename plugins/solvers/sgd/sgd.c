/* Solver sgd: stochastic gradient descent with momentum. In Caffe's form (Jia et al.
 * 2014; Sutskever et al. 2013, "On the importance of initialization and momentum in
 * deep learning", equations 1-4):
 *
 *     v = momentum v_old + learning_rate g
 *     weight -= nesterov ? (1 + momentum) v - momentum v_old : v
 *
 * In PyTorch's form (torch.optim.SGD) a change of the learning rate also changes the
 * part of a step that comes from the velocity:
 *
 *     v = momentum v_old + (1 - dampening) g                 first step: v = g
 *     weight -= learning_rate (nesterov ? g + momentum v : v)
 *
 * Both are the same while the learning rate stays and nothing is damped. */
#include <string.h>

#include <dlcore/solver.h>

#include "rules.h"

static const dlc_host *host;

static dlc_status sgd_load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

static int has_torch_form(const dlc_settings *settings) {
    return strcmp(host->get_string(settings, "momentum_form"), "pytorch") == 0;
}

static dlc_status check_dampening(const dlc_settings *settings) {
    if (host->get_float(settings, "dampening") <= 0)
        return DLC_OK;
    if (!has_torch_form(settings))
        return host->fail(DLC_ERR_CONFIG, "%s: dampening needs momentum_form = pytorch",
                          host->where(settings, "dampening"));
    if (host->get_bool(settings, "nesterov"))
        return host->fail(DLC_ERR_CONFIG, "%s: dampening doesn't work with nesterov",
                          host->where(settings, "dampening"));
    return DLC_OK;
}

static dlc_status sgd_needs(const dlc_settings *settings, dlc_solver_needs *needs) {
    static const dlc_rule *const rules[2][2] = {{&momentum, &nesterov},
                                                {&torch_momentum, &torch_nesterov}};
    int torch = has_torch_form(settings);
    dlc_status rc = check_dampening(settings);
    if (rc != DLC_OK)
        return rc;
    needs->rule = rules[torch][host->get_bool(settings, "nesterov") != 0];
    needs->slot_name[VELOCITY] = torch ? "momentum_buffer" : "momentum";
    needs->slot_saved = 1u << VELOCITY;
    needs->momentum = "momentum";
    return DLC_OK;
}

static dlc_status sgd_values(const dlc_settings *settings, int64_t iteration,
                             dlc_rule_values *values) {
    double dampening = iteration > 0 ? host->get_float(settings, "dampening") : 0;
    values->own[MOMENTUM] = (float)host->get_float(settings, "momentum");
    values->own[UNDAMPED] = (float)(1 - dampening);
    return DLC_OK;
}

static const dlc_option options[] = {
    DLC_FLOAT("momentum", "0.9", 0, 1,
              "fraction of the last step that the next one keeps"),
    DLC_BOOL("nesterov", "no", "look ahead along the momentum (Nesterov)"),
    DLC_CHOICE(
        "momentum_form", "caffe", "caffe|pytorch",
        "caffe: the velocity is a sum of steps; pytorch: of gradients, so that a "
        "change of the learning rate changes it at once"),
    DLC_FLOAT("dampening", "0", 0, 1,
              "fraction of the gradient that the velocity leaves out; needs "
              "momentum_form = pytorch"),
    DLC_OPTIONS_END,
};

static const dlc_solver_ops ops = {
    .size = sizeof ops,
    .needs = sgd_needs,
    .values = sgd_values,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_SOLVER,
     .name = "sgd",
     .help = "stochastic gradient descent with momentum",
     .options = options,
     .ops = &ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("sgd", DLC_VERSION, "BSD-2-Clause", features, sgd_load);
