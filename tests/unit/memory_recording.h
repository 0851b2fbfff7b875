// A recording that is written into memory and read back: for what the collector writes.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "tests/unit/recording_example.h"

namespace dynprof {

class MemoryRecording {
 public:
  MemoryRecording() {
    UniqueFd file = memory_file();
    file_ = UniqueFd(::dup(file.get()));
    auto made = RecordingWriter::create(std::move(file), example_meta());
    DYNPROF_CHECK(made.has_value());
    writer_ = std::move(*made);
  }
  RecordingWriter& writer() { return *writer_; }
  // Once; nothing can be written afterwards.
  const Tables& read() {
    DYNPROF_CHECK(writer_->finish({}).has_value());
    auto read = read_bytes(file_bytes(file_.get()));
    DYNPROF_CHECK(read.has_value() && (*read)->damage().empty());
    recording_ = std::move(*read);
    return recording_->tables();
  }
  // After read().
  std::vector<Sample> samples() const { return samples_of(*recording_); }

 private:
  UniqueFd file_;
  std::unique_ptr<RecordingWriter> writer_;
  std::unique_ptr<Recording> recording_;
};

}  // namespace dynprof
