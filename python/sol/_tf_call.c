/* SolRun, SolForward and SolBackward: networks on TensorFlow's tensors, without copies.
 *
 * An operator finds the program of its family for the sizes of a call, and asks Python for a new one if there is none.
 * Parameters are inputs. While a program for inference holds the tensors of the last call, TensorFlow copies a variable
 * before it writes to it, so an address that is the same means values that are the same. What forward saves is a
 * tensor, whose deallocator frees it. */
#include <stdlib.h>
#include <string.h>

#include "_tf.h"

/* -- a call */

struct call {
    TF_OpKernelContext *c;
    TF_Status *s;
    struct family *f;
    struct program *p;
    int nt;
    TF_Tensor **t; /* all tensors to let go of */
    const void **in;
    void **out;
    int64_t dims[MOST_VARY];
    struct sol_params *params;
};

static bool failed(const struct call *k)
{
    return tf.GetCode(k->s) != TF_OK;
}

void tf_set_status(TF_Status *s, sol_status status)
{
    static const int codes[SOL_ERR_INTERNAL + 1] = {[SOL_ERR_INVALID] = TF_INVALID_ARGUMENT,
                                                    [SOL_ERR_UNSUPPORTED] = TF_UNIMPLEMENTED,
                                                    [SOL_ERR_NOMEM] = TF_RESOURCE_EXHAUSTED,
                                                    [SOL_ERR_RUN] = TF_INVALID_ARGUMENT};
    const int code = status > 0 && status <= SOL_ERR_INTERNAL && codes[status] ? codes[status] : TF_INTERNAL;
    if (status) tf.SetStatus(s, code, sol_error(core.ctx));
}

static bool ran(struct call *k, sol_status status)
{
    tf_set_status(k->s, status);
    return !status;
}

static bool no_memory(struct call *k)
{
    tf.SetStatus(k->s, TF_RESOURCE_EXHAUSTED, "sol: out of memory");
    return false;
}

static bool begin(struct call *k, TF_OpKernelContext *c, struct family *f)
{
    *k = (struct call){.c = c, .s = tf.NewStatus(), .f = f};
    const size_t n = (size_t)(tf.NumInputs(c) + tf.NumOutputs(c)) + 1;
    k->t = calloc(n, sizeof *k->t);
    return k->t || no_memory(k);
}

static void finish(struct call *k)
{
    for (int i = 0; i < k->nt; i++) tf.DeleteTensor(k->t[i]);
    free(k->t);
    free(k->in);
    free(k->out);
    if (failed(k)) tf.OpKernelContext_Failure(k->c, k->s);
    tf.DeleteStatus(k->s);
}

static TF_Tensor *get(struct call *k, int i)
{
    TF_Tensor *t = NULL;
    tf.GetInput(k->c, i, &t, k->s);
    return failed(k) ? NULL : (k->t[k->nt++] = t);
}

static const void *data_of(const TF_Tensor *t)
{
    static const int64_t nothing[8];
    const void *data = tf.TensorData(t);
    return data ? data : nothing; /* without elements, any address will do */
}

/* The program that takes inputs of these shapes. */
static bool fits(struct program *p, TF_Tensor *const *t, int64_t dims[MOST_VARY])
{
    int64_t sizes[MAX_DIMS];
    const int ndim = sol_net_dims(p->net);
    const int64_t **shapes = ndim ? calloc((size_t)sol_net_inputs(p->net) + 1, sizeof *shapes) : NULL;
    int64_t *all = ndim ? calloc((size_t)p->nin + 1, sizeof sizes) : NULL;
    bool good = !ndim || (shapes && all);
    for (int i = 0; good && i < p->nin; i++) {
        const struct sol_io io = sol_net_input(p->net, i);
        good = tf.NumDims(t[i]) == io.ndim;
        for (int d = 0; good && d < io.ndim; d++) {
            const int64_t n = tf.Dim(t[i], d);
            if (ndim) all[i * MAX_DIMS + d] = n;
            good = ndim || n == io.shape[d];
        }
        if (ndim) shapes[i] = all + i * MAX_DIMS;
    }
    good = good && (!ndim || !sol_net_bind(p->net, shapes, dims));
    free(shapes);
    free(all);
    return good;
}

static struct program *known(struct call *k)
{
    const int n = atomic_load_explicit(&k->f->nprogram, memory_order_acquire);
    for (int i = 0; i < n; i++)
        if (fits(k->f->program[i], k->t, k->dims)) return k->f->program[i];
    return NULL;
}

