/* sol._core: SOL's C interface for Python. This file has the process's only context, configuration, the log, and
 * errors. */
#include "_core.h"

#include <stdio.h>
#include <string.h>

struct core core;

static const struct {
    const char *name;
    int bytes;
} dtypes[] = {
#define X(enumerator, name, ctype, bytes, ...) {name, bytes},
#include "sol/dtypes.def"
#undef X
};

int core_dtype(const char *name)
{
    for (int i = 0; i < SOL_DTYPES; i++)
        if (!strcmp(dtypes[i].name, name)) return i;
    PyErr_Format(core.error[SOL_ERR_INVALID], "data type: expected one such as \"f32\" or \"i64\", got \"%s\"", name);
    return -1;
}

const char *core_dtype_name(enum sol_dtype t)
{
    return dtypes[t].name;
}
int core_dtype_bytes(enum sol_dtype t)
{
    return dtypes[t].bytes;
}

static int read_sizes(PyObject *sequence, int most, int64_t *sizes)
{
    Py_ssize_t n = PySequence_Size(sequence);
    if (n < 0) return -1;
    if (n > most) {
        PyErr_Format(core.error[SOL_ERR_UNSUPPORTED], "shape: expected at most %d dimensions, got %zd", most, n);
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(sequence, i);
        if (!item) return -1;
        sizes[i] = PyLong_AsLongLong(item);
        Py_DECREF(item);
        if (sizes[i] == -1 && PyErr_Occurred()) return -1;
    }
    return (int)n;
}

int core_shape(PyObject *sequence, int64_t shape[MAX_DIMS])
{
    return read_sizes(sequence, MAX_DIMS, shape);
}

int core_dims(PyObject *sequence, int64_t dims[MOST_VARY])
{
    return read_sizes(sequence, MOST_VARY, dims);
}

PyObject *core_tuple(int n, const int64_t *values)
{
    PyObject *tuple = PyTuple_New(n);
    for (int i = 0; tuple && i < n; i++) {
        PyObject *v = PyLong_FromLongLong(values[i]);
        if (!v || PyTuple_SetItem(tuple, i, v)) {
            Py_DECREF(tuple);
            return NULL;
        }
    }
    return tuple;
}

PyObject *core_raise(sol_status status)
{
    if (PyErr_Occurred()) return NULL; /* KeyboardInterrupt, or an exception of a callback */
    const char *text = sol_error(core.ctx);
    int kind = status > 0 && status <= SOL_ERR_INTERNAL ? status : SOL_ERR_INTERNAL;
    int64_t a, b;
    const bool sizes = sol_error_sizes(core.ctx, &a, &b);
    PyObject *e = PyObject_CallFunction(core.error[kind], "s", text && *text ? text : "failed without a message");
    PyObject *pair = sizes && e ? Py_BuildValue("(LL)", (long long)a, (long long)b) : NULL;
    if (pair) PyObject_SetAttrString(e, "sizes", pair); /* two sizes that must be equal */
    Py_XDECREF(pair);
    if (e && !PyErr_Occurred()) PyErr_SetObject(core.error[kind], e);
    Py_XDECREF(e);
    return NULL;
}

/* -- callbacks. Any thread may call them, with or without the GIL. */

/* Prints and clears an exception of a callback, then restores the one that was set before. A Ctrl-C that interrupted
 * Python code of a callback is raised again, for on_interrupt or for the next Python code. */
static void callback_done(PyObject *callback, PyObject *type, PyObject *value, PyObject *trace)
{
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
        PyErr_Clear();
        PyErr_SetInterrupt();
    }
    if (PyErr_Occurred()) PyErr_WriteUnraisable(callback);
    PyErr_Restore(type, value, trace);
}

static void on_log(void *user, int level, const char *line)
{
    (void)user;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *done = core.log ? PyObject_CallFunction(core.log, "is", level, line) : NULL;
    Py_XDECREF(done);
    callback_done(core.log, type, value, trace);
    PyGILState_Release(gil);
}

