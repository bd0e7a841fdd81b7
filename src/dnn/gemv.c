/* Matrix times vector with the matrix in the framework's layout. Nothing is packed and every weight is read once, so
 * memory bandwidth limits the speed. A group is as many results as a vector has lanes.
 * - rows: the sum runs along contiguous memory. A group is as many dot products; a tree of shuffles then reduces the
 *   vectors of partial sums to one vector of results.
 * - columns: the results run along contiguous memory. A task adds multiples of the matrix's rows, a few at a time, to
 *   the sums of some groups, which stay in L1: it walks along the rows, so that it needs few pages at once. Where it
 *   has whole rows, those that are added together lie apart, and each walks through a part of the memory from its
 *   start to its end, which processors fetch ahead best. */
#include "dnn/epilogue.h"
#include "dnn/solvers.h"

#define SAY(...) arena_printf(g->p.arena, __VA_ARGS__)

#define ROWS 8          /* of the matrix that are added together, for columns, and twice as many with 32 registers */
#define MOST_GROUPS 256 /* of a task, for columns */

struct gemv {
    struct problem p;
    int lanes;
    bool columns;
    struct axes outer, k;   /* rows: the last of k has unit stride in a and b */
    struct axis n;          /* columns: it has unit stride in b */
    int64_t nouter, groups; /* groups of `lanes` results; sizes */
    int64_t each;           /* groups of a task, a number */
    bool apart;             /* columns: a task has whole rows, which lie one behind the other */
    int rows;               /* columns: that are added together */
    int64_t nrun;           /* runs of K, a number */
    const char *sum;        /* how names of sums begin: s0, s1, .. are dimensions where sizes vary */
};

static bool make_axes(struct gemv *g, const char **why)
{
    const struct problem *p = &g->p;
    const struct axes_rule sum = {.by = p->b.view.s, .n = 2, .strides = {p->a.view.s, p->b.view.s}};
    struct axes_rule rule = axes_rule_epilogue(p, p->valued);
    struct axes n;
    rule.strides[rule.n++] = p->b.view.s;
    *why = "too many axes";
    if (!axes_make(p, p->n, &rule, &n)) return false;
    g->n = n.at[n.n - 1];
    uint64_t rest = p->batch | p->n;
    for (int i = 0; i < g->n.n; i++) rest &= ~(UINT64_C(1) << g->n.ivar[i]);
    rule.strides[rule.n++] = p->a.view.s;
    if (!axes_make(p, rest, &rule, &g->outer)) return false;
    if (!axes_make(p, p->k, &sum, &g->k)) return false;
    *why = "no sum";
    if (!g->k.n) return false;
    const struct axis *run = &g->k.at[g->k.n - 1];
    g->nrun = 1;
    for (int i = 0; i < g->k.n - 1; i++) {
        const struct axis *x = &g->k.at[i];
        *why = "runs of the sum whose number or offsets vary";
        if (size_varies(x->size) || size_varies(axis_stride(x, p->a.view.s))) return false;
        if (size_varies(axis_stride(x, p->b.view.s))) return false;
        g->nrun *= x->size;
    }
    g->columns = axis_stride(run, p->a.view.s) != 1 || axis_stride(run, p->b.view.s) != 1;
    *why = "neither the summed axis nor that of the results is contiguous";
    return !g->columns || axis_stride(&g->n, p->b.view.s) == 1;
}

/* Columns: no more than there are results, for the last vector overlaps the one before it. */
static int lanes_of(const struct gemv *g, const struct target *t)
{
    int lanes = target_lanes(t, g->p.bytes);
    while (g->columns && size_about(g->n.size) < lanes) lanes /= 2;
    return lanes;
}

/* Two tasks for each of several cores, if there are enough groups. */
static int64_t groups_of_task(const struct gemv *g, const struct target *t)
{
    const int64_t n = size_about(g->groups), all = n * size_about(g->nouter), tasks = t->cores > 1 ? 2 * t->cores : 1;
    return g->columns ? MAX(1, MIN(MIN((all + tasks - 1) / tasks, n), MOST_GROUPS)) : 1;
}

