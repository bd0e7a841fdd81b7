/* Contractions for work items: the product of two matrices that are read where they lie (convolutions, too: an element
 * of a factor is any expression of M and K, or of N and K). A work group computes a block of the result. It keeps the
 * block's part of both factors in shared memory, two of them, so that the next one is read while one is multiplied.
 * Each item multiplies a tile in registers. On a graphics card neighbouring items read neighbouring elements; on a
 * processor, whose items take turns, an item's tile is in one piece, so that its rows are vectors. A long sum over few
 * results is split into parts, which a second step adds up. The epilogue is applied to each element before it is
 * stored. */
#include <inttypes.h>
#include <string.h>

#include "dnn/epilogue.h"
#include "dnn/solvers.h"
#include "print/print.h"

#define DEPTH 8    /* of a block of the sum */
#define CHUNK 1024 /* products that are added up before they join the total */
#define FAVOUR 8
#define TURNS 16 /* a device of at most so many lanes is a processor */

/* What a variant chooses (variant.p). */
enum { P_ROWS, P_COLS, P_TILE_ROWS, P_TILE_COLS, P_PARTS };

struct order { /* index variables as digits of one number, outermost first */
    int n;
    uint8_t ivar[LOOPS_MAX_IVARS];
    int64_t size;
};
struct simt {
    struct problem p;
    const struct target *target;
    struct text *out;
    struct print_expr pe;
    struct order batch, m, n, k;
    int rows, cols, tile_rows, tile_cols; /* of a block, and of an item's tile */
    int64_t parts, part;                  /* of the sum, and products in a part */
    int items;                            /* a multiple of rows and of cols */
    bool turns, vector;                   /* items take turns; a row of a tile is a vector */
    int64_t mblocks, nblocks;
};

static struct order order_of(const struct problem *p, uint64_t set, const int64_t *by)
{
    struct order o = {.size = problem_size(p, set)};
    for (int i = 0; i < p->loops->ivars.n; i++) {
        if (!set_has(set, i)) continue;
        int k = o.n++;
        for (; k > 0 && stride_about(by[o.ivar[k - 1]]) < stride_about(by[i]); k--) o.ivar[k] = o.ivar[k - 1];
        o.ivar[k] = (uint8_t)i;
    }
    return o;
}

static bool find(const struct solver_context *sc, const struct cluster *c, struct simt *out, const char **why)
{
    *out = (struct simt){.target = sc->target};
    struct problem *p = &out->p;
    if (!problem_make(sc->arena, c, false, p, why) && !problem_make(sc->arena, c, true, p, why)) return false;
    out->batch = order_of(p, p->batch, p->order);
    out->m = order_of(p, p->m, p->order);
    out->n = order_of(p, p->n, p->order);
    out->k = order_of(p, p->k, p->b.affine ? p->b.view.s : p->order);
    return true;
}

static void shape(struct simt *s, const struct variant *v)
{
    s->rows = v->p[P_ROWS];
    s->cols = v->p[P_COLS];
    s->tile_rows = v->p[P_TILE_ROWS];
    s->tile_cols = v->p[P_TILE_COLS];
    s->items = s->rows / s->tile_rows * (s->cols / s->tile_cols);
    s->mblocks = size_ceil_div(s->m.size, s->rows);
    s->nblocks = size_ceil_div(s->n.size, s->cols);
    s->parts = v->p[P_PARTS];
    s->part = size_mul(size_ceil_div(s->k.size, s->parts * DEPTH), DEPTH);
    s->turns = s->target->simd <= TURNS;
    s->vector = s->turns && s->tile_cols > 1 && s->p.dtype == SOL_F32;
}

/* -- variants */

static int64_t blocks(const struct simt *s)
{
    return size_mul(s->batch.size, size_mul(s->mblocks, s->nblocks));
}

/* An estimate: products in whole blocks, at a rate that grows with the tile, and the parts' way through memory. On a
 * processor, DFP takes 9 to 45 times as long for a convolution (PoCL 3.1), though it prices itself alike: hence FAVOUR.
 */
static double cost(const struct simt *s)
{
    const double tile = s->tile_rows * s->tile_cols, groups = (double)size_about(blocks(s)) * (double)s->parts;
    const double each = (double)s->rows * s->cols * (double)size_about(s->part);
    const double rounds = (double)((int64_t)((groups - 1) / s->target->cores) + 1);
    const double rate = 2 * s->target->simd * (s->turns ? FAVOUR : 1) * s->target->clock * tile / (tile + 8),
                 bytes = s->parts > 1 ? 8.0 * groups * s->rows * s->cols : 0;
    return rounds * each / rate + bytes / s->target->dram_rate + KERNEL_STEP_NS * (s->parts > 1 ? 2 : 1);
}

