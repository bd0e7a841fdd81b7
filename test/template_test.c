/* Kernels as templates: how marked names are filled in, and that every name which a kernel declares is marked, so that
 * any kernels can stand in one file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "build/build.h"
#include "context.h"
#include "passes/passes.h"
#include "print/tree.h"
#include "schedule/schedule.h"

static const char *filled(struct arena *a, const char *body, const char *suffix)
{
    static const char *const helper[] = {"static inline float twice(float x) { return x + x; }"};
    struct text t = text_new(a);
    const struct source_text s = {.body = body, .helper = helper, .nhelper = 1};
    source_helpers(&t, map_create(a), &s);
    source_body(&t, &s, "k", suffix);
    return strstr(t.at, "\n\n") + 2;
}

/* Only marks are names: the same words in comments, texts and longer names stay. */
static void marks_are_filled(void **state)
{
    struct arena *a = arena_create(ctx);
    (void)state;
    assert_string_equal(filled(a, "/* own, @own */ int @own = own, owner[2] = {@own}; \"own KERNEL_0\"", "_3"),
                        "/* own, own_3 */ int own_3 = own, owner[2] = {own_3}; \"own KERNEL_0\"");
    assert_string_equal(filled(a, "@KERNEL_0 @KERNEL_11 @KERNELS @KERNEL", ""), "k_0 k_11 KERNELS KERNEL");
    assert_string_equal(filled(a, "@a@b", "_1"), "a_1b_1");
    assert_string_equal(filled(a, "", "_1"), "");
    struct text t = text_new(a);
    text_literal(&t, "a@b \"c\"");
    text_put(&t, " ");
    text_string(&t, "a@b");
    assert_string_equal(t.at, "\"a\\100b \\042c\\042\" \"a_b\""); /* what users call something is no mark */
    arena_destroy(a);
}

/* A helper is found by its mark alone, and brings those that it uses. */
static void marks_find_helpers(void **state)
{
    struct arena *a = arena_create(ctx);
    struct target target;
    (void)state;
    assert_int_equal(target_named(ctx, "x86-64-v3", &target), SOL_OK);
    const struct source_text none = kernel_text(a, &target, "/* sol_exp_f32x8 */ int @x = 1; \"@\"");
    assert_int_equal(none.nhelper, 0);
    const struct source_text some = kernel_text(a, &target, "float x = @sol_lcm_i64(@own);");
    assert_string_equal(some.body, "float x = sol_lcm_i64(@own);");
    static const char *const names[] = {"sol_mul_i64",  "sol_neg_i64", "sol_abs_i64",
                                        "sol_fmod_i64", "sol_gcd_i64", "sol_lcm_i64"};
    assert_int_equal(some.nhelper, COUNT_OF(names));
    for (int i = 0; i < COUNT_OF(names); i++) assert_non_null(strstr(some.helper[i], names[i]));
    arena_destroy(a);
}

/* A call tree: equal kernels are one function, operands are where the tree says, and rows outside are filled. */
static void trees_are_printed(void **state)
{
    struct arena *a = arena_create(ctx);
    struct target target;
    (void)state;
    assert_int_equal(target_named(ctx, "x86-64-v3", &target), SOL_OK);
    const struct kernel kernel[] = {
        {.source = "static int @own;\n@KERNEL_0\n    @own = @sol_min_i64(1, 2);\n}\n", .nstep = 1, .step[0].tasks = 3},
        {.source = "static int @own;\n@KERNEL_0\n    @own = @sol_min_i64(1, 2);\n}\n", .nstep = 1, .step[0].tasks = 3},
        {.source = "static int @own;\n@KERNEL_0\n    @own = @sol_min_i64(1, 2);\n}\n", .nstep = 1, .step[0].tasks = 4}};
    struct tree tree = {.round = "row", .nring = 1, .nloop = 1, .per_task = 4};
    assert_int_equal(tree_member(&tree, &kernel[0]), 0);
    assert_int_equal(tree_member(&tree, &kernel[1]), 0);
    assert_int_equal(tree_member(&tree, &kernel[2]), 1); /* the same text, but another range of tasks */
    const struct tree_address from = {.base = TREE_OPERAND, .index = 0, .by = {0, 512, 64}, .plus = -64};
    const struct tree_address into = {.base = TREE_RING, .row = {.by = 1}, .row_bytes = 64};
    const struct tree_address read = {.base = TREE_RING, .row = {.by = 2, .plus = -1}, .row_bytes = 64, .plus = 8};
    const struct tree_address keep = {.base = TREE_SCRATCH, .row = {1, 3, 2}, .row_bytes = 16};
    const struct tree_call make = {0, 2, (struct tree_address[]){from, into}};
    const struct tree_call use = {1, 2, (struct tree_address[]){read, keep}};
    const struct tree_ring ring = {.body = {.need = -1, .ncall = 1, .call = &make},
                                   .rows = 20,
                                   .fill = 1.5,
                                   .dtype = SOL_F32,
                                   .row_bytes = 64,
                                   .room = 5,
                                   .scratch = 128};
    const struct tree_loop loop = {.body = {.need = 0, .step = 2, .low = -1, .high = 1, .ncall = 1, .call = &use},
                                   .n = 10};
    tree.ring = &ring;
    tree.loop = &loop;
    assert_int_equal(tree_tasks(&tree, 2), 6);
    const struct source_text s = kernel_text(a, &target, tree_print(a, &target, &tree));
    const char *text = kernel_source(a, &s, "k");
    static const char *const lines[] = {
        "static void stage0_0(char *const *p, ",
        "    own_s1 = sol_min_i64(1, 2);",
        "        p[0] + image * 512 + row * 64 - 64,",
        "        b->ring0 + (row - b->from0) * 64,",
        "b->ring0 + (row * 2 - 1 - b->from0) * 64 + 8,",
        "scratch + (row + 3) % 2 * 16,",
        "stage0_0(q, f, 0, 3, worker);",
        "stage1_0(q, f, 0, 4, worker);",
        "if (row < 0 || row >= 20) {",
        "for (int64_t k = 0; k < 16; k++) at[k] = (float)1.5;",
        "rows0(p, f, worker, b, image, row * 2 - 1, row * 2 + 1);",
        "b->ring0 = scratch + 128;",
        "void k_0(char *const *p, const struct sol_frame *f, int64_t task0, int64_t task1, int worker)\n{"};
    for (int i = 0; i < COUNT_OF(lines); i++)
        if (!strstr(text, lines[i])) fail_msg("expected '%s' in\n%s", lines[i], text);
    assert_null(strstr(text, "stage2_0"));
    arena_destroy(a);
}

