/* Kernels of problems (dnn_problem.h): compiled into shared objects, run, and compared with the exact results. Every
 * split of the tasks must give the same bits. */
#ifndef SOL_DNN_RUN_H
#define SOL_DNN_RUN_H

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dnn_problem.h"
#include "plan/plan.h"
#include "sol/module.h"

/* -- kernels: all of one compiler and target in one shared object */

struct job {
    const struct bound *b;
    struct kernel k;
    const struct target *target;
    int id;
    const int64_t *sizes; /* of dimensions that vary; NULL: none do */
};
static struct {
    struct job at[600];
    int n;
    void *handle;
    char folder[64];
    int serial; /* numbers the shared objects */
} jobs;

static inline void write_job(const struct job *j)
{
    char path[128];
    struct arena *a = arena_create(the_ctx);
    snprintf(path, sizeof path, "%s/k%d.c", jobs.folder, j->id);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "#include <sol/module.h>\n");
    const struct source_text text = kernel_text(a, j->target, j->k.source);
    fputs(kernel_source(a, &text, arena_printf(a, "KERNEL%d", j->id)), f);
    fclose(f);
    arena_destroy(a);
}

static inline pid_t start_compiler(const char *cc, const struct target *t, int from, int to, int part)
{
    const pid_t pid = fork();
    if (pid) return pid;
    static char text[65536];
    int n = snprintf(text, sizeof text,
                     "%s -O1 -std=gnu11 -Wall -Wextra -Werror -Wno-psabi -Wno-unused-function -march=%s%s -fPIC "
                     "-shared -I" SOURCE_ROOT "/include -o %s/part%d_%d.so",
                     cc, t->march, strstr(cc, "clang") && t->vector_bytes == 64 ? " -mprefer-vector-width=512" : "",
                     jobs.folder, jobs.serial, part);
    for (int i = from; i < to; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, " %s/k%d.c", jobs.folder, jobs.at[i].id);
    snprintf(text + n, sizeof text - (size_t)n, " -lm");
    execl("/bin/sh", "sh", "-c", text, (char *)NULL);
    _exit(127);
}

#define PARTS 2
static void *parts[PARTS];

static inline void compile_jobs(const char *cc, const struct target *t)
{
    pid_t pid[PARTS];
    for (int i = 0; i < jobs.n; i++) write_job(&jobs.at[i]);
    for (int k = 0; k < PARTS; k++) pid[k] = start_compiler(cc, t, jobs.n * k / PARTS, jobs.n * (k + 1) / PARTS, k);
    for (int k = 0; k < PARTS; k++) {
        int status;
        waitpid(pid[k], &status, 0);
        assert_int_equal(status, 0);
        char path[128];
        snprintf(path, sizeof path, "%s/part%d_%d.so", jobs.folder, jobs.serial, k);
        parts[k] = dlopen(path, RTLD_NOW);
        if (!parts[k]) print_error("%s\n", dlerror());
        assert_non_null(parts[k]);
        unlink(path);
    }
}

static inline sol_kernel_fn kernel_function(const struct job *j, int step)
{
    char name[32];
    snprintf(name, sizeof name, "KERNEL%d_%d", j->id, step);
    for (int k = 0; k < PARTS; k++)
        if (dlsym(parts[k], name)) return (sol_kernel_fn)dlsym(parts[k], name);
    fail();
    return NULL;
}

/* -- running and comparing */

static inline int64_t size_of(const struct job *j, int64_t s)
{
    return size_varies(s) ? size_at(s, j->sizes) : s;
}