static int variants(const struct solver_context *sc, const struct cluster *c, struct variant *out)
{
    static const int shapes[][4] = {{64, 64, 8, 8}, {128, 128, 8, 8}, {32, 32, 4, 4}, {64, 16, 4, 4},
                                    {16, 64, 4, 4}, {64, 4, 4, 1},    {4, 64, 1, 4},  {8, 8, 1, 1}};
    struct simt s;
    const char *why;
    struct variant_list list = {.at = out};
    if (!find(sc, c, &s, &why)) return 0;
    for (int i = 0; i < COUNT_OF(shapes); i++)
        for (int parts = 1; parts <= 64; parts *= 4) {
            const int *x = shapes[i];
            struct variant v = {.p = {x[0], x[1], x[2], x[3], parts}};
            if (parts > 1 && !size_le(parts * 128, s.k.size)) continue;
            if (s.p.bytes == 8 && x[0] * x[1] > 64 * 64) continue; /* shared memory is small */
            shape(&s, &v);
            v.cost = cost(&s);
            v.text = arena_printf(sc->arena, "%dx%d/%dx%d p%d", x[0], x[1], x[2], x[3], parts);
            variants_add(&list, &v);
        }
    return list.n;
}

static bool applicable(const struct solver_context *sc, const struct cluster *c, const char **out_why)
{
    struct simt s;
    return find(sc, c, &s, out_why);
}

/* -- text */

/* Declares the index variables of an order as digits of the number `flat`. */
static void digits(const struct simt *s, const struct order *o, const char *flat)
{
    int64_t below = o->size;
    if (!size_varies(below) && below < INT32_MAX) flat = arena_printf(s->p.arena, "(uint32_t)%s", flat);
    for (int i = 0; i < o->n; i++) {
        const struct loops_ivar *v = &s->p.loops->ivars.at[o->ivar[i]];
        int64_t inner = 1;
        for (int k = i + 1; k < o->n; k++) inner = size_mul(inner, s->p.loops->ivars.at[o->ivar[k]].size);
        const char *at = text_over(s->p.arena, flat, inner);
        text_line(s->out, "const int64_t %s = %s;", v->name, i ? text_modulo(s->p.arena, at, v->size) : at);
    }
}

static const char *first_of(const struct simt *s, const struct order *o)
{
    return o == &s->m ? "m0_" : "n0_";
}

/* Is a factor read along K, which is the last dimension of its memory, by neighbouring items? */
static bool along_k(const struct simt *s, const struct operand *x)
{
    return !s->turns && x->affine && s->k.n && x->view.s[s->k.ivar[s->k.n - 1]] == 1;
}

/* Otherwise an item reads one element of M or N and some of K: declares the digits of the former, for all of the sum.
 */
static void put_place(struct simt *s, const struct operand *x, const struct order *o, int wide)
{
    const char *flat = o == &s->m ? "a_at_" : "b_at_";
    if (along_k(s, x)) return;
    text_line(s->out, "const int64_t %s = @sol_min_i64(%s + @ITEM %% %d, %lld);", flat, first_of(s, o), wide,
              (long long)size_sub(o->size, 1));
    digits(s, o, flat);
}

/* Reads a block of a factor to shared memory. */
static void put_load(struct simt *s, const struct operand *x, const struct order *o, const char *to, int wide)
{
    struct text *out = s->out;
    if (along_k(s, x)) {
        text_open(out, "for (int at_ = (int)@ITEM / %d; at_ < %d; at_ += %d) {", DEPTH, wide, s->items / DEPTH);
        text_line(out, "const int deep_ = (int)@ITEM %% %d;", DEPTH);
        text_line(out, "const int64_t flat_ = @sol_min_i64(%s + at_, %lld);", first_of(s, o),
                  (long long)size_sub(o->size, 1));
        digits(s, o, "flat_");
    } else {
        text_open(out, "for (int deep_ = (int)@ITEM / %d; deep_ < %d; deep_ += %d) {", wide, DEPTH, s->items / wide);
        text_line(out, "const int at_ = (int)@ITEM %% %d;", wide);
    }
    text_line(out, "const int64_t k_ = k0_ + %d + deep_;", DEPTH);
    text_line(out, "@real x_ = 0;");
    text_open(out, "if (k_ < end_) {");
    digits(s, &s->k, "k_");
    const char *value = print_value(&s->pe, x->view.node, s->p.dtype);
    text_line(out, "x_ = %s;", text_bare(s->p.arena, value));
    text_close(out, "}");
    text_line(out, "%s[next_][deep_][at_] = x_;", to);
    text_close(out, "}");
}

