/* Measures the contraction kernels in GFLOP/s, one thread, one layer after the other, and compares them with the FMA
 * peak of the core.
 *
 *   kernels [-t target] [-s solver] [-v] [-k seconds] [-o folder] [-n variants] [-e MiB] [name ...]
 *
 * For every layer, the cheapest variants of each solver are compiled and timed. Each row also shows the time that the
 * cost model predicts. Buffers are the same in each run (hot); with -e, that much other memory is read before each run,
 * so weights are as cold as in a network. This is not a test: results are not checked. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "dnn/dnn.h"
#include "sol/module.h"

struct layer {
    const char *name;
    int n, ic, h, w, oc, k, s, p, g;
};
static const struct layer layers[] = {
    {"stem7x7s2_3_64_224", 1, 3, 224, 224, 64, 7, 2, 3, 1},
    {"1x1_64_64_56", 1, 64, 56, 56, 64, 1, 1, 0, 1},
    {"1x1_64_256_56", 1, 64, 56, 56, 256, 1, 1, 0, 1},
    {"1x1_256_64_56", 1, 256, 56, 56, 64, 1, 1, 0, 1},
    {"1x1_128_512_28", 1, 128, 28, 28, 512, 1, 1, 0, 1},
    {"1x1_512_128_28", 1, 512, 28, 28, 128, 1, 1, 0, 1},
    {"1x1_256_1024_14", 1, 256, 14, 14, 1024, 1, 1, 0, 1},
    {"1x1_1024_256_14", 1, 1024, 14, 14, 256, 1, 1, 0, 1},
    {"1x1_512_2048_7", 1, 512, 7, 7, 2048, 1, 1, 0, 1},
    {"1x1_2048_512_7", 1, 2048, 7, 7, 512, 1, 1, 0, 1},
    {"1x1s2_256_512_56", 1, 256, 56, 56, 512, 1, 2, 0, 1},
    {"3x3_64_56", 1, 64, 56, 56, 64, 3, 1, 1, 1},
    {"3x3_128_28", 1, 128, 28, 28, 128, 3, 1, 1, 1},
    {"3x3_256_14", 1, 256, 14, 14, 256, 3, 1, 1, 1},
    {"3x3_512_7", 1, 512, 7, 7, 512, 3, 1, 1, 1},
    {"3x3s2_128_56", 1, 128, 56, 56, 128, 3, 2, 1, 1},
    {"3x3s2_256_28", 1, 256, 28, 28, 256, 3, 2, 1, 1},
    {"3x3s2_512_14", 1, 512, 14, 14, 512, 3, 2, 1, 1},
    {"vgg_3_64_224", 1, 3, 224, 224, 64, 3, 1, 1, 1},
    {"vgg_64_64_224", 1, 64, 224, 224, 64, 3, 1, 1, 1},
    {"vgg_128_128_112", 1, 128, 112, 112, 128, 3, 1, 1, 1},
    {"vgg_256_256_56", 1, 256, 56, 56, 256, 3, 1, 1, 1},
    {"vgg_512_512_28", 1, 512, 28, 28, 512, 3, 1, 1, 1},
    {"vgg_512_512_14", 1, 512, 14, 14, 512, 3, 1, 1, 1},
    {"mb2_1x1_24_144_56", 1, 24, 56, 56, 144, 1, 1, 0, 1},
    {"mb2_1x1_96_576_14", 1, 96, 14, 14, 576, 1, 1, 0, 1},
    {"mb2_1x1_960_320_7", 1, 960, 7, 7, 320, 1, 1, 0, 1},
    {"resnext_g32_4_56", 1, 128, 56, 56, 128, 3, 1, 1, 32},
    {"resnext_g32_8_28", 1, 256, 28, 28, 256, 3, 1, 1, 32},
    {"resnext_g32_16_14", 1, 512, 14, 14, 512, 3, 1, 1, 32},
    {"resnext_g32_32_7", 1, 1024, 7, 7, 1024, 3, 1, 1, 32},
    {"bert_768_768_128", 1, 768, 128, 1, 768, 1, 1, 0, 1},
    {"bert_768_3072_128", 1, 768, 128, 1, 3072, 1, 1, 0, 1},
    {"bert_3072_768_128", 1, 3072, 128, 1, 768, 1, 1, 0, 1},
    {"linear_2048_1000", 1, 2048, 1, 1, 1000, 1, 1, 0, 1},
    {"linear_4096_4096", 1, 4096, 1, 1, 4096, 1, 1, 0, 1},
};

struct options {
    const char *target, *solver, *folder;
    bool verbose, nchw, halo;
    double seconds;
    int top, evict;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* -- the layer as a cluster: convolution + bias + ReLU, channels last */