static PyObject *sizes_of(const struct call *k)
{
    PyObject *all = PyTuple_New(k->f->nin);
    for (int i = 0; all && i < k->f->nin; i++) {
        int64_t n[MAX_DIMS] = {0};
        const int ndim = tf.NumDims(k->t[i]);
        for (int d = 0; d < ndim && d < MAX_DIMS; d++) n[d] = tf.Dim(k->t[i], d);
        PyObject *shape = core_tuple(ndim < MAX_DIMS ? ndim : MAX_DIMS, n);
        if (!shape || PyTuple_SetItem(all, i, shape)) Py_CLEAR(all);
    }
    return all;
}

void tf_set_exception(TF_Status *s)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *text = value ? PyObject_Str(value) : NULL, *bytes = text ? PyUnicode_AsUTF8String(text) : NULL;
    const char *chars = bytes ? PyBytes_AsString(bytes) : NULL;
    tf.SetStatus(s, TF_UNIMPLEMENTED, chars ? chars : "sol: there is no program for these sizes");
    PyErr_Clear();
    Py_XDECREF(bytes);
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
}

/* Asks Python for a program for these sizes. Other calls of the family wait. */
static struct program *make(struct call *k)
{
    struct family *f = k->f;
    PyGILState_STATE gil = PyGILState_Ensure();
    Py_BEGIN_ALLOW_THREADS;
    pthread_mutex_lock(&f->lock);
    Py_END_ALLOW_THREADS;
    struct program *p = known(k);
    if (!p) {
        PyObject *sizes = f->make ? sizes_of(k) : NULL;
        PyObject *made = sizes ? PyObject_CallFunctionObjArgs(f->make, sizes, NULL) : NULL;
        if (!f->make) tf.SetStatus(k->s, TF_NOT_FOUND, "sol: the optimized model of this graph is gone");
        if (f->make && !made) tf_set_exception(k->s);
        Py_XDECREF(sizes);
        Py_XDECREF(made);
        p = made ? known(k) : NULL;
    }
    pthread_mutex_unlock(&f->lock);
    PyGILState_Release(gil);
    if (!p && !failed(k)) tf.SetStatus(k->s, TF_INTERNAL, "sol: the new program does not take these sizes");
    return p;
}

/* Reads the inputs and finds the program. */
static bool find(struct call *k)
{
    for (int i = 0; i < k->f->nin; i++)
        if (!get(k, i)) return false;
    k->p = known(k);
    if (!k->p && !(k->p = make(k))) return false;
    k->in = calloc((size_t)sol_net_inputs(k->p->net) + 1, sizeof *k->in);
    k->out = calloc((size_t)sol_net_outputs(k->p->net) + 1, sizeof *k->out);
    if (!k->in || !k->out) return no_memory(k);
    for (int i = 0; i < k->p->nin; i++) k->in[i] = data_of(k->t[i]);
    return true;
}

static int type_of(enum sol_dtype t)
{
    static const char *const names[] = {"f32", "f64",  "i32", "u8",  "i16", "i8",
                                        "i64", "bool", "u16", "f16", "u32", "u64"};
    static const int types[] = {1, 2, 3, 4, 5, 6, 9, 10, 17, 19, 22, 23};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(names[i], core_dtype_name(t))) return types[i];
    return 0;
}

static size_t shape_at(struct sol_io io, const int64_t *dims, int64_t shape[MAX_DIMS])
{
    size_t n = (size_t)core_dtype_bytes(io.dtype);
    for (int i = 0; i < io.ndim; i++) n *= (size_t)(shape[i] = sol_size_at(io.shape[i], dims));
    return n;
}

static bool make_outputs(struct call *k, int first, int n)
{
    for (int i = 0; i < n; i++) {
        const struct sol_io io = sol_net_output(k->p->net, first + i);
        int64_t shape[MAX_DIMS];
        const size_t bytes = shape_at(io, k->dims, shape);
        TF_Tensor *t = tf.AllocateOutput(k->c, i, type_of(io.dtype), shape, io.ndim, bytes, k->s);
        if (!t || failed(k)) return false;
        k->t[k->nt++] = t;
        k->out[first + i] = (void *)data_of(t);
    }
    return true;
}

/* -- parameters */

