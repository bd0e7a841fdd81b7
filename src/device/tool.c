#include "device/tool.h"

#include <stdlib.h>
#include <string.h>

#include "build/build.h"
#include "device/inside.h"

/* The arguments as a list that NULL ends. */
static const char *const *list(struct arena *a, const struct tool *t, const char *folder)
{
    const char **out = NEW_ARRAY(a, const char *, strlen(t->words) / 2 + 4);
    int n = 0;
    out[n++] = t->program;
    for (const char *w = t->words + strspn(t->words, " "); *w; w += strspn(w, " ")) {
        const int length = (int)strcspn(w, " "), sign = *w == '$';
        out[n++] = arena_printf(a, "%s%.*s", sign ? folder : "", length - sign, w + sign);
        w += length;
    }
    out[n] = t->last;
    return out;
}

static sol_status compile_in(struct arena *a, const char *folder, const struct tool *t, const char *text,
                             struct sol_blob *out, struct sol_failure *why)
{
    const char *said = "";
    char *data = NULL;
    int exit = 0;
    TRY(file_write(arena_ctx(a), arena_printf(a, "%s/%s", folder, t->source), text, strlen(text)));
    if (t->prepare) TRY(t->prepare(a, folder));
    TRY(process_run(a, list(a, t, folder), &exit, &said));
    if (exit) return failure_rejected(why, t->name, strdup(said), out);
    TRY(file_read(arena_ctx(a), a, arena_printf(a, "%s/code", folder), &data, &out->bytes));
    char *copy = calloc(out->bytes + 1, 1);
    if (copy) memcpy(copy, data, out->bytes);
    out->data = copy;
    return copy ? SOL_OK : failure_set(why, SOL_ERR_NOMEM, "out of memory");
}

sol_status tool_compile(const struct sol_host *host, const struct tool *t, const char *text, struct sol_blob *out,
                        struct sol_failure *why)
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

const char *tool_says(struct arena *a, const char *program, const char *words, const char *sign)
{
    const struct tool t = {.program = program, .words = words};
    const char *said = "";
    int exit = 0;
    if (process_run(a, list(a, &t, ""), &exit, &said) || exit) return NULL;
    const char *at = strstr(said, sign);
    if (at) at += strlen(sign);
    return at ? arena_printf(a, "%.*s", (int)strcspn(at, "\n"), at) : NULL;
}
