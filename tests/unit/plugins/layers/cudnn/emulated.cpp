/* One .cu file (EMULATED) compiled for the CPU on top of emulate.h. */
#include "emulate.h"
/* must come after emulate.h */
#include EMULATED
