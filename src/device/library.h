/* Libraries of a device's maker, opened at run time. */
#ifndef SOL_DEVICE_LIBRARY_H
#define SOL_DEVICE_LIBRARY_H

#include <stdbool.h>

#include "sol/device.h"

/* library.c. Opens a library: the one that `option` names, otherwise the first of `files` that is there, by its path if
 * that is absolute, or else in the folders of the key device::libraries, or, by its name alone, where the system looks.
 * Finds its functions, a list that ends with NULL. It stays open, because drivers have threads. NULL: all are there;
 * otherwise why not. */
struct library_symbol {
    const char *name;
    void *to; /* a pointer to a function */
};
const char *library_open(const struct sol_host *host, const char *option, const char *const files[], int n,
                         const struct library_symbol *symbol);

/* Is an option of the key device::options set to the value? */
bool option_is(const struct sol_host *host, const char *option, const char *value);

/* Writes code into a new private file in TMPDIR, or /tmp, for drivers that open it by its path; the caller removes it.
 * NULL: it is there; otherwise why not. */
const char *library_write(const void *data, size_t bytes, const char *suffix, char *out_path, size_t room);

#endif
