// The files found so far, within the limits, each with a unique name.
#pragma once

#include <string>
#include <string_view>

#include "user/generated/generated_file.h"
#include "user/generated/names.h"

namespace dynprof {

class Collector {
 public:
  explicit Collector(const GeneratedLimits& limits) : limits_(limits) {}
  // Goes on with files that another one took.
  Collector(const GeneratedLimits& limits, GeneratedCode code);

  // Bytes the next file may have. Ask before reading one.
  std::size_t room() const;
  // Whether there is room for one more; take() reports it if there was none.
  bool place();
  // `hint` names the file, `extension` has its dot. Content beyond room() is cut.
  void add(GeneratedFile file, std::string_view hint, std::string_view extension);
  // A sentence about what could not be read.
  void missing(std::string sentence) { code_.missing.push_back(std::move(sentence)); }

  GeneratedCode take();

 private:
  GeneratedLimits limits_;
  GeneratedCode code_;
  FileNames names_;
  std::size_t bytes_ = 0;
  bool left_out_ = false;
};

}  // namespace dynprof
