/* Parameters of a caller. One network may serve several owners: instances of a model for which torch.compile uses one
 * graph, averaged copies, or weights that a call passes. So a caller keeps a few sets, each with the tensors of one
 * owner and what the network prepared from them, and a call uses the set that has its tensors. A tensor is passed to
 * the network again if its version, its address or a sample of its bytes changed; of a tensor on a device, whose memory
 * cannot be read here, if its version or address changed.
 *
 * A set holds its tensors strongly, because torch.utils.swap_tensors rejects tensors with weak references. If nobody
 * else holds them, the owner is gone, and the set may be taken over for another owner. A set also holds the storages of
 * its tensors: `p.data = ...` in another thread replaces the memory of a tensor while a call reads it. Addresses
 * therefore never change in a set that a call uses; the next call gets another set. */
#include "_call.h"

#include <string.h>

enum { MOST_SETS = 8 }; /* most sets that are kept without a call using them */

struct given {         /* what the network has */
    struct seen as;    /* `tensor` NULL: nothing so far */
    PyObject *storage; /* keeps the memory at as.data */
    bool fresh;        /* false: pass it to the network again */
};
struct param_set {
    struct param_set *next; /* from the most to the least recently used */
    struct sol_params *params;
    struct given *given;
    int running; /* calls in flight */
    bool moved;  /* its tensors lie elsewhere by now */
    long long epoch;
};

static PyObject *text_version, *text_storage;

int params_init(void)
{
    text_version = PyUnicode_InternFromString("_version");
    text_storage = PyUnicode_InternFromString("untyped_storage");
    return text_version && text_storage ? 0 : -1;
}

/* -- what a call brings */

struct seen *params_room(const struct py_caller *c)
{
    struct seen *now = PyMem_Calloc((size_t)c->nparam + 1, sizeof *now);
    if (!now) PyErr_NoMemory();
    return now;
}

void params_room_free(const struct py_caller *c, struct seen *now)
{
    for (int i = 0; now && i < c->nparam; i++) Py_XDECREF(now[i].tensor);
    PyMem_Free(now);
}

static uint64_t sample(const struct spec *s, const void *data)
{
    size_t bytes = s->bits / 8u;
    for (int i = 0; i < s->ndim; i++) bytes *= (size_t)s->shape[i];
    size_t from = bytes / 2 / 8 * 8, n = bytes - from < 32 ? bytes - from : 32;
    uint64_t word[4] = {0};
    memcpy(word, (const char *)data + from, n);
    return word[0] * 0x9E3779B97F4A7C15u + word[1] * 0xC2B2AE3D27D4EB4Fu + word[2] * 0x165667B19E3779F9u +
           word[3] * 0x27D4EB2F165667C5u;
}

static int read_version(PyObject *tensor, long long *out)
{
    PyObject *v = PyObject_GetAttr(tensor, text_version);
    if (!v) return -1;
    *out = PyLong_AsLongLong(v);
    Py_DECREF(v);
    return *out == -1 && PyErr_Occurred() ? -1 : 0;
}

int params_see(const struct py_caller *c, int i, PyObject *object, struct seen *out)
{
    const struct param *p = &c->param[i];
    int same = call_match(c, object, &p->spec, NULL, &out->data);
    if (same != 1) return same;
    if (p->versioned && read_version(object, &out->version)) return -1;
    out->sample = c->device_type == DL_CPU ? sample(&p->spec, out->data) : 0;
    Py_INCREF(object);
    out->tensor = object;
    return 1;
}

/* -- sets */

static void set_free(struct py_caller *c, struct param_set *s)
{
    for (int i = 0; s->given && i < c->nparam; i++) {
        Py_XDECREF(s->given[i].as.tensor);
        Py_XDECREF(s->given[i].storage);
    }
    sol_params_destroy(s->params);
    PyMem_Free(s->given);
    PyMem_Free(s);
}

