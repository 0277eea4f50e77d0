/* Tests that the core believes no number of a transport, a device, a data source or a
 * consistency model: each wrong one is a DLC_ERR_PLUGIN. */
#include <fenv.h>
#include <locale.h>
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/time.h>

#include "base/process_state.h"
#include "base/status.h"
#include "plugin/answers.h"
#include "support/test.h"

static void refused(dlc_status status, const char *says) {
    ck_assert_int_eq(status, DLC_ERR_PLUGIN);
    ck_assert_msg(strstr(dlc_detail(), says) != NULL, "'%s' lacks '%s'", dlc_detail(),
                  says);
    ck_assert_ptr_nonnull(strstr(dlc_detail(), "a plugin: ")); /* not a loaded one */
}

/* ---- Transports -------------------------------------------------------------- */

static dlc_transport_prediction its_prediction;

static dlc_status predict(const dlc_transport_args *args,
                          dlc_transport_prediction *prediction, char *reason,
                          size_t room) {
    (void)args;
    memset(reason, 'x', room); /* no NUL */
    *prediction = its_prediction;
    return DLC_OK;
}

static const dlc_transport_ops transport_ops = {.size = sizeof transport_ops,
                                                .predict = predict};
static const dlc_feature transport = {.size = sizeof transport,
                                      .kind = DLC_KIND_TRANSPORT,
                                      .name = "odd",
                                      .ops = &transport_ops};

static const dlc_transport_args args = {.size = sizeof args};

static dlc_status ask(char *reason, size_t room, dlc_transport_prediction *found) {
    return dlc_answer_prediction(&transport, &args, reason, room, found);
}

TEST(predictions) {
    static const dlc_transport_prediction bad[] = {
        {.latency = 0, .small_bandwidth = 9, .bandwidth = 9},
        {.latency = -1, .small_bandwidth = 9, .bandwidth = 9},
        {.latency = 1e6, .small_bandwidth = 9, .bandwidth = 9},
        {.latency = NAN, .small_bandwidth = 9, .bandwidth = 9},
        {.latency = 1, .small_bandwidth = 0, .bandwidth = 9},
        {.latency = 1, .small_bandwidth = 9, .bandwidth = -9},
        {.latency = 1, .small_bandwidth = 9, .bandwidth = NAN},
        {.latency = 1, .small_bandwidth = 9, .bandwidth = INFINITY},
        {.latency = 1, .small_bandwidth = INFINITY, .bandwidth = 9}};
    static const dlc_transport_prediction good[] = {
        {.latency = 1e-9, .small_bandwidth = 2, .bandwidth = 2},
        {.latency = 9, .small_bandwidth = 1e12, .bandwidth = 1e12},
        {.latency = 0}};
    char reason[8];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        dlc_transport_prediction found = {.latency = 7};
        its_prediction = bad[i];
        refused(ask(reason, sizeof reason, &found), "it predicts ");
        ck_assert_double_eq(found.latency, 7);
    }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        dlc_transport_prediction found = {.latency = 7};
        its_prediction = good[i];
        ck_assert_int_eq(ask(reason, sizeof reason, &found), DLC_OK);
        ck_assert_double_eq(found.latency, good[i].latency);
        ck_assert_double_eq(found.bandwidth, good[i].bandwidth);
        ck_assert_uint_eq(strlen(reason), sizeof reason - 1);
    }
}

/* ---- Devices ----------------------------------------------------------------- */

static int32_t its_count;

static dlc_status count(int32_t *result) {
    *result = its_count;
    return DLC_OK;
}

