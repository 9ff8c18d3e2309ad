// Tests the YAML parser: locations, shared values, and malicious files.
#include "weft/experiment/file/document.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>

#include "weft/experiment/file/emit.h"
#include "weft/experiment/file/problems.h"

namespace weft::experiment {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string error_of(const std::string& text, const DocumentLimits& limits = {}) {
  try {
    static_cast<void>(parse_document(text, "file.yaml", limits));
  } catch (const ExperimentError& error) {
    return error.what();
  }
  return "";
}

std::string repeated(const std::string& text, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) result += text;
  return result;
}

TEST(DocumentTest, KeepsTagsPlacesAndOrder) {
  const ValuePtr root = parse_document("!obj:a.b.C {\n  x: 1,\n  y: [ 'two', ~ ],\n}", "f");
  EXPECT_EQ(root->tag, "!obj:a.b.C");
  ASSERT_EQ(root->entries.size(), 2U);
  EXPECT_EQ(root->entries[0].key, "x");
  EXPECT_EQ(root->entries[0].value->place.line, 2);
  EXPECT_EQ(root->entries[0].value->place.column, 6);
  const ValuePtr list = root->find("y");
  ASSERT_EQ(list->items.size(), 2U);
  EXPECT_TRUE(list->items[0]->quoted);
  EXPECT_EQ(list->items[0]->tag, "");
  EXPECT_EQ(list->items[1]->kind, Value::Kind::kNull);
  EXPECT_EQ(root->find("z"), nullptr);
}

TEST(DocumentTest, AliasesAreTheSameObject) {
  const ValuePtr root = parse_document("{a: &x {k: 1}, b: *x, c: [*x, *x]}", "f");
  EXPECT_EQ(root->find("a"), root->find("b"));
  EXPECT_EQ(root->find("c")->items[0], root->find("c")->items[1]);
}

TEST(DocumentTest, ExplicitKeysOverrideMergedEntries) {
  const ValuePtr root = parse_document("a: &x {k: 1, l: 2}\nb: &y {m: 5, l: 6}\nc: {<<: [*x, *y], k: 3}", "f");
  const ValuePtr merged = root->find("c");
  ASSERT_EQ(merged->entries.size(), 3U);
  EXPECT_EQ(merged->find("k")->text, "3");
  EXPECT_EQ(merged->find("l")->text, "2");
  EXPECT_EQ(merged->find("m")->text, "5");
}

TEST(DocumentTest, ReportsLocationsOfErrors) {
  EXPECT_THAT(error_of("a: 1\nb: [1, 2\nc: 3\n"), HasSubstr("file.yaml:"));
  EXPECT_THAT(error_of("a: 1\nb: 2\na: 3\n"), HasSubstr("file.yaml:3:1: duplicate key 'a'"));
  EXPECT_THAT(error_of("{[1]: 2}"), HasSubstr("a key must be text, got a list of 1 item"));
  EXPECT_THAT(error_of("a: *b"), HasSubstr("file.yaml:1:"));
  EXPECT_THAT(error_of("a: &a {b: *a}"), HasSubstr("must not contain an alias of itself"));
  EXPECT_THAT(error_of("a: {<<: 3}"), HasSubstr("can merge only mappings"));
  EXPECT_THAT(error_of("a: 1\n---\nb: 1\n"), HasSubstr("second document"));
  EXPECT_THAT(error_of(""), HasSubstr("the file is empty"));
  EXPECT_THAT(error_of("# only a comment\n"), HasSubstr("the file is empty"));
}

TEST(DocumentTest, PointsOutTabsInTheIndentation) {
  for (const char* text : {"\ta: 1\n", "a:\n\tb: 1\n", "a:\n  b: 1\n\tc: 2\n", "a:\n  \t- b: 1\n"})
    EXPECT_THAT(error_of(text), HasSubstr("; the indentation contains a tab, use spaces")) << text;
  EXPECT_THAT(error_of("a: [1\t, 2\n"), Not(HasSubstr("tab")));
}

TEST(DocumentTest, RejectsPathsThatAreNotFiles) {
  EXPECT_THROW(static_cast<void>(read_document("/nowhere/at/all.yaml")), ExperimentError);
  EXPECT_THROW(static_cast<void>(read_document("/")), ExperimentError);
}

// The peak memory of this process.
std::int64_t peak_kilobytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

