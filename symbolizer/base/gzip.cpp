#include "symbolizer/base/gzip.h"

#include <fcntl.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace dynprof {
namespace {

// Traces are so repetitive that this takes 4 % of their size; level 6 takes 3 % and 2.5 times as long.
constexpr int kLevel = 3;
constexpr int kGzipWindow = 15 + 16;  // largest window, gzip header and CRC
constexpr int kMemory = 8;            // zlib's default

class GzipSink final : public ByteSink {
 public:
  explicit GzipSink(std::unique_ptr<ByteSink> out) : out_(std::move(out)) {}
  ~GzipSink() override {
    if (open_) ::deflateEnd(&stream_);
  }
  GzipSink(const GzipSink&) = delete;
  GzipSink& operator=(const GzipSink&) = delete;

  bool open() {
    open_ = ::deflateInit2(&stream_, kLevel, Z_DEFLATED, kGzipWindow, kMemory,
                           Z_DEFAULT_STRATEGY) == Z_OK;
    return open_;
  }
  void write(std::string_view bytes) override {
    while (!bytes.empty() && !failed()) {
      std::size_t part = std::min<std::size_t>(bytes.size(), std::numeric_limits<uInt>::max());
      // zlib's input pointer is not const by history; it does not write through it.
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
      stream_.avail_in = static_cast<uInt>(part);
      deflate_all(Z_NO_FLUSH);
      bytes.remove_prefix(part);
    }
  }
  bool failed() const override { return out_->failed(); }
  Result<void> finish() override {
    if (!failed()) deflate_all(Z_FINISH);
    return out_->finish();
  }

 private:
  void deflate_all(int flush) {
    do {
      stream_.next_out = reinterpret_cast<Bytef*>(block_.data());
      stream_.avail_out = static_cast<uInt>(block_.size());
      int status = ::deflate(&stream_, flush);
      DYNPROF_CHECK(status != Z_STREAM_ERROR);
      out_->write(std::string_view(block_.data(), block_.size() - stream_.avail_out));
    } while (stream_.avail_out == 0 && !out_->failed());
  }

  std::unique_ptr<ByteSink> out_;
  z_stream stream_{};
  bool open_ = false;
  std::array<char, 64 * 1024> block_;
};

}  // namespace

Result<std::unique_ptr<ByteSink>> make_gzip_sink(std::unique_ptr<ByteSink> out) {
  auto sink = std::make_unique<GzipSink>(std::move(out));
  if (!sink->open()) return error("out of memory for compression");
  return std::unique_ptr<ByteSink>(std::move(sink));
}

Result<std::unique_ptr<ByteSink>> create_output(int directory, const std::string& name,
                                                const std::string& shown) {
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSink> file, OutputFile::create(directory, name, shown));
  if (!name.ends_with(".gz")) return file;
  return make_gzip_sink(std::move(file));
}

Result<std::unique_ptr<ByteSink>> create_output(const std::string& path) {
  return create_output(AT_FDCWD, path);
}

}  // namespace dynprof
