/* Writes the report of `dlcore plan` as text and as JSON. */
#include "plan_report.h"

#include <math.h>
#include <stdio.h>

/* ---- Phrases -----------------------------------------------------------------------
 */

static const char *const kinds[] = {"data", "tensor", "stages"};

static void mix_text(const plan_mix *mix, char *text, size_t room) {
    char groups[64] = "";
    if (mix->split)
        (void)snprintf(groups, sizeof groups, ", %d tensor layer%s on %d ranks",
                       (int)mix->split, mix->split == 1 ? "" : "s", (int)mix->tensor);
    if (mix->kind == PLAN_STAGES)
        (void)snprintf(text, room, "%d stages, %d micro-batch%s%s", (int)mix->stages,
                       (int)mix->micro_batches, mix->micro_batches == 1 ? "" : "es",
                       groups);
    else
        (void)snprintf(text, room, "data%s", groups);
}

static const char *overlap_words(dlc_plan_overlap overlap) {
    return overlap == DLC_PLAN_OVERLAP_FORWARD
               ? "the next forward overlaps reductions that it does not need yet"
           : overlap == DLC_PLAN_OVERLAP_SHARDED
               ? "each rank updates its shard of the weights"
           : overlap == DLC_PLAN_OVERLAP_FUSED
               ? "reduction, update and all-gather are one pass"
               : "each rank updates all weights";
}

static void images(double per_s, char text[16]) {
    (void)snprintf(text, 16, per_s < 100 ? "%.1f" : "%.0f", per_s);
}

static void milliseconds(double seconds, char text[16]) {
    (void)snprintf(text, 16, seconds < 0.01 ? "%.3f" : "%.1f", seconds * 1e3);
}

/* ---- Measurements and target --------------------------------------------- */

static void add_head(const plan_report *r, dlc_text *text) {
    const plan_measured *m = r->measured;
    double weights = dlc_plan_parameter_bytes(r->layer, m->layers), times = 0;
    for (size_t i = 0; i < m->layers; i++)
        times += dlc_plan_compute(&m->layer[i], 1, (double)m->batch);
    dlc_text_add(text, "%s: %.2f million parameters (%.1f MB), batch %g per rank\n",
                 r->net, weights / 4e6, weights / 1e6, r->batch);
    dlc_text_add(text,
                 "measured: device %s, %d rank%s at the same time, %d thread%s each: "
                 "forward and backward of a batch of %lld take %.1f ms",
                 r->device, (int)m->ranks, m->ranks == 1 ? "" : "s", (int)m->threads,
                 m->threads == 1 ? "" : "s", (long long)m->batch, times * 1e3);
    if (m->micro_batch > 0)
        dlc_text_add(text, ", of %lld samples %.1f ms", (long long)m->micro_batch,
                     dlc_plan_compute(m->layer, m->layers, (double)m->micro_batch) *
                         1e3);
    if (m->update_bandwidth > 0)
        dlc_text_add(text, ", the update %.1f ms", weights / m->update_bandwidth * 1e3);
    dlc_text_add(text, "\n");
    if (m->ranks > 1)
        dlc_text_add(
            text,
            "all-reduce over %d ranks (%s): latency %.1f us, bandwidth %.2f GB/s\n",
            (int)m->ranks, m->transport, m->all_reduce_latency * 1e6,
            m->all_reduce_bandwidth / 1e9);
    if (r->given->images_per_s > 0)
        dlc_text_add(text, "scaled to: a rank that trains %g images/s alone\n",
                     r->given->images_per_s);
    else if (r->given->speed != 1)
        dlc_text_add(text, "scaled to: a rank %g times as fast\n", r->given->speed);
}

static void add_target(const plan_report *r, dlc_text *text) {
    const dlc_plan_cluster *c = &r->target->cluster;
    dlc_text_add(text, "predicted for: %d machine%s with %d rank%s each", (int)c->nodes,
                 c->nodes == 1 ? "" : "s", (int)c->ranks_per_node,
                 c->ranks_per_node == 1 ? "" : "s");
    if (r->given->from)
        dlc_text_add(text, " (%s)", r->given->from);
    dlc_text_add(text, "\n");
    if (c->ranks_per_node > 1)
        dlc_text_add(text, "    inside a machine: %s%s%s\n", r->target->inside,
                     r->target->route_inside[0] ? ", by " : "",
                     r->target->route_inside);
    if (c->nodes > 1)
        dlc_text_add(text, "    between machines: %s, by %s\n", r->target->between,
                     r->target->route_between);
}

/* ---- Tables ---------------------------------------------------------------------- */

