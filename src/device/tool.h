/* Compilers that are programs: code is made in a temporary folder. */
#ifndef SOL_TOOL_H
#define SOL_TOOL_H

#include "base/base.h"
#include "sol/device.h"

struct tool {
    const char *name; /* for messages */
    /* Writes the sources into the folder, and says what is run (a list that NULL ends) and which file it makes. */
    sol_status (*prepare)(struct arena *a, const char *folder, const struct sol_code_text *text, void *user,
                          const char *const **out_argv, const char **out_file);
    void *user;
};
/* Fills in data and bytes of *out, as `compile` of a device does. Errors: COMPILER, IO, NOMEM. */
sol_status tool_compile(const struct sol_host *host, const struct tool *t, const struct sol_code_text *text,
                        struct sol_blob *out, struct sol_failure *why);
void tool_blob_free(const struct sol_device_type *type, const struct sol_host *host, struct sol_blob *blob);

#endif
