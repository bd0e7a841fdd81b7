/* Contractions for work items: the product of two matrices that are read where they lie (convolutions, too: an element
 * of a factor is any expression of M and K, or of N and K). A work group computes a block of the result. It keeps the
 * block's part of both factors in shared memory, two of them, so that the next one is read while one is multiplied.
 * Each item multiplies a tile in registers. On a graphics card neighbouring items read neighbouring elements; on a
 * processor, whose items take turns, an item's tile is in one piece, so that its rows are vectors. A long sum over few
 * results is split into parts, which a second step adds up. The epilogue is applied to each element before it is
 * stored. */
#include <inttypes.h>
#include <string.h>

#include "dnn/simt.h"

#define DEPTH 8   /* of a block of the sum on a processor */
#define LONG 8192 /* products that one sum adds up on a card, where registers are few */

static struct simt_order order_of(const struct problem *p, uint64_t set, const int64_t *by)
{
    struct simt_order o = {.size = problem_size(p, set)};
    for (int i = 0; i < p->loops->ivars.n; i++) {
        if (!set_has(set, i)) continue;
        int k = o.n++;
        for (; k > 0 && stride_about(by[o.ivar[k - 1]]) < stride_about(by[i]); k--) o.ivar[k] = o.ivar[k - 1];
        o.ivar[k] = (uint8_t)i;
    }
    for (int i = 0; i < o.n; i++) o.digit[i] = p->loops->ivars.at[o.ivar[i]].size;
    return o;
}

/* On a card, columns are neighbours in what is stored. */
static bool make_problem(const struct solver_context *sc, const struct cluster *c, struct problem *out,
                         const char **why)
{
    struct problem swapped;
    const char *unused;
    const bool made = problem_make(sc->arena, c, false, out, why);
    if (made && (out->unit || !target_is_card(sc->target))) return true;
    if (!problem_make(sc->arena, c, true, &swapped, made ? &unused : why)) return made;
    if (!made || swapped.unit) *out = swapped;
    return true;
}

static bool find(const struct solver_context *sc, const struct cluster *c, struct simt *out, const char **why)
{
    *out = (struct simt){.target = sc->target, .card = target_is_card(sc->target)};
    struct problem *p = &out->p;
    if (!make_problem(sc, c, p, why)) return false;
    if (out->card) {
        simt_card_find(out);
        return true;
    }
    out->batch = order_of(p, p->batch, p->order);
    out->m = order_of(p, p->m, p->order);
    out->n = order_of(p, p->n, p->order);
    out->k = order_of(p, p->k, p->b.affine ? p->b.view.s : p->order);
    return true;
}

/* The same by units for small matrices. They take factors in TF32, of 11 significant bits. A number of float32 is a sum
 * of two of them, but for half a bit, so three products are one of float32; the fourth, of the small parts, is smaller
 * than that. */
static bool find_mma(const struct solver_context *sc, const struct cluster *c, struct simt *out, const char **why)
{
    *why = "the device has no units for small matrices";
    if (!sc->target->core_mma || !find(sc, c, out, why)) return false;
    *why = "not float32";
    if (out->p.dtype != SOL_F32) return false;
    out->products = sc->target->tf32 ? 1 : 3;
    return true;
}

static void shape(struct simt *s, const struct variant *v)
{
    s->rows = v->p[P_ROWS];
    s->cols = v->p[P_COLS];
    s->tile_rows = v->p[P_TILE_ROWS];
    s->tile_cols = v->p[P_TILE_COLS];
    s->depth = v->p[P_DEPTH];
    s->items = s->rows / s->tile_rows * (s->cols / s->tile_cols);
    s->mblocks = size_ceil_div(s->m.size, s->rows);
    s->nblocks = size_ceil_div(s->n.size, s->cols);
    s->parts = v->p[P_PARTS];
    s->part = size_mul(size_ceil_div(s->k.size, s->parts * s->depth), s->depth);
    s->chunks = !size_le(s->part, s->card ? LONG : 2 * SIMT_CHUNK);
    s->vector = !s->card && s->tile_cols > 1 && s->p.dtype == SOL_F32;
    if (s->card) simt_card_shape(s);
}

/* -- variants */

int64_t simt_blocks(const struct simt *s)
{
    return size_mul(s->batch.size, size_mul(s->mblocks, s->nblocks));
}

/* The bytes that packing reads, and writes, which counts twice. */
static double packed_bytes(const struct simt *s)
{
    double bytes = 0;
    for (int i = 0; i < s->npack; i++)
        bytes += 3.0 * s->p.bytes * (double)loops_elements(&s->pack[i].loops->tensors.at[0]);
    return bytes;
}

