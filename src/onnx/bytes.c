/* Parses bytes into protobuf messages. protobuf-c checks lengths but not depth, so a file of a few kilobytes could
 * exhaust the stack. The bytes are therefore first scanned with the same descriptors and a depth limit. Afterwards
 * control characters and invalid UTF-8 are removed from all names, because names reach terminals, logs and Python. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "onnx/reader.h"

enum { LARGE = 1 << 20 };
struct large { /* a field of so many bytes */
    const uint8_t *at;
    size_t bytes;
};
struct walk {
    struct sol_ctx *ctx;
    const char *what;
    const uint8_t *start;
    struct arena *arena; /* NULL: large fields are not noted */
    VECTOR(struct large) large;
};

static sol_status damaged(const struct walk *w, const uint8_t *p, const char *how)
{
    return ctx_fail(w->ctx, SOL_ERR_INVALID, "%s: %s at byte %lld: it is damaged, cut off, or no ONNX file", w->what,
                    how, (long long)(p - w->start));
}

static bool varint(const uint8_t **p, const uint8_t *end, uint64_t *out)
{
    *out = 0;
    for (int shift = 0; shift < 64 && *p < end; shift += 7) {
        uint8_t byte = *(*p)++;
        *out |= (uint64_t)(byte & 127) << shift;
        if (!(byte & 128)) return true;
    }
    return false;
}

static sol_status check(struct walk *w, const uint8_t *p, const uint8_t *end, const ProtobufCMessageDescriptor *kind,
                        int depth)
{
    if (depth > ONNX_DEPTH) return damaged(w, p, "more than 48 messages inside each other");
    while (p < end) {
        const uint8_t *begin = p;
        uint64_t tag, n = 0;
        if (!varint(&p, end, &tag) || !(tag >> 3) || tag >> 32) return damaged(w, begin, "no field");
        switch (tag & 7) {
        case 0:
            if (!varint(&p, end, &n)) return damaged(w, begin, "a broken number");
            continue;
        case 1: n = 8; break;
        case 5: n = 4; break;
        case 2:
            if (varint(&p, end, &n)) break;
            return damaged(w, begin, "a broken length");
        default: return damaged(w, begin, "no field");
        }
        if (n > (uint64_t)(end - p)) return damaged(w, begin, "a field longer than what is left");
        const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field(kind, (unsigned)(tag >> 3));
        if ((tag & 7) == 2 && f && f->type == PROTOBUF_C_TYPE_MESSAGE)
            TRY(check(w, p, p + n, f->descriptor, depth + 1));
        if (w->arena && n >= LARGE && f && f->type == PROTOBUF_C_TYPE_BYTES)
            PUSH(w->arena, w->large, ((struct large){p, (size_t)n}));
        p += n;
    }
    return SOL_OK;
}

/* The number of bytes of the UTF-8 character at s; 0: invalid. */
static int character(const unsigned char *s)
{
    int n = *s < 0x80 ? 1 : *s < 0xc2 ? 0 : *s < 0xe0 ? 2 : *s < 0xf0 ? 3 : *s < 0xf5 ? 4 : 0;
    for (int i = 1; i < n; i++)
        if (s[i] >> 6 != 2) return 0;
    return n;
}

static void clean_text(char *s)
{
    for (int n; s && *s; s += n ? n : 1) {
        n = character((const unsigned char *)s);
        if (!n || (unsigned char)*s < ' ' || *s == 127) *s = '?';
    }
}

static void clean(ProtobufCMessage *m)
{
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        bool many = f->label == PROTOBUF_C_LABEL_REPEATED;
        if (f->type != PROTOBUF_C_TYPE_STRING && f->type != PROTOBUF_C_TYPE_MESSAGE) continue;
        size_t n = many ? *(size_t *)((char *)m + f->quantifier_offset) : 1;
        void **at = (void **)((char *)m + f->offset);
        if (many) at = *at;
        for (size_t k = 0; k < n; k++) {
            if (f->type == PROTOBUF_C_TYPE_STRING)
                clean_text(at[k]);
            else if (at[k])
                clean(at[k]);
        }
    }
}

/* protobuf-c copies large fields out of the file's memory. To avoid holding the weights twice, pages of that memory are
 * released while it copies. protobuf-c copies in the order of the file, immediately after an allocation of the field's
 * size. Pages are released only after comparing them with the copy. */
struct unpacking {
    struct sol_ctx *ctx;
    const struct large *large; /* the next one to be copied, of `left` */
    int left;
    const void *copy, *from; /* of the last one; NULL: none */
    size_t bytes;
};

static void give_back(struct unpacking *u)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = ((uintptr_t)u->from + page - 1) & -page, last = ((uintptr_t)u->from + u->bytes) & -page;
    if (u->copy && !memcmp(u->copy, u->from, u->bytes)) madvise((void *)first, last - first, MADV_DONTNEED);
    u->copy = NULL;
}

static void *allocate(void *user, size_t bytes)
{
    struct unpacking *u = user;
    give_back(u);
    void *p = ctx_realloc(u->ctx, NULL, bytes ? bytes : 1);
    if (p && u->left && bytes == u->large->bytes) {
        u->copy = p;
        u->from = u->large->at;
        u->bytes = bytes;
        u->large++;
        u->left--;
    }
    return p;
}

static void release(void *user, void *p)
{
    struct unpacking *u = user;
    u->copy = NULL;
    ctx_free(u->ctx, p);
}

sol_status message_read(struct sol_ctx *ctx, const struct encoded *from, const ProtobufCMessageDescriptor *kind,
                        ProtobufCMessage **out_m)
{
    struct walk w = {.ctx = ctx, .what = from->what, .start = from->data, .arena = from->spent};
    const uint8_t *end = from->data; /* NULL if there is nothing */
    if (from->bytes) end += from->bytes;
    TRY(check(&w, from->data, end, kind, 0));
    struct unpacking u = {.ctx = ctx, .large = w.large.at, .left = w.large.n};
    ProtobufCAllocator allocator = {allocate, release, &u};
    *out_m = protobuf_c_message_unpack(kind, &allocator, from->bytes, from->data);
    if (!*out_m && ctx_check(ctx) == SOL_ERR_NOMEM)
        return ctx_fail(ctx, SOL_ERR_NOMEM, "%s: not enough memory to read %zu bytes", from->what, from->bytes);
    if (!*out_m) return ctx_fail(ctx, SOL_ERR_INVALID, "%s: it is damaged: a field has the wrong type", from->what);
    clean(*out_m);
    return SOL_OK;
}

void message_free(struct sol_ctx *ctx, ProtobufCMessage *m)
{
    struct unpacking u = {.ctx = ctx};
    ProtobufCAllocator allocator = {allocate, release, &u};
    if (m) protobuf_c_message_free_unpacked(m, &allocator);
}
