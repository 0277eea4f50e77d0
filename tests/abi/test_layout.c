/* Where every field of the public structs lies, and what every constant is, on
 * machines with 64-bit pointers: what a plugin that was built against version 1.0
 * has compiled in.
 *
 * Rows are added when fields or constants are. A row that fails means that old
 * plugins break: put the field back where it was, and append instead.
 */
#include <check.h>
#include <stdlib.h>

#include <dlcore/dlcore.h>

typedef struct layout_row {
    const char *name;
    size_t offset, bytes, offset_now, bytes_now;
    int is_struct; /* bytes: as far as the rows below it reach */
} layout_row;

#define STRUCT(type, bytes_) \
    { .name = #type, .bytes = (bytes_), .bytes_now = sizeof(type), .is_struct = 1 }
#define FIELD(type, field, offset_, bytes_) \
    { \
        .name = #type "." #field, .offset = (offset_), .bytes = (bytes_), \
        .offset_now = offsetof(type, field), .bytes_now = sizeof(((type *)0)->field) \
    }

/* clang-format off */
static const layout_row rows[] = {
    STRUCT(dlc_shape, 56),
    FIELD(dlc_shape, rank, 0, 4),
    FIELD(dlc_shape, dims, 8, 48),

    STRUCT(dlc_tensor, 80),
    FIELD(dlc_tensor, shape, 0, 56),
    FIELD(dlc_tensor, dtype, 56, 4),
    FIELD(dlc_tensor, layout, 64, 8),
    FIELD(dlc_tensor, bytes, 72, 8),

    STRUCT(dlc_option, 64),
    FIELD(dlc_option, size, 0, 4),
    FIELD(dlc_option, type, 4, 4),
    FIELD(dlc_option, flags, 8, 4),
    FIELD(dlc_option, name, 16, 8),
    FIELD(dlc_option, def, 24, 8),
    FIELD(dlc_option, min, 32, 8),
    FIELD(dlc_option, max, 40, 8),
    FIELD(dlc_option, choices, 48, 8),
    FIELD(dlc_option, help, 56, 8),

    STRUCT(dlc_host, 112),
    FIELD(dlc_host, size, 0, 4),
    FIELD(dlc_host, abi_minor, 4, 4),
    FIELD(dlc_host, log, 8, 8),
    FIELD(dlc_host, fail, 16, 8),
    FIELD(dlc_host, alloc, 24, 8),
    FIELD(dlc_host, free, 32, 8),
    FIELD(dlc_host, get_int, 40, 8),
    FIELD(dlc_host, get_float, 48, 8),
    FIELD(dlc_host, get_bool, 56, 8),
    FIELD(dlc_host, get_string, 64, 8),
    FIELD(dlc_host, get_ints, 72, 8),
    FIELD(dlc_host, get_floats, 80, 8),
    FIELD(dlc_host, is_set, 88, 8),
    FIELD(dlc_host, where, 96, 8),
    FIELD(dlc_host, now_ns, 104, 8),

    STRUCT(dlc_feature, 64),
    FIELD(dlc_feature, size, 0, 4),
    FIELD(dlc_feature, kind, 4, 4),
    FIELD(dlc_feature, name, 8, 8),
    FIELD(dlc_feature, help, 16, 8),
    FIELD(dlc_feature, device, 24, 8),
    FIELD(dlc_feature, caps, 32, 8),
    FIELD(dlc_feature, needs, 40, 8),
    FIELD(dlc_feature, options, 48, 8),
    FIELD(dlc_feature, ops, 56, 8),

    STRUCT(dlc_plugin, 48),
    FIELD(dlc_plugin, size, 0, 4),
    FIELD(dlc_plugin, abi_minor, 4, 4),
    FIELD(dlc_plugin, name, 8, 8),
    FIELD(dlc_plugin, version, 16, 8),
    FIELD(dlc_plugin, license, 24, 8),
    FIELD(dlc_plugin, features, 32, 8),
    FIELD(dlc_plugin, load, 40, 8),

    STRUCT(dlc_device_info, 184),
    FIELD(dlc_device_info, size, 0, 4),
    FIELD(dlc_device_info, name, 4, 64),
    FIELD(dlc_device_info, memory_bytes, 72, 8),
    FIELD(dlc_device_info, units, 80, 4),
    FIELD(dlc_device_info, address, 84, 32),
    FIELD(dlc_device_info, numa, 116, 4),
    FIELD(dlc_device_info, software, 120, 64),

    STRUCT(dlc_device_args, 32),
    FIELD(dlc_device_args, size, 0, 4),
    FIELD(dlc_device_args, settings, 8, 8),
    FIELD(dlc_device_args, index, 16, 4),
    FIELD(dlc_device_args, threads, 20, 4),
    FIELD(dlc_device_args, cpus, 24, 8),

    STRUCT(dlc_memory, 32),
    FIELD(dlc_memory, size, 0, 4),
    FIELD(dlc_memory, flags, 4, 4),
    FIELD(dlc_memory, base, 8, 8),
    FIELD(dlc_memory, bytes, 16, 8),
    FIELD(dlc_memory, handle, 24, 8),

    STRUCT(dlc_share, 80),
    FIELD(dlc_share, size, 0, 4),
    FIELD(dlc_share, pid, 4, 4),
    FIELD(dlc_share, bytes, 8, 8),
    FIELD(dlc_share, key, 16, 64),

    STRUCT(dlc_loss_scale, 24),
    FIELD(dlc_loss_scale, scale, 0, 4),
    FIELD(dlc_loss_scale, inverse, 4, 4),
    FIELD(dlc_loss_scale, overflow, 8, 4),
    FIELD(dlc_loss_scale, good, 12, 4),
    FIELD(dlc_loss_scale, skipped, 16, 8),

    STRUCT(dlc_momentum, 40),
    FIELD(dlc_momentum, size, 0, 4),
    FIELD(dlc_momentum, nesterov, 4, 4),
    FIELD(dlc_momentum, rate, 8, 4),
    FIELD(dlc_momentum, momentum, 12, 4),
    FIELD(dlc_momentum, decay, 16, 4),
    FIELD(dlc_momentum, grad_scale, 20, 4),
    FIELD(dlc_momentum, rate_at, 24, 8),
    FIELD(dlc_momentum, loss_scale, 32, 8),

    STRUCT(dlc_link, 56),
    FIELD(dlc_link, size, 0, 4),
    FIELD(dlc_link, kind, 4, 4),
    FIELD(dlc_link, end, 8, 4),
    FIELD(dlc_link, lanes, 12, 4),
    FIELD(dlc_link, peer, 16, 32),
    FIELD(dlc_link, gbs, 48, 4),
    FIELD(dlc_link, flags, 52, 4),

    STRUCT(dlc_device_ops, 360),
    FIELD(dlc_device_ops, size, 0, 4),
    FIELD(dlc_device_ops, count, 8, 8),
    FIELD(dlc_device_ops, describe, 16, 8),
    FIELD(dlc_device_ops, open, 24, 8),
    FIELD(dlc_device_ops, close, 32, 8),
    FIELD(dlc_device_ops, alloc, 40, 8),
    FIELD(dlc_device_ops, free, 48, 8),
    FIELD(dlc_device_ops, copy, 56, 8),
    FIELD(dlc_device_ops, fill, 64, 8),
    FIELD(dlc_device_ops, queue_open, 72, 8),
    FIELD(dlc_device_ops, queue_close, 80, 8),
    FIELD(dlc_device_ops, queue_sync, 88, 8),
    FIELD(dlc_device_ops, event_open, 96, 8),
    FIELD(dlc_device_ops, event_close, 104, 8),
    FIELD(dlc_device_ops, event_record, 112, 8),
    FIELD(dlc_device_ops, event_wait, 120, 8),
    FIELD(dlc_device_ops, event_done, 128, 8),
    FIELD(dlc_device_ops, scale, 136, 8),
    FIELD(dlc_device_ops, add, 144, 8),
    FIELD(dlc_device_ops, axpy, 152, 8),
    FIELD(dlc_device_ops, convert, 160, 8),
    FIELD(dlc_device_ops, sum, 168, 8),
    FIELD(dlc_device_ops, norm2, 176, 8),
    FIELD(dlc_device_ops, momentum, 184, 8),
    FIELD(dlc_device_ops, share_export, 192, 8),
    FIELD(dlc_device_ops, share_import, 200, 8),
    FIELD(dlc_device_ops, add_bf16, 208, 8),
    FIELD(dlc_device_ops, links, 216, 8),
    FIELD(dlc_device_ops, sum_to, 224, 8),
    FIELD(dlc_device_ops, event_sync, 232, 8),
    FIELD(dlc_device_ops, record_begin, 240, 8),
    FIELD(dlc_device_ops, record_end, 248, 8),
    FIELD(dlc_device_ops, record_run, 256, 8),
    FIELD(dlc_device_ops, record_close, 264, 8),
    FIELD(dlc_device_ops, add_mean, 272, 8),
    FIELD(dlc_device_ops, add_f16, 280, 8),
    FIELD(dlc_device_ops, adapt_scale, 288, 8),
    FIELD(dlc_device_ops, pin, 296, 8),
    FIELD(dlc_device_ops, unpin, 304, 8),
    FIELD(dlc_device_ops, reaches, 312, 8),
    FIELD(dlc_device_ops, range_begin, 320, 8),
    FIELD(dlc_device_ops, range_end, 328, 8),
    FIELD(dlc_device_ops, queue_words, 336, 8),
    FIELD(dlc_device_ops, momentum_to, 344, 8),
    FIELD(dlc_device_ops, normalize, 352, 8),

    STRUCT(dlc_word_step, 16),
    FIELD(dlc_word_step, kind, 0, 4),
    FIELD(dlc_word_step, value, 4, 4),
    FIELD(dlc_word_step, word, 8, 8),

    STRUCT(dlc_place, 124),
    FIELD(dlc_place, size, 0, 4),
    FIELD(dlc_place, node, 4, 4),
    FIELD(dlc_place, pid, 8, 4),
    FIELD(dlc_place, uid, 12, 4),
    FIELD(dlc_place, host, 16, 64),
    FIELD(dlc_place, device, 80, 32),
    FIELD(dlc_place, device_index, 112, 4),
    FIELD(dlc_place, package, 116, 4),
    FIELD(dlc_place, numa, 120, 4),

    STRUCT(dlc_transport_args, 72),
    FIELD(dlc_transport_args, size, 0, 4),
    FIELD(dlc_transport_args, rank, 4, 4),
    FIELD(dlc_transport_args, ranks, 8, 4),
    FIELD(dlc_transport_args, places, 16, 8),
    FIELD(dlc_transport_args, settings, 24, 8),
    FIELD(dlc_transport_args, device_ops, 32, 8),
    FIELD(dlc_transport_args, device, 40, 8),
    FIELD(dlc_transport_args, job, 48, 8),
    FIELD(dlc_transport_args, allgather, 56, 8),
    FIELD(dlc_transport_args, check, 64, 8),

    STRUCT(dlc_transport_ops, 216),
    FIELD(dlc_transport_ops, size, 0, 4),
    FIELD(dlc_transport_ops, score, 8, 8),
    FIELD(dlc_transport_ops, open, 16, 8),
    FIELD(dlc_transport_ops, close, 24, 8),
    FIELD(dlc_transport_ops, send, 32, 8),
    FIELD(dlc_transport_ops, recv, 40, 8),
    FIELD(dlc_transport_ops, test, 48, 8),
    FIELD(dlc_transport_ops, wait, 56, 8),
    FIELD(dlc_transport_ops, region_open, 64, 8),
    FIELD(dlc_transport_ops, region_close, 72, 8),
    FIELD(dlc_transport_ops, region_import, 80, 8),
    FIELD(dlc_transport_ops, put, 88, 8),
    FIELD(dlc_transport_ops, get, 96, 8),
    FIELD(dlc_transport_ops, all_reduce, 104, 8),
    FIELD(dlc_transport_ops, reduce_scatter, 112, 8),
    FIELD(dlc_transport_ops, all_gather, 120, 8),
    FIELD(dlc_transport_ops, broadcast, 128, 8),
    FIELD(dlc_transport_ops, attach, 136, 8),
    FIELD(dlc_transport_ops, describe, 144, 8),
    FIELD(dlc_transport_ops, queue_all_reduce, 152, 8),
    FIELD(dlc_transport_ops, queue_reduce_scatter, 160, 8),
    FIELD(dlc_transport_ops, queue_all_gather, 168, 8),
    FIELD(dlc_transport_ops, poll, 176, 8),
    FIELD(dlc_transport_ops, queues, 184, 8),
    FIELD(dlc_transport_ops, wait_any, 192, 8),
    FIELD(dlc_transport_ops, nudge, 200, 8),
    FIELD(dlc_transport_ops, update, 208, 8),

    STRUCT(dlc_weight_step, 40),
    FIELD(dlc_weight_step, size, 0, 4),
    FIELD(dlc_weight_step, how, 8, 8),
    FIELD(dlc_weight_step, begin, 16, 8),
    FIELD(dlc_weight_step, count, 24, 8),
    FIELD(dlc_weight_step, velocity, 32, 8),

    STRUCT(dlc_family_args, 56),
    FIELD(dlc_family_args, size, 0, 4),
    FIELD(dlc_family_args, device_ops, 8, 8),
    FIELD(dlc_family_args, device, 16, 8),
    FIELD(dlc_family_args, queue, 24, 8),
    FIELD(dlc_family_args, threads, 32, 4),
    FIELD(dlc_family_args, phase, 36, 4),
    FIELD(dlc_family_args, precision, 40, 4),
    FIELD(dlc_family_args, math, 44, 4),
    FIELD(dlc_family_args, tune, 48, 4),

    STRUCT(dlc_family, 72),
    FIELD(dlc_family, size, 0, 4),
    FIELD(dlc_family, name, 8, 8),
    FIELD(dlc_family, open, 16, 8),
    FIELD(dlc_family, close, 24, 8),
    FIELD(dlc_family, same_layout, 32, 8),
    FIELD(dlc_family, reorder_create, 40, 8),
    FIELD(dlc_family, reorder_run, 48, 8),
    FIELD(dlc_family, reorder_destroy, 56, 8),
    FIELD(dlc_family, shapes_alone, 64, 4),

    STRUCT(dlc_layer_args, 88),
    FIELD(dlc_layer_args, size, 0, 4),
    FIELD(dlc_layer_args, name, 8, 8),
    FIELD(dlc_layer_args, settings, 16, 8),
    FIELD(dlc_layer_args, context, 24, 8),
    FIELD(dlc_layer_args, phase, 32, 4),
    FIELD(dlc_layer_args, twin, 40, 8),
    FIELD(dlc_layer_args, seed, 48, 8),
    FIELD(dlc_layer_args, index, 56, 4),
    FIELD(dlc_layer_args, slice_begin, 64, 8),
    FIELD(dlc_layer_args, slice_end, 72, 8),
    FIELD(dlc_layer_args, plain_params, 80, 4),

    STRUCT(dlc_param, 120),
    FIELD(dlc_param, size, 0, 4),
    FIELD(dlc_param, flags, 4, 4),
    FIELD(dlc_param, name, 8, 8),
    FIELD(dlc_param, shape, 16, 56),
    FIELD(dlc_param, count, 72, 8),
    FIELD(dlc_param, filler, 80, 8),
    FIELD(dlc_param, fan_in, 88, 8),
    FIELD(dlc_param, fan_out, 96, 8),
    FIELD(dlc_param, rate, 104, 8),
    FIELD(dlc_param, decay, 112, 8),

    STRUCT(dlc_layer_plan, 128),
    FIELD(dlc_layer_plan, size, 0, 4),
    FIELD(dlc_layer_plan, inputs, 4, 4),
    FIELD(dlc_layer_plan, in, 8, 8),
    FIELD(dlc_layer_plan, outputs, 16, 4),
    FIELD(dlc_layer_plan, out, 24, 8),
    FIELD(dlc_layer_plan, params, 32, 4),
    FIELD(dlc_layer_plan, param, 40, 8),
    FIELD(dlc_layer_plan, multiply_adds, 48, 8),
    FIELD(dlc_layer_plan, no_gradient, 56, 8),
    FIELD(dlc_layer_plan, reads_in, 64, 8),
    FIELD(dlc_layer_plan, in_place, 72, 8),
    FIELD(dlc_layer_plan, reads_out, 80, 8),
    FIELD(dlc_layer_plan, wants_gradient, 88, 8),
    FIELD(dlc_layer_plan, workspace_bytes, 96, 8),
    FIELD(dlc_layer_plan, scratch_bytes, 104, 8),
    FIELD(dlc_layer_plan, shares_gradient, 112, 8),
    FIELD(dlc_layer_plan, adds_gradient, 120, 8),

    STRUCT(dlc_step, 16),
    FIELD(dlc_step, iteration, 0, 8),
    FIELD(dlc_step, sample, 8, 8),

    STRUCT(dlc_layer_run, 128),
    FIELD(dlc_layer_run, size, 0, 4),
    FIELD(dlc_layer_run, iteration, 8, 8),
    FIELD(dlc_layer_run, sample, 16, 8),
    FIELD(dlc_layer_run, in, 24, 8),
    FIELD(dlc_layer_run, out, 32, 8),
    FIELD(dlc_layer_run, out_diff, 40, 8),
    FIELD(dlc_layer_run, in_diff, 48, 8),
    FIELD(dlc_layer_run, param, 56, 8),
    FIELD(dlc_layer_run, param_diff, 64, 8),
    FIELD(dlc_layer_run, workspace, 72, 8),
    FIELD(dlc_layer_run, scratch, 80, 8),
    FIELD(dlc_layer_run, loss_scale, 88, 4),
    FIELD(dlc_layer_run, parts, 92, 4),
    FIELD(dlc_layer_run, again, 96, 4),
    FIELD(dlc_layer_run, step_at, 104, 8),
    FIELD(dlc_layer_run, loss_scale_at, 112, 8),
    FIELD(dlc_layer_run, adds, 120, 8),

    STRUCT(dlc_layer_ops, 96),
    FIELD(dlc_layer_ops, size, 0, 4),
    FIELD(dlc_layer_ops, family, 8, 8),
    FIELD(dlc_layer_ops, create, 16, 8),
    FIELD(dlc_layer_ops, destroy, 24, 8),
    FIELD(dlc_layer_ops, infer, 32, 8),
    FIELD(dlc_layer_ops, absorb, 40, 8),
    FIELD(dlc_layer_ops, prepare, 48, 8),
    FIELD(dlc_layer_ops, forward, 56, 8),
    FIELD(dlc_layer_ops, backward, 64, 8),
    FIELD(dlc_layer_ops, param_import, 72, 8),
    FIELD(dlc_layer_ops, param_export, 80, 8),
    FIELD(dlc_layer_ops, describe, 88, 8),

    STRUCT(dlc_segment, 48),
    FIELD(dlc_segment, size, 0, 4),
    FIELD(dlc_segment, name, 8, 8),
    FIELD(dlc_segment, offset, 16, 8),
    FIELD(dlc_segment, count, 24, 8),
    FIELD(dlc_segment, rate, 32, 8),
    FIELD(dlc_segment, decay, 40, 8),

    STRUCT(dlc_exchange, 96),
    FIELD(dlc_exchange, size, 0, 4),
    FIELD(dlc_exchange, context, 8, 8),
    FIELD(dlc_exchange, rank, 16, 4),
    FIELD(dlc_exchange, ranks, 20, 4),
    FIELD(dlc_exchange, buckets, 24, 4),
    FIELD(dlc_exchange, bucket_begin, 32, 8),
    FIELD(dlc_exchange, start, 40, 8),
    FIELD(dlc_exchange, wait, 48, 8),
    FIELD(dlc_exchange, own_begin, 56, 8),
    FIELD(dlc_exchange, own_end, 64, 8),
    FIELD(dlc_exchange, spread, 72, 8),
    FIELD(dlc_exchange, settle, 80, 8),
    FIELD(dlc_exchange, step, 88, 8),

    STRUCT(dlc_mail, 88),
    FIELD(dlc_mail, size, 0, 4),
    FIELD(dlc_mail, context, 8, 8),
    FIELD(dlc_mail, rank, 16, 4),
    FIELD(dlc_mail, ranks, 20, 4),
    FIELD(dlc_mail, node, 24, 8),
    FIELD(dlc_mail, send, 32, 8),
    FIELD(dlc_mail, recv, 40, 8),
    FIELD(dlc_mail, test, 48, 8),
    FIELD(dlc_mail, wait_any, 56, 8),
    FIELD(dlc_mail, check, 64, 8),
    FIELD(dlc_mail, wake, 72, 8),
    FIELD(dlc_mail, give_up, 80, 8),

    STRUCT(dlc_solver_stats, 168),
    FIELD(dlc_solver_stats, size, 0, 4),
    FIELD(dlc_solver_stats, waited, 8, 8),
    FIELD(dlc_solver_stats, reads, 16, 8),
    FIELD(dlc_solver_stats, staleness, 24, 128),
    FIELD(dlc_solver_stats, slowest, 152, 4),
    FIELD(dlc_solver_stats, slowest_waited, 160, 8),

    STRUCT(dlc_solver_needs, 80),
    FIELD(dlc_solver_needs, size, 0, 4),
    FIELD(dlc_solver_needs, slots, 4, 4),
    FIELD(dlc_solver_needs, slot_name, 8, 32),
    FIELD(dlc_solver_needs, slot_saved, 40, 4),
    FIELD(dlc_solver_needs, micro_batches, 44, 4),
    FIELD(dlc_solver_needs, shards, 48, 4),
    FIELD(dlc_solver_needs, late, 52, 4),
    FIELD(dlc_solver_needs, queued, 56, 4),
    FIELD(dlc_solver_needs, mail, 60, 4),
    FIELD(dlc_solver_needs, servers, 64, 4),
    FIELD(dlc_solver_needs, loose, 72, 8),

    STRUCT(dlc_solver_args, 192),
    FIELD(dlc_solver_args, size, 0, 4),
    FIELD(dlc_solver_args, settings, 8, 8),
    FIELD(dlc_solver_args, device_ops, 16, 8),
    FIELD(dlc_solver_args, device, 24, 8),
    FIELD(dlc_solver_args, queue, 32, 8),
    FIELD(dlc_solver_args, count, 40, 8),
    FIELD(dlc_solver_args, tail, 48, 8),
    FIELD(dlc_solver_args, weights, 56, 8),
    FIELD(dlc_solver_args, gradients, 64, 8),
    FIELD(dlc_solver_args, slots, 72, 32),
    FIELD(dlc_solver_args, segments, 104, 4),
    FIELD(dlc_solver_args, segment, 112, 8),
    FIELD(dlc_solver_args, exchange, 120, 8),
    FIELD(dlc_solver_args, max_iterations, 128, 8),
    FIELD(dlc_solver_args, epoch_iterations, 136, 8),
    FIELD(dlc_solver_args, rate_at, 144, 8),
    FIELD(dlc_solver_args, loss_scale, 152, 8),
    FIELD(dlc_solver_args, mail, 160, 8),
    FIELD(dlc_solver_args, iteration, 168, 8),
    FIELD(dlc_solver_args, shares, 176, 8),
    FIELD(dlc_solver_args, schedule, 184, 8),

    STRUCT(dlc_solver_ops, 112),
    FIELD(dlc_solver_ops, size, 0, 4),
    FIELD(dlc_solver_ops, needs, 8, 8),
    FIELD(dlc_solver_ops, create, 16, 8),
    FIELD(dlc_solver_ops, destroy, 24, 8),
    FIELD(dlc_solver_ops, rate, 32, 8),
    FIELD(dlc_solver_ops, ready, 40, 8),
    FIELD(dlc_solver_ops, finish, 48, 8),
    FIELD(dlc_solver_ops, save, 56, 8),
    FIELD(dlc_solver_ops, load, 64, 8),
    FIELD(dlc_solver_ops, update, 72, 8),
    FIELD(dlc_solver_ops, meet, 80, 8),
    FIELD(dlc_solver_ops, configure, 88, 8),
    FIELD(dlc_solver_ops, stats, 96, 8),
    FIELD(dlc_solver_ops, check_schedule, 104, 8),

    STRUCT(dlc_data_args, 40),
    FIELD(dlc_data_args, size, 0, 4),
    FIELD(dlc_data_args, settings, 8, 8),
    FIELD(dlc_data_args, seed, 16, 8),
    FIELD(dlc_data_args, class_names, 24, 8),
    FIELD(dlc_data_args, classes, 32, 4),

    STRUCT(dlc_data_info, 88),
    FIELD(dlc_data_info, size, 0, 4),
    FIELD(dlc_data_info, samples, 8, 8),
    FIELD(dlc_data_info, shape, 16, 56),
    FIELD(dlc_data_info, dtype, 72, 4),
    FIELD(dlc_data_info, classes, 76, 4),
    FIELD(dlc_data_info, class_names, 80, 8),

    STRUCT(dlc_data_ops, 40),
    FIELD(dlc_data_ops, size, 0, 4),
    FIELD(dlc_data_ops, open, 8, 8),
    FIELD(dlc_data_ops, close, 16, 8),
    FIELD(dlc_data_ops, describe, 24, 8),
    FIELD(dlc_data_ops, read, 32, 8),
};
/* clang-format on */

typedef struct constant {
    const char *name;
    long long value, now;
} constant;

#define VALUE(name_, value_) \
    { .name = #name_, .value = (value_), .now = (name_) }

/* clang-format off */
static const constant constants[] = {
    VALUE(DLC_OK, 0),
    VALUE(DLC_ERR_AGAIN, -101),
    VALUE(DLC_ERR_TIMEOUT, -102),
    VALUE(DLC_ERR_IO, -201),
    VALUE(DLC_ERR_NOMEM, -202),
    VALUE(DLC_ERR_UNAVAILABLE, -203),
    VALUE(DLC_ERR_CANCELLED, -204),
    VALUE(DLC_ERR_PEER, -301),
    VALUE(DLC_ERR_DEVICE, -302),
    VALUE(DLC_ERR_INTERNAL, -303),
    VALUE(DLC_ERR_DIVERGED, -304),
    VALUE(DLC_ERR_CONFIG, -401),
    VALUE(DLC_ERR_PLUGIN, -402),
    VALUE(DLC_ERR_DATA, -403),
    VALUE(DLC_ERR_UNSUPPORTED, -404),

    VALUE(DLC_F32, 1),
    VALUE(DLC_BF16, 2),
    VALUE(DLC_F16, 3),
    VALUE(DLC_F64, 4),
    VALUE(DLC_I32, 5),
    VALUE(DLC_I64, 6),
    VALUE(DLC_U8, 7),

    VALUE(DLC_OPT_INT, 1),
    VALUE(DLC_OPT_FLOAT, 2),
    VALUE(DLC_OPT_BOOL, 3),
    VALUE(DLC_OPT_STRING, 4),
    VALUE(DLC_OPT_CHOICE, 5),
    VALUE(DLC_OPT_PATH, 6),
    VALUE(DLC_OPT_INTS, 7),
    VALUE(DLC_OPT_FLOATS, 8),
    VALUE(DLC_OPT_BYTES, 9),
    VALUE(DLC_OPT_FILLER, 10),
    VALUE(DLC_OPT_REQUIRED, 1),
    VALUE(DLC_OPT_LIVE, 2),
    VALUE(DLC_LOG_ERROR, 1),
    VALUE(DLC_LOG_WARN, 2),
    VALUE(DLC_LOG_INFO, 3),
    VALUE(DLC_LOG_DEBUG, 4),
    VALUE(DLC_KIND_DEVICE, 1),
    VALUE(DLC_KIND_TRANSPORT, 2),
    VALUE(DLC_KIND_LAYER, 3),
    VALUE(DLC_KIND_SOLVER, 4),
    VALUE(DLC_KIND_DATA, 5),

    VALUE(DLC_DEVICE_HOST, 1),
    VALUE(DLC_DEVICE_SHARES, 2),
    VALUE(DLC_DEVICE_ASYNC, 4),
    VALUE(DLC_MEM_SHARED, 1),
    VALUE(DLC_MEM_STAGING, 2),

    VALUE(DLC_TRANSPORT_PAIRWISE, 1),
    VALUE(DLC_TRANSPORT_DEVICE_MEMORY, 2),
    VALUE(DLC_TRANSPORT_RECORDS, 4),

    VALUE(DLC_PHASE_TRAIN, 1),
    VALUE(DLC_PHASE_TEST, 2),
    VALUE(DLC_LAYER_METRIC, 1),
    VALUE(DLC_LAYER_LOSS, 2),
    VALUE(DLC_LAYER_TEST_ONLY, 4),
    VALUE(DLC_LAYER_SLICES, 512),
    VALUE(DLC_LAYER_SAMPLEWISE, 1024),
    VALUE(DLC_PARAM_BUFFER, 1),

    VALUE(DLC_SOLVER_SYNCHRONOUS, 1),
    VALUE(DLC_STALENESS_BINS, 16),
};
/* clang-format on */

START_TEST(fields_lie_where_they_lay) {
    const layout_row *row = &rows[_i];
    if (row->is_struct)
        ck_assert_msg(row->bytes == row->bytes_now,
                      "%s was %zu bytes and is %zu: append the rows of its new fields, "
                      "then change this number (or, if nothing was appended, take the "
                      "change back)",
                      row->name, row->bytes, row->bytes_now);
    ck_assert_msg(row->offset == row->offset_now && row->bytes == row->bytes_now,
                  "%s was %zu bytes at %zu and is %zu bytes at %zu", row->name,
                  row->bytes, row->offset, row->bytes_now, row->offset_now);
}
END_TEST

START_TEST(constants_stay) {
    ck_assert_msg(constants[_i].value == constants[_i].now, "%s was %lld and is %lld",
                  constants[_i].name, constants[_i].value, constants[_i].now);
}
END_TEST

/* Rows cover each struct to its end: none was appended to and forgotten here. */
START_TEST(rows_are_complete) {
    size_t count = sizeof rows / sizeof *rows;
    for (size_t i = 0; i < count; i++) {
        if (!rows[i].is_struct)
            continue;
        size_t last = i;
        while (last + 1 < count && !rows[last + 1].is_struct)
            last++;
        size_t end = rows[last].offset + rows[last].bytes;
        ck_assert_msg(last > i && (end + 7) / 8 == (rows[i].bytes_now + 7) / 8,
                      "the rows of %s end at %zu, the struct at %zu", rows[i].name, end,
                      rows[i].bytes_now);
    }
}
END_TEST

/* Every struct that may grow begins with its size. */
START_TEST(sizes_come_first) {
    ck_assert_uint_eq(offsetof(dlc_option, size), 0);
    ck_assert_uint_eq(offsetof(dlc_host, size), 0);
    ck_assert_uint_eq(offsetof(dlc_feature, size), 0);
    ck_assert_uint_eq(offsetof(dlc_plugin, size), 0);
    ck_assert_str_eq(DLC_PLUGIN_SYMBOL, "dlc_plugin_v1");
    ck_assert_int_eq(DLC_ABI_MAJOR, 1);
}
END_TEST

int main(void) {
    if (sizeof(void *) != 8)
        return 77;
    Suite *suite = suite_create("layout");
    TCase *all = tcase_create("all");
    tcase_add_loop_test(all, fields_lie_where_they_lay, 0,
                        (int)(sizeof rows / sizeof *rows));
    tcase_add_loop_test(all, constants_stay, 0,
                        (int)(sizeof constants / sizeof *constants));
    tcase_add_test(all, rows_are_complete);
    tcase_add_test(all, sizes_come_first);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK); /* hundreds of tiny tests */
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
