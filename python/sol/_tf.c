/* SOL's operators in TensorFlow: their registration, and the families of programs that they name. _tf_call.c runs them.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "_core.h"
#include "_tf.h"
#include "_tf_device.h"

struct tf_functions tf;
static bool registered;

static struct family *families;
static pthread_mutex_t families_lock = PTHREAD_MUTEX_INITIALIZER;
struct tf_counts tf_counts;

/* -- families */

static void program_free(struct program *p)
{
    for (int i = 0; i < p->nparam; i++)
        if (p->held[i]) tf.DeleteTensor(p->held[i]);
    for (struct spare *s = p->spare, *next; s; s = next) {
        next = s->next;
        sol_params_destroy(s->params);
        free(s);
    }
    sol_params_destroy(p->params);
    free(p->held);
    pthread_rwlock_destroy(&p->lock);
    Py_XDECREF(p->owner);
    free(p);
}

void tf_drop(struct family *f)
{
    pthread_mutex_lock(&families_lock);
    const bool last = atomic_fetch_sub(&f->refs, 1) == 1;
    for (struct family **at = &families; last && *at; at = &(*at)->next)
        if (*at == f) {
            *at = f->next;
            break;
        }
    pthread_mutex_unlock(&families_lock);
    if (!last || !Py_IsInitialized()) return; /* the process ends */
    PyGILState_STATE gil = PyGILState_Ensure();
    for (int i = 0; i < f->nprogram; i++) program_free(f->program[i]);
    Py_XDECREF(f->make);
    PyGILState_Release(gil);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

static struct family *family_take(int64_t id)
{
    pthread_mutex_lock(&families_lock);
    struct family *f = families;
    while (f && f->id != id) f = f->next;
    if (f) atomic_fetch_add(&f->refs, 1);
    pthread_mutex_unlock(&families_lock);
    return f;
}

static void *create(TF_OpKernelConstruction *c)
{
    TF_Status *s = tf.NewStatus();
    int64_t id = -1;
    struct family *f = NULL;
    tf.OpKernelConstruction_GetAttrInt64(c, "program", &id, s);
    if (!tf.GetCode(s) && !(f = family_take(id)))
        tf.SetStatus(s, TF_NOT_FOUND,
                     "sol: this process does not have the optimized model that made this graph; save the model with "
                     "model.save, and optimize it again");
    if (tf.GetCode(s)) tf.OpKernelConstruction_Failure(c, s);
    tf.DeleteStatus(s);
    return f;
}

static void delete_kernel(void *kernel)
{
    if (kernel) tf_drop(kernel);
}

/* -- registration */

static void unknown(TF_ShapeInferenceContext *c, TF_Status *s)
{
    tf.ShapeInferenceContextSetUnknownShape(c, s);
}

struct op {
    const char *name, *inputs[3], *outputs[3], *attrs[5];
    tf_compute *compute;
};

static bool add(const struct op *op)
{
    TF_Status *s = tf.NewStatus();
    TF_OpDefinitionBuilder *b = tf.NewOpDefinitionBuilder(op->name);
    for (const char *const *a = op->attrs; *a; a++) tf.OpDefinitionBuilderAddAttr(b, *a);
    for (const char *const *i = op->inputs; *i; i++) tf.OpDefinitionBuilderAddInput(b, *i);
    for (const char *const *o = op->outputs; *o; o++) tf.OpDefinitionBuilderAddOutput(b, *o);
    tf.OpDefinitionBuilderSetShapeInferenceFunction(b, unknown);
    tf.RegisterOpDefinition(b, s);
    if (!tf.GetCode(s) && op->compute)
        tf.RegisterKernelBuilder(op->name, tf.NewKernelBuilder(op->name, "CPU", create, op->compute, delete_kernel), s);
    const bool good = !tf.GetCode(s);
    if (!good) PyErr_Format(core.error[SOL_ERR_UNSUPPORTED], "TensorFlow: %s", tf.Message(s));
    tf.DeleteStatus(s);
    return good;
}

static bool find_functions(void *lib)
{
    static const struct {
        const char *name;
        size_t place;
    } rows[] = {
#define X(result, name, arguments) {"TF_" #name, offsetof(struct tf_functions, name)},
        TF_FUNCTIONS(X)
#undef X
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *f = dlsym(lib, rows[i].name);
        if (!f) {
            PyErr_Format(core.error[SOL_ERR_UNSUPPORTED], "TensorFlow: this version has no %s", rows[i].name);
            return false;
        }
        memcpy((char *)&tf + rows[i].place, &f, sizeof f);
    }
    return true;
}

static PyObject *tf_register(PyObject *self, PyObject *path)
{
    static const char types[] = "Tin: list(type) >= 0", made[] = "Tout: list(type) >= 0";
    static const struct op ops[] = {
        {"SolRun", {"args: Tin"}, {"results: Tout"}, {"program: int", types, made}, tf_compute_run},
        {"SolForward",
         {"args: Tin"},
         {"results: Tout", "saved: uint8"},
         {"program: int", types, made},
         tf_compute_forward},
        {"SolBackward",
         {"saved: uint8", "args: Tin"},
         {"results: Tout"},
         {"program: int", types, made},
         tf_compute_backward},
        {"SolLayer", {"args: Tin"}, {"results: Tout"}, {"kind: string", "attributes: string", types, made}, NULL}};
    (void)self;
    if (registered) Py_RETURN_NONE;
    PyObject *bytes = PyUnicode_AsUTF8String(path);
    if (!bytes) return NULL;
    void *lib = dlopen(PyBytes_AsString(bytes), RTLD_NOW | RTLD_NOLOAD);
    Py_DECREF(bytes);
    if (!lib) return PyErr_Format(core.error[SOL_ERR_UNSUPPORTED], "TensorFlow: %s", dlerror());
    if (!find_functions(lib)) return NULL;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (!add(&ops[i])) return NULL;
    registered = true;
    Py_RETURN_NONE;
}

/* -- families, for Python */

#define CAPSULE "sol.tf_family"

static void forget(PyObject *capsule)
{
    struct family *f = PyCapsule_GetPointer(capsule, CAPSULE);
    PyObject *make = f->make;
    f->make = NULL;
    Py_XDECREF(make);
    tf_drop(f);
}

static PyObject *tf_family(PyObject *self, PyObject *args)
{
    static long count;
    int nin;
    PyObject *make;
    (void)self;
    if (!PyArg_ParseTuple(args, "iO", &nin, &make)) return NULL;
    struct family *f = calloc(1, sizeof *f);
    if (!f) return PyErr_NoMemory();
    f->id = ++count;
    f->nin = nin;
    f->make = Py_NewRef(make);
    atomic_init(&f->refs, 1);
    pthread_mutex_init(&f->lock, NULL);
    pthread_mutex_lock(&families_lock);
    f->next = families;
    families = f;
    pthread_mutex_unlock(&families_lock);
    PyObject *capsule = PyCapsule_New(f, CAPSULE, forget);
    return capsule ? Py_BuildValue("(lN)", f->id, capsule) : NULL;
}

static PyObject *tf_add(PyObject *self, PyObject *args)
{
    PyObject *capsule, *net;
    int nin, nout, ngiven, nmade;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO!iiii", &capsule, core.net, &net, &nin, &nout, &ngiven, &nmade)) return NULL;
    struct family *f = PyCapsule_GetPointer(capsule, CAPSULE);
    if (!f) return NULL;
    if (f->nprogram == MOST_PROGRAMS)
        return PyErr_Format(
            core.error[SOL_ERR_UNSUPPORTED],
            "called with more than %d combinations of sizes that need programs of their own; pad the inputs to "
            "fewer sizes",
            MOST_PROGRAMS);
    struct program *p = calloc(1, sizeof *p);
    if (!p) return PyErr_NoMemory();
    p->net = ((struct py_net *)net)->net;
    p->nin = nin, p->nout = nout, p->ngiven = ngiven, p->nmade = nmade;
    p->nparam = sol_net_params(p->net);
    p->held = calloc((size_t)p->nparam + 1, sizeof *p->held);
    pthread_rwlock_init(&p->lock, NULL);
    const sol_status status = sol_params_create(p->net, &p->params);
    if (!p->held || status) {
        program_free(p);
        return status ? core_raise(status) : PyErr_NoMemory();
    }
    p->owner = Py_NewRef(net);
    f->program[f->nprogram] = p;
    atomic_fetch_add_explicit(&f->nprogram, 1, memory_order_release);
    Py_RETURN_NONE;
}

static PyObject *counts(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return Py_BuildValue("lll", atomic_load(&tf_counts.saved), atomic_load(&tf_counts.freed),
                         atomic_load(&tf_counts.again));
}

static PyMethodDef functions[] = {
    {"tf_register", tf_register, METH_O,
     "tf_register(path): adds SOL's operators to TensorFlow, whose library is loaded"},
    {"tf_family", tf_family, METH_VARARGS,
     "tf_family(nin, make) -> (id, family): make(shapes) adds a program for inputs of these shapes"},
    {"tf_add", tf_add, METH_VARARGS, "tf_add(family, net, nin, nout, ngiven, nmade): adds a program"},
    {"tf_counts", counts, METH_NOARGS, "tf_counts() -> (saved, freed, forward run again)"},
    {NULL, NULL, 0, NULL},
};

int core_add_tf(PyObject *module)
{
    return PyModule_AddFunctions(module, functions) || tf_device_add(module) || tf_kernel_add(module) ? -1 : 0;
}
