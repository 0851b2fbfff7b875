// Writes a recording while sampling: interned strings, code objects, frames, stacks and contexts go
// out before the samples that use them, in checksummed chunks, so that what is on disk is readable
// whenever we die. Not thread-safe: the collector's thread owns it. Format: docs/reference/recording-format.md.
//
// More than 15 public members: one for each kind of row.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "symbolizer/base/result.h"
#include "symbolizer/base/unique_fd.h"
#include "symbolizer/recording/model.h"

namespace dynprof {

class RecordingWriter {
 public:
  // Takes an open, empty, writable file. The header and Meta are written at once.
  static Result<std::unique_ptr<RecordingWriter>> create(UniqueFd file, const Meta& meta);
  virtual ~RecordingWriter() = default;

  // Each of these gives the same id for equal content (until what is remembered exceeds a bound in
  // memory; then content may get a second id). A string is cut at 1 MiB, a blob over 8 MiB is not
  // kept (id 0).
  virtual StringId string(std::string_view text) = 0;
  virtual BlobId blob(std::string_view bytes) = 0;
  virtual CodeId code(const Code& code) = 0;
  virtual FrameId frame(const Frame& frame) = 0;
  virtual StackId stack(const StackNode& node) = 0;
  virtual ContextId context(const Context& context) = 0;
  virtual ThreadId thread(const Thread& thread) = 0;
  virtual void sample(const Sample& sample) = 0;

  // process(), edge(), wait() and so on: see chunk_list.h. Ids must be this writer's, and values within
  // the bounds of the model. A process is written once per pid and state; a later row (after exec)
  // replaces the earlier for new samples.
#define DYNPROF_ADD(kind, number, name, Row, member, function) \
  virtual void function(const Row& row) = 0;
  DYNPROF_LISTS(DYNPROF_ADD)
#undef DYNPROF_ADD

  // Writes out what is buffered; call it about once a second so that little is lost to SIGKILL.
  // After a failed write (disk full) the file keeps its last whole chunk and every later call
  // returns that first error; samples are then counted, not kept. On a pipe SIGPIPE must be ignored.
  virtual Result<void> flush() = 0;
  // Trailer and end mark; nothing can be written after it.
  virtual Result<void> finish(const Trailer& trailer) = 0;
  // Bytes on disk so far.
  virtual std::uint64_t size() const = 0;
  // Samples not kept because a write had failed; in the trailer as "samples_not_written".
  virtual std::uint64_t samples_dropped() const = 0;
};

}  // namespace dynprof
