#include "schedule/quantities.h"

#include "base/size.h"
#include "sol/module.h"

struct quantities quantities_new(struct arena *a, int ndim, int first)
{
    return (struct quantities){.arena = a, .ndim = ndim, .first = first, .known = map_create(a)};
}

const char *quantity_text(struct quantities *q, int64_t size)
{
    struct arena *a = q->arena;
    struct size_dim d;
    if (!size_varies(size))
        return size < SOL_SIZE ? arena_printf(a, "%lld", (long long)size)
                               : arena_printf(a, "SOL_SIZE + %lld", (long long)(size - SOL_SIZE));
    if (size_is_dim(size, &d)) return arena_printf(a, "SOL_SIZE + %d", d.index);
    intptr_t i = (intptr_t)map_get_int(q->known, (uint64_t)size);
    if (!i) {
        PUSH(a, q->forms, size);
        i = q->forms.n;
        map_set_int(q->known, (uint64_t)size, (void *)i);
    }
    return arena_printf(a, "SOL_SIZE + %d", q->first + (int)i - 1);
}

void quantities_put(const struct quantities *q, struct text *t, const char *name)
{
    const int end = q->first + q->forms.n;
    text_line(t, "static int32_t %s(int64_t *size)\n{", name);
    for (int i = 0; i < q->ndim; i++) {
        text_line(t, "    const int64_t s%d = size[%d];", i, i);
        text_line(t, "    const double d%d = (double)s%d;", i, i);
        text_line(t, "    (void)s%d, (void)d%d;", i, i);
    }
    for (int i = 0; i < q->forms.n; i++)
        text_line(t, "    if (%s > 0x1p62) return 0;", size_magnitude_c(q->arena, q->forms.at[i], "d"));
    struct size_variables variables = {q->arena, t, map_create(q->arena), 0};
    for (int i = 0; i < q->forms.n; i++) {
        const char *form = size_c_with(q->forms.at[i], "s", &variables);
        text_line(t, "    size[%d] = %s; /* %s */", q->first + i, form, size_text(q->arena, q->forms.at[i]));
    }
    text_line(t, "    for (int i = %d; i < %d; i++)", q->first, end);
    text_line(t, "        if (size[i] > INT64_C(%lld)) return 0;", (long long)SIZE_POISON);
    text_line(t, "    return 1;\n}");
}
