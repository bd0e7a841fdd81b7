/* A problem of dnn_examples.h in memory: layouts, random values, halos, operands between pages that must not be
 * touched. */
#ifndef SOL_DNN_PROBLEM_H
#define SOL_DNN_PROBLEM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "dnn/dnn.h"
#include "dnn_examples.h"

struct bound {
    const struct example *e;
    struct arena *arena;
    struct cluster c;
    int nin, ntensor;
    int64_t elements[16]; /* of each tensor */
    double *exact[16];    /* row-major */
};

static inline double random_value(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (double)(float)((seed >> 8) % 4001 - 2000.0) / 1024;
}

static inline int list_length(const int64_t *s)
{
    int n = 0;
    while (n < 6 && s[n]) n++;
    return n;
}

static inline void set_memory(struct memory *m, const struct loops_tensor *t, const struct layout *l, bool constant)
{
    memset(m, 0, sizeof *m);
    m->align = dtype_def(t->dtype)->bytes;
    m->constant = constant;
    int64_t n = 1;
    for (int k = t->ndim - 1; k >= 0; k--) {
        const int d = l->order ? l->order[k] - '0' : k;
        m->stride[d] = n;
        const int halo = l->order && d >= 2 ? l->halo : 0;
        m->halo_low[d] = m->halo_high[d] = halo;
        n = size_mul(n, size_add(t->shape[d], 2 * halo));
        if (k == t->ndim - 1) n = size_add(n, l->extra);
    }
}

/* Loops and memory; sizes may vary. */
static inline void bind_loops(struct bound *b, struct sol_ctx *ctx, const struct example *e)
{
    memset(b, 0, sizeof *b);
    b->e = e;
    b->arena = arena_create(ctx);
    struct opdef *r;
    struct opdef_input in[MAX_INPUTS];
    while (b->nin < MAX_INPUTS && e->shape[b->nin][0]) {
        in[b->nin] =
            (struct opdef_input){e->dtype ? e->dtype : SOL_F32, list_length(e->shape[b->nin]), e->shape[b->nin], false};
        b->nin++;
    }
    const int pixels = in[0].ndim - 2;
    int64_t s[3], d[3], p[3], q[3], g = e->g ? e->g : 1;
    for (int i = 0; i < 3; i++) {
        s[i] = e->s[i] ? e->s[i] : 1;
        d[i] = e->d[i] ? e->d[i] : 1;
        p[i] = e->p[i];
        q[i] = e->q[i];
    }
    struct opdef_attr at[] = {{.name = "s", .kind = ATTR_INT, .n = pixels, .ints = s},
                              {.name = "d", .kind = ATTR_INT, .n = pixels, .ints = d},
                              {.name = "p", .kind = ATTR_INT, .n = pixels, .ints = p},
                              {.name = "q", .kind = ATTR_INT, .n = pixels, .ints = q},
                              {.name = "g", .kind = ATTR_INT, .n = -1, .ints = &g}};
    const struct attrs attrs = {COUNT_OF(at), at};
    if (opdef_parse(b->arena, e->name, e->row, &r) || opdef_bind(b->arena, r, b->nin, in, &attrs, &b->c.loops)) {
        print_error("%s: %s\n", e->name, sol_error(ctx));
        fail();
    }
    const struct loops *l = b->c.loops;
    b->ntensor = l->tensors.n;
    b->c.memory = NEW_ARRAY(b->arena, struct memory, l->tensors.n);
    for (int i = 0; i < l->tensors.n; i++) {
        const bool input = i < b->nin;
        set_memory(&b->c.memory[i], &l->tensors.at[i], input ? &e->in[i] : &e->out,
                   input && i && !(i == 1 && e->activation));
    }
}

static inline void bind(struct bound *b, struct sol_ctx *ctx, const struct example *e)
{
    bind_loops(b, ctx, e);
    const struct loops *l = b->c.loops;
    seed = 7;
    for (int i = 0; i < l->tensors.n; i++) {
        const struct loops_tensor *t = &l->tensors.at[i];
        const bool input = i < b->nin;
        b->elements[i] = 1;
        for (int k = 0; k < t->ndim; k++) b->elements[i] *= t->shape[k];
        b->exact[i] = NEW_ARRAY(b->arena, double, b->elements[i] + 1);
        for (int64_t k = 0; k < b->elements[i]; k++) b->exact[i][k] = input ? random_value() : NAN;
    }
    /* the reference: the same loops in double */
    struct loops *exact = loops_copy(b->arena, l);
    for (int i = 0; i < exact->tensors.n; i++) {
        struct loops_tensor t = exact->tensors.at[i];
        if (t.dtype == SOL_F32) t.dtype = SOL_F64;
        loops_set_tensor(exact, i, t);
    }
    if (loops_interpret(ctx, exact, (void *const *)b->exact)) {
        print_error("%s: interpreter: %s\n", e->name, sol_error(ctx));
        fail();
    }
}

