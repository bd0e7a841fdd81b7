/* The functions of the rows of ops.def, by file. */
#ifndef SOL_ONNX_OPS_H
#define SOL_ONNX_OPS_H

#include <math.h>
#include <string.h>

#include "onnx/reader.h"

/* op_attention.c */
sol_status op_attention(struct node *n);
sol_status op_rotary(struct node *n);
sol_status op_causal_conv(struct node *n);

/* op_control.c */
sol_status op_if(struct node *n);
sol_status op_loop(struct node *n);
sol_status op_scan_body(struct node *n);

/* op_list.c */
sol_status op_list_construct(struct node *n);
sol_status op_list_at(struct node *n);
sol_status op_list_length(struct node *n);
sol_status op_list_insert(struct node *n);
sol_status op_list_erase(struct node *n);
sol_status op_list_concat(struct node *n);
sol_status op_list_split(struct node *n);

/* op_index.c */
sol_status op_gather(struct node *n);
sol_status op_gather_elements(struct node *n);
sol_status op_gather_nd(struct node *n);
sol_status op_scatter_elements(struct node *n);
sol_status op_scatter_nd(struct node *n);
sol_status op_tensor_scatter(struct node *n);
sol_status op_one_hot(struct node *n);
sol_status op_reverse_sequence(struct node *n);

/* op_found.c */
sol_status op_non_zero(struct node *n);
sol_status op_compress(struct node *n);
sol_status op_unique(struct node *n);
sol_status op_nms(struct node *n);

/* op_loss.c */
sol_status op_nll_loss(struct node *n);

/* op_math.c */
sol_status op_map(struct node *n);
sol_status op_map_axis(struct node *n);
sol_status op_fold(struct node *n);
sol_status op_mean(struct node *n);
sol_status op_div(struct node *n);
sol_status op_mod(struct node *n);
sol_status op_pow(struct node *n);
sol_status op_shift(struct node *n);
sol_status op_is_inf(struct node *n);
sol_status op_alpha(struct node *n);
sol_status op_selu(struct node *n);
sol_status op_prelu(struct node *n);
sol_status op_hard_sigmoid(struct node *n);
sol_status op_softplus(struct node *n);
sol_status op_gelu(struct node *n);
sol_status op_swish(struct node *n);
sol_status op_thresholded_relu(struct node *n);
sol_status op_shrink(struct node *n);
sol_status op_clip_attributes(struct node *n);
sol_status op_clip(struct node *n);
sol_status op_cast(struct node *n);
sol_status op_cast_like(struct node *n);
sol_status op_identity(struct node *n);
sol_status op_dropout(struct node *n);
sol_status op_matmul(struct node *n);
sol_status op_gemm(struct node *n);
sol_status op_einsum(struct node *n);

/* op_move.c */
sol_status op_shape(struct node *n);
sol_status op_size(struct node *n);
sol_status op_constant(struct node *n);
sol_status op_constant_of_shape(struct node *n);
sol_status op_range(struct node *n);
sol_status op_eye_like(struct node *n);
sol_status op_reshape(struct node *n);
sol_status op_flatten(struct node *n);
sol_status op_squeeze(struct node *n);
sol_status op_unsqueeze(struct node *n);
sol_status op_transpose(struct node *n);
sol_status op_expand(struct node *n);
sol_status op_tile(struct node *n);
sol_status op_concat(struct node *n);
sol_status op_split(struct node *n);
sol_status op_slice_attributes(struct node *n);
sol_status op_slice(struct node *n);
sol_status op_pad_attributes(struct node *n);
sol_status op_pad(struct node *n);
sol_status op_center_crop_pad(struct node *n);
sol_status op_blocks(struct node *n);
sol_status op_trilu(struct node *n);

/* op_nn.c */
sol_status op_conv(struct node *n);
sol_status op_conv_transpose(struct node *n);
sol_status op_col2im(struct node *n);
sol_status op_max_pool(struct node *n);
sol_status op_average_pool(struct node *n);
sol_status op_lp_pool(struct node *n);
sol_status op_global_pool(struct node *n);
sol_status op_max_unpool(struct node *n);

/* op_norm.c */
sol_status op_batch_norm(struct node *n);
sol_status op_instance_norm(struct node *n);
sol_status op_layer_norm(struct node *n);
sol_status op_rms_norm(struct node *n);
sol_status op_group_norm(struct node *n);
sol_status op_lrn(struct node *n);
sol_status op_mean_variance_norm(struct node *n);
sol_status op_lp_norm(struct node *n);

/* op_reduce.c */
sol_status op_reduce_attributes(struct node *n);
sol_status op_reduce(struct node *n);
sol_status op_arg(struct node *n);
sol_status op_scan(struct node *n);
sol_status op_top_k(struct node *n);
sol_status op_det(struct node *n);
sol_status op_softmax(struct node *n);
sol_status op_softmax_flat(struct node *n);

/* op_resample.c */
sol_status op_upsample(struct node *n);
sol_status op_resize(struct node *n);
sol_status op_grid_sample(struct node *n);
sol_status op_affine_grid(struct node *n);

/* op_sequence.c */
sol_status op_recurrent(struct node *n);

/* op_signal.c */
sol_status op_window(struct node *n);
sol_status op_mel_weights(struct node *n);
sol_status op_dft(struct node *n);
sol_status op_stft(struct node *n);

#endif