/* How far the elements of an item's tile are from each other, in a dimension with so many items. */
static int step_of(const struct simt *s, int items)
{
    return s->turns ? 1 : items;
}

static void put_products(const struct simt *s)
{
    struct text *out = s->out;
    const int down = step_of(s, s->rows / s->tile_rows), across = step_of(s, s->cols / s->tile_cols);
    text_open(out, "for (int d_ = 0; d_ < %d; d_++) {", DEPTH);
    if (s->vector) {
        text_line(out, "const @row b_ = vload%d(0, &bs_[1 - next_][d_][col_]);", s->tile_cols);
        text_line(out, "for (int i_ = 0; i_ < %d; i_++) sum_[i_] += as_[1 - next_][d_][row_ + i_] * b_;", s->tile_rows);
        text_close(out, "}");
        return;
    }
    text_line(out, "@real a_[%d], b_[%d];", s->tile_rows, s->tile_cols);
    text_line(out, "for (int i_ = 0; i_ < %d; i_++) a_[i_] = as_[1 - next_][d_][row_ + i_ * %d];", s->tile_rows, down);
    text_line(out, "for (int j_ = 0; j_ < %d; j_++) b_[j_] = bs_[1 - next_][d_][col_ + j_ * %d];", s->tile_cols,
              across);
    text_line(out, "for (int i_ = 0; i_ < %d; i_++)", s->tile_rows);
    text_line(out, "    for (int j_ = 0; j_ < %d; j_++) sum_[i_][j_] += a_[i_] * b_[j_];", s->tile_cols);
    text_close(out, "}");
}

/* Declares a tile, whose rows are vectors or arrays. */
static void put_tile(const struct simt *s, const char *name)
{
    if (s->vector)
        text_line(s->out, "@row %s[%d];", name, s->tile_rows);
    else
        text_line(s->out, "@real %s[%d][%d];", name, s->tile_rows, s->tile_cols);
}

/* A statement for each row or element $ of tiles. */
static void each_of_tile(const struct simt *s, const char *statement)
{
    const char *at = s->vector ? "[i_]" : "[i_][j_]";
    struct text line = text_new(s->p.arena);
    for (; *statement; statement++) {
        if (*statement == '$')
            text_put(&line, "%s", at);
        else
            text_put(&line, "%c", *statement);
    }
    text_line(s->out, "for (int i_ = 0; i_ < %d; i_++)", s->tile_rows);
    if (s->vector)
        text_line(s->out, "    %s", line.at);
    else
        text_line(s->out, "    for (int j_ = 0; j_ < %d; j_++) %s", s->tile_cols, line.at);
}

static void put_sum(struct simt *s)
{
    struct text *out = s->out;
    const bool chunks = !size_le(s->part, 2 * CHUNK);
    put_tile(s, "sum_");
    if (chunks) put_tile(s, "total_");
    each_of_tile(s, chunks ? "sum_$ = total_$ = 0;" : "sum_$ = 0;");
    put_place(s, &s->p.a, &s->m, s->rows);
    put_place(s, &s->p.b, &s->n, s->cols);
    text_line(out, "int next_ = 0;");
    text_open(out, "for (int64_t k0_ = begin_ - %d; k0_ < end_; k0_ += %d, next_ = 1 - next_) {", DEPTH, DEPTH);
    text_open(out, "if (k0_ + %d < end_) {", DEPTH);
    put_load(s, &s->p.a, &s->m, "as_", s->rows);
    put_load(s, &s->p.b, &s->n, "bs_", s->cols);
    text_close(out, "}");
    text_open(out, "if (k0_ >= begin_) {");
    put_products(s);
    if (chunks) {
        text_open(out, "if ((k0_ - begin_) %% %d == %d) {", CHUNK, CHUNK - DEPTH);
        each_of_tile(s, "total_$ += sum_$, sum_$ = 0;");
        text_close(out, "}");
    }
    text_close(out, "}");
    text_line(out, "@BARRIER;");
    text_close(out, "}");
    if (chunks) each_of_tile(s, "sum_$ += total_$;");
}