static bool find(const struct solver_context *sc, const struct cluster *c, struct gemv *out, const char **why)
{
    for (int swap = 0; swap < 2; swap++) {
        if (!problem_make(sc->arena, c, swap, &out->p, why)) continue;
        *why = "not a vector";
        if (out->p.m || out->p.vector < 0) continue;
        *why = "an index is not affine or leaves its tensor";
        if (!out->p.a.affine || !out->p.b.affine || out->p.a.any_border || out->p.b.any_border) continue;
        if (!make_axes(out, why)) continue;
        out->lanes = lanes_of(out, sc->target);
        *why = "one result";
        if (out->lanes < 2) continue;
        out->nouter = axes_size(&out->outer);
        out->groups = size_ceil_div(out->n.size, out->lanes);
        out->each = groups_of_task(out, sc->target);
        const struct axis *run = &out->k.at[out->k.n - 1];
        out->apart = size_le(out->groups, out->each) && axis_stride(run, out->p.b.view.s) == out->n.size;
        out->rows = out->lanes * out->p.bytes == 64 && !out->apart ? 2 * ROWS : ROWS;
        out->sum = out->p.varies ? "sum" : "s";
        return true;
    }
    return false;
}

static bool applicable(const struct solver_context *sc, const struct cluster *c, const char **out_why)
{
    struct gemv g;
    return find(sc, c, &g, out_why);
}

static int64_t tasks(const struct gemv *g)
{
    return size_mul(g->nouter, size_ceil_div(g->groups, g->each));
}

/* The cycles of a vector of products, about. */
static double step_cycles(const struct gemv *g)
{
    const double len = (double)MAX(1, size_about(g->k.at[g->k.n - 1].size)), k = len * (double)g->nrun;
    const int64_t rest = (int64_t)len % g->rows, passes = (int64_t)len / g->rows + rest / ROWS + rest % ROWS;
    return 1 + 2 * (g->columns ? (double)passes / len : g->lanes / k);
}

static int variants(const struct solver_context *sc, const struct cluster *c, struct variant *out)
{
    struct gemv g;
    const char *why;
    if (!find(sc, c, &g, &why)) return 0;
    const bool was = size_costs(true); /* nothing of it depends on the point that it is made for */
    out[0] = (struct variant){.cost = cost_gemv(&g.p, sc->target, g.lanes, size_about(tasks(&g)), step_cycles(&g)),
                              .text = g.columns ? "columns" : "rows"};
    size_costs(was);
    return 1;
}

/* -- the dot products */

/* Prints the loads of `count` elements of x and of the rows of weights at k, and the products. EPILOGUE_PART: of
 * `valid` elements. */
static void step(const struct gemv *g, struct text *out, const char *type, int64_t count)
{
    const int n = g->lanes;
    if (count == n) {
        text_line(out, "const %s x = *(const %s *)(ai + k);", type, type);
        for (int i = 0; i < n; i++) text_line(out, "%s%d += x * *(const %s *)(bi + r%d + k);", g->sum, i, type, i);
        return;
    }
    text_line(out, "%s x = {0}, w = {0};", type);
    text_line(out, "%s", epilogue_copy(&g->p, "&x", "ai + k", (int)count, g->p.bytes));
    for (int i = 0; i < n; i++) {
        text_line(out, "%s", epilogue_copy(&g->p, "&w", SAY("bi + r%d + k", i), (int)count, g->p.bytes));
        text_line(out, "%s%d += x * w;", g->sum, i);
    }
}

static void add_up(const struct gemv *g, struct text *out)
{
    const int n = g->lanes;
    for (int h = n / 2; h >= 1; h /= 2)
        for (int i = 0; i < h; i++) {
            const char *s = g->sum;
            text_put(out, "%*s%s%d = __builtin_shufflevector(%s%d, %s%d", out->indent * 4, "", s, i, s, i, s, i + h);
            for (int l = 0; l < n; l++) text_put(out, ", %d", l & h ? n + l : l);
            text_put(out, ") + __builtin_shufflevector(%s%d, %s%d", s, i, s, i + h);
            for (int l = 0; l < n; l++) text_put(out, ", %d", l & h ? n + l - h : l + h);
            text_put(out, ");\n");
        }
}

static void table(const struct gemv *g, struct text *out, const char *name, const int64_t *stride)
{
    const int64_t nrun = g->nrun;
    text_put(out, "@TABLE int64_t %s[%lld] = {", name, (long long)nrun);
    for (int64_t r = 0; r < nrun; r++) {
        int64_t rest = r, at = 0;
        for (int i = g->k.n - 2; i >= 0; i--) {
            at += rest % g->k.at[i].size * axis_stride(&g->k.at[i], stride);
            rest /= g->k.at[i].size;
        }
        text_put(out, "%s%lld", r ? ", " : "", (long long)at);
    }
    text_put(out, "};\n");
}