/* Adds the shape with numbers of parts. On a card a sum that is too long for one total has more parts. */
static void add_shape(struct simt *s, const int *x, int step, struct variant_list *list)
{
    const bool number = !size_varies(s->k.size);
    const int most = s->card ? 256 : 64;
    for (int parts = 1; parts <= most; parts *= step) {
        struct variant v = {.p = {x[0], x[1], x[2], x[3], parts, x[4]}};
        if (parts > 1 && !size_le(parts * (s->card ? 4 * x[4] : 128), s->k.size)) break;
        shape(s, &v);
        if (number && s->card && (s->part * (parts - 1) >= s->k.size || (s->chunks && parts < most))) continue;
        v.cost = simt_cost(s);
        v.text = arena_printf(s->p.arena, s->card ? "%dx%d/%dx%d d%d p%d" : "%dx%d/%dx%d p%d", x[0], x[1], x[2], x[3],
                              s->card ? x[4] : parts, parts);
        if (s->products) v.text = arena_printf(s->p.arena, "%s tf32x%d", v.text, s->products);
        v.moved = packed_bytes(s);
        variants_add(list, &v);
    }
}

static int variants(const struct solver_context *sc, const struct cluster *c, struct variant *out)
{
    static const int processor[][5] = {{64, 64, 8, 8, DEPTH}, {128, 128, 8, 8, DEPTH}, {32, 32, 4, 4, DEPTH},
                                       {64, 16, 4, 4, DEPTH}, {16, 64, 4, 4, DEPTH},   {64, 4, 4, 1, DEPTH},
                                       {4, 64, 1, 4, DEPTH},  {8, 8, 1, 1, DEPTH}};
    static const int card[][5] = {{128, 128, 8, 8, 16}, {128, 64, 8, 8, 16}, {64, 128, 8, 8, 16}, {128, 64, 8, 4, 16},
                                  {64, 64, 8, 4, 16},   {64, 64, 4, 4, 16},  {32, 128, 4, 8, 16}, {128, 32, 8, 4, 16},
                                  {64, 32, 4, 4, 16},   {32, 64, 4, 4, 16},  {32, 32, 4, 4, 32},  {64, 16, 4, 4, 32},
                                  {16, 64, 4, 4, 32},   {64, 4, 4, 1, 32},   {4, 64, 1, 4, 32}};
    struct simt s;
    const char *why;
    struct variant_list list = {.at = out};
    if (!find(sc, c, &s, &why)) return 0;
    for (int i = 0; i < (s.card ? COUNT_OF(card) : COUNT_OF(processor)); i++) {
        const int *x = s.card ? card[i] : processor[i];
        if (s.p.bytes == 8 && x[0] * x[1] > 64 * 64) continue; /* shared memory and registers are few */
        add_shape(&s, x, s.card ? 2 : 4, &list);
    }
    return list.n;
}

static int variants_mma(const struct solver_context *sc, const struct cluster *c, struct variant *out)
{
    struct simt s;
    const char *why;
    struct variant_list list = {.at = out};
    if (!find_mma(sc, c, &s, &why)) return 0;
    for (const int *x = simt_mma_shapes[0]; *x; x += COUNT_OF(simt_mma_shapes[0])) add_shape(&s, x, 2, &list);
    return list.n;
}

static bool applicable(const struct solver_context *sc, const struct cluster *c, const char **out_why)
{
    struct simt s;
    return find(sc, c, &s, out_why);
}

static bool applicable_mma(const struct solver_context *sc, const struct cluster *c, const char **out_why)
{
    struct simt s;
    return find_mma(sc, c, &s, out_why);
}

/* -- text */

/* Declares the index variables of an order as digits of the number `flat`. */
void simt_digits(const struct simt *s, const struct simt_order *o, const char *flat)
{
    const int64_t below = o->size;
    if (!size_varies(below) && below < INT32_MAX) flat = arena_printf(s->p.arena, "(uint32_t)%s", flat);
    for (int i = 0; i < o->n; i++) {
        const struct loops_ivar *v = &s->p.loops->ivars.at[o->ivar[i]];
        int64_t inner = 1;
        for (int k = i + 1; k < o->n; k++) inner = size_mul(inner, o->digit[k]);
        const char *at = text_over(s->p.arena, flat, inner);
        text_line(s->out, "const int64_t %s = %s;", v->name, i ? text_modulo(s->p.arena, at, o->digit[i]) : at);
    }
}

static const char *first_of(const struct simt *s, const struct simt_order *o)
{
    return o == &s->m ? "m0_" : "n0_";
}

/* On a processor an item reads one element of M or N and some of K: declares the digits of the former, for all of the
 * sum. */
