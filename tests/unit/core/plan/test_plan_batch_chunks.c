/* Tests the cost of tensor-parallel schedules (core/plan/batch_chunks.c): what chunks
 * hide, what they cost, and which schedule is chosen. */

#include "plan/batch_chunks.h"
#include "support/test.h"

/* 10 samples per rank of 100 bytes each, computed in 1 s, without a fixed part. */
static const dlc_plan_tensor_group group = {.samples = 10,
                                            .work = {0, 0.1},
                                            .cut_bytes = 100,
                                            .kept_bytes = 300,
                                            .parameter_bytes = 5000,
                                            .largest_bytes = 4000};

static dlc_plan_cluster ranks(int32_t nodes, double bandwidth) {
    return (dlc_plan_cluster){
        .nodes = nodes, .ranks_per_node = 1, .between = {.bandwidth = bandwidth}};
}

static dlc_plan_chunks cost(const dlc_plan_tensor_group *what,
                            const dlc_plan_cluster *c, dlc_tensor_schedule schedule) {
    dlc_plan_chunks chunks;
    ck_assert_int_eq(dlc_plan_chunks_of(what, c, schedule, &chunks), DLC_OK);
    return chunks;
}

/* Two ranks: each sends 1,000 bytes, at 2,000 per second. */
TEST(hides_all_but_the_first_and_last) {
    dlc_plan_cluster two = ranks(2, 2000);
    dlc_plan_chunks whole = cost(&group, &two, DLC_TENSOR_WHOLE_BATCH);
    ck_assert_int_eq(whole.count, 1);
    ck_assert_double_eq_tol(whole.seconds, 0.5 + 1 + 0.5, 1e-9);
    ck_assert_double_eq_tol(whole.exposed, 1, 1e-9);
    dlc_plan_chunks sliced = cost(&group, &two, DLC_TENSOR_CHUNKED);
    ck_assert_int_eq(sliced.count, 2);
    ck_assert_double_eq_tol(sliced.exposed, 0.5, 1e-9);
    ck_assert_double_eq_tol(sliced.exchange, 1, 1e-9);
    /* One of two ranks sends a whole chunk while the other sends nothing. */
    dlc_plan_chunks rotating = cost(&group, &two, DLC_TENSOR_BY_RANK);
    ck_assert_double_eq_tol(rotating.exchange, 2, 1e-9);
    ck_assert_double_eq_tol(rotating.exposed, 1, 1e-9);
}

TEST(chunks_read_weights_again) {
    dlc_plan_cluster two = ranks(2, 1e12);
    dlc_plan_tensor_group heavy = group;
    heavy.work.fixed = 0.2; /* weights are read once for the batch, half by each rank */
    heavy.memory = 1e6;
    dlc_plan_chunks whole = cost(&heavy, &two, DLC_TENSOR_WHOLE_BATCH);
    dlc_plan_chunks sliced = cost(&heavy, &two, DLC_TENSOR_CHUNKED);
    ck_assert_double_eq_tol(whole.seconds, 1.1, 1e-6);
    ck_assert_double_eq_tol(sliced.seconds, 1.2 + 3 * 5000 / 1e6, 1e-6);
}

TEST(chunks_need_less_memory) {
    dlc_plan_cluster four = ranks(4, 2000);
    double whole = cost(&group, &four, DLC_TENSOR_WHOLE_BATCH).bytes;
    double rotating = cost(&group, &four, DLC_TENSOR_BY_RANK).bytes;
    double sliced = cost(&group, &four, DLC_TENSOR_CHUNKED).bytes;
    ck_assert_double_eq_tol(whole, 40 * 500 + 3 * 10 * 100, 1e-9);
    ck_assert_double_eq_tol(rotating, 10 * 700 + 2 * 3 * 10 * 100 + 4000, 1e-9);
    ck_assert_double_eq_tol(sliced, 10 * 700 + 2 * 3 * 2.5 * 100 + 4000, 1e-9);
}

TEST(chooses_by_time_and_memory) {
    const char *reason = NULL;
    dlc_plan_chunks p[DLC_TENSOR_SCHEDULES] = {
        {.count = 1, .seconds = 1, .bytes = 100},
        {.count = 2, .seconds = 0.97, .bytes = 60},
        {.count = 2, .seconds = 0.96, .bytes = 50}};
    ck_assert_int_eq(dlc_plan_choose_schedule(p, 0, &reason), DLC_TENSOR_WHOLE_BATCH);
    ck_assert_int_eq(dlc_plan_choose_schedule(p, 99, &reason), DLC_TENSOR_CHUNKED);
    ck_assert_int_eq(dlc_plan_choose_schedule(p, 40, &reason), DLC_TENSOR_CHUNKED);
    p[DLC_TENSOR_BY_RANK].seconds = 0.9;
    ck_assert_int_eq(dlc_plan_choose_schedule(p, 0, &reason), DLC_TENSOR_BY_RANK);
    ck_assert_str_eq(reason, "it is the fastest");
    ck_assert_int_eq(dlc_plan_choose_schedule(p, 55, &reason), DLC_TENSOR_CHUNKED);
    p[DLC_TENSOR_CHUNKED].count = p[DLC_TENSOR_BY_RANK].count = 0;
    ck_assert_int_eq(dlc_plan_choose_schedule(p, 1, &reason), DLC_TENSOR_WHOLE_BATCH);
}
