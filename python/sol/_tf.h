/* What _tf.c and _tf_call.c share, and TensorFlow's C interface (tensorflow/c/c_api.h, kernels.h, ops.h) as far as SOL
 * uses it: the functions are found in the library that Python has loaded, so nothing of TensorFlow is needed to build,
 * and no C++ interface binds to a version. */
#ifndef SOL_PYTHON_TF_H
#define SOL_PYTHON_TF_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "_core.h"

typedef struct TF_Status TF_Status;
typedef struct TF_Tensor TF_Tensor;
typedef struct TF_OpDefinitionBuilder TF_OpDefinitionBuilder;
typedef struct TF_KernelBuilder TF_KernelBuilder;
typedef struct { /* TF_Buffer */
    const void *data;
    size_t bytes;
    void (*free)(void *, size_t);
} TF_Buffer;
typedef struct SP_Stream_st *SP_Stream; /* a stream of a device, see _tf_device.h */
typedef struct TF_OpKernelConstruction TF_OpKernelConstruction;
typedef struct TF_OpKernelContext TF_OpKernelContext;
typedef struct TF_ShapeInferenceContext TF_ShapeInferenceContext;
typedef void *tf_create(TF_OpKernelConstruction *);
typedef void tf_compute(void *, TF_OpKernelContext *);
typedef void tf_delete(void *);
typedef void tf_free(void *data, size_t bytes, void *arg);

enum {
    TF_OK = 0,
    TF_INVALID_ARGUMENT = 3,
    TF_NOT_FOUND = 5,
    TF_RESOURCE_EXHAUSTED = 8,
    TF_UNIMPLEMENTED = 12,
    TF_INTERNAL = 13
};
enum { TF_UINT8 = 4 };

/* result, name, arguments */
#define TF_FUNCTIONS(X)                                                                                           \
    X(TF_Status *, NewStatus, (void))                                                                             \
    X(void, DeleteStatus, (TF_Status *))                                                                          \
    X(int, GetCode, (const TF_Status *))                                                                          \
    X(const char *, Message, (const TF_Status *))                                                                 \
    X(void, SetStatus, (TF_Status *, int, const char *))                                                          \
    X(TF_OpDefinitionBuilder *, NewOpDefinitionBuilder, (const char *))                                           \
    X(void, OpDefinitionBuilderAddAttr, (TF_OpDefinitionBuilder *, const char *))                                 \
    X(void, OpDefinitionBuilderAddInput, (TF_OpDefinitionBuilder *, const char *))                                \
    X(void, OpDefinitionBuilderAddOutput, (TF_OpDefinitionBuilder *, const char *))                               \
    X(void, OpDefinitionBuilderSetShapeInferenceFunction,                                                         \
      (TF_OpDefinitionBuilder *, void (*)(TF_ShapeInferenceContext *, TF_Status *)))                              \
    X(void, RegisterOpDefinition, (TF_OpDefinitionBuilder *, TF_Status *))                                        \
    X(void, ShapeInferenceContextSetUnknownShape, (TF_ShapeInferenceContext *, TF_Status *))                      \
    X(TF_KernelBuilder *, NewKernelBuilder, (const char *, const char *, tf_create *, tf_compute *, tf_delete *)) \
    X(void, RegisterKernelBuilder, (const char *, TF_KernelBuilder *, TF_Status *))                               \
    X(void, KernelBuilder_TypeConstraint, (TF_KernelBuilder *, const char *, int, TF_Status *))                   \
    X(void, KernelBuilder_HostMemory, (TF_KernelBuilder *, const char *))                                         \
    X(TF_Buffer *, OpKernelConstruction_GetNodeDef, (TF_OpKernelConstruction *, TF_Status *))                     \
    X(void, DeleteBuffer, (TF_Buffer *))                                                                          \
    X(SP_Stream, GetStream, (TF_OpKernelContext *, TF_Status *))                                                  \
    X(bool, IsHostMemoryInput, (TF_OpKernelContext *, int, TF_Status *))                                          \
    X(int, TensorType, (const TF_Tensor *))                                                                       \
    X(void, OpKernelConstruction_GetAttrInt64, (TF_OpKernelConstruction *, const char *, int64_t *, TF_Status *)) \
    X(void, OpKernelConstruction_Failure, (TF_OpKernelConstruction *, TF_Status *))                               \
    X(void, OpKernelContext_Failure, (TF_OpKernelContext *, TF_Status *))                                         \
    X(int, NumInputs, (TF_OpKernelContext *))                                                                     \
    X(int, NumOutputs, (TF_OpKernelContext *))                                                                    \
    X(void, GetInput, (TF_OpKernelContext *, int, TF_Tensor **, TF_Status *))                                     \
    X(void, SetOutput, (TF_OpKernelContext *, int, const TF_Tensor *, TF_Status *))                               \
    X(TF_Tensor *, AllocateOutput, (TF_OpKernelContext *, int, int, const int64_t *, int, size_t, TF_Status *))   \
    X(TF_Tensor *, NewTensor, (int, const int64_t *, int, void *, size_t, tf_free *, void *))                     \
    X(void, DeleteTensor, (TF_Tensor *))                                                                          \
    X(void *, TensorData, (const TF_Tensor *))                                                                    \
    X(size_t, TensorByteSize, (const TF_Tensor *))                                                                \
    X(int, NumDims, (const TF_Tensor *))                                                                          \
    X(int64_t, Dim, (const TF_Tensor *, int))

struct tf_functions {
#define X(result, name, arguments) result(*name) arguments;
    TF_FUNCTIONS(X)
#undef X
};
extern struct tf_functions tf;

#define MOST_PROGRAMS 64 /* of a family */

struct program {
    PyObject *owner; /* of net */
    struct sol_net *net;
    int nin, nout, nparam; /* of forward; nin and nout come before the gradient's */
    int ngiven, nmade;     /* gradients of outputs, gradients */
    pthread_rwlock_t lock; /* inference: held to read while it runs, to write when parameters change */
    struct sol_params *params;
    TF_Tensor **held;
    struct spare { /* training: parameters of calls that ended */
        struct sol_params *params;
        struct spare *next;
    } * _Atomic spare;
};

struct family {
    long id;
    atomic_int refs; /* Python's object, kernels, and tensors that forward saved */
    PyObject *make;  /* NULL: Python's object is gone */
    int nin;
    pthread_mutex_t lock; /* of `make` */
    _Atomic int nprogram;
    struct program *program[MOST_PROGRAMS];
    struct family *next;
};
/* Gives up a reference; the last one frees the family. */
void tf_drop(struct family *f);
extern struct tf_counts { /* of tensors that forward saved, and of forwards that ran again for a second backward */
    atomic_long saved, freed, again;
} tf_counts;

/* _tf_call.c */
void tf_set_status(TF_Status *s, sol_status status); /* with SOL's message */
void tf_set_exception(TF_Status *s);                 /* from Python's exception, which it clears */
tf_compute tf_compute_run, tf_compute_forward, tf_compute_backward;

#endif
