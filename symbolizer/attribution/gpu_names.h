// Names of kernels where nothing but the call that launched them was seen.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "symbolizer/attribution/attribution.h"

namespace dynprof {

// "triton_poi_fused_sin_0" of `triton_poi_fused_sin_0.run(arg0_1, buf0, 1024, stream=stream0)`, as
// Inductor's wrappers launch kernels (torch 2.6 to 2.13); "": the line is no such launch.
std::string_view launched_on_line(std::string_view line);

// What the symbol of a function in the program says of the kernel it stands for: nvcc names it as the
// kernel, or calls it __device_stub__ of that.
std::string_view kernel_of_stub(std::string_view symbol);

class GpuNames {
 public:
  explicit GpuNames(const Attribution& attribution);
  GpuNames(const GpuNames&) = delete;
  GpuNames& operator=(const GpuNames&) = delete;

  // Of the function that stands for the kernel, "" if it has no symbol.
  std::string_view of_stub(FrameId function) const;
  // The name of the file that a native frame is in, "" if it is not known: "libcublasLt.so.12".
  std::string_view library(FrameId frame) const;
  // By the line of the innermost frame of generated code, "" if it says nothing.
  std::string_view of_stack(StackId stack);

 private:
  std::string_view of_frame(FrameId frame);

  const Attribution& attribution_;
  std::unordered_map<std::string, std::vector<std::string_view>> lines_;  // by path of the copy
  std::unordered_map<FrameId, std::string_view> names_;
};

}  // namespace dynprof
