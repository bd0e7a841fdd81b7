/* TensorFlow's operators on SOL's devices: each kernel runs a network of one operator, which Python makes
 * (tensorflow/native/eager.py) at the first call with these shapes and these values of operands on the host. Later
 * calls find it without Python, and return before the device has done it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "_tf_device.h"

enum { MOST_OPERANDS = 64, LISTS = 256 };

struct known { /* a network, and the operands that it is for; never changed */
    struct known *next;
    uint64_t hash; /* of the key */
    size_t bytes;
    char *key;
    PyObject *net; /* None: nothing has elements */
    struct sol_params *params;
    int nin, taken[MOST_OPERANDS]; /* which operand each input is */
    int nout, ndim[MOST_OPERANDS], type[MOST_OPERANDS];
    int64_t shape[MOST_OPERANDS][MAX_DIMS];
    size_t size[MOST_OPERANDS];
    int64_t dims[MOST_VARY];
};

struct table { /* lists of networks, by the hash of their keys; they only grow, so readers need no lock */
    _Atomic(struct known *) list[LISTS];
};
struct kernel {
    PyObject *node;                /* the NodeDef, as bytes */
    _Atomic(struct table *) table; /* NULL: it has not run */
};

static PyObject *maker; /* make(node, device, operands) -> (net, which operands, outputs, sizes) */

struct call {
    TF_OpKernelContext *c;
    TF_Status *s;
    struct kernel *k;
    SP_Stream stream;
    struct sol_heap *heap;
    int nin;
    TF_Tensor *in[MOST_OPERANDS];
    bool host[MOST_OPERANDS];
    char *key;
    size_t bytes;
    uint64_t hash;
};

static bool failed(const struct call *e)
{
    return tf.GetCode(e->s) != TF_OK;
}

/* -- which network */

static void add(struct call *e, const void *data, size_t bytes)
{
    if (bytes) memcpy(e->key + e->bytes, data, bytes);
    e->bytes += bytes;
}

/* FNV-1a, with words in place of bytes. */
static uint64_t hash_of(const char *data, size_t bytes)
{
    uint64_t h = 0xcbf29ce484222325u, w;
    for (; bytes >= sizeof w; data += sizeof w, bytes -= sizeof w) {
        memcpy(&w, data, sizeof w);
        h = (h ^ w) * 0x100000001b3u;
        h ^= h >> 32;
    }
    while (bytes--) h = (h ^ (unsigned char)*data++) * 0x100000001b3u;
    return h ^ h >> 29;
}

/* The key: of each operand its type, shape and, on the host, its value. */
static bool read_operands(struct call *e)
{
    const int nin = tf.NumInputs(e->c);
    size_t most = 1;
    if (nin > MOST_OPERANDS) {
        tf.SetStatus(e->s, TF_UNIMPLEMENTED, "sol: more than 64 operands");
        return false;
    }
    e->nin = nin;
    for (int i = 0; i < e->nin; i++) {
        tf.GetInput(e->c, i, &e->in[i], e->s);
        if (failed(e)) return false;
        e->host[i] = tf.IsHostMemoryInput(e->c, i, e->s);
        if (!failed(e) && tf.NumDims(e->in[i]) > MAX_DIMS)
            tf.SetStatus(e->s, TF_UNIMPLEMENTED, "sol: an operand of more than 12 dimensions");
        if (failed(e)) return false;
        most += sizeof(int64_t) * (size_t)(3 + tf.NumDims(e->in[i])) + (e->host[i] ? tf.TensorByteSize(e->in[i]) : 0);
    }
    e->key = malloc(most);
    if (!e->key) {
        tf.SetStatus(e->s, TF_RESOURCE_EXHAUSTED, "sol: out of memory");
        return false;
    }
    for (int i = 0; i < e->nin; i++) {
        const int64_t head[3] = {tf.TensorType(e->in[i]), tf.NumDims(e->in[i]), e->host[i]};
        add(e, head, sizeof head);
        for (int d = 0; d < (int)head[1]; d++) add(e, &(int64_t){tf.Dim(e->in[i], d)}, sizeof(int64_t));
        if (e->host[i]) add(e, tf.TensorData(e->in[i]), tf.TensorByteSize(e->in[i]));
    }
    e->hash = hash_of(e->key, e->bytes);
    return true;
}

static struct known *find(const struct call *e)
{
    struct table *t = atomic_load_explicit(&e->k->table, memory_order_acquire);
    struct known *n = t ? atomic_load_explicit(&t->list[e->hash % LISTS], memory_order_acquire) : NULL;
    while (n && (n->hash != e->hash || n->bytes != e->bytes || memcmp(n->key, e->key, e->bytes))) n = n->next;
    return n;
}

