/* The digest that ranks compare before they train together: of the net and of every
 * setting that must agree. Settings that say where things are, or that affect only a
 * rank's own speed and output, may differ. */
#include <string.h>
#include <xxhash.h>

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

static void add_text(XXH64_state_t *hash, const char *text) {
    XXH64_update(hash, text, strlen(text) + 1);
}

uint64_t dlc_setup_digest(const dlc_setup *setup) {
    XXH64_state_t hash;
    XXH64_reset(&hash, 0);
    for (const dlc_section *section = NULL;
         (section = dlc_config_next(setup->config, section));) {
        const char *name = dlc_section_name(section), *key;
        add_text(&hash, name);
        for (size_t i = 0; (key = dlc_section_key(section, i)); i++) {
            if (may_differ(name, key))
                continue;
            add_text(&hash, key);
            add_text(&hash, dlc_section_value(section, key));
        }
    }
    return XXH64_digest(&hash);
}