static void put_place(struct simt *s, const struct simt_order *o, int wide)
{
    const char *flat = o == &s->m ? "a_at_" : "b_at_";
    text_line(s->out, "const int64_t %s = @sol_min_i64(%s + @ITEM %% %d, %lld);", flat, first_of(s, o), wide,
              (long long)size_sub(o->size, 1));
    simt_digits(s, o, flat);
}

/* Reads a block of a factor to shared memory. */
static void put_load(struct simt *s, const struct operand *x, const char *to, int wide)
{
    struct text *out = s->out;
    text_open(out, "for (int deep_ = (int)@ITEM / %d; deep_ < %d; deep_ += %d) {", wide, DEPTH, s->items / wide);
    text_line(out, "const int at_ = (int)@ITEM %% %d;", wide);
    text_line(out, "const int64_t k_ = k0_ + %d + deep_;", DEPTH);
    text_line(out, "@real x_ = 0;");
    text_open(out, "if (k_ < end_) {");
    simt_digits(s, &s->k, "k_");
    const char *value = print_value(&s->pe, x->view.node, s->p.dtype);
    text_line(out, "x_ = %s;", text_bare(s->p.arena, value));
    text_close(out, "}");
    text_line(out, "%s[next_][deep_][at_] = x_;", to);
    text_close(out, "}");
}

