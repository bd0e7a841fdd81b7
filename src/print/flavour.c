/* The functions of a kernel in the words of a flavour. All devices there are speak C. */
#include "print/kernel.h"

struct flavour {
    const char *name, *entry;
};
static const struct flavour flavours[] = {
#define X(name, entry) {#name, entry},
#include "print/flavour.def"
#undef X
};

void kernel_open(struct text *out, int step)
{
    const struct flavour *f = &flavours[0];
    text_put(out, f->entry, step);
    text_put(out, "\n{\n");
    out->indent++;
}

void kernel_close(struct text *out)
{
    text_close(out, "}");
}
