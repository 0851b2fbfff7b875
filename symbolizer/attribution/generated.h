// Which compile each copy of generated code belongs to.
#pragma once

#include <cstdint>
#include <vector>

#include "symbolizer/attribution/attribution.h"
#include "symbolizer/attribution/generated_copies.h"

namespace dynprof {

class Generated {
 public:
  explicit Generated(const Attribution& attribution);

  const std::vector<GeneratedCopy>& files() const { return files_; }
  // Indices into files(): of the last compile with the id, a backward's with the backward.
  const std::vector<std::uint32_t>& of(CompileIndex compile) const { return of_[compile]; }

 private:
  void assign(const Attribution& attribution);

  const std::vector<GeneratedCopy>& files_;
  std::vector<std::vector<std::uint32_t>> of_;  // by CompileIndex
};

}  // namespace dynprof
