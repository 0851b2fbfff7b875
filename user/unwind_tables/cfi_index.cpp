#include "user/unwind_tables/cfi_index.h"

#include <string_view>
#include <unordered_map>

#include "user/unwind_tables/cfi_cursor.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxAugmentation = 16;
constexpr std::uint64_t kReturnAddressColumn = 16;  // x86-64 psABI

// The head of an entry. `id` is 0 in .eh_frame or all ones in .debug_frame for a CIE, else it says
// where the CIE is.
struct Entry {
  std::size_t begin = 0;
  std::size_t after_id = 0;
  std::size_t end = 0;
  bool is_cie = false;
  std::uint64_t cie = 0;  // offset in the section
};

class SectionIndexer {
 public:
  SectionIndexer(const FrameSection& section, std::uint8_t number, const ElfLayout& layout,
                 CfiIndex& index)
      : section_(section),
        data_(section.data.view()),
        number_(number),
        layout_(layout),
        base_(layout.code_base().value_or(0)),
        index_(index) {}

  void run() {
    for_each_entry(true, [this](const Entry& entry) {
      if (entry.is_cie) add_cie(entry);
    });
    for_each_entry(false, [this](const Entry& entry) {
      if (!entry.is_cie) add_fde(entry);
    });
  }

 private:
  void skip(CfiSkip why) { ++count_of(index_.skipped, why); }

  template <class Visit>
  void for_each_entry(bool count_damage, const Visit& visit) {
    std::size_t at = 0;
    while (data_.size() - at >= 4) {
      CfiCursor cursor(data_, section_.address, at, data_.size());
      std::uint64_t length = cursor.u32();
      if (length == 0) {
        // A terminator; in the middle of a section it is left over from linking.
        if (section_.open_ended) return;
        at += 4;
        continue;
      }
      const bool wide = length == 0xffffffffu;
      if (wide) length = cursor.u64();
      if (!cursor.ok() || length > cursor.left()) {
        if (count_damage) skip(CfiSkip::kDamaged);
        return;
      }
      Entry entry;
      entry.begin = at;
      entry.end = cursor.position() + static_cast<std::size_t>(length);
      at = entry.end;
      if (read_id(cursor, wide, entry)) {
        visit(entry);
      } else if (count_damage) {
        skip(CfiSkip::kDamaged);
      }
    }
  }

  bool read_id(CfiCursor& cursor, bool wide, Entry& entry) const {
    const std::size_t id_at = cursor.position();
    if (section_.is_eh) {
      if (wide) return false;
      const std::uint32_t id = cursor.u32();
      entry.is_cie = id == 0;
      entry.cie = id_at - id;
    } else {
      const std::uint64_t id = wide ? cursor.u64() : cursor.u32();
      entry.is_cie = id == (wide ? ~std::uint64_t{0} : 0xffffffffu);
      entry.cie = id;
    }
    entry.after_id = cursor.position();
    return cursor.ok() && entry.after_id <= entry.end;
  }

  void add_cie(const Entry& entry) {
    if (index_.cies.size() >= kMaxCies) return skip(CfiSkip::kLimit);
    CfiCie cie;
    cie.section = number_;
    CfiCursor cursor(data_, section_.address, entry.after_id, entry.end);
    cie.usable = read_cie(cursor, cie) && cursor.ok();
    cie.program_begin = static_cast<std::uint32_t>(cursor.position());
    cie.program_end = static_cast<std::uint32_t>(entry.end);
    cie_at_.emplace(entry.begin, static_cast<std::uint32_t>(index_.cies.size()));
    index_.cies.push_back(cie);
  }

