/* Sources: inserts names with hashes into kernels and modules.
 *
 * Each kernel has its own key, even if several are compiled as one source (batch.c). */
#include "build/inside.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The headers that rows of print/flavour.def name. Their texts are in this library, because where it is installed there
 * is no include folder. */
extern const struct {
    const char *name, *text;
} build_texts[];
static const struct {
    const char *name;
    const char *file;      /* its text among build_texts */
    const char *extension; /* of files that include it */
} headers[] = {{"sol/module.h", "module.h", "c"},
               {"sol/opencl.h", "opencl.cl", "cl"},
               {"sol/cuda.h", "cuda.cu", "cu"},
               {"sol/cuda_clang.h", "cuda_clang.cu", "cu"}};

static const char *text_of(const char *file)
{
    int i = 0;
    while (strcmp(build_texts[i].name, file)) i++;
    return build_texts[i].text;
}

const char *source_header(const char *name)
{
    for (int i = 0; name && i < COUNT_OF(headers); i++)
        if (!strcmp(headers[i].name, name)) return text_of(headers[i].file);
    assert(!name); /* a flavour's header has a row above */
    return text_of("module.h");
}

const char *source_extension(const char *header)
{
    int i = 0;
    while (header && i < COUNT_OF(headers) - 1 && strcmp(headers[i].name, header)) i++;
    return headers[i].extension;
}

void source_symbol(const char *id, const struct source_text *kernel, char out[SOURCE_SYMBOL])
{
    char hex[33];
    struct digest d;
    digest_init(&d, NULL);
    digest_text(&d, id);
    digest_text(&d, source_header(kernel->header));
    for (int i = 0; i < kernel->nhelper; i++) digest_text(&d, kernel->helper[i]);
    digest_text(&d, kernel->body);
    digest_hex(&d, hex);
    snprintf(out, SOURCE_SYMBOL, "sol_k_%s", hex);
}

/* -- the module's tables */

struct tables {
    const struct build_request *r;
    const char *const *symbol;
    const char *wrong; /* a reference to something that is not there; NULL: none */
};

/* Writes the symbol of `KERNEL<k>_<i>` or `DATA<d>`. */
static void put_reference(void *user, struct text *out, const char *name)
{
    struct tables *m = user;
    const bool kernel = !strncmp(name, "KERNEL", 6);
    const char *number = name + (kernel ? 6 : 4);
    char *end = NULL;
    const long i = strtol(number, &end, 10);
    if (end == number || i < 0 || i >= (kernel ? m->r->nkernel : m->r->ndata))
        m->wrong = arena_strdup(out->arena, name);
    else if (kernel)
        text_put(out, "%s%s", m->symbol[i], end);
    else
        text_put(out, "sol_d_%ld", i);
}

/* Declares every function sol_k_..._<step> that `text` names, once. */
static void declare_kernels(struct arena *a, struct text *out, const char *text)
{
    struct map *done = map_create(a);
    for (const char *at = text; (at = strstr(at, "sol_k_"));) {
        const size_t n = strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789_");
        const char *name = arena_printf(a, "%.*s", (int)n, at);
        at += n;
        if (map_get(done, name)) continue;
        map_set(done, name, (void *)(uintptr_t)name);
        text_line(out, "HIDDEN sol_kernel %s;", name);
    }
}

sol_status source_tables(struct sol_ctx *ctx, struct arena *a, const struct build_request *r, const char *const *symbol,
                         const char **out_text)
{
    struct text body = text_new(a);
    struct tables m = {.r = r, .symbol = symbol};
    text_fill(&body, r->module, put_reference, &m);
    if (m.wrong)
        return ctx_fail(ctx, SOL_ERR_INTERNAL,
                        "build: the module of '%s' refers to %.24s, but has %d kernels and %d data", r->name, m.wrong,
                        r->nkernel, r->ndata);
    *out_text = body.at;
    return SOL_OK;
}

sol_status source_module(struct sol_ctx *ctx, struct arena *a, const struct build_request *r, const char *const *symbol,
                         const char **out_text)
{
    const char *body;
    struct text t = text_new(a);
    TRY(source_tables(ctx, a, r, symbol, &body));
    text_put(&t, "%s", source_header(NULL));
    text_line(&t, "#define HIDDEN __attribute__((visibility(\"hidden\"))) extern");
    text_line(&t, "__attribute__((visibility(\"default\"))) extern const struct sol_module sol_module;");
    declare_kernels(a, &t, body);
    for (int i = 0; i < r->ndata; i++) {
        text_line(&t, "HIDDEN const unsigned char sol_d_%d[];", i);
        text_line(&t,
                  "__asm__(\".section .rodata\\n.balign 64\\n.globl sol_d_%d\\n.hidden sol_d_%d\\nsol_d_%d:\\n"
                  ".incbin \\\"d%d.bin\\\"\\n.byte 0\\n.previous\\n\");",
                  i, i, i, i);
    }
    text_put(&t, "%s", body);
    *out_text = t.at;
    return SOL_OK;
}
