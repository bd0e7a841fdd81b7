/* Contraction kernels compared with the interpreter in double: every problem of a table with every solver that applies,
 * for vectors of 4, 8 and 16 lanes, gcc and clang. Memory between and around a tensor's elements is NaN (inputs) or a
 * mark (outputs), and ends at an inaccessible page. Every split of the tasks must give the same bits. */
#include "dnn_run.h"
#include "slow_build.h"

/* -- the tests */

static struct bound bounds[COUNT_OF(examples)];

/* An example with its data and results, which are computed once. */
static const struct bound *bound_example(int i)
{
    if (!bounds[i].arena) bind(&bounds[i], the_ctx, &examples[i]);
    return &bounds[i];
}

/* Adds one variant of each solver; which one differs between examples. */
static void add_jobs(const struct bound *b, const struct target *t)
{
    struct target host; /* other libraries run on this machine only */
    target_host(&host);
    const struct solver_context sc = {.arena = b->arena,
                                      .target = t,
                                      .training = (b - bounds) & 1 && !b->e->inference,
                                      .plugins = t->device != host.device ? NULL : plugins_load(the_ctx, b->arena)};
    bool found = false;
    for (int s = 0; solvers[s]; s++) {
        if (!solvers[s]->blocks || solvers[s]->lanes == FOR_ITEMS) continue; /* other tests cover these */
        const char *why = "";
        /* other solvers only for every third problem */
        if (strcmp(solvers[s]->name, b->e->must) && (b - bounds) % 3) continue;
        if (!solvers[s]->applicable(&sc, &b->c, &why)) {
            if (!strcmp(solvers[s]->name, b->e->must)) print_error("%s: %s\n", b->e->name, why);
            continue;
        }
        found |= !strcmp(solvers[s]->name, b->e->must);
        struct variant v[SOLVER_MAX_VARIANTS];
        memset(v, 0, sizeof v);
        const int n = solvers[s]->variants(&sc, &b->c, v);
        assert_in_range(n, 1, SOLVER_MAX_VARIANTS);
        struct job *j = &jobs.at[jobs.n];
        const struct variant *pick = &v[(b - bounds) * 7 % n];
        if (b->e->variant && !strcmp(solvers[s]->name, b->e->must)) {
            for (int i = n - 1; i >= 0; i--)
                if (strstr(v[i].text, b->e->variant)) pick = &v[i];
            if (t->vector_bytes == 64) assert_non_null(strstr(pick->text, b->e->variant));
        }
        *j = (struct job){.b = b, .target = t, .id = jobs.n};
        if (solver_emit(solvers[s], &sc, &b->c, pick, &j->k)) {
            print_error("%s: %s\n", b->e->name, sol_error(the_ctx));
            fail();
        }
        assert_in_range(jobs.n, 0, COUNT_OF(jobs.at) - 2);
        jobs.n++;
    }
    assert_true(found);
}

/* Runs every `every`th example from `from` on, or those of one solver. */
static void check(const char *name, const char *cc, int cores, const char *solver, int from, int every)
{
    struct target t;
    assert_int_equal(target_named(the_ctx, name, &t), 0);
    t.cores = cores;
    jobs.n = 0;
    jobs.serial++;
    const char *only = getenv("DNN_TEST_ONLY");
    for (int i = from; i < COUNT_OF(examples); i += step_of_cases(every)) {
        const struct example *e = &examples[i];
        if ((only && !strstr(e->name, only)) || (solver && (!e->must || strcmp(e->must, solver)))) continue;
        add_jobs(bound_example(i), &t);
    }
    if (!jobs.n) return;
    compile_jobs(cc, &t);
    for (int i = 0; i < jobs.n; i++) run_job(the_ctx, &jobs.at[i]);
    for (int k = 0; k < PARTS; k++) dlclose(parts[k]);
}

static void check_target(const char *name, const char *cc, int from, int every)
{
    check(name, cc, 2, NULL, from, every);
}

static void avx512(void **state)
{
    (void)state;
#if defined __x86_64__
    if (!__builtin_cpu_supports("avx512f")) skip();
    check_target("avx512", "gcc", 0, 1);
#endif
}
static void avx2(void **state)
{
    (void)state;
#if defined __x86_64__
    if (!__builtin_cpu_supports("avx2")) skip();
    check_target("avx2", "gcc", 0, 3);
#endif
}
static void sse2(void **state)
{
    (void)state;
#if defined __x86_64__
    check_target("sse2", "gcc", 1, 3);
#endif
}
/* A task has whole rows there. */
static void gemv_on_one_core(void **state)
{
    (void)state;
#if defined __x86_64__
    if (__builtin_cpu_supports("avx512f")) check("avx512", "gcc", 1, "gemv", 0, 1);
    check("sse2", "gcc", 1, "gemv", 0, 1);
#endif
}
static void with_clang(void **state)
{
    (void)state;
    if (system("clang --version >/dev/null 2>&1")) skip();
#if defined __x86_64__
    check_target(__builtin_cpu_supports("avx512f") ? "avx512" : "sse2", "clang", 2, 5);
#endif
}