/* Under the lock to write: passes changed parameters on, and holds their tensors. */
static bool hold(struct call *k, TF_Tensor *const *now)
{
    struct program *p = k->p;
    for (int i = 0; i < p->nparam; i++) {
        if (p->held[i] && tf.TensorData(p->held[i]) == tf.TensorData(now[i])) continue;
        TF_Tensor *t = NULL; /* a reference of its own */
        tf.GetInput(k->c, p->nin + i, &t, k->s);
        if (failed(k)) return false;
        if (!ran(k, sol_params_set(p->params, i, data_of(t)))) return tf.DeleteTensor(t), false;
        if (p->held[i]) tf.DeleteTensor(p->held[i]);
        p->held[i] = t;
    }
    return true;
}

static bool is_held(const struct program *p, TF_Tensor *const *now)
{
    for (int i = 0; i < p->nparam; i++)
        if (!p->held[i] || tf.TensorData(p->held[i]) != tf.TensorData(now[i])) return false;
    return true;
}

/* Takes the lock to read, with the parameters of the call in place. */
static bool enter(struct call *k, TF_Tensor *const *now)
{
    struct program *p = k->p;
    for (;;) {
        pthread_rwlock_rdlock(&p->lock);
        if (is_held(p, now)) return true;
        pthread_rwlock_unlock(&p->lock);
        pthread_rwlock_wrlock(&p->lock);
        const bool good = hold(k, now);
        pthread_rwlock_unlock(&p->lock);
        if (!good) return false;
    }
}

/* Training: parameters for this call alone, from input number `first` on. */
static bool borrow(struct call *k, int first)
{
    struct program *p = k->p;
    struct spare *s = atomic_exchange(&p->spare, NULL); /* the whole list, so that nobody else takes from it */
    if (s) {
        k->params = s->params;
        struct spare *rest = s->next;
        free(s);
        for (struct spare *next; rest; rest = next) {
            next = rest->next;
            rest->next = atomic_load(&p->spare);
            while (!atomic_compare_exchange_weak(&p->spare, &rest->next, rest)) {
            }
        }
    } else if (!ran(k, sol_params_create(p->net, &k->params))) {
        return false;
    }
    for (int i = 0; i < p->nparam; i++) {
        TF_Tensor *t = get(k, first + i);
        if (!t || !ran(k, sol_params_set(k->params, i, data_of(t)))) return false;
    }
    return true;
}

static void give_back(struct call *k)
{
    struct spare *s = k->params ? malloc(sizeof *s) : NULL;
    if (!s) {
        sol_params_destroy(k->params);
        return;
    }
    *s = (struct spare){k->params, atomic_load(&k->p->spare)};
    while (!atomic_compare_exchange_weak(&k->p->spare, &s->next, s)) {
    }
    k->params = NULL;
}

/* -- SolRun */

void tf_compute_run(void *kernel, TF_OpKernelContext *c)
{
    struct call k;
    bool good = begin(&k, c, kernel) && find(&k);
    for (int i = 0; good && i < k.p->nparam; i++) good = get(&k, k.p->nin + i) != NULL;
    if (good && make_outputs(&k, 0, k.p->nout) && enter(&k, k.t + k.p->nin)) {
        const struct sol_call call = {.dims = sol_net_dims(k.p->net) ? k.dims : NULL, .inputs = k.in, .outputs = k.out};
        ran(&k, sol_net_run_at(k.p->net, k.p->params, &call));
        pthread_rwlock_unlock(&k.p->lock);
    }
    finish(&k);
}

/* -- SolForward, SolBackward */

struct cell { /* the data of the tensor `saved` */
    struct family *f;
    struct program *p;
    struct sol_saved *saved;
    atomic_bool used;
    int64_t dims[MOST_VARY];
};

static void free_cell(void *data, size_t bytes, void *arg)
{
    struct cell *cell = arg;
    (void)data, (void)bytes;
    sol_saved_destroy(cell->saved);
    tf_drop(cell->f);
    free(cell);
    atomic_fetch_add(&tf_counts.freed, 1);
}

static void give_saved(struct call *k, struct sol_saved *saved)
{
    struct cell *cell = aligned_alloc(64, (sizeof *cell + 63) / 64 * 64);
    if (!cell) {
        sol_saved_destroy(saved);
        no_memory(k);
        return;
    }
    *cell = (struct cell){.f = k->f, .p = k->p, .saved = saved};
    memcpy(cell->dims, k->dims, sizeof cell->dims);
    atomic_fetch_add(&k->f->refs, 1);
    atomic_fetch_add(&tf_counts.saved, 1);
    const int64_t n = sizeof *cell;
    TF_Tensor *t = tf.NewTensor(TF_UINT8, &n, 1, cell, sizeof *cell, free_cell, cell);
    tf.SetOutput(k->c, k->p->nout, t, k->s);
    tf.DeleteTensor(t);
}

