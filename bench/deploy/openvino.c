/* Runs OpenVINO through its C interface: program THREADS SECONDS MODEL.xml ELEMENTS DIMS.. */
#include <openvino/c/openvino.h>

#include "measure.h"

static ov_infer_request_t *request;
static ov_tensor_t *output;

static void check(ov_status_e status)
{
    if (status == OK) return;
    fprintf(stderr, "%s\n", ov_get_error_info(status));
    exit(1);
}

static const float *call(void *user)
{
    void *data = NULL;
    (void)user;
    if (output) ov_tensor_free(output);
    check(ov_infer_request_infer(request));
    check(ov_infer_request_get_output_tensor_by_index(request, 0, &output));
    check(ov_tensor_data(output, &data));
    return data;
}

int main(int argc, char **argv)
{
    if (argc < 5) return 2;
    ov_core_t *core;
    ov_model_t *model;
    ov_compiled_model_t *compiled;
    ov_tensor_t *input;
    ov_shape_t shape;
    int64_t dims[8];
    for (int i = 5; i < argc; i++) dims[i - 5] = atoll(argv[i]);
    float *x = input_data("f32", strtoul(argv[4], NULL, 10));
    const double begin = now_ms();
    check(ov_core_create(&core));
    check(ov_core_read_model(core, argv[3], NULL, &model));
    check(ov_core_compile_model(core, model, "CPU", 6, &compiled, "INFERENCE_PRECISION_HINT", "f32",
                                "INFERENCE_NUM_THREADS", argv[1], "NUM_STREAMS", "1"));
    check(ov_compiled_model_create_infer_request(compiled, &request));
    check(ov_shape_create(argc - 5, dims, &shape));
    check(ov_tensor_create_from_host_ptr(F32, shape, x, &input));
    check(ov_infer_request_set_input_tensor_by_index(request, 0, input));
    return measure(begin, atof(argv[2]), call, NULL);
}