static struct param_set *set_new(struct py_caller *c)
{
    struct param_set *s = PyMem_Calloc(1, sizeof *s);
    if (!s) return PyErr_NoMemory(), NULL;
    s->given = PyMem_Calloc((size_t)c->nparam + 1, sizeof *s->given);
    sol_status status = SOL_OK;
    if (!s->given)
        PyErr_NoMemory();
    else if ((status = sol_params_create(c->net->net, &s->params)))
        core_raise(status);
    if (s->params) return s;
    set_free(c, s);
    return NULL;
}

static void unlink_set(struct py_caller *c, const struct param_set *s)
{
    struct param_set **at = &c->sets;
    while (*at != s) at = &(*at)->next;
    *at = s->next;
}

static void put_first(struct param_set **list, struct param_set *s)
{
    s->next = *list;
    *list = s;
}

/* Freeing a tensor may let other threads run, which come and go in `c->sets`. So sets leave that list first, into a
 * list of the caller's own, and are freed when nobody walks it any more. */
static void drop(struct py_caller *c, struct param_set *s, struct param_set **dropped)
{
    unlink_set(c, s);
    put_first(dropped, s);
}

static void free_list(struct py_caller *c, struct param_set *list)
{
    for (struct param_set *s = list, *next; s; s = next) {
        next = s->next;
        set_free(c, s);
    }
}

static bool has_tensors(const struct py_caller *c, const struct param_set *s, const struct seen *now)
{
    for (int i = 0; i < c->nparam; i++)
        if (s->given[i].as.tensor != now[i].tensor) return false;
    return true;
}

static bool has_addresses(const struct py_caller *c, const struct param_set *s, const struct seen *now)
{
    for (int i = 0; i < c->nparam; i++)
        if (s->given[i].as.data != now[i].data) return false;
    return true;
}

/* The set of these tensors, if there is one. */
static struct param_set *find(const struct py_caller *c, const struct seen *now)
{
    for (struct param_set *s = c->sets; s; s = s->next) {
        if (!has_tensors(c, s, now)) continue;
        if (!s->running) return s;
        s->moved = !has_addresses(c, s, now);
        if (!s->moved) return s;
    }
    return NULL;
}

/* Does it only hold memory that nobody calls with any more? */
static bool is_orphan(const struct py_caller *c, const struct param_set *s)
{
    if (s->moved) return true;
    for (int i = 0; i < c->nparam; i++)
        if (s->given[i].as.tensor && Py_REFCNT(s->given[i].as.tensor) == 1) return true;
    return false;
}

/* A set for new tensors. It is a set whose owner is gone (tensors that are still the same need no new preparation), a
 * new one, or, if there are many, the least recently used one. Drops other sets whose owners are gone. */
static struct param_set *recycle(struct py_caller *c)
{
    struct param_set *orphan = NULL, *oldest = NULL, *dropped = NULL, *next;
    int n = 0;
    for (struct param_set *s = c->sets; s; s = next) {
        next = s->next;
        n++;
        if (s->running) continue;
        oldest = s;
        if (!is_orphan(c, s)) continue;
        if (!orphan) {
            orphan = s;
            continue;
        }
        drop(c, s, &dropped);
        n--;
        oldest = orphan;
    }
    struct param_set *found = orphan ? orphan : n >= MOST_SETS ? oldest : NULL;
    if (found) unlink_set(c, found);
    free_list(c, dropped);
    return found ? found : set_new(c);
}

/* Parameter i and its memory. Another thread may have given it other memory since `now` was read. */
static int hold(struct py_caller *c, int i, struct given *g, const struct seen *now)
{
    PyObject *before = g->as.tensor, *memory = g->storage;
    PyObject *storage = PyObject_CallMethodObjArgs(now->tensor, text_storage, NULL);
    if (!storage) return -1;
    Py_INCREF(now->tensor);
    g->as = *now;
    g->storage = storage;
    const int same = call_match(c, now->tensor, &c->param[i].spec, NULL, &g->as.data);
    Py_XDECREF(before);
    Py_XDECREF(memory);
    if (!same) PyErr_SetString(core.error[SOL_ERR_INVALID], "another thread replaced a parameter while the call began");
    return same == 1 ? 0 : -1;
}

