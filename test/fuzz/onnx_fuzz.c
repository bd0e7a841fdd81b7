/* A coverage-guided fuzzer: any bytes read as an ONNX model must be rejected with a message or give a valid graph.
 *
 * Random changes of bytes rarely give a valid protobuf message, so most mutations change its fields: numbers become
 * extreme ones, names are exchanged, parts are repeated, swapped and dropped. Built with clang and libFuzzer (`make
 * fuzz`); test/fuzz/README.md says how to run it. */
#include <stdlib.h>
#include <string.h>

#include "hlir/graph.h"
#include "onnx/reader.h"
#include "sol/onnx.h"

#define MOST_BYTES ((size_t)256 << 20) /* larger allocations fail */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t most); /* of libFuzzer */

static void *reallocate(void *user, void *p, size_t bytes)
{
    (void)user;
    if (!bytes) {
        free(p);
        return NULL;
    }
    return bytes > MOST_BYTES ? NULL : realloc(p, bytes);
}

static void quiet(void *user, int level, const char *line)
{
    (void)user, (void)level, (void)line;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const struct sol_onnx_dim dims[] = {{"batch", 2}, {"N", 1}};
    struct sol_ctx_options options = {.size = sizeof options, .reallocate = reallocate, .log = quiet};
    struct sol_ctx *ctx;
    if (sol_ctx_create(&options, &ctx)) abort();
    for (int given = 0; given < 2; given++) {
        struct sol_onnx_options read = {.size = sizeof read, .ndims = given ? 2 : 0, .dims = dims, .constants = given};
        struct sol_onnx *model = NULL;
        sol_status status = sol_onnx_load_memory(ctx, data, bytes, &read, &model);
        if (!status != !!model || (status && !*sol_error(ctx))) abort();
        if (!status && graph_verify(sol_onnx_graph(model))) abort();
        if (status == SOL_ERR_INTERNAL) abort();
        sol_onnx_destroy(model);
    }
    sol_ctx_destroy(ctx);
    return 0;
}

/* -- mutating messages. All memory is in one pool that is emptied for the next input, so parts may be shared and
 * nothing is freed. */

static _Alignas(16) char pool[1 << 23];
static size_t used;

static void *pool_alloc(void *user, size_t bytes)
{
    (void)user;
    bytes = (bytes + 15) & ~(size_t)15;
    if (bytes > sizeof pool - used) return NULL;
    used += bytes;
    return pool + used - bytes;
}

static void pool_free(void *user, void *p)
{
    (void)user, (void)p;
}

struct place { /* a present field of a message */
    ProtobufCMessage *message;
    const ProtobufCFieldDescriptor *field;
};
struct places {
    struct place at[4096];
    int n;
    char *names[512];
    int nnames;
};

static unsigned pick(unsigned *state, unsigned n)
{
    *state = *state * 1664525 + 1013904223;
    return n ? (*state >> 8) % n : 0;
}

static size_t *count_of(const struct place *p)
{
    return (size_t *)((char *)p->message + p->field->quantifier_offset);
}

static void *value_of(const struct place *p)
{
    return (char *)p->message + p->field->offset;
}

static void collect(ProtobufCMessage *m, struct places *out)
{
    for (unsigned i = 0; i < m->descriptor->n_fields && out->n < COUNT_OF(out->at); i++) {
        struct place p = {m, &m->descriptor->fields[i]};
        bool many = p.field->label == PROTOBUF_C_LABEL_REPEATED;
        bool pointer = p.field->type == PROTOBUF_C_TYPE_MESSAGE || p.field->type == PROTOBUF_C_TYPE_STRING;
        size_t n = many ? *count_of(&p) : pointer ? *(void **)value_of(&p) != NULL : 1;
        if (!n) continue;
        out->at[out->n++] = p;
        void **at = many ? *(void ***)value_of(&p) : value_of(&p);
        for (size_t k = 0; k < n && pointer; k++) {
            if (p.field->type == PROTOBUF_C_TYPE_MESSAGE)
                collect(at[k], out);
            else if (out->nnames < COUNT_OF(out->names))
                out->names[out->nnames++] = at[k];
        }
    }
}

static size_t width_of(const ProtobufCFieldDescriptor *f)
{
    switch (f->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_FLOAT: return 4;
    case PROTOBUF_C_TYPE_BYTES: return sizeof(ProtobufCBinaryData);
    default: return 8;
    }
}