static const char *place(void *user, struct text *out, int view)
{
    struct simt *s = user;
    const struct view *v = &s->p.view[view];
    struct offset o = {.arena = s->p.arena, .constant = v->c};
    (void)out;
    for (int i = 0; i < s->p.loops->ivars.n; i++) offset_add(&o, s->p.loops->ivars.at[i].name, v->s[i]);
    return offset_text(&o);
}

static const char *ivar_value(void *user, int ivar)
{
    const struct simt *s = user;
    return s->p.loops->ivars.at[ivar].name;
}

/* The epilogue of one element, whose index variables of batch, M and N are declared. */
static void put_epilogue(struct simt *s, const char *sum)
{
    struct epilogue e = {.p = &s->p,
                         .target = s->target,
                         .lanes = 1,
                         .temps = s->pe.temps,
                         .named = true,
                         .place = place,
                         .ivar = ivar_value,
                         .user = s};
    epilogue_print(&e, s->out, sum, 1);
}

/* The element of the partial results: parts, then batch, M, N. */
static const char *partial(const struct simt *s, const char *part)
{
    const long long m = s->m.size, n = s->n.size;
    return arena_printf(s->p.arena, "((%s * %lld + batch_) * %lld + m_) * %lld + n_", part, (long long)s->batch.size, m,
                        n);
}

static void put_results(struct simt *s)
{
    struct text *out = s->out;
    const char *sum = s->vector ? "((const @real *)&sum_[i_])[j_]" : "sum_[i_][j_]";
    text_open(out, "for (int i_ = 0; i_ < %d; i_++) {", s->tile_rows);
    text_line(out, "const int64_t m_ = m0_ + row_ + i_ * %d;", step_of(s, s->rows / s->tile_rows));
    text_line(out, "if (m_ >= %lld) break;", (long long)s->m.size);
    if (s->parts == 1) digits(s, &s->m, "m_");
    text_open(out, "for (int j_ = 0; j_ < %d; j_++) {", s->tile_cols);
    text_line(out, "const int64_t n_ = n0_ + col_ + j_ * %d;", step_of(s, s->cols / s->tile_cols));
    text_line(out, "if (n_ >= %lld) break;", (long long)s->n.size);
    if (s->parts > 1) {
        text_line(out, "partial_[%s] = %s;", partial(s, "part_"), sum);
    } else {
        digits(s, &s->n, "n_");
        text_line(out, "const @real result_ = %s;", sum);
        put_epilogue(s, "result_");
    }
    text_close(out, "}");
    text_close(out, "}");
}

/* Declares the operands, and the work buffer of partial results. */
static void put_pointers(const struct simt *s)
{
    const struct loops *loops = s->p.was;
    for (int i = 0; i < loops->tensors.n; i++) {
        const struct loops_tensor *t = &loops->tensors.at[i];
        if (t->role != LOOPS_INPUT && t->role != LOOPS_OUTPUT) continue;
        const char *type = dtype_def(t->dtype)->c_name;
        if (t->role == LOOPS_INPUT) type = arena_printf(s->p.arena, "const %s", type);
        print_operand(s->out, s->target, t->name, type, problem_operand(&s->p, i));
    }
    if (s->parts > 1) print_operand(s->out, s->target, "partial_", dtype_def(s->p.dtype)->c_name, problem_work(&s->p));
}

