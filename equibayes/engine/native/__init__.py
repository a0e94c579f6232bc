"""The fused engine for CPUs: C++ from the generator of the GPU kernels, compiled at first use."""
