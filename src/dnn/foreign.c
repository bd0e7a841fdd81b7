/* The solvers of other libraries, and their matrix products: one call computes a block of rows and columns. These are
 * for products without windows; foreign_conv.c has convolutions.
 *
 *   task: (outer, block of rows, block of columns) */
#include "dnn/foreign.h"

#include <string.h>

#include "dnn/matrices.h"

#define SAY(...) arena_printf(g->p.arena, __VA_ARGS__)

struct foreign {
    struct problem p;
    const struct plugin *by;
    int lanes;
    struct matrices x;
    /* rows, cols: of a task; pitch: elements between rows of its sums */
    int64_t rows, cols, mblocks, nblocks, pitch;
};

static const struct plugin *find_plugin(const struct solver_context *sc, const char *name)
{
    for (int i = 0; sc->plugins && i < sc->plugins->n; i++)
        if (!strcmp(sc->plugins->at[i].name, name)) return &sc->plugins->at[i];
    return NULL;
}

bool foreign_is_f32(const struct problem *p)
{
    const struct loops_tensor *t = p->loops->tensors.at;
    return p->dtype == SOL_F32 && t[p->a.tensor].dtype == SOL_F32 && t[p->b.tensor].dtype == SOL_F32;
}

static bool find_as(const struct problem *p, struct foreign *g, const char **why)
{
    *why = "not float32";
    if (!foreign_is_f32(p) || !matrices_find(p, &g->x, why)) return false;
    *why = "too small, or too large for a library";
    const int64_t most = INT64_C(1) << 30;
    return g->x.m.size >= 4 && g->x.n.size >= 4 && g->x.k.size >= 8 && g->x.a.stride < most && g->x.b.stride < most;
}

static bool find(const struct solver_context *sc, const struct cluster *c, const struct plugin *by, struct foreign *g,
                 const char **why)
{
    *g = (struct foreign){.by = by};
    *why = "it has no matrix product";
    if (!by->gemm) return false;
    g->lanes = target_lanes(sc->target, 4);
    for (int swap = 0; swap < 2; swap++)
        if (problem_make(sc->arena, c, swap, &g->p, why) && find_as(&g->p, g, why)) return true;
    return false;
}

/* Cuts into blocks of `rows` rows and `cols` columns; 0 means all. */
static void cut(struct foreign *g, int rows, int cols)
{
    g->rows = rows && rows < g->x.m.size ? rows : g->x.m.size;
    g->cols = cols && cols < g->x.n.size ? cols : g->x.n.size;
    g->mblocks = ceil_div(g->x.m.size, g->rows);
    g->nblocks = ceil_div(g->x.n.size, g->cols);
    g->pitch = ceil_div(g->cols, g->lanes) * g->lanes;
}

static int64_t scratch_bytes(const struct foreign *g)
{
    return ceil_div(g->rows * g->pitch * 4, 64) * 64;
}

static void gemm_variants(const struct solver_context *sc, const struct cluster *c, const struct plugin *by,
                          struct variant_list *list)
{
    static const int rows[] = {0, 384, 96, 32}, cols[] = {0, 256};
    struct foreign g;
    const char *why;
    if (!find(sc, c, by, &g, &why)) return;
    for (int r = 0; r < COUNT_OF(rows); r++)
        for (int s = 0; s < COUNT_OF(cols); s++) {
            struct variant v = {.p = {rows[r], cols[s]}};
            if ((rows[r] && rows[r] >= g.x.m.size) || (cols[s] && cols[s] >= g.x.n.size)) continue;
            cut(&g, rows[r], cols[s]);
            if (scratch_bytes(&g) > sc->target->l2 * 3 / 4) continue;
            v.cost = cost_foreign(&g.p, sc->target, g.x.nouter * g.mblocks * g.nblocks);
            v.text = arena_printf(sc->arena, "%lldx%lld", (long long)g.rows, (long long)g.cols);
            variants_add(list, &v);
        }
}

/* -- the kernel */

const char *foreign_place(void *user, struct text *out, int view)
{
    (void)user, (void)out, (void)view;
    return "0";
}

static const char *ivar_value(void *user, int ivar)
{
    const struct foreign *g = user;
    for (int i = 0; i < g->x.outer.n; i++)
        if (g->x.outer.at[i].ivar[0] == ivar) return SAY("g%d", i);
    return g->x.m.ivar[0] == ivar ? "m" : "n";
}

/* The address of a view at row `m` and column `n`, both C text, from `base` on. */
static const char *view_from(const struct foreign *g, const char *base, const struct view *v, const char *m,
                             const char *n)
{
    struct offset o = {.arena = g->p.arena, .constant = v->c};
    for (int i = 0; i < g->x.outer.n; i++) offset_add(&o, SAY("g%d", i), axis_stride(&g->x.outer.at[i], v->s));
    offset_add(&o, m, axis_stride(&g->x.m, v->s));
    offset_add(&o, n, axis_stride(&g->x.n, v->s));
    return offset_from(&o, base);
}

