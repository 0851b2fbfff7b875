// Code torch generated, copied into the recording while it was there: which files there are, and
// which compile each belongs to. Names and ids come from the target: they are made safe here, and
// once more where they are written.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "symbolizer/attribution/attribution.h"

namespace dynprof {

struct GeneratedCopy {
  std::int32_t pid = 0;
  TraceId id;             // not valid: nothing says which compile it is of
  std::string kind;       // "wrapper", "kernel_source", "fx_graph", "guards", ...
  std::string direction;  // "forward", "backward", "inference", "": both, or not known
  std::string origin;     // where it was: a path or an object in the target. For display only
  bool truncated = false;
  // Where it goes: generated/<directory>/<name>, each one safe path component; no two share both.
  std::string directory;
  std::string name;
  BlobId body = 0;

  std::string path() const { return "generated/" + directory + "/" + name; }
};

class Generated {
 public:
  explicit Generated(const Attribution& attribution);

  const std::vector<GeneratedCopy>& files() const { return files_; }
  // Indices into files(): of the last compile with the id, a backward's with the backward.
  const std::vector<std::uint32_t>& of(CompileIndex compile) const { return of_[compile]; }

 private:
  void read(const Tables& tables, std::int32_t main_pid);
  void assign(const Attribution& attribution);

  std::vector<GeneratedCopy> files_;
  std::vector<std::vector<std::uint32_t>> of_;  // by CompileIndex
};

}  // namespace dynprof