/* ((type, shape, bytes or None), ..) */
static PyObject *operands(const struct call *e)
{
    PyObject *all = PyTuple_New(e->nin);
    for (int i = 0; all && i < e->nin; i++) {
        int64_t shape[MAX_DIMS] = {0};
        const int n = tf.NumDims(e->in[i]);
        for (int d = 0; d < n; d++) shape[d] = tf.Dim(e->in[i], d);
        PyObject *dims = core_tuple(n, shape);
        const char *data = tf.TensorData(e->in[i]);
        PyObject *one = e->host[i] ? Py_BuildValue("(iNy#)", tf.TensorType(e->in[i]), dims, data ? data : "",
                                                   (Py_ssize_t)tf.TensorByteSize(e->in[i]))
                                   : Py_BuildValue("(iNO)", tf.TensorType(e->in[i]), dims, Py_None);
        if (!one || PyTuple_SetItem(all, i, one)) Py_CLEAR(all);
    }
    return all;
}

static bool read_made(struct known *n, PyObject *made)
{
    PyObject *taken, *outputs, *dims;
    if (!PyArg_ParseTuple(made, "OO!O!O!", &n->net, &PyTuple_Type, &taken, &PyTuple_Type, &outputs, &PyTuple_Type,
                          &dims) ||
        core_dims(dims, n->dims) < 0)
        return false;
    n->nin = (int)PyTuple_Size(taken), n->nout = (int)PyTuple_Size(outputs);
    for (int i = 0; i < n->nin; i++) n->taken[i] = (int)PyLong_AsLong(PyTuple_GetItem(taken, i));
    for (int i = 0; i < n->nout; i++) {
        PyObject *shape;
        if (!PyArg_ParseTuple(PyTuple_GetItem(outputs, i), "inO", &n->type[i], &n->size[i], &shape)) return false;
        if ((n->ndim[i] = core_shape(shape, n->shape[i])) < 0) return false;
    }
    if (n->net != Py_None) {
        struct py_net *p = (struct py_net *)n->net;
        sol_status status = p->params ? SOL_OK : sol_params_create(p->net, &p->params);
        if (status) return core_raise(status), false;
        n->params = p->params;
    }
    Py_INCREF(n->net);
    return true;
}

/* Under the GIL. NULL with an exception set. */
static struct table *table_of(struct kernel *k)
{
    struct table *t = atomic_load(&k->table);
    if (t) return t;
    t = calloc(1, sizeof *t);
    if (t)
        atomic_store_explicit(&k->table, t, memory_order_release);
    else
        PyErr_NoMemory();
    return t;
}

/* Under the GIL: other threads find it from now on. */
static void keep(struct call *e, struct table *t, struct known *n)
{
    n->key = e->key, n->bytes = e->bytes, n->hash = e->hash;
    e->key = NULL;
    n->next = atomic_load(&t->list[e->hash % LISTS]);
    atomic_store_explicit(&t->list[e->hash % LISTS], n, memory_order_release);
}

/* Under the GIL. NULL with an exception set. */
static struct known *make(struct call *e)
{
    struct known *n = find(e); /* another thread may have made it */
    if (n) return n;
    PyObject *all = operands(e);
    PyObject *made =
        all ? PyObject_CallFunction(maker, "OsO", e->k->node, tf_device_name(e->stream->device), all) : NULL;
    Py_XDECREF(all);
    n = made ? calloc(1, sizeof *n) : NULL;
    struct table *t = n ? table_of(e->k) : NULL;
    const bool good = t && read_made(n, made);
    Py_XDECREF(made);
    if (!good) {
        free(n);
        return NULL;
    }
    keep(e, t, n);
    return n;
}

static struct known *network(struct call *e)
{
    struct known *n = find(e);
    if (n) return n;
    PyGILState_STATE gil = PyGILState_Ensure();
    n = make(e);
    if (!n) tf_set_exception(e->s);
    PyGILState_Release(gil);
    return n;
}

/* -- running it */

static void *data_of(const TF_Tensor *t)
{
    return (void *)(uintptr_t)tf_place(tf.TensorData(t));
}

static bool run(struct call *e, const struct known *n)
{
    const void *in[MOST_OPERANDS + 1];
    void *out[MOST_OPERANDS + 1];
    TF_Tensor *made[MOST_OPERANDS];
    int nmade = 0;
    for (int i = 0; i < n->nin; i++) in[i] = data_of(e->in[n->taken[i]]);
    for (int i = 0; i < n->nout && !failed(e); i++) {
        TF_Tensor *t = tf.AllocateOutput(e->c, i, n->type[i], n->shape[i], n->ndim[i], n->size[i], e->s);
        if (t) out[i] = data_of(made[nmade++] = t);
    }
    if (!failed(e) && n->net != Py_None) {
        struct sol_net *net = ((struct py_net *)n->net)->net;
        const struct sol_call call = {.dims = sol_net_dims(net) ? n->dims : NULL, .inputs = in, .outputs = out};
        tf_set_status(e->s, sol_net_run_at(net, n->params, &call));
    }
    while (nmade) tf.DeleteTensor(made[--nmade]);
    return !failed(e);
}

