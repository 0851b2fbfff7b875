// Text that came from the target, made safe for where it goes: a terminal, a file name, JSON.
// Names of the target are bytes an attacker may choose: CPython strings can hold lone surrogates
// (three bytes of "surrogatepass" UTF-8), native symbols anything at all.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dynprof {

// Control characters (C0, DEL, C1), line separators, bidirectional, zero-width and tag characters,
// lone surrogates and bytes that are not UTF-8 become visible escapes as Python writes them: \n,
// \x1b, \u202e, \udc80. Printable text, backslashes included, passes unchanged.
std::string escape_terminal(std::string_view text);

// Columns `text` takes on a terminal, each code point counted as one (East Asian wide characters
// are not distinguished). For text that escape_terminal made.
std::size_t display_width(std::string_view text);

// At most `width` columns: what is too long loses its tail to "…", or its front if `keep_tail` (for
// paths). For text that escape_terminal made: a cut never splits a code point.
std::string truncate_columns(std::string_view text, std::size_t width, bool keep_tail = false);

// One path component of [A-Za-z0-9._+=,@!-], every other byte as '_'. Never empty, "." or "..",
// never begins with '.' or '-', at most 100 bytes.
std::string sanitize_file_component(std::string_view text);

// "/a/b.so" -> "b.so"; a path that ends in a slash stays whole.
std::string_view base_name(std::string_view path);

// The inside of a JSON string (no quotes), always valid UTF-8: bytes that are not become U+FFFD.
std::string json_escape(std::string_view text);
void append_json_escaped(std::string& out, std::string_view text);

// `text` with each byte that is not part of valid UTF-8 replaced by U+FFFD. A lone surrogate is not
// valid UTF-8.
std::string valid_utf8(std::string_view text);

// The same, but each such byte as text: "\xff", and a lone surrogate as "\udc80", as Python's
// "backslashreplace" writes them. Nothing else changes.
std::string backslash_escaped(std::string_view text);

}  // namespace dynprof
