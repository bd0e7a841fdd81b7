/* The part of XLA's FFI (its C interface for functions that compiled programs call, version 0.3) that _jax.c uses. The
 * layouts are XLA's; jax.ffi.include_dir() has the whole. Later minor versions append fields, so all structs that XLA
 * makes are read by pointer. */
#ifndef SOL_PYTHON_XLA_H
#define SOL_PYTHON_XLA_H

#include <stddef.h>
#include <stdint.h>

enum { XLA_MAJOR = 0, XLA_MINOR = 3 };
enum { XLA_INSTANTIATE = 0, XLA_EXECUTE = 3 }; /* stages */
enum { XLA_EXTENSION_METADATA = 1 };
enum { XLA_INVALID_ARGUMENT = 3, XLA_EXHAUSTED = 8, XLA_OUT_OF_RANGE = 11, XLA_UNIMPLEMENTED = 12, XLA_INTERNAL = 13 };

struct xla_error;
struct xla_extension {
    size_t size;
    int type;
    struct xla_extension *next;
};
struct xla_version {
    size_t size;
    struct xla_extension *extension;
    int major, minor;
};
struct xla_type_id {
    int64_t id; /* XLA writes it when the type is registered */
};
struct xla_type_info {
    size_t size;
    struct xla_extension *extension;
    void (*deleter)(void *object);
};
struct xla_metadata {
    size_t size;
    struct xla_version version;
    uint32_t traits;
    struct xla_type_id state;
};
struct xla_metadata_extension {
    struct xla_extension base;
    struct xla_metadata *metadata;
};
struct xla_buffer {
    size_t size;
    struct xla_extension *extension;
    int dtype;
    void *data;
    int64_t rank, *dims;
};
struct xla_text {
    const char *at;
    size_t length;
};
struct xla_scalar {
    int dtype;
    void *value;
};
struct xla_array { /* an attribute that is a list of numbers */
    int dtype;
    size_t n;
    void *at;
};
struct xla_values { /* arguments, results */
    size_t size;
    struct xla_extension *extension;
    int64_t n;
    int *types;
    void **at;
};
struct xla_attributes {
    size_t size;
    struct xla_extension *extension;
    int64_t n;
    int *types;
    struct xla_text **names;
    void **at;
};
struct xla_error_create {
    size_t size;
    struct xla_extension *extension;
    const char *message;
    int code;
};
struct xla_context;
struct xla_state {
    size_t size;
    struct xla_extension *extension;
    struct xla_context *context;
    int stage;
    struct xla_type_id *type;
    void *state; /* of state_get: written */
};
struct xla_api {
    size_t size;
    struct xla_extension *extension;
    struct xla_version version;
    const void *internal;
    struct xla_error *(*error_create)(struct xla_error_create *);
    void *error_message, *error_destroy, *handler_register, *stream, *type_register, *context_get;
    struct xla_error *(*state_set)(struct xla_state *);
    struct xla_error *(*state_get)(struct xla_state *);
};
struct xla_frame { /* of a call */
    size_t size;
    struct xla_extension *extension;
    const struct xla_api *api;
    struct xla_context *context;
    int stage;
    struct xla_values args, rets;
    struct xla_attributes attributes;
};

#endif
