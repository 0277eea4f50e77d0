/* The mesh: how ranks are divided among its axes, who is in which group, and which
 * samples a rank has. */
#include <string.h>

#include "setup/mesh.h"
#include "support/test.h"

static const int32_t uneven[] = {4, 2};

static dlc_mesh made(dlc_mesh_sizes sizes, int32_t ranks, int wants_tensor) {
    dlc_mesh mesh = {0};
    ck_assert_int_eq(dlc_mesh_make(&sizes, ranks, wants_tensor, &mesh), DLC_OK);
    return mesh;
}

static void check_lengths(dlc_mesh mesh, int32_t pipeline, int32_t data,
                          int32_t tensor) {
    ck_assert_int_eq(mesh.pipeline, pipeline);
    ck_assert_int_eq(dlc_mesh_data(&mesh), data);
    ck_assert_int_eq(mesh.tensor, tensor);
}

TEST(test_auto_gets_what_the_others_leave) {
    dlc_mesh_sizes one_stage = {.pipeline = 1};
    check_lengths(made(one_stage, 6, 0), 1, 6, 1);
    check_lengths(made(one_stage, 6, 1), 1, 1, 6);
    check_lengths(made((dlc_mesh_sizes){.pipeline = 1, .data = 3}, 6, 1), 1, 3, 2);
    check_lengths(made((dlc_mesh_sizes){.pipeline = 1, .tensor = 3}, 6, 0), 1, 2, 3);
    check_lengths(made((dlc_mesh_sizes){.pipeline = 2}, 6, 0), 2, 3, 1);
    check_lengths(made((dlc_mesh_sizes){.pipeline = 0}, 6, 0), 6, 1, 1);
    check_lengths(made((dlc_mesh_sizes){.pipeline = 0, .tensor = 2}, 6, 1), 3, 1, 2);
    check_lengths(made((dlc_mesh_sizes){.pipeline = 2, .stage_ranks = uneven}, 6, 1), 2,
                  2, 2);
    check_lengths(made((dlc_mesh_sizes){.pipeline = 2, .stage_ranks = uneven}, 6, 0), 2,
                  4, 1);
}

TEST(test_what_does_not_divide_is_refused) {
    const dlc_mesh_sizes bad[] = {{.pipeline = 4},
                                  {.pipeline = 2, .tensor = 2},
                                  {.pipeline = 1, .data = 4},
                                  {.pipeline = 1, .data = 2, .tensor = 2},
                                  {.pipeline = 0, .data = 4},
                                  {.pipeline = 2, .data = 2, .stage_ranks = uneven},
                                  {.pipeline = 2, .tensor = 4, .stage_ranks = uneven}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        dlc_mesh mesh = {.ranks = -1};
        ck_assert_int_eq(dlc_mesh_make(&bad[i], 6, 0, &mesh), DLC_ERR_CONFIG);
        ck_assert_int_eq(mesh.ranks, -1);
        ck_assert_uint_gt(strlen(dlc_detail()), 20);
    }
    dlc_mesh_sizes sizes = {.pipeline = 2, .stage_ranks = uneven};
    dlc_mesh mesh;
    ck_assert_int_eq(dlc_mesh_make(&sizes, 7, 0, &mesh), DLC_ERR_CONFIG);
}

TEST(test_least_ranks) {
    dlc_mesh_sizes cube = {.data = 2, .tensor = 3, .pipeline = 2};
    dlc_mesh_sizes open = {.tensor = 3};
    dlc_mesh_sizes list = {.pipeline = 2, .stage_ranks = uneven};
    ck_assert_int_eq(dlc_mesh_least_ranks(&cube), 12);
    ck_assert_int_eq(dlc_mesh_least_ranks(&open), 3);
    ck_assert_int_eq(dlc_mesh_least_ranks(&list), 6);
}

static int is_member(dlc_mesh_group group, int32_t rank) {
    int32_t place = rank - group.first;
    return place >= 0 && place % group.stride == 0 &&
           place / group.stride < group.ranks;
}

/* Every rank is in its own groups, and all members of a group say the same of it. */
static void check_groups(const dlc_mesh *mesh, int has_columns) {
    dlc_mesh_group (*const groups[])(const dlc_mesh *, int32_t) = {
        dlc_mesh_stage_group, dlc_mesh_tensor_group, dlc_mesh_data_group,
        dlc_mesh_column};
    for (int g = 0; g < 3 + has_columns; g++)
        for (int32_t r = 0; r < mesh->ranks; r++) {
            dlc_mesh_group group = groups[g](mesh, r);
            ck_assert(is_member(group, r));
            for (int32_t other = 0; other < mesh->ranks; other++) {
                dlc_mesh_group its = groups[g](mesh, other);
                ck_assert_int_eq(is_member(group, other),
                                 memcmp(&group, &its, sizeof its) == 0);
            }
        }
}

TEST(test_groups_part_the_ranks) {
    dlc_mesh cube = made((dlc_mesh_sizes){.pipeline = 2, .tensor = 2}, 8, 0);
    dlc_mesh list = made(
        (dlc_mesh_sizes){.pipeline = 2, .tensor = 2, .stage_ranks = uneven}, 6, 0);
    check_groups(&cube, 1);
    check_groups(&list, 0);
    dlc_mesh_place place = dlc_mesh_place_of(&cube, 7);
    ck_assert_int_eq(place.stage, 1);
    ck_assert_int_eq(place.data, 1);
    ck_assert_int_eq(place.tensor, 1);
    dlc_mesh_group data = dlc_mesh_data_group(&cube, 7);
    ck_assert_int_eq(data.first, 5);
    ck_assert_int_eq(data.stride, 2);
    ck_assert_int_eq(dlc_mesh_data_group(&list, 5).ranks, 1);
    ck_assert_int_eq(dlc_mesh_column(&cube, 7).first, 3);
    ck_assert_int_eq(dlc_mesh_column(&list, 5).ranks, 0);
    ck_assert_int_eq(dlc_mesh_stage_first(&list, 1), 4);
}

TEST(test_a_stage_has_every_sample_once) {
    dlc_mesh mesh = made((dlc_mesh_sizes){.pipeline = 2, .stage_ranks = uneven}, 6, 0);
    for (int64_t samples = 4; samples < 12; samples++)
        for (int32_t s = 0; s < mesh.pipeline; s++) {
            int32_t first = dlc_mesh_stage_first(&mesh, s);
            int64_t next = 0, begin, count;
            for (int32_t r = first; r < first + dlc_mesh_stage_ranks(&mesh, s); r++) {
                dlc_mesh_samples(&mesh, r, samples, &begin, &count);
                ck_assert_int_eq(begin, next);
                ck_assert_int_ge(count, samples / dlc_mesh_stage_ranks(&mesh, s));
                next += count;
            }
            ck_assert_int_eq(next, samples);
        }
}

TEST(test_print) {
    dlc_mesh mesh = made(
        (dlc_mesh_sizes){.pipeline = 2, .tensor = 2, .stage_ranks = uneven}, 6, 0);
    dlc_text text = {0};
    dlc_mesh_print(&mesh, 0, &text);
    ck_assert_str_eq(dlc_text_string(&text), "(0 1) (2 3)");
    dlc_text_free(&text);
    mesh.tensor = 1;
    dlc_mesh_print(&mesh, 1, &text);
    ck_assert_str_eq(dlc_text_string(&text), "4 5");
    dlc_text_free(&text);
}
