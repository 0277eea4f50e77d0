/* Reads recorded references; numbers and file format are those of reference.py. */
#include "recorded.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IMAGES, LABELS, SIGNS, PARAMETERS }; /* streams */

/* ---- Numbers that are functions of their index ---------------------------------- */

/* SplitMix64's mixing function (Steele et al., OOPSLA 2014). */
static uint64_t word_of(uint64_t stream, uint64_t index) {
    uint64_t word = (index + (stream << 40) + 1) * UINT64_C(0x9e3779b97f4a7c15);
    word = (word ^ word >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    word = (word ^ word >> 27) * UINT64_C(0x94d049bb133111eb);
    return word ^ word >> 31;
}

/* [-1, 1), exact in float32. */
static float draw(uint64_t stream, uint64_t index) {
    return (float)(word_of(stream, index) >> 40) * 0x1p-23f - 1;
}

/* Either the center or the rounding of the product is zero, so there is only one
 * rounding, whether or not the compiler fuses the two operations. */
void recorded_fill(const recorded *found, size_t k, float *values) {
    const recorded_tensor *tensor = &found->tensor[k];
    size_t count = (size_t)dlc_shape_count(&tensor->shape);
    float center = (float)tensor->center, amplitude = (float)tensor->amplitude;
    for (size_t i = 0; i < count; i++) {
        int choice = tensor->choices ? tensor->choices[i] - '0' : -1;
        values[i] = choice < 0    ? draw(PARAMETERS + k, i) * amplitude + center
                    : choice == 0 ? (float)tensor->closed
                                  : (float)(tensor->base + tensor->step * choice);
    }
}

void recorded_images(const recorded *found, float *images) {
    const int64_t *dims = found->sample.dims;
    int64_t cell = found->cell, across = (dims[2] + cell - 1) / cell;
    for (int64_t plane = 0; plane < found->batch * dims[0]; plane++)
        for (int64_t y = 0; y < dims[1]; y++)
            for (int64_t x = 0; x < dims[2]; x++) {
                int64_t index = (plane * across + y / cell) * across + x / cell;
                *images++ = (float)found->largest *
                            draw(IMAGES, (found->seed << 32) + (uint64_t)index);
            }
}

void recorded_labels(const recorded *found, int32_t *labels) {
    for (int64_t n = 0; n < found->batch; n++)
        labels[n] = (int32_t)(word_of(LABELS, (uint64_t)n) % (uint64_t)found->classes);
}

void sketch_make(const float *values, size_t count, sketch *made) {
    double squares = 0, sum[SKETCH] = {0};
    for (size_t i = 0; i < count; i++) {
        double value = (double)values[i];
        uint64_t word = word_of(SIGNS, i);
        sum[word % SKETCH] += word >> 63 ? -value : value;
        squares += value * value;
    }
    made->norm = sqrt(squares);
    memcpy(made->sum, sum, sizeof sum);
}

double sketch_distance(const sketch *a, const sketch *b) {
    double squares = 0;
    for (int i = 0; i < SKETCH; i++)
        squares += (a->sum[i] - b->sum[i]) * (a->sum[i] - b->sum[i]);
    return sqrt(squares);
}

/* ---- The file -------------------------------------------------------------------- */

static dlc_shape shape_read(const char *text) {
    dlc_shape shape = {0};
    char *end = NULL;
    for (; *text && shape.rank < DLC_MAX_DIMS; text = end + (*end == 'x')) {
        shape.dims[shape.rank++] = strtoll(text, &end, 10);
        ck_assert_msg(end != text, "'%s' is no shape", text);
    }
    return shape;
}

/* The next word of a line, as a number. */
static double next_number(char **rest) {
    char *word = strtok_r(NULL, " \n", rest), *end = NULL;
    ck_assert_ptr_nonnull(word);
    double value = strtod(word, &end);
    ck_assert_msg(*end == '\0', "'%s' is no number", word);
    return value;
}

static void add_tensor(recorded *found, char **rest) {
    recorded_tensor *grown = realloc(found->tensor,
                                     (found->tensors + 1) * sizeof *grown);
    ck_assert_ptr_nonnull(grown);
    found->tensor = grown;
    recorded_tensor *tensor = &grown[found->tensors++];
    *tensor = (recorded_tensor){.shape = shape_read(strtok_r(NULL, " \n", rest))};
    tensor->center = next_number(rest);
    tensor->amplitude = next_number(rest);
    tensor->gradient.norm = next_number(rest);
    for (int i = 0; i < SKETCH; i++)
        tensor->gradient.sum[i] = next_number(rest);
}

/* Reads the choices of the tensor above, one character per channel. */
static void add_choices(recorded *found, char **rest) {
    ck_assert_uint_gt(found->tensors, 0);
    recorded_tensor *tensor = &found->tensor[found->tensors - 1];
    tensor->closed = next_number(rest);
    tensor->base = next_number(rest);
    tensor->step = next_number(rest);
    tensor->choices = strdup(strtok_r(NULL, " \n", rest));
    ck_assert_int_eq((int64_t)strlen(tensor->choices), dlc_shape_count(&tensor->shape));
}

static void read_line(recorded *found, char *line) {
    char *rest = NULL;
    const char *word = strtok_r(line, " \n", &rest);
    if (!word || *word == '#')
        return;
    if (strcmp(word, "sample") == 0)
        found->sample = shape_read(strtok_r(NULL, " \n", &rest));
    else if (strcmp(word, "classes") == 0)
        found->classes = (int32_t)next_number(&rest);
    else if (strcmp(word, "batch") == 0)
        found->batch = (int64_t)next_number(&rest);
    else if (strcmp(word, "cell") == 0)
        found->cell = (int64_t)next_number(&rest);
    else if (strcmp(word, "largest") == 0)
        found->largest = next_number(&rest);
    else if (strcmp(word, "seed") == 0)
        found->seed = (uint64_t)next_number(&rest);
    else if (strcmp(word, "loss") == 0)
        found->loss = next_number(&rest);
    else if (strcmp(word, "tensor") == 0)
        add_tensor(found, &rest);
    else if (strcmp(word, "chosen") == 0)
        add_choices(found, &rest);
    else
        ck_abort_msg("what is '%s'?", word);
}

void recorded_read(const char *net, recorded *found) {
    char path[4096], *line = NULL;
    size_t room = 0;
    snprintf(path, sizeof path, "%s/tests/gradients/%s.ref",
             getenv("DLCORE_SOURCE_DIR") ? getenv("DLCORE_SOURCE_DIR") : ".", net);
    FILE *file = fopen(path, "r");
    ck_assert_msg(file != NULL, "cannot open %s", path);
    memset(found, 0, sizeof *found);
    while (getline(&line, &room, file) >= 0)
        read_line(found, line);
    free(line);
    fclose(file);
    ck_assert_msg(found->sample.rank == 3 && found->classes > 0 && found->batch &&
                      found->cell && found->tensors,
                  "%s is not complete", path);
}

void recorded_free(recorded *found) {
    for (size_t k = 0; k < found->tensors; k++)
        free(found->tensor[k].choices);
    free(found->tensor);
}
