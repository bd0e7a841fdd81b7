/* Runs a program without interpreting its arguments. Standard output and error go to one pipe, and the first MiB is
 * kept. Standard input is empty. The child leads its own process group, so that killing it also kills the programs that
 * a compiler started.
 *
 * The application may take away the exit code: it may ignore SIGCHLD, as daemons do, or wait for any child. If it
 * changes that signal, SOL starts /bin/sh with the unchanged arguments; the shell waits for the program and writes the
 * exit code into a pipe. */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OUTPUT_MOST = 1 << 20 };

struct process {
    struct sol_ctx *ctx;
    pid_t pid;
    int fd;   /* our end of the pipe, -1 when closed */
    int code; /* of the pipe for the exit code; -1: none, it comes from the system */
    bool ended;
    int exit;
    char name[64]; /* of the program, for messages */
    char *output;  /* terminated; NULL: nothing yet */
    size_t n, room;
};

extern char **environ;

static bool children_are_ours(void)
{
    struct sigaction a;
    return !sigaction(SIGCHLD, NULL, &a) && a.sa_handler == SIG_DFL && !(a.sa_flags & SA_NOCLDWAIT);
}

/* `in`, `out`: descriptors of the child's standard input and output. `code`: -1, or what becomes descriptor 3. */
static int spawn(const char *const argv[], int in, int out, int code, pid_t *pid)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none, defaults;
    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    sigaddset(&defaults, SIGINT);
    sigaddset(&defaults, SIGCHLD);
    int error = posix_spawn_file_actions_init(&files);
    if (error) return error;
    error = posix_spawnattr_init(&attr);
    if (error) {
        posix_spawn_file_actions_destroy(&files);
        return error;
    }
    error = posix_spawn_file_actions_adddup2(&files, in, 0);
    if (!error) error = posix_spawn_file_actions_adddup2(&files, out, 1);
    if (!error) error = posix_spawn_file_actions_adddup2(&files, out, 2);
    if (!error && code >= 0) error = posix_spawn_file_actions_adddup2(&files, code, 3);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &defaults);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    if (!error) error = posix_spawnp(pid, argv[0], &files, &attr, (char *const *)(uintptr_t)argv, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    return error;
}

/* A pipe whose descriptors are above 2, so that they do not collide with the child's 0, 1 and 2. */
static int make_pipe(int ends[2])
{
    int low[2];
    if (pipe2(low, O_CLOEXEC)) return errno;
    int error = 0;
    for (int i = 0; i < 2; i++) {
        ends[i] = fcntl(low[i], F_DUPFD_CLOEXEC, 3);
        if (ends[i] < 0) error = errno;
        close(low[i]);
    }
    if (!error) return 0;
    for (int i = 0; i < 2; i++) {
        if (ends[i] >= 0) close(ends[i]);
        ends[i] = -1;
    }
    return error;
}

static void close_end(int fd)
{
    if (fd >= 0) close(fd);
}

/* Starts the program, through /bin/sh if its exit code would be lost. */
static int start(struct process *p, const char *const argv[])
{
    static const char *const shell[] = {"/bin/sh", "-c", "\"$@\" 3>&-; code=$?; echo $code >&3; exit $code", "sh"};
    int in[2] = {-1, -1}, out[2] = {-1, -1}, code[2] = {-1, -1}, n = 0;
    const bool ours = children_are_ours();
    while (argv[n]) n++;
    const char **all = ctx_realloc(p->ctx, NULL, (size_t)(COUNT_OF(shell) + n + 1) * sizeof *all);
    if (!all) return ENOMEM;
    memcpy(all, shell, sizeof shell);
    memcpy(all + COUNT_OF(shell), argv, (size_t)(n + 1) * sizeof *argv);
    int error = make_pipe(in);
    if (!error) error = make_pipe(out);
    if (!error && !ours) error = make_pipe(code);
    close_end(in[1]); /* the child meets the end of its input at once, even where /dev is empty */
    if (!error) error = spawn(ours ? argv : all, in[0], out[1], code[1], &p->pid);
    close_end(in[0]);
    close_end(out[1]);
    close_end(code[1]);
    p->fd = out[0];
    p->code = code[0];
    ctx_free(p->ctx, all);
    return error;
}