static void add_strong(const plan_scaling *s, dlc_text *text) {
    char speed[16];
    images(s->images_per_s, speed);
    if (s->samples > 0)
        dlc_text_add(text, "%9s %5.0f %%", speed, 100 * s->efficiency);
    else
        dlc_text_add(text, "%9s %7s", "-", "-");
}

static void add_rows(const plan_prediction *p, dlc_text *text) {
    dlc_text_add(
        text, "\ndata parallel    weak (batch grows)                     strong (batch "
              "split)\n");
    dlc_text_add(text, "   ranks machines  images/s efficient  exposed ms  memory MB"
                       "  images/s efficient   best mix (weak)        images/s\n");
    for (size_t i = 0; i < p->rows; i++) {
        const plan_row *row = &p->row[i];
        char mix[96], exposed[16], weak[16], best[16];
        images(row->weak.images_per_s, weak);
        images(row->weak.best.images_per_s, best);
        mix_text(&row->weak.best, mix, sizeof mix);
        milliseconds(row->weak.step.exposed, exposed);
        dlc_text_add(text, "%8d %8d %9s %7.0f %% %11s %10.0f ", (int)row->ranks,
                     (int)row->nodes, weak, 100 * row->weak.efficiency, exposed,
                     row->weak.memory / 1e6);
        add_strong(&row->strong, text);
        dlc_text_add(text, "    %-22s %8s\n", mix, best);
    }
}

static void add_choices(const plan_report *r, dlc_text *text) {
    const plan_prediction *p = r->prediction;
    const plan_row *last = &p->row[p->rows - 1];
    dlc_text_add(
        text,
        "\nwith %d ranks, each layer alone, without overlap:\n"
        "  parameters MB    data ms  tensor ms     data sent MB  tensor sent MB"
        "  best   layer\n",
        (int)last->ranks);
    for (size_t i = 0; i < p->layers; i++) {
        const dlc_plan_layer_choice *c = &p->choice[i];
        char data[16], tensor[16];
        if (!r->layer[i].can_split || r->layer[i].parameter_bytes <= 0)
            continue;
        milliseconds(c->data_seconds, data);
        milliseconds(c->tensor_seconds, tensor);
        dlc_text_add(text, "%15.2f %10s %10s %16.2f %15.2f  %-6s %s\n",
                     r->layer[i].parameter_bytes / 1e6, data, tensor,
                     c->data_bytes / 1e6, c->tensor_bytes / 1e6,
                     c->tensor ? "tensor" : "data", r->layer[i].name);
    }
}

static void add_stages(const plan_report *r, const char *which, const plan_mix *mix,
                       const dlc_plan_stage *stages, dlc_text *text) {
    if (mix->kind != PLAN_STAGES || !mix->stages)
        return;
    dlc_text_add(
        text,
        "\n%s: %d stages, %d micro-batch%s, %.0f images/s, ranks idle %.0f %% of the "
        "time\n",
        which, (int)mix->stages, (int)mix->micro_batches,
        mix->micro_batches == 1 ? "" : "es", mix->images_per_s, 100 * mix->bubble);
    for (int32_t s = 0; s < mix->stages; s++) {
        const dlc_plan_stage *stage = &stages[s];
        dlc_text_add(text,
                     "    stage %d, %d rank%s: %s .. %s: %.2f + %.2f ms, %.1f MB of "
                     "parameters, %.0f MB in all\n",
                     (int)s, (int)stage->ranks, stage->ranks == 1 ? "" : "s",
                     r->layer[stage->first].name, r->layer[stage->end - 1].name,
                     stage->forward * 1e3, stage->backward * 1e3,
                     stage->parameter_bytes / 1e6, stage->memory_bytes / 1e6);
    }
}

static void add_pipeline(const plan_report *r, dlc_text *text) {
    const plan_prediction *p = r->prediction;
    add_stages(r, "best pipeline", &p->pipelined, p->stage, text);
    if (p->asked_ranks) {
        char mix[96], per_s[16];
        mix_text(&p->asked, mix, sizeof mix);
        images(p->asked.images_per_s, per_s);
        dlc_text_add(text, "\nas set: %d ranks, %s: %s images/s\n", (int)p->asked_ranks,
                     mix, per_s);
    }
    add_stages(r, "pipeline as set", &p->asked, p->asked_stage, text);
}