static bool is_given(const struct given *g, const struct seen *now)
{
    return g->as.tensor == now->tensor && g->as.data == now->data;
}

static int hand_over(struct py_caller *c, struct param_set *s, const struct seen *now)
{
    s->moved = false;
    for (int i = 0; i < c->nparam; i++) {
        struct given *g = &s->given[i];
        const bool given = is_given(g, &now[i]);
        if (g->fresh && given && g->as.version == now[i].version && g->as.sample == now[i].sample) continue;
        g->fresh = false;
        if (!given && hold(c, i, g, &now[i])) return -1;
        g->as.version = now[i].version;
        g->as.sample = now[i].sample;
        sol_status status = sol_params_set(s->params, i, g->as.data);
        if (status) return core_raise(status), -1;
        g->fresh = true;
        s->epoch = ++c->epochs;
    }
    return 0;
}

struct param_set *params_enter(struct py_caller *c, const struct seen *now)
{
    struct param_set *s = find(c, now);
    if (s)
        unlink_set(c, s);
    else if (!(s = recycle(c)))
        return NULL;
    put_first(&c->sets, s);
    s->running++; /* nobody recycles it from now on */
    if (!hand_over(c, s, now)) return s;
    s->running--;
    return NULL;
}

struct param_set *params_enter_again(struct py_caller *c, long long epoch)
{
    for (struct param_set *s = c->sets; s; s = s->next)
        if (s->epoch == epoch) {
            s->running++;
            return s;
        }
    return NULL;
}

void params_leave(struct py_caller *c, struct param_set *set)
{
    struct param_set *dropped = NULL;
    int n = 0;
    set->running--;
    for (struct param_set *s = c->sets, *next; s; s = next) { /* many concurrent calls need more sets than are kept */
        next = s->next;
        if (++n > MOST_SETS && !s->running) drop(c, s, &dropped);
    }
    free_list(c, dropped);
}

struct sol_params *params_of(const struct param_set *set)
{
    return set->params;
}

long long params_epoch(const struct param_set *set)
{
    return set->epoch;
}

static bool has_moved(const struct py_caller *c, const struct param_set *s)
{
    for (int i = 0; i < c->nparam; i++) {
        const struct seen *as = &s->given[i].as;
        struct dl_tensor t;
        if (!as->tensor) continue;
        if (c->api->view(as->tensor, &t)) return PyErr_Clear(), true;
        if (t.data && call_place(c, &t) != as->data) return true;
    }
    return false;
}

/* Frees memory that parameters do not use any more (p.data = ..., half()). */
static void drop_moved(struct py_caller *c)
{
    struct param_set *dropped = NULL;
    for (struct param_set *s = c->sets, *next; s; s = next) {
        next = s->next;
        if (!s->running && has_moved(c, s)) drop(c, s, &dropped);
    }
    free_list(c, dropped);
}

/* Compares ids: comparing tensors would run Python code, during which sets may come and go. */
int params_forget(struct py_caller *c, PyObject *ids)
{
    drop_moved(c);
    for (struct param_set *s = c->sets; s; s = s->next)
        for (int i = 0; i < c->nparam; i++) {
            struct given *g = &s->given[i];
            PyObject *id = ids && g->as.tensor ? PyLong_FromVoidPtr(g->as.tensor) : NULL;
            const int in = id ? PySet_Contains(ids, id) : !ids;
            Py_XDECREF(id);
            if (in < 0 || PyErr_Occurred()) return -1;
            if (in) g->fresh = false;
        }
    return 0;
}

int params_visit(struct py_caller *c, visitproc visit, void *arg)
{
    for (struct param_set *s = c->sets; s; s = s->next)
        for (int i = 0; i < c->nparam; i++) {
            Py_VISIT(s->given[i].as.tensor);
            Py_VISIT(s->given[i].storage);
        }
    return 0;
}

void params_free(struct py_caller *c)
{
    struct param_set *list = c->sets;
    c->sets = NULL;
    free_list(c, list);
}
