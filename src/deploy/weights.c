/* Weights: all parameters and constants in one file. Data that several versions or batch sizes share is stored once. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "deploy/deploy.h"
#include "deploy/hash.h"

enum { ALIGN = 64 };

/* Where the data lie; equal data are there once. */
static int64_t place(struct deploy *d, struct map *known, const void *data, int64_t bytes)
{
    char hex[33];
    struct hash h;
    hash_init(&h);
    hash_add(&h, data, (size_t)bytes);
    hash_hex(&h, hex);
    struct deploy_piece *before = map_get(known, hex);
    if (before) return before->at;
    struct deploy_piece *piece = NEW(d->arena, struct deploy_piece);
    *piece = (struct deploy_piece){data, bytes, d->weights_bytes};
    map_set(known, hex, piece);
    PUSH(d->arena, d->pieces, *piece);
    d->weights_bytes += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return piece->at;
}

/* Which buffers the deployed programs use. */
static bool *used_buffers(struct deploy *d, const struct schedule *s)
{
    bool *used = NEW_ARRAY(d->arena, bool, s->buffers.n + 1);
    for (int program = 0; program < PROGRAMS; program++) {
        const struct schedule_program *pr = &s->program[program];
        for (int i = 0; i < pr->steps.n; i++)
            for (int k = 0; k < pr->steps.at[i].noperand; k++) used[pr->steps.at[i].place[k].buffer] = true;
    }
    return used;
}

static sol_status check_param(struct deploy *d, const struct deploy_graph *g, int i)
{
    if (g->params && g->params[i]) return SOL_OK;
    return ctx_fail(d->ctx, SOL_ERR_INVALID, "deploy: parameter %d, '%s', has no data", i, g->g->params.at[i]->name);
}

static sol_status place_code(struct deploy *d, struct map *known, const struct deploy_graph *g,
                             struct deploy_code *code)
{
    const struct schedule *s = code->schedule;
    const bool *used = used_buffers(d, s);
    code->param_at = NEW_ARRAY(d->arena, int64_t, g->g->params.n + 1);
    code->const_at = NEW_ARRAY(d->arena, int64_t, s->constants.n + 1);
    for (int i = 0; i < g->g->params.n; i++) code->param_at[i] = -1;
    for (int i = 0; i < s->constants.n; i++) code->const_at[i] = -1;
    for (int i = 0; i < s->buffers.n; i++) {
        const struct sol_buffer *b = &s->buffers.at[i];
        if (!used[i]) continue;
        if (b->kind == SOL_BUFFER_PARAM && b->bytes) {
            TRY(check_param(d, g, b->index));
            code->param_at[b->index] = place(d, known, g->params[b->index], b->bytes);
        } else if (b->kind == SOL_BUFFER_CONST) {
            code->const_at[b->index] = place(d, known, s->constants.at[b->index]->data, b->bytes);
        }
    }
    return SOL_OK;
}

sol_status deploy_weights(struct deploy *d)
{
    struct map *known = map_create(d->arena);
    for (int i = 0; i < d->ngraph; i++)
        for (int k = 0; k < d->nversion; k++) TRY(place_code(d, known, &d->graph[i], &d->graph[i].code[k]));
    if (!d->weights_bytes) d->weights_bytes = ALIGN; /* a file is not empty */
    const int64_t most = INT64_C(1900) << 20;
    if (!strcmp(d->keys.weights, "inside") && d->weights_bytes > most)
        return ctx_fail(d->ctx, SOL_ERR_UNSUPPORTED,
                        "deploy: weights of %lld bytes do not fit into a library: deploy with weights=file",
                        (long long)d->weights_bytes);
    return ctx_check(d->ctx);
}

static bool put(int fd, const void *data, int64_t bytes)
{
    for (const char *at = data; bytes;) {
        const ssize_t n = write(fd, at, (size_t)MIN(bytes, INT64_C(1) << 30));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n;
        bytes -= n;
    }
    return true;
}

static bool put_pieces(const struct deploy *d, int fd)
{
    static const char zero[ALIGN];
    int64_t end = 0;
    for (int i = 0; i < d->pieces.n; i++) {
        const struct deploy_piece *p = &d->pieces.at[i];
        if (!put(fd, zero, p->at - end) || !put(fd, p->data, p->bytes)) return false;
        end = p->at + p->bytes;
    }
    return put(fd, zero, d->weights_bytes - end);
}

/* 0, or what errno says. */
static int write_and_hash(struct deploy *d, int fd)
{
    if (!put_pieces(d, fd)) return errno;
    void *at = mmap(NULL, (size_t)d->weights_bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) return errno;
    d->weights_hash = front_hash(at, (size_t)d->weights_bytes);
    munmap(at, (size_t)d->weights_bytes);
    return 0;
}

/* Writes a new file and renames it, because processes may have mapped the old one. */
sol_status deploy_write_weights(struct deploy *d, const char *path)
{
    const char *part = arena_printf(d->arena, "%s.%ld.part", path, (long)getpid());
    const int fd = open(part, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int error = fd < 0 ? errno : write_and_hash(d, fd);
    if (fd >= 0 && close(fd) && !error) error = errno;
    if (!error && rename(part, path)) error = errno;
    if (!error) return SOL_OK;
    unlink(part);
    return ctx_fail(d->ctx, SOL_ERR_IO, "deploy: cannot write '%s': %s", path, strerror(error));
}
