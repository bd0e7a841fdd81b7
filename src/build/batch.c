/* Batch: combines several kernels in one source for the compiler.
 *
 * A compiler needs 20 ms to start and to read headers and helpers, and 20 to 50 ms for a kernel. Shared helpers are
 * written once, and a kernel's own names get its number in the batch. */
#include "build/inside.h"

const char *batch_source(struct arena *a, int n, const struct source_text *kernel, const char *const *symbol)
{
    struct text t = text_new(a);
    struct map *seen = map_create(a);
    text_put(&t, "%s", source_header(kernel[0].header));
    for (int i = 0; i < n; i++) source_helpers(&t, seen, &kernel[i]);
    for (int i = 0; i < n; i++) {
        text_put(&t, "\n");
        source_body(&t, &kernel[i], symbol[i], n > 1 ? arena_printf(a, "_%d", i) : "");
        text_put(&t, "\n");
    }
    return t.at;
}
