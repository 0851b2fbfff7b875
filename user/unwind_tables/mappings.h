// Where a process has code: its executable mappings of files and the vdso, each with the distance
// between addresses in the process and in the file (by program headers, never guessed from pages) and
// a key under which all processes share one unwind table.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "symbolizer/base/result.h"
#include "user/target/process.h"
#include "user/target/read_accounts.h"
#include "user/unwind_tables/elf_layout.h"

namespace dynprof {

// What does not change while a file stays the same.
struct CodeFile {
  ElfLayout layout;
  // "<build-id>-<hash of where its code and frames lie>": the same for copies of one file, but not for
  // one that was rewritten and kept its build-id (patchelf). Without a build-id: of this inode alone.
  std::string key;
  // Empty, or why there is no table: "is not an ELF file".
  std::string problem;
};

struct CodeMapping {
  Mapping mapping;  // start, end, offset, device, inode, path, deleted
  bool vdso = false;
  std::shared_ptr<const CodeFile> file;  // never null
  // Address in the process minus address in the file; nullopt: no segment of the file is there.
  std::optional<std::uint64_t> bias;
};

struct CodeMappings {
  std::vector<CodeMapping> mappings;  // in order of address
  std::size_t left_out = 0;           // beyond kMaxCodeMappings
  std::size_t anonymous = 0;          // executable memory without a file: jitted code
};

inline constexpr std::size_t kMaxCodeMappings = 10'000;

// Remembers files it has looked at, by device, inode, size and time of change: 2,000 new processes a
// second map the same few libraries. Bounded; one owner.
class CodeFiles {
 public:
  static constexpr std::size_t kMaxFiles = 16'384;

  // The process that reads a file is charged for it.
  explicit CodeFiles(ReadAccounts& accounts) : accounts_(accounts) {}

  Result<CodeMappings> read(pid_t pid);
  // The file of one mapping that was just made; never null.
  std::shared_ptr<const CodeFile> file_of(pid_t pid, const Mapping& mapping);

 private:
  ReadAccounts& accounts_;
  using Identity =
      std::tuple<std::uint64_t, std::uint64_t, std::int64_t, std::int64_t, std::int64_t>;
  std::map<Identity, std::shared_ptr<const CodeFile>> files_;
  // That this process had no budget for: another one may have.
  std::map<std::pair<pid_t, Identity>, std::shared_ptr<const CodeFile>> cut_;
  std::shared_ptr<const CodeFile> vdso_of(pid_t pid, const Mapping& mapping);
  std::map<std::string, std::shared_ptr<const CodeFile>> vdsos_;  // by key
};

// The image of the vdso of a process, at most 64 KiB: this program's, which all 64-bit programs have, or one of another
// size as it lies in the process.
Result<std::vector<std::uint8_t>> read_vdso(pid_t pid, const Mapping& mapping);

}  // namespace dynprof
