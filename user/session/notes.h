// Sentences for the user about a recording, each shown once.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <utility>

namespace dynprof {

class Notes {
 public:
  explicit Notes(std::function<void(const std::string& sentence)> show) : show_(std::move(show)) {}

  // "" is none.
  void add(const std::string& sentence) {
    if (!sentence.empty() && show_ && shown_.insert(sentence).second) show_(sentence);
  }

 private:
  std::function<void(const std::string& sentence)> show_;
  std::set<std::string> shown_;
};

}  // namespace dynprof