/* -- any kernels in one file */

static const struct {
    const char *graph, *solver, *bands;
    bool gradients;
} networks[] = {
    {"input %0:f32[2 8 20 20] \"x\"\nparam %1:f32[16 8 3 3] \"w\"\nparam %2:f32[16 1 3 3] \"d\"\n"
     "%3 = Conv(%0, %1) p=1 q=1\n%4 = relu(%3)\n%5 = Conv(%4, %2) p=1 q=1 g=16\n%6 = tanh(%5)\n"
     "%7 = MaxPool(%6) k=[2,2] s=[2,2]\noutput %7 \"y\"",
     "auto", "always", false},
    {"input %0:f32[1 16 24 24] \"x\"\nparam %1:f32[16 16 1 1] \"w\"\nparam %2:f32[16 16 1 1] \"v\"\n"
     "%3 = Conv(%0, %1)\n%4 = Conv(%3, %1)\n%5 = Conv(%4, %2)\n%6 = Conv(%5, %2)\noutput %6 \"y\"",
     "direct", "always", false},
    {"input %0:f32[1 64 28 28] \"x\"\nparam %1:f32[64 64 3 3] \"w\"\n%2 = Conv(%0, %1) p=1 q=1\noutput %2 \"y\"",
     "winograd", "off", true},
    {"input %0:f64[4 16 16 16] \"x\"\nparam %1:f64[18 16 3 3] \"w\"\n%2 = Conv(%0, %1) p=1 q=1\noutput %2 \"y\"",
     "weights", "off", true},
    {"input %0:f32[2 16 28 28] \"x\"\nparam %1:f32[64 16 3 3] \"w\"\nparam %2:f32[64 64 3 3] \"v\"\n"
     "%3 = Conv(%0, %1) p=1 q=1\n%4 = tanh(%3)\n%5 = Conv(%4, %2) p=1 q=1\n%6 = tanh(%5)\noutput %6 \"y\"",
     "weights-winograd", "off", true},
    {"input %0:f32[1 65] \"x\"\nparam %1:f32[33 65] \"w\"\n%2 = Linear(%0, %1)\noutput %2 \"y\"", "gemv", "always",
     false},
    {"input %0:f32[1 65] \"x\"\nparam %1:f32[65 33] \"w\"\n%2 = MatMul(%0, %1)\noutput %2 \"y\"", "gemv", "always",
     false},
    {"input %0:f32[40 65] \"x\"\ninput %1:f32[33 65] \"w\"\n%2 = Linear(%0, %1)\n%3 = tanh(%2)\noutput %3 \"y\"",
     "matmul", "off", true},
    {"input %0:f32[7 3 9] \"x\"\nparam %1:f32[36 9] \"w\"\nparam %2:f32[36 9] \"u\"\nparam %3:f32[36] \"b\"\n"
     "%4, %5, %6 = LSTM(%0, %1, %2, %3)\noutput %4 \"y\"\noutput %6 \"c\"",
     "auto", "always", true},
    {"input %0:f32[2 3 9 8] \"x\"\n%1 = Resize(%0) size=[2,3,14,12]\noutput %1 \"y\"", "auto", "always", true},
    {"input %0:f32[5 9] \"x\"\n%1 = Row(%0) text=\"x[N Q] -> y[N P] | #P=8 | t[P] = P*5//4 | y[N P] = x[N t[P]]\"\n"
     "output %1 \"y\"",
     "nest", "off", false},
};