static void change_number(void *at, size_t width, bool real, unsigned *seed)
{
    static const int64_t whole[] = {0,  1,   -1, 2,       3,         4,         7,         8,         13,       17,
                                    64, 255, -2, 1 << 16, INT32_MAX, INT32_MIN, 1LL << 40, INT64_MAX, INT64_MIN};
    static const double reals[] = {0, -0.0, 1, -1, 0.5, 2, 1e-30, 1e30, 1e300, -1e300};
    int64_t v = whole[pick(seed, COUNT_OF(whole))];
    double r = reals[pick(seed, COUNT_OF(reals))];
    float f = (float)r;
    int32_t small = (int32_t)v;
    memcpy(at, real ? width == 4 ? (void *)&f : (void *)&r : width == 4 ? (void *)&small : (void *)&v, width);
}

static void change_value(const struct place *p, void *at, struct places *all, unsigned *seed)
{
    ProtobufCBinaryData *bytes = at;
    switch (p->field->type) {
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_DOUBLE: change_number(at, width_of(p->field), true, seed); break;
    case PROTOBUF_C_TYPE_STRING: {
        const struct op *op = op_at((int)pick(seed, 200));
        bool known = op && !strcmp(p->field->name, "op_type");
        const char *name = known ? op->name : all->nnames ? all->names[pick(seed, (unsigned)all->nnames)] : "";
        char *copy = pool_alloc(NULL, strlen(name) + 1);
        if (copy) *(char **)at = strcpy(copy, name);
        break;
    }
    case PROTOBUF_C_TYPE_BYTES:
        if (bytes->len) bytes->data[pick(seed, (unsigned)bytes->len)] = (uint8_t)pick(seed, 256);
        break;
    case PROTOBUF_C_TYPE_MESSAGE: break;
    default: change_number(at, width_of(p->field), false, seed);
    }
}

static void change_list(const struct place *p, struct places *all, unsigned *seed)
{
    size_t n = *count_of(p), width = width_of(p->field), i = pick(seed, (unsigned)n), k = pick(seed, (unsigned)n);
    char *at = *(char **)value_of(p), swap[16];
    switch (pick(seed, 4)) {
    case 0: *count_of(p) = n - 1; break;
    case 1:
        memcpy(swap, at + i * width, width);
        memmove(at + i * width, at + k * width, width);
        memcpy(at + k * width, swap, width);
        break;
    case 2: { /* repeats an element: two elements may share data while the message is packed */
        char *more = pool_alloc(NULL, (n + 1) * width);
        if (!more) break;
        memcpy(more, at, n * width);
        memcpy(more + n * width, at + i * width, width);
        *(char **)value_of(p) = more;
        *count_of(p) = n + 1;
        break;
    }
    default: change_value(p, at + i * width, all, seed);
    }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed)
{
    static struct places all;
    ProtobufCAllocator allocator = {pool_alloc, pool_free, NULL};
    used = 0;
    ProtobufCMessage *m = NULL;
    if (pick(&seed, 4)) m = protobuf_c_message_unpack(&onnx__model__descriptor, &allocator, bytes, data);
    if (!m) return LLVMFuzzerMutate(data, bytes, most);
    for (unsigned round = 0, rounds = 1 + pick(&seed, 3); round < rounds; round++) {
        all.n = all.nnames = 0;
        collect(m, &all);
        if (!all.n) break;
        const struct place *p = &all.at[pick(&seed, (unsigned)all.n)];
        if (p->field->label == PROTOBUF_C_LABEL_REPEATED)
            change_list(p, &all, &seed);
        else if (p->field->type == PROTOBUF_C_TYPE_MESSAGE && !pick(&seed, 4))
            *(void **)value_of(p) = NULL;
        else
            change_value(p, value_of(p), &all, &seed);
        if (p->field->quantifier_offset && p->field->label == PROTOBUF_C_LABEL_OPTIONAL &&
            p->field->type != PROTOBUF_C_TYPE_MESSAGE && p->field->type != PROTOBUF_C_TYPE_STRING)
            *(protobuf_c_boolean *)((char *)p->message + p->field->quantifier_offset) = 1;
    }
    size_t n = protobuf_c_message_get_packed_size(m);
    if (n > most) return LLVMFuzzerMutate(data, bytes, most);
    return protobuf_c_message_pack(m, data);
}
