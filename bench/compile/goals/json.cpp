// SPDX-License-Identifier: Apache-2.0
// What the others are compared with: a program that parses JSON and prints it.
#include <nlohmann/json.hpp>

#include <iostream>

int main() { std::cout << nlohmann::json::parse(R"({"mesh": [2, 4], "placements": ["R", "S0"]})").dump(2) << '\n'; }
