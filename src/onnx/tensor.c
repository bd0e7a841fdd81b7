/* Tensors of a file: their types and data. Data is raw bytes, lists of numbers, or another file in the model's folder.
 * A tensor whose data does not fit its shape is rejected. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "onnx/reader.h"

/* -- types: position = number in the file */

static const struct {
    const char *name;
    int dtype; /* -1: not in SOL */
} types[] = {
    {"undefined", -1},      {"float", SOL_F32},  {"uint8", SOL_U8},    {"int8", SOL_I8},       {"uint16", SOL_U16},
    {"int16", SOL_I16},     {"int32", SOL_I32},  {"int64", SOL_I64},   {"string", -1},         {"bool", SOL_BOOL},
    {"float16", -1},        {"double", SOL_F64}, {"uint32", SOL_U32},  {"uint64", SOL_U64},    {"complex64", -1},
    {"complex128", -1},     {"bfloat16", -1},    {"float8e4m3fn", -1}, {"float8e4m3fnuz", -1}, {"float8e5m2", -1},
    {"float8e5m2fnuz", -1}, {"uint4", -1},       {"int4", -1},         {"float4e2m1", -1},     {"float8e8m0", -1},
    {"uint2", -1},          {"int2", -1},        {"float6e2m3", -1},   {"float6e3m2", -1},
};

sol_status dtype_read(struct sol_ctx *ctx, int64_t number, const char *what, enum sol_dtype *out_t)
{
    *out_t = SOL_F32;
    if (number <= 0 || number >= COUNT_OF(types))
        return ctx_fail(ctx, SOL_ERR_INVALID, "%s: %lld is not the number of a type", what, (long long)number);
    if (types[number].dtype < 0)
        return ctx_fail(ctx, SOL_ERR_UNSUPPORTED, "%s: type %s is not supported", what, types[number].name);
    *out_t = (enum sol_dtype)types[number].dtype;
    return SOL_OK;
}

const char *dtype_name(enum sol_dtype t)
{
    for (int i = 0; i < COUNT_OF(types); i++)
        if (types[i].dtype == (int)t) return types[i].name;
    return dtype_def(t)->name; /* ONNX's is not one that the reader takes */
}

int64_t data_int(const struct data *d, int64_t i)
{
    switch (d->dtype) {
    case SOL_BOOL:
    case SOL_U8: return ((const uint8_t *)d->at)[i];
    case SOL_I8: return ((const int8_t *)d->at)[i];
    case SOL_U16: return ((const uint16_t *)d->at)[i];
    case SOL_I16: return ((const int16_t *)d->at)[i];
    case SOL_U32: return ((const uint32_t *)d->at)[i];
    case SOL_I32: return ((const int32_t *)d->at)[i];
    case SOL_U64:
    case SOL_I64: return ((const int64_t *)d->at)[i];
    default: return (int64_t)data_real(d, i);
    }
}

double data_real(const struct data *d, int64_t i)
{
    if (d->dtype == SOL_F32) return ((const float *)d->at)[i];
    if (d->dtype == SOL_F64) return ((const double *)d->at)[i];
    if (d->dtype == SOL_U64) return (double)((const uint64_t *)d->at)[i];
    return (double)data_int(d, i);
}

/* -- data in another file */

static const char *pair(const Onnx__Tensor *m, const char *key)
{
    for (size_t i = 0; i < m->n_external_data; i++)
        if (m->external_data[i]->key && !strcmp(m->external_data[i]->key, key)) return m->external_data[i]->value;
    return NULL;
}

static sol_status pair_number(struct sol_ctx *ctx, const Onnx__Tensor *m, const char *key, int64_t otherwise,
                              int64_t *out)
{
    const char *text = pair(m, key);
    *out = otherwise;
    if (!text) return SOL_OK;
    char *end;
    errno = 0;
    *out = strtoll(text, &end, 10);
    if (errno || end == text || *end || *out < 0)
        return ctx_fail(ctx, SOL_ERR_INVALID, "external data: %s '%s' is not a number of bytes", key, text);
    return SOL_OK;
}

