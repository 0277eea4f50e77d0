/* Parses lists of transforms and applies them to whole images. */
#include "listed.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"

static char mistakes[4096];

static void keep(void *context, const dlc_mistake *mistake) {
    size_t used = strlen(mistakes);
    (void)context;
    (void)snprintf(mistakes + used, sizeof mistakes - used, "%s\n", mistake->message);
}

dlc_transforms *listed(const char *text) {
    dlc_problems problems = {.on_report = keep};
    dlc_transforms *list = NULL;
    mistakes[0] = '\0';
    ck_assert_int_eq(dlc_transforms_parse(text, NULL, "data", &problems, &list),
                     DLC_OK);
    ck_assert_msg(dlc_problems_report(&problems) == DLC_OK, "%s", mistakes);
    dlc_problems_free(&problems);
    return list;
}

const dlc_transforms *listed_for_good(const char *text) {
    enum { MOST = 32 };
    static struct {
        const char *text;
        dlc_transforms *list;
    } kept[MOST];
    int i = 0;
    while (i < MOST - 1 && kept[i].text && strcmp(kept[i].text, text) != 0)
        i++;
    if (!kept[i].list)
        kept[i].list = listed(kept[i].text = text);
    return kept[i].list;
}

const char *listed_mistakes(const char *text) {
    dlc_problems problems = {.on_report = keep};
    dlc_transforms *list = NULL;
    mistakes[0] = '\0';
    ck_assert_int_eq(dlc_transforms_parse(text, NULL, "data", &problems, &list),
                     DLC_OK);
    ck_assert_int_ne(dlc_problems_report(&problems), DLC_OK);
    dlc_problems_free(&problems);
    dlc_transforms_free(list);
    return mistakes;
}

void listed_apply(const dlc_transforms *list, uint64_t position, const dlc_image *image,
                  dlc_dtype type, void *out) {
    dlc_transform_plan plan;
    dlc_transform_scratch scratch = {0};
    ck_assert_int_eq(
        dlc_transforms_plan(list, 3, position, image->height, image->width, &plan),
        DLC_OK);
    ck_assert_int_eq(dlc_transforms_apply(list, &plan, image, &scratch, type, out),
                     DLC_OK);
    dlc_transform_scratch_free(&scratch);
}
