/* The base: arenas under failing allocators, text, maps, hashes, configuration, log, shapes. */
#include "base/base.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base_fixture.h"
#include "fail_alloc.h"

/* -- arena */

static void arena_is_zeroed_and_aligned(void **state)
{
    struct fixture *f = *state;
    for (size_t n = 0; n < 3000; n += 7) {
        char *p = arena_alloc(f->a, n);
        assert_int_equal((uintptr_t)p % 16, 0);
        for (size_t i = 0; i < n; i++) assert_int_equal(p[i], 0);
        memset(p, 0xee, n);
    }
    char *large = arena_alloc(f->a, 40 << 20);
    assert_int_equal(large[(40 << 20) - 1], 0);
    large[(40 << 20) - 1] = 1;
    assert_string_equal(arena_printf(f->a, "%d-%s", 7, "x"), "7-x");
    assert_null(arena_strdup(f->a, NULL));
    assert_int_equal(ctx_check(f->ctx), SOL_OK);
}

/* Fills an arena. Its contents must be intact whether or not an allocation failed on the way. */
static void fill(struct arena *a)
{
    enum { N = 2000 };
    unsigned char **p = NEW_ARRAY(a, unsigned char *, N);
    for (int i = 0; i < N; i++) {
        p[i] = arena_alloc(a, (size_t)(i % 301));
        memset(p[i], i & 255, (size_t)(i % 301));
    }
    for (int i = 0; i < N; i++)
        for (int k = 0; k < i % 301; k++) assert_int_equal(p[i][k], i & 255);
}

static void arena_survives_each_failing_allocation(void **state)
{
    (void)state;
    long allocations = 1;
    for (int later = 0; later < 2; later++) {
        for (long at = -1; at < allocations; at++) {
            struct fail_alloc f = {.fail_at = at, .from_then_on = later};
            struct sol_ctx_options o = {.size = sizeof o, .reallocate = fail_alloc, .user = &f};
            struct sol_ctx *ctx;
            sol_status status = sol_ctx_create(&o, &ctx);
            if (status) {
                assert_int_equal(status, SOL_ERR_NOMEM);
                assert_null(ctx);
                assert_int_equal(f.alive, 0);
                continue;
            }
            struct arena *a = arena_create(ctx);
            if (a) fill(a);
            if (at < 0) allocations = f.n;
            assert_int_equal(ctx_check(ctx), at < 0 ? SOL_OK : SOL_ERR_NOMEM);
            ctx_clear(ctx);
            assert_int_equal(ctx_check(ctx), SOL_OK);
            arena_destroy(a);
            sol_ctx_destroy(ctx);
            assert_int_equal(f.alive, 0);
        }
        assert_true(allocations > 3);
    }
}

/* What was there before a mark stays, what came after is zeroed memory again, also where blocks were added or a large
 * one was put behind the newest. */
static void arena_goes_back_to_a_mark(void **state)
{
    struct fixture *f = *state;
    const struct arena_mark empty = arena_mark(f->a);
    char *kept = arena_strdup(f->a, "kept");
    const size_t before = arena_bytes(f->a);
    for (int round = 0; round < 3; round++) {
        const struct arena_mark outer = arena_mark(f->a);
        fill(f->a);
        const struct arena_mark inner = arena_mark(f->a);
        const size_t filled = arena_bytes(f->a);
        memset(arena_alloc(f->a, 3 << 20), 0xee, 3 << 20);
        fill(f->a);
        arena_rewind(f->a, inner);
        assert_int_equal(arena_bytes(f->a), filled);
        arena_rewind(f->a, outer);
        assert_int_equal(arena_bytes(f->a), before);
        assert_string_equal(kept, "kept");
        char *p = arena_alloc(f->a, 40000);
        for (int i = 0; i < 40000; i++) assert_int_equal(p[i], 0);
        arena_rewind(f->a, outer);
    }
    arena_rewind(f->a, empty);
    assert_true(arena_bytes(f->a) < before);
    assert_int_equal(ctx_check(f->ctx), SOL_OK);
}

/* With few addresses (ulimit -v): creates many arenas, and checks their behaviour when no addresses are left. */
static int with_few_addresses(struct sol_ctx *ctx)
{
    enum { ARENAS = 200 };
    struct arena *a[ARENAS];
    const struct rlimit limit = {(rlim_t)512 << 20, (rlim_t)512 << 20};
    if (setrlimit(RLIMIT_AS, &limit)) return 70;
    for (int i = 0; i < ARENAS; i++) {
        if (!(a[i] = arena_create(ctx))) return 10;
        fill(a[i]);
    }
    if (ctx_check(ctx)) return 11;
    for (int i = 0; i < 2000; i++) /* more than there are */
        memset(arena_alloc(a[i % ARENAS], 1 << 20), i, 1 << 20);
    if (ctx_check(ctx) != SOL_ERR_NOMEM) return 12;
    for (int i = 0; i < ARENAS; i++) arena_destroy(a[i]);
    ctx_clear(ctx);
    struct arena *again = arena_create(ctx);
    fill(again);
    arena_destroy(again);
    return ctx_check(ctx) ? 13 : 0;
}

