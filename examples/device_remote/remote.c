/* A device type that was written from sol/device.h and docs/devices.md alone: another process, behind a socket. It owns
 * its memory, and runs whole programs, which a C compiler makes from the text that SOL prints. Options:
 *
 * remote.server=COMMAND    how the server is started; by default the program sol-remote-server beside this plug-in
 * remote.compiler=PROGRAM  a C compiler for the server's processor (cc)
 * remote.arch=NAME         that processor, as the key `target` names it (native)
 * remote.memory=BYTES      of the server (1000000000)
 *
 * ARM64 in an emulator: remote.server=qemu-aarch64 -L /usr/aarch64-linux-gnu server-arm64, remote.arch=neon,
 * remote.compiler=aarch64-linux-gnu-gcc */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "remote.h"
#include "sol/device.h"

extern char **environ;

enum { MOST_WORDS = 64, COMMAND_BYTES = 2000 };

struct sol_device {
    char folder[32], socket[48];
    pid_t server;
    int input;            /* of the server: it ends when this is closed */
    int control;          /* for all but streams */
    pthread_mutex_t lock; /* for `control` */
};
struct sol_stream {
    struct sol_device *device;
    int socket;
    int64_t ticket;
};
struct sol_code {
    struct sol_device *device;
    const struct sol_module *module;
    int64_t number;
};

/* -- failures */

static sol_status fail(struct sol_failure *f, sol_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(f->text, sizeof f->text, format, args);
    va_end(args);
    return status;
}

static sol_status gone(struct sol_failure *f)
{
    return fail(f, SOL_ERR_RUN, "the server has ended, or does not answer any more");
}

/* -- requests */

struct part { /* bytes of a request */
    const void *data;
    size_t bytes;
};

/* Sends a request with up to two parts, and receives the answer; its bytes go to `out`, which has room for `room`. */
static sol_status ask(int fd, struct message *m, const struct part part[2], void *out, size_t room,
                      struct sol_failure *out_why)
{
    char text[600] = "";
    m->bytes = (int64_t)(part[0].bytes + part[1].bytes);
    if (!send_all(fd, m, sizeof *m)) return gone(out_why);
    for (int i = 0; i < 2; i++)
        if (!send_all(fd, part[i].data, part[i].bytes)) return gone(out_why);
    if (!receive_all(fd, m, sizeof *m)) return gone(out_why);
    void *to = m->status ? text : out;
    if ((size_t)m->bytes > (m->status ? sizeof text : room)) return gone(out_why);
    if (!receive_all(fd, to, (size_t)m->bytes)) return gone(out_why);
    return m->status ? fail(out_why, m->status, "%s", text) : SOL_OK;
}

static const struct part nothing[2];

static sol_status ask_control(struct sol_device *d, struct message *m, const struct part part[2],
                              struct sol_failure *out_why)
{
    pthread_mutex_lock(&d->lock);
    const sol_status status = ask(d->control, m, part, NULL, 0, out_why);
    pthread_mutex_unlock(&d->lock);
    return status;
}

/* -- other programs */

/* The words of a command. */
static void split(char *command, char *out_words[MOST_WORDS])
{
    int n = 0;
    for (char *save = NULL, *w = strtok_r(command, " ", &save); w && n < MOST_WORDS - 1; w = strtok_r(NULL, " ", &save))
        out_words[n++] = w;
    out_words[n] = NULL;
}

static void option(const struct sol_host *host, const char *name, const char *otherwise, char *out, size_t room)
{
    host->option(host->user, name, out, room);
    if (!*out) snprintf(out, room, "%s", otherwise);
}

/* The program beside this plug-in. */
static void server_command(const struct sol_host *host, char out[COMMAND_BYTES])
{
    Dl_info here;
    char beside[COMMAND_BYTES - 100] = "sol-remote-server";
    if (dladdr((const void *)(uintptr_t)nothing, &here) && strrchr(here.dli_fname, '/'))
        snprintf(beside, sizeof beside, "%.*s/sol-remote-server", (int)(strrchr(here.dli_fname, '/') - here.dli_fname),
                 here.dli_fname);
    option(host, "remote.server", beside, out, COMMAND_BYTES);
}

