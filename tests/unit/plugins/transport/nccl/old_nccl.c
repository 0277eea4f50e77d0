/* A fake of an NCCL version that is too old: it has no non-blocking communicators. */
__attribute__((visibility("default"))) int ncclGetVersion(int *version);
int ncclGetVersion(int *version) {
    *version = 21304;
    return 0;
}
