/* The kernel that zeroes the halo of a tensor's memory, row by row of its outermost dimension that has one. Work items
 * share each piece of memory. */
#include "print/print.h"

enum { ITEMS = 64 };

static bool has_halo(const struct halo_dim *d)
{
    return d->low || d->high;
}

/* Zeroes `n` elements, which begin at byte `at`. */
static void zero(struct text *out, const struct target *t, const struct halo *h, const char *at, int64_t n)
{
    if (target_has_items(t))
        text_line(out, "for (int64_t z = @ITEM; z < %lld; z += %d) ((@GLOBAL uint%d_t *)(y + %s))[z] = 0;",
                  (long long)n, ITEMS, 8 * h->bytes, at);
    else
        text_line(out, "@MEMSET(y + %s, 0, %lld);", at, (long long)size_mul(n, h->bytes));
}

/* Zeroes the elements outside, in dimensions i and inner. `base` is the C text of an offset in bytes. */
static void zero_from(struct text *out, const struct target *t, const struct halo *h, int i, const char *base)
{
    int inner = i;
    while (inner < h->ndim && !has_halo(&h->dim[inner])) inner++;
    if (inner == h->ndim) return;
    struct text at = text_new(out->arena);
    text_put(&at, "%s", base);
    const int opened = inner - i;
    for (; i < inner; i++) {
        text_open(out, "for (int64_t i%d = 0; i%d < %lld; ++i%d) {", i, i, (long long)h->dim[i].size, i);
        text_put(&at, " + i%d * %lld", i, (long long)size_mul(h->dim[i].stride, h->bytes));
    }
    const struct halo_dim *d = &h->dim[inner];
    const long long stride = size_mul(d->stride, h->bytes);
    if (d->low) zero(out, t, h, at.at, size_mul(d->low, d->stride));
    struct text deeper = text_new(out->arena);
    zero_from(&deeper, t, h, inner + 1, "0");
    if (deeper.n) {
        text_open(out, "for (int64_t i%d = 0; i%d < %lld; ++i%d) {", inner, inner, (long long)d->size, inner);
        const char *row = arena_printf(out->arena, "i%d", inner);
        row = text_enclosed(out->arena, text_plus(out->arena, row, d->low));
        zero_from(out, t, h, inner + 1, arena_printf(out->arena, "%s + %s * %lld", at.at, row, stride));
        text_close(out, "}");
    }
    if (d->high)
        zero(out, t, h,
             arena_printf(out->arena, "%s + %lld", at.at, (long long)size_mul(size_add(d->low, d->size), stride)),
             size_mul(d->high, d->stride));
    for (int k = 0; k < opened; k++) text_close(out, "}");
}

static bool varies(const struct halo *h)
{
    for (int i = 0; i < h->ndim; i++)
        if (size_varies(h->dim[i].size) || size_varies(h->dim[i].stride)) return true;
    return false;
}

sol_status halo_kernel(struct arena *a, const struct target *target, const struct halo *h, struct kernel *out)
{
    struct text t = text_new(a);
    int64_t images = 1;
    int outer = 0;
    for (; !has_halo(&h->dim[outer]); outer++) images = size_mul(images, h->dim[outer].size);
    const struct halo_dim *d = &h->dim[outer];
    const long long rows = size_add(d->size, d->low + d->high), stride = size_mul(d->stride, h->bytes);
    const char *below = d->low ? arena_printf(a, "row < %d", d->low) : "";
    const char *above = d->high ? arena_printf(a, "row >= %lld", (long long)size_add(d->low, d->size)) : "";
    text_line(&t, "/* zeroes the halo, one row of dimension %d in memory a task */", outer);
    kernel_open(&t, 0);
    text_line(&t, "(void)f, (void)worker;");
    print_bytes(&t, target, 0, h->origin ? arena_printf(a, " - %lld", (long long)size_mul(h->origin, h->bytes)) : "");
    text_open(&t, "for (int64_t task = task0; task < task1; ++task) {");
    text_line(&t, "const int64_t row = task %% %lld, at = task * %lld;", rows, stride);
    text_open(&t, "if (%s%s%s) {", below, d->low && d->high ? " || " : "", above);
    zero(&t, target, h, "at", d->stride);
    text_line(&t, "continue;");
    text_close(&t, "}");
    zero_from(&t, target, h, outer + 1, "at");
    text_close(&t, "}");
    kernel_close(&t);
    *out = (struct kernel){.source = t.at, .nstep = 1, .solver = "halo", .variant = ""};
    if (target_has_items(target)) out->items = ITEMS;
    out->step[0].tasks = size_mul(rows, images);
    out->step[0].suffix = "halo";
    kernel_launch(a, target, 1, out);
    return kernel_sizes(a, varies(h), out);
}
