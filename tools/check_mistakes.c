/* Keeps copies of mistakes and writes them as JSON: `dlcore check --json`. */
#include "check_mistakes.h"

#include "base/memory.h"
#include "base/status.h"

static void free_texts(dlc_mistake *mistake) {
    dlc_free((char *)mistake->file);
    dlc_free((char *)mistake->section);
    dlc_free((char *)mistake->key);
    dlc_free((char *)mistake->message);
}

static int copy(const char *text, const char **to) {
    *to = text ? dlc_strdup(text) : NULL;
    return !text || *to;
}

void check_mistakes_keep(void *context, const dlc_mistake *mistake) {
    check_mistakes *kept = context;
    dlc_mistake *grown = dlc_grow_by_one(kept->list, kept->count, sizeof *grown);
    if (!grown) {
        kept->failed = 1;
        return;
    }
    kept->list = grown;
    dlc_mistake made = {.line = mistake->line, .is_warning = mistake->is_warning};
    if (copy(mistake->file, &made.file) && copy(mistake->section, &made.section) &&
        copy(mistake->key, &made.key) && copy(mistake->message, &made.message)) {
        kept->list[kept->count++] = made;
        return;
    }
    free_texts(&made);
    kept->failed = 1;
}

void check_mistakes_end(check_mistakes *mistakes, dlc_status status) {
    for (size_t i = 0; i < mistakes->count; i++)
        if (!mistakes->list[i].is_warning)
            return; /* the detail sentence only counts them */
    const dlc_mistake made = {.message = dlc_detail()[0] ? dlc_detail()
                                                         : dlc_status_text(status)};
    if (status != DLC_OK)
        check_mistakes_keep(mistakes, &made);
}

static void write_one(const dlc_mistake *mistake, dlc_json *json) {
    dlc_json_object(json, NULL);
    dlc_json_string(json, "file", mistake->file);
    if (mistake->line > 0)
        dlc_json_int(json, "line", mistake->line);
    else
        dlc_json_string(json, "line", NULL);
    dlc_json_string(json, "section", mistake->section);
    dlc_json_string(json, "key", mistake->key);
    dlc_json_string(json, "severity", mistake->is_warning ? "warning" : "error");
    dlc_json_string(json, "message", mistake->message);
    dlc_json_end_object(json);
}

void check_mistakes_write(const check_mistakes *mistakes, dlc_json *json) {
    if (mistakes->failed)
        dlc_text_fail(&json->text);
    dlc_json_array(json, "mistakes");
    for (size_t i = 0; i < mistakes->count; i++)
        write_one(&mistakes->list[i], json);
    dlc_json_end_array(json);
}

void check_mistakes_free(check_mistakes *mistakes) {
    for (size_t i = 0; i < mistakes->count; i++)
        free_texts(&mistakes->list[i]);
    dlc_free(mistakes->list);
    *mistakes = (check_mistakes){0};
}
