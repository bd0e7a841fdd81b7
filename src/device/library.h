/* Libraries of a device's maker, opened at run time. */
#ifndef SOL_DEVICE_LIBRARY_H
#define SOL_DEVICE_LIBRARY_H

#include <stdbool.h>
#include <stdio.h>

#include "sol/device.h"

/* library.c. Opens a library: the one that `option` names, otherwise the first of `files` that is there, by its path if
 * that is absolute, or else in the folders of the key device::libraries, or, by its name alone, where the system looks.
 * Finds its functions, a list that ends with NULL. It stays open, because drivers have threads. NULL: all are there;
 * otherwise why not. */
struct library_symbol {
    const char *name;
    void *to; /* a pointer to a function */
};
/* For a table of functions X(name, symbol, parameters) that return an int: the members of a struct, and the list. */
#define LIBRARY_MEMBER(name, symbol, parameters) int(*name) parameters;
#define LIBRARY_SYMBOL(name, symbol, parameters) {symbol, &out->name},
const char *library_open(const struct sol_host *host, const char *option, const char *const files[], int n,
                         const struct library_symbol *symbol);

/* Finds a file in the same way, but not where the system looks. false: it is not there; its path is then what `option`
 * names, otherwise "". */
bool library_find(const struct sol_host *host, const char *option, const char *const files[], int n, char *out,
                  size_t room);

/* Is an option of the key device::options set to the value? */
bool option_is(const struct sol_host *host, const char *option, const char *value);

#if defined SOL_DEPLOYED
/* The compiler of a device in a deployed library, which has its code. */
static inline bool library_compiler(const struct sol_host *host, char *out, size_t room)
{
    (void)host;
    snprintf(out, room, "the library has its code");
    return false;
}
#endif

/* Writes code into a new private file in TMPDIR, or /tmp, for drivers that open it by its path; the caller removes it.
 * NULL: it is there; otherwise why not. */
const char *library_write(const void *data, size_t bytes, const char *suffix, char *out_path, size_t room);

#endif