/* Memory followed by an inaccessible page. */
struct guarded {
    char *at, *map;
    size_t bytes, mapped;
};
static inline struct guarded guard(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), n = (bytes + page - 1) / page * page;
    char *map = mmap(NULL, n + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(map != MAP_FAILED);
    assert_int_equal(mprotect(map + n, page, PROT_NONE), 0);
    return (struct guarded){map + n - bytes, map, bytes, n + page};
}

static inline void set_element(char *at, enum sol_dtype t, double v)
{
    if (t == SOL_F32)
        *(float *)at = (float)v;
    else
        *(double *)at = v;
}
static inline double get_element(const char *at, enum sol_dtype t)
{
    return t == SOL_F32 ? (double)*(const float *)at : *(const double *)at;
}

static inline int64_t walk_offset(const struct loops_tensor *t, const struct memory *m, int64_t i)
{
    int64_t at = 0;
    for (int d = t->ndim - 1; d >= 0; d--) {
        at += i % t->shape[d] * m->stride[d];
        i /= t->shape[d];
    }
    return at;
}

/* The number of elements before element 0, and of all elements. */
static inline void span(const struct loops_tensor *t, const struct memory *m, int64_t *out_before, int64_t *out_all)
{
    *out_before = 0;
    *out_all = 1;
    for (int d = 0; d < t->ndim; d++) {
        *out_before += m->halo_low[d] * m->stride[d];
        *out_all += (t->shape[d] - 1 + m->halo_low[d] + m->halo_high[d]) * m->stride[d];
    }
}

static inline void zero_halo(char *base, const struct loops_tensor *t, const struct memory *m)
{
    int64_t n = 1;
    for (int d = 0; d < t->ndim; d++) n *= t->shape[d] + m->halo_low[d] + m->halo_high[d];
    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0, rest = i;
        for (int d = t->ndim - 1; d >= 0; d--) {
            const int64_t size = t->shape[d] + m->halo_low[d] + m->halo_high[d];
            at += (rest % size - m->halo_low[d]) * m->stride[d];
            rest /= size;
        }
        set_element(base + at * dtype_def(t->dtype)->bytes, t->dtype, 0);
    }
}

static inline struct guarded place_tensor(const struct bound *b, int i, char **out_base)
{
    const struct loops_tensor *t = &b->c.loops->tensors.at[i];
    const struct memory *m = &b->c.memory[i];
    int64_t before, all;
    span(t, m, &before, &all);
    const int bytes = dtype_def(t->dtype)->bytes;
    struct guarded g = guard((size_t)(all * bytes));
    for (int64_t k = 0; k < all; k++) set_element(g.at + k * bytes, t->dtype, t->role == LOOPS_INPUT ? NAN : -77.25);
    *out_base = g.at + before * bytes;
    if (t->role != LOOPS_INPUT) return g;
    zero_halo(*out_base, t, m);
    for (int64_t k = 0; k < b->elements[i]; k++)
        set_element(*out_base + walk_offset(t, m, k) * bytes, t->dtype, b->exact[i][k]);
    return g;
}

/* Packs an operand with the interpreter. */
static inline struct guarded place_pack(struct sol_ctx *ctx, const struct bound *b, const struct kernel_pack *k)
{
    const struct loops_tensor *from = &k->loops->tensors.at[0], *to = &k->loops->tensors.at[1];
    int64_t n = 1;
    for (int d = 0; d < to->ndim; d++) n *= to->shape[d];
    struct guarded g = guard((size_t)(n * dtype_def(to->dtype)->bytes));
    void *data[16] = {0};
    const int bytes = dtype_def(from->dtype)->bytes;
    data[0] = malloc((size_t)(b->elements[k->tensor] * bytes) + 8);
    for (int64_t i = 0; i < b->elements[k->tensor]; i++)
        set_element((char *)data[0] + i * bytes, from->dtype, b->exact[k->tensor][i]);
    data[1] = g.at;
    if (loops_interpret(ctx, k->loops, data)) {
        print_error("%s: pack: %s\n", b->e->name, sol_error(ctx));
        fail();
    }
    free(data[0]);
    return g;
}

static struct sol_ctx *the_ctx;

#endif
