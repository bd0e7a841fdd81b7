/* Compiles a random graph, runs it in several ways and compares it with the reference. Shrinks failing graphs. */
#include "random/graphs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define GUARD 64    /* bytes around each buffer that must not be written */
#define SECONDS 100 /* time limit of a graph */
#define MOST_REPORTED 6

static const struct setting settings[] = {
    {"auto", {NULL}, {NULL}, false},
    {"nest", {"solver"}, {"nest"}, false},
    {"v3", {"target"}, {"x86-64-v3"}, false},
    {"v2", {"target"}, {"x86-64-v2"}, false},
    {"v4", {"target"}, {"x86-64-v4"}, false},
    {"dfp", {"solver"}, {"dfp"}, false},
    {"direct", {"solver"}, {"direct"}, false},
    {"matmul", {"solver"}, {"matmul"}, false},
    {"gemv", {"solver"}, {"gemv"}, false},
    {"winograd", {"solver"}, {"winograd"}, false},
    {"bands", {"bands"}, {"always"}, false},
    {"nobands", {"bands"}, {"off"}, false},
    {"v3bands", {"bands", "target"}, {"always", "x86-64-v3"}, false},
    {"high", {"precision"}, {"high"}, false},
    {"clang", {"compiler::name"}, {"clang"}, false},
    {"joint", {NULL}, {NULL}, true},
    {"jointbands", {"bands"}, {"always"}, true},
};

const struct setting *setting_named(const char *name)
{
    for (int i = 0; i < COUNT_OF(settings); i++)
        if (!strcmp(settings[i].name, name)) return &settings[i];
    return NULL;
}

static sol_status set(struct sol_ctx *ctx, const struct setting *s, bool on)
{
    for (int i = 0; i < 4 && s->key[i]; i++) {
        const char *usual = NULL;
        for (int k = 0; !on; k++) {
            const char *value, *doc, *key = sol_config_key(k, &value, &doc);
            if (!key) break;
            if (!strcmp(key, s->key[i])) usual = value;
        }
        TRY(sol_config_set(ctx, s->key[i], on ? s->value[i] : usual));
    }
    return SOL_OK;
}

/* -- buffers with guards */

static size_t bytes_of(const struct value *v)
{
    return (size_t)v->elements * dtype_def(v->t->dtype)->bytes;
}

static char *guarded(struct arena *a, size_t bytes)
{
    char *p = arena_alloc(a, bytes + 2 * GUARD);
    memset(p, 0xa5, bytes + 2 * GUARD);
    return p + GUARD;
}

static bool guards_hold(const char *p, size_t bytes)
{
    for (int i = 0; i < GUARD; i++)
        if ((unsigned char)p[-1 - i] != 0xa5 || (unsigned char)p[bytes + (size_t)i] != 0xa5) return false;
    return true;
}

/* The reference data in the type of the graph. `other`: other numbers that serve equally well. */
static char *typed(struct arena *a, const struct value *v, bool other)
{
    char *data = guarded(a, bytes_of(v));
    for (int64_t i = 0; i < v->elements; i++) {
        double x =
            gen_element(v->wide->dtype, v->x, other && dtype_def(v->t->dtype)->is_float ? v->elements - 1 - i : i);
        int64_t k = v->wide->dtype == SOL_I64          ? ((const int64_t *)v->x)[i]
                    : dtype_def(v->t->dtype)->is_float ? 0
                                                       : (int64_t)x;
        gen_store(v->t->dtype, data, i, x, k);
    }
    return data;
}

/* -- comparing */

static const char *difference(struct arena *a, const struct value *v, const char *got, const void *want)
{
    bool real = dtype_def(v->t->dtype)->is_float;
    for (int64_t i = 0; i < v->elements; i++) {
        double x = gen_element(v->wide->dtype, want, i), y = gen_element(v->t->dtype, got, i);
        bool same = x == y || (isnan(x) && isnan(y)) || (real && fabs(x - y) <= v->tolerance);
        if (!real && v->t->dtype == SOL_I64)
            same = ((const int64_t *)want)[i] == ((const int64_t *)(const void *)got)[i];
        if (same) continue;
        int64_t bad = 0;
        for (int64_t k = i; k < v->elements; k++) {
            x = gen_element(v->wide->dtype, want, k), y = gen_element(v->t->dtype, got, k);
            bad += !(x == y || (isnan(x) && isnan(y)) || (real && fabs(x - y) <= v->tolerance));
        }
        return arena_printf(a, "element %lld of %lld is %.9g, expected %.9g within %.3g; %lld differ", (long long)i,
                            (long long)v->elements, gen_element(v->t->dtype, got, i),
                            gen_element(v->wide->dtype, want, i), v->tolerance, (long long)bad);
    }
    return NULL;
}

