// Whether the names that the CUDA driver has of kernels may be used. They were read from memory of the driver whose layout
// is not documented (user/gpu/driver_names.h), so they are compared with names that are known by other means: the symbols of functions
// that stand for kernels, and what a line of Inductor's code launches.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace dynprof {

// "gemm" of "void cublas::gemm<float, (anonymous namespace)::Op>(float*)": what is left without what a compiler may write
// in two ways.
std::string kernel_base_name(std::string_view name);

class DriverKernelNames {
 public:
  // Of one launch: the driver's name, and the symbol of the function that stands for the kernel.
  void compare(std::int32_t pid, std::string_view driver, std::string_view symbol);
  // A line of generated code that launches it may call it something else: it can only confirm.
  void compare_line(std::int32_t pid, std::string_view driver, std::string_view line);

  // Some were confirmed, and hardly any contradicted.
  bool usable(std::int32_t pid) const;

 private:
  struct Counts {
    std::uint64_t agree = 0, differ = 0;
  };
  std::map<std::int32_t, Counts> counts_;
};

}  // namespace dynprof
