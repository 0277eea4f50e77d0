/* Resolves functions of libraries that are loaded at run time. */
#ifndef SYMBOLS_H
#define SYMBOLS_H

#include <dlfcn.h>
#include <string.h>

/* Stores a symbol's address in a function pointer, as POSIX allows; returns 0 if there
 * is none. */
static inline int find_symbol(void *library, const char *name, void *call,
                              size_t bytes) {
    void *symbol = dlsym(library, name);
    memcpy(call, &symbol, bytes);
    return symbol != NULL;
}
#define FIND(library, name, call) find_symbol(library, name, &(call), sizeof(call))

#endif