/* -- running */

struct run {
    struct gen *r;
    struct arena *a;
    struct sol_net *net;
    struct sol_params *bound;               /* param_data */
    struct value **in, **params, **outputs; /* in the order of the graph */
    char **in_data, **param_data, **out;
    const void **want; /* of outputs */
    const char *why;
    struct value *bad;
    bool joint;
};

static struct value **values_of(struct arena *a, const struct gen *r, int n, struct sol_tensor *const *tensors)
{
    struct value **v = NEW_ARRAY(a, struct value *, n + 1);
    for (int i = 0; i < n; i++) v[i] = gen_value(r, tensors[i]);
    return v;
}

static bool fail(struct run *k, const char *why, struct value *bad)
{
    k->why = why;
    k->bad = bad;
    return false;
}

static bool backward_output(int i)
{
    return i % 2 == 0;
}

/* Runs forward and backward, each with the pointers that it may use. */
static sol_status run_joint(struct run *k, int threads, char **out)
{
    const struct sol_graph *g = k->r->g;
    const void **in = NEW_ARRAY(k->a, const void *, g->inputs.n + 1);
    void **half = NEW_ARRAY(k->a, void *, g->outputs.n + 1);
    struct sol_saved *saved;
    for (int i = 0; i < g->outputs.n; i++) half[i] = backward_output(i) ? NULL : out[i];
    TRY(sol_net_forward(k->net, k->bound, (const void *const *)k->in_data, half, threads, &saved));
    for (int i = 0; i < g->inputs.n; i++) in[i] = sol_net_backward_reads(k->net, 0, i) ? k->in_data[i] : NULL;
    for (int i = 0; i < g->outputs.n; i++)
        half[i] = backward_output(i) || sol_net_backward_reads(k->net, 1, i) ? out[i] : NULL;
    sol_status status = sol_net_backward(k->net, k->bound, saved,
                                         &(struct sol_backward){.inputs = in, .outputs = half, .threads = threads});
    sol_saved_destroy(saved);
    return status;
}

static bool run_net(struct run *k, int threads, char **out)
{
    const struct sol_graph *g = k->r->g;
    for (int i = 0; i < g->outputs.n; i++) memset(out[i], 0x5a, bytes_of(k->outputs[i]));
    if (k->joint ? run_joint(k, threads, out)
                 : sol_net_run(k->net, k->bound, (const void *const *)k->in_data, (void *const *)out, threads))
        return fail(k, arena_printf(k->a, "running: %s", sol_error(k->r->ctx)), NULL);
    for (int i = 0; i < g->outputs.n; i++)
        if (!guards_hold(out[i], bytes_of(k->outputs[i]))) return fail(k, "writes outside of an output", k->outputs[i]);
    return true;
}

/* The difference in the first outputs that differ. */
static bool compare(struct run *k, const char *when)
{
    int found = 0;
    for (int i = 0; i < k->r->g->outputs.n && found < MOST_REPORTED; i++) {
        const char *why = difference(k->a, k->outputs[i], k->out[i], k->want[i]);
        if (!why) continue;
        const struct sol_layer *from = k->outputs[i]->t->from;
        if (found++)
            k->why = arena_printf(k->a, "%s\n    also %s %s: %s", k->why, from ? from->def->name : "",
                                  from ? from->name : "", why);
        else
            fail(k, arena_printf(k->a, "%s%s", when, why), k->outputs[i]);
    }
    return !found;
}

