/* Sequences of commands that come again. A driver makes one object of such a sequence, which is launched as a whole. */
#include "device/sequence.h"

#include <stdlib.h>
#include <string.h>

#include "device/inside.h"

enum { KEPT = 32, LEAST = 2 /* launches, for which an object pays off */ };

struct kept {
    char *text; /* of the sequence; NULL: none */
    size_t bytes;
    void *made;   /* NULL: it came once */
    bool never;   /* the driver does not make an object of it */
    int64_t used; /* when */
};
struct sequences {
    struct sequence_maker by;
    struct kept kept[KEPT];
    int64_t clock, unloads;
    int alone;  /* commands of this submit that are launched one by one */
    char *text; /* of the sequence that is submitted */
    size_t bytes, room;
};

struct sequences *sequences_make(const struct sequence_maker *by)
{
    struct sequences *s = calloc(1, sizeof *s);
    if (s) s->by = *by;
    return s;
}

static void forget(struct sequences *s, struct kept *k)
{
    if (k->made) s->by.drop(s->by.user, k->made);
    free(k->text);
    *k = (struct kept){0};
}

void sequences_free(struct sequences *s)
{
    if (!s) return;
    for (int i = 0; i < KEPT; i++) forget(s, &s->kept[i]);
    free(s->text);
    free(s);
}

/* -- the text of a sequence: all that the driver gets */

static bool put(struct sequences *s, const void *data, size_t bytes)
{
    if (s->bytes + bytes > s->room) {
        const size_t room = 2 * (s->bytes + bytes) + 4096;
        char *more = realloc(s->text, room);
        if (!more) return false;
        s->text = more;
        s->room = room;
    }
    if (bytes) memcpy(s->text + s->bytes, data, bytes);
    s->bytes += bytes;
    return true;
}

static bool put_launch(struct sequences *s, const struct sol_launch *l)
{
    bool good = put(s, &l->kernel, sizeof l->kernel) && put(s, l->groups, sizeof l->groups) &&
                put(s, l->items, sizeof l->items) && put(s, &l->narg, sizeof l->narg);
    for (int i = 0; i < l->narg && good; i++) {
        const struct sol_arg *a = &l->arg[i];
        good = put(s, &a->kind, sizeof a->kind) && put(s, &a->bytes, sizeof a->bytes);
        if (good && a->kind == SOL_ARG_POINTER) good = put(s, &a->pointer, sizeof a->pointer);
        if (good && a->kind == SOL_ARG_VALUE) good = put(s, a->value, (size_t)a->bytes);
    }
    return good;
}

static bool put_command(struct sequences *s, const struct sol_command *c)
{
    const bool good = put(s, &c->kind, sizeof c->kind) && put(s, &c->to, sizeof c->to) &&
                      put(s, &c->from, sizeof c->from) && put(s, &c->bytes, sizeof c->bytes) &&
                      put(s, &c->value, sizeof c->value);
    return good && (c->kind != SOL_COMMAND_LAUNCH || put_launch(s, c->launch));
}

/* How many commands from the first on can be in a graph: those of the device alone whose time nobody asks for. */
static int length(int n, const struct sol_command *c)
{
    int i = 0, launches = 0;
    for (; i < n; i++) {
        const bool copy = (c[i].kind == SOL_COMMAND_FILL || c[i].kind == SOL_COMMAND_COPY) && c[i].bytes;
        if (c[i].ns || !(copy || c[i].kind == SOL_COMMAND_LAUNCH)) break;
        launches += c[i].kind == SOL_COMMAND_LAUNCH;
    }
    return launches >= LEAST ? i : 0;
}

/* -- sequences that came before */

static struct kept *find(struct sequences *s)
{
    struct kept *oldest = &s->kept[0];
    for (int i = 0; i < KEPT; i++) {
        struct kept *k = &s->kept[i];
        if (k->text && k->bytes == s->bytes && !memcmp(k->text, s->text, s->bytes)) return k;
        if (!k->text || k->used < oldest->used) oldest = k;
    }
    forget(s, oldest);
    oldest->text = malloc(s->bytes);
    if (!oldest->text) return NULL;
    memcpy(oldest->text, s->text, s->bytes);
    oldest->bytes = s->bytes;
    oldest->used = ++s->clock;
    return oldest;
}

void sequences_begin(struct sequences *s)
{
    if (s) s->alone = 0;
}

void *sequences_find(struct sequences *s, int64_t unloads, int n, const struct sol_command *c, int *out_n)
{
    bool good = true;
    if (s && s->alone) return s->alone--, NULL;
    n = s ? length(n, c) : 0;
    if (!n) return NULL;
    s->alone = n - 1;
    if (s->unloads != unloads) /* another kernel may have the place of one that was unloaded */
        for (int i = 0; i < KEPT; i++) forget(s, &s->kept[i]);
    s->unloads = unloads;
    s->bytes = 0;
    for (int i = 0; i < n && good; i++) good = put_command(s, &c[i]);
    const int64_t before = s->clock;
    struct kept *k = good ? find(s) : NULL;
    if (!k || k->never || s->clock != before) return NULL; /* it is new */
    k->used = ++s->clock;
    if (!k->made) k->made = s->by.make(s->by.user, n, c);
    k->never = !k->made;
    if (k->never) return NULL;
    *out_n = n;
    s->alone = 0;
    return k->made;
}
