#include "user/target/code_reader.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "bpf/events.h"

namespace dynprof {
namespace {

// A freed object keeps its fields until its memory is used again; only its first word, the reference count, becomes the
// allocator's link to the next free block (pymalloc, glibc, mimalloc), an address or 0. The count of an object in use
// is below 2^32, that of an immortal one too (3.12+); 3.14 has flags above bit 48. Free-threaded builds have something
// else there.
bool in_use(const PythonLayout& t, std::span<const std::byte> bytes) {
  if (t.free_threaded) return true;
  std::uint64_t count = load<std::uint64_t>(bytes, 0);
  return (count & 0xffff'ffff) != 0 && (count >> 32 & 0xffff) == 0;
}

// The fields of a code object that are used.
struct CodeHead {
  bool in_use = false;
  std::uint64_t type = 0;
  std::uint32_t first_line = 0;
  std::uint32_t version = 0;  // 0 before 3.12
  std::uint64_t filename = 0;
  std::uint64_t name = 0;
  std::uint64_t qualname = 0;  // 0 on 3.10
  std::uint64_t line_table = 0;
  std::uint32_t identity() const {
    return dp_code_identity(first_line, version, filename, name, qualname, line_table);
  }
  bool operator==(const CodeHead&) const = default;
};

// Bytes from the start of the object up to the last field; the same for every version's base.
constexpr std::size_t kHeadBytes = 256;

CodeHead parse_head(const PythonLayout& t, std::span<const std::byte> bytes) {
  const dp_python_layout& b = t.bpf;
  CodeHead head;
  head.in_use = in_use(t, bytes);
  head.type = load<std::uint64_t>(bytes, t.object_type);
  head.first_line = load<std::uint32_t>(bytes, std::size_t{b.code_base} + b.code_firstlineno);
  if (b.code_version != DP_NO_OFFSET) {
    head.version = load<std::uint32_t>(bytes, std::size_t{b.code_base} + b.code_version);
  }
  head.filename = load<std::uint64_t>(bytes, std::size_t{b.code_base} + b.code_filename);
  head.name = load<std::uint64_t>(bytes, std::size_t{b.code_base} + b.code_name);
  if (b.code_qualname != DP_NO_OFFSET) {
    head.qualname = load<std::uint64_t>(bytes, std::size_t{b.code_base} + b.code_qualname);
  }
  head.line_table = load<std::uint64_t>(bytes, std::size_t{b.code_base} + b.code_linetable);
  return head;
}

// A str or bytes object on its way in: a first read that is mostly enough, then the rest.
constexpr std::size_t kFirstRead = 256;
struct Piece {
  std::uint64_t object = 0;
  bool is_bytes = false;
  std::array<std::byte, kFirstRead> first;
  std::size_t first_size = 0;
  std::vector<std::byte> rest;  // the data, when `first` does not hold all of it
  StringHead head;              // for bytes: length and width 1
  Unreadable unreadable = Unreadable::kNo;
};

struct Reading {
  CodeHead before;
  CodeHead after;
  std::array<std::byte, kHeadBytes> bytes;
  std::array<Piece, 4> pieces;  // filename, name, qualname, line table
};

// Sizes, from `first`, or why they are not known.
void begin_piece(const RemoteObjects& objects, Piece& piece) {
  const PythonLayout& t = objects.layout();
  std::span<const std::byte> bytes = std::span(piece.first).first(piece.first_size);
  if (piece.is_bytes) {
    if (bytes.size() < t.bytes_data) {
      piece.unreadable = Unreadable::kFault;
      return;
    }
    piece.head.length = load<std::uint64_t>(bytes, t.object_size);
    piece.head.width = 1;
    piece.head.data_offset = t.bytes_data;
    if (piece.head.length > kMaxLineTable) {
      piece.unreadable =
          piece.head.length > 1ULL << 40 ? Unreadable::kBadLayout : Unreadable::kTooLong;
    }
  } else {
    if (bytes.size() < t.unicode_ascii_data) {
      piece.unreadable = Unreadable::kFault;
      return;
    }
    auto head = objects.parse_string_head(bytes);
    if (!head || head->data_offset == 0) {  // names of code objects are compact
      piece.unreadable = Unreadable::kBadLayout;
      return;
    }
    piece.head = *head;
    if (head->length > kMaxStringLength) piece.unreadable = Unreadable::kTooLong;
  }
}

std::size_t data_size(const Piece& piece) {
  return static_cast<std::size_t>(piece.head.length) * piece.head.width;
}

bool take_text(const Piece& piece, std::string& text) {
  std::size_t size = data_size(piece);
  std::span<const std::byte> data = piece.rest;
  if (piece.rest.empty()) data = std::span(piece.first).subspan(piece.head.data_offset, size);
  if (piece.is_bytes || piece.head.ascii) {
    text.assign(reinterpret_cast<const char*>(data.data()), data.size());
    return true;
  }
  return RemoteObjects::encode_utf8(data, piece.head.width, text);
}

}  // namespace

RemoteCode CodeReader::read(std::uint64_t address, std::optional<std::uint32_t> identity) {
  CodeRequest request{address, identity};
  return std::move(read_many(std::span(&request, 1)).front());
}

std::optional<std::uint32_t> CodeReader::identity_of(std::uint64_t address) {
  if (!plausible_pointer(address)) return std::nullopt;
  std::array<std::byte, kHeadBytes> bytes;
  const dp_python_layout& b = objects_.layout().bpf;
  auto part = std::span(bytes).first(std::size_t{b.code_base} + DP_CODE_READ_BYTES);
  if (!objects_.memory().read(address, part)) return std::nullopt;
  CodeHead head = parse_head(objects_.layout(), bytes);
  if (!head.in_use || (code_type_ != 0 && head.type != code_type_)) return std::nullopt;
  return head.identity();
}

std::vector<RemoteCode> CodeReader::read_many(std::span<const CodeRequest> requests) {
  const PythonLayout& t = objects_.layout();
  RemoteMemory& memory = objects_.memory();
  const std::size_t head_size = std::size_t{t.bpf.code_base} + DP_CODE_READ_BYTES;
  std::vector<RemoteCode> codes(requests.size());
  std::vector<Reading> readings(requests.size());
  std::vector<RemoteRange> ranges;
  std::vector<std::size_t> asked;  // which request a range of `ranges` is for

  // 1. The objects.
  for (std::size_t i = 0; i < requests.size(); ++i) {
    codes[i].address = requests[i].address;
    if (!plausible_pointer(requests[i].address) || head_size > kHeadBytes) {
      codes[i].unreadable = Unreadable::kBadLayout;
      continue;
    }
    ranges.push_back({requests[i].address, std::span(readings[i].bytes).first(head_size)});
    asked.push_back(i);
  }
  memory.read_many(ranges);
  for (std::size_t r = 0; r < ranges.size(); ++r) {
    std::size_t i = asked[r];
    CodeHead& head = readings[i].before;
    if (!ranges[r].complete()) {
      codes[i].unreadable = Unreadable::kFault;
      continue;
    }
    head = parse_head(t, readings[i].bytes);
    if (requests[i].identity && head.identity() != *requests[i].identity) {
      codes[i].unreadable = Unreadable::kStale;
    } else if (code_type_ != 0 && head.type != code_type_) {
      codes[i].unreadable = Unreadable::kBadLayout;
    } else if (!head.in_use) {
      codes[i].unreadable = Unreadable::kStale;
    }
    codes[i].identity = head.identity();
    codes[i].first_line = static_cast<std::int32_t>(head.first_line);
  }

  // 2. The start of the strings and of the line table.
  ranges.clear();
  std::vector<Piece*> pieces;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (codes[i].unreadable != Unreadable::kNo) continue;
    const CodeHead& head = readings[i].before;
    const std::uint64_t objects[] = {head.filename, head.name, head.qualname, head.line_table};
    for (std::size_t p = 0; p < 4; ++p) {
      Piece& piece = readings[i].pieces[p];
      piece.object = objects[p];
      piece.is_bytes = p == 3;
      if (p == 2 && t.bpf.code_qualname == DP_NO_OFFSET) continue;
      if (!plausible_pointer(piece.object)) {
        piece.unreadable = Unreadable::kBadLayout;
        continue;
      }
      ranges.push_back({piece.object, piece.first});
      pieces.push_back(&piece);
    }
  }
  memory.read_many(ranges);
  for (std::size_t r = 0; r < ranges.size(); ++r) {
    pieces[r]->first_size = ranges[r].done;
    begin_piece(objects_, *pieces[r]);
  }

