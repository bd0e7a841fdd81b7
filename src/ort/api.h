/* What the provider uses of ONNX Runtime's C interface (onnxruntime_c_api.h, onnxruntime_ep_c_api.h), declared here
 * because no package ships these headers: Python's `onnxruntime` has the library alone. Names are ONNX Runtime's.
 *
 * Structs of functions are unions of their members, each at its place, so that what is not used needs no declaration.
 * ONNX Runtime only appends to its structs and hands out none for a version that it does not know; tests run against a
 * real one. A function that may fail returns a status, NULL for success, which the caller releases. */
#ifndef SOL_ORT_API_H
#define SOL_ORT_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ORT_VERSION = 24 }; /* of the interface: ONNX Runtime 1.24, the first that says whether a shape is known */

struct OrtStatus;
struct OrtLogger;
struct OrtGraph;
struct OrtNode;
struct OrtOpAttr;
struct OrtValue;
struct OrtValueInfo;
struct OrtTypeInfo;
struct OrtTensorInfo; /* OrtTensorTypeAndShapeInfo */
struct OrtKeyValuePairs;
struct OrtHardwareDevice;
struct OrtSessionOptions;
struct OrtKernelContext;
struct OrtNodeComputeContext;
struct OrtEpDevice;
struct OrtEpGraphSupportInfo;
struct OrtEpFactory;
struct OrtMemoryInfo;
struct OrtAllocator;
struct OrtDataTransferImpl;
union ort_ep_api;

enum { ORT_FAIL = 1, ORT_INVALID_ARGUMENT = 2, ORT_RUNTIME_EXCEPTION = 6, ORT_NOT_IMPLEMENTED = 9 }; /* OrtErrorCode */
enum { ORT_VERBOSE, ORT_INFO, ORT_WARNING, ORT_ERROR };                                              /* severity */
enum { ORT_DEVICE_CPU };
enum { ONNX_TYPE_TENSOR = 1 };
enum { /* OrtOpAttrType */
       ORT_ATTR_INT = 1,
       ORT_ATTR_INTS,
       ORT_ATTR_FLOAT,
       ORT_ATTR_FLOATS,
       ORT_ATTR_STRING,
       ORT_ATTR_STRINGS,
       ORT_ATTR_GRAPH,
       ORT_ATTR_TENSOR
};

#define X(i, name, result, parameters)  \
    struct {                            \
        void (*before_##name[i])(void); \
        result(*name) parameters;       \
    };
union ort_api {
#include "ort/api.def"
};
union ort_ep_api { /* OrtEpApi */
    X(0, CreateEpDevice, struct OrtStatus *,
      (struct OrtEpFactory * factory, const struct OrtHardwareDevice *device, const struct OrtKeyValuePairs *metadata,
       const struct OrtKeyValuePairs *options, struct OrtEpDevice **out))
    X(1, ReleaseEpDevice, void, (struct OrtEpDevice * device))
    X(2, EpGraphSupportInfo_AddNodesToFuse, struct OrtStatus *,
      (struct OrtEpGraphSupportInfo * info, const struct OrtNode *const *nodes, size_t n, const void *options))
};
#undef X

struct OrtApiBase {
    const union ort_api *(*GetApi)(uint32_t version); /* NULL: this ONNX Runtime has no such version */
    const char *(*GetVersionString)(void);
};

/* What a provider hands to ONNX Runtime: structs of its own functions, as of ORT_VERSION. NULL: not implemented. */
struct OrtNodeComputeInfo { /* a subgraph that was compiled */
    uint32_t version;
    struct OrtStatus *(*CreateState)(struct OrtNodeComputeInfo *self, struct OrtNodeComputeContext *context,
                                     void **out_state);
    struct OrtStatus *(*Compute)(struct OrtNodeComputeInfo *self, void *state, struct OrtKernelContext *call);
    void (*ReleaseState)(struct OrtNodeComputeInfo *self, void *state);
};
struct OrtEp { /* the provider of one session */
    uint32_t version;
    const char *(*GetName)(const struct OrtEp *self);
    struct OrtStatus *(*GetCapability)(struct OrtEp *self, const struct OrtGraph *graph,
                                       struct OrtEpGraphSupportInfo *info);
    struct OrtStatus *(*Compile)(struct OrtEp *self, const struct OrtGraph **graphs, const struct OrtNode **fused,
                                 size_t n, struct OrtNodeComputeInfo **out_infos, struct OrtNode **out_contexts);
    void (*ReleaseNodeComputeInfos)(struct OrtEp *self, struct OrtNodeComputeInfo **infos, size_t n);
    /* GetPreferredDataLayout, ShouldConvertDataLayoutForOp, SetDynamicOptions, OnRunStart, OnRunEnd, CreateAllocator,
     * CreateSyncStreamForDevice, GetCompiledModelCompatibilityInfo, GetKernelRegistry, IsConcurrentRunSupported */
    void (*not_implemented[10])(void);
};
struct OrtEpFactory {
    uint32_t version;
    const char *(*GetName)(const struct OrtEpFactory *self);
    const char *(*GetVendor)(const struct OrtEpFactory *self);
    struct OrtStatus *(*GetSupportedDevices)(struct OrtEpFactory *self, const struct OrtHardwareDevice *const *devices,
                                             size_t n, struct OrtEpDevice **out, size_t room, size_t *out_n);
    struct OrtStatus *(*CreateEp)(struct OrtEpFactory *self, const struct OrtHardwareDevice *const *devices,
                                  const struct OrtKeyValuePairs *const *metadata, size_t n,
                                  const struct OrtSessionOptions *options, const struct OrtLogger *logger,
                                  struct OrtEp **out);
    void (*ReleaseEp)(struct OrtEpFactory *self, struct OrtEp *ep);
    uint32_t (*GetVendorId)(const struct OrtEpFactory *self);
    const char *(*GetVersion)(const struct OrtEpFactory *self);
    void (*ValidateCompiledModelCompatibilityInfo)(void);
    struct OrtStatus *(*CreateAllocator)(struct OrtEpFactory *self, const struct OrtMemoryInfo *memory,
                                         const struct OrtKeyValuePairs *options, struct OrtAllocator **out);
    void (*ReleaseAllocator)(struct OrtEpFactory *self, struct OrtAllocator *allocator);
    struct OrtStatus *(*CreateDataTransfer)(struct OrtEpFactory *self, struct OrtDataTransferImpl **out);
    bool (*IsStreamAware)(const struct OrtEpFactory *self);
    /* CreateSyncStreamForDevice, GetHardwareDeviceIncompatibilityDetails, CreateExternalResourceImporterForDevice,
     * GetNumCustomOpDomains, GetCustomOpDomains */
    void (*not_implemented[5])(void);
};

/* What the library exports. */
struct OrtStatus *CreateEpFactories(const char *registered_name, const struct OrtApiBase *base,
                                    const struct OrtLogger *logger, struct OrtEpFactory **out, size_t room,
                                    size_t *out_n);
struct OrtStatus *ReleaseEpFactory(struct OrtEpFactory *factory);

#endif
