"""Targets of `sol.deploy`: `sol.deployment.shared_lib` and so on."""

shared_lib = "shared_lib"
static_lib = "static_lib"
source = "source"
