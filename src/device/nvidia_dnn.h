/* cuDNN as far as SOL uses it: functions and numbers of its documentation, opened at run time. */
#ifndef SOL_NVIDIA_DNN_H
#define SOL_NVIDIA_DNN_H

typedef struct dnn_handle *dnn_handle;
typedef struct dnn_tensor *dnn_tensor;
typedef struct dnn_filter *dnn_filter;
typedef struct dnn_convolution *dnn_convolution;
struct dnn_speed { /* of an algorithm, as cuDNN estimates it */
    unsigned algorithm, status;
    float ms;
    size_t bytes;
    unsigned determinism, math;
    int reserved[3];
};

/* X(name, symbol, parameters): functions that return a status, 0: success. The last parameters tell which result. */
#define DNN_BYTES(A, B, C) (dnn_handle, A, B, dnn_convolution, C, unsigned algorithm, size_t *)
#define DNN_RUN(A, B, C)                                                                                 \
    (dnn_handle, const void *one, A, const void *, B, const void *, dnn_convolution, unsigned algorithm, \
     void *workspace, size_t, const void *none, C, void *)
#define DNN_FUNCTIONS(X)                                                                                           \
    X(Property, "cudnnGetProperty", (unsigned what, int *))                                                        \
    X(Create, "cudnnCreate", (dnn_handle *))                                                                       \
    X(Destroy, "cudnnDestroy", (dnn_handle))                                                                       \
    X(SetStream, "cudnnSetStream", (dnn_handle, cu_stream))                                                        \
    X(TensorCreate, "cudnnCreateTensorDescriptor", (dnn_tensor *))                                                 \
    X(TensorDestroy, "cudnnDestroyTensorDescriptor", (dnn_tensor))                                                 \
    X(TensorSet, "cudnnSetTensorNdDescriptor", (dnn_tensor, unsigned dtype, int n, const int *sizes, const int *)) \
    X(FilterCreate, "cudnnCreateFilterDescriptor", (dnn_filter *))                                                 \
    X(FilterDestroy, "cudnnDestroyFilterDescriptor", (dnn_filter))                                                 \
    X(FilterSet, "cudnnSetFilterNdDescriptor", (dnn_filter, unsigned dtype, unsigned format, int n, const int *))  \
    X(ConvolutionCreate, "cudnnCreateConvolutionDescriptor", (dnn_convolution *))                                  \
    X(ConvolutionDestroy, "cudnnDestroyConvolutionDescriptor", (dnn_convolution))                                  \
    X(ConvolutionSet, "cudnnSetConvolutionNdDescriptor",                                                           \
      (dnn_convolution, int n, const int *pads, const int *strides, const int *dilations, unsigned mode,           \
       unsigned dtype))                                                                                            \
    X(ConvolutionGroups, "cudnnSetConvolutionGroupCount", (dnn_convolution, int))                                  \
    X(ConvolutionMath, "cudnnSetConvolutionMathType", (dnn_convolution, unsigned))                                 \
    X(Algorithms, "cudnnGetConvolutionForwardAlgorithm_v7",                                                        \
      (dnn_handle, dnn_tensor, dnn_filter, dnn_convolution, dnn_tensor, int room, int *n, struct dnn_speed *))     \
    X(BytesY, "cudnnGetConvolutionForwardWorkspaceSize", DNN_BYTES(dnn_tensor, dnn_filter, dnn_tensor))            \
    X(BytesX, "cudnnGetConvolutionBackwardDataWorkspaceSize", DNN_BYTES(dnn_filter, dnn_tensor, dnn_tensor))       \
    X(BytesW, "cudnnGetConvolutionBackwardFilterWorkspaceSize", DNN_BYTES(dnn_tensor, dnn_tensor, dnn_filter))     \
    X(RunY, "cudnnConvolutionForward", DNN_RUN(dnn_tensor, dnn_filter, dnn_tensor))                                \
    X(RunX, "cudnnConvolutionBackwardData", DNN_RUN(dnn_filter, dnn_tensor, dnn_tensor))                           \
    X(RunW, "cudnnConvolutionBackwardFilter", DNN_RUN(dnn_tensor, dnn_tensor, dnn_filter))

#endif