static void put_products(const struct simt *s)
{
    struct text *out = s->out;
    text_open(out, "for (int d_ = 0; d_ < %d; d_++) {", DEPTH);
    if (s->vector) {
        text_line(out, "const @row b_ = vload%d(0, &bs_[1 - next_][d_][col_]);", s->tile_cols);
        text_line(out, "for (int i_ = 0; i_ < %d; i_++) sum_[i_] += as_[1 - next_][d_][row_ + i_] * b_;", s->tile_rows);
        text_close(out, "}");
        return;
    }
    text_line(out, "@real a_[%d], b_[%d];", s->tile_rows, s->tile_cols);
    text_line(out, "for (int i_ = 0; i_ < %d; i_++) a_[i_] = as_[1 - next_][d_][row_ + i_];", s->tile_rows);
    text_line(out, "for (int j_ = 0; j_ < %d; j_++) b_[j_] = bs_[1 - next_][d_][col_ + j_];", s->tile_cols);
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
    const bool chunks = s->chunks;
    put_tile(s, "sum_");
    if (chunks) put_tile(s, "total_");
    each_of_tile(s, chunks ? "sum_$ = total_$ = 0;" : "sum_$ = 0;");
    put_place(s, &s->m, s->rows);
    put_place(s, &s->n, s->cols);
    text_line(out, "int next_ = 0;");
    text_open(out, "for (int64_t k0_ = begin_ - %d; k0_ < end_; k0_ += %d, next_ = 1 - next_) {", DEPTH, DEPTH);
    text_open(out, "if (k0_ + %d < end_) {", DEPTH);
    put_load(s, &s->p.a, "as_", s->rows);
    put_load(s, &s->p.b, "bs_", s->cols);
    text_close(out, "}");
    text_open(out, "if (k0_ >= begin_) {");
    put_products(s);
    if (chunks) {
        text_open(out, "if ((k0_ - begin_) %% %d == %d) {", SIMT_CHUNK, SIMT_CHUNK - DEPTH);
        each_of_tile(s, "total_$ += sum_$, sum_$ = 0;");
        text_close(out, "}");
    }
    text_close(out, "}");
    text_line(out, "@BARRIER;");
    text_close(out, "}");
    if (chunks) each_of_tile(s, "sum_$ += total_$;");
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

/* Where a processor's items find shared memory, and their tiles in the block. */
static void put_tile_place(const struct simt *s)
{
    struct text *out = s->out;
    text_line(out, "@SHARED @real (*const as_)[%d][%d] = (@SHARED @real (*)[%d][%d])shared_;", DEPTH, s->rows, DEPTH,
              s->rows);
    text_line(out, "@SHARED @real (*const bs_)[%d][%d] = (@SHARED @real (*)[%d][%d])(shared_ + %d);", DEPTH, s->cols,
              DEPTH, s->cols, 2 * DEPTH * s->rows * s->p.bytes);
    text_line(out, "const int row_ = (int)@ITEM / %d * %d, col_ = (int)@ITEM %% %d * %d;", s->cols / s->tile_cols,
              s->tile_rows, s->cols / s->tile_cols, s->tile_cols);
}

/* The first row and column of a task's block. On a card some rows of blocks share the columns that they read while
 * these are in the cache. */
static void put_block(const struct simt *s)
{
    enum { ROWS = 8 };
    struct arena *a = s->p.arena;
    const int64_t band = size_mul(s->nblocks, ROWS);
    if (!s->card || size_le(s->mblocks, 1) || size_le(s->nblocks, 1)) {
        text_line(s->out, "const int64_t n0_ = %s;", text_times(a, text_modulo(a, "task_", s->nblocks), s->cols));
        text_line(s->out, "const int64_t m0_ = %s;",
                  text_times(a, text_modulo(a, text_over(a, "task_", s->nblocks), s->mblocks), s->rows));
        return;
    }
    text_line(s->out, "const int64_t block_ = %s;", text_modulo(a, "task_", size_mul(s->mblocks, s->nblocks)));
    text_line(s->out, "const int64_t band_ = block_ / %lld * %d, rest_ = block_ %% %lld;", (long long)band, ROWS,
              (long long)band);
    text_line(s->out, "const int high_ = (int)@sol_min_i64(%d, %lld - band_);", ROWS, (long long)s->mblocks);
    text_line(s->out, "const int64_t n0_ = rest_ / high_ * %d, m0_ = (band_ + rest_ %% high_) * %d;", s->cols, s->rows);
}

static void put_blocks(struct simt *s)
{
    struct text *out = s->out;
    struct arena *a = s->p.arena;
    kernel_open(out, 0);
    text_line(out, "(void)f, (void)worker;");
    put_pointers(s);
    if (s->card)
        simt_card_place(s);
    else
        put_tile_place(s);
    text_open(out, "for (int64_t task_ = task0; task_ < task1; task_++) {");
    const int64_t inner = size_mul(s->mblocks, s->nblocks);
    put_block(s);
    text_line(out, "const int64_t batch_ = %s;", text_modulo(a, text_over(a, "task_", inner), s->batch.size));
    text_line(out, "const int64_t part_ = %s;", text_over(a, "task_", size_mul(inner, s->batch.size)));
    text_line(out, "const int64_t begin_ = part_ * %lld, end_ = @sol_min_i64(begin_ + %lld, %lld);", (long long)s->part,
              (long long)s->part, (long long)s->k.size);
    simt_digits(s, &s->batch, "batch_");
    if (s->card) {
        simt_card_sum(s);
        simt_card_results(s);
    } else {
        put_sum(s);
        simt_results(s);
    }
    text_close(out, "}");
    kernel_close(out);
}

/* Adds up the parts; each item has an element of its own. */
static void put_parts(struct simt *s)
{
    kernel_open(s->out, 1);
    text_line(s->out, "(void)f, (void)worker;");
    put_pointers(s);
    simt_parts(s);
    kernel_close(s->out);
}

typedef bool finder(const struct solver_context *sc, const struct cluster *c, struct simt *out, const char **why);

static sol_status emit_by(finder *find_it, const struct solver_context *sc, const struct cluster *c,
                          const struct variant *v, struct kernel *out)
{
    struct simt s;
    const char *why = "";
    if (!find_it(sc, c, &s, &why))
        return ctx_fail(arena_ctx(sc->arena), SOL_ERR_UNSUPPORTED, "blocks by work items: %s", why);
    struct text text = solver_text(sc);
    shape(&s, v);
    s.out = &text;
    s.pe = (struct print_expr){
        .out = &text, .loops = s.p.loops, .memory = c->memory, .target = sc->target, .lanes = 1, .vector_ivar = -1};
    print_tables(&text, s.p.was);
    text_put(&text, "typedef %s @real;\n", dtype_def(s.p.dtype)->c_name);
    if (s.vector) text_put(&text, "typedef float%d @row;\n", s.tile_cols);
    if (s.card) simt_card_begin(&s);
    put_blocks(&s);
    *out = (struct kernel){.nstep = 1,
                           .items = s.items,
                           .shared_bytes = s.card ? simt_card_shared(&s) : 2 * DEPTH * (s.rows + s.cols) * s.p.bytes,
                           .npack = s.npack,
                           .pack = {s.pack[0]}};
    out->step[0].tasks = size_mul(simt_blocks(&s), s.parts);
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

static sol_status emit(const struct solver_context *sc, const struct cluster *c, const struct variant *v,
                       struct kernel *out)
{
    return emit_by(find, sc, c, v, out);
}

static sol_status emit_mma(const struct solver_context *sc, const struct cluster *c, const struct variant *v,
                           struct kernel *out)
{
    return emit_by(find_mma, sc, c, v, out);
}

const struct solver dnn_mma = {.name = "mma",
                               .blocks = true,
                               .dynamic = true,
                               .lanes = FOR_MMA,
                               .applicable = applicable_mma,
                               .variants = variants_mma,
                               .emit = emit_mma};
const struct solver dnn_simt = {.name = "simt",
                                .blocks = true,
                                .dynamic = true,
                                .lanes = FOR_ITEMS,
                                .applicable = applicable,
                                .variants = variants,
                                .emit = emit};