/* Three threads must give the same bits. */
static bool same_bits(struct run *k)
{
    int n = k->r->g->outputs.n;
    char **again = NEW_ARRAY(k->a, char *, n + 1);
    for (int i = 0; i < n; i++) again[i] = guarded(k->a, bytes_of(k->outputs[i]));
    if (!run_net(k, 3, again)) return false;
    for (int i = 0; i < n; i++)
        if (memcmp(again[i], k->out[i], bytes_of(k->outputs[i])))
            return fail(k, "other bits with three threads", k->outputs[i]);
    return true;
}

/* Changes the values of one parameter: what depends on it must be prepared again. Index parameters do not change. */
static bool change_parameter(struct run *k, int number)
{
    struct gen *r = k->r;
    struct value *p = k->params[number];
    const void **in = NEW_ARRAY(k->a, const void *, r->wide->inputs.n + 1),
               **params = NEW_ARRAY(k->a, const void *, r->wide->params.n + 1);
    void **out = NEW_ARRAY(k->a, void *, r->wide->outputs.n + 1);
    for (int i = 0; i < r->wide->inputs.n; i++) in[i] = k->in[i]->x;
    for (int i = 0; i < r->wide->params.n; i++) params[i] = k->params[i]->x;
    double *other = NEW_ARRAY(k->a, double, p->elements + 1);
    for (int64_t i = 0; i < p->elements; i++) other[i] = ((const double *)p->x)[p->elements - 1 - i];
    params[number] = other;
    for (int i = 0; i < r->wide->outputs.n; i++) out[i] = arena_alloc(k->a, (size_t)k->outputs[i]->elements * 8 + 8);
    if (graph_interpret(r->wide, in, params, out)) return true; /* another index is out of range */
    for (int i = 0; i < r->wide->outputs.n; i++) {
        const struct value *v = k->outputs[i];
        double scale = 0;
        for (int64_t e = 0; e < v->elements; e++) {
            double x = gen_element(v->wide->dtype, out[i], e);
            if (isfinite(x)) scale = fmax(scale, fabs(x));
        }
        if (scale > 3 * v->scale + 1 || v->special) return true; /* the tolerance would not fit any more */
        k->want[i] = out[i];
    }
    if (sol_params_set(k->bound, number, typed(k->a, p, true))) return fail(k, "sol_params_set", NULL);
    if (!run_net(k, 1, k->out)) return false;
    for (int i = 0; i < r->wide->outputs.n; i++) { /* NaN in other places, or other sides of jumps: not comparable */
        const struct value *v = k->outputs[i];
        if (!dtype_def(v->t->dtype)->is_float || v->exact) continue;
        struct value loose = *v;
        loose.tolerance = 30 * v->tolerance;
        const char *why = difference(k->a, &loose, k->out[i], k->want[i]);
        if (why) return fail(k, arena_printf(k->a, "with parameter %d changed: %s", number, why), k->outputs[i]);
    }
    return true;
}

static bool prepare_run(struct run *k)
{
    struct gen *r = k->r;
    const struct sol_graph *g = r->g;
    k->in = values_of(k->a, r, g->inputs.n, g->inputs.at);
    k->params = values_of(k->a, r, g->params.n, g->params.at);
    k->outputs = NEW_ARRAY(k->a, struct value *, g->outputs.n + 1);
    k->out = NEW_ARRAY(k->a, char *, g->outputs.n + 1);
    k->want = NEW_ARRAY(k->a, const void *, g->outputs.n + 1);
    k->in_data = NEW_ARRAY(k->a, char *, g->inputs.n + 1);
    k->param_data = NEW_ARRAY(k->a, char *, g->params.n + 1);
    for (int i = 0; i < g->outputs.n; i++) {
        k->outputs[i] = gen_value(r, g->outputs.at[i].t);
        k->out[i] = guarded(k->a, bytes_of(k->outputs[i]));
        k->want[i] = k->outputs[i]->x;
    }
    if (sol_params_create(k->net, &k->bound)) return fail(k, "sol_params_create", NULL);
    for (int i = 0; i < g->params.n; i++) {
        k->param_data[i] = typed(k->a, k->params[i], false);
        if (sol_params_set(k->bound, i, k->param_data[i])) return fail(k, "sol_params_set", NULL);
    }
    return true;
}

