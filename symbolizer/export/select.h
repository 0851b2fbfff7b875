// Which samples go into an export.
#pragma once

#include <string_view>
#include <vector>

#include "symbolizer/attribution/attribution.h"

namespace dynprof {

// Every sample, or only those of some compiles.
class CompileFilter {
 public:
  CompileFilter(const Attribution& attribution, const std::vector<CompileIndex>& compiles)
      : all_(compiles.empty()), wanted_(attribution.compiles().size(), false) {
    for (CompileIndex compile : compiles) wanted_[compile] = true;
  }
  bool wants(const AttributedSample& at) const {
    return all_ || (at.compile != kNoCompile && wanted_[at.compile]);
  }

 private:
  bool all_;
  std::vector<bool> wanted_;
};

// The compiles a person means: "0/1" (every attempt and repeat), "0/1_2" (attempt 2, as torch writes
// it in its logs), either in brackets, or one compile's label ("backward 0/1") or file stem
// ("_compile_inner_0_1"). An error names the ids there are.
Result<std::vector<CompileIndex>> find_compiles(const Attribution& attribution,
                                                std::string_view text);

// The frames nearest to the root are not in this sample's stack.
inline bool root_missing(const Sample& sample) {
  return (sample.flags & (kSampleTruncated | kSampleFrameFault)) != 0;
}

}  // namespace dynprof
