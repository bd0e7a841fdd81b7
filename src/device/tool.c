#include "device/tool.h"

#include <stdlib.h>
#include <string.h>

#include "build/build.h"
#include "device/inside.h"

static sol_status compile_in(struct arena *a, const char *folder, const struct tool *t,
                             const struct sol_code_text *text, struct sol_blob *out, struct sol_failure *why)
{
    const char *const *argv = NULL;
    const char *file = NULL, *said = "";
    char *data = NULL;
    int exit = 0;
    TRY(t->prepare(a, folder, text, t->user, &argv, &file));
    TRY(process_run(a, argv, &exit, &said));
    if (exit) return failure_rejected(why, t->name, strdup(said), out);
    TRY(file_read(arena_ctx(a), a, file, &data, &out->bytes));
    void *copy = malloc(out->bytes);
    if (copy) memcpy(copy, data, out->bytes);
    out->data = copy;
    return copy ? SOL_OK : failure_set(why, SOL_ERR_NOMEM, "out of memory");
}

sol_status tool_compile(const struct sol_host *host, const struct tool *t, const struct sol_code_text *text,
                        struct sol_blob *out, struct sol_failure *why)
{
    struct arena *a = arena_create(host_ctx(host));
    if (!a) return failure_set(why, SOL_ERR_NOMEM, "out of memory");
    const char *folder = folder_temporary(a);
    sol_status status = folder ? compile_in(a, folder, t, text, out, why)
                               : failure_set(why, SOL_ERR_IO, "%s: there is no place for its files", t->name);
    if (folder) folder_remove(folder);
    if (status && !*why->text) failure_set(why, status, "%s: %s", t->name, sol_error(host_ctx(host)));
    arena_destroy(a);
    return status;
}

void tool_blob_free(const struct sol_device_type *type, const struct sol_host *host, struct sol_blob *blob)
{
    (void)type, (void)host;
    free((void *)(uintptr_t)blob->data);
    blob->data = NULL;
}