static const char *const row_text =
    "x[N I Q..] w[O J K..] b[O] -> y[N O P..] -> t[N O P..] "
    "| #G=g; #C=#O//g; #O=#C*#G; #I=#J*#G; #P=(#Q+2*p-#K)//s+1 | | "
    "t[N G*#C+C P] = (sum[J K] x[N G*#J+J s*P+K-p]:0 * w[G*#C+C J K]) + b[G*#C+C]; y[N O P] = relu(t[N O P])";

static sol_status make_cluster(struct arena *a, const struct layer *l, const struct options *o, struct cluster *out)
{
    struct opdef *r;
    const int64_t x[] = {l->n, l->ic, l->h, l->w}, w[] = {l->oc, l->ic / l->g, l->k, l->k}, b[] = {l->oc};
    if (l->w == 1) return SOL_ERR_UNSUPPORTED;
    const struct opdef_input in[] = {{SOL_F32, 4, x, false}, {SOL_F32, 4, w, false}, {SOL_F32, 1, b, false}};
    int64_t s[] = {l->s}, p[] = {l->p}, g[] = {l->g};
    struct opdef_attr attr[] = {{.name = "s", .kind = ATTR_INT, .n = -1, .ints = s},
                                {.name = "p", .kind = ATTR_INT, .n = -1, .ints = p},
                                {.name = "g", .kind = ATTR_INT, .n = -1, .ints = g}};
    const struct attrs attrs = {3, attr};
    TRY(opdef_parse(a, "conv", row_text, &r));
    TRY(opdef_bind(a, r, 3, in, &attrs, &out->loops));
    out->memory = NEW_ARRAY(a, struct memory, out->loops->tensors.n);
    for (int i = 0; i < out->loops->tensors.n; i++) {
        const struct loops_tensor *t = &out->loops->tensors.at[i];
        struct memory *m = &out->memory[i];
        const bool pixels = (i == 0 && !o->nchw) || i == 3;
        const int halo = i == 0 && o->halo ? l->p : 0;
        m->align = 64;
        m->constant = i == 1 || i == 2;
        int64_t n = 1;
        if (pixels) {
            m->stride[1] = 1;
            m->stride[3] = t->shape[1];
            m->stride[2] = t->shape[1] * (t->shape[3] + 2 * halo);
            m->stride[0] = m->stride[2] * (t->shape[2] + 2 * halo);
            for (int d = 2; d < 4; d++) m->halo_low[d] = m->halo_high[d] = halo;
        } else
            for (int d = t->ndim - 1; d >= 0; n *= t->shape[d--]) m->stride[d] = n;
    }
    return SOL_OK;
}

static sol_status make_linear(struct arena *a, const struct layer *l, struct cluster *out)
{
    struct opdef *r;
    const int64_t x[] = {l->h, l->ic}, w[] = {l->oc, l->ic}, b[] = {l->oc};
    const struct opdef_input in[] = {{SOL_F32, 2, x, false}, {SOL_F32, 2, w, false}, {SOL_F32, 1, b, false}};
    const struct attrs none = {0, NULL};
    TRY(opdef_parse(
        a, "linear",
        "x[A I] w[O I] b[O] -> y[A O] | | | t[A O] = (sum[I] x[A I] * w[O I]) + b[O]; y[A O] = relu(t[A O])", &r));
    TRY(opdef_bind(a, r, 3, in, &none, &out->loops));
    out->memory = NEW_ARRAY(a, struct memory, out->loops->tensors.n);
    for (int i = 0; i < out->loops->tensors.n; i++) {
        const struct loops_tensor *t = &out->loops->tensors.at[i];
        struct memory *m = &out->memory[i];
        m->align = 64;
        m->constant = i == 1 || i == 2;
        int64_t n = 1;
        for (int d = t->ndim - 1; d >= 0; n *= t->shape[d--]) m->stride[d] = n;
    }
    return SOL_OK;
}

/* -- running */

