/* One file of kernels, EMULATED, as a part of a program for the processor. */
#include "emulate.h"
/* after it */
#include EMULATED
