// A ByteSink that compresses into another one, as one gzip member without name or time (the same
// input gives the same bytes).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "symbolizer/base/file_output.h"

namespace dynprof {

// A new file (OutputFile::create), compressed if its name ends in ".gz".
Result<std::unique_ptr<ByteSink>> create_output(int directory, const std::string& name,
                                                const std::string& shown = {});
Result<std::unique_ptr<ByteSink>> create_output(const std::string& path);

// Takes the sink it writes to; finish() finishes that one too.
Result<std::unique_ptr<ByteSink>> make_gzip_sink(std::unique_ptr<ByteSink> out);

}  // namespace dynprof
