/* Names of kinds and states. */
#include "plugin/entry.h"

const char *dlc_kind_text(dlc_kind kind) {
    switch (kind) {
    case DLC_KIND_DEVICE:
        return "device";
    case DLC_KIND_TRANSPORT:
        return "transport";
    case DLC_KIND_LAYER:
        return "layer";
    case DLC_KIND_SOLVER:
        return "solver";
    case DLC_KIND_DATA:
        return "data";
    case DLC_KIND_CONSISTENCY:
        return "consistency";
    case DLC_KIND_DECODER:
        return "decoder";
    }
    return "unknown";
}

const char *dlc_entry_state_text(dlc_entry_state state) {
    switch (state) {
    case DLC_ENTRY_USABLE:
        return "usable";
    case DLC_ENTRY_UNAVAILABLE:
        return "unavailable";
    case DLC_ENTRY_REFUSED:
        return "refused";
    case DLC_ENTRY_SHADOWED:
        return "shadowed";
    case DLC_ENTRY_IGNORED:
        return "ignored";
    case DLC_ENTRY_UNTRIED:
        return "not loaded";
    }
    return "unknown";
}