/* Opens folder/location one component at a time, without links or "..", so that it stays inside the folder. */
static sol_status open_inside(struct sol_ctx *ctx, const char *folder, const char *location, int *out_fd)
{
    *out_fd = -1;
    if (!*location || *location == '/')
        return ctx_fail(ctx, SOL_ERR_INVALID, "external data '%s': expected a file below the model's folder", location);
    int fd = open(*folder ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return ctx_fail(ctx, SOL_ERR_IO, "cannot open folder '%s': %s", folder, strerror(errno));
    for (const char *p = location; *p;) {
        char part[256];
        size_t n = strcspn(p, "/");
        bool last = !p[n];
        bool upwards = n == 2 && p[0] == '.' && p[1] == '.';
        if (upwards || n >= sizeof part) {
            close(fd);
            return ctx_fail(ctx, SOL_ERR_INVALID, "external data '%s': it may not leave the model's folder", location);
        }
        memcpy(part, p, n);
        part[n] = 0;
        p += n + !last;
        if (!n || !strcmp(part, ".")) continue;
        int next = openat(fd, part, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (last ? 0 : O_DIRECTORY));
        int error = errno;
        struct stat about;
        bool link = next < 0 && !fstatat(fd, part, &about, AT_SYMLINK_NOFOLLOW) && S_ISLNK(about.st_mode);
        close(fd);
        if (link)
            return ctx_fail(ctx, SOL_ERR_INVALID,
                            "external data '%s': '%s' is a link, which could leave the model's folder", location, part);
        if (next < 0)
            return ctx_fail(ctx, SOL_ERR_IO, "cannot open external data '%s' in '%s': %s", location, folder,
                            strerror(error));
        fd = next;
    }
    *out_fd = fd;
    return SOL_OK;
}

static sol_status read_part(struct sol_ctx *ctx, int fd, const char *location, int64_t offset, size_t bytes, char *to)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, to + done, MIN(bytes - done, (size_t)1 << 30), (off_t)(offset + (int64_t)done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return ctx_fail(ctx, SOL_ERR_IO, "cannot read external data '%s': %s", location,
                            n ? strerror(errno) : "cut off");
        done += (size_t)n;
    }
    return SOL_OK;
}

static sol_status read_external(struct sol_ctx *ctx, struct arena *a, const Onnx__Tensor *m, const char *folder,
                                size_t bytes, const void **out)
{
    const char *location = pair(m, "location");
    if (!folder)
        return ctx_fail(ctx, SOL_ERR_INVALID, "its data is in another file, but the model came without a folder");
    if (!location) return ctx_fail(ctx, SOL_ERR_INVALID, "external data without a location");
    int64_t offset, length;
    TRY(pair_number(ctx, m, "offset", 0, &offset));
    TRY(pair_number(ctx, m, "length", (int64_t)bytes, &length));
    if (length != (int64_t)bytes)
        return ctx_fail(ctx, SOL_ERR_INVALID,
                        "external data '%s': expected %zu bytes for the shape, got a length of %lld", location, bytes,
                        (long long)length);
    int fd;
    TRY(open_inside(ctx, folder, location, &fd));
    struct stat s;
    sol_status status = SOL_OK;
    char *to = NULL;
    if (fstat(fd, &s) || !S_ISREG(s.st_mode))
        status = ctx_fail(ctx, SOL_ERR_IO, "external data '%s': not a regular file", location);
    else if (offset > s.st_size || (int64_t)bytes > s.st_size - offset)
        status = ctx_fail(ctx, SOL_ERR_INVALID,
                          "external data '%s': expected %zu bytes from byte %lld on, the file has %lld", location,
                          bytes, (long long)offset, (long long)s.st_size);
    else if (!(to = arena_try(a, bytes)))
        status = ctx_fail(ctx, SOL_ERR_NOMEM, "external data '%s': no memory for %zu bytes", location, bytes);
    if (!status) status = read_part(ctx, fd, location, offset, bytes, to);
    close(fd);
    *out = to;
    return status;
}

/* -- data in lists of numbers: int32_data serves all small types */

static sol_status read_list(struct sol_ctx *ctx, struct arena *a, const Onnx__Tensor *m, struct data *d)
{
    size_t n, bytes = (size_t)d->elements * dtype_def(d->dtype)->bytes;
    const void *list;
    switch (d->dtype) {
    case SOL_F32: n = m->n_float_data, list = m->float_data; break;
    case SOL_F64: n = m->n_double_data, list = m->double_data; break;
    case SOL_I64: n = m->n_int64_data, list = m->int64_data; break;
    case SOL_U32:
    case SOL_U64: n = m->n_uint64_data, list = m->uint64_data; break;
    default: n = m->n_int32_data, list = m->int32_data;
    }
    if (n != (size_t)d->elements)
        return ctx_fail(ctx, SOL_ERR_INVALID, "expected %lld values of type %s for the shape, got %zu",
                        (long long)d->elements, dtype_name(d->dtype), n);
    d->at = list;
    bool as_is = dtype_def(d->dtype)->bytes == 8 || d->dtype == SOL_F32 || d->dtype == SOL_I32;
    if (as_is) return SOL_OK;
    char *to = arena_try(a, bytes);
    if (!to) return ctx_fail(ctx, SOL_ERR_NOMEM, "no memory for %zu bytes", bytes);
    size_t width = dtype_def(d->dtype)->bytes;
    for (size_t i = 0; i < n; i++) {
        int64_t v = d->dtype == SOL_U32 ? (int64_t)m->uint64_data[i] : m->int32_data[i];
        memcpy(to + i * width, &v, width); /* little-endian: the low bytes come first */
        struct data one = {.dtype = d->dtype, .at = to};
        if (data_int(&one, (int64_t)i) != v)
            return ctx_fail(ctx, SOL_ERR_INVALID, "value %lld does not fit into type %s", (long long)v,
                            dtype_name(d->dtype));
    }
    d->at = to;
    return SOL_OK;
}