static void close_pipes(struct process *p)
{
    close_end(p->fd);
    close_end(p->code);
    p->fd = p->code = -1;
}

sol_status process_start(struct sol_ctx *ctx, const char *const argv[], struct process **out_p)
{
    *out_p = NULL;
    struct process *p = ctx_realloc(ctx, NULL, sizeof *p);
    if (!p) return ctx_fail(ctx, SOL_ERR_NOMEM, "cannot start '%s': out of memory", argv[0]);
    *p = (struct process){.ctx = ctx, .fd = -1, .code = -1};
    strncpy(p->name, argv[0], sizeof p->name - 1);
    const int error = start(p, argv);
    if (error) {
        close_pipes(p);
        ctx_free(ctx, p);
        return ctx_fail(ctx, error == ENOMEM ? SOL_ERR_NOMEM : SOL_ERR_IO, "cannot start '%s': %s", argv[0],
                        strerror(error));
    }
    fcntl(p->fd, F_SETFL, O_NONBLOCK);
    *out_p = p;
    return SOL_OK;
}

static void keep(struct process *p, const char *bytes, size_t n)
{
    if (p->n + n >= p->room && p->room < OUTPUT_MOST) {
        size_t room = p->room ? p->room * 4 : 16384;
        char *output = ctx_realloc(p->ctx, p->output, room);
        if (!output) return;
        p->output = output;
        p->room = room;
    }
    n = MIN(n, p->room - 1 - p->n);
    memcpy(p->output + p->n, bytes, n);
    p->n += n;
    p->output[p->n] = 0;
}

/* Reads what is there. */
static void drain(struct process *p)
{
    char buffer[4096];
    while (p->fd >= 0) {
        ssize_t n = read(p->fd, buffer, sizeof buffer);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) {
            close(p->fd);
            p->fd = -1;
            return;
        }
        keep(p, buffer, (size_t)n);
    }
}

/* Reads the exit code that the shell wrote. */
static int written_code(const struct process *p)
{
    char text[16] = "";
    const ssize_t n = p->code >= 0 ? read(p->code, text, sizeof text - 1) : 0;
    return n > 0 ? atoi(text) : 127; /* 127: other code of this process has waited for our child */
}

static void collect(struct process *p, int flags)
{
    int status = 0;
    pid_t r;
    do r = waitpid(p->pid, &status, flags);
    while (r < 0 && errno == EINTR);
    if (!r) return;
    p->ended = true;
    if (r < 0)
        p->exit = written_code(p);
    else
        p->exit = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

bool process_done(struct process *p)
{
    drain(p);
    if (!p->ended) collect(p, WNOHANG);
    if (p->ended) drain(p);
    return p->ended;
}

sol_status process_wait(struct sol_ctx *ctx, struct process *p, int *out_exit, const char **out_output)
{
    while (p->fd >= 0 && !p->ended) {
        struct pollfd f = {.fd = p->fd, .events = POLLIN};
        poll(&f, 1, 100); /* also looks for an interrupt, and for a child that ended with its pipe handed on */
        drain(p);
        if (!p->ended) collect(p, WNOHANG);
        if (!p->ended) TRY(ctx_check(ctx));
    }
    while (!p->ended) {
        collect(p, WNOHANG);
        if (p->ended) break;
        TRY(ctx_check(ctx));
        poll(NULL, 0, 1);
    }
    drain(p);
    if (out_exit) *out_exit = p->exit;
    if (out_output) *out_output = p->output ? p->output : "";
    return SOL_OK;
}

void process_free(struct sol_ctx *ctx, struct process *p)
{
    if (!p) return;
    if (!p->ended) {
        kill(-p->pid, SIGKILL);
        collect(p, 0);
    }
    close_pipes(p);
    ctx_free(ctx, p->output);
    ctx_free(ctx, p);
}

sol_status process_run(struct arena *a, const char *const argv[], int *out_exit, const char **out_output)
{
    struct sol_ctx *ctx = arena_ctx(a);
    struct process *p;
    const char *output = "";
    *out_exit = 0;
    *out_output = "";
    TRY(process_start(ctx, argv, &p));
    const sol_status status = process_wait(ctx, p, out_exit, &output);
    *out_output = arena_strdup(a, output);
    process_free(ctx, p);
    return status ? status : ctx_check(ctx);
}
