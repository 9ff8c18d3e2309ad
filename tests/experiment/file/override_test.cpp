// Tests overrides of values in a file (--set).
#include <gmock/gmock.h>

#include "weft/experiment/file/document.h"
#include "weft/experiment/file/problems.h"

namespace weft::experiment {
namespace {

using testing::HasSubstr;

TEST(OverrideTest, ReplacesAndAddsValues) {
  const ValuePtr root =
      parse_document("{model: {epochs: 1, layers: [{name: a, n: 1}, {name: b, n: 2}]}, x: &s 1, y: *s}", "f");
  apply_override(*root, "model.epochs=3");
  apply_override(*root, "model.layers[0].n=5");
  apply_override(*root, "model.layers.b.n=6");
  apply_override(*root, "model.rate=0.5");
  apply_override(*root, "x=7");
  EXPECT_EQ(root->find("model")->find("epochs")->text, "3");
  EXPECT_EQ(root->find("model")->find("layers")->items[0]->find("n")->text, "5");
  EXPECT_EQ(root->find("model")->find("layers")->items[1]->find("n")->text, "6");
  EXPECT_EQ(root->find("model")->find("rate")->text, "0.5");
  EXPECT_EQ(root->find("y")->text, "7");  // an alias of x
}

// Merged entries are copies; values with their own anchor stay shared.
TEST(OverrideTest, ChangesOnlyOneCopyOfMergedEntries) {
  const ValuePtr root = parse_document(
      "{a: &x {rate: 1, rule: {type: sgd, steps: [1]}, s: &s {n: 1}, t: *s}, b: {<<: *x}, c: {<<: *x}}", "f");
  apply_override(*root, "a.rate=5");
  apply_override(*root, "b.rule.type=adam");
  apply_override(*root, "c.rule.steps[0]=7");
  EXPECT_EQ(root->find("b")->find("rate")->text, "1");
  EXPECT_EQ(root->find("a")->find("rule")->find("type")->text, "sgd");
  EXPECT_EQ(root->find("c")->find("rule")->find("type")->text, "sgd");
  EXPECT_EQ(root->find("a")->find("rule")->find("steps")->items[0]->text, "1");
  EXPECT_EQ(root->find("b")->find("rule")->find("steps")->items[0]->text, "1");
  apply_override(*root, "b.s.n=3");
  EXPECT_EQ(root->find("a")->find("t")->find("n")->text, "3");
  EXPECT_EQ(root->find("c")->find("s")->find("n")->text, "3");
}

TEST(OverrideTest, ReportsPathsThatDoNotExist) {
  const ValuePtr root = parse_document("{model: {epochs: 1, layers: [{name: a}, {name: b}]}}", "f");
  const auto text_of = [&](const std::string& assignment) {
    try {
      apply_override(*root, assignment);
    } catch (const ExperimentError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(text_of("model"), HasSubstr("missing '='"));
  EXPECT_THAT(text_of("=1"), HasSubstr("missing key"));
  EXPECT_THAT(text_of("modle.epochs=1"), HasSubstr("unknown key 'modle'; the keys are model"));
  EXPECT_THAT(text_of("model.epochs.deeper=1"), HasSubstr("unknown key 'deeper'; the parent is '1', not a mapping"));
  EXPECT_THAT(text_of("model.layers[2].n=1"),
              HasSubstr("the list has no item '2'; use an index from 0 to 1 or a name"));
  EXPECT_THAT(text_of("model.layers.c.n=1"), HasSubstr("the list has no item 'c'"));
  EXPECT_THAT(text_of("model.epochs=[1"), HasSubstr("invalid YAML"));
}

}  // namespace
}  // namespace weft::experiment
