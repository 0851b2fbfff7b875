#include "symbolizer/attribution/generated.h"

#include <map>
#include <utility>

namespace dynprof {

Generated::Generated(const Attribution& attribution)
    : files_(attribution.generated_copies()), of_(attribution.compiles().size()) {
  assign(attribution);
}

void Generated::assign(const Attribution& attribution) {
  const std::vector<Compile>& compiles = attribution.compiles();
  struct Last {
    CompileIndex forward = kNoCompile, backward = kNoCompile;
  };
  std::map<std::pair<std::int32_t, TraceId>, Last> last;
  // Those from before come first in the list: what we saw ourselves wins.
  for (CompileIndex i = 0; i < compiles.size(); ++i) {
    Last& known = last[{compiles[i].pid, compiles[i].id}];
    (compiles[i].kind == CompileKind::kBackward ? known.backward : known.forward) = i;
  }
  for (std::uint32_t i = 0; i < files_.size(); ++i) {
    auto found = last.find({files_[i].pid, files_[i].id});
    if (found == last.end() || !is_valid(files_[i].id)) continue;
    auto [forward, backward] = found->second;
    bool is_backward = files_[i].direction == "backward";
    CompileIndex owner = is_backward && backward != kNoCompile ? backward : forward;
    if (owner == kNoCompile) owner = backward;
    of_[owner].push_back(i);
  }
}

}  // namespace dynprof