static bool can_run(const char *command)
{
    char path[COMMAND_BYTES];
    snprintf(path, sizeof path, "%.*s", (int)strcspn(command, " "), command);
    if (strchr(path, '/')) return !access(path, X_OK);
    const char *at = getenv("PATH");
    for (; at && *at; at += strcspn(at, ":"), at += *at == ':') {
        char full[COMMAND_BYTES + 100];
        snprintf(full, sizeof full, "%.*s/%s", (int)strcspn(at, ":"), at, path);
        if (!access(full, X_OK)) return true;
    }
    return false;
}

/* -- what there is */

static sol_status remote_count(const struct sol_device_type *type, const struct sol_host *host, int *out_n,
                               struct sol_failure *out_why)
{
    char command[COMMAND_BYTES];
    (void)type;
    server_command(host, command);
    *out_n = can_run(command);
    if (!*out_n) fail(out_why, SOL_OK, "there is no program '%s' (option remote.server)", command);
    return SOL_OK;
}

static sol_status remote_info(const struct sol_device_type *type, const struct sol_host *host, int index,
                              struct sol_device_info *out_info, struct sol_failure *out_why)
{
    char memory[32];
    (void)type, (void)index, (void)out_why;
    snprintf(out_info->name, sizeof out_info->name, "a process behind a socket");
    option(host, "remote.arch", "native", out_info->arch, sizeof out_info->arch);
    option(host, "remote.compiler", "cc", out_info->compiler, sizeof out_info->compiler);
    option(host, "remote.memory", "1000000000", memory, sizeof memory);
    out_info->memory = atoll(memory);
    out_info->cores = 1;
    out_info->f64 = 1;
    return SOL_OK;
}

/* -- open and close */

static int connect_to(const char *path, struct sol_failure *out_why)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && !connect(fd, (const void *)&at, sizeof at)) return fd;
    fail(out_why, SOL_ERR_RUN, "the server cannot be reached: %s", strerror(errno));
    if (fd >= 0) close(fd);
    return -1;
}

/* Returns what waitpid says of a program that ends. */
static int wait_for(pid_t pid)
{
    int state = 0;
    while (waitpid(pid, &state, 0) < 0 && errno == EINTR) continue;
    return state;
}

static bool says_something(int fd)
{
    char line[16];
    ssize_t n;
    while ((n = read(fd, line, sizeof line)) < 0 && errno == EINTR) continue;
    return n > 0;
}

/* Starts the server, and waits for its first line. */
static sol_status start(struct sol_device *d, char *command, const char *memory, struct sol_failure *out_why)
{
    int in[2], out[2];
    char *words[MOST_WORDS];
    posix_spawn_file_actions_t actions;
    int n = 0;
    split(command, words);
    while (words[n]) n++;
    if (!n || n + 3 > MOST_WORDS) return fail(out_why, SOL_ERR_INVALID, "remote.server: expected a command");
    words[n] = d->socket, words[n + 1] = (char *)(uintptr_t)memory, words[n + 2] = NULL;
    if (pipe2(in, O_CLOEXEC)) return fail(out_why, SOL_ERR_RUN, "no pipe: %s", strerror(errno));
    if (pipe2(out, O_CLOEXEC)) {
        close(in[0]), close(in[1]);
        return fail(out_why, SOL_ERR_RUN, "no pipe: %s", strerror(errno));
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    const int error = posix_spawnp(&d->server, words[0], &actions, NULL, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]), close(out[1]);
    d->input = in[1];
    const bool ready = !error && says_something(out[0]);
    close(out[0]);
    if (ready) return SOL_OK;
    close(d->input);
    if (!error) wait_for(d->server);
    return fail(out_why, SOL_ERR_RUN, "the server '%s' does not start: %s", words[0],
                error ? strerror(error) : "it ended at once");
}

