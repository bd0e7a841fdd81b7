/* The part of the DLPack standard (https://dmlc.github.io/dlpack, version 1) that reads a framework's tensor without
 * Python calls: the contents of `type.__dlpack_c_exchange_api__`. Layouts are the standard's. */
#ifndef SOL_PYTHON_DLPACK_H
#define SOL_PYTHON_DLPACK_H

#include <stdint.h>

enum { DL_CPU = 1 }; /* types of devices; others come from Python */
enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_COMPLEX = 5, DL_BOOL = 6 };

struct dl_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: row-major */
    uint64_t byte_offset;
};
struct dl_exchange_api {
    struct {
        uint32_t major, minor;
        struct dl_exchange_api *previous;
    } header;
    void *allocate, *from_object, *to_object;
    int (*view)(void *object, struct dl_tensor *out); /* 0, or -1 with an exception set; valid as long as the object */
    void *stream;
};
#define DL_EXCHANGE_CAPSULE "dlpack_exchange_api"

#endif
