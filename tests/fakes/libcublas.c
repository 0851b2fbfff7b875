/* Kernels of a library: two that it launches by the driver, as cuBLAS does, so that no function of a program stands for
 * them, and one by the runtime. */
#include "tests/fakes/fake_cuda.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT int fake_cublas_multiply(void) {
  static struct fake_function function = {NULL, "sm90_gemm_f32", 4000};
  const int result = cuLaunchKernel(&function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
  return result + 1; /* so that it is a call, and not a jump that returns to our caller */
}

EXPORT int fake_cublas_multiply_ex(void) {
  static struct fake_function function = {NULL, "_ZN6cublas4gemmIfEEvPKT_", 4000};
  const CUlaunchConfig config = {1, 1, 1, 32, 1, 1, 0, NULL, NULL, 0};
  return cuLaunchKernelEx(&config, &function, NULL, NULL) + 1;
}

/* The function of the program that stands for a kernel of the same name. */
EXPORT void _Z5scalePfi(void) {}

/* In the driver the kernel has the name `name`. */
EXPORT int fake_cublas_scale(const char* name) {
  static struct fake_function function = {NULL, NULL, 4000};
  static const dim3_c one = {1, 1, 1};
  function.name = name;
  fake_cuda_register((const void*)&_Z5scalePfi, &function);
  return cudaLaunchKernel((const void*)&_Z5scalePfi, one, one, NULL, 0, NULL);
}