static void stop(struct sol_device *d)
{
    close(d->input);
    wait_for(d->server);
}

static sol_status remote_open(const struct sol_device_type *type, const struct sol_host *host, int index,
                              struct sol_device **out_device, struct sol_failure *out_why)
{
    char command[COMMAND_BYTES], memory[32];
    struct sol_device *d = calloc(1, sizeof *d);
    (void)type, (void)index;
    *out_device = NULL;
    if (!d) return fail(out_why, SOL_ERR_NOMEM, "out of memory");
    strcpy(d->folder, "/tmp/sol-remote-XXXXXX");
    if (!mkdtemp(d->folder)) {
        free(d);
        return fail(out_why, SOL_ERR_IO, "no folder in /tmp: %s", strerror(errno));
    }
    snprintf(d->socket, sizeof d->socket, "%s/socket", d->folder);
    server_command(host, command);
    option(host, "remote.memory", "1000000000", memory, sizeof memory);
    sol_status status = start(d, command, memory, out_why);
    if (!status && (d->control = connect_to(d->socket, out_why)) < 0) {
        stop(d);
        status = SOL_ERR_RUN;
    }
    if (status) {
        rmdir(d->folder);
        free(d);
        return status;
    }
    pthread_mutex_init(&d->lock, NULL);
    *out_device = d;
    return SOL_OK;
}