static void add_advice(const plan_report *r, dlc_text *text) {
    const plan_prediction *p = r->prediction;
    const plan_row *last = &p->row[p->rows - 1];
    const dlc_plan_step *step = p->split.split ? &p->split.mix : &p->split.data;
    char mix[96];
    if (last->ranks == 1)
        return;
    mix_text(&last->weak.best, mix, sizeof mix);
    dlc_text_add(text, "\nbest for %d ranks: %s; a step of %.2f ms", (int)last->ranks,
                 mix, last->weak.best.seconds * 1e3);
    if (last->weak.best.kind != PLAN_STAGES)
        dlc_text_add(
            text,
            ", including %.2f ms of exposed exchange; %d bucket%s of %.2f MB; "
            "%s",
            step->exposed * 1e3, (int)step->buckets, step->buckets == 1 ? "" : "s",
            fmin(step->bucket, step->bytes) / 1e6, overlap_words(step->overlap));
    dlc_text_add(text, "\n");
}

static void add_check(const plan_check *check, dlc_text *text) {
    if (!check->done) {
        dlc_text_add(
            text, "not compared with a real run, which needs 2 ranks on this machine "
                  "and no --no-check\n");
        return;
    }
    dlc_text_add(
        text,
        "compared with a real run of %d ranks, %d iterations: %.1f images/s predicted, "
        "%.1f measured: %.1f %% too %s\n",
        (int)check->ranks, (int)check->iterations, check->predicted, check->measured,
        100 * fabs(check->error), check->error < 0 ? "low" : "high");
}

void plan_report_text(const plan_report *report, dlc_text *text) {
    add_head(report, text);
    add_target(report, text);
    add_rows(report->prediction, text);
    if (dlc_plan_ranks(&report->target->cluster) > 1)
        add_choices(report, text);
    add_pipeline(report, text);
    add_advice(report, text);
    add_check(&report->check, text);
}

/* ---- JSON ------------------------------------------------------------------------ */

static void json_measured(const plan_report *r, dlc_json *json) {
    const plan_measured *m = r->measured;
    dlc_json_object(json, "measured");
    dlc_json_int(json, "ranks", m->ranks);
    dlc_json_int(json, "threads", m->threads);
    dlc_json_int(json, "batch", m->batch);
    dlc_json_number(json, "pass_seconds",
                    dlc_plan_compute(m->layer, m->layers, (double)m->batch));
    if (m->micro_batch > 0) {
        dlc_json_int(json, "micro_batch", m->micro_batch);
        dlc_json_number(json, "micro_batch_seconds",
                        dlc_plan_compute(m->layer, m->layers, (double)m->micro_batch));
    }
    dlc_json_number(json, "update_bytes_per_s", m->update_bandwidth);
    dlc_json_string(json, "transport", m->transport);
    dlc_json_number(json, "all_reduce_latency", m->all_reduce_latency);
    dlc_json_number(json, "all_reduce_bytes_per_s", m->all_reduce_bandwidth);
    dlc_json_end_object(json);
}

static void json_link(const char *key, const dlc_plan_link *link, const char *words,
                      const char *route, dlc_json *json) {
    dlc_json_object(json, key);
    dlc_json_number(json, "latency", link->latency);
    dlc_json_number(json, "bytes_per_s", link->bandwidth);
    dlc_json_string(json, "route", route[0] ? route : NULL);
    dlc_json_string(json, "why", words);
    dlc_json_end_object(json);
}

static void json_target(const plan_report *r, dlc_json *json) {
    const plan_target *t = r->target;
    dlc_json_object(json, "target");
    dlc_json_int(json, "machines", t->cluster.nodes);
    dlc_json_int(json, "ranks_each", t->cluster.ranks_per_node);
    dlc_json_string(json, "from", r->given->from);
    json_link("inside", &t->cluster.inside, t->inside, t->route_inside, json);
    json_link("between", &t->cluster.between, t->between, t->route_between, json);
    dlc_json_end_object(json);
}

static void json_mix(const char *key, const plan_mix *mix, dlc_json *json) {
    dlc_json_object(json, key);
    dlc_json_string(json, "kind", kinds[mix->kind]);
    dlc_json_number(json, "seconds", mix->seconds);
    dlc_json_number(json, "images_per_s", mix->images_per_s);
    dlc_json_number(json, "memory_bytes", mix->memory);
    dlc_json_int(json, "split_layers", mix->split);
    dlc_json_int(json, "tensor", mix->tensor);
    dlc_json_int(json, "stages", mix->stages);
    dlc_json_int(json, "micro_batches", mix->micro_batches);
    dlc_json_number(json, "bubble", mix->bubble);
    dlc_json_end_object(json);
}

