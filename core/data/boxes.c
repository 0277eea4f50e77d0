/* Checks boxes around objects. */
#include "data/boxes.h"

#include <math.h>
#include <string.h>

/* Returns what is wrong with a box; NULL: nothing. */
static const char *find_mistake(const float *row, float height, float width) {
    for (int i = DLC_BOX_X0; i < DLC_BOX_VALUES; i++)
        if (!isfinite(row[i]))
            return "its numbers have to be finite";
    if (row[DLC_BOX_X0] >= row[DLC_BOX_X1] || row[DLC_BOX_Y0] >= row[DLC_BOX_Y1])
        return "x1 has to be greater than x0, and y1 than y0";
    if (!(row[DLC_BOX_X0] < width && row[DLC_BOX_Y0] < height && row[DLC_BOX_X1] > 0 &&
          row[DLC_BOX_Y1] > 0))
        return "it is outside the image";
    return NULL;
}

/* How many classes there may be; float32 counts no further. */
static int32_t classes_of(const dlc_field *field) {
    return field->classes ? field->classes : 1 << 24;
}

static int is_class(const dlc_field *field, float number) {
    return number >= 0 && number < (float)classes_of(field) && number == floorf(number);
}

dlc_status dlc_boxes_check(const dlc_field *field, const dlc_value *value,
                           int64_t height, int64_t width) {
    const float *row = value->data;
    for (int64_t i = 0; i < value->shape.dims[0]; i++, row += DLC_BOX_VALUES) {
        if (row[DLC_BOX_CLASS] == -1)
            continue;
        if (!is_class(field, row[DLC_BOX_CLASS]))
            return dlc_fail(DLC_ERR_DATA,
                            "field %s, row %lld: the class %g is no whole number from "
                            "0 to %d; -1 is a row that is not used",
                            field->name, (long long)i, (double)row[DLC_BOX_CLASS],
                            (int)classes_of(field) - 1);
        const char *mistake = find_mistake(row, (float)height, (float)width);
        if (mistake)
            return dlc_fail(
                DLC_ERR_DATA,
                "field %s, row %lld: the box x %g to %g, y %g to %g, of an image of "
                "%lld x %lld pixels (width x height): %s",
                field->name, (long long)i, (double)row[DLC_BOX_X0],
                (double)row[DLC_BOX_X1], (double)row[DLC_BOX_Y0],
                (double)row[DLC_BOX_Y1], (long long)width, (long long)height, mistake);
    }
    return DLC_OK;
}

void dlc_boxes_clear(float *rows, int64_t first, int64_t end) {
    for (float *row = rows + first * DLC_BOX_VALUES; first < end;
         first++, row += DLC_BOX_VALUES) {
        memset(row, 0, DLC_BOX_VALUES * sizeof *row);
        row[DLC_BOX_CLASS] = -1;
    }
}