static void remote_close(struct sol_device *d)
{
    close(d->control);
    stop(d);
    unlink(d->socket); /* if the server was killed */
    rmdir(d->folder);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

/* -- memory */

static sol_status remote_alloc(struct sol_device *d, int64_t bytes, sol_ptr *out_raw, struct sol_failure *out_why)
{
    struct message m = {.request = REMOTE_ALLOC, .n = bytes};
    const sol_status status = ask_control(d, &m, nothing, out_why);
    *out_raw = status ? 0 : (sol_ptr)m.a;
    return status;
}

static void remote_free(struct sol_device *d, sol_ptr raw)
{
    struct sol_failure why;
    struct message m = {.request = REMOTE_FREE, .a = (int64_t)raw};
    ask_control(d, &m, nothing, &why);
}

/* -- code */

static char *file_text(const char *path, size_t most, size_t *out_bytes)
{
    FILE *f = fopen(path, "rbe");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    const long end = ftell(f);
    *out_bytes = end < 0 ? 0 : (size_t)end < most ? (size_t)end : most;
    rewind(f);
    char *text = malloc(*out_bytes + 1);
    if (text) *out_bytes = fread(text, 1, *out_bytes, f);
    if (text) text[*out_bytes] = 0;
    fclose(f);
    return text;
}

struct files { /* of a compilation */
    char folder[32], source[48], object[48], log[48];
};

/* Returns what the compiler says, SOL_OK if it made the object. */
static sol_status run_compiler(const struct files *f, const char *compiler, const char *flags,
                               struct sol_failure *out_why)
{
    char command[COMMAND_BYTES], *words[MOST_WORDS];
    posix_spawn_file_actions_t actions;
    pid_t pid;
    snprintf(command, sizeof command, "%s %s -w -shared -o %s %s -lm", compiler, flags, f->object, f->source);
    split(command, words);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 2, f->log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const int error = posix_spawnp(&pid, words[0], &actions, NULL, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error)
        return fail(out_why, SOL_ERR_COMPILER, "compiler '%s' (option remote.compiler): %s", compiler, strerror(error));
    const int state = wait_for(pid);
    if (WIFEXITED(state) && !WEXITSTATUS(state)) return SOL_OK;
    size_t n;
    char *text = file_text(f->log, 700, &n);
    while (text && n && text[n - 1] == '\n') text[--n] = 0;
    fail(out_why, SOL_ERR_COMPILER, "compiler '%s' rejected the code: %s", compiler, text ? text : "it says nothing");
    free(text);
    return SOL_ERR_COMPILER;
}

static sol_status remote_compile(const struct sol_device_type *type, const struct sol_host *host,
                                 const struct sol_code_text *text, struct sol_blob *out_blob,
                                 struct sol_failure *out_why)
{
    char compiler[300];
    size_t bytes = 0;
    struct files f = {.folder = "/tmp/sol-remote-XXXXXX"};
    (void)type;
    if (!mkdtemp(f.folder)) return fail(out_why, SOL_ERR_IO, "no folder in /tmp: %s", strerror(errno));
    snprintf(f.source, sizeof f.source, "%s/code.c", f.folder);
    snprintf(f.object, sizeof f.object, "%s/code.so", f.folder);
    snprintf(f.log, sizeof f.log, "%s/log", f.folder);
    option(host, "remote.compiler", "cc", compiler, sizeof compiler);
    FILE *source = fopen(f.source, "we");
    bool written = source && fputs(text->text, source) >= 0;
    if (source) written = !fclose(source) && written;
    sol_status status = written ? run_compiler(&f, compiler, text->flags ? text->flags : "", out_why)
                                : fail(out_why, SOL_ERR_IO, "%s cannot be written", f.source);
    if (!status && !(out_blob->data = file_text(f.object, SIZE_MAX, &bytes)))
        status = fail(out_why, SOL_ERR_IO, "%s cannot be read", f.object);
    out_blob->bytes = bytes;
    unlink(f.source), unlink(f.object), unlink(f.log), rmdir(f.folder);
    return status;
}

static void remote_blob_free(const struct sol_device_type *type, const struct sol_host *host, struct sol_blob *blob)
{
    (void)type, (void)host;
    free((void *)(uintptr_t)blob->data);
    blob->data = NULL;
}

static sol_status remote_load(struct sol_device *d, const struct sol_blob *blob, struct sol_code **out_code,
                              struct sol_failure *out_why)
{
    struct message m = {.request = REMOTE_LOAD};
    struct sol_code *code = malloc(sizeof *code);
    *out_code = NULL;
    if (!code) return fail(out_why, SOL_ERR_NOMEM, "out of memory");
    const sol_status status = ask_control(d, &m, (const struct part[2]){{blob->data, blob->bytes}}, out_why);
    if (status) {
        free(code);
        return status;
    }
    *code = (struct sol_code){d, blob->module, m.a};
    *out_code = code;
    return SOL_OK;
}

static void remote_unload(struct sol_code *code)
{
    struct sol_failure why;
    struct message m = {.request = REMOTE_UNLOAD, .a = code->number};
    ask_control(code->device, &m, nothing, &why);
    free(code);
}

/* -- streams */

static sol_status remote_queue(struct sol_device *d, void *foreign, struct sol_stream **out_stream,
                               struct sol_failure *out_why)
{
    *out_stream = NULL;
    if (foreign) return fail(out_why, SOL_ERR_UNSUPPORTED, "it has no streams of frameworks");
    struct sol_stream *s = malloc(sizeof *s);
    if (!s) return fail(out_why, SOL_ERR_NOMEM, "out of memory");
    *s = (struct sol_stream){.device = d, .socket = connect_to(d->socket, out_why)};
    if (s->socket < 0) {
        free(s);
        return SOL_ERR_RUN;
    }
    *out_stream = s;
    return SOL_OK;
}

static void remote_unqueue(struct sol_stream *s)
{
    close(s->socket);
    free(s);
}

/* Sends the steps and their arrays, and receives the times. */
static sol_status run(int fd, const struct sol_run *r, struct message *m, struct sol_failure *out_why)
{
    const struct remote_run head = {.code = r->code->number,
                                    .scratch = (int64_t)r->scratch,
                                    .program = r->program,
                                    .first = r->first,
                                    .count = r->count,
                                    .threads = r->threads,
                                    .nbase = r->nbase,
                                    .nsize = r->sizes ? r->code->module->nsize : 0,
                                    .nseed = r->nseed,
                                    .timed = r->step_ns != NULL};
    const size_t numbers = (size_t)head.nbase + (size_t)head.nsize + (size_t)head.nseed, n = (size_t)r->count;
    int64_t *memory = malloc(numbers * sizeof *memory + n * (1 + sizeof *memory) + sizeof *memory);
    if (!memory) return fail(out_why, SOL_ERR_NOMEM, "out of memory: %zu steps", n);
    int64_t *times = memory, *at = memory + n;
    char *only = (char *)(at + numbers);
    memcpy(at, r->base, (size_t)head.nbase * sizeof *at);
    if (head.nsize) memcpy(at + head.nbase, r->sizes, (size_t)head.nsize * sizeof *at);
    if (head.nseed) memcpy(at + head.nbase + head.nsize, r->seeds, (size_t)head.nseed * sizeof *at);
    for (size_t i = 0; i < n; i++) only[i] = !r->only || r->only[(size_t)r->first + i];
    m->request = REMOTE_RUN;
    const sol_status status = ask(fd, m, (const struct part[2]){{&head, sizeof head}, {at, numbers * sizeof *at + n}},
                                  times, n * sizeof *times, out_why);
    if (status && m->status) { /* the server says so */
        out_why->step = (int32_t)m->a;
        out_why->kernel = (int32_t)m->b;
    }
    for (size_t i = 0; i < n && !status && r->step_ns; i++)
        if (only[i]) r->step_ns[(size_t)r->first + i] = times[i];
    free(memory);
    return status;
}

static sol_status execute(int fd, const struct sol_command *c, struct sol_failure *out_why)
{
    struct message m = {.a = (int64_t)c->to, .b = (int64_t)c->from, .n = c->bytes};
    const struct part data[2] = {{c->data, (size_t)c->bytes}};
    sol_status status;
    switch ((enum sol_command_kind)c->kind) {
    case SOL_COMMAND_WRITE:
        m.request = REMOTE_WRITE;
        status = ask(fd, &m, data, NULL, 0, out_why);
        break;
    case SOL_COMMAND_READ:
        m.request = REMOTE_READ;
        status = ask(fd, &m, nothing, c->host, (size_t)c->bytes, out_why);
        break;
    case SOL_COMMAND_COPY:
        m.request = REMOTE_COPY;
        status = ask(fd, &m, nothing, NULL, 0, out_why);
        break;
    case SOL_COMMAND_FILL:
        m.request = REMOTE_FILL;
        m.b = c->value;
        status = ask(fd, &m, nothing, NULL, 0, out_why);
        break;
    case SOL_COMMAND_RUN: status = run(fd, c->run, &m, out_why); break;
    default: return fail(out_why, SOL_ERR_UNSUPPORTED, "a command of kind %d", c->kind);
    }
    if (!status && c->ns) *c->ns = m.n;
    return status;
}

static sol_status remote_submit(struct sol_stream *s, int n, const struct sol_command *command, int64_t *out_ticket,
                                struct sol_failure *out_why)
{
    sol_status status = SOL_OK;
    for (int i = 0; i < n && !status; i++) {
        out_why->ticket = ++s->ticket;
        status = execute(s->socket, &command[i], out_why);
    }
    *out_ticket = s->ticket;
    return status;
}

static const struct sol_device_type remote = {
    .size = sizeof remote,
    .version = SOL_DEVICE_VERSION,
    .name = "remote",
    .flavour = "c",
    .features = SOL_DEVICE_PROGRAMS | SOL_DEVICE_SYNCHRONOUS,
    .count = remote_count,
    .info = remote_info,
    .open = remote_open,
    .close = remote_close,
    .alloc = remote_alloc,
    .free = remote_free,
    .compile = remote_compile,
    .blob_free = remote_blob_free,
    .load = remote_load,
    .unload = remote_unload,
    .queue = remote_queue,
    .unqueue = remote_unqueue,
    .submit = remote_submit,
};

__attribute__((visibility("default"))) const struct sol_device_type *sol_device_plugin(int i)
{
    return i ? NULL : &remote;
}
