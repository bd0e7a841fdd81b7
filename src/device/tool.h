/* Compilers that are programs: code is made in a temporary folder. */
#ifndef SOL_TOOL_H
#define SOL_TOOL_H

#include "base/base.h"
#include "sol/device.h"

struct tool {
    const char *name, *program; /* name: for messages */
    const char *words;          /* its arguments, between blanks; '$' at the beginning of one is the folder */
    const char *last;           /* one more; NULL: none */
    const char *source;         /* the file of the text in the folder; `code` is what is made of it */
    sol_status (*prepare)(struct arena *a, const char *folder); /* writes more files; NULL: there are none */
};
/* Fills in data and bytes of *out, as `compile` of a device does; behind the data is a 0. Errors: COMPILER, IO, NOMEM.
 */
sol_status tool_compile(const struct sol_host *host, const struct tool *t, const char *text, struct sol_blob *out,
                        struct sol_failure *why);
void tool_blob_free(const struct sol_device_type *type, const struct sol_host *host, struct sol_blob *blob);
/* What a program says behind `sign`, to the end of the line, when it is asked by such arguments for its version. NULL:
 * it is not there, or says nothing of that kind. */
const char *tool_says(struct arena *a, const char *program, const char *words, const char *sign);

#endif
