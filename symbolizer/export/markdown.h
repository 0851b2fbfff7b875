// Text of the target in a Markdown page: it can neither end a table cell or a block nor make a link.
#pragma once

#include <string>
#include <string_view>

namespace dynprof {

// One line, inside a table or a paragraph: control characters and line ends become visible escapes, what
// Markdown or HTML would take for its own is escaped. At most `most` columns.
std::string markdown_text(std::string_view text, std::size_t most = 200);

// The same as code: `text`.
std::string markdown_code(std::string_view text, std::size_t most = 200);

// A block of lines as they are, control characters but tabs and line ends escaped; at most `lines`, then a
// line that says how many more there are.
std::string markdown_block(std::string_view text, std::string_view language, std::size_t lines);

}  // namespace dynprof
