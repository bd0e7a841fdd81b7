/* Uses a network whose inputs and outputs lie on a device. Tests compile it with -DHEADER='"libnet.h"' -DFUNC=net. It
 * reads in0, in1, .. from the working directory, checks that the function, a context of the library's and one in a
 * block give the same bits, without a copy of an input or output, and writes out0, out1, .. . */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include HEADER

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define NET(name) JOIN(FUNC, name)

static char block[NET_CONTEXT_BYTES(1)];

static void check(int good, const char *what)
{
    char text[256] = "";
    if (good) return;
    NET(_error)(text, sizeof text);
    fprintf(stderr, "%s: %s\n", what, text);
    exit(1);
}

static char *read_file(const char *name, size_t bytes)
{
    char *data = calloc(1, bytes + 1);
    FILE *f = fopen(name, "rb");
    check(data && f && fread(data, 1, bytes, f) == bytes, name);
    fclose(f);
    return data;
}

/* A copy of the device's memory. */
static char *fetch(const void *there, size_t bytes)
{
    char *data = calloc(1, bytes + 1);
    check(data && !NET(_to_host)(data, there, bytes), "to_host");
    return data;
}

int main(void)
{
    char name[16];
    const struct sol_ext_tensor *x = NET(_input)(0), *y = NET(_output)(0);
    NET(_init)(0);
    void *in = sol_ext_malloc(x->bytes), *mine = sol_ext_malloc(y->bytes);
    float *out = NULL;
    char *data = read_file("in0", x->bytes);
    check(in && mine, "sol_ext_malloc");
    check(!NET(_to_device)(in, data, x->bytes), "to_device");
    FUNC(0, in, &out);
    check(out != NULL, "the function");
    char *expected = fetch(out, y->bytes);
    struct NET(_context) * c[] = {NET(_context_create)(NULL, 0, 0), NET(_context_create)(block, sizeof block, 1)};
    for (int i = 0; i < 2; i++) {
        check(c[i] != NULL, "context_create");
        for (int k = 0; k < 3; k++) check(!NET(_run)(c[i], (const void *const[]){in}, (void *const[]){mine}), "run");
        char *found = fetch(mine, y->bytes);
        check(!memcmp(found, expected, y->bytes), "a context gives other bits");
        free(found);
        NET(_context_free)(c[i]);
    }
    snprintf(name, sizeof name, "out0");
    FILE *f = fopen(name, "wb");
    check(f && fwrite(expected, 1, y->bytes, f) == y->bytes && !fclose(f), name);
    sol_ext_free(in);
    sol_ext_free(mine);
    sol_ext_free(out);
    free(data);
    free(expected);
    return 0;
}
