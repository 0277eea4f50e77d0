/* The name of the table that a file defines which is compiled once for each instruction
 * set (CMakeLists.txt defines ISA: base, avx2 or avx512). */
#ifndef ONEDNN_PER_ISA_H
#define ONEDNN_PER_ISA_H

/* Two macros, so that ISA is expanded before it is pasted. */
#define PER_ISA_JOIN(name, isa) name##isa
#define PER_ISA_EXPAND(name, isa) PER_ISA_JOIN(name, isa)
#define PER_ISA_QUOTE(isa) #isa
#define PER_ISA_TEXT(isa) PER_ISA_QUOTE(isa)

/* Turns channels_ into channels_avx2; and ISA_NAME is "avx2". */
#define PER_ISA(name) PER_ISA_EXPAND(name, ISA)
#define ISA_NAME PER_ISA_TEXT(ISA)

#endif