static void arenas_need_few_addresses(void **state)
{
#if defined __SANITIZE_ADDRESS__
    (void)state;
    skip(); /* the sanitizer itself needs terabytes of addresses */
#else
    struct fixture *f = *state;
    pid_t child = fork();
    if (!child) _exit(with_few_addresses(f->ctx));
    int status = 0;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
#endif
}

static void arena_try_says_no(void **state)
{
    struct fixture *f = *state;
    assert_null(arena_try(f->a, (size_t)1 << 60));
    assert_null(arena_try(f->a, SIZE_MAX));
    assert_int_equal(ctx_check(f->ctx), SOL_OK);
    assert_non_null(arena_try(f->a, 100));
}

static void vectors_grow(void **state)
{
    struct fixture *f = *state;
    VECTOR(int) v = {0};
    for (int i = 0; i < 1000; i++) PUSH(f->a, v, i * i);
    assert_int_equal(v.n, 1000);
    for (int i = 0; i < 1000; i++) assert_int_equal(v.at[i], i * i);
}

/* -- text */

static void text_grows_and_indents(void **state)
{
    struct fixture *f = *state;
    struct text t = text_new(f->a);
    assert_string_equal(t.at, "");
    text_open(&t, "{ %d", 1);
    text_line(&t, "%s", "a");
    text_close(&t, "}");
    text_put(&t, "%s", "end");
    assert_string_equal(t.at, "{ 1\n    a\n}\nend");
    size_t before = t.n;
    for (int i = 0; i < 500; i++) text_put(&t, "%08d", i);
    assert_int_equal(t.n, before + 4000);
    assert_memory_equal(t.at + before + 3992, "00000499", 9);
}

/* What changes nothing is left out of C texts. */
static void arithmetic_folds(void **state)
{
    struct arena *a = ((struct fixture *)*state)->a;
    assert_string_equal(text_plus(a, "x", 3), "x + 3");
    assert_string_equal(text_plus(a, "x", -3), "x - 3");
    assert_string_equal(text_plus(a, "x", 0), "x");
    assert_string_equal(text_plus(a, "0", -3), "-3");
    assert_string_equal(text_times(a, "x", 3), "x * 3");
    assert_string_equal(text_times(a, "x", 1), "x");
    assert_string_equal(text_times(a, "x", 0), "0");
    assert_string_equal(text_over(a, "x", 3), "x / 3");
    assert_string_equal(text_over(a, "x", 1), "x");
    assert_string_equal(text_modulo(a, "x / 2", 3), "x / 2 % 3");
    assert_string_equal(text_modulo(a, "x", 1), "0");
    assert_string_equal(text_address(a, "p", "x * 2"), "p + x * 2");
    assert_string_equal(text_address(a, "p", "0"), "p");
    static const char *const rows[][3] = {/* a text, bare, enclosed */
                                          {"x_1", "x_1", "x_1"},
                                          {"x + 1", "x + 1", "(x + 1)"},
                                          {"(x + 1)", "x + 1", "(x + 1)"},
                                          {"((x + (1)))", "x + (1)", "((x + (1)))"},
                                          {"(x) * (1)", "(x) * (1)", "((x) * (1))"},
                                          {"f(x) + g(1)", "f(x) + g(1)", "(f(x) + g(1))"},
                                          {"@f(x, (1))", "@f(x, (1))", "@f(x, (1))"},
                                          {"(float)x", "(float)x", "((float)x)"},
                                          {"x[1]", "x[1]", "(x[1])"}};
    for (int i = 0; i < COUNT_OF(rows); i++) {
        assert_string_equal(text_bare(a, rows[i][0]), rows[i][1]);
        assert_string_equal(text_enclosed(a, rows[i][0]), rows[i][2]);
    }
}

static void identifiers_are_safe(void **state)
{
    struct fixture *f = *state;
    static const char *const rows[][2] = {
        {"conv1", "conv1"}, {"layer1.0/conv-1", "layer1_0_conv_1"},          {"", "_"},         {"7x", "_7x"},
        {"int", "int_"},    {"a\"; system(\"x\");//", "a___system__x_____"}, {"\xc3\xa9", "__"}};
    for (int i = 0; i < COUNT_OF(rows); i++) assert_string_equal(text_identifier(f->a, rows[i][0]), rows[i][1]);
    char name[300];
    memset(name, 'z', sizeof name - 1);
    name[sizeof name - 1] = 0;
    assert_int_equal(strlen(text_identifier(f->a, name)), 63);
}