void foreign_begin(const struct plugin *by, struct text *out)
{
    text_put(out, "typedef float @real;\n"
                  "#include <dlfcn.h>\n"
                  "/* ");
    text_string(out, by->library);
    text_put(out, " */\n"
                  "@FUNCTION void *@plugin_function(const char *name)\n{\n"
                  "    void *plugin = dlopen(");
    text_literal(out, by->path);
    text_put(out, ", RTLD_NOW | RTLD_LOCAL);\n"
                  "    return plugin ? dlsym(plugin, name) : 0;\n"
                  "}\n");
}

static void print_find(struct text *out)
{
    text_put(
        out,
        "typedef void (*@gemm_fn)(int64_t m, int64_t n, int64_t k, const @real *a, int64_t lda, int a_across, const "
        "@real *b,\n    int64_t ldb, int b_across, @real *c, int64_t ldc);\n"
        "@FUNCTION @gemm_fn @find_gemm(void)\n{\n"
        "    static @gemm_fn known;\n"
        "    @gemm_fn gemm = __atomic_load_n(&known, __ATOMIC_RELAXED);\n"
        "    if (!gemm) {\n"
        "        gemm = (@gemm_fn)@plugin_function(\"sol_plugin_gemm\");\n"
        "        __atomic_store_n(&known, gemm, __ATOMIC_RELAXED);\n"
        "    }\n"
        "    return gemm;\n"
        "}\n\n");
}

void foreign_epilogue(struct epilogue *e, struct text *out, const char *place, const char *at, int64_t all,
                      const char *(*where)(const void *user, const char *base, const struct view *v))
{
    const struct problem *p = e->p;
    const int last = (int)(all % e->lanes);
    struct text body = text_new(p->arena); /* it tells which views it uses */
    body.indent = out->indent;
    text_line(&body, "const %s sum = *(const %s *)(%s);", epilogue_type(e), epilogue_type(e), place);
    if (last) text_open(&body, "if (%s + %d <= %lld) {", at, e->lanes, (long long)all);
    epilogue_print(e, &body, "sum", e->lanes);
    if (last) {
        text_close(&body, "} else {");
        body.indent++;
        epilogue_print(e, &body, "sum", last);
        text_close(&body, "}");
    }
    for (int i = 0; i < p->nview; i++) {
        if (!e->used[i]) continue;
        const char *type = dtype_def(p->loops->tensors.at[p->view[i].tensor].dtype)->c_name;
        const char *qualifier = p->view[i].node ? "const " : "";
        const char *base =
            arena_printf(p->arena, "(%s%s *)p[%d]", qualifier, type, problem_operand(p, p->view[i].tensor));
        text_line(out, "%s%s *const e%d = %s;", qualifier, type, i, where(e->user, base, &p->view[i]));
    }
    text_add(out, body.at, body.n);
}

static const char *view_here(const void *user, const char *base, const struct view *v)
{
    return view_from(user, base, v, "m", "n");
}

/* Prints how the sums of a task go to memory. */
static void print_epilogue(struct foreign *g, const struct target *t, struct text *out)
{
    struct problem *p = &g->p;
    struct epilogue e = {.p = p, .target = t, .lanes = g->lanes, .place = foreign_place, .ivar = ivar_value, .user = g};
    text_open(out, "for (int64_t m = row0; m < row0 + rows; m++)");
    /* blocks consist of whole vectors */
    text_open(out, "for (int64_t n = col0; n < col0 + cols; n += %d) {", g->lanes);
    foreign_epilogue(&e, out, SAY("sums + (m - row0) * %lld + (n - col0)", (long long)g->pitch), "n", g->x.n.size,
                     view_here);
    text_close(out, "}");
    out->indent--;
}

