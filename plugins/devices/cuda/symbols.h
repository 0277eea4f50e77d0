/* Functions of libraries that are opened when they are needed. */
#ifndef SYMBOLS_H
#define SYMBOLS_H

#include <dlfcn.h>
#include <string.h>

/* A pointer to a function out of one to anything, as POSIX allows; 0: there is none. */
static inline int find_symbol(void *library, const char *name, void *call,
                              size_t bytes) {
    void *symbol = dlsym(library, name);
    memcpy(call, &symbol, bytes);
    return symbol != NULL;
}
#define FIND(library, name, call) find_symbol(library, name, &(call), sizeof(call))

#endif
