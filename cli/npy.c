/* NumPy's .npy format: magic, version, header length, a Python dictionary as text with type, order and shape, then the
 * data. Files are untrusted: sizes are checked against the file's length before memory is allocated. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "array.h"

static const struct {
    const char *code;
    enum sol_dtype dtype;
} codes[] = {{"|b1", SOL_BOOL}, {"|u1", SOL_U8},  {"|i1", SOL_I8},  {"<u2", SOL_U16}, {"<i2", SOL_I16},
             {"<u4", SOL_U32},  {"<i4", SOL_I32}, {"<u8", SOL_U64}, {"<i8", SOL_I64}, {"<f2", SOL_F16},
             {"<f4", SOL_F32},  {"<f8", SOL_F64}, {"?", SOL_BOOL},  {"B", SOL_U8},    {"b", SOL_I8}};

static bool complain(const char *path, const char *what)
{
    cli_error(EXIT_FAILED, "%s: %s", path, what);
    return false;
}

/* The text after 'key': in the header. */
static const char *value_of(const char *header, const char *key)
{
    char quoted[32];
    snprintf(quoted, sizeof quoted, "'%s'", key);
    const char *p = strstr(header, quoted);
    if (!p) return NULL;
    p = strchr(p, ':');
    if (!p) return NULL;
    for (p++; *p == ' '; p++) continue;
    return p;
}

static bool read_header(const char *path, const char *header, struct array *a, bool *out_fortran)
{
    const char *type = value_of(header, "descr"), *order = value_of(header, "fortran_order"),
               *p = value_of(header, "shape");
    if (!type || !order || !p || *type != '\'' || *p != '(') return complain(path, "not a .npy file that SOL can read");
    *out_fortran = !strncmp(order, "True", 4);
    size_t n = strcspn(type + 1, "'");
    bool known = false;
    for (size_t i = 0; i < sizeof codes / sizeof *codes && !known; i++)
        if (strlen(codes[i].code) == n && !strncmp(codes[i].code, type + 1, n)) a->dtype = codes[i].dtype, known = true;
    if (!known) {
        cli_error(EXIT_FAILED, "%s: type '%.*s' is not supported", path, (int)(n < 20 ? n : 20), type + 1);
        return false;
    }
    a->elements = 1;
    for (p++; *p && *p != ')';) {
        if (!isdigit((unsigned char)*p)) {
            p++;
            continue;
        }
        char *end;
        long long size = strtoll(p, &end, 10);
        if (a->ndim == 12 || size < 0 || size > (1LL << 47)) return complain(path, "the shape is too large");
        if (__builtin_mul_overflow(a->elements, (int64_t)size, &a->elements))
            return complain(path, "the shape is too large");
        a->shape[a->ndim++] = size;
        p = end;
    }
    if (__builtin_mul_overflow((size_t)a->elements, dtype_bytes(a->dtype), &a->bytes))
        return complain(path, "too large");
    return true;
}

/* Converts Fortran order (the first index varies fastest) to C order. */
static void reorder(struct array *a, const char *from)
{
    size_t width = dtype_bytes(a->dtype);
    for (int64_t i = 0; i < a->elements; i++) {
        int64_t rest = i, at = 0, step = 1;
        int64_t index[12];
        for (int d = a->ndim - 1; d >= 0; d--) {
            index[d] = rest % a->shape[d];
            rest /= a->shape[d];
        }
        for (int d = 0; d < a->ndim; d++) {
            at += index[d] * step;
            step *= a->shape[d];
        }
        memcpy((char *)a->data + (size_t)i * width, from + (size_t)at * width, width);
    }
}

static bool read_data(const char *path, FILE *f, struct array *a, bool fortran)
{
    struct stat s;
    long at = ftell(f);
    if (at < 0 || fstat(fileno(f), &s) || (int64_t)s.st_size - at < (int64_t)a->bytes)
        return complain(path, "the file is shorter than its shape says");
    a->data = malloc(a->bytes ? a->bytes : 1);
    char *first = fortran && a->ndim > 1 ? malloc(a->bytes ? a->bytes : 1) : NULL;
    if (!a->data || (fortran && a->ndim > 1 && !first)) {
        free(first);
        return complain(path, "not enough memory");
    }
    bool good = fread(first ? first : a->data, 1, a->bytes, f) == a->bytes;
    if (good && first) reorder(a, first);
    free(first);
    return good || complain(path, "cannot read all of it");
}

bool npy_read(const char *path, struct array *out_a)
{
    unsigned char head[12];
    *out_a = (struct array){0};
    FILE *f = fopen(path, "rb");
    if (!f) {
        cli_error(EXIT_FAILED, "cannot open '%s': %s", path, strerror(errno));
        return false;
    }
    bool good = fread(head, 1, 8, f) == 8 && !memcmp(head, "\x93NUMPY", 6) && head[6] >= 1 && head[6] <= 3;
    size_t width = head[6] == 1 ? 2 : 4, n = 0;
    good = good && fread(head + 8, 1, width, f) == width;
    for (size_t i = 0; i < width; i++) n |= (size_t)head[8 + i] << (8 * i);
    char *header = good && n < 1 << 20 ? calloc(n + 1, 1) : NULL;
    good = header && fread(header, 1, n, f) == n;
    if (!good) complain(path, "not a .npy file as numpy.save writes it");
    bool fortran = false;
    good = good && read_header(path, header, out_a, &fortran) && read_data(path, f, out_a, fortran);
    free(header);
    fclose(f);
    if (!good) array_free(out_a);
    return good;
}

bool npy_write(const char *path, const struct array *a)
{
    char header[512], shape[256] = "";
    const char *code = "";
    int n = 0;
    for (size_t i = 0; i < sizeof codes / sizeof *codes && !*code; i++)
        if (codes[i].dtype == a->dtype) code = codes[i].code;
    for (int i = 0; i < a->ndim; i++)
        n += snprintf(shape + n, sizeof shape - (size_t)n,
                      a->ndim == 1 ? "%lld,"
                      : i          ? ", %lld"
                                   : "%lld",
                      (long long)a->shape[i]);
    int used =
        snprintf(header, sizeof header - 64, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", code, shape);
    while ((used + 11) % 64) header[used++] = ' '; /* the data begins at a multiple of 64 */
    header[used++] = '\n';
    FILE *f = fopen(path, "wb");
    if (!f || !*code) {
        cli_error(EXIT_FAILED, "cannot write '%s': %s", path, f ? "its type is not NumPy's" : strerror(errno));
        if (f) fclose(f);
        return false;
    }
    unsigned char head[10] = {
        0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)(used & 255), (unsigned char)(used >> 8)};
    bool good = fwrite(head, 1, 10, f) == 10 && fwrite(header, 1, (size_t)used, f) == (size_t)used;
    good = fwrite(a->data, 1, a->bytes, f) == a->bytes && good;
    good = !fclose(f) && good;
    if (!good) cli_error(EXIT_FAILED, "cannot write all of '%s'", path);
    return good;
}