void tf_compute_forward(void *kernel, TF_OpKernelContext *c)
{
    struct call k;
    struct sol_saved *saved = NULL;
    const bool good = begin(&k, c, kernel) && find(&k) && make_outputs(&k, 0, k.p->nout);
    if (good && borrow(&k, k.p->nin)) {
        const struct sol_call call = {.dims = sol_net_dims(k.p->net) ? k.dims : NULL, .inputs = k.in, .outputs = k.out};
        if (ran(&k, sol_net_forward_at(k.p->net, k.params, &call, &saved))) give_saved(&k, saved);
    }
    if (good) give_back(&k);
    finish(&k);
}

/* Runs forward again, for a second backward: the first one has used up what forward saved. */
static bool again(struct call *k, struct sol_saved **out_saved)
{
    struct program *p = k->p;
    void **out = calloc((size_t)sol_net_outputs(p->net) + 1, sizeof *out);
    bool good = out != NULL;
    for (int i = 0; good && i < p->nout; i++) {
        int64_t shape[MAX_DIMS];
        good = (out[i] = malloc(shape_at(sol_net_output(p->net, i), k->dims, shape) + 64)) != NULL;
    }
    const struct sol_call call = {.dims = sol_net_dims(p->net) ? k->dims : NULL, .inputs = k->in, .outputs = out};
    good = good ? ran(k, sol_net_forward_at(p->net, k->params, &call, out_saved)) : no_memory(k);
    for (int i = 0; out && i < p->nout; i++) free(out[i]);
    free(out);
    atomic_fetch_add(&tf_counts.again, 1);
    return good;
}

static bool backward(struct call *k, struct cell *cell)
{
    struct sol_saved *saved = cell->saved;
    const bool used = atomic_exchange(&cell->used, true);
    if (used && !again(k, &saved)) return false;
    const struct sol_backward b = {.inputs = k->in, .outputs = k->out};
    const bool good = ran(k, sol_net_backward(k->p->net, k->params, saved, &b));
    if (used) sol_saved_destroy(saved);
    return good;
}

/* Reads the tensors of forward and the gradients of outputs, from input number 1 on. */
static bool get_given(struct call *k)
{
    struct program *p = k->p;
    k->in = calloc((size_t)sol_net_inputs(p->net) + 1, sizeof *k->in);
    k->out = calloc((size_t)sol_net_outputs(p->net) + 1, sizeof *k->out);
    if (!k->in || !k->out) return no_memory(k);
    for (int i = 0; i < p->nin + p->nout + p->ngiven; i++) {
        TF_Tensor *t = get(k, 1 + i);
        if (!t) return false;
        const int g = i - p->nin - p->nout;
        if (i < p->nin)
            k->in[i] = data_of(t);
        else if (g < 0)
            k->out[i - p->nin] = (void *)data_of(t);
        else
            k->in[p->nin + g] = data_of(t);
        int64_t shape[MAX_DIMS];
        if (g >= 0 && tf.TensorByteSize(t) != shape_at(sol_net_input(p->net, p->nin + g), k->dims, shape)) {
            tf.SetStatus(k->s, TF_INVALID_ARGUMENT, "sol: the gradient of an output has another shape than the output");
            return false;
        }
    }
    return true;
}

/* inputs: saved, inputs, outputs, gradients of outputs, parameters; outputs: gradients */
void tf_compute_backward(void *kernel, TF_OpKernelContext *c)
{
    struct call k;
    TF_Tensor *t = begin(&k, c, kernel) ? get(&k, 0) : NULL;
    struct cell *cell = t ? tf.TensorData(t) : NULL;
    if (cell) {
        k.p = cell->p;
        memcpy(k.dims, cell->dims, sizeof k.dims);
        const bool good = get_given(&k);
        for (int i = 0; good && i < k.p->nmade; i++) {
            const struct sol_io io = sol_net_output(k.p->net, k.p->nout + i);
            int64_t shape[MAX_DIMS];
            const size_t bytes = shape_at(io, k.dims, shape);
            TF_Tensor *made = tf.AllocateOutput(c, i, type_of(io.dtype), shape, io.ndim, bytes, k.s);
            if (!made || failed(&k)) break;
            k.t[k.nt++] = made;
            k.out[k.p->nout + i] = (void *)data_of(made);
        }
        if (good && !failed(&k) && borrow(&k, 1 + k.p->nin + k.p->nout + k.p->ngiven)) backward(&k, cell);
        give_back(&k);
    }
    finish(&k);
}
