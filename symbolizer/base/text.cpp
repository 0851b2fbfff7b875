#include "symbolizer/base/text.h"

#include <fmt/format.h>

#include <cstdint>
#include <iterator>

namespace dynprof {
namespace {

constexpr std::size_t kMaxComponentBytes = 100;
constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD
constexpr std::string_view kEllipsis = "\xe2\x80\xa6";     // U+2026

struct CodePoint {
  char32_t value = 0;
  std::size_t bytes = 1;
  bool valid = false;      // well-formed UTF-8
  bool surrogate = false;  // well-formed but for being a surrogate: CPython's "surrogatepass"
};

bool is_continuation(unsigned char byte) { return (byte & 0xc0) == 0x80; }

// The code point at the front of `text`, which is not empty. An invalid one takes one byte.
CodePoint decode_front(std::string_view text) {
  auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1, true, false};
  std::size_t bytes = lead >= 0xf0 && lead <= 0xf4   ? 4
                      : lead >= 0xe0 && lead <= 0xef ? 3
                      : lead >= 0xc2 && lead <= 0xdf ? 2
                                                     : 0;
  if (bytes == 0 || text.size() < bytes) return {lead, 1, false, false};
  char32_t value = lead & (0xffu >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if (!is_continuation(byte(i))) return {lead, 1, false, false};
    value = (value << 6) | (byte(i) & 0x3fu);
  }
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (value < kSmallest[bytes] || value > 0x10ffff) return {lead, 1, false, false};
  if (value >= 0xd800 && value <= 0xdfff) return {value, bytes, false, true};
  return {value, bytes, true, false};
}

struct Range {
  char32_t first, last;
};

// What a terminal may act on, reorder or hide: controls, soft hyphen, Arabic letter mark, Hangul
// filler, Mongolian vowel separator, zero-width and bidirectional marks, line separators, invisible
// operators, variation selectors, byte order mark, interlinear annotation, noncharacters, tags,
// private use planes.
constexpr Range kUnsafe[] = {
    {0x00, 0x1f},     {0x7f, 0x9f},     {0xad, 0xad},     {0x61c, 0x61c},      {0x115f, 0x1160},
    {0x180b, 0x180f}, {0x200b, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f},    {0xfe00, 0xfe0f},
    {0xfeff, 0xfeff}, {0xfff0, 0xfffb}, {0xfffe, 0xffff}, {0xe0000, 0x10ffff},
};

bool is_unsafe(char32_t value) {
  for (const Range& range : kUnsafe) {
    if (value < range.first) return false;
    if (value <= range.last) return true;
  }
  return false;
}

void append_escape(std::string& out, const CodePoint& point) {
  auto value = static_cast<std::uint32_t>(point.value);
  switch (value) {
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      break;
  }
  if (value <= 0xff) {
    fmt::format_to(std::back_inserter(out), "\\x{:02x}", value);
  } else if (value <= 0xffff) {
    fmt::format_to(std::back_inserter(out), "\\u{:04x}", value);
  } else {
    fmt::format_to(std::back_inserter(out), "\\U{:08x}", value);
  }
}

bool is_component_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("._+=,@!-").find(c) != std::string_view::npos;
}

}  // namespace

std::string escape_terminal(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    CodePoint point = decode_front(text);
    if (!point.valid || is_unsafe(point.value)) {
      append_escape(out, point);
    } else {
      out += text.substr(0, point.bytes);
    }
    text.remove_prefix(point.bytes);
  }
  return out;
}

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  for (char c : text) width += is_continuation(static_cast<unsigned char>(c)) ? 0 : 1;
  return width;
}

std::string truncate_columns(std::string_view text, std::size_t width, bool keep_tail) {
  std::size_t columns = display_width(text);
  if (columns <= width) return std::string(text);
  if (width == 0) return {};
  // Byte position of the column where the kept part begins or ends.
  std::size_t target = keep_tail ? columns - (width - 1) : width - 1;
  std::size_t seen = 0, at = 0;
  for (; at < text.size(); ++at) {
    if (is_continuation(static_cast<unsigned char>(text[at]))) continue;
    if (seen == target) break;
    ++seen;
  }
  std::string out;
  if (keep_tail) {
    out.append(kEllipsis).append(text.substr(at));
  } else {
    out.append(text.substr(0, at)).append(kEllipsis);
  }
  return out;
}

std::string sanitize_file_component(std::string_view text) {
  std::string out;
  for (char c : text.substr(0, kMaxComponentBytes)) out += is_component_byte(c) ? c : '_';
  if (out.empty()) return "_";
  if (out[0] == '.' || out[0] == '-') out[0] = '_';
  return out;
}

void append_json_escaped(std::string& out, std::string_view text) {
  while (!text.empty()) {
    // Most names are plain ASCII: take the run that needs nothing at once.
    std::size_t plain = 0;
    while (plain < text.size() && text[plain] >= 0x20 && text[plain] < 0x7f && text[plain] != '"' &&
           text[plain] != '\\') {
      ++plain;
    }
    out += text.substr(0, plain);
    text.remove_prefix(plain);
    if (text.empty()) return;
    CodePoint point = decode_front(text);
    if (!point.valid) {
      out += kReplacement;
    } else if (point.value == '"' || point.value == '\\') {
      out += '\\';
      out += text[0];
    } else if (point.value < 0x20 || point.value == 0x7f) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(point.value));
    } else {
      out += text.substr(0, point.bytes);
    }
    text.remove_prefix(point.bytes);
  }
}

std::string json_escape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  append_json_escaped(out, text);
  return out;
}

std::string backslash_escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    CodePoint point = decode_front(text);
    if (point.valid) {
      out += text.substr(0, point.bytes);
    } else {
      append_escape(out, point);
    }
    text.remove_prefix(point.bytes);
  }
  return out;
}

std::string valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    CodePoint point = decode_front(text);
    out += point.valid ? text.substr(0, point.bytes) : kReplacement;
    text.remove_prefix(point.bytes);
  }
  return out;
}

std::string_view base_name(std::string_view path) {
  std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos || slash + 1 == path.size() ? path
                                                                     : path.substr(slash + 1);
}

}  // namespace dynprof