/* -- map, hash */

static void maps_find_what_was_put(void **state)
{
    struct fixture *f = *state;
    struct map *m = map_create(f->a);
    enum { N = 5000 };
    for (intptr_t i = 0; i < N; i++) {
        map_set_int(m, (uint64_t)i << 32, (void *)(i + 1));
        map_set(m, arena_printf(f->a, "key %d", (int)i), (void *)(i + 2));
    }
    map_set(m, "key 3", (void *)77);
    for (intptr_t i = 0; i < N; i++) {
        assert_int_equal((intptr_t)map_get_int(m, (uint64_t)i << 32), i + 1);
        assert_int_equal((intptr_t)map_get(m, arena_printf(f->a, "key %d", (int)i)), i == 3 ? 77 : i + 2);
    }
    assert_null(map_get(m, "key 5000"));
    assert_null(map_get(m, ""));
    assert_null(map_get_int(m, 1));
}

static void hex_of(const void *data, size_t n, size_t cut, char out[33])
{
    struct hash h;
    hash_init(&h);
    hash_add(&h, data, cut);
    if (cut < n) hash_add(&h, (const char *)data + cut, n - cut);
    hash_hex(&h, out);
    assert_int_equal(strspn(out, "0123456789abcdef"), 32);
}

static void hashes_differ(void **state)
{
    struct fixture *f = *state;
    struct map *seen = map_create(f->a);
    unsigned char data[64] = {0};
    char hex[33], again[33];
    for (size_t n = 1; n <= sizeof data; n++) { /* every length, bit and cut */
        for (size_t bit = 0; bit < 8 * n; bit++) {
            data[bit / 8] ^= (unsigned char)(1 << bit % 8);
            hex_of(data, n, n, hex);
            hex_of(data, n, n, again);
            data[bit / 8] ^= (unsigned char)(1 << bit % 8);
            assert_string_equal(hex, again);
            assert_null(map_get(seen, hex));
            map_set(seen, hex, seen);
        }
        for (size_t cut = 0; cut < n; cut++) {
            hex_of(data, n, cut, hex);
            assert_null(map_get(seen, hex));
            map_set(seen, hex, seen);
        }
    }
}

/* -- configuration, log, errors */

static void configuration_is_checked(void **state)
{
    struct fixture *f = *state;
    const char *value, *doc, *key;
    int keys = 0;
    for (; (key = sol_config_key(keys, &value, &doc)); keys++) {
        assert_non_null(sol_config_get(f->ctx, key));
        assert_true(*doc != 0);
    }
    assert_true(keys > 8);
    assert_null(sol_config_get(f->ctx, "nothing"));
    assert_int_equal(sol_config_set(f->ctx, "nothing", "1"), SOL_ERR_INVALID);
    assert_non_null(strstr(sol_error(f->ctx), "compiler::name"));
    const char *old = sol_config_get(f->ctx, "threads");
    assert_string_equal(old, "0");
    assert_int_equal(sol_config_set(f->ctx, "threads", "12"), SOL_OK);
    const char *kept = sol_config_get(f->ctx, "threads");
    assert_int_equal(sol_config_set(f->ctx, "threads", "3"), SOL_OK);
    assert_string_equal(kept, "12"); /* the old text stays readable */
    static const char *const bad[][2] = {{"threads", "-1"}, {"threads", ""},     {"threads", "12345678901"},
                                         {"profile", "2"},  {"autotune", "fas"}, {"log::level", "LOUD"},
                                         {"autotune", NULL}};
    for (int i = 0; i < COUNT_OF(bad); i++)
        assert_int_equal(sol_config_set(f->ctx, bad[i][0], bad[i][1]), SOL_ERR_INVALID);
    assert_string_equal(ctx_config(f->ctx, "threads"), "3");
    assert_int_equal(sol_config_set(f->ctx, "autotune", "OFF"), SOL_OK); /* in any case; kept as the table spells it */
    assert_string_equal(ctx_config(f->ctx, "autotune"), "off");
}

static void environment_sets_defaults(void **state)
{
    (void)state;
    struct sol_ctx *ctx;
    setenv("SOL_CACHE", "/tmp/elsewhere", 1);
    setenv("SOL_LOG", "error", 1);
    assert_int_equal(sol_ctx_create(NULL, &ctx), SOL_OK);
    assert_string_equal(ctx_config(ctx, "cache::folder"), "/tmp/elsewhere");
    assert_string_equal(ctx_config(ctx, "log::level"), "ERROR");
    sol_ctx_destroy(ctx);
    unsetenv("SOL_CACHE");
    unsetenv("SOL_LOG");
}

