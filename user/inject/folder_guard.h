// Removes a folder that this program made for another process, if the program is killed.
#pragma once

#include <memory>
#include <string>

#include "user/kernel/outliving_process.h"

namespace dynprof {

// A file of that folder in which the process answers. While it is there and empty, the process may still open the others:
// an interpreter that does not find a script any more says so on its standard error.
inline constexpr const char* kAnswerFile = "result";

class FolderGuard {
 public:
  // `parent` and `name` of the folder, which need not be there yet. Null: no such process can be started.
  static std::unique_ptr<FolderGuard> start(int parent, const std::string& name);
  ~FolderGuard() { process_->end(); }
  FolderGuard(const FolderGuard&) = delete;
  FolderGuard& operator=(const FolderGuard&) = delete;

 private:
  explicit FolderGuard(std::unique_ptr<OutlivingProcess> process) : process_(std::move(process)) {}

  std::unique_ptr<OutlivingProcess> process_;
};

}  // namespace dynprof
