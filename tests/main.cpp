// SPDX-License-Identifier: Apache-2.0
//
// The one place that holds doctest's implementation. A filter that matches nothing is an error: a renamed file
// would otherwise turn its test into one that always passes.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

namespace {

unsigned matched = 0;

struct CountMatches : doctest::IReporter {
    explicit CountMatches(doctest::ContextOptions const&) {}
    void test_run_end(doctest::TestRunStats const& run) override { matched = run.numTestCasesPassingFilters; }

    void report_query(doctest::QueryData const&) override {}
    void test_run_start() override {}
    void test_case_start(doctest::TestCaseData const&) override {}
    void test_case_reenter(doctest::TestCaseData const&) override {}
    void test_case_end(doctest::CurrentTestCaseStats const&) override {}
    void test_case_exception(doctest::TestCaseException const&) override {}
    void subcase_start(doctest::SubcaseSignature const&) override {}
    void subcase_end() override {}
    void log_assert(doctest::AssertData const&) override {}
    void log_message(doctest::MessageData const&) override {}
    void test_case_skipped(doctest::TestCaseData const&) override {}
};
REGISTER_LISTENER("count_matches", 1, CountMatches);

}  // namespace

int main(int argc, char** argv) {
    doctest::Context context(argc, argv);
    int const result = context.run();
    if (context.shouldExit()) return result;  // only a question, such as --help
    if (matched == 0) {
        std::fputs("error: no test case matches the filters\n", stderr);
        return 1;
    }
    return result;
}
