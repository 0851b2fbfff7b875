// Reads a recording, trusting none of it: lengths, ids and checksums are checked, a damaged chunk is
// dropped and named, and what follows it is still read where it stands alone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "symbolizer/base/result.h"
#include "symbolizer/recording/model.h"

namespace dynprof {

class Recording {
 public:
  // Reads the tables and checks every sample. Fails only when nothing can be read: not a recording, a newer
  // version, or no intact header.
  static Result<std::unique_ptr<Recording>> open(const std::string& path);
  // With tables().source_places left as they are instead of shown in frames and stacks, for who has
  // others to show.
  static Result<std::unique_ptr<Recording>> open_as_recorded(const std::string& path);
  virtual ~Recording() = default;

  virtual const Meta& meta() const = 0;
  virtual const Tables& tables() const = 0;
  // Without an end mark (truncated file, we were killed) the trailer is made from what was read:
  // end_ns is the last sample's time and `complete` is false.
  virtual const Trailer& trailer() const = 0;
  virtual bool complete() const = 0;
  // One sentence per kind of damage, empty for an intact file.
  virtual const std::vector<std::string>& damage() const = 0;
  virtual std::uint64_t sample_count() const = 0;
  // In file order, which is time order within each thread. May be called again. Every id in a
  // sample is valid in tables().
  virtual void for_each_sample(const std::function<void(const Sample&)>& visit) const = 0;
};

}  // namespace dynprof
