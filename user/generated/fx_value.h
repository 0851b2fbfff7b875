// Arguments of a node of torch.fx as torch writes them into code: nodes by name, numbers, texts, containers, slices,
// dtypes and devices. And the type of a node's result, from its TensorMetadata.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "user/generated/python_objects.h"
#include "user/target/fx_node.h"

namespace dynprof {

class FxValues {
 public:
  static constexpr std::size_t kMaxItems = 256;

  // `budget`: values to be read in all, counted down.
  FxValues(PythonObjects& python, std::size_t& budget)
      : python_(python), nodes_(python.values()), budget_(budget) {}

  FxNodeReader& nodes() { return nodes_; }

  // "add_1", "(slice(None, None, None), 3)", "torch.float32"; "<TYPE>" for what has no such form.
  // At most kMaxItems values, however containers are inside each other; "..." for what is left out.
  std::string text(std::uint64_t object);

  // "f32[2, 4][4, 1]": type, shape and strides; a size that is not known is "?". "" where it is no TensorMetadata.
  std::string tensor_type(std::uint64_t tensor_metadata);

 private:
  std::string text(std::uint64_t object, int depth);
  std::string container(std::uint64_t object, const std::string& type, int depth);
  std::string fixed_name(std::uint64_t object, std::uint32_t offset);
  std::string device(std::uint64_t object);
  std::string sizes(std::uint64_t tuple);

  PythonObjects& python_;
  FxNodeReader nodes_;
  std::size_t& budget_;
  std::size_t room_ = 0;  // for values of the text that is made
};

}  // namespace dynprof
