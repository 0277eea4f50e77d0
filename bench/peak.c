/* The limits of this machine, on some threads at once, as one line of JSON: 10^9
 * operations a second (two per multiply-add) of float32 and of bf16, in vectors and in
 * tiles, and 10^9 bytes a second of memory that is read or copied; 0: the CPU cannot.
 * It measures as `dlcore time` does, for longer. bench/side_by_side.py compiles and
 * runs it: cc -O3 -pthread -I tools bench/peak.c tools/cpu_limits.c -o peak &&
 * ./peak THREADS
 */
#include <stdio.h>
#include <stdlib.h>

#include "cpu_limits.h"

int main(int argc, char **argv) {
    dlc_cpu_limits limits;
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    dlc_cpu_limits_measure(threads, (size_t)1 << 30, 0.3, &limits);
    printf("{\"threads\": %d, \"float32\": %.1f, \"bf16\": %.1f, \"bf16_tile\": %.1f, "
           "\"read\": %.1f, \"copy\": %.1f}\n",
           threads, limits.float32, limits.bf16, limits.bf16_tile, limits.read,
           limits.copy);
    return limits.float32 > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
