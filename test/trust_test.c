/* The cache trusts only files of this user's SOL: forged and exchanged entries, links, other users' folders, races, and
 * files of the user in the cache's folder. */
#include "build_place.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

static char state_home[96];

/* Selects another user's secret key, or this one's. */
static void be(const struct place *p, const char *who)
{
    snprintf(state_home, sizeof state_home, "%s/%s", p->folder, who);
    setenv("XDG_STATE_HOME", state_home, 1);
}

static int start(void **state)
{
    setup(state);
    be(*state, "me");
    return 0;
}

static char *in(const struct place *p, const char *name)
{
    static char path[4][160];
    static int at;
    at = (at + 1) % 4;
    snprintf(path[at], sizeof path[at], "%s/%s", p->folder, name);
    return path[at];
}

/* From now on, what the compiler links creates a file when it is loaded. */
static void compile_evil(struct place *p, bool evil)
{
    char line[512];
    write_file(in(p, "evil.c"), "", 0644);
    FILE *f = fopen(in(p, "evil.c"), "w");
    fprintf(f,
            "#include <fcntl.h>\n"
            "__attribute__((constructor)) static void evil(void) { creat(\"%s\", 0644); }\n",
            in(p, "ran"));
    fclose(f);
    snprintf(line, sizeof line, "if [ -e '%s' ]; then case \"$*\" in *-shared*) set -- \"$@\" '%s' ;; esac; fi",
             in(p, "is-evil"), in(p, "evil.c"));
    struct stat s;
    if (stat(p->compiler, &s) || (size_t)s.st_size < 100 + strlen(line)) make_compiler(p, line);
    unlink(in(p, "is-evil"));
    if (evil) write_file(in(p, "is-evil"), "", 0644);
}

/* -- entries */

static void what_others_sealed_is_not_used(void **state)
{
    struct place *p = *state;
    compile_evil(p, true);
    be(p, "somebody");
    build_and_run(p);
    assert_true(file_exists(in(p, "ran"))); /* the library is the evil one */
    unlink(in(p, "ran"));
    compile_evil(p, false);
    be(p, "me");
    compiler_runs(p);
    build_and_run(p);
    assert_false(file_exists(in(p, "ran")));
    assert_int_equal(compiler_runs(p), 4);
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 0);
}

/* A valid file in the place of another one. */
static void an_entry_is_for_its_keys_only(void **state)
{
    struct place *p = *state;
    const struct build_request r = p->r;
    build_and_run(p);
    shell("mkdir '%s' && cp '%s'/x86/modules/* '%s'", in(p, "one"), p->cache, in(p, "one"));
    char other[sizeof module_text + 64];
    snprintf(other, sizeof other, "%s\nconst char sol_other[] = \"other\";", module_text);
    p->r.module = other;
    build_and_run(p);
    compiler_runs(p);
    shell("for f in '%s'/x86/modules/*; do cp '%s'/* \"$f\"; done", p->cache, in(p, "one"));
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 2); /* the module, and linking it */
    p->r = r;
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 0);
    shell("cd '%s'/x86/objects; a=$(ls | head -1); b=$(ls | tail -1); mv $a x; mv $b $a; mv x $b", p->cache);
    shell("rm '%s'/x86/modules/*", p->cache);
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 4);
}

/* Several modules in a process. Each gets the file descriptor number of the one before. */
static void modules_side_by_side_are_their_own(void **state)
{
    enum { N = 5 };
    struct place *p = *state;
    struct module m[N];
    char text[N][sizeof module_text + 64];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < N; i++) {
            snprintf(text[i], sizeof text[i], "%s\nconst char sol_number[] = \"%d\";", module_text, i);
            p->r.module = text[i];
            assert_int_equal(try_build(p, &m[i]), SOL_OK);
            for (int k = 0; k < i; k++) assert_ptr_not_equal(m[k].table, m[i].table);
        }
        for (int i = 0; i < N; i++) assert_int_equal(run_module(m[i].table), 0);
        for (int i = 0; i < N; i++) module_close(&m[i]);
    }
}

static void entries_are_files(void **state)
{
    struct place *p = *state;
    static const char *const plants[] = {
        "mv \"$f\" '%s/elsewhere'; ln -s '%s/elsewhere' \"$f\"", /* a link, even to a valid file */
        "rm \"$f\"; mkfifo \"$f\"; : '%s%s'",
        "rm \"$f\"; mkdir \"$f\"; : '%s%s'",
        "rm \"$f\"; ln -s /dev/zero \"$f\"; : '%s%s'",
        "rm \"$f\"; truncate -s 1T \"$f\"; : '%s%s'",
    };
    for (int i = 0; i < COUNT_OF(plants); i++) {
        char script[512];
        build_and_run(p);
        compiler_runs(p);
        snprintf(script, sizeof script, plants[i], p->folder, p->folder);
        shell("cd '%s'/x86/modules; for f in *; do %s; done", p->cache, script);
        build_and_run(p);
        assert_int_equal(compiler_runs(p), 2); /* the module, and linking it */
        shell("rm -rf '%s'/x86/modules", p->cache);
    }
}

