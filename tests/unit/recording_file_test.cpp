// Files that cannot be opened, and files that cannot be written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "symbolizer/recording/format.h"
#include "tests/unit/recording_example.h"

namespace dynprof {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

class RecordingFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "recording_test_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string write_file(const std::string& name, std::string_view bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  UniqueFd create(const std::string& name) const {
    return UniqueFd(::open(path(name).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  }
  static Error open_error(const std::string& path) {
    auto recording = Recording::open(path);
    EXPECT_FALSE(recording.has_value());
    return recording.has_value() ? Error{} : recording.error();
  }

  std::string folder_;
};

TEST_F(RecordingFile, Opens) {
  auto recording = Recording::open(write_file("good", example_bytes()));
  ASSERT_TRUE(recording.has_value());
  EXPECT_EQ((*recording)->sample_count(), 18u);
}

TEST_F(RecordingFile, EachReasonNotToOpenHasItsOwnText) {
  Error missing = open_error(path("missing"));
  EXPECT_THAT(missing.what, HasSubstr(path("missing") + ": No such file"));
  EXPECT_THAT(missing.hint, HasSubstr("record"));

  Error directory = open_error(folder_);
  EXPECT_THAT(directory.what, HasSubstr("is a directory"));
  EXPECT_THAT(directory.hint, HasSubstr(folder_ + "/recording.dynprof"));

  EXPECT_THAT(open_error(write_file("empty", "")).what, HasSubstr("empty"));
  EXPECT_THAT(open_error(write_file("short",
                                    "\x89"
                                    "DYN"))
                  .what,
              HasSubstr("not a recording"));
  EXPECT_THAT(open_error(write_file("text", std::string(5000, 'x'))).what,
              HasSubstr("not a recording"));
  EXPECT_THAT(open_error("/dev/null").what, HasSubstr("not a regular file"));
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_THAT(open_error(path("fifo")).what, HasSubstr("not a regular file"));

  std::string bytes = example_bytes();
  bytes[9] ^= 4;  // in the version: the checksum tells it from a newer one
  EXPECT_THAT(open_error(write_file("header", bytes)).what, HasSubstr("damaged"));

  recording::FileHeader newer;
  newer.version = recording::kVersion + 1;
  auto header = recording::encode_file_header(newer);
  bytes = example_bytes();
  std::copy(header.begin(), header.end(), bytes.begin());
  Error version = open_error(write_file("newer", bytes));
  EXPECT_THAT(version.what, HasSubstr("version 3, this program reads 2"));
  EXPECT_THAT(version.hint, HasSubstr("newer"));

  recording::FileHeader older;
  older.version = 1;
  header = recording::encode_file_header(older);
  std::copy(header.begin(), header.end(), bytes.begin());
  Error old = open_error(write_file("older", bytes));
  EXPECT_THAT(old.what, HasSubstr("version 1, this program reads 2"));
  EXPECT_THAT(old.hint, HasSubstr("record again"));

  recording::FileHeader flagged;
  flagged.flags = 1;
  header = recording::encode_file_header(flagged);
  std::copy(header.begin(), header.end(), bytes.begin());
  EXPECT_THAT(open_error(write_file("flagged", bytes)).what, HasSubstr("features"));
}

// The samples of an ordinary recording are in memory by then.
TEST_F(RecordingFile, AFileThatIsCutWhileItIsReadKeepsWhatWasRead) {
  std::string name = write_file("cut", example_bytes());
  auto recording = Recording::open(name);
  ASSERT_TRUE(recording.has_value());
  const std::vector<Sample> before = samples_of(**recording);
  EXPECT_FALSE(before.empty());
  std::filesystem::resize_file(name, 100);
  EXPECT_TRUE(samples_of(**recording) == before);
}

TEST_F(RecordingFile, ALongFileThatIsCutWhileItIsReadLosesSamplesOnly) {
  constexpr std::uint64_t kMoreThanIsKept = 600'000;
  auto writer = RecordingWriter::create(create("long"), example_meta());
  ASSERT_TRUE(writer.has_value());
  const ThreadId thread = (*writer)->thread({1, 1, 0});
  for (std::uint64_t i = 0; i < kMoreThanIsKept; ++i)
    (*writer)->sample({i * 1'000, thread, 0, 0, 0});
  ASSERT_TRUE((*writer)->finish(example_trailer()).has_value());
  auto recording = Recording::open(path("long"));
  ASSERT_TRUE(recording.has_value());
  EXPECT_EQ((*recording)->sample_count(), kMoreThanIsKept);
  std::filesystem::resize_file(path("long"), 100);
  EXPECT_THAT(samples_of(**recording), IsEmpty());
  EXPECT_EQ((*recording)->tables().threads.size(), 1u);
}

TEST_F(RecordingFile, WriterRefusesAFileThatIsNotEmpty) {
  write_file("full", "x");
  UniqueFd file(::open(path("full").c_str(), O_RDWR));
  auto writer = RecordingWriter::create(std::move(file), example_meta());
  ASSERT_FALSE(writer.has_value());
  EXPECT_THAT(writer.error().what, HasSubstr("not empty"));
}

TEST_F(RecordingFile, NoSpaceAtTheStart) {
  auto writer = RecordingWriter::create(UniqueFd(::open("/dev/full", O_WRONLY)), example_meta());
  ASSERT_FALSE(writer.has_value());
  EXPECT_EQ(writer.error().errno_value, ENOSPC);
  EXPECT_THAT(writer.error().what, HasSubstr("No space left"));
}

// A full disk, by the file size limit: writes come back short, then with an error.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  sighandler_t handler_ = SIG_DFL;
};

TEST_F(RecordingFile, FullDiskKeepsEveryWholeChunk) {
  const std::vector<std::string> original = texts_of(**read_bytes(example_bytes()));
  const std::size_t whole = example_bytes().size();
  for (std::size_t limit = 1; limit < whole; limit += 37) {
    std::string name = fmt::format("limit_{}", limit);
    Result<void> flushed;
    Result<void> finished;
    {
      FileSizeLimit full(limit);
      auto writer = RecordingWriter::create(create(name), example_meta());
      if (!writer.has_value()) {
        EXPECT_EQ(writer.error().errno_value, EFBIG);
        continue;
      }
      ThreadId thread = (*writer)->thread({1, 1, 0});
      StackId stack = 0;
      for (unsigned i = 0; i < 800; ++i) {
        stack = (*writer)->stack({stack, 0});
        (*writer)->sample({5'000'000'000u + i * 1'001'001u, thread, stack, 0, 0});
        if (i % 20 == 0) flushed = (*writer)->flush();
      }
      finished = (*writer)->finish(example_trailer());
      ASSERT_FALSE(flushed.has_value()) << "the limit was never reached";
      ASSERT_FALSE(finished.has_value());
      EXPECT_EQ(flushed.error().what, finished.error().what);
      EXPECT_EQ(finished.error().errno_value, EFBIG);
      EXPECT_GT((*writer)->samples_dropped(), 0u);
      EXPECT_EQ((*writer)->size(), std::filesystem::file_size(path(name)));
    }
    auto recording = Recording::open(path(name));
    ASSERT_TRUE(recording.has_value()) << recording.error().what;
    EXPECT_THAT((*recording)->damage(), IsEmpty());
    std::vector<Sample> samples = samples_of(**recording);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      EXPECT_EQ(samples[i].time_ns, 5'000'000'000 + i * 1'001'001);
      EXPECT_EQ(samples[i].stack, i + 1);
    }
    if ((*recording)->complete()) {
      EXPECT_EQ((*recording)->trailer().counters.at("samples_not_written") + samples.size(), 400u);
    }
  }
}

TEST_F(RecordingFile, ABrokenPipeIsAnError) {
  auto handler = ::signal(SIGPIPE, SIG_IGN);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  auto writer = RecordingWriter::create(UniqueFd(ends[1]), example_meta());
  ASSERT_TRUE(writer.has_value());
  ::close(ends[0]);
  ThreadId thread = (*writer)->thread({1, 1, 0});
  (*writer)->sample({1, thread, 0, 0, 0});
  Result<void> flushed = (*writer)->flush();
  ASSERT_FALSE(flushed.has_value());
  EXPECT_EQ(flushed.error().errno_value, EPIPE);
  (*writer)->sample({2, thread, 0, 0, 0});
  EXPECT_EQ((*writer)->samples_dropped(), 2u);
  EXPECT_FALSE((*writer)->finish({}).has_value());
  ::signal(SIGPIPE, handler);
}

}  // namespace
}  // namespace dynprof
