// The data of an HTML page as its script reads it.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "symbolizer/base/file_output.h"

namespace dynprof {

class PageSink : public ByteSink {
 public:
  void write(std::string_view bytes) override { text += bytes; }
  bool failed() const override { return false; }
  Result<void> finish() override {
    ++finished;
    return {};
  }
  std::string text;
  int finished = 0;
};

// The text of the data element: until the first "</script", as a browser ends it.
inline std::string page_data_text(const std::string& page) {
  constexpr std::string_view kBegin = "<script type=\"application/json\" id=\"data\">";
  const std::size_t begin = page.find(kBegin);
  if (begin == std::string::npos) return {};
  const std::size_t from = begin + kBegin.size();
  return page.substr(from, page.find("</script", from) - from);
}

inline nlohmann::json page_data(const std::string& page) {
  auto data = nlohmann::json::parse(page_data_text(page), nullptr, false);
  EXPECT_FALSE(data.is_discarded()) << page_data_text(page).substr(0, 400);
  return data;
}

inline const nlohmann::json* page_table(const nlohmann::json& data, const std::string& id) {
  for (const auto& table : data.at("tables"))
    if (table.at("id") == id) return &table;
  return nullptr;
}

}  // namespace dynprof