static void log_lines_have_the_form(void **state)
{
    struct fixture *f = *state;
    LOG(f->ctx, LOG_DEBUG, "core", "hidden");
    assert_string_equal(f->lines, "");
    sol_config_set(f->ctx, "log::level", "DEBUG");
    log_put(f->ctx, LOG_INFO, "core", "../src/build/compiler.c", 63, "%s", "text");
    assert_int_equal(strncmp(f->lines, "[INFO ][  0.", 12), 0);
    assert_string_equal(f->lines + 14, "][core] Compiler (63): text\n");
    f->lines[0] = 0;
    log_put(f->ctx, LOG_ERROR, "x", "y.c", 1, "text");
    assert_int_equal(strncmp(f->lines, "[ERROR][", 8), 0);
    assert_non_null(strstr(f->lines, "][x] Y (1): text\n"));
}

static void errors_say_where(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(ctx_fail(f->ctx, SOL_ERR_UNSUPPORTED, "no %s", "way"), SOL_ERR_UNSUPPORTED);
    assert_int_equal(ctx_where(f->ctx, SOL_ERR_UNSUPPORTED, "layer %d: ", 3), SOL_ERR_UNSUPPORTED);
    assert_string_equal(sol_error(f->ctx), "layer 3: no way");
    char big[9000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = 0;
    ctx_fail(f->ctx, SOL_ERR_INVALID, "%s", big);
    ctx_where(f->ctx, SOL_ERR_INVALID, "there: ");
    assert_int_equal(strncmp(sol_error(f->ctx), "there: xxx", 10), 0);
    ctx_where(f->ctx, SOL_ERR_INVALID, "%s", big);
    assert_true(strlen(sol_error(f->ctx)) < 5000);
}

static void options_of_another_size_are_taken(void **state)
{
    (void)state;
    struct sol_ctx *ctx;
    struct sol_ctx_options o = {.size = 3};
    assert_int_equal(sol_ctx_create(&o, &ctx), SOL_ERR_INVALID);
    assert_null(ctx);
    o.size = offsetof(struct sol_ctx_options, log); /* an older application */
    assert_int_equal(sol_ctx_create(&o, &ctx), SOL_OK);
    sol_ctx_destroy(ctx);
    sol_ctx_destroy(NULL);
}

/* -- types, shapes */

static void shapes_do_not_overflow(void **state)
{
    struct fixture *f = *state;
    int64_t n;
    assert_int_equal(shape_elements(f->ctx, 0, NULL, &n), SOL_OK);
    assert_int_equal(n, 1);
    assert_int_equal(shape_elements(f->ctx, 3, (int64_t[]){2, 3, 4}, &n), SOL_OK);
    assert_int_equal(n, 24);
    assert_int_equal(shape_elements(f->ctx, 3, (int64_t[]){(int64_t)1 << 40, 0, (int64_t)1 << 40}, &n), SOL_OK);
    assert_int_equal(n, 0);
    assert_int_equal(shape_elements(f->ctx, 2, (int64_t[]){(int64_t)1 << 32, (int64_t)1 << 32}, &n), SOL_ERR_INVALID);
    assert_int_equal(shape_elements(f->ctx, 2, (int64_t[]){(int64_t)1 << 24, (int64_t)1 << 24}, &n), SOL_ERR_INVALID);
    assert_int_equal(shape_elements(f->ctx, 1, (int64_t[]){INT64_MAX}, &n), SOL_ERR_INVALID);
    assert_int_equal(shape_elements(f->ctx, 2, (int64_t[]){0, -1}, &n), SOL_ERR_INVALID);
    assert_int_equal(shape_elements(f->ctx, SOL_MAX_DIMS + 1, (int64_t[SOL_MAX_DIMS + 1]){0}, &n), SOL_ERR_INVALID);
}

static void dtypes_are_as_listed(void **state)
{
    (void)state;
    assert_string_equal(dtype_def(SOL_F32)->name, "f32");
    assert_string_equal(dtype_def(SOL_F32)->c_name, "float");
    assert_int_equal(dtype_def(SOL_I64)->bytes, 8);
    assert_true(dtype_def(SOL_BOOL)->is_bool);
    assert_false(dtype_def(SOL_U8)->is_signed);
    for (int i = 0; i < SOL_DTYPES; i++) assert_true(dtype_def((enum sol_dtype)i)->bytes > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(arena_is_zeroed_and_aligned),
        T(arena_goes_back_to_a_mark),
        T(arena_survives_each_failing_allocation),
        T(arenas_need_few_addresses),
        T(arena_try_says_no),
        T(vectors_grow),
        T(text_grows_and_indents),
        T(arithmetic_folds),
        T(identifiers_are_safe),
        T(maps_find_what_was_put),
        T(hashes_differ),
        T(configuration_is_checked),
        T(environment_sets_defaults),
        T(log_lines_have_the_form),
        T(errors_say_where),
        T(options_of_another_size_are_taken),
        T(shapes_do_not_overflow),
        T(dtypes_are_as_listed),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