  // 3. What did not fit.
  ranges.clear();
  std::vector<Piece*> longer;
  for (Piece* piece : pieces) {
    if (piece->unreadable != Unreadable::kNo || data_size(*piece) == 0) continue;
    if (piece->head.data_offset + data_size(*piece) <= piece->first_size) continue;
    piece->rest.resize(data_size(*piece));
    ranges.push_back({piece->object + piece->head.data_offset, piece->rest});
    longer.push_back(piece);
  }
  memory.read_many(ranges);
  for (std::size_t r = 0; r < ranges.size(); ++r) {
    if (!ranges[r].complete()) longer[r]->unreadable = Unreadable::kFault;
  }

  // 4. Is it still the same object, and in use? If so its strings were its own all the time.
  ranges.clear();
  asked.clear();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (codes[i].unreadable != Unreadable::kNo) continue;
    ranges.push_back({requests[i].address, std::span(readings[i].bytes).first(head_size)});
    asked.push_back(i);
  }
  memory.read_many(ranges);
  for (std::size_t r = 0; r < ranges.size(); ++r) {
    std::size_t i = asked[r];
    RemoteCode& code = codes[i];
    if (!ranges[r].complete() || parse_head(t, readings[i].bytes) != readings[i].before) {
      code.unreadable = Unreadable::kStale;
      continue;
    }
    for (const Piece& piece : readings[i].pieces) {
      if (piece.unreadable != Unreadable::kNo) code.unreadable = piece.unreadable;
    }
    if (code.unreadable != Unreadable::kNo) continue;
    bool good = take_text(readings[i].pieces[0], code.filename) &&
                take_text(readings[i].pieces[1], code.name) &&
                take_text(readings[i].pieces[3], code.line_table);
    if (t.bpf.code_qualname == DP_NO_OFFSET) {
      code.qualname = code.name;
    } else {
      good = good && take_text(readings[i].pieces[2], code.qualname);
    }
    if (!good) code.unreadable = Unreadable::kBadLayout;
  }
  return codes;
}

