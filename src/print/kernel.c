/* Kernels become text. A solver's kernel is a template in which names of file scope are marked: "@name" is a shared
 * helper, if the table of helpers has it, "@KERNEL_<i>" the function of step i, "@FUNCTION" and others the words of a
 * flavour, and otherwise it is a name of the kernel's own. So one pass finds the helpers that a kernel uses, writes its
 * declarations in the words of the device's flavour and makes its names unique; nothing here reads C.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "print/helpers.h"

static const char step_prefix[] = "KERNEL_", launch_prefix[] = "LAUNCH_", sizes_mark[] = "@SIZES\n";

/* The number of the step, as text, if this is the name of a step's function; or NULL. */
static const char *step_of(const char *name)
{
    const size_t n = sizeof step_prefix - 1;
    return strncmp(name, step_prefix, n) || !isdigit((unsigned char)name[n]) ? NULL : name + n;
}

void kernel_open(struct text *out, int step)
{
    text_put(out, "@%s%d\n%s", step_prefix, step, sizes_mark);
    out->indent++;
}

void kernel_close(struct text *out)
{
    text_close(out, "}");
}

void kernel_open_sizes(struct text *out)
{
    text_put(out, "%s", sizes_mark);
}

/* Up to the next mark: declares the dimensions that are used there, and writes forms in place of their names. */
static bool put_sized(struct text *out, const char *from, size_t n, bool function, int64_t *out_bad)
{
    struct text made = text_new(out->arena);
    uint32_t dims;
    const bool good = size_fill(&made, arena_printf(out->arena, "%.*s", (int)n, from), "s", &dims, out_bad);
    for (int i = 0; i < SIZE_MOST_DIMS && function; i++)
        if (dims >> i & 1) text_put(out, "    const int64_t s%d = f->sizes[%d];\n", i, i);
    text_add(out, made.at, made.n);
    return good;
}

sol_status kernel_sizes(struct arena *a, bool vary, struct kernel *k)
{
    struct text out = text_new(a);
    bool function = false;
    int64_t bad = 0;
    for (const char *from = k->source;; function = true) {
        const char *end = strstr(from, sizes_mark);
        const size_t n = end ? (size_t)(end - from) : strlen(from);
        if (!vary)
            text_add(&out, from, n);
        else if (!put_sized(&out, from, n, function, &bad))
            return ctx_fail(arena_ctx(a), SOL_ERR_INTERNAL, "%s %s: %lld results from arithmetic on a size that varies",
                            k->solver, k->variant, (long long)bad);
        if (!end) break;
        from = end + sizeof sizes_mark - 1;
    }
    k->source = out.at;
    return SOL_OK;
}

struct text solver_text(const struct solver_context *sc)
{
    enum { ROOM = 256 << 10 }; /* of addresses, so that the text grows without being copied */
    struct text t = text_new(sc->scratch ? sc->scratch : sc->arena);
    if (!sc->scratch) return t;
    t.room = ROOM;
    t.at = arena_alloc(t.arena, t.room);
    return t;
}

struct printing {
    const struct helpers *h;
    bool *used;          /* by helper */
    int number;          /* of a kernel within another */
    int operands, items; /* of its mark @LAUNCH */
};

void kernel_launch(struct arena *a, const struct target *t, int operands, struct kernel *k)
{
    if (flavour_of(t)->parameter)
        k->source = arena_printf(a, "@%s%d_%d\n%s", launch_prefix, operands, MAX(k->items, 1), k->source);
}

static bool is_launch(const char *name, struct printing *p)
{
    const size_t n = sizeof launch_prefix - 1;
    return !strncmp(name, launch_prefix, n) && sscanf(name + n, "%d_%d", &p->operands, &p->items) == 2;
}

/* The head of a step's function. */
static void put_head(struct text *out, const struct printing *p, const char *form, const char *name)
{
    struct text parameters = text_new(out->arena);
    for (int i = 0; i < p->operands; i++) {
        const struct token number = {'I', arena_printf(out->arena, "%d", i)};
        text_put(&parameters, "%s", form_fill(out->arena, p->h->flavour->parameter, 1, &number));
    }
    const struct token tokens[] = {
        {'N', name}, {'P', parameters.n ? parameters.at : ""}, {'L', arena_printf(out->arena, "%d", p->items)}};
    text_put(out, "%s", form_fill(out->arena, form, COUNT_OF(tokens), tokens));
}

static void fill_kernel(void *user, struct text *out, const char *name)
{
    struct printing *p = user;
    const int helper = helpers_find(p->h, name);
    const char *word = flavour_word(p->h->flavour, name);
    if (is_launch(name, p)) return;
    if (word) {
        text_put(out, "%s", word);
    } else if (helper >= 0) {
        p->used[helper] = true;
        text_put(out, "%s", name);
    } else if (step_of(name)) {
        put_head(out, p, p->h->flavour->entry, arena_printf(out->arena, "@%s", name));
    } else {
        text_put(out, "@%s", name);
    }
}

struct source_text kernel_text(struct arena *a, const struct target *t, const char *source)
{
    const struct helpers *h = t->helpers ? t->helpers : helpers_make(a, t);
    struct printing p = {.h = h, .used = NEW_ARRAY(a, bool, h->at.n)};
    struct source_text s = {.header = h->flavour->header};
    struct text body = text_new(a);
    text_fill(&body, source, fill_kernel, &p);
    for (int i = h->at.n - 1; i >= 0; i--) {
        for (int k = 0; p.used[i] && k < h->at.at[i].uses.n; k++) p.used[h->at.at[i].uses.at[k]] = true;
        s.nhelper += p.used[i];
    }
    const char **helper = NEW_ARRAY(a, const char *, s.nhelper + 1);
    for (int i = 0, n = 0; i < h->at.n; i++)
        if (p.used[i]) helper[n++] = h->at.at[i].text;
    s.helper = helper;
    s.body = body.at;
    return s;
}

const char *kernel_source(struct arena *a, const struct source_text *s, const char *symbol)
{
    struct text t = text_new(a);
    source_helpers(&t, map_create(a), s);
    source_body(&t, s, symbol, "");
    return t.at;
}

/* -- kernels within kernels */

const char *kernel_member_step(struct arena *a, int number, int step)
{
    return arena_printf(a, "@stage%d_%d", number, step);
}

static void fill_member(void *user, struct text *out, const char *name)
{
    const struct printing *p = user;
    const char *step = step_of(name);
    if (step)
        put_head(out, p, p->h->flavour->inner, arena_printf(out->arena, "@stage%d_%s", p->number, step));
    else
        text_put(out, flavour_word(p->h->flavour, name) || helpers_find(p->h, name) >= 0 ? "@%s" : "@%s_s%d", name,
                 p->number);
}

void kernel_member(struct text *out, const struct target *t, int number, const char *source)
{
    const struct helpers *h = t->helpers ? t->helpers : helpers_make(out->arena, t);
    struct printing p = {.h = h, .number = number};
    text_fill(out, source, fill_member, &p);
}
