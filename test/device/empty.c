/* A plug-in for device_test.c that has no device type. */
#include <stddef.h>

#include "sol/device.h"

__attribute__((visibility("default"))) const struct sol_device_type *sol_device_plugin(int i)
{
    (void)i;
    return NULL;
}