/* -- NEON: a program with its data and expected results, run by an emulator */

static void write_floats(FILE *f, const char *name, int i, const char *at, size_t bytes)
{
    fprintf(f, "static float %s%d[] __attribute__((aligned(64))) = {", name, i);
    for (size_t k = 0; k < bytes / 4; k++) {
        const double v = get_element(at + 4 * k, SOL_F32);
        if (isnan(v))
            fprintf(f, "NAN,");
        else
            fprintf(f, "%.9ef,", v);
    }
    fprintf(f, "};\n");
}

/* Writes the data of a job, and a function that runs and checks it. */
static void write_check(FILE *f, const struct job *j)
{
    const struct bound *b = j->b;
    struct text p = text_new(b->arena);
    int n = 0, out = -1;
    fprintf(f, "void KERNEL%d_0(char *const *, const struct sol_frame *, int64_t, int64_t, int);\n", j->id);
    for (int i = 0; i < b->ntensor; i++) {
        const struct loops_tensor *t = &b->c.loops->tensors.at[i];
        if (t->role == LOOPS_TEMP || t->role == LOOPS_TABLE) continue;
        char *base;
        struct guarded g = place_tensor(b, i, &base);
        for (int k = 0; k < j->k.npack; k++)
            if (j->k.pack[k].tensor == i) {
                munmap(g.map, g.mapped);
                g = place_pack(the_ctx, b, &j->k.pack[k]);
                base = g.at;
            }
        if (t->role == LOOPS_OUTPUT) out = i;
        write_floats(f, "data", 100 * j->id + n, g.at, g.bytes);
        text_put(&p, "(char *)(data%d + %d), ", 100 * j->id + n, (int)((base - g.at) / 4));
        munmap(g.map, g.mapped);
        n++;
    }
    const struct loops_tensor *t = &b->c.loops->tensors.at[out];
    char *exact = malloc((size_t)b->elements[out] * 4);
    fprintf(f, "static int32_t at%d[] = {", j->id);
    for (int64_t k = 0; k < b->elements[out]; k++) {
        set_element(exact + k * 4, SOL_F32, b->exact[out][k]);
        fprintf(f, "%d,", (int)walk_offset(t, &b->c.memory[out], k));
    }
    fprintf(f, "};\n");
    write_floats(f, "exact", j->id, exact, (size_t)b->elements[out] * 4);
    free(exact);
    fprintf(f, "static int check%d(void)\n{\n    char *const p[] = {%s};\n", j->id, p.at);
    fprintf(f, "    static char scratch[%lld] __attribute__((aligned(64)));\n", (long long)j->k.scratch_bytes + 64);
    fprintf(f, "    struct sol_frame f = {.scratch = scratch, .scratch_bytes = %lld};\n",
            (long long)j->k.scratch_bytes);
    fprintf(f, "    KERNEL%d_0(p, &f, 0, %lld, 0);\n", j->id, (long long)j->k.step[0].tasks);
    fprintf(
        f,
        "    for (int i = 0; i < %lld; i++) if (!(fabsf(((float *)p[%d])[at%d[i]] - exact%d[i]) <= 1e-4f)) return 1;\n",
        (long long)b->elements[out], n - 1, j->id, j->id);
    fprintf(f, "    return 0;\n}\n");
}

static void neon(void **state)
{
    (void)state;
    static const char *const names[] = {"3x3 relu", "linear", "one row", "matmul, odd"};
    struct target t;
    if (system("aarch64-linux-gnu-gcc -include stdlib.h -E -x c /dev/null >/dev/null 2>&1") ||
        system("qemu-aarch64 --version >/dev/null 2>&1"))
        skip();
    assert_int_equal(target_named(the_ctx, "neon", &t), 0);
    jobs.n = 0;
    for (int i = 0; i < COUNT_OF(examples); i++)
        for (int k = 0; k < COUNT_OF(names); k++)
            if (!strcmp(examples[i].name, names[k])) add_jobs(bound_example(i), &t);
    static char text[8192];
    int n =
        snprintf(text, sizeof text,
                 "cd %s && aarch64-linux-gnu-gcc -O1 -std=gnu11 -w -static -I'" SOURCE_ROOT "/include' -o neon main.c",
                 jobs.folder);
    char path[128];
    snprintf(path, sizeof path, "%s/main.c", jobs.folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "#include <math.h>\n#include <sol/module.h>\n");
    for (int i = 0; i < jobs.n; i++) {
        if (jobs.at[i].k.nstep != 1) continue;
        write_job(&jobs.at[i]);
        write_check(f, &jobs.at[i]);
        n += snprintf(text + n, sizeof text - (size_t)n, " k%d.c", jobs.at[i].id);
    }
    fprintf(f, "int main(void)\n{\n");
    for (int i = 0; i < jobs.n; i++)
        if (jobs.at[i].k.nstep == 1) fprintf(f, "    if (check%d()) return %d;\n", i, i + 1);
    fprintf(f, "    return 0;\n}\n");
    fclose(f);
    snprintf(text + n, sizeof text - (size_t)n, " -lm && qemu-aarch64 ./neon");
    const int status = system(text);
    if (status) print_error("neon: exit %d\n", status >> 8);
    assert_int_equal(status, 0);
}

