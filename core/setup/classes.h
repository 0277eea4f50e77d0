/* Makes sure that a label means the same class in [data] and [data.test], even if one
 * of them has no samples of some class. A source whose classes have names (one folder
 * per class) reports them; the source of [data.test] is given those of [data]. */
#ifndef DLC_SETUP_CLASSES_H
#define DLC_SETUP_CLASSES_H

#include "setup/setup.h"

/* Opens [data.test], which must be present. Its classes are those of [data] or, if that
 * is not open, those of setup->trained. Where these are not known and the classes of
 * [data.test] have names, or it cannot be opened without, [data] is opened temporarily
 * to read its class names. DLC_ERR_DATA: [data.test] has different classes. */
dlc_status dlc_classes_open_test(dlc_setup *setup);

#endif
