/* DNN: solvers for contractions. One file and one row in `dnn_solvers` each. */
#ifndef SOL_DNN_DNN_H
#define SOL_DNN_DNN_H

#include "print/kernel.h"

extern const struct solver *const dnn_solvers[]; /* ends with NULL */

#endif
