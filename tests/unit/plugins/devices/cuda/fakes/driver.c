/* A fake libcuda.so.1 that reports a version and nothing else. FAKE_DRIVER: 13000 for
 * CUDA 13.0. */
#include <stdlib.h>

int cuDriverGetVersion(int *version);
int cuDriverGetVersion(int *version) {
    const char *text = getenv("FAKE_DRIVER");
    *version = text ? atoi(text) : 13000;
    return 0;
}