TEST(devices) {
    static const int32_t bad[] = {-1, INT32_MIN, INT32_MAX, DLC_ANSWER_DEVICES_MAX + 1};
    const dlc_device_ops ops = {.size = sizeof ops, .count = count};
    const dlc_feature device = {
        .size = sizeof device, .kind = DLC_KIND_DEVICE, .name = "odd", .ops = &ops};
    int32_t found = 7;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        its_count = bad[i];
        refused(dlc_answer_devices(&device, &found), "devices");
        ck_assert_int_eq(found, 7);
    }
    its_count = DLC_ANSWER_DEVICES_MAX;
    ck_assert_int_eq(dlc_answer_devices(&device, &found), DLC_OK);
    ck_assert_int_eq(found, DLC_ANSWER_DEVICES_MAX);
}

/* ---- Data sources ------------------------------------------------------------ */

static const dlc_feature source = {
    .size = sizeof source, .kind = DLC_KIND_DATA, .name = "odd"};
static const char *const one_name[] = {"cat", NULL};

typedef struct data_case {
    dlc_data_info info;
    const char *says; /* NULL: it is accepted */
} data_case;

#define INFO(SAMPLES, DTYPE, ...) \
    { \
        .size = sizeof(dlc_data_info), .samples = (SAMPLES), .dtype = (DTYPE), \
        .shape = __VA_ARGS__ \
    }

static const data_case data_cases[] = {
    {INFO(1, DLC_U8, {3, {1, 1, 1}}), NULL},
    {INFO(DLC_ANSWER_SAMPLES_MAX, DLC_F32, {3, {3, 32, 32}}), NULL},
    {INFO(0, DLC_U8, {3, {1, 1, 1}}), "0 samples"},
    {INFO(-1, DLC_U8, {3, {1, 1, 1}}), "-1 samples"},
    {INFO(INT64_MAX, DLC_U8, {3, {1, 1, 1}}), "samples"},
    {INFO(1, DLC_U8, {0, {1}}), "0 dimensions"},
    {INFO(1, DLC_U8, {DLC_MAX_DIMS, {1, 1, 1, 1, 1, 1}}), "6 dimensions"},
    {INFO(1, DLC_U8, {-3, {1, 1, 1}}), "-3 dimensions"},
    {INFO(1, DLC_I32, {3, {1, 1, 1}}), "of type"},
    {INFO(1, (dlc_dtype)0, {3, {1, 1, 1}}), "of type"},
    {INFO(1, DLC_U8, {3, {1, 0, 1}}), "empty or too large"},
    {INFO(1, DLC_U8, {3, {-1, -1, 1}}), "empty or too large"},
    {INFO(1, DLC_U8, {3, {1LL << 32, 1LL << 32, 1}}), "empty or too large"},
    {INFO(1, DLC_U8, {3, {INT64_MAX, 2, 1}}), "empty or too large"},
    {INFO(1, DLC_U8, {3, {1LL << 42, 1, 1}}), "empty or too large"},
    {{.samples = 1, .dtype = DLC_U8, .shape = {3, {1, 1, 1}}, .classes = -1},
     "-1 classes"},
    {{.samples = 1,
      .dtype = DLC_U8,
      .shape = {3, {1, 1, 1}},
      .classes = 2,
      .class_names = one_name},
     "class 1 has no name"},
};
enum { DATA_CASES = sizeof data_cases / sizeof *data_cases };

TEST_EACH(samples, DATA_CASES) {
    const data_case *at = &data_cases[_i];
    dlc_status status = dlc_answer_check_data(&source, &at->info, 0);
    if (at->says)
        refused(status, at->says);
    else
        ck_assert_int_eq(status, DLC_OK);
}

/* ---- Consistency models ------------------------------------------------------ */

static const dlc_consistency_ops model_ops = {.size = sizeof model_ops};
static const dlc_feature model = {.size = sizeof model,
                                  .kind = DLC_KIND_CONSISTENCY,
                                  .name = "odd",
                                  .ops = &model_ops};