static bool run_and_compare(struct run *k)
{
    const struct sol_graph *g = k->r->g;
    if (!prepare_run(k)) return false;
    for (int i = 0; i < g->inputs.n; i++) k->in_data[i] = typed(k->a, k->in[i], true);
    if (!run_net(k, 2, k->out)) return false; /* leaves other numbers in the workspace */
    for (int i = 0; i < g->inputs.n; i++) k->in_data[i] = typed(k->a, k->in[i], false);
    if (!run_net(k, 1, k->out) || !compare(k, "") || !same_bits(k)) return false;
    for (int i = 0; i < g->inputs.n; i++) {
        char *clean = typed(k->a, k->in[i], false);
        if (memcmp(clean - GUARD, k->in_data[i] - GUARD, bytes_of(k->in[i]) + 2 * GUARD))
            return fail(k, "writes to an input", k->in[i]);
    }
    int tried = 0;
    for (int i = 0; i < g->params.n && tried < 2; i++) {
        int number = (int)((unsigned)(i * 7 + g->nlayers) % (unsigned)g->params.n);
        const struct value *p = k->params[number];
        if (!dtype_def(p->t->dtype)->is_float || p->elements < 2) continue;
        tried++;
        if (!change_parameter(k, number)) return false;
        if (sol_params_set(k->bound, number, k->param_data[number])) return fail(k, "sol_params_set", NULL);
        for (int o = 0; o < g->outputs.n; o++) k->want[o] = k->outputs[o]->x;
    }
    return !tried || (run_net(k, 2, k->out) && compare(k, "with parameters changed and changed back: "));
}

bool check_graph(struct gen *r, const struct setting *s, const char **out_why, struct value **out_bad)
{
    char *text;
    struct sol_graph *g;
    struct run k = {.r = r, .a = r->a, .joint = s->joint};
    bool good = false;
    if (sol_graph_print(r->g, &text) || sol_graph_parse(r->ctx, text, &g)) {
        *out_why = sol_error(r->ctx);
        return false;
    }
    sol_free(r->ctx, text);
    for (int i = 0; s->joint && i < g->outputs.n; i++) g->outputs.at[i].backward = backward_output(i);
    if (set(r->ctx, s, true) || sol_compile(r->ctx, g, &k.net))
        k.why = arena_printf(r->a, "compiling: %s", sol_error(r->ctx));
    else
        good = run_and_compare(&k);
    set(r->ctx, s, false);
    sol_params_destroy(k.bound);
    sol_net_destroy(k.net);
    sol_graph_destroy(g);
    *out_why = k.why;
    *out_bad = k.bad;
    return good;
}

/* -- shrinking */

