/* Writes predictions. */
#include "predict_writer.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/process.h"
#include "file.h"
#include "npy.h"
#include "streams.h"

/* The widths of a table's columns, in characters. */
enum { SAMPLE_LETTERS = 24, NAME_LETTERS = 16 };

static dlc_status failed(const dlc_predict_writer *writer) {
    return dlc_fail(DLC_ERR_IO, "writing to %s: %s",
                    writer->path ? writer->path : "stdout", strerror(errno));
}

/* Writes the text and frees it. */
static dlc_status put(dlc_predict_writer *writer, dlc_text *text) {
    dlc_status status = dlc_text_status(text);
    if (status == DLC_OK && text->length &&
        fwrite(text->bytes, 1, text->length, writer->file) != text->length)
        status = failed(writer);
    dlc_text_free(text);
    return status;
}

/* ---- One sample ------------------------------------------------------------------ */

static const char *name_of(const dlc_predict_writer *writer, int32_t class) {
    return class >= 0 && class < writer->names->count ? writer->names->name[class] : "";
}

static void add_name(const dlc_predict_writer *writer, int32_t class, dlc_text *text) {
    dlc_text_add(text, "  ");
    dlc_text_add_cell(text, -NAME_LETTERS, INT_MAX, name_of(writer, class));
}

static void add_head(const dlc_predict_writer *writer, dlc_text *text) {
    dlc_text_add(text, "%-*s", SAMPLE_LETTERS, "sample");
    if (writer->has_labels)
        dlc_text_add(text, "  %-*s", NAME_LETTERS, "label");
    dlc_text_add(text, "  best classes\n");
}

/* A column per class: its name, then its probability. */
static void add_row(const dlc_predict_writer *writer, const dlc_prediction *p,
                    dlc_text *text) {
    dlc_text_add_cell(text, -SAMPLE_LETTERS, INT_MAX, p->name);
    if (writer->has_labels)
        add_name(writer, p->label, text);
    if (!p->count)
        dlc_text_add(text, "  -");
    for (int32_t i = 0, shown = 0; i < p->count; i++, shown++) {
        if (writer->each_line && shown == writer->each_line) {
            dlc_text_add(text, "\n%*s", writer->first, "");
            shown = 0;
        }
        add_name(writer, p->class[i], text);
        dlc_text_add(text, " %5.1f %%", 100 * p->probability[i]);
    }
    dlc_text_add(text, "\n");
}

/* A value of CSV (RFC 4180). */
static void add_quoted(dlc_text *text, const char *value) {
    if (!strpbrk(value, ",\"\r\n")) {
        dlc_text_add(text, "%s", value);
        return;
    }
    dlc_text_add(text, "\"");
    for (; *value; value++)
        dlc_text_append(text, *value == '"' ? "\"\"" : value, *value == '"' ? 2 : 1);
    dlc_text_add(text, "\"");
}

/* A line per class, or one that has none. */
static void add_csv(const dlc_predict_writer *writer, const dlc_prediction *p,
                    dlc_text *text) {
    for (int32_t i = 0; i < p->count || i == 0; i++) {
        add_quoted(text, p->name);
        dlc_text_add(text, ",");
        if (p->label != DLC_LABEL_NONE)
            add_quoted(text, name_of(writer, p->label));
        if (i == p->count) {
            dlc_text_add(text, ",,,,\n");
            return;
        }
        dlc_text_add(text, ",%d,%d,", (int)i + 1, (int)p->class[i]);
        add_quoted(text, name_of(writer, p->class[i]));
        dlc_text_add(text, ",%.9g\n", p->probability[i]);
    }
}

static void add_json(const dlc_predict_writer *writer, const dlc_prediction *p,
                     dlc_text *text) {
    dlc_json json = {.text = *text};
    dlc_json_object(&json, NULL);
    dlc_json_string(&json, "sample", p->name);
    if (p->label != DLC_LABEL_NONE) {
        dlc_json_int(&json, "label", p->label);
        dlc_json_string(&json, "label_name", name_of(writer, p->label));
    }
    dlc_json_array(&json, "top");
    for (int32_t i = 0; i < p->count; i++) {
        dlc_json_object(&json, NULL);
        dlc_json_int(&json, "class", p->class[i]);
        dlc_json_string(&json, "name", name_of(writer, p->class[i]));
        dlc_json_number(&json, "probability", p->probability[i]);
        dlc_json_end_object(&json);
    }
    dlc_json_end_array(&json);
    dlc_json_end_object(&json);
    *text = json.text;
    dlc_text_add(text, "\n");
}

dlc_status dlc_predict_write(dlc_predict_writer *writer,
                             const dlc_prediction *prediction) {
    dlc_text text = {0};
    if (writer->format == DLC_PREDICT_CSV)
        add_csv(writer, prediction, &text);
    else if (writer->format == DLC_PREDICT_JSON)
        add_json(writer, prediction, &text);
    else
        add_row(writer, prediction, &text);
    return put(writer, &text);
}

dlc_status dlc_predict_write_array(dlc_predict_writer *writer, const void *values,
                                   size_t count) {
    return fwrite(values, dlc_dtype_bytes(writer->dtype), count, writer->file) == count
               ? DLC_OK
               : failed(writer);
}

/* ---- The file -------------------------------------------------------------------- */

static dlc_status open_part(dlc_predict_writer *writer) {
    writer->file = dlc_tool_out();
    if (!writer->path)
        return DLC_OK;
    DLC_TRY(dlc_tool_file_check(writer->path));
    writer->file = NULL;
    writer->part = dlc_format("%s.part", writer->path);
    if (!writer->part)
        return DLC_ERR_NOMEM;
    writer->file = fopen(writer->part, "we");
    return writer->file ? DLC_OK : failed(writer);
}

/* On a terminal a row takes as many lines as its classes need. */
static void fit_terminal(dlc_predict_writer *writer) {
    const int cell = NAME_LETTERS + 10;
    int columns = writer->path ? 0 : dlc_tool_columns();
    writer->first = SAMPLE_LETTERS + (writer->has_labels ? NAME_LETTERS + 2 : 0);
    writer->each_line = columns > writer->first + cell
                            ? (columns - writer->first) / cell
                        : columns ? 1
                                  : 0;
}

dlc_status dlc_predict_writer_open(dlc_predict_writer *writer, const dlc_shape *shape) {
    dlc_text text = {0};
    DLC_TRY(open_part(writer));
    if (writer->format == DLC_PREDICT_NPY)
        dlc_npy_header(&text, writer->dtype, shape);
    else if (writer->format == DLC_PREDICT_CSV)
        dlc_text_add(&text, "sample,label,rank,class,name,probability\n");
    else if (writer->format == DLC_PREDICT_TABLE) {
        fit_terminal(writer);
        add_head(writer, &text);
    }
    return put(writer, &text);
}

dlc_status dlc_predict_writer_flush(dlc_predict_writer *writer) {
    return fflush(writer->file) == 0 ? DLC_OK : failed(writer);
}

dlc_status dlc_predict_writer_close(dlc_predict_writer *writer, dlc_status status) {
    dlc_process_return();
    if (writer->file && status == DLC_OK)
        status = dlc_predict_writer_flush(writer);
    if (writer->file && writer->path && fclose(writer->file) != 0 && status == DLC_OK)
        status = failed(writer);
    if (writer->part && status == DLC_OK && rename(writer->part, writer->path) != 0)
        status = failed(writer);
    if (writer->part && status != DLC_OK)
        (void)unlink(writer->part);
    dlc_free(writer->part);
    writer->part = NULL;
    writer->file = NULL;
    return status;
}
