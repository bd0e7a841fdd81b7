/* Sources: inserts names with hashes into kernels and modules.
 *
 * Each kernel has its own key, even if several are compiled as one source (batch.c). */
#include "build/inside.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The text of sol/module.h. The assembler includes it in this object, because an installed library has no include
 * folder. */
__asm__(".section .rodata\n"
        ".globl sol_module_header\n"
        ".hidden sol_module_header\n"
        "sol_module_header:\n"
        ".incbin \"sol/module.h\"\n"
        ".byte 0\n"
        ".previous\n");
extern const char sol_module_header[] __attribute__((visibility("hidden")));

const char *source_header(void)
{
    return sol_module_header;
}

void source_symbol(const struct compiler *cc, const char *kernel, char out[48])
{
    char hex[33];
    struct digest d;
    digest_init(&d, NULL);
    digest_text(&d, cc->id);
    digest_text(&d, source_header());
    digest_text(&d, kernel);
    digest_hex(&d, hex);
    snprintf(out, 48, "sol_k_%s", hex);
}

/* Scans C text; strings end with their line. */
struct scan {
    const char *start, *at;
    bool string;
};

/* Advances to the next character; false at the end. The first call returns the first character. */
static bool scan_next(struct scan *s)
{
    s->at = s->at ? s->at + 1 : s->start;
    const char c = *s->at, before = s->at > s->start ? s->at[-1] : 0;
    const bool escaped = s->string && before == '\\' && s->at[-2] != '\\';
    if (c == '\n') s->string = false;
    if (c == '"' && before != '\'' && !escaped) s->string = !s->string;
    return c != 0;
}

/* Does a name that starts with `word` begin here, outside of strings and comments? */
static bool scan_is(const struct scan *s, const char *word)
{
    const char before = s->at > s->start ? s->at[-1] : 0;
    return !s->string && !isalnum((unsigned char)before) && before != '_' && !strncmp(s->at, word, strlen(word));
}

const char *source_kernel(struct arena *a, const char *kernel, const char *symbol)
{
    struct text t = text_new(a);
    struct scan s = {.start = kernel};
    const char *from = kernel;
    while (scan_next(&s)) {
        if (!scan_is(&s, "KERNEL_")) continue;
        text_add(&t, from, (size_t)(s.at - from));
        text_add(&t, symbol, strlen(symbol));
        from = s.at + strlen("KERNEL");
    }
    text_add(&t, from, (size_t)(s.at - from));
    return t.at;
}

/* Replaces `KERNEL<k>_` or `DATA<d>` in the module with its symbol. */
static sol_status put_reference(struct sol_ctx *ctx, const struct build_request *r, const char *const *symbol,
                                struct text *t, const struct scan *s, const char **from)
{
    const bool kernel = *s->at == 'K';
    const char *number = s->at + strlen(kernel ? "KERNEL" : "DATA");
    char *end;
    if (!isdigit((unsigned char)*number)) return SOL_OK;
    const long i = strtol(number, &end, 10);
    if (kernel && *end != '_') return SOL_OK;
    if (i >= (kernel ? r->nkernel : r->ndata))
        return ctx_fail(ctx, SOL_ERR_INTERNAL, "build: the module of '%s' refers to %.24s, but has %d", r->name, s->at,
                        kernel ? r->nkernel : r->ndata);
    text_add(t, *from, (size_t)(s->at - *from));
    if (kernel)
        text_put(t, "%s", symbol[i]);
    else
        text_put(t, "sol_d_%ld", i);
    *from = end;
    return SOL_OK;
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
    struct scan s = {.start = r->module};
    const char *from = r->module;
    while (scan_next(&s))
        if (scan_is(&s, "KERNEL") || scan_is(&s, "DATA")) TRY(put_reference(ctx, r, symbol, &body, &s, &from));
    text_add(&body, from, (size_t)(s.at - from));
    *out_text = body.at;
    return SOL_OK;
}

sol_status source_module(struct sol_ctx *ctx, struct arena *a, const struct build_request *r, const char *const *symbol,
                         const char **out_text)
{
    const char *body;
    struct text t = text_new(a);
    TRY(source_tables(ctx, a, r, symbol, &body));
    text_put(&t, "%s", source_header());
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