static void differentiate(struct sol_graph *g)
{
    struct sol_tensor *with[8];
    int of[4], reached[8], n = 0, nof = 0;
    for (int i = 0; i < g->params.n; i++) with[n++] = g->params.at[i];
    for (int i = 0; i < g->inputs.n; i++) with[n++] = g->inputs.at[i];
    for (int i = 0; i < g->outputs.n; i++) of[nof++] = i;
    if (sol_graph_differentiate(g, nof, of, n, with, reached)) fail_msg("%s", sol_error(ctx));
}

/* What depends on the flavour is a mark in templates: the printers write none of C's words for it. */
static void check_words(const struct kernel *k)
{
    static const char *const words[] = {"static ", "inline ", "restrict ", "__attribute__", "#include"};
    for (int i = 0; k->tree && i < k->tree->nmember; i++) check_words(k->tree->member[i]);
    for (int i = 0; !k->tree && i < COUNT_OF(words); i++)
        if (strstr(k->source, words[i])) fail_msg("the template contains '%s':\n%s", words[i], k->source);
}

/* Appends all kernels of the network, each twice; returns how many there are now. */
static int append(struct text *out, struct map *seen, int network, int number)
{
    struct arena *a = arena_create(ctx);
    struct sol_graph *g = NULL;
    struct target target;
    struct plan *p = NULL;
    struct schedule *s = NULL;
    const char *text = arena_printf(a, "graph \"t\"\n%s\n", networks[network].graph);
    assert_int_equal(sol_config_set(ctx, "solver", networks[network].solver), SOL_OK);
    assert_int_equal(sol_config_set(ctx, "bands", networks[network].bands), SOL_OK);
    sol_status status = target_named(ctx, "x86-64-v3", &target);
    target.cores = 4;
    if (status || sol_graph_parse(ctx, text, &g)) fail_msg("%s", sol_error(ctx));
    if (networks[network].gradients) differentiate(g);
    if (passes_run(g) || plan_make(g, a, &target, &p) || schedule_make(p, &s)) fail_msg("%s", sol_error(ctx));
    for (int i = 0; i < p->units.n; i++)
        if (p->units.at[i]->kernel.source) check_words(&p->units.at[i]->kernel);
    for (int i = 0; i < 2 * s->kernels.n; i++) {
        const struct source_text *k = &s->kernels.at[i / 2];
        source_helpers(out, seen, k);
        source_body(out, k, arena_printf(out->arena, "kernel%d", number + i),
                    arena_printf(out->arena, "_%d", number + i));
        text_put(out, "\n");
    }
    number += 2 * s->kernels.n;
    sol_graph_destroy(g);
    arena_destroy(a);
    return number;
}

static void any_kernels_share_a_file(void **state)
{
    struct arena *a = arena_create(ctx);
    struct text t = text_new(a);
    struct map *seen = map_create(a);
    char path[] = "/tmp/sol-template-test-XXXXXX.c";
    const int file = mkstemps(path, 2);
    struct process *p;
    const char *output = "";
    int code = -1, n = 0;
    (void)state;
    text_put(&t, "%s", source_header(NULL));
    for (int i = 0; i < COUNT_OF(networks); i++) n = append(&t, seen, i, n);
    static const char *const functions[] = {"void output_any_",
                                            "void rows0_",
                                            "void transform_a_",
                                            "void pack_b_",
                                            "void stage1_0_",
                                            "flip_",
                                            "dots_",
                                            "sums_",
                                            "int64_t table0_"};
    for (int i = 0; i < COUNT_OF(functions); i++) assert_non_null(strstr(t.at, functions[i]));
    assert_null(strchr(strstr(t.at, "kernel0_0"), '@'));
    static const char *const idle[] = {" + 0)", " + 0,", " + 0;", " + 0]", " * 1)", " * 1;", " * 1,", " * 1]", " 0 * ",
                                       " 1 * ", " / 1)", " / 1 ", " / 1,", " % 1)", " % 1 ", " % 1,", " + -",  "(at)"};
    for (int i = 0; i < COUNT_OF(idle); i++) {
        const char *at = strstr(t.at, idle[i]);
        if (at) fail_msg("'%s' computes nothing: %.*s", idle[i], (int)strcspn(at, "\n"), at);
    }
    assert_true(file >= 0 && write(file, t.at, t.n) == (ssize_t)t.n && !close(file));
    const char *const argv[] = {"gcc",        "-std=gnu11",       "-Wall",         "-Wextra", "-Werror",
                                "-Wno-psabi", "-march=x86-64-v3", "-fsyntax-only", path,      NULL};
    assert_int_equal(process_start(ctx, argv, &p), SOL_OK);
    process_wait(ctx, p, &code, &output);
    if (code) fail_msg("%s", output);
    process_free(ctx, p);
    unlink(path);
    arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(marks_are_filled), cmocka_unit_test(marks_find_helpers),
                                       cmocka_unit_test(trees_are_printed), cmocka_unit_test(any_kernels_share_a_file)};
    return cmocka_run_group_tests(tests, make_ctx, drop_ctx);
}