static void put_blocks(struct simt *s)
{
    struct text *out = s->out;
    struct arena *a = s->p.arena;
    kernel_open(out, 0);
    text_line(out, "(void)f, (void)worker;");
    put_pointers(s);
    text_line(out, "@SHARED @real (*const as_)[%d][%d] = (@SHARED @real (*)[%d][%d])shared_;", DEPTH, s->rows, DEPTH,
              s->rows);
    text_line(out, "@SHARED @real (*const bs_)[%d][%d] = (@SHARED @real (*)[%d][%d])(shared_ + %d);", DEPTH, s->cols,
              DEPTH, s->cols, 2 * DEPTH * s->rows * s->p.bytes);
    text_line(out, "const int row_ = (int)@ITEM / %d * %d, col_ = (int)@ITEM %% %d * %d;", s->cols / s->tile_cols,
              s->turns ? s->tile_rows : 1, s->cols / s->tile_cols, s->turns ? s->tile_cols : 1);
    text_open(out, "for (int64_t task_ = task0; task_ < task1; task_++) {");
    const int64_t inner = size_mul(s->mblocks, s->nblocks);
    text_line(out, "const int64_t n0_ = %s;", text_times(a, text_modulo(a, "task_", s->nblocks), s->cols));
    text_line(out, "const int64_t m0_ = %s;",
              text_times(a, text_modulo(a, text_over(a, "task_", s->nblocks), s->mblocks), s->rows));
    text_line(out, "const int64_t batch_ = %s;", text_modulo(a, text_over(a, "task_", inner), s->batch.size));
    text_line(out, "const int64_t part_ = %s;", text_over(a, "task_", size_mul(inner, s->batch.size)));
    text_line(out, "const int64_t begin_ = part_ * %lld, end_ = @sol_min_i64(begin_ + %lld, %lld);", (long long)s->part,
              (long long)s->part, (long long)s->k.size);
    digits(s, &s->batch, "batch_");
    put_sum(s);
    put_results(s);
    text_close(out, "}");
    kernel_close(out);
}

/* Adds up the parts; each item has an element of its own. */
static void put_parts(struct simt *s)
{
    struct text *out = s->out;
    struct arena *a = s->p.arena;
    const int64_t elements = size_mul(s->batch.size, size_mul(s->m.size, s->n.size));
    kernel_open(out, 1);
    text_line(out, "(void)f, (void)worker;");
    put_pointers(s);
    text_open(out, "for (int64_t task_ = task0; task_ < task1; task_++) {");
    text_line(out, "const int64_t at_ = task_ * %d + @ITEM;", s->items);
    text_line(out, "if (at_ >= %lld) continue;", (long long)elements);
    text_line(out, "const int64_t n_ = %s;", text_modulo(a, "at_", s->n.size));
    text_line(out, "const int64_t m_ = %s;", text_modulo(a, text_over(a, "at_", s->n.size), s->m.size));
    text_line(out, "const int64_t batch_ = %s;", text_over(a, "at_", size_mul(s->m.size, s->n.size)));
    text_line(out, "@real sum_ = 0;");
    text_line(out, "for (int part_ = 0; part_ < %lld; part_++) sum_ += partial_[%s];", (long long)s->parts,
              partial(s, "part_"));
    digits(s, &s->batch, "batch_");
    digits(s, &s->m, "m_");
    digits(s, &s->n, "n_");
    put_epilogue(s, "sum_");
    text_close(out, "}");
    kernel_close(out);
}

static sol_status emit(const struct solver_context *sc, const struct cluster *c, const struct variant *v,
                       struct kernel *out)
{
    struct simt s;
    const char *why = "";
    if (!find(sc, c, &s, &why)) return ctx_fail(arena_ctx(sc->arena), SOL_ERR_UNSUPPORTED, "simt: %s", why);
    struct text text = solver_text(sc);
    shape(&s, v);
    s.out = &text;
    s.pe = (struct print_expr){
        .out = &text, .loops = s.p.loops, .memory = c->memory, .target = sc->target, .lanes = 1, .vector_ivar = -1};
    print_tables(&text, s.p.was);
    text_put(&text, "typedef %s @real;\n", dtype_def(s.p.dtype)->c_name);
    if (s.vector) text_put(&text, "typedef float%d @row;\n", s.tile_cols);
    put_blocks(&s);
    *out = (struct kernel){.nstep = 1, .items = s.items, .shared_bytes = 2 * DEPTH * (s.rows + s.cols) * s.p.bytes};
    out->step[0].tasks = size_mul(blocks(&s), s.parts);
    if (s.parts > 1) {
        const int64_t elements = size_mul(s.batch.size, size_mul(s.m.size, s.n.size));
        put_parts(&s);
        out->nstep = 2;
        out->step[1].tasks = size_ceil_div(elements, s.items);
        out->step[1].suffix = "sum of parts";
        out->nwork = 1;
        out->work_bytes[0] = kernel_lines(size_mul(size_mul(elements, s.parts), s.p.bytes));
    }
    out->source = text.at;
    return SOL_OK;
}

const struct solver dnn_simt = {.name = "simt",
                                .blocks = true,
                                .dynamic = true,
                                .lanes = FOR_ITEMS,
                                .applicable = applicable,
                                .variants = variants,
                                .emit = emit};