static void print_task(struct foreign *g, const struct target *t, struct text *out)
{
    const struct problem *p = &g->p;
    int64_t below = g->x.nouter;
    struct arena *a = p->arena;
    text_line(out, "const int64_t col0 = %s, row0 = %s;", text_times(a, text_modulo(a, "t", g->nblocks), g->cols),
              text_times(a, text_modulo(a, text_over(a, "t", g->nblocks), g->mblocks), g->rows));
    text_line(out, "const int64_t cols = %lld - col0 < %lld ? %lld - col0 : %lld;", (long long)g->x.n.size,
              (long long)g->cols, (long long)g->x.n.size, (long long)g->cols);
    text_line(out, "const int64_t rows = %lld - row0 < %lld ? %lld - row0 : %lld;", (long long)g->x.m.size,
              (long long)g->rows, (long long)g->x.m.size, (long long)g->rows);
    for (int i = 0; i < g->x.outer.n; i++) {
        below /= g->x.outer.at[i].size;
        const char *at = text_over(a, "t", below * g->mblocks * g->nblocks);
        text_line(out, "const int64_t g%d = %s;", i, text_modulo(a, at, g->x.outer.at[i].size));
    }
    text_line(out, "gemm(rows, cols, %lld,", (long long)g->x.k.size);
    const char *x = SAY("(const @real *)p[%d]", problem_operand(p, p->a.tensor)),
               *y = SAY("(const @real *)p[%d]", problem_operand(p, p->b.tensor));
    text_line(out, "    %s, %lld, %d,", view_from(g, x, &p->a.view, "row0", "col0"), (long long)g->x.a.stride,
              g->x.a.across);
    text_line(out, "    %s, %lld, %d, sums, %lld);", view_from(g, y, &p->b.view, "row0", "col0"),
              (long long)g->x.b.stride, g->x.b.across, (long long)g->pitch);
    print_epilogue(g, t, out);
}

static sol_status gemm_emit(const struct solver_context *sc, const struct cluster *c, const struct plugin *by,
                            const struct variant *v, struct kernel *out)
{
    struct foreign g;
    const char *why = "";
    if (!find(sc, c, by, &g, &why)) return ctx_fail(arena_ctx(sc->arena), SOL_ERR_UNSUPPORTED, "%s: %s", by->name, why);
    cut(&g, v->p[0], v->p[1]);
    struct text text = solver_text(sc);
    foreign_begin(by, &text);
    print_find(&text);
    kernel_open(&text, 0);
    text_line(&text, "@real *const sums = (@real *)((char *)f->scratch + worker * f->scratch_bytes);");
    text_line(&text, "const @gemm_fn gemm = @find_gemm();");
    text_line(&text, "if (!gemm) @sol_error(f, SOL_KERNEL_PLUGIN);");
    text_open(&text, "for (int64_t t = task0; gemm && t < task1; t++) {");
    print_task(&g, sc->target, &text);
    text_close(&text, "}");
    kernel_close(&text);
    out->source = text.at;
    out->nstep = 1;
    out->step[0].tasks = g.x.nouter * g.mblocks * g.nblocks;
    out->scratch_bytes = scratch_bytes(&g);
    return SOL_OK;
}

/* -- a solver for each library */

static bool applicable(const struct solver_context *sc, const struct cluster *c, const char *name, const char **out_why)
{
    const struct plugin *by = find_plugin(sc, name);
    struct foreign g;
    *out_why = "there is no such plug-in";
    return by && (find(sc, c, by, &g, out_why) || foreign_conv_applicable(sc, c, by, out_why));
}

static int variants_of(const struct solver_context *sc, const struct cluster *c, const char *name, struct variant *out)
{
    const struct plugin *by = find_plugin(sc, name);
    struct variant_list list = {.at = out};
    if (!by) return 0;
    gemm_variants(sc, c, by, &list);
    foreign_conv_variants(sc, c, by, &list);
    return list.n;
}

static sol_status emit_by(const struct solver_context *sc, const struct cluster *c, const char *name,
                          const struct variant *v, struct kernel *out)
{
    const struct plugin *by = find_plugin(sc, name);
    if (!by) return ctx_fail(arena_ctx(sc->arena), SOL_ERR_UNSUPPORTED, "%s: there is no such plug-in", name);
    TRY((v->p[2] == FOREIGN_CONV ? foreign_conv_emit : gemm_emit)(sc, c, by, v, out));
    return SOL_OK;
}

#define X(library)                                                                                                   \
    static bool library##_applicable(const struct solver_context *sc, const struct cluster *c, const char **out_why) \
    {                                                                                                                \
        return applicable(sc, c, #library, out_why);                                                                 \
    }                                                                                                                \
    static int library##_variants(const struct solver_context *sc, const struct cluster *c, struct variant *out)     \
    {                                                                                                                \
        return variants_of(sc, c, #library, out);                                                                    \
    }                                                                                                                \
    static sol_status library##_emit(const struct solver_context *sc, const struct cluster *c,                       \
                                     const struct variant *v, struct kernel *out)                                    \
    {                                                                                                                \
        return emit_by(sc, c, #library, v, out);                                                                     \
    }                                                                                                                \
    const struct solver dnn_##library = {.name = #library,                                                           \
                                         .blocks = true,                                                             \
                                         .foreign = true,                                                            \
                                         .applicable = library##_applicable,                                         \
                                         .variants = library##_variants,                                             \
                                         .emit = library##_emit};
#include "dnn/plugins.def"
#undef X