/* Opens the loop over the runs of K, in which ai and bi are where one begins. */
static void open_runs(const struct gemv *g, struct text *out)
{
    const bool several = g->nrun > 1;
    text_open(out, "for (int64_t i = 0; i < %lld; i++) {", (long long)g->nrun);
    text_line(out, "const @real *const ai = a%s, *const bi = b%s;", several ? " + @run_a[i]" : "",
              several ? " + @run_b[i]" : "");
    text_line(out, "int64_t k = 0;");
}

static void dots_function(const struct gemv *g, struct text *out, const char *type)
{
    const struct problem *p = &g->p;
    const int64_t len = g->k.at[g->k.n - 1].size;
    text_put(out, "/* The products of a with `rows` rows of b; rows past the end repeat the last one. */\n");
    text_put(out, "@HELPER %s @dots(%sconst @real *a, const @real *b, int64_t rows)\n{\n", type, problem_frame(p));
    out->indent++;
    problem_open_sizes(p, out);
    for (int i = 0; i < g->lanes; i++)
        text_line(out, "const int64_t r%d = (rows > %d ? %d : rows - 1) * INT64_C(%lld);", i, i, i,
                  (long long)axis_stride(&g->n, p->b.view.s));
    for (int i = 0; i < g->lanes; i++) text_line(out, "%s %s%d = {0};", type, g->sum, i);
    open_runs(g, out);
    text_open(out, "for (; k + %d <= %lld; k += %d) {", g->lanes, (long long)len, g->lanes);
    step(g, out, type, g->lanes);
    text_close(out, "}");
    if (size_varies(len)) {
        text_open(out, "if (k < %lld) {", (long long)len);
        text_line(out, "const int64_t valid = %lld - k;", (long long)len);
        step(g, out, type, EPILOGUE_PART);
        text_close(out, "}");
    } else if (len % g->lanes) {
        text_open(out, "{");
        step(g, out, type, len % g->lanes);
        text_close(out, "}");
    }
    text_close(out, "}");
    add_up(g, out);
    text_line(out, "return %s0;", g->sum);
    out->indent--;
    text_put(out, "}\n\n");
}

/* -- the sums of multiples of rows */

/* The addition of `count` rows, in two chains of products. The last vector of columns overlaps the one before it; its
 * sums lie where it would begin without that. */
static void add_rows_function(const struct gemv *g, struct text *out, const char *type, int count)
{
    const int half = MAX(count / 2, 1);
    const char *a = count > 1 ? "const @real *a, int64_t sa" : "const @real *a", *b = count > 1 ? ", int64_t sb" : "";
    text_put(out, "@HELPER void @add%d(%s, const @real *b%s, @real *sum, int64_t columns)\n{\n", count, a, b);
    out->indent++;
    text_line(out, "const @real x0 = *a;");
    for (int r = 1; r < count; r++) text_line(out, "const @real x%d = a[%s];", r, r > 1 ? SAY("%d * sa", r) : "sa");
    text_open(out, "for (int64_t n = 0; n < columns; n += %d) {", g->lanes);
    text_line(out, "const @real *const w = b + (n + %d <= columns ? n : columns - %d);", g->lanes, g->lanes);
    for (int r = 0; r < count; r++) {
        const char *sum = r < half ? "s" : "rest", *row = r > 1 ? SAY("(w + %d * sb)", r) : r ? "(w + sb)" : "w";
        text_line(out, "%s%s %s x%d * *(const %s *)%s;", r % half ? "" : SAY("%s ", type), sum, r % half ? "+=" : "=",
                  r, type, row);
    }
    text_line(out, "*(%s *)(sum + n) += s%s;", type, count > half ? " + rest" : "");
    text_close(out, "}");
    out->indent--;
    text_put(out, "}\n\n");
}

/* Where sizes vary, there may be fewer results than lanes. */
static void few_columns(const struct gemv *g, struct text *out)
{
    text_open(out, "if (%lld < %d) {", (long long)g->n.size, g->lanes);
    open_runs(g, out);
    text_open(out, "for (; k < len; k++) {");
    text_line(out, "for (int64_t n = 0; n < columns; n++) sum[n] += ai[k * sa] * bi[k * sb + n];");
    text_close(out, "}");
    text_close(out, "}");
    text_line(out, "return;");
    text_close(out, "}");
}