/* In its own process, because it may crash. */
static bool fails(struct gen *r, const struct setting *s)
{
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        const char *why;
        struct value *bad;
        if (!freopen("/dev/null", "w", stderr)) _exit(0);
        alarm(SECONDS);
        _exit(check_graph(r, s, &why, &bad) ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return status != 0;
}

static int size_of_graph(const struct gen *r)
{
    int n = r->g->outputs.n + r->g->inputs.n;
    for (const struct sol_layer *l = r->g->first; l; l = l->next) n += 1000;
    return n;
}

/* Replaces *r by `next` if that is smaller and still fails. */
static bool adopt(struct gen **r, struct gen *next, const struct setting *s)
{
    if (!next || size_of_graph(next) >= size_of_graph(*r) || !fails(next, s)) {
        gen_destroy(next);
        return false;
    }
    *r = next; /* the old graph stays, because its values may be in use */
    return true;
}

static int outputs_of(const struct gen *r, struct value **out)
{
    int n = 0;
    for (int i = 0; i < r->g->outputs.n; i++) out[n++] = gen_value(r, r->g->outputs.at[i].t);
    return n;
}

/* Keeps one output, or half of them. */
static bool drop_outputs(struct gen **r, const struct setting *s)
{
    int n = (*r)->g->outputs.n;
    struct value **out = NEW_ARRAY((*r)->a, struct value *, n + 1);
    outputs_of(*r, out);
    if (n < 2) return false;
    int half = n / 2;
    if (adopt(r, gen_copy(*r, half, out, 0, NULL), s)) return true;
    if (adopt(r, gen_copy(*r, n - half, out + half, 0, NULL), s)) return true;
    for (int i = 0; n > 3 && i < n; i++)
        if (adopt(r, gen_copy(*r, 1, &out[i], 0, NULL), s)) return true;
    for (int i = 0; n <= 12 && i < n; i++) {
        struct value *last = out[n - 1];
        out[n - 1] = out[i], out[i] = last;
        if (adopt(r, gen_copy(*r, n - 1, out, 0, NULL), s)) return true;
    }
    return false;
}

/* Removes what is before a tensor, which becomes an input. */
static bool cut_before(struct gen **r, const struct setting *s)
{
    struct value **out = NEW_ARRAY((*r)->a, struct value *, (*r)->g->outputs.n + 1);
    int n = outputs_of(*r, out);
    for (int i = (*r)->values.n - 1; i >= 0; i--) {
        struct value *v = (*r)->values.at[i];
        if (v->t->role != TENSOR_VALUE || v->output) continue;
        if (adopt(r, gen_copy(*r, n, out, 1, &v), s)) return true;
    }
    return false;
}

/* Removes what is after: the inputs of an output's layer become outputs. */
static bool cut_behind(struct gen **r, const struct setting *s)
{
    struct value **out = NEW_ARRAY((*r)->a, struct value *, (*r)->g->outputs.n + 70);
    int n = outputs_of(*r, out);
    for (int i = 0; i < n; i++) {
        const struct sol_layer *l = out[i]->t->from;
        struct value *was = out[i];
        for (int k = 0; l && k < l->nin; k++) {
            struct value *in = l->in[k] ? gen_value(*r, l->in[k]) : NULL;
            if (!in || in->t->role != TENSOR_VALUE || in->output) continue;
            out[i] = in;
            if (adopt(r, gen_copy(*r, n, out, 0, NULL), s)) return true;
            out[i] = was;
        }
    }
    return false;
}

static void print_data(FILE *out, const struct value *v)
{
    if (v->elements > 64) return;
    fprintf(out, "#   %%%d:", v->t->id);
    for (int64_t i = 0; i < v->elements; i++) fprintf(out, " %.9g", gen_element(v->wide->dtype, v->x, i));
    fprintf(out, "\n");
}

int check_number(const struct gen *r, const struct value *v)
{
    for (int i = 0; v && i < r->g->outputs.n; i++)
        if (r->g->outputs.at[i].t == v->t) return i;
    return -1;
}

/* Keeps the wrong output, alone or with the outputs of its sub-graph. */
static bool keep_near(struct gen **r, const struct setting *s, int output)
{
    const int n = (*r)->g->outputs.n;
    struct value **out = NEW_ARRAY((*r)->a, struct value *, n + 1);
    outputs_of(*r, out);
    for (int far = 0; output >= 0 && far < 16 && far < n; far = 2 * far + 1) {
        const int low = MAX(output - far, 0), high = MIN(output + far, n - 1);
        if (adopt(r, gen_copy(*r, high - low + 1, out + low, 0, NULL), s)) return true;
    }
    return false;
}

void check_shrink(struct gen *r, const struct setting *s, int output, FILE *out)
{
    bool smaller = keep_near(&r, s, output) || fails(r, s);
    if (!smaller) {
        fprintf(out, "# it does not fail a second time: --print shows the whole graph\n");
        return;
    }
    while (smaller) smaller = drop_outputs(&r, s) || cut_before(&r, s) || cut_behind(&r, s);
    char *text;
    const char *why = "it crashes or hangs";
    struct value *bad = NULL;
    fflush(out);
    pid_t child = fork();
    if (!child) {
        alarm(SECONDS);
        if (!check_graph(r, s, &why, &bad)) fprintf(out, "# %s\n", why);
        fflush(out);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status) fprintf(out, "# %s\n", why);
    if (sol_graph_print(r->g, &text)) return;
    fputs(text, out);
    for (int i = 0; i < r->values.n; i++)
        if (r->values.at[i]->t->role != TENSOR_VALUE) print_data(out, r->values.at[i]);
    fflush(out);
}
