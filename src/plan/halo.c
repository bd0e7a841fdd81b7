/* The kernel that zeroes the halo of a tensor's memory, row by row of its outermost dimension that has one. */
#include "plan/plan.h"

static int64_t padded(const struct allocation *s, int d)
{
    return s->memory.halo_low[d] + s->t->dim[d].size + s->memory.halo_high[d];
}

/* Zeroes the elements outside, in the dimensions from place i of the order on. `base` is the C text of an element
 * offset. */
static void zero_from(struct text *out, const struct allocation *s, int i, const char *base, int bytes)
{
    int inner = i;
    while (inner < s->t->ndim && !s->memory.halo_low[s->order[inner]] && !s->memory.halo_high[s->order[inner]]) inner++;
    if (inner == s->t->ndim) return;
    struct text at = text_new(out->arena);
    text_put(&at, "%s", base);
    int opened = inner - i;
    for (; i < inner; i++) {
        int d = s->order[i];
        text_open(out, "for (int64_t i%d = 0; i%d < %lld; ++i%d) {", d, d, (long long)s->t->dim[d].size, d);
        text_put(&at, " + i%d * %lld", d, (long long)s->memory.stride[d]);
    }
    int d = s->order[inner], low = s->memory.halo_low[d], high = s->memory.halo_high[d];
    long long stride = s->memory.stride[d], size = s->t->dim[d].size;
    if (low) text_line(out, "__builtin_memset(y + (%s) * %d, 0, %lld);", at.at, bytes, low * stride * bytes);
    struct text deeper = text_new(out->arena);
    zero_from(&deeper, s, inner + 1, "0", bytes);
    if (deeper.n) {
        text_open(out, "for (int64_t i%d = 0; i%d < %lld; ++i%d) {", d, d, size, d);
        zero_from(out, s, inner + 1, arena_printf(out->arena, "%s + (i%d + %d) * %lld", at.at, d, low, stride), bytes);
        text_close(out, "}");
    }
    if (high)
        text_line(out, "__builtin_memset(y + (%s + %lld) * %d, 0, %lld);", at.at, (low + size) * stride, bytes,
                  high * stride * bytes);
    while (opened-- > 0) text_close(out, "}");
}

sol_status plan_halo_kernel(struct plan *p, const struct allocation *s, struct kernel *out)
{
    struct text t = text_new(p->arena);
    int bytes = dtype_def(s->t->dtype)->bytes, outer = 0;
    while (!s->memory.halo_low[s->order[outer]] && !s->memory.halo_high[s->order[outer]]) outer++;
    int d = s->order[outer], low = s->memory.halo_low[d];
    long long rows = padded(s, d), stride = s->memory.stride[d], images = 1;
    for (int i = 0; i < outer; i++) images *= s->t->dim[s->order[i]].size;
    text_line(&t, "/* zeroes the halo, one row of dimension %d a task */", d);
    kernel_open(&t, 0);
    text_line(&t, "(void)f, (void)worker;");
    text_line(&t, "char *restrict y = p[0] - %lld;", (long long)s->origin * bytes);
    text_open(&t, "for (int64_t task = task0; task < task1; ++task) {");
    text_line(&t, "const int64_t row = task %% %lld, at = task * %lld;", rows, stride);
    text_open(&t, "if (row < %d || row >= %lld) {", low, low + (long long)s->t->dim[d].size);
    text_line(&t, "__builtin_memset(y + at * %d, 0, %lld);", bytes, stride * bytes);
    text_line(&t, "continue;");
    text_close(&t, "}");
    zero_from(&t, s, outer + 1, "at", bytes);
    text_close(&t, "}");
    kernel_close(&t);
    *out = (struct kernel){.source = t.at, .nstep = 1, .solver = "halo"};
    out->step[0].tasks = rows * images;
    out->step[0].suffix = "halo";
    return ctx_check(p->ctx);
}