std::optional<std::vector<LocalName>> CodeReader::read_locals(std::uint64_t address) {
  const PythonLayout& t = objects_.layout();
  RemoteMemory& memory = objects_.memory();
  if (!identity_of(address)) return std::nullopt;
  std::vector<LocalName> locals;
  auto append = [&](std::uint32_t field, std::uint8_t kind) {
    auto tuple = memory.read_pointer(address + field);
    auto items = tuple ? objects_.tuple_items(*tuple) : std::nullopt;
    if (!items) return false;
    for (std::uint64_t item : *items) {
      auto name = objects_.read_str(item, 4096);
      if (!name) return false;
      locals.push_back({*std::move(name), kind});
    }
    return true;
  };
  if (t.code_localsplusnames != 0) {
    auto kinds_object = memory.read_pointer(address + t.code_localspluskinds);
    if (!kinds_object || !append(t.code_localsplusnames, 0)) return std::nullopt;
    auto kinds = objects_.read_bytes(*kinds_object, kMaxTupleItems);
    if (!kinds || kinds->size() != locals.size()) return std::nullopt;
    for (std::size_t i = 0; i < locals.size(); ++i) {
      locals[i].kind = static_cast<std::uint8_t>((*kinds)[i]);
    }
    return locals;
  }
  if (!append(t.code_varnames, LocalName::kLocal)) return std::nullopt;
  const std::size_t variables = locals.size();
  if (!append(t.code_cellvars, LocalName::kCell)) return std::nullopt;
  if (!append(t.code_freevars, LocalName::kFree)) return std::nullopt;
  for (std::size_t i = variables; i < locals.size(); ++i) {
    for (std::size_t v = 0; v < variables; ++v) {
      if (locals[i].kind == LocalName::kCell && locals[v].name == locals[i].name) {
        locals[v].name.clear();
      }
    }
  }
  return locals;
}

}  // namespace dynprof
