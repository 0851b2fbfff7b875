// Meta and Trailer as JSON: read by people and scripts too, and free to gain members.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "symbolizer/recording/model.h"

namespace dynprof::recording {

// Bytes that are not UTF-8 become U+FFFD.
std::string meta_to_json(const Meta& meta);
// Holds the meta again, for a file whose beginning is damaged.
std::string trailer_to_json(const Trailer& trailer, const Meta& meta);

struct TrailerAndMeta {
  Trailer trailer;
  std::optional<Meta> meta;
};
// Empty if it is not a JSON object. Members that are absent, unknown or of the wrong type leave
// what they would set at its default.
std::optional<Meta> meta_from_json(std::string_view text);
std::optional<TrailerAndMeta> trailer_from_json(std::string_view text);

}  // namespace dynprof::recording
