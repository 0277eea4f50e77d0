/* Writes the table as JSON. */
#include "time_report.h"

static const char *const part_keys[TIME_PARTS] = {"forward", "backward_data",
                                                  "backward_weights", "update"};

static void add_rate(dlc_json *json, const char *key, double rate) {
    if (rate > 0)
        dlc_json_number(json, key, rate);
    else
        dlc_json_string(json, key, NULL);
}

static void add_parts(dlc_json *json, const dlc_time_row *row) {
    for (int part = 0; part < TIME_PARTS; part++) {
        dlc_json_object(json, part_keys[part]);
        dlc_json_number(json, "us", row->seconds[part] * 1e6);
        dlc_json_int(json, "multiply_adds", row->work[part].multiply_adds);
        dlc_json_int(json, "bytes", (int64_t)row->work[part].bytes);
        add_rate(json, "gflops", dlc_time_gflops(row, part));
        add_rate(json, "gbytes_per_s", dlc_time_gbytes(row, part));
        add_rate(json, "of_limit", dlc_time_of_limit(row, part));
        dlc_json_end_object(json);
    }
    dlc_json_number(json, "us", row->total * 1e6);
    dlc_json_number(json, "share", row->share);
    add_rate(json, "gflops", dlc_time_row_gflops(row));
    add_rate(json, "gbytes_per_s", dlc_time_row_gbytes(row));
    add_rate(json, "of_limit", dlc_time_row_of_limit(row));
}

static void add_layer(dlc_json *json, const dlc_time_row *row) {
    dlc_json_object(json, NULL);
    dlc_json_string(json, "name", row->name);
    dlc_json_string(json, "type", row->type);
    dlc_json_string(json, "choice", row->fused_into ? NULL : row->choice);
    dlc_json_string(json, "fused_into", row->fused_into);
    dlc_json_int(json, "parameters", row->parameters);
    add_parts(json, row);
    dlc_json_end_object(json);
}

static void add_type(dlc_json *json, const dlc_time_row *row) {
    dlc_json_object(json, NULL);
    dlc_json_string(json, "type", row->type);
    dlc_json_int(json, "layers", row->layers);
    dlc_json_int(json, "parameters", row->parameters);
    add_parts(json, row);
    dlc_json_end_object(json);
}

void dlc_time_json(const dlc_time_head *head, const dlc_time_table *table,
                   dlc_json *json) {
    dlc_json_object(json, NULL);
    dlc_json_string(json, "net", head->net);
    dlc_json_string(json, "device", head->device);
    dlc_json_string(json, "solver", head->solver);
    dlc_json_string(json, "precision", head->precision);
    dlc_json_int(json, "threads", head->threads);
    dlc_json_int(json, "batch", head->batch);
    dlc_json_int(json, "passes", (int64_t)table->passes);
    dlc_json_number(json, "images_per_s", dlc_time_images(head, table));
    dlc_json_number(json, "feed_images_per_s", head->feed_images);
    dlc_json_object(json, "limits");
    add_rate(json, "gflops", head->limits.gflops);
    add_rate(json, "gbytes_per_s", head->limits.gbytes);
    dlc_json_end_object(json);
    dlc_json_object(json, "pass_us");
    dlc_json_number(json, "median", table->pass_median * 1e6);
    dlc_json_number(json, "least", table->pass_min * 1e6);
    dlc_json_number(json, "most", table->pass_max * 1e6);
    dlc_json_end_object(json);
    dlc_json_object(json, "total");
    add_parts(json, &table->sum);
    dlc_json_end_object(json);
    dlc_json_array(json, "layers");
    for (size_t i = 0; i < table->rows; i++)
        add_layer(json, &table->row[i]);
    dlc_json_end_array(json);
    dlc_json_array(json, "types");
    for (size_t i = 0; i < table->types; i++)
        add_type(json, &table->type[i]);
    dlc_json_end_array(json);
    dlc_json_end_object(json);
}