static void on_progress(void *user, const char *what, int done, int total)
{
    (void)user;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *result = core.progress ? PyObject_CallFunction(core.progress, "zii", what, done, total) : NULL;
    Py_XDECREF(result);
    callback_done(core.progress, type, value, trace);
    PyGILState_Release(gil);
}

static void on_step(void *user, const char *label)
{
    (void)user;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *done = core.step ? PyObject_CallFunction(core.step, "z", label) : NULL;
    Py_XDECREF(done);
    callback_done(core.step, type, value, trace);
    PyGILState_Release(gil);
}

/* Ctrl-C: the exception stays set in this thread, and the interrupted function raises it. */
static int on_interrupt(void *user)
{
    (void)user;
    PyGILState_STATE gil = PyGILState_Ensure();
    int stop = PyErr_Occurred() || PyErr_CheckSignals();
    PyGILState_Release(gil);
    return stop;
}

/* -- functions of the module */

static PyObject *config_get(PyObject *self, PyObject *args)
{
    const char *key;
    (void)self;
    if (!PyArg_ParseTuple(args, "s", &key)) return NULL;
    const char *value = sol_config_get(core.ctx, key);
    if (!value) return PyErr_Format(PyExc_KeyError, "%s: no such configuration key", key);
    return PyUnicode_FromString(value);
}

static PyObject *config_set(PyObject *self, PyObject *args)
{
    const char *key, *value;
    (void)self;
    if (!PyArg_ParseTuple(args, "ss", &key, &value)) return NULL;
    sol_status status = sol_config_set(core.ctx, key, value);
    if (status) return core_raise(status);
    Py_RETURN_NONE;
}