static void compute(void *kernel, TF_OpKernelContext *c)
{
    struct call *e = calloc(1, sizeof *e);
    TF_Status *s = tf.NewStatus();
    if (e && kernel) {
        *e = (struct call){.c = c, .s = s, .k = kernel, .stream = tf.GetStream(c, s)};
        if (!failed(e)) e->heap = tf_heap(e->stream->device, s);
        const struct known *n = e->heap && read_operands(e) ? network(e) : NULL;
        if (n) run(e, n);
        for (int i = 0; i < e->nin; i++)
            if (e->in[i]) tf.DeleteTensor(e->in[i]);
        free(e->key);
    } else {
        tf.SetStatus(s, TF_RESOURCE_EXHAUSTED, "sol: out of memory");
    }
    free(e);
    if (tf.GetCode(s)) tf.OpKernelContext_Failure(c, s);
    tf.DeleteStatus(s);
}

/* -- kernels */

static void *create(TF_OpKernelConstruction *c)
{
    TF_Status *s = tf.NewStatus();
    TF_Buffer *node = tf.OpKernelConstruction_GetNodeDef(c, s);
    struct kernel *k = calloc(1, sizeof *k);
    if (!tf.GetCode(s) && k) {
        PyGILState_STATE gil = PyGILState_Ensure();
        k->node = PyBytes_FromStringAndSize(node->data, (Py_ssize_t)node->bytes);
        PyErr_Clear();
        PyGILState_Release(gil);
    }
    if (!k || (!tf.GetCode(s) && !k->node)) tf.SetStatus(s, TF_RESOURCE_EXHAUSTED, "sol: out of memory");
    if (node) tf.DeleteBuffer(node);
    if (tf.GetCode(s)) tf.OpKernelConstruction_Failure(c, s);
    tf.DeleteStatus(s);
    return k;
}

static void delete_kernel(void *kernel)
{
    struct kernel *k = kernel;
    if (!k || !Py_IsInitialized()) return; /* the process ends */
    PyGILState_STATE gil = PyGILState_Ensure();
    struct table *t = k->table;
    for (int i = 0; t && i < LISTS; i++)
        for (struct known *n = t->list[i], *next; n; n = next) {
            next = n->next;
            Py_DECREF(n->net);
            free(n->key);
            free(n);
        }
    free(t);
    Py_XDECREF(k->node);
    PyGILState_Release(gil);
    free(k);
}

static PyObject *register_kernel(PyObject *self, PyObject *args)
{
    const char *op;
    PyObject *types, *host;
    (void)self;
    if (!PyArg_ParseTuple(args, "sO!O!", &op, &PyTuple_Type, &types, &PyTuple_Type, &host)) return NULL;
    TF_Status *s = tf.NewStatus();
    TF_KernelBuilder *b = tf.NewKernelBuilder(op, "SOL", create, compute, delete_kernel);
    for (Py_ssize_t i = 0; i < PyTuple_Size(types) && !tf.GetCode(s) && !PyErr_Occurred(); i++) {
        const char *attribute;
        int type;
        if (PyArg_ParseTuple(PyTuple_GetItem(types, i), "si", &attribute, &type))
            tf.KernelBuilder_TypeConstraint(b, attribute, type, s);
    }
    for (Py_ssize_t i = 0; i < PyTuple_Size(host) && !PyErr_Occurred(); i++) {
        PyObject *name = PyUnicode_AsUTF8String(PyTuple_GetItem(host, i));
        if (name) tf.KernelBuilder_HostMemory(b, PyBytes_AsString(name));
        Py_XDECREF(name);
    }
    if (!tf.GetCode(s) && !PyErr_Occurred()) tf.RegisterKernelBuilder(op, b, s);
    if (tf.GetCode(s)) PyErr_Format(core.error[SOL_ERR_UNSUPPORTED], "TensorFlow: %s: %s", op, tf.Message(s));
    tf.DeleteStatus(s);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

static PyObject *set_maker(PyObject *self, PyObject *make_)
{
    (void)self;
    Py_XDECREF(maker);
    maker = Py_NewRef(make_);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"tf_kernel", register_kernel, METH_VARARGS,
     "tf_kernel(operator, types, host): a kernel for the devices, with ((attribute, type), ..) and names of operands "
     "that lie on the host"},
    {"tf_kernel_maker", set_maker, METH_O,
     "tf_kernel_maker(make): make(node, device, ((type, shape, bytes or None), ..)) -> (net, which operands it takes, "
     "((type, bytes, shape), ..) of its outputs, sizes that vary)"},
    {NULL, NULL, 0, NULL},
};

int tf_kernel_add(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
