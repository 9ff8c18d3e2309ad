// The progress bar on a pseudo-terminal and on a file.
#include "weft/trace/progress_bar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace weft::trace {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string content(std::FILE* file) {
  std::rewind(file);
  std::string text(10'000, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  return text;
}

class Terminal {
 public:
  explicit Terminal(unsigned short columns) {
    const winsize size{24, columns, 0, 0};
    int end = -1;
    if (openpty(&master_, &end, nullptr, nullptr, &size) == 0) out_ = fdopen(end, "w");
  }
  ~Terminal() { close(master_); }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  [[nodiscard]] std::FILE* out() const { return out_; }
  // Closes the writing end first, so that reading ends after the last byte.
  [[nodiscard]] std::string shown() {
    std::fclose(out_);
    std::string text;
    char byte = 0;
    while (read(master_, &byte, 1) == 1) text.push_back(byte);
    return text;
  }

 private:
  int master_ = -1;
  std::FILE* out_ = nullptr;
};

// Returns the lines that a terminal shows. Knows the control sequences of the bar: line feed, carriage return, up,
// erase. A terminal inserts a carriage return before a line feed; `text` contains it if it comes from one.
std::vector<std::string> screen(const std::string& text, bool from_terminal) {
  std::vector<std::string> lines(1);
  std::size_t row = 0;
  std::size_t column = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 4, "\x1b[1A") == 0) {
      row -= row > 0 ? 1 : 0;
      i += 3;
    } else if (text.compare(i, 3, "\x1b[K") == 0) {
      lines[row].resize(column);
      i += 2;
    } else if (text[i] == '\r') {
      column = 0;
    } else if (text[i] == '\n') {
      if (++row == lines.size()) lines.emplace_back();
      if (!from_terminal) column = 0;
    } else {
      lines[row].resize(std::max(lines[row].size(), column + 1), ' ');
      lines[row][column++] = text[i];
    }
  }
  return lines;
}

TEST(ProgressBar, PrintsALineForEachTenth) {
  std::FILE* file = std::tmpfile();
  {
    ProgressBar bar("epoch 1/2", 40, file);
    for (int i = 1; i <= 40; ++i) bar.update(i, "loss " + std::to_string(i));
  }
  const std::string text = content(file);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 10);
  EXPECT_THAT(text, testing::StartsWith("epoch 1/2  4/40  loss 4\n"));
  EXPECT_THAT(text, testing::EndsWith("epoch 1/2  40/40  loss 40\n"));
  EXPECT_THAT(text, Not(HasSubstr("\r")));
  std::fclose(file);
}

TEST(ProgressBar, RedrawsOnATerminalAndErasesItself) {
  Terminal terminal(100);
  {
    ProgressBar bar("epoch 1/2", 1000, terminal.out());
    for (int i = 1; i <= 1000; ++i) bar.update(i);
  }
  const std::string text = terminal.shown();
  EXPECT_THAT(text, HasSubstr("[##############################] 1000/1000"));
  EXPECT_EQ(screen(text, true), (std::vector<std::string>{"", ""}));  // the next output starts in the line of the bar
  EXPECT_THAT(text, testing::EndsWith("\x1b[1A\r\x1b[K"));
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 100);  // fewer than the number of updates
}

// Draws a bar into a file, as wide as `columns`.
class FileBar {
 public:
  FileBar(const char* title, std::int64_t total, const char* columns) {
    setenv("WEFT_PROGRESS", "bar", 1);
    setenv("COLUMNS", columns, 1);
    bar_ = std::make_unique<ProgressBar>(title, total, file_);
  }
  ~FileBar() {
    bar_.reset();
    std::fclose(file_);
    unsetenv("COLUMNS");
    unsetenv("WEFT_PROGRESS");
  }
  FileBar(const FileBar&) = delete;
  FileBar& operator=(const FileBar&) = delete;

  void update(std::int64_t done, const std::string& text = "") { bar_->update(done, text); }
  [[nodiscard]] std::string drawn() const { return content(file_); }

 private:
  std::FILE* file_ = std::tmpfile();
  std::unique_ptr<ProgressBar> bar_;
};

// Launchers forward the output of a rank by lines. Every drawing must be complete without the next one.
TEST(ProgressBar, ShowsEveryDrawingBehindALauncher) {
  FileBar bar("epoch 1/2", 10, "100");
  for (int i = 1; i <= 10; ++i) {
    bar.update(i);
    usleep(i < 4 ? 110'000 : 0);
  }
  const std::string text = bar.drawn();
  EXPECT_EQ(text.back(), '\n');
  EXPECT_GE(std::count(text.begin(), text.end(), '\n'), 4);
  const auto lines = screen(text, false);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_THAT(lines[0], testing::StartsWith("epoch 1/2 [##############################] 10/10"));
}

TEST(ProgressBar, FitsNarrowTerminals) {
  FileBar bar("train 1/2", 40, "50");
  bar.update(10, "cost 0.12345");
  const std::string line = screen(bar.drawn(), false)[0];
  EXPECT_LT(line.size(), 50U);
  EXPECT_THAT(line, testing::StartsWith("train 1/2 [#"));
  EXPECT_THAT(line, HasSubstr("] 10/40 0:0"));
  EXPECT_THAT(line, testing::EndsWith("cost 0.12345"));
}

// A rank's output is a pipe, or a pseudo-terminal without a size.
TEST(ProgressBar, TakesTheWidthFromColumns) {
  FileBar bar("a title of some length", 3, "33");
  bar.update(1, std::string(200, 'x'));
  EXPECT_EQ(bar.drawn().find('\n'), 32U);
}

TEST(ProgressBar, IsNeverWiderThanTheTerminal) {
  Terminal terminal(30);
  {
    ProgressBar bar("a title of some length", 3, terminal.out());
    bar.update(1, std::string(200, 'x'));
  }
  EXPECT_EQ(terminal.shown().size(), 29 + std::string("\r\n\x1b[1A\r\x1b[K").size());  // the terminal adds \r
}

TEST(ProgressBar, EnvironmentVariableOverridesTerminalDetection) {
  Terminal terminal(100);
  setenv("WEFT_PROGRESS", "lines", 1);
  {
    ProgressBar("to a file", 1, terminal.out()).update(1);
  }
  EXPECT_EQ(terminal.shown(), "to a file  1/1\r\n");
  setenv("WEFT_PROGRESS", "bar", 1);
  std::FILE* file = std::tmpfile();
  {
    ProgressBar("to a terminal", 1, file).update(1);
  }
  EXPECT_THAT(content(file), HasSubstr("[##############################] 1/1"));
  std::fclose(file);
  unsetenv("WEFT_PROGRESS");
}

TEST(ProgressBar, HandlesEmptyTotalsAndOutOfRangeValues) {
  std::FILE* file = std::tmpfile();
  ProgressBar none("none", 0, file);
  none.update(0);
  ProgressBar over("over", 2, file);
  over.update(7);
  over.update(-1);
  EXPECT_EQ(content(file), "none  0/0\nover  2/2\n");
  std::fclose(file);
}

}  // namespace
}  // namespace weft::trace
