// Names and line tables of code objects, read at first sight while they still exist. An address is no
// identity (torch frees and reuses module code), so the object is read before and after its strings
// and must be the one the kernel side saw, and in use, both times: a freed one keeps its fields for a
// while, when its strings may already be others.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "symbolizer/recording/model.h"
#include "user/target/remote_objects.h"

namespace dynprof {

inline constexpr std::size_t kMaxLineTable = 1 << 20;  // bytes; 5,000 kernel launches take 250 KB

struct CodeRequest {
  std::uint64_t address = 0;
  // dp_code_identity as the sample carries it; nullopt: whatever is there now.
  std::optional<std::uint32_t> identity;
};

struct RemoteCode {
  std::uint64_t address = 0;
  std::uint32_t identity = 0;
  std::int32_t first_line = 0;
  std::string filename;
  std::string name;
  std::string qualname;                     // equals `name` on 3.10
  std::string line_table;                   // co_linetable
  Unreadable unreadable = Unreadable::kNo;  // not kNo: all of the above but the address is void
};

struct LocalName {
  std::string name;
  // co_localspluskinds of 3.11+, made up to mean the same on 3.10.
  static constexpr std::uint8_t kLocal = 0x20;
  static constexpr std::uint8_t kCell = 0x40;
  static constexpr std::uint8_t kFree = 0x80;
  std::uint8_t kind = 0;
};

class CodeReader {
 public:
  // `code_type` is &PyCode_Type, 0 when not known.
  CodeReader(RemoteObjects& objects, std::uint64_t code_type)
      : objects_(objects), code_type_(code_type) {}

  RemoteCode read(std::uint64_t address, std::optional<std::uint32_t> identity = {});
  // One answer per request; four system calls for all of them where nothing is unusually long.
  std::vector<RemoteCode> read_many(std::span<const CodeRequest> requests);

  // The identity of the object there now; nullopt: unreadable, freed, or not a code object.
  std::optional<std::uint32_t> identity_of(std::uint64_t address);

  // The frame's slots in order: localsplus of 3.11+; on 3.10 variables, cells, free variables, where
  // an argument that is also a cell keeps its name only in its cell slot (its first slot is NULL once
  // the frame runs).
  std::optional<std::vector<LocalName>> read_locals(std::uint64_t address);

 private:
  RemoteObjects& objects_;
  std::uint64_t code_type_;
};

}  // namespace dynprof
