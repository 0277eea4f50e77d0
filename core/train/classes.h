/* The classes of [data] and [data.test]: a label must mean the same class in both, also
 * where one of them has no samples of some class. Sources whose classes have names (one
 * folder a class) say them; [data.test]'s source is told those of [data]. */
#ifndef DLC_TRAIN_CLASSES_H
#define DLC_TRAIN_CLASSES_H

#include "train/setup.h"

/* Opens [data.test], which is there; [data] may be open already. It is opened for a
 * moment where it is not, and the classes of [data.test] turn out to have names: for
 * its own. DLC_ERR_DATA: the two have other classes. */
dlc_status dlc_classes_open_test(dlc_setup *setup);

#endif