static char *filled(size_t bytes)
{
    char *p = NULL;
    bytes = (bytes + 4095) / 4096 * 4096;
    if (posix_memalign((void **)&p, 4096, bytes)) exit(1);
    uint32_t r = 1;
    for (size_t i = 0; i + 4 <= bytes; i += 4) {
        r = r * 1664525u + 1013904223u;
        const float v = (float)(r >> 8) / (1 << 24) - 0.5f;
        memcpy(p + i, &v, 4);
    }
    return p;
}

static size_t extent(const struct loops_tensor *t, const struct memory *m, size_t *out_before)
{
    int64_t n = 1, before = 0;
    for (int d = 0; d < t->ndim; d++) {
        n += (t->shape[d] - 1 + m->halo_high[d]) * m->stride[d];
        before += m->halo_low[d] * m->stride[d];
    }
    *out_before = (size_t)before * dtype_def(t->dtype)->bytes;
    return (size_t)(n + before) * dtype_def(t->dtype)->bytes;
}

static void *compile(const struct options *o, const struct target *t, const char *source, int id)
{
    char c[512], so[512], command[2048];
    snprintf(c, sizeof c, "%s/kernel%d.c", o->folder, id);
    snprintf(so, sizeof so, "%s/kernel%d_%d.so", o->folder, id, (int)getpid());
    FILE *f = fopen(c, "w");
    if (!f) return NULL;
    fprintf(f, "#include <sol/module.h>\n#pragma GCC visibility push(default)\n%s", source);
    fclose(f);
    const char *cc = getenv("CC") ? getenv("CC") : "gcc", *flags = getenv("KFLAGS") ? getenv("KFLAGS") : "";
    snprintf(command, sizeof command,
             "%s -std=gnu11 -O3 -fPIC -ffp-contract=fast -fno-math-errno -fno-trapping-math -fvisibility=hidden "
             "-fno-strict-aliasing %s -march=%s %s %s -w -shared -I%.*s../include %s -o %s -lm",
             cc, strstr(cc, "clang") ? "" : "-fno-predictive-commoning", t->march,
             t->vector_bytes == 64 ? "-mprefer-vector-width=512" : "", flags,
             (int)(sizeof __FILE__ - sizeof "kernels.c"), __FILE__, c, so);
    if (system(command)) return NULL;
    void *handle = dlopen(so, RTLD_NOW);
    unlink(so);
    return handle;
}

static double time_kernel(const struct options *o, const struct target *t, const struct cluster *c,
                          const struct kernel *k, int id, double *out_least)
{
    const struct source_text text = kernel_text(c->loops->arena, t, k->source);
    void *handle = compile(o, t, kernel_source(c->loops->arena, &text, "KERNEL"), id);
    if (!handle) return NAN;
    char *p[32], *whole[32];
    int n = 0;
    for (int i = 0; i < c->loops->tensors.n; i++) {
        const struct loops_tensor *lt = &c->loops->tensors.at[i];
        if (lt->role == LOOPS_TEMP || lt->role == LOOPS_TABLE) continue;
        size_t before, bytes = extent(lt, &c->memory[i], &before);
        for (int q = 0; q < k->npack; q++)
            if (k->pack[q].tensor == i) {
                const struct loops_tensor *packed = &k->pack[q].loops->tensors.at[1];
                bytes = dtype_def(packed->dtype)->bytes;
                before = 0;
                for (int d = 0; d < packed->ndim; d++) bytes *= (size_t)packed->shape[d];
            }
        whole[n] = filled(bytes + 4096);
        p[n] = whole[n] + before;
        n++;
    }
    for (int i = 0; i < k->nwork; i++, n++) p[n] = whole[n] = filled((size_t)k->work_bytes[i]);
    struct sol_frame f = {
        .base = NULL, .scratch = filled((size_t)k->scratch_bytes + 4096), .scratch_bytes = k->scratch_bytes};
    const size_t other = (size_t)o->evict << 20;
    char *evicting = filled(other + 1);
    double times[2000], start = now();
    int runs = 0;
    do {
        for (size_t i = 0; i < other; i += 64) *(volatile char *)(evicting + i);
        const double begin = now();
        for (int s = 0; s < k->nstep; s++) {
            char name[32];
            snprintf(name, sizeof name, "KERNEL_%d", s);
            sol_kernel_fn run = (sol_kernel_fn)dlsym(handle, name);
            if (!run) exit(1);
            run(p, &f, 0, k->step[s].tasks, 0);
        }
        times[runs++] = now() - begin;
    } while (runs < 2000 && (runs < 5 || now() - start < o->seconds));
    for (int i = 1; i < runs; i++)
        for (int q = i; q > 0 && times[q] < times[q - 1]; q--) {
            const double v = times[q];
            times[q] = times[q - 1];
            times[q - 1] = v;
        }
    for (int i = 0; i < n; i++) free(whole[i]);
    free(f.scratch);
    free(evicting);
    dlclose(handle);
    *out_least = times[0];
    return times[runs / 2];
}