static inline void run_split(const struct job *j, char *const *p, int pieces)
{
    const int64_t bytes = size_of(j, j->k.scratch_bytes);
    const size_t scratch = (size_t)bytes;
    struct sol_frame f = {.scratch_bytes = bytes, .sizes = j->sizes};
    if (posix_memalign(&f.scratch, 64, scratch * (size_t)pieces + 64)) fail();
    memset(f.scratch, 0xff, scratch * (size_t)pieces); /* NaN */
    for (int s = 0; s < j->k.nstep; s++)
        for (int i = pieces - 1; i >= 0; i--) {
            const int64_t n = size_of(j, j->k.step[s].tasks), a = n * i / pieces, b = n * (i + 1) / pieces;
            if (a < b) kernel_function(j, s)(p, &f, a, b, i);
        }
    free(f.scratch);
}

static inline void check_output(const struct job *j, int i, const char *base, const struct guarded *g)
{
    const struct bound *b = j->b;
    const struct loops_tensor *t = &b->c.loops->tensors.at[i];
    const struct memory *m = &b->c.memory[i];
    const int bytes = dtype_def(t->dtype)->bytes;
    const bool winograd = strstr(j->k.solver, "winograd") != NULL;
    const double limit = t->dtype == SOL_F32 ? (winograd ? 4e-5 : 4e-6) : 1e-13;
    double most = 1;
    char *seen = calloc(g->bytes / (size_t)bytes + 1, 1);
    for (int64_t k = 0; k < b->elements[i]; k++)
        if (!isnan(b->exact[i][k])) most = fmax(most, fabs(b->exact[i][k]));
    for (int64_t k = 0; k < b->elements[i]; k++) {
        const char *at = base + walk_offset(t, m, k) * bytes;
        const double v = get_element(at, t->dtype), e = b->exact[i][k];
        if (isnan(e)) continue; /* no statement writes it */
        seen[(at - g->at) / bytes] = 1;
        if (!(fabs(v - e) <= limit * most)) {
            print_error("%s, %s %s, %s: %s at %lld: %.17g, not %.17g\n", b->e->name, j->k.solver, j->k.variant,
                        j->target->name, t->name, (long long)k, v, e);
            fail();
        }
    }
    for (size_t k = 0; k < g->bytes / (size_t)bytes; k++)
        if (!seen[k] && get_element(g->at + k * (size_t)bytes, t->dtype) != -77.25) {
            print_error("%s, %s %s, %s: wrote outside of %s\n", b->e->name, j->k.solver, j->k.variant, j->target->name,
                        t->name);
            fail();
        }
    free(seen);
}

static inline void run_job(struct sol_ctx *ctx, const struct job *j)
{
    const struct bound *b = j->b;
    struct guarded g[24], first[24] = {0};
    for (int round = 0; round < 2; round++) {
        char *p[24];
        int n = 0, tensor[24];
        for (int i = 0; i < b->ntensor; i++) {
            const int role = b->c.loops->tensors.at[i].role;
            if (role == LOOPS_TEMP || role == LOOPS_TABLE) continue;
            int pack = -1;
            for (int k = 0; k < j->k.npack; k++)
                if (j->k.pack[k].tensor == i) pack = k;
            tensor[n] = i;
            if (pack >= 0) {
                g[n] = place_pack(ctx, b, &j->k.pack[pack]);
                p[n] = g[n].at;
            } else
                g[n] = place_tensor(b, i, &p[n]);
            n++;
        }
        const int operands = n;
        for (int i = 0; i < j->k.nwork; i++, n++) {
            g[n] = guard((size_t)size_of(j, j->k.work_bytes[i]));
            memset(g[n].at, 0xff, g[n].bytes);
            p[n] = g[n].at;
        }
        run_split(j, p, round ? 3 : 1);
        for (int i = 0; i < n; i++) {
            if (i < operands && b->c.loops->tensors.at[tensor[i]].role == LOOPS_OUTPUT) {
                if (!round) {
                    check_output(j, tensor[i], p[i], &g[i]);
                    first[i] = g[i];
                    continue;
                }
                assert_memory_equal(first[i].at, g[i].at, g[i].bytes);
                munmap(first[i].map, first[i].mapped);
            }
            munmap(g[i].map, g[i].mapped);
        }
    }
}

#endif