static void sums_function(const struct gemv *g, struct text *out, const char *type)
{
    const struct problem *p = &g->p;
    const struct axis *run = &g->k.at[g->k.n - 1];
    for (int n = g->rows; n >= ROWS; n /= 2) add_rows_function(g, out, type, n);
    add_rows_function(g, out, type, 1);
    text_put(out,
             "/* The products of a with `columns` columns of b. There is room for a vector in front of the sums. */\n");
    text_put(out, "@HELPER void @sums(%sconst @real *a, const @real *b, @real *sum, int64_t columns)\n{\n",
             problem_frame(p));
    out->indent++;
    problem_open_sizes(p, out);
    text_line(out, "const int64_t len = %lld, sa = %lld, sb = %lld;", (long long)run->size,
              (long long)axis_stride(run, p->a.view.s), (long long)axis_stride(run, p->b.view.s));
    text_line(out, "for (int64_t n = 0; n < columns; n += %d) *(%s *)(sum + n) = (%s){0};", g->lanes, type, type);
    if (!size_le(g->lanes, g->n.size)) few_columns(g, out);
    open_runs(g, out);
    if (g->apart) {
        text_line(out, "const int64_t part = len / %d;", ROWS);
        text_line(out, "for (; k < part; k++) @add%d(ai + k * sa, part * sa, bi + k * sb, part * sb, sum, columns);",
                  ROWS);
        text_line(out, "k *= %d;", ROWS);
    }
    for (int n = g->rows; !g->apart && n >= ROWS; n /= 2)
        text_line(out, "for (; k + %d <= len; k += %d) @add%d(ai + k * sa, sa, bi + k * sb, sb, sum, columns);", n, n,
                  n);
    text_line(out, "for (; k < len; k++) @add1(ai + k * sa, bi + k * sb, sum, columns);");
    text_close(out, "}");
    text_line(out, "const int64_t last = (columns - 1) / %d * %d;", g->lanes, g->lanes);
    text_line(out, "const %s w = *(const %s *)(sum + last);", type, type);
    text_line(out, "*(%s *)(sum + columns - %d) = w;", type, g->lanes);
    out->indent--;
    text_put(out, "}\n\n");
}

/* -- the step */

static const char *place(void *user, struct text *out, int view)
{
    (void)user, (void)out, (void)view;
    return "0";
}

static const char *ivar_value(void *user, int ivar)
{
    const struct gemv *g = user;
    for (int i = 0; i < g->outer.n; i++)
        if (g->outer.at[i].ivar[0] == ivar) return SAY("g%d", i);
    return SAY("(n * %d)", g->lanes);
}

/* The address of a view in operand `tensor` that has elements of this type. */
static const char *operand_at(const struct gemv *g, const char *type, int tensor, const struct view *v)
{
    struct offset o = {.arena = g->p.arena, .constant = v->c};
    for (int i = 0; i < g->outer.n; i++) offset_add(&o, SAY("g%d", i), axis_stride(&g->outer.at[i], v->s));
    offset_add(&o, "n", size_mul(axis_stride(&g->n, v->s), g->lanes));
    return offset_from(&o, SAY("(%s *)p[%d]", type, problem_operand(&g->p, tensor)));
}

static const char *factor_at(const struct gemv *g, const struct operand *x)
{
    return operand_at(g, "const @real", x->tensor, &x->view);
}

/* Prints the results of group n, whose sums are the text `sum`. */
static void group_body(struct gemv *g, const struct target *t, const char *sum, struct text *out)
{
    struct problem *p = &g->p;
    struct epilogue e = {.p = p, .target = t, .lanes = g->lanes, .place = place, .ivar = ivar_value, .user = g};
    const bool varies = size_varies(g->n.size);
    const int last = varies ? EPILOGUE_PART : (int)(g->n.size - (g->groups - 1) * g->lanes);
    struct text body = text_new(p->arena); /* it tells which views it uses */
    body.indent = out->indent;
    text_line(&body, "const %s sum = %s;", epilogue_type(&e), sum);
    const bool odd = last < g->lanes;
    if (varies) {
        text_line(&body, "const int64_t valid = %lld - n * %d;", (long long)g->n.size, g->lanes);
        text_open(&body, "if (valid >= %d) {", g->lanes);
    } else if (odd) {
        text_open(&body, "if (n < %lld) {", (long long)g->groups - 1);
    }
    epilogue_print(&e, &body, "sum", g->lanes);
    if (odd) {
        text_close(&body, "} else {");
        body.indent++;
        epilogue_print(&e, &body, "sum", last);
        text_close(&body, "}");
    }
    for (int i = 0; i < p->nview; i++) {
        if (!e.used[i]) continue;
        const char *type = dtype_def(p->loops->tensors.at[p->view[i].tensor].dtype)->c_name;
        const char *qualifier = p->view[i].node ? "const " : "";
        text_line(out, "%s%s *const e%d = %s;", qualifier, type, i,
                  operand_at(g, SAY("%s%s", qualifier, type), p->view[i].tensor, &p->view[i]));
    }
    text_add(out, body.at, body.n);
}

