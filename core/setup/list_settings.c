/* What ranks compare before they train together: the net and every setting that must
 * agree. Settings that say where things are, or that affect only a rank's own speed and
 * output, may differ. */
#include <string.h>

#include "setup/setup.h"

/* Keys of [train] and [parallel] that may differ between ranks. */
static const char *const local_keys[] = {"threads",
                                         "bind",
                                         "device",
                                         "display",
                                         "ranks",
                                         "run_dir",
                                         "hang_timeout",
                                         "keep",
                                         "rendezvous_timeout",
                                         "checkpoint_minutes",
                                         "overcommit"};

static int may_differ(const char *section, const char *key) {
    if (strcmp(section, "train") != 0 && strcmp(section, "parallel") != 0)
        return 0;
    for (size_t i = 0; i < sizeof local_keys / sizeof *local_keys; i++)
        if (strcmp(key, local_keys[i]) == 0)
            return 1;
    return 0;
}

void dlc_setup_list_settings(const dlc_setup *setup, dlc_text *text) {
    for (const dlc_section *section = NULL;
         (section = dlc_config_next(setup->config, section));) {
        const char *name = dlc_section_name(section), *key;
        dlc_text_add(text, "[%s]\n", name);
        for (size_t i = 0; (key = dlc_section_key(section, i)); i++)
            if (!may_differ(name, key))
                dlc_text_add(text, "[%s] %s = %s\n", name, key,
                             dlc_section_value(section, key));
    }
}