/* Another process exchanges valid and evil files, and writes to them, while they are read. */
static void what_runs_is_what_was_verified(void **state)
{
    struct place *p = *state;
    compile_evil(p, true);
    be(p, "somebody");
    build_and_run(p);
    shell("cp '%s'/x86/modules/*.so '%s'", p->cache, in(p, "evil.so"));
    compile_evil(p, false);
    be(p, "me");
    build_and_run(p);
    unlink(in(p, "ran"));
    shell("ls '%s'/x86/modules/*.so >'%s'", p->cache, in(p, "name"));
    pid_t child = fork();
    if (!child) {
        setpgid(0, 0);
        shell("f=$(cat '%s'); cp $f '%s'; while :; do cp '%s' $f.1; mv $f.1 $f; cp '%s' $f.1; mv $f.1 $f; "
              "cat '%s' >$f; done",
              in(p, "name"), in(p, "good.so"), in(p, "evil.so"), in(p, "good.so"), in(p, "evil.so"));
        _exit(0);
    }
    const int64_t end = clock_ns() + 1500000000;
    while (clock_ns() < end) assert_int_equal(build_quietly(p), 0);
    kill(-child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_false(file_exists(in(p, "ran")));
}

/* -- the secret */

static void a_secret_that_others_can_read_is_none(void **state)
{
    struct place *p = *state;
    build_and_run(p);
    shell("test \"$(stat -c %%a,%%s '%s'/sol/cache.key)\" = 600,32", state_home);
    shell("test \"$(stat -c %%a '%s'/sol)\" = 700 && ! ls '%s' | grep -q key", state_home, p->cache);
    const char *const spoil[] = {"chmod 644 '%s/sol/cache.key'", "truncate -s 5 '%s/sol/cache.key'"};
    for (int i = 0; i < COUNT_OF(spoil); i++) {
        compiler_runs(p);
        shell(spoil[i], state_home);
        build_and_run(p);
        assert_int_equal(compiler_runs(p), 4);
        shell("test \"$(stat -c %%a,%%s '%s'/sol/cache.key)\" = 600,32", state_home);
    }
    shell("mv '%s'/sol/cache.key '%s/known'; ln -s '%s/known' '%s'/sol/cache.key", state_home, p->folder, p->folder,
          state_home);
    setenv("TMPDIR", p->folder, 1);
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 4); /* it is in the temporary folder instead */
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 0);
    unsetenv("TMPDIR");
}

/* -- folders */

static void the_default_is_the_users_cache(void **state)
{
    struct place *p = *state;
    sol_config_set(p->ctx, "cache::folder", "auto");
    char *where = getcwd(NULL, 0), *path;
    setenv("XDG_CACHE_HOME", in(p, "xdg/of mine"), 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(chdir(i ? "/" : p->folder), 0);
        build_and_run(p);
        assert_int_equal(compiler_runs(p), i ? 0 : 4); /* found from every directory */
    }
    shell("test \"$(stat -c %%a '%s/sol')\" = 700 && grep -q '^Signature: 8a477f' '%s/sol/CACHEDIR.TAG'",
          in(p, "xdg/of mine"), in(p, "xdg/of mine"));
    assert_int_equal(chdir(p->folder), 0);
    assert_false(file_exists(".sol"));
    setenv("XDG_CACHE_HOME", "xdg", 1); /* a relative path counts as not set */
    char *before = strdup(getenv("HOME") ? getenv("HOME") : "/");
    setenv("HOME", in(p, "home"), 1);
    mkdir(in(p, "home"), 0755);
    build_and_run(p);
    assert_true(file_exists(in(p, "home/.cache/sol/x86/modules")));
    assert_int_equal(sol_cache_folder(p->ctx, &path), SOL_OK);
    assert_string_equal(path, in(p, "home/.cache/sol"));
    sol_free(p->ctx, path);
    setenv("HOME", before, 1);
    unsetenv("XDG_CACHE_HOME");
    assert_int_equal(chdir(where), 0);
    free(before);
    free(where);
}

static const char list[] = "cd '%s' && find . -not -path './sol-cache*' -printf '%%p %%s %%l\\n' | sort >'%s'";

static void files_of_the_user_stay(void **state)
{
    struct place *p = *state;
    shell("mkdir -p '%s' && cd '%s' && mkdir -p tmp/old x86/source x86/objects debug arm64/modules facts && "
          "for f in tmp/old/a tmp/b x86/source/main.c x86/objects/mine.o debug/mine.dot arm64/modules/m.so index.db "
          "x86/a facts/x; do echo $f >$f; done; touch -d '3 days ago' tmp tmp/*",
          p->cache, p->cache);
    shell(list, p->cache, in(p, "before"));
    for (int i = 0; i < 2; i++) {
        sol_config_set(p->ctx, "compiler::debug", i ? "1" : "0");
        build_and_run(p);
        assert_int_equal(sol_cache_clear(p->ctx), SOL_OK);
    }
    sol_config_set(p->ctx, "cache::limit", "0");
    build_and_run(p);
    shell(list, p->cache, in(p, "after"));
    shell("diff '%s' '%s'", in(p, "before"), in(p, "after"));
    shell("test -e '%s/sol-cache/CACHEDIR.TAG'", p->cache);
    /* and in the cache's own folder */
    shell("cd '%s/sol-cache' && echo 1 >mine && echo 2 >x86/objects/mine.o && mkdir -p x86/source p/source && "
          "echo 3 >p/source/main.c && echo 4 >p/source/sol_x.c",
          p->cache);
    assert_int_equal(sol_cache_clear(p->ctx), SOL_OK);
    shell("cd '%s/sol-cache' && cat mine x86/objects/mine.o p/source/*.c | tr -d '\\n' | grep -qx 1234", p->cache);
    shell("test $(find '%s/sol-cache' -name 'sol_[kmf]_*' | wc -l) = 0", p->cache);
}

