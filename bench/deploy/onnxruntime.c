/* Runs ONNX Runtime through its C interface: program THREADS SECONDS MODEL OUTPUTS INPUT.., where an input is a type
 * and sizes, f32:1,3,224,224. The model's inputs are called in0, in1, .., its outputs out0, out1, ... The wheel
 * contains the library but no header: the interface is a table of functions whose order never changes, and the needed
 * positions are given here. */
#include <stdint.h>

#include "measure.h"

struct base {
    const void *const *(*get)(uint32_t version);
    const char *(*version)(void);
};
extern const struct base *OrtGetApiBase(void);

enum {
    ERROR_MESSAGE = 2,
    CREATE_ENV = 3,
    CREATE_SESSION = 7,
    RUN = 9,
    CREATE_OPTIONS = 10,
    SET_THREADS = 24,
    CREATE_TENSOR = 49,
    TENSOR_DATA = 51,
    CREATE_MEMORY_INFO = 69,
    RELEASE_VALUE = 96,
    FLOAT = 1,
    INT64 = 7,
    MOST = 16
};
static const void *const *api;
static void *session, *value[MOST], *result[MOST];
static size_t inputs, outputs;
static const char *const in_names[MOST] = {"in0", "in1", "in2", "in3"};
static const char *const out_names[MOST] = {"out0", "out1", "out2", "out3", "out4", "out5", "out6", "out7"};

static void check(void *status)
{
    if (!status) return;
    fprintf(stderr, "%s\n", ((const char *(*)(void *))api[ERROR_MESSAGE])(status));
    exit(1);
}

static const float *call(void *user)
{
    float *data = NULL;
    (void)user;
    for (size_t i = 0; i < outputs; i++) {
        if (result[i]) ((void (*)(void *))api[RELEASE_VALUE])(result[i]);
        result[i] = NULL;
    }
    check(((void *(*)(void *, void *, const char *const *, void *const *, size_t, const char *const *, size_t,
                      void **))api[RUN])(session, NULL, in_names, value, inputs, out_names, outputs, result));
    check(((void *(*)(void *, float **))api[TENSOR_DATA])(result[0], &data));
    return data;
}

/* For an input such as "f32:1,3,224,224". */
static void *make_input(const char *text, void *memory)
{
    int64_t shape[8];
    size_t n = 1, dims = 0;
    void *made;
    for (const char *at = strchr(text, ':'); at && dims < 8; at = strchr(at + 1, ',')) {
        shape[dims] = atoll(at + 1);
        n *= (size_t)shape[dims++];
    }
    const int type = text[0] == 'f' ? FLOAT : INT64;
    check(((void *(*)(void *, void *, size_t, const int64_t *, size_t, int, void **))api[CREATE_TENSOR])(
        memory, input_data(text, n), n * (type == FLOAT ? 4 : 8), shape, dims, type, &made));
    return made;
}

int main(int argc, char **argv)
{
    if (argc < 6 || argc - 5 > 4 || atoi(argv[4]) > 8) return 2;
    void *env, *options, *memory;
    outputs = strtoul(argv[4], NULL, 10);
    const double begin = now_ms();
    api = OrtGetApiBase()->get(17);
    check(((void *(*)(int, const char *, void **))api[CREATE_ENV])(3, "bench", &env));
    check(((void *(*)(void **))api[CREATE_OPTIONS])(&options));
    check(((void *(*)(void *, int))api[SET_THREADS])(options, atoi(argv[1])));
    check(((void *(*)(void *, const char *, void *, void **))api[CREATE_SESSION])(env, argv[3], options, &session));
    check(((void *(*)(int, int, void **))api[CREATE_MEMORY_INFO])(0, 0, &memory));
    for (int i = 5; i < argc; i++) value[inputs++] = make_input(argv[i], memory);
    return measure(begin, atof(argv[2]), call, NULL);
}