static double flops(const struct layer *l)
{
    const double oh = (l->h + 2 * l->p - l->k) / l->s + 1, ow = l->w == 1 ? 1 : (l->w + 2 * l->p - l->k) / l->s + 1;
    return 2.0 * l->n * oh * ow * l->oc * l->ic / l->g * l->k * l->k;
}

static void bench_layer(struct sol_ctx *ctx, const struct options *o, const struct target *t, const struct layer *l)
{
    struct arena *a = arena_create(ctx);
    struct cluster c = {0};
    if (l->w == 1 ? make_linear(a, l, &c) : make_cluster(a, l, o, &c)) {
        fprintf(stderr, "%s: %s\n", l->name, sol_error(ctx));
        exit(1);
    }
    const struct solver_context sc = {.arena = a, .target = t};
    for (int s = 0; dnn_solvers[s]; s++) {
        const char *why = "";
        if (o->solver && strcmp(o->solver, dnn_solvers[s]->name)) continue;
        if (!dnn_solvers[s]->applicable(&sc, &c, &why)) {
            if (o->verbose) printf("%-20s %-9s no: %s\n", l->name, dnn_solvers[s]->name, why);
            continue;
        }
        struct variant v[SOLVER_MAX_VARIANTS] = {0};
        const int n = dnn_solvers[s]->variants(&sc, &c, v);
        for (int i = 0; i < n && i < o->top; i++) {
            struct kernel k = {0};
            if (dnn_solvers[s]->emit(&sc, &c, &v[i], &k)) {
                printf("%-20s %-9s %s\n", l->name, dnn_solvers[s]->name, sol_error(ctx));
                continue;
            }
            double least = NAN;
            const double seconds = time_kernel(o, t, &c, &k, i, &least);
            printf(
                "%-20s %-9s %-28s %8.1f us %7.1f GFLOP/s  least %8.1f us %7.1f GFLOP/s  (model %8.1f us)  %lld tasks\n",
                l->name, dnn_solvers[s]->name, k.variant, seconds * 1e6, flops(l) / seconds / 1e9, least * 1e6,
                flops(l) / least / 1e9, v[i].cost / 1e3, (long long)k.step[0].tasks);
            fflush(stdout);
        }
    }
    arena_destroy(a);
}

int main(int argc, char **argv)
{
    struct options o = {.target = "native", .folder = "/tmp", .seconds = 0.2, .top = 1, .halo = false};
    int opt;
    while ((opt = getopt(argc, argv, "t:s:vk:o:n:e:ch")) > 0) {
        if (opt == 't') o.target = optarg;
        if (opt == 's') o.solver = optarg;
        if (opt == 'v') o.verbose = true;
        if (opt == 'k') o.seconds = atof(optarg);
        if (opt == 'o') o.folder = optarg;
        if (opt == 'n') o.top = atoi(optarg);
        if (opt == 'e') o.evict = atoi(optarg);
        if (opt == 'c') o.nchw = true;
        if (opt == 'h') o.halo = true;
    }
    struct sol_ctx *ctx;
    struct target t;
    if (sol_ctx_create(NULL, &ctx) || target_named(ctx, o.target, &t)) return 1;
    t.l2_rate /= t.cores;
    t.cores = 1;
    for (int i = 0; i < COUNT_OF(layers); i++) {
        bool wanted = optind == argc;
        for (int k = optind; k < argc; k++) wanted |= strstr(layers[i].name, argv[k]) != NULL;
        if (wanted) bench_layer(ctx, &o, &t, &layers[i]);
    }
    sol_ctx_destroy(ctx);
    return 0;
}