static void random_jobs(const struct bound *b, const struct target *t)
{
    const struct solver_context sc = {
        .arena = b->arena, .target = t, .training = seed >> 16 & 1, .plugins = plugins_load(the_ctx, b->arena)};
    for (int s = 0; solvers[s]; s++) {
        if (!solvers[s]->blocks || solvers[s]->lanes == FOR_ITEMS) continue; /* other tests cover these */
        const char *why = "";
        struct variant v[SOLVER_MAX_VARIANTS];
        memset(v, 0, sizeof v);
        if (!solvers[s]->applicable(&sc, &b->c, &why)) continue;
        const int n = solvers[s]->variants(&sc, &b->c, v);
        if (!n) continue;
        seed = seed * 1664525u + 1013904223u;
        struct job *j = &jobs.at[jobs.n];
        *j = (struct job){.b = b, .target = t, .id = jobs.n};
        if (solver_emit(solvers[s], &sc, &b->c, &v[(seed >> 8) % (uint32_t)n], &j->k)) {
            print_error("%s: %s\n", b->e->name, sol_error(the_ctx));
            fail();
        }
        jobs.n++;
    }
}

/* DNN_TEST_RANDOM=N in the environment: the number of problems; N@S: with another seed */
static void random_problems(void **state)
{
    (void)state;
    static const char *const targets[] = {"avx512", "avx2", "sse2"};
    const char *wanted = getenv("DNN_TEST_RANDOM");
    const int widest = __builtin_cpu_supports("avx512f") ? 0 : __builtin_cpu_supports("avx2") ? 1 : 2;
    int left = wanted ? atoi(wanted) : MAX(12 / step_of_cases(1), 4);
    uint32_t at = wanted && strchr(wanted, '@') ? (uint32_t)atoi(strchr(wanted, '@') + 1) : 1;
    static struct bound many[12];
    static struct example made[12];
    char *row[12];
    for (; left > 0; left -= COUNT_OF(many)) {
        struct target t;
        seed = at++ * 7919;
        const char *name = targets[widest + pick(COUNT_OF(targets) - widest)];
        assert_int_equal(target_named(the_ctx, name, &t), 0);
        t.cores = 2;
        jobs.n = 0;
        jobs.serial++;
        const int n = MIN(left, COUNT_OF(many));
        for (int i = 0; i < n; i++) {
            seed = at * 104729 + (uint32_t)i * 1299709;
            (pick(3) ? random_conv : random_product)(&made[i]);
            made[i].row = row[i] = strdup(made[i].row);
            bind(&many[i], the_ctx, &made[i]);
            random_jobs(&many[i], &t);
        }
        if (wanted) print_message("%s: problems %u, %d kernels\n", name, at - 1, jobs.n);
        compile_jobs("gcc", &t);
        for (int i = 0; i < jobs.n; i++) run_job(the_ctx, &jobs.at[i]);
        for (int k = 0; k < PARTS; k++) dlclose(parts[k]);
        for (int i = 0; i < n; i++) {
            arena_destroy(many[i].arena);
            free(row[i]);
        }
    }
}

static int set_up(void **state)
{
    (void)state;
    strcpy(jobs.folder, "/tmp/sol-dnn-test-XXXXXX");
    if (!mkdtemp(jobs.folder) || sol_ctx_create(NULL, &the_ctx)) return -1;
    return 0;
}
static int tear_down(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", jobs.folder);
    if (!getenv("DNN_TEST_KEEP") && system(command)) return -1;
    for (int i = 0; i < COUNT_OF(examples); i++)
        if (bounds[i].arena) arena_destroy(bounds[i].arena);
    sol_ctx_destroy(the_ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(avx512),         cmocka_unit_test(avx2),
                                       cmocka_unit_test(sse2),           cmocka_unit_test(gemv_on_one_core),
                                       cmocka_unit_test(with_clang),     cmocka_unit_test(neon),
                                       cmocka_unit_test(random_problems)};
    return cmocka_run_group_tests_name("dnn", tests, set_up, tear_down);
}