TEST(MaliciousFileTest, AliasBombsStayShared) {
  std::string laughs = "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n";
  for (int i = 1; i < 40; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    laughs += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before + repeated(", " + before, 8) + "]\n";
  }
  const auto before = peak_kilobytes();
  const ValuePtr root = parse_document(laughs, "f");
  EXPECT_EQ(root->entries.size(), 40U);
  EXPECT_LT(peak_kilobytes() - before, 20'000);
}

TEST(MaliciousFileTest, CountsMergedEntries) {
  std::string text = "a: &a {";
  for (int i = 0; i < 500; ++i) text += "k" + std::to_string(i) + ": 1, ";
  text += "}\n";
  for (int i = 0; i < 1000; ++i) text += "b" + std::to_string(i) + ": {<<: *a}\n";
  EXPECT_THAT(error_of(text), HasSubstr("more than 100000 values"));
}

// Nested merges would copy the first list 2^20 times.
TEST(MaliciousFileTest, CountsCopiesOfMergedEntries) {
  std::string text = "a0: &a0 {k: [1]}\n";
  for (int i = 1; i <= 20; ++i) {
    const std::string before = "{<<: *a" + std::to_string(i - 1) + "}";
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " {k: " + before + ", l: " + before + "}\n";
  }
  EXPECT_THAT(error_of(text), HasSubstr("more than 100000 values"));
}

TEST(MaliciousFileTest, LimitsDepth) {
  for (const int depth : {65, 1000, 100'000}) {
    EXPECT_NE(error_of(repeated("[", depth) + repeated("]", depth)), "") << depth;
    EXPECT_NE(error_of(repeated("{a: ", depth) + "1" + repeated("}", depth)), "") << depth;
    EXPECT_NE(error_of(repeated("- ", depth) + "1"), "") << depth;
  }
  EXPECT_EQ(error_of(repeated("[", 60) + repeated("]", 60)), "");
}

TEST(MaliciousFileTest, LimitsSizes) {
  EXPECT_THAT(error_of(std::string((std::size_t{1} << 20) + 1, 'a')), HasSubstr("larger than 1048576 bytes"));
  EXPECT_THAT(error_of("[" + repeated("1,", 120'000) + "]"), HasSubstr("more than 100000 values"));
}

TEST(MaliciousFileTest, RejectsBinaryFiles) {
  EXPECT_THAT(error_of(std::string("a: 1\n\0\1\2", 8)), HasSubstr("file.yaml:2:1: not a text file"));
  EXPECT_THAT(error_of("\x7f"
                       "ELF\2\1\1"),
              HasSubstr("not a text file"));
}

TEST(MaliciousFileTest, RejectsInvalidUtf8) {
  EXPECT_THAT(error_of("a: \xc3("), HasSubstr("not a text file in UTF-8"));
}

// Random bytes give a tree or an ExperimentError, and never another exception.
TEST(MaliciousFileTest, RandomBytesGiveATreeOrAnError) {
  const std::string alphabet = "{}[]:,-&*!|>'\"%@`#?~ \n\tab01.<\xc3\xbc\xff";
  std::mt19937 random(7);
  int trees = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    const std::size_t length = random() % 40;
    const std::size_t letters = alphabet.size() - (i % 2 == 0 ? 3 : 0);  // every other text is ASCII
    for (std::size_t j = 0; j < length; ++j) text += alphabet[random() % letters];
    trees += error_of(text).empty() ? 1 : 0;
  }
  EXPECT_GT(trees, 100);  // not only errors
}

// Returns a random tree and its text in flow style.
std::string random_text(std::mt19937& random, int depth, ValuePtr& value) {
  value = std::make_shared<Value>();
  const auto kind = depth == 0 ? 0 : random() % 3;
  if (kind == 0) {
    value->kind = Value::Kind::kScalar;
    value->text = std::to_string(random() % 1000);
    return value->text;
  }
  value->kind = kind == 1 ? Value::Kind::kSequence : Value::Kind::kMapping;
  std::string text = kind == 1 ? "[" : "{";
  const auto count = random() % 4;
  for (std::size_t i = 0; i < count; ++i) {
    ValuePtr child;
    const std::string inner = random_text(random, depth - 1, child);
    const std::string key = "k" + std::to_string(i);
    if (kind == 1) value->items.push_back(child);
    if (kind == 2) value->entries.push_back({key, {}, child});
    text += (kind == 2 ? key + ": " : "") + inner + ", ";
  }
  return text + (kind == 1 ? "]" : "}");
}

void expect_same(const Value& a, const Value& b) {
  ASSERT_EQ(a.kind, b.kind);
  EXPECT_EQ(a.text, b.text);
  ASSERT_EQ(a.items.size(), b.items.size());
  ASSERT_EQ(a.entries.size(), b.entries.size());
  for (std::size_t i = 0; i < a.items.size(); ++i) expect_same(*a.items[i], *b.items[i]);
  for (std::size_t i = 0; i < a.entries.size(); ++i) {
    EXPECT_EQ(a.entries[i].key, b.entries[i].key);
    expect_same(*a.entries[i].value, *b.entries[i].value);
  }
}

TEST(DocumentTest, ReadsBackRandomTrees) {
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    ValuePtr expected;
    const std::string text = random_text(random, 6, expected);
    expect_same(*parse_document(text, "f"), *expected);
  }
}

TEST(EmitTest, ReadsBackAsTheSameTree) {
  std::mt19937 random(9);
  for (int i = 0; i < 200; ++i) {
    ValuePtr tree;
    static_cast<void>(random_text(random, 6, tree));
    expect_same(*parse_document(to_yaml(*tree), "f"), *tree);
  }
}

TEST(EmitTest, KeepsTagsQuotesAndSharing) {
  const ValuePtr root = parse_document(
      "!obj:a.B {x: &s {k: 'it: is \"so\"'}, y: [*s, *s], n: ~, e: '', w: 'null', 'a key': \"two\\nlines\", m: '-'}",
      "f");
  const ValuePtr back = parse_document(to_yaml(*root), "f");
  expect_same(*back, *root);
  EXPECT_EQ(back->tag, "!obj:a.B");
  EXPECT_EQ(back->find("x"), back->find("y")->items[1]);
  EXPECT_EQ(back->find("a key")->text, "two\nlines");
  EXPECT_EQ(back->find("w")->kind, Value::Kind::kScalar);
}

// A tree with awkward text, tags, quoted scalars and shared values.
ValuePtr random_tree(std::mt19937& random, int depth, std::vector<ValuePtr>& finished) {
  if (!finished.empty() && random() % 8 == 0) return finished[random() % finished.size()];
  static const std::vector<std::string> kTexts{"",     "~",    "null", "true", "-",   "-1",      "1e-3",
                                               "- a",  "a: b", "#c",   "? ",   "*a",  "&b",      "!t",
                                               "a\nb", "\x01", " x ",  "%d",   "[1]", "\xc3\xbc"};
  static const std::vector<std::string> kTags{"", "", "!obj:a.b-C_1", "!f!g", "tag:yaml.org,2002:str", "!a,[b]"};
  const auto value = std::make_shared<Value>();
  value->kind = static_cast<Value::Kind>(depth == 0 ? random() % 2 : random() % 4);
  if (value->kind != Value::Kind::kNull) value->tag = kTags[random() % kTags.size()];
  if (value->kind == Value::Kind::kScalar) value->text = kTexts[random() % kTexts.size()];
  const std::size_t count = random() % 4;
  for (std::size_t i = 0; i < count && value->kind == Value::Kind::kSequence; ++i) {
    value->items.push_back(random_tree(random, depth - 1, finished));
  }
  for (std::size_t i = 0; i < count && value->kind == Value::Kind::kMapping; ++i) {
    const std::string key = kTexts[random() % kTexts.size()] + std::to_string(i);
    value->entries.push_back({key, {}, random_tree(random, depth - 1, finished)});
  }
  finished.push_back(value);
  return value;
}

// Compares values, tags, and which values are the same object.
void expect_same_sharing(const ValuePtr& a, const ValuePtr& b, std::map<const Value*, const Value*>& pairs) {
  const auto [known, added] = pairs.emplace(a.get(), b.get());
  ASSERT_EQ(known->second, b.get());
  if (!added) return;
  EXPECT_EQ(a->tag, b->tag);
  for (std::size_t i = 0; i < a->items.size(); ++i) expect_same_sharing(a->items[i], b->items[i], pairs);
  for (std::size_t i = 0; i < a->entries.size(); ++i) {
    expect_same_sharing(a->entries[i].value, b->entries[i].value, pairs);
  }
}

TEST(EmitTest, ReadsBackRandomTagsTextAndSharing) {
  std::mt19937 random(4);
  for (int i = 0; i < 500; ++i) {
    std::vector<ValuePtr> finished;
    const ValuePtr tree = random_tree(random, 5, finished);
    const std::string text = to_yaml(*tree);
    SCOPED_TRACE(text);
    const ValuePtr back = parse_document(text, "f");
    expect_same(*back, *tree);
    std::map<const Value*, const Value*> pairs;
    expect_same_sharing(tree, back, pairs);
    if (HasFailure()) break;
  }
}

TEST(EmitTest, KeepsStandardTagsAndControlCharacters) {
  const ValuePtr root = parse_document("{name: !!str run5, odd: \"\\x01\\x1f\\x7f\"}", "f");
  const ValuePtr back = parse_document(to_yaml(*root), "f");
  expect_same(*back, *root);
  EXPECT_EQ(back->find("name")->text, "run5");
  EXPECT_EQ(back->find("odd")->text, "\x01\x1f\x7f");
}

}  // namespace
}  // namespace weft::experiment