static void json_scaling(const char *key, const plan_scaling *s, dlc_json *json) {
    dlc_json_object(json, key);
    dlc_json_number(json, "samples", s->samples);
    dlc_json_number(json, "images_per_s", s->images_per_s);
    dlc_json_number(json, "efficiency", s->efficiency);
    dlc_json_number(json, "seconds", s->step.seconds);
    dlc_json_number(json, "forward", s->step.forward);
    dlc_json_number(json, "backward", s->step.backward);
    dlc_json_number(json, "update", s->step.update);
    dlc_json_number(json, "exchange", s->step.exchange);
    dlc_json_number(json, "exposed", s->step.exposed);
    dlc_json_int(json, "buckets", s->step.buckets);
    dlc_json_number(json, "bucket_bytes", s->step.bucket);
    dlc_json_string(json, "overlap", dlc_plan_overlap_text(s->step.overlap));
    dlc_json_number(json, "memory_bytes", s->memory);
    json_mix("best", &s->best, json);
    dlc_json_end_object(json);
}

static void json_rows(const plan_prediction *p, dlc_json *json) {
    dlc_json_array(json, "scaling");
    for (size_t i = 0; i < p->rows; i++) {
        const plan_row *row = &p->row[i];
        dlc_json_object(json, NULL);
        dlc_json_int(json, "ranks", row->ranks);
        dlc_json_int(json, "machines", row->nodes);
        json_scaling("weak", &row->weak, json);
        if (row->strong.samples > 0)
            json_scaling("strong", &row->strong, json);
        dlc_json_end_object(json);
    }
    dlc_json_end_array(json);
}

static void json_layers(const plan_report *r, dlc_json *json) {
    dlc_json_array(json, "layers");
    for (size_t i = 0; i < r->prediction->layers; i++) {
        const dlc_plan_layer *layer = &r->layer[i];
        const dlc_plan_layer_choice *choice = &r->prediction->choice[i];
        dlc_json_object(json, NULL);
        dlc_json_string(json, "name", layer->name);
        dlc_json_number(json, "parameter_bytes", layer->parameter_bytes);
        dlc_json_number(json, "output_bytes", layer->out_bytes);
        dlc_json_number(json, "forward", dlc_plan_seconds(layer->forward, r->batch));
        dlc_json_number(json, "backward", dlc_plan_seconds(layer->backward, r->batch));
        dlc_json_bool(json, "can_split", layer->can_split);
        dlc_json_string(json, "parallel", choice->tensor ? "tensor" : "data");
        dlc_json_number(json, "data_seconds", choice->data_seconds);
        dlc_json_number(json, "tensor_seconds", choice->tensor_seconds);
        dlc_json_number(json, "data_bytes", choice->data_bytes);
        dlc_json_number(json, "tensor_bytes", choice->tensor_bytes);
        dlc_json_end_object(json);
    }
    dlc_json_end_array(json);
}

static void json_stages(const plan_report *r, const char *key, const plan_mix *mix,
                        const dlc_plan_stage *stages, dlc_json *json) {
    dlc_json_array(json, key);
    for (int32_t s = 0; s < mix->stages; s++) {
        const dlc_plan_stage *stage = &stages[s];
        dlc_json_object(json, NULL);
        dlc_json_string(json, "first", r->layer[stage->first].name);
        dlc_json_string(json, "last", r->layer[stage->end - 1].name);
        dlc_json_int(json, "ranks", stage->ranks);
        dlc_json_number(json, "forward", stage->forward);
        dlc_json_number(json, "backward", stage->backward);
        dlc_json_number(json, "send_bytes", stage->send_bytes);
        dlc_json_number(json, "parameter_bytes", stage->parameter_bytes);
        dlc_json_number(json, "memory_bytes", stage->memory_bytes);
        dlc_json_end_object(json);
    }
    dlc_json_end_array(json);
}

static void json_check(const plan_check *check, dlc_json *json) {
    if (!check->done) {
        dlc_json_string(json, "check", NULL);
        return;
    }
    dlc_json_object(json, "check");
    dlc_json_int(json, "ranks", check->ranks);
    dlc_json_int(json, "iterations", check->iterations);
    dlc_json_number(json, "predicted_images_per_s", check->predicted);
    dlc_json_number(json, "measured_images_per_s", check->measured);
    dlc_json_number(json, "error", check->error);
    dlc_json_end_object(json);
}

void plan_report_json(const plan_report *report, dlc_json *json) {
    const plan_prediction *p = report->prediction;
    dlc_json_object(json, NULL);
    dlc_json_string(json, "net", report->net);
    dlc_json_string(json, "device", report->device);
    dlc_json_number(json, "batch", report->batch);
    json_measured(report, json);
    json_target(report, json);
    json_rows(report->prediction, json);
    json_layers(report, json);
    json_mix("pipeline", &p->pipelined, json);
    json_stages(report, "stages", &p->pipelined, p->stage, json);
    if (p->asked_ranks) {
        json_mix("mesh_as_set", &p->asked, json);
        json_stages(report, "stages_as_set", &p->asked, p->asked_stage, json);
    }
    json_check(&report->check, json);
    dlc_json_end_object(json);
}