TEST(needs) {
    dlc_consistency_needs asked = {.size = sizeof asked, .servers = -1};
    refused(dlc_answer_check_needs(&model, &asked), "-1 parameter servers");
    asked.servers = 0;
    asked.deferred_update = 1;
    refused(dlc_answer_check_needs(&model, &asked), "has no update");
    asked.deferred_update = 0;
    ck_assert_int_eq(dlc_answer_check_needs(&model, &asked), DLC_OK);
}

/* ---- Names ------------------------------------------------------------------- */

static const struct {
    const char *name[3];
    int32_t bad; /* the index of the first bad one; -1: none */
} name_cases[] = {
    {{"a", "b", "c"}, -1},    {{"a", "a", "c"}, 1},   {{"a", "b", "a"}, 2},
    {{"a", "b", "b"}, 2},     {{"", "b", "c"}, 0},    {{"a", NULL, "c"}, 1},
    {{"a", "b", "x/y"}, 2},   {{"a", "b c", "c"}, 1}, {{"a\x7f", "b", "c"}, 0},
    {{"aa", "a", "aaa"}, -1},
};
enum { NAME_CASES = sizeof name_cases / sizeof *name_cases };

TEST_EACH(names, NAME_CASES) {
    const char *const *name = name_cases[_i].name;
    ck_assert_int_eq(dlc_answer_bad_name(name, sizeof *name, 3), name_cases[_i].bad);
    ck_assert_int_eq(dlc_answer_bad_name(name, sizeof *name, 0), -1);
}

TEST(length_of_names) {
    char text[129];
    const char *const name = text;
    memset(text, 'x', sizeof text);
    text[128] = text[127] = '\0';
    ck_assert_int_eq(dlc_answer_bad_name(&name, sizeof name, 1), -1);
    text[127] = 'x';
    ck_assert_int_eq(dlc_answer_bad_name(&name, sizeof name, 1), 0);
}

/* ---- What a call may not leave ------------------------------------------------- */

static dlc_status leave(int rounding) {
    ck_assert_int_eq(fesetround(rounding), 0);
    return DLC_OK;
}

TEST(rounding) {
    static const int odd[] = {FE_TOWARDZERO, FE_UPWARD, FE_DOWNWARD};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        refused(DLC_ASK(&transport_ops, "predict", leave(odd[i])),
                "predict changes the rounding of floating-point numbers");
        ck_assert_int_eq(fegetround(), FE_TONEAREST);
        (void)leave(odd[i]); /* by a call that is not checked */
        ck_assert_int_eq(DLC_ASK(&transport_ops, "predict", DLC_OK), DLC_ERR_PLUGIN);
        ck_assert_ptr_nonnull(strstr(dlc_detail(), "before predict of a plugin"));
        ck_assert_int_eq(DLC_ASK(&transport_ops, "predict", DLC_OK), DLC_OK);
    }
}

TEST(process) {
    const struct itimerval later = {.it_value = {.tv_sec = 1000}};
    dlc_process_state before;
    sigset_t one;
    dlc_process_state_take(&before);
    ck_assert_ptr_null(dlc_process_state_change(&before));
    ck_assert_int_eq(setitimer(ITIMER_PROF, &later, NULL), 0);
    ck_assert_ptr_nonnull(strstr(dlc_process_state_change(&before), "timer"));
    ck_assert_int_eq(setitimer(ITIMER_PROF, &(struct itimerval){.it_value = {0}}, NULL),
                     0);
    (void)sigemptyset(&one);
    (void)sigaddset(&one, SIGUSR2);
    (void)sigprocmask(SIG_BLOCK, &one, NULL);
    ck_assert_ptr_nonnull(strstr(dlc_process_state_change(&before), "signals"));
    (void)sigprocmask(SIG_UNBLOCK, &one, NULL);
    ck_assert_ptr_nonnull(setlocale(LC_ALL, "C.UTF-8"));
    ck_assert_ptr_nonnull(strstr(dlc_process_state_change(&before), "locale"));
    (void)setlocale(LC_ALL, "C");
    ck_assert_ptr_null(dlc_process_state_change(&before));
}
