// Where exporters put bytes. A ByteSink remembers its first failure and ignores what comes after, so
// a writer checks once, at finish(). An OutputFile never replaces anything, follows no link and, if
// it is not finished, takes its half-written file away. A large one is written past the page cache from
// kCachedBytes on, where the file system can.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "symbolizer/base/direct_block.h"
#include "symbolizer/base/result.h"
#include "symbolizer/base/unique_fd.h"

namespace dynprof {

class ByteSink {
 public:
  virtual ~ByteSink() = default;
  virtual void write(std::string_view bytes) = 0;
  virtual bool failed() const = 0;
  // Must be called once, last. The first error of any write, else of closing.
  virtual Result<void> finish() = 0;
};

// Unbuffered: write in large blocks (BufferedSink does).
class OutputFile final : public ByteSink {
 public:
  // Of a new file. Most outputs are smaller, and are often read at once.
  static constexpr std::size_t kCachedBytes = 64 << 20;

  // A new file, mode 0600. `directory` is an open directory or AT_FDCWD, `name` relative to it; the
  // directory must stay open until finish(). `shown` is the path in messages.
  static Result<std::unique_ptr<OutputFile>> create(int directory, const std::string& name,
                                                    const std::string& shown = {});
  static Result<std::unique_ptr<OutputFile>> create(const std::string& path);
  // Something already open that is not ours to remove, as stdout. Takes the descriptor. `is_new`: a new file that
  // nothing else writes.
  static std::unique_ptr<OutputFile> adopt(UniqueFd fd, std::string shown, bool is_new = false);
  ~OutputFile() override;

  void write(std::string_view bytes) override;
  bool failed() const override { return error_.has_value(); }
  Result<void> finish() override;
  int fd() const { return fd_.get(); }

 private:
  OutputFile() = default;
  bool take(std::string_view bytes);
  void remove();

  UniqueFd fd_;
  int directory_ = -1;
  std::string name_;
  std::string shown_;
  bool ours_ = false;    // created here and not finished: remove it
  bool is_new_ = false;  // nothing else writes it
  dev_t device_ = 0;
  ino_t inode_ = 0;
  std::size_t cached_ = 0;               // bytes written through the page cache
  bool asked_ = false;                   // whether the rest can be written past it
  std::unique_ptr<DirectBlock> direct_;  // null: it cannot, or not yet
  std::optional<Error> error_;
};

// Gathers small pieces into large writes. Append to text() and call flush_if_full() now and then.
class BufferedSink {
 public:
  explicit BufferedSink(ByteSink& sink) : sink_(sink) { text_.reserve(kBlock + kBlock / 4); }
  std::string& text() { return text_; }
  bool failed() const { return sink_.failed(); }
  void flush_if_full() {
    if (text_.size() >= kBlock) flush();
  }
  void flush() {
    sink_.write(text_);
    text_.clear();
  }
  Result<void> finish() {
    flush();
    return sink_.finish();
  }

 private:
  static constexpr std::size_t kBlock = 64 * 1024;
  ByteSink& sink_;
  std::string text_;
};

}  // namespace dynprof
