/* Finds the names of classes. */
#include "class_names.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "checkpoint/safetensors.h"

static int32_t count_lines(const char *text) {
    int32_t lines = 1;
    for (; *text; text++)
        lines += *text == '\n';
    return lines;
}

dlc_status dlc_trained_channels(const char *path, int32_t *channels) {
    dlc_safetensors *file = NULL;
    *channels = 0;
    dlc_status status = dlc_safetensors_open_header(path, &file);
    if (status != DLC_OK) /* loading it will say why */
        return status == DLC_ERR_NOMEM ? status : DLC_OK;
    const char *shape = dlc_safetensors_metadata(file, "dlcore.data.shape");
    *channels = !shape ? 0 : strchr(shape, ',') ? (int32_t)strtol(shape, NULL, 10) : -1;
    dlc_safetensors_close(file);
    return DLC_OK;
}

/* The metadata of a checkpoint, which has one name per line. */
static dlc_status read_file(const char *path, int32_t classes, dlc_text *text) {
    dlc_safetensors *file = NULL;
    DLC_TRY(dlc_safetensors_open_header(path, &file));
    const char *names = dlc_safetensors_metadata(file, "dlcore.data.class_names");
    if (names && count_lines(names) <= classes)
        dlc_text_add(text, "%s", names);
    dlc_safetensors_close(file);
    return dlc_text_status(text);
}

static void ask_source(const dlc_data_setup *data, int32_t classes, dlc_text *text) {
    const dlc_data_info *info = &data->info;
    if (text->length || !data->source || !info->class_names || info->classes > classes)
        return;
    for (int32_t i = 0; i < info->classes; i++)
        dlc_text_add(text, i ? "\n%s" : "%s", info->class_names[i]);
}

/* The setting `classes` of a section whose data are not open; NULL: it has none. */
static const char *classes_of(const dlc_data_setup *data) {
    size_t count = data->settings ? dlc_settings_count(data->settings) : 0;
    for (size_t i = 0; i < count; i++) {
        dlc_setting setting = dlc_settings_at(data->settings, i);
        if (strcmp(setting.name, "classes") == 0 && setting.is_set &&
            setting.option->type == DLC_OPT_STRING)
            return setting.text;
    }
    return NULL;
}

/* Names that were added to net.ini after the training. */
static void ask_settings(const dlc_data_setup *data, int32_t classes, dlc_text *text) {
    const char *at = text->length ? NULL : classes_of(data);
    dlc_text names = {0};
    while (at) {
        at += strspn(at, " ");
        size_t length = strcspn(at, ","), end = length;
        while (end && at[end - 1] == ' ')
            end--;
        dlc_text_add(&names, names.length ? "\n%.*s" : "%.*s", (int)end, at);
        at = at[length] ? at + length + 1 : NULL;
    }
    if (names.failed || count_lines(dlc_text_string(&names)) <= classes)
        dlc_text_append_text(text, &names);
    dlc_text_free(&names);
}

/* The net may have more outputs than the data has classes. */
static void number_rest(int32_t classes, dlc_text *text) {
    int32_t named = text->length ? count_lines(dlc_text_string(text)) : 0;
    for (int32_t i = named; i < classes; i++)
        dlc_text_add(text, i ? "\n%d" : "%d", (int)i);
}

/* Cuts the text into lines. */
static dlc_status split(int32_t classes, dlc_class_names *names) {
    names->name = dlc_alloc((size_t)classes, sizeof *names->name);
    if (!names->name)
        return DLC_ERR_NOMEM;
    char *rest = names->text;
    for (names->count = 0; rest && names->count < classes; names->count++)
        names->name[names->count] = strsep(&rest, "\n");
    return DLC_OK;
}

dlc_status dlc_class_names_open(const dlc_setup *setup, const char *path,
                                int32_t classes, dlc_class_names *names) {
    dlc_text text = {0};
    *names = (dlc_class_names){.count = 0};
    dlc_status status = read_file(path, classes, &text);
    ask_source(&setup->test, classes, &text);
    ask_source(&setup->train, classes, &text);
    ask_settings(&setup->test, classes, &text);
    ask_settings(&setup->train, classes, &text);
    number_rest(classes, &text);
    if (status == DLC_OK)
        status = dlc_text_status(&text);
    if (status == DLC_OK)
        names->text = dlc_strdup(dlc_text_string(&text));
    dlc_text_free(&text);
    if (status == DLC_OK && !names->text)
        status = DLC_ERR_NOMEM;
    if (status == DLC_OK)
        status = split(classes, names);
    if (status != DLC_OK)
        dlc_class_names_close(names);
    return status;
}

dlc_status dlc_trained_classes(const char *path, dlc_class_names *names) {
    dlc_safetensors *file = NULL;
    *names = (dlc_class_names){.count = 0};
    dlc_status status = dlc_safetensors_open_header(path, &file);
    if (status != DLC_OK) /* loading it will say why */
        return status == DLC_ERR_NOMEM ? status : DLC_OK;
    const char *text = dlc_safetensors_metadata(file, "dlcore.data.class_names");
    const char *classes = dlc_safetensors_metadata(file, "dlcore.data.classes");
    /* A name with a line break makes another number of lines. */
    if (text && classes && count_lines(text) == strtol(classes, NULL, 10)) {
        names->text = dlc_strdup(text);
        status = names->text ? split(count_lines(text), names) : DLC_ERR_NOMEM;
    }
    dlc_safetensors_close(file);
    if (status != DLC_OK)
        dlc_class_names_close(names);
    return status;
}

void dlc_class_names_close(dlc_class_names *names) {
    dlc_free(names->name);
    dlc_free(names->text);
    *names = (dlc_class_names){.count = 0};
}