/* In a file, any non-zero byte is true; in SOL, true is 1. */
static sol_status read_bools(struct sol_ctx *ctx, struct arena *a, struct data *d)
{
    const uint8_t *from = d->at;
    uint8_t *to = arena_try(a, (size_t)d->elements);
    if (!to) return ctx_fail(ctx, SOL_ERR_NOMEM, "no memory for %lld bytes", (long long)d->elements);
    for (int64_t i = 0; i < d->elements; i++) to[i] = from[i] != 0;
    d->at = to;
    return SOL_OK;
}

sol_status data_read(struct sol_ctx *ctx, struct arena *a, const Onnx__Tensor *m, const char *folder,
                     struct data *out_d)
{
    struct data *d = out_d;
    *d = (struct data){0};
    if (m->segment) return ctx_fail(ctx, SOL_ERR_UNSUPPORTED, "tensors in segments are not supported");
    TRY(dtype_read(ctx, m->data_type, "tensor", &d->dtype));
    if (m->n_dims > SOL_MAX_DIMS)
        return ctx_fail(ctx, SOL_ERR_UNSUPPORTED, "expected at most %d dimensions, got %zu", SOL_MAX_DIMS, m->n_dims);
    d->ndim = (int)m->n_dims;
    for (int i = 0; i < d->ndim; i++) d->shape[i] = m->dims[i];
    TRY(shape_elements(ctx, d->ndim, d->shape, &d->elements));
    size_t bytes = (size_t)d->elements * dtype_def(d->dtype)->bytes;
    if (m->data_location == 1) {
        TRY(read_external(ctx, a, m, folder, bytes, &d->at));
    } else if (m->has_raw_data) {
        if (m->raw_data.len != bytes)
            return ctx_fail(ctx, SOL_ERR_INVALID, "expected %zu bytes of data for the shape, got %zu", bytes,
                            m->raw_data.len);
        d->at = m->raw_data.data;
    } else {
        TRY(read_list(ctx, a, m, d));
    }
    if (!d->at) d->at = ""; /* no elements */
    return d->dtype == SOL_BOOL ? read_bools(ctx, a, d) : SOL_OK;
}

/* -- a tensor in a file of its own */

sol_status sol_onnx_tensor_load(struct sol_ctx *ctx, const char *path, struct sol_onnx_tensor *out_t)
{
    *out_t = (struct sol_onnx_tensor){0};
    struct arena *a = arena_create(ctx);
    if (!a) return ctx_fail(ctx, SOL_ERR_NOMEM, "%s: no memory", path);
    char *bytes;
    size_t n;
    struct data d;
    ProtobufCMessage *m = NULL;
    sol_status status = file_read(ctx, a, path, &bytes, &n);
    if (!status) status = message_read(ctx, &(struct encoded){path, bytes, n, a}, &onnx__tensor__descriptor, &m);
    if (!status) {
        status = data_read(ctx, a, (Onnx__Tensor *)m, NULL, &d);
        if (status) ctx_where(ctx, status, "%s: ", path);
    }
    if (!status) {
        const char *name = ((Onnx__Tensor *)m)->name;
        *out_t = (struct sol_onnx_tensor){.dtype = d.dtype, .ndim = d.ndim};
        memcpy(out_t->shape, d.shape, sizeof d.shape);
        out_t->bytes = (size_t)d.elements * dtype_def(d.dtype)->bytes;
        out_t->name = ctx_realloc(ctx, NULL, strlen(name ? name : "") + 1);
        out_t->data = ctx_realloc(ctx, NULL, out_t->bytes + 1);
        if (out_t->name && out_t->data) {
            strcpy(out_t->name, name ? name : "");
            memcpy(out_t->data, d.at, out_t->bytes);
        } else {
            sol_onnx_tensor_free(ctx, out_t);
            status = ctx_fail(ctx, SOL_ERR_NOMEM, "%s: no memory for %zu bytes", path, n);
        }
    }
    message_free(ctx, m);
    arena_destroy(a);
    return status;
}

void sol_onnx_tensor_free(struct sol_ctx *ctx, struct sol_onnx_tensor *t)
{
    ctx_free(ctx, t->name);
    ctx_free(ctx, t->data);
    *t = (struct sol_onnx_tensor){0};
}