static PyObject *config_keys(PyObject *self, PyObject *unused)
{
    const char *key, *otherwise, *doc;
    (void)self, (void)unused;
    PyObject *list = PyList_New(0);
    for (int i = 0; list && (key = sol_config_key(i, &otherwise, &doc)); i++) {
        PyObject *row = Py_BuildValue("(sss)", key, otherwise, doc);
        if (!row || PyList_Append(list, row)) Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

static PyObject *cache_clear(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    sol_status status = sol_cache_clear(core.ctx);
    if (status) return core_raise(status);
    Py_RETURN_NONE;
}

static void add_check(void *user, const struct sol_check *check)
{
    static const char *const states[] = {[SOL_GOOD] = "ok", [SOL_LACKS] = "missing", [SOL_BROKEN] = "broken"};
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *row = PyErr_Occurred()
                        ? NULL
                        : Py_BuildValue("(sssz)", check->what, states[check->state], check->text, check->advice);
    if (row) PyList_Append(user, row);
    Py_XDECREF(row);
    PyGILState_Release(gil);
}

static PyObject *doctor(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    PyObject *list = PyList_New(0);
    sol_status status = SOL_OK;
    int broken;
    if (!list) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = sol_doctor(core.ctx, add_check, list, &broken);
    Py_END_ALLOW_THREADS;
    if (!status && !PyErr_Occurred()) return list;
    Py_DECREF(list);
    return core_raise(status);
}

static void add_device(void *user, const struct sol_device_info *d)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *row = PyErr_Occurred()
                        ? NULL
                        : Py_BuildValue("{sssisssLsisisOsssssssOsisi}", "type", d->type, "index", d->index, "name",
                                        d->name, "memory", (long long)d->memory, "cores", d->cores, "lanes", d->lanes,
                                        "f64", d->f64 ? Py_True : Py_False, "compilers", d->compiler, "backends",
                                        d->backends, "why", d->why, "default", d->selected ? Py_True : Py_False,
                                        "clock", d->clock, "memory_rate", d->memory_rate);
    if (row) PyList_Append(user, row);
    Py_XDECREF(row);
    PyGILState_Release(gil);
}

static PyObject *devices(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    PyObject *list = PyList_New(0);
    sol_status status = SOL_OK;
    if (!list) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = sol_devices(core.ctx, add_device, list);
    Py_END_ALLOW_THREADS;
    if (!status && !PyErr_Occurred()) return list;
    Py_DECREF(list);
    return core_raise(status);
}

static PyObject *device_select(PyObject *self, PyObject *args)
{
    const char *device;
    (void)self;
    if (!PyArg_ParseTuple(args, "s", &device)) return NULL;
    const sol_status status = sol_device_select(core.ctx, device);
    if (status) return core_raise(status);
    Py_RETURN_NONE;
}

static PyObject *machine(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    struct sol_machine m;
    sol_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = sol_machine(core.ctx, &m);
    Py_END_ALLOW_THREADS;
    if (status) return core_raise(status);
    return Py_BuildValue("(sidddddd)", m.source, m.threads, m.clock, m.fma, m.flops, m.l2_rate, m.l3_rate,
                         m.memory_rate);
}

static PyObject *cache_folder(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    char *path;
    sol_status status = sol_cache_folder(core.ctx, &path);
    if (status) return core_raise(status);
    PyObject *text = PyUnicode_DecodeFSDefault(path);
    sol_free(core.ctx, path);
    return text;
}

static PyObject *version(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return PyUnicode_FromString(sol_version());
}

static PyObject *layer_known(PyObject *self, PyObject *args)
{
    const char *kind;
    (void)self;
    if (!PyArg_ParseTuple(args, "s", &kind)) return NULL;
    return PyBool_FromLong(sol_layer_known(core.ctx, kind));
}

static PyObject *set_callback(PyObject **slot, PyObject *f)
{
    if (f != Py_None && !PyCallable_Check(f))
        return PyErr_Format(core.error[SOL_ERR_INVALID], "callback: expected a callable or None, got %R", f);
    PyObject *old = *slot;
    Py_INCREF(f);
    *slot = f == Py_None ? NULL : f;
    if (f == Py_None) Py_DECREF(f);
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

static PyObject *set_log(PyObject *self, PyObject *f)
{
    (void)self;
    PyObject *done = set_callback(&core.log, f);
    if (done) sol_on_log(core.ctx, core.log ? on_log : NULL);
    return done;
}

static PyObject *set_progress(PyObject *self, PyObject *f)
{
    (void)self;
    PyObject *done = set_callback(&core.progress, f);
    if (done) sol_on_progress(core.ctx, core.progress ? on_progress : NULL);
    return done;
}

static PyObject *set_step(PyObject *self, PyObject *f)
{
    (void)self;
    PyObject *done = set_callback(&core.step, f);
    if (done) sol_on_step(core.ctx, core.step ? on_step : NULL);
    return done;
}

static PyObject *write_log(PyObject *self, PyObject *args)
{
    int level, line;
    const char *module, *file, *text;
    (void)self;
    if (!PyArg_ParseTuple(args, "issis", &level, &module, &file, &line, &text)) return NULL;
    Py_BEGIN_ALLOW_THREADS; /* a callback needs the GIL, and a terminal may block */
    sol_log(core.ctx, level, module, file, line, text);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyObject *progress(PyObject *self, PyObject *args)
{
    const char *what;
    int done, total;
    (void)self;
    if (!PyArg_ParseTuple(args, "zii", &what, &done, &total)) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    sol_progress(core.ctx, what, done, total);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"config_get", config_get, METH_VARARGS, "config_get(key) -> str"},
    {"config_set", config_set, METH_VARARGS, "config_set(key, value)"},
    {"config_keys", config_keys, METH_NOARGS, "config_keys() -> [(key, default, documentation)]"},
    {"cache_folder", cache_folder, METH_NOARGS, "cache_folder() -> path; empty: there is no cache"},
    {"cache_clear", cache_clear, METH_NOARGS, "cache_clear(): forgets every compiled kernel and module"},
    {"machine", machine, METH_NOARGS, "machine() -> (source, threads, clock, fma, flops, l2, l3 and memory rate)"},
    {"devices", devices, METH_NOARGS, "devices() -> [{type, index, name, memory, cores, lanes, .., why, default}]"},
    {"device_select", device_select, METH_VARARGS, "device_select(device): networks run on it, such as 'far:0'"},
    {"doctor", doctor, METH_NOARGS, "doctor() -> [(what, \"ok\", \"missing\" or \"broken\", text, advice or None)]"},
    {"version", version, METH_NOARGS, "version() -> str"},
    {"layer_known", layer_known, METH_VARARGS, "layer_known(kind) -> bool: is there a row of this name?"},
    {"set_log", set_log, METH_O, "set_log(f): f(level, line) for every line of the log; None: standard error"},
    {"set_progress", set_progress, METH_O,
     "set_progress(f): f(what, done, total) while optimizing, f(None, 0, 0) at the end; None: a bar on a terminal"},
    {"set_step", set_step, METH_O,
     "set_step(f): f(label) when a step of a run begins, f(None) behind the last; None: nothing"},
    {"log", write_log, METH_VARARGS, "log(level, module, file, line, text): a line in the log"},
    {"progress", progress, METH_VARARGS, "progress(what, done, total): how far work is; what None: its end"},
    {NULL, NULL, 0, NULL},
};

/* -- exceptions: each is a sol.Error and also the Python exception that fits */

static PyObject *make_error(PyObject *module, const char *name, const char *doc, PyObject *base, PyObject *second)
{
    char full[64];
    snprintf(full, sizeof full, "sol.%s", name);
    PyObject *bases = second ? PyTuple_Pack(2, base, second) : PyTuple_Pack(1, base);
    PyObject *type = bases ? PyErr_NewExceptionWithDoc(full, doc, bases, NULL) : NULL;
    Py_XDECREF(bases);
    if (type && PyModule_AddObjectRef(module, name, type)) Py_CLEAR(type);
    return type;
}

static int add_errors(PyObject *module)
{
    PyObject *base = make_error(module, "Error", "What SOL raises.", PyExc_Exception, NULL);
    if (!base) return -1;
    core.error[SOL_OK] = base;
    const struct {
        int status;
        const char *name, *doc;
        PyObject *second;
    } rows[] = {
        {SOL_ERR_INVALID, "InvalidError", "A mistake in a call: shape, type, name, range.", PyExc_ValueError},
        {SOL_ERR_UNSUPPORTED, "UnsupportedError", "Valid, but SOL cannot do it (yet).", PyExc_NotImplementedError},
        {SOL_ERR_NOMEM, "OutOfMemoryError", "Memory ran out.", PyExc_MemoryError},
        {SOL_ERR_IO, "FileError", "A file or folder cannot be read or written.", PyExc_OSError},
        {SOL_ERR_COMPILER, "CompilerError", "The C compiler is missing, or rejected the code.", PyExc_RuntimeError},
        {SOL_ERR_RUN, "RunError", "Found while running, such as an index out of range.", PyExc_IndexError},
        {SOL_ERR_INTERRUPTED, "InterruptedError", "Optimizing was interrupted.", PyExc_RuntimeError},
        {SOL_ERR_INTERNAL, "InternalError", "A bug in SOL: please report it.", PyExc_RuntimeError},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        PyObject *type = make_error(module, rows[i].name, rows[i].doc, base, rows[i].second);
        if (!type) return -1;
        core.error[rows[i].status] = type;
    }
    return 0;
}

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "sol._core",
    .m_doc = "SOL's C interface for Python; see include/sol/sol.h.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__core(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (!module) return NULL;
    struct sol_ctx_options options = {.size = sizeof options, .interrupted = on_interrupt};
    if (add_errors(module) || core_add_graph(module) || core_add_net(module) || core_add_caller(module) ||
        core_add_saved(module) || core_add_onnx(module) || core_add_deploy(module) || core_add_sizes(module) ||
        core_add_native(module) || core_add_jax(module) || core_add_tf(module) || core_add_extend(module)) {
        Py_DECREF(module);
        return NULL;
    }
    if (!core.ctx && sol_ctx_create(&options, &core.ctx)) {
        Py_DECREF(module);
        return PyErr_NoMemory();
    }
    return module;
}