static void links_are_not_followed(void **state)
{
    struct place *p = *state;
    setenv("TMPDIR", in(p, "t"), 1);
    shell("mkdir '%s' '%s' && ln -s '%s' '%s' && ln -s '%s' '%s/sol-cache-%ld'", in(p, "t"), in(p, "victim"),
          in(p, "victim"), p->cache, in(p, "victim"), in(p, "t"), (long)geteuid());
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 4);
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 4); /* there is no place for it */
    assert_int_equal(sol_cache_clear(p->ctx), SOL_ERR_IO);
    assert_non_null(strstr(sol_error(p->ctx), "symbolic link"));
    shell("test -z \"$(ls -A '%s')\"", in(p, "victim"));
    shell("rm '%s' && mkdir -m 700 '%s' && ln -s '%s' '%s/x86' && ln -s '%s' '%s/facts'", p->cache, p->cache,
          in(p, "victim"), p->cache, in(p, "victim"), p->cache);
    shell("printf 'Signature: 8a477f597d28d172789f06886806bc55\\n' >'%s/CACHEDIR.TAG'", p->cache);
    build_and_run(p);
    assert_int_equal(sol_cache_clear(p->ctx), SOL_OK);
    shell("test -z \"$(ls -A '%s')\"", in(p, "victim"));
    unsetenv("TMPDIR");
}

/* Sources that are kept without a cache are in a new folder, not in one that somebody else created. */
/* A name in the cache that is a second one of a user's file: neither building nor clearing changes that file. */
static void hard_links_lead_nowhere(void **state)
{
    struct place *p = *state;
    shell("echo precious >'%s'", in(p, "mine"));
    build_and_run(p);
    compiler_runs(p);
    shell("cd '%s'/x86/modules && for f in *; do ln -f '%s' \"$f\"; done", p->cache, in(p, "mine"));
    build_and_run(p);
    assert_int_equal(compiler_runs(p), 2); /* the module, and linking it */
    shell("test \"$(cat '%s')\" = precious && test $(stat -c %%h '%s') = 1", in(p, "mine"), in(p, "mine"));
    shell("cd '%s'/x86/objects && for f in *; do ln -f '%s' \"$f\"; done", p->cache, in(p, "mine"));
    assert_int_equal(sol_cache_clear(p->ctx), SOL_OK);
    shell("test \"$(cat '%s')\" = precious && test $(stat -c %%h '%s') = 1", in(p, "mine"), in(p, "mine"));
}

static void sources_lie_in_folders_of_ones_own(void **state)
{
    struct place *p = *state;
    setenv("TMPDIR", in(p, "t"), 1);
    shell("mkdir -p '%s/x86/source'", in(p, "t"));
    sol_config_set(p->ctx, "cache::folder", "");
    sol_config_set(p->ctx, "compiler::debug", "1");
    build_and_run(p);
    shell("test -z \"$(ls '%s/x86/source')\"", in(p, "t"));
    shell("test $(ls '%s'/sol-source-*/test_net_sol_[km]_*.c | wc -l) = 3", in(p, "t"));
    /* the same if others can replace the folder of the cache */
    shell("rm -rf '%s'/sol-source-*; mkdir -m 777 '%s'; chmod 777 '%s'", in(p, "t"), in(p, "open"), in(p, "open"));
    sol_config_set(p->ctx, "cache::folder", in(p, "open/cache"));
    build_and_run(p);
    shell("test -e '%s/cache/facts' && test -z \"$(ls '%s/cache/x86/source')\"", in(p, "open"), in(p, "open"));
    shell("test $(ls '%s'/sol-source-*/test_net_sol_[km]_*.c | wc -l) = 3", in(p, "t"));
    unsetenv("TMPDIR");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, start, teardown)
    const struct CMUnitTest tests[] = {
        TEST(what_others_sealed_is_not_used),
        TEST(an_entry_is_for_its_keys_only),
        TEST(modules_side_by_side_are_their_own),
        TEST(entries_are_files),
        TEST(what_runs_is_what_was_verified),
        TEST(a_secret_that_others_can_read_is_none),
        TEST(the_default_is_the_users_cache),
        TEST(files_of_the_user_stay),
        TEST(links_are_not_followed),
        TEST(hard_links_lead_nowhere),
        TEST(sources_lie_in_folders_of_ones_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