  bool read_cie(CfiCursor& cursor, CfiCie& cie) const {
    const std::uint8_t version = cursor.u8();
    if (version != 1 && version != 3 && version != 4) return false;
    char augmentation[kMaxAugmentation] = {};
    std::size_t length = 0;
    for (char letter = 0; (letter = static_cast<char>(cursor.u8())) != 0 && cursor.ok();) {
      if (length == kMaxAugmentation) return false;
      augmentation[length++] = letter;
    }
    if (version == 4) {
      const std::uint8_t address_bytes = cursor.u8();
      const std::uint8_t segment_bytes = cursor.u8();
      if (address_bytes != 8 || segment_bytes != 0) return false;
    }
    cie.code_alignment = cursor.uleb();
    cie.data_alignment = cursor.sleb();
    const std::uint64_t return_column = version == 1 ? cursor.u8() : cursor.uleb();
    if (return_column != kReturnAddressColumn) return false;
    // Products with operands of 32 bits stay far from the edge of 64 bits.
    if (cie.code_alignment == 0 || cie.code_alignment > 256) return false;
    if (cie.data_alignment < -256 || cie.data_alignment > 256) return false;
    return read_augmentation(cursor, {augmentation, length}, cie);
  }

  static bool read_augmentation(CfiCursor& cursor, std::string_view letters, CfiCie& cie) {
    if (letters.empty()) return true;
    if (letters[0] != 'z') return false;
    cie.augmented = true;
    const std::uint64_t size = cursor.uleb();
    if (size > cursor.left()) return false;
    const std::size_t end = cursor.position() + static_cast<std::size_t>(size);
    for (char letter : letters.substr(1)) {
      if (letter == 'R') {
        cie.encoding = cursor.u8();
      } else if (letter == 'S') {
        cie.signal_frame = true;
      } else if (letter == 'L') {
        cursor.u8();
      } else if (letter == 'P') {
        const std::uint8_t encoding = cursor.u8();
        if (encoding != kPointerOmitted) cursor.pointer_value(encoding);
      } else {
        return false;
      }
    }
    if (!cursor.ok() || cursor.position() > end) return false;
    cursor.skip(end - cursor.position());
    return true;
  }

  void add_fde(const Entry& entry) {
    if (index_.fdes.size() >= kMaxFdes) return skip(CfiSkip::kLimit);
    if (entry.cie != last_cie_at_ || last_cie_ == nullptr) {
      const auto found = cie_at_.find(entry.cie);
      if (found == cie_at_.end()) return skip(CfiSkip::kNoCie);
      last_cie_at_ = entry.cie;
      last_number_ = found->second;
      last_cie_ = &index_.cies[found->second];
    }
    CfiCursor cursor(data_, section_.address, entry.after_id, entry.end);
    const std::uint64_t begin = cursor.pointer(last_cie_->encoding);
    const std::uint64_t size = cursor.pointer_value(last_cie_->encoding);
    if (last_cie_->augmented) cursor.skip(cursor.uleb());
    if (!cursor.ok()) return skip(CfiSkip::kDamaged);
    if (size > UINT32_MAX || begin + size < begin || !layout_.is_code(begin, begin + size)) {
      return skip(CfiSkip::kNotCode);
    }
    index_.fdes.push_back(
        {static_cast<std::uint32_t>(begin - base_), static_cast<std::uint32_t>(size), last_number_,
         static_cast<std::uint32_t>(cursor.position()), static_cast<std::uint32_t>(entry.end)});
  }

  const FrameSection& section_;
  ByteView data_;
  std::uint8_t number_;
  const ElfLayout& layout_;
  std::uint64_t base_;
  CfiIndex& index_;
  std::unordered_map<std::uint64_t, std::uint32_t> cie_at_;
  std::uint64_t last_cie_at_ = 0;
  const CfiCie* last_cie_ = nullptr;  // the CIEs are all there before the first FDE
  std::uint32_t last_number_ = 0;
};

}  // namespace

void index_section(const FrameSection& section, std::uint8_t number, const ElfLayout& layout,
                   CfiIndex& index) {
  SectionIndexer(section, number, layout, index).run();
}

}  // namespace dynprof