static void task_body(struct gemv *g, const struct target *t, const char *type, struct text *out)
{
    struct problem *p = &g->p;
    const int64_t blocks = size_ceil_div(g->groups, g->each);
    text_line(out, "const int64_t %s = %s;", g->columns ? "block" : "n", text_modulo(p->arena, "t", blocks));
    for (int i = 0; i < g->outer.n; i++) {
        int64_t below = blocks;
        for (int k = i + 1; k < g->outer.n; k++) below = size_mul(below, g->outer.at[k].size);
        const char *at = text_over(p->arena, "t", below);
        text_line(out, "const int64_t g%d = %s;", i, text_modulo(p->arena, at, g->outer.at[i].size));
    }
    if (!g->columns) {
        group_body(g, t,
                   SAY("@dots(%s%s, %s, %lld - n * %d)", problem_frame_argument(p), factor_at(g, &p->a),
                       factor_at(g, &p->b), (long long)g->n.size, g->lanes),
                   out);
        return;
    }
    const long long columns = (long long)g->each * g->lanes;
    text_line(out, "const int64_t n0 = block%s, left = %lld - block * %lld;",
              g->each > 1 ? SAY(" * %lld", (long long)g->each) : "", (long long)g->n.size, columns);
    text_line(out, "const int64_t columns = left < %lld ? left : %lld;", columns, columns);
    text_line(out, "@real sum_of[%lld];", columns + g->lanes);
    text_open(out, "{");
    text_line(out, "const int64_t n = n0;");
    text_line(out, "@sums(%s%s, %s, sum_of + %d, columns);", problem_frame_argument(p), factor_at(g, &p->a),
              factor_at(g, &p->b), g->lanes);
    text_close(out, "}");
    text_open(out, "for (int64_t n = n0; (n - n0) * %d < columns; n++) {", g->lanes);
    group_body(g, t, SAY("*(const %s *)(sum_of + (n - n0 + 1) * %d)", type, g->lanes), out);
    text_close(out, "}");
}

static sol_status emit(const struct solver_context *sc, const struct cluster *c, const struct variant *v,
                       struct kernel *out)
{
    struct gemv g;
    const char *why = "";
    (void)v; /* there is only one */
    if (!find(sc, c, &g, &why)) return ctx_fail(arena_ctx(sc->arena), SOL_ERR_UNSUPPORTED, "gemv: %s", why);
    struct epilogue e = {.p = &g.p, .lanes = g.lanes};
    struct text text = solver_text(sc);
    const char *type = epilogue_type(&e);
    text_put(&text, "typedef %s @real;\n", dtype_def(g.p.dtype)->c_name);
    if (g.nrun > 1) {
        table(&g, &text, "@run_a", g.p.a.view.s);
        table(&g, &text, "@run_b", g.p.b.view.s);
    }
    if (g.p.varies) epilogue_copy_functions(&g.p, g.lanes, &text);
    if (g.columns)
        sums_function(&g, &text, type);
    else
        dots_function(&g, &text, type);
    kernel_open(&text, 0);
    text_open(&text, "for (int64_t t = task0; t < task1; t++) {");
    task_body(&g, sc->target, type, &text);
    text_close(&text, "}");
    text_line(&text, "(void)f, (void)worker;");
    kernel_close(&text);
    out->source = text.at;
    out->nstep = 1;
    out->step[0].tasks = tasks(&g);
    return SOL_OK;
}

const struct solver dnn_gemv = {
    .name = "gemv", .blocks = true, .dynamic = true, .applicable = applicable, .variants = variants, .emit = emit};
